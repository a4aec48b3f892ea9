import { ProofrunError, messageOf } from '../../src/core/errors.ts';
import type { PinnedImage } from '../../src/core/plan.ts';
import type { PullPolicy, PullProgress } from '../../src/executor/executor.ts';
import type { Engine } from './connect.host.ts';
import { parseImage, type ImageFacts } from './engine-facts.ts';
import { formatEndpoint } from './endpoint.ts';
import { registryAuth } from './registry-auth.host.ts';
import { foldProgress, noProgress } from './pull-progress.ts';

/** The image that a job without one runs in, when the engine has it: the tag that `job image build` makes. */
export const DEFAULT_IMAGE = 'proofrun-base:latest';

/** By engine and digest: what an image is doesn't change. Whether it is still there is found out when a container is made of it. */
const KNOWN = new WeakMap<Engine, Map<string, ImageFacts>>();

/** What the engine knows of an image by this name or digest; undefined: it has none. */
export async function findImage(engine: Engine, reference: string): Promise<ImageFacts | undefined> {
  const known = KNOWN.get(engine) ?? new Map<string, ImageFacts>();
  KNOWN.set(engine, known);
  const before = known.get(reference);
  if (before !== undefined) return before;
  try {
    const image = parseImage(await engine.docker.getImage(reference).inspect());
    if (image !== undefined) known.set(image.id, image);
    return image;
  } catch (error) {
    if (statusOf(error) === 404) return undefined;
    throw new ProofrunError('ERR_IMAGE', { message: `the engine can't say what ${JSON.stringify(reference)} is: ${messageOf(error)}`, cause: error });
  }
}

export function statusOf(error: unknown): number | undefined {
  return typeof error === 'object' && error !== null && 'statusCode' in error && typeof error.statusCode === 'number' ? error.statusCode : undefined;
}

export interface PinOptions {
  readonly pull: PullPolicy;
  readonly progress?: (progress: PullProgress) => void;
  readonly environment: NodeJS.ProcessEnv;
  readonly home: string;
}

/** Fetches what the policy says, and names the image by its digest. Throws ERR_IMAGE: it isn't there, or can't be fetched. */
export async function pinImage(engine: Engine, reference: string, options: PinOptions): Promise<PinnedImage> {
  const here = options.pull === 'always' ? undefined : await findImage(engine, reference);
  if (here !== undefined) return { reference, id: here.id, digests: here.digests };
  const local = /^sha256:[0-9a-f]{64}$/.test(reference) || reference === DEFAULT_IMAGE;
  if (options.pull === 'never' || local) {
    throw new ProofrunError('ERR_IMAGE', {
      message: `the image ${reference} is not on the engine ${formatEndpoint(engine.chosen.endpoint)}${local ? '' : ', and --pull never fetches none'}`,
      hint: local ? 'job image build' : `docker pull ${reference}, or --pull missing`,
    });
  }
  await pull(engine, reference, options);
  const fetched = await findImage(engine, reference);
  if (fetched === undefined) {
    throw new ProofrunError('ERR_IMAGE', { message: `the engine fetched ${reference} and doesn't have it`, hint: `docker image inspect ${reference}` });
  }
  return { reference, id: fetched.id, digests: fetched.digests };
}

async function pull(engine: Engine, reference: string, { progress, environment, home }: PinOptions): Promise<void> {
  const failed = (error: unknown): ProofrunError =>
    new ProofrunError('ERR_IMAGE', {
      message: `the image ${reference} can't be fetched: ${messageOf(error)}`,
      hint: 'check its name and the network; docker login for a registry that asks; job image build makes one from this machine',
      cause: error,
    });
  try {
    const authconfig = registryAuth(reference, environment, home);
    // A name without a tag would fetch every tag.
    const name = /@sha256:|:[^/]+$/.test(reference) ? reference : `${reference}:latest`;
    const stream = await engine.docker.pull(name, authconfig === undefined ? {} : { authconfig });
    let state = noProgress(reference);
    await new Promise<void>((resolve, reject) => {
      engine.docker.modem.followProgress(
        stream,
        (error: Error | null) => {
          if (error === null) resolve();
          else reject(error);
        },
        (event: unknown) => {
          state = foldProgress(state, event);
          progress?.(state);
        },
      );
    });
  } catch (error) {
    throw error instanceof ProofrunError ? error : failed(error);
  }
}

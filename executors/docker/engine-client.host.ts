import { Readable } from 'node:stream';
import type Docker from 'dockerode';
import { messageOf, ProofrunError } from '../../src/core/errors.ts';
import { safeLine } from '../../src/core/text-safety.ts';
import type { EngineClient, EngineImage } from './engine-client.ts';
import { parseImportAnswer } from './image/import-answer.ts';

/** What dockerode's errors carry; checked before it is read. */
function statusOf(error: unknown): number | undefined {
  return typeof error === 'object' && error !== null && 'statusCode' in error && typeof error.statusCode === 'number' ? error.statusCode : undefined;
}

/** An engine's own text is not ours: it goes to a screen made safe, on one line. */
function failed(call: string, error: unknown): ProofrunError {
  if (error instanceof ProofrunError) return error;
  const status = statusOf(error);
  const text = safeLine(messageOf(error).replace(/^\(HTTP code \d+\) /, ''), 400).trim();
  const unreachable = status === undefined;
  return new ProofrunError('ERR_ENGINE', {
    message: unreachable ? `no answer from the container engine (${call}): ${text}` : `the container engine refused to ${call} (HTTP ${status}): ${text}`,
    ...(unreachable ? { hint: 'is it running, and may you use its socket? docker version' } : {}),
    data: { call, ...(status === undefined ? {} : { status }) },
    cause: error,
  });
}

/** Sends a stream with a call. What made the stream fail goes before what the engine made of it. */
async function sending<T>(call: string, tar: Readable, run: () => Promise<T>): Promise<T> {
  const own: { error?: Error } = {};
  tar.once('error', (error) => {
    own.error = error;
  });
  try {
    return await run();
  } catch (error) {
    throw own.error instanceof ProofrunError ? own.error : failed(call, error);
  } finally {
    tar.destroy();
  }
}

interface InspectedImage {
  readonly Id: string;
  readonly RepoTags?: readonly string[] | null | undefined;
  readonly Size: number;
  readonly Created: string | number;
  readonly Os?: string;
  readonly Architecture?: string;
  readonly Labels?: Readonly<Record<string, string>> | null | undefined;
  readonly Config?: { readonly Labels?: Readonly<Record<string, string>> | null };
}

function imageOf(image: InspectedImage): EngineImage {
  return {
    id: image.Id,
    tags: image.RepoTags ?? [],
    sizeBytes: image.Size,
    createdMs: typeof image.Created === 'number' ? image.Created * 1000 : Date.parse(image.Created),
    labels: image.Labels ?? image.Config?.Labels ?? {},
    platform: `${image.Os ?? 'linux'}/${image.Architecture ?? ''}`,
  };
}

/** A container in which the volume that `container` has at `path` can be filled from the root, or `container` itself. */
async function standIn(docker: Docker, container: string, path: string): Promise<{ readonly id: string; readonly remove: () => Promise<void> }> {
  const facts = await docker.getContainer(container).inspect();
  if (!facts.HostConfig.ReadonlyRootfs) return { id: facts.Id, remove: () => Promise.resolve() };
  const volume = facts.Mounts.find(({ Type, Destination }) => Type === 'volume' && Destination === path)?.Name;
  if (volume === undefined) throw new Error(`the root of the container is read-only, and no volume is mounted at ${path}`);
  const made = await docker.createContainer({
    Image: facts.Image,
    // Never started.
    Entrypoint: ['/'],
    Cmd: [],
    NetworkDisabled: true,
    // Whoever reaps the container reaps this one as well.
    Labels: facts.Config.Labels,
    HostConfig: {
      NetworkMode: 'none',
      Mounts: [{ Type: 'volume', Source: volume, Target: path, VolumeOptions: { NoCopy: true, Labels: {}, DriverConfig: { Name: '', Options: {} } } }],
    },
  });
  return { id: made.id, remove: () => made.remove({ force: true }) };
}

/** The calls over a connection that was made elsewhere. */
export function engineClient(docker: Docker): EngineClient {
  return {
    putTree: (container, path, tar) =>
      sending('unpack a tree in the container', tar, async () => {
        const { id, remove } = await standIn(docker, container, path);
        try {
          await docker.getContainer(id).putArchive(tar, { path: '/' });
        } finally {
          await remove();
        }
      }),
    putArchive: (container, path, tar) =>
      sending('unpack an archive in the container', tar, async () => {
        await docker.getContainer(container).putArchive(tar, { path });
      }),
    getArchive: async (container, path) => {
      try {
        const stream = await docker.getContainer(container).getArchive({ path });
        if (!(stream instanceof Readable)) throw new Error('the answer is no stream');
        return stream;
      } catch (error) {
        throw failed('pack a directory of the container', error);
      }
    },
    importImage: (tar, options) =>
      sending('import an image', tar, async () => {
        const { repository, tag, changes, message, platform } = options;
        const answer = await docker.importImage(tar, {
          repo: repository,
          tag,
          message,
          changes: [...changes],
          ...(platform === undefined ? {} : { platform }),
        });
        const parts: Buffer[] = [];
        let bytes = 0;
        for await (const part of answer as AsyncIterable<Buffer>) {
          bytes += part.length;
          if (bytes <= MOST_ANSWER) parts.push(part);
        }
        const { id, error } = parseImportAnswer(Buffer.concat(parts).toString());
        if (id === undefined) throw new Error(error ?? 'it named no image');
        return id;
      }),
    inspectImage: async (name) => {
      try {
        return imageOf(await docker.getImage(name).inspect());
      } catch (error) {
        if (statusOf(error) === 404) return undefined;
        throw failed('inspect an image', error);
      }
    },
    listImages: async (label) => {
      try {
        return (await docker.listImages({ filters: { label: [label] } })).map(imageOf);
      } catch (error) {
        throw failed('list images', error);
      }
    },
  };
}

const MOST_ANSWER = 64 << 10;

import { spawn } from 'node:child_process';
import { join } from 'node:path';
import Dockerode from 'dockerode';
import { DEFAULT_IMAGE } from '../../executors/docker/images.host.ts';
import { whyNoEngine, type RemoteEnvironment } from './docker-engine.host.ts';

const IMAGE_SCRIPT = join(import.meta.dirname, '../../scripts/docker-image.mjs');

/** The environment that names the session's engine; undefined, with the reason, where there is none. */
export function engineEnvironment(): { readonly DOCKER_HOST: string } | string {
  const host = process.env['PROOFRUN_TEST_DOCKER'];
  return host === undefined ? (whyNoEngine() ?? 'this session started no engine') : { DOCKER_HOST: host };
}

/** The same engine over TCP with TLS on the loopback: one that is not known to see this machine's files. */
export function remoteEnvironment(): RemoteEnvironment | string {
  const text = process.env['PROOFRUN_TEST_DOCKER_REMOTE'];
  return text === undefined ? (whyNoEngine() ?? 'this session started no engine') : (JSON.parse(text) as RemoteEnvironment);
}

/** A client of the tests' own, for looking and for hostile images. */
export function engineClient(host = process.env['PROOFRUN_TEST_DOCKER'] ?? ''): Dockerode {
  return new Dockerode({ socketPath: host.replace(/^unix:\/\//, '') });
}

/** Makes the default image of a tree of this machine's programs, unless the engine has it. Idempotent; two at a time are harmless. */
export async function ensureImage(docker: Dockerode): Promise<void> {
  try {
    await docker.getImage(DEFAULT_IMAGE).inspect();
    return;
  } catch {
    // Not there yet.
  }
  const maker = spawn(process.execPath, [IMAGE_SCRIPT], { stdio: ['ignore', 'pipe', 'inherit'] });
  const answer = await docker.importImage(maker.stdout, { repo: DEFAULT_IMAGE.split(':')[0] ?? '', tag: 'latest' });
  await new Promise<void>((resolve, reject) => {
    docker.modem.followProgress(answer, (error: Error | null) => {
      if (error === null) resolve();
      else reject(error);
    });
  });
}

/** An image like the default one with other metadata: what a hostile image can say of itself. */
export async function imageSaying(docker: Dockerode, tag: string, lines: readonly string[]): Promise<string> {
  const container = await docker.createContainer({ Image: DEFAULT_IMAGE, Cmd: ['/bin/true'], NetworkDisabled: true });
  try {
    const changes = lines.map((line) => `changes=${encodeURIComponent(line)}`).join('&');
    await new Promise<void>((resolve, reject) => {
      docker.modem.dial(
        { path: `/commit?container=${container.id}&repo=${tag}&tag=latest&${changes}&`, method: 'POST', statusCodes: { 201: true }, options: {} },
        (error: Error | null) => {
          if (error === null) resolve();
          else reject(error);
        },
      );
    });
    return `${tag}:latest`;
  } finally {
    await container.remove({ force: true });
  }
}

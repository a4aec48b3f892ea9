import { basename, dirname } from 'node:path';
import type Docker from 'dockerode';
import { messageOf } from '../../src/core/errors.ts';

export interface ScrubRequest {
  readonly image: string;
  readonly shim: string;
  /** Overlay work directories that root's files keep this user from removing. */
  readonly directories: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
}

const SHIM = '/.proofrun/shim';

/**
 * Removes directories through a container that may do nothing else: no network, a read-only root, the shim alone, and of all capabilities
 * those that make file permissions not matter. Resolves to what is left, in words.
 */
export async function scrubDirectories(docker: Docker, request: ScrubRequest): Promise<readonly string[]> {
  const left: string[] = [];
  for (const directory of request.directories) {
    try {
      const container = await docker.createContainer({
        Image: request.image,
        Entrypoint: [SHIM, 'apply', '--remove', `/scrub/${basename(directory)}`],
        Cmd: [],
        User: '0:0',
        Labels: { ...request.labels },
        Healthcheck: { Test: ['NONE'] },
        HostConfig: {
          AutoRemove: true,
          NetworkMode: 'none',
          ReadonlyRootfs: true,
          CapDrop: ['ALL'],
          CapAdd: ['DAC_OVERRIDE', 'FOWNER'],
          SecurityOpt: ['no-new-privileges'],
          LogConfig: { Type: 'none', Config: {} },
          Mounts: [
            { Type: 'bind', Source: request.shim, Target: SHIM, ReadOnly: true },
            { Type: 'bind', Source: dirname(directory), Target: '/scrub', ReadOnly: false },
          ],
        },
      });
      const removed: Promise<unknown> = container.wait({ condition: 'removed' });
      removed.catch(() => undefined);
      await container.start();
      const ended: unknown = await removed;
      const code = typeof ended === 'object' && ended !== null && 'StatusCode' in ended ? ended.StatusCode : undefined;
      if (code !== 0) left.push(`${directory} could not be removed: the shim ended with ${String(code)}`);
    } catch (error) {
      left.push(`${directory} could not be removed: ${messageOf(error)}`);
    }
  }
  return left;
}

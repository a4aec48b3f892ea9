import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { existsSync, mkdtempSync, openSync, closeSync, readFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Dockerode from 'dockerode';
import { afterAll, beforeAll } from 'vitest';
import { engineClient } from '../../executors/docker/engine-client.host.ts';
import type { EngineClient } from '../../executors/docker/engine-client.ts';

const DOCKERD = ['/usr/sbin/dockerd', '/usr/bin/dockerd'].find((path) => existsSync(path));

/** Why no engine can be started here; undefined when one can. */
export function noEngine(): string | undefined {
  if (process.geteuid?.() !== 0) return 'an engine of its own is started by root only';
  return DOCKERD === undefined ? 'dockerd is not installed: apt-get install -y docker.io' : undefined;
}

export interface OwnEngine {
  readonly docker: Dockerode;
  readonly client: EngineClient;
  /** For DOCKER_HOST. */
  readonly host: string;
}

/**
 * An engine with a socket, data and processes of its own for one test file, ended and removed after it. Call at the top of a suite; the engine is
 * there when a test runs. REQUIRE_EXECUTORS=docker makes its absence a failure.
 */
export function useOwnEngine(): () => OwnEngine {
  let engine: OwnEngine | undefined;
  let child: ChildProcess | undefined;
  let directory = '';
  beforeAll(async () => {
    const why = noEngine();
    if (why !== undefined) {
      if ((process.env['REQUIRE_EXECUTORS'] ?? '').split(',').includes('docker')) throw new Error(why);
      return;
    }
    directory = mkdtempSync(join(tmpdir(), 'proofrun-own-engine-'));
    const socket = join(directory, 'docker.sock');
    const log = openSync(join(directory, 'log'), 'w');
    const flags = ['--bridge=none', '--iptables=false', '--ip6tables=false'];
    const places = ['--data-root', join(directory, 'data'), '--exec-root', join(directory, 'exec'), '--pidfile', join(directory, 'pid')];
    child = spawn(DOCKERD ?? '', ['--host', `unix://${socket}`, ...places, ...flags], { stdio: ['ignore', log, log], cwd: '/' });
    closeSync(log);
    const ended = new Promise<never>((_, reject) => {
      child?.once('error', reject);
      child?.once('exit', (code) => reject(new Error(`dockerd ended with ${code}: ${readFileSync(join(directory, 'log'), 'utf8').slice(-2000)}`)));
    });
    ended.catch(() => undefined);
    await Promise.race([answers(socket), ended]);
    const docker = new Dockerode({ socketPath: socket });
    engine = { docker, client: engineClient(docker), host: `unix://${socket}` };
  }, 60_000);
  afterAll(async () => {
    if (child?.exitCode === null) {
      const gone = new Promise((resolve) => child?.once('exit', resolve));
      child.kill('SIGTERM');
      await gone;
    }
    if (directory !== '') execFileSync('rm', ['-rf', directory]);
  }, 120_000);
  return () => {
    if (engine === undefined) throw new Error('no engine');
    return engine;
  };
}

/** Asks until the socket answers: each question waits for the one before. */
async function answers(socket: string): Promise<void> {
  for (;;) {
    const status = await new Promise<number | undefined>((resolve) => {
      const ask = request({ socketPath: socket, path: '/_ping', timeout: 1000 }, (answer) => {
        answer.resume();
        resolve(answer.statusCode);
      });
      ask.once('error', () => setTimeout(() => resolve(undefined), 50));
      ask.end();
    });
    if (status === 200) return;
  }
}

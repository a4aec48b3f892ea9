import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type Dockerode from 'dockerode';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startEngine, whyNoEngine, type TestEngine } from '../support/docker-engine.host.ts';
import { stateMark } from '../../executors/docker/labels.ts';
import { engineClient, engineEnvironment, ensureImage, remoteEnvironment } from '../support/docker-lab.host.ts';
import { jobLab, mountsBelow, processesWith, runsOf, spawnAnnouncing, untilOutput, type JobLab } from '../support/job-lab.host.ts';
import { describeUsers, type TestUser } from '../support/users.host.ts';

const environment = engineEnvironment();

/** A lab whose commands find one engine. */
function labOn(user: TestUser, engine: Readonly<Record<string, string>>): JobLab {
  const lab = jobLab(user);
  const env = { ...lab.env, ...engine };
  return { ...lab, env, job: (args, options = {}) => lab.job(args, { ...options, env: { ...engine, ...options.env } }) };
}

async function leftOn(docker: Dockerode, lab: JobLab): Promise<readonly string[]> {
  const containers = await docker.listContainers({ all: true });
  const inspected = await Promise.all(
    containers.map(async ({ Id }) =>
      JSON.stringify(
        await docker
          .getContainer(Id)
          .inspect()
          .catch(() => ''),
      ),
    ),
  );
  const found: { readonly Volumes: readonly unknown[] | null } = await docker.listVolumes();
  const volumes = found.Volumes ?? [];
  const file = join(lab.state, 'engine-token');
  const token = existsSync(file) ? readFileSync(file, 'utf8') : '';
  const ours = (text: string): boolean => text.includes(lab.base) || (token !== '' && text.includes(stateMark(token)));
  return [...inspected, ...volumes.map((one) => JSON.stringify(one))].filter(ours);
}

const remote = remoteEnvironment();
const places = [
  ["on the session's engine", typeof environment === 'string' ? {} : { ...environment }],
  ['over TLS, where the workspace is sent and the changes come back', typeof remote === 'string' ? {} : { ...remote }],
] as const;

describe.skipIf(typeof environment === 'string').each(places)('%s', (_, host) => {
  beforeAll(async () => ensureImage(engineClient()));

  describeUsers('kill -9 of the command line, in a container', (user) => {
    for (const point of ['launched', 'gate', 'released', 'running', 'exited', 'closing', 'closed'] as const) {
      test(`at ${point}: after the next job ls no process, container, volume, mount or litter, and the stage is reviewable`, async () => {
        const lab = labOn(user, host);
        lab.write('old.txt', 'old\n');
        const wrote = point === 'exited' || point === 'closing' || point === 'closed';
        const marker = `300.${randomBytes(4).readUInt32LE()}`;
        const script = wrote ? `echo staged > new.txt; sleep ${marker} & exit 0` : `echo staged > new.txt; exec sleep ${marker}`;
        const running = spawnAnnouncing(lab, ['run', '--safe', '--executor', 'docker', '--', 'sh', '-c', script]);
        await running.reach(point);
        running.child.kill('SIGKILL');

        const [run] = await runsOf(lab);
        expect(run).toMatchObject({ state: 'interrupted', ending: { kind: 'interrupted' } });
        expect(processesWith(marker)).toEqual([]);
        expect(await leftOn(engineClient(), lab)).toEqual([]);
        expect(mountsBelow(lab.base)).toEqual([]);
        expect(lab.tree()).toEqual(['old.txt']);
        const directory = join(lab.state, 'runs', run?.id ?? '');
        expect(existsSync(join(directory, 'scratch'))).toBe(false);
        if (!wrote) return;
        const applied = await lab.job(['apply', run?.id ?? '', '--all']);
        expect(applied.stderr).toBe('');
        expect(lab.tree()).toEqual(['new.txt', 'old.txt']);
      });
    }

    test('--safe passes in a container, and what it staged is applied with the own uid', async () => {
      const lab = labOn(user, host);
      lab.write('old.txt', 'old\n');
      lab.write('gone/a.txt', 'a\n');
      const run = await lab.job([
        'run',
        '--safe',
        '--executor',
        'docker',
        '--memory',
        '256MiB',
        '--processes',
        '64',
        '--',
        'sh',
        '-c',
        'echo new > new.txt; rm -r gone; id -u',
      ]);
      expect([run.code, run.stdout]).toEqual([0, `${String(user.uid)}\n`]);
      const verified = await lab.job(['verify', 'last']);
      expect(verified.code).toBe(0);
      const applied = await lab.job(['apply', 'last', '--all']);
      expect(applied.code).toBe(0);
      expect(lab.tree()).toEqual(['new.txt', 'old.txt']);
      expect(await leftOn(engineClient(), lab)).toEqual([]);
    });
  });
});

describe.skipIf(whyNoEngine() !== undefined)('an engine that dies', () => {
  let engine: TestEngine;
  beforeAll(async () => {
    engine = await startEngine();
    await ensureImage(engineClient(engine.host));
  });
  afterAll(() => engine.stop());

  describeUsers('kill -9 of dockerd in the middle of a run', (user) => {
    test.each(['seen', 'sent'] as const)(
      'workspace %s: the job ends with control lost; after the restart and the next command nothing is left, and the stage is intact',
      async (way) => {
        const lab = labOn(user, way === 'seen' ? { DOCKER_HOST: engine.host } : { ...engine.remote });
        lab.write('old.txt', 'old\n');
        const marker = `302.${randomBytes(4).readUInt32LE()}`;
        const started = await lab.job([
          'run',
          '--safe',
          '--executor',
          'docker',
          '-d',
          '--',
          'sh',
          '-c',
          `echo staged > new.txt; echo ready; exec sleep ${marker}`,
        ]);
        const id = started.stdout.trim();
        await untilOutput(lab, id);
        // Not the supervisor, whose own arguments hold the script.
        const sleeper = `sleep\0${marker}`;
        expect(processesWith(sleeper).length).toBe(1);
        await engine.crash();
        const waited = await lab.job(['wait', id]);
        expect(waited.code).toBe(202);
        expect(processesWith(sleeper)).toEqual([]);
        // The next job on this engine.
        const next = await lab.job(['run', '--safe', '--executor', 'docker', '--', 'true']);
        expect([next.code, next.stderr]).toEqual([0, expect.stringContaining('enforced')]);
        expect(await leftOn(engineClient(engine.host), lab)).toEqual([]);
        expect(mountsBelow(lab.base)).toEqual([]);
        const [, run] = await runsOf(lab);
        expect(run).toMatchObject({ state: 'failed', stage_state: 'staged' });
        const applied = await lab.job(['apply', id, '--all']);
        expect(applied.code).toBe(0);
        expect(lab.tree()).toEqual(['new.txt', 'old.txt']);
      },
    );
  });
});

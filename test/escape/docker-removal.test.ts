import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { CONTROLS } from '../../src/core/plan.ts';
import { DockerLab, levelsWithout, LIMITS, rootAndOrdinary, type DockerJob } from '../support/docker-job.host.ts';
import { engineClient, engineEnvironment, ensureImage } from '../support/docker-lab.host.ts';
import { DOCKER_REMOVALS, NOT_LEFT_OUT } from '../support/docker-removals.ts';

const environment = engineEnvironment();

describe.skipIf(typeof environment === 'string')('a control that is left out of a container is noticed', () => {
  const labs = new Map<string, DockerLab>();
  beforeAll(async () => {
    await ensureImage(engineClient());
    const { root, ordinary } = rootAndOrdinary();
    for (const owner of [root, ordinary]) {
      const lab = new DockerLab(owner);
      lab.write('.env', 'TOKEN=hidden\n');
      labs.set(owner.kind, lab);
    }
  });
  const attempt = async (owner: 'root' | 'user', job: DockerJob) => {
    const lab = labs.get(owner);
    if (lab === undefined) throw new Error('no lab');
    const report = await lab.run(['/bin/sh', '-c', 'echo started; echo x > marker'], { limits: LIMITS, hidden: [join(lab.workspace, '.env')], ...job });
    return { report, marked: existsSync(join(report.upper, 'marker')) || existsSync(join(lab.workspace, 'marker')) };
  };

  test.each(['root', 'user'] as const)('nothing left out, workspace of %s: every level is enforced, and the command runs', async (owner) => {
    const { report, marked } = await attempt(owner, {});
    expect(report.unmet).toEqual([]);
    expect(report.levels).toEqual(levelsWithout([]));
    expect([report.ending, report.stdout, marked]).toEqual([{ kind: 'exit', code: 0 }, 'started\n', true]);
  });

  test('nothing left out, no further program: every level is enforced, and the command runs', async () => {
    const { report, marked } = await attempt('user', { programs: 'none' });
    expect([report.unmet, report.levels]).toEqual([[], levelsWithout([])]);
    expect([report.ending, report.stdout, marked]).toEqual([{ kind: 'exit', code: 0 }, 'started\n', true]);
  });

  for (const removal of DOCKER_REMOVALS) {
    test(`${removal.control}: ${removal.how}`, async () => {
      const owner = removal.ownedByUser === true ? 'user' : 'root';
      const { report, marked } = await attempt(owner, { alter: removal.alter, ...(removal.programs === undefined ? {} : { programs: removal.programs }) });
      expect(report.decision.kind).toBe('refuse');
      expect([report.stdout, marked]).toEqual(['', false]);
      expect([report.unmet, report.levels]).toEqual([report.unmet, levelsWithout(removal.lost)]);
    });
  }

  test('in default mode it runs, and the level says so', async () => {
    const alter = DOCKER_REMOVALS.find(({ control }) => control === 'seccomp')?.alter;
    const { report } = await attempt('root', { mode: 'default', ...(alter === undefined ? {} : { alter }) });
    expect([report.stdout, report.levels['subprocess']]).toEqual(['started\n', 'unenforced']);
  });
});

describe('the table of removals from a container', () => {
  test('every control is left out in at least one way, or it is said why not', () => {
    const tried = new Set([...DOCKER_REMOVALS.map(({ control }) => control), ...Object.keys(NOT_LEFT_OUT)]);
    expect(CONTROLS.filter((control) => !tried.has(control))).toEqual([]);
  });
});

import { beforeAll, describe, expect, test } from 'vitest';
import { DOCUMENTED } from '../../scripts/capability-table.ts';
import { admit } from '../../src/admission/admit.ts';
import { DockerLab, levelsWithout, rootAndOrdinary } from '../support/docker-job.host.ts';
import { engineClient, engineEnvironment, ensureImage } from '../support/docker-lab.host.ts';
import { effectiveJob } from '../support/native-job.ts';

const environment = engineEnvironment();

describe.skipIf(typeof environment === 'string')('channels and runtimes of a container', () => {
  let lab: DockerLab;
  beforeAll(async () => {
    await ensureImage(engineClient());
    lab = new DockerLab(rootAndOrdinary().ordinary);
  });

  test("over the container's own input and output the evidence is the same, and output is byte for byte", async () => {
    const report = await lab.run(['/usr/bin/perl', '-e', 'print map { chr } 0..255 for 1..3000; print STDERR "apart"; exit 9'], {
      executor: { channel: 'attach' },
    });
    expect(report.unmet).toEqual([]);
    expect(report.levels).toEqual(levelsWithout([]));
    expect([report.ending, report.stderr]).toEqual([{ kind: 'exit', code: 9 }, 'apart']);
    expect(Buffer.from(report.stdout).length).toBeGreaterThanOrEqual(768_000);
  });

  test('the capability matrix says of the docker executor what its probe says of an engine with a bridge', async () => {
    const documented = DOCUMENTED.find(({ executor }) => executor === 'docker');
    const here = await lab.capabilities();
    const limits = new Set(['process_limit', 'memory_limit', 'cpu_limit']);
    const rest = (controls: readonly string[] = []): readonly string[] => controls.filter((control) => !limits.has(control)).sort();
    expect(rest(here.controls)).toEqual(rest(documented?.controls));
    expect([here.subprocess, here.cooperative, here.images]).toEqual([documented?.subprocess, documented?.cooperative, documented?.images]);
    expect({ ...here.network, public: true }).toEqual(documented?.network);
  });

  test('runsc: a plan under --safe says what can not be proven, and by whom', async () => {
    const capabilities = await lab.capabilities();
    if (capabilities.runtimes?.some(({ name }) => name === 'runsc') !== true) throw new Error('the test engine has no runsc');
    const job = {
      ...effectiveJob({ argv: ['/bin/true'], workspace: lab.workspace, home: lab.home, mode: 'safe' }),
      executor: 'docker' as const,
      runtime: 'runsc',
    };
    const admission = admit(job, [capabilities]);
    if (admission.kind !== 'refused') throw new Error('admitted');
    const row = admission.refusal.rows.find(({ dimension }) => dimension === 'subprocess');
    expect(row).toMatchObject({
      planned: 'unsupported',
      missing: expect.stringMatching(/no new privs.*runsc has a kernel of its own in user space/) as string,
    });
    expect(admit({ ...job, runtime: 'nosuch' }, [capabilities])).toMatchObject({
      kind: 'refused',
      refusal: { reason: expect.stringMatching(/runtime nosuch was asked for, and the engine has/) as string },
    });
  });

  test('runsc: in default mode the command runs, and only what has receipts is enforced', async () => {
    const report = await lab.run(['/bin/sh', '-c', 'cat /proc/version; echo staged > new; echo end'], { mode: 'default', runtime: 'runsc' });
    expect(report.ending).toEqual({ kind: 'exit', code: 0 });
    expect(report.stdout).toMatch(/end\n$/);
    const { file_read, file_write, subprocess, credentials, network } = report.levels;
    expect([report.unmet, { file_read, file_write, subprocess, credentials, network }]).toEqual([
      [],
      { file_read: 'unenforced', file_write: 'unenforced', subprocess: 'unenforced', credentials: 'unenforced', network: 'enforced' },
    ]);
    expect(report.closing.observations.receipts.find(({ id }) => id === 'engine.runtime')).toMatchObject({ source: 'engine', value: 'runsc' });
  });
});

import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync, chmodSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { StageLab, useStageDriver } from '../support/stage-lab.host.ts';
import { asUser, describeUsers, spawnAs } from '../support/users.host.ts';

let tools = '';
beforeAll(() => {
  tools = mkdtempSync(join(tmpdir(), 'proofrun-storm-'));
  execFileSync('cc', ['-O2', '-Wall', '-Wextra', '-Werror', '-o', join(tools, 'link-storm'), resolve(import.meta.dirname, '../fixtures/link-storm.c')]);
  chmodSync(tools, 0o755);
});
afterAll(() => rmSync(tools, { recursive: true, force: true }));

const DIRECTORIES = ['a', 'a/b', 'a/b/c', 'z'];
const MAKE = 'mkdir -p a/b/c z; for d in a a/b a/b/c z; do for f in 1 2 3; do echo old > $d/f$f; done; mkdir $d/gone; echo g > $d/gone/g; done';
const JOB =
  'for d in a a/b a/b/c z; do echo new > $d/f1; rm $d/f2; echo n > $d/n; mkdir $d/made; echo m > $d/made/m; rm -r $d/gone; chmod 600 $d/f3; ln -s f1 $d/l; done';
const ROUNDS = 25;

describeUsers('while another process swaps directories for links', (user) => {
  useStageDriver();

  /** Runs something under the storm; returns how many swaps were made. */
  const storm = async (lab: StageLab, canary: string, during: () => Promise<unknown>): Promise<number> => {
    const child = spawnAs(user, [join(tools, 'link-storm'), lab.workspace, canary, ...DIRECTORIES], { stdio: ['pipe', 'pipe', 'inherit'] });
    const said: Buffer[] = [];
    const ready = new Promise<void>((done) => {
      child.stdout?.on('data', (part: Buffer) => {
        said.push(part);
        done();
      });
    });
    await ready;
    try {
      await during();
    } finally {
      child.stdin?.end();
      await new Promise((done) => child.once('close', done));
    }
    return Number(Buffer.concat(said).toString().replace('ready\n', ''));
  };

  const prepare = async (): Promise<{ lab: StageLab; canary: string }> => {
    const lab = await StageLab.over(user, MAKE);
    const canary = join(lab.base, 'canary');
    await asUser(user, ['cp', '-a', lab.workspace, canary]);
    return { lab, canary };
  };

  test('at every component, apply and undo touch nothing outside, and the tree is whole', { timeout: 180_000 }, async () => {
    const { lab, canary } = await prepare();
    await lab.job(JOB);
    const outside = lab.snapshot('exact', canary);
    const before = lab.snapshot();
    const outcomes: Record<string, number> = {};
    let swaps = 0;
    let batch: string | undefined;
    for (let round = 0; round < ROUNDS; round++) {
      let pending: string | undefined;
      swaps += await storm(lab, canary, async () => {
        const outcome = batch === undefined ? await lab.apply() : await lab.request('undo', { batch });
        if (batch === undefined && outcome.error === undefined) pending = outcome.batches?.at(-1);
        const word = `${batch === undefined ? 'apply' : 'undo'} ${outcome.error?.code ?? 'done'}`;
        outcomes[word] = (outcomes[word] ?? 0) + 1;
      });
      expect(lab.snapshot('exact', canary)).toEqual(outside);
      // Whatever the storm left half way is settled in the still, and then the next one is the other of the two.
      await lab.must('recover');
      expect(lab.litter()).toEqual([]);
      if (batch === undefined) {
        const done = await lab.apply();
        expect(done.error).toBeUndefined();
        batch = pending ?? done.batches?.at(-1);
      } else {
        const done = await lab.request('undo', { batch });
        if (done.error !== undefined) expect(done.error.code).toBe('ERR_RUN_STATE');
        batch = undefined;
        expect(lab.snapshot()).toEqual(before);
        // Another stage over what there is now.
        // The overlay's work directory has mode 0.
        execFileSync('sh', ['-c', 'chmod -R u+rwx "$1"; rm -rf "$1"', 'sh', join(lab.base, 'stage')]);
        lab.applied = [];
        await lab.prepare();
        await lab.job(JOB);
      }
    }
    process.stderr.write(`${swaps} swaps (${user.kind}): ${JSON.stringify(outcomes)}\n`);
    expect(swaps).toBeGreaterThan(1000);
    expect(Object.keys(outcomes).some((word) => word.includes('ERR_'))).toBe(true);
  });

  test('control arm: a copy that follows links writes outside', async () => {
    const { lab, canary } = await prepare();
    const outside = lab.snapshot('exact', canary);
    const fresh = join(lab.base, 'fresh');
    cpSync(lab.workspace, fresh, { recursive: true });
    await storm(lab, canary, async () => {
      for (let round = 0; round < 60; round++) {
        await asUser(user, ['sh', '-c', `for d in a a/b a/b/c z; do echo evil > '${lab.workspace}'/$d/f1; done 2>/dev/null; :`]);
      }
    });
    expect(lab.snapshot('exact', canary)).not.toEqual(outside);
  });
});

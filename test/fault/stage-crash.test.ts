import { buildSync } from 'esbuild';
import { chmodSync, copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
// @ts-expect-error -- a script without types
import { buildShim } from '../../scripts/build-shim.mjs';
import { LEDGER_POINTS } from '../../src/stage/apply-settle.host.ts';
import type { Kill, SeriesRequest } from '../fixtures/crash-series.ts';
import { StageLab, useStageDriver } from '../support/stage-lab.host.ts';
import { asUser, describeUsers } from '../support/users.host.ts';

const CLONE = resolve(import.meta.dirname, '../..');
const NODE = process.env['PROOFRUN_TEST_NODE'] ?? process.execPath;

/** One change of each kind, among them what takes more than one call. */
const MAKE =
  'mkdir -p keep gone/sub d shut; echo k > keep/k; echo g > gone/g; echo s > gone/sub/s; echo old > f; echo t > t; ln -s f l; echo m > m; echo x > d/x; echo p > mode; echo in > shut/in; chmod 555 shut; mkdir close; echo c > close/c; mkdir lock shop; echo l > lock/l; echo c > shop/c; python3 -c \'import os; os.setxattr("mode", "user.colour", b"red")\'';
const JOB =
  'rm -r gone; echo new > f; rm t; mkdir t; echo in > t/in; ln -sfn t l; mv m keep/moved; chmod 700 d; mkdir -p n/n; echo n > n/n/n; ln n/n/n n/link; rm keep/k; mkfifo pipe; truncate -s 1M hole; chmod 640 mode; python3 -c \'import os; os.setxattr("mode", "user.colour", b"blue"); os.setxattr("mode", "user.size", b"s")\'; chmod 755 shut; rm shut/in; echo two > shut/two; chmod 555 shut; mkdir close/made; echo m > close/made/m; chmod 600 close/c; chmod 500 close; chmod 600 lock/l shop/c; mkdir -p lock/in; echo i > lock/in/i';

let tools = '';
beforeAll(() => {
  const report = (buildShim as (options: { calls: boolean }) => { failed: string[] })({ calls: true });
  expect(report.failed).toEqual([]);
  tools = mkdtempSync(join(tmpdir(), 'proofrun-crash-'));
  copyFileSync(join(CLONE, 'build', 'calls', 'proofrun-shim'), join(tools, 'proofrun-shim'));
  const banner = { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" };
  buildSync({
    entryPoints: [join(CLONE, 'test/fixtures/crash-series.ts')],
    bundle: true,
    platform: 'node',
    format: 'esm',
    outfile: join(tools, 'series.mjs'),
    banner,
    logLevel: 'error',
  });
  chmodSync(tools, 0o755);
  chmodSync(join(tools, 'proofrun-shim'), 0o755);
});
afterAll(() => rmSync(tools, { recursive: true, force: true }));

describeUsers('a crash', (user) => {
  useStageDriver();

  const series = async (verb: SeriesRequest['verb']): Promise<readonly Kill[]> => {
    const lab = await StageLab.over(user, MAKE);
    await lab.job(JOB);
    await asUser(user, ['mkdir', join(lab.base, 'series')]);
    const request: SeriesRequest = {
      verb,
      shim: join(tools, 'proofrun-shim'),
      base: join(lab.base, 'series'),
      template: lab.workspace,
      upper: lab.upper,
      markers: lab.markers,
    };
    const ended = await asUser(user, [NODE, join(tools, 'series.mjs')], { cwd: lab.base, input: JSON.stringify(request) });
    if (ended.code !== 0) throw new Error(ended.stderr);
    const kills = JSON.parse(ended.stdout) as readonly Kill[];
    process.stderr.write(`${verb} (${user.kind}): ${kills.length} kills\n`);
    return kills;
  };

  for (const verb of ['apply', 'undo'] as const) {
    test(`before each call of ${verb} in turn: the tree is exactly before or exactly after, and both occur`, { timeout: 300_000 }, async () => {
      const kills = await series(verb);
      expect(kills.length).toBeGreaterThan(60);
      const [old, fresh] = verb === 'apply' ? ['before', 'after'] : ['after', 'before'];
      const wrong = kills.filter(
        (kill) => kill.tree !== (kill.outcome === 'finished' ? fresh : old) || kill.litter.length > 0 || !kill.recorded || kill.outcome === 'died',
      );
      expect(wrong).toEqual([]);
      expect(new Set(kills.map((kill) => kill.outcome))).toEqual(new Set(['rolled_back', 'finished']));
      expect(new Set(kills.map((kill) => kill.call))).toContain('renameat2');
    });
  }

  test(
    'before each call of an apply and then of what puts it right: the tree is exactly before or exactly after, and both occur',
    { timeout: 600_000 },
    async () => {
      const kills = await series('recover');
      expect(kills.length).toBeGreaterThan(60);
      const wrong = kills.filter((kill) => kill.tree !== (kill.outcome === 'finished' ? 'after' : 'before') || kill.litter.length > 0 || !kill.recorded);
      expect(wrong).toEqual([]);
      expect(new Set(kills.map((kill) => kill.outcome))).toEqual(new Set(['rolled_back', 'finished']));
    },
  );

  test('a directory that somebody closes between the crash and the next command is no sign that anything was done', { timeout: 300_000 }, async () => {
    const kills = await series('closed');
    expect(kills.length).toBeGreaterThan(60);
    const wrong = kills.filter((kill) => kill.tree !== (kill.outcome === 'finished' ? 'after' : 'before') || kill.litter.length > 0 || !kill.recorded);
    expect(wrong).toEqual([]);
  });

  test('before each call of drop in turn: the workspace stays, and the next drop ends it', { timeout: 300_000 }, async () => {
    const kills = await series('drop');
    expect(kills.length).toBeGreaterThan(20);
    expect(kills.filter((kill) => kill.tree !== 'before' || !kill.recorded)).toEqual([]);
  });

  describe('of the whole command between the ledger and the shim', () => {
    for (const verb of ['apply', 'undo'] as const) {
      for (const point of LEDGER_POINTS) {
        if (verb === 'undo' && point === 'kept') continue;
        test(`${verb}, ${point}`, async () => {
          const lab = await StageLab.over(user, MAKE);
          await lab.job(JOB);
          const before = lab.snapshot('exact');
          let batch = '';
          if (verb === 'undo') batch = (await lab.apply()).batches?.[0] ?? '';
          const applied = lab.snapshot('exact');
          const dead = verb === 'apply' ? await lab.apply({}, { dieAt: point }) : await lab.request('undo', { dieAt: point, batch });
          expect(dead).toMatchObject({ died: true });
          await lab.must('recover');
          const carriedOut = LEDGER_POINTS.indexOf(point) >= LEDGER_POINTS.indexOf('carried-out');
          const now = lab.snapshot('exact');
          if (verb === 'undo') expect(now).toEqual(carriedOut ? before : applied);
          else if (carriedOut) expect(Object.keys(now)).toContain('n/n/n');
          else expect(now).toEqual(before);
          expect(lab.litter()).toEqual([]);
          expect(await lab.must('recover')).toEqual([]);
        });
      }
    }
  });
});

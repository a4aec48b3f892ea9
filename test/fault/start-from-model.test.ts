import fc from 'fast-check';
import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { jobLab, type JobLab } from '../support/job-lab.host.ts';
import { describeUsers } from '../support/users.host.ts';

/** Sequences that share one workspace, each in a directory of its own: a run costs much more than a sequence. */
const TOGETHER = 30;

const path = fc.array(fc.constantFrom('a', 'b', 'c'), { minLength: 1, maxLength: 3 }).map((parts) => parts.join('/'));
const text = fc.constantFrom('one', 'two', 'three', '');

/** Shell commands that may fail, alike in a sandbox and without it. */
const operation = fc.oneof(
  { weight: 4, arbitrary: fc.tuple(path, text).map(([at, content]) => `[ -p ${at} ] || printf '${content}' > ${at}`) },
  { weight: 2, arbitrary: fc.tuple(path, text).map(([at, content]) => `[ -p ${at} ] || printf '${content}' >> ${at}`) },
  { weight: 4, arbitrary: path.map((at) => `mkdir -p ${at}`) },
  { weight: 4, arbitrary: path.map((at) => `rm -rf ${at}`) },
  { weight: 1, arbitrary: path.map((at) => `rmdir ${at}`) },
  { weight: 3, arbitrary: fc.tuple(path, path).map(([from, to]) => `mv -T ${from} ${to}`) },
  { weight: 2, arbitrary: fc.tuple(path, path).map(([target, at]) => `ln -sfT ${target} ${at}`) },
  { weight: 1, arbitrary: path.map((at) => `mkfifo ${at}`) },
  { weight: 1, arbitrary: path.map((at) => `[ -d ${at} ] && chmod 700 ${at}`) },
  { weight: 1, arbitrary: path.map((at) => `[ -f ${at} ] && [ ! -L ${at} ] && chmod 640 ${at}`) },
);
const part = fc.array(operation, { minLength: 1, maxLength: 10 });
const sequence = fc.record({ before: part, first: part, second: part, third: part });

const script = (parts: readonly string[]): string => parts.map((one) => `{ ${one}; } 2>/dev/null || :`).join('\n');
const inEach = (all: readonly (readonly string[])[]): string => all.map((parts, index) => `mkdir -p s${index}; ( cd s${index}\n${script(parts)}\n)`).join('\n');

/** Every entry with type, mode, link target and content. */
function snapshot(lab: JobLab): string {
  const listing = "find . -mindepth 1 -printf '%P %y %m %l\\n' | sort; find . -type f -exec sha256sum {} + | sort -k2";
  return execFileSync('sh', ['-c', listing], { cwd: lab.workspace, encoding: 'utf8' });
}

describeUsers('a model of runs on results', (user) => {
  test('three runs, each on the one before, and a fork, give what the same operations give directly', { timeout: 300_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(sequence, { minLength: TOGETHER, maxLength: TOGETHER }), async (sequences) => {
        const [before, first, second, third] = (['before', 'first', 'second', 'third'] as const).map((key) => inEach(sequences.map((one) => one[key])));
        const direct = jobLab(user);
        const lab = jobLab(user);
        const run = async (where: JobLab, args: readonly string[], text = ''): Promise<void> => {
          const ended = await where.job([...args, '--', 'sh', '-c', `umask 022\n${text}`]);
          expect(ended.code, ended.stderr).toBe(0);
        };
        const apply = async (selector: string): Promise<void> => {
          const ended = await lab.job(['apply', selector, '--all']);
          expect(ended.code, ended.stderr).toBe(0);
        };
        for (const where of [direct, lab]) await run(where, ['run', '-q', '--executor', 'host'], before);
        const untouched = snapshot(lab);
        await run(lab, ['run', '--safe', '-q'], first);
        await run(lab, ['run', '--safe', '-q', '--on', 'last'], second);
        expect((await lab.job(['checkpoint', 'create', 'last', '--name', 'second'])).code).toBe(0);
        await run(lab, ['run', '--safe', '-q', '--on', 'last', '--name', 'onto'], third);
        await run(lab, ['fork', 'second', '--safe', '-q', '--name', 'forked'], third);
        expect(snapshot(lab)).toBe(untouched);

        for (const text of [first, second, third]) await run(direct, ['run', '-q', '--executor', 'host'], text);
        const inside = await lab.job([
          'inspect',
          'onto',
          '--',
          'sh',
          '-c',
          "find . -mindepth 1 -printf '%P %y %m %l\\n' | sort; find . -type f -exec sha256sum {} + | sort -k2",
        ]);
        expect(inside.stdout).toBe(snapshot(direct));
        const both = await Promise.all(['onto', 'forked'].map(async (name) => (await lab.job(['diff', name, '--patch'])).stdout));
        expect(both[1]).toBe(both[0]);
        await apply('onto');
        expect(snapshot(lab)).toBe(snapshot(direct));
        expect((await lab.job(['checkpoint', 'verify', 'second'])).code).toBe(0);
      }),
      { numRuns: Number(process.env['PROOFRUN_MODEL_RUNS'] ?? 3), endOnFailure: true },
    );
  });
});

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { StageLab, useStageDriver } from '../support/stage-lab.host.ts';
import { describeUsers } from '../support/users.host.ts';

/** Sequences that share one workspace, each in a directory of its own: a real run costs much more than a sequence. */
const TOGETHER = 25;

const path = fc.array(fc.constantFrom('a', 'b', 'c'), { minLength: 1, maxLength: 3 }).map((parts) => parts.join('/'));
const text = fc.constantFrom('one', 'two', 'three\\nlines\\n', '');
const mode = fc.constantFrom('755', '700', '644', '600', '750');

/** Shell commands that may fail, alike on the overlay and without it. None opens a fifo, which would wait for ever, or copies into what it copies. */
const operation = fc.oneof(
  { weight: 4, arbitrary: fc.tuple(path, text).map(([at, content]) => `[ -p ${at} ] || printf '${content}' > ${at}`) },
  { weight: 2, arbitrary: fc.tuple(path, text).map(([at, content]) => `[ -p ${at} ] || printf '${content}' >> ${at}`) },
  { weight: 3, arbitrary: path.map((at) => `mkdir -p ${at}`) },
  { weight: 3, arbitrary: path.map((at) => `rm -rf ${at}`) },
  { weight: 1, arbitrary: path.map((at) => `rmdir ${at}`) },
  { weight: 3, arbitrary: fc.tuple(path, path).map(([from, to]) => `mv -T ${from} ${to}`) },
  { weight: 2, arbitrary: fc.tuple(path, path).map(([from, to]) => `rm -rf ../copy; cp -a -T ${from} ../copy && mv -T ../copy ${to}; rm -rf ../copy`) },
  { weight: 2, arbitrary: fc.tuple(path, path).map(([target, at]) => `ln -sfT ${target} ${at}`) },
  { weight: 1, arbitrary: path.map((at) => `mkfifo ${at}`) },
  {
    weight: 2,
    arbitrary: fc
      .tuple(mode, path)
      .map(([bits, at]) => `[ -d ${at} ] && chmod ${bits.replace(/^6/, '7')} ${at} || { [ -f ${at} ] && [ ! -L ${at} ] && chmod ${bits} ${at}; }`),
  },
  { weight: 1, arbitrary: fc.tuple(path, path).map(([from, to]) => `[ -f ${from} ] && ln -T ${from} ${to}`) },
);
const sequence = fc.record({ before: fc.array(operation, { maxLength: 12 }), job: fc.array(operation, { minLength: 1, maxLength: 12 }) });

const script = (parts: readonly string[]): string => parts.map((part) => `{ ${part}; } 2>/dev/null || :`).join('\n');
const inEach = (all: readonly (readonly string[])[]): string => all.map((parts, index) => `mkdir -p s${index}; ( cd s${index}\n${script(parts)}\n)`).join('\n');

describeUsers('a model of the stage', (user) => {
  useStageDriver();

  test('applying what a job did gives the tree that the same operations give directly', { timeout: 300_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(sequence, { minLength: TOGETHER, maxLength: TOGETHER }), async (sequences) => {
        const before = inEach(sequences.map((one) => one.before));
        const job = inEach(sequences.map((one) => one.job));
        const lab = new StageLab(user);
        await lab.here(':');
        await lab.hereAsJob(before);
        await lab.prepare();
        const untouched = lab.snapshot('exact');
        await lab.job(job);
        expect(lab.snapshot('exact')).toEqual(untouched);
        const direct = new StageLab(user);
        await direct.here(':');
        await direct.hereAsJob(`${before}\n${job}`);
        const outcome = await lab.apply();
        expect(outcome.error).toBeUndefined();
        expect(lab.snapshot()).toEqual(direct.snapshot());
        expect((await lab.view()).changes).toEqual([]);
        expect(lab.litter()).toEqual([]);
      }),
      { numRuns: Number(process.env['PROOFRUN_MODEL_RUNS'] ?? 4), endOnFailure: true },
    );
  });
});

import { Writable } from 'node:stream';
import { expect, test } from 'vitest';
import type { CliContext } from '../../src/cli/context.ts';
import { startProgress } from '../../src/cli/report/progress.ts';

function contextAt(times: readonly number[]): { readonly context: CliContext; readonly said: string[] } {
  const said: string[] = [];
  const sink = new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      said.push(chunk.toString());
      done();
    },
  });
  let at = 0;
  const clock = (): number => times[Math.min(at++, times.length - 1)] ?? 0;
  return { said, context: { env: {}, cwd: '/', stdout: sink, stderr: sink, isTerminal: { stdin: false, stdout: false, stderr: false }, columns: 80, clock } };
}

test('events begin after a second and come four times a second at most, one object a line', () => {
  const { context, said } = contextAt([0, 100, 999, 1000, 1100, 1249, 1250, 1251, 9000]);
  const progress = startProgress('applying', context, { json: true });
  for (const done of [1, 2, 3, 4, 5, 6, 7, 8]) progress.update(done, 10);
  progress.stop();
  progress.stop();
  expect(said).toEqual([3, 6, 8].map((done) => `{"event":"progress","work":"applying","done":${done},"total":10}\n`));
});

test('without a terminal and without --json nothing is said', () => {
  const { context, said } = contextAt([0, 5000]);
  const progress = startProgress('applying', context, { json: false });
  progress.update(1, 2);
  progress.stop();
  expect(said).toEqual([]);
});

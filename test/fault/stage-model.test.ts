import fc from 'fast-check';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { expect, test } from 'vitest';
import { jobLab, type JobLab } from '../support/job-lab.host.ts';
import { actualTree, exactTree, expectedTree, treeSequence, type Tree, type TreeSequence } from '../support/tree-model.ts';
import { asUser, describeUsers, type TestUser } from '../support/users.host.ts';

/** Sequences that share one start of the sandbox, each in a directory of its own. */
const TOGETHER = 250;
/** Starts of the sandbox; `npm run soak` raises it. */
const ROUNDS = Number(process.env['PROOFRUN_MODEL_ROUNDS'] ?? 8);

/** As text: the file itself is nothing that a job sees. */
const PROGRAM = ['python3', '-c', readFileSync(resolve(import.meta.dirname, '../fixtures/tree-ops.py'), 'utf8')] as const;

/** Operations that a job may do as well as the person: root's job has no capabilities. */
function asJob(user: TestUser): readonly string[] {
  return user.kind === 'root' ? ['setpriv', '--bounding-set=-all', '--inh-caps=-all'] : [];
}

async function run(user: TestUser, cwd: string, sequences: string): Promise<void> {
  const [first, ...rest] = [...asJob(user), ...PROGRAM, 'run', ...limits(user)];
  const ended = await asUser(user, [first ?? '', ...rest], { cwd, input: sequences });
  expect(ended).toMatchObject({ code: 0, stderr: '' });
}

/** An ordinary user's overlay can't rename a directory that was there before: documented. */
function limits(user: TestUser): readonly string[] {
  return user.kind === 'root' ? [] : ['--directories-stay'];
}

async function show(user: TestUser, directory: string, how: 'show' | 'facts' = 'show'): Promise<Tree> {
  const ended = await asUser(user, [...PROGRAM, how, directory]);
  if (ended.code !== 0) throw new Error(ended.stderr);
  return JSON.parse(ended.stdout) as Tree;
}

async function must(lab: JobLab, args: readonly string[], input?: string): Promise<string> {
  const ended = await lab.job(args, input === undefined ? {} : { input });
  expect({ code: ended.code, stderr: ended.stderr }).toEqual({ code: 0, stderr: '' });
  return ended.stdout;
}

async function checkTogether(user: TestUser, sequences: readonly TreeSequence[]): Promise<void> {
  const lab = jobLab(user);
  const direct = jobLab(user);
  const before = JSON.stringify(sequences.map((one) => one.before));
  const job = JSON.stringify(sequences.map((one) => one.job));
  await run(user, lab.workspace, before);
  await run(user, direct.workspace, before);
  await run(user, direct.workspace, job);
  const untouched = await show(user, lab.workspace);
  const facts = await show(user, lab.workspace, 'facts');
  await must(lab, ['run', '-q', '--', ...PROGRAM, 'run', ...limits(user)], job);
  expect(await show(user, lab.workspace, 'facts')).toEqual(facts);
  await must(lab, ['apply', 'last', '--all']);
  const expected = expectedTree(untouched, await show(user, direct.workspace));
  expect(actualTree(untouched, await show(user, lab.workspace))).toEqual(expected);
  await must(lab, ['undo', 'last']);
  expect(exactTree(await show(user, lab.workspace, 'facts'))).toEqual(exactTree(facts));
  // What was taken back is staged again, without a conflict.
  await must(lab, ['apply', 'last', '--all']);
  expect(actualTree(untouched, await show(user, lab.workspace))).toEqual(expected);
  await must(lab, ['undo', 'last']);
  expect(exactTree(await show(user, lab.workspace))).toEqual(exactTree(untouched));
}

describeUsers('a model of the stage', (user) => {
  test('applying what a job did gives the tree that the same operations give directly, and an undo the tree before', { timeout: 600_000 }, async () => {
    const sequences = fc.array(treeSequence({ lowerLinks: user.kind === 'root', lowerMarks: user.kind === 'root', lowerClosed: user.kind === 'root' }), {
      minLength: TOGETHER,
      maxLength: TOGETHER,
    });
    await fc.assert(
      fc.asyncProperty(sequences, async (together) => {
        await checkTogether(user, together);
      }),
      { numRuns: ROUNDS, endOnFailure: true },
    );
  });
});

import fc from 'fast-check';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { engineClient, engineEnvironment, ensureImage } from '../support/docker-lab.host.ts';
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

/** What runs a job over a stage, and what its overlay can't do. */
interface Backend {
  readonly name: string;
  /** Flags of `job run`. */
  readonly flags: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Starts of the sandbox. */
  readonly rounds: number;
  /** A directory that was there before can be renamed. */
  readonly movesDirectories: (user: TestUser) => boolean;
  /** Names of one file of the tree stay names of one file. */
  readonly keepsLinks: (user: TestUser) => boolean;
}

const asRoot = (user: TestUser): boolean => user.kind === 'root';
const NATIVE: Backend = { name: 'the native executor', flags: [], env: {}, rounds: ROUNDS, movesDirectories: asRoot, keepsLinks: asRoot };

const engine = engineEnvironment();
/** An engine mounts its overlays itself, without redirects and without an index. */
const DOCKER: Backend = {
  name: 'overlays of an engine',
  flags: ['--executor', 'docker'],
  env: typeof engine === 'string' ? {} : engine,
  rounds: Math.max(1, Math.ceil(ROUNDS / 4)),
  movesDirectories: () => false,
  keepsLinks: () => false,
};

function limits(user: TestUser, backend: Backend): readonly string[] {
  return backend.movesDirectories(user) ? [] : ['--directories-stay'];
}

async function run(user: TestUser, backend: Backend, cwd: string, sequences: string): Promise<void> {
  const [first, ...rest] = [...asJob(user), ...PROGRAM, 'run', ...limits(user, backend)];
  const ended = await asUser(user, [first ?? '', ...rest], { cwd, input: sequences });
  expect(ended).toMatchObject({ code: 0, stderr: '' });
}

async function show(user: TestUser, directory: string, how: 'show' | 'facts' = 'show'): Promise<Tree> {
  const ended = await asUser(user, [...PROGRAM, how, directory]);
  if (ended.code !== 0) throw new Error(ended.stderr);
  return JSON.parse(ended.stdout) as Tree;
}

async function must(lab: JobLab, args: readonly string[], input?: string, env: Readonly<Record<string, string>> = {}): Promise<string> {
  const ended = await lab.job(args, { env, ...(input === undefined ? {} : { input }) });
  expect({ code: ended.code, stderr: ended.stderr }).toEqual({ code: 0, stderr: '' });
  return ended.stdout;
}

async function checkTogether(user: TestUser, backend: Backend, sequences: readonly TreeSequence[]): Promise<void> {
  const lab = jobLab(user);
  const direct = jobLab(user);
  const before = JSON.stringify(sequences.map((one) => one.before));
  const job = JSON.stringify(sequences.map((one) => one.job));
  await run(user, backend, lab.workspace, before);
  await run(user, backend, direct.workspace, before);
  await run(user, backend, direct.workspace, job);
  const untouched = await show(user, lab.workspace);
  const facts = await show(user, lab.workspace, 'facts');
  await must(lab, ['run', '-q', ...backend.flags, '--', ...PROGRAM, 'run', ...limits(user, backend)], job, backend.env);
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

function modelOf(backend: Backend): void {
  describeUsers(`a model of the stage: ${backend.name}`, (user) => {
    test('applying what a job did gives the tree that the same operations give directly, and an undo the tree before', { timeout: 600_000 }, async () => {
      const limit = { lowerLinks: backend.keepsLinks(user), lowerMarks: asRoot(user), lowerClosed: asRoot(user) };
      const sequences = fc.array(treeSequence(limit), { minLength: TOGETHER, maxLength: TOGETHER });
      await fc.assert(
        fc.asyncProperty(sequences, async (together) => {
          await checkTogether(user, backend, together);
        }),
        { numRuns: backend.rounds, endOnFailure: true },
      );
    });
  });
}

modelOf(NATIVE);

describe.skipIf(typeof engine === 'string')("on the session's engine", () => {
  beforeAll(async () => ensureImage(engineClient()));
  modelOf(DOCKER);
});

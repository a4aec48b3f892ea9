import { describe, expect, test } from 'vitest';
import type { StagedRoot } from '../../src/core/change.ts';
import { ProofrunError } from '../../src/core/errors.ts';
import { buildChanges } from '../../src/stage/change-set.ts';
import type { MergedEntry } from '../../src/stage/entry-facts.ts';
import { selectChanges, type Selection } from '../../src/stage/select.ts';
import { facts, merged, preimageOf } from '../support/stage-facts.ts';

const roots: StagedRoot[] = [
  { root: '/ws', upper: '/s/0/upper', work: '', preimage: '' },
  { root: '/repo/.git', upper: '/s/1/upper', work: '', preimage: '' },
];
const file = (letter: string) => facts('file', { sha256: letter.repeat(64) });
const directory = facts('directory', { ino: 9n });

function changes(entries: readonly MergedEntry[], executes: readonly string[] = []) {
  const preimage = preimageOf(
    Object.fromEntries(entries.flatMap((entry) => (entry.before === undefined ? [] : [[entry.path, { type: entry.before.type, ino: entry.before.ino }]]))),
  );
  return buildChanges({
    root: 0,
    rootPath: '/ws',
    entries,
    preimage,
    hidden: [],
    applied: new Map(),
    restored: new Map(),
    clockFellBack: false,
    ownership: 'compare',
    executes: (at) => (executes.includes(at) ? 'it would' : undefined),
  });
}

const tree = changes(
  [
    merged('README.md', file('a'), file('b')),
    merged('src', directory, directory),
    merged('src/cart.ts', undefined, file('c')),
    merged('src/old', facts('directory', { ino: 9n }), undefined),
    merged('src/old/a.ts', file('d'), undefined),
    merged('src/old/b.ts', file('e'), undefined),
    merged('new', undefined, facts('directory')),
    merged('new/deep', undefined, facts('directory')),
    merged('new/deep/x.md', undefined, file('f')),
    merged('.husky', undefined, facts('directory')),
    merged('.husky/pre-commit', undefined, file('9')),
  ],
  ['.husky/pre-commit'],
);

function pick(selection: Partial<Selection>, entries = tree) {
  const { entries: chosen, notes } = selectChanges(entries, roots, {
    cwd: '/ws',
    paths: [],
    include: [],
    exclude: ['.husky'],
    allowExec: [],
    overwrite: [],
    ...selection,
  });
  return { paths: chosen.map((entry) => entry.change.path), notes };
}

function refusal(selection: Partial<Selection>, entries = tree): ProofrunError {
  try {
    pick(selection, entries);
  } catch (error) {
    if (error instanceof ProofrunError) return error;
    throw error;
  }
  throw new Error('it was not refused');
}

describe('a selection', () => {
  test.each<[string, Partial<Selection>, string[]]>([
    ['a file', { paths: ['README.md'] }, ['README.md']],
    ['an absolute path', { paths: ['/ws/README.md'] }, ['README.md']],
    ['relative to where the person is', { cwd: '/ws/src', paths: ['cart.ts'] }, ['src/cart.ts']],
    ['up and down again', { cwd: '/ws/src', paths: ['../README.md'] }, ['README.md']],
    ['the directory the person is in', { cwd: '/ws/src', paths: ['.'] }, ['src/cart.ts', 'src/old', 'src/old/a.ts', 'src/old/b.ts']],
    ['a glob on names', { include: ['*.md'] }, ['README.md', 'new', 'new/deep', 'new/deep/x.md']],
    ['a glob on paths', { include: ['src/*.ts'] }, ['src/cart.ts']],
    ['a glob that names a directory', { include: ['src/old'] }, ['src/old', 'src/old/a.ts', 'src/old/b.ts']],
    ['everything less something', { exclude: ['.husky', 'new', 'src'] }, ['README.md']],
  ])('%s', (_, selection, paths) => {
    expect(pick(selection).paths).toEqual(paths);
  });

  test('brings the directories that it needs, and says why', () => {
    expect(pick({ paths: ['new/deep/x.md'] })).toEqual({
      paths: ['new', 'new/deep', 'new/deep/x.md'],
      notes: [
        { path: 'new/deep', because: 'new/deep/x.md lies in it' },
        { path: 'new', because: 'new/deep/x.md lies in it' },
      ],
    });
  });

  test('keeps a directory of which something was excluded', () => {
    expect(pick({ paths: ['src/old'], exclude: ['src/old/b.ts'] })).toEqual({
      paths: ['src/old/a.ts'],
      notes: [{ path: 'src/old', because: 'it stays, because src/old/b.ts was excluded' }],
    });
  });

  test('takes all that lies below a directory that becomes a file', () => {
    const entries = changes([merged('d', directory, file('1')), merged('d/a', file('2'), undefined)]);
    expect(pick({ include: ['d'] }, entries).paths).toEqual(['d', 'd/a']);
    expect(refusal({ exclude: ['d/a'] }, entries).code).toBe('ERR_STAGE_REFUSED');
  });

  test('a path or glob without a match is an error that names near paths', () => {
    expect(refusal({ paths: ['src/crat.ts'] })).toMatchObject({ code: 'ERR_PATH_NOT_FOUND', hint: 'did you mean src/cart.ts?' });
    expect(refusal({ paths: ['/elsewhere/README.md'] })).toMatchObject({ code: 'ERR_PATH_NOT_FOUND', hint: 'did you mean README.md?' });
    expect(refusal({ include: ['*.rs'] }).code).toBe('ERR_PATH_NOT_FOUND');
    expect(refusal({ overwrite: ['nowhere'] }).code).toBe('ERR_PATH_NOT_FOUND');
    expect(refusal({ allowExec: ['.husky'], exclude: [] }).code).toBe('ERR_STAGE_EXECUTES');
  });

  test('what would run on the host needs its own path', () => {
    expect(refusal({ exclude: [] })).toMatchObject({ code: 'ERR_STAGE_EXECUTES', hint: '--allow-exec .husky/pre-commit' });
    expect(pick({ exclude: [], allowExec: ['.husky/pre-commit'] }).paths).toHaveLength(tree.length);
  });

  test('a name of the job never becomes a line or a command of the person', () => {
    const entries = changes([
      merged('a\nconflict: b', undefined, facts('socket')),
      merged("x'; rm -rf ~ #", undefined, facts('socket')),
      merged('\u001b[2J', undefined, facts('socket')),
    ]);
    const { message, hint } = refusal({ exclude: [] }, entries);
    expect(message.split('\n')).toHaveLength(4);
    expect(message).not.toContain('\u001b');
    expect(hint).toBe(String.raw`--exclude $'a\nconflict: b' --exclude 'x'\''; rm -rf ~ #' --exclude $'\x1b[2J'`);
  });

  test('the other root is reached by its own paths', () => {
    const other = tree.map((entry) => ({ ...entry, change: { ...entry.change, root: 1 } }));
    expect(pick({ cwd: '/repo/.git', paths: ['README.md'] }, other).paths).toEqual(['README.md']);
    expect(refusal({ paths: ['README.md'] }, other).code).toBe('ERR_PATH_NOT_FOUND');
  });
});

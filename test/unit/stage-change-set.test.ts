import { describe, expect, test } from 'vitest';
import type { EntryType } from '../../src/core/change.ts';
import { buildChanges, kindOf, unappliableReason, type ChangeSetInput } from '../../src/stage/change-set.ts';
import { facts, merged, path, preimageOf } from '../support/stage-facts.ts';

const input = (extra: Partial<ChangeSetInput>): ChangeSetInput => ({
  root: 0,
  rootPath: '/ws',
  entries: [],
  preimage: preimageOf({}),
  hidden: [],
  applied: new Map(),
  restored: new Map(),
  clockFellBack: false,
  ownership: 'compare',
  executes: () => undefined,
  ...extra,
});

const hash = (letter: string) => letter.repeat(64);

describe('the kind of a change', () => {
  const types: EntryType[] = ['file', 'directory', 'symlink', 'fifo', 'socket', 'block', 'char'];
  for (const before of types) {
    for (const after of types) {
      test(`${before} to ${after}`, () => {
        expect(kindOf(facts(before), facts(after, { ino: 11n }), 'compare')).toBe(before === after ? undefined : 'type_changed');
      });
    }
  }
  test.each([
    ['nothing on either side', undefined, undefined, undefined],
    ['content', facts('file'), facts('file', { sha256: hash('b') }), 'modified'],
    ['content that could not be read on one side', facts('file', { sha256: undefined }), facts('file'), 'modified'],
    ['a link target', facts('symlink'), facts('symlink', { target: path('other') }), 'modified'],
    ['a device number', facts('char', { rdev: { major: 1, minor: 3 } }), facts('char'), 'modified'],
    ['the mode', facts('file'), facts('file', { mode: 0o755 }), 'attributes'],
    ['an extended attribute', facts('file'), facts('file', { xattrs: [{ name: 'user.a', value: Buffer.from('1') }] }), 'attributes'],
    ['the time alone', facts('file'), facts('file', { mtime: { seconds: 1, nanoseconds: 0 } }), undefined],
    ['the mode of a link, which means nothing', facts('symlink'), facts('symlink', { mode: 0o700 }), undefined],
  ] as const)('%s', (_, before, after, kind) => {
    expect(kindOf(before, after, 'compare')).toBe(kind);
  });
  test('an owner counts only where it could change', () => {
    expect(kindOf(facts('file'), facts('file', { gid: 5 }), 'compare')).toBe('attributes');
    expect(kindOf(facts('file'), facts('file', { uid: 0, gid: 0 }), 'ignore')).toBeUndefined();
  });
});

describe('what can never be applied', () => {
  test.each([
    ['char', facts('char'), 'device node'],
    ['block', facts('block'), 'device node'],
    ['socket', facts('socket'), 'socket'],
    ['setuid', facts('file', { mode: 0o4755 }), 'setuid bit'],
    ['setgid', facts('file', { mode: 0o2755 }), 'setgid bit'],
    ['a setgid directory is common and fine', facts('directory', { mode: 0o2755 }), undefined],
    ['file capabilities', facts('file', { xattrs: [{ name: 'security.capability', value: Buffer.from([1]) }] }), 'file capabilities'],
    ['too large', facts('file', { tooLarge: true, sha256: undefined }), 'larger than the limit for a staged file'],
    ['a fifo is fine', facts('fifo'), undefined],
  ] as const)('%s', (_, after, reason) => {
    expect(unappliableReason(undefined, after)).toBe(reason);
  });
});

describe('buildChanges', () => {
  test('a rename needs the same content, joins each pair once, and prefers the same name', () => {
    const old = { sha256: hash('c'), ino: 5n };
    const found = buildChanges(
      input({
        preimage: preimageOf({ 'a/x': { type: 'file', ino: 5n }, 'a/y': { type: 'file', ino: 5n }, a: { type: 'directory', ino: 9n } }),
        entries: [
          merged('a', facts('directory', { ino: 9n }), facts('directory')),
          merged('a/x', facts('file', old), undefined),
          merged('a/y', facts('file', old), undefined),
          merged('p', undefined, facts('file', { sha256: hash('c') })),
          merged('q', undefined, facts('file', { sha256: hash('c') })),
          merged('y', undefined, facts('file', { sha256: hash('c') })),
        ],
      }),
    );
    expect(found.map(({ change }) => [change.kind, change.from, change.path])).toEqual([
      ['renamed', 'a/x', 'p'],
      ['added', undefined, 'q'],
      ['renamed', 'a/y', 'y'],
    ]);
  });

  test('identity goes before content', () => {
    const found = buildChanges(
      input({
        entries: [
          merged('a', facts('file', { sha256: hash('1'), identity: '01aa' }), undefined),
          merged('b', facts('file', { sha256: hash('2'), identity: '01bb' }), undefined),
          merged('x', undefined, facts('file', { sha256: hash('1') })),
          merged('y', undefined, facts('file', { sha256: hash('3'), identity: '01aa' })),
          merged('z', undefined, facts('file', { sha256: hash('2') })),
        ],
      }),
    );
    expect(found.map(({ change }) => [change.kind, change.from, change.path])).toEqual([
      ['added', undefined, 'x'],
      ['renamed', 'a', 'y'],
      ['renamed', 'b', 'z'],
    ]);
  });

  test('empty files are never renamed by their content', () => {
    const empty = { size: 0, lines: 0 };
    const found = buildChanges(
      input({
        preimage: preimageOf({ a: { type: 'file', ino: 10n } }),
        entries: [merged('a', facts('file', empty), undefined), merged('b', undefined, facts('file', empty))],
      }),
    );
    expect(found.map(({ change }) => change.kind)).toEqual(['deleted', 'added']);
  });

  test('a conflict at the old place is a conflict of the rename', () => {
    const found = buildChanges(input({ entries: [merged('a', facts('file'), undefined), merged('b', undefined, facts('file'))] }));
    expect(found).toHaveLength(1);
    expect(found[0]?.change).toMatchObject({ kind: 'renamed', conflict: { reason: 'created since the run began' } });
  });

  test('a name that is no UTF-8 is given as base64, together with the other path of a rename', () => {
    const odd = '\xff' as ReturnType<typeof path>;
    const found = buildChanges(
      input({
        preimage: preimageOf({ a: { type: 'file', ino: 10n } }),
        entries: [merged('a', facts('file'), undefined), { path: odd, before: undefined, after: facts('file'), source: undefined }],
      }),
    );
    expect(found[0]?.change).toMatchObject({ encoding: 'base64', path: Buffer.from([0xff]).toString('base64'), from: Buffer.from('a').toString('base64') });
  });

  test('a target that is no UTF-8 is marked so', () => {
    const found = buildChanges(input({ entries: [merged('l', undefined, facts('symlink', { target: '\xfe' as ReturnType<typeof path> }))] }));
    expect(found[0]?.change.after).toMatchObject({ target: '/g==', targetEncoding: 'base64' });
  });

  test('directories that only come with their entries are implied; an empty one is not', () => {
    const found = buildChanges(
      input({ entries: [merged('d', undefined, facts('directory')), merged('d/f', undefined, facts('file')), merged('e', undefined, facts('directory'))] }),
    );
    expect(found.map(({ change }) => [change.path, change.implied])).toEqual([
      ['d', true],
      ['d/f', undefined],
      ['e', undefined],
    ]);
  });

  test('a directory that goes is in conflict when something below it is', () => {
    const found = buildChanges(
      input({
        preimage: preimageOf({ d: { type: 'directory', ino: 9n }, 'd/.env': { type: 'file', ino: 10n } }),
        hidden: [path('d/.env')],
        entries: [merged('d', facts('directory', { ino: 9n }), undefined), merged('d/.env', facts('file'), undefined)],
      }),
    );
    expect(found.map(({ change }) => change.conflict?.reason)).toEqual(['d/.env below it is in conflict', 'the job could not see what is here']);
  });

  test('what shows through a moved directory but was hidden was never there for the job', () => {
    const found = buildChanges(
      input({ hidden: [path('old/.env')], entries: [merged('new', undefined, facts('directory')), merged('new/.env', undefined, facts('file'), 'old/.env')] }),
    );
    expect(found.map(({ change }) => change.path)).toEqual(['new']);
  });

  test('paths that were applied are left out, and their directories count as known', () => {
    const applied = new Map([[path('d'), { state: 'present' as const, dev: 1n, ino: 77n }]]);
    const entries = [merged('d', facts('directory', { ino: 77n }), facts('directory', { mode: 0o700 })), merged('d/f', undefined, facts('file'))];
    const found = buildChanges(input({ applied, entries }));
    expect(found.map(({ change }) => [change.path, change.conflict])).toEqual([['d/f', undefined]]);
    expect(buildChanges(input({ entries })).at(-1)?.change.conflict?.reason).toContain('the directory d was created');
  });

  test('lines are counted from one side where that is enough', () => {
    const found = buildChanges(
      input({
        preimage: preimageOf({ gone: { type: 'file', ino: 10n }, text: { type: 'file', ino: 10n }, bin: { type: 'file', ino: 10n } }),
        entries: [
          merged('new', undefined, facts('file', { sha256: hash('1'), lines: 3, endsOpen: true })),
          merged('gone', facts('file', { sha256: hash('2'), lines: 2 }), undefined),
          merged('text', facts('file'), facts('file', { sha256: hash('3') })),
          merged('bin', facts('file'), facts('file', { sha256: hash('4'), hasNul: true })),
        ],
      }),
    );
    expect(found.map(({ change }) => [change.path, change.addedLines, change.removedLines, change.binary])).toEqual([
      ['new', 4, 0, false],
      ['gone', 0, 2, false],
      ['text', null, null, false],
      ['bin', null, null, true],
    ]);
  });
});

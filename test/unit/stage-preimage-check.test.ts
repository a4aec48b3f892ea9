import { describe, expect, test } from 'vitest';
import type { LayerFacts } from '../../src/stage/entry-facts.ts';
import { checkPreimage, clockFellBack, type PreimageContext } from '../../src/stage/preimage-check.ts';
import { facts, path, preimageOf } from '../support/stage-facts.ts';

const known = preimageOf({
  d: { type: 'directory', ino: 9n },
  'd/f': { type: 'file', ino: 10n },
  f: { type: 'file', ino: 10n },
});
const conflict = (at: string, before: LayerFacts | undefined, extra: Partial<PreimageContext> = {}, attributesOnly = false): string | undefined =>
  checkPreimage({
    preimage: known,
    hidden: [],
    applied: new Map(),
    restored: new Map(),
    clockFellBack: false,
    now: (above) => (above === 'd' ? facts('directory', { ino: 9n }) : undefined),
    ...extra,
  }).conflictAt(path(at), before, attributesOnly);

describe('a path is as it was', () => {
  test.each([
    ['a file of the same inode, changed before T0', 'f', facts('file'), undefined],
    ['nothing, then and now', 'new', undefined, undefined],
    ['a directory of the same identity', 'd', facts('directory', { ino: 9n, ctime: { seconds: 900, nanoseconds: 0 } }), undefined],
    ['below a directory of the same identity', 'd/f', facts('file'), undefined],
  ] as const)('%s', (_, at, before, reason) => {
    expect(conflict(at, before)).toBe(reason);
  });
});

describe('a path is not as it was', () => {
  test.each([
    ['another inode', 'f', facts('file', { ino: 11n }), 'replaced since the run began'],
    ['another type', 'f', facts('symlink'), 'replaced since the run began'],
    ['gone', 'f', undefined, 'removed since the run began'],
    ['come', 'new', facts('file'), 'created since the run began'],
    ['ctime equal to T0', 'f', facts('file', { ctime: { seconds: 200, nanoseconds: 0 } }), 'changed after the run began'],
    ['ctime a nanosecond later', 'f', facts('file', { ctime: { seconds: 200, nanoseconds: 1 } }), 'changed after the run began'],
    ['changing while it was read', 'f', facts('file', { unstable: true }), 'it changed while it was read'],
    ['another directory', 'd', facts('directory', { ino: 8n }), 'replaced since the run began'],
    ['a directory on another device', 'd', facts('directory', { ino: 9n, dev: 2n }), 'replaced since the run began'],
    ['a mount', 'd', facts('directory', { ino: 9n, mount: true }), 'a filesystem is mounted here'],
  ] as const)('%s', (_, at, before, reason) => {
    expect(conflict(at, before)).toBe(reason);
  });

  test('a directory above was replaced, removed, or made', () => {
    expect(conflict('d/f', facts('file'), { now: () => facts('directory', { ino: 8n }) })).toBe('the directory d was replaced since the run began');
    expect(conflict('d/f', undefined, { now: () => undefined })).toBe('the directory d was removed since the run began');
    expect(conflict('x/f', facts('file'), { now: () => facts('directory') })).toBe('the directory x was created since the run began');
    expect(conflict('d/f', facts('file'), { now: () => facts('symlink') })).toBe('the directory d was replaced since the run began');
  });

  test('hidden, itself or a directory above, where something is', () => {
    expect(conflict('f', facts('file'), { hidden: [path('f')] })).toBe('the job could not see what is here');
    expect(conflict('d/f', facts('file'), { hidden: [path('d')] })).toBe('the job could not see what is here');
    expect(conflict('new', undefined, { hidden: [path('new')] })).toBeUndefined();
    expect(conflict('df', undefined, { hidden: [path('d')] })).toBeUndefined();
  });

  test('with a clock that was set back no time proves anything, but absence still does', () => {
    expect(conflict('f', facts('file'), { clockFellBack: true })).toContain('the clock was set back');
    expect(conflict('new', undefined, { clockFellBack: true })).toBeUndefined();
  });

  test('attributes of a directory are compared with the recorded ones, only when the job changed them', () => {
    const now = facts('directory', { ino: 9n, mode: 0o700 });
    expect(conflict('d', now, {}, true)).toContain('attributes were changed');
    expect(conflict('d', now, {}, false)).toBeUndefined();
    expect(conflict('d', facts('directory', { ino: 9n }), {}, true)).toBeUndefined();
  });
});

test('where inodes of directories and of stat differ, presence and ctime still count', () => {
  const preimage = { ...known, inodesComparable: false };
  expect(conflict('f', facts('file', { ino: 11n }), { preimage })).toBeUndefined();
  expect(conflict('f', undefined, { preimage })).toContain('removed');
});

test('a ctime that our own roll-back left is no change, any other is', () => {
  const ctime = { seconds: 300, nanoseconds: 5 };
  const restored = new Map([[path('f'), { dev: 1n, ino: 10n, ctime }]]);
  expect(conflict('f', facts('file', { ctime }), { restored })).toBeUndefined();
  expect(conflict('f', facts('file', { ctime: { seconds: 300, nanoseconds: 6 } }), { restored })).toBe('changed after the run began');
  expect(conflict('f', facts('file', { ctime, ino: 11n }), { restored })).toBe('replaced since the run began');
});

test.each([
  ['the same', { bootId: 'boot', realMinusBootNs: 1_000_000_000n, realMs: 300_000 }, false],
  ['slewed or measured a little apart', { bootId: 'boot', realMinusBootNs: 999_000_000n, realMs: 300_000 }, false],
  ['set back by 10 ms', { bootId: 'boot', realMinusBootNs: 990_000_000n, realMs: 300_000 }, true],
  ['set forward', { bootId: 'boot', realMinusBootNs: 9_000_000_000n, realMs: 300_000 }, false],
  ['another boot, later', { bootId: 'other', realMinusBootNs: 0n, realMs: 300_000 }, false],
  ['another boot, before T0', { bootId: 'other', realMinusBootNs: 9_000_000_000n, realMs: 100_000 }, true],
])('the clock: %s', (_, now, fell) => {
  expect(clockFellBack(known, now)).toBe(fell);
});

import type { EntryType } from '../../src/core/change.ts';
import { bytePathOfText, type BytePath } from '../../src/stage/byte-path.ts';
import type { LayerFacts, MergedEntry } from '../../src/stage/entry-facts.ts';
import type { Preimage, PreimageDirectory } from '../../src/stage/preimage.ts';

export const path = (text: string): BytePath => bytePathOfText(text);

/** Facts of an entry as one look gives them; what a test doesn't name is unremarkable. */
export function facts(type: EntryType, extra: Partial<LayerFacts> = {}): LayerFacts {
  return {
    type,
    mode: type === 'directory' ? 0o755 : 0o644,
    uid: 1000,
    gid: 1000,
    nlink: 1,
    rdev: { major: 0, minor: 0 },
    dev: 1n,
    ino: 10n,
    size: 4,
    blocks: 8,
    mtime: { seconds: 100, nanoseconds: 0 },
    ctime: { seconds: 100, nanoseconds: 0 },
    lines: 1,
    sha256: type === 'file' ? 'aa'.repeat(32) : undefined,
    hasNul: false,
    endsOpen: false,
    unstable: false,
    tooLarge: false,
    unreadable: false,
    tooDeep: false,
    mount: false,
    target: type === 'symlink' ? path('target') : undefined,
    xattrs: [],
    ...extra,
  };
}

export function merged(at: string, before: LayerFacts | undefined, after: LayerFacts | undefined, source?: string): MergedEntry {
  return { path: path(at), before, after, source: source === undefined ? undefined : path(source) };
}

/** A preimage that knows the given paths; T0 is second 200. */
export function preimageOf(
  entries: Readonly<Record<string, { readonly type: EntryType; readonly ino: bigint; readonly directory?: Partial<PreimageDirectory> }>>,
  extra: Partial<Preimage> = {},
): Preimage {
  return {
    t0: { seconds: 200, nanoseconds: 0 },
    realMinusBootNs: 1_000_000_000n,
    bootId: 'boot',
    inodesComparable: true,
    entries: Object.keys(entries).length,
    directory: (at) => {
      const known = entries[at];
      return known?.type !== 'directory'
        ? undefined
        : { dev: 1n, ino: known.ino, mode: 0o755, uid: 1000, gid: 1000, readable: true, mount: false, ...known.directory };
    },
    entry: (at) => {
      const known = entries[at];
      return known === undefined ? undefined : { type: known.type, ino: known.ino };
    },
    ...extra,
  };
}

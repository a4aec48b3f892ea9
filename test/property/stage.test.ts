import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ProofrunError } from '../../src/core/errors.ts';
import { ancestorsOf, bytePath, bytesOf, decodePath, encodePath, encodingOf, joinBytes, nameOf, parentOf, type BytePath } from '../../src/stage/byte-path.ts';
import { parseLayerListing } from '../../src/stage/layer-reader.ts';
import { diffLines, splitLines, type LineDiff } from '../../src/stage/line-diff.ts';
import { parsePreimage } from '../../src/stage/preimage.ts';
import { compareForReview, reviewRank } from '../../src/stage/review-order.ts';
import { leavesRoot } from '../../src/stage/symlink-target.ts';
import type { Change } from '../../src/core/change.ts';

const rejects = (parse: () => unknown): void => {
  try {
    parse();
  } catch (error) {
    expect(error).toBeInstanceOf(ProofrunError);
    expect((error as ProofrunError).code).toBe('ERR_STAGE_LAYER');
    return;
  }
};

const headed = (magic: string) => fc.uint8Array({ maxLength: 600 }).map((bytes) => Buffer.concat([Buffer.from(magic, 'latin1'), bytes]));

test('parsers of what the shim wrote survive any bytes', () => {
  fc.assert(
    fc.property(fc.oneof(fc.uint8Array({ maxLength: 600 }).map(Buffer.from), headed('PRSCAN2\0')), (bytes) => rejects(() => parseLayerListing(bytes))),
    { numRuns: 2000 },
  );
  fc.assert(
    fc.property(fc.oneof(fc.uint8Array({ maxLength: 600 }).map(Buffer.from), headed('PRWALK1\0')), (bytes) => rejects(() => parsePreimage(bytes))),
    { numRuns: 2000 },
  );
});

/** A walk as the shim writes it. */
function walkOf(tree: Tree): Buffer {
  const parts: Buffer[] = [];
  let directories = 0;
  let entries = 0;
  let ino = 100n;
  const directory = (node: Tree): void => {
    directories++;
    const head = Buffer.alloc(28);
    head.write('D', 0, 'latin1');
    head.writeUInt16LE(0o755, 2);
    head.writeBigUInt64LE(1n, 12);
    head.writeBigUInt64LE(ino++, 20);
    parts.push(head);
    for (const [name, child] of Object.entries(node)) {
      entries++;
      const bytes = Buffer.from(name, 'utf8');
      const entry = Buffer.alloc(10);
      entry.writeUInt8(bytes.length, 0);
      entry.writeUInt8(child === null ? 8 : 4, 1);
      entry.writeBigUInt64LE(ino++, 2);
      parts.push(entry, bytes);
    }
    parts.push(Buffer.from([0]));
    for (const child of Object.values(node)) if (child !== null) directory(child);
  };
  directory(tree);
  const header = Buffer.alloc(128);
  header.write('PRWALK1\0', 0, 'latin1');
  header.writeBigUInt64LE(BigInt(directories), 72);
  header.writeBigUInt64LE(BigInt(entries), 80);
  return Buffer.concat([header, ...parts]);
}

interface Tree {
  readonly [name: string]: Tree | null;
}
const name = fc
  .string({ minLength: 1, maxLength: 6 })
  .filter(
    (text) => !/[/\0]/.test(text) && text !== '.' && text !== '..' && text !== '__proto__' && Buffer.byteLength(text) < 255 && !/\p{Surrogate}/u.test(text),
  );
const { tree } = fc.letrec<{ tree: Tree }>((tie) => ({ tree: fc.dictionary(name, fc.option(tie('tree'), { depthSize: 'small' }), { maxKeys: 5 }) }));

test('a walk is read back as the tree that was walked, and every cut of it is refused', () => {
  fc.assert(
    fc.property(tree, fc.nat(), (shape, cut) => {
      const bytes = walkOf(shape);
      const preimage = parsePreimage(bytes);
      const visit = (node: Tree, at: BytePath): void => {
        expect(preimage.directory(at)).toBeDefined();
        for (const [child, below] of Object.entries(node)) {
          const path = joinBytes(at, bytePath(Buffer.from(child, 'utf8')));
          expect(preimage.entry(path)?.type).toBe(below === null ? 'file' : 'directory');
          if (below === null) expect(preimage.directory(path)).toBeUndefined();
          else visit(below, path);
        }
      };
      visit(shape, '' as BytePath);
      expect(preimage.entry('no such/name' as BytePath)).toBeUndefined();
      expect(() => parsePreimage(bytes.subarray(0, cut % bytes.length))).toThrow(ProofrunError);
    }),
  );
});

/** Applies hunks, checking that context and removals are really there. */
function patch(before: string, diff: LineDiff): string {
  const lines = splitLines(before);
  const out: string[] = [];
  let at = 0;
  for (const hunk of diff.hunks) {
    const start = hunk.oldLines === 0 ? hunk.oldStart : hunk.oldStart - 1;
    out.push(...lines.slice(at, start));
    at = start;
    hunk.lines.forEach((line, index) => {
      const next = hunk.lines[index + 1];
      const text = next?.startsWith('\\') === true ? line.slice(1) : `${line.slice(1)}\n`;
      if (line.startsWith('\\')) return;
      if (line.startsWith('+')) {
        out.push(text);
        return;
      }
      expect(lines[at]).toBe(text);
      at++;
      if (line.startsWith(' ')) out.push(text);
    });
  }
  out.push(...lines.slice(at));
  return out.join('');
}

test('a diff carries the one text into the other, whatever they hold', async () => {
  const text = fc
    .array(fc.constantFrom('a', 'b', 'c', '\r', ' x', '+', '-', '\\', ''), { maxLength: 30 })
    .chain((lines) => fc.boolean().map((open) => lines.map((line) => `${line}\n`).join('') + (open ? 'tail' : '')));
  await fc.assert(
    fc.asyncProperty(text, text, async (before, after) => {
      const diff = await diffLines(before, after);
      expect(patch(before, diff)).toBe(after);
      expect(diff.added - diff.removed).toBe(splitLines(after).length - splitLines(before).length);
    }),
    { numRuns: 500 },
  );
});

test('paths of any bytes survive being named, cut and joined', () => {
  const component = fc.uint8Array({ minLength: 1, maxLength: 8 }).filter((bytes) => !bytes.includes(0) && !bytes.includes(47));
  fc.assert(
    fc.property(fc.array(component, { minLength: 1, maxLength: 5 }), (parts) => {
      const path = parts.map((bytes) => bytePath(Buffer.from(bytes))).reduce((at, part) => joinBytes(at, part), '' as BytePath);
      expect(decodePath(encodePath(path, encodingOf([path])), encodingOf([path]))).toBe(path);
      expect(joinBytes(parentOf(path), nameOf(path))).toBe(path);
      expect(ancestorsOf(path)).toHaveLength(parts.length - 1);
      expect(bytePath(bytesOf(path))).toBe(path);
    }),
  );
});

test('whether a link leaves is decided for any target, and always in the end', () => {
  const part = fc.constantFrom('..', '.', '', 'a', 'b', 'l', 'm');
  const target = fc.array(part, { maxLength: 8 }).map((parts) => parts.join('/') as BytePath);
  fc.assert(
    fc.property(target, target, target, fc.boolean(), (one, l, m, absolute) => {
      const links: Record<string, BytePath> = { l, m, 'a/l': m };
      expect(typeof leavesRoot('a/x' as BytePath, (absolute ? `/${one}` : one) as BytePath, '/ws', (at) => links[at])).toBe('boolean');
    }),
  );
});

test('the order of a review is total and puts what is dangerous first', () => {
  const change: fc.Arbitrary<Change> = fc.record({
    root: fc.nat(1),
    path: fc.string({ minLength: 1, maxLength: 4 }),
    encoding: fc.constant('utf8' as const),
    kind: fc.constantFrom('added' as const, 'deleted' as const, 'modified' as const, 'type_changed' as const),
    binary: fc.boolean(),
    addedLines: fc.constant(null),
    removedLines: fc.constant(null),
    executes: fc.constantFrom(undefined, 'git'),
  }) as fc.Arbitrary<Change>;
  fc.assert(
    fc.property(fc.array(change, { maxLength: 12 }), (changes) => {
      const sorted = [...changes].sort(compareForReview);
      for (let i = 1; i < sorted.length; i++) {
        const [a, b] = [sorted[i - 1], sorted[i]];
        if (a !== undefined && b !== undefined) expect(reviewRank(a)).toBeLessThanOrEqual(reviewRank(b));
      }
      expect([...changes].reverse().sort(compareForReview).map(reviewRank)).toEqual(sorted.map(reviewRank));
    }),
  );
});

import { describe, expect, test } from 'vitest';
import { diffLines } from '../../src/stage/line-diff.ts';
import { binaryLiteral, blobId, fileLineName, gitMode, quoteName } from '../../src/stage/git-patch.ts';

const numbers = (count: number) => Array.from({ length: count }, (_, i) => `${i + 1}\n`).join('');

describe('hunks', () => {
  test.each([
    ['nothing', 'a\n', 'a\n', []],
    ['one line', 'a\n', 'b\n', ['@@ 1,1 1,1', '-a', '+b']],
    ['a new file', '', 'a\nb\n', ['@@ 0,0 1,2', '+a', '+b']],
    ['an emptied file', 'a\n', '', ['@@ 1,1 0,0', '-a']],
    ['a lost newline', 'a\n', 'a', ['@@ 1,1 1,1', '-a', '+a', '\\ No newline at end of file']],
    ['an insertion at the start', 'b\n', 'a\nb\n', ['@@ 1,1 1,2', '+a', ' b']],
    ['carriage returns stay', 'a\r\n', 'b\r\n', ['@@ 1,1 1,1', '-a\r', '+b\r']],
  ])('%s', async (_, before, after, expected) => {
    const { hunks } = await diffLines(before, after);
    expect(hunks.flatMap((hunk) => [`@@ ${hunk.oldStart},${hunk.oldLines} ${hunk.newStart},${hunk.newLines}`, ...hunk.lines])).toEqual(expected);
  });

  test('three lines of context; near changes share a hunk, far ones do not', async () => {
    const near = await diffLines(numbers(30), numbers(30).replace('5\n', 'five\n').replace('\n12\n', '\ntwelve\n'));
    expect(near.hunks.map((hunk) => [hunk.oldStart, hunk.oldLines])).toEqual([[2, 14]]);
    const far = await diffLines(numbers(30), numbers(30).replace('5\n', 'five\n').replace('\n13\n', '\nthirteen\n'));
    expect(far.hunks.map((hunk) => [hunk.oldStart, hunk.oldLines])).toEqual([
      [2, 7],
      [10, 7],
    ]);
  });

  test('texts that have little in common end in bounded time, as a replacement', async () => {
    const line = (seed: number) => Array.from({ length: 20_000 }, (_, i) => `${(i * seed) % 97}\n`).join('');
    const began = performance.now();
    const diff = await diffLines(line(7), line(11));
    expect(diff.removed).toBeGreaterThan(15_000);
    expect(performance.now() - began).toBeLessThan(5000);
  });

  test('a long file with many small changes keeps what it kept', async () => {
    const lines = Array.from({ length: 20_000 }, (_, i) => `line ${i}\n`);
    const changed = lines.map((line, i) => (i % 10 === 0 ? `new ${i}\n` : line));
    expect(await diffLines(lines.join(''), changed.join(''))).toMatchObject({ added: 2000, removed: 2000 });
  });
});

describe('the forms of git', () => {
  test.each([
    ['plain', 'a/b.c', 'a/b.c', 'a/b.c'],
    ['a space', 'a b', 'a b', 'a b\t'],
    ['a quote', 'a"b', '"a\\"b"', '"a\\"b"'],
    ['a backslash', 'a\\b', '"a\\\\b"', '"a\\\\b"'],
    ['a newline', 'a\nb', '"a\\nb"', '"a\\nb"'],
    ['a byte above 127', 'a\xff', '"a\\377"', '"a\\377"'],
    ['an escape', '\x1b[2J', '"\\033[2J"', '"\\033[2J"'],
  ])('a name with %s', (_, name, quoted, inLine) => {
    expect(quoteName(name)).toBe(quoted);
    expect(fileLineName(name)).toBe(inLine);
  });

  test('object ids, modes and binary content', () => {
    expect(blobId(Buffer.from(''))).toBe('e69de29bb2d1d6434b8b29ae775ad8c2e48c5391');
    expect([gitMode('file', 0o644), gitMode('file', 0o100), gitMode('file', 0o055), gitMode('symlink', 0o777)]).toEqual([
      '100644',
      '100755',
      '100644',
      '120000',
    ]);
    expect(binaryLiteral(Buffer.from('')).split('\n')[0]).toBe('literal 0');
  });
});

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { applyHunks } from '../../src/stage/hunks.ts';
import { diffLines, splitLines } from '../../src/stage/line-diff.ts';

const text = fc
  .array(fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f', 'g', '\\', '-', '+', ''), { maxLength: 40 })
  .chain((lines) => fc.boolean().map((open) => lines.map((line) => `${line}\n`).join('') + (open ? 'tail' : '')));

test('all hunks give the new text, none the old one, and each choice a text between them', async () => {
  await fc.assert(
    fc.asyncProperty(text, text, fc.nat(), async (before, after, seed) => {
      const { hunks } = await diffLines(before, after);
      expect(applyHunks(before, hunks, new Set(hunks.keys()))).toBe(after);
      expect(applyHunks(before, hunks, new Set())).toBe(before);
      const some = new Set([...hunks.keys()].filter((index) => ((seed >> (index % 30)) & 1) === 1));
      const mixed = applyHunks(before, hunks, some);
      const grown = [...some].reduce((sum, index) => sum + (hunks[index]?.newLines ?? 0) - (hunks[index]?.oldLines ?? 0), 0);
      expect(splitLines(mixed).length).toBe(splitLines(before).length + grown);
    }),
    { numRuns: 500 },
  );
});

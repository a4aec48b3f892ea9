import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { breakHard, columnsOf, flow, flowWords, labelled, pad, spread } from '../../src/cli/report/layout.ts';
import { shellWord } from '../../src/cli/report/words.ts';
import { safeText } from '../../src/core/text-safety.ts';
import { execFileSync } from 'node:child_process';

const text = fc.string({ unit: 'grapheme', maxLength: 60 }).map((value) => safeText(value));

describe('lines', () => {
  test('never get wider than asked, and lose nothing', () => {
    fc.assert(
      fc.property(fc.array(text), fc.integer({ min: 8, max: 100 }), (items, width) => {
        const lines = flow(items, width, '  ');
        for (const line of lines) expect(columnsOf(line)).toBeLessThanOrEqual(width);
        // Space at the end of a line is no loss.
        expect(lines.join('').replaceAll(/\s/gu, '')).toBe(items.join('').replaceAll(/\s/gu, ''));
      }),
    );
  });

  test('break long words whole, never a character in two', () => {
    fc.assert(
      fc.property(text, fc.integer({ min: 2, max: 20 }), (value, width) => {
        const pieces = breakHard(value, width);
        expect(pieces.join('')).toBe(value);
        for (const piece of pieces) expect(columnsOf(piece)).toBeLessThanOrEqual(width);
      }),
    );
  });

  test.each([
    ['abc', 3],
    ['日本', 4],
    ['e\u0301', 1],
    ['🙂', 2],
    ['', 0],
  ])('%s takes %i columns', (value, columns) => {
    expect(columnsOf(value)).toBe(columns);
  });

  test('are padded, labelled and spread by columns, not by characters', () => {
    expect(pad('日本', 6)).toBe('日本  ');
    expect(labelled('staged', 8, ['one', 'two'], '  ')).toEqual(['  staged  one', '          two']);
    expect(spread('left', 'right', 12)).toEqual(['left   right']);
    expect(spread('left', 'right', 9)).toEqual(['left', '    right']);
    expect(flowWords('a  b', 80)).toEqual(['a b']);
  });
});

describe('words for a shell', () => {
  test('read back as the same argument', () => {
    // Without NUL, which no argument can hold, and without what the sanitiser can only count (floods of marks).
    const argument = fc.string({
      unit: fc.constantFrom('a', ' ', "'", '"', '\\', '$', '`', '!', '\n', '\t', '\x1b', '\x07', '~', '*', '\u202e', 'é', '-'),
      maxLength: 12,
    });
    fc.assert(
      fc.property(fc.array(argument, { minLength: 1, maxLength: 6 }), (words) => {
        const out = execFileSync('bash', ['--norc', '-c', `printf '%s\\0' ${words.map(shellWord).join(' ')}`], {
          encoding: 'utf8',
          stdio: ['ignore', 'pipe', 'pipe'],
          env: { LC_ALL: 'C.UTF-8', PATH: process.env['PATH'] },
        });
        expect(out.split('\0').slice(0, -1)).toEqual(words);
      }),
      { numRuns: 60 },
    );
  });

  test('leave plain words as they are', () => {
    expect(['npm', '--flag=1', 'a/b.c', '', '~', 'a b'].map(shellWord)).toEqual(['npm', '--flag=1', 'a/b.c', "''", "'~'", "'a b'"]);
  });
});

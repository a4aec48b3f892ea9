import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { displayPath, safeText } from '../../src/core/text-safety.ts';

/** Strings rich in what matters: controls, marks, bidi, zero width, surrogates, colours. */
const nasty = fc
  .array(
    fc.oneof(
      fc.string({ unit: 'binary', maxLength: 6 }),
      fc.constantFrom(
        '\x1b[31m',
        '\x1b',
        '\r\n',
        '\n',
        '\r',
        '\t',
        '\u0301',
        '\u0301'.repeat(7),
        '\u202e',
        '\u200b',
        '\u200d',
        '\ufe0f',
        '⚠',
        '1',
        '\ud800',
        '\udc00',
        '😀',
        '\u034f',
        '\u20e3',
        '\u2028',
        'a',
        '[0m',
        'é',
        '\u0e31',
        '\u{e0101}',
      ),
      fc.integer({ min: 0, max: 0xffff }).map((unit) => String.fromCharCode(unit)),
    ),
    { maxLength: 40 },
  )
  .map((parts) => parts.join(''));

const options = fc.record({ lines: fc.boolean(), dropColours: fc.boolean(), max: fc.integer({ min: 0, max: 200 }) }, { requiredKeys: ['lines'] });

/** Written independently of the sanitiser's own tables. */
function acts(text: string, lines: boolean): boolean {
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0;
    if (lines && (code === 0x0a || code === 0x09)) continue;
    if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return true;
    if (code >= 0xd800 && code <= 0xdfff) return true;
    if ([0x061c, 0x200b, 0x200c, 0x200d, 0x200e, 0x200f, 0x2028, 0x2029, 0xfeff, 0x00ad].includes(code)) return true;
    if ((code >= 0x202a && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) || (code >= 0xe0000 && code <= 0xe0fff)) return true;
  }
  return /\p{M}{6}/u.test(text);
}

describe('safeText', () => {
  it('never emits what a screen acts on or hides', () => {
    fc.assert(
      fc.property(nasty, options, (text, choice) => {
        expect(acts(safeText(text, choice), choice.lines)).toBe(false);
      }),
      { numRuns: 2000 },
    );
  });

  it('is idempotent', () => {
    fc.assert(
      fc.property(nasty, options, (text, choice) => {
        const once = safeText(text, choice);
        expect(safeText(once, choice)).toBe(once);
      }),
      { numRuns: 2000 },
    );
  });

  it('is total on any bytes, and bounded', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 400 }), options, (bytes, choice) => {
        const text = safeText(bytes, choice);
        expect(acts(text, choice.lines)).toBe(false);
        if (choice.max !== undefined) expect(text.length).toBeLessThanOrEqual(Math.max(64, choice.max));
      }),
      { numRuns: 2000 },
    );
  });

  it('leaves bytes that are plain UTF-8 as the text they are', () => {
    fc.assert(
      fc.property(nasty, (text) => {
        const whole = text.replace(/\p{Surrogate}/gu, '');
        expect(safeText(Buffer.from(whole))).toBe(safeText(whole));
      }),
    );
  });

  it('shows any path on one line', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 100 }), (bytes) => {
        expect(displayPath(Buffer.from(bytes).toString('base64'), 'base64')).not.toMatch(/[\n\r\t]/);
      }),
    );
  });
});

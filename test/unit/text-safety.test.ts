import { describe, expect, it } from 'vitest';
import { displayPath, safeLine, safeText } from '../../src/core/text-safety.ts';

describe('text safety', () => {
  it.each([
    ['plain text', 'src/cart.ts', 'src/cart.ts'],
    ['other scripts', 'Żółw 日本語 العربية हिन्दी ไทย', 'Żółw 日本語 العربية हिन्दी ไทย'],
    ['accents that combine', 'e\u0301o\u0308', 'e\u0301o\u0308'],
    ['emoji in emoji form', '⚠\ufe0f 1\ufe0f\u20e3', '⚠\ufe0f 1\ufe0f\u20e3'],
    ['an escape sequence', '\x1b[31mred\x1b[0m', '\\x1b[31mred\\x1b[0m'],
    ['a title sequence', '\x1b]0;evil\x07', '\\x1b]0;evil\\x07'],
    ['an 8-bit control', '\x9b31m', '\\x9b31m'],
    ['newline, return, tab', 'a\nb\rc\td', 'a\\nb\\rc\\td'],
    ['NUL, DEL, backspace', '\0\x7f\b', '\\x00\\x7f\\x08'],
    ['bidi override', 'a\u202egnp.exe', 'a\\u202egnp.exe'],
    ['bidi isolate', '\u2066x\u2069', '\\u2066x\\u2069'],
    ['arabic letter mark', 'a\u061cb', 'a\\u061cb'],
    ['zero width', 'pay\u200bpal\u200d\u2060\ufeff', 'pay\\u200bpal\\u200d\\u2060\\ufeff'],
    ['soft hyphen, fillers', 'a\u00adb\u3164c\u115f', 'a\\u00adb\\u3164c\\u115f'.replace('\\u00ad', '\\xad')],
    ['tag characters', 'x\u{e0041}', 'x\\u{e0041}'],
    ['variation selector without emoji', 'a\ufe0fb\u{e0101}', 'a\\ufe0fb\\u{e0101}'],
    ['two variation selectors', '⚠\ufe0f\ufe0f', '⚠\ufe0f\\ufe0f'],
    ['line separators', 'a\u2028b\u2029', 'a\\u2028b\\u2029'],
    ['a noncharacter', '\uffff', '\\uffff'],
    ['half a pair', '\ud800x\udc00', '\\ud800x\\udc00'],
    ['a mark without base', '\u0301a', '\\u0301a'],
    ['a flood of marks', `z${'\u0300'.repeat(9)}!`, `z${'\u0300'.repeat(4)}{+5 marks}!`],
    ['a flood at the end', `z${'\u0300'.repeat(5)}`, `z${'\u0300'.repeat(4)}{+1 marks}`],
  ])('%s', (_reason, input, output) => {
    expect(safeText(input)).toBe(output);
  });

  it.each([
    ['a stray byte', [0x61, 0xff, 0x62], 'a\\xffb'],
    ['an overlong form', [0xc0, 0xaf], '\\xc0\\xaf'],
    ['an encoded surrogate', [0xed, 0xa0, 0x80], '\\xed\\xa0\\x80'],
    ['a cut character, then text', [0xe2, 0x82, 0x41], '\\xe2\\x82A'],
    ['a good character beside a bad one', [0xc3, 0xa9, 0xe9], 'é\\xe9'],
    ['beyond Unicode', [0xf4, 0x90, 0x80, 0x80], '\\xf4\\x90\\x80\\x80'],
    ['a BOM', [0xef, 0xbb, 0xbf, 0x61], '\\ufeffa'],
  ])('bytes: %s', (_reason, input, output) => {
    expect(safeText(Uint8Array.from(input))).toBe(output);
  });

  it('keeps lines where asked', () => {
    expect(safeText('a\r\nb\n\tc\rd\x1b', { lines: true })).toBe('a\nb\n\tc\\rd\\x1b');
    expect(safeText('a\n\u0301', { lines: true })).toBe('a\n\\u0301');
  });

  it('leaves colours out where asked, and nothing else', () => {
    expect(safeText('\x1b[1;31mred\x1b[0m \x1b[2J \x1b[\x1b[0m31m', { dropColours: true })).toBe('red \\x1b[2J \\x1b[31m');
  });

  it('keeps beginning and end within the bound', () => {
    const text = safeText(`START${'x'.repeat(10_000)}END`, { max: 200 });
    expect(text.length).toBeLessThanOrEqual(200);
    expect(text).toMatch(/^STARTx+ \[\.\.\. \d+ characters left out \.\.\.\] x+END$/);
    expect(safeLine('x'.repeat(400))).toHaveLength(400);
    expect(safeLine('x'.repeat(401)).length).toBeLessThan(401);
  });

  it('never begins the end with something that joins what is before it', () => {
    for (let shift = 0; shift < 4; shift += 1) {
      const text = safeText('x'.repeat(shift) + 'e\u0301'.repeat(200), { lines: true, max: 100 });
      expect(text).toMatch(/\.\.\.\]\n[ex]/);
      expect(safeText(text, { lines: true, max: 100 })).toBe(text);
    }
  });

  it('shows paths on one line', () => {
    expect(displayPath('a\nb/\x1b[0m')).toBe('a\\nb/\\x1b[0m');
    expect(displayPath(Buffer.from([0x61, 0xff]).toString('base64'), 'base64')).toBe('a\\xff');
  });
});

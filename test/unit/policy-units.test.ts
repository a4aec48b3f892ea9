import { describe, expect, it } from 'vitest';
import { formatDuration, formatSize, parseDuration, parseSize } from '../../src/core/units.ts';

const KIB = 1024;

describe('sizes', () => {
  it.each([
    ['0B', 0, 'nothing is a size'],
    ['1B', 1, 'bytes'],
    ['2GiB', 2 * KIB ** 3, 'binary units'],
    ['512MiB', 512 * KIB ** 2, 'binary units'],
    ['1.5GiB', 1.5 * KIB ** 3, 'a fraction that is whole in bytes'],
    ['1.1GB', 1_100_000_000, 'decimal units, without the rounding of floating point'],
    ['10kB', 10_000, 'decimal kilo'],
    ['8TiB', 8 * KIB ** 4, 'the largest unit'],
  ])('%s is %d: %s', (text, bytes) => {
    expect(parseSize(text)).toEqual({ kind: 'ok', value: bytes });
  });

  it.each([
    ['2', /2B, 2MiB or 2GiB/, 'a bare number has no unit, and the message offers the likely ones'],
    ['2g', /write 2GiB/, 'the short form of other tools'],
    ['2GB ', /a size with a unit/, 'a space'],
    ['2 GiB', /write 2GiB/, 'a space before the unit'],
    ['2gib', /write 2GiB/, 'units are case-sensitive'],
    ['-1GiB', /a size with a unit/, 'no negative size'],
    ['1e3B', /a size with a unit/, 'no exponent'],
    ['0.3B', /a whole number of bytes/, 'part of a byte'],
    ['01B', /a size with a unit/, 'no leading zero'],
    ['9999999TiB', /at most/, 'beyond what a number holds exactly'],
    ['', /a size with a unit/, 'nothing'],
  ])('%s is refused', (text, expected) => {
    const result = parseSize(text);
    expect(result.kind).toBe('error');
    expect(result.kind === 'error' ? result.expected : '').toMatch(expected);
  });

  it.each([
    [0, '0B'],
    [2 * KIB ** 3, '2GiB'],
    [1536 * KIB ** 2, '1536MiB'],
    [1025, '1025B'],
  ])('%d is written %s', (bytes, text) => {
    expect(formatSize(bytes)).toBe(text);
  });
});

describe('durations', () => {
  it.each([
    ['30m', 1_800_000, 'one unit'],
    ['1h30m', 5_400_000, 'two units'],
    ['1.5s', 1500, 'a fraction'],
    ['250ms', 250, 'milliseconds, not minutes'],
    ['1m1ms', 60_001, 'm before ms'],
    ['2d', 172_800_000, 'days'],
    ['0s', 0, 'nothing'],
  ])('%s is %d ms: %s', (text, ms) => {
    expect(parseDuration(text)).toEqual({ kind: 'ok', value: ms });
  });

  it.each([
    ['30', /30s or 30m/, 'a bare number'],
    ['30min', /write 30m/, 'a long unit'],
    ['30sec', /write 30s/, 'a long unit'],
    ['30m1h', /a duration with a unit/, 'units go down'],
    ['1h1h', /a duration with a unit/, 'each unit once'],
    ['1h 30m', /a duration with a unit/, 'no space'],
    ['0.3ms', /a whole number of milliseconds/, 'part of a millisecond'],
    ['', /a duration with a unit/, 'nothing'],
  ])('%s is refused', (text, expected) => {
    const result = parseDuration(text);
    expect(result.kind === 'error' ? result.expected : '').toMatch(expected);
  });

  it.each([
    [0, '0s'],
    [5_400_000, '1h30m'],
    [1500, '1s500ms'],
    [86_400_000, '1d'],
  ])('%d ms is written %s', (ms, text) => {
    expect(formatDuration(ms)).toBe(text);
  });
});

/**
 * Sizes and durations as people write them. A number without a unit is an error: nobody has to guess whether
 * `memory: 2` means bytes or gibibytes.
 *   size      2GiB, 512MiB, 1.5GiB, 100MB (decimal), 0B     -> whole bytes
 *   duration  30m, 1h30m, 1.5s, 250ms, 2d                    -> whole milliseconds
 * Units are case-sensitive. parse(format(x)) === x for every whole number up to Number.MAX_SAFE_INTEGER.
 */

export type UnitResult = { readonly kind: 'ok'; readonly value: number } | { readonly kind: 'error'; readonly expected: string };

interface Unit {
  readonly name: string;
  readonly factor: number;
}

const KIB = 1024;
const SIZE_UNITS: readonly Unit[] = [
  { name: 'TiB', factor: KIB ** 4 },
  { name: 'GiB', factor: KIB ** 3 },
  { name: 'MiB', factor: KIB ** 2 },
  { name: 'KiB', factor: KIB },
  { name: 'TB', factor: 1e12 },
  { name: 'GB', factor: 1e9 },
  { name: 'MB', factor: 1e6 },
  { name: 'kB', factor: 1e3 },
  { name: 'B', factor: 1 },
];
/** Units that formatSize writes: the binary ones. */
const BINARY_UNITS = SIZE_UNITS.filter((unit) => unit.name.endsWith('iB') || unit.name === 'B');

const DURATION_UNITS: readonly Unit[] = [
  { name: 'd', factor: 86_400_000 },
  { name: 'h', factor: 3_600_000 },
  { name: 'm', factor: 60_000 },
  { name: 's', factor: 1_000 },
  { name: 'ms', factor: 1 },
];

const AMOUNT = String.raw`(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,9})?`;
const SIZE = new RegExp(`^(${AMOUNT})(TiB|GiB|MiB|KiB|TB|GB|MB|kB|B)$`);
const DURATION_PART = new RegExp(`(${AMOUNT})(ms|d|h|m|s)`, 'y');

/** What a message says was expected of a size. */
export const SIZE_FORM = 'a size with a unit, such as 512MiB or 2GiB (B, KiB, MiB, GiB, TiB, kB, MB, GB, TB)';
/** What a message says was expected of a duration. */
export const DURATION_FORM = 'a duration with a unit, such as 30s, 10m or 1h30m (ms, s, m, h, d)';

/** Bytes. The error says what was expected, with the likely spelling when there is one. */
export function parseSize(text: string): UnitResult {
  const match = SIZE.exec(text);
  if (match === null) return { kind: 'error', expected: SIZE_FORM + likely(text, likelySize) };
  const [, amount = '', name = ''] = match;
  return whole(scaled(amount, factorOf(SIZE_UNITS, name)), 'bytes', SIZE_FORM);
}

/** The shortest exact form in binary units: 1536 MiB stays 1536MiB, 2048 MiB is 2GiB. `bytes` is a whole number, 0 or more. */
export function formatSize(bytes: number): string {
  const unit = BINARY_UNITS.find((candidate) => bytes >= candidate.factor && bytes % candidate.factor === 0);
  return unit === undefined ? `${String(bytes)}B` : `${String(bytes / unit.factor)}${unit.name}`;
}

/** Milliseconds. Parts go from the largest unit to the smallest, each at most once. */
export function parseDuration(text: string): UnitResult {
  let totalMs = 0;
  let at = 0;
  let lastFactor = Number.POSITIVE_INFINITY;
  while (at < text.length || at === 0) {
    DURATION_PART.lastIndex = at;
    const match = DURATION_PART.exec(text);
    if (match === null) return { kind: 'error', expected: DURATION_FORM + likely(text, likelyDuration) };
    const [whole, amount = '', name = ''] = match;
    const factor = factorOf(DURATION_UNITS, name);
    if (factor >= lastFactor) return { kind: 'error', expected: DURATION_FORM };
    lastFactor = factor;
    totalMs += scaled(amount, factor);
    at += whole.length;
  }
  return whole(totalMs, 'milliseconds', DURATION_FORM);
}

/** Whole units, largest first: 5400000 is `1h30m`. `ms` is a whole number, 0 or more. */
export function formatDuration(ms: number): string {
  if (ms === 0) return '0s';
  let rest = ms;
  let text = '';
  for (const unit of DURATION_UNITS) {
    const count = Math.floor(rest / unit.factor);
    if (count > 0) text += `${String(count)}${unit.name}`;
    rest -= count * unit.factor;
  }
  return text;
}

function factorOf(units: readonly Unit[], name: string): number {
  return units.find((unit) => unit.name === name)?.factor ?? Number.NaN;
}

/** Decimal digits times a whole factor without the rounding of floating point: 1.1 GB is 1100000000. NaN when it isn't whole. */
function scaled(amount: string, factor: number): number {
  const [integer = '0', fraction = ''] = amount.split('.');
  const denominator = 10n ** BigInt(fraction.length);
  const product = BigInt(integer + fraction) * BigInt(factor);
  return product % denominator === 0n ? Number(product / denominator) : Number.NaN;
}

function whole(value: number, unit: string, form: string): UnitResult {
  if (Number.isNaN(value)) return { kind: 'error', expected: `a whole number of ${unit}` };
  return Number.isSafeInteger(value) ? { kind: 'ok', value } : { kind: 'error', expected: `${form}, at most ${String(Number.MAX_SAFE_INTEGER)} ${unit}` };
}

function likely(text: string, guess: (amount: string, unit: string) => string | undefined): string {
  const match = /^\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*$/.exec(text);
  const [, amount, unit] = match ?? [];
  const meant = amount === undefined || unit === undefined ? undefined : guess(amount, unit);
  return meant === undefined ? '' : `; write ${meant}`;
}

function likelySize(amount: string, unit: string): string | undefined {
  if (unit === '') return `${amount}B, ${amount}MiB or ${amount}GiB`;
  const letter = unit.charAt(0).toUpperCase();
  if (letter === 'B') return `${amount}B`;
  return /^[KMGT](I?B?)$/i.test(unit) ? `${amount}${letter}iB` : undefined;
}

function likelyDuration(amount: string, unit: string): string | undefined {
  if (unit === '') return `${amount}s or ${amount}m`;
  const lower = unit.toLowerCase();
  if (lower.startsWith('ms') || lower.startsWith('milli')) return `${amount}ms`;
  const letter = lower.charAt(0);
  return 'dhms'.includes(letter) ? `${amount}${letter}` : undefined;
}

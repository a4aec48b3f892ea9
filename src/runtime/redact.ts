/**
 * Takes keys out of captured text: as they are, and in every encoding in which they commonly travel (base64 and base64url at each alignment, hex,
 * percent-encoding, JSON escapes). For what is captured, shown or exported; decisions, arguments and observations are stored as they are.
 */
export type Redaction = (text: string) => string;

export const REDACTED = '[key taken out]';
/** Shorter texts are no keys, and would tear holes into everything. */
const SHORTEST_KEY = 8;

export function redaction(keys: readonly string[]): Redaction {
  const forms = new Set<string>();
  for (const key of keys) {
    if (key.length < SHORTEST_KEY) continue;
    for (const form of formsOf(key)) if (form.length >= SHORTEST_KEY) forms.add(form);
  }
  if (forms.size === 0) return (text) => text;
  // Longest first: a form may hold another.
  const ordered = [...forms].sort((a, b) => b.length - a.length).map((form) => form.replaceAll(/[.*+?^${}()|[\]\\/-]/g, String.raw`\$&`));
  const pattern = new RegExp(ordered.join('|'), 'gi');
  return (text) => text.replaceAll(pattern, REDACTED);
}

function formsOf(key: string): readonly string[] {
  const bytes = Buffer.from(key, 'utf8');
  const percentAll = [...bytes].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join('');
  const unicode = Array.from({ length: key.length }, (_, at) => `\\u${key.charCodeAt(at).toString(16).padStart(4, '0')}`).join('');
  return [
    key,
    encodeURIComponent(key),
    percentAll,
    bytes.toString('hex'),
    [...bytes].map((byte) => `\\x${byte.toString(16).padStart(2, '0')}`).join(''),
    JSON.stringify(key).slice(1, -1),
    unicode,
    ...[0, 1, 2].flatMap((shift) => base64At(bytes, shift)),
  ];
}

/** The part of the base64 text that follows from the key alone when `shift` bytes of something else come before it. */
function base64At(bytes: Buffer, shift: number): readonly string[] {
  const text = Buffer.concat([Buffer.alloc(shift), bytes])
    .toString('base64')
    .replace(/=+$/, '');
  const start = shift === 0 ? 0 : shift + 1;
  // The last character also holds bits of what follows, unless the bytes end on a boundary.
  const end = (bytes.length + shift) % 3 === 0 ? text.length : text.length - 1;
  const middle = text.slice(start, end);
  return [middle, middle.replaceAll('+', '-').replaceAll('/', '_')];
}

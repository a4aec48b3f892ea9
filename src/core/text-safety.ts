/**
 * The one sanitiser for text that a job, a model or a server chose, before it reaches a terminal, a log or a document. Characters that
 * a screen would act on or hide become visible escapes (`\x1b`, `\u202e`); nothing is dropped silently.
 *
 * Made visible: C0 and C1 controls and DEL (so every escape sequence), bidirectional controls, zero-width and other ignorable
 * characters, line and paragraph separators, noncharacters, halves of surrogate pairs, bytes that aren't UTF-8, combining marks without
 * a base, and combining marks from the fifth on one base. See Unicode UTS 39 and UAX 9, and "Trojan Source" (CVE-2021-42574).
 */
export interface SafeTextOptions {
  /** Newline and tab stay, and CR LF becomes a newline. Otherwise the result is one line. */
  readonly lines?: boolean;
  /** Longest result in UTF-16 code units, mark included; beginning and end are kept. At least 64. */
  readonly max?: number;
  /** Leaves out well-formed colour sequences (`ESC [ ... m`) instead of showing them. */
  readonly dropColours?: boolean;
}

const MAX_MARKS = 4;

const PLAIN_LINE = /^[\x20-\x7e]*$/;
const PLAIN_LINES = /^[\x20-\x7e\n\t]*$/;
// eslint-disable-next-line no-control-regex -- recognising escape sequences is the point
const COLOUR = /^\x1b\[[0-9;:]{0,64}m/;

/** Made when a character beyond ASCII first asks for it: the engine takes milliseconds to read these. */
let classes: { readonly mark: RegExp; readonly hidden: RegExp; readonly takesVariation: RegExp } | undefined;
function characterClasses(): NonNullable<typeof classes> {
  classes ??= {
    mark: /^\p{M}$/u,
    // Cf has the bidirectional controls.
    hidden: /^[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\p{Noncharacter_Code_Point}]$/u,
    takesVariation: /^[\p{Extended_Pictographic}0-9#*]$/u,
  };
  return classes;
}

const NAMED = new Map([
  ['\n', '\\n'],
  ['\r', '\\r'],
  ['\t', '\\t'],
]);

/** Total on any string and any bytes; never emits a control character (but newline and tab with `lines`); idempotent. */
export function safeText(input: string | Uint8Array, options: SafeTextOptions = {}): string {
  const text = typeof input === 'string' ? input : decodeVisibly(input);
  const lines = options.lines === true;
  const safe = (lines ? PLAIN_LINES : PLAIN_LINE).test(text) ? text : escapeHidden(text, lines, options.dropColours === true);
  return options.max === undefined ? safe : bound(safe, Math.max(64, options.max), lines);
}

/** `safeText` on one line, at most `max` code units. */
export function safeLine(input: string | Uint8Array, max = 400): string {
  return safeText(input, { max });
}

/** A path for a person: one line, every odd character visible, at most 1024 code units. `base64` marks a name that isn't UTF-8. */
export function displayPath(path: string, encoding: 'utf8' | 'base64' = 'utf8'): string {
  return safeText(encoding === 'base64' ? Buffer.from(path, 'base64') : path, { max: 1024 });
}

function escapeHidden(text: string, lines: boolean, dropColours: boolean): string {
  let result = '';
  /** Last character as it was emitted; undefined at the start of a line, where a mark would join our own text. */
  let base: string | undefined;
  let marks = 0;
  let flood = 0;
  for (let at = 0; at < text.length;) {
    const character = String.fromCodePoint(text.codePointAt(at) ?? 0);
    const start = at;
    at += character.length;
    if (isMark(character) && base !== undefined) {
      marks += 1;
      if (marks > MAX_MARKS) flood += 1;
      else result += character;
      continue;
    }
    if (flood > 0) result += `{+${flood} marks}`;
    flood = 0;
    if (isVariation(character) && marks === 0 && base !== undefined && characterClasses().takesVariation.test(base)) {
      result += character;
      base = character;
      continue;
    }
    marks = 0;
    if (lines && character === '\r' && text[at] === '\n') continue;
    if (lines && (character === '\n' || character === '\t')) {
      result += character;
      base = undefined;
      continue;
    }
    if (dropColours && character === '\x1b') {
      const colour = COLOUR.exec(text.slice(start, start + 80))?.[0];
      if (colour !== undefined) {
        at = start + colour.length;
        base = undefined;
        continue;
      }
    }
    const shown = isMark(character) || characterClasses().hidden.test(character) ? escapeOf(character) : character;
    result += shown;
    base = shown;
  }
  return flood > 0 ? `${result}{+${flood} marks}` : result;
}

/** Marks that are themselves ignorable (variation selectors, the grapheme joiner) are hidden characters instead. */
function isMark(character: string): boolean {
  return character > '\u02ff' && characterClasses().mark.test(character) && !characterClasses().hidden.test(character);
}

/** The selectors of text and emoji form: visible in their effect, and part of ordinary output. */
function isVariation(character: string): boolean {
  return character === '\ufe0e' || character === '\ufe0f';
}

function escapeOf(character: string): string {
  const named = NAMED.get(character);
  if (named !== undefined) return named;
  const code = character.codePointAt(0) ?? 0;
  const hex = code.toString(16);
  if (code < 0x100) return `\\x${hex.padStart(2, '0')}`;
  return code < 0x10000 ? `\\u${hex.padStart(4, '0')}` : `\\u{${hex}}`;
}

/** UTF-8, with every byte that isn't part of it as `\xNN`. */
function decodeVisibly(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return decodeBroken(bytes);
  }
}

function decodeBroken(bytes: Uint8Array): string {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let result = '';
  for (let at = 0; at < bytes.length;) {
    const length = sequenceLength(bytes, at);
    result += length === 0 ? escapeOf(String.fromCharCode(buffer.readUInt8(at))) : buffer.toString('utf8', at, at + length);
    at += Math.max(1, length);
  }
  return result;
}

/** Length of the well-formed UTF-8 sequence at `at`; 0 when there is none (Unicode, table 3-7). */
function sequenceLength(bytes: Uint8Array, at: number): number {
  const lead = bytes[at] ?? 0;
  if (lead < 0x80) return 1;
  const length = lead >= 0xc2 && lead <= 0xdf ? 2 : lead >= 0xe0 && lead <= 0xef ? 3 : lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
  const lowest = lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80;
  const highest = lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf;
  for (let index = 1; index < length; index += 1) {
    const byte = bytes[at + index] ?? 0;
    if (byte < (index === 1 ? lowest : 0x80) || byte > (index === 1 ? highest : 0xbf)) return 0;
  }
  return length;
}

function bound(text: string, max: number, lines: boolean): string {
  if (text.length <= max) return text;
  const room = max - 48;
  const head = cutHead(text, Math.ceil((room * 2) / 3));
  const tail = cutTail(text, room - head.length);
  const mark = `[... ${text.length - head.length - tail.length} characters left out ...]`;
  return lines ? `${head}\n${mark}\n${tail}` : `${head} ${mark} ${tail}`;
}

function cutHead(text: string, length: number): string {
  const head = text.slice(0, length);
  return /[\ud800-\udbff]$/.test(head) ? head.slice(0, -1) : head;
}

/** Starts on a character of its own: not in the middle of a pair, and not with something that joins the character before. */
function cutTail(text: string, length: number): string {
  return text
    .slice(text.length - length)
    .replace(/^[\udc00-\udfff]/, '')
    .replace(/^\p{M}+/u, '');
}

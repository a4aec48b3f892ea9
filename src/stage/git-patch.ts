import { createHash } from 'node:crypto';
import { deflateSync } from 'node:zlib';
import { bytesOf, type BytePath } from './byte-path.ts';

/** Forms that git's patch format uses (gitformat-diff, git-apply(1)). Text is latin1: one character, one byte. */

const ESCAPES: Readonly<Record<string, string>> = {
  '\x07': '\\a',
  '\b': '\\b',
  '\t': '\\t',
  '\n': '\\n',
  '\v': '\\v',
  '\f': '\\f',
  '\r': '\\r',
  '"': '\\"',
  '\\': '\\\\',
};

function octal(char: string): string {
  return `\\${char.charCodeAt(0).toString(8).padStart(3, '0')}`;
}

/** A name as git writes it in a header: quoted with C escapes when it holds anything but printable ASCII. */
export function quoteName(name: string): string {
  // eslint-disable-next-line no-control-regex
  const quoted = name.replace(/[\x00-\x1f"\\\x7f-\xff]/g, (char) => ESCAPES[char] ?? octal(char));
  return quoted === name ? name : `"${quoted}"`;
}

/** The name in a `---` or `+++` line: a tab ends one with spaces, so that no reader takes the rest for a time. */
export function fileLineName(name: string): string {
  const quoted = quoteName(name);
  return quoted === name && name.includes(' ') ? `${name}\t` : quoted;
}

/** SHA-1 object id of a blob. */
export function blobId(content: Buffer): string {
  return createHash('sha1').update(`blob ${content.length}\0`).update(content).digest('hex');
}

export const NO_BLOB = '0'.repeat(40);

const BASE85 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~';

/** One line: the count of bytes as a letter (A to Z, a to z for 1 to 52), then five characters for four bytes. */
function base85Line(bytes: Buffer): string {
  let line = String.fromCharCode(bytes.length <= 26 ? 64 + bytes.length : 70 + bytes.length);
  for (let at = 0; at < bytes.length; at += 4) {
    let value = 0;
    for (let i = 0; i < 4; i++) value = value * 256 + (bytes[at + i] ?? 0);
    let group = '';
    for (let i = 0; i < 5; i++) {
      group = (BASE85[value % 85] ?? '') + group;
      value = Math.floor(value / 85);
    }
    line += group;
  }
  return line;
}

/** One side of a `GIT binary patch`: the whole content, deflated. */
export function binaryLiteral(content: Buffer): string {
  const packed = deflateSync(content);
  const lines = [`literal ${content.length}`];
  for (let at = 0; at < packed.length; at += 52) lines.push(base85Line(packed.subarray(at, at + 52)));
  return `${lines.join('\n')}\n\n`;
}

/** git knows three modes of a file. */
export function gitMode(type: 'file' | 'symlink', mode: number): string {
  return type === 'symlink' ? '120000' : (mode & 0o100) !== 0 ? '100755' : '100644';
}

/** A path as patches name it. */
export function patchName(path: BytePath): string {
  return bytesOf(path).toString('latin1');
}

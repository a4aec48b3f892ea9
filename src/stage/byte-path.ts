/**
 * File names are bytes. Inside this folder a path is a string in which every character is one byte (latin1), so that
 * any name can be a map key, compared and cut; it becomes text only at the edges.
 */
export type BytePath = string & { readonly __bytes: never };

const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const lossyUtf8 = new TextDecoder('utf-8', { ignoreBOM: true });

/** The bytes of a Buffer, as they are. */
export function bytePath(bytes: Buffer): BytePath {
  return bytes.toString('latin1') as BytePath;
}

/** The UTF-8 bytes of a text. */
export function bytePathOfText(text: string): BytePath {
  return bytePath(Buffer.from(text, 'utf8'));
}

export function bytesOf(path: BytePath): Buffer {
  return Buffer.from(path, 'latin1');
}

/** Most paths: the bytes, the text and what stands for them here are one and the same. */
// eslint-disable-next-line no-control-regex -- every byte below 0x80
const ASCII = /^[\x00-\x7f]*$/;

/** The text when the bytes are UTF-8, else undefined. */
export function textOf(path: BytePath): string | undefined {
  if (ASCII.test(path)) return path;
  try {
    return strictUtf8.decode(bytesOf(path));
  } catch {
    return undefined;
  }
}

/** For messages and for matching by text rules: invalid sequences become U+FFFD. */
export function lossyTextOf(path: BytePath): string {
  return ASCII.test(path) ? path : lossyUtf8.decode(bytesOf(path));
}

/** How a change names its paths: as text when all of them are UTF-8, else all as base64 of their bytes. */
export function encodingOf(paths: readonly BytePath[]): 'utf8' | 'base64' {
  return paths.every((path) => textOf(path) !== undefined) ? 'utf8' : 'base64';
}

export function encodePath(path: BytePath, encoding: 'utf8' | 'base64'): string {
  return encoding === 'utf8' ? lossyTextOf(path) : bytesOf(path).toString('base64');
}

/** The inverse of encodePath. */
export function decodePath(path: string, encoding: 'utf8' | 'base64'): BytePath {
  return encoding === 'utf8' && ASCII.test(path) ? (path as BytePath) : bytePath(Buffer.from(path, encoding));
}

/** Joins a directory (empty: the root) and a name. */
export function joinBytes(directory: BytePath, name: BytePath): BytePath {
  return (directory === '' ? name : `${directory}/${name}`) as BytePath;
}

/** The directory above; empty for the entries of the root. */
export function parentOf(path: BytePath): BytePath {
  const slash = path.lastIndexOf('/');
  return (slash < 0 ? '' : path.slice(0, slash)) as BytePath;
}

export function nameOf(path: BytePath): BytePath {
  return path.slice(path.lastIndexOf('/') + 1) as BytePath;
}

/** The directories above a path, nearest to the root first, without the root. */
export function ancestorsOf(path: BytePath): BytePath[] {
  const found: BytePath[] = [];
  for (let slash = path.indexOf('/'); slash >= 0; slash = path.indexOf('/', slash + 1)) {
    found.push(path.slice(0, slash) as BytePath);
  }
  return found;
}

/** True when `path` is `directory` or lies below it. */
export function isWithin(path: BytePath, directory: BytePath): boolean {
  return directory === '' || path === directory || path.startsWith(`${directory}/`);
}

/** Order by bytes; a directory comes before its entries. */
export function compareBytes(a: BytePath, b: BytePath): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

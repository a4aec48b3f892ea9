import type { BytePath } from '../../../src/stage/byte-path.ts';
import { parsePax, type PaxFacts } from './pax.ts';
import { BLOCK, decodeHeader, isZeroBlock, paddingOf, TarFault, type TarHeader, type TarType } from './tar-header.ts';

/** An entry as header and extended header together say. */
export interface TarEntry extends Omit<TarHeader, 'type'> {
  readonly type: Exclude<TarType, 'pax'>;
  /** Names of extended attributes that came along. */
  readonly xattrs: readonly string[];
}

export type TarEvent =
  { readonly kind: 'entry'; readonly entry: TarEntry } | { readonly kind: 'content'; readonly bytes: Buffer } | { readonly kind: 'entry-end' };

export interface TarReaderLimits {
  readonly paxBytes: number;
  /** Bytes of zeros that may follow the end of the archive (tar pads to 10 KiB). */
  readonly trailingBytes: number;
}

/**
 * A tar stream, strictly and incrementally: POSIX headers with extended headers, as engines write them, and nothing else. Pure. It holds
 * at most one header block, or one extended header, besides what it is given. `take` and `end` throw TarFault; after that the reader is
 * done. Content is handed over as it comes, never gathered.
 */
export interface TarReader {
  /** The events of the next bytes. A content's bytes are a view into `chunk`. */
  take(chunk: Buffer): Generator<TarEvent, void, undefined>;
  /** The stream has ended: throws unless the archive had. */
  end(): void;
}

type State = 'header' | 'extended' | 'content' | 'padding' | 'after';

export function createTarReader(limits: TarReaderLimits): TarReader {
  let state: State = 'header';
  /** Bytes of the present state still to come; of a header, of content, of padding. */
  let left = BLOCK;
  let held: Buffer[] = [];
  let pax: PaxFacts | undefined;
  let padding = 0;
  let zeroBlocks = 0;
  let trailing = 0;

  const enter = (next: State, bytes: number): void => {
    state = next;
    left = bytes;
  };
  const afterContent = (): void => (padding === 0 ? enter('header', BLOCK) : enter('padding', padding));

  /** All of a header or of an extended header, once its last byte is there. What is kept is a copy: whole chunks mustn't stay alive for it. */
  const gather = (bytes: Buffer): Buffer | undefined => {
    if (left === bytes.length && held.length === 0) return bytes;
    held.push(Buffer.from(bytes));
    if (left > bytes.length) return undefined;
    const whole = Buffer.concat(held);
    held = [];
    return whole;
  };

  const takeHeader = (block: Buffer): TarEntry | undefined => {
    if (isZeroBlock(block)) {
      if (pax !== undefined) throw new TarFault('an extended header without its entry');
      zeroBlocks += 1;
      enter(zeroBlocks === 2 ? 'after' : 'header', BLOCK);
      return undefined;
    }
    if (zeroBlocks > 0) throw new TarFault('an entry after a block of zeros');
    const header = decodeHeader(block);
    padding = paddingOf(header.size);
    if (header.type === 'pax') {
      if (pax !== undefined) throw new TarFault('two extended headers for one entry');
      if (header.size === 0) throw new TarFault('an empty extended header');
      if (header.size > limits.paxBytes) throw new TarFault(`an extended header of more than ${limits.paxBytes} bytes`);
      enter('extended', header.size);
      return undefined;
    }
    const entry = joined({ ...header, type: header.type }, pax);
    pax = undefined;
    padding = paddingOf(entry.size);
    if (entry.size === 0) enter('header', BLOCK);
    else enter('content', entry.size);
    return entry;
  };

  function* take(chunk: Buffer): Generator<TarEvent, void, undefined> {
    for (let at = 0; at < chunk.length;) {
      if (state === 'after') {
        const rest = chunk.subarray(at);
        if (rest.some((byte) => byte !== 0)) throw new TarFault('bytes after the end of the archive');
        trailing += rest.length;
        if (trailing > limits.trailingBytes) throw new TarFault(`more than ${limits.trailingBytes} bytes after the end of the archive`);
        return;
      }
      const bytes = chunk.subarray(at, at + left);
      at += bytes.length;
      switch (state) {
        case 'header': {
          const block = gather(bytes);
          left -= bytes.length;
          const entry = block === undefined ? undefined : takeHeader(block);
          if (entry !== undefined) {
            yield { kind: 'entry', entry };
            if (entry.size === 0) yield { kind: 'entry-end' };
          }
          break;
        }
        case 'extended': {
          const body = gather(bytes);
          left -= bytes.length;
          if (body !== undefined) {
            pax = parsePax(body);
            afterContent();
          }
          break;
        }
        case 'content':
          yield { kind: 'content', bytes };
          left -= bytes.length;
          if (left === 0) {
            afterContent();
            yield { kind: 'entry-end' };
          }
          break;
        case 'padding':
          left -= bytes.length;
          if (left === 0) enter('header', BLOCK);
          break;
      }
    }
  }

  return {
    take,
    end: () => {
      if (state !== 'after') throw new TarFault('the stream ended before the archive did');
    },
  };
}

/** What the extended header says goes before what the block says. */
function joined(header: Omit<TarEntry, 'xattrs'>, pax: PaxFacts | undefined): TarEntry {
  const { type } = header;
  const size = pax?.size ?? header.size;
  if (type !== 'file' && size !== 0) throw new TarFault(`a ${type} with content`);
  return {
    ...header,
    name: pax?.path ?? header.name,
    link: type === 'link' || type === 'symlink' ? (pax?.link ?? header.link) : ('' as BytePath),
    size,
    uid: pax?.uid ?? header.uid,
    gid: pax?.gid ?? header.gid,
    mtime: pax?.mtime ?? header.mtime,
    xattrs: pax?.xattrs ?? [],
  };
}

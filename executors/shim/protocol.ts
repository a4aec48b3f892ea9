import { constants } from 'node:os';
import { ProofrunError } from '../../src/core/errors.ts';

/** The shim's side of each value is executors/shim/shim.h; a test compares the two. */
export const PROTOCOL_VERSION = 1;
export const MAX_FRAME_BYTES = 8 << 20;

/** Flags of a mount operation. */
export const MOUNT = { readonly: 1, recursive: 2, noexec: 4, userxattr: 8, optional: 16, follow: 32, index: 64 } as const;
/** What the command's process gives up; bits of the `rights` setting. */
export const RIGHT = { noNewPrivs: 1, dropCapabilities: 2, keyring: 4, closeDescriptors: 8, nonDumpable: 16 } as const;
/** Kinds of probe. */
export const PROBE = { open: 1, create: 2, tcp: 3, udp: 4, unix: 5, syscall: 6, kill: 7, stage: 8, fork: 9, answer: 10, name: 11, exec: 12 } as const;

/** Kinds of listener. */
export const LISTEN = { tcp: 1, udp: 2 } as const;

/** unshare(2) flags. */
export const CLONE = { newNs: 0x20000, newUser: 0x10000000, newNet: 0x40000000 } as const;

/** Operations of outer, in the order in which they are carried out. */
export type OuterOperation =
  | { readonly op: 'listen'; readonly abstract: string; readonly path: string }
  | { readonly op: 'unshare'; readonly flags: number; readonly map: boolean; readonly uid: number; readonly gid: number }
  | { readonly op: 'base'; readonly path: string }
  | { readonly op: 'dir'; readonly path: string; readonly mode: number; readonly uid: number; readonly gid: number }
  | { readonly op: 'like'; readonly path: string; readonly model: string }
  | { readonly op: 'symlink'; readonly target: string; readonly path: string }
  | { readonly op: 'file'; readonly path: string; readonly mode: number; readonly text: string }
  | { readonly op: 'copy'; readonly source: string; readonly path: string; readonly mode: number; readonly uid: number; readonly gid: number }
  | { readonly op: 'whiteout'; readonly path: string }
  | {
      readonly op: 'overlay';
      readonly target: string;
      readonly flags: number;
      readonly upper: string;
      readonly work: string;
      readonly lowers: readonly string[];
    }
  | { readonly op: 'bind'; readonly source: string; readonly target: string; readonly flags: number }
  | {
      readonly op: 'tmpfs';
      readonly target: string;
      readonly mode: number;
      readonly bytes: number;
      readonly uid: number;
      readonly gid: number;
      readonly flags: number;
    }
  | { readonly op: 'agent'; readonly guest: string; readonly host: string; readonly client: string; readonly uid: number; readonly gid: number }
  | { readonly op: 'loopback' }
  /** Gives an address to lo. */
  | { readonly op: 'address'; readonly address: string; readonly prefix: number }
  /** Makes every address of the family of `source` local; the job's own end is called `source`. */
  | { readonly op: 'all_local'; readonly source: string }
  /** Opens a listener in the job's network and hands it over; see handles.host.ts. */
  | { readonly op: 'listener'; readonly kind: keyof typeof LISTEN; readonly address: string; readonly port: number }
  /** Starts the process that connects to published ports. */
  | { readonly op: 'dialer' }
  | { readonly op: 'start'; readonly terminal: boolean; readonly argv: readonly string[] };

export interface ProbeSetting {
  readonly id: string;
  readonly kind: number;
  readonly subject: string;
  readonly args: readonly number[];
}

/** Addresses in the command's process until its execve. */
export interface ExecPointers {
  readonly path: bigint;
  /** Of an array of pointers: a multiple of eight. */
  readonly argv: bigint;
}

/** Settings of inner; `end` completes them. */
export type InnerSetting =
  | { readonly set: 'argv'; readonly argv: readonly string[] }
  | { readonly set: 'env'; readonly env: readonly string[] }
  | { readonly set: 'cwd'; readonly path: string }
  | { readonly set: 'exe'; readonly path: string }
  | { readonly set: 'ids'; readonly uid: number; readonly gid: number; readonly groups: readonly number[] }
  | { readonly set: 'rlimit'; readonly resource: number; readonly soft: bigint; readonly hard: bigint }
  | { readonly set: 'seccomp'; readonly program: Uint8Array }
  /** Files and directories; nothing else may be executed. */
  | { readonly set: 'programs'; readonly paths: readonly string[] }
  /** Where the pathname and the arguments lie that execve gets: the filter of a job without further programs admits no other pointers. */
  | { readonly set: 'exec_at'; readonly at: ExecPointers }
  | { readonly set: 'rights'; readonly bits: number }
  | { readonly set: 'wall'; readonly milliseconds: number }
  | { readonly set: 'probe'; readonly probe: ProbeSetting }
  | { readonly set: 'terminal'; readonly rows: number; readonly columns: number }
  | { readonly set: 'end' };

/** Bytes of input that may be on their way to the shim's entry; its entry.c. */
export const INPUT_WINDOW_BYTES = 65536;

export type Command =
  | { readonly do: 'release' | 'quit' | 'leave' | 'input_end' | 'continue' }
  | { readonly do: 'signal'; readonly number: number }
  | { readonly do: 'credit'; readonly stream: 1 | 2; readonly bytes: number }
  | { readonly do: 'input'; readonly bytes: Uint8Array }
  | { readonly do: 'resize'; readonly rows: number; readonly columns: number };

/** What the shim says. */
export type ShimFrame =
  | { readonly say: 'hello'; readonly stage: string; readonly version: number }
  | { readonly say: 'fact'; readonly id: string; readonly from: string; readonly bytes: Buffer }
  | { readonly say: 'probe'; readonly id: string; readonly attempt: string; readonly errno: number }
  | { readonly say: 'error'; readonly call: string; readonly subject: string; readonly errno: number }
  | { readonly say: 'ready' | 'started' | 'timeout' | 'stopped' }
  | { readonly say: 'output'; readonly stream: 1 | 2; readonly bytes: Buffer }
  | { readonly say: 'eof'; readonly stream: number }
  | { readonly say: 'credit'; readonly bytes: number }
  | { readonly say: 'no_exec'; readonly errno: number }
  | { readonly say: 'ended'; readonly status: number }
  | { readonly say: 'outlived'; readonly pid: number; readonly name: string }
  | { readonly say: 'done'; readonly userUs: number; readonly systemUs: number };

type Part = string | number | bigint | boolean | Uint8Array;

/** Numbers are 64 bits, little-endian; a string ends with NUL; bytes are as they are. */
function sizeOf(part: Part): number {
  if (typeof part === 'string') return Buffer.byteLength(part) + 1;
  return part instanceof Uint8Array ? part.byteLength : 8;
}

/** A plain number is written in two halves: BigInt costs a hundred times as much. */
function writeNumber(into: Buffer, value: number | bigint | boolean, at: number): void {
  if (typeof value === 'bigint' || (typeof value === 'number' && !(Number.isSafeInteger(value) && value >= 0))) {
    into.writeBigUInt64LE(BigInt.asUintN(64, BigInt(value)), at);
    return;
  }
  const whole = Number(value);
  into.writeUInt32LE(whole % 0x1_0000_0000, at);
  into.writeUInt32LE(Math.floor(whole / 0x1_0000_0000), at + 4);
}

function frame(type: string, ...parts: readonly Part[]): Buffer {
  let length = 1;
  for (const part of parts) {
    if (typeof part === 'string' && part.includes('\0')) {
      throw new ProofrunError('ERR_LAUNCH', { message: `a path, argument or variable holds a NUL byte: ${JSON.stringify(part)}` });
    }
    length += sizeOf(part);
  }
  if (length > MAX_FRAME_BYTES) {
    throw new ProofrunError('ERR_LAUNCH', { message: `arguments or environment of ${length} bytes; at most ${MAX_FRAME_BYTES} fit` });
  }
  const whole = Buffer.alloc(4 + length);
  whole.writeUInt32LE(length);
  whole.write(type, 4, 'latin1');
  let at = 5;
  for (const part of parts) {
    if (typeof part === 'string') whole.write(part, at);
    else if (part instanceof Uint8Array) whole.set(part, at);
    else writeNumber(whole, part, at);
    at += sizeOf(part);
  }
  return whole;
}

export function encodeOperation(one: OuterOperation): Buffer {
  switch (one.op) {
    case 'listen':
      return frame('L', one.abstract, one.path);
    case 'unshare':
      return frame('U', one.flags, one.map, one.uid, one.gid);
    case 'base':
      return frame('B', one.path);
    case 'dir':
      return frame('d', one.path, one.mode, one.uid, one.gid);
    case 'like':
      return frame('k', one.path, one.model);
    case 'symlink':
      return frame('l', one.target, one.path);
    case 'file':
      return frame('f', one.path, one.mode, Buffer.from(one.text));
    case 'copy':
      return frame('y', one.source, one.path, one.mode, one.uid, one.gid);
    case 'whiteout':
      return frame('w', one.path);
    case 'overlay':
      return frame('o', one.target, one.flags, one.upper, one.work, ...one.lowers);
    case 'bind':
      return frame('b', one.source, one.target, one.flags);
    case 'tmpfs':
      return frame('t', one.target, one.mode, one.bytes, one.uid, one.gid, one.flags);
    case 'agent':
      return frame('g', one.guest, one.host, one.client, one.uid, one.gid);
    case 'loopback':
      return frame('n');
    case 'address':
      return frame('i', one.address, one.prefix);
    case 'all_local':
      return frame('a', one.source);
    case 'listener':
      return frame('p', LISTEN[one.kind], one.address, one.port);
    case 'dialer':
      return frame('D');
    case 'start':
      return frame('x', one.terminal, ...one.argv);
  }
}

export function encodeSetting(one: InnerSetting): Buffer {
  switch (one.set) {
    case 'argv':
      return frame('A', ...one.argv);
    case 'env':
      return frame('V', ...one.env);
    case 'cwd':
      return frame('C', one.path);
    case 'exe':
      return frame('e', one.path);
    case 'ids':
      return frame('I', 1, one.uid, one.gid, ...one.groups);
    case 'rlimit':
      return frame('r', one.resource, one.soft, one.hard);
    case 'seccomp':
      return frame('s', one.program);
    case 'programs':
      return frame('P', ...one.paths);
    case 'exec_at':
      return frame('E', one.at.path, one.at.argv);
    case 'rights':
      return frame('a', one.bits);
    case 'wall':
      return frame('w', one.milliseconds);
    case 'probe': {
      const { id, kind, subject, args } = one.probe;
      return frame('p', id, kind, subject, ...[0, 1, 2, 3, 4, 5].map((index) => args[index] ?? 0));
    }
    case 'terminal':
      return frame('y', one.rows, one.columns);
    case 'end':
      return frame('z');
  }
}

export function encodeCommand(command: Command): Buffer {
  switch (command.do) {
    case 'release':
      return frame('G');
    case 'signal':
      return frame('K', command.number);
    case 'quit':
      return frame('Q');
    case 'leave':
      return frame('L');
    case 'credit':
      return frame('+', command.stream, command.bytes);
    case 'input':
      return frame('i', command.bytes);
    case 'input_end':
      return frame('j');
    case 'resize':
      return frame('Y', command.rows, command.columns);
    case 'continue':
      return frame('g');
  }
}

/** What the guard of AgentCtl says (executors/shim/agent.c). */
export type AgentFrame =
  | { readonly say: 'opened'; readonly connection: number; readonly side: 'guest' | 'host' }
  | { readonly say: 'data'; readonly connection: number; readonly bytes: Buffer }
  | { readonly say: 'closed'; readonly connection: number }
  | { readonly say: 'refused'; readonly uid: number };

/** Throws ERR_SHIM_PROTOCOL. */
export function parseAgentFrame(bytes: Buffer): AgentFrame {
  const cursor = new Cursor(bytes);
  const type = String.fromCharCode(bytes[0] ?? 0);
  switch (type) {
    case 'o':
      return { say: 'opened', connection: cursor.number(), side: cursor.number() === 1 ? 'host' : 'guest' };
    case 'd':
      return { say: 'data', connection: cursor.number(), bytes: cursor.remaining() };
    case 'c':
      return { say: 'closed', connection: cursor.number() };
    case 'r':
      return { say: 'refused', uid: cursor.number() };
    default:
      throw broken(`a frame of AgentCtl of unknown type ${JSON.stringify(type)}`);
  }
}

/** From now on whoever connects is answered. */
export function encodeAgentBegin(): Buffer {
  return frame('b');
}

export function encodeAgentData(connection: number, text: string): Buffer {
  return frame('d', connection, Buffer.from(text));
}

export function encodeAgentClose(connection: number): Buffer {
  return frame('c', connection);
}

/** Splits a stream of bytes into frames. Throws ERR_SHIM_PROTOCOL for a length out of range. */
export class FrameSplitter {
  private rest: Buffer = Buffer.alloc(0);

  /** The frames that `chunk` completes, each without its length. */
  push(chunk: Buffer): readonly Buffer[] {
    this.rest = this.rest.byteLength === 0 ? chunk : Buffer.concat([this.rest, chunk]);
    const frames: Buffer[] = [];
    let at = 0;
    while (this.rest.byteLength - at >= 4) {
      const length = this.rest.readUInt32LE(at);
      if (length === 0 || length > MAX_FRAME_BYTES) throw broken(`a frame of ${length} bytes`);
      if (this.rest.byteLength - at - 4 < length) break;
      frames.push(this.rest.subarray(at + 4, at + 4 + length));
      at += 4 + length;
    }
    this.rest = this.rest.subarray(at);
    return frames;
  }
}

function broken(what: string): ProofrunError {
  return new ProofrunError('ERR_SHIM_PROTOCOL', { message: `the shim sent ${what}`, hint: 'npm run build:shim' });
}

class Cursor {
  private readonly bytes: Buffer;
  private at: number;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
    this.at = 1;
  }

  text(): string {
    const end = this.bytes.indexOf(0, this.at);
    if (end < 0) throw broken('a string without an end');
    const value = this.bytes.toString('utf8', this.at, end);
    this.at = end + 1;
    return value;
  }

  number(): number {
    if (this.at + 8 > this.bytes.byteLength) throw broken('a number that is cut off');
    const value = Number(this.bytes.readBigUInt64LE(this.at));
    this.at += 8;
    return value;
  }

  remaining(): Buffer {
    return Buffer.from(this.bytes.subarray(this.at));
  }
}

/** Parses one frame. Throws ERR_SHIM_PROTOCOL for anything that the protocol doesn't know. */
export function parseFrame(bytes: Buffer): ShimFrame {
  const cursor = new Cursor(bytes);
  const type = String.fromCharCode(bytes[0] ?? 0);
  switch (type) {
    case 'H':
      return { say: 'hello', stage: cursor.text(), version: cursor.number() };
    case 'F':
      return { say: 'fact', id: cursor.text(), from: cursor.text(), bytes: cursor.remaining() };
    case 'P':
      return { say: 'probe', id: cursor.text(), attempt: cursor.text(), errno: cursor.number() };
    case 'E':
      return { say: 'error', call: cursor.text(), subject: cursor.text(), errno: cursor.number() };
    case 'R':
      return { say: 'ready' };
    case 'S':
      return { say: 'started' };
    case 'W':
      return { say: 'timeout' };
    case '1':
      return { say: 'output', stream: 1, bytes: cursor.remaining() };
    case '2':
      return { say: 'output', stream: 2, bytes: cursor.remaining() };
    case 'e':
      return { say: 'eof', stream: cursor.number() };
    case '+':
      return { say: 'credit', bytes: cursor.number() };
    case 'Z':
      return { say: 'stopped' };
    case 'X':
      return { say: 'no_exec', errno: cursor.number() };
    case 'T':
      return { say: 'ended', status: cursor.number() };
    case 'O':
      return { say: 'outlived', pid: cursor.number(), name: cursor.text() };
    case 'D':
      return { say: 'done', userUs: cursor.number(), systemUs: cursor.number() };
    default:
      throw broken(`a frame of unknown type ${JSON.stringify(type)}`);
  }
}

const ERRNO_NAMES = new Map<number, string>();
for (const [name, number] of Object.entries(constants.errno)) if (!ERRNO_NAMES.has(number)) ERRNO_NAMES.set(number, name);
/** Names that Node's table lacks; linux/errno.h. */
for (const [number, name] of [
  [40, 'ELOOP'],
  [61, 'ENODATA'],
  [94, 'ESOCKTNOSUPPORT'],
  [96, 'EPFNOSUPPORT'],
  [117, 'EUCLEAN'],
] as const) {
  if (!ERRNO_NAMES.has(number)) ERRNO_NAMES.set(number, name);
}

/** `EACCES` for 13; `ok` for 0; `E<number>` for one without a name here. */
export function errnoName(number: number): string {
  return number === 0 ? 'ok' : (ERRNO_NAMES.get(number) ?? `E${number}`);
}

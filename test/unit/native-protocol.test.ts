import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import {
  encodeCommand,
  encodeOperation,
  encodeSetting,
  errnoName,
  MAX_FRAME_BYTES,
  MOUNT,
  PROBE,
  PROTOCOL_VERSION,
  RIGHT,
  type InnerSetting,
  type OuterOperation,
} from '../../executors/shim/protocol.ts';

const header = readFileSync(join(resolve(import.meta.dirname, '../..'), 'executors/shim/shim.h'), 'utf8');

/** `#define NAME 4u` and members of enums: a letter or a number each. */
function valueOf(name: string): string | number {
  const define = new RegExp(`^#define ${name} (.+)$`, 'm').exec(header)?.[1];
  const member = new RegExp(`^  ${name} = ([^,]+),`, 'm').exec(header)?.[1];
  const text = (define ?? member ?? '').trim();
  if (/^'.'$/.test(text)) return text.slice(1, -1);
  const shifted = /^\((\d+)u << (\d+)\)$/.exec(text);
  if (shifted !== null) return Number(shifted[1]) << Number(shifted[2]);
  if (/^\d+u?$/.test(text)) return Number.parseInt(text, 10);
  throw new Error(`shim.h has no ${name}`);
}
const typeOf = (frame: Buffer): string => frame.toString('latin1', 4, 5);

describe('the two sides of the control channel', () => {
  test('agree on numbers', () => {
    expect([PROTOCOL_VERSION, MAX_FRAME_BYTES]).toEqual([valueOf('PROTOCOL_VERSION'), valueOf('MAX_FRAME')]);
    for (const [name, bit] of Object.entries(MOUNT)) expect([name, bit]).toEqual([name, valueOf(`MOUNT_${name.toUpperCase()}`)]);
    const rights = { noNewPrivs: 'NO_NEW_PRIVS', dropCapabilities: 'DROP_CAPS', keyring: 'KEYRING', closeDescriptors: 'CLOSE_FDS', nonDumpable: 'NONDUMPABLE' };
    for (const [name, bit] of Object.entries(RIGHT)) expect([name, bit]).toEqual([name, valueOf(`RIGHT_${rights[name as keyof typeof RIGHT]}`)]);
    for (const [name, kind] of Object.entries(PROBE)) expect([name, kind]).toEqual([name, valueOf(`PROBE_${name.toUpperCase()}`)]);
  });

  const OPERATIONS: readonly (readonly [string, OuterOperation])[] = [
    ['OP_LISTEN', { op: 'listen', abstract: 'a', path: '/s' }],
    ['OP_UNSHARE', { op: 'unshare', flags: 1, map: true, uid: 1, gid: 1 }],
    ['OP_BASE', { op: 'base', path: '/b' }],
    ['OP_DIR', { op: 'dir', path: '/d', mode: 0o755, uid: 1, gid: 1 }],
    ['OP_LIKE', { op: 'like', path: '/d', model: '/m' }],
    ['OP_SYMLINK', { op: 'symlink', target: 't', path: '/l' }],
    ['OP_FILE', { op: 'file', path: '/f', mode: 0o644, text: 'x' }],
    ['OP_COPY', { op: 'copy', source: '/s', path: '/f', mode: 0o644, uid: 1, gid: 1 }],
    ['OP_WHITEOUT', { op: 'whiteout', path: '/w' }],
    ['OP_OVERLAY', { op: 'overlay', target: '/t', flags: 0, upper: '', work: '', lowers: ['/a', '/b'] }],
    ['OP_BIND', { op: 'bind', source: '/s', target: '/t', flags: 0 }],
    ['OP_TMPFS', { op: 'tmpfs', target: '/t', mode: 0o1777, bytes: 0, uid: 1, gid: 1, flags: 4 }],
    ['OP_AGENT', { op: 'agent', guest: '/g', host: '/h', client: '/c', uid: 1, gid: 1 }],
    ['OP_LOOPBACK', { op: 'loopback' }],
    ['OP_START', { op: 'start', terminal: false, argv: ['/usr/bin/bwrap'] }],
  ];
  test.each(OPERATIONS)('%s', (name, operation) => expect(typeOf(encodeOperation(operation))).toBe(valueOf(name)));

  const SETTINGS: readonly (readonly [string, InnerSetting])[] = [
    ['CFG_ARGV', { set: 'argv', argv: ['true'] }],
    ['CFG_ENV', { set: 'env', env: ['A=b'] }],
    ['CFG_CWD', { set: 'cwd', path: '/' }],
    ['CFG_EXE', { set: 'exe', path: '/bin/true' }],
    ['CFG_IDS', { set: 'ids', uid: 1, gid: 1, groups: [1] }],
    ['CFG_RLIMIT', { set: 'rlimit', resource: 7, soft: 1n, hard: 1n }],
    ['CFG_SECCOMP', { set: 'seccomp', program: new Uint8Array(8) }],
    ['CFG_RIGHTS', { set: 'rights', bits: 31 }],
    ['CFG_WALL', { set: 'wall', milliseconds: 1 }],
    ['CFG_PROBE', { set: 'probe', probe: { id: 'p', kind: 1, subject: '/', args: [] } }],
    ['CFG_TERMINAL', { set: 'terminal', rows: 24, columns: 80 }],
    ['CFG_END', { set: 'end' }],
  ];
  test.each(SETTINGS)('%s', (name, setting) => expect(typeOf(encodeSetting(setting))).toBe(valueOf(name)));

  test('commands', () => {
    expect([encodeCommand({ do: 'release' }), encodeCommand({ do: 'signal', number: 15 }), encodeCommand({ do: 'quit' })].map(typeOf)).toEqual([
      valueOf('DO_RELEASE'),
      valueOf('DO_SIGNAL'),
      valueOf('DO_QUIT'),
    ]);
  });

  test('what the shim says is what the parser knows, letter by letter', () => {
    const known = readFileSync(join(resolve(import.meta.dirname, '../..'), 'executors/shim/protocol.ts'), 'utf8');
    const parsed = [...known.slice(known.indexOf('export function parseFrame')).matchAll(/case '(.)':/g)].map(([, letter]) => letter);
    const said = [...header.matchAll(/^ {2}SAY_\w+ = '(.)'/gm)].map(([, letter]) => letter);
    expect(parsed.sort()).toEqual(said.sort());
  });

  test('a string with a NUL byte, which would end early on the other side, is not sent', () => {
    expect(() => encodeSetting({ set: 'argv', argv: ['a\0b'] })).toThrow(/NUL/);
    expect(() => encodeOperation({ op: 'whiteout', path: '/a\0/b' })).toThrow(/NUL/);
  });

  test('errnos have names, and one without a name is no refusal by accident', () => {
    expect([errnoName(0), errnoName(1), errnoName(13), errnoName(38), errnoName(40), errnoName(94), errnoName(9999)]).toEqual([
      'ok',
      'EPERM',
      'EACCES',
      'ENOSYS',
      'ELOOP',
      'ESOCKTNOSUPPORT',
      'E9999',
    ]);
  });
});

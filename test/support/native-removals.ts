import { symlinkSync } from 'node:fs';
import { join } from 'node:path';
import type { NativeLowering } from '../../executors/native/lower.ts';
import { CLONE, MOUNT, RIGHT, type InnerSetting, type OuterOperation } from '../../executors/shim/protocol.ts';
import type { Dimension } from '../../src/core/dimension.ts';
import type { ControlId } from '../../src/core/plan.ts';
import { anyProgram } from './any-program.ts';
import type { NativeJob } from './native-job.ts';

export type Install = NativeLowering['install'];

/** Places of one launch that an alteration may need. */
export interface AlterContext {
  readonly workspace: string;
  readonly home: string;
  readonly scratch: string;
  readonly upper: string;
  readonly uid: number;
  /** Of the test: paths of files that it made. */
  readonly parameters: Readonly<Record<string, string>>;
}

/** One way to leave a control's mechanism out, and what has to be noticed. */
export interface Removal {
  readonly control: ControlId;
  /** How it is left out; unique. */
  readonly how: string;
  /** Default: both kinds of user. */
  readonly only?: 'root' | 'user';
  readonly alter: (install: Install, context: AlterContext) => Install;
  /** Dimensions that are no longer enforced; every other one that was asked for still is. */
  readonly lost: readonly Dimension[];
  /** Where one kind of user loses something else: an ordinary user is stopped by the kernel elsewhere as well. */
  readonly lostAs?: { readonly root?: readonly Dimension[]; readonly user?: readonly Dimension[] };
  /** public: restricts nothing, so no mode needs it: its receipt is taken, and the command starts. selective: one name, one published port. */
  readonly network?: 'public' | 'selective';
  /** Name of a secret that the job has injected. */
  readonly secret?: string;
  /** Which programs the job may start; default: any, contained. */
  readonly programs?: NativeJob['programs'];
  /** Noticed when the tree has ended, not at the gate. */
  readonly atEnd?: true;
  /** The receipt that notices it for an ordinary user, when the control's own can't: the kernel refuses him the attempt anyway. */
  readonly noticedForUserBy?: string;
  /** Root's launch for a workspace of the ordinary user. */
  readonly ownedByUser?: true;
  /** Needs this limit of control groups. */
  readonly cgroup?: 'memory' | 'cpus' | 'processes';
  /** The whole test process runs in a pid namespace of its own: the alteration takes the sandbox's away. */
  readonly apart?: true;
}

const FILES: readonly Dimension[] = ['file_read', 'file_write'];
const EVERYTHING: readonly Dimension[] = ['file_read', 'file_write', 'network', 'subprocess', 'credentials', 'resources'];

type Setting<K extends InnerSetting['set']> = Extract<InnerSetting, { readonly set: K }>;
type Operation<K extends OuterOperation['op']> = Extract<OuterOperation, { readonly op: K }>;

/** Replaces settings of a kind; undefined drops one. Throws when there is none: an alteration that changes nothing shows nothing. */
function settings<K extends InnerSetting['set']>(install: Install, kind: K, change: (setting: Setting<K>) => InnerSetting | undefined): Install {
  let met = 0;
  const next = install.settings.flatMap((setting) => {
    if (setting.set !== kind) return [setting];
    const changed = change(setting as Setting<K>);
    if (changed !== setting) met++;
    return changed === undefined ? [] : [changed];
  });
  if (met === 0) throw new Error(`the lowering has no setting ${kind} to change`);
  return { ...install, settings: next };
}

function operations<K extends OuterOperation['op']>(
  install: Install,
  kind: K,
  change: (operation: Operation<K>) => OuterOperation | undefined | readonly OuterOperation[],
): Install {
  let met = 0;
  const next = install.operations.flatMap((operation) => {
    if (operation.op !== kind) return [operation];
    const changed = change(operation as Operation<K>);
    if (changed !== operation) met++;
    return changed ?? [];
  });
  if (met === 0) throw new Error(`the lowering has no operation ${kind} to change`);
  return { ...install, operations: next };
}

/** Bubblewrap's arguments, changed. */
function argv(install: Install, change: (argv: readonly string[]) => readonly string[]): Install {
  return operations(install, 'start', (start) => ({ ...start, argv: change(start.argv) }));
}

/** argv without the first place where these words stand in a row. */
function without(...words: readonly string[]): (list: readonly string[]) => readonly string[] {
  return (list) => {
    const at = list.findIndex((_, index) => words.every((word, offset) => list[index + offset] === word));
    if (at < 0) throw new Error(`bubblewrap is not called with ${words.join(' ')}`);
    return [...list.slice(0, at), ...list.slice(at + words.length)];
  };
}

function replaced(words: readonly string[], by: readonly string[]): (list: readonly string[]) => readonly string[] {
  return (list) => {
    const at = list.findIndex((_, index) => words.every((word, offset) => list[index + offset] === word));
    if (at < 0) throw new Error(`bubblewrap is not called with ${words.join(' ')}`);
    return [...list.slice(0, at), ...by, ...list.slice(at + words.length)];
  };
}

function rights(install: Install, bit: number): Install {
  return settings(install, 'rights', (one) => ({ ...one, bits: one.bits & ~bit }));
}

/** Directory of the root that outer builds. */
export function rootOf(install: Install): string {
  const base = install.operations.find((one): one is Operation<'base'> => one.op === 'base');
  if (base === undefined) throw new Error('the lowering has no base');
  return `${base.path}/root`;
}

/** More operations right before bubblewrap is started. */
function beforeStart(install: Install, ...more: readonly OuterOperation[]): Install {
  return operations(install, 'start', (start) => [...more, start]);
}

function probe(install: Install, id: string): string {
  const found = install.settings.find((one): one is Setting<'probe'> => one.set === 'probe' && one.probe.id === id);
  if (found === undefined) throw new Error(`the lowering has no probe ${id}`);
  return found.probe.subject;
}

const rlimit = (resource: number) => (install: Install) => settings(install, 'rlimit', (one) => (one.resource === resource ? undefined : one));
const withoutNamespace = (flag: number) => (install: Install) =>
  operations(install, 'unshare', (one) => {
    if ((one.flags & flag) === 0) throw new Error('that namespace is not made');
    return { ...one, flags: one.flags & ~flag };
  });

/** One hierarchy (cgroup v2) has one file to join; of several (v1) the controller's own is left out. */
const withoutCgroup = (controller: string) => (install: Install) => {
  const { cgroupProcs } = install;
  const left = cgroupProcs.length === 1 ? [] : cgroupProcs.filter((file) => !file.split('/').some((part) => part.split(',').includes(controller)));
  if (left.length === cgroupProcs.length) throw new Error(`the lowering joins no group of ${controller}`);
  return { ...install, cgroupProcs: left };
};
/** Every directory above a path of the sandbox, below the first, which is there. */
function parents(install: Install, path: string): readonly OuterOperation[] {
  const parts = path.split('/').slice(1, -1);
  return parts.slice(1).map((_, index) => ({ op: 'dir', path: `${rootOf(install)}/${parts.slice(0, index + 2).join('/')}`, mode: 0o755, uid: -1, gid: -1 }));
}

/** One return instruction: allow. struct sock_filter of linux/filter.h, SECCOMP_RET_ALLOW of linux/seccomp.h. */
const ALLOW_ALL = Uint8Array.from([0x06, 0, 0, 0, 0, 0, 0xff, 0x7f]);

/** A filter with one rule taken out: the same program with the return value of one errno turned to allow. */
function withoutErrno(program: Uint8Array, errno: number): Uint8Array {
  const copy = Uint8Array.from(program);
  const view = new DataView(copy.buffer);
  for (let at = 0; at < copy.length; at += 8) {
    if (view.getUint16(at, true) === 0x06 && view.getUint32(at + 4, true) === (0x00050000 | errno)) view.setUint32(at + 4, 0x7fff0000, true);
  }
  return copy;
}

/** Each control's mechanism, left out. Sorted as OWED in src/evidence/controls.ts. */
export const REMOVALS: readonly Removal[] = [
  {
    control: 'mount_namespace',
    how: 'bubblewrap binds the root of the host instead of the one that was built',
    alter: (install) => argv(install, replaced(['--bind', rootOf(install), '/'], ['--ro-bind', '/', '/'])),
    lost: FILES,
    // Everything of the host is there: its sockets, its /tmp.
    lostAs: { root: [...FILES, 'network', 'credentials', 'resources'], user: [...FILES, 'network', 'credentials', 'resources'] },
  },
  {
    control: 'mount_namespace',
    how: 'one more mount of the host, read-only',
    alter: (install) =>
      beforeStart(
        install,
        { op: 'dir', path: `${rootOf(install)}/extra`, mode: 0o755, uid: 0, gid: 0 },
        { op: 'bind', source: '/etc', target: `${rootOf(install)}/extra`, flags: MOUNT.readonly },
      ),
    only: 'root',
    lost: FILES,
  },
  {
    control: 'mount_namespace',
    how: 'no bubblewrap and no namespace at all',
    alter: (install) => ({
      ...install,
      operations: install.operations.flatMap((one): readonly OuterOperation[] => {
        if (one.op === 'listen') return [one];
        return one.op === 'start' ? [{ ...one, argv: ['/proc/self/fd/10', 'inner'] }] : [];
      }),
      // Without no_new_privs the kernel takes a filter from a privileged process only.
      settings: install.settings.flatMap((one): readonly InnerSetting[] => {
        if (one.set === 'seccomp') return [];
        return one.set === 'rights' ? [{ ...one, bits: 0 }] : [one];
      }),
    }),
    apart: true,
    lost: EVERYTHING,
  },
  {
    control: 'projected_root',
    how: 'a file of the host is copied into the root',
    alter: (install) => {
      const outside = probe(install, 'probe.read.outside');
      return beforeStart(install, ...parents(install, outside), {
        op: 'copy',
        source: outside,
        path: `${rootOf(install)}${outside}`,
        mode: 0o644,
        uid: -1,
        gid: -1,
      });
    },
    lost: ['file_read'],
  },
  {
    control: 'hidden_paths',
    how: 'the mask layer has no whiteouts',
    alter: (install) => operations(install, 'whiteout', () => undefined),
    lost: ['file_read'],
  },
  {
    control: 'hidden_paths',
    how: 'the mask layer is not part of the overlay',
    alter: (install, { workspace }) =>
      operations(install, 'overlay', (one) => (one.target.endsWith(workspace) ? { ...one, lowers: one.lowers.filter((lower) => lower === workspace) } : one)),
    lost: ['file_read'],
  },
  {
    control: 'staged_workspace',
    how: 'the workspace is bound as it is',
    alter: (install, { workspace }) =>
      operations(install, 'overlay', (one) => (one.target.endsWith(workspace) ? { op: 'bind', source: workspace, target: one.target, flags: 0 } : one)),
    lost: FILES,
  },
  {
    control: 'staged_workspace',
    how: "the overlay writes to a directory that isn't the stage",
    alter: (install, { workspace, scratch }) =>
      operations(install, 'overlay', (one) => {
        if (!one.target.endsWith(workspace)) return one;
        const elsewhere = join(scratch, 'elsewhere');
        const owner = install.settings.find((setting): setting is Setting<'ids'> => setting.set === 'ids') ?? { uid: -1, gid: -1 };
        return [
          { op: 'dir', path: elsewhere, mode: 0o755, uid: owner.uid, gid: owner.gid },
          { op: 'dir', path: `${elsewhere}-work`, mode: 0o755, uid: -1, gid: -1 },
          { ...one, upper: elsewhere, work: `${elsewhere}-work` },
        ];
      }),
    lost: ['file_write'],
  },
  {
    control: 'staged_workspace',
    how: 'a symlink lies where the probe would land',
    alter: (install, { upper, parameters }) => {
      symlinkSync(parameters['target'] ?? '/nowhere', join(upper, probe(install, 'probe.stage.create').split('/').at(-1) ?? ''));
      return install;
    },
    lost: ['file_write'],
  },
  {
    control: 'read_only_host',
    how: 'the root is not made read-only',
    alter: (install) => argv(install, without('--remount-ro', '/')),
    lost: FILES,
  },
  {
    control: 'read_only_host',
    how: '/etc is bound for writing',
    only: 'root',
    alter: (install) =>
      operations(install, 'overlay', (one) => (one.target.endsWith('/root/etc') ? { op: 'bind', source: '/etc', target: one.target, flags: 0 } : one)),
    lost: FILES,
  },
  {
    control: 'private_home',
    how: 'the real home is bound',
    alter: (install, { home }) =>
      operations(install, 'overlay', (one) => (one.target.endsWith(home) ? { op: 'bind', source: home, target: one.target, flags: 0 } : one)),
    lost: FILES,
  },
  {
    control: 'private_home',
    how: 'the home is a tmpfs',
    alter: (install, { home, uid }) =>
      operations(install, 'overlay', (one) =>
        one.target.endsWith(home) ? { op: 'tmpfs', target: one.target, mode: 0o700, bytes: 0, uid, gid: uid, flags: 0 } : one,
      ),
    lost: FILES,
  },
  {
    control: 'kernel_files',
    how: '/proc/sys is left as it is',
    alter: (install) => argv(install, without('--ro-bind', '/proc/sys', '/proc/sys')),
    lost: FILES,
    noticedForUserBy: 'mount.table',
  },
  {
    control: 'network_namespace',
    how: 'no network namespace is made',
    alter: (install) => operations(withoutNamespace(CLONE.newNet)(install), 'loopback', () => undefined),
    lost: ['network'],
  },
  {
    control: 'network_public',
    how: 'a network namespace is made',
    network: 'public',
    alter: (install) => operations(install, 'unshare', (one) => ({ ...one, flags: one.flags | CLONE.newNet })),
    lost: ['network'],
  },
  {
    control: 'host_sockets',
    how: 'no network namespace is made',
    alter: (install) => operations(withoutNamespace(CLONE.newNet)(install), 'loopback', () => undefined),
    lost: ['network'],
  },
  {
    control: 'host_sockets',
    how: 'the loopback is not brought up',
    alter: (install) => operations(install, 'loopback', () => undefined),
    lost: ['network'],
  },
  {
    control: 'overlay_network',
    how: 'addresses are not made local',
    network: 'selective',
    alter: (install) => operations(install, 'all_local', () => undefined),
    lost: ['network'],
  },
  {
    control: 'overlay_network',
    how: 'lo has one more address',
    network: 'selective',
    alter: (install) => operations(install, 'loopback', (one) => [one, { op: 'address', address: '10.1.2.3', prefix: 32 }]),
    lost: ['network'],
  },
  {
    control: 'overlay_network',
    how: 'a listener is left out',
    network: 'selective',
    alter: (install) => operations(install, 'listener', (one) => (one.port === 443 ? undefined : one)),
    lost: ['network'],
  },
  {
    control: 'overlay_network',
    how: 'the job may reach a port that no rule names',
    network: 'selective',
    alter: (install) => operations(install, 'listener', (one) => (one.kind === 'udp' ? [one, { ...one, kind: 'tcp', address: '0.0.0.0', port: 8443 }] : one)),
    lost: ['network'],
  },
  {
    control: 'overlay_network',
    how: "the resolver's file is the host's",
    network: 'selective',
    alter: (install) => operations(install, 'file', (one) => (one.path.endsWith('/resolv.conf') ? undefined : one)),
    lost: ['network'],
  },
  {
    control: 'published_ports',
    how: 'the port is not taken on the host',
    network: 'selective',
    alter: (install) => ({ ...install, published: [] }),
    lost: ['network'],
  },
  {
    control: 'pid_namespace',
    how: 'no pid namespace is made',
    apart: true,
    alter: (install) => argv(argv(install, without('--unshare-pid')), without('--as-pid-1')),
    lost: ['subprocess'],
  },
  {
    control: 'shim_is_init',
    how: 'bubblewrap stays PID 1',
    alter: (install) => argv(install, without('--as-pid-1')),
    lost: ['subprocess'],
  },
  {
    control: 'shim_is_init',
    how: 'PID 1 is dumpable',
    alter: (install) => rights(install, RIGHT.nonDumpable),
    lost: ['subprocess'],
  },
  {
    control: 'no_new_privs',
    how: 'neither bubblewrap nor the shim sets it',
    alter: (install, { parameters }) => {
      const bare = settings(rights(install, RIGHT.noNewPrivs), 'seccomp', () => undefined);
      return argv(bare, (words) => ['/usr/bin/env', `LD_PRELOAD=${parameters['preload'] ?? ''}`, ...words]);
    },
    lost: ['subprocess', 'credentials'],
  },
  {
    control: 'capabilities',
    how: 'they are kept',
    alter: (install) => rights(install, RIGHT.dropCapabilities),
    lost: ['subprocess'],
  },
  {
    control: 'user_drop',
    how: 'root stays root in a workspace of somebody else',
    only: 'root',
    ownedByUser: true,
    alter: (install) => settings(install, 'ids', () => undefined),
    // Without capabilities uid 0 can't write what isn't its own.
    lost: [...FILES, 'subprocess'],
  },
  {
    control: 'user_drop',
    how: 'one group more',
    only: 'root',
    ownedByUser: true,
    alter: (install) => settings(install, 'ids', (one) => ({ ...one, groups: [...one.groups, 0] })),
    lost: ['subprocess'],
  },
  {
    control: 'user_drop',
    how: 'another group',
    only: 'root',
    ownedByUser: true,
    alter: (install) => settings(install, 'ids', (one) => ({ ...one, gid: 0 })),
    lost: ['subprocess'],
  },
  {
    control: 'user_drop',
    how: 'the user is uid 0 inside',
    only: 'user',
    alter: (install, { uid }) => argv(install, replaced(['--uid', String(uid)], ['--uid', '0'])),
    lost: ['subprocess'],
  },
  {
    control: 'seccomp',
    how: 'no filter',
    alter: (install) => settings(install, 'seccomp', () => undefined),
    lost: ['subprocess', 'credentials'],
  },
  {
    control: 'seccomp',
    how: 'a filter that allows everything',
    alter: (install) => settings(install, 'seccomp', (one) => ({ ...one, program: ALLOW_ALL })),
    lost: ['subprocess', 'credentials'],
  },
  {
    control: 'seccomp',
    how: 'a filter without its EAFNOSUPPORT rules',
    alter: (install) => settings(install, 'seccomp', (one) => ({ ...one, program: withoutErrno(one.program, 97) })),
    lost: ['subprocess'],
  },
  {
    control: 'seccomp',
    how: 'the filter twice',
    alter: (install) => ({ ...install, settings: install.settings.flatMap((one): readonly InnerSetting[] => (one.set === 'seccomp' ? [one, one] : [one])) }),
    lost: ['subprocess'],
  },
  {
    control: 'no_program',
    how: 'the filter is that of other jobs',
    programs: 'none',
    alter: (install) => settings(install, 'seccomp', (one) => ({ ...one, program: anyProgram() })),
    lost: ['subprocess'],
  },
  {
    control: 'listed_programs',
    how: 'the list is not installed',
    programs: ['sh'],
    alter: (install) => settings(install, 'programs', () => undefined),
    lost: ['subprocess'],
  },
  {
    control: 'listed_programs',
    how: 'the list names everything',
    programs: ['sh'],
    alter: (install) => settings(install, 'programs', (one) => ({ ...one, paths: ['/'] })),
    lost: ['subprocess'],
  },
  {
    control: 'listed_programs',
    how: 'programs can be made in memory',
    programs: ['sh'],
    alter: (install) => settings(install, 'seccomp', (one) => ({ ...one, program: anyProgram() })),
    lost: ['subprocess'],
  },
  {
    control: 'listed_programs',
    how: 'programs can be made in /tmp',
    programs: ['sh'],
    alter: (install) => operations(install, 'tmpfs', (one) => (one.target.endsWith('/root/tmp') ? { ...one, flags: 0 } : one)),
    lost: [...FILES, 'subprocess'],
  },
  {
    control: 'descriptors',
    how: 'an inherited descriptor stays open',
    alter: (install) => rights(install, RIGHT.closeDescriptors),
    lost: ['subprocess'],
  },
  {
    control: 'tree_killed',
    how: 'no pid namespace is made',
    apart: true,
    alter: (install) => argv(argv(install, without('--unshare-pid')), without('--as-pid-1')),
    lost: ['subprocess'],
  },
  {
    control: 'environment',
    how: 'one byte of it differs',
    alter: (install) => settings(install, 'env', (one) => ({ ...one, env: one.env.map((line) => (line.startsWith('PATH=') ? `${line}x` : line)) })),
    lost: ['credentials'],
  },
  {
    control: 'environment',
    how: 'one variable more',
    alter: (install) => settings(install, 'env', (one) => ({ ...one, env: [...one.env, 'SSH_AUTH_SOCK=/run/agent'] })),
    lost: ['credentials'],
  },
  {
    control: 'secret_injection',
    how: 'the placeholder is another',
    network: 'selective',
    secret: 'TOKEN',
    alter: (install) => settings(install, 'env', (one) => ({ ...one, env: one.env.map((line) => (line.startsWith('TOKEN=') ? `${line}x` : line)) })),
    lost: ['credentials'],
  },
  {
    control: 'secret_injection',
    how: 'a listener is left out',
    network: 'selective',
    secret: 'TOKEN',
    alter: (install) => operations(install, 'listener', (one) => (one.port === 443 ? undefined : one)),
    lost: ['network', 'credentials'],
  },
  {
    control: 'agent_sockets',
    how: 'a socket of the host is bound into the sandbox',
    alter: (install) => {
      const socket = probe(install, 'probe.socket.agents');
      return beforeStart(
        install,
        ...parents(install, socket),
        { op: 'file', path: `${rootOf(install)}${socket}`, mode: 0o644, text: '' },
        { op: 'bind', source: socket, target: `${rootOf(install)}${socket}`, flags: MOUNT.readonly },
      );
    },
    lost: [...FILES, 'network', 'credentials'],
  },
  {
    control: 'session_keyring',
    how: "the caller's session keyring stays",
    alter: (install) => rights(install, RIGHT.keyring),
    lost: ['credentials'],
  },
  {
    control: 'rlimits',
    how: 'the limit on open files is left out',
    alter: rlimit(7),
    lost: ['resources'],
  },
  {
    control: 'rlimits',
    how: 'core dumps are allowed',
    alter: (install) => settings(install, 'rlimit', (one) => (one.resource === 4 ? { ...one, soft: 1n << 20n, hard: 1n << 20n } : one)),
    lost: ['resources'],
  },
  {
    control: 'process_limit',
    how: 'no control group is joined',
    only: 'root',
    cgroup: 'processes',
    alter: (install) => ({ ...install, cgroupProcs: [] }),
    lost: ['resources'],
  },
  {
    control: 'process_limit',
    how: 'RLIMIT_NPROC is left out',
    only: 'user',
    alter: rlimit(6),
    lost: ['resources'],
  },
  {
    control: 'memory_limit',
    how: "the memory controller's group is not joined",
    only: 'root',
    cgroup: 'memory',
    alter: withoutCgroup('memory'),
    lost: ['resources'],
  },
  {
    control: 'cpu_limit',
    how: "the processor controller's group is not joined",
    only: 'root',
    cgroup: 'cpus',
    alter: withoutCgroup('cpu'),
    lost: ['resources'],
  },
  {
    control: 'wall_time',
    how: 'no timer is set',
    alter: (install) => settings(install, 'wall', () => undefined),
    lost: ['resources'],
  },
  {
    control: 'wall_time',
    how: 'the timer is set to ten times the limit',
    alter: (install) => settings(install, 'wall', (one) => ({ ...one, milliseconds: one.milliseconds * 10 })),
    lost: ['resources'],
  },
  { control: 'stage_size', how: 'no watch is started', alter: (install) => ({ ...install, stageLimitBytes: undefined }), lost: ['resources'] },
  {
    control: 'stage_size',
    how: 'the watch has ten times the limit',
    alter: (install) => ({ ...install, stageLimitBytes: (install.stageLimitBytes ?? 0) * 10 }),
    lost: ['resources'],
  },
  {
    control: 'tmp_size',
    how: '/tmp has no size',
    alter: (install) => operations(install, 'tmpfs', (one) => (one.target.endsWith('/root/tmp') ? { ...one, bytes: 0 } : one)),
    lost: ['resources'],
  },
  {
    control: 'tmp_size',
    how: '/dev/shm has no size',
    alter: (install) =>
      argv(install, (words) => {
        const at = words.indexOf('--size');
        if (at < 0) throw new Error('bubblewrap gets no size');
        return [...words.slice(0, at), ...words.slice(at + 2)];
      }),
    lost: ['resources'],
  },
];

import { ALLOW, refuseWith } from './arch.ts';

/**
 * What a filter does with one call: a return value, or a comparison of half an argument that leads on.
 * Arguments are 64 bits wide for the filter; the kernel truncates an `int` parameter to the low half, so such a parameter is
 * compared there only (CVE-2019-10063: a TIOCSTI with a high bit set passed a 64-bit comparison).
 */
export type Decision =
  | number
  | {
      readonly arg: 0 | 1 | 2 | 3 | 4 | 5;
      readonly half: 'low' | 'high';
      /** Applied before the comparison. */
      readonly mask?: number;
      readonly cases: readonly { readonly values: readonly number[]; readonly then: Decision }[];
      readonly otherwise: Decision;
    };

export interface SeccompOptions {
  /**
   * No fork and no exec beyond the first: execve passes only with these pointers to its pathname and its arguments. They must be random, and
   * mapped only in the process that executes the command: whoever knows them can map a path of his own there.
   */
  readonly noProgram?: { readonly path: bigint; readonly argv: bigint };
  /** memfd_create answers ENOSYS: with it a new program can be made where every writable mount is noexec. */
  readonly noMemfd?: boolean;
}

const EPERM = refuseWith('EPERM');
const ENOSYS = refuseWith('ENOSYS');
const EPROTONOSUPPORT = refuseWith('EPROTONOSUPPORT');
const EAFNOSUPPORT = refuseWith('EAFNOSUPPORT');

/**
 * Interfaces for which libraries have a fallback when a kernel lacks them, so they answer ENOSYS. bpf is here because an
 * ordinary user meets EPERM without any filter, and a probe has to tell the two apart.
 */
const ABSENT = [
  'clone3', // its flags lie in memory, out of a filter's reach; glibc, musl and Go fall back to clone
  'io_uring_setup',
  'io_uring_enter',
  'io_uring_register',
  'bpf',
  'open_tree',
  'open_tree_attr',
  'move_mount',
  'fsopen',
  'fsconfig',
  'fsmount',
  'fspick',
  'mount_setattr',
  'statmount',
  'listmount',
];

/** Names that the table keeps for calls that Linux 6.18 no longer runs, or never did. */
const GONE = [
  'uselib',
  '_sysctl',
  'create_module',
  'get_kernel_syms',
  'query_module',
  'nfsservctl',
  'getpmsg',
  'putpmsg',
  'afs_syscall',
  'tuxcall',
  'security',
  'set_thread_area', // 32-bit only; x86-64 has arch_prctl
  'get_thread_area',
  'epoll_ctl_old',
  'epoll_wait_old',
  'vserver',
  'lookup_dcookie',
];

/** Calls that a confined command has no business with, whatever their arguments. */
const FORBIDDEN = [
  'mount',
  'umount2',
  'pivot_root',
  'chroot',
  'setns',
  'perf_event_open',
  'add_key',
  'request_key',
  'keyctl',
  'userfaultfd',
  'ptrace',
  'process_vm_readv',
  'process_vm_writev',
  'kcmp',
  'pidfd_getfd',
  'kexec_load',
  'kexec_file_load',
  'init_module',
  'finit_module',
  'delete_module',
  'reboot',
  'swapon',
  'swapoff',
  'settimeofday',
  'clock_settime',
  'clock_adjtime',
  'adjtimex',
  'sethostname',
  'setdomainname',
  'iopl',
  'ioperm',
  'open_by_handle_at',
  'quotactl',
  'quotactl_fd',
  'acct',
  'syslog',
  'vhangup',
];

/** linux/sched.h: mount, cgroup, uts, ipc, user, pid, network namespaces. */
const CLONE_NEW = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000;
/** A time namespace is asked for by unshare only: in the flags of clone this bit belongs to the exit signal. */
const CLONE_NEWTIME = 0x80;
const CLONE_THREAD = 0x00010000;

/** linux/socket.h, linux/net.h, linux/in.h, linux/netlink.h. */
const AF = { UNIX: 1, INET: 2, INET6: 10, NETLINK: 16 };
const SOCK = { STREAM: 1, DGRAM: 2, SEQPACKET: 5 };
const IPPROTO = { DEFAULT: 0, ICMP: 1, TCP: 6, UDP: 17, ICMPV6: 58 };
const NETLINK_ROUTE = 0;
/** The low four bits of the second argument are the type, the rest are flags. */
const SOCK_TYPE_MASK = 0xf;

/** linux/personality.h: Linux with or without address randomisation of its own (sanitizers ask for it), and the query. */
const PERSONALITIES = [0, 0x0040000, 0xffffffff];

/** asm-generic/ioctls.h: putting input into a terminal's queue, and the console's selection calls, which do the same. */
const TIOCSTI = 0x5412;
const TIOCLINUX = 0x541c;

const SOCKET: Decision = {
  arg: 0,
  half: 'low',
  cases: [
    {
      values: [AF.UNIX],
      then: {
        arg: 1,
        half: 'low',
        mask: SOCK_TYPE_MASK,
        cases: [{ values: [SOCK.STREAM, SOCK.DGRAM, SOCK.SEQPACKET], then: ALLOW }],
        otherwise: EPROTONOSUPPORT,
      },
    },
    {
      values: [AF.INET, AF.INET6],
      then: {
        arg: 1,
        half: 'low',
        mask: SOCK_TYPE_MASK,
        cases: [
          {
            values: [SOCK.STREAM],
            then: { arg: 2, half: 'low', cases: [{ values: [IPPROTO.DEFAULT, IPPROTO.TCP], then: ALLOW }], otherwise: EPROTONOSUPPORT },
          },
          {
            values: [SOCK.DGRAM],
            then: {
              arg: 2,
              half: 'low',
              cases: [{ values: [IPPROTO.DEFAULT, IPPROTO.UDP, IPPROTO.ICMP, IPPROTO.ICMPV6], then: ALLOW }],
              otherwise: EPROTONOSUPPORT,
            },
          },
        ],
        otherwise: EPROTONOSUPPORT,
      },
    },
    { values: [AF.NETLINK], then: { arg: 2, half: 'low', cases: [{ values: [NETLINK_ROUTE], then: ALLOW }], otherwise: EPROTONOSUPPORT } },
  ],
  otherwise: EAFNOSUPPORT,
};

const SOCKETPAIR: Decision = { arg: 0, half: 'low', cases: [{ values: [AF.UNIX], then: ALLOW }], otherwise: EAFNOSUPPORT };

function withoutFlags(mask: number, rest: Decision): Decision {
  return { arg: 0, half: 'low', mask, cases: [{ values: [0], then: rest }], otherwise: EPERM };
}

function pointerEquals(arg: 0 | 1, pointer: bigint, then: Decision): Decision {
  const low = Number(pointer & 0xffffffffn);
  const high = Number((pointer >> 32n) & 0xffffffffn);
  return { arg, half: 'low', cases: [{ values: [low], then: { arg, half: 'high', cases: [{ values: [high], then }], otherwise: EPERM } }], otherwise: EPERM };
}

/**
 * The rule of every call that isn't simply allowed, by name. A name that a machine lacks is skipped there; a number that the
 * machine's table doesn't name is answered ENOSYS, so a call that a newer kernel adds stays closed until it was judged.
 */
export function rulesFor(options: SeccompOptions): ReadonlyMap<string, Decision> {
  const rules = new Map<string, Decision>();
  for (const name of [...ABSENT, ...GONE]) rules.set(name, ENOSYS);
  for (const name of FORBIDDEN) rules.set(name, EPERM);
  rules.set('socket', SOCKET);
  rules.set('socketpair', SOCKETPAIR);
  rules.set('clone', withoutFlags(CLONE_NEW, ALLOW));
  rules.set('unshare', withoutFlags(CLONE_NEW | CLONE_NEWTIME, ALLOW));
  rules.set('personality', { arg: 0, half: 'low', cases: [{ values: PERSONALITIES, then: ALLOW }], otherwise: EPERM });
  rules.set('ioctl', { arg: 1, half: 'low', cases: [{ values: [TIOCSTI, TIOCLINUX], then: EPERM }], otherwise: ALLOW });
  if (options.noProgram !== undefined) {
    const { path, argv } = options.noProgram;
    rules.set('execve', pointerEquals(0, path, pointerEquals(1, argv, ALLOW)));
    for (const name of ['execveat', 'fork', 'vfork']) rules.set(name, EPERM);
    rules.set(
      'clone',
      withoutFlags(CLONE_NEW, { arg: 0, half: 'low', mask: CLONE_THREAD, cases: [{ values: [CLONE_THREAD], then: ALLOW }], otherwise: EPERM }),
    );
  }
  if (options.noMemfd === true) rules.set('memfd_create', ENOSYS);
  return rules;
}

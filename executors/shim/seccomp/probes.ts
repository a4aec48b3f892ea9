import { SYSCALLS, X32_NUMBERS, type FilterErrno, type SeccompArch } from './arch.ts';

/** Six arguments of a system call: plain integers below 2^53; a negative one stands for its two's complement in 64 bits. */
export type ProbeArgs = readonly [number, number, number, number, number, number];

/**
 * One raw system call that the filter answers with an errno which the kernel doesn't give for these arguments: neither to
 * root nor to an ordinary user. Without the filter it fails on its arguments or does nothing that lasts, so it may be tried in
 * the command's own process.
 */
export interface SeccompProbe {
  /** `seccomp.<what>`, stable. */
  readonly id: string;
  /** The call, for people. */
  readonly call: string;
  /** Its number on each machine; a machine without it has no such probe. */
  readonly nr: Readonly<Partial<Record<SeccompArch, number>>>;
  readonly args: ProbeArgs;
  /** What counts as refused. */
  readonly errnos: readonly FilterErrno[];
}

function numbersOf(call: string): Partial<Record<SeccompArch, number>> {
  const x64 = SYSCALLS.x64[call];
  const arm64 = SYSCALLS.arm64[call];
  return { ...(x64 === undefined ? {} : { x64 }), ...(arm64 === undefined ? {} : { arm64 }) };
}

function probe(what: string, call: string, errno: FilterErrno, ...args: readonly number[]): SeccompProbe {
  const [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0] = args;
  return { id: `seccomp.${what}`, call, nr: numbersOf(call), args: [a, b, c, d, e, f], errnos: [errno] };
}

/** linux/sched.h. CLONE_FS can't be combined with a new user or mount namespace, nor CLONE_PIDFD with unshare: EINVAL either way. */
const CLONE_FS = 0x200;
const CLONE_PIDFD = 0x1000;
const CLONE_SIGHAND = 0x800;
const CLONE_NEWNS = 0x20000;
const CLONE_NEWUSER = 0x10000000;
const CLONE_NEWNET = 0x40000000;

const AF_INET = 2;
const AF_INET6 = 10;
const AF_NETLINK = 16;
const AF_PACKET = 17;
const AF_ALG = 38;
const AF_VSOCK = 40;
const SOCK_STREAM = 1;
const SOCK_RAW = 3;
const SOCK_DGRAM = 2;
/** No socket type: the kernel answers EINVAL before it looks at the family, so the answer doesn't depend on loaded modules. */
const NO_TYPE = 15;
/** No internet protocol (IPPROTO_MAX is 263): the kernel answers EINVAL, whether or not it has SCTP, MPTCP and the like. */
const NO_PROTOCOL = 0x7fff;
const NETLINK_KOBJECT_UEVENT = 15;
const KEY_SPEC_SESSION_KEYRING = -3;
const PTRACE_ATTACH = 16;
const BIT_32 = 0x1_0000_0000;

/** Attempts on the important denials of every filter that buildFilter makes. */
export const SECCOMP_PROBES: readonly SeccompProbe[] = [
  probe('bpf', 'bpf', 'ENOSYS', -1),
  probe('perf_event_open', 'perf_event_open', 'EPERM', 0, 0, -1, -1, -1),
  probe('keyctl', 'keyctl', 'EPERM', 0, KEY_SPEC_SESSION_KEYRING, 0),
  probe('add_key', 'add_key', 'EPERM'),
  probe('request_key', 'request_key', 'EPERM'),
  probe('io_uring', 'io_uring_setup', 'ENOSYS'),
  probe('userfaultfd', 'userfaultfd', 'EPERM', -1),
  probe('ptrace', 'ptrace', 'EPERM', PTRACE_ATTACH, 0),
  probe('process_vm_readv', 'process_vm_readv', 'EPERM'),
  probe('process_vm_writev', 'process_vm_writev', 'EPERM'),
  probe('pidfd_getfd', 'pidfd_getfd', 'EPERM', -1, -1, 1),
  probe('kcmp', 'kcmp', 'EPERM'),
  probe('mount', 'mount', 'EPERM'),
  probe('umount', 'umount2', 'EPERM', 0, -1),
  probe('fsconfig', 'fsconfig', 'ENOSYS', -1),
  probe('open_tree', 'open_tree', 'ENOSYS', -1, 0, 0x10),
  probe('mount_setattr', 'mount_setattr', 'ENOSYS', -1, 0, -1),
  probe('chroot', 'chroot', 'EPERM'),
  probe('unshare_user', 'unshare', 'EPERM', CLONE_NEWUSER + CLONE_PIDFD),
  probe('unshare_mount', 'unshare', 'EPERM', CLONE_NEWNS + CLONE_PIDFD),
  probe('unshare_network', 'unshare', 'EPERM', CLONE_NEWNET + CLONE_PIDFD),
  probe('clone_user', 'clone', 'EPERM', CLONE_NEWUSER + CLONE_FS),
  probe('clone_mount', 'clone', 'EPERM', CLONE_NEWNS + CLONE_FS),
  probe('clone3', 'clone3', 'ENOSYS'),
  probe('setns', 'setns', 'EPERM', -1, 0),
  probe('socket_vsock', 'socket', 'EAFNOSUPPORT', AF_VSOCK, NO_TYPE, 0),
  probe('socket_packet', 'socket', 'EAFNOSUPPORT', AF_PACKET, NO_TYPE, 0),
  probe('socket_alg', 'socket', 'EAFNOSUPPORT', AF_ALG, NO_TYPE, 0),
  probe('socket_raw', 'socket', 'EPROTONOSUPPORT', AF_INET, SOCK_RAW, 1),
  probe('socket_protocol', 'socket', 'EPROTONOSUPPORT', AF_INET, SOCK_STREAM, NO_PROTOCOL),
  probe('socket_protocol6', 'socket', 'EPROTONOSUPPORT', AF_INET6, SOCK_DGRAM, NO_PROTOCOL),
  probe('socket_netlink', 'socket', 'EPROTONOSUPPORT', AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT),
  probe('socketpair', 'socketpair', 'EAFNOSUPPORT', AF_INET, SOCK_STREAM),
  probe('tiocsti', 'ioctl', 'EPERM', -1, 0x5412),
  probe('tiocsti_high', 'ioctl', 'EPERM', -1, BIT_32 + 0x5412),
  probe('tioclinux', 'ioctl', 'EPERM', -1, 0x541c),
  probe('clock_settime', 'clock_settime', 'EPERM'),
  probe('swapon', 'swapon', 'EPERM', 0, -1),
  { id: 'seccomp.x32', call: 'x32 getpid', nr: { x64: X32_NUMBERS.first + 39 }, args: [0, 0, 0, 0, 0, 0], errnos: ['EPERM'] },
];

/** Attempts on what `noProgram` closes, besides fork itself, which has no harmless form. */
export const NO_PROGRAM_PROBES: readonly SeccompProbe[] = [
  probe('execve', 'execve', 'EPERM'),
  probe('execveat', 'execveat', 'EPERM', -1, 0, 0, 0, -1),
  // A new process that shares signal handlers without memory doesn't exist: EINVAL.
  probe('clone_process', 'clone', 'EPERM', CLONE_SIGHAND),
];

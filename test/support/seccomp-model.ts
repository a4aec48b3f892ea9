import { SYSCALLS, type SeccompArch } from '../../executors/shim/seccomp/arch.ts';
import type { SeccompOptions } from '../../executors/shim/seccomp/rules.ts';

/**
 * What the filter should decide, written down a second time, from the documentation and not from rules.ts: text in, words out,
 * no code shared with the compiler.
 */
export type Verdict = 'allow' | 'kill process' | 'errno EPERM' | 'errno ENOSYS' | 'errno EPROTONOSUPPORT' | 'errno EAFNOSUPPORT';

const NATIVE: Record<SeccompArch, number> = { x64: 0xc000003e, arm64: 0xc00000b7 };

const EPERM_ALWAYS = `
  mount umount2 pivot_root chroot setns perf_event_open add_key request_key keyctl userfaultfd ptrace process_vm_readv
  process_vm_writev kcmp pidfd_getfd kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff
  settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname iopl ioperm open_by_handle_at quotactl quotactl_fd
  acct syslog vhangup`;

const ENOSYS_ALWAYS = `
  clone3 io_uring_setup io_uring_enter io_uring_register bpf open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick
  mount_setattr statmount listmount uselib _sysctl create_module get_kernel_syms query_module nfsservctl getpmsg putpmsg
  afs_syscall tuxcall security set_thread_area get_thread_area epoll_ctl_old epoll_wait_old vserver lookup_dcookie`;

const words = (text: string): ReadonlySet<string> => new Set(text.trim().split(/\s+/));
const eperm = words(EPERM_ALWAYS);
const enosys = words(ENOSYS_ALWAYS);

const names: Record<SeccompArch, ReadonlyMap<number, string>> = {
  x64: new Map(Object.entries(SYSCALLS.x64).map(([name, nr]) => [nr, name])),
  arm64: new Map(Object.entries(SYSCALLS.arm64).map(([name, nr]) => [nr, name])),
};

/** An argument as the kernel's `int` parameter sees it. */
const int = (value: bigint): number => Number(BigInt.asUintN(32, value));

function namespaces(flags: number): boolean {
  return [17, 25, 26, 27, 28, 29, 30].some((bit) => ((flags >>> bit) & 1) === 1);
}

function socket(family: number, type: number, protocol: number): Verdict {
  switch (family) {
    case 1:
      return [1, 2, 5].includes(type % 16) ? 'allow' : 'errno EPROTONOSUPPORT';
    case 2:
    case 10:
      if (type % 16 === 1) return protocol === 0 || protocol === 6 ? 'allow' : 'errno EPROTONOSUPPORT';
      if (type % 16 === 2) return [0, 1, 17, 58].includes(protocol) ? 'allow' : 'errno EPROTONOSUPPORT';
      return 'errno EPROTONOSUPPORT';
    case 16:
      return protocol === 0 ? 'allow' : 'errno EPROTONOSUPPORT';
    default:
      return 'errno EAFNOSUPPORT';
  }
}

/** Total: a verdict for every number, architecture and argument. */
export function modelVerdict(
  machine: SeccompArch,
  options: SeccompOptions,
  call: { readonly nr: number; readonly arch: number; readonly args: readonly bigint[] },
): Verdict {
  if (call.arch !== NATIVE[machine]) return 'kill process';
  if (machine === 'x64' && call.nr >= 0x40000000 && call.nr < 0x80000000) return 'errno EPERM';
  const name = names[machine].get(call.nr);
  if (name === undefined || enosys.has(name)) return 'errno ENOSYS';
  if (eperm.has(name)) return 'errno EPERM';
  const [first = 0n, second = 0n, third = 0n] = call.args;
  switch (name) {
    case 'socket':
      return socket(int(first), int(second), int(third));
    case 'socketpair':
      return int(first) === 1 ? 'allow' : 'errno EAFNOSUPPORT';
    case 'unshare':
      return namespaces(int(first)) || ((int(first) >>> 7) & 1) === 1 ? 'errno EPERM' : 'allow';
    case 'clone':
      if (namespaces(int(first))) return 'errno EPERM';
      return options.noProgram !== undefined && ((int(first) >>> 16) & 1) === 0 ? 'errno EPERM' : 'allow';
    case 'personality':
      return [0, 0x40000, 0xffffffff].includes(int(first)) ? 'allow' : 'errno EPERM';
    case 'ioctl':
      return int(second) === 0x5412 || int(second) === 0x541c ? 'errno EPERM' : 'allow';
    case 'execve':
      return options.noProgram === undefined || (first === options.noProgram.path && second === options.noProgram.argv) ? 'allow' : 'errno EPERM';
    case 'execveat':
    case 'fork':
    case 'vfork':
      return options.noProgram === undefined ? 'allow' : 'errno EPERM';
    case 'memfd_create':
      return options.noMemfd === true ? 'errno ENOSYS' : 'allow';
    default:
      return 'allow';
  }
}

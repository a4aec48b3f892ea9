import { SYSCALLS_ARM64 } from './syscalls-arm64.ts';
import { SYSCALLS_X64 } from './syscalls-x64.ts';

/** Machines for which a filter can be built; the names are those of `process.arch`. */
export const SECCOMP_ARCHS = ['x64', 'arm64'] as const;
export type SeccompArch = (typeof SECCOMP_ARCHS)[number];

/** True for a machine that has a filter. Elsewhere there is none, and none is claimed. */
export function isSeccompArch(name: string): name is SeccompArch {
  return SECCOMP_ARCHS.some((arch) => arch === name);
}

/** `seccomp_data.arch` of a native call (linux/audit.h): ELF machine, 64-bit and little-endian bits. */
export const AUDIT_ARCH: Readonly<Record<SeccompArch, number>> = { x64: 0xc000003e, arm64: 0xc00000b7 };

/** Every system call that Linux 6.18 has on this machine, by name. */
export const SYSCALLS: Readonly<Record<SeccompArch, Readonly<Record<string, number>>>> = { x64: SYSCALLS_X64, arm64: SYSCALLS_ARM64 };

/** First and last number of the x32 calls: the 64-bit numbers with bit 30 set (asm/unistd.h, __X32_SYSCALL_BIT). */
export const X32_NUMBERS = { first: 0x40000000, last: 0x7fffffff } as const;

/** Return values of a filter (linux/seccomp.h). */
export const ALLOW = 0x7fff0000;
export const KILL_PROCESS = 0x80000000;
const ERRNO_ACTION = 0x00050000;

/** Errnos that filters answer with; the same numbers on both machines (asm-generic/errno.h). */
export const ERRNOS = { EPERM: 1, ENOSYS: 38, EPROTONOSUPPORT: 93, EAFNOSUPPORT: 97 } as const;
export type FilterErrno = keyof typeof ERRNOS;

/** The return value that makes a call fail with an errno without being run. */
export function refuseWith(errno: FilterErrno): number {
  return ERRNO_ACTION | ERRNOS[errno];
}

/** `allow`, `kill process`, `errno EPERM`; the number in hex for anything else. */
export function formatAction(action: number): string {
  if (action === ALLOW) return 'allow';
  if (action === KILL_PROCESS) return 'kill process';
  for (const [name, number] of Object.entries(ERRNOS)) {
    if (action === (ERRNO_ACTION | number)) return `errno ${name}`;
  }
  return `0x${action.toString(16)}`;
}

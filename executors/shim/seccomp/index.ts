export {
  ALLOW,
  AUDIT_ARCH,
  ERRNOS,
  KILL_PROCESS,
  SECCOMP_ARCHS,
  SYSCALLS,
  X32_NUMBERS,
  formatAction,
  isSeccompArch,
  type FilterErrno,
  type SeccompArch,
} from './arch.ts';
export { buildFilter } from './filter.ts';
export { disassemble } from './disassemble.ts';
export { type SeccompOptions } from './rules.ts';
export { NO_PROGRAM_PROBES, SECCOMP_PROBES, type ProbeArgs, type SeccompProbe } from './probes.ts';

export { AUDIT_ARCH, ERRNOS, SECCOMP_ARCHS, SYSCALLS, formatAction, isSeccompArch, type FilterErrno, type SeccompArch } from './arch.ts';
export { buildFilter } from './filter.ts';
export { disassemble } from './disassemble.ts';
export { type SeccompOptions } from './rules.ts';
export { NO_PROGRAM_PROBES, SECCOMP_PROBES, type ProbeArgs, type SeccompProbe } from './probes.ts';

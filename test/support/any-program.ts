import { buildFilter } from '../../executors/shim/seccomp/index.ts';

/** The filter of a job that may start any program, for this machine. */
export function anyProgram(): Uint8Array {
  return buildFilter(process.arch === 'arm64' ? 'arm64' : 'x64');
}

import type { JsonValue } from '../../src/core/json.ts';
import type { ControlId } from '../../src/core/plan.ts';
import { PROBE, type ExecPointers, type InnerSetting } from './protocol.ts';
import { buildFilter, isSeccompArch, NO_PROGRAM_PROBES, SYSCALLS } from './seccomp/index.ts';

/** What a lowering collects: attempts to make, and with what they have to fail; values to read back. */
interface Collected {
  equals(control: ControlId, id: string, value: JsonValue): void;
  probe(control: ControlId, id: string, kind: number, subject: string, args: readonly number[], errnos: readonly string[]): void;
}

/** Addresses that no loader, heap, stack or library of a 64-bit process lies at, whatever the machine: 4 GiB to 256 GiB (arm64 may have 39 bits). */
const LOWEST = 1n << 32n;
const HIGHEST = 1n << 38n;
/** Farther apart than any list of arguments is long (execve(2): a quarter of the stack), so that the two never overlap. */
const APART = 1n << 30n;

/** The bytes of randomness that `execPointers` takes. */
export const EXEC_POINTER_BYTES = 16;

/**
 * Random addresses for the pathname and the arguments of the command. A filter that compares pointers is as strong as they are secret: they
 * lie in the shim, which the job can't read, and are gone from the command's process with its execve. Guessing takes both at once: 2^70.
 */
export function execPointers(random: Uint8Array): ExecPointers {
  const half = (HIGHEST - LOWEST) / 2n;
  const at = (from: number): bigint => random.subarray(from, from + 8).reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
  const path = LOWEST + (at(0) % (half - APART));
  const argv = LOWEST + half + (at(8) % (half - APART));
  return { path, argv: argv & ~7n };
}

/** Which programs a job may start besides its command. */
export type ProgramLimit =
  | { readonly kind: 'any' | 'none' }
  /** `unlisted`: a file that nothing but the list keeps from being executed. `hidden`: what the list hides. */
  | { readonly kind: 'listed'; readonly allowed: readonly string[]; readonly hidden: readonly string[]; readonly unlisted: string };

/** At most this many hidden programs get a probe of their own; the mount table covers the rest. */
const MOST_HIDDEN_PROBES = 8;

/** The filter; for a job whose programs are limited also what limits them, and the attempts to get around it. */
export function lowerPrograms(lowering: Collected, limit: ProgramLimit, arch: string, execAt: ExecPointers): readonly InnerSetting[] {
  if (!isSeccompArch(arch)) return [];
  switch (limit.kind) {
    case 'any':
      return [{ set: 'seccomp', program: buildFilter(arch) }];
    case 'none':
      lowering.probe('no_program', 'probe.fork', PROBE.fork, '', [], ['EPERM']);
      for (const probe of NO_PROGRAM_PROBES) {
        const nr = probe.nr[arch];
        if (nr !== undefined) lowering.probe('no_program', `probe.${probe.id}`, PROBE.syscall, '', [nr, ...probe.args.slice(0, 5)], probe.errnos);
      }
      return [
        { set: 'exec_at', at: execAt },
        { set: 'seccomp', program: buildFilter(arch, { noProgram: execAt }) },
      ];
    case 'listed': {
      lowering.probe('listed_programs', 'probe.exec.unlisted', PROBE.exec, limit.unlisted, [], ['EACCES']);
      const memfd = SYSCALLS[arch]['memfd_create'];
      // Without the filter it fails on its name: EFAULT.
      if (memfd !== undefined) lowering.probe('listed_programs', 'probe.exec.memfd', PROBE.syscall, '', [memfd, 0, 0], ['ENOSYS']);
      lowering.equals('listed_programs', 'mount.executable', []);
      for (const path of limit.hidden.slice(0, MOST_HIDDEN_PROBES)) {
        lowering.probe('listed_programs', `probe.exec.hidden:${path}`, PROBE.exec, path, [], ['ENOENT', 'ENOTDIR']);
      }
      return [
        { set: 'programs', paths: limit.allowed },
        { set: 'seccomp', program: buildFilter(arch, { noMemfd: true }) },
      ];
    }
  }
}

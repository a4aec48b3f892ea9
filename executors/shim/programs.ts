import type { EffectivePermissions } from '../../src/core/job.ts';
import type { ControlId } from '../../src/core/plan.ts';
import { PROBE, type ExecPointers, type InnerSetting } from './protocol.ts';
import { buildFilter, isSeccompArch, NO_PROGRAM_PROBES } from './seccomp/index.ts';

/** What a lowering collects: attempts to make, and with what they have to fail. */
interface Probes {
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

/** The filter, and for a job that may start no program the attempts to do so. */
export function lowerPrograms(lowering: Probes, subprocess: EffectivePermissions['subprocess'], arch: string, execAt: ExecPointers): readonly InnerSetting[] {
  if (!isSeccompArch(arch)) return [];
  if (subprocess.kind !== 'none') return [{ set: 'seccomp', program: buildFilter(arch) }];
  lowering.probe('no_program', 'probe.fork', PROBE.fork, '', [], ['EPERM']);
  for (const probe of NO_PROGRAM_PROBES) {
    const nr = probe.nr[arch];
    if (nr !== undefined) lowering.probe('no_program', `probe.${probe.id}`, PROBE.syscall, '', [nr, ...probe.args.slice(0, 5)], probe.errnos);
  }
  return [
    { set: 'exec_at', at: execAt },
    { set: 'seccomp', program: buildFilter(arch, { noProgram: execAt }) },
  ];
}

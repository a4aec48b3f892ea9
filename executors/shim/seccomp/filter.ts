import { ALLOW, AUDIT_ARCH, KILL_PROCESS, SYSCALLS, X32_NUMBERS, refuseWith, type SeccompArch } from './arch.ts';
import { BPF, DATA_ARCH, DATA_NUMBER, ProgramBuilder, dataArgument, encodeProgram, type Place } from './program.ts';
import { rulesFor, type Decision, type SeccompOptions } from './rules.ts';

/** A run of call numbers with one decision; it ends before the next run's start. */
interface Run {
  readonly start: number;
  readonly decision: Decision;
}

/** Every number from 0 to 2^32 - 1, in order, neighbours with the same decision joined. */
function runsOf(arch: SeccompArch, options: SeccompOptions): readonly Run[] {
  const rules = rulesFor(options);
  const absent = refuseWith('ENOSYS');
  const numbers = Object.entries(SYSCALLS[arch]).sort((a, b) => a[1] - b[1]);
  const runs: Run[] = [];
  const add = (start: number, decision: Decision): void => {
    if (runs.at(-1)?.decision !== decision) runs.push({ start, decision });
  };
  let next = 0;
  for (const [name, number] of numbers) {
    if (number > next) add(next, absent);
    add(number, rules.get(name) ?? ALLOW);
    next = number + 1;
  }
  add(next, absent);
  if (arch === 'x64') {
    // EPERM, not ENOSYS, which a kernel without x32 answers by itself: a probe has to tell the two apart.
    add(X32_NUMBERS.first, refuseWith('EPERM'));
    add(X32_NUMBERS.last + 1, absent);
  }
  return runs;
}

function compileDecision(builder: ProgramBuilder, decision: Decision): Place {
  if (typeof decision === 'number') return builder.returns(decision);
  let next = compileDecision(builder, decision.otherwise);
  for (const { values, then } of decision.cases.toReversed()) {
    const target = compileDecision(builder, then);
    for (const value of values.toReversed()) next = builder.jump(BPF.JUMP_EQUAL, value, target, next);
  }
  if (decision.mask !== undefined) next = builder.then(BPF.AND, decision.mask, next);
  return builder.then(BPF.LOAD, dataArgument(decision.arg, decision.half), next);
}

/** A balanced search over the starts of the runs: about log2(runs) comparisons before a call is decided. */
function compileSearch(builder: ProgramBuilder, starts: readonly { readonly start: number; readonly place: Place }[], from: number, to: number): Place {
  const only = starts[from];
  if (only === undefined) throw new RangeError(`no run at ${from}`);
  if (to - from === 1) return only.place;
  const middle = from + Math.ceil((to - from) / 2);
  const right = compileSearch(builder, starts, middle, to);
  const left = compileSearch(builder, starts, from, middle);
  const pivot = starts[middle];
  if (pivot === undefined) throw new RangeError(`no run at ${middle}`);
  return builder.jump(BPF.JUMP_GREATER_OR_EQUAL, pivot.start, right, left);
}

/**
 * The filter for one machine, as struct sock_filter[] for seccomp(2) or prctl(PR_SET_SECCOMP).
 *
 * A call of another architecture (i386 on x86-64, 32-bit ARM on arm64) kills the process; an x32 call fails with EPERM; a number
 * that Linux 6.18 doesn't know fails with ENOSYS; the rules are in rules.ts; everything else passes. Up to an allowed call only
 * number and architecture are read, so that the kernel (5.11 and later) answers it from a bitmap without running the filter.
 */
export function buildFilter(arch: SeccompArch, options: SeccompOptions = {}): Uint8Array {
  const builder = new ProgramBuilder();
  const kill = builder.returns(KILL_PROCESS);
  const places = new Map<Decision, Place>();
  const starts = runsOf(arch, options).map(({ start, decision }) => {
    const place = places.get(decision) ?? compileDecision(builder, decision);
    places.set(decision, place);
    return { start, place };
  });
  const search = builder.then(BPF.LOAD, DATA_NUMBER, compileSearch(builder, starts, 0, starts.length));
  const native = builder.jump(BPF.JUMP_EQUAL, AUDIT_ARCH[arch], search, kill);
  return encodeProgram(builder.finish(builder.then(BPF.LOAD, DATA_ARCH, native)));
}

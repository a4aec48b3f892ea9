import { BPF, decodeProgram } from '../../executors/shim/seccomp/program.ts';

/** What the kernel hands to a filter: struct seccomp_data. */
export interface SeccompCall {
  readonly nr: number;
  /** AUDIT_ARCH_* */
  readonly arch: number;
  readonly ip?: bigint;
  readonly args: readonly bigint[];
}

function seccompData(call: SeccompCall): DataView {
  const view = new DataView(new ArrayBuffer(64));
  view.setUint32(0, call.nr, true);
  view.setUint32(4, call.arch, true);
  view.setBigUint64(8, call.ip ?? 0n, true);
  for (let index = 0; index < 6; index++) view.setBigUint64(16 + 8 * index, call.args[index] ?? 0n, true);
  return view;
}

/** Runs a filter as the kernel would. Throws on anything that the kernel would refuse to load, or on a run past the end. */
export function interpret(program: Uint8Array, call: SeccompCall): { readonly action: number; readonly steps: number } {
  const instructions = decodeProgram(program);
  const data = seccompData(call);
  let accumulator = 0;
  let at = 0;
  for (let steps = 1; ; steps++) {
    const instruction = instructions[at];
    if (instruction === undefined) throw new Error(`ran past the end at ${at}`);
    const { code, k, ifTrue, ifFalse } = instruction;
    at += 1;
    switch (code) {
      case BPF.LOAD:
        if (k % 4 !== 0 || k >= 64) throw new Error(`load of offset ${k}`);
        accumulator = data.getUint32(k, true);
        break;
      case BPF.AND:
        accumulator = (accumulator & k) >>> 0;
        break;
      case BPF.JUMP:
        at += k;
        break;
      case BPF.JUMP_EQUAL:
        at += accumulator === k ? ifTrue : ifFalse;
        break;
      case BPF.JUMP_GREATER_OR_EQUAL:
        at += accumulator >= k ? ifTrue : ifFalse;
        break;
      case BPF.RETURN:
        return { action: k, steps };
      default:
        throw new Error(`operation 0x${code.toString(16)} at ${at - 1}`);
    }
  }
}

/** The checks of bpf_check_classic and seccomp_check_filter: what is wrong with a program, or undefined. */
export function whyUnloadable(program: Uint8Array): string | undefined {
  const instructions = decodeProgram(program);
  if (instructions.length === 0 || instructions.length > 4096) return `${instructions.length} instructions`;
  for (const [index, { code, k, ifTrue, ifFalse }] of instructions.entries()) {
    const left = instructions.length - index - 1;
    if (!Object.values(BPF).some((known) => known === code)) return `operation at ${index}`;
    if (code === BPF.LOAD && (k % 4 !== 0 || k >= 64)) return `load at ${index}`;
    if (code === BPF.JUMP && k >= left) return `jump out of the program at ${index}`;
    if ((code === BPF.JUMP_EQUAL || code === BPF.JUMP_GREATER_OR_EQUAL) && (ifTrue >= left || ifFalse >= left)) return `branch out of the program at ${index}`;
  }
  return instructions.at(-1)?.code === BPF.RETURN ? undefined : 'the last instruction is no return';
}

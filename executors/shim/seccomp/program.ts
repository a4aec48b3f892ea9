/** Operation codes of classic BPF that seccomp_check_filter (kernel/seccomp.c) admits and that we use; linux/bpf_common.h. */
export const BPF = {
  /** A = 32-bit word of struct seccomp_data at offset k. */
  LOAD: 0x20,
  /** A = A & k. */
  AND: 0x54,
  JUMP: 0x05,
  JUMP_EQUAL: 0x15,
  JUMP_GREATER_OR_EQUAL: 0x35,
  RETURN: 0x06,
} as const;

/** Offsets in struct seccomp_data (linux/seccomp.h), little endian: number, arch, instruction pointer, six 64-bit arguments. */
export const DATA_NUMBER = 0;
export const DATA_ARCH = 4;
export function dataArgument(index: number, half: 'low' | 'high'): number {
  return 16 + 8 * index + (half === 'low' ? 0 : 4);
}

/** BPF_MAXINSNS (linux/bpf_common.h). */
export const LONGEST_PROGRAM = 4096;
/** sizeof(struct sock_filter): u16 code, u8 jump if true, u8 jump if false, u32 k. */
export const INSTRUCTION_BYTES = 8;
/** The furthest that a conditional jump reaches. */
const LONGEST_HOP = 255;

export interface Instruction {
  readonly code: number;
  readonly ifTrue: number;
  readonly ifFalse: number;
  readonly k: number;
}

/** A place in a program that is built from its end: the number of instructions from there to the end. */
export type Place = number;

/**
 * Builds a program backwards, so that every target exists before the jump to it. A target out of the reach of a
 * conditional jump is reached over an unconditional one.
 */
export class ProgramBuilder {
  readonly #reversed: Instruction[] = [];
  readonly #returns = new Map<number, Place>();

  #add(instruction: Instruction): Place {
    this.#reversed.push(instruction);
    return this.#reversed.length;
  }

  /** Instructions to skip from the next instruction to be added to `target`. */
  #hop(target: Place): number {
    return this.#reversed.length - target;
  }

  /** Makes `target` reachable by a conditional jump, even when up to `more` instructions come between. */
  #reachable(target: Place, more: number): Place {
    return this.#hop(target) + more <= LONGEST_HOP ? target : this.#add({ code: BPF.JUMP, ifTrue: 0, ifFalse: 0, k: this.#hop(target) });
  }

  /** One return instruction for each value. */
  returns(value: number): Place {
    const known = this.#returns.get(value);
    if (known !== undefined) return known;
    const place = this.#add({ code: BPF.RETURN, ifTrue: 0, ifFalse: 0, k: value });
    this.#returns.set(value, place);
    return place;
  }

  jump(code: typeof BPF.JUMP_EQUAL | typeof BPF.JUMP_GREATER_OR_EQUAL, k: number, ifTrue: Place, ifFalse: Place): Place {
    const far = this.#reachable(ifTrue, 1);
    const near = this.#reachable(ifFalse, 0);
    return this.#add({ code, ifTrue: this.#hop(far), ifFalse: this.#hop(near), k });
  }

  /** A load or an AND, followed by `next`. */
  then(code: typeof BPF.LOAD | typeof BPF.AND, k: number, next: Place): Place {
    if (this.#hop(next) !== 0) this.#add({ code: BPF.JUMP, ifTrue: 0, ifFalse: 0, k: this.#hop(next) });
    return this.#add({ code, ifTrue: 0, ifFalse: 0, k });
  }

  /** The program that starts at `entry`, the instruction that was added last. */
  finish(entry: Place): readonly Instruction[] {
    if (entry !== this.#reversed.length) throw new RangeError(`a program starts at its last added instruction ${this.#reversed.length}, not at ${entry}`);
    if (entry > LONGEST_PROGRAM) throw new RangeError(`a program has at most ${LONGEST_PROGRAM} instructions, not ${entry}`);
    return this.#reversed.toReversed();
  }
}

/** struct sock_filter[], little endian (both machines are). */
export function encodeProgram(instructions: readonly Instruction[]): Uint8Array {
  const bytes = new Uint8Array(instructions.length * INSTRUCTION_BYTES);
  const view = new DataView(bytes.buffer);
  instructions.forEach((instruction, index) => {
    const at = index * INSTRUCTION_BYTES;
    view.setUint16(at, instruction.code, true);
    view.setUint8(at + 2, instruction.ifTrue);
    view.setUint8(at + 3, instruction.ifFalse);
    view.setUint32(at + 4, instruction.k, true);
  });
  return bytes;
}

/** Inverse of encodeProgram. Throws RangeError when the length isn't a whole number of instructions. */
export function decodeProgram(bytes: Uint8Array): readonly Instruction[] {
  if (bytes.length % INSTRUCTION_BYTES !== 0) throw new RangeError(`a program is a multiple of ${INSTRUCTION_BYTES} bytes, not ${bytes.length}`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  return Array.from({ length: bytes.length / INSTRUCTION_BYTES }, (_, index) => {
    const at = index * INSTRUCTION_BYTES;
    return { code: view.getUint16(at, true), ifTrue: view.getUint8(at + 2), ifFalse: view.getUint8(at + 3), k: view.getUint32(at + 4, true) };
  });
}

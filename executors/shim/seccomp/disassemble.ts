import { formatAction } from './arch.ts';
import { BPF, DATA_ARCH, DATA_NUMBER, dataArgument, decodeProgram, type Instruction } from './program.ts';

function formatLoad(offset: number): string {
  if (offset === DATA_NUMBER) return 'number';
  if (offset === DATA_ARCH) return 'arch';
  for (const index of [0, 1, 2, 3, 4, 5]) {
    if (offset === dataArgument(index, 'low')) return `arg${index} low`;
    if (offset === dataArgument(index, 'high')) return `arg${index} high`;
  }
  return `data[${offset}]`;
}

function formatInstruction(instruction: Instruction, index: number): string {
  const { code, k, ifTrue, ifFalse } = instruction;
  const constant = k < 0x1000 ? String(k) : `0x${k.toString(16)}`;
  const branches = `${index + 1 + ifTrue} else ${index + 1 + ifFalse}`;
  switch (code) {
    case BPF.LOAD:
      return `load  ${formatLoad(k)}`;
    case BPF.AND:
      return `and   0x${k.toString(16)}`;
    case BPF.JUMP:
      return `jump  ${index + 1 + k}`;
    case BPF.JUMP_EQUAL:
      return `if    = ${constant} then ${branches}`;
    case BPF.JUMP_GREATER_OR_EQUAL:
      return `if    >= ${constant} then ${branches}`;
    case BPF.RETURN:
      return `end   ${formatAction(k)}`;
    default:
      return `0x${code.toString(16)} ${ifTrue} ${ifFalse} 0x${k.toString(16)}`;
  }
}

/** One line an instruction, with the number of the line that each jump leads to. Throws RangeError on a torn program. */
export function disassemble(program: Uint8Array): string {
  return decodeProgram(program)
    .map((instruction, index) => `${String(index).padStart(4)}  ${formatInstruction(instruction, index)}\n`)
    .join('');
}

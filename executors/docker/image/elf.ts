/** What matters of an ELF program (elf(5)). */
export interface ProgramFacts {
  /** No interpreter is named: it runs without libraries of the system. */
  readonly isStatic: boolean;
  /** Architecture as container engines call it; undefined for one that isn't known here. */
  readonly architecture: string | undefined;
}

const PT_INTERP = 3;
const MACHINES: Readonly<Record<number, string>> = { 3: '386', 40: 'arm', 62: 'amd64', 183: 'arm64', 243: 'riscv64', 21: 'ppc64le', 22: 's390x' };

/** Reads the headers at the beginning of a file. Undefined: it is no little-endian ELF program. Pure. */
export function parseProgram(head: Buffer): ProgramFacts | undefined {
  if (head.length < 64 || head.readUInt32BE(0) !== 0x7f454c46 || head[5] !== 1) return undefined;
  const wide = head[4] === 2;
  const headersAt = wide ? Number(head.readBigUInt64LE(32)) : head.readUInt32LE(28);
  const size = head.readUInt16LE(wide ? 54 : 42);
  const count = head.readUInt16LE(wide ? 56 : 44);
  if (size < 32 || headersAt + size * count > head.length) return undefined;
  const types = Array.from({ length: count }, (_, index) => head.readUInt32LE(headersAt + index * size));
  return { isStatic: !types.includes(PT_INTERP), architecture: MACHINES[head.readUInt16LE(18)] };
}

/** What matters of an ELF program (elf(5)). */
export interface ProgramFacts {
  /** No interpreter is named: it runs without libraries of the system. */
  readonly isStatic: boolean;
  /** The loader that the kernel opens for it; undefined for a static one, or when its name lies beyond the bytes that were read. */
  readonly interpreter: string | undefined;
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
  const headers = Array.from({ length: count }, (_, index) => headersAt + index * size);
  const named = headers.find((at) => head.readUInt32LE(at) === PT_INTERP);
  return {
    isStatic: named === undefined,
    interpreter: named === undefined ? undefined : nameAt(head, named, wide),
    architecture: MACHINES[head.readUInt16LE(18)],
  };
}

/** p_offset and p_filesz of a program header; the name ends with NUL. */
function nameAt(head: Buffer, header: number, wide: boolean): string | undefined {
  const offset = wide ? Number(head.readBigUInt64LE(header + 8)) : head.readUInt32LE(header + 4);
  const length = wide ? Number(head.readBigUInt64LE(header + 32)) : head.readUInt32LE(header + 16);
  return length > 1 && offset + length <= head.length ? head.toString('utf8', offset, offset + length - 1) : undefined;
}

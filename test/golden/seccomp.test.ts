import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { SECCOMP_ARCHS, SYSCALLS, buildFilter, disassemble, type SeccompArch } from '../../executors/shim/seccomp/index.ts';

describe('the compiled filters', () => {
  test.each(SECCOMP_ARCHS)('%s', async (arch) => {
    await expect(disassemble(buildFilter(arch))).toMatchFileSnapshot(join(import.meta.dirname, `seccomp-${arch}.txt`));
  });

  test('without programs, x64', async () => {
    await expect(disassemble(buildFilter('x64', { noProgram: { path: 0x1234_5678_9abcn, argv: 0x2345_6789_abc8n } }))).toMatchFileSnapshot(
      join(import.meta.dirname, 'seccomp-x64-no-program.txt'),
    );
  });
});

const X64_HEADER = '/usr/include/x86_64-linux-gnu/asm/unistd_64.h';
const ARM64_HEADER = '/usr/aarch64-linux-gnu/include/asm/unistd.h';
const ARM64_COMPILER = '/usr/bin/aarch64-linux-gnu-gcc';

/** `#define __NR_name number`, with one level of `__NR_name __NR3264_name`. */
function numbersIn(text: string): ReadonlyMap<string, number> {
  const raw = new Map([...text.matchAll(/^#define (__NR\w+) (\w+)$/gm)].map(([, name = '', value = '']) => [name, value]));
  const numbers = new Map<string, number>();
  for (const [name, value] of raw) {
    const number = Number(raw.get(value) ?? value);
    if (name.startsWith('__NR_') && Number.isInteger(number) && name !== '__NR_syscalls' && name !== '__NR_arch_specific_syscall') {
      numbers.set(name.slice(5), number);
    }
  }
  return numbers;
}

function expectSame(arch: SeccompArch, header: ReadonlyMap<string, number>): void {
  const newest = Math.max(...header.values());
  expect(newest).toBeGreaterThan(400);
  const ours = new Map(Object.entries(SYSCALLS[arch]));
  for (const [name, number] of header) {
    // A header newer than the table may only add numbers above the table's newest.
    if (number <= Math.max(...ours.values())) expect([name, ours.get(name)]).toEqual([name, number]);
  }
  // Ours without a row in the header: newer than it, or added by a later kernel in a gap (uretprobe, uprobe).
  const extra = [...ours].filter(([name, number]) => number <= newest && header.get(name) !== number).map(([name]) => name);
  expect(extra.filter((name) => name !== 'uretprobe' && name !== 'uprobe')).toEqual([]);
}

describe('the numbers are those of the kernel headers', () => {
  test.skipIf(!existsSync(X64_HEADER))(`x64 (skipped without ${X64_HEADER})`, () => {
    expectSame('x64', numbersIn(readFileSync(X64_HEADER, 'utf8')));
  });

  test.skipIf(!existsSync(ARM64_HEADER) || !existsSync(ARM64_COMPILER))(`arm64 (skipped without ${ARM64_HEADER} and its compiler)`, () => {
    expectSame('arm64', numbersIn(execFileSync(ARM64_COMPILER, ['-E', '-dM', '-include', 'asm/unistd.h', '-x', 'c', '/dev/null'], { encoding: 'utf8' })));
  });

  test.each(SECCOMP_ARCHS)('%s: one name a number', (arch) => {
    const numbers = Object.values(SYSCALLS[arch]);
    expect(new Set(numbers).size).toBe(numbers.length);
    // Since 424 all architectures share their numbers.
    for (const [name, number] of Object.entries(SYSCALLS[arch])) {
      if (number >= 424) expect([name, SYSCALLS.x64[name]]).toEqual([name, number]);
    }
  });
});

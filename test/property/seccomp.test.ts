import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  AUDIT_ARCH,
  NO_PROGRAM_PROBES,
  SECCOMP_ARCHS,
  SECCOMP_PROBES,
  SYSCALLS,
  buildFilter,
  disassemble,
  formatAction,
  type SeccompArch,
  type SeccompOptions,
} from '../../executors/shim/seccomp/index.ts';
import { BPF, LONGEST_PROGRAM, ProgramBuilder, decodeProgram, encodeProgram } from '../../executors/shim/seccomp/program.ts';
import { interpret, whyUnloadable } from '../support/seccomp-interpreter.ts';
import { modelVerdict } from '../support/seccomp-model.ts';

const POINTER = 0x7f12_3456_7000n;
const ARGV = 0x7f45_0000_1238n;
const VARIANTS: readonly { readonly name: string; readonly options: SeccompOptions }[] = [
  { name: 'standard', options: {} },
  { name: 'no program', options: { noProgram: { path: POINTER, argv: ARGV } } },
  { name: 'no memfd', options: { noMemfd: true } },
];
const CASES = SECCOMP_ARCHS.flatMap((arch) => VARIANTS.map(({ name, options }) => ({ arch, name, options, program: buildFilter(arch, options) })));

/** Values at which rules turn, with and without high bits, besides any 64-bit number. */
const TURNS = [
  ...[
    0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 15, 16, 17, 38, 40, 58, 80, 132, 136, 262, 0x80, 0x800, 0x80001, 0x80002, 0x80003, 0x5411, 0x5412, 0x5413, 0x541c, 0x40000,
    0x400000, 0x10000, 0x3d0f00, 0x1200011, 0xffffffff,
  ],
  ...[17, 25, 26, 27, 28, 29, 30].map((bit) => 2 ** bit),
].map(BigInt);
const value64 = fc.oneof(
  fc.constantFrom(...TURNS),
  fc.tuple(fc.constantFrom(...TURNS), fc.bigInt({ min: 1n, max: 0xffffffffn })).map(([low, high]) => low | (high << 32n)),
  fc.constantFrom(POINTER, ARGV, ARGV + 8n, POINTER + 1n, POINTER & 0xffffffffn, POINTER | (1n << 63n), POINTER - (1n << 32n)),
  fc.bigInt({ min: 0n, max: (1n << 64n) - 1n }),
);
const sixArgs = fc.array(value64, { minLength: 6, maxLength: 6 });
/** Numbers whose decision depends on arguments come up often, every other number too. */
const numberOf = (arch: SeccompArch): fc.Arbitrary<number> => {
  const turning = ['socket', 'socketpair', 'clone', 'unshare', 'personality', 'ioctl', 'execve', 'execveat', 'memfd_create'].flatMap(
    (name) => SYSCALLS[arch][name] ?? [],
  );
  return fc.oneof(
    { weight: 4, arbitrary: fc.constantFrom(...turning) },
    { weight: 2, arbitrary: fc.integer({ min: 0, max: 600 }) },
    { weight: 1, arbitrary: fc.integer({ min: 0x40000000, max: 0x40000000 + 600 }) },
    { weight: 1, arbitrary: fc.integer({ min: 0, max: 0xffffffff }) },
  );
};

describe.each(CASES)('filter $arch, $name', ({ arch, options, program }) => {
  const decide = (nr: number, args: readonly bigint[], callArch = AUDIT_ARCH[arch]): string =>
    formatAction(interpret(program, { nr, arch: callArch, args }).action);

  test('the kernel would load it', () => {
    expect(whyUnloadable(program)).toBeUndefined();
    expect(program.length % 8).toBe(0);
  });

  test('decides every number from 0 to 600 as the model does, for any arguments', () => {
    fc.assert(
      fc.property(sixArgs, (args) => {
        const numbers = Array.from({ length: 601 }, (_, nr) => nr);
        const model = numbers.map((nr) => `${nr} ${modelVerdict(arch, options, { nr, arch: AUDIT_ARCH[arch], args })}`);
        expect(numbers.map((nr) => `${nr} ${decide(nr, args)}`)).toEqual(model);
      }),
      { numRuns: 60 },
    );
  });

  test('decides as the model does where arguments and high numbers matter', () => {
    fc.assert(
      fc.property(numberOf(arch), sixArgs, (nr, args) => {
        expect(decide(nr, args)).toBe(modelVerdict(arch, options, { nr, arch: AUDIT_ARCH[arch], args }));
      }),
      { numRuns: 4000 },
    );
  });

  test('kills a call of any other architecture', () => {
    fc.assert(
      fc.property(
        fc.oneof(fc.constantFrom(0x40000003, 0x40000028, 0xc000003e, 0xc00000b7, 0), fc.integer({ min: 0, max: 0xffffffff })),
        numberOf(arch),
        sixArgs,
        (callArch, nr, args) => {
          fc.pre(callArch !== AUDIT_ARCH[arch]);
          expect(decide(nr, args, callArch)).toBe('kill process');
        },
      ),
    );
  });

  test('nothing depends on the instruction pointer', () => {
    fc.assert(
      fc.property(numberOf(arch), sixArgs, value64, (nr, args, ip) => {
        expect(formatAction(interpret(program, { nr, arch: AUDIT_ARCH[arch], args, ip }).action)).toBe(decide(nr, args));
      }),
    );
  });

  test('decides the calls of a busy program within eleven instructions', () => {
    for (const name of ['read', 'write', 'openat', 'close', 'futex', 'mmap', 'epoll_pwait', 'newfstatat', 'lseek']) {
      const nr = SYSCALLS[arch][name] ?? -1;
      expect([name, interpret(program, { nr, arch: AUDIT_ARCH[arch], args: [] }).steps]).toSatisfy(([, steps]: [string, number]) => steps <= 11);
    }
  });
});

describe.each(SECCOMP_ARCHS)('probes on %s', (arch) => {
  const signed = (args: readonly number[]): bigint[] => args.map((value) => BigInt.asUintN(64, BigInt(value)));

  test('each one is refused by the filter with an errno that it lists', () => {
    const program = buildFilter(arch);
    for (const { id, nr, args, errnos } of SECCOMP_PROBES) {
      const number = nr[arch];
      if (number === undefined) {
        expect([arch, id]).toEqual(['arm64', 'seccomp.x32']);
        continue;
      }
      expect([id, errnos.map((errno) => `errno ${errno}`)]).toEqual([
        id,
        [formatAction(interpret(program, { nr: number, arch: AUDIT_ARCH[arch], args: signed(args) }).action)],
      ]);
    }
  });

  test('those of a job without programs are refused by that filter, and reach the kernel under the standard one', () => {
    for (const { id, nr, args } of NO_PROGRAM_PROBES) {
      const call = { nr: nr[arch] ?? -1, arch: AUDIT_ARCH[arch], args: signed(args) };
      expect([id, formatAction(interpret(buildFilter(arch, { noProgram: { path: POINTER, argv: ARGV } }), call).action)]).toEqual([id, 'errno EPERM']);
      expect([id, formatAction(interpret(buildFilter(arch), call).action)]).toEqual([id, 'allow']);
    }
  });

  test('ids are unique and arguments are whole numbers', () => {
    const all = [...SECCOMP_PROBES, ...NO_PROGRAM_PROBES];
    expect(new Set(all.map(({ id }) => id)).size).toBe(all.length);
    expect(all.flatMap(({ args }) => args).every(Number.isSafeInteger)).toBe(true);
  });
});

describe('programs', () => {
  test('encode and decode are inverse', () => {
    const instruction = fc.record({
      code: fc.integer({ min: 0, max: 0xffff }),
      ifTrue: fc.nat(255),
      ifFalse: fc.nat(255),
      k: fc.integer({ min: 0, max: 0xffffffff }),
    });
    fc.assert(
      fc.property(fc.array(instruction), (instructions) => {
        expect(decodeProgram(encodeProgram(instructions))).toEqual(instructions);
      }),
    );
  });

  test('the disassembler takes any bytes of whole instructions, and refuses a torn program', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 400 }), (bytes) => {
        if (bytes.length % 8 === 0) expect(disassemble(bytes).split('\n').length - 1).toBe(bytes.length / 8);
        else expect(() => disassemble(bytes)).toThrow(RangeError);
      }),
    );
  });

  test('targets out of reach of a conditional jump are reached all the same', () => {
    // A chain of 600 comparisons, each of which leads to the same far return.
    const builder = new ProgramBuilder();
    const hit = builder.returns(1);
    let next = builder.returns(2);
    for (let value = 600; value >= 1; value--) next = builder.jump(BPF.JUMP_EQUAL, value, hit, next);
    const program = encodeProgram(builder.finish(builder.then(BPF.LOAD, 0, next)));
    expect(whyUnloadable(program)).toBeUndefined();
    for (const nr of [0, 1, 2, 299, 600, 601]) expect(interpret(program, { nr, arch: 0, args: [] }).action).toBe(nr >= 1 && nr <= 600 ? 1 : 2);
  });

  test('a program that is too long, or that starts elsewhere, is refused', () => {
    const builder = new ProgramBuilder();
    let next = builder.returns(0);
    const first = next;
    for (let count = 0; count < LONGEST_PROGRAM; count++) next = builder.then(BPF.LOAD, 0, next);
    expect(() => builder.finish(next)).toThrow(/at most 4096/);
    expect(() => builder.finish(first)).toThrow(/starts at its last added/);
  });
});

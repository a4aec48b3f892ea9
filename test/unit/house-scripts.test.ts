import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

const root = resolve(import.meta.dirname, '../..');
let copy: string;

/** A package with a shim of three lines, to build from. */
beforeEach(() => {
  copy = mkdtempSync(join(tmpdir(), 'proofrun-house-'));
  for (const name of ['scripts/build-shim.mjs', 'scripts/install.mjs', 'scripts/test-summary.mjs', 'package.json']) cpSync(join(root, name), join(copy, name));
  mkdirSync(join(copy, 'executors/shim'), { recursive: true });
  source('int answer(void);\nint main(void) { return answer(); }\n', 'main.c');
  source('int answer(void);\nint answer(void) { return 0; }\n', 'answer.c');
});

afterEach(() => {
  rmSync(copy, { recursive: true, force: true });
});

function source(text: string, name: string): void {
  writeFileSync(join(copy, 'executors/shim', name), text);
}

function script(
  name: string,
  words: readonly string[] = [],
  env: NodeJS.ProcessEnv = process.env,
): { readonly status: number | null; readonly stdout: string; readonly stderr: string } {
  return spawnSync(process.execPath, [join(copy, 'scripts', name), ...words], { encoding: 'utf8', env });
}

/** elf(5): the segment that names a dynamic loader. */
const PT_INTERP = 3;

function segmentTypes(elf: Buffer): number[] {
  const [offset, size, count] = [Number(elf.readBigUInt64LE(32)), elf.readUInt16LE(54), elf.readUInt16LE(56)];
  return Array.from({ length: count }, (_, index) => elf.readUInt32LE(offset + index * size));
}

const shim = (): string => join(copy, 'prebuilt', `linux-${process.arch}`, 'proofrun-shim');

describe('build-shim', () => {
  test('compiles every .c of the folder into one static program, and does nothing when no source is newer', () => {
    expect(script('build-shim.mjs', ['--native'])).toMatchObject({ status: 0, stdout: `built ${shim()}\n` });
    expect(spawnSync(shim()).status).toBe(0);
    expect(segmentTypes(readFileSync(shim()))).not.toContain(PT_INTERP);
    expect(segmentTypes(readFileSync('/usr/bin/env'))).toContain(PT_INTERP);
    const before = statSync(shim()).mtimeMs;
    expect(script('build-shim.mjs', ['--native'])).toMatchObject({ status: 0, stdout: '' });
    expect(statSync(shim()).mtimeMs).toBe(before);
  });

  test('a warning is an error, and the old program stays', () => {
    script('build-shim.mjs', ['--native']);
    source('int answer(int unused);\nint answer(int unused) { return 0; }\n', 'answer.c');
    const run = script('build-shim.mjs', ['--native', '--force']);
    expect(run.status).toBe(1);
    expect(run.stderr).toMatch(/unused parameter/);
    expect(spawnSync(shim()).status).toBe(0);
  });

  test('without a compiler the message names the packages', () => {
    const run = script('build-shim.mjs', ['--native'], { PATH: copy });
    expect(run.status).toBe(1);
    expect(run.stderr).toMatch(/needs a C compiler.*apt-get install -y gcc libc6-dev/);
  });

  test('a header that is missing is named with its package', () => {
    source('#include <proofrun/absent.h>\n', 'answer.c');
    const run = script('build-shim.mjs', ['--native']);
    expect(run.status).toBe(1);
    expect(run.stderr).toMatch(/absent\.h[\s\S]*headers or its static archive are missing[\s\S]*libc6-dev/);
  });
});

describe('install from a registry', () => {
  test('compiles where no prebuilt shim fits', () => {
    expect(script('install.mjs').status).toBe(0);
    expect(spawnSync(shim()).status).toBe(0);
  });

  test('leaves a prebuilt shim alone, and needs no compiler then', () => {
    mkdirSync(join(copy, 'prebuilt', `linux-${process.arch}`), { recursive: true });
    writeFileSync(shim(), 'prebuilt');
    expect(script('install.mjs', [], { PATH: copy }).status).toBe(0);
    expect(readFileSync(shim(), 'utf8')).toBe('prebuilt');
  });

  test('fails, and says why, where it can do neither', () => {
    const run = script('install.mjs', [], { PATH: copy });
    expect(run.status).toBe(1);
    expect(run.stderr).toMatch(/no prebuilt shim fits linux-[\s\S]*apt-get install/);
  });

  test('does nothing in a clone', () => {
    mkdirSync(join(copy, 'src/cli'), { recursive: true });
    expect(script('install.mjs', [], { PATH: copy })).toMatchObject({ status: 0, stderr: '' });
  });
});

describe('the closing line of the tests', () => {
  const results = (text: string): void => {
    mkdirSync(join(copy, 'build'), { recursive: true });
    writeFileSync(join(copy, 'build/test-results.json'), text);
  };
  const line = (): string => script('test-summary.mjs').stdout;

  test('counts tests', () => {
    results(
      JSON.stringify({
        numPassedTests: 5,
        numFailedTests: 1,
        numPendingTests: 2,
        numTodoTests: 0,
        testResults: [{ status: 'failed', assertionResults: [{ status: 'failed' }] }],
      }),
    );
    expect(line()).toBe('5 passed, 1 failed, 2 skipped\n');
  });

  test('a file that could not be loaded is a failure', () => {
    results(
      JSON.stringify({ numPassedTests: 5, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0, testResults: [{ status: 'failed', assertionResults: [] }] }),
    );
    expect(line()).toBe('5 passed, 1 failed, 0 skipped\n');
  });

  test.each([
    ['missing', undefined],
    ['torn', '{"numPassedTests":'],
  ])('results that are %s are a failure', (_kind, text) => {
    if (text !== undefined) results(text);
    expect(line()).toBe('0 passed, 1 failed, 0 skipped\n');
  });
});

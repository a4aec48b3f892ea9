#!/usr/bin/env node
// Compiles the shim: every .c of executors/shim into one static program.
//   node scripts/build-shim.mjs              prebuilt/linux-<this arch>, and the other arch when its cross compiler is installed
//   node scripts/build-shim.mjs --native     this arch only
//   node scripts/build-shim.mjs --sanitize   build/sanitized/proofrun-shim, dynamic, with address and undefined-behaviour checks
//   node scripts/build-shim.mjs --calls      build/calls/proofrun-shim, for crash tests: see test/fixtures/shim-calls.c
//   --force                                  even when no source is newer
// Needs nothing but Node and a C compiler: it also runs when the package is installed from a registry.
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const SOURCES = join(ROOT, 'executors', 'shim');
const WARNINGS = ['-std=gnu11', '-Wall', '-Wextra', '-Werror'];

/** Calls that the crash tests count. */
const WRAPPED = [
  ...['mkdirat', 'mkfifoat', 'symlinkat', 'linkat', 'unlinkat', 'openat', 'syscall'],
  ...['pwrite', 'fsync', 'syncfs', 'ftruncate', 'chmod', 'fchmod', 'fchownat', 'setxattr', 'removexattr', 'utimensat'],
];

const TARGETS = {
  x64: {
    compilers: ['cc', 'gcc', 'clang'],
    cross: ['x86_64-linux-gnu-gcc'],
    packages: { native: 'gcc libc6-dev', cross: 'gcc-x86-64-linux-gnu libc6-dev-amd64-cross' },
  },
  arm64: {
    compilers: ['cc', 'gcc', 'clang'],
    cross: ['aarch64-linux-gnu-gcc'],
    packages: { native: 'gcc libc6-dev', cross: 'gcc-aarch64-linux-gnu libc6-dev-arm64-cross' },
  },
};

/**
 * Builds what is missing or older than its sources. Returns { built, current, skipped, failed }, lists of lines for a person.
 * Never throws for a compiler that is absent or fails: that is a line in `failed` (this arch) or `skipped` (the other one).
 */
export function buildShim({ native = false, sanitize = false, calls = false, force = false, arch = process.arch } = {}) {
  const report = { built: [], current: [], skipped: [], failed: [] };
  if (process.platform !== 'linux') {
    report.skipped.push(`the shim is a Linux program; this is ${process.platform}`);
    return report;
  }
  const files = readdirSync(SOURCES);
  const units = files.filter((name) => name.endsWith('.c')).sort();
  const sources = files.filter((name) => /\.[ch]$/.test(name)).map((name) => join(SOURCES, name));
  const newest = Math.max(...[...sources, fileURLToPath(import.meta.url)].map((file) => statSync(file).mtimeMs));
  if (sanitize) {
    const flags = ['-g', '-O1', '-fno-omit-frame-pointer', '-fsanitize=address,undefined', '-fno-sanitize-recover=all'];
    compile(report, {
      units,
      newest,
      force,
      output: join(ROOT, 'build', 'sanitized', 'proofrun-shim'),
      compilers: ['cc', 'gcc', 'clang'],
      flags,
      packages: 'gcc libc6-dev',
    });
    return report;
  }
  if (calls) {
    const hook = join(ROOT, 'test', 'fixtures', 'shim-calls.c');
    compile(report, {
      units: [...units, hook],
      newest: Math.max(newest, statSync(hook).mtimeMs),
      force,
      output: join(ROOT, 'build', 'calls', 'proofrun-shim'),
      compilers: ['cc', 'gcc', 'clang'],
      flags: ['-static', '-Os', ...WRAPPED.map((name) => `-Wl,--wrap=${name}`)],
      packages: 'gcc libc6-dev',
    });
    return report;
  }
  for (const [name, target] of Object.entries(TARGETS)) {
    const own = name === arch;
    if (native && !own) {
      continue;
    }
    const compilers = own ? target.compilers : target.cross;
    const job = {
      units,
      newest,
      force,
      output: join(ROOT, 'prebuilt', `linux-${name}`, 'proofrun-shim'),
      compilers,
      flags: ['-static', '-Os', '-s'],
      packages: own ? target.packages.native : target.packages.cross,
    };
    compile(report, job, !own);
  }
  if (!(arch in TARGETS)) {
    report.failed.push(`no seccomp filter exists for ${arch}: the native executor runs on x64 and arm64`);
  }
  return report;
}

function compile(report, { units, newest, force, output, compilers, flags, packages }, optional = false) {
  if (!force && existsSync(output) && statSync(output).mtimeMs >= newest) {
    report.current.push(output);
    return;
  }
  const compiler = compilers.find((name) => spawnSync(name, ['--version'], { stdio: 'ignore' }).status === 0);
  if (compiler === undefined) {
    const line = `${output} needs a C compiler (${compilers.join(' or ')}); on Debian and Ubuntu: apt-get install -y ${packages}`;
    (optional ? report.skipped : report.failed).push(line);
    return;
  }
  mkdirSync(dirname(output), { recursive: true });
  // Renamed into place: a run that starts meanwhile sees the old program or the new one, never half of one.
  const partial = `${output}.${process.pid}`;
  const run = spawnSync(compiler, [...WARNINGS, ...flags, '-o', partial, ...units], { cwd: SOURCES, encoding: 'utf8' });
  if (run.status === 0) {
    chmodSync(partial, 0o755);
    renameSync(partial, output);
    report.built.push(output);
    return;
  }
  rmSync(partial, { force: true });
  const stderr = run.error === undefined ? run.stderr : String(run.error);
  const incomplete = /fatal error: \S+: No such file|cannot find -l(c|asan|ubsan)\b|cannot find \S*crt1/.test(stderr);
  const remedy = `the C library's headers or its static archive are missing; on Debian and Ubuntu: apt-get install -y ${packages}; on Alpine: apk add gcc musl-dev linux-headers; on Fedora: dnf install gcc glibc-static kernel-headers`;
  if (optional && incomplete) {
    report.skipped.push(`${output}: ${remedy}`);
  } else {
    report.failed.push(`${compiler} could not compile the shim:\n${stderr.trim()}${incomplete ? `\n${remedy}` : ''}`);
  }
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const flags = new Set(process.argv.slice(2));
  const report = buildShim({ native: flags.has('--native'), sanitize: flags.has('--sanitize'), calls: flags.has('--calls'), force: flags.has('--force') });
  for (const line of report.built) {
    console.log(`built ${line}`);
  }
  for (const line of report.skipped) {
    console.log(`skipped: ${line}`);
  }
  for (const line of report.failed) {
    console.error(line);
  }
  process.exit(report.failed.length > 0 ? 1 : 0);
}

import { spawnSync, type SpawnSyncReturns } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  ERRNOS,
  NO_PROGRAM_PROBES,
  SECCOMP_PROBES,
  buildFilter,
  isSeccompArch,
  type SeccompArch,
  type SeccompProbe,
} from '../../executors/shim/seccomp/index.ts';

/** Real attempts under the real kernel, each with a control arm: the same program, the same attempt, no filter. */

const arch: SeccompArch | undefined = isSeccompArch(process.arch) ? process.arch : undefined;
const hasCompiler = spawnSync('cc', ['--version']).status === 0;
const ready = arch !== undefined && hasCompiler;
const why = arch === undefined ? `no filter for ${process.arch}` : 'no C compiler';
const machine: SeccompArch = arch ?? 'x64';

/** Root tries everything as an ordinary user (nobody) too. */
const users = process.getuid?.() === 0 ? [0, 65534] : [process.getuid?.() ?? -1];

let folder = '';
let program = '';
beforeAll(() => {
  if (!ready) return;
  folder = mkdtempSync(join(tmpdir(), 'proofrun-seccomp-'));
  chmodSync(folder, 0o755);
  program = join(folder, 'attempt');
  const built = spawnSync('cc', ['-Wall', '-Wextra', '-Werror', '-O1', '-o', program, join(import.meta.dirname, '../fixtures/seccomp/attempt.c')], {
    encoding: 'utf8',
  });
  expect(built.stderr).toBe('');
});
afterAll(() => {
  if (folder !== '') rmSync(folder, { recursive: true, force: true });
});

const standard = buildFilter(machine);
/** In the lower half of user space on both machines, far from where the kernel maps things. */
const POINTER = 0x2345_6789_a010n;
const ARGV = 0x2345_8000_0048n;
const noProgram = buildFilter(machine, { noProgram: { path: POINTER, argv: ARGV } });

function run(args: readonly string[], options: { readonly filter?: Uint8Array; readonly uid?: number; readonly cwd?: string } = {}): SpawnSyncReturns<string> {
  return spawnSync(program, [options.filter === undefined ? 'bare' : 'filter', ...args], {
    input: options.filter ?? '',
    encoding: 'utf8',
    env: { ...process.env, HOME: folder, GIT_CONFIG_GLOBAL: '/dev/null', npm_config_update_notifier: 'false' },
    cwd: options.cwd ?? '/',
    ...(options.uid === undefined ? {} : { uid: options.uid, gid: options.uid }),
  });
}

function errnoName(number: number): string {
  if (number === 0) return 'ok';
  const all: Record<string, number> = { ...constants.errno, ...ERRNOS };
  return Object.entries(all).find(([, value]) => value === number)?.[0] ?? String(number);
}

/** The outcomes of raw calls, by probe id: `ok` or an errno name. */
function outcomes(probes: readonly SeccompProbe[], options: { readonly filter?: Uint8Array; readonly uid?: number }): ReadonlyMap<string, string> {
  const here = probes.filter(({ nr }) => nr[machine] !== undefined);
  const result = run(['calls', ...here.map(({ nr, args }) => [nr[machine], ...args].join(','))], options);
  expect([result.status, result.stderr]).toEqual([0, '']);
  const numbers = result.stdout.trim().split('\n').map(Number);
  expect(numbers.length).toBe(here.length);
  return new Map(here.map(({ id }, index) => [id, errnoName(numbers[index] ?? -1)]));
}

function attempt(name: string, options: { readonly filter?: Uint8Array; readonly uid?: number } = {}): string {
  const result = run(['try', name], options);
  expect([result.status, result.stderr]).toEqual([0, '']);
  const text = result.stdout.trim();
  return text.startsWith('signal') ? text : errnoName(Number(text));
}

describe.skipIf(!ready)(`the filter on this kernel${ready ? '' : ` (skipped: ${why})`}`, () => {
  describe.each(users)('uid %i', (uid) => {
    test('every probe meets an errno that it lists, and another outcome without the filter', () => {
      const bare = outcomes(SECCOMP_PROBES, { uid });
      const filtered = outcomes(SECCOMP_PROBES, { uid, filter: standard });
      for (const { id, nr, errnos } of SECCOMP_PROBES) {
        if (nr[machine] === undefined) continue;
        expect([id, errnos]).toEqual([id, [filtered.get(id)]]);
        expect([id, errnos]).not.toEqual([id, [bare.get(id)]]);
      }
    });

    test('the same for the probes of a job without programs', () => {
      const bare = outcomes(NO_PROGRAM_PROBES, { uid });
      const filtered = outcomes(NO_PROGRAM_PROBES, { uid, filter: standard });
      expect(filtered).toEqual(bare);
      for (const { id } of NO_PROGRAM_PROBES) expect([id, bare.get(id)]).not.toEqual([id, 'EPERM']);
      // `calls` needs no exec of its own, so the closed filter can be tried as it is.
      const closed = outcomes(NO_PROGRAM_PROBES, { uid, filter: noProgram });
      for (const { id, errnos } of NO_PROGRAM_PROBES) expect([id, errnos]).toEqual([id, [closed.get(id)]]);
    });

    const denied: readonly (readonly [string, string])[] = [
      ['raw', 'EPROTONOSUPPORT'],
      ['packet', 'EAFNOSUPPORT'],
      ['vsock', 'EAFNOSUPPORT'],
      ['mptcp', 'EPROTONOSUPPORT'],
      ['uevent', 'EPROTONOSUPPORT'],
      ['unshare user', 'EPERM'],
      ['clone user', 'EPERM'],
      ['io_uring', 'ENOSYS'],
      ['trace me', 'EPERM'],
      ['read memory', 'EPERM'],
      ['read implies exec', 'EPERM'],
      ['sti', 'EPERM'],
      ['sti high', 'EPERM'],
    ];
    test.each(denied)('%s is refused with %s', (name, errno) => {
      expect(attempt(name, { uid, filter: standard })).toBe(errno);
    });

    test.each(['no randomisation', 'memfd', 'fork', 'exec'])('%s works', (name) => {
      expect(attempt(name, { uid, filter: standard })).toBe('ok');
    });

    test.each(['fork', 'vfork', 'exec'].filter((name) => machine === 'x64' || name !== 'vfork'))('%s is refused where no program may be started', (name) => {
      expect(attempt(name, { uid, filter: noProgram })).toBe('EPERM');
      expect(attempt(name, { uid })).toBe('ok');
    });

    test('memfd_create is absent where new programs must not be made', () => {
      expect(attempt('memfd', { uid, filter: buildFilter(machine, { noMemfd: true }) })).toBe('ENOSYS');
    });
  });

  /** What an ordinary user, or a kernel that lacks the thing, answers without any filter: no control arm there. */
  const withoutControl: Readonly<Record<string, readonly string[]>> = {
    raw: ['EPERM'],
    packet: ['EPERM', 'EAFNOSUPPORT'],
    vsock: ['EAFNOSUPPORT'],
    mptcp: ['EPROTONOSUPPORT'],
    'unshare user': ['EPERM', 'ENOSPC'],
    'clone user': ['EPERM', 'ENOSPC'],
    io_uring: ['ENOSYS', 'EPERM'],
    sti: ['EIO'],
    'sti high': ['EIO'],
  };
  test.each([
    'raw',
    'packet',
    'vsock',
    'mptcp',
    'uevent',
    'unshare user',
    'clone user',
    'io_uring',
    'trace me',
    'read memory',
    'read implies exec',
    'sti',
    'sti high',
  ])('control arm: %s succeeds without the filter', (name) => {
    expect(['ok', ...(withoutControl[name] ?? [])]).toContain(attempt(name));
  });

  test.skipIf(machine !== 'x64')('an i386 call kills the process; without the filter it works or is not there', () => {
    expect(attempt('i386 getpid', { filter: standard })).toBe(`signal ${constants.signals.SIGSYS}`);
    expect(attempt('i386 getpid')).not.toBe(`signal ${constants.signals.SIGSYS}`);
  });

  test('the first program is executed at the secret pointer, can start threads, and can start no other program', () => {
    const script = `
      const { spawnSync } = require('node:child_process');
      const { Worker } = require('node:worker_threads');
      console.log(spawnSync('/bin/true').error?.code);
      new Worker('require("node:worker_threads").parentPort.postMessage("thread")', { eval: true }).on('message', (text) => console.log(text));`;
    const args = ['pointer', String(POINTER), String(ARGV), process.execPath, '-e', script];
    expect(run(args).stdout).toBe('undefined\nthread\n');
    const closed = run(args, { filter: noProgram });
    expect([closed.stdout, closed.stderr]).toEqual(['EPERM\nthread\n', '']);
    for (const [path, argv] of [
      [POINTER + 1n, ARGV],
      [POINTER, ARGV + 8n],
    ]) {
      const elsewhere = ['pointer', String(path), String(argv), '/bin/true'];
      expect(run(elsewhere, { filter: noProgram }).stderr).toMatch(/Operation not permitted/);
      expect(run(elsewhere).status).toBe(0);
    }
  });
});

const NODE = `
  const { Worker } = require('node:worker_threads');
  const { execFileSync } = require('node:child_process');
  const server = require('node:http').createServer((_, answer) => answer.end('served')).listen(0, '127.0.0.1', async () => {
    const text = await (await fetch('http://127.0.0.1:' + server.address().port)).text();
    server.close();
    new Worker('require("node:worker_threads").parentPort.postMessage(require("node:os").networkInterfaces().lo !== undefined)', { eval: true })
      .on('message', () => console.log(text, execFileSync('sh', ['-c', 'echo shell']).toString().trim()));
  });`;
const PYTHON = `
import multiprocessing, socket, subprocess, sqlite3, tempfile
def square(n): return n * n
if __name__ == '__main__':
    with multiprocessing.Pool(2) as pool: print(pool.map(square, range(4)))
    a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))
    print(subprocess.run(['true']).returncode, sqlite3.connect(':memory:').execute('select 1').fetchone())`;
const GIT =
  'git init -q g && cd g && echo a > a && git add . && git -c user.name=n -c user.email=e commit -qm one && git worktree add -q ../w && git -C ../w log --oneline | wc -l';
const NPM = 'mkdir -p p && cd p && echo \'{"name":"p","version":"1.0.0"}\' > package.json && npm pack --silent && npm ls --silent; echo done';
const CC =
  "echo '#include <pthread.h>\nvoid *f(void *p) { return p; } int main(void) { pthread_t t; return pthread_create(&t, 0, f, 0) || pthread_join(t, 0); }' > t.c && cc -pthread -o t t.c && ./t && echo built";

describe.skipIf(!ready)('programs run under the filter as without it', () => {
  const programs: readonly { readonly name: string; readonly needs: string; readonly argv: readonly string[]; readonly says: RegExp }[] = [
    { name: 'node: http, fetch, worker, child', needs: 'node', argv: [process.execPath, '-e', NODE], says: /^served shell$/m },
    { name: 'python: multiprocessing, socketpair, sqlite', needs: 'python3', argv: ['python3', '-c', PYTHON], says: /\[0, 1, 4, 9\][^]*0 \(1,\)/ },
    { name: 'git: init, commit, worktree', needs: 'git', argv: ['sh', '-ec', GIT], says: /^1$/m },
    { name: 'npm: pack', needs: 'npm', argv: ['sh', '-ec', NPM], says: /p-1\.0\.0\.tgz[^]*done/ },
    { name: 'C: compile and run threads', needs: 'cc', argv: ['sh', '-ec', CC], says: /built/ },
    { name: 'java: version', needs: 'java', argv: ['sh', '-ec', 'java -Xmx64m -version 2>&1'], says: /version/ },
    {
      name: 'go: build',
      needs: 'go',
      argv: ['sh', '-ec', 'mkdir -p gg && cd gg && printf "package main\\nfunc main() { println(1) }" > m.go && GOCACHE=$PWD/c go run m.go 2>&1'],
      says: /1/,
    },
  ];
  const present = (name: string): boolean => (process.env['PATH'] ?? '').split(':').some((place) => existsSync(join(place, name)));

  for (const { name, needs, argv, says } of programs) {
    test.skipIf(!present(needs))(`${name}${present(needs) ? '' : ` (skipped: no ${needs})`}`, { timeout: 60_000 }, () => {
      for (const filter of [undefined, standard]) {
        const result = run(['exec', ...argv], { cwd: mkdtempSync(join(folder, 'cwd-')), ...(filter === undefined ? {} : { filter }) });
        expect([result.status, result.stderr]).toEqual([0, '']);
        expect(result.stdout).toMatch(says);
      }
    });
  }
});

import { existsSync, mkdirSync, readFileSync, chownSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { jobLab, type JobLab } from '../support/job-lab.host.ts';
import { asUser, describeUsers, type Ended, type TestUser } from '../support/users.host.ts';

/** Real programs under --safe: they work inside, and what they made can be applied. */

const present = (...programs: readonly string[]): boolean =>
  programs.every((name) => ['/usr/bin', '/bin', '/usr/local/bin'].some((place) => existsSync(join(place, name))));

async function safely(lab: JobLab, script: string, options: { readonly cwd?: string; readonly args?: readonly string[] } = {}): Promise<Ended> {
  const ended = await lab.job(
    ['run', '--safe', '-q', ...(options.args ?? []), '--', 'sh', '-ec', script],
    options.cwd === undefined ? {} : { cwd: options.cwd },
  );
  expect([ended.stderr, ended.code], ended.stdout).toEqual([ended.stderr, 0]);
  return ended;
}

interface Staged {
  readonly path: string;
  readonly root: number;
  readonly executes?: string;
}

/** Applies everything, what the host would execute included. */
async function apply(lab: JobLab, cwd = lab.workspace): Promise<void> {
  const review = await lab.job(['status', '--review', 'last', '--json'], { cwd });
  const { bundle } = JSON.parse(review.stdout) as {
    readonly bundle: { readonly changes: { readonly roots: readonly string[]; readonly changes: readonly Staged[] } };
  };
  const { roots, changes } = bundle.changes;
  const executed = changes.filter(({ executes }) => executes !== undefined).map(({ path, root }) => join(roots[root] ?? '', path));
  const ended = await lab.job(['apply', 'last', '--all', ...executed.flatMap((path) => ['--allow-exec', path])], { cwd });
  expect([ended.stderr, ended.code]).toEqual(['', 0]);
}

function here(user: TestUser, lab: JobLab, script: string, cwd = lab.workspace): Promise<Ended> {
  return asUser(user, ['/bin/sh', '-ec', script], { cwd, env: lab.env });
}

const IDENTITY = 'git config user.name Ana && git config user.email ana@example.com';

describeUsers('programs under --safe', (user) => {
  describe.skipIf(!present('git'))('git', () => {
    test('add, commit, branch, rebase and a linked worktree inside the stage; after apply the repository is sound', async () => {
      const lab = jobLab(user);
      const made = await here(user, lab, `git init -q -b main . && ${IDENTITY} && echo one > one && git add . && git commit -qm one`);
      expect([made.stderr, made.code]).toEqual(['', 0]);
      await safely(
        lab,
        `echo two > two; git add two; git commit -qm two
         git branch topic HEAD~1; git switch -q topic; echo three > three; git add three; git commit -qm three
         git rebase -q main; git log --format=%s
         git worktree add -q linked main~1 -b side; cd linked; echo four > four; git add four; git commit -qm four; git status --short
         cd ..; git fsck --strict`,
      );
      // Not `git status`: it refreshes the index by itself, and the host's index would then be newer than the stage's.
      expect((await here(user, lab, 'git log --format=%s; git --no-optional-locks status --short')).stdout).toBe('one\n');
      await apply(lab);
      const after = await here(
        user,
        lab,
        'git fsck --strict 2>&1; git log --format=%s topic; echo; git log --format=%s side; git worktree list | wc -l; cat three linked/four; git status --short',
      );
      expect(after.stdout).toBe('three\ntwo\none\n\nfour\none\n2\nthree\nfour\n?? linked/\n');
    });

    test('a commit in a workspace that is a linked worktree reaches the common repository', async () => {
      const lab = jobLab(user);
      const main = join(lab.base, 'main');
      mkdirSync(main);
      chownSync(main, user.uid, user.gid);
      const made = await here(
        user,
        lab,
        `git init -q -b main . && ${IDENTITY} && echo one > one && git add . && git commit -qm one && git worktree add -q ../linked -b topic`,
        main,
      );
      expect([made.stderr, made.code]).toEqual(['', 0]);
      const linked = join(lab.base, 'linked');
      await safely(lab, 'echo two > two; git add two; git commit -qm two; git log --format=%s', { cwd: linked });
      expect((await here(user, lab, 'git log --format=%s topic', main)).stdout).toBe('one\n');
      await apply(lab, linked);
      expect((await here(user, lab, 'git log --format=%s topic; git fsck --strict 2>&1; git -C ../linked status --short', main)).stdout).toBe('two\none\n');
    });
  });

  test.skipIf(!present('npm', 'node'))('npm installs a local package offline, runs its scripts and the tests', async () => {
    const lab = jobLab(user);
    lab.write(
      'vendor/left/package.json',
      '{"name":"left","version":"1.0.0","scripts":{"postinstall":"node -e \\"require(\'fs\').writeFileSync(\'built\', \'yes\')\\""}}',
    );
    lab.write('vendor/left/index.js', 'module.exports = (text) => text.padStart(5);\n');
    lab.write('package.json', '{"name":"shop","version":"1.0.0","scripts":{"test":"node test.js"},"dependencies":{"left":"file:vendor/left"}}');
    lab.write('test.js', 'const { strictEqual } = require("node:assert"); strictEqual(require("left")("x"), "    x"); console.log("passed");\n');
    const { stdout } = await safely(
      lab,
      'npm install --offline --no-audit --no-fund --install-links --foreground-scripts; npm test --silent; cat node_modules/left/built; mkdir -p ~/.npm; ls ~/.npm | head -n 1',
    );
    expect(stdout).toContain('passed');
    expect(lab.tree()).not.toContain('node_modules/');
    await apply(lab);
    expect(readFileSync(join(lab.workspace, 'node_modules/left/built'), 'utf8')).toBe('yes');
    expect((await here(user, lab, 'npm test --silent')).stdout).toBe('passed\n');
  });

  test.skipIf(!present('python3') || !existsSync('/usr/lib/python3/dist-packages'))(
    'python: a virtual environment, pip with a local package, and its tests',
    async ({ skip }) => {
      const lab = jobLab(user);
      if ((await here(user, lab, '/usr/bin/python3 -c "import venv, ensurepip"')).code !== 0) skip('this python has no ensurepip');
      lab.write('left/setup.py', 'from setuptools import setup\nsetup(name="left", version="1.0", py_modules=["left"])\n');
      lab.write('left/left.py', 'def pad(text):\n    return text.rjust(5)\n');
      lab.write(
        'test_left.py',
        'import unittest, left\nclass Pad(unittest.TestCase):\n    def test_pad(self):\n        self.assertEqual(left.pad("x"), "    x")\n',
      );
      const { stdout } = await safely(
        lab,
        `/usr/bin/python3 -m venv .venv
       .venv/bin/pip install -q --no-index --no-build-isolation --disable-pip-version-check --no-use-pep517 ./left 2> pip.log || { cat pip.log; exit 1; }
       .venv/bin/python -m unittest -q 2>&1 | tail -n 1`,
      );
      expect(stdout).toBe('OK\n');
    },
  );

  test.skipIf(!present('python3'))('python: sqlite in WAL mode with several writers, and multiprocessing', async () => {
    const lab = jobLab(user);
    lab.write(
      'work.py',
      `import multiprocessing, sqlite3, threading
def insert(n):
    db = sqlite3.connect('t.db', timeout=30)
    for i in range(20):
        with db: db.execute('insert into t values (?)', (n * 20 + i,))
    return n * n
if __name__ == '__main__':
    db = sqlite3.connect('t.db')
    print(db.execute('pragma journal_mode=wal').fetchone()[0])
    db.execute('create table t (n integer)'); db.commit()
    with multiprocessing.Pool(4) as pool: print(sum(pool.map(insert, range(4))))
    queue = multiprocessing.get_context('spawn').Queue(); queue.put('spawned'); print(queue.get())
    shared = multiprocessing.Value('i', 7); print(shared.value, multiprocessing.Lock().acquire())
    print(db.execute('select count(*), pragma_integrity_check.integrity_check from t, pragma_integrity_check').fetchone())
`,
    );
    const { stdout } = await safely(lab, 'python3 work.py');
    expect(stdout).toBe("wal\n14\nspawned\n7 True\n(80, 'ok')\n");
    await apply(lab);
    expect((await here(user, lab, `python3 -c "import sqlite3; print(sqlite3.connect('t.db').execute('select count(*) from t').fetchone()[0])"`)).stdout).toBe(
      '80\n',
    );
  });

  test.skipIf(!present('make', 'cc'))('make and cc: a build with threads, run inside and after apply', async () => {
    const lab = jobLab(user);
    lab.write(
      'main.c',
      '#include <pthread.h>\n#include <stdio.h>\nstatic void *f(void *p) { return p; }\nint main(void) { pthread_t t; if (pthread_create(&t, 0, f, 0) || pthread_join(t, 0)) return 1; puts("built"); return 0; }\n',
    );
    lab.write('Makefile', 'hello: main.o\n\tcc -pthread -o $@ $^\nmain.o: main.c\n\tcc -pthread -O2 -c $<\n');
    expect((await safely(lab, 'make -s -j4 && ./hello')).stdout).toBe('built\n');
    await apply(lab);
    // Times were kept: nothing is built again.
    expect((await here(user, lab, 'make -q && ./hello')).stdout).toBe('built\n');
  });

  test.skipIf(!present('node'))('node: worker threads, a server on the own loopback, child processes, a file watcher', async () => {
    const lab = jobLab(user);
    lab.write(
      'work.js',
      `const { Worker } = require('node:worker_threads'); const { execFileSync } = require('node:child_process'); const fs = require('node:fs');
       const server = require('node:http').createServer((_, answer) => answer.end('served')).listen(0, '127.0.0.1', async () => {
         console.log(await (await fetch('http://127.0.0.1:' + server.address().port)).text()); server.close();
         new Worker('require("node:worker_threads").parentPort.postMessage(21 * 2)', { eval: true }).on('message', (n) => {
           console.log(n, execFileSync('sh', ['-c', 'echo shell']).toString().trim());
           const watcher = fs.watch('.', (_, name) => { if (name === 'seen') { console.log('seen'); watcher.close(); } });
           fs.writeFileSync('seen', '');
         });
       });`,
    );
    expect((await safely(lab, 'node work.js')).stdout).toBe('served\n42 shell\nseen\n');
  });

  test.skipIf(!present('java'))('java: a program from source, with threads', async ({ skip }) => {
    const lab = jobLab(user);
    lab.write(
      'Main.java',
      'public class Main { public static void main(String[] a) throws Exception { Thread t = new Thread(() -> System.out.println("thread")); t.start(); t.join(); System.out.println(System.getProperty("user.home").length() > 0); } }\n',
    );
    const bare = await here(user, lab, 'java -Xmx128m Main.java');
    if (bare.code !== 0) skip('this java compiles nothing');
    expect((await safely(lab, 'java -Xmx128m Main.java')).stdout).toBe('thread\ntrue\n');
  });
});

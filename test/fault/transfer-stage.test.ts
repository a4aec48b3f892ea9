import { execFileSync } from 'node:child_process';
import { lstatSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { ChangeSet } from '../../src/core/change.ts';
import { StageLab, useStageDriver } from '../support/stage-lab.host.ts';
import { TransferLab } from '../support/transfer-lab.host.ts';
import { describeUsers } from '../support/users.host.ts';

const THINGS: Readonly<Record<string, string>> = {
  absent: ':',
  file: 'echo content > $p',
  other: 'echo different > $p',
  mode: 'echo content > $p; chmod 755 $p',
  directory: 'mkdir $p; echo in > $p/inner',
  symlink: 'ln -s somewhere $p',
  fifo: 'mkfifo $p',
};
const TRANSITIONS = Object.entries(THINGS).flatMap(([before, makeBefore]) =>
  Object.entries(THINGS).map(([after, makeAfter]) => {
    const at = `${before}-${after}`;
    return { before: `p=${at}; ${makeBefore}`, after: `p=${at}; rm -rf $p; ${makeAfter}` };
  }),
);

const BEFORE = 'mkdir -p src/deep .git/hooks; echo a > src/a; echo b > src/deep/b; echo secret > .env; ln -s src link; echo ref > .git/HEAD';

/** The tests' own tar stands in for an engine, which reads every file; as an ordinary user it reads only what its owner may. */
const UNREADABLE = process.geteuid?.() === 0 ? '0' : '0400';

/** What a job may do, by what is special about it. */
const JOBS: Readonly<Record<string, { readonly before: string; readonly job: string; readonly hidden?: readonly string[] }>> = {
  nothing: { before: BEFORE, job: ':' },
  'every transition of a path': { before: TRANSITIONS.map(({ before }) => before).join('; '), job: TRANSITIONS.map(({ after }) => after).join('; ') },
  'a tree is replaced by one of the same names': { before: BEFORE, job: 'rm -rf src; mkdir -p src/deep; echo new > src/deep/b; echo c > src/c' },
  'a directory goes, with all below': { before: BEFORE, job: 'rm -rf src' },
  'files are renamed': { before: BEFORE, job: 'mv src/deep/b moved; mv .git/HEAD .git/HEAD2' },
  'a new name of an old file': { before: 'echo one > one; head -c 3000000 /dev/zero > big', job: 'ln one two; ln big bigger' },
  'one name of a file is replaced': { before: 'echo 1 > a; ln a b; ln a c', job: 'echo 2 > t; mv t b; rm c' },
  'a hidden file stays out of sight': { before: BEFORE, job: 'test ! -e .env; echo x > y', hidden: ['.env'] },
  'a job makes what was hidden': { before: BEFORE, job: 'echo mine > .env', hidden: ['.env'] },
  'a directory with something hidden goes': { before: BEFORE, job: 'rm -rf src', hidden: ['src/deep/b'] },
  'attributes alone': { before: BEFORE, job: 'chmod 700 src; chmod 600 src/deep/b; chmod 700 .' },
  'times alone are no change': { before: BEFORE, job: 'touch -d 2001-01-01 src/deep/b .; cat src/deep/b > t; cp t src/deep/b; rm t' },
  'names that are no UTF-8, long ones, odd ones': {
    before: `touch "$(printf 'x\\377y')" ' ' 'a
b' "$(head -c 255 /dev/zero | tr '\\0' n)"`,
    job: `echo 1 > "$(printf 'x\\377y')"; rm 'a
b'; echo 2 > "$(printf '\\303\\251\\001')"; d=$(head -c 250 /dev/zero | tr '\\0' d); mkdir -p $d/$d/$d; echo 3 > $d/$d/$d/f`,
  },
  'modes that keep out': { before: BEFORE, job: `mkdir -m 0700 shut; echo in > shut/f; echo n > none; chmod ${UNREADABLE} none; chmod 0500 shut` },
  'setuid and sticky bits': { before: BEFORE, job: 'echo s > s; chmod 4755 s; mkdir -m 1777 t' },
  'holes and zeros': {
    before: 'truncate -s 5000000 sparse',
    job: 'printf x | dd of=sparse bs=1 seek=4000000 conv=notrunc status=none; truncate -s 9000001 other',
  },
  'many files': {
    before: 'i=0; while [ $i -lt 300 ]; do mkdir -p d$((i%7)); echo $i > d$((i%7))/f$i; i=$((i+1)); done',
    job: 'rm d1/f1 d2/f2; echo x > d3/f3; echo y > d4/new',
  },
};

/** What a review would show: all of it but the times of conflicts. */
function essence(view: ChangeSet): unknown {
  return view.changes.map(({ conflict, ...change }) => ({ ...change, ...(conflict === undefined ? {} : { conflict: { ...conflict, stagedTimeMs: 0 } }) }));
}

describeUsers('a stage that was made of what came back', (user) => {
  useStageDriver();

  test('is the one that an overlay makes of the same job, and applies alike', async () => {
    // Each job in a directory of its own, all in one stage.
    const jobs = Object.values(JOBS);
    const inEach = (script: (job: (typeof jobs)[number]) => string): string => jobs.map((job, index) => `cd j${index}; ${script(job)}\ncd ..`).join('\n');
    // No two jobs have a file of the same content: only an overlay knows which of them moved.
    const own = (job: (typeof jobs)[number]): string => job.before.replaceAll(/echo ([ab]|ref|secret) >/g, `echo $1 ${jobs.indexOf(job)} >`);
    const before = `${jobs.map((_, index) => `mkdir j${index}`).join('; ')}\n${inEach(own)}`;
    const hidden = jobs.flatMap((job, index) => (job.hidden ?? []).map((path) => `j${index}/${path}`));
    const near = await StageLab.over(user, before, hidden);
    const away = await TransferLab.away(user, before, hidden);
    await near.job(inEach(({ job }) => job));
    const back = await away.remote(inEach(({ job }) => job));
    expect(back.leftOut).toEqual([]);
    const [here, there] = [withoutTimes(await near.view()), withoutTimes(await away.view())];
    for (const [index, name] of Object.keys(JOBS).entries()) {
      const of = (view: ChangeSet): [string, unknown] => [name, view.changes.filter(({ path, encoding }) => textPath(path, encoding).startsWith(`j${index}/`))];
      expect(of(there)).toEqual(of(here));
    }
    expect(there).toEqual(here);
    expect(away.leftBeside()).toEqual([]);
    expect(here.changes.length).toBeGreaterThan(80);

    const refused = here.changes.flatMap(({ path, unappliable, conflict }) => (unappliable === undefined && conflict === undefined ? [] : [path]));
    expect(refused.length).toBeGreaterThan(2);
    const exclude = refused.map((path) => `${path.split('/')[0] ?? ''}/**`);
    const selection = { include: ['**'], exclude: [...new Set(exclude)] };
    expect((await away.apply(selection)).error).toBeUndefined();
    expect((await near.apply(selection)).error).toBeUndefined();
    expect(away.snapshot()).toEqual(near.snapshot());
  });

  test('what replaces something hidden is a conflict', async () => {
    const lab = await TransferLab.away(user, 'mkdir .git; echo ref > .git/HEAD', ['.git']);
    await lab.remote('test ! -e .git; mkdir .git; echo evil > .git/HEAD; echo evil > .git/config');
    const { changes } = await lab.view();
    expect(changes.find(({ path }) => path === '.git/HEAD')?.conflict?.reason).toBe('the job could not see what is here');
  });

  test("a root's own mode is a change", async () => {
    const lab = await TransferLab.away(user, 'echo 1 > f');
    await lab.remote('chmod 700 .');
    expect(await lab.kinds()).toEqual(['attributes .']);
  });

  test('conflicts are those of an overlay', async () => {
    const views = await Promise.all(
      [await StageLab.over(user, BEFORE), await TransferLab.away(user, BEFORE)].map(async (lab) => {
        const job = 'echo job >> src/a; rm src/deep/b; echo new > new';
        if (lab instanceof TransferLab) await lab.remote(job);
        else await lab.job(job);
        await lab.here('echo mine > src/a; echo mine > new; rm -rf src/deep; mkdir src/deep');
        return lab.view();
      }),
    );
    expect(withoutTimes(views[1] ?? fail())).toEqual(withoutTimes(views[0] ?? fail()));
    expect(views[1]?.totals.conflicts).toBeGreaterThan(1);
  });

  test('what did not change costs nothing in the layer, and holes stay holes', async () => {
    const lab = await TransferLab.away(user, 'head -c 2000000 /dev/urandom > big; echo small > small; mkdir d; echo x > d/x');
    const back = await lab.remote('truncate -s 64M sparse; echo y > d/y');
    expect(back.entries).toBe(7);
    expect(await lab.kinds()).toEqual(['added d/y', 'added sparse']);
    expect(lstatSync(join(lab.upper, 'big'), { throwIfNoEntry: false })).toBeUndefined();
    expect(lstatSync(join(lab.upper, 'd/x'), { throwIfNoEntry: false })).toBeUndefined();
    expect(lstatSync(join(lab.upper, 'sparse')).blocks).toBeLessThan(64);
  });

  test('extended attributes that do not travel are those of the workspace: no change', async () => {
    const lab = new TransferLab(user);
    await lab.here('mkdir d; echo 1 > d/f; echo 2 > g');
    setAttribute(join(lab.workspace, 'd'), 'user.colour', 'red');
    setAttribute(join(lab.workspace, 'd/f'), 'user.colour', 'blue');
    await lab.prepare();
    await lab.remote('echo 3 > d/new; chmod 600 d/f');
    expect(await lab.kinds()).toEqual(['added d/new', 'attributes d/f']);
    expect((await lab.apply()).error).toBeUndefined();
    expect(attribute(join(lab.workspace, 'd/f'), 'user.colour')).toBe('blue');
  });

  test('sockets and what cannot be read are left out, named, and never deleted or replaced', async () => {
    const lab = new TransferLab(user);
    await lab.here(`mkdir d; echo x > d/x; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("d/sock")'; echo no > closed; chmod 0 closed`);
    await lab.prepare();
    const up = await lab.upload();
    // Root reads everything.
    expect(up.value?.leftOut.map(({ path }) => path)).toEqual(user.kind === 'root' ? ['d/sock'] : ['closed', 'd/sock']);
    const back = await lab.remote('echo mine > d/sock; echo y > d/y');
    expect(back.leftOut).toEqual([{ path: 'd/sock', why: "what is here was not sent (a socket), so it can't be replaced" }]);
    expect(await lab.kinds()).toEqual(['added d/y']);
  });

  test('a link of the workspace is sent as a link, wherever it leads', async () => {
    const lab = await TransferLab.away(user, 'mkdir ../outside; echo canary > ../outside/secret; ln -s ../outside out; ln -s /etc/shadow shadow; ln -s . loop');
    await lab.upload();
    const bytes = readFileSync(lab.sentArchive, 'latin1');
    expect(bytes).not.toContain('canary');
    expect(bytes).not.toContain('root:');
  });

  test('a stage that holds something is not replaced', async () => {
    const lab = await TransferLab.away(user, 'echo 1 > f');
    await lab.remote('echo 2 > f');
    const again = await lab.download(join(lab.base, 'down.tar'));
    expect(again.error?.code).toBe('ERR_STAGE_LAYER');
    expect(await lab.kinds()).toEqual(['modified f']);
    expect(lab.leftBeside()).toEqual([]);
  });

  test('what a download that was killed left is gone after the next one', async () => {
    const lab = await TransferLab.away(user, 'echo 1 > f');
    lab.directory('stage/root-0/upper.coming');
    writeFileSync(join(lab.base, 'stage/root-0/upper.coming/rest'), 'x');
    await lab.remote('echo 2 > f');
    expect(await lab.kinds()).toEqual(['modified f']);
    expect(lab.leftBeside()).toEqual([]);
  });
});

function withoutTimes(view: ChangeSet): ChangeSet {
  return JSON.parse(JSON.stringify({ changes: essence(view), totals: view.totals }).replaceAll(/"hereTimeMs":\d+/g, '"hereTimeMs":0')) as ChangeSet;
}

function textPath(path: string, encoding: 'utf8' | 'base64'): string {
  return encoding === 'utf8' ? path : Buffer.from(path, 'base64').toString('latin1');
}

function fail(): never {
  throw new Error('no view');
}

function setAttribute(path: string, name: string, value: string): void {
  execFileSync('python3', ['-c', 'import os, sys; os.setxattr(sys.argv[1], sys.argv[2], sys.argv[3].encode())', path, name, value]);
}

function attribute(path: string, name: string): string {
  return execFileSync('python3', ['-c', 'import os, sys; print(os.getxattr(sys.argv[1], sys.argv[2]).decode())', path, name], { encoding: 'utf8' }).trim();
}

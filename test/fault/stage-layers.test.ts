import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { ChangeSet } from '../../src/core/change.ts';
import { SHIM, StageLab, useStageDriver } from '../support/stage-lab.host.ts';
import { asUser, describeUsers } from '../support/users.host.ts';

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');

/** What stands at a path before or after, as a shell command that makes it at $p. */
const THINGS: Readonly<Record<string, string>> = {
  absent: ':',
  file: 'echo content > $p',
  other: 'echo different > $p',
  directory: 'mkdir $p; echo in > $p/inner',
  symlink: 'ln -s somewhere $p',
  fifo: 'mkfifo $p',
};

/** Every pair of them, each at a path of its own. */
const TRANSITIONS = Object.entries(THINGS).flatMap(([before, makeBefore]) =>
  Object.entries(THINGS).map(([after, makeAfter]) => {
    const at = `${before}-${after}`;
    const same = before === after;
    const files = [before, after].every((thing) => thing === 'file' || thing === 'other');
    const kind = same ? undefined : before === 'absent' ? 'added' : after === 'absent' ? 'deleted' : files ? 'modified' : 'type_changed';
    return { at, kind, before: `p=${at}; ${makeBefore}`, after: `p=${at}; rm -rf $p; ${makeAfter}` };
  }),
);

describeUsers('a stage', (user) => {
  useStageDriver();

  test('every transition of a path', async () => {
    const before = TRANSITIONS.map((transition) => transition.before).join('; ');
    const after = TRANSITIONS.map((transition) => transition.after).join('; ');
    const lab = await StageLab.over(user, before);
    await lab.job(after);
    const changes = new Map((await lab.view()).changes.map((change) => [change.from ?? change.path, change.kind === 'renamed' ? 'deleted' : change.kind]));
    for (const { at, kind } of TRANSITIONS) {
      // A file that goes and one of the same content that comes elsewhere may have been joined.
      if (kind === 'added' && !changes.has(at)) continue;
      expect([at, changes.get(at)]).toEqual([at, kind]);
    }
    expect((await lab.apply()).error).toBeUndefined();
    const direct = new StageLab(user);
    await direct.here(`${before}; ${after}`);
    expect(lab.snapshot()).toEqual(direct.snapshot());
    expect((await lab.view()).changes).toEqual([]);
  });

  test('names both sides with type, size, mode and hash', async () => {
    const lab = await StageLab.over(user, 'printf old > f; ln -s a l');
    await lab.job('printf newer > f; chmod 755 f; ln -sfn b l');
    expect(await lab.change('f')).toMatchObject({
      kind: 'modified',
      before: { type: 'file', size: 3, mode: 0o644, sha256: sha256('old') },
      after: { type: 'file', size: 5, mode: 0o755, sha256: sha256('newer') },
      addedLines: 1,
      removedLines: 1,
      binary: false,
    });
    expect(await lab.change('l')).toMatchObject({ kind: 'modified', before: { target: 'a' }, after: { target: 'b' } });
  });

  test('identical content is no change, whatever was written meanwhile', async () => {
    const lab = await StageLab.over(user, 'echo same > f; mkdir d; echo x > d/x; chmod 700 d');
    await lab.job('echo other > f; echo same > f; touch d/x; chmod 755 d; chmod 700 d; touch new; rm new');
    expect(await lab.kinds()).toEqual([]);
  });

  test('nor is the time of a file that its owner has closed; control arm: its content is', async () => {
    const lab = await StageLab.over(user, 'echo same > closed; echo old > other; chmod 000 closed; chmod 200 other');
    await lab.job('touch -d @1400000000 closed; chmod 600 other; echo new > other; chmod 200 other');
    expect(await lab.kinds()).toEqual(['modified other']);
    expect(await lab.here('stat -c "%a %n" closed other')).toBe('0 closed\n200 other\n');
    expect((await lab.apply()).error).toBeUndefined();
    expect(await lab.here('stat -c "%a %s %n" closed other; chmod 600 other; cat other')).toBe('0 5 closed\n200 4 other\nnew\n');
  });

  test('attributes alone are a change of their own', async () => {
    const lab = await StageLab.over(user, 'echo x > f; mkdir d');
    await lab.job('chmod 600 f; chmod 750 d');
    expect(await lab.kinds()).toEqual(['attributes d', 'attributes f']);
    expect((await lab.apply()).error).toBeUndefined();
    expect(await lab.here('stat -c "%a %n" d f')).toBe('750 d\n600 f\n');
  });

  test('attributes of the root itself', async () => {
    const lab = await StageLab.over(user, 'chmod 755 .; echo x > f');
    await lab.job('chmod 750 .; echo y > f');
    expect(await lab.kinds()).toEqual(['attributes .', 'modified f']);
    expect((await lab.apply({ exclude: ['.'] })).error).toBeUndefined();
    expect(await lab.here('stat -c %a .')).toBe('755\n');
    expect((await lab.apply()).error).toBeUndefined();
    expect(await lab.here('stat -c %a .; cat f')).toBe('750\ny\n');
    expect(await lab.kinds()).toEqual([]);
  });

  test('an opaque directory takes away what it does not make again', async () => {
    const lab = await StageLab.over(user, 'mkdir -p d/sub; echo a > d/a; echo b > d/b; echo c > d/sub/c');
    await lab.job('rm -r d; mkdir d; echo a > d/a; echo new > d/new');
    expect(await lab.kinds()).toEqual(['added d/new', 'deleted d/b', 'deleted d/sub', 'deleted d/sub/c']);
    expect((await lab.apply()).error).toBeUndefined();
    expect(Object.keys(lab.snapshot()).sort()).toEqual(['d', 'd/a', 'd/new']);
  });

  test('a moved file is renamed, the one of the same name first', async () => {
    const lab = await StageLab.over(user, 'mkdir a b; echo twin > a/one; echo twin > a/two; : > a/empty');
    await lab.job('mv a/two b/two; mv a/one b/uno; mv a/empty b/empty');
    // An empty file has no content to be known by; root's overlay recorded which one it was.
    const empty = user.kind === 'root' ? ['renamed a/empty -> b/empty'] : ['added b/empty', 'deleted a/empty'];
    expect(await lab.kinds()).toEqual([...empty, 'renamed a/one -> b/uno', 'renamed a/two -> b/two'].sort());
    expect((await lab.apply({ paths: ['b/uno'] })).error).toBeUndefined();
    expect(Object.keys(lab.snapshot()).sort()).toEqual(['a', 'a/empty', 'a/two', 'b', 'b/uno']);
  });

  test.runIf(user.kind === 'root')('a file that was moved and changed is a rename, by its identity; one that only looks like it is none', async () => {
    const before = 'echo one > a; echo two > b; echo two > c; ln -s t l';
    const job = 'mv a moved; echo more >> moved; rm c; mv b twin; cp twin copy; echo other > b2; mv l k';
    const lab = await StageLab.over(user, before);
    await lab.job(job);
    expect(await lab.kinds()).toEqual(['added b2', 'added k', 'deleted l', 'renamed a -> moved', 'renamed b -> twin', 'renamed c -> copy']);
    expect(await lab.change('moved')).toMatchObject({
      addedLines: 1,
      removedLines: 0,
      before: { sha256: sha256('one\n') },
      after: { sha256: sha256('one\nmore\n') },
    });
    expect((await lab.apply({ paths: ['moved'] })).error).toBeUndefined();
    expect((await lab.apply()).error).toBeUndefined();
    const direct = new StageLab(user);
    await direct.here(`${before}; ${job}`);
    expect(lab.snapshot()).toEqual(direct.snapshot());
  });

  test.runIf(user.kind === 'root')('what an attribute of the job says about where a file came from counts for nothing', async () => {
    const lab = await StageLab.over(user, 'echo one > a; echo two > b');
    const origin =
      "import os; os.system('mv a m; rm b; echo new > n'); os.setxattr('n', 'user.overlay.origin', os.getxattr('m', 'user.overlay.origin') if 'user.overlay.origin' in os.listxattr('m') else b'\\0\\xfb' + b'x' * 27)";
    await lab.job(`python3 -c "${origin}"; python3 -c "import os; os.setxattr('n', 'trusted.overlay.origin', b'x')" || true`);
    expect(await lab.kinds()).toEqual(['added n', 'deleted b', 'renamed a -> m']);
  });

  test.runIf(user.kind === 'root')('a renamed directory brings its entries along', async () => {
    const lab = await StageLab.over(user, 'mkdir -p d/sub; echo a > d/a; echo b > d/sub/b; echo c > d/sub/c');
    await lab.job('mv d e; echo changed > e/sub/b; rm e/sub/c; mv e/sub f');
    expect(await lab.kinds()).toEqual(['added e', 'added f', 'deleted d', 'deleted d/sub', 'deleted d/sub/c', 'renamed d/a -> e/a', 'renamed d/sub/b -> f/b']);
    expect((await lab.apply()).error).toBeUndefined();
    const direct = new StageLab(user);
    await direct.here('mkdir -p d/sub; echo a > d/a; echo b > d/sub/b; echo c > d/sub/c; mv d e; echo changed > e/sub/b; rm e/sub/c; mv e/sub f');
    expect(lab.snapshot()).toEqual(direct.snapshot());
  });

  test('names of any bytes', async () => {
    const long = 'n'.repeat(255);
    const make = `printf x > "$(printf 'new\\nline')"; printf y > ./-dash; printf z > "$(printf 'bad\\377name')"; printf l > ${long}; mkdir "$(printf 'd\\377')"; printf i > "$(printf 'd\\377/in')"; printf s > ' sp ace '`;
    const lab = await StageLab.over(user, ':');
    await lab.job(make);
    const { changes } = await lab.view();
    expect(
      changes
        .filter((change) => change.encoding === 'base64')
        .map((change) => Buffer.from(change.path, 'base64').toString('latin1'))
        .sort(),
    ).toEqual(['bad\xffname', 'd\xff', 'd\xff/in']);
    expect(
      changes
        .filter((change) => change.encoding === 'utf8')
        .map((change) => change.path)
        .sort(),
    ).toEqual([' sp ace ', '-dash', long, 'new\nline'].sort());
    expect((await lab.apply()).error).toBeUndefined();
    const direct = new StageLab(user);
    await direct.here(make);
    expect(lab.snapshot()).toEqual(direct.snapshot());
  });

  test('paths longer than PATH_MAX', async () => {
    const lab = await StageLab.over(user, ':');
    const walk = (last: string) =>
      `python3 -c 'import os\nfor i in range(30):\n  os.path.isdir("d" * 200) or os.mkdir("d" * 200)\n  os.chdir("d" * 200)\n${last}'`;
    await lab.job(walk('open("leaf", "w").write("deep")'));
    const { changes } = await lab.view();
    expect(changes).toHaveLength(31);
    expect(Math.max(...changes.map((change) => change.path.length))).toBe(30 * 201 + 4);
    expect((await lab.apply()).error).toBeUndefined();
    expect(await lab.here(walk('print(open("leaf").read())'))).toBe('deep\n');
    await lab.must('drop');
  });

  test('closed files and directories of the job are read and applied', async () => {
    const lab = await StageLab.over(user, ':');
    await lab.job('mkdir d; echo x > d/f; chmod 000 d/f; chmod 000 d; echo y > g; chmod 000 g');
    expect(await lab.change('d/f')).toMatchObject({ after: { sha256: sha256('x\n'), mode: 0 } });
    expect((await lab.apply()).error).toBeUndefined();
    expect(await lab.here('stat -c "%a %n" d g; chmod 700 d; stat -c "%a %n" d/f; chmod 600 d/f; cat d/f')).toBe('0 d\n0 g\n0 d/f\nx\n');
  });

  test('hard links among new files stay links, sparse files stay sparse', async () => {
    const lab = await StageLab.over(user, ':');
    await lab.job('echo x > a; ln a b; mkdir d; ln a d/c; truncate -s 64M hole; printf end >> hole');
    expect((await lab.apply()).error).toBeUndefined();
    expect(await lab.here('stat -c %h a; [ a -ef b ] && [ a -ef d/c ] && echo one; stat -c "%s" hole; [ $(stat -c %b hole) -lt 200 ] && echo sparse')).toBe(
      '3\none\n67108867\nsparse\n',
    );
  });

  test('times of files and of new directories are kept', async () => {
    const lab = await StageLab.over(user, 'echo x > f');
    await lab.job('mkdir d; echo y > d/g; echo z > f; touch -d @1000000000 d/g f d');
    expect((await lab.apply()).error).toBeUndefined();
    expect(await lab.here('stat -c "%Y" f d/g d')).toBe('1000000000\n1000000000\n1000000000\n');
  });

  test('extended attributes and access lists go along', async () => {
    const lab = await StageLab.over(user, 'echo x > f; echo y > g');
    const set = (path: string, value: string) => `python3 -c 'import os; os.setxattr("${path}", "user.colour", b"${value}")'`;
    await lab.job(`${set('f', 'red')}; echo z > h; ${set('h', 'blue')}`);
    expect(await lab.kinds()).toEqual(['added h', 'attributes f']);
    expect((await lab.apply()).error).toBeUndefined();
    expect(await lab.here(`python3 -c 'import os; print(os.getxattr("f", "user.colour"), os.getxattr("h", "user.colour"))'`)).toBe("b'red' b'blue'\n");
  });

  test('an attribute that looks like a mark of the overlay is not one', async () => {
    const lab = await StageLab.over(user, 'mkdir d; echo x > d/x');
    const name = user.kind === 'root' ? 'user.overlay.opaque' : 'user.overlay.opaque';
    await lab.job(`echo y > d/y; python3 -c 'import os; os.setxattr("d", "${name}", b"y")' || true`);
    expect(await lab.kinds()).toContain('added d/y');
    expect(await lab.kinds()).not.toContain('deleted d/x');
  });

  test('devices, sockets and setuid files are shown and refused', async () => {
    const lab = await StageLab.over(user, ':');
    await lab.job(
      `echo fine > fine; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'; cp /bin/true suid; chmod 4755 suid${user.kind === 'root' ? '; mknod null c 1 3' : ''}`,
    );
    expect((await lab.change('sock')).unappliable).toBe('socket');
    expect((await lab.change('suid')).unappliable).toBe('setuid bit');
    if (user.kind === 'root') expect((await lab.change('null')).unappliable).toBe('device node');
    const refused = await lab.apply();
    expect(refused.error).toMatchObject({ code: 'ERR_STAGE_REFUSED' });
    expect(refused.error?.message).toContain('sock');
    expect(lab.snapshot()).toEqual({});
    expect((await lab.apply({ exclude: ['sock', 'suid', 'null'] })).error).toBeUndefined();
    expect(Object.keys(lab.snapshot())).toEqual(['fine']);
  });

  test('links that lead out are marked, also through another link', async () => {
    const lab = await StageLab.over(user, 'mkdir d; echo x > d/x');
    await lab.job('ln -s /etc/passwd abs; ln -s ../.. up; ln -s x d/in; ln -s ../d/x d/back; ln -s up/etc via; ln -s loop loop');
    const { changes } = await lab.view();
    expect(
      changes
        .filter((change) => change.leavesRoot === true)
        .map((change) => change.path)
        .sort(),
    ).toEqual(['abs', 'loop', 'up', 'via']);
  });

  test('changes come in the order of a review', async () => {
    const lab = await StageLab.over(user, 'echo a > gone; echo b > kind; echo c > mod; echo d > conflict; echo h > hook');
    lab.executes = ['hook'];
    await lab.job(`rm gone; rm kind; ln -s mod kind; echo C > mod; echo D > conflict; echo H > hook; printf 'a\\0b' > bin; ln -s /etc out`);
    await lab.here('echo mine > conflict');
    expect((await lab.view()).changes.map((change) => change.path)).toEqual(['hook', 'conflict', 'out', 'gone', 'kind', 'bin', 'mod']);
  });

  test('a hidden path is neither read nor replaced', async () => {
    const lab = await StageLab.over(user, 'echo secret > .env; mkdir only; echo key > only/k.pem; mkdir both; echo key > both/k.pem; echo seen > both/seen', [
      '.env',
      'only/k.pem',
      'both/k.pem',
    ]);
    await lab.job('[ ! -e .env ]; echo mine > .env; rmdir only; rm -r both; mkdir both; echo fresh > both/fresh');
    const { changes } = await lab.view();
    const conflicts = Object.fromEntries(changes.flatMap((change) => (change.conflict === undefined ? [] : [[change.path, change.conflict.reason]])));
    expect(Object.keys(conflicts).sort()).toEqual(['.env', 'both/k.pem', 'only', 'only/k.pem']);
    expect(conflicts['.env']).toContain('could not see');
    const refused = await lab.apply();
    expect(refused.error?.code).toBe('ERR_STAGE_CONFLICT');
    expect(await lab.here('cat .env only/k.pem both/k.pem')).toBe('secret\nkey\nkey\n');
    expect((await lab.apply({ exclude: ['.env', 'only', 'both/k.pem'] })).error).toBeUndefined();
    expect(Object.keys(lab.snapshot()).sort()).toEqual(['.env', 'both', 'both/fresh', 'both/k.pem', 'only', 'only/k.pem']);
  });

  test('a literal path that was hidden and not there is simply new', async () => {
    const lab = await StageLab.over(user, ':', ['.env']);
    await lab.job('echo mine > .env');
    expect((await lab.change('.env')).conflict).toBeUndefined();
  });

  test('drop removes everything, twice, and follows no link', async () => {
    const lab = await StageLab.over(user, 'echo keep > keep');
    await lab.job(`ln -s "${lab.base}/ws" out; mkdir -p a/b; chmod 000 a/b; chmod 000 a; i=0; while [ $i -lt 600 ]; do mkdir n; cd n; i=$((i+1)); done`);
    await lab.must('drop');
    await lab.must('drop');
    expect(await lab.here('ls ..; cat keep')).toBe('ws\nkeep\n'.replace('ws\n', user.kind === 'root' ? 'merged\nws\n' : 'merged\nws\n'));
  });

  test('what lies too deep is said to be unread and is not applied', async () => {
    const lab = await StageLab.over(user, ':');
    await lab.job(`python3 -c 'import os
for i in range(3000):
  os.mkdir("d")
  os.chdir("d")'`);
    const { changes } = await lab.view();
    expect(changes.filter((change) => change.unappliable !== undefined).map((change) => change.unappliable)).toEqual([
      'what lies below is too deep and was not read',
    ]);
    expect((await lab.apply()).error?.code).toBe('ERR_STAGE_REFUSED');
    expect(lab.snapshot()).toEqual({});
    await lab.must('drop');
  });

  test('a file larger than the limit is not read', async () => {
    const lab = await StageLab.over(user, ':');
    await lab.job('truncate -s 14T endless');
    expect((await lab.change('endless')).unappliable).toBe('larger than the limit for a staged file');
  });

  test('two staged roots are applied together or not at all', async () => {
    const lab = new StageLab(user);
    await lab.here('mkdir ../git; echo 1 > a; echo 2 > ../git/b');
    await lab.prepare({ roots: [lab.workspace, join(lab.base, 'git')] });
    const [first, second] = lab.staged;
    await lab.job('echo A > a');
    // The second root's layer as an overlay would leave it.
    await lab.here(`echo B > '${second?.upper ?? ''}/b'`);
    expect(first?.root).toBe(lab.workspace);
    const refused = await lab.apply({}, { at: { 'before:1': `echo mine > '${lab.base}/git/b'` } });
    expect(refused.error?.code).toBe('ERR_STAGE_CONFLICT');
    expect(await lab.here('cat a ../git/b')).toBe('1\nmine\n');
    expect((await lab.apply({ overwrite: [join(lab.base, 'git', 'b')] })).error).toBeUndefined();
    expect(await lab.here('cat a ../git/b; ls -A ../git')).toBe('A\nB\nb\n');
  });

  test('a clock that was set back leaves no way to tell, which is a conflict', async () => {
    const lab = await StageLab.over(user, 'echo a > a');
    await lab.job('echo A > a; echo n > n');
    const preimage = lab.staged[0]?.preimage ?? '';
    // As if the clock had been an hour ahead when the walk was made: its difference to the boot clock is larger than now.
    const bytes = readFileSync(preimage);
    bytes.writeBigInt64LE(bytes.readBigInt64LE(24) + 3_600_000_000_000n, 24);
    writeFileSync(preimage, bytes);
    expect((await lab.change('a')).conflict?.reason).toContain('the clock was set back');
    expect((await lab.change('n')).conflict).toBeUndefined();
  });

  test('a walk that is too large says so and leaves nothing half valid', async () => {
    const lab = new StageLab(user);
    await lab.here('i=0; while [ $i -lt 30 ]; do : > f$i; i=$((i+1)); done');
    const outcome = await lab.request('prepare', { maxEntries: 20 });
    expect(outcome.error).toMatchObject({ code: 'ERR_STAGE_LAYER' });
    expect(outcome.error?.message).toContain('more than 20 entries');
  });

  test.runIf(user.kind === 'root')('the walk names mounts and stays out of them', async () => {
    const lab = new StageLab(user);
    await lab.here('mkdir -p a/m; echo x > a/f');
    const script = 'mount -t tmpfs tmpfs a/m; echo s > a/m/secret; "$0" walk . - --match "*"';
    const { stdout } = await asUser(user, ['unshare', '-m', 'sh', '-ec', script, SHIM], {
      cwd: lab.workspace,
    });
    expect(stdout.split('\0').sort()).toEqual(['', 'ma', 'ma/f', 'ma/m', 'xa/m']);
  });

  test.runIf(user.kind === 'user')('the walk names directories that it can not read', async () => {
    const lab = new StageLab(user);
    await lab.here('mkdir -p a/closed; echo x > a/closed/f; chmod 000 a/closed');
    expect((await lab.prepare()).unreadable).toEqual([`${lab.workspace}/a/closed`]);
    await lab.here('chmod 700 a/closed');
  });

  test('preparing touches nothing and finds what may have to be hidden', async () => {
    const lab = new StageLab(user);
    await lab.here('mkdir -p a/b; echo s > .env; echo k > a/b/x.pem; echo o > a/other; touch -d @1000000000 . a');
    const before = await lab.here('stat -c "%n %Y %a" . a');
    const prepared = await lab.prepare({ patterns: ['.env', '*.pem'] });
    expect([...prepared.matches].sort()).toEqual([`${lab.workspace}/.env`, `${lab.workspace}/a/b/x.pem`]);
    expect(await lab.here('stat -c "%n %Y %a" . a')).toBe(before);
    expect(await lab.must('matches', { patterns: ['oth*'] })).toEqual([`${lab.workspace}/a/other`]);
  });

  test('git apply takes the patch and gives the same tree', async () => {
    const make = `mkdir -p src gone; printf 'a\\nb\\nc\\nd\\ne\\nf\\ng\\nh\\ni\\n' > src/m; printf 'no newline' > src/n; echo bye > gone/g; echo exec > x; echo t > t; ln -s t l; echo 'move me along' > old; printf 'a\\0b' > bin; printf 'w\\n' > 'sp ace'; echo q > "$(printf 'q\\tuo"te')"; printf z > "$(printf 'bad\\377')"; : > empty`;
    const lab = await StageLab.over(user, make);
    await lab.job(
      `printf 'a\\nB\\nc\\nd\\ne\\nf\\ng\\nh\\ni\\nj' > src/m; printf 'no newline\\n' > src/n; rm -r gone; chmod 755 x; rm t; ln -s l t; ln -sfn old2 l; mv old new; echo and on >> new; printf 'a\\0c' > bin; echo W > 'sp ace'; echo Q > "$(printf 'q\\tuo"te')"; printf ZZ > "$(printf 'bad\\377')"; : > empty2; rm empty; mkdir fifo.d; mkfifo fifo.d/p; printf 'bin\\0' > newbin; mkdir hollow`,
    );
    const diff = await lab.must<{ bytes: string; omitted: { path: string; because: string }[] }>('diff');
    expect(diff.omitted.map((left) => left.path).sort()).toEqual(['fifo.d/p', 'hollow']);
    const direct = new StageLab(user);
    await direct.here(make);
    execFileSync('git', ['apply', '--whitespace=nowarn', '-'], {
      cwd: direct.workspace,
      input: Buffer.from(diff.bytes, 'base64'),
      env: { PATH: process.env['PATH'], GIT_CEILING_DIRECTORIES: direct.base, HOME: direct.base },
    });
    await direct.here(':');
    expect((await lab.apply({ exclude: ['fifo.d', 'hollow'] })).error).toBeUndefined();
    const content = (tree: Record<string, string>) => Object.fromEntries(Object.entries(tree).map(([path, facts]) => [path, facts.replace(/ \d+:\d+/, '')]));
    expect(content(direct.snapshot())).toEqual(content(lab.snapshot()));
  });

  test('a text diff shows no control characters of the job', async () => {
    const lab = await StageLab.over(user, ':');
    await lab.job(`printf 'red \\033[31m\\n' > "$(printf 'esc\\033[2J')"`);
    const diff = await lab.must<{ bytes: string }>('diff', { form: 'text' });
    const text = Buffer.from(diff.bytes, 'base64').toString('utf8');
    expect(text).toContain('red \\x1b[31m');
    expect(text).not.toContain('\x1b');
  });

  test('ten thousand files', async () => {
    const lab = await StageLab.over(user, ':');
    await lab.job('for d in $(seq 100); do mkdir d$d; for f in $(seq 100); do echo $d $f > d$d/f$f; done; done');
    const start = performance.now();
    const set: ChangeSet = await lab.view();
    const looked = performance.now();
    expect(set.totals.added).toBe(10_000);
    expect((await lab.apply()).error).toBeUndefined();
    const applied = performance.now();
    expect(Object.keys(lab.snapshot())).toHaveLength(10_100);
    process.stderr.write(`stage of 10,000 files (${user.kind}): look ${Math.round(looked - start)} ms, apply ${Math.round(applied - looked)} ms\n`);
  });
});

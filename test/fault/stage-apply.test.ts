import { execFileSync } from 'node:child_process';
import { chownSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { StageLab, useStageDriver, type Applied, type Outcome } from '../support/stage-lab.host.ts';
import { asUser, describeUsers } from '../support/users.host.ts';

/** Ways in which the tree can change under a stage, each of which has to be noticed. */
const CHANGES_HERE: Readonly<
  Record<string, { readonly make: string; readonly job: string; readonly here: string; readonly at: string; readonly says: RegExp }>
> = {
  'content rewritten': { make: 'echo a > f', job: 'echo staged > f', here: 'echo mine > f', at: 'f', says: /changed after the run began/ },
  'content rewritten and its time put back': {
    make: 'echo a > f; touch -d @1000000000 f',
    job: 'echo staged > f',
    here: 'echo b > f; touch -d @1000000000 f',
    at: 'f',
    says: /changed after the run began/,
  },
  'an attribute changed': { make: 'echo a > f', job: 'echo staged > f', here: 'chmod 600 f', at: 'f', says: /changed after the run began/ },
  'saved by an editor': { make: 'echo a > f', job: 'echo staged > f', here: 'echo mine > f.new; mv f.new f', at: 'f', says: /replaced since the run began/ },
  'an older file put in its place': { make: 'echo a > f; echo old > g', job: 'echo staged > f', here: 'mv g f', at: 'f', says: /replaced since the run began/ },
  removed: { make: 'echo a > f', job: 'echo staged > f', here: 'rm f', at: 'f', says: /removed since the run began/ },
  'made where the job made one': { make: ':', job: 'echo staged > f', here: 'echo mine > f', at: 'f', says: /created since the run began/ },
  'deleted by the job, changed here': { make: 'echo a > f', job: 'rm f', here: 'echo mine > f', at: 'f', says: /changed after the run began/ },
  'another type here': { make: 'echo a > f', job: 'echo staged > f', here: 'rm f; mkdir f', at: 'f', says: /replaced since the run began/ },
  'an older directory swapped in above': {
    make: 'mkdir d other; echo a > d/f; echo b > other/f',
    job: 'echo staged > d/f',
    here: 'mv d away; mv other d',
    at: 'd/f',
    says: /the directory d was replaced/,
  },
  'a directory above became a link': {
    make: 'mkdir d; echo a > d/f',
    job: 'echo staged > d/f',
    here: 'mv d away; ln -s away d',
    at: 'd',
    says: /replaced since the run began/,
  },
  'a file added to a directory that the job removed': {
    make: 'mkdir d; echo a > d/f',
    job: 'rm -r d',
    here: 'echo mine > d/new',
    at: 'd/new',
    says: /created since/,
  },
  'a mode changed on a directory whose mode the job changed': {
    make: 'mkdir d',
    job: 'chmod 700 d',
    here: 'chmod 750 d',
    at: 'd',
    says: /attributes were changed/,
  },
};

const MAKE =
  'mkdir -p keep gone/sub d; echo k > keep/k; echo g > gone/g; echo s > gone/sub/s; echo old > f; echo t > t; ln -s f l; echo m > m; echo x > d/x; chmod 755 d';
const JOB = 'rm -r gone; echo new > f; rm t; mkdir t; echo in > t/in; ln -sfn t l; mv m keep/moved; chmod 700 d; mkdir -p n/n; echo n > n/n/n; rm keep/k';

describeUsers('applying a stage', (user) => {
  useStageDriver();

  describe('is refused, and touches nothing, when here', () => {
    for (const [name, { make, job, here, at, says }] of Object.entries(CHANGES_HERE)) {
      test(name, async () => {
        const lab = await StageLab.over(user, `${make}; echo other > other.txt`);
        await lab.job(`${job}; echo also > other.txt`);
        await lab.here(here);
        const before = lab.snapshot('exact');
        expect((await lab.change(at)).conflict?.reason).toMatch(says);
        const refused = await lab.apply();
        expect(refused.error?.code).toBe('ERR_STAGE_CONFLICT');
        expect(refused.error?.message).toContain(`conflict: ${at}   staged `);
        expect(refused.error?.message).toContain('nothing was applied');
        expect(refused.error?.hint).toContain(`--overwrite ${at}`);
        expect(lab.snapshot('exact')).toEqual(before);
        expect(lab.litter()).toEqual([]);
        // The rest of the stage can still be had.
        expect((await lab.apply({ paths: ['other.txt'] })).error).toBeUndefined();
        expect(await lab.here('cat other.txt')).toBe('also\n');
      });
    }
  });

  test('names all conflicts at once, with both hashes', async () => {
    const lab = await StageLab.over(user, 'echo a > a; echo b > b; echo c > c');
    await lab.job('echo A > a; echo B > b; rm c');
    await lab.here('echo 1 > a; echo 2 > b; echo 3 > c');
    const refused = await lab.apply();
    const lines = refused.error?.message.split('\n') ?? [];
    expect(lines).toHaveLength(4);
    expect(lines[0]).toMatch(/^conflict: a {3}staged 06f9\.\. \d\d:\d\d:\d\d {3}here 4355\.\. \d\d:\d\d:\d\d \(changed after the run began\)$/);
    expect(lines[2]).toMatch(/^conflict: c {3}staged deleted {3}here 1121\.\. /);
    expect(refused.error?.data['paths']).toHaveLength(3);
  });

  test('the same result made here meanwhile is no conflict', async () => {
    const lab = await StageLab.over(user, 'echo a > a; echo b > b');
    await lab.job('echo same > a; rm b; echo new > c');
    await lab.here('echo same > a; rm b; echo new > c');
    expect(await lab.kinds()).toEqual([]);
  });

  test('--overwrite replaces exactly what it names', async () => {
    const lab = await StageLab.over(user, 'echo a > a; echo b > b');
    await lab.job('echo A > a; echo B > b');
    await lab.here('echo 1 > a; echo 2 > b');
    expect((await lab.apply({ overwrite: ['a'] })).error?.message).toMatch(/^conflict: b /);
    expect((await lab.apply({ overwrite: ['a'], paths: ['a'] })).error).toBeUndefined();
    expect(await lab.here('cat a b')).toBe('A\n2\n');
  });

  test('what the host would execute needs its own word for each path', async () => {
    const lab = await StageLab.over(user, 'mkdir hooks');
    lab.executes = ['hooks/a', 'hooks/b'];
    await lab.job('echo a > hooks/a; echo b > hooks/b; echo c > c');
    expect((await lab.apply({ allowExec: ['hooks/a'] })).error).toMatchObject({ code: 'ERR_STAGE_EXECUTES', hint: '--allow-exec hooks/b' });
    expect(Object.keys(lab.snapshot())).toEqual(['hooks']);
    expect((await lab.apply({ allowExec: ['hooks/a', 'hooks/b'] })).error).toBeUndefined();
    expect(Object.keys(lab.snapshot()).sort()).toEqual(['c', 'hooks', 'hooks/a', 'hooks/b']);
  });

  test('a partial apply leaves the rest, which stays right', async () => {
    const lab = await StageLab.over(user, 'mkdir d; echo a > d/a; echo z > z');
    await lab.job('echo A > d/a; mkdir -p new/deep; echo 1 > new/one; echo 2 > new/deep/two; rm z');
    const first = await lab.apply({ paths: ['new/one'] });
    expect(first.value?.complete).toBe(false);
    expect(first.value?.notes).toEqual([{ path: 'new', because: 'new/one lies in it' }]);
    expect(await lab.kinds()).toEqual(['added new/deep', 'added new/deep/two', 'deleted z', 'modified d/a']);
    expect((await lab.view()).totals.conflicts).toBe(0);
    // What was applied is the person's from now on.
    await lab.here('echo edited > new/one; rm new/one');
    expect(await lab.kinds()).not.toContain('added new/one');
    const second = await lab.apply();
    expect(second.error).toBeUndefined();
    expect(second.value?.complete).toBe(true);
    expect(Object.keys(lab.snapshot()).sort()).toEqual(['d', 'd/a', 'new', 'new/deep', 'new/deep/two']);
    expect((await lab.apply()).value).toMatchObject({ applied: [], complete: true });
  });

  test('a directory made by an earlier apply and replaced since is a conflict', async () => {
    const lab = await StageLab.over(user, ':');
    await lab.job('mkdir n; echo 1 > n/a; echo 2 > n/b');
    await lab.apply({ paths: ['n/a'] });
    await lab.here('mv n away; mkdir n');
    expect((await lab.change('n/b')).conflict?.reason).toMatch(/the directory n was replaced/);
  });

  test('paths are relative to where the person is; no match suggests near ones', async () => {
    const lab = await StageLab.over(user, 'mkdir -p src lib');
    await lab.job('echo c > src/cart.ts; echo t > lib/tax.ts');
    const missing = await lab.apply({ cwd: join(lab.workspace, 'src'), paths: ['crat.ts'] });
    expect(missing.error).toMatchObject({ code: 'ERR_PATH_NOT_FOUND', hint: 'did you mean src/cart.ts?' });
    expect((await lab.apply({ cwd: join(lab.workspace, 'src'), paths: ['cart.ts', '../lib'] })).error).toBeUndefined();
    expect(Object.keys(lab.snapshot()).sort()).toEqual(['lib', 'lib/tax.ts', 'src', 'src/cart.ts']);
  });

  test('everything at once, and nothing is left over', async () => {
    const lab = await StageLab.over(user, MAKE);
    await lab.job(JOB);
    const outcome = await lab.apply();
    expect(outcome.error).toBeUndefined();
    const direct = new StageLab(user);
    await direct.here(`${MAKE}; ${JOB}`);
    expect(lab.snapshot()).toEqual(direct.snapshot());
    expect(lab.litter()).toEqual([]);
    expect(outcome.recorded).toHaveLength(1);
  });

  test.runIf(user.kind === 'root')('what root applies belongs to the owner that it has in the stage', async () => {
    const lab = await StageLab.over(user, 'echo a > a; chown 1234:1234 . a');
    await lab.job('echo b > b; chown 1234:1234 b; echo A > a; ln -s a l; chown -h 1234:1234 l');
    expect((await lab.apply()).error).toBeUndefined();
    expect(await lab.here('stat -c "%n %u:%g" a b l')).toBe('a 1234:1234\nb 1234:1234\nl 1234:1234\n');
  });

  test('the staging directory lies in the workspace when the state is on another filesystem, and goes', async () => {
    const state = mkdtempSync('/dev/shm/proofrun-state-');
    try {
      chownSync(state, user.uid, user.gid);
      const lab = await StageLab.over(user, MAKE);
      await lab.job(JOB);
      const seen = await lab.apply({}, { stateDirectory: state, at: { synced: `ls -a '${lab.workspace}' > '${lab.base}/seen'` } });
      expect(seen.error).toBeUndefined();
      expect(readFileSync(join(lab.base, 'seen'), 'utf8')).toMatch(/^\.proofrun-apply-[0-9A-Z]{26}$/m);
      expect(lab.litter(state)).toEqual([]);
      const again = await StageLab.over(user, MAKE);
      await again.job(JOB);
      const before = again.snapshot('exact');
      expect(await again.apply({}, { stateDirectory: state, at: { 'swapped:3': 'die' } })).toMatchObject({ died: true });
      expect(again.litter(state).length).toBeGreaterThan(0);
      expect(await again.must<unknown[]>('recover', { stateDirectory: state })).toMatchObject([{ outcome: 'rolled_back' }]);
      expect(again.snapshot('exact')).toEqual(before);
      expect(again.litter(state)).toEqual([]);
    } finally {
      rmSync(state, { recursive: true, force: true });
    }
  });

  test('a second apply to the same workspace is told to wait', async () => {
    const lab = await StageLab.over(user, 'echo a > a');
    await lab.job('echo A > a');
    const second = await lab.commandFor('apply', 'second.json');
    expect((await lab.apply({}, { at: { synced: second } })).error).toBeUndefined();
    const outcome = JSON.parse(readFileSync(join(lab.base, 'second.json'), 'utf8')) as Outcome<Applied>;
    expect(outcome.error).toMatchObject({ code: 'ERR_APPLY_LOCKED' });
    expect(outcome.error?.message).toMatch(/process \d+/);
  });

  describe('while another process', () => {
    const canary = (lab: StageLab) => join(lab.base, 'canary');

    for (const step of ['opened', 'staged', 'checked', 'before:0', 'before:1', 'swapped:0', 'swapped:1']) {
      test(`turns a parent into a link at ${step}, nothing outside is touched`, async () => {
        const lab = await StageLab.over(user, 'mkdir -p a/b c; echo 1 > a/b/f; echo 2 > a/b/g; echo 3 > c/h');
        execFileSync('sh', [
          '-ec',
          `mkdir -p "$1/b"; echo canary > "$1/b/f"; echo canary > "$1/b/g"; echo canary > "$1/h"; chown -R ${user.uid}:${user.gid} "$1"`,
          'sh',
          canary(lab),
        ]);
        await lab.job('echo one > a/b/f; rm a/b/g; echo three > c/h; echo four > a/b/new');
        const outside = lab.snapshot('exact', canary(lab));
        const attack = `cd '${lab.workspace}'; mv a a.away; ln -s '${canary(lab)}' a; mv c c.away; ln -s '${canary(lab)}' c`;
        const outcome = await lab.apply({}, { at: { [step]: attack } });
        expect(lab.snapshot('exact', canary(lab))).toEqual(outside);
        expect(outcome.error?.code).toBe('ERR_STAGE_CONFLICT');
        // What had been swapped already went back to the directories that it came from.
        expect(await lab.here('cat a.away/b/f a.away/b/g c.away/h; ls a.away/b')).toBe('1\n2\n3\nf\ng\n');
        expect(lab.litter()).toEqual([]);
      });
    }

    test('replaces a file just before its swap, that file is kept and all is put back', async () => {
      const lab = await StageLab.over(user, 'echo a > a; echo b > b; echo c > c');
      await lab.job('echo A > a; echo B > b; echo C > c');
      const outcome = await lab.apply({}, { at: { 'before:1': `echo mine > '${lab.workspace}/b.new'; mv '${lab.workspace}/b.new' '${lab.workspace}/b'` } });
      expect(outcome.error).toMatchObject({ code: 'ERR_STAGE_CONFLICT' });
      expect(await lab.here('cat a b c')).toBe('a\nmine\nc\n');
      expect(lab.litter()).toEqual([]);
    });

    test('writes through an open descriptor at the moment of the swap, the write is kept', async () => {
      const lab = await StageLab.over(user, 'echo a > a; echo b > b');
      await lab.job('echo A > a; echo B > b');
      // The old file lies in the staging directory at this step: what holds it open writes to it there.
      const write = `f=$(find '${lab.base}/state/apply' -name n1); echo mine > "$f"`;
      const outcome = await lab.apply({}, { at: { 'swapped:1': write } });
      expect(outcome.error).toMatchObject({ code: 'ERR_STAGE_CONFLICT' });
      expect(await lab.here('cat a b')).toBe('a\nmine\n');
    });

    test('changes the layer after it was read, nothing unread is applied', async () => {
      const lab = await StageLab.over(user, 'echo a > a');
      await lab.job('echo AAAA > a');
      const outcome = await lab.apply({}, { at: { opened: `echo EVIL > '${lab.upper}/a'` } });
      expect(outcome.error).toMatchObject({ code: 'ERR_STAGE_CONFLICT' });
      expect(outcome.error?.message).toContain('no longer what was reviewed');
      expect(await lab.here('cat a')).toBe('a\n');
    });

    test('makes a file where one is about to come, that file is kept', async () => {
      const lab = await StageLab.over(user, 'echo a > a');
      await lab.job('echo A > a; echo n > n');
      const outcome = await lab.apply({}, { at: { 'before:1': `echo mine > '${lab.workspace}/n'` } });
      expect(outcome.error).toMatchObject({ code: 'ERR_STAGE_CONFLICT' });
      expect(await lab.here('cat a n')).toBe('a\nmine\n');
    });

    test('works on a new file before all is put back, its work is kept', async () => {
      const lab = await StageLab.over(user, 'echo z > z');
      await lab.job('mkdir d; echo new > d/new; echo Z > z');
      const meddle = `cd '${lab.workspace}'; echo mine > d/mine; echo edited > z.new; mv z.new z`;
      const outcome = await lab.apply({}, { at: { 'before:2': meddle } });
      expect(outcome.error).toMatchObject({ code: 'ERR_STAGE_CONFLICT' });
      expect(await lab.here('cat z; ls d')).toBe('edited\nmine\n');
    });

    test('replaces what was swapped in, the old file is kept and named', async () => {
      const lab = await StageLab.over(user, 'echo a > a; echo b > b');
      await lab.job('echo A > a; echo B > b');
      const outcome = await lab.apply({}, { at: { 'before:1': `cd '${lab.workspace}'; for f in a b; do echo mine > $f.new; mv $f.new $f; done` } });
      expect(outcome.error).toMatchObject({ code: 'ERR_APPLY_INTERRUPTED' });
      const kept = (outcome.error?.data['kept'] as string[] | undefined)?.[0] ?? '';
      expect(existsSync(join(kept, 'n0'))).toBe(true);
      expect(readFileSync(join(kept, 'n0'), 'utf8')).toBe('a\n');
      expect(await lab.here('cat a b')).toBe('mine\nmine\n');
      // Nothing is forgotten until a person has taken it.
      expect((await lab.apply()).error).toMatchObject({ code: 'ERR_APPLY_INTERRUPTED' });
      expect(await lab.must<unknown[]>('recover')).toMatchObject([{ outcome: 'unsettled' }]);
      rmSync(join(kept, 'n0'));
      expect(await lab.must<unknown[]>('recover')).toMatchObject([{ outcome: 'rolled_back' }]);
      expect(lab.litter()).toEqual([]);
    });
  });

  describe('killed', () => {
    // 18 operations: see MAKE and JOB. Each step is announced; nothing waits for a delay.
    const steps = [
      'opened',
      'staging',
      'staged',
      'manifest',
      'synced',
      'checked',
      'before:0',
      'swapped:0',
      'before:5',
      'swapped:5',
      'swapped:9',
      'before:12',
      'swapped:13',
      'swapped',
      'finished',
      'final-synced',
      'committed',
    ];
    const outcomes = new Set<string>();

    for (const step of steps) {
      test(`with the whole command at ${step}`, async () => {
        const lab = await StageLab.over(user, MAKE);
        await lab.job(JOB);
        const before = lab.snapshot('exact');
        expect(await lab.apply({}, { at: { [step]: 'die' } })).toMatchObject({ died: true });
        const recovered = await lab.request<readonly { outcome: string; applied: unknown[] }[]>('recover');
        const [result] = recovered.value ?? [];
        outcomes.add(result?.outcome ?? 'none');
        const direct = new StageLab(user);
        await direct.here(`${MAKE}; ${JOB}`);
        if (result?.outcome === 'finished') {
          expect(lab.snapshot()).toEqual(direct.snapshot());
          expect(recovered.recorded).toHaveLength(1);
          expect(await lab.kinds()).toEqual([]);
        } else {
          expect(result?.outcome).toBe('rolled_back');
          expect(lab.snapshot('exact')).toEqual(before);
          expect(recovered.recorded.flat().filter((path) => path.state !== 'restored')).toEqual([]);
          expect((await lab.apply()).error).toBeUndefined();
          expect(lab.snapshot()).toEqual(direct.snapshot());
        }
        expect(lab.litter()).toEqual([]);
        expect(await lab.must('recover')).toEqual([]);
      });
    }

    test('both outcomes occurred', () => {
      expect([...outcomes].sort()).toEqual(['finished', 'rolled_back']);
    });

    test('the shim alone: the command says which', async () => {
      const lab = await StageLab.over(user, MAKE);
      await lab.job(JOB);
      const before = lab.snapshot('exact');
      const rolled = await lab.apply({}, { at: { 'swapped:4': 'kill' } });
      expect(rolled.error).toMatchObject({ code: 'ERR_APPLY_INTERRUPTED', data: { outcome: 'rolled_back' } });
      expect(lab.snapshot('exact')).toEqual(before);
      const finished = await lab.apply({}, { at: { swapped: 'kill' } });
      expect(finished.error).toMatchObject({ code: 'ERR_APPLY_INTERRUPTED', data: { outcome: 'finished' } });
      expect(finished.recorded).toHaveLength(1);
      expect(await lab.kinds()).toEqual([]);
      expect(lab.litter()).toEqual([]);
    });

    test('the recovery itself, twice', async () => {
      const lab = await StageLab.over(user, MAKE);
      await lab.job(JOB);
      const before = lab.snapshot('exact');
      await lab.apply({}, { at: { 'swapped:9': 'die' } });
      expect(await lab.request('recover', { at: { 'put-back:9': 'die' } })).toMatchObject({ died: true });
      expect(await lab.request('recover', { at: { 'put-back:3': 'die' } })).toMatchObject({ died: true });
      expect(await lab.must<unknown[]>('recover')).toMatchObject([{ outcome: 'rolled_back' }]);
      expect(lab.snapshot('exact')).toEqual(before);
      expect(lab.litter()).toEqual([]);
    });

    test('with the workspace away meanwhile: nothing is lost, and it is settled when it is back', async () => {
      const lab = await StageLab.over(user, MAKE);
      await lab.job(JOB);
      const before = lab.snapshot('exact');
      await lab.apply({}, { at: { 'swapped:9': 'die' } });
      await lab.here('cd ..; mv ws away');
      expect(await lab.must<unknown[]>('recover')).toMatchObject([{ outcome: 'unsettled' }]);
      await asUser(user, ['mv', join(lab.base, 'away'), lab.workspace]);
      expect(await lab.must<unknown[]>('recover')).toMatchObject([{ outcome: 'rolled_back' }]);
      expect(lab.snapshot('exact')).toEqual(before);
    });

    test('the next apply settles it first', async () => {
      const lab = await StageLab.over(user, MAKE);
      await lab.job(JOB);
      await lab.apply({}, { at: { 'swapped:9': 'die' } });
      const outcome = await lab.apply();
      expect(outcome.error).toBeUndefined();
      expect(outcome.value?.recovered).toMatchObject([{ outcome: 'rolled_back' }]);
      expect(lab.litter()).toEqual([]);
    });
  });
});

import { chownSync, existsSync, linkSync, lstatSync, mkdirSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { containing } from '../support/matching.ts';
import { jobLab } from '../support/job-lab.host.ts';
import { NativeLab } from '../support/native-lab.host.ts';
import { describeUsers } from '../support/users.host.ts';

const SH = (script: string): readonly [string, ...string[]] => ['/bin/sh', '-c', script];

describeUsers('what is hidden', (user) => {
  const lab = new NativeLab(user);
  afterAll(() => lab.dispose());

  test('reads as absent: by name, by listing, by a link to it, and when it is made anew', async () => {
    const secret = lab.write('.env', 'TOKEN=canary\n');
    symlinkSync('.env', join(lab.workspace, 'to-env'));
    const report = await lab.run(
      SH('cat .env; ls -A; cat to-env; cat ./x/../.env; [ -e .env ] || echo absent; echo mine > .env; cat .env to-env; rm .env; cat .env; echo end'),
      { hidden: [secret] },
    );
    expect(report.stdout).not.toContain('canary');
    expect(report.stdout.split('\n')).toEqual(['to-env', 'absent', 'mine', 'mine', 'end', '']);
    expect(readFileSync(secret, 'utf8')).toBe('TOKEN=canary\n');
    // Control arm: without the whiteouts the same command reads it.
    const open = await lab.run(SH('cat .env'), { hidden: [secret], mode: 'default', alterations: ['hidden_paths: the mask layer has no whiteouts'] });
    expect(open.stdout).toBe('TOKEN=canary\n');
  });

  test('a symlink to a hidden or outside file leads nowhere, whatever it is called', async () => {
    const outside = join(lab.base, 'outside');
    writeFileSync(outside, 'canary outside\n');
    chownSync(outside, user.uid, user.gid);
    for (const [name, target] of [
      ['direct', outside],
      ['relative', '../outside'],
      ['root', '/'],
      ['proc', '/proc/1/root'],
      ['self', '/proc/self/root/../../..'],
      ['loop', 'loop'],
    ] as const) {
      symlinkSync(target, join(lab.workspace, name));
    }
    const { stdout } = await lab.run(
      SH(`cat direct relative root/${outside} proc/${outside} self/${outside} loop; ls root; echo x > direct; echo x > relative; echo end`),
    );
    expect(stdout).not.toContain('canary');
    expect(readFileSync(outside, 'utf8')).toBe('canary outside\n');
  });

  test('a symlink where the probe of the stage would land makes nothing outside, and is noticed', async () => {
    const target = join(lab.base, 'planted');
    const report = await lab.run(SH('true'), {
      mode: 'default',
      alterations: ['staged_workspace: a symlink lies where the probe would land'],
      parameters: { target },
    });
    expect(existsSync(target)).toBe(false);
    expect(report.levels?.file_write).toBe('unenforced');
  });

  test('a symlink in the workspace does not choose what a direct share is', async () => {
    const victim = lab.directory(join(lab.base, 'victim'));
    symlinkSync('../victim', join(lab.workspace, 'dist'));
    lab.directory(join(victim, 'below'));
    for (const mode of ['safe', 'default'] as const) {
      for (const share of ['dist', 'dist/below']) {
        const { error, stdout } = await lab.run(SH('echo x > dist/x; echo x > dist/below/x; echo x > ../victim/x; echo ran'), {
          mode,
          direct: [join(lab.workspace, share)],
        });
        expect([error?.code, stdout]).toEqual(['ERR_LAUNCH', '']);
        expect([error?.message, error?.hint]).toEqual([containing(share), containing(victim)]);
      }
    }
    expect(readdirSync(victim, { recursive: true })).toEqual(['below']);
    // Control arm: the directory itself can be shared.
    expect((await lab.run(SH(`echo x > ${victim}/x; cat ${victim}/x`), { direct: [victim] })).stdout).toBe('x\n');
    expect(readdirSync(victim).sort()).toEqual(['below', 'x']);
  });

  test('limit: another name of a hidden file is not covered, and the scope says so', async () => {
    const secret = lab.write('hard/.env', 'TOKEN=canary\n');
    linkSync(secret, join(lab.workspace, 'hard', 'other-name'));
    const report = await lab.run(SH('cat hard/.env; cat hard/other-name'), { hidden: [secret] });
    expect(report.stdout).toBe('TOKEN=canary\n');
    expect(report.scopes?.file_read).toContain('other hard links of a hidden file are not covered');
  });

  test('removing a directory that holds only hidden files is a conflict, and nothing is lost', async () => {
    const at = jobLab(user);
    for (const path of ['secrets/.env', 'secrets/deep/.env', 'mixed/.env', 'mixed/plain']) at.write(path, 'canary\n');
    const before = at.tree();
    const ran = await at.job(['run', '--safe', '-q', '--', 'sh', '-c', 'rm -r secrets mixed && mkdir secrets && echo new > secrets/new']);
    expect([ran.code, ran.stderr]).toEqual([0, '']);
    const applied = await at.job(['apply', 'last', '--all']);
    expect(applied.code).toBe(205);
    expect(applied.stderr).toContain('secrets');
    expect(at.tree()).toEqual(before);
    expect(readFileSync(join(at.workspace, 'secrets/deep/.env'), 'utf8')).toBe('canary\n');
    // Control arm: a directory without hidden files can be removed.
    const control = jobLab(user);
    control.write('plain/file', 'x\n');
    await control.job(['run', '--safe', '-q', '--', 'rm', '-r', 'plain']);
    expect((await control.job(['apply', 'last', '--all'])).code).toBe(0);
    expect(control.tree()).toEqual([]);
  });

  test('renaming such a directory moves nothing that is hidden', async () => {
    const at = jobLab(user);
    at.write('secrets/.env', 'canary\n');
    const ran = await at.job(['run', '--safe', '-q', '--', 'sh', '-c', 'mv secrets public; cat public/.env; ls -A public']);
    expect(ran.stdout).not.toContain('canary');
    expect((await at.job(['apply', 'last', '--all'])).code).toBe(205);
    expect(readFileSync(join(at.workspace, 'secrets/.env'), 'utf8')).toBe('canary\n');
    expect(existsSync(join(at.workspace, 'public'))).toBe(false);
  });

  test('the state directory can not be read, written or made to lead anywhere', async () => {
    const at = jobLab(user);
    const script = `ls -R ${at.state}; mkdir -p ${at.state}/runs/evil && echo x > ${at.state}/runs/evil/run-bundle.json; ls ${at.base}; ln -s /etc ${at.state}/store; echo end`;
    for (const mode of [['--safe'], []]) {
      const before = readdirSync(at.base);
      const ran = await at.job(['run', ...mode, '-q', '--', 'sh', '-c', script]);
      expect(ran.stdout).toContain('end');
      expect(ran.stdout).not.toContain('run-bundle.json');
      expect(ran.stdout).not.toContain('.db');
      expect(readdirSync(at.base)).toEqual(before);
      expect(existsSync(join(at.state, 'runs/evil'))).toBe(false);
    }
    // A state directory in the real home, which default mode shows.
    const home = join(at.home, '.local/state');
    const own = { XDG_STATE_HOME: home };
    mkdirSync(home, { recursive: true });
    for (const path of [join(at.home, '.local'), home]) chownSync(path, user.uid, user.gid);
    const seen = await at.job(['run', '-q', '--', 'sh', '-c', `ls -A ${home}; ls -A ${home}/proofrun; echo x > ${home}/proofrun/planted; echo end`], {
      env: own,
    });
    expect(seen.stdout).toBe('end\n');
    expect(existsSync(join(home, 'proofrun/planted'))).toBe(false);
    expect(lstatSync(join(home, 'proofrun')).mode & 0o777).toBe(0o700);
    const listed = await at.job(['ls', '--all', '--json'], { env: own });
    expect((JSON.parse(listed.stdout) as readonly unknown[]).length).toBe(1);
  });
});

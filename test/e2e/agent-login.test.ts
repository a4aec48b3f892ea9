import { chownSync, existsSync, linkSync, lstatSync, mkdirSync, readFileSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { agentLab, AUTH, modeOf } from '../support/agent-lab.host.ts';
import { describeUsers } from '../support/users.host.ts';

const ORIGINAL = JSON.stringify(AUTH, null, 2);

describeUsers('an agent that stays logged in', (user) => {
  test('a refreshed login is written back, 0600, and the next job has it; the review lists it', async () => {
    const lab = agentLab(user);
    const first = await lab.job(lab.agent('refresh'));
    expect([first.code, first.stdout], first.stderr).toEqual([0, 'first\n']);
    expect(lab.token()).toBe('after first');
    expect(modeOf(lab.login)).toBe(0o600);
    expect(lstatSync(lab.login).uid).toBe(user.uid);
    expect(first.stderr).toMatch(/login +~\/\.codex\/auth\.json: refreshed by the job and written back/);
    expect(await lab.logins()).toMatchObject([{ path: lab.login, outcome: 'written_back', kept: null }]);
    const second = await lab.job(lab.agent('show'));
    expect(second.stdout).toBe('after first\n');
    expect(await lab.logins()).toMatchObject([{ outcome: 'unchanged' }]);
    const review = await lab.job(['status', '--review']);
    expect(review.stdout).toMatch(/VISIBLE CREDENTIALS +~\/\.codex\/auth\.json/);
    expect((await lab.job(['verify', 'last'])).code).toBe(0);
    expect(lab.tree(join(lab.state, 'logins'))).toEqual(['lock']);
    expect(lab.tree(join(lab.home, '.codex'))).toEqual(['auth.json']);
  });

  test('sessions are kept for each workspace and resumed; the review names our directory; another workspace has its own', async () => {
    const lab = agentLab(user);
    expect((await lab.job(lab.agent('work', 'resume'))).stdout).toBe('we spoke of tax.ts\n');
    expect((await lab.job(lab.agent('resume'))).stdout).toBe('we spoke of tax.ts\n');
    const review = await lab.job(['status', '--review']);
    expect(review.stdout).toMatch(/DIRECT +~\/\.codex\/sessions/);
    expect(review.stdout.replace(/\s+/g, ' ')).toMatch(/kept for this workspace in \S+proofrun\/agents\/codex\//);
    expect(existsSync(join(lab.home, '.codex/sessions'))).toBe(false);
    const other = join(lab.base, 'other');
    mkdirSync(other);
    chownSync(other, user.uid, user.gid);
    expect((await lab.job(lab.agent('resume'), { cwd: other })).stdout).toBe('no session\n');
  });

  test('configuration enters as a copy; settings and hooks that the job plants come back nowhere, while its login does', async () => {
    const lab = agentLab(user);
    lab.writeHome('.codex/config.toml', 'model = "o"\n');
    lab.writeHome('.codex/prompts/deep/one.md', 'a prompt\n');
    expect((await lab.job(lab.agent('config'))).stdout).toBe('model = "o"\n');
    const shown = await lab.job(['run', '--safe', '--use', 'codex', '--executor', 'native', '--', 'sh', '-c', 'cat ~/.codex/prompts/deep/one.md']);
    expect(shown.stdout).toBe('a prompt\n');
    const planted = await lab.job(lab.agent('settings'));
    expect(planted.code, planted.stderr).toBe(0);
    expect(readFileSync(join(lab.home, '.codex/config.toml'), 'utf8')).toBe('model = "o"\n');
    expect(lab.tree(join(lab.home, '.codex'))).toEqual(['auth.json', 'config.toml', 'prompts/', 'prompts/deep/', 'prompts/deep/one.md']);
    expect(lab.token()).toBe('after first');
    expect((await lab.job(lab.agent('config'))).stdout).toBe('model = "o"\n');
  });

  test("git in the job has the caller's name, from the caller's own file alone", async () => {
    const lab = agentLab(user);
    lab.writeHome(
      '.gitconfig',
      '[user]\n\tname = "Ada \\"L\\" King" # c\n\temail = ada@example.com\n[core]\n\tfsmonitor = touch /tmp/evil\n[include]\n\tpath = x\n',
    );
    lab.write('.git/config', '[user]\n\tname = Mallory\n[core]\n\trepositoryformatversion = 0\n');
    lab.write('.git/HEAD', 'ref: refs/heads/main\n');
    const ended = await lab.job(lab.agent('identity'), { cwd: lab.base });
    expect(ended.stdout, ended.stderr).toBe('');
    const inside = await lab.job(['run', '--safe', '--workspace', lab.workspace, '--executor', 'native', '--', 'codex', 'identity']);
    expect(inside.stdout, inside.stderr).toBe('Ada "L" King\nada@example.com\n');
  });

  test('a job that is not an agent, or one whose program lies in the workspace, sees no login', async () => {
    const lab = agentLab(user);
    lab.write('codex', '#!/bin/sh\ncat ~/.codex/auth.json && echo seen\n', 0o755);
    for (const argv of [['./codex'], ['sh', '-c', 'cat ~/.codex/auth.json && echo seen']]) {
      expect((await lab.job(['run', '--safe', '--', ...argv])).stdout).toBe('');
      expect(await lab.logins()).toEqual([]);
    }
  });

  test('the hint is in the plan, and after a run that failed', async () => {
    const lab = agentLab(user);
    expect((await lab.job(['run', '--safe', '--dry-run', '--', 'codex'])).stdout).toMatch(/Hint: codex: Codex builds its own sandbox/);
    const failed = await lab.job(lab.agent('fail'));
    expect(failed.code).toBe(3);
    expect(failed.stderr).toMatch(/hint +codex: Codex builds its own sandbox/);
    expect((await lab.job(lab.agent('show'))).stderr).not.toMatch(/hint +codex/);
  });

  test.each<readonly [string, RegExp]>([
    ['symlink', /a symbolic link, and nothing of it was kept/],
    ['parent', /a symbolic link/],
    ['directory', /a directory/],
    ['fifo', /a FIFO/],
    ['hardlink', /a file with 2 names/],
    ['huge', /a file of \d+ bytes, at most 1048576/],
  ])('a job that leaves a %s in its place: an error, and the host keeps what it had', async (act, reason) => {
    const lab = agentLab(user);
    lab.writeHome('.ssh/authorized_keys', 'ssh-ed25519 mine\n');
    const ended = await lab.job(lab.agent(act));
    expect(ended.code, ended.stderr).toBe(205);
    expect(ended.stderr.replace(/\s+/g, ' ')).toMatch(/auth\.json was not written back/);
    expect(ended.stderr.replace(/\s+/g, ' ')).toMatch(reason);
    expect(lab.loginText()).toBe(ORIGINAL);
    expect(readFileSync(join(lab.home, '.ssh/authorized_keys'), 'utf8')).toBe('ssh-ed25519 mine\n');
    expect(await lab.logins()).toMatchObject([{ outcome: 'failed', kept: null }]);
    expect((await lab.job(['verify', 'last'])).code).toBe(0);
  });

  test.each<readonly [string, RegExp]>([
    ['garbage', /it is not a JSON object/],
    ['repeated', /it is not a JSON object/],
    ['shorter', /it has lost "tokens\.refresh_token"/],
    ['more', /it has a new "helper"/],
    ['other', /it has another "OPENAI_API_KEY"/],
    ['deeper', /it has another "tokens\.access_token"/],
    ['control', /it has another "tokens\.access_token"/],
  ])('a job that leaves %s: an error that names the kept copy, 0600, and the host keeps what it had', async (act, reason) => {
    const lab = agentLab(user);
    const ended = await lab.job(lab.agent(act));
    expect(ended.code, ended.stderr).toBe(205);
    expect(ended.stderr.replace(/\s+/g, ' ')).toMatch(reason);
    expect(lab.loginText()).toBe(ORIGINAL);
    const [line] = await lab.logins();
    expect(line?.outcome).toBe('failed');
    const kept = line?.kept ?? '';
    expect(kept.startsWith(lab.state)).toBe(true);
    expect(ended.stderr).toContain(kept);
    expect(modeOf(kept)).toBe(0o600);
    expect(readFileSync(kept, 'utf8')).not.toBe(ORIGINAL);
  });

  test('a login that the job deletes stays on the host, and the run says so', async () => {
    const lab = agentLab(user);
    const ended = await lab.job(lab.agent('delete'));
    expect(ended.code).toBe(0);
    expect(ended.stderr.replace(/\s+/g, ' ')).toMatch(/deleted by the job; yours is untouched/);
    expect(lab.loginText()).toBe(ORIGINAL);
  });

  test("the command's own failure keeps its code, and its refreshed login is written back all the same", async () => {
    const lab = agentLab(user);
    expect((await lab.job(lab.agent('refresh', 'fail'))).code).toBe(3);
    expect(lab.token()).toBe('after first');
    expect((await lab.job(lab.agent('garbage', 'fail'))).code).toBe(3);
  });

  test.each(['a link', 'a second name', 'a FIFO', 'too large'])('a login on the host that is %s does not enter, and is not touched', async (what) => {
    const lab = agentLab(user);
    const elsewhere = lab.writeHome('elsewhere.json', ORIGINAL);
    if (what !== 'a second name') unlinkSync(lab.login);
    if (what === 'a link') symlinkSync(elsewhere, lab.login);
    if (what === 'a second name') linkSync(lab.login, join(lab.home, 'second.json'));
    if (what === 'too large') writeFileSync(lab.login, 'x'.repeat(1024 * 1024 + 1));
    if (what === 'a FIFO') {
      const { execFileSync } = await import('node:child_process');
      execFileSync('mkfifo', [lab.login]);
    }
    if (what !== 'a link') chownSync(lab.login, user.uid, user.gid);
    const ended = await lab.job(lab.agent('fail'));
    expect(ended.code, ended.stderr).toBe(3);
    expect(ended.stderr.replace(/\s+/g, ' ')).toMatch(/does not enter the job: it/);
    expect(await lab.logins()).toEqual([]);
  });

  test('a job that starts while another one runs has the login that the other refreshed', async () => {
    const lab = agentLab(user);
    const id = (await lab.job(['run', '-d', ...lab.agent('refresh', 'wait').slice(1)])).stdout.trim();
    // Its first line is said before it refreshes: the second says that it waits.
    for (let text = ''; !text.includes('waiting');) text = (await lab.job(['logs', id])).stdout;
    expect(lab.token()).toBe('first');
    const second = await lab.job(lab.agent('refresh'));
    expect(second.stdout, second.stderr).toBe('after first\n');
    expect(lab.token()).toBe('after after first');
    expect((await lab.job(['kill', '--signal', 'TERM', id])).code).toBe(0);
    await lab.job(['wait', id]);
    // What it left is what was written back for it before: nothing is lost, and nothing is put back.
    expect(lab.token()).toBe('after after first');
    expect(await lab.logins(id)).toMatchObject([{ outcome: 'unchanged' }]);
  });

  test.each<readonly [string, string, string, string]>([
    ['the host later', '2026-12-01T11:00:00.000Z', 'of the host', 'superseded'],
    ['the job later', '2026-12-01T08:00:00.000Z', 'after first', 'written_back'],
    ['both at once', '2026-12-01T09:00:01.000Z', 'of the host', 'failed'],
  ])('job and host both refreshed it, %s: what was refreshed later stays, and what cannot be told is kept', async (_what, last, token, outcome) => {
    const lab = agentLab(user);
    const id = (await lab.job(['run', '-d', ...lab.agent('refresh', 'wait').slice(1)])).stdout.trim();
    for (let text = ''; !text.includes('waiting');) text = (await lab.job(['logs', id])).stdout;
    writeFileSync(lab.login, JSON.stringify({ ...AUTH, tokens: { ...AUTH.tokens, refresh_token: 'of the host' }, last_refresh: last }));
    expect((await lab.job(['kill', '--signal', 'TERM', id])).code).toBe(0);
    await lab.job(['wait', id]);
    expect(lab.token()).toBe(token);
    const [line] = await lab.logins(id);
    expect(line?.outcome).toBe(outcome);
    if (outcome === 'failed') expect(readFileSync(line?.kept ?? '', 'utf8')).toContain('after first');
  });

  test('five that end at once: one login stays whole, every other one is told, and nothing lies beside it', async () => {
    const lab = agentLab(user);
    const ended = await Promise.all(Array.from({ length: 5 }, async () => await lab.job(['run', '--json', ...lab.agent('refresh').slice(1)])));
    const outcomes = ended.map(({ stdout }) => /"outcome": ?"(\w+)"/.exec(stdout)?.[1]);
    expect(outcomes).toContain('written_back');
    for (const outcome of outcomes) expect(['written_back', 'superseded', 'failed']).toContain(outcome);
    expect(lab.token()).toMatch(/^(?:after )+first$/);
    expect(modeOf(lab.login)).toBe(0o600);
    expect(lab.tree(join(lab.home, '.codex'))).toEqual(['auth.json']);
    expect(lab.tree(join(lab.state, 'logins'))).toEqual(['lock']);
  });

  test('--strict enforces all that it asks, with a login, state and a git name', async () => {
    const lab = agentLab(user);
    const ended = await lab.job(['run', '--strict', ...lab.agent('refresh', 'work').slice(2)]);
    expect([ended.code, ended.stdout], ended.stderr).toEqual([0, 'first\n']);
    expect(lab.token()).toBe('after first');
    expect(ended.stderr).not.toMatch(/unenforced/);
  });
});

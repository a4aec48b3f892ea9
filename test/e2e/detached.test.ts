import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { jobCommand } from '../support/job-command.host.ts';
import { jobLab, processesWith, runsOf, untilOutput, type JobLab } from '../support/job-lab.host.ts';
import { asUser, describeUsers } from '../support/users.host.ts';

/** A command that says that it runs, and goes on until a file appears in its workspace's private /tmp, or it is ended. */
const UNTIL_STOPPED = 'trap "echo stopping; exit 9" TERM; echo begun; while :; do sleep 0.05; done';

async function startDetached(lab: JobLab, script: string, ...flags: readonly string[]): Promise<string> {
  const ended = await lab.job(['run', '-d', '--safe', ...flags, '--', 'sh', '-c', script]);
  expect(ended.stderr).toBe('');
  expect(ended.code).toBe(0);
  expect(ended.stdout).toMatch(/^run-[0-9A-Z]{26}\n$/);
  return ended.stdout.trim();
}

describeUsers('job run -d', (user) => {
  test('prints the id and returns while the command runs; attach follows from the beginning and exits as it does', async () => {
    const lab = jobLab(user);
    const id = await startDetached(lab, 'trap "go=1" USR1; echo one; while [ -z "$go" ]; do :; done; echo two >&2; exit 7');
    expect(await runsOf(lab)).toMatchObject([{ id, state: 'running' }]);
    const attached = lab.spawn(['attach', id]);
    const errors: Buffer[] = [];
    attached.stderr?.on('data', (part: Buffer) => errors.push(part));
    const first = await new Promise<Buffer>((resolve) => attached.stdout?.once('data', resolve));
    expect(first.toString()).toBe('one\n');
    expect((await lab.job(['kill', '--signal', 'USR1', id])).code).toBe(0);
    expect(await new Promise((resolve) => attached.once('close', resolve))).toBe(7);
    expect(Buffer.concat(errors).toString()).toBe('two\n');
    expect((await lab.job(['wait', id])).code).toBe(7);
    expect((await lab.job(['logs', id])).stdout).toBe('one\n');
    expect(await runsOf(lab)).toMatchObject([{ id, state: 'finished', exit_code: 7 }]);
  });

  test('its process has a session of its own and no terminal, and outlives the one that started it', async () => {
    const lab = jobLab(user);
    // The shell is the leader of a session, as a terminal's is; when it goes, its session does.
    const [node, job] = jobCommand(user);
    const shell = await asUser(
      user,
      [
        'setsid',
        '-w',
        'sh',
        '-c',
        `"${node}" "${job ?? ''}" run -d --safe -- sh -c 'trap "go=1" USR1; echo begun; while [ -z "$go" ]; do :; done; echo end > end.txt' & wait; kill -HUP 0`,
      ],
      { cwd: lab.workspace, env: lab.env },
    );
    const id = shell.stdout.trim();
    const [supervisor] = processesWith('job-supervisor');
    if (supervisor === undefined) throw new Error('no supervisor');
    const fields = readFileSync(`/proc/${supervisor}/stat`, 'utf8')
      .replace(/^.*\) /s, '')
      .split(' ');
    expect(Number(fields[3])).toBe(supervisor);
    expect(Number(fields[4])).toBe(0);
    await untilOutput(lab, id);
    expect((await lab.job(['kill', '--signal', 'USR1', id])).code).toBe(0);
    expect((await lab.job(['wait', id])).code).toBe(0);
    expect(await runsOf(lab)).toMatchObject([{ id, state: 'finished', stage_state: 'staged' }]);
  });

  test('stop asks, and ends what does not go; kill ends at once; a signal reaches the command', async () => {
    const lab = jobLab(user);
    const polite = await startDetached(lab, UNTIL_STOPPED);
    await untilOutput(lab, polite);
    const stopped = await lab.job(['stop', polite]);
    expect(stopped.stderr).toBe('');
    expect(stopped.stdout).toBe(`${polite}: exit 9\n`);

    const deaf = await startDetached(lab, 'trap "" TERM; echo begun; while :; do sleep 0.05; done');
    await untilOutput(lab, deaf);
    const ended = await lab.job(['stop', deaf, '--timeout', '200ms']);
    expect(ended.stdout).toBe(`${deaf}: SIGKILL\n`);

    const marker = `63.${process.pid}`;
    const killed = await startDetached(lab, `sleep ${marker} & sleep ${marker}`);
    expect((await lab.job(['kill', killed])).stdout).toBe(`${killed}: SIGKILL\n`);
    expect(processesWith(`sleep\0${marker}`)).toEqual([]);

    const signalled = await startDetached(lab, 'trap "exit 12" USR1; echo begun; while :; do sleep 0.05; done');
    await untilOutput(lab, signalled);
    expect((await lab.job(['kill', signalled, '--signal', 'USR1'])).code).toBe(0);
    expect((await lab.job(['wait', signalled])).code).toBe(12);
    expect((await lab.job(['stop', signalled])).code).toBe(207);
    expect((await lab.job(['kill', '--signal', 'SIGNOPE', signalled])).code).toBe(2);
  });

  test('wait gives up with 124 and leaves the run alone; logs --follow ends with the run', async () => {
    const lab = jobLab(user);
    const id = await startDetached(lab, UNTIL_STOPPED);
    const impatient = await lab.job(['wait', id, '--timeout', '150ms']);
    expect(impatient.code).toBe(124);
    expect(await runsOf(lab)).toMatchObject([{ id, state: 'running' }]);
    await untilOutput(lab, id);
    const follow = lab.job(['logs', id, '--follow']);
    await lab.job(['stop', id]);
    expect((await follow).stdout).toBe('begun\nstopping\n');
  });

  test('a follower that leaves, and a run whose supervisor is killed: the waiting command closes the run', async () => {
    const lab = jobLab(user);
    const marker = `64.${process.pid}`;
    const id = await startDetached(lab, `echo begun; exec sleep ${marker}`);
    const follower = lab.spawn(['attach', id]);
    await new Promise((resolve) => follower.stdout?.once('data', resolve));
    follower.kill('SIGINT');
    await new Promise((resolve) => follower.once('close', resolve));
    expect(await runsOf(lab)).toMatchObject([{ id, state: 'running' }]);

    const waiting = lab.job(['wait', id]);
    const status = JSON.parse((await lab.job(['status', id, '--json'])).stdout) as { owner: { pid: number } };
    process.kill(status.owner.pid, 'SIGKILL');
    expect((await waiting).code).toBe(209);
    expect(processesWith(`sleep\0${marker}`)).toEqual([]);
    expect(await runsOf(lab)).toMatchObject([{ id, state: 'interrupted' }]);
  });

  test('what is wrong is told by the command that was typed', async () => {
    const lab = jobLab(user);
    const refused = await lab.job(['run', '-d', '--safe', '--executor', 'host', '--', 'true']);
    expect(refused).toMatchObject({ code: 200, stdout: '' });
    expect(refused.stderr).toMatch(/was refused and not started/);
    const missing = await lab.job(['run', '-d', '--workspace', 'nowhere', '--', 'true']);
    expect(missing).toMatchObject({ code: 2, stdout: '' });
    expect(missing.stderr).toMatch(/does not exist/);
    const json = await lab.job(['run', '-d', '--json', '--workspace', 'nowhere', '--', 'true']);
    expect(JSON.parse(json.stdout)).toMatchObject({ error: { code: 'ERR_WORKSPACE' } });
    expect(json.code).toBe(2);
  });

  test('--result and --id-file are written by the supervisor', async () => {
    const lab = jobLab(user);
    const id = await startDetached(lab, 'echo a > a.txt; exit 4', '--result', '../result.json', '--id-file', '../id');
    expect((await lab.job(['wait', id])).code).toBe(4);
    expect(readFileSync(join(lab.base, 'id'), 'utf8')).toBe(`${id}\n`);
    expect(existsSync(join(lab.base, 'result.json'))).toBe(true);
  });
});

import { chmodSync, copyFileSync, chownSync, existsSync, lstatSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { shimPath } from '../../executors/shim/locate.host.ts';
import { users } from '../support/accounts.ts';
import { jobLab, runsOf, type JobLab } from '../support/job-lab.host.ts';
import { installation, nodeFor } from '../support/job-command.host.ts';
import { asUser, describeUsers, type Ended, type TestUser } from '../support/users.host.ts';

interface AgentCtlRecord {
  readonly said_by_guest: { readonly agent: string | null; readonly state: string | null };
  readonly messages: number;
  readonly malformed: number;
  readonly connections: number;
  readonly refused_peers: number;
  readonly directives: readonly { readonly directive: string }[];
}

interface Bundle {
  readonly agentctl?: AgentCtlRecord;
  readonly environment_names: readonly string[];
  readonly executor_observations: { readonly dimensions: Readonly<Record<string, { readonly level: string }>> };
}

const GUEST = join(import.meta.dirname, '../fixtures/agentctl/guest.mjs');

async function done(lab: JobLab, args: readonly string[]): Promise<Ended> {
  const ended = await lab.job(args);
  expect(ended.code, `job ${args.join(' ')}: ${ended.stderr}`).toBe(0);
  return ended;
}

/** A run of the fixture in the background, which has said that it is ready. */
async function play(lab: JobLab, name: string, ...more: readonly string[]): Promise<string> {
  const script = join(lab.workspace, 'guest.mjs');
  copyFileSync(GUEST, script);
  chownSync(script, lab.user.uid, lab.user.gid);
  const id = (await done(lab, ['run', '--safe', '-d', '--', 'node', 'guest.mjs', name, ...more])).stdout.trim();
  const follower = lab.spawn(['logs', id, '--follow'], { stdio: ['ignore', 'pipe', 'ignore'] });
  let text = '';
  await new Promise<void>((resolve, reject) => {
    follower.stdout?.on('data', (part: Buffer) => {
      text += part.toString();
      if (/^ready$/m.test(text)) resolve();
    });
    follower.once('close', () => {
      reject(new Error(`the guest is not ready: ${text}`));
    });
  });
  follower.removeAllListeners('close');
  follower.kill('SIGKILL');
  return id;
}

async function end(lab: JobLab, id: string): Promise<Bundle> {
  await done(lab, ['kill', id]);
  await lab.job(['wait', id]);
  return bundleOf(lab, id);
}

function bundleOf(lab: JobLab, id: string): Bundle {
  return JSON.parse(readFileSync(join(lab.state, 'runs', id, 'run-bundle.json'), 'utf8')) as Bundle;
}

const levels = (bundle: Bundle): unknown => Object.entries(bundle.executor_observations.dimensions).map(([name, { level }]) => [name, level]);

/** Levels of a run of the same kind in which nobody says anything. */
async function quietLevels(lab: JobLab): Promise<unknown> {
  await done(lab, ['run', '--safe', '-q', '--', 'true']);
  const [run] = await runsOf(lab);
  const bundle = bundleOf(lab, run?.id ?? '');
  expect(bundle.agentctl).toBeUndefined();
  return levels(bundle);
}

/** Processes of the shim's on the host's side below one of ours. */
function shimsBelow(pid: number): number {
  const below = (at: number): readonly number[] => {
    try {
      const children = readFileSync(`/proc/${at}/task/${at}/children`, 'utf8').trim();
      return children === '' ? [] : children.split(' ').flatMap((child) => [Number(child), ...below(Number(child))]);
    } catch {
      return []; // it has ended
    }
  };
  return below(pid).filter((one) => readFileSync(`/proc/${one}/cmdline`, 'latin1').includes('proofrun-shim\0outer\0')).length;
}

const nothingKept = (lab: JobLab): void => {
  const directory = join(lab.state, 'checkpoints');
  expect(existsSync(directory) ? readdirSync(directory) : []).toEqual([]);
};

describeUsers('AgentCtl', (user) => {
  test('a program that is asked rests, goes on, is kept in between, and ends', async () => {
    const lab = jobLab(user);
    const id = await play(lab, 'good');
    expect(JSON.parse((await done(lab, ['agentctl', 'status', id, '--json'])).stdout)).toMatchObject({
      run: id,
      said_by_guest: { agent: 'fixture', state: 'active' },
    });
    const cp = (await done(lab, ['checkpoint', 'create', id, '--name', 'live'])).stdout.trim();
    expect((await done(lab, ['checkpoint', 'verify', cp])).stdout).toContain('verified');
    expect(JSON.parse((await done(lab, ['checkpoint', 'show', cp, '--json'])).stdout)).toMatchObject({ source: 'live', run_id: id });
    await done(lab, ['agentctl', 'quiesce', id]);
    const rested = (await done(lab, ['checkpoint', 'create', id])).stdout.trim();
    // It was at rest before: it stays so.
    expect((await done(lab, ['agentctl', 'status', id])).stdout).toMatch(/state quiesced/);
    await done(lab, ['agentctl', 'continue', id]);
    await done(lab, ['agentctl', 'cancel', id, '--timeout', '1m']);
    expect((await lab.job(['wait', id])).code).toBe(7);
    expect((await done(lab, ['logs', id])).stdout).toBe('ready\nquiesce\ncontinue\nquiesce\ncontinue\nshutdown\n');

    const counted = async (point: string): Promise<number> =>
      Number((await done(lab, ['fork', point, '--safe', '-q', '--', 'wc', '-l', 'steps'])).stdout.split(' ')[0]);
    expect(await counted(rested)).toBeGreaterThan(await counted(cp));
    const bundle = bundleOf(lab, id);
    expect(bundle.environment_names).toContain('PROOFRUN_AGENTCTL');
    expect(bundle.agentctl).toMatchObject({ said_by_guest: { agent: 'fixture' }, malformed: 0, refused_peers: 0 });
    expect(bundle.agentctl?.directives.map((one) => one.directive)).toEqual(['quiesce', 'continue', 'quiesce', 'continue', 'shutdown']);
    expect((await done(lab, ['verify', id])).code).toBe(0);
  });

  test('the client in the sandbox speaks it without anything of this package', async () => {
    const lab = jobLab(user);
    const id = await play(lab, 'client');
    await done(lab, ['checkpoint', 'create', id]);
    await done(lab, ['agentctl', 'cancel', id]);
    expect((await lab.job(['wait', id])).code).toBe(0);
    expect((await done(lab, ['logs', id])).stdout).toBe('ready\nquiesce\ncontinue\nshutdown\n');
  });

  test('a guest that says it rests and writes on: nothing is kept, and the run goes on', async () => {
    const lab = jobLab(user);
    const quiet = await quietLevels(lab);
    const id = await play(lab, 'liar');
    const refused = await lab.job(['checkpoint', 'create', id]);
    expect(refused.code).toBe(207);
    expect(refused.stderr).toContain('was written while the checkpoint was made, although the program said that it is quiet');
    nothingKept(lab);
    expect((await done(lab, ['checkpoint', 'list'])).stdout).toBe('no checkpoints\n');
    expect(levels(await end(lab, id))).toEqual(quiet);
  });

  test('what it said before it was asked does not count, and one that never answers holds nobody up', async () => {
    const lab = jobLab(user);
    const id = await play(lab, 'eager');
    const late = await lab.job(['checkpoint', 'create', id, '--timeout', '300ms']);
    expect(late.code).toBe(207);
    expect(late.stderr).toContain('did not say within 300 ms that it is quiet');
    nothingKept(lab);
    expect((await end(lab, id)).agentctl?.directives.map((one) => one.directive)).toEqual(['quiesce', 'continue']);
  });

  test('a job that speaks nothing has nobody to ask; cancel stops it all the same', async () => {
    const lab = jobLab(user);
    const id = (await done(lab, ['run', '--safe', '-d', '--', 'sleep', '60'])).stdout.trim();
    expect((await lab.job(['checkpoint', 'create', id])).stderr).toContain('there is nobody to ask');
    await done(lab, ['agentctl', 'cancel', id, '--timeout', '200ms']);
    expect((await lab.job(['wait', id])).code).toBe(143);
  });

  test("one that doesn't read loses its connections; the owner is answered", async () => {
    const lab = jobLab(user);
    const quiet = await quietLevels(lab);
    const id = await play(lab, 'deaf');
    for (let round = 0; round < 3; round++) expect((await lab.job(['agentctl', 'quiesce', id, '--timeout', '50ms'])).code).toBe(207);
    await done(lab, ['agentctl', 'status', id]);
    const bundle = await end(lab, id);
    expect(bundle.agentctl?.connections).toBeLessThanOrEqual(8);
    expect(levels(bundle)).toEqual(quiet);
  });

  test('a flood is slowed down, and neither the owner nor another run waits for it', async () => {
    const lab = jobLab(user);
    const quiet = await quietLevels(lab);
    const began = Date.now();
    const id = await play(lab, 'flood');
    await done(lab, ['agentctl', 'status', id]);
    await done(lab, ['run', '--safe', '-q', '--', 'true']);
    await done(lab, ['agentctl', 'status', id]);
    const bundle = await end(lab, id);
    // A burst and so many bytes a second (executors/shim/agent.c); a line has 34 bytes at least.
    const seconds = (Date.now() - began) / 1000;
    expect((bundle.agentctl?.messages ?? 0) * 34).toBeLessThan(2 * (65536 + 16384 * (seconds + 1)));
    expect(levels(bundle)).toEqual(quiet);
  });

  test('forged ids, requests of the owner, huge and malformed lines are refused, and change no level, right or other run', async () => {
    const lab = jobLab(user);
    const quiet = await quietLevels(lab);
    const other = (await done(lab, ['run', '--safe', '-d', '--', 'sleep', '60'])).stdout.trim();
    const id = await play(lab, 'malformed', other);
    const answers = (await done(lab, ['logs', id])).stdout.trimEnd().split('\n');
    expect(answers.filter((line) => !line.endsWith(': refused'))).toEqual(['ready']);
    expect(answers).toHaveLength(16);
    expect((await runsOf(lab)).map((run) => [run.id, run.state])).toEqual([
      [id, 'running'],
      [other, 'running'],
      [expect.any(String), 'finished'],
    ]);
    nothingKept(lab);
    const bundle = await end(lab, id);
    expect(bundle.agentctl).toMatchObject({ malformed: 15, directives: [], said_by_guest: { state: null } });
    expect(levels(bundle)).toEqual(quiet);
    expect(levels(await end(lab, other))).toEqual(quiet);
    expect(bundleOf(lab, other).agentctl).toBeUndefined();
  });

  test('half a line on every connection holds nobody up', async () => {
    const lab = jobLab(user);
    const quiet = await quietLevels(lab);
    const id = await play(lab, 'stall');
    await done(lab, ['agentctl', 'status', id]);
    expect((await lab.job(['checkpoint', 'create', id, '--timeout', '200ms'])).stderr).toContain('there is nobody to ask');
    const bundle = await end(lab, id);
    expect(bundle.agentctl).toMatchObject({ messages: 0, malformed: 0 });
    expect(bundle.agentctl?.connections).toBeLessThanOrEqual(8);
    expect(levels(bundle)).toEqual(quiet);
  });

  test('a run in which nobody connects has no process for it, and the first connection starts one', async () => {
    const lab = jobLab(user);
    const script = 'echo ready; read go; /tmp/.proofrun/agentctl state idle; echo said; read go';
    const child = lab.spawn(['run', '--safe', '-q', '--', 'sh', '-c', script], { stdio: ['pipe', 'pipe', 'inherit'] });
    const said = async (word: string): Promise<void> => {
      for await (const part of child.stdout?.iterator({ destroyOnReturn: false }) ?? []) if (String(part).includes(word)) return;
      throw new Error(`the job did not say ${word}`);
    };
    await said('ready');
    expect(shimsBelow(child.pid ?? 0)).toBe(1);
    child.stdin?.write('\n');
    await said('said');
    expect(shimsBelow(child.pid ?? 0)).toBe(2);
    child.stdin?.end('\n');
    await new Promise((resolve) => child.once('close', resolve));
    const [run] = await runsOf(lab);
    expect(bundleOf(lab, run?.id ?? '').agentctl).toMatchObject({ said_by_guest: { state: 'idle' }, connections: 1 });
  });

  test('the client is a file that no job can write, replace or give other facts; control arm: its own link to it goes', async () => {
    const lab = jobLab(user);
    const attempts = [
      'echo x >/.proofrun/agentctl',
      'rm -f /.proofrun/agentctl',
      'mv /tmp/.proofrun/agentctl.sock /.proofrun/agentctl',
      'chmod 777 /.proofrun/agentctl',
      'touch /.proofrun/agentctl',
      'ln /.proofrun/agentctl /tmp/second',
      // The program that runs, by the name that the kernel gives it.
      '/.proofrun/agentctl wait & until readlink /proc/$!/exe | grep -q agentctl; do :; done; echo x >/proc/$!/exe',
    ].map((attempt) => `(${attempt}) 2>/dev/null && echo 'went: ${attempt}'`);
    const shim = shimPath(installation(user), process.arch);
    const before = readFileSync(shim);
    const ended = await done(lab, ['run', '--safe', '-q', '--', 'sh', '-c', [...attempts, 'rm /tmp/.proofrun/agentctl && echo link'].join('\n')]);
    expect(ended.stdout).toBe('link\n');
    expect(readFileSync(shim).equals(before)).toBe(true);
  });

  test('a job that takes every process it may have has at worst no AgentCtl', async () => {
    const lab = jobLab(user);
    const id = await play(lab, 'hog');
    const asked = await lab.job(['agentctl', 'status', id]);
    expect([0, 207]).toContain(asked.code);
    if (asked.code !== 0) expect(asked.stderr).toContain('turned this one away');
    await done(lab, ['kill', id]);
    expect((await lab.job(['wait', id])).code).toBe(137);
  });

  test('a job may take its own end apart: only it has no AgentCtl then', async () => {
    const lab = jobLab(user);
    const quiet = await quietLevels(lab);
    copyFileSync(GUEST, lab.write('guest.mjs', ''));
    expect((await done(lab, ['run', '--safe', '-q', '--', 'node', 'guest.mjs', 'saboteur'])).stdout).toBe('gone\n');
    const [run] = await runsOf(lab);
    expect(levels(bundleOf(lab, run?.id ?? ''))).toEqual(quiet);
  });

  test('the socket of the host lies in a directory of the owner alone; a process of another uid is turned away; control arm: the owner is not', async () => {
    const lab = jobLab(user);
    const id = await play(lab, 'good');
    const directory = join(lab.state, 'runs', id, 'agentctl');
    const socket = join(directory, 'host.sock');
    expect(lstatSync(directory).mode & 0o777).toBe(0o700);
    expect(lstatSync(socket).mode & 0o777).toBe(0o600);
    const ask = `const c = require('net').connect(process.argv[1]); let t = ''; c.on('data', (d) => { t += d; c.end(); }); c.on('error', (e) => { t = e.code; });
      c.on('close', () => console.log(t === '' ? 'turned away' : t)); c.write('{"op":"status"}\\n');`;
    const asked = async (who: TestUser): Promise<string> => (await asUser(who, [nodeFor(who), '-e', ask, socket])).stdout.trim();
    const others = Object.values(users()).filter((one): one is TestUser => typeof one !== 'string' && one.uid !== user.uid);
    expect(await asked(user)).toContain('"said_by_guest"');
    let turnedAway = 0;
    for (const other of others) {
      if (other.uid !== 0) {
        expect(await asked(other)).toBe('EACCES');
        // The directory apart: the peer's uid alone decides.
        for (let at = directory; at !== dirname(lab.base); at = dirname(at)) chmodSync(at, 0o755);
        chmodSync(socket, 0o666);
      }
      expect(await asked(other)).toMatch(/^(?:turned away|EPIPE|ECONNRESET)$/);
      turnedAway += 1;
    }
    for (let at = directory; at !== dirname(lab.base); at = dirname(at)) chmodSync(at, 0o700);
    await done(lab, ['agentctl', 'cancel', id]);
    await lab.job(['wait', id]);
    expect(bundleOf(lab, id).agentctl?.refused_peers).toBe(turnedAway);
    expect(existsSync(directory)).toBe(false);
  });
});

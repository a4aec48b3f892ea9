import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { VERSION } from '../../src/core/version.ts';
import { COMMAND_NAMES } from '../../src/cli/command-table.ts';
import { runCli, type CliResult } from '../support/cli-process.ts';

let home = '';
let cwd = '';
beforeEach(() => {
  const base = realpathSync(mkdtempSync(join(tmpdir(), 'proofrun-cli-')));
  home = join(base, 'home');
  cwd = join(base, 'work');
  mkdirSync(home);
  mkdirSync(cwd);
});
afterEach(() => rmSync(join(home, '..'), { recursive: true, force: true }));

const job = (...argv: string[]): Promise<CliResult> => runCli(argv, { home, cwd });

describe('the command line', () => {
  test('every command of the table has its file', () => {
    for (const name of COMMAND_NAMES) {
      if (name !== 'help') expect(existsSync(join(import.meta.dirname, '../../src/cli/commands', `${name.replace(' ', '-')}.ts`)), name).toBe(true);
    }
  });

  test('the version is that of the package', async () => {
    const { version } = JSON.parse(readFileSync(join(import.meta.dirname, '../../package.json'), 'utf8')) as { version: string };
    expect(VERSION).toBe(version);
    expect(await job('version')).toEqual({ code: 0, stdout: `proofrun ${version}\n`, stderr: '' });
    expect((await job('--version')).stdout).toBe(`proofrun ${version}\n`);
    expect(JSON.parse((await job('version', '--json')).stdout)).toMatchObject({ version });
  });

  test('help goes to stdout; nothing typed is an error that shows it', async () => {
    expect(await job('help', 'run')).toMatchObject({ code: 0, stderr: '' });
    expect((await job('run', '--help')).stdout).toBe((await job('help', 'run')).stdout);
    const bare = await job();
    expect(bare).toMatchObject({ code: 2, stdout: '' });
    expect(bare.stderr).toContain('Usage: job COMMAND');
  });

  test('an error is message and hint on stderr, or JSON on stdout', async () => {
    expect(await job('run', '--memory', '2G', 'x')).toEqual({
      code: 2,
      stdout: '',
      stderr:
        'job: --memory expects a size with a unit, such as 512MiB or 2GiB (B, KiB, MiB, GiB, TiB, kB, MB, GB, TB); received "2G"\n     write --memory 2GiB\n',
    });
    const json = await job('run', '--json', '--memory', '2G', 'x');
    expect(json).toMatchObject({ code: 2, stderr: '' });
    expect(JSON.parse(json.stdout)).toMatchObject({ error: { code: 'ERR_USAGE', exit_code: 2, hint: 'write --memory 2GiB' } });
    // After `--` it is the program's.
    expect((await job('run', '--bogus', '--', 'x', '--json')).stdout).toBe('');
  });

  test('completion scripts', async () => {
    expect((await job('completion', 'bash')).stdout).toContain('complete ');
    expect(await job('completion', 'tcsh')).toMatchObject({ code: 2, stdout: '' });
  });

  test('schemas', async () => {
    expect((await job('schema')).stdout.split('\n').filter((line) => line !== '')).toHaveLength(8);
    expect(JSON.parse((await job('schema', 'bundle')).stdout)).toMatchObject({ type: 'object' });
    expect((await job('schema', 'bundel')).stderr).toContain('did you mean `bundle`');
  });
});

describe('runs that are not there', () => {
  test('an empty list, and 206 for a run', async () => {
    expect(await job('ls')).toEqual({ code: 0, stdout: 'no runs\n', stderr: '' });
    expect(await job('ls', '--json')).toEqual({ code: 0, stdout: '[]\n', stderr: '' });
    for (const command of ['status', 'diff', 'verify', 'logs', 'events', 'drop', 'wait', 'stop', 'kill', 'attach']) {
      const result = await job(command, 'nosuch');
      expect(result, command).toMatchObject({ code: 206, stdout: '' });
      expect(result.stderr).toMatch(/no run matches ['"]nosuch/);
    }
  });

  test('a store that others may write is refused', async () => {
    await job('ls');
    chmodSync(join(home, 'state', 'proofrun'), 0o777);
    const result = await job('ls');
    expect(result.code).toBe(209);
    expect(result.stderr).toMatch(/has mode 777, open to others; expected 700\n {5}chmod 700 /);
  });
});

describe('job verify', () => {
  test('refuses a file that is no bundle, and one without observations', async () => {
    writeFileSync(join(cwd, 'no.json'), '{');
    expect(await job('verify', './no.json')).toMatchObject({ code: 201 });
    writeFileSync(join(cwd, 'none.json'), '{"version":1}');
    const result = await job('verify', './none.json');
    expect(result.code).toBe(201);
    expect(result.stderr).toContain('has no executor_observations: nothing in it is evidence');
    expect(JSON.parse((await job('verify', '--json', './none.json')).stdout)).toMatchObject({ error: { code: 'ERR_BUNDLE_INVALID' } });
  });
});

describe('rules', () => {
  test('job init writes once, and what it writes is right', async () => {
    expect((await job('init')).stderr).toContain('job: wrote "job.yaml"');
    expect(await job('init')).toMatchObject({ code: 2 });
    expect(await job('init', '--force')).toMatchObject({ code: 0 });
    expect(await job('policy', 'check', 'job.yaml')).toEqual({ code: 0, stdout: 'ok     job.yaml  (job)\n', stderr: '' });
    expect(await job('init', 'no/such/dir.yaml')).toMatchObject({ code: 2 });
  });

  test('policy check names each fault by line, and knows what a file is', async () => {
    mkdirSync(join(cwd, 'profiles'));
    writeFileSync(join(cwd, 'bad.yaml'), 'version: 1\nmod: safe\n');
    writeFileSync(join(cwd, 'profiles', 'mine.yaml'), 'version: 1\nname: mine\npermissions:\n  network: { allow: [a.example] }\n');
    writeFileSync(join(cwd, 'policy.yaml'), 'version: 1\nname: p\nmode: safe\n');
    chmodSync(join(cwd, 'policy.yaml'), 0o666);
    const result = await job('policy', 'check', 'bad.yaml', 'profiles/mine.yaml', 'policy.yaml', 'gone.yaml');
    expect(result.code).toBe(2);
    expect(result.stdout).toContain('wrong  bad.yaml:2:1: unknown key `mod`; did you mean `mode`?');
    expect(result.stdout).toContain('ok     profiles/mine.yaml  (profile)');
    expect(result.stdout).toMatch(/wrong {2}.*policy\.yaml: is writable by others \(mode 0666\)/);
    expect(result.stdout).toContain('wrong  gone.yaml: there is no such file');
    expect(JSON.parse((await job('policy', 'check', '--json', 'bad.yaml')).stdout)).toMatchObject([
      { file: 'bad.yaml', kind: 'job', error: { code: 'ERR_JOB_FILE' } },
    ]);
  });

  test('policy ls and show, own files before shipped ones', async () => {
    mkdirSync(join(home, '.config', 'proofrun', 'policies'), { recursive: true });
    writeFileSync(join(home, '.config', 'proofrun', 'policies', 'safe.yaml'), 'version: 1\nname: safe\ndescription: mine\n');
    const listed = JSON.parse((await job('policy', 'ls', '--json')).stdout) as { name: string; from: string; kind: string }[];
    expect(listed.filter(({ name }) => name === 'safe').map(({ from }) => from)).toEqual(['yours', 'shipped']);
    expect(listed.filter(({ kind }) => kind === 'profile').map(({ name }) => name)).toContain('npm-install');
    expect((await job('policy', 'show', 'safe')).stdout).toContain('description: mine');
    expect((await job('policy', 'show', 'npm-install')).stdout).toContain('allow_from: [npm-config]');
    expect(await job('policy', 'show', 'npm-instal')).toMatchObject({ code: 2, stdout: '' });
    symlinkSync(join(home, '.config', 'proofrun', 'policies', 'safe.yaml'), join(home, '.config', 'proofrun', 'policy.yaml'));
    expect((await job('policy', 'ls')).stderr).toContain('is a symbolic link');
  });

  test('policy explain: the deciding line, and what would change it', async () => {
    const text = (await job('policy', 'explain', '--safe', '--why-net', 'a.example:22', '--why-read', join(home, '.ssh', 'id'), '--', 'true')).stdout;
    expect(text).toMatch(
      /denied {4}a\.example:22\n {12}no rule allows it\n {12}safe\.yaml:\d+ default_action: deny \(mode\)\n {12}would allow: --allow-net a\.example:22/,
    );
    expect(text).toContain('~/.ssh/id');
    const all = JSON.parse((await job('policy', 'explain', '--json', '--safe', '--', 'true')).stdout) as { explanations: { dimension: string }[] };
    expect(new Set(all.explanations.map(({ dimension }) => dimension)).size).toBeGreaterThan(4);
    expect(await job('policy', 'explain', '--why-net', 'a:b:c', '--', 'true')).toMatchObject({ code: 2 });
  });

  test('trust: shown, never accepted in silence, remembered by digest, withdrawn', async () => {
    writeFileSync(join(cwd, 'job.yaml'), 'version: 1\ncommand: [cat]\npermissions:\n  credentials: { pass_env: [TOKEN] }\n');
    const asked = await job('trust', 'job.yaml');
    expect(asked.code).toBe(200);
    expect(asked.stderr).toContain('see the variable TOKEN  (line 4)');
    expect((await job('trust', '--list')).stdout).toBe('nothing was accepted\n');
    const accepted = JSON.parse((await job('trust', '--yes', '--json')).stdout) as { digest: string };
    expect(accepted).toMatchObject({ accepted: true, file: join(cwd, 'job.yaml') });
    expect(asked.stderr).toContain(accepted.digest);
    expect((await job('trust', '--list')).stdout).toContain('job.yaml');
    // Accepted grants ask no second time; other grants do.
    expect(await job('trust')).toMatchObject({ code: 0 });
    writeFileSync(join(cwd, 'job.yaml'), 'version: 1\ncommand: [cat]\npermissions:\n  credentials: { pass_env: [TOKEN, OTHER] }\n');
    expect(await job('trust')).toMatchObject({ code: 200 });
    expect((await job('trust', '--revoke')).stdout).toContain('withdrawn');
    expect((await job('trust', '--list')).stdout).toBe('nothing was accepted\n');
  });
});

describe('job doctor', () => {
  test('answers with the executors of this machine', async () => {
    const result = await job('doctor', '--json');
    const facts = JSON.parse(result.stdout) as { pass_safe: string[]; executors: { executor: string }[]; checks: { name: string; ok: boolean }[] };
    expect(facts.executors.map(({ executor }) => executor)).toEqual(['native', 'docker', 'host']);
    expect(facts.pass_safe).not.toContain('host');
    expect(result.code).toBe(facts.pass_safe.length > 0 && facts.checks.every(({ ok }) => ok) ? 0 : 200);
  });
});

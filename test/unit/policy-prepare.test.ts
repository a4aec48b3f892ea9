import { chmod, mkdir, mkdtemp, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { EffectiveJob } from '../../src/core/job.ts';
import { composeJob } from '../../src/policy/compose.ts';
import { prepareJob, type CallerFacts, type TrustRule } from '../../src/policy/prepare.host.ts';
import type { JobRequest } from '../../src/policy/request.ts';
import { acceptTrust } from '../../src/policy/trust.host.ts';

const UID = process.getuid?.() ?? 0;
let top: string;

beforeEach(async () => {
  top = await realpath(await mkdtemp(join(tmpdir(), 'proofrun-prepare-')));
  for (const directory of ['home', 'home/w', 'bin', 'elsewhere']) await mkdir(join(top, directory));
});
afterEach(async () => {
  await rm(top, { recursive: true, force: true });
});

async function put(path: string, text: string, mode = 0o644): Promise<string> {
  const file = join(top, path);
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, text);
  await chmod(file, mode);
  return file;
}

function caller(env: Record<string, string> = {}): CallerFacts {
  return {
    currentDirectory: join(top, 'home/w'),
    env: { PATH: join(top, 'bin'), HOME: join(top, 'home'), ...env },
    uid: UID,
    home: join(top, 'home'),
    platform: 'linux',
    configDirectory: join(top, 'home/.config/proofrun'),
    stateDirectory: join(top, 'state'),
  };
}

async function job(request: Partial<JobRequest>, env: Record<string, string> = {}, trust: TrustRule = 'require'): Promise<EffectiveJob> {
  const { input } = await prepareJob({ argv: ['tool'], ...request }, caller(env), trust);
  return composeJob(input);
}

describe('preparing a job', () => {
  it('needs no file at all', async () => {
    expect(await job({ mode: 'safe' })).toMatchObject({ mode: 'safe', workspace: join(top, 'home/w'), home: join(top, 'home'), argv: ['tool'] });
  });

  it('always asks the user file and the workspace file', async () => {
    await put('home/.config/proofrun/policy.yaml', 'version: 1\nmode: safe\n');
    await put('home/w/.proofrun/policy.yaml', 'version: 1\npermissions: { network: { default_action: deny } }\n');
    const result = await job({});
    expect(result.mode).toBe('safe');
    expect(result.layers.map((layer) => layer.name)).toEqual(['safe', 'user policy', 'workspace policy']);
    await expect(job({ allowNet: ['a.example'] })).rejects.toMatchObject({
      code: 'ERR_POLICY_CEILING',
      message: expect.stringMatching(/above the ceiling of \.proofrun\/policy\.yaml:2/) as unknown,
    });
  });

  it('a workspace file can not grant: it knows no such key, and its lists only narrow', async () => {
    await put(
      'home/w/.proofrun/policy.yaml',
      'version: 1\npermissions: { network: { default_action: allow, allow: [evil.example] }, file_read: { default_action: allow, allow: ["~/.ssh"] } }\n',
    );
    const result = await job({ mode: 'safe' });
    expect(result.permissions.network).toMatchObject({ kind: 'deny', allow: [] });
    expect(result.permissions.fileRead.allow).toEqual([]);
  });

  it.each([
    ['writable by others', 0o666, /is writable by others/],
    ['a link', -1, /is a symbolic link/],
  ])('refuses a policy file that is %s', async (_what, mode, message) => {
    const real = await put('home/.config/proofrun/real.yaml', 'version: 1\n');
    const path = join(top, 'home/.config/proofrun/policy.yaml');
    if (mode < 0) await symlink(real, path);
    else await put('home/.config/proofrun/policy.yaml', 'version: 1\n', mode);
    await expect(job({})).rejects.toMatchObject({ code: 'ERR_POLICY_FILE', message: expect.stringMatching(message) as unknown });
  });

  it('finds policies and profiles by path, in the own directory, and among the shipped ones', async () => {
    await put('home/w/team.yaml', 'version: 1\nname: team\n');
    await put('home/.config/proofrun/profiles/mine.yaml', 'version: 1\npermissions: { network: { allow: [mine.example] } }\n');
    await put('home/.config/proofrun/policies/offline.yaml', 'version: 1\nname: offline\ndescription: mine\n');
    const result = await job({ mode: 'safe', policies: ['./team.yaml', 'offline'], use: ['mine', 'npm-install'] });
    expect(result.layers.map((layer) => [layer.name, layer.source])).toEqual([
      ['mine', join(top, 'home/.config/proofrun/profiles/mine.yaml')],
      ['npm-install', 'npm-install.yaml'],
      ['safe', 'safe.yaml'],
      ['team', 'team.yaml'],
      ['offline', join(top, 'home/.config/proofrun/policies/offline.yaml')],
    ]);
  });

  it('names the flag or the line that names an unknown one, with near names', async () => {
    await expect(job({ use: ['npm-instal'] })).rejects.toMatchObject({
      code: 'ERR_PROFILE_UNKNOWN',
      message: '--use npm-instal: there is no profile named "npm-instal"; did you mean `npm-install`?',
    });
    await put('elsewhere/job.yaml', 'version: 1\npolicies: [safer]\n');
    await expect(job({ jobFile: '../../elsewhere/job.yaml' })).rejects.toMatchObject({
      message: expect.stringMatching(/job\.yaml:2: there is no policy named "safer"; did you mean `safe`\?/) as unknown,
    });
  });

  it('reads the registries of the home when a profile asks, and warns of those of the workspace', async () => {
    await put('home/.npmrc', 'registry=https://npm.corp.example/\n');
    await put('home/w/.npmrc', 'registry=https://evil.example/\n');
    const result = await job({ mode: 'safe', use: ['npm-install'] });
    expect(result.permissions.network.allow.map((rule) => rule.host)).toEqual(['npm.corp.example']);
    expect(result.warnings.join('\n')).toMatch(/evil\.example:443, which a file of the workspace can't open/);
  });

  it('reads secrets from variables and files, and runs nothing for one', async () => {
    await put('home/token', 's3cret\n', 0o600);
    const result = await job({ mode: 'safe', secrets: ['A=env:B', 'C=file:~/token'] }, { B: 'b' });
    expect(result.permissions.credentials.environment).toMatchObject({ A: 'b', C: 's3cret' });
    await expect(job({ secrets: ['A=command:cat x'] })).rejects.toMatchObject({
      code: 'ERR_USAGE',
      message: expect.stringMatching(/secrets from command: are not supported/) as unknown,
    });
    await expect(job({ secrets: ['A=file:~/none'] })).rejects.toMatchObject({
      code: 'ERR_USAGE',
      message: expect.stringMatching(/can't be read \(ENOENT\)/) as unknown,
    });
  });

  it('a grant that leads to a sensitive path by a link of the host is refused', async () => {
    await mkdir(join(top, 'home/.ssh'));
    await symlink(join(top, 'home/.ssh'), join(top, 'elsewhere/link'));
    await expect(job({ mode: 'safe', writeDirect: [join(top, 'elsewhere/link')] })).rejects.toMatchObject({
      code: 'ERR_POLICY_CEILING',
      message: expect.stringMatching(/a sensitive path \(OpenSSH\)/) as unknown,
    });
  });

  it('refuses the home as workspace, also by another name', async () => {
    await symlink(join(top, 'home'), join(top, 'elsewhere/home'));
    await expect(job({ workspace: join(top, 'elsewhere/home') })).rejects.toMatchObject({ code: 'ERR_WORKSPACE' });
  });
});

describe('paths of a job file', () => {
  it('are relative to the file', async () => {
    await put(
      'elsewhere/job.yaml',
      'version: 1\ncommand: [tool]\nworkspace: ../home/w\ncwd: ../home/w/sub\npermissions: { file_write: { direct: [../home/w/dist] } }\n',
    );
    await mkdir(join(top, 'home/w/sub'));
    const result = await job({ argv: [], jobFile: '../../elsewhere/job.yaml' });
    expect(result).toMatchObject({ workspace: join(top, 'home/w'), cwd: join(top, 'home/w/sub'), argv: ['tool'] });
    expect(result.permissions.fileWrite.direct.map((rule) => rule.pattern)).toEqual([join(top, 'home/w/dist')]);
  });
});

describe('a job file in the workspace', () => {
  const GRANTING =
    'version: 1\ncommand: [tool]\npermissions:\n  network: { allow: [a.example] }\n  credentials: { secrets: [{ name: A, from: "file:/nonexistent/token" }] }\n';

  it('that grants is refused until somebody accepts it, with each grant and its line', async () => {
    await put('home/w/job.yaml', GRANTING);
    const refusal = job({ argv: [], jobFile: 'job.yaml' });
    await expect(refusal).rejects.toMatchObject({
      code: 'ERR_JOB_UNTRUSTED',
      exitCode: 200,
      hint: expect.stringMatching(/^job trust job\.yaml accepts it and remembers; in CI: --trust sha256:[0-9a-f]{64}$/) as unknown,
    });
    await expect(refusal).rejects.toThrow(/job\.yaml:4 {2}connect to a\.example\n.*job\.yaml:5 {2}use the secret A/);
  });

  it('is accepted by its digest, or by memory; a change asks again', async () => {
    const text = GRANTING.replace('  credentials: { secrets: [{ name: A, from: "file:/nonexistent/token" }] }\n', '');
    const file = await put('home/w/job.yaml', text);
    const { trust } = await prepareJob({ argv: [], jobFile: 'job.yaml' }, caller(), 'ignore');
    expect(trust).toMatchObject({ file, grants: [{ what: 'connect to a.example', line: 4 }] });
    const digest = trust?.digest ?? '';
    expect((await job({ argv: [], jobFile: 'job.yaml', trust: digest })).permissions.network.kind).toBe('selective');
    await expect(job({ argv: [], jobFile: 'job.yaml', trust: `sha256:${'0'.repeat(64)}` })).rejects.toMatchObject({
      message: expect.stringMatching(/the digest given is another one/) as unknown,
    });
    await acceptTrust(join(top, 'state'), UID, { file, digest, acceptedMs: 1 });
    expect((await job({ argv: [], jobFile: 'job.yaml' })).permissions.network.kind).toBe('selective');
    await put('home/w/job.yaml', text.replace('a.example', 'b.example'));
    await expect(job({ argv: [], jobFile: 'job.yaml' })).rejects.toMatchObject({ code: 'ERR_JOB_UNTRUSTED' });
  });

  it('that is reached by a link from outside is still inside', async () => {
    await put('home/w/job.yaml', GRANTING);
    await symlink(join(top, 'home/w/job.yaml'), join(top, 'elsewhere/job.yaml'));
    await expect(job({ argv: [], jobFile: '../../elsewhere/job.yaml' })).rejects.toMatchObject({ code: 'ERR_JOB_UNTRUSTED' });
  });

  it("that grants nothing needs nobody; one outside is the person's own", async () => {
    await put('home/w/job.yaml', 'version: 1\nmode: safe\ncommand: [tool]\n');
    expect((await job({ argv: [], jobFile: 'job.yaml' })).mode).toBe('safe');
    await put('elsewhere/job.yaml', 'version: 1\ncommand: [tool]\npermissions: { network: { allow: [a.example] } }\n');
    expect((await job({ argv: [], jobFile: '../../elsewhere/job.yaml' })).permissions.network.kind).toBe('selective');
  });
});

describe("an agent's profile", () => {
  it('is chosen for a program outside the workspace, under --safe', async () => {
    await put('bin/claude', '#!/bin/sh\n', 0o755);
    const result = await job({ argv: ['claude'], mode: 'safe' });
    expect(result.layers.map((layer) => layer.name)).toContain('claude');
    expect(result.permissions.credentials.logins?.map((login) => login.path)).toContain(join(top, 'home/.claude/.credentials.json'));
    expect((await job({ argv: ['claude'] })).layers).toEqual([]);
    expect((await job({ argv: [join(top, 'bin/claude')], mode: 'safe' })).layers.map((layer) => layer.name)).toContain('claude');
  });

  it.each<readonly [string, readonly string[], Record<string, string>]>([
    ['that PATH finds in the workspace first', ['claude'], { PATH: 'PLACE' }],
    ['by its path in the workspace', ['./claude'], {}],
    ['outside that is a link into the workspace', ['claude'], { PATH: 'LINKS' }],
    ['that is nowhere', ['gemini'], {}],
  ])('is not chosen for a program %s', async (_what, argv, env) => {
    await put('home/w/claude', '#!/bin/sh\n', 0o755);
    await put('bin/claude', '#!/bin/sh\n', 0o755);
    await mkdir(join(top, 'links'));
    await symlink(join(top, 'home/w/claude'), join(top, 'links/claude'));
    const path =
      env['PATH'] === 'PLACE'
        ? `${join(top, 'home/w')}:${join(top, 'bin')}`
        : env['PATH'] === 'LINKS'
          ? `${join(top, 'links')}:${join(top, 'bin')}`
          : join(top, 'bin');
    expect((await job({ argv, mode: 'safe' }, { PATH: path })).layers.map((layer) => layer.name)).toEqual(['safe']);
  });
});

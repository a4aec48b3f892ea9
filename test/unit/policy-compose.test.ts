import { describe, expect, it } from 'vitest';
import { ProofrunError } from '../../src/core/errors.ts';
import type { EffectiveJob } from '../../src/core/job.ts';
import { parseHostRule } from '../../src/policy/host-rule.ts';
import { HOME, WORKSPACE, compose, inputOf, presetNamed, type Scenario } from './policy-fixture.ts';

const V = 'version: 1\n';

/** A job file with one section of permissions. */
function job(section: string, head = ''): string {
  return `${V}${head}permissions:\n  ${section}\n`;
}

/** A policy file with one section. */
function policy(section: string, file = 'team.yaml', head = ''): NonNullable<Scenario['policies']>[number] {
  return { file, text: job(section, head) };
}

function profile(section: string, name = 'tool', shipped = false): NonNullable<Scenario['profiles']>[number] {
  return { file: `${name}.yaml`, text: `${V}name: ${name}\npermissions:\n  ${section}\n`, shipped };
}

async function refusal(scenario: Scenario): Promise<ProofrunError> {
  const error: unknown = await compose(scenario).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof ProofrunError)) throw new Error(error === undefined ? 'expected a refusal, got a job' : 'expected a ProofrunError', { cause: error });
  return error;
}

function hosts(result: EffectiveJob): readonly string[] {
  return result.permissions.network.allow.map((rule) => rule.host);
}

describe('network', () => {
  it.each<readonly [string, Scenario, string, boolean]>([
    ['nobody says anything: public, and nobody asked', {}, 'public', false],
    ['an empty list means nothing', { job: job('network: { allow: [] }') }, 'deny', true],
    ['--no-net', { request: { noNet: true } }, 'deny', true],
    ['a list means only that', { job: job('network: { allow: [a.example] }') }, 'selective', true],
    ['--allow-net means only that', { request: { allowNet: ['a.example'] } }, 'selective', true],
    ['--deny-net alone takes away from what is open', { request: { denyNet: ['a.example'] } }, 'selective', true],
    ['a section of denials without a default denies by default', { job: job('network: { deny: [a.example] }') }, 'deny', true],
    ['a default that allows', { job: job('network: { default_action: allow }') }, 'public', true],
    ['a default that allows, less a denial', { job: job('network: { default_action: allow, deny: [a.example] }') }, 'selective', true],
    ['a port of the host', { job: job('network: { host_ports: [8080] }') }, 'selective', true],
    ['a profile alone adds to what is open', { profiles: [profile('network: { allow: [a.example] }')] }, 'public', true],
    ['--safe alone', { request: { mode: 'safe' } }, 'deny', true],
    ['--safe with a profile', { request: { mode: 'safe' }, profiles: [profile('network: { allow: [a.example] }')] }, 'selective', true],
    ['--safe with a job that opens all of it', { request: { mode: 'safe' }, job: job('network: { default_action: allow }') }, 'public', true],
    ['--strict with a list', { request: { mode: 'strict', allowNet: ['a.example'] } }, 'selective', true],
    ['--no-net beats a profile', { request: { mode: 'safe', noNet: true }, profiles: [profile('network: { allow: [a.example] }')] }, 'deny', true],
    ['--no-net beats a job that opens all of it', { request: { noNet: true }, job: job('network: { default_action: allow }') }, 'deny', true],
    ['a policy that lists narrows what nobody named', { policies: [policy('network: { allow: [a.example] }')] }, 'selective', true],
    ['a policy that allows by default leaves it open', { policies: [policy('network: { default_action: allow }')] }, 'public', true],
    ['a grant that is denied whole leaves nothing', { job: job('network: { allow: [a.example], deny: [a.example] }') }, 'deny', true],
  ])('%s', async (_what, scenario, kind, requested) => {
    const { network } = (await compose(scenario)).permissions;
    expect([network.kind, network.requested]).toEqual([kind, requested]);
  });

  it('joins job, flags and profiles, once each, each with its place', async () => {
    const result = await compose({
      request: { allowNet: ['b.example:22', 'a.example'] },
      job: job('network: { allow: [a.example, c.example] }'),
      profiles: [profile('network: { allow: [d.example] }')],
    });
    expect(hosts(result)).toEqual(['a.example', 'b.example', 'c.example', 'd.example']);
    expect(result.permissions.network.allow.map((rule) => rule.origin)).toEqual([
      { layer: 'flag', name: '--allow-net a.example' },
      { layer: 'flag', name: '--allow-net b.example:22' },
      { layer: 'job', name: 'job.yaml', file: 'job.yaml', line: 3 },
      { layer: 'profile', name: 'tool', file: 'tool.yaml', line: 4 },
    ]);
  });

  it('intersects policies: what nobody named is what all of them list', async () => {
    const result = await compose({
      policies: [policy('network: { allow: ["*.example", b.test] }', 'one.yaml'), policy('network: { allow: [a.example, c.test] }', 'two.yaml')],
    });
    expect(hosts(result)).toEqual(['a.example']);
  });

  it.each<readonly [string, Scenario, RegExp]>([
    [
      'a host that a policy does not list',
      { job: job('network: { allow: [b.example] }'), policies: [policy('network: { allow: [a.example] }')] },
      /^job\.yaml:3 grants b\.example, above the ceiling of team\.yaml:3 \(network has rules and no default_action, which denies by default\)$/,
    ],
    [
      'a port that a policy does not list',
      { request: { allowNet: ['a.example:22'] }, policies: [policy('network: { allow: [a.example] }')] },
      /^--allow-net a\.example:22 grants a\.example:22, above the ceiling of team\.yaml:3/,
    ],
    [
      'the whole network under a list',
      { job: job('network: { default_action: allow }'), policies: [policy('network: { allow: [a.example] }')] },
      /^job\.yaml:3 grants the whole network, above/,
    ],
    [
      'the whole network under --strict',
      { request: { mode: 'strict' }, job: job('network: { default_action: allow }') },
      /grants the whole network, above the ceiling of strict\.yaml:\d+/,
    ],
    [
      'a profile above a policy',
      {
        request: { mode: 'safe' },
        profiles: [profile('network: { allow: [a.example] }')],
        policies: [policy('network: { default_action: deny }', 'offline.yaml')],
      },
      /^tool\.yaml:4 grants a\.example, above the ceiling of offline\.yaml:3/,
    ],
    [
      'a private rule under `private: false`',
      { job: job('network: { allow: [{ host: db.corp, ports: [5432], private: true }] }'), policies: [policy('network: { private: false }')] },
      /^job\.yaml:3 grants private addresses of db\.corp:5432, above the ceiling of team\.yaml:3 \(private: false\)$/,
    ],
    [
      'a host port that a policy does not list',
      { job: job('network: { host_ports: [8080] }'), policies: [policy('network: { default_action: deny, host_ports: [9090] }')] },
      /grants host port 8080/,
    ],
    [
      'a published port that a policy does not list',
      { job: job('network: { publish: ["1:2"] }'), policies: [policy('network: { default_action: deny }')] },
      /grants published port 1:2/,
    ],
  ])('refuses %s, with both lines', async (_what, scenario, message) => {
    const error = await refusal(scenario);
    expect(error.code).toBe('ERR_POLICY_CEILING');
    expect(error.exitCode).toBe(200);
    expect(error.message).toMatch(message);
    expect(error.hint).toBeTruthy();
  });

  it('names every grant above a ceiling, not only the first', async () => {
    const error = await refusal({ job: job('network: { allow: [b.example, c.example] }'), policies: [policy('network: { allow: [a.example] }')] });
    expect(error.message.split('\n')).toHaveLength(2);
    expect(error.data?.['violations']).toHaveLength(2);
  });

  it('tells of a grant that a denial elsewhere takes away', async () => {
    const result = await compose({
      request: { allowNet: ['a.example', 'b.example'] },
      policies: [policy('network: { default_action: allow, deny: [a.example] }')],
    });
    expect(result.permissions.network.kind).toBe('selective');
    expect(result.warnings).toContain('--allow-net a.example allows a.example, but team.yaml:3 denies it: it stays closed');
  });

  it('a later allow never overrides an earlier denial', async () => {
    const early = policy('network: { default_action: allow, deny: [a.example] }', 'early.yaml');
    const late = policy('network: { default_action: allow, allow: [a.example] }', 'late.yaml');
    for (const policies of [
      [early, late],
      [late, early],
    ]) {
      const { network } = (await compose({ policies })).permissions;
      expect(network.deny.map((rule) => rule.host)).toEqual(['a.example']);
    }
  });

  it('says where the default stands', async () => {
    expect((await compose({ request: { mode: 'safe' } })).permissions.network.defaultOrigin).toEqual({
      layer: 'mode',
      name: 'safe',
      file: 'safe.yaml',
      line: 14,
    });
    expect((await compose({ request: { noNet: true } })).permissions.network.defaultOrigin).toEqual({ layer: 'flag', name: '--no-net' });
    expect((await compose({})).permissions.network.defaultOrigin).toBeUndefined();
  });

  it('takes hosts from the configuration of tools where a profile says so, and from the workspace never', async () => {
    const rule = (host: string, file: string) => {
      const parsed = parseHostRule({ host, ports: [443], private: true }, 'allow', { layer: 'profile', name: 'npm-config: registry', file, line: 1 });
      if (parsed.kind === 'error') throw new Error(parsed.message);
      return parsed.rule;
    };
    const result = await compose({
      request: { mode: 'safe' },
      use: ['npm-install'],
      over: {
        registries: [
          { source: 'npm-config', hosts: [rule('npm.corp.example', '~/.npmrc')], hostPorts: [], onlyInWorkspace: [rule('evil.example', '/w/.npmrc')] },
          { source: 'pip-config', hosts: [rule('pip.corp.example', '~/.pip/pip.conf')], hostPorts: [], onlyInWorkspace: [] },
        ],
      },
    });
    expect(hosts(result)).toEqual(['npm.corp.example']);
    expect(result.permissions.network.allow[0]?.origin).toMatchObject({ file: '~/.npmrc', line: 1 });
    expect(result.warnings.join('\n')).toMatch(
      /\/w\/\.npmrc:1 names evil\.example:443, which a file of the workspace can't open; --allow-net evil\.example:443 does/,
    );
  });
});

describe('reading files', () => {
  it.each<readonly [string, Scenario, string, string, boolean]>([
    ['nobody says anything', {}, 'host', 'real', false],
    ['a denial in a section that allows by default', { job: job('file_read: { default_action: allow, deny: ["~/.ssh"] }') }, 'host', 'real', true],
    ['a section without a default denies by default', { job: job('file_read: { deny: ["~/.ssh"] }') }, 'projected', 'private', true],
    ['--deny-read takes away', { request: { denyRead: ['secrets'] } }, 'host', 'real', true],
    ['--safe', { request: { mode: 'safe' } }, 'projected', 'private', true],
    ['--safe with a job that allows by default', { request: { mode: 'safe' }, job: job('file_read: { default_action: allow }') }, 'projected', 'private', true],
    ['a policy that lists', { policies: [policy('file_read: { allow: [/srv/data] }')] }, 'projected', 'private', true],
  ])('%s', async (_what, scenario, root, home, requested) => {
    const { fileRead } = (await compose(scenario)).permissions;
    expect([fileRead.root, fileRead.home, fileRead.requested]).toEqual([root, home, requested]);
  });

  it('makes every path absolute, relative to where it was written', async () => {
    const result = await compose({
      request: { mode: 'safe', allowRead: ['data'], denyRead: ['~/x'] },
      job: job('file_read: { allow: [../lib], deny: ["**/*.sqlite"] }'),
      over: { currentDirectory: `${WORKSPACE}/sub` },
    });
    expect(result.permissions.fileRead.allow.map((rule) => rule.pattern)).toEqual([`${WORKSPACE}/sub/data`, '/home/ada/src/lib']);
    expect(result.permissions.fileRead.deny.map((rule) => rule.pattern)).toEqual([`${WORKSPACE}/**/*.sqlite`, `${HOME}/x`]);
  });

  it('under --safe, a default that allows is told of', async () => {
    const result = await compose({ request: { mode: 'safe' }, job: job('file_read: { default_action: allow }') });
    expect(result.warnings.join('\n')).toMatch(/job\.yaml:3 allows reading by default; under safe\.yaml:9 that means the workspace/);
  });

  it('in default mode, --allow-read says that it changes nothing', async () => {
    expect((await compose({ request: { allowRead: ['/srv'] } })).warnings.join('\n')).toMatch(/--allow-read \/srv changes nothing/);
  });

  it('refuses a path above a policy', async () => {
    const error = await refusal({ job: job('file_read: { allow: [/srv/other] }'), policies: [policy('file_read: { allow: [/srv/data] }')] });
    expect(error.message).toBe(
      'job.yaml:3 grants reading /srv/other, above the ceiling of team.yaml:3 (file_read has rules and no default_action, which denies by default)',
    );
  });

  it('under --safe hides the secret names of the workspace, each with the line of the list', async () => {
    const { secretNames } = (await compose({ request: { mode: 'safe' } })).permissions.fileRead;
    expect(secretNames?.always.map((rule) => rule.pattern)).toEqual([`${WORKSPACE}/**/.env`, `${WORKSPACE}/**/.env.*`]);
    expect(secretNames?.except.map((rule) => rule.pattern)).toEqual([`${WORKSPACE}/**/.env.example`]);
    expect(secretNames?.privateKeys.map((rule) => rule.pattern)).toContain(`${WORKSPACE}/**/*.pem`);
    expect(secretNames?.always[0]?.origin).toMatchObject({ layer: 'built-in', file: 'sensitive.yaml' });
    expect((await compose({})).permissions.fileRead.secretNames).toBeUndefined();
  });

  it('the person opens a secret name of the workspace again by flag; a job file can not', async () => {
    const open = await compose({ request: { mode: 'safe', allowRead: ['.env'] } });
    expect(open.permissions.fileRead.secretNames?.except.map((rule) => rule.pattern)).toContain(`${WORKSPACE}/.env`);
    const closed = await compose({ request: { mode: 'safe' }, job: job('file_read: { allow: [.env] }') });
    expect(closed.permissions.fileRead.secretNames?.except.map((rule) => rule.pattern)).not.toContain(`${WORKSPACE}/.env`);
  });
});

describe('sensitive paths under --safe', () => {
  it.each<readonly [string, Scenario]>([
    ['a job that reads one', { job: job('file_read: { allow: ["~/.ssh"] }') }],
    ['a job that reads something in one', { job: job('file_read: { allow: ["~/.ssh/known_hosts"] }') }],
    ['a job that reads one by glob', { job: job('file_read: { allow: ["~/.s*"] }') }],
    ['a profile of the person', { profiles: [profile('file_read: { allow: ["~/.aws"] }')] }],
    ['a profile that borrows the name of a shipped one', { profiles: [profile('file_read: { config: [.claude] }', 'claude', false)] }],
    ['a shipped profile, the login of another tool', { profiles: [profile('file_read: { config: [.codex] }', 'claude', true)] }],
    ['a direct share', { request: { writeDirect: ['~/.ssh'] } }],
    ['a direct share inside one', { job: job('file_write: { direct: ["~/.config/gh/x"] }') }],
    ['a socket of docker', { job: job('file_read: { allow: [/var/run/docker.sock] }') }],
  ])('%s is refused with the line of the list', async (_what, scenario) => {
    const error = await refusal({ ...scenario, request: { ...scenario.request, mode: 'safe' } });
    expect(error.code).toBe('ERR_POLICY_CEILING');
    expect(error.message).toMatch(/a sensitive path \(.+\), above the ceiling of sensitive\.yaml:\d+/);
    expect(error.hint).toMatch(/--allow-read /);
  });

  it('a link that leads to one is one', async () => {
    const error = await refusal({
      request: { mode: 'safe' },
      job: job('file_read: { allow: [/srv/link] }'),
      over: { realPath: (path) => (path === '/srv/link' ? `${HOME}/.ssh` : path) },
    });
    expect(error.message).toMatch(/\/srv\/link, a sensitive path \(OpenSSH\)/);
  });

  it("the person's own flag opens it, and that is recorded", async () => {
    const result = await compose({ request: { mode: 'safe', allowRead: ['~/.ssh'] } });
    expect(result.permissions.fileRead.allow.map((rule) => rule.pattern)).toEqual([`${HOME}/.ssh`]);
    expect(result.permissions.fileRead.deny).toEqual([]);
    expect(result.warnings.join('\n')).toMatch(/--allow-read ~\/\.ssh opens \/home\/ada\/\.ssh, which holds credentials of OpenSSH/);
  });

  it("the person's own flag covers the same path of a job", async () => {
    const result = await compose({ request: { mode: 'safe', allowRead: ['~/.ssh'] }, job: job('file_read: { allow: ["~/.ssh/known_hosts"] }') });
    expect(result.permissions.fileRead.allow).toHaveLength(2);
  });

  it('a shipped profile reads the login of its own tool, and that is recorded', async () => {
    const result = await compose({ request: { mode: 'safe' }, use: ['claude'] });
    expect(result.permissions.fileRead.homeCopies?.map((rule) => rule.pattern)).not.toContain(`${HOME}/.claude/.credentials.json`);
    expect(result.permissions.credentials.logins?.map((login) => [login.path, login.writeBack])).toEqual([
      [`${HOME}/.claude.json`, false],
      [`${HOME}/.claude/.credentials.json`, true],
    ]);
    expect(result.warnings.join('\n')).toMatch(/the profile claude lets the job read the login of Claude Code/);
  });

  it('a job file that is called like a profile borrows nothing', async () => {
    const text = job('file_read: { allow: ["~/.claude"] }');
    const { jobFile } = await inputOf({ job: text });
    if (jobFile === undefined) throw new Error('no job file');
    const error = await refusal({
      request: { mode: 'safe' },
      use: ['claude'],
      over: { jobFile: { ...jobFile, parsed: { ...jobFile.parsed, file: 'claude' } } },
    });
    expect(error.message).toMatch(/^claude:3 grants .*a sensitive path \(Claude Code\)/);
  });

  it('one inside a directory that is opened is denied there', async () => {
    const result = await compose({ request: { mode: 'safe', allowRead: ['~/.config'] } });
    const denied = result.permissions.fileRead.deny.map((rule) => rule.pattern);
    expect(denied).toContain(`${HOME}/.config/gh`);
    expect(denied).toContain(`${HOME}/.config/google-chrome*`);
    expect(denied).not.toContain(`${HOME}/.ssh`);
  });

  it('in default mode nothing is guarded: reads are unrestricted', async () => {
    expect((await compose({ job: job('file_read: { default_action: allow, allow: ["~/.ssh"] }') })).permissions.fileRead.deny).toEqual([]);
  });
});

describe('writing files', () => {
  it('stages the workspace, and the common directory of a linked worktree as a second root', async () => {
    expect((await compose({})).permissions.fileWrite).toMatchObject({ requested: false, stage: [WORKSPACE], direct: [] });
    const linked = await compose({
      over: { workspace: { workspace: WORKSPACE, cwd: WORKSPACE, chosen: 'git work tree', commonDirectory: '/home/ada/src/main/.git' } },
    });
    expect(linked.permissions.fileWrite.stage).toEqual([WORKSPACE, '/home/ada/src/main/.git']);
  });

  it('stages parts, without the common directory', async () => {
    const result = await compose({
      job: job('file_write: { stage: [src, src/deep, docs] }'),
      over: { workspace: { workspace: WORKSPACE, cwd: WORKSPACE, chosen: 'git work tree', commonDirectory: '/home/ada/src/main/.git' } },
    });
    expect(result.permissions.fileWrite.stage).toEqual([`${WORKSPACE}/src`, `${WORKSPACE}/docs`]);
  });

  it.each<readonly [string, Scenario, string, RegExp]>([
    ['a stage outside the workspace', { job: job('file_write: { stage: [../other] }') }, 'ERR_JOB_FILE', /expected a directory inside the workspace/],
    [
      'a stage that leads out by a link',
      { job: job('file_write: { stage: [out] }'), over: { realPath: (path) => (path.endsWith('/out') ? '/srv' : path) } },
      'ERR_JOB_FILE',
      /inside the workspace/,
    ],
    ['a stage by glob', { job: job('file_write: { stage: ["src/*"] }') }, 'ERR_JOB_FILE', /inside the workspace/],
    ['a direct share by glob', { request: { writeDirect: ['dist/*'] } }, 'ERR_USAGE', /one path, not the glob/],
    ['a direct share of the home', { request: { writeDirect: ['~'] } }, 'ERR_USAGE', /is your home directory/],
    ['a direct share of everything', { request: { writeDirect: ['/'] } }, 'ERR_USAGE', /contains your home directory/],
  ])('refuses %s', async (_what, scenario, code, message) => {
    const error = await refusal(scenario);
    expect(error.code).toBe(code);
    expect(error.message).toMatch(message);
  });

  it('a policy can make the workspace read-only; a job that stages it is then refused', async () => {
    const readOnly = policy('file_write: { stage: [] }', 'review.yaml');
    expect((await compose({ policies: [readOnly] })).permissions.fileWrite.stage).toEqual([]);
    expect((await refusal({ job: job('file_write: { stage: [.] }'), policies: [readOnly] })).message).toMatch(
      /job\.yaml:3 grants staged writes to .*, above the ceiling of review\.yaml:3 \(stage: \[\]\)/,
    );
  });

  it('a policy narrows the stage to its parts', async () => {
    expect((await compose({ policies: [policy('file_write: { stage: [src] }')] })).permissions.fileWrite.stage).toEqual([`${WORKSPACE}/src`]);
    expect(
      (await compose({ job: job('file_write: { stage: [src/deep] }'), policies: [policy('file_write: { stage: [src] }')] })).permissions.fileWrite.stage,
    ).toEqual([`${WORKSPACE}/src/deep`]);
  });

  it('a policy refuses direct shares that it does not list', async () => {
    const closed = policy('file_write: { default_action: deny, direct: [dist] }');
    expect((await compose({ request: { writeDirect: ['dist/js'] }, policies: [closed] })).permissions.fileWrite.direct).toHaveLength(1);
    expect((await refusal({ request: { writeDirect: ['build'] }, policies: [closed] })).message).toMatch(
      /--write-direct build grants unstaged writes to .*\/build, above the ceiling of team\.yaml:3/,
    );
  });
});

describe('programs', () => {
  it.each<readonly [string, Scenario, string, readonly string[]]>([
    ['nobody says anything', {}, 'contained', []],
    ['a default that denies, alone', { job: job('subprocess: { default_action: deny }') }, 'none', []],
    ['a list', { job: job('subprocess: { allow: [node, git] }') }, 'listed', ['git', 'node']],
    ['an empty list', { job: job('subprocess: { allow: [] }') }, 'none', []],
    ['a default that allows', { job: job('subprocess: { default_action: allow, allow: [node] }') }, 'contained', []],
    [
      'a profile lists for jobs that list',
      { job: job('subprocess: { allow: [make] }'), profiles: [profile('subprocess: { allow: [node] }')] },
      'listed',
      ['make', 'node'],
    ],
    ['a profile alone restricts nothing', { profiles: [profile('subprocess: { allow: [node] }')] }, 'contained', []],
    ['a policy that lists', { policies: [policy('subprocess: { allow: [git] }')] }, 'listed', ['git']],
    ['a policy that denies', { policies: [policy('subprocess: { default_action: deny }')] }, 'none', []],
    ['--safe', { request: { mode: 'safe' } }, 'contained', []],
    ['--safe with a list', { request: { mode: 'safe' }, job: job('subprocess: { allow: [node] }') }, 'listed', ['node']],
  ])('%s', async (_what, scenario, kind, allow) => {
    const { subprocess } = (await compose(scenario)).permissions;
    expect([subprocess.kind, subprocess.allow]).toEqual([kind, allow]);
  });

  it('refuses a program above a policy', async () => {
    expect((await refusal({ job: job('subprocess: { allow: [node] }'), policies: [policy('subprocess: { allow: [git] }')] })).message).toMatch(
      /job\.yaml:3 grants the program node, above the ceiling of team\.yaml:3/,
    );
    expect((await refusal({ job: job('subprocess: { default_action: allow }'), policies: [policy('subprocess: { allow: [git] }')] })).message).toMatch(
      /grants every program/,
    );
  });
});

describe('environment and credentials', () => {
  const names = (result: EffectiveJob): readonly string[] => Object.keys(result.permissions.credentials.environment);

  it('passes everything in default mode, and lists what looks like a credential', async () => {
    const result = await compose({ env: { DATABASE_URL: 'postgres://ada:secret@db/x', PWD: '/elsewhere' } });
    expect(names(result)).toEqual(['DATABASE_URL', 'EDITOR', 'GITHUB_TOKEN', 'HOME', 'LANG', 'LC_TIME', 'PATH', 'PWD']);
    expect(result.permissions.credentials.visible).toEqual(['DATABASE_URL', 'GITHUB_TOKEN']);
    expect(result.permissions.credentials.environment['PWD']).toBe(WORKSPACE);
    expect(result.permissions.credentials.requested).toBe(false);
  });

  it.each<readonly [string, Scenario]>([
    ['--safe', { request: { mode: 'safe' } }],
    ['a section that passes nothing', { job: job('credentials: { pass_env: [] }') }],
    ['a policy that denies by default', { policies: [policy('credentials: { default_action: deny }')] }],
  ])('%s passes the base set only', async (_what, scenario) => {
    expect(names(await compose(scenario))).toEqual(['HOME', 'LANG', 'LC_TIME', 'PATH', 'PWD']);
  });

  it('passes what is named, by pattern too, and sets what is given', async () => {
    const result = await compose({ request: { mode: 'safe', env: ['EDITOR', 'GITHUB_*', 'NODE_ENV=flag'] }, job: `${V}env: { NODE_ENV: job, TZ: UTC }\n` });
    expect(result.permissions.credentials.environment).toMatchObject({ EDITOR: 'vi', GITHUB_TOKEN: 'ghp_x', NODE_ENV: 'flag', TZ: 'UTC', HOME });
    expect(result.permissions.credentials.visible).toEqual(['GITHUB_TOKEN']);
  });

  it('a profile sets a variable only where the caller has none', async () => {
    const withEnv = { file: 'tool.yaml', text: `${V}name: tool\nenv: { EDITOR: ed, PAGER: cat }\n` };
    expect((await compose({ profiles: [withEnv] })).permissions.credentials.environment).toMatchObject({ EDITOR: 'vi', PAGER: 'cat' });
  });

  it('a policy lists what may pass; more is refused, the base set never', async () => {
    const closed = policy('credentials: { pass_env: ["GITHUB_*"], secrets: [NPM_TOKEN] }');
    expect(names(await compose({ policies: [closed] }))).toContain('GITHUB_TOKEN');
    expect(names(await compose({ policies: [closed] }))).not.toContain('EDITOR');
    expect((await refusal({ request: { env: ['EDITOR'] }, policies: [closed] })).message).toMatch(
      /-e EDITOR grants the variable EDITOR, above the ceiling of team\.yaml:3/,
    );
    expect(names(await compose({ request: { env: ['GITHUB_TOKEN', 'LC_*'] }, policies: [closed] }))).toContain('GITHUB_TOKEN');
    expect((await refusal({ request: { secrets: ['OTHER'] }, policies: [closed] })).message).toMatch(/grants the secret OTHER/);
  });

  it('refuses the whole environment under --safe', async () => {
    expect((await refusal({ request: { mode: 'safe' }, job: job('credentials: { default_action: allow }') })).message).toMatch(
      /job\.yaml:3 grants every variable, above the ceiling of safe\.yaml:\d+/,
    );
  });

  it('a secret enters by its value and is visible; an injected one never enters', async () => {
    const result = await compose({
      request: { mode: 'safe', secrets: ['NPM_TOKEN', 'API=env:X@api.example'] },
      over: { secretValues: { NPM_TOKEN: 's3', API: 's4' } },
    });
    expect(result.permissions.credentials.environment).toMatchObject({ NPM_TOKEN: 's3' });
    expect(result.permissions.credentials.environment['API']).toBe('proofrun-placeholder-');
    expect(result.permissions.credentials.visible).toEqual(['NPM_TOKEN']);
    expect(result.permissions.credentials.secrets.map((secret) => [secret.name, secret.from, secret.inject?.host])).toEqual([
      ['API', 'env:X', 'api.example'],
      ['NPM_TOKEN', 'env:NPM_TOKEN', undefined],
    ]);
  });

  it('a secret that could not be read is an error with the next step', async () => {
    const error = await refusal({ request: { secrets: ['NPM_TOKEN'] } });
    expect([error.code, error.hint]).toEqual(['ERR_USAGE', 'set NPM_TOKEN before the run']);
  });
});

describe('limits', () => {
  it('the smallest wins, wherever it stands', async () => {
    const { resources } = (
      await compose({
        request: { memoryBytes: 8 * 1024 ** 3, processes: 100 },
        job: job('resources: { memory: 4GiB, wall_time: 30m }'),
        policies: [policy('resources: { memory: 2GiB, processes: 400 }')],
      })
    ).permissions;
    expect(resources.limits).toEqual({ memoryBytes: 2 * 1024 ** 3, processes: 100, wallTimeMs: 1_800_000 });
    expect(resources.origins?.memoryBytes).toMatchObject({ layer: 'policy', line: 3 });
    expect(resources.origins?.processes).toEqual({ layer: 'flag', name: '--processes' });
  });

  it('a mode sets defaults: 512 processes, unless somebody asks for more or less', async () => {
    expect((await compose({ request: { mode: 'safe' } })).permissions.resources.limits).toEqual({ processes: 512 });
    expect((await compose({ request: { mode: 'safe', processes: 2000 } })).permissions.resources.limits).toEqual({ processes: 2000 });
    expect((await compose({})).permissions.resources).toMatchObject({ requested: false, limits: {} });
  });
});

describe('the mode', () => {
  it.each<readonly [string, Scenario, string]>([
    ['a flag raises the job file', { request: { mode: 'safe' }, job: `${V}mode: default\n` }, 'safe'],
    ['a flag does not lower it', { request: { mode: 'default' }, job: `${V}mode: strict\n` }, 'strict'],
    ['a policy raises it', { policies: [policy('network: {}', 'team.yaml', 'mode: safe\n')] }, 'safe'],
    ['a policy does not lower it', { request: { mode: 'strict' }, policies: [policy('network: {}', 'team.yaml', 'mode: safe\n')] }, 'strict'],
  ])('%s', async (_what, scenario, mode) => {
    expect((await compose(scenario)).mode).toBe(mode);
  });

  it('--policy safe is --safe', async () => {
    const named = await compose({ over: { policies: [{ layer: 'policy', compiled: presetNamed('policies', 'safe') }] } });
    const { modeOrigin, ...rest } = named;
    const { modeOrigin: flag, ...same } = await compose({ request: { mode: 'safe' } });
    expect(rest).toEqual(same);
    expect([modeOrigin, flag]).toEqual([
      { layer: 'policy', name: 'safe', file: 'safe.yaml', line: 6 },
      { layer: 'flag', name: '--safe' },
    ]);
  });

  it('what is stated and not yet decided here is requested', async () => {
    const { models, tools } = (await compose({ job: job('models: { default_action: deny }') })).permissions;
    expect([models.requested, tools.requested]).toEqual([true, false]);
  });
});

describe('the rest of a job', () => {
  it('takes command, name, executor and image from the flags, else from the file', async () => {
    const file = `${V}name: unit\ncommand: [make]\nexecutor: host\nimage: node:20\n`;
    expect(await compose({ request: { argv: [] }, job: file })).toMatchObject({ argv: ['make'], name: 'unit', executor: 'host', image: 'node:20' });
    expect(await compose({ request: { argv: ['ls'], name: 'mine', executor: 'native', image: 'x' }, job: file })).toMatchObject({
      argv: ['ls'],
      name: 'mine',
      executor: 'native',
      image: 'x',
    });
  });

  it.each<readonly [string, Scenario, string, RegExp]>([
    ['no command', { request: { argv: [] } }, 'ERR_USAGE', /no command was given/],
    ['a file without a command', { request: { argv: [] }, job: V }, 'ERR_USAGE', /job\.yaml has no command/],
    ['NUL in an argument', { request: { argv: ['a', 'b\0'] } }, 'ERR_USAGE', /argument 1 of the command holds a NUL byte/],
    ['--no-net with --allow-net', { request: { noNet: true, allowNet: ['a.example'] } }, 'ERR_USAGE', /--no-net contradicts --allow-net/],
    ['a host flag that is none', { request: { allowNet: ['*'] } }, 'ERR_USAGE', /--allow-net: `\*` alone/],
    ['a variable flag that is none', { request: { env: ['A-B'] } }, 'ERR_USAGE', /-e expects NAME/],
    ['a secret flag that is none', { request: { secrets: ['A=vault:x'] } }, 'ERR_USAGE', /expected a source env:NAME/],
    ['no processes', { request: { processes: 0 } }, 'ERR_USAGE', /--processes expects more than nothing/],
    ['waiving containment', { request: { mode: 'safe', degrade: ['network'] } }, 'ERR_USAGE', /can't be waived/],
    ['a waiver under --strict', { request: { mode: 'strict', degrade: ['resources'] } }, 'ERR_USAGE', /--strict has no waiver/],
    [
      '`/` as workspace',
      { over: { workspace: { workspace: '/', cwd: '/', chosen: 'current directory' } } },
      'ERR_WORKSPACE',
      /the workspace \/ is the whole file system/,
    ],
    ['a home as workspace', { over: { workspace: { workspace: HOME, cwd: HOME, chosen: 'flag' } } }, 'ERR_WORKSPACE', /is a home directory/],
    ['the home of somebody else', { over: { workspace: { workspace: '/root', cwd: '/root', chosen: 'flag' } } }, 'ERR_WORKSPACE', /is a home directory/],
    [
      'what contains a home',
      { over: { workspace: { workspace: '/home', cwd: '/home', chosen: 'flag' } } },
      'ERR_WORKSPACE',
      /contains the home directory \/home\/ada/,
    ],
    [
      'a sensitive path as workspace',
      { over: { workspace: { workspace: `${HOME}/.ssh`, cwd: `${HOME}/.ssh`, chosen: 'flag' } } },
      'ERR_WORKSPACE',
      /sensitive path \(OpenSSH\)/,
    ],
    [
      'what contains a sensitive path',
      { over: { workspace: { workspace: `${HOME}/.config`, cwd: `${HOME}/.config`, chosen: 'flag' } } },
      'ERR_WORKSPACE',
      /contains the sensitive path/,
    ],
    [
      'a start outside the workspace',
      { over: { workspace: { workspace: WORKSPACE, cwd: '/srv', chosen: 'flag' } } },
      'ERR_WORKSPACE',
      /lies outside the workspace/,
    ],
  ])('refuses %s', async (_what, scenario, code, message) => {
    const error = await refusal(scenario);
    expect(error.code).toBe(code);
    expect(error.message).toMatch(message);
  });

  it('a refused workspace names the next command, with the command typed', async () => {
    const error = await refusal({
      request: { argv: ['sh', '-c', "echo 'x'"] },
      over: { workspace: { workspace: HOME, cwd: HOME, chosen: 'current directory' } },
    });
    expect(error.hint).toBe(String.raw`make a directory for the project and name it: job run --workspace DIR -- sh -c 'echo '\''x'\'''`);
  });

  it('records every layer that took part, with its digest', async () => {
    const result = await compose({
      request: { mode: 'safe' },
      job: `${V}name: unit\n`,
      use: ['npm-install'],
      policies: [policy('network: { default_action: allow }')],
    });
    expect(result.layers.map((layer) => [layer.kind, layer.name, layer.source])).toEqual([
      ['job', 'unit', 'job.yaml'],
      ['profile', 'npm-install', 'npm-install.yaml'],
      ['policy', 'safe', 'safe.yaml'],
      ['policy', 'team', 'team.yaml'],
    ]);
    expect(result.layers.every((layer) => /^[0-9a-f]+$/.test(layer.sha256))).toBe(true);
  });
});

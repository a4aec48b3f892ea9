import { readFile, readdir } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { compileExecutesOnHost } from '../../src/policy/executes.ts';
import { formatHostRule, parseHostRule } from '../../src/policy/host-rule.ts';
import { formatPresets } from '../../src/policy/load.host.ts';
import { parsePathRule } from '../../src/policy/path-rule.ts';
import { compilePreset, compileSensitive } from '../../src/policy/presets.ts';
import { compose, shipped } from './policy-fixture.ts';

const POLICIES = fileURLToPath(new URL('../../policies/', import.meta.url));

describe('what is shipped', () => {
  it('is the policies and profiles that the documentation names', () => {
    expect(shipped.policies.map((layer) => layer.name)).toEqual(['ci', 'offline', 'review-only', 'safe', 'strict']);
    expect(shipped.profiles.map((layer) => layer.name)).toEqual([
      'aider',
      'cargo-build',
      'claude',
      'codex',
      'gemini',
      'git-remote',
      'go-build',
      'goose',
      'maven-build',
      'npm-install',
      'opencode',
      'openhands',
      'pip-install',
    ]);
  });

  it('is the same from the JSON of the build', async () => {
    expect(JSON.parse(await formatPresets(POLICIES))).toEqual(shipped);
  });

  it('bears the name of its file, and a description', async () => {
    const files = [...(await readdir(POLICIES)), ...(await readdir(`${POLICIES}profiles`))].filter((name) => name.endsWith('.yaml'));
    for (const layer of [...shipped.policies, ...shipped.profiles]) {
      expect(`${layer.name}.yaml`).toBe(layer.file);
      expect(layer.description).toBeTruthy();
      expect(files).toContain(layer.file);
    }
  });

  it('denies the network where the review points: safe.yaml:14', () => {
    expect(shipped.policies.find((layer) => layer.name === 'safe')?.permissions.network?.defaultAction).toEqual({ value: 'deny', line: 14 });
  });
});

describe('profiles', () => {
  it.each(shipped.profiles.map((layer) => [layer.name, layer] as const))(
    '%s: every host and file has a source with the date it was checked, and what was not tried says so',
    (_name, layer) => {
      const sources = layer.sources ?? [];
      expect(sources.length).toBeGreaterThan(0);
      for (const { value } of layer.permissions.network?.allow ?? []) {
        const source = sources.find((one) => one.what === value.host);
        expect(source, value.host).toMatchObject({ checked: expect.stringMatching(/^20\d\d-\d\d-\d\d$/) as unknown, untested: expect.any(String) as unknown });
      }
      for (const { value } of ['config', 'state', 'cache'].flatMap((key) => layer.permissions.fileRead?.[key as 'config' | 'state' | 'cache'] ?? [])) {
        expect(value).not.toMatch(/^[~/]|\.\./);
      }
    },
  );

  it('of package managers name no registry', () => {
    for (const name of ['npm-install', 'pip-install', 'cargo-build', 'go-build', 'git-remote', 'maven-build']) {
      const network = shipped.profiles.find((layer) => layer.name === name)?.permissions.network;
      expect([name, network?.allow ?? [], network?.allowFrom?.length]).toEqual([name, [], 1]);
    }
  });

  it('of agents are chosen by their program, and their login is in the list of sensitive paths', () => {
    for (const name of ['claude', 'codex', 'gemini', 'opencode', 'aider', 'openhands', 'goose']) {
      const layer = shipped.profiles.find((one) => one.name === name);
      expect(layer?.programs).toContain(name);
      expect(shipped.sensitive.host.some((entry) => entry.profile === name)).toBe(true);
    }
  });

  it.each(shipped.profiles.map((layer) => layer.name))('%s composes under --safe and --strict', async (name) => {
    for (const mode of ['safe', 'strict'] as const) {
      expect((await compose({ request: { mode }, use: [name] })).layers.map((layer) => layer.name)).toContain(name);
    }
  });
});

describe('the list of sensitive paths', () => {
  it('holds entries that parse, once each, with tool and source', () => {
    const paths = shipped.sensitive.host.map((entry) => entry.path);
    expect(new Set(paths).size).toBe(paths.length);
    for (const entry of [...shipped.sensitive.host, ...shipped.sensitive.workspace]) {
      expect(entry.tool && entry.source && entry.line > 0, entry.path).toBe(true);
      expect(parsePathRule(entry.path, { home: '/h', directory: '/w' }, { layer: 'built-in', name: 'x' }).kind).toBe('ok');
    }
  });

  it.each([
    '~/.ssh',
    '~/.gnupg',
    '~/.aws',
    '~/.azure',
    '~/.config/gcloud',
    '~/.kube',
    '~/.docker',
    '~/.config/containers',
    '~/.netrc',
    '~/.npmrc',
    '~/.yarnrc.yml',
    '~/.pypirc',
    '~/.git-credentials',
    '~/.config/gh',
    '~/.cargo/credentials*',
    '~/.m2/settings.xml',
    '~/.gradle/gradle.properties',
    '~/.gem/credentials',
    '~/.composer/auth.json',
    '~/.pgpass',
    '~/.my.cnf',
    '~/.terraform.d',
    '~/.vault-token',
    '~/.password-store',
    '~/.config/op',
    '~/.config/rclone',
    '~/.config/sops',
  ])('names %s', (path) => {
    expect(shipped.sensitive.host.map((entry) => entry.path)).toContain(path);
  });

  it('is refused with its line when a row lacks something', async () => {
    await expect(compileSensitive('version: 1\nhost:\n  - { path: "~/.x", tool: x }\n', 'sensitive.yaml', 'a')).rejects.toMatchObject({
      code: 'ERR_POLICY_FILE',
      message: 'sensitive.yaml:3:5: expected path, tool and source',
    });
  });
});

describe('what the host would run', () => {
  const executes = compileExecutesOnHost(shipped.executes);

  it.each([
    '.git/hooks/pre-commit',
    'vendor/lib/.git/hooks/post-checkout',
    '.GIT/HOOKS/pre-commit',
    '.git/config',
    '.git/config.worktree',
    '.git/info/attributes',
    '.git/modules/a/b/hooks/post-checkout',
    'sub/.git',
    '.gitattributes',
    'deep/.gitattributes',
    '.gitmodules',
    '.husky/pre-commit',
    '.pre-commit-config.yaml',
    'lefthook.yml',
    '.envrc',
    'a/.envrc',
    '.vscode/tasks.json',
    '.idea/workspace.xml',
    '.devcontainer/devcontainer.json',
    '.bashrc',
    '.github/workflows/ci.yml',
    '.gitlab-ci.yml',
    'package.json',
    'packages/a/package.json',
    '.npmrc',
    '.yarnrc.yml',
    '.yarn/releases/yarn.cjs',
    '.pnp.cjs',
    '.pnpmfile.cjs',
    '.mvn/wrapper/maven-wrapper.properties',
    'gradle/wrapper/gradle-wrapper.jar',
    '.bazelrc',
    'venv/lib/x.pth',
    'sitecustomize.py',
    '.gdbinit',
    '.exrc',
    '.claude/settings.json',
    '.mcp.json',
    '.cursor/mcp.json',
    '.codex/config.toml',
    '.gemini/settings.json',
    'job.yaml',
    '.proofrun/policy.yaml',
  ])('%s is in the table', (path) => {
    expect(executes(path)).toMatch(/^\S.+ \S/);
  });

  it.each([
    'src/a.ts',
    '.git/objects/ab/cdef',
    '.git/index',
    '.git/HEAD',
    '.git/refs/heads/main',
    'README.md',
    'config/hooks/a',
    'hooks/useThing.ts',
    'src/package.json.ts',
    'Makefile',
    'package-lock.json',
    '.gitignore',
    'docs/.vscode.md',
  ])('%s is not', (path) => {
    expect(executes(path)).toBeUndefined();
  });

  it('every line of the table is found, in any case, with letters that only folding makes equal, and below a directory where it counts anywhere', () => {
    for (const entry of shipped.executes.entries) {
      for (const pattern of entry.paths) {
        const path = pattern.replaceAll('**', 'some/where').replaceAll('*', 'any');
        const written = [path, path.toUpperCase(), path.replaceAll('k', '\u212a').replaceAll('s', '\u017f'), ...(entry.anywhere ? [`a/b/${path}`] : [])];
        for (const one of written) expect([one, executes(one)]).toEqual([one, expect.any(String)]);
      }
    }
  });

  it('of package.json only a change of scripts counts, where the texts are known', () => {
    const before = '{"name":"a","scripts":{"test":"x"},"dependencies":{}}';
    expect(executes('package.json', { contents: { before, after: '{"name":"a","scripts":{"test":"x"},"dependencies":{"b":"1"}}' } })).toBeUndefined();
    expect(executes('package.json', { contents: { before, after: '{"name":"a","scripts":{"test":"x","postinstall":"y"}}' } })).toMatch(/^npm runs/);
    expect(executes('package.json', { contents: { before: undefined, after: before } })).toMatch(/^npm runs/);
    expect(executes('package.json', { contents: { before, after: undefined } })).toBeUndefined();
    expect(executes('package.json', { contents: { before, after: '{ not json' } })).toMatch(/^npm runs/);
  });

  it('in the git directory of a linked worktree paths begin there', () => {
    expect(executes('hooks/pre-commit', { root: 'git' })).toMatch(/^git runs/);
    expect(executes('config', { root: 'git' })).toMatch(/^git obeys/);
    expect(executes('objects/ab/cd', { root: 'git' })).toBeUndefined();
    expect(executes('hooks/pre-commit')).toBeUndefined();
  });
});

describe('a policy or profile of the person', () => {
  it.each<readonly ['policy' | 'profile', string, RegExp]>([
    ['policy', 'version: 1\nuse: [x]\n', /^p\.yaml:2:1: unknown key `use`/],
    ['policy', 'version: 1\npermissions: { network: { allow_from: [npm-config] } }\n', /^p\.yaml:2:27: unknown key `allow_from` in permissions\.network/],
    ['policy', 'version: 1\npermissions: { network: { grants: some } }\n', /^p\.yaml:2:27: permissions\.network\.grants: expected none, named or any/],
    ['policy', 'version: 1\npermissions: { network: { allow: ["a b"] } }\n', /^p\.yaml:2:35: "a b" is no host/],
    ['profile', 'version: 1\npermissions: { network: { deny: [a.example] } }\n', /^p\.yaml:2:27: unknown key `deny` in permissions\.network/],
    ['profile', 'version: 1\npermissions: { resources: { memory: 1GiB } }\n', /^p\.yaml:2:16: unknown key `resources`/],
    ['profile', 'version: 1\nmode: safe\n', /^p\.yaml:2:1: unknown key `mode`/],
  ])('%s with a fault is refused with file and line', async (kind, text, message) => {
    await expect(compilePreset(text, 'p.yaml', kind, 'a')).rejects.toMatchObject({
      code: 'ERR_POLICY_FILE',
      message: expect.stringMatching(message) as unknown,
    });
  });

  it('is named by its file when it says no name', async () => {
    expect((await compilePreset('version: 1\n', '/etc/x/team.yaml', 'policy', 'a')).name).toBe('team');
  });
});

describe('every host that is shipped', () => {
  it('is written in its canonical form', () => {
    for (const layer of [...shipped.policies, ...shipped.profiles]) {
      for (const [effect, list] of [
        ['allow', layer.permissions.network?.allow],
        ['deny', layer.permissions.network?.deny],
      ] as const) {
        for (const { value } of list ?? []) {
          const parsed = parseHostRule(value, effect, { layer: 'built-in', name: layer.name });
          if (parsed.kind === 'error') throw new Error(parsed.message);
          if (parsed.rule.kind === 'name') expect(formatHostRule(parsed.rule, effect)).toBe(value.host);
        }
      }
    }
  });
});

describe('the schemas', () => {
  it.each(['job', 'policy', 'profile'])('%s is published and closed: no object admits keys that it does not name, but for x-', async (name) => {
    const schema = JSON.parse(await readFile(fileURLToPath(new URL(`../../schemas/${name}.schema.json`, import.meta.url)), 'utf8')) as unknown;
    const open: string[] = [];
    const walk = (value: unknown, path: string): void => {
      if (typeof value !== 'object' || value === null) return;
      if (!Array.isArray(value) && 'type' in value && (value.type === 'object' || (Array.isArray(value.type) && value.type.includes('object')))) {
        const closed = 'additionalProperties' in value && value.additionalProperties !== true;
        if (!closed) open.push(path);
      }
      for (const [key, item] of Object.entries(value)) walk(item, `${path}/${key}`);
    };
    walk(schema, '');
    expect(open).toEqual([]);
  });
});

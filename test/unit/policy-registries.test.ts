import { mkdir, mkdtemp, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { formatHostRule } from '../../src/policy/host-rule.ts';
import type { RegistrySource } from '../../src/policy/layer.ts';
import { resolveRegistries } from '../../src/policy/registries.host.ts';
import { cargoUrls, gitUrls, goUrls, mavenUrls, npmUrls, pipUrls, type ConfigFile } from '../../src/policy/registries/parsers.ts';
import { resolveUrls, type NamedUrl, type ResolvedRegistry } from '../../src/policy/registry.ts';
import { formatOrigin } from '../../src/policy/rules.ts';

const own = (text: string, file = '~/.npmrc'): ConfigFile => ({ file, text, fromWorkspace: false });
const project = (text: string, file = '/w/.npmrc'): ConfigFile => ({ file, text, fromWorkspace: true });

function hosts(source: RegistrySource, urls: readonly NamedUrl[]): readonly string[] {
  return resolveUrls(source, urls).hosts.map((rule) => `${formatHostRule(rule, 'allow')}${rule.private ? ' private' : ''}`);
}

describe('npm', () => {
  it.each<readonly [string, readonly ConfigFile[], Record<string, string>, readonly string[]]>([
    ['the default when nothing is configured', [], {}, ['registry.npmjs.org:443']],
    [
      'a mirror replaces the default, and may lie on a private address',
      [own('registry=https://npm.corp.example/repo/\n')],
      {},
      ['npm.corp.example:443 private'],
    ],
    [
      'scopes add to the default',
      [own('; comment\n@corp:registry = "https://npm.corp.example:8443/"\n')],
      {},
      ['npm.corp.example:8443 private', 'registry.npmjs.org:443'],
    ],
    ['variables are filled in', [own('registry=https://${NPM_HOST}/\n')], { NPM_HOST: 'n.example' }, ['n.example:443 private']],
    ['a value with an unset variable names nothing', [own('@a:registry=https://${NPM_HOST}/\n')], {}, ['registry.npmjs.org:443']],
    ['an environment variable', [], { npm_config_registry: 'http://n.example/' }, ['n.example:80 private']],
    ['logins are no registry', [own('//npm.corp.example/:_authToken=abc\n')], {}, ['registry.npmjs.org:443']],
    [
      'yarn',
      [own('npmRegistryServer: "https://y.example"\nnpmScopes:\n  corp:\n    npmRegistryServer: https://z.example\n', '~/.yarnrc.yml')],
      {},
      ['y.example:443 private', 'z.example:443 private', 'registry.npmjs.org:443'],
    ],
  ])('%s', (_what, files, env, expected) => {
    expect(hosts('npm-config', npmUrls(files, env))).toEqual(expected);
  });

  it('a file of the workspace opens nothing and keeps the default', () => {
    const resolved = resolveUrls('npm-config', npmUrls([project('registry=https://evil.example/\n')], {}));
    expect(resolved.hosts.map((rule) => rule.host)).toEqual(['registry.npmjs.org']);
    expect(resolved.onlyInWorkspace.map((rule) => [rule.host, rule.private, formatOrigin(rule.origin)])).toEqual([['evil.example', false, '/w/.npmrc:1']]);
  });

  it('a file of the workspace that names what the person configured is nothing new', () => {
    const resolved = resolveUrls(
      'npm-config',
      npmUrls([own('registry=https://npm.corp.example/\n'), project('registry=https://npm.corp.example/other/\n')], {}),
    );
    expect(resolved.onlyInWorkspace).toEqual([]);
  });

  it('a mirror on this machine is a port of the host', () => {
    const resolved = resolveUrls('npm-config', npmUrls([own('registry=http://localhost:4873/\n')], {}));
    expect([resolved.hosts, resolved.hostPorts.map((port) => port.value)]).toEqual([[], [4873]]);
    expect(resolveUrls('npm-config', npmUrls([project('registry=http://127.0.0.1:4873/\n')], {})).hostPorts).toEqual([]);
  });

  it('each host names file and line', () => {
    const resolved = resolveUrls('npm-config', npmUrls([own('\n# mirror\nregistry=https://npm.corp.example/\n')], {}));
    expect(resolved.hosts[0]?.origin).toEqual({ layer: 'profile', name: 'npm-config: registry', file: '~/.npmrc', line: 3 });
    expect(resolveUrls('npm-config', npmUrls([], {})).hosts[0]?.origin).toEqual({ layer: 'built-in', name: 'npm-config: the default of registry' });
  });
});

describe('pip', () => {
  it.each<readonly [string, readonly ConfigFile[], Record<string, string>, readonly string[]]>([
    ['the default', [], {}, ['pypi.org:443', 'files.pythonhosted.org:443']],
    ['an index, with a password that is left out', [own('[global]\nindex-url = https://u:p@pip.corp.example/simple\n')], {}, ['pip.corp.example:443 private']],
    [
      'further indexes, continued on the next line',
      [own('[install]\nextra-index-url =\n  https://a.example/simple\n  https://b.example/simple\n')],
      {},
      ['a.example:443 private', 'b.example:443 private', 'pypi.org:443', 'files.pythonhosted.org:443'],
    ],
    [
      'the default index by name brings the host of its files',
      [own('[global]\nindex-url = https://pypi.org/simple\n')],
      {},
      ['pypi.org:443 private', 'files.pythonhosted.org:443'],
    ],
    [
      'variables of pip and uv',
      [],
      { PIP_INDEX_URL: 'https://a.example/', UV_INDEX: 'corp=https://b.example/' },
      ['a.example:443 private', 'b.example:443 private'],
    ],
    ['directories are no hosts', [own('[global]\nfind-links = /opt/wheels file:///opt/more\n')], {}, ['pypi.org:443', 'files.pythonhosted.org:443']],
  ])('%s', (_what, files, env, expected) => {
    expect(hosts('pip-config', pipUrls(files, env))).toEqual(expected);
  });
});

describe('cargo', () => {
  it.each<readonly [string, readonly ConfigFile[], Record<string, string>, readonly string[]]>([
    ['the default', [], {}, ['index.crates.io:443', 'static.crates.io:443']],
    [
      'a replaced source',
      [own('[source.crates-io]\nreplace-with = "corp"\n[source.corp]\nregistry = "sparse+https://crates.corp.example/"\n')],
      {},
      ['crates.corp.example:443 private'],
    ],
    [
      'a further registry, as an inline table',
      [own('[registries]\ncorp = { index = "sparse+https://crates.corp.example:8443/", token = "x" }\n')],
      {},
      ['crates.corp.example:8443 private', 'index.crates.io:443', 'static.crates.io:443'],
    ],
    ['a variable', [], { CARGO_REGISTRIES_CORP_INDEX: 'sparse+https://c.example/' }, ['c.example:443 private', 'index.crates.io:443', 'static.crates.io:443']],
    [
      'a workspace can not take the default away',
      [project('[source.crates-io]\nreplace-with = "x"\n[source.x]\nregistry = "https://evil.example"\n')],
      {},
      ['index.crates.io:443', 'static.crates.io:443'],
    ],
  ])('%s', (_what, files, env, expected) => {
    expect(hosts('cargo-config', cargoUrls(files, env))).toEqual(expected);
  });
});

describe('go', () => {
  it.each<readonly [string, readonly ConfigFile[], Record<string, string>, readonly string[]]>([
    ['the default', [], {}, ['proxy.golang.org:443', 'sum.golang.org:443']],
    ['a list of proxies', [], { GOPROXY: 'https://a.example|https://b.example,direct', GOSUMDB: 'off' }, ['a.example:443 private', 'b.example:443 private']],
    [
      'the file of go env -w',
      [own('GOPROXY=https://a.example\nGOSUMDB=sum.golang.org https://sums.corp.example\n')],
      {},
      ['a.example:443 private', 'sums.corp.example:443 private'],
    ],
    [
      'a variable beats the file',
      [own('GOPROXY=https://a.example\n')],
      { GOPROXY: 'off', GOSUMDB: 'sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8' },
      ['sum.golang.org:443 private'],
    ],
  ])('%s', (_what, files, env, expected) => {
    expect(hosts('go-env', goUrls(files, env))).toEqual(expected);
  });
});

describe('maven', () => {
  it('reads mirrors and repositories, outside comments, with their lines', () => {
    const text =
      '<settings>\n<!--\n<mirror><url>https://old.example</url></mirror>\n-->\n<mirrors><mirror>\n<mirrorOf>*</mirrorOf>\n<url>https://${env.M}/m2</url>\n</mirror></mirrors>\n<pluginRepository><url>http://p.example:8081/x</url></pluginRepository></settings>';
    const resolved = resolveUrls('maven-settings', mavenUrls([own(text, '~/.m2/settings.xml')], { M: 'm.example' }));
    expect(resolved.hosts.map((rule) => [formatHostRule(rule, 'allow'), rule.origin.line])).toEqual([
      ['m.example:443', 7],
      ['p.example:8081', 9],
    ]);
  });

  it('keeps the central repository unless it is mirrored', () => {
    expect(hosts('maven-settings', mavenUrls([], {}))).toEqual(['repo.maven.apache.org:443']);
  });
});

describe('git', () => {
  it.each<readonly [string, string, readonly string[]]>([
    ['https', '[remote "origin"]\n\turl = https://git.example/a.git\n', ['git.example:443 private']],
    ['user@host:path', '[remote "origin"]\n\turl = git@git.example:a/b.git\n', ['git.example:22 private']],
    ['ssh with a port', '[remote "o"]\n\turl = ssh://git@git.example:2222/a.git\n', ['git.example:2222 private']],
    [
      'another address to push to',
      '[remote "o"]\n\turl = git://a.example/x\n\tpushurl = https://b.example/x\n',
      ['a.example:9418 private', 'b.example:443 private'],
    ],
    ['an address that is rewritten', '[remote "o"]\n\turl = gh:a/b\n[url "https://git.example/"]\n\tinsteadOf = gh:\n', ['git.example:443 private']],
    ['a directory', '[remote "o"]\n\turl = /srv/git/a.git\n', []],
    ['a relative directory', '[remote "o"]\n\turl = ../a\n', []],
    ['a setting of something else', '[branch "main"]\n\turl = https://git.example\n', []],
  ])('%s', (_what, text, expected) => {
    expect(hosts('git-remotes', gitUrls([own(text, '.git/config')]))).toEqual(expected);
  });
});

describe('on a host', () => {
  let top: string;
  beforeEach(async () => {
    top = await realpath(await mkdtemp(join(tmpdir(), 'proofrun-registries-')));
  });
  afterEach(async () => {
    await rm(top, { recursive: true, force: true });
  });

  async function put(path: string, text: string): Promise<void> {
    await mkdir(dirname(join(top, path)), { recursive: true });
    await writeFile(join(top, path), text);
  }

  async function resolve(source: RegistrySource, env: Record<string, string> = {}): Promise<ResolvedRegistry> {
    const [resolved] = await resolveRegistries([source], {
      home: join(top, 'home'),
      workspace: join(top, 'w'),
      cwd: join(top, 'w', 'a'),
      env: { npm_config_globalconfig: '/nonexistent', XDG_CONFIG_DIRS: '/nonexistent', MAVEN_HOME: '/nonexistent', ...env },
    });
    if (resolved === undefined) throw new Error('nothing resolved');
    return resolved;
  }

  it('reads the home, and what the workspace says apart, from the current directory up to its top', async () => {
    await put('home/.npmrc', 'registry=https://npm.corp.example/\n');
    await put('w/.npmrc', 'registry=https://top.example/\n');
    await put('w/a/.npmrc', '@a:registry=https://inner.example/\n');
    await put('.npmrc', '@b:registry=https://above.example/\n');
    const resolved = await resolve('npm-config');
    expect(resolved.hosts.map((rule) => [rule.host, formatOrigin(rule.origin)])).toEqual([['npm.corp.example', '~/.npmrc:1']]);
    expect(resolved.onlyInWorkspace.map((rule) => rule.host).sort()).toEqual(['inner.example', 'top.example']);
  });

  it.each<readonly [RegistrySource, string, string, Record<string, string>]>([
    ['pip-config', 'home/.config/pip/pip.conf', '[global]\nindex-url=https://x.example/\n', {}],
    ['pip-config', 'pip/named.conf', '[global]\nindex-url=https://x.example/\n', { PIP_CONFIG_FILE: 'pip/named.conf' }],
    ['cargo-config', 'home/.cargo/config.toml', '[source.crates-io]\nreplace-with="x"\n[source.x]\nregistry="sparse+https://x.example/"\n', {}],
    ['go-env', 'home/.config/go/env', 'GOPROXY=https://x.example\nGOSUMDB=off\n', {}],
    ['maven-settings', 'home/.m2/settings.xml', '<mirror><mirrorOf>central</mirrorOf><url>https://x.example</url></mirror>', {}],
    ['git-remotes', 'w/.git/config', '[remote "o"]\nurl=https://x.example/a\n', {}],
  ])('%s reads %s', async (source, path, text, env) => {
    await put(path, text);
    if (source === 'git-remotes') await put('w/.git/HEAD', 'ref: refs/heads/main\n');
    const absolute = Object.fromEntries(Object.entries(env).map(([name, value]) => [name, join(top, value)]));
    expect((await resolve(source, absolute)).hosts.map((rule) => rule.host)).toContain('x.example');
  });

  it('a virtual environment inside the workspace is the workspace', async () => {
    await put('w/.venv/pip.conf', '[global]\nindex-url=https://evil.example/\n');
    const resolved = await resolve('pip-config', { VIRTUAL_ENV: join(top, 'w', '.venv') });
    expect(resolved.hosts.map((rule) => rule.host)).not.toContain('evil.example');
    expect(resolved.onlyInWorkspace.map((rule) => rule.host)).toEqual(['evil.example']);
  });
});

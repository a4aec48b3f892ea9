import { open } from 'node:fs/promises';
import { constants } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { isWithin } from './path-rule.ts';
import type { RegistrySource } from './layer.ts';
import { resolveUrls, type NamedUrl, type ResolvedRegistry } from './registry.ts';
import { cargoUrls, gitUrls, goUrls, mavenUrls, npmUrls, pipUrls, type ConfigFile } from './registries/parsers.ts';
import { gitConfigFile } from './workspace.host.ts';

export interface RegistryCaller {
  readonly home: string;
  readonly workspace: string;
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
}

const MAX_BYTES = 1024 * 1024;

/**
 * Hosts from the tools' own configuration files and variables. Nothing is run: a tool that was asked could be told by the workspace what to answer. A file that
 * can't be read counts as not there, as it does for the tool.
 */
export async function resolveRegistries(sources: readonly RegistrySource[], caller: RegistryCaller): Promise<readonly ResolvedRegistry[]> {
  return await Promise.all(sources.map(async (source) => resolveUrls(source, await READERS[source](caller))));
}

const READERS: Readonly<Record<RegistrySource, (caller: RegistryCaller) => Promise<readonly NamedUrl[]>>> = {
  'npm-config': async (caller) => {
    const own = [
      caller.env['npm_config_userconfig'] ?? caller.env['NPM_CONFIG_USERCONFIG'] ?? join(caller.home, '.npmrc'),
      join(caller.home, '.yarnrc.yml'),
      join(caller.home, '.yarnrc'),
      join(configHome(caller), 'pnpm', 'rc'),
    ];
    const global = [
      caller.env['npm_config_globalconfig'] ?? caller.env['NPM_CONFIG_GLOBALCONFIG'] ?? join(dirname(dirname(process.execPath)), 'etc', 'npmrc'),
      '/etc/npmrc',
    ];
    const project = upwards(caller).flatMap((directory) => [join(directory, '.npmrc'), join(directory, '.yarnrc.yml'), join(directory, '.yarnrc')]);
    return npmUrls(await readConfigs(caller, [...own, ...global], project), caller.env);
  },
  'pip-config': async (caller) => {
    const named = caller.env['PIP_CONFIG_FILE'];
    const own = [
      ...(named === undefined ? [] : [named]),
      join(caller.home, '.pip', 'pip.conf'),
      join(configHome(caller), 'pip', 'pip.conf'),
      '/etc/pip.conf',
      ...(caller.env['XDG_CONFIG_DIRS'] ?? '/etc/xdg').split(':').map((directory) => join(directory, 'pip', 'pip.conf')),
    ];
    const environment = caller.env['VIRTUAL_ENV'];
    const site = environment === undefined ? [] : [join(environment, 'pip.conf')];
    return pipUrls(await readConfigs(caller, [...own, ...site], []), caller.env);
  },
  'cargo-config': async (caller) => {
    const cargoHome = caller.env['CARGO_HOME'] ?? join(caller.home, '.cargo');
    const project = upwards(caller).flatMap((directory) => [join(directory, '.cargo', 'config.toml'), join(directory, '.cargo', 'config')]);
    return cargoUrls(await readConfigs(caller, [join(cargoHome, 'config.toml'), join(cargoHome, 'config')], project), caller.env);
  },
  'go-env': async (caller) => goUrls(await readConfigs(caller, [caller.env['GOENV'] ?? join(configHome(caller), 'go', 'env')], []), caller.env),
  'maven-settings': async (caller) => {
    const maven = caller.env['MAVEN_HOME'] ?? caller.env['M2_HOME'];
    return mavenUrls(
      await readConfigs(
        caller,
        [join(caller.home, '.m2', 'settings.xml'), ...(maven === undefined ? [] : [join(maven, 'conf', 'settings.xml')]), '/etc/maven/settings.xml'],
        [],
      ),
      caller.env,
    );
  },
  'git-remotes': async (caller) => {
    const repository = gitConfigFile(caller.workspace);
    return gitUrls(
      await readConfigs(
        caller,
        [...(repository === undefined ? [] : [repository]), join(configHome(caller), 'git', 'config'), join(caller.home, '.gitconfig'), '/etc/gitconfig'],
        [],
      ),
    );
  },
};

function configHome(caller: RegistryCaller): string {
  return caller.env['XDG_CONFIG_HOME'] ?? join(caller.home, '.config');
}

/** The directories from the current one up to the workspace. */
function upwards(caller: RegistryCaller): readonly string[] {
  const directories: string[] = [];
  for (let directory = caller.cwd; isWithin(directory, caller.workspace); directory = dirname(directory)) {
    directories.push(directory);
    if (directory === caller.workspace) break;
  }
  return directories;
}

async function readConfigs(caller: RegistryCaller, own: readonly string[], project: readonly string[]): Promise<readonly ConfigFile[]> {
  const files = await Promise.all([...new Set([...own, ...project])].map(async (path) => ({ path, text: await readSmallFile(path) })));
  // A file inside the workspace is the workspace's, whichever list it came from; but not the repository's own git configuration.
  return files.flatMap(({ path, text }) =>
    text === undefined
      ? []
      : [{ file: shown(path, caller.home), text, fromWorkspace: isWithin(path, caller.workspace) && !isWithin(path, join(caller.workspace, '.git')) }],
  );
}

async function readSmallFile(path: string): Promise<string | undefined> {
  const handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch(() => undefined);
  if (handle === undefined) return undefined;
  try {
    const entry = await handle.stat();
    return entry.isFile() && entry.size <= MAX_BYTES ? await handle.readFile('utf8') : undefined;
  } finally {
    await handle.close();
  }
}

function shown(path: string, home: string): string {
  return isWithin(path, home) ? join('~', relative(home, path)) : path;
}

import type { NamedUrl } from '../registry.ts';
import { fillVariables, readSettings, type Setting } from './config-text.ts';

export interface ConfigFile {
  /** As named to a person. */
  readonly file: string;
  readonly text: string;
  readonly fromWorkspace: boolean;
}

type Environment = Readonly<Record<string, string>>;

/**
 * npm and pnpm: `registry` and `@scope:registry` of .npmrc files, `npm_config_registry`; Yarn: `npmRegistryServer` of .yarnrc.yml, `registry` of .yarnrc. Without a `registry`:
 * npm's default. Sources: npm config, registry; yarnpkg.com, Settings, npmRegistryServer.
 */
export function npmUrls(files: readonly ConfigFile[], env: Environment): readonly NamedUrl[] {
  const urls: NamedUrl[] = [];
  for (const file of files) {
    if (/\.yarnrc(?:\.yml)?$/.test(file.file)) {
      urls.push(...yarnUrls(file, env));
      continue;
    }
    for (const setting of readSettings(file.text)) {
      if (setting.key === 'registry' || /^@[^:]+:registry$/.test(setting.key)) urls.push(named(file, setting, fillVariables(setting.value, env)));
    }
  }
  for (const [name, value] of Object.entries(env)) {
    if (/^(?:npm_config_(?:@[^:]+:)?registry|YARN_NPM_REGISTRY_SERVER|COREPACK_NPM_REGISTRY)$/i.test(name) && value !== '') {
      urls.push({ url: value, setting: name });
    }
  }
  return withDefaults(urls, (url) => /^(?:registry|npm_config_registry)$/i.test(url.setting), [
    { url: 'https://registry.npmjs.org/', setting: 'registry', isDefault: true },
  ]);
}

function yarnUrls(file: ConfigFile, env: Environment): readonly NamedUrl[] {
  return file.text.split(/\r?\n/).flatMap((line, index) => {
    const match = /^\s*"?(npmRegistryServer|registry)"?\s*:?\s+["']?([^"'\s#]+)/.exec(line);
    return match === null
      ? []
      : [
          {
            url: fillVariables(match[2] ?? '', env),
            setting: match[1] ?? '',
            file: file.file,
            line: index + 1,
            ...(file.fromWorkspace ? { fromWorkspace: true } : {}),
          },
        ];
  });
}

/** pip: `index-url`, `extra-index-url`, `find-links` of any section, the same as PIP_ variables; uv: UV_ variables. Sources: pip.pypa.io, Configuration; docs.astral.sh, uv, Environment variables. */
export function pipUrls(files: readonly ConfigFile[], env: Environment): readonly NamedUrl[] {
  const urls: NamedUrl[] = [];
  for (const file of files) {
    for (const setting of readSettings(file.text)) {
      if (!/^(?:extra-)?index-url$|^find-links$/.test(setting.key)) continue;
      for (const url of words(fillVariables(setting.value, env))) urls.push(named(file, setting, url));
    }
  }
  for (const name of [
    'PIP_INDEX_URL',
    'PIP_EXTRA_INDEX_URL',
    'PIP_FIND_LINKS',
    'UV_INDEX_URL',
    'UV_DEFAULT_INDEX',
    'UV_INDEX',
    'UV_EXTRA_INDEX_URL',
    'UV_FIND_LINKS',
  ]) {
    for (const url of words(env[name] ?? '')) urls.push({ url: url.replace(/^[A-Za-z0-9_-]+=(?=[a-z]+:)/, ''), setting: name });
  }
  const defaults: readonly NamedUrl[] = [
    { url: 'https://pypi.org/simple/', setting: 'index-url', isDefault: true },
    { url: 'https://files.pythonhosted.org/', setting: 'index-url', isDefault: true },
  ];
  // The index of pypi.org hands out files from another host, wherever it is named.
  const files_ = urls.some((url) => url.fromWorkspace !== true && /\/\/(?:[^/@]*@)?pypi\.org(?:[:/]|$)/.test(url.url)) ? defaults.slice(1) : [];
  return withDefaults(
    [...urls, ...files_],
    (url) => url.isDefault !== true && /^(?:index-url|PIP_INDEX_URL|UV_INDEX_URL|UV_DEFAULT_INDEX)$/.test(url.setting),
    defaults,
  );
}

/** cargo: the source that replaces crates-io, `[registries]`, CARGO_REGISTRIES_ variables. Source: The Cargo Book, Configuration, Source Replacement. */
export function cargoUrls(files: readonly ConfigFile[], env: Environment): readonly NamedUrl[] {
  const urls: NamedUrl[] = [];
  let replaced = false;
  for (const file of files) {
    for (const setting of readSettings(file.text)) {
      const section = setting.section.replaceAll(/["']/g, '');
      if (section === 'source.crates-io' && setting.key === 'replace-with' && !file.fromWorkspace) replaced = true;
      const isSource = section.startsWith('source.') && /^(?:registry|git)$/.test(setting.key);
      const isRegistry =
        (section.startsWith('registries.') && setting.key === 'index') ||
        /^registries\.[^.]+\.index$/.test(setting.key) ||
        /^source\.[^.]+\.registry$/.test(setting.key);
      if (isSource || isRegistry) urls.push(named(file, setting, setting.value));
    }
  }
  for (const [name, value] of Object.entries(env)) {
    if (/^CARGO_REGISTRIES_.+_INDEX$/.test(name)) urls.push({ url: value, setting: name });
  }
  const defaults: readonly NamedUrl[] = [
    { url: 'sparse+https://index.crates.io/', setting: 'source.crates-io', isDefault: true },
    { url: 'https://static.crates.io/', setting: 'source.crates-io', isDefault: true },
  ];
  return replaced ? urls : [...urls, ...defaults];
}

/** go: GOPROXY and GOSUMDB, from variables, else from the file of `go env -w`. Source: Go Modules Reference, Environment variables. */
export function goUrls(files: readonly ConfigFile[], env: Environment): readonly NamedUrl[] {
  const lookUp = (name: string): NamedUrl | undefined => {
    const value = env[name];
    if (value !== undefined && value !== '') return { url: value, setting: name };
    for (const file of files) {
      const setting = readSettings(file.text).find((one) => one.key === name && one.value !== '');
      if (setting !== undefined) return named(file, setting, setting.value);
    }
    return undefined;
  };
  const proxy = lookUp('GOPROXY') ?? { url: 'https://proxy.golang.org,direct', setting: 'GOPROXY', isDefault: true };
  const sums = lookUp('GOSUMDB') ?? { url: 'sum.golang.org', setting: 'GOSUMDB', isDefault: true };
  const proxies = proxy.url
    .split(/[,|]/)
    .map((url) => url.trim())
    .filter((url) => url !== 'direct' && url !== 'off' && url !== '');
  // `name+key url`, or a name that is a host.
  const [database = '', address] = sums.url.trim().split(/\s+/);
  const sumUrl = address ?? (database === 'off' || database === '' ? undefined : `https://${database.replace(/\+.*$/, '')}`);
  return [...proxies.map((url) => ({ ...proxy, url })), ...(sumUrl === undefined ? [] : [{ ...sums, url: sumUrl }])];
}

/** Maven: the addresses of mirrors, repositories and plugin repositories in settings.xml. Source: maven.apache.org, Settings Reference. */
export function mavenUrls(files: readonly ConfigFile[], env: Environment): readonly NamedUrl[] {
  const urls: NamedUrl[] = [];
  let mirrored = false;
  for (const file of files) {
    // Comments keep their line breaks, so that the lines that follow keep their numbers.
    const text = file.text.replaceAll(/<!--[\s\S]*?-->/g, (comment) => comment.replaceAll(/[^\n]/g, ' '));
    for (const block of text.matchAll(/<(mirror|repository|pluginRepository)>([\s\S]*?)<\/\1>/g)) {
      const [, kind = '', body = ''] = block;
      const url = /<url>\s*([^<]*?)\s*<\/url>/.exec(body);
      if (url === null) continue;
      const line = text.slice(0, block.index + block[0].indexOf(url[0])).split('\n').length;
      urls.push({
        url: (url[1] ?? '').replaceAll(/\$\{env\.([A-Za-z0-9_]+)\}/g, (_all, name: string) => env[name] ?? ''),
        setting: kind,
        file: file.file,
        line,
        ...(file.fromWorkspace ? { fromWorkspace: true } : {}),
      });
      if (kind === 'mirror' && !file.fromWorkspace && /<mirrorOf>[^<]*(?:\*|central)[^<]*<\/mirrorOf>/.test(body)) mirrored = true;
    }
  }
  return mirrored ? urls : [...urls, { url: 'https://repo.maven.apache.org/maven2', setting: 'central', isDefault: true }];
}

/** git: `url` and `pushurl` of remotes, after `url.<base>.insteadOf`. Source: git-config(1). The files: the repository's, then the person's. */
export function gitUrls(files: readonly ConfigFile[]): readonly NamedUrl[] {
  const all = files.flatMap((file) => readSettings(file.text).map((setting) => ({ file, setting })));
  const rewrites = all.flatMap(({ setting }) => {
    const base = /^url\s+"(.*)"$/.exec(setting.section)?.[1];
    return base !== undefined && /^(?:push)?insteadof$/i.test(setting.key) ? [{ base, from: setting.value }] : [];
  });
  return all
    .filter(({ setting }) => /^remote\s+"/.test(setting.section) && /^(?:push)?url$/i.test(setting.key))
    .map(({ file, setting }) => {
      const rewrite = rewrites.filter((one) => setting.value.startsWith(one.from)).sort((a, b) => b.from.length - a.from.length)[0];
      return named({ ...file, fromWorkspace: false }, setting, rewrite === undefined ? setting.value : rewrite.base + setting.value.slice(rewrite.from.length));
    });
}

function named(file: ConfigFile, setting: Setting, url: string): NamedUrl {
  return { url, setting: setting.key, file: file.file, line: setting.line, ...(file.fromWorkspace ? { fromWorkspace: true } : {}) };
}

/** The tool's default holds unless the person's own configuration replaces it. */
function withDefaults(urls: readonly NamedUrl[], replaces: (url: NamedUrl) => boolean, defaults: readonly NamedUrl[]): readonly NamedUrl[] {
  return urls.some((url) => url.fromWorkspace !== true && replaces(url)) ? urls : [...urls, ...defaults];
}

function words(text: string): readonly string[] {
  return text.split(/\s+/).filter((word) => word !== '');
}

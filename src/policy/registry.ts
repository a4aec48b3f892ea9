import type { HostRule, Origin } from '../core/job.ts';
import { parseHostRule } from './host-rule.ts';
import type { RegistrySource } from './layer.ts';

/** An address that a tool's configuration names. */
export interface NamedUrl {
  /** As written; variables already filled in. */
  readonly url: string;
  readonly file?: string;
  /** 1-based. */
  readonly line?: number;
  /** The setting or variable: `registry`, `PIP_INDEX_URL`. */
  readonly setting: string;
  /** It stands in a file of the workspace: whoever wrote the workspace chose it, so it is shown and grants nothing. */
  readonly fromWorkspace?: boolean;
  /** The tool's documented default, which holds when nothing is configured. */
  readonly isDefault?: boolean;
}

/** Hosts that a tool's own configuration names; each rule's origin is the file and line, the variable, or the tool's documented default. */
export interface ResolvedRegistry {
  readonly source: RegistrySource;
  readonly hosts: readonly HostRule[];
  /** Loopback ports of the host: a mirror on this machine. */
  readonly hostPorts: readonly { readonly value: number; readonly origin: Origin }[];
  /** Hosts that only the workspace names: `--allow-net` opens them. */
  readonly onlyInWorkspace: readonly HostRule[];
}

const PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443, 'ssh:': 22, 'git:': 9418, 'git+ssh:': 22, 'ssh+git:': 22 };

/** Turns addresses into rules. What is no network address (`file:`, `direct`, an empty value) is left out. */
export function resolveUrls(source: RegistrySource, urls: readonly NamedUrl[]): ResolvedRegistry {
  const hosts: HostRule[] = [];
  const hostPorts: { value: number; origin: Origin }[] = [];
  const workspaceHosts: HostRule[] = [];
  for (const named of urls) {
    const place = hostAndPort(named.url);
    if (place === undefined) continue;
    const origin = originOf(source, named);
    if (isLoopback(place.host)) {
      if (named.fromWorkspace !== true) hostPorts.push({ value: place.port, origin });
      continue;
    }
    // The person's own configuration may name a mirror on a private address. A tool's default never does.
    const parsed = parseHostRule({ host: place.host, ports: [place.port], private: named.isDefault !== true && named.fromWorkspace !== true }, 'allow', origin);
    if (parsed.kind === 'error') continue;
    (named.fromWorkspace === true ? workspaceHosts : hosts).push(parsed.rule);
  }
  const known = (rule: HostRule): boolean => hosts.some((one) => one.host === rule.host && rule.ports?.every((port) => one.ports?.includes(port)) === true);
  return { source, hosts: uniqueHosts(hosts), hostPorts, onlyInWorkspace: uniqueHosts(workspaceHosts.filter((rule) => !known(rule))) };
}

/** Host and port of a URL or of git's `user@host:path` form. */
function hostAndPort(text: string): { readonly host: string; readonly port: number } | undefined {
  const url = text.trim().replace(/^(?:sparse|registry)\+/, '');
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(url)?.[1]?.toLowerCase();
  if (scheme === undefined) {
    const scp = /^(?:[^/@:\s]+@)?([^/@:\s]+):(?!\/\/)[^\\]/.exec(url);
    return scp?.[1] === undefined || /^[a-z]$/i.test(scp[1]) ? undefined : { host: scp[1], port: 22 };
  }
  const fallback = PORTS[`${scheme}:`];
  if (fallback === undefined) return undefined;
  // Read as https: the URL parser knows hosts and ports of special schemes only.
  const parsed = parseUrl(url.replace(/^[^:]+:/, 'https:'));
  if (parsed === undefined || parsed.hostname === '') return undefined;
  const written = /^https:\/\/(?:[^/?#@]*@)?(?:\[[^\]]*\]|[^/?#:]*):([0-9]+)/i.exec(url.replace(/^[^:]+:/, 'https:'))?.[1];
  return { host: parsed.hostname.replace(/^\[(.*)\]$/, '$1'), port: written === undefined ? fallback : Number(written) };
}

function parseUrl(text: string): URL | undefined {
  try {
    return new URL(text);
  } catch {
    return undefined;
  }
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host.endsWith('.localhost') || host.startsWith('127.') || host === '::1';
}

function originOf(source: RegistrySource, named: NamedUrl): Origin {
  if (named.isDefault === true) return { layer: 'built-in', name: `${source}: the default of ${named.setting}` };
  return {
    layer: 'profile',
    name: `${source}: ${named.setting}`,
    ...(named.file === undefined ? {} : { file: named.file }),
    ...(named.line === undefined ? {} : { line: named.line }),
  };
}

function uniqueHosts(rules: readonly HostRule[]): readonly HostRule[] {
  return rules.filter((rule, index) => rules.findIndex((other) => other.host === rule.host && String(other.ports) === String(rule.ports)) === index);
}

import type { Dimension } from '../core/dimension.ts';
import type { EffectiveJob, Origin } from '../core/job.ts';
import { formatDuration, formatSize } from '../core/units.ts';
import type { Explanation } from './explain.ts';
import { formatHostRule } from './host-rule.ts';
import { LIMIT_FIELDS, LIMIT_KEYS } from './layer.ts';

/** The whole of a job, in the order of the dimensions: defaults, then rules, each with its line. */
export function explainJob(job: EffectiveJob): readonly Explanation[] {
  const { fileRead, fileWrite, network, subprocess, credentials, resources } = job.permissions;
  const paths = (
    dimension: Dimension,
    outcome: Explanation['outcome'],
    reason: string,
    rules: readonly { readonly pattern: string; readonly origin: Origin }[],
  ): readonly Explanation[] => rules.map((rule) => ({ dimension, subject: rule.pattern, outcome, reason, origin: rule.origin }));
  const rows: readonly (Explanation | readonly Explanation[])[] = [
    {
      dimension: 'file_read',
      subject: '*',
      outcome: fileRead.root === 'host' ? 'allowed' : 'denied',
      reason: fileRead.root === 'host' ? 'nothing restricts reading' : 'all but the workspace, the system, the toolchain and what is named',
      ...defaultOf(fileRead.defaultOrigin, 'deny'),
    },
    paths('file_read', 'allowed', 'can be read', fileRead.allow),
    paths('file_read', 'allowed', 'a copy lies in the private home', fileRead.homeCopies ?? []),
    (fileRead.states ?? []).map(({ path, profile, origin }) => ({
      dimension: 'file_write' as const,
      subject: path,
      outcome: 'allowed' as const,
      reason: `kept by us for ${profile} in this workspace, not the real one`,
      origin,
    })),
    (credentials.logins ?? []).map(({ path, writeBack, origin }) => ({
      dimension: 'credentials' as const,
      subject: path,
      outcome: 'allowed' as const,
      reason: writeBack ? 'a copy of this login lies in the private home; a refreshed one is written back' : 'a copy of this login lies in the private home',
      origin,
    })),
    paths('file_read', 'denied', 'reads as absent', fileRead.deny),
    paths('file_read', 'denied', 'reads as absent', fileRead.secretNames?.always ?? []),
    paths('file_read', 'depends', 'reads as absent when it holds a private key', fileRead.secretNames?.privateKeys ?? []),
    fileWrite.stage.map((path) => ({ dimension: 'file_write' as const, subject: path, outcome: 'staged' as const, reason: 'changes are staged' })),
    paths('file_write', 'allowed', 'written without a stage', fileWrite.direct),
    paths('file_write', 'denied', 'never written', fileWrite.deny),
    {
      dimension: 'network',
      subject: '*',
      outcome: network.defaultAllow ? 'allowed' : 'denied',
      reason: network.defaultAllow ? 'all but what a rule denies' : 'all but what a rule allows',
      ...defaultOf(network.defaultOrigin, network.defaultAllow ? 'allow' : 'deny'),
    },
    network.allow.map((rule) => ({
      dimension: 'network' as const,
      subject: formatHostRule(rule, 'allow'),
      outcome: 'allowed' as const,
      reason: rule.private ? 'can be reached, on private addresses too' : 'can be reached',
      origin: rule.origin,
    })),
    network.deny.map((rule) => ({
      dimension: 'network' as const,
      subject: formatHostRule(rule, 'deny'),
      outcome: 'denied' as const,
      reason: 'never reached',
      origin: rule.origin,
    })),
    network.hostPorts.map((port) => ({
      dimension: 'network' as const,
      subject: `127.0.0.1:${String(port)}`,
      outcome: 'allowed' as const,
      reason: 'a port of this machine',
    })),
    {
      dimension: 'subprocess',
      subject: '*',
      outcome: subprocess.kind === 'contained' ? 'allowed' : 'denied',
      reason:
        subprocess.kind === 'contained'
          ? 'any program, contained'
          : subprocess.kind === 'none'
            ? 'all but the command itself'
            : `all but ${subprocess.allow.join(', ')}`,
      ...defaultOf(subprocess.defaultOrigin, subprocess.kind === 'contained' ? 'allow' : 'deny'),
    },
    {
      dimension: 'credentials',
      subject: '*',
      outcome: credentials.defaultOrigin === undefined ? 'allowed' : 'denied',
      reason:
        credentials.defaultOrigin === undefined
          ? 'the whole environment passes'
          : `${String(Object.keys(credentials.environment).length)} variables pass, no others`,
      ...defaultOf(credentials.defaultOrigin, 'deny'),
    },
    credentials.visible.map((name) => ({
      dimension: 'credentials' as const,
      subject: name,
      outcome: 'allowed' as const,
      reason: 'looks like a credential, and the job sees it',
    })),
    LIMIT_KEYS.flatMap((key) => {
      const value = resources.limits[LIMIT_FIELDS[key]];
      const origin = resources.origins?.[LIMIT_FIELDS[key]];
      return value === undefined
        ? []
        : [
            {
              dimension: 'resources' as const,
              subject: key,
              outcome: 'allowed' as const,
              reason: `at most ${limitText(key, value)}`,
              ...(origin === undefined ? {} : { origin }),
            },
          ];
    }),
  ];
  return rows.flat();
}

function limitText(key: keyof typeof LIMIT_FIELDS, value: number): string {
  switch (key) {
    case 'wall_time':
    case 'cpu_time':
      return formatDuration(value);
    case 'cpus':
    case 'processes':
    case 'open_files':
      return String(value);
    default:
      return formatSize(value);
  }
}

function defaultOf(origin: Origin | undefined, action: 'allow' | 'deny'): Pick<Explanation, 'origin' | 'rule'> {
  return origin === undefined ? {} : { origin, rule: origin.name === '--no-net' ? '--no-net' : `default_action: ${action}` };
}

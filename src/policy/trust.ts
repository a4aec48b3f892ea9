import { canonicalJson, canonicalSha256 } from '../core/canonical-json.ts';
import type { JobFile } from './job-file.ts';
import type { PermissionSections, Sited } from './layer.ts';

/** One thing that a job file asks for, as it is shown to the person. */
export interface AskedGrant {
  readonly what: string;
  /** 1-based. */
  readonly line: number;
}

export interface TrustQuestion {
  /** `sha256:` and 64 hex digits: over everything that widens what a job may do. */
  readonly digest: string;
  readonly grants: readonly AskedGrant[];
}

/** A profile that the job file names and that didn't come with Proofrun: its content is part of what is accepted. */
export interface NamedProfile {
  readonly name: string;
  readonly sha256: string;
  readonly shipped: boolean;
}

/**
 * What accepting a job file means. Undefined when it grants nothing: then there is nothing to accept. Denials count too, since taking one away widens. The command,
 * the name and `x-*` keys don't: what runs is bounded by the grants.
 */
export function trustQuestion(job: JobFile, profiles: readonly NamedProfile[]): TrustQuestion | undefined {
  const grants = askedGrants(job);
  if (grants.length === 0) return undefined;
  const subject = {
    contract: 1,
    mode: job.mode?.value ?? null,
    workspace: job.workspace?.value ?? null,
    cwd: job.cwd?.value ?? null,
    env: job.env?.value ?? {},
    use: sorted(job.use.map((one) => one.value)),
    profiles: sorted(profiles.filter((profile) => !profile.shipped).map((profile) => `${profile.name} ${profile.sha256}`)),
    policies: sorted(job.policies.map((one) => one.value)),
    executor: job.executor?.value ?? null,
    image: job.image?.value ?? null,
    ...(job.runtime === undefined ? {} : { runtime: job.runtime.value }),
    degrade: sorted(job.degrade.map((one) => one.value)),
    permissions: withoutLines(job.permissions),
  };
  return { digest: `sha256:${canonicalSha256(subject)}`, grants };
}

function askedGrants(job: JobFile): readonly AskedGrant[] {
  const { fileRead, fileWrite, network, subprocess, credentials, models, tools } = job.permissions;
  const each = <T>(list: readonly Sited<T>[] | undefined, words: (value: T) => string): readonly AskedGrant[] =>
    (list ?? []).map(({ value, line }) => ({ what: words(value), line }));
  const blanket = (section: { readonly defaultAction?: Sited<string> } | undefined, what: string): readonly AskedGrant[] =>
    section?.defaultAction?.value === 'allow' ? [{ what, line: section.defaultAction.line }] : [];
  return [
    ...each(job.use, (name) => `use the profile ${name}`),
    ...(job.workspace === undefined ? [] : [{ what: `stage the workspace ${job.workspace.value}`, line: job.workspace.line }]),
    ...(job.executor === undefined || job.executor.value === 'auto' ? [] : [{ what: `run on the ${job.executor.value} executor`, line: job.executor.line }]),
    ...(job.image === undefined ? [] : [{ what: `run in the image ${job.image.value}`, line: job.image.line }]),
    ...(job.runtime === undefined ? [] : [{ what: `run under the container runtime ${job.runtime.value}`, line: job.runtime.line }]),
    ...each(job.degrade, (dimension) => `do without ${dimension} where it is missing`),
    ...each(fileRead?.allow, (path) => `read ${path}`),
    ...blanket(fileRead, 'read by default'),
    ...each(fileWrite?.direct, (path) => `write ${path} without a stage`),
    ...each(
      network?.allow,
      (host) =>
        `connect to ${host.host}${host.ports === undefined ? '' : ` on ${host.ports.join(', ')}`}${host.private === true ? ', private addresses included' : ''}`,
    ),
    ...blanket(network, 'connect to every host'),
    ...each(network?.hostPorts, (port) => `connect to port ${String(port)} of this machine`),
    ...each(network?.publish, (port) => `listen on port ${String(port.hostPort)} of this machine`),
    ...blanket(subprocess, 'start any program'),
    ...each(credentials?.passEnv, (name) => `see the variable ${name}`),
    ...blanket(credentials, 'see every variable'),
    ...each(
      credentials?.secrets,
      (secret) => `use the secret ${secret.name} from ${secret.from ?? 'nowhere'}${secret.inject === undefined ? '' : `, at ${secret.inject.host} only`}`,
    ),
    ...each(credentials?.agentSockets, (socket) => `use the socket of ${socket}`),
    ...(models === undefined ? [] : [{ what: 'call models', line: models.line }]),
    ...(tools === undefined ? [] : [{ what: 'call tools', line: tools.line }]),
  ];
}

/** The sections with the lines taken out and lists sorted: moving a rule or adding a comment isn't a new question. */
function withoutLines(value: PermissionSections): unknown {
  return strip(value);
}

function strip(value: unknown): unknown {
  if (Array.isArray(value)) return sorted(value.map(strip).map(canonicalJson));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).flatMap(([key, item]) => (key === 'line' || key === 'stageLine' ? [] : [[key, strip(item)] as const])));
}

function sorted(list: readonly string[]): readonly string[] {
  return [...list].sort();
}

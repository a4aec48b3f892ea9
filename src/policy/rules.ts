import { absoluteSource } from './caller-paths.ts';
import type { HostRule, Origin, PathRule } from '../core/job.ts';
import {
  LIMIT_FIELDS,
  type Action,
  type AgentSocket,
  type FileReadSection,
  type FileWriteSection,
  type GrantScope,
  type LimitField,
  type NetworkSection,
  type PermissionSections,
  type RegistrySource,
  type SectionHead,
  type Sited,
} from './layer.ts';
import { parseHostRule } from './host-rule.ts';
import { ProofrunError } from '../core/errors.ts';
import { parsePathRule, type PathBase } from './path-rule.ts';
import type { SecretGrant } from '../core/job.ts';

/** A value with the place where it was written. */
export interface Stated<T> {
  readonly value: T;
  readonly origin: Origin;
}

export interface RuleHead {
  readonly origin: Origin;
  /** As written; `deny` when the section has rules and says nothing; undefined when it has no rules either. */
  readonly defaultAction: Stated<Action> | undefined;
  /** The default was written, not implied. */
  readonly defaultStated: boolean;
  /** Of a policy. */
  readonly grants: GrantScope;
}

export interface ReadRules extends RuleHead {
  readonly allow: readonly PathRule[];
  readonly deny: readonly PathRule[];
  readonly config: readonly PathRule[];
  readonly state: readonly PathRule[];
  readonly cache: readonly PathRule[];
}

export interface WriteRules extends RuleHead {
  /** Undefined: nothing said. */
  readonly stage: { readonly origin: Origin; readonly paths: readonly PathRule[] } | undefined;
  readonly direct: readonly PathRule[];
  readonly deny: readonly PathRule[];
}

export interface NetworkRules extends RuleHead {
  readonly allow: readonly HostRule[];
  readonly deny: readonly HostRule[];
  readonly allowFrom: readonly Stated<RegistrySource>[];
  readonly hostPorts: readonly Stated<number>[];
  readonly publish: readonly Stated<{ readonly hostPort: number; readonly jobPort: number }>[];
  readonly private: Stated<boolean> | undefined;
  /** `--no-net`. */
  readonly nothing: Origin | undefined;
}

export interface ProgramRules extends RuleHead {
  readonly allow: readonly Stated<string>[];
}

export interface CredentialRules extends RuleHead {
  readonly passEnv: readonly Stated<string>[];
  readonly secrets: readonly SecretGrant[];
  /** Of a policy: names that a job may use. */
  readonly secretNames: readonly string[];
  readonly agentSockets: readonly Stated<AgentSocket>[];
  readonly login: readonly LoginRule[];
  /** Set: the job's git is to have the caller's name. */
  readonly gitIdentity: Origin | undefined;
}

export interface LoginRule {
  readonly rule: PathRule;
  readonly writeBack: boolean;
  readonly values: readonly string[];
  readonly newest?: string;
}

/** One layer's rules, absolute and canonical, ready to be joined or intersected. */
export interface RuleLayer {
  readonly layer: Origin['layer'];
  readonly name: string;
  readonly fileRead?: ReadRules;
  readonly fileWrite?: WriteRules;
  readonly network?: NetworkRules;
  readonly subprocess?: ProgramRules;
  readonly credentials?: CredentialRules;
  readonly models?: Origin;
  readonly tools?: Origin;
  readonly limits: readonly (Stated<number> & { readonly field: LimitField })[];
}

export interface LayerSite {
  readonly layer: Origin['layer'];
  readonly name: string;
  readonly file: string | undefined;
  readonly base: PathBase;
}

/** Turns the sections of a file into rules. Throws ERR_JOB_FILE or ERR_POLICY_FILE, with file and line, for a path or host that can't be read. */
export function compileRules(sections: PermissionSections, site: LayerSite): RuleLayer {
  const at = (line: number): Origin => ({
    layer: site.layer,
    name: site.name,
    ...(site.file === undefined ? {} : { file: site.file }),
    ...(line > 0 ? { line } : {}),
  });
  const fail = (origin: Origin, message: string, hint?: string): never => {
    throw new ProofrunError(site.layer === 'job' ? 'ERR_JOB_FILE' : site.layer === 'flag' ? 'ERR_USAGE' : 'ERR_POLICY_FILE', {
      message: `${formatOrigin(origin)}: ${message}`,
      ...(hint === undefined ? {} : { hint }),
    });
  };
  const paths = (list: readonly Sited<string>[] | undefined, directory = site.base.directory): readonly PathRule[] =>
    (list ?? []).map(({ value, line }) => {
      const parsed = parsePathRule(value, { home: site.base.home, directory }, at(line));
      return parsed.kind === 'ok' ? parsed.rule : fail(at(line), parsed.message);
    });
  const hosts = (list: NetworkSection['allow'], effect: 'allow' | 'deny'): readonly HostRule[] =>
    (list ?? []).map(({ value, line }) => {
      const parsed = parseHostRule(value, effect, at(line));
      return parsed.kind === 'ok' ? parsed.rule : fail(at(line), parsed.message, parsed.hint);
    });
  const stated = <T>(list: readonly Sited<T>[] | undefined): readonly Stated<T>[] => (list ?? []).map(({ value, line }) => ({ value, origin: at(line) }));
  const head = (section: SectionHead, hasRules: boolean): RuleHead => ({
    origin: at(section.line),
    // A profile only grants: it has no default.
    defaultAction:
      site.layer === 'profile'
        ? undefined
        : section.defaultAction !== undefined
          ? { value: section.defaultAction.value, origin: at(section.defaultAction.line) }
          : hasRules
            ? { value: 'deny', origin: at(section.line) }
            : undefined,
    defaultStated: section.defaultAction !== undefined,
    grants: section.grants?.value ?? 'none',
  });
  const { fileRead, fileWrite, network, subprocess, credentials, resources, models, tools } = sections;
  const secrets = credentials?.secrets ?? [];
  return {
    layer: site.layer,
    name: site.name,
    ...(fileRead === undefined
      ? {}
      : {
          fileRead: {
            ...head(fileRead, hasReadRules(fileRead)),
            allow: paths(fileRead.allow),
            deny: paths(fileRead.deny),
            config: paths(fileRead.config, site.base.home),
            state: paths(fileRead.state, site.base.home),
            cache: paths(fileRead.cache, site.base.home),
          },
        }),
    ...(fileWrite === undefined
      ? {}
      : {
          fileWrite: {
            ...head(fileWrite, hasWriteRules(fileWrite)),
            stage: fileWrite.stage === undefined ? undefined : { origin: at(fileWrite.stageLine ?? fileWrite.line), paths: paths(fileWrite.stage) },
            direct: paths(fileWrite.direct),
            deny: paths(fileWrite.deny),
          },
        }),
    ...(network === undefined
      ? {}
      : {
          network: {
            ...head(network, hasNetworkRules(network)),
            allow: hosts(network.allow, 'allow'),
            deny: hosts(network.deny, 'deny'),
            allowFrom: stated(network.allowFrom),
            hostPorts: stated(network.hostPorts),
            publish: stated(network.publish),
            private: network.private === undefined ? undefined : { value: network.private.value, origin: at(network.private.line) },
            nothing: undefined,
          },
        }),
    ...(subprocess === undefined ? {} : { subprocess: { ...head(subprocess, subprocess.allow !== undefined), allow: stated(subprocess.allow) } }),
    ...(credentials === undefined
      ? {}
      : {
          credentials: {
            ...head(credentials, credentials.passEnv !== undefined || credentials.secrets !== undefined || credentials.agentSockets !== undefined),
            passEnv: stated(credentials.passEnv),
            secrets: secrets.flatMap(({ value, line }) =>
              value.from === undefined
                ? []
                : [
                    {
                      name: value.name,
                      from: absoluteSource(value.from, site.base),
                      ...(value.inject === undefined ? {} : { inject: value.inject }),
                      origin: at(line),
                    },
                  ],
            ),
            secretNames: secrets.map(({ value }) => value.name),
            agentSockets: stated(credentials.agentSockets),
            login: (credentials.login ?? []).flatMap(({ value, line }) =>
              paths([{ value: value.path, line }], site.base.home).map((rule) => ({ rule, ...value })),
            ),
            gitIdentity: credentials.gitIdentity === true ? at(credentials.line) : undefined,
          },
        }),
    ...(models === undefined ? {} : { models: at(models.line) }),
    ...(tools === undefined ? {} : { tools: at(tools.line) }),
    limits: Object.values(LIMIT_FIELDS).flatMap((field) => {
      const limit = resources?.limits[field];
      return limit === undefined ? [] : [{ field, value: limit.value, origin: at(limit.line) }];
    }),
  };
}

function hasReadRules(section: FileReadSection): boolean {
  return section.allow !== undefined || section.deny !== undefined;
}

/** `stage` and `deny` have no default to imply: only direct shares are granted by file_write. */
function hasWriteRules(section: FileWriteSection): boolean {
  return section.direct !== undefined;
}

function hasNetworkRules(section: NetworkSection): boolean {
  return section.allow !== undefined || section.deny !== undefined || section.hostPorts !== undefined || section.publish !== undefined;
}

/** `safe.yaml:14`, or the flag as typed, or the name. */
export function formatOrigin(origin: Origin): string {
  if (origin.file === undefined) return origin.name;
  return origin.line === undefined ? origin.file : `${origin.file}:${String(origin.line)}`;
}

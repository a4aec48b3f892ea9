import { absoluteSource } from './caller-paths.ts';
import { ProofrunError } from '../core/errors.ts';
import type { HostRule, Origin, PathRule } from '../core/job.ts';
import { parseHostRule } from './host-rule.ts';
import type { LimitField } from './layer.ts';
import { parsePathRule, type PathBase } from './path-rule.ts';
import { parseEnvFlag, parseSecretFlag, type JobRequest } from './request.ts';
import type { RuleHead, RuleLayer } from './rules.ts';

const FLAGS: Pick<Origin, 'layer'> = { layer: 'flag' };

/** The person's flags as a layer of grants and denials. Each rule's origin is the flag as typed. Throws ERR_USAGE. */
export function compileFlags(request: JobRequest, base: PathBase): RuleLayer {
  const origin = (flag: string, text?: string): Origin => ({ ...FLAGS, name: text === undefined ? flag : `${flag} ${text}` });
  const hosts = (flag: string, list: readonly string[] | undefined, effect: 'allow' | 'deny'): readonly HostRule[] =>
    (list ?? []).map((text) => {
      const parsed = parseHostRule({ host: text }, effect, origin(flag, text));
      if (parsed.kind === 'ok') return parsed.rule;
      throw usage(`${flag}: ${parsed.message}`, parsed.hint);
    });
  const paths = (flag: string, list: readonly string[] | undefined): readonly PathRule[] =>
    (list ?? []).map((text) => {
      const parsed = parsePathRule(text, base, origin(flag, text));
      if (parsed.kind === 'ok') return parsed.rule;
      throw usage(`${flag}: ${parsed.message}`);
    });
  // A denial by flag only takes away: it implies no default, so `--deny-net x` leaves the rest as it is.
  const head = (flag: string, grants: boolean): RuleHead => ({
    origin: origin(flag),
    defaultAction: grants ? { value: 'deny', origin: origin(flag) } : undefined,
    defaultStated: false,
    grants: 'none',
  });

  const allowNet = hosts('--allow-net', request.allowNet, 'allow');
  const denyNet = hosts('--deny-net', request.denyNet, 'deny');
  const noNet = request.noNet === true ? origin('--no-net') : undefined;
  if (noNet !== undefined && allowNet.length > 0) throw usage('--no-net contradicts --allow-net', 'leave one of them out');
  const allowRead = paths('--allow-read', request.allowRead);
  const denyRead = paths('--deny-read', request.denyRead);
  const direct = paths('--write-direct', request.writeDirect);
  const passEnv = (request.env ?? []).flatMap((text) => {
    const flag = parseEnvFlag(text);
    if (flag.kind === 'error') throw usage(flag.message);
    return flag.kind === 'pass' ? [{ value: flag.pattern, origin: origin('-e', text) }] : [];
  });
  const secrets = (request.secrets ?? []).map((text) => {
    const flag = parseSecretFlag(text);
    if (flag.kind === 'error') throw usage(flag.message);
    return { ...flag.secret, from: absoluteSource(flag.secret.from, base), origin: origin('--secret', flag.secret.name) };
  });
  return {
    ...FLAGS,
    name: 'flags',
    ...(allowRead.length + denyRead.length === 0
      ? {}
      : {
          fileRead: {
            ...head(allowRead.length > 0 ? '--allow-read' : '--deny-read', false),
            allow: allowRead,
            deny: denyRead,
            config: [],
            state: [],
            cache: [],
          },
        }),
    ...(direct.length === 0 ? {} : { fileWrite: { ...head('--write-direct', false), stage: undefined, direct, deny: [] } }),
    ...(allowNet.length + denyNet.length === 0 && noNet === undefined
      ? {}
      : {
          network: {
            ...head(noNet === undefined ? (allowNet.length > 0 ? '--allow-net' : '--deny-net') : '--no-net', allowNet.length > 0 || noNet !== undefined),
            allow: allowNet,
            deny: denyNet,
            allowFrom: [],
            hostPorts: [],
            publish: [],
            private: undefined,
            nothing: noNet,
          },
        }),
    ...(passEnv.length + secrets.length === 0
      ? {}
      : {
          credentials: {
            ...head(passEnv.length > 0 ? '-e' : '--secret', false),
            passEnv,
            secrets,
            secretNames: [],
            agentSockets: [],
            login: [],
            gitIdentity: undefined,
          },
        }),
    limits: limitsOf(request).map(({ field, flag, value }) => ({ field, value, origin: origin(flag) })),
  };
}

function limitsOf(request: JobRequest): readonly { readonly field: LimitField; readonly flag: string; readonly value: number }[] {
  const rows: readonly (readonly [LimitField, string, number | undefined])[] = [
    ['memoryBytes', '--memory', request.memoryBytes],
    ['cpus', '--cpus', request.cpus],
    ['processes', '--processes', request.processes],
    ['wallTimeMs', '--timeout', request.timeoutMs],
  ];
  return rows.flatMap(([field, flag, value]) => {
    if (value === undefined) return [];
    if (!(value > 0 && Number.isFinite(value))) throw usage(`${flag} expects more than nothing, received ${String(value)}`);
    return [{ field, flag, value }];
  });
}

function usage(message: string, hint?: string): ProofrunError {
  return new ProofrunError('ERR_USAGE', { message, ...(hint === undefined ? {} : { hint }) });
}

import { PLACEHOLDER_PREFIX } from '../../src/core/job.ts';
import { admit } from '../../src/admission/admit.ts';
import type { Mode } from '../../src/core/dimension.ts';
import type { EffectiveJob, EffectivePermissions, HostRule, Origin, PathRule, ResourceLimits } from '../../src/core/job.ts';
import type { ExecutorCapabilities, ExecutorPlan } from '../../src/core/plan.ts';
import { parseHostRule } from '../../src/policy/host-rule.ts';

/** A job of the tests: what differs from one to the next. */
export interface NativeJob {
  readonly argv: readonly [string, ...string[]];
  readonly workspace: string;
  readonly home: string;
  readonly mode: Mode;
  /** Default: the system, toolchains and the workspace. host: everything that the user can read, the real home with private writes. */
  readonly root?: 'projected' | 'host';
  /** Default: deny. Rules: as in a job file, each with an optional port. */
  readonly network?: 'public' | 'deny' | SelectiveNetwork;
  /** Default: any program, contained. none: none beyond the command. A list: those. */
  readonly programs?: 'none' | readonly string[];
  readonly limits?: ResourceLimits;
  /** Name of a secret that is injected at allowed.test; the environment holds its placeholder. */
  readonly secret?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Absolute paths of direct shares. */
  readonly direct?: readonly string[];
  /** Absolute paths inside the workspace that may be read and not written. */
  readonly denyWrite?: readonly string[];
  /** Absolute paths outside the workspace that may be read. */
  readonly allowRead?: readonly string[];
}

export interface SelectiveNetwork {
  readonly allow?: readonly { readonly host: string; readonly ports?: readonly number[]; readonly private?: boolean }[];
  readonly deny?: readonly { readonly host: string; readonly ports?: readonly number[] }[];
  readonly hostPorts?: readonly number[];
  readonly publish?: readonly { readonly hostPort: number; readonly jobPort: number }[];
}

const ORIGIN: Origin = { layer: 'flag', name: 'test' };

function rules(list: SelectiveNetwork['allow'], effect: 'allow' | 'deny'): readonly HostRule[] {
  return (list ?? []).map((raw) => {
    const parsed = parseHostRule(raw, effect, ORIGIN);
    if (parsed.kind === 'error') throw new Error(parsed.message);
    return parsed.rule;
  });
}

function networkOf(network: NativeJob['network'] = 'deny'): EffectivePermissions['network'] {
  const rest = typeof network === 'string' ? {} : network;
  return {
    requested: true,
    kind: typeof network === 'string' ? network : 'selective',
    defaultAllow: network === 'public',
    allow: rules(rest.allow, 'allow'),
    deny: rules(rest.deny, 'deny'),
    hostPorts: rest.hostPorts ?? [],
    publish: rest.publish ?? [],
  };
}

function programsOf(programs: NativeJob['programs']): EffectivePermissions['subprocess'] {
  if (programs === undefined) return { requested: true, kind: 'contained', allow: [] };
  return programs === 'none' ? { requested: true, kind: 'none', allow: [] } : { requested: true, kind: 'listed', allow: programs };
}

function literal(pattern: string): PathRule {
  return { pattern, literal: true, origin: ORIGIN };
}

/** Every dimension that the native executor knows is requested, whatever the mode, so that every control is planned. */
export function effectiveJob(job: NativeJob): EffectiveJob {
  const projected = (job.root ?? 'projected') === 'projected';
  const permissions: EffectivePermissions = {
    fileRead: {
      requested: true,
      root: projected ? 'projected' : 'host',
      home: projected ? 'private' : 'real',
      allow: (job.allowRead ?? []).map(literal),
      deny: [],
    },
    fileWrite: { requested: true, stage: [job.workspace], direct: (job.direct ?? []).map(literal), deny: (job.denyWrite ?? []).map(literal) },
    network: networkOf(job.network),
    subprocess: programsOf(job.programs),
    credentials: {
      requested: true,
      environment: {
        HOME: job.home,
        PATH: '/usr/local/bin:/usr/bin:/bin',
        ...job.env,
        ...(job.secret === undefined ? {} : { [job.secret]: `${PLACEHOLDER_PREFIX}0011` }),
      },
      visible: [],
      secrets:
        job.secret === undefined
          ? []
          : [{ name: job.secret, from: 'env:NONE', inject: { host: 'allowed.test', header: 'Authorization', format: '{}' }, origin: ORIGIN }],
      agentSockets: [],
    },
    models: { requested: false },
    tools: { requested: false },
    resources: { requested: true, limits: job.limits ?? {} },
  };
  return {
    name: undefined,
    mode: job.mode,
    argv: job.argv,
    cwd: job.workspace,
    workspace: job.workspace,
    home: job.home,
    executor: 'native',
    image: undefined,
    waived: [],
    permissions,
    layers: [],
    warnings: [],
  };
}

/** The plan that admission makes. Throws when it refuses. */
export function planOf(job: NativeJob, capabilities: ExecutorCapabilities): ExecutorPlan {
  const admission = admit(effectiveJob(job), [capabilities]);
  if (admission.kind === 'refused') throw new Error(`refused: ${admission.refusal.reason} ${JSON.stringify(admission.refusal.rows)}`);
  return admission.plan;
}

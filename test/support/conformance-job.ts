import { admit } from '../../src/admission/admit.ts';
import type { EffectiveJob, EffectivePermissions } from '../../src/core/job.ts';
import type { ExecutorCapabilities, ExecutorPlan } from '../../src/core/plan.ts';

export interface JobParts {
  readonly argv: readonly [string, ...string[]];
  readonly workspace: string;
  readonly cwd: string;
  readonly home: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly wallTimeMs?: number;
}

/** A job of the default mode that asks for nothing: what each executor does by itself. */
export function plainJob(parts: JobParts, executor: EffectiveJob['executor']): EffectiveJob {
  const permissions: EffectivePermissions = {
    fileRead: { requested: false, root: 'host', home: 'real', allow: [], deny: [] },
    fileWrite: { requested: false, stage: [parts.workspace], direct: [], deny: [] },
    network: { requested: false, kind: 'public', defaultAllow: true, allow: [], deny: [], hostPorts: [], publish: [] },
    subprocess: { requested: false, kind: 'contained', allow: [] },
    credentials: { requested: false, environment: parts.environment, visible: [], secrets: [], agentSockets: [] },
    models: { requested: false },
    tools: { requested: false },
    resources: { requested: parts.wallTimeMs !== undefined, limits: parts.wallTimeMs === undefined ? {} : { wallTimeMs: parts.wallTimeMs } },
  };
  return {
    name: undefined,
    mode: 'default',
    argv: parts.argv,
    cwd: parts.cwd,
    workspace: parts.workspace,
    home: parts.home,
    executor,
    image: undefined,
    waived: [],
    permissions,
    layers: [],
    warnings: [],
  };
}

/** The plan that admission makes for this executor. Throws when it refuses. */
export function planFor(parts: JobParts, capabilities: ExecutorCapabilities): ExecutorPlan {
  const admission = admit(plainJob(parts, capabilities.executor), [capabilities]);
  if (admission.kind === 'refused') throw new Error(`refused: ${admission.refusal.reason}`);
  return admission.plan;
}

import type { BundlePermissions, BundlePlan } from '../core/bundle.ts';
import type { EffectivePermissions } from '../core/job.ts';
import type { ExecutorPlan } from '../core/plan.ts';

/** The plan as the store and the bundle keep it: without the job, whose environment holds values. */
export function planRecord(plan: ExecutorPlan): BundlePlan {
  return {
    version: plan.version,
    executor: plan.executor,
    executorReason: plan.executorReason,
    mode: plan.mode,
    dimensions: plan.dimensions,
    needed: plan.needed,
    waived: plan.waived,
    ...(plan.image === undefined ? {} : { image: plan.image }),
  };
}

/** Permissions as the bundle keeps them: names of variables, never their values. */
export function permissionsRecord(permissions: EffectivePermissions): BundlePermissions {
  const { requested, visible, secrets, agentSockets, environment, logins } = permissions.credentials;
  return {
    ...permissions,
    credentials: { requested, visible, secrets, agentSockets, environmentNames: Object.keys(environment).sort(), ...(logins === undefined ? {} : { logins }) },
  };
}

import type { BundleChanges, BundleNetwork, BundleOutput, RunBundle } from '../core/bundle.ts';
import { DIMENSIONS, perDimension } from '../core/dimension.ts';
import { messageOf } from '../core/errors.ts';
import { deriveObservations, OWED } from '../evidence/index.ts';
import { totalsOf } from '../stage/review-order.ts';
import { differences } from './bundle-difference.ts';
import { derivedSha256 } from './bundle-form.ts';
import { sumDestinations } from './bundle-network.ts';
import { keptBytes } from './bundle-output.ts';
import { summariseSafety } from './bundle-safety.ts';

/** `problems`: `place: recorded X, derived Y`, with places as in the file. Empty exactly when ok. */
export interface Verification {
  readonly ok: boolean;
  readonly problems: readonly string[];
}

/**
 * Recomputes every statement of a bundle that follows from others: the hash, the level of each dimension from receipts and requirements, the
 * safety summary, totals of the change set, sums of the network, truncation of the outputs, and what the parts say about each other.
 * Pure: needs no store, no workspace and no machine. What an attacker who rewrites all of a bundle makes consistent, it can't see; the
 * store's hash of the bundle can.
 */
export function verifyBundle(bundle: RunBundle): Verification {
  const problems = [
    ...checkHash(bundle),
    ...checkObservations(bundle),
    ...checkOwed(bundle),
    ...differences('safety', bundle.safety, summariseSafety(bundle)),
    ...checkOutcome(bundle),
    ...checkPlan(bundle),
    ...checkPermissions(bundle),
    ...checkNetwork(bundle.network),
    ...(bundle.changes === null ? [] : checkChanges(bundle.changes)),
    ...bundle.outputs.flatMap((output, index) => checkOutput(output, `outputs[${index}]`)),
  ];
  return { ok: problems.length === 0, problems };
}

function checkHash(bundle: RunBundle): readonly string[] {
  return differences('sha256', bundle.sha256, derivedSha256(bundle));
}

function checkObservations(bundle: RunBundle): readonly string[] {
  const { executorObservations: recorded, run } = bundle;
  const scopes = perDimension((dimension) => recorded.dimensions[dimension].scope);
  const derived = deriveObservations(recorded.requirements, recorded.receipts, scopes);
  return [
    ...differences('executor_observations', { dimensions: recorded.dimensions }, { dimensions: derived }),
    ...differences('executor_observations.executor', recorded.executor, run.executor ?? 'none'),
  ];
}

/** What a planned control owes can't have been left out of a dimension that is said to hold. */
function checkOwed(bundle: RunBundle): readonly string[] {
  const { plan, executorObservations: recorded } = bundle;
  if (plan === null) return [];
  return DIMENSIONS.filter((dimension) => recorded.dimensions[dimension].level !== 'unenforced').flatMap((dimension) =>
    plan.dimensions[dimension].controls.flatMap((control) =>
      OWED[control]
        .filter(
          ({ id, phase }) =>
            !recorded.requirements.some((one) => one.dimension === dimension && one.control === control && one.id === id && one.phase === phase),
        )
        .map(
          ({ id, phase }) =>
            `executor_observations.requirements: ${control} of ${dimension} owes ${id} at ${phase === 'gate' ? 'the gate' : 'the end'}, which is not listed`,
        ),
    ),
  );
}

/** State, ending and safety have to agree. */
function checkOutcome(bundle: RunBundle): readonly string[] {
  const { run, plan, refusal } = bundle;
  const { promise, missing } = summariseSafety(bundle);
  const refused = run.state === 'refused';
  return [
    ...differences('refusal', refusal !== null, refused),
    ...differences('plan', plan === null, refused),
    ...(run.state === 'finished' && promise === 'broken' ? [`run.state: recorded "finished", but ${missing.join(', ')} had to be enforced`] : []),
    ...inOrder('run.started_ms', run.recordedMs, run.startedMs),
    ...inOrder('run.ended_ms', run.startedMs ?? run.recordedMs, run.endedMs),
  ];
}

function inOrder(place: string, earlier: number, later: number | null): readonly string[] {
  return later === null || later >= earlier ? [] : [`${place}: recorded ${later}, before ${earlier}`];
}

function checkPlan(bundle: RunBundle): readonly string[] {
  const { plan, run, safety } = bundle;
  if (plan === null) return differences('run.executor', run.executor, null);
  return [
    ...differences('plan.mode', plan.mode, run.mode),
    ...differences('plan.executor', plan.executor, run.executor),
    ...DIMENSIONS.flatMap((dimension) =>
      differences(`plan.dimensions.${dimension}.requested`, plan.dimensions[dimension].requested, safety.dimensions[dimension].requested),
    ),
  ];
}

/** Lists that a reader looks at first are copies of what the permissions say. */
function checkPermissions(bundle: RunBundle): readonly string[] {
  const { permissions, credentials } = bundle;
  return [
    ...differences('environment_names', bundle.environmentNames, [...permissions.credentials.environmentNames].sort()),
    ...differences('credentials.visible', credentials.visible, permissions.credentials.visible),
    ...differences('credentials.agent_sockets', credentials.agentSockets, permissions.credentials.agentSockets),
    ...differences(
      'direct_shares',
      bundle.directShares.map((share) => share.path),
      [...permissions.fileWrite.direct.map((rule) => rule.pattern), ...(permissions.fileRead.states ?? []).map((state) => state.path)],
    ),
    ...(credentials.logins ?? [])
      .filter(({ path, profile }) => permissions.credentials.logins?.some((login) => login.path === path && login.profile === profile) !== true)
      .map(({ path }) => `credentials.logins: ${path} is not a login that the permissions name`),
    ...differences('resources.requested', bundle.resources.requested, permissions.resources.limits),
    ...differences('network.kind', bundle.network.kind, permissions.network.kind),
  ];
}

function checkNetwork(network: BundleNetwork): readonly string[] {
  return (['allowed', 'denied', 'failed', 'bytesOut', 'bytesIn'] as const).flatMap((counter) =>
    differences(
      `network.${counter === 'bytesOut' ? 'bytes_out' : counter === 'bytesIn' ? 'bytes_in' : counter}`,
      network[counter],
      sumDestinations(network.destinations, counter),
    ),
  );
}

function checkChanges(changes: BundleChanges): readonly string[] {
  const seen = new Set<string>();
  return [
    ...differences('changes.totals', changes.totals, totalsOf(changes.changes)),
    ...changes.changes.flatMap((change, index) => {
      const place = `changes.changes[${index}]`;
      const key = `${change.root} ${change.encoding} ${change.path}`;
      const repeated = seen.has(key);
      seen.add(key);
      return [
        ...(repeated ? [`${place}.path: is listed twice`] : []),
        ...(change.root < changes.roots.length ? [] : [`${place}.root: recorded ${change.root}, there are ${changes.roots.length} roots`]),
      ];
    }),
  ];
}

function checkOutput(output: BundleOutput, place: string): readonly string[] {
  try {
    const kept = keptBytes(output);
    return [
      ...differences(`${place}.truncated`, output.truncated, output.bytesTotal > kept),
      ...(kept > output.bytesTotal ? [`${place}.bytes_total: recorded ${output.bytesTotal}, ${kept} bytes are kept`] : []),
      ...(!output.truncated && output.tail !== '' ? [`${place}.tail: recorded text, although nothing is missing before it`] : []),
    ];
  } catch (error) {
    return [`${place}: ${messageOf(error)}`];
  }
}

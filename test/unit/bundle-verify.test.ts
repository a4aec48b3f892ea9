import { describe, expect, it } from 'vitest';
import type { RunBundle, RunBundleBody } from '../../src/core/bundle.ts';
import { formatBundle } from '../../src/runner/bundle-form.ts';
import { summariseSafety } from '../../src/runner/bundle-safety.ts';
import { verifyBundle } from '../../src/runner/verify.ts';
import { OBSERVATIONS, RECEIPTS, refusedBody, REQUIREMENTS, sampleBody } from '../support/sample-bundle.ts';

/** Verified with a hash that fits, as an attacker would leave it. */
function problems(change: Partial<RunBundleBody>): readonly string[] {
  return verifyBundle(formatBundle(sampleBody(change)).bundle).problems;
}

const body = sampleBody();
const changes = body.changes ?? {
  roots: [],
  changes: [],
  totals: { added: 0, modified: 0, deleted: 0, other: 0, conflicts: 0, addedLines: 0, removedLines: 0 },
};

describe('verification', () => {
  it.each([
    ['a run', sampleBody()],
    ['a refused job', refusedBody()],
    ['a run without a change set', sampleBody({ changes: null })],
  ])('accepts %s', (_reason, sound) => {
    expect(verifyBundle(formatBundle(sound).bundle)).toEqual({ ok: true, problems: [] });
  });

  it('names a wrong hash', () => {
    const bundle: RunBundle = { ...formatBundle(body).bundle, sha256: '0'.repeat(64) };
    expect(verifyBundle(bundle)).toEqual({ ok: false, problems: [expect.stringMatching(/^sha256: recorded "0{59}\.\.\., derived "/)] });
  });

  it('names a receipt that says something else', () => {
    const receipts = RECEIPTS.map((receipt) => (receipt.id === 'ns.net' ? { ...receipt, value: 'ns.net:[1]' } : receipt));
    expect(problems({ executorObservations: { ...OBSERVATIONS, receipts } })).toEqual([
      'executor_observations.dimensions.network.level: recorded "enforced", derived "unenforced"',
      'executor_observations.dimensions.network.outcomes[0].status: recorded "matched", derived "differs"',
    ]);
  });

  it('names a receipt that is gone, for each dimension that is owed it', () => {
    const receipts = RECEIPTS.filter((receipt) => receipt.id !== 'ns.mnt');
    expect(problems({ executorObservations: { ...OBSERVATIONS, receipts } }).map((line) => line.split(':')[0])).toEqual([
      'executor_observations.dimensions.file_read.level',
      'executor_observations.dimensions.file_read.outcomes[0].status',
      'executor_observations.dimensions.file_write.level',
      'executor_observations.dimensions.file_write.outcomes[0].status',
    ]);
  });

  it('names a level raised by hand, in the observations and in the summary', () => {
    const dimensions = { ...OBSERVATIONS.dimensions, models: { ...OBSERVATIONS.dimensions.models, level: 'enforced' as const } };
    expect(problems({ executorObservations: { ...OBSERVATIONS, dimensions } })).toContain(
      'executor_observations.dimensions.models.level: recorded "enforced", derived "unenforced"',
    );
    const safety = { ...body.safety, dimensions: { ...body.safety.dimensions, tools: { ...body.safety.dimensions.tools, observed: 'enforced' as const } } };
    expect(problems({ safety })).toEqual(['safety.dimensions.tools.observed: recorded "enforced", derived "unenforced"']);
  });

  it('names what is owed and was left out, receipts and outcomes included', () => {
    const gone = (one: { readonly id: string }): boolean => one.id !== 'probe.net.tcp4';
    const { network } = OBSERVATIONS.dimensions;
    const executorObservations = {
      ...OBSERVATIONS,
      dimensions: { ...OBSERVATIONS.dimensions, network: { ...network, outcomes: network.outcomes.filter(gone) } },
      requirements: REQUIREMENTS.filter(gone),
      receipts: RECEIPTS.filter(gone),
    };
    expect(problems({ executorObservations })).toContain(
      'executor_observations.requirements: network_namespace of network owes probe.net.tcp4 at the gate, which is not listed',
    );
  });

  it('names a dimension that owes nothing and is said to hold', () => {
    const dimensions = { ...OBSERVATIONS.dimensions, network: { ...OBSERVATIONS.dimensions.network, outcomes: [] } };
    const requirements = REQUIREMENTS.filter((one) => one.dimension !== 'network');
    expect(problems({ executorObservations: { ...OBSERVATIONS, dimensions, requirements } })).toContain(
      'executor_observations.dimensions.network.level: recorded "enforced", derived "unenforced"',
    );
  });

  it.each<readonly [string, Partial<RunBundleBody>, string]>([
    [
      'another executor',
      { executorObservations: { ...OBSERVATIONS, executor: 'docker' } },
      'executor_observations.executor: recorded "docker", derived "native"',
    ],
    ['a promise', { safety: { ...body.safety, promise: 'none' } }, 'safety.promise: recorded "none", derived "kept"'],
    [
      'a count of receipts',
      {
        safety: { ...body.safety, dimensions: { ...body.safety.dimensions, network: { ...body.safety.dimensions.network, probes: { matched: 9, owed: 9 } } } },
      },
      'safety.dimensions.network.probes.matched: recorded 9, derived 3',
    ],
    ['another mode', { run: { ...body.run, mode: 'default' } }, 'plan.mode: recorded "safe", derived "default"'],
    ['a refused state', { run: { ...body.run, state: 'refused' } }, 'refusal: recorded false, derived true'],
    ['an end before the start', { run: { ...body.run, endedMs: 1_013 } }, 'run.ended_ms: recorded 1013, before 1014'],
    ['totals', { changes: { ...changes, totals: { ...changes.totals, added: 1 } } }, 'changes.totals.added: recorded 1, derived 2'],
    ['a change left out', { changes: { ...changes, changes: changes.changes.slice(1) } }, 'changes.totals.added: recorded 2, derived 1'],
    ['a change twice', { changes: { ...changes, changes: [...changes.changes, ...changes.changes.slice(6)] } }, 'changes.changes[7].path: is listed twice'],
    ['a root that is not there', { changes: { ...changes, roots: [] } }, 'changes.changes[0].root: recorded 0, there are 0 roots'],
    ['a denied connection', { network: { ...body.network, denied: 0 } }, 'network.denied: recorded 0, derived 7'],
    ['zero for what was not observed', { network: { ...body.network, bytesIn: 0 } }, 'network.bytes_in: recorded 0, derived null'],
    ['the kind of network', { network: { ...body.network, kind: 'public' } }, 'network.kind: recorded "public", derived "deny"'],
    ['truncation', { outputs: body.outputs.map((output) => ({ ...output, truncated: false })) }, 'outputs[1].truncated: recorded false, derived true'],
    [
      'a wrong total of output',
      { outputs: body.outputs.map((output) => ({ ...output, bytesTotal: 1 })) },
      'outputs[0].bytes_total: recorded 1, 6 bytes are kept',
    ],
    [
      'base64 that is not',
      { outputs: body.outputs.map((output) => ({ ...output, encoding: 'base64' as const, head: '???' })) },
      'outputs[0]: an output is not base64',
    ],
    ['a variable left out', { environmentNames: ['HOME', 'PATH'] }, 'environment_names: recorded ["HOME","PATH"], derived ["HOME","NPM_TOKEN","PATH"]'],
    ['a visible credential left out', { credentials: { ...body.credentials, visible: [] } }, 'credentials.visible: recorded [], derived ["NPM_TOKEN"]'],
    ['a direct share left out', { directShares: [] }, 'direct_shares: recorded [], derived ["/home/ana/shop/dist"]'],
    ['a limit', { resources: { ...body.resources, requested: {} } }, 'resources.requested.processes: recorded nothing, derived 512'],
  ])('names %s', (_reason, change, problem) => {
    expect(problems(change)).toContain(problem);
  });

  it('does not let a run finish whose promise was broken', () => {
    const receipts = RECEIPTS.filter((receipt) => receipt.id !== 'end.mount.table');
    const file = (dimension: 'file_read' | 'file_write') => {
      const { scope, outcomes } = OBSERVATIONS.dimensions[dimension];
      return {
        level: 'unenforced' as const,
        scope,
        outcomes: outcomes.map((one) => (one.id === 'end.mount.table' ? { ...one, status: 'missing' as const } : one)),
      };
    };
    const executorObservations = {
      ...OBSERVATIONS,
      receipts,
      dimensions: { ...OBSERVATIONS.dimensions, file_read: file('file_read'), file_write: file('file_write') },
    };
    const sources = { permissions: body.permissions, plan: body.plan, refusal: null, executorObservations };
    expect(problems({ executorObservations, safety: summariseSafety(sources) })).toEqual([
      'run.state: recorded "finished", but file_read, file_write had to be enforced',
    ]);
    const found = problems({ executorObservations });
    expect(found).toContain('safety.promise: recorded "kept", derived "broken"');
  });
});

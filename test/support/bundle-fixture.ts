import { perDimension, type Dimension } from '../../src/core/dimension.ts';
import type { RunBundle, BundleChanges } from '../../src/core/bundle.ts';
import type { Change, EntryFacts } from '../../src/core/change.ts';
import type { RequirementOutcome } from '../../src/core/observation.ts';
import { totalsOf } from '../../src/stage/review-order.ts';

/** Facts of a staged file, for hand-made change sets. */
export function facts(size: number, sha: string, type: EntryFacts['type'] = 'file', mode = 0o644): EntryFacts {
  return { type, size, mode, uid: 1000, gid: 1000, ...(type === 'file' ? { sha256: sha.padEnd(64, '0') } : {}) };
}

/** One change of the workspace; line numbers null for a binary. */
export function change(kind: Change['kind'], path: string, added: number | null, removed: number | null, more: Partial<Change> = {}): Change {
  return {
    root: 0,
    path,
    encoding: 'utf8',
    kind,
    ...(kind === 'added' ? {} : { before: facts(100, 'aa') }),
    ...(kind === 'deleted' ? {} : { after: facts(100, 'bb') }),
    binary: false,
    addedLines: added,
    removedLines: removed,
    ...more,
  };
}

export function changeSet(changes: readonly Change[], roots: readonly string[] = [WORKSPACE]): BundleChanges {
  return { roots, changes, totals: totalsOf(changes) };
}

export const WORKSPACE = '/home/ana/src/shop';
export const HOME = '/home/ana';

/** The seven changes of the review that the design shows. */
export const SHOP_CHANGES: readonly Change[] = [
  change('added', '.husky/pre-commit', 4, 0, { executes: 'git runs it at your next commit', after: facts(90, 'c0', 'file', 0o755) }),
  change('deleted', 'src/old-tax.ts', 0, 4),
  change('modified', 'package-lock.json', 61, 22),
  change('modified', 'src/cart.ts', 14, 11),
  change('added', 'src/tax.ts', 32, 0),
  change('added', 'test/__snapshots__/cart.snap', 7, 0),
  change('added', 'coverage.bin', null, null, { binary: true, after: facts(37_069, 'dd') }),
];

const ASKED: Readonly<Record<Dimension, string>> = {
  file_read: 'safe',
  file_write: 'stage .',
  network: 'deny',
  subprocess: 'contained',
  credentials: '14 variables',
  models: '-',
  tools: '-',
  resources: '512 processes',
};

/** Owed facts and probes of each dimension. */
const OWED: Readonly<Record<Dimension, readonly [facts: number, probes: number]>> = {
  file_read: [19, 12],
  file_write: [9, 6],
  network: [7, 8],
  subprocess: [11, 4],
  credentials: [3, 5],
  models: [0, 0],
  tools: [0, 0],
  resources: [2, 1],
};

function outcomes(dimension: Dimension): readonly RequirementOutcome[] {
  const [facts_, probes] = OWED[dimension];
  const make = (kind: 'fact' | 'probe', count: number): RequirementOutcome[] =>
    Array.from({ length: count }, (_, index) => ({
      id: `${kind === 'probe' ? 'probe.' : ''}${dimension}.${index}`,
      control: `${dimension}_control`,
      phase: 'gate',
      kind,
      status: 'matched',
    }));
  return [...make('fact', facts_), ...make('probe', probes)];
}

/** The run of the design's example: `npm test` under --safe, exit 1, seven changes. Times are UTC. */
export function shopBundle(more: Partial<RunBundle> = {}): RunBundle {
  const asked = (dimension: Dimension): boolean => ASKED[dimension] !== '-';
  const recordedMs = Date.UTC(2026, 11, 1, 9, 41, 0);
  const enforced = (['file_read', 'file_write', 'network', 'subprocess', 'credentials', 'resources'] as const).slice();
  return {
    version: 1,
    run: {
      id: 'run-01KC4Q8ZV5J4Q7W9X2N6T8R3MA',
      name: null,
      state: 'finished',
      ending: { kind: 'exit', code: 1 },
      mode: 'safe',
      executor: 'native',
      attempt: 'att-01KC4Q8ZV5J4Q7W9X2N6T8R3MB',
      argv: ['npm', 'test'],
      cwd: WORKSPACE,
      workspace: WORKSPACE,
      user: { uid: 1000, gid: 1000 },
      proofrunVersion: '0.1.0',
      recordedMs,
      startedMs: recordedMs + 40,
      endedMs: recordedMs + 14_240,
    },
    lineage: { on: null, forkedFrom: null, unseenStages: [] },
    permissions: {
      fileRead: { requested: true, root: 'projected', home: 'private', allow: [], deny: [] },
      fileWrite: { requested: true, stage: [WORKSPACE], direct: [], deny: [] },
      network: { requested: true, kind: 'deny', defaultAllow: false, allow: [], deny: [], hostPorts: [], publish: [] },
      subprocess: { requested: true, kind: 'contained', allow: [] },
      credentials: { requested: true, visible: [], secrets: [], agentSockets: [], environmentNames: ['HOME', 'PATH'] },
      models: { requested: false },
      tools: { requested: false },
      resources: { requested: true, limits: { processes: 512 } },
    },
    layers: [],
    plan: {
      version: 1,
      executor: 'native',
      executorReason: 'the only one that can',
      mode: 'safe',
      dimensions: perDimension((dimension) => ({
        level: asked(dimension) ? 'planned' : 'unsupported',
        requested: asked(dimension),
        asked: ASKED[dimension],
        controls: [],
        scope: '',
      })),
      needed: enforced,
      waived: [],
    },
    refusal: null,
    executorObservations: {
      contract: 1,
      executor: 'native',
      dimensions: perDimension((dimension) => ({
        level: asked(dimension) ? 'enforced' : 'unenforced',
        scope: dimension === 'resources' ? "processes by RLIMIT_NPROC in the job's user namespace, memory unlimited" : '',
        outcomes: outcomes(dimension),
      })),
      requirements: [],
      receipts: [],
    },
    safety: {
      dimensions: perDimension((dimension) => ({
        requested: asked(dimension),
        needed: asked(dimension),
        waived: false,
        planned: asked(dimension) ? 'planned' : 'unsupported',
        observed: asked(dimension) ? 'enforced' : 'unenforced',
        installed: { matched: OWED[dimension][0], owed: OWED[dimension][0] },
        probes: { matched: OWED[dimension][1], owed: OWED[dimension][1] },
      })),
      enforced,
      cooperative: [],
      unenforced: [],
      notAsked: ['models', 'tools'],
      missing: [],
      promise: 'kept',
    },
    hostPaths: {
      readable: ['/usr', '/lib', '/bin', '/etc', `${HOME}/.nvm/versions/node/v20.20.2`].map((path) => ({ path, access: 'read_only' })),
      hidden: [
        { path: `${WORKSPACE}/.env`, rule: '.env' },
        { path: `${WORKSPACE}/certs/dev.key`, rule: '*.key' },
      ],
      possiblyRead: [],
    },
    directShares: [],
    credentials: { visible: [], agentSockets: [], injected: [] },
    environmentNames: ['HOME', 'PATH'],
    resources: { requested: { processes: 512 }, effective: [], peak: { memoryBytes: null, processes: null, cpuTimeMs: null }, hits: [] },
    network: {
      kind: 'deny',
      allowed: 0,
      denied: 6,
      failed: 0,
      bytesOut: 0,
      bytesIn: 0,
      kernelRefused: null,
      destinations: [
        {
          host: 'packages.example.com',
          port: 443,
          allowed: 0,
          denied: 6,
          failed: 0,
          bytesOut: 0,
          bytesIn: 0,
          firstMs: recordedMs + 900,
          lastMs: recordedMs + 9000,
          rule: 'safe.yaml:14 default_action: deny',
        },
      ],
      gatewayRoutes: [],
    },
    changes: changeSet(SHOP_CHANGES),
    discarded: {
      files: 212,
      bytes: 19_293_798,
      top: [
        { path: '~/.npm', files: 209 },
        { path: '~/.cache', files: 3 },
      ],
    },
    outputs: [],
    fileOperations: null,
    killed: [{ pid: 4127, name: 'esbuild' }],
    warnings: [],
    artifacts: [],
    sha256: `9b41c7e0${'5'.repeat(56)}`,
    ...more,
  };
}

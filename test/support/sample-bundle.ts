import type { BundlePermissions, BundlePlan, RunBundleBody } from '../../src/core/bundle.ts';
import type { Change } from '../../src/core/change.ts';
import { perDimension, type Dimension, type PerDimension } from '../../src/core/dimension.ts';
import type { JsonValue } from '../../src/core/json.ts';
import type { ExecutorObservations, RequirementOutcome } from '../../src/core/observation.ts';
import type { ControlId, Refusal } from '../../src/core/plan.ts';
import type { Expectation, ReceiptFact, ReceiptRequirement } from '../../src/core/receipt.ts';
import { OWED, requireReceipts } from '../../src/evidence/index.ts';
import { describeNetwork } from '../../src/runner/bundle-network.ts';
import { describeOutput } from '../../src/runner/bundle-output.ts';
import { summariseSafety } from '../../src/runner/bundle-safety.ts';
import { totalsOf } from '../../src/stage/review-order.ts';

const ORIGIN = { layer: 'policy', name: 'safe', file: 'safe.yaml', line: 14 } as const;
const ENVIRONMENT = ['HOME', 'NPM_TOKEN', 'PATH'];
const ENFORCED: readonly Dimension[] = ['file_read', 'file_write', 'network', 'subprocess', 'credentials', 'resources'];

const CONTROLS: PerDimension<readonly ControlId[]> = {
  file_read: ['mount_namespace', 'projected_root'],
  file_write: ['mount_namespace', 'staged_workspace'],
  network: ['network_namespace'],
  subprocess: ['seccomp', 'tree_killed'],
  credentials: ['environment'],
  models: [],
  tools: [],
  resources: ['process_limit'],
};

/** An expectation of every kind. */
function expectationOf(id: string): { readonly expect: Expectation; readonly value: JsonValue } {
  if (id.startsWith('probe.')) return { expect: { kind: 'refused', errnos: ['ENOENT', 'EACCES'] }, value: 'ENOENT' };
  if (id.startsWith('ns.')) return { expect: { kind: 'differs', from: `${id}:[1]` }, value: `${id}:[2]` };
  if (id === 'status.seccomp_filters') return { expect: { kind: 'at_least', value: 1 }, value: 2 };
  if (id === 'end.processes') return { expect: { kind: 'at_most', value: 0 }, value: 0 };
  return { expect: { kind: 'equals', value: [{ Path: '/', fs_type: id }, null, 512] }, value: [{ Path: '/', fs_type: id }, null, 512] };
}

const EXPECTED = Object.values(CONTROLS).flatMap((controls) =>
  controls.flatMap((control) => OWED[control].map(({ id, phase }) => ({ control, id, phase, expect: expectationOf(id).expect }))),
);

export const REQUIREMENTS: readonly ReceiptRequirement[] = requireReceipts(
  CONTROLS,
  EXPECTED.filter((one, index) => EXPECTED.findIndex((other) => other.control === one.control && other.id === one.id && other.phase === one.phase) === index),
);

export const RECEIPTS: readonly ReceiptFact[] = REQUIREMENTS.filter(
  (one, index) => REQUIREMENTS.findIndex((other) => other.id === one.id && other.phase === one.phase) === index,
).map(({ id, phase }) => ({ id, kind: kindOf(id), source: 'shim', phase, readFrom: '/proc/self', value: expectationOf(id).value }));

function kindOf(id: string): 'fact' | 'probe' {
  return id.startsWith('probe.') ? 'probe' : 'fact';
}

/** Written by hand: all receipts are there and match, so what owes any is enforced. */
export const OBSERVATIONS: ExecutorObservations = {
  contract: 1,
  executor: 'native',
  dimensions: perDimension((dimension) => ({
    level: ENFORCED.includes(dimension) ? 'enforced' : 'unenforced',
    scope: `scope of ${dimension}`,
    outcomes: REQUIREMENTS.filter((requirement) => requirement.dimension === dimension).map(({ id, control, phase }): RequirementOutcome => ({
      id,
      control,
      phase,
      kind: kindOf(id),
      status: 'matched',
    })),
  })),
  requirements: REQUIREMENTS,
  receipts: RECEIPTS,
};

/** As of a run that was never launched. */
export const NO_OBSERVATIONS: ExecutorObservations = {
  contract: 1,
  executor: 'none',
  dimensions: perDimension(() => ({ level: 'unenforced', scope: 'nothing was observed', outcomes: [] })),
  requirements: [],
  receipts: [],
};

const PERMISSIONS: BundlePermissions = {
  fileRead: { requested: true, root: 'projected', home: 'private', allow: [], deny: [{ pattern: '/home/ana/shop/**/.env', literal: false, origin: ORIGIN }] },
  fileWrite: {
    requested: true,
    stage: ['/home/ana/shop'],
    direct: [{ pattern: '/home/ana/shop/dist', literal: true, origin: { layer: 'flag', name: '--write-direct dist' } }],
    deny: [],
  },
  network: {
    requested: true,
    kind: 'deny',
    defaultAllow: false,
    allow: [],
    deny: [{ kind: 'name', host: '*.example.com', ports: undefined, private: false, origin: ORIGIN }],
    hostPorts: [],
    publish: [],
  },
  subprocess: { requested: true, kind: 'contained', allow: [] },
  credentials: {
    requested: true,
    visible: ['NPM_TOKEN'],
    secrets: [{ name: 'KEY', from: 'env:KEY', inject: { host: 'example.com', header: 'Authorization', format: 'Bearer {}' }, origin: ORIGIN }],
    agentSockets: [],
    environmentNames: ENVIRONMENT,
  },
  models: { requested: false },
  tools: { requested: false },
  resources: { requested: true, limits: { processes: 512, cpus: 1.5, wallTimeMs: 1_800_000 } },
};

const PLAN: BundlePlan = {
  version: 1,
  executor: 'native',
  executorReason: 'the only one that can',
  mode: 'safe',
  dimensions: perDimension((dimension) => {
    const planned = ENFORCED.includes(dimension);
    return {
      level: planned ? 'planned' : 'unsupported',
      requested: planned,
      asked: planned ? 'safe' : '-',
      controls: CONTROLS[dimension],
      scope: 'as planned',
      ...(planned ? {} : { reason: 'not here yet' }),
    };
  }),
  needed: ['file_read', 'file_write', 'network', 'subprocess'],
  waived: [],
};

const REFUSAL: Refusal = {
  reason: 'no executor can plan what --safe needs',
  rows: [
    {
      dimension: 'network',
      needed: 'planned',
      planned: 'unsupported',
      missing: 'OverlayNet',
      couldEnforce: ['docker'],
      change: { command: 'job run --safe --no-net -- npm test', givesUp: 'the network' },
    },
  ],
};

const facts = (sha256: string) => ({ type: 'file', size: 100, mode: 0o644, uid: 1000, gid: 1000, sha256: sha256.repeat(32) }) as const;

const CHANGES: readonly Change[] = [
  {
    root: 0,
    path: '.husky/pre-commit',
    encoding: 'utf8',
    kind: 'added',
    after: facts('c0'),
    binary: false,
    addedLines: 4,
    removedLines: 0,
    executes: 'git runs it at your next commit',
  },
  { root: 0, path: 'src/old.ts', encoding: 'utf8', kind: 'deleted', before: facts('aa'), binary: false, addedLines: 0, removedLines: 4 },
  {
    root: 0,
    path: 'src/cart.ts',
    encoding: 'utf8',
    kind: 'modified',
    before: facts('aa'),
    after: facts('bb'),
    binary: false,
    addedLines: 14,
    removedLines: 11,
    conflict: { reason: 'changed after the run began', stagedSha256: 'bb'.repeat(32), hereSha256: 'cc'.repeat(32), stagedTimeMs: 1_500.25, hereTimeMs: 1_600 },
  },
  {
    root: 0,
    path: Buffer.from([0x66, 0xff]).toString('base64'),
    encoding: 'base64',
    kind: 'renamed',
    from: 'old',
    before: facts('dd'),
    after: facts('dd'),
    binary: true,
    addedLines: null,
    removedLines: null,
  },
  {
    root: 0,
    path: 'link',
    encoding: 'utf8',
    kind: 'type_changed',
    before: facts('ee'),
    after: { type: 'symlink', size: 9, mode: 0o777, uid: 1000, gid: 1000, sha256: 'ef'.repeat(32), target: '../escape' },
    binary: false,
    addedLines: null,
    removedLines: null,
    leavesRoot: true,
  },
  {
    root: 0,
    path: 'fifo',
    encoding: 'utf8',
    kind: 'added',
    after: { type: 'fifo', size: 0, mode: 0o600, uid: 1000, gid: 1000 },
    binary: true,
    addedLines: null,
    removedLines: null,
    unappliable: 'a FIFO',
    applied: false,
  },
  {
    root: 0,
    path: 'src',
    encoding: 'utf8',
    kind: 'attributes',
    before: { type: 'directory', size: 0, mode: 0o755, uid: 1000, gid: 1000 },
    after: { type: 'directory', size: 0, mode: 0o700, uid: 1000, gid: 1000 },
    binary: false,
    addedLines: null,
    removedLines: null,
    implied: true,
  },
];

/** A run with something in every part of the bundle. */
export function sampleBody(more: Partial<RunBundleBody> = {}): RunBundleBody {
  const sources = { permissions: PERMISSIONS, plan: PLAN, refusal: null, executorObservations: OBSERVATIONS };
  return {
    version: 1,
    run: {
      id: 'run-01KC4Q8Z000000000000000000',
      name: 'unit',
      state: 'finished',
      ending: { kind: 'exit', code: 1 },
      mode: 'safe',
      executor: 'native',
      attempt: 'att-01KC4Q8Z000000000000000000',
      argv: ['npm', 'test', '\u001b[31m\nß😀'],
      cwd: '/home/ana/shop',
      workspace: '/home/ana/shop',
      user: { uid: 1000, gid: 1000 },
      proofrunVersion: '0.1.0',
      recordedMs: 1_000,
      startedMs: 1_014,
      endedMs: 15_200,
    },
    lineage: { on: null, forkedFrom: null, unseenStages: ['run-01KC4Q8Z000000000000000001'] },
    ...sources,
    layers: [{ kind: 'policy', name: 'safe', source: 'preset', sha256: 'ab'.repeat(32) }],
    safety: summariseSafety(sources),
    hostPaths: {
      readable: [
        { path: '/usr', access: 'read_only' },
        { path: '/home/ana/shop', access: 'staged' },
      ],
      hidden: [{ path: '/home/ana/shop/.env', rule: '**/.env' }],
      possiblyRead: [],
    },
    directShares: [{ path: '/home/ana/shop/dist', origin: '--write-direct dist' }],
    credentials: {
      visible: ['NPM_TOKEN'],
      agentSockets: [],
      injected: [{ name: 'KEY', host: 'example.com', uses: null, refused: null, firstMs: null, lastMs: null }],
    },
    environmentNames: ENVIRONMENT,
    resources: {
      requested: PERMISSIONS.resources.limits,
      effective: [
        { limit: 'processes', value: 512, scope: 'tree' },
        { limit: 'memory_bytes', value: null, scope: 'tree' },
      ],
      peak: { memoryBytes: 123_456_789, processes: 31, cpuTimeMs: null },
      hits: ['processes'],
    },
    network: describeNetwork(
      'deny',
      [
        {
          host: 'packages.example.com',
          port: 443,
          allowed: 0,
          denied: 6,
          failed: 0,
          bytesOut: 0,
          bytesIn: null,
          firstMs: 1_100,
          lastMs: 1_900,
          rule: 'safe.yaml:14 default_action: deny',
        },
        { host: '203.0.113.7', port: 22, allowed: 0, denied: 1, failed: 0, bytesOut: 0, bytesIn: 0, firstMs: 1_200, lastMs: 1_200, rule: null },
      ],
      { kernelRefused: 3, gatewayRoutes: [{ kind: 'models', name: 'claude', calls: 0 }] },
    ),
    changes: { roots: ['/home/ana/shop'], changes: CHANGES, totals: totalsOf(CHANGES) },
    discarded: { files: 212, bytes: 19_293_798, top: [{ path: '~/.npm', files: 209 }] },
    outputs: [
      describeOutput({ stream: 'stdout', head: Buffer.from('ok é\n'), tail: Buffer.alloc(0), bytesTotal: 6 }),
      describeOutput({ stream: 'stderr', head: Buffer.from([0xff, 0x00]), tail: Buffer.from('end'), bytesTotal: 1_000_000 }),
    ],
    fileOperations: null,
    killed: [{ pid: 4127, name: 'esbuild' }],
    warnings: ['esbuild (pid 4127) outlived the command; killed'],
    artifacts: [{ name: 'stdout', path: 'stdout.log', bytes: 6, sha256: 'cd'.repeat(32) }],
    ...more,
  };
}

/** A job that was refused at admission. */
export function refusedBody(): RunBundleBody {
  const body = sampleBody();
  const sources = { permissions: PERMISSIONS, plan: null, refusal: REFUSAL, executorObservations: NO_OBSERVATIONS };
  return {
    ...body,
    run: { ...body.run, state: 'refused', ending: { kind: 'refused', detail: REFUSAL.reason }, executor: null, attempt: null, startedMs: null, endedMs: 1_000 },
    ...sources,
    safety: summariseSafety(sources),
    hostPaths: { readable: [], hidden: [], possiblyRead: null },
    resources: { requested: PERMISSIONS.resources.limits, effective: [], peak: { memoryBytes: null, processes: null, cpuTimeMs: null }, hits: [] },
    network: describeNetwork('deny', null, { kernelRefused: null, gatewayRoutes: null }),
    changes: null,
    discarded: null,
    outputs: [],
    killed: [],
    warnings: [],
    artifacts: [],
  };
}

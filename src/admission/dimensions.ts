import { perDimension, type Dimension, type PerDimension, type PlanLevel } from '../core/dimension.ts';
import type { EffectiveJob, EffectivePermissions, SecretGrant } from '../core/job.ts';
import type { ControlId, DimensionPlan, ExecutorCapabilities } from '../core/plan.ts';

/** What an executor can plan for one dimension, before the mode decides what to make of it. */
export type Draft = { readonly level: PlanLevel; readonly controls: readonly ControlId[]; readonly scope: string; readonly reason?: string };

/** The plan of each dimension for one job on one executor. Pure. */
export function planDimensions(job: EffectiveJob, capabilities: ExecutorCapabilities): PerDimension<DimensionPlan> {
  return perDimension((dimension) => {
    const draft = withControls(dimension, DRAFTS[dimension](job, capabilities), capabilities);
    const requested = isRequested(job, dimension);
    return {
      level: draft.level,
      requested,
      asked: requested ? ASKED[dimension](job) : '-',
      controls: draft.level === 'unsupported' ? [] : draft.controls,
      scope: draft.scope,
      ...(draft.reason === undefined ? {} : { reason: draft.reason }),
    };
  });
}

export function isRequested(job: EffectiveJob, dimension: Dimension): boolean {
  const { permissions } = job;
  const flags: PerDimension<boolean> = {
    file_read: permissions.fileRead.requested,
    file_write: permissions.fileWrite.requested,
    network: permissions.network.requested,
    subprocess: permissions.subprocess.requested,
    credentials: permissions.credentials.requested,
    models: permissions.models.requested,
    tools: permissions.tools.requested,
    resources: permissions.resources.requested,
  };
  return flags[dimension];
}

/** A draft that needs a control which the executor lacks is unsupported; a dimension that the executor can only ask for is cooperative. */
function withControls(dimension: Dimension, draft: Draft, capabilities: ExecutorCapabilities): Draft {
  if (draft.level === 'unsupported') return draft;
  if (capabilities.cooperative.includes(dimension)) {
    return {
      level: 'cooperative',
      controls: draft.controls.filter((control) => capabilities.controls.includes(control)),
      scope: draft.scope,
      reason: `the ${capabilities.executor} executor can only ask: the command can go around it`,
    };
  }
  const missing = draft.controls.filter((control) => !capabilities.controls.includes(control));
  if (missing.length === 0) return draft;
  return {
    level: 'unsupported',
    controls: [],
    scope: draft.scope,
    reason: `the ${capabilities.executor} executor has no ${missing.map(controlWords).join(', ')}${capabilities.reason === undefined ? '' : ` (${capabilities.reason})`}`,
  };
}

function controlWords(control: ControlId): string {
  return control.replaceAll('_', ' ');
}

const planned = (controls: readonly ControlId[], scope: string): Draft => ({ level: 'planned', controls, scope });
const unsupported = (reason: string): Draft => ({ level: 'unsupported', controls: [], scope: 'nothing', reason });

const DRAFTS: PerDimension<(job: EffectiveJob, capabilities: ExecutorCapabilities) => Draft> = {
  file_read: draftFileRead,
  file_write: draftFileWrite,
  network: draftNetwork,
  subprocess: draftSubprocess,
  credentials: draftCredentials,
  models: () => unsupported('this version has no gateway to models'),
  tools: () => unsupported('this version has no gateway to tools'),
  resources: draftResources,
};

function draftFileRead({ permissions: { fileRead } }: EffectiveJob, { images }: ExecutorCapabilities): Draft {
  // In an image nothing of the host is there but what is named.
  const projected = images === true || fileRead.root === 'projected';
  const others = 'other hard links of a hidden file are not covered';
  return planned(
    [
      'mount_namespace',
      ...(projected ? (['projected_root'] as const) : []),
      'hidden_paths',
      ...(images === true || fileRead.home === 'private' ? (['private_home'] as const) : []),
      'kernel_files',
    ],
    images === true
      ? `the image, the workspace and what is granted; ${others}`
      : projected
        ? 'the workspace, the system, toolchains on PATH and what is granted; other hard links of a hidden file are not covered'
        : `everything that you can read${fileRead.deny.length > 0 ? ', less what is denied' : ''}; other hard links of a hidden file are not covered`,
  );
}

function draftFileWrite({ permissions: { fileWrite, fileRead } }: EffectiveJob, { images }: ExecutorCapabilities): Draft {
  const staged = fileWrite.stage.length > 0;
  return planned(
    ['mount_namespace', 'read_only_host', ...(staged ? (['staged_workspace'] as const) : []), 'private_home', 'kernel_files'],
    [
      staged ? 'changes of the workspace are staged' : 'the workspace is read-only',
      fileWrite.direct.length > 0 ? `${plural(fileWrite.direct.length, 'direct share')} written without a stage` : undefined,
      images === true || fileRead.home === 'private' ? 'HOME is private' : 'writes to HOME are private and thrown away',
      fileWrite.deny.length > 0 ? 'write denials by glob are enforced at apply' : undefined,
    ]
      .filter((part) => part !== undefined)
      .join('; '),
  );
}

function draftNetwork({ mode, permissions: { network } }: EffectiveJob, capabilities: ExecutorCapabilities): Draft {
  switch (network.kind) {
    case 'deny':
      return capabilities.network.deny
        ? planned(['network_namespace', 'host_sockets'], "only the job's own loopback; no host socket")
        : unsupported(`the ${capabilities.executor} executor can't close the network`);
    case 'selective':
      return draftSelective(network, capabilities);
    case 'public':
      if (mode === 'strict') return unsupported('--strict enforces what is asked, and an open network has nothing to enforce');
      return capabilities.network.public
        ? planned(['network_public'], 'nothing is restricted: every address that this machine reaches, its own services included')
        : unsupported(`the ${capabilities.executor} executor can't give the job the network`);
  }
}

/** Whether an executor keeps the lists of a network that is open for chosen hosts, or for all but some. */
export function opensChosen(network: EffectivePermissions['network'], { network: can }: ExecutorCapabilities): boolean {
  return can.selective && (!network.defaultAllow || can.openByDefault === true);
}

/** The lists are kept by the data path: the host's process owns every socket that answers in the job's network. */
function draftSelective(network: EffectivePermissions['network'], capabilities: ExecutorCapabilities): Draft {
  const { executor, network: can } = capabilities;
  if (can.byProxy === true && !can.selective && network.publish.length === 0) {
    return {
      level: 'cooperative',
      controls: ['proxy_offered'],
      scope: 'clients that use a proxy by configuration reach the listed hosts alone; other clients go around it',
      reason: `the ${executor} executor can only ask: the command can go around it`,
    };
  }
  if (!can.selective) return unsupported(`the ${executor} executor can open the network or close it, not open it for chosen hosts`);
  if (!opensChosen(network, capabilities)) {
    return unsupported(`the ${executor} executor answers the ports that rules name, and a network that is open but for some hosts needs every port`);
  }
  const published = network.publish.length > 0;
  return planned(
    ['network_namespace', 'overlay_network', 'host_sockets', ...(published ? (['published_ports'] as const) : [])],
    [
      network.allow.length > 0 ? 'the listed hosts on the listed ports' : undefined,
      network.hostPorts.length > 0 ? `${plural(network.hostPorts.length, 'port')} of the host's loopback` : undefined,
      published ? `${plural(network.publish.length, 'port')} of the job published on the host's loopback` : undefined,
      'nothing else',
    ]
      .filter((part) => part !== undefined)
      .join('; '),
  );
}

/** What a list of programs covers. */
const LISTED_SCOPE =
  'the command, the listed programs and the interpreters that they name; what they load as data (scripts, libraries, other programs through the loader) is not covered';

function draftSubprocess({ permissions: { subprocess } }: EffectiveJob, capabilities: ExecutorCapabilities): Draft {
  const contained: readonly ControlId[] = [
    'pid_namespace',
    'shim_is_init',
    'no_new_privs',
    'capabilities',
    'user_drop',
    'seccomp',
    'descriptors',
    'tree_killed',
  ];
  const { executor } = capabilities;
  switch (subprocess.kind) {
    case 'contained':
      return capabilities.subprocess.contained
        ? planned(contained, 'any program, in a process tree of its own that ends with the command')
        : unsupported(`the ${executor} executor can't contain the process tree`);
    case 'none':
      return capabilities.subprocess.none
        ? planned([...contained, 'no_program'], 'no program beyond the command itself')
        : unsupported(`the ${executor} executor can't forbid further programs`);
    case 'listed':
      return capabilities.subprocess.listed
        ? planned([...contained, 'listed_programs'], LISTED_SCOPE)
        : unsupported(`the ${executor} executor can't limit which programs run, only contain them`);
  }
}

function draftCredentials({ permissions: { credentials, network } }: EffectiveJob, capabilities: ExecutorCapabilities): Draft {
  const injected = credentials.secrets.filter((secret) => secret.inject !== undefined);
  if (credentials.agentSockets.length > 0) return unsupported(`no executor can hand over the socket of ${credentials.agentSockets.join(', ')} yet`);
  if (injected.length > 0) return draftInjected(injected, network, capabilities);
  return planned(['environment', 'agent_sockets', 'session_keyring'], 'the environment is the projection; uses of passed variables are not observed');
}

/** Secrets that the data path adds to requests; the job holds a placeholder of each. */
function draftInjected(injected: readonly SecretGrant[], network: EffectivePermissions['network'], capabilities: ExecutorCapabilities): Draft {
  const names = injected.map((secret) => secret.name).join(', ');
  const intercepted = injected.filter((secret) => secret.inject?.intercept === true);
  if (intercepted.length > 0) {
    return unsupported(
      `no executor can read https on the job's behalf yet, which \`intercept: true\` asks for (${intercepted.map((secret) => secret.name).join(', ')})`,
    );
  }
  if (network.kind !== 'selective' || !opensChosen(network, capabilities)) {
    return unsupported(
      network.kind === 'selective'
        ? `the ${capabilities.executor} executor has no data path that could add a secret to requests (${names})`
        : `a secret is added to requests by the data path, which only a network for chosen hosts has (${names})`,
    );
  }
  return planned(
    ['environment', 'agent_sockets', 'session_keyring', 'secret_injection'],
    'the environment is the projection; injected secrets are added to plain HTTP requests to their host only, https is passed through unread, and what that host answers is not searched; uses of passed variables are not observed',
  );
}

function draftResources({ permissions: { resources } }: EffectiveJob, capabilities: ExecutorCapabilities): Draft {
  const { limits } = resources;
  const missing: string[] = [];
  const controls: ControlId[] = ['rlimits'];
  if (limits.processes !== undefined) (capabilities.limits.processes ? controls : missing).push('process_limit');
  if (limits.memoryBytes !== undefined) (capabilities.limits.memory ? controls : missing).push('memory_limit');
  if (limits.swapBytes !== undefined && !capabilities.limits.swap) missing.push('swap_limit');
  if (limits.cpus !== undefined) (capabilities.limits.cpus ? controls : missing).push('cpu_limit');
  if (limits.stageSizeBytes !== undefined) controls.push('stage_size');
  if (limits.wallTimeMs !== undefined) controls.push('wall_time');
  if (limits.tmpSizeBytes !== undefined) controls.push('tmp_size');
  const scope = [
    limits.memoryBytes === undefined ? 'memory unlimited' : 'memory of the whole tree',
    limits.processes === undefined ? 'processes unlimited' : `processes ${capabilities.limits.processesBy ?? 'of the whole tree'}`,
    ...(limits.stageSizeBytes === undefined
      ? []
      : ['stage size by measuring the layer over and over, so a run can pass it by what it writes between two measures']),
    'open files, file size and processor time per process',
  ].join('; ');
  if (missing.length === 0) return { level: 'planned', controls, scope };
  return {
    level: 'unsupported',
    controls: [],
    scope,
    reason: `the ${capabilities.executor} executor has no ${missing.map((name) => name.replaceAll('_', ' ')).join(', ')} for the whole tree here`,
  };
}

/** Words for the REQUESTED column. Called for requested dimensions only. */
const ASKED: PerDimension<(job: EffectiveJob) => string> = {
  file_read: ({ mode, permissions: { fileRead } }) => {
    if (mode !== 'default') return mode;
    if (fileRead.root === 'projected') return 'listed';
    return fileRead.deny.length > 0 ? `${String(fileRead.deny.length)} denied` : 'unrestricted';
  },
  file_write: ({ workspace, permissions: { fileWrite } }) => {
    const [first, ...rest] = fileWrite.stage.map((path) =>
      path === workspace ? '.' : path.startsWith(`${workspace}/`) ? path.slice(workspace.length + 1) : 'git',
    );
    const stage = first === undefined ? 'read-only' : rest.length === 0 ? `stage ${shorten(first)}` : `stage ${shorten(first)} +${String(rest.length)}`;
    return fileWrite.direct.length === 0 ? stage : `${stage}, ${String(fileWrite.direct.length)} direct`;
  },
  network: ({ permissions: { network } }) => networkWords(network),
  subprocess: ({ permissions: { subprocess } }) => (subprocess.kind === 'listed' ? plural(subprocess.allow.length, 'program') : subprocess.kind),
  credentials: ({ permissions: { credentials } }) => plural(Object.keys(credentials.environment).length, 'variable'),
  models: () => 'gateway',
  tools: () => 'gateway',
  resources: ({ permissions: { resources } }) => limitWords(resources.limits),
};

export function networkWords(network: EffectivePermissions['network']): string {
  if (network.kind !== 'selective') return network.kind;
  if (network.defaultAllow) return `all but ${String(network.deny.length)}`;
  return network.allow.length > 0
    ? plural(new Set(network.allow.map((rule) => rule.host)).size, 'host')
    : plural(network.hostPorts.length + network.publish.length, 'port');
}

function limitWords(limits: EffectivePermissions['resources']['limits']): string {
  const set = Object.values(limits).filter((limit) => limit !== undefined).length;
  if (limits.processes !== undefined && set === 1) return plural(limits.processes, 'process', 'processes');
  return plural(set, 'limit');
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${String(count)} ${count === 1 ? one : many}`;
}

function shorten(path: string): string {
  return path.length <= 9 ? path : `${path.slice(0, 8)}~`;
}

import { PLACEHOLDER_PREFIX } from '../../src/core/job.ts';
import { mintReceipt, type Receipt, type ReceiptPhase } from '../../src/core/receipt.ts';
import type { JsonValue } from '../../src/core/json.ts';
import { errnoName, type ShimFrame } from './protocol.ts';

type FactFrame = Extract<ShimFrame, { readonly say: 'fact' }>;
type ProbeFrame = Extract<ShimFrame, { readonly say: 'probe' }>;

function shimReceipt(id: string, readFrom: string, value: JsonValue, phase: ReceiptPhase = 'gate'): Receipt {
  return mintReceipt({ id, kind: 'fact', source: 'shim', phase, readFrom, value });
}

/** The receipt of one probe: the errno's name, or `ok`. */
export function receiptOfProbe(frame: ProbeFrame): Receipt {
  return mintReceipt({ id: frame.id, kind: 'probe', source: 'shim', phase: 'gate', readFrom: frame.attempt, value: errnoName(frame.errno) });
}

/** The explicit proxy of a network without isolation: it listens, and belongs to this process. */
export function receiptOfProxy(listener: string, readFrom: string): Receipt {
  return mintReceipt({ id: 'proxy.listener', kind: 'fact', source: 'proc', phase: 'gate', readFrom, value: listener });
}

/** What /proc/<pid>/status (proc_pid_status(5)) says of the controls. Undefined: the line isn't there. */
export interface StatusFacts {
  readonly noNewPrivs: number | undefined;
  /** `none`, or the sets that are not empty. */
  readonly capabilities: string | undefined;
  readonly seccomp: number | undefined;
  readonly filters: number | undefined;
  /** The one uid and gid, when real, effective, saved and filesystem ids agree; else the text. */
  readonly ids: JsonValue | undefined;
  readonly groups: readonly number[];
}

export function parseStatus(text: string): StatusFacts {
  const line = (name: string): string | undefined => new RegExp(`^${name}:[ \\t]*(.*)$`, 'm').exec(text)?.[1];
  const number = (name: string): number | undefined => {
    const value = line(name);
    return value === undefined || !/^[0-9]+$/.test(value) ? undefined : Number(value);
  };
  const sets = ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'].map((name) => [name, line(name)] as const);
  const held = sets.filter(([, value]) => value === undefined || !/^0+$/.test(value));
  const one = (name: string): number | undefined => {
    const values = (line(name) ?? '').split(/\s+/).filter((value) => value !== '');
    return values.length === 4 && new Set(values).size === 1 ? Number(values[0]) : undefined;
  };
  const uid = one('Uid');
  const gid = one('Gid');
  return {
    noNewPrivs: number('NoNewPrivs'),
    capabilities: held.length === 0 ? 'none' : held.map(([name, value]) => `${name}=${value ?? 'unread'}`).join(' '),
    seccomp: number('Seccomp'),
    filters: number('Seccomp_filters'),
    ids: uid === undefined || gid === undefined ? `${line('Uid') ?? ''} ${line('Gid') ?? ''}` : { uid, gid },
    groups: (line('Groups') ?? '')
      .split(/\s+/)
      .filter((value) => value !== '')
      .map(Number)
      .sort((a, b) => a - b),
  };
}

function interfaces(text: string): readonly string[] {
  return text
    .split('\n')
    .slice(2)
    .map((line) => line.split(':')[0]?.trim() ?? '')
    .filter((name) => name !== '')
    .sort();
}

/** Routes of /proc/net/route and /proc/net/ipv6_route that leave by another interface than lo. */
function routes(v4: string, v6: string): readonly string[] {
  const four = v4
    .split('\n')
    .slice(1)
    .map((line) => line.trim().split(/\s+/))
    .filter((fields) => fields.length > 2 && fields[0] !== 'lo')
    .map((fields) => `v4 ${fields[0] ?? ''} ${fields[1] ?? ''}`);
  const six = v6
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .filter((fields) => fields.length > 9 && fields.at(-1) !== 'lo')
    .map((fields) => `v6 ${fields.at(-1) ?? ''} ${fields[0] ?? ''}`);
  return [...four, ...six].sort();
}

function lines(text: string): readonly string[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .sort();
}

/** Families whose default route is local and leads to lo. */
function localFamilies(tables: string): readonly string[] {
  return ['v4 local 0.0.0.0/0 lo', 'v6 local ::/0 lo'].filter((line) => lines(tables).includes(line)).map((line) => line.slice(0, 2));
}

/** Connections that failed and datagrams for which nobody listened, from /proc/net/snmp (RFC 4022, RFC 4113). Undefined: not there. */
export function refusedByKernel(snmp: string): number | undefined {
  const value = (protocol: string, name: string): number | undefined => {
    const [names, values] = snmp.split('\n').filter((line) => line.startsWith(`${protocol}: `));
    const at = names?.split(' ').indexOf(name) ?? -1;
    const text = at < 0 ? undefined : values?.split(' ')[at];
    return text === undefined || !/^[0-9]+$/.test(text) ? undefined : Number(text);
  };
  const failed = value('Tcp', 'AttemptFails');
  const unheard = value('Udp', 'NoPorts');
  return failed === undefined || unheard === undefined ? undefined : failed + unheard;
}

/** A file that the shim could not read is reported as `!errno`; it gives no receipt. */
const unread = (text: string | undefined): text is undefined => text === undefined || text.startsWith('!');

export interface ShimReceiptInput {
  readonly facts: ReadonlyMap<string, FactFrame>;
  readonly probes: readonly ProbeFrame[];
  /** Parsers of mount tables and digests of the executor: text to values. */
  readonly mounts: (mountinfo: string) => Readonly<Record<'table' | 'propagation' | 'writable' | 'executable' | 'stage' | 'tmp_size', JsonValue>>;
  readonly digest: (environment: Buffer) => JsonValue;
  /** The numbers of a container's first processes depend on its runtime: the command's own is told from the rest by name. */
  readonly commandByName?: boolean;
  /** The job's network answers every address: addresses, local routes and the resolver's file are receipts too. */
  readonly overlay?: boolean;
  /** Processes are limited by RLIMIT_NPROC in the job's own user namespace. */
  readonly processLimitByRlimit: boolean;
}

const RLIMIT_NPROC = '6';

/** All receipts that the shim's reports at the gate give. Anything that it did not say is absent. */
export function receiptsAtGate(input: ShimReceiptInput): readonly Receipt[] {
  const { facts } = input;
  const receipts: Receipt[] = input.probes.map(receiptOfProbe);
  const textOf = (id: string): string | undefined => facts.get(id)?.bytes.toString('utf8');
  const fromOf = (id: string): string => facts.get(id)?.from ?? id;
  const add = (id: string, source: string, value: JsonValue | undefined): void => {
    if (value !== undefined) receipts.push(shimReceipt(id, fromOf(source), value));
  };
  for (const kind of ['mnt', 'pid', 'net', 'user', 'ipc', 'uts', 'cgroup']) {
    const text = textOf(`ns.${kind}`);
    if (!unread(text)) add(`ns.${kind}`, `ns.${kind}`, text);
  }
  const net = textOf('ns.net');
  if (!unread(net)) add('ns.net.shared', 'ns.net', net);

  const status = textOf('status');
  if (!unread(status)) {
    const parsed = parseStatus(status);
    add('status.no_new_privs', 'status', parsed.noNewPrivs);
    add('status.capabilities', 'status', parsed.capabilities);
    add('status.seccomp', 'status', parsed.seccomp);
    add('status.seccomp_filters', 'status', parsed.filters);
    add('status.ids', 'status', parsed.ids);
    add('status.groups', 'status', parsed.groups);
  }
  const init = textOf('init.status');
  if (!unread(init)) add('init.capabilities', 'init.status', parseStatus(init).capabilities);
  for (const id of ['init.pid', 'init.dumpable', 'wall.armed_ms']) {
    const text = textOf(id);
    // A timer that isn't armed shows 0 (timerfd_gettime(2)): no time limit.
    if (text !== undefined && /^[0-9]+$/.test(text) && !(id === 'wall.armed_ms' && Number(text) === 0)) add(id, id, Number(text));
  }
  const mountinfo = textOf('mountinfo');
  if (!unread(mountinfo)) {
    const values = input.mounts(mountinfo);
    for (const [name, value] of Object.entries(values)) add(`mount.${name}`, 'mountinfo', value);
  }
  const devices = textOf('net.dev');
  if (!unread(devices)) add('net.interfaces', 'net.dev', interfaces(devices));
  const v4 = textOf('net.route');
  const v6 = textOf('net.ipv6_route');
  if (!unread(v4)) add('net.routes', 'net.route', routes(v4, unread(v6) ? '' : v6));
  if (input.overlay === true) {
    const addresses = textOf('net.addresses');
    if (addresses !== undefined) add('net.addresses', 'net.addresses', lines(addresses));
    const tables = textOf('net.tables');
    if (tables !== undefined) add('net.local', 'net.tables', localFamilies(tables));
    const resolver = textOf('resolver.file');
    if (!unread(resolver)) add('resolver.file', 'resolver.file', resolver);
  }
  const pids = textOf('proc.pids');
  if (pids !== undefined) {
    const command = input.commandByName === true ? Number(textOf('command.pid')) : undefined;
    add(
      'proc.pids',
      'proc.pids',
      pids
        .split(' ')
        .map(Number)
        .sort((a, b) => a - b)
        .map((pid) => (pid === command ? 'command' : pid)),
    );
  }
  const fds = textOf('fds');
  if (fds !== undefined) add('fds', 'fds', fds === '' ? [] : fds.split(' ').map((one) => one.split(':').slice(0, 2).join(':')));
  const limits = textOf('rlimits');
  if (limits !== undefined) {
    const pairs = Object.fromEntries(
      limits
        .split(' ')
        .filter((one) => one !== '')
        .map((one) => one.split('=') as [string, string]),
    );
    add('rlimits', 'rlimits', pairs);
    const processes = pairs[RLIMIT_NPROC];
    if (input.processLimitByRlimit && processes !== undefined) add('limit.processes', 'rlimits', Number(processes.split(':')[0]));
  }
  const environment = facts.get('environment');
  if (environment !== undefined) {
    add('environment', 'environment', input.digest(environment.bytes));
    const placeholders = environment.bytes
      .toString('latin1')
      .split('\0')
      .filter((line) => line.includes(`=${PLACEHOLDER_PREFIX}`));
    if (placeholders.length > 0) add('environment.placeholders', 'environment', placeholders.sort());
  }
  const before = Number(textOf('keyring.before'));
  const after = Number(textOf('keyring.after'));
  if (!Number.isNaN(before) && !Number.isNaN(after)) {
    // ENOSYS: this kernel has no keyrings, so there is none to inherit.
    // EPERM before and after: an engine's filter keeps every process of the container from keyctl(2).
    const session =
      after === -38 ? 'no keyrings in this kernel' : after === -1 && before === -1 ? 'out of reach' : after > 0 && after !== before ? 'fresh' : 'inherited';
    add('keyring.session', 'keyring.after', session);
  }
  return receipts;
}

/** Receipts of the end, taken by the shim when the tree was dead. */
export function receiptsAtEnd(facts: ReadonlyMap<string, FactFrame>, table: (mountinfo: string) => JsonValue): readonly Receipt[] {
  const receipts: Receipt[] = [];
  const mountinfo = facts.get('end.mountinfo');
  if (mountinfo !== undefined) receipts.push(shimReceipt('end.mount.table', mountinfo.from, table(mountinfo.bytes.toString('utf8')), 'end'));
  const processes = facts.get('end.processes');
  if (processes !== undefined) receipts.push(shimReceipt('end.processes', processes.from, Number(processes.bytes.toString('utf8')), 'end'));
  return receipts;
}

/** What `shim watch` says: one line of JSON. Undefined for anything else. */
export function parseWatchLine(line: string): { readonly event: 'watching'; readonly limit: number } | { readonly event: 'over' | 'ended' } | undefined {
  if (/^\{"event":"over","used":[0-9]+\}$/.test(line)) return { event: 'over' };
  if (/^\{"event":"ended","peak":[0-9]+\}$/.test(line)) return { event: 'ended' };
  const limit = /^\{"event":"watching","limit":([0-9]+),"used":[0-9]+\}$/.exec(line)?.[1];
  return limit === undefined ? undefined : { event: 'watching', limit: Number(limit) };
}

/** The limit that the watch of the stage has, in bytes. */
export function receiptOfWatch(limitBytes: number): Receipt {
  return shimReceipt('watch.stage_bytes', 'shim watch, after its first measure of the layers', limitBytes);
}

/** The watch measured the layers once more when everything else was over. */
export function receiptOfWatchEnd(): Receipt {
  return shimReceipt('end.watch', 'shim watch, after its last measure of the layers', 'watched to the end', 'end');
}

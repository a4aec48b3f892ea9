import type { ChildProcess } from 'node:child_process';
import { lstatSync, readFileSync } from 'node:fs';
import { constants } from 'node:os';
import type { Readable, Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { ReadablePath } from '../../src/core/bundle.ts';
import { canonicalJson } from '../../src/core/canonical-json.ts';
import { perDimension } from '../../src/core/dimension.ts';
import { errnoOf, messageOf, ProofrunError } from '../../src/core/errors.ts';
import type { Receipt, ReceiptRequirement } from '../../src/core/receipt.ts';
import type { Ending } from '../../src/core/run.ts';
import { deriveObservations } from '../../src/evidence/index.ts';
import type { LaunchRequest, Session, SessionClosing } from '../../src/executor/executor.ts';
import { endingOf } from '../shim/ending.ts';
import { encodeCommand, encodeOperation, encodeSetting, errnoName, FrameSplitter, parseFrame, PROTOCOL_VERSION, type ShimFrame } from '../shim/protocol.ts';
import { receiptsAtEnd, receiptsAtGate, refusedByKernel } from '../shim/receipts.ts';
import type { StageWatch } from '../shim/stage-watch.host.ts';
import type { NativeAgentLink } from './agent-link.host.ts';
import type { Cgroup } from './cgroup.host.ts';
import type { HostFacts } from './facts.host.ts';
import { countDiscarded } from './discarded.host.ts';
import { digestEnvironment, type NativeLowering } from './lower.ts';
import type { NativeNetwork } from './network.host.ts';
import { watchControls, type Look } from './control-watch.host.ts';
import { readMounts } from './mount-values.ts';
import { parseMountinfo, summariseTable } from './mountinfo.ts';
import { hasEnded, lives, markProcess, type ProcessMark } from './process-end.host.ts';
import { receiptOfInitGone, receiptOfLanding, receiptsOfCgroup, receiptsOfStatus } from './proc-receipts.ts';

type FactFrame = Extract<ShimFrame, { readonly say: 'fact' }>;
type ProbeFrame = Extract<ShimFrame, { readonly say: 'probe' }>;

/** How long the tree and its relay may take to end after they were told to. Then they are killed from outside. */
const END_MS = 10_000;
/** Paths that a warning lists. */
const MOST_NAMED = 5;

export interface NativeLaunch {
  readonly request: LaunchRequest;
  readonly facts: HostFacts;
  readonly lowering: NativeLowering;
  readonly cgroup: Cgroup | undefined;
  readonly child: ChildProcess;
  readonly control: Writable & Readable;
  /** Resolves when outer is in its control group. */
  readonly joined: Promise<void>;
  readonly agent: NativeAgentLink | undefined;
  /** Of a job whose rules name hosts. */
  readonly network: NativeNetwork | undefined;
}

/** A sandbox of bubblewrap and the shim, from the start of outer to the end of the tree. */
export class NativeSession implements Session {
  readonly receipts: Receipt[] = [];
  readonly requirements: readonly ReceiptRequirement[];
  readonly hostPids: number[] = [];
  readonly readable: readonly ReadablePath[];
  readonly exited: Promise<Ending>;
  readonly privateHome: string;
  private readonly launch: NativeLaunch;
  private readonly splitter = new FrameSplitter();
  private readonly facts = new Map<string, FactFrame>();
  private readonly probes: ProbeFrame[] = [];
  private readonly killed: { pid: number; name: string }[] = [];
  private readonly gone: Promise<void>;
  private readonly warnings: string[] = [];
  private groupReceipts: readonly Receipt[] = [];
  private listenerReceipts: readonly Receipt[] = [];
  private stopLooking: () => void = () => undefined;
  private readonly limitHits: string[] = [];
  private settleExited: (ending: Ending) => void = () => undefined;
  private settleReady: (outcome: 'ready' | ProofrunError) => void = () => undefined;
  private readonly atGate: Promise<'ready' | ProofrunError>;
  private settleProbeTarget: (port: number) => void = () => undefined;
  private readonly probeTarget: Promise<number>;
  private failure: ProofrunError | undefined;
  private init: ProcessMark | undefined;
  private watch: StageWatch | undefined;
  private released = false;
  private ended = false;
  private cpuTimeMs: number | null = null;
  private noExec: number | undefined;
  private closing: Promise<SessionClosing> | undefined;

  constructor(launch: NativeLaunch) {
    this.launch = launch;
    this.requirements = launch.lowering.requirements;
    this.readable = readablePaths(launch);
    this.privateHome = launch.lowering.homeUpper;
    this.exited = new Promise((resolve) => {
      this.settleExited = (ending) => {
        this.ended = true;
        this.stopLooking();
        resolve(ending);
      };
    });
    this.atGate = new Promise((resolve) => {
      this.settleReady = resolve;
    });
    this.probeTarget = new Promise((resolve) => {
      this.settleProbeTarget = resolve;
    });
    const { child, control } = launch;
    this.gone = new Promise((resolve) => {
      const exited = (): void => {
        const over = (): void => {
          this.lost('the sandbox ended');
          resolve();
        };
        // Its last words may still wait to be read.
        if (control.closed) over();
        else control.once('close', over);
      };
      // It was started before this object was made.
      if (child.exitCode !== null || child.signalCode !== null) exited();
      else child.once('exit', exited);
    });
    if (child.pid !== undefined) this.hostPids.push(child.pid);
    control.on('data', (chunk: Buffer) => {
      this.hear(chunk);
    });
    control.on('error', () => undefined); // a peer that is gone is noticed by its exit
    control.on('close', () => {
      this.lost('the control channel closed');
    });
  }

  get stdout(): Readable | undefined {
    return this.launch.child.stdout ?? undefined;
  }

  get stderr(): Readable | undefined {
    return this.launch.child.stderr ?? undefined;
  }

  get agent(): NativeAgentLink | undefined {
    return this.launch.agent;
  }

  get stdin(): Writable | undefined {
    return undefined;
  }

  /** Sends the operations and settings, waits for the gate and takes the receipts. Rejects with ERR_LAUNCH. */
  async reachGate(): Promise<void> {
    const { control, joined, lowering } = this.launch;
    const { operations, settings } = lowering.install;
    // Outer builds the root meanwhile. It has no child before the start, so whatever it starts is in the group.
    control.write(Buffer.concat(operations.filter((one) => one.op !== 'start').map(encodeOperation)));
    const watching = this.startWatch();
    const rest = [...operations.filter((one) => one.op === 'start').map(encodeOperation), ...settings.map(encodeSetting)];
    // A network whose rules name hosts has to be answered before it is probed.
    Promise.all([this.probeTarget, joined, this.launch.network?.serve()]).then(
      ([port]) => control.write(Buffer.concat([...rest, ...this.loopbackProbe(port), encodeSetting({ set: 'end' })])),
      (error: unknown) => {
        this.fail(error instanceof ProofrunError ? error : launchError(messageOf(error)));
      },
    );
    const outcome = await this.atGate;
    await watching;
    if (outcome !== 'ready') throw await this.explained(outcome);
    this.receipts.push(...this.shimReceipts(), ...this.statusReceipts());
    this.groupReceipts = this.cgroupReceipts();
    this.listenerReceipts = this.networkReceipts();
    this.receipts.push(...this.groupReceipts, ...this.listenerReceipts);
    for (const { id, upper, host } of lowering.landings) this.receipts.push(receiptOfLanding(id, upper, exists(upper), exists(host)));
  }

  /** Begins to measure the stage, before anything can lie in it. One that can't be started leaves its receipt missing. */
  private async startWatch(): Promise<void> {
    const { request, facts, lowering } = this.launch;
    const limitBytes = lowering.install.stageLimitBytes;
    if (limitBytes === undefined || request.stage.length === 0) return;
    const { startStageWatch } = await import('../shim/stage-watch.host.ts');
    try {
      this.watch = await startStageWatch({ shim: facts.shim, limitBytes, layers: request.stage.map(({ upper }) => upper) });
    } catch (error) {
      this.warnings.push(messageOf(error));
      return;
    }
    this.receipts.push(this.watch.receipt);
    void this.watch.over.then(() => {
      if (this.ended) return;
      this.limitHits.push('stage_size');
      this.launch.control.write(encodeCommand({ do: 'quit' }));
      this.settleExited({ kind: 'limit', limit: 'stage_size' });
    });
  }

  /** Adds what bubblewrap said before it gave up. */
  private async explained(error: ProofrunError): Promise<ProofrunError> {
    await this.endTree(false);
    const said: unknown = this.launch.child.stderr?.read();
    const text = said instanceof Buffer ? said.toString('utf8').trim() : '';
    return text === '' ? error : new ProofrunError('ERR_LAUNCH', { message: `${error.message}: ${text.slice(0, 500)}`, hint: 'job doctor', cause: error });
  }

  release(): Promise<void> {
    if (this.failure !== undefined || this.ended) return Promise.reject(this.failure ?? launchError('the sandbox is gone'));
    if (this.released) return Promise.reject(launchError('the command was released before'));
    this.released = true;
    this.stopLooking = watchControls(this.looks(), (what) => {
      if (this.ended) return;
      this.launch.control.write(encodeCommand({ do: 'quit' }));
      this.fail(new ProofrunError('ERR_CONTROL_LOST', { message: `${what} while the command ran`, hint: 'job status --review last' }));
    });
    this.launch.control.write(encodeCommand({ do: 'release' }));
    return Promise.resolve();
  }

  signal(name: NodeJS.Signals): void {
    if (this.ended) return;
    if (!this.released) this.launch.control.write(encodeCommand({ do: 'quit' }));
    else this.launch.control.write(encodeCommand({ do: 'signal', number: constants.signals[name] }));
  }

  close(): Promise<SessionClosing> {
    this.closing ??= this.end();
    return this.closing;
  }

  /** Ends a launch that did not reach the gate. */
  async abandon(): Promise<void> {
    await this.endTree();
    await this.launch.network?.close();
    await this.watch?.stop();
    await this.launch.cgroup?.remove();
  }

  private hear(chunk: Buffer): void {
    try {
      for (const bytes of this.splitter.push(chunk)) this.obey(parseFrame(bytes));
    } catch (error) {
      this.fail(error instanceof ProofrunError ? error : launchError(messageOf(error)));
      this.launch.control.destroy();
    }
  }

  private obey(frame: ShimFrame): void {
    switch (frame.say) {
      case 'hello':
        if (frame.version !== PROTOCOL_VERSION) throw launchError(`the shim speaks protocol ${frame.version}, and this program ${PROTOCOL_VERSION}`);
        break;
      case 'fact':
        this.facts.set(frame.id, frame);
        if (frame.id === 'target.tcp') this.settleProbeTarget(Number(frame.bytes.toString('utf8')) || 0);
        break;
      case 'probe':
        this.probes.push(frame);
        break;
      case 'error':
        this.fail(
          new ProofrunError('ERR_LAUNCH', {
            message: `the sandbox could not be built: ${frame.call} ${frame.subject}: ${errnoName(frame.errno)}`,
            hint: 'job doctor',
            data: { call: frame.call, subject: frame.subject, errno: errnoName(frame.errno) },
          }),
        );
        break;
      case 'ready':
        this.settleReady('ready');
        break;
      case 'started':
        break;
      case 'no_exec':
        this.noExec = frame.errno;
        break;
      case 'ended':
        // Nothing once the gate was reached.
        this.settleReady(launchError(`the command's process ended before the gate: wait status ${frame.status}`));
        this.settleExited(this.endingOf(frame.status));
        break;
      case 'timeout':
        this.limitHits.push('wall_time');
        this.settleExited({ kind: 'timeout', afterMs: this.launch.request.plan.job.permissions.resources.limits.wallTimeMs ?? 0 });
        break;
      case 'outlived':
        this.killed.push({ pid: frame.pid, name: frame.name });
        break;
      case 'output':
      case 'eof':
      case 'credit':
      case 'stopped':
        throw launchError(`the shim said ${frame.say}, which outer relays itself`);
      case 'done':
        this.cpuTimeMs = Math.round((frame.userUs + frame.systemUs) / 1000);
        break;
    }
  }

  /** A connection to a listener of outer's in the caller's network. Port 0: there is no listener. */
  private loopbackProbe(port: number): readonly Buffer[] {
    const probe = this.launch.lowering.loopbackProbe;
    return probe === undefined || port === 0 ? [] : [encodeSetting({ set: 'probe', probe: { ...probe, subject: '127.0.0.1', args: [port] } })];
  }

  private endingOf(status: number): Ending {
    return endingOf({
      status,
      noExec: this.noExec,
      outOfMemory: () => (this.launch.cgroup?.peaks().oomKills ?? 0) > 0,
      limits: this.launch.request.plan.job.permissions.resources.limits,
    });
  }

  private fail(error: ProofrunError): void {
    this.failure ??= error;
    this.settleReady(this.failure);
    this.settleExited(this.released ? { kind: 'control_lost', detail: this.failure.message } : { kind: 'launch_failed', detail: this.failure.message });
  }

  private lost(what: string): void {
    if (!this.ended) this.fail(launchError(`${what} before the command did`));
  }

  private shimReceipts(): readonly Receipt[] {
    const staged = this.launch.request.stage.map((one) => one.root);
    return receiptsAtGate({
      facts: this.facts,
      probes: this.probes,
      digest: digestEnvironment,
      overlay: this.launch.network !== undefined,
      processLimitByRlimit: !this.launch.facts.asRoot,
      mounts: (text) => readMounts(text, staged),
    });
  }

  /** The processes below outer: bubblewrap, PID 1 of the sandbox, the command's own. */
  private statusReceipts(): readonly Receipt[] {
    let pid = this.launch.child.pid;
    for (let level = 0; level < 3 && pid !== undefined; level++) {
      const children = childrenOf(pid);
      // The process that dials published ports stands beside the sandbox.
      if (level === 0) this.hostPids.push(...children.slice(0, -1));
      pid = level === 0 || children.length === 1 ? children.at(-1) : undefined;
      if (pid !== undefined) this.hostPids.push(pid);
      if (level === 1 && pid !== undefined) this.init = markProcess(pid);
    }
    if (pid === undefined) return [];
    try {
      return receiptsOfStatus(readFileSync(`/proc/${pid}/status`, 'utf8'), pid);
    } catch {
      return []; // no receipt: what is owed stays missing
    }
  }

  /** Controls of needed dimensions that somebody outside can take away. */
  private looks(): readonly Look[] {
    const { request, network } = this.launch;
    const { needed } = request.plan;
    const values = (receipts: readonly Receipt[]): string | undefined =>
      receipts.length === 0 ? undefined : canonicalJson(receipts.map(({ value }) => value));
    return [
      ...(needed.includes('resources')
        ? [
            {
              what: 'the control group or its limits changed',
              atGate: () => values(this.groupReceipts),
              read: () => values(this.cgroupReceipts()),
            },
          ]
        : []),
      ...(needed.includes('network') && network !== undefined
        ? [
            {
              what: 'listeners of the job’s network are no longer held',
              atGate: () => values(this.listenerReceipts),
              read: () => values(network.receiptsAtEnd()),
            },
          ]
        : []),
    ];
  }

  private networkReceipts(): readonly Receipt[] {
    const pid = this.hostPids.at(-1);
    return pid === undefined ? [] : (this.launch.network?.receiptsAtGate(pid) ?? []);
  }

  private cgroupReceipts(): readonly Receipt[] {
    const { cgroup } = this.launch;
    const pid = this.hostPids.at(-1);
    if (cgroup === undefined || pid === undefined) return [];
    try {
      const facts = cgroup.readBack(pid);
      return receiptsOfCgroup(this.launch.facts.asRoot ? facts : facts.filter((fact) => fact.name !== 'process_limit'));
    } catch {
      return [];
    }
  }

  /** Of the command: what the probes met is taken off. */
  private refusedByKernel(): number | null {
    const [before, after] = ['net.snmp', 'end.net.snmp'].map((id) => refusedByKernel(this.facts.get(id)?.bytes.toString('utf8') ?? ''));
    return before === undefined || after === undefined ? null : Math.max(0, after - before);
  }

  private async endTree(drain = true): Promise<void> {
    // Outer waits for the guard of AgentCtl, which ends with its channel.
    this.launch.agent?.end();
    const { child, control } = this.launch;
    const alive = child.exitCode === null && child.signalCode === null;
    if (alive && !this.ended && !control.destroyed) control.write(encodeCommand({ do: 'quit' }));
    if (drain) {
      this.launch.child.stdout?.resume();
      this.launch.child.stderr?.resume();
    }
    const patience = new AbortController();
    const overdue = delay(END_MS, 'overdue', { signal: patience.signal }).catch(() => 'ended');
    if ((await Promise.race([this.gone, overdue])) === 'overdue') {
      if (alive) for (const pid of [...this.hostPids].reverse()) killQuietly(pid);
      control.destroy();
      await this.gone;
    }
    patience.abort();
    control.destroy();
    await this.launch.agent?.gone;
  }

  private async end(): Promise<SessionClosing> {
    const { lowering, cgroup, request, network } = this.launch;
    await this.endTree();
    this.receipts.push(...(network?.receiptsAtEnd() ?? []));
    const counters = network?.counters();
    await network?.close();
    this.settleExited({ kind: 'signal', signal: 'SIGKILL', number: 9 });
    const watched = await this.watch?.stop();
    if (watched !== undefined) this.receipts.push(watched);
    this.receipts.push(...receiptsAtEnd(this.facts, (text) => summariseTable(parseMountinfo(text))));
    if (this.init !== undefined) {
      // The relay ends last by itself. When it was killed, the namespace may need another moment, and its init a reminder.
      if (lives(this.init)) killQuietly(this.init.pid);
      this.receipts.push(receiptOfInitGone(this.init.pid, await hasEnded(this.init, END_MS)));
    }
    const peaks = cgroup?.peaks();
    const left = (await cgroup?.remove()) ?? [];
    if (left.length > 0) this.warnings.push(`control groups that could not be removed: ${left.join(', ')}`);
    const { notWritable, programs, leftOut } = this.launch.facts;
    this.warnings.push(...leftOut);
    if (programs !== undefined && programs.missing.length > 0) {
      this.warnings.push(`programs of the list that are not on this machine, or lie where the job can write: ${programs.missing.join(', ')}`);
    }
    if (notWritable.length > 0) {
      const named = `${notWritable.slice(0, MOST_NAMED).join(', ')}${notWritable.length > MOST_NAMED ? ', ...' : ''}`;
      this.warnings.push(`${notWritable.length} files belong to another user or group, and the job could not change them: ${named}`);
    }
    const { dimensions } = request.plan;
    const limitHits = [...this.limitHits, ...((peaks?.oomKills ?? 0) > 0 ? ['memory'] : []), ...((peaks?.processLimitHits ?? 0) > 0 ? ['processes'] : [])];
    return {
      observations: {
        contract: 1,
        executor: 'native',
        dimensions: deriveObservations(
          this.requirements,
          this.receipts,
          perDimension((dimension) => dimensions[dimension].scope),
        ),
        requirements: this.requirements,
        receipts: this.receipts,
      },
      peaks: { memoryBytes: peaks?.memoryBytes ?? null, processes: peaks?.processes ?? null, cpuTimeMs: peaks?.cpuTimeMs ?? this.cpuTimeMs },
      limitHits,
      killed: this.killed,
      warnings: this.warnings,
      ...(counters === undefined ? {} : { network: { counters, kernelRefused: this.refusedByKernel() } }),
      // Before the release nothing of the job ran: what lies there are our probes.
      discarded: this.released ? countDiscarded(lowering.homeUpper) : { files: 0, bytes: 0, top: [] },
    };
  }
}

function launchError(message: string): ProofrunError {
  return new ProofrunError('ERR_LAUNCH', { message, hint: 'job doctor' });
}

function exists(path: string): boolean {
  try {
    lstatSync(path);
    return true;
  } catch (error) {
    // What can't be looked at is not known to be absent.
    return errnoOf(error) !== 'ENOENT';
  }
}

/** /proc/<pid>/task/<pid>/children (proc_tid_children(5)), the first one first; each process of the chain has one child at the gate. */
function childrenOf(pid: number): readonly number[] {
  try {
    const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
    return text === '' ? [] : text.split(' ').map(Number);
  } catch {
    return [];
  }
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It ended by itself.
  }
}

function readablePaths({ facts, request }: NativeLaunch): readonly ReadablePath[] {
  const { job } = request.plan;
  return [
    ...facts.projected.entries
      .filter((one) => one.kind === 'tree' || one.kind === 'file')
      .map((one): ReadablePath => ({ path: one.path, access: 'read_only' })),
    ...(request.views ?? []).map((one): ReadablePath => ({ path: one.root, access: 'read_only' })),
    ...request.stage.map((one): ReadablePath => ({ path: one.root, access: 'staged' })),
    ...(job.permissions.fileRead.home === 'real' ? [{ path: job.home, access: 'private_writes' } as const] : []),
    ...facts.directShares.map(({ path }): ReadablePath => ({ path, access: 'direct' })),
  ];
}

import { readFileSync } from 'node:fs';
import { lstat } from 'node:fs/promises';
import { constants } from 'node:os';
import { basename, dirname } from 'node:path';
import type { Duplex, Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type Docker from 'dockerode';
import type { ReadablePath } from '../../src/core/bundle.ts';
import { perDimension } from '../../src/core/dimension.ts';
import { errnoOf, messageOf, ProofrunError } from '../../src/core/errors.ts';
import type { Receipt, ReceiptRequirement } from '../../src/core/receipt.ts';
import type { Ending } from '../../src/core/run.ts';
import { deriveObservations } from '../../src/evidence/index.ts';
import type { LaunchRequest, Session, SessionClosing } from '../../src/executor/executor.ts';
import { readFacts, readPeaks, type CgroupDirectory, type CgroupPeaks } from '../native/cgroup-facts.host.ts';
import { countDiscarded } from '../native/discarded.host.ts';
import { digestEnvironment } from '../native/lower.ts';
import { parseMountinfo, summariseTable } from '../native/mountinfo.ts';
import { hasEnded, lives, markProcess, type ProcessMark } from '../native/process-end.host.ts';
import { receiptOfInitGone, receiptOfLanding, receiptsOfCgroup, receiptsOfStatus } from '../native/proc-receipts.ts';
import { endingOf } from '../shim/ending.ts';
import { encodeCommand, encodeSetting, errnoName, FrameSplitter, parseFrame, PROTOCOL_VERSION, type Command, type ShimFrame } from '../shim/protocol.ts';
import { receiptsAtEnd, receiptsAtGate } from '../shim/receipts.ts';
import type { Carrier } from './apart/carrier.host.ts';
import { readVolumeMounts, summariseVolumes } from './apart/volume-mounts.ts';
import { pidOfInspect, receiptOfContainerGone, receiptOfReturn, receiptOfVolumeLanding, receiptsOfInspect } from './engine-receipts.ts';
import type { DockerFacts } from './facts.host.ts';
import { statusOf } from './images.host.ts';
import { removeKernelWork } from './layers.host.ts';
import type { DockerLowering } from './lower.ts';
import { readMounts } from '../native/mount-values.ts';
import { InputPump, OutputStream } from './streams.host.ts';
import type { CallerTerminal } from './terminal.host.ts';

type FactFrame = Extract<ShimFrame, { readonly say: 'fact' }>;
type ProbeFrame = Extract<ShimFrame, { readonly say: 'probe' }>;

/** How long the tree may take to end after it was told to. Then the engine kills the container. */
const END_MS = 10_000;

export interface DockerLaunch {
  readonly request: LaunchRequest;
  readonly facts: DockerFacts;
  readonly lowering: DockerLowering;
  readonly container: Docker.Container;
  /** Resolves when the engine has removed the container; rejects when the engine is lost. */
  readonly removed: Promise<unknown>;
  readonly control: Duplex;
  readonly terminal: CallerTerminal | undefined;
  /** Where the engine doesn't see this machine's files. */
  readonly carrier: Carrier | undefined;
  /** Removes root's files that this user can't. Resolves to what is left, in words. */
  readonly scrub: (directories: readonly string[]) => Promise<readonly string[]>;
}

/** A container whose PID 1 is the shim, from its first word to the container's removal. */
export class DockerSession implements Session {
  readonly receipts: Receipt[] = [];
  readonly requirements: readonly ReceiptRequirement[];
  readonly hostPids: number[] = [];
  readonly readable: readonly ReadablePath[];
  readonly privateHome: string;
  readonly exited: Promise<Ending>;
  readonly stdout: OutputStream | undefined;
  readonly stderr: OutputStream | undefined;
  private readonly launch: DockerLaunch;
  private readonly splitter = new FrameSplitter();
  private readonly facts = new Map<string, FactFrame>();
  private readonly probes: ProbeFrame[] = [];
  private readonly killed: { pid: number; name: string }[] = [];
  private readonly warnings: string[] = [];
  private readonly limitHits: string[] = [];
  private readonly input: InputPump | undefined;
  private readonly output: OutputStream;
  private readonly errorOutput: OutputStream;
  private settleExited: (ending: Ending) => void = () => undefined;
  private settleReady: (outcome: 'ready' | ProofrunError) => void = () => undefined;
  private settleDone: () => void = () => undefined;
  private readonly atGate: Promise<'ready' | ProofrunError>;
  /** The shim has said its last word, or can't any more. */
  private readonly done: Promise<void>;
  private failure: ProofrunError | undefined;
  private init: ProcessMark | undefined;
  private groups: readonly CgroupDirectory[] = [];
  private peaks: CgroupPeaks | undefined;
  private released = false;
  private ended = false;
  private engineLost: string | undefined;
  private cpuTimeMs: number | null = null;
  private noExec: number | undefined;
  private closing: Promise<SessionClosing> | undefined;

  constructor(launch: DockerLaunch) {
    this.launch = launch;
    this.requirements = launch.lowering.requirements;
    this.readable = readablePaths(launch);
    this.privateHome = launch.lowering.mounts.homeUpper;
    this.exited = new Promise((resolve) => {
      this.settleExited = (ending) => {
        this.ended = true;
        resolve(ending);
      };
    });
    this.atGate = new Promise((resolve) => {
      this.settleReady = resolve;
    });
    this.done = new Promise((resolve) => {
      this.settleDone = resolve;
    });
    const send = (command: Command): void => {
      this.send(command);
    };
    this.output = new OutputStream(1, send);
    this.errorOutput = new OutputStream(2, send);
    const { io } = launch.request;
    this.stdout = io.kind === 'pipes' ? this.output : undefined;
    this.stderr = io.kind === 'pipes' ? this.errorOutput : undefined;
    if (io.kind === 'terminal') launch.terminal?.show(this.output);
    this.input = io.kind === 'terminal' || io.stdin === 'inherit' ? new InputPump(process.stdin, send) : undefined;
    const { control } = launch;
    control.on('data', (chunk: Buffer) => {
      this.hear(chunk);
    });
    control.on('error', () => undefined); // a peer that is gone is noticed by its close
    const heardAll = new Promise<void>((resolve) => {
      control.once('close', resolve);
    });
    void heardAll.then(() => {
      this.lost('the control channel closed');
    });
    launch.removed.then(
      async () => {
        // The engine may say so before the last of what the shim sent was read.
        await patience(heardAll, END_MS);
        this.lost('the container ended');
      },
      (error: unknown) => {
        this.engineLost = messageOf(error);
        this.lost(`the engine was lost (${this.engineLost})`);
        // The job must not go on without an engine that could end it.
        control.destroy();
      },
    );
  }

  get stdin(): Writable | undefined {
    return undefined;
  }

  /** Sends the settings, waits for the gate and takes the receipts. Rejects with ERR_LAUNCH. */
  async reachGate(): Promise<void> {
    const { lowering, container, control } = this.launch;
    const opening = [this.output.begin(), this.errorOutput.begin(), ...(this.input === undefined ? [{ do: 'input_end' } as const] : [])];
    control.write(Buffer.concat([...opening.map(encodeCommand), ...lowering.install.settings.map(encodeSetting)]));
    const outcome = await this.atGate;
    if (outcome !== 'ready') throw outcome;
    const inspected: unknown = await container.inspect();
    // Of another machine's processes nothing is here to be read, or to be ended by its number.
    const init = this.launch.carrier === undefined ? pidOfInspect(inspected) : undefined;
    this.receipts.push(...this.shimReceipts(), ...receiptsOfInspect(inspected), ...this.statusReceipts(init), ...this.cgroupReceipts());
    this.receipts.push(...(await Promise.all(lowering.landings.map((one) => this.landing(one)))));
  }

  private async landing({ id, upper, host }: DockerLowering['landings'][number]): Promise<Receipt> {
    const { carrier, request } = this.launch;
    if (carrier === undefined) return receiptOfLanding(id, upper, await exists(upper), await exists(host));
    const root = request.stage.find((one) => one.upper === dirname(upper)) ?? 'home';
    return receiptOfVolumeLanding(id, host, await carrier.has(root, basename(upper)), await exists(host));
  }

  release(): Promise<void> {
    if (this.failure !== undefined || this.ended) return Promise.reject(this.failure ?? launchError('the sandbox is gone'));
    if (this.released) return Promise.reject(launchError('the command was released before'));
    this.released = true;
    this.launch.terminal?.begin(
      (rows, columns) => {
        this.send({ do: 'resize', rows, columns });
      },
      () => {
        this.send({ do: 'continue' });
      },
    );
    this.send({ do: 'release' });
    this.input?.start();
    return Promise.resolve();
  }

  signal(name: NodeJS.Signals): void {
    if (this.ended) return;
    if (!this.released) this.send({ do: 'quit' });
    else this.send({ do: 'signal', number: constants.signals[name] });
  }

  close(): Promise<SessionClosing> {
    this.closing ??= this.end();
    return this.closing;
  }

  /** Ends a launch that did not reach the gate. */
  async abandon(): Promise<void> {
    await this.endContainer();
    await this.clean();
  }

  private send(command: Command): void {
    const { control } = this.launch;
    if (!control.destroyed && control.writable) control.write(encodeCommand(command));
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
      case 'output':
        (frame.stream === 1 ? this.output : this.errorOutput).deliver(frame.bytes);
        break;
      case 'eof':
        (frame.stream === 1 ? this.output : this.errorOutput).finish();
        break;
      case 'credit':
        this.input?.credit(frame.bytes);
        break;
      case 'stopped':
        this.launch.terminal?.stop();
        break;
      case 'ended':
        this.input?.stop();
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
      case 'done':
        this.cpuTimeMs = Math.round((frame.userUs + frame.systemUs) / 1000);
        this.peaks = this.readPeaks();
        // Nothing is left to read: the shim may leave, and the engine take the container away.
        this.send({ do: 'leave' });
        this.settleDone();
        break;
    }
  }

  private endingOf(status: number): Ending {
    return endingOf({
      status,
      noExec: this.noExec,
      outOfMemory: () => (this.readPeaks().oomKills ?? 0) > 0,
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
    this.settleDone();
    this.input?.stop();
    this.output.finish();
    this.errorOutput.finish();
  }

  private shimReceipts(): readonly Receipt[] {
    const staged = this.launch.request.stage.map((one) => one.root);
    return receiptsAtGate({
      facts: this.facts,
      probes: this.probes,
      digest: digestEnvironment,
      processLimitByRlimit: false,
      commandByName: true,
      mounts: (text) => (this.launch.carrier === undefined ? readMounts(text, staged) : readVolumeMounts(text, staged)),
    });
  }

  /** The container's first process as the engine names it, and the command's: its only child at the gate. */
  private statusReceipts(init: number | undefined): readonly Receipt[] {
    if (init === undefined) return [];
    this.hostPids.push(init);
    this.init = markProcess(init);
    try {
      const children = readFileSync(`/proc/${init}/task/${init}/children`, 'utf8').trim().split(' ');
      const pid = children.length === 1 && children[0] !== '' ? Number(children[0]) : undefined;
      if (pid === undefined) return [];
      this.hostPids.push(pid);
      return receiptsOfStatus(readFileSync(`/proc/${pid}/status`, 'utf8'), pid);
    } catch {
      return []; // no receipt: what is owed stays missing
    }
  }

  private cgroupReceipts(): readonly Receipt[] {
    if (this.launch.carrier !== undefined) return this.insideCgroupReceipts();
    const pid = this.hostPids.at(-1);
    if (pid === undefined) return [];
    const { cgroupVersion } = this.launch.facts.engine;
    const kinds: readonly (readonly string[])[] = cgroupVersion === 2 ? [['memory', 'pids', 'cpu']] : [['memory'], ['pids'], ['cpu']];
    const receipts: Receipt[] = [];
    for (const controllers of kinds) {
      try {
        const facts = readFacts([{ version: cgroupVersion, directory: '', controllers }], pid);
        const places = facts.find((fact) => fact.name === 'group')?.value;
        if (Array.isArray(places)) {
          this.groups = [...this.groups, ...places.map((directory) => ({ version: cgroupVersion, directory: String(directory), controllers }))];
        }
        receipts.push(...receiptsOfCgroup(facts));
      } catch {
        // A hierarchy that isn't there gives no receipt.
      }
    }
    return receipts;
  }

  /** From the shim, in the container's own view of its groups, which the job can't write. */
  private insideCgroupReceipts(): readonly Receipt[] {
    const top = '/sys/fs/cgroup';
    this.groups =
      this.launch.facts.engine.cgroupVersion === 2
        ? [{ version: 2, directory: top, controllers: ['memory', 'pids', 'cpu'] }]
        : ['memory', 'pids', 'cpu', 'cpuacct'].map((name) => ({ version: 1, directory: `${top}/${name}`, controllers: [name] }));
    return this.groups.flatMap((group) => {
      try {
        return receiptsOfCgroup(readFacts([group], undefined, this.heardOf), 'shim');
      } catch {
        return []; // a hierarchy that isn't there gives no receipt
      }
    });
  }

  /** A file that the shim read. */
  private readonly heardOf = (file: string): string | undefined => this.facts.get(file)?.bytes.toString('utf8');

  private readPeaks(): CgroupPeaks {
    return this.launch.carrier === undefined ? readPeaks(this.groups) : readPeaks(this.groups, this.heardOf);
  }

  /** Ends the tree and waits until the engine has removed the container. Never throws. */
  private async endContainer(): Promise<void> {
    const { control, container, removed } = this.launch;
    this.send({ do: 'quit' });
    this.output.resume();
    this.errorOutput.resume();
    await patience(this.done, END_MS);
    control.end();
    const gone = removed.then(
      () => 'removed',
      () => 'lost',
    );
    if ((await patience(gone, END_MS)) === undefined) {
      control.destroy();
      await container.remove({ force: true, v: true }).catch((error: unknown) => {
        this.warnings.push(`the container ${container.id.slice(0, 12)} could not be removed: ${messageOf(error)}`);
      });
      await patience(gone, END_MS);
    }
    control.destroy();
    if (this.engineLost !== undefined) {
      // Only the shim's own end is left to end the tree; its control channel is closed.
      for (const pid of [...this.hostPids].reverse()) killQuietly(pid);
      this.warnings.push(
        `the engine was lost, so the container ${container.id.slice(0, 12)} may still be listed: ${this.engineLost}; the next job on this engine removes it`,
      );
    }
    this.launch.terminal?.end();
  }

  private async clean(): Promise<void> {
    const { lowering, request, scrub, carrier } = this.launch;
    if (carrier !== undefined) {
      if (this.engineLost === undefined) this.warnings.push(...(await carrier.remove()));
      return;
    }
    const works = [lowering.mounts.homeWork, ...request.stage.map((one) => one.work)];
    const left = works.filter((work) => !removeKernelWork(work));
    if (left.length === 0 || this.engineLost !== undefined) return;
    this.warnings.push(...(await scrub(left)));
  }

  /** What the job changed comes back from an engine that doesn't see the workspace. */
  private async fetch(carrier: Carrier): Promise<void> {
    this.warnings.push(...carrier.warnings);
    const { container } = this.launch;
    if (this.engineLost !== undefined && (await answers(container))) {
      // It was started again: what the job changed is still there, and nothing may write to it any more.
      this.engineLost = undefined;
      await container.remove({ force: true, v: true }).catch(() => undefined);
    }
    const gone = await container.inspect().then(
      () => false,
      (error: unknown) => statusOf(error) === 404,
    );
    this.receipts.push(receiptOfContainerGone(container.id, gone));
    try {
      if (this.released) this.warnings.push(...(await carrier.fetch()));
      this.receipts.push(receiptOfReturn(this.released));
    } catch (error) {
      const why = error instanceof ProofrunError && error.hint !== undefined ? `${messageOf(error)} (${error.hint})` : messageOf(error);
      this.warnings.push(`what the job changed did not come back from the engine: ${why}`);
    }
  }

  private async end(): Promise<SessionClosing> {
    const { lowering, request } = this.launch;
    await this.endContainer();
    this.settleExited({ kind: 'signal', signal: 'SIGKILL', number: 9 });
    const { carrier } = this.launch;
    const summarise = carrier === undefined ? summariseTable : summariseVolumes;
    this.receipts.push(...receiptsAtEnd(this.facts, (text) => summarise(parseMountinfo(text))));
    if (this.init !== undefined) {
      if (lives(this.init)) killQuietly(this.init.pid);
      this.receipts.push(receiptOfInitGone(this.init.pid, await hasEnded(this.init, END_MS)));
    }
    // Before the release nothing of the job ran: what lies there are our probes.
    if (carrier !== undefined) await this.fetch(carrier);
    const nothing = { files: 0, bytes: 0, top: [] } as const;
    const discarded = !this.released ? nothing : carrier === undefined ? countDiscarded(lowering.mounts.homeUpper) : await carrier.countHome();
    await this.clean();
    const { dimensions } = request.plan;
    const { peaks } = this;
    return {
      observations: {
        contract: 1,
        executor: 'docker',
        dimensions: deriveObservations(
          this.requirements,
          this.receipts,
          perDimension((dimension) => dimensions[dimension].scope),
        ),
        requirements: this.requirements,
        receipts: this.receipts,
      },
      peaks: { memoryBytes: peaks?.memoryBytes ?? null, processes: peaks?.processes ?? null, cpuTimeMs: peaks?.cpuTimeMs ?? this.cpuTimeMs },
      limitHits: [...this.limitHits, ...((peaks?.oomKills ?? 0) > 0 ? ['memory'] : []), ...((peaks?.processLimitHits ?? 0) > 0 ? ['processes'] : [])],
      killed: this.killed,
      warnings: this.warnings,
      discarded,
    };
  }
}

export function launchError(message: string): ProofrunError {
  return new ProofrunError('ERR_LAUNCH', { message, hint: 'job doctor' });
}

/** Undefined: it took too long. */
async function patience<T>(promise: Promise<T>, ms: number): Promise<T | undefined> {
  const over = new AbortController();
  const overdue = delay(ms, undefined, { signal: over.signal }).catch(() => undefined);
  try {
    return await Promise.race([promise, overdue]);
  } finally {
    over.abort();
  }
}

async function exists(path: string): Promise<boolean> {
  try {
    await lstat(path);
    return true;
  } catch (error) {
    // What can't be looked at is not known to be absent.
    return errnoOf(error) !== 'ENOENT';
  }
}

/** How long an engine that was lost may take to come back with the changes of a job. */
const RETURN_MS = 30_000;

async function answers(container: Docker.Container): Promise<boolean> {
  for (const since = performance.now(); performance.now() - since < RETURN_MS;) {
    try {
      await container.inspect();
      return true;
    } catch (error) {
      if (statusOf(error) !== undefined) return true;
    }
    await delay(200);
  }
  return false;
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It ended by itself, or isn't ours to end.
  }
}

function readablePaths({ facts, request }: DockerLaunch): readonly ReadablePath[] {
  return [
    ...facts.granted.map(({ path }): ReadablePath => ({ path, access: 'read_only' })),
    ...request.stage.map((one): ReadablePath => ({ path: one.root, access: 'staged' })),
    ...facts.direct.map(({ path }): ReadablePath => ({ path, access: 'direct' })),
  ];
}

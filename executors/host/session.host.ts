import { spawn, type ChildProcess, type StdioOptions } from 'node:child_process';
import { closeSync, statSync } from 'node:fs';
import { constants } from 'node:os';
import { PassThrough, type Readable } from 'node:stream';
import { ProofrunError, errnoOf, messageOf } from '../../src/core/errors.ts';
import type { Receipt, ReceiptRequirement } from '../../src/core/receipt.ts';
import type { Ending } from '../../src/core/run.ts';
import type { IoPlan, LaunchRequest, Session, SessionClosing } from '../../src/executor/executor.ts';
import { hostObservations } from './observations.ts';
import { dropPipe, type OutputPipe } from './pipes.host.ts';
import type { OfferedProxy } from './proxy.host.ts';
import { ProcessTree } from './process-tree.host.ts';

/** A pipe that a process beyond our reach still holds is given up this long after the end of the tree. */
const HELD_PIPE_MS = 200;

/** Errors of spawn(2) that are about this machine, not about the command. */
const NOT_THE_COMMAND = new Set(['EAGAIN', 'ENOMEM', 'EMFILE', 'ENFILE']);

function endingOfSpawn(error: unknown, cwd: string): Ending {
  const errno = errnoOf(error) ?? 'EIO';
  if (NOT_THE_COMMAND.has(errno)) return { kind: 'launch_failed', detail: `spawn: ${messageOf(error)}` };
  // spawn reports a missing working directory like a missing command.
  if (statSync(cwd, { throwIfNoEntry: false })?.isDirectory() !== true) return { kind: 'launch_failed', detail: `chdir ${cwd}: no such directory` };
  return { kind: errno === 'ENOENT' || errno === 'ENOTDIR' ? 'not_found' : 'not_executable', errno };
}

function endingOfExit(code: number | null, signal: NodeJS.Signals | null): Ending {
  if (signal !== null) return { kind: 'signal', signal, number: constants.signals[signal] };
  return { kind: 'exit', code: code ?? 0 };
}

/** A command that waits to be started. Nothing is isolated, so nothing is built before release and there are no receipts. */
export class HostSession implements Session {
  readonly receipts: readonly Receipt[];
  readonly requirements: readonly ReceiptRequirement[];
  readonly stdin = undefined;
  readonly stdout: PassThrough | undefined;
  readonly stderr: PassThrough | undefined;
  readonly exited: Promise<Ending>;

  readonly #request: LaunchRequest;
  readonly #io: IoPlan;
  readonly #proxy: OfferedProxy | undefined;
  /** Undefined on a terminal, and where real pipes can't be had. */
  readonly #pipes: readonly [OutputPipe, OutputPipe] | undefined;
  #sources: readonly (Readable | null)[] = [];
  #settle: (ending: Ending) => void = () => undefined;
  #state: 'waiting' | 'running' | 'ended' = 'waiting';
  /** Why the command is about to end, when that is our doing: the first cause wins over the signal that carried it out. */
  #cause: Ending | undefined;
  #child: ChildProcess | undefined;
  #tree: ProcessTree | undefined;
  #timer: NodeJS.Timeout | undefined;
  #closing: Promise<SessionClosing> | undefined;

  constructor(request: LaunchRequest, pipes: readonly [OutputPipe, OutputPipe] | undefined, proxy: OfferedProxy | undefined) {
    this.#request = request;
    this.#proxy = proxy;
    this.receipts = proxy?.receipts ?? [];
    this.requirements = proxy?.requirements ?? [];
    this.#pipes = pipes;
    this.#io = request.io;
    this.stdout = request.io.kind === 'pipes' ? new PassThrough() : undefined;
    this.stderr = request.io.kind === 'pipes' ? new PassThrough() : undefined;
    this.exited = new Promise((resolve) => {
      this.#settle = resolve;
    });
  }

  get hostPids(): readonly number[] {
    return this.#tree === undefined ? [] : [this.#tree.leader];
  }

  release(): Promise<void> {
    if (this.#state !== 'waiting' || this.#child !== undefined) {
      return Promise.reject(
        new ProofrunError('ERR_LAUNCH', {
          message: this.#state === 'running' ? 'the command was released already' : 'the session has ended: the command was not started',
        }),
      );
    }
    const { argv, cwd, permissions } = this.#request.plan.job;
    const [program, ...args] = argv;
    const terminal = this.#io.kind === 'terminal';
    let child: ChildProcess;
    try {
      child = spawn(program, args, {
        cwd,
        env: { ...permissions.credentials.environment, ...this.#proxy?.variables },
        // A session of its own would take the command away from the terminal.
        detached: !terminal,
        stdio: this.#stdio(),
      });
    } catch (error) {
      this.#end(endingOfSpawn(error, cwd));
      return Promise.resolve();
    }
    this.#child = child;
    this.#state = 'running';
    child.once('error', (error) => {
      if (child.pid === undefined) this.#end(endingOfSpawn(error, cwd));
    });
    child.once('exit', (code, signal) => {
      this.#tree?.leaderHasEnded();
      this.#end(this.#cause ?? endingOfExit(code, signal));
    });
    if (child.pid !== undefined) this.#tree = new ProcessTree(child.pid, !terminal);
    this.#sources = this.#pipes === undefined ? [child.stdout, child.stderr] : this.#pipes.map(({ source }) => source);
    for (const [index, source] of this.#sources.entries()) connect(source, index === 0 ? this.stdout : this.stderr);
    for (const { fd } of this.#pipes ?? []) closeSync(fd);
    this.#keepTime(permissions.resources.limits.wallTimeMs);
    return Promise.resolve();
  }

  #stdio(): StdioOptions {
    if (this.#io.kind === 'terminal') return 'inherit';
    const [stdout, stderr] = this.#pipes ?? [];
    return [this.#io.stdin === 'none' ? 'ignore' : 'inherit', stdout?.fd ?? 'pipe', stderr?.fd ?? 'pipe'];
  }

  signal(name: NodeJS.Signals): void {
    if (this.#state === 'waiting') {
      this.#end({ kind: 'signal', signal: name, number: constants.signals[name] });
    } else if (this.#state === 'running') {
      if (name === 'SIGKILL') void this.#tree?.kill();
      else this.#tree?.signalLeader(name);
    }
  }

  close(): Promise<SessionClosing> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  #keepTime(wallTimeMs: number | undefined): void {
    if (wallTimeMs === undefined || this.#state !== 'running') return;
    const started = performance.now();
    // A timer takes at most 2^31 - 1 ms.
    const arm = (): void => {
      const left = wallTimeMs - (performance.now() - started);
      if (left > 0) {
        this.#timer = setTimeout(arm, Math.min(left, 2 ** 31 - 1));
        return;
      }
      this.#cause ??= { kind: 'timeout', afterMs: wallTimeMs };
      void this.#tree?.kill();
    };
    arm();
  }

  #end(ending: Ending): void {
    clearTimeout(this.#timer);
    if (this.#child?.pid === undefined) {
      if (this.#child === undefined) for (const pipe of this.#pipes ?? []) dropPipe(pipe);
      for (const source of this.#sources) source?.destroy();
      this.stdout?.end();
      this.stderr?.end();
    }
    this.#cause ??= ending;
    this.#state = 'ended';
    this.#settle(ending);
  }

  async #close(): Promise<SessionClosing> {
    if (this.#state === 'waiting') this.#end({ kind: 'interrupted', detail: 'closed before the command was released' });
    const endedByItself = this.#state === 'ended';
    this.#cause ??= { kind: 'interrupted', detail: 'closed while the command ran' };
    const { killed, left } = (await this.#tree?.kill()) ?? { killed: [], left: [] };
    await this.exited;
    for (const [index, source] of this.#sources.entries()) giveUp(source, index === 0 ? this.stdout : this.stderr);
    const counters = this.#proxy?.network.counters();
    await this.#proxy?.network.close();
    const timedOut = this.#cause.kind === 'timeout';
    return {
      observations: hostObservations(this.requirements, this.receipts),
      peaks: { memoryBytes: null, processes: null, cpuTimeMs: null },
      limitHits: timedOut ? ['wall_time'] : [],
      killed: endedByItself && !timedOut ? killed.map(({ pid, name }) => ({ pid, name })) : [],
      warnings: [
        ...left.map(({ pid, name }) => `${name} (pid ${pid}) can not be killed`),
        ...(this.#io.kind === 'pipes' && this.#pipes === undefined
          ? ['output went through sockets: the command could not open /dev/stdout (mkfifo failed)']
          : []),
      ],
      ...(counters === undefined ? {} : { network: { counters, kernelRefused: null } }),
      discarded: null,
    };
  }
}

function connect(source: Readable | null, target: PassThrough | undefined): void {
  if (source === null || target === undefined) return;
  source.on('error', () => target.end());
  source.pipe(target);
}

/**
 * The tree is dead, so its pipes end by themselves once they are read; one that doesn't is held by a process that wasn't
 * found. It is given up when nothing has come for a while and nothing waits to be read.
 */
function giveUp(source: Readable | null, target: PassThrough | undefined): void {
  if (source === null || target === undefined || source.readableEnded || source.destroyed) return;
  let seen = false;
  source.on('data', () => {
    seen = true;
  });
  const look = (): void => {
    if (source.readableEnded || target.destroyed) return;
    if (seen || target.readableLength > 0) {
      seen = false;
      setTimeout(look, HELD_PIPE_MS).unref();
      return;
    }
    source.destroy();
    target.end();
  };
  setTimeout(look, HELD_PIPE_MS).unref();
}

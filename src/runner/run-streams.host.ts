import { messageOf } from '../core/errors.ts';
import type { Session } from '../executor/executor.ts';
import type { CommandControl } from './command-control.ts';
import type { ControlServer } from './control-server.host.ts';
import { removeControlSocket } from './control-socket.host.ts';
import { keepOutput, OUTPUT_KEPT_BYTES, OUTPUT_STREAMS, readKept, type KeptOutput, type OutputStream } from './kept-output.host.ts';
import { pumpOutput, type OutputListener, type OutputPump } from './output-pump.host.ts';
import type { RunIo } from './runner.ts';

export interface StreamsPlan {
  /** Absolute; the run's directory. */
  readonly directory: string;
  readonly io: RunIo;
  /** Bytes of each stream that are kept; undefined: the usual. */
  readonly keptBytes: number | undefined;
  readonly control: CommandControl;
  readonly onOutput: OutputListener | undefined;
}

/** The output of one run, and the socket over which other commands reach it. */
export interface RunStreams {
  /** Begins to move the output of the command. */
  connect(session: Session): void;
  /** See OutputPump. */
  hurry(): void;
  /** Resolves when all output that there was has been kept and passed on to the sinks. Call after the session is closed. */
  drained(): Promise<void>;
  readonly kept: readonly KeptOutput[];
  /** Why other commands can't reach this run, or output couldn't be kept. */
  faults(): readonly string[];
  /** Takes the socket's name away, just before the run is over in the store, so that a crash after that leaves none. Who is connected stays so. */
  hide(): Promise<void>;
  /** Tells everybody who waits that the run is over. Idempotent. */
  end(): Promise<void>;
}

/** A run that is over before this has no socket: who asks for it in that time asks again, and finds it ended. Milliseconds. */
const LISTEN_AFTER_MS = 100;

/** Listens soon, so that a run can be stopped while it is still being prepared. */
export function openStreams(plan: StreamsPlan): RunStreams {
  const { directory, io, control } = plan;
  const keptBytes = plan.keptBytes ?? OUTPUT_KEPT_BYTES;
  const faults: string[] = [];
  const kept = io.kind === 'pipes' ? OUTPUT_STREAMS.map((stream) => keepOutput(directory, stream, keptBytes)) : [];
  let server: ControlServer | undefined;
  let listening: Promise<void> | undefined;
  const listen = async (): Promise<void> => {
    try {
      const { serveControl } = await import('./control-server.host.ts');
      server = await serveControl({
        directory,
        signal: control.signal,
        kill: control.kill,
        stop: control.stop,
        kept: (stream) => readKept(directory, stream, keptBytes),
      });
    } catch (error) {
      faults.push(`other commands can't reach this run: ${messageOf(error)}`);
    }
  };
  const timer = setTimeout(() => {
    listening = listen();
  }, LISTEN_AFTER_MS);
  let listener = plan.onOutput;
  const onChunk: OutputListener = (stream, chunk) => {
    server?.publish(stream, chunk);
    try {
      listener?.(stream, chunk);
    } catch (error) {
      // The command must not wait for somebody who can't listen.
      listener = undefined;
      faults.push(`a listener of the output failed: ${messageOf(error)}`);
    }
  };
  let pumps: readonly OutputPump[] = [];
  const sinkOf = (stream: OutputStream) => (io.kind === 'pipes' ? io[stream] : undefined);
  return {
    kept,
    faults: () => [...faults, ...kept.flatMap((one) => one.fault() ?? [])],
    connect: (session) => {
      pumps = kept.map((one) => pumpOutput(session[one.stream], { kept: one, sink: sinkOf(one.stream), onChunk }));
    },
    hurry: () => {
      for (const pump of pumps) pump.hurry();
    },
    drained: async () => {
      await Promise.all(pumps.map((pump) => pump.ended));
      for (const one of kept) one.finish();
    },
    hide: async () => {
      clearTimeout(timer);
      await listening;
      if (server !== undefined) removeControlSocket(directory);
    },
    end: async () => {
      clearTimeout(timer);
      await listening;
      await server?.end();
    },
  };
}

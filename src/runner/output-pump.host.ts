import type { Readable, Writable } from 'node:stream';
import type { KeptOutput, OutputStream } from './kept-output.host.ts';

/** Somebody who sees output as it arrives, without holding it up. */
export type OutputListener = (stream: OutputStream, chunk: Uint8Array) => void;

export interface PumpTarget {
  readonly kept: KeptOutput;
  /** Undefined: the output is only kept. A reader that goes away ends only the passing on. */
  readonly sink: Writable | undefined;
  readonly onChunk: OutputListener;
}

export interface OutputPump {
  /** Resolves when the source has ended. Never rejects: a stream that breaks is one that ended. */
  readonly ended: Promise<void>;
  /**
   * From now on a slow sink holds nothing up: what still comes waits in this process. For when the command has ended, since then only
   * what lies in pipes is left. Idempotent.
   */
  hurry(): void;
}

/** Moves one stream of the command to the kept output, the listeners, and with backpressure to the sink. */
export function pumpOutput(source: Readable | undefined, target: PumpTarget): OutputPump {
  const { kept, sink, onChunk } = target;
  let release: () => void = () => undefined;
  const hurried = new Promise<void>((resolve) => {
    release = resolve;
  });
  let passing = sink?.writable === true;
  const stop = (): void => {
    passing = false;
  };
  sink?.on('error', stop).on('close', stop);

  const move = async (): Promise<void> => {
    if (source === undefined) return;
    try {
      for await (const chunk of source as AsyncIterable<Buffer>) {
        kept.write(chunk);
        onChunk(kept.stream, chunk);
        if (sink !== undefined && passing && !sink.write(chunk)) await Promise.race([drained(sink), hurried]);
      }
    } catch {
      // ECONNRESET and the like: the other side is gone.
    } finally {
      sink?.off('error', stop).off('close', stop);
    }
  };
  return {
    ended: move(),
    hurry: () => {
      release();
    },
  };
}

/** Resolves when the sink takes more, or never will. */
function drained(sink: Writable): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      sink.off('drain', done).off('error', done).off('close', done);
      resolve();
    };
    if (!sink.writable || !sink.writableNeedDrain) resolve();
    else sink.on('drain', done).on('error', done).on('close', done);
  });
}

/** Resolves when everything written so far has left this process, or never will: exiting earlier would cut it off. */
export function flushed(sink: Writable): Promise<void> {
  return new Promise((resolve) => {
    if (sink.writableLength === 0 || !sink.writable) resolve();
    else sink.write('', () => resolve());
  });
}

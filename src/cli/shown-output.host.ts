import type { Writable } from 'node:stream';
import { safeText } from '../core/text-safety.ts';
import type { ControlAnswer } from '../runner/control-protocol.ts';
import type { KeptText, OutputStream } from '../runner/kept-output.host.ts';
import type { CliContext } from './context.ts';
import { countWords } from './report/words.ts';

/**
 * Shows output that a job wrote. On a terminal it passes the sanitiser, since a screen acts on what it is sent; into a file or a pipe it
 * goes byte for byte. What is missing is marked on stderr.
 */
export class ShownOutput {
  readonly #context: CliContext;

  constructor(context: CliContext) {
    this.#context = context;
  }

  /** Resolves when more may be written. */
  async bytes(stream: OutputStream, bytes: Buffer): Promise<void> {
    const sink = this.#context[stream];
    const shown = this.#context.isTerminal[stream] ? safeText(bytes, { lines: true, dropColours: true }) : bytes;
    if (!sink.write(shown)) await drained(sink);
  }

  gap(stream: OutputStream, bytes: number): void {
    this.#context.stderr.write(`job: [... ${countWords(bytes)} bytes of ${stream} left out ...]\n`);
  }

  async kept(text: KeptText): Promise<void> {
    await this.bytes(text.stream, text.head);
    const missing = text.bytesTotal - text.head.length - text.tail.length;
    if (missing > 0) this.gap(text.stream, missing);
    await this.bytes(text.stream, text.tail);
  }

  async answer(answer: Extract<ControlAnswer, { kind: 'output' | 'gap' }>): Promise<void> {
    if (answer.kind === 'gap') this.gap(answer.stream, answer.bytes);
    else await this.bytes(answer.stream, Buffer.from(answer.data, 'base64'));
  }
}

function drained(sink: Writable): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      sink.off('drain', done).off('error', done).off('close', done);
      resolve();
    };
    sink.on('drain', done).on('error', done).on('close', done);
  });
}

import { spawn } from 'node:child_process';
import { ProofrunError, messageOf } from '../../src/core/errors.ts';
import type { Receipt } from '../../src/core/receipt.ts';
import { parseWatchLine, receiptOfWatch, receiptOfWatchEnd } from './receipts.ts';

/** The limit on the size of a stage, kept by a program of ours that measures its layers over and over (executors/shim/watch.c). */
export interface StageWatch {
  /** That it watches, and with which limit, as the program itself said. */
  readonly receipt: Receipt;
  /** Resolves when the layers hold more than the limit; never when they don't. */
  readonly over: Promise<void>;
  /** Ends it. Whether it watched to the end; undefined: it did not, and nothing is proved. Idempotent. */
  stop(): Promise<Receipt | undefined>;
}

export interface StageWatchInput {
  /** Absolute path of proofrun-shim. */
  readonly shim: string;
  readonly limitBytes: number;
  /** Absolute paths of the layers. */
  readonly layers: readonly string[];
}

/** Resolves when the layers were measured once. Throws ERR_LAUNCH. The caller stops it. */
export async function startStageWatch(input: StageWatchInput): Promise<StageWatch> {
  const child = spawn(input.shim, ['watch', String(input.limitBytes), ...input.layers], { env: {}, cwd: '/', stdio: ['pipe', 'pipe', 'pipe'] });
  let complaint = '';
  let partial = '';
  let ended: Receipt | undefined;
  let stopped: Promise<Receipt | undefined> | undefined;
  child.stdin.on('error', () => undefined);
  child.stdout.setEncoding('latin1');
  child.stderr.on('data', (chunk: Buffer) => {
    complaint = (complaint + chunk.toString('utf8')).slice(-500);
  });
  const gone = new Promise<void>((resolve) => {
    child.once('error', (error) => {
      complaint = messageOf(error);
      resolve();
    });
    child.once('close', () => resolve());
  });
  let settleOver: () => void = () => undefined;
  const over = new Promise<void>((resolve) => {
    settleOver = resolve;
  });
  const first = new Promise<Receipt>((resolve, reject) => {
    child.stdout.on('data', (text: string) => {
      const lines = (partial + text).split('\n');
      partial = lines.pop() ?? '';
      for (const line of lines) {
        const said = parseWatchLine(line);
        if (said?.event === 'watching') resolve(receiptOfWatch(said.limit));
        else if (said?.event === 'over') settleOver();
        else if (said?.event === 'ended') ended = receiptOfWatchEnd();
      }
    });
    void gone.then(() => reject(new ProofrunError('ERR_LAUNCH', { message: `the watch of the stage ended: ${complaint.trim()}`, hint: 'job doctor' })));
  });
  const receipt = await first;
  return {
    receipt,
    over,
    stop: () => {
      stopped ??= (async () => {
        child.stdin.end();
        await gone;
        return ended;
      })();
      return stopped;
    },
  };
}

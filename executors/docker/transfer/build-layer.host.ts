import { once } from 'node:events';
import { ProofrunError } from '../../../src/core/errors.ts';
import type { OverlayMarkers } from '../../../src/stage/change-set.host.ts';
import { shimComplaint, spawnShim } from '../../../src/stage/shim-process.host.ts';
import type { LayerStep } from './layer-plan.ts';
import { encodeEnd, encodeStep, LAYER_MAGIC } from './layer-program.ts';

export interface BuildLayerInput {
  readonly shim: string;
  /** An empty directory. */
  readonly upper: string;
  readonly spool: string;
  /** The staged root, for the extended attributes of what was there before. */
  readonly tree: string;
  readonly markers: OverlayMarkers;
  readonly steps: readonly LayerStep[];
}

const CHUNK = 64 << 10;

function* chunksOf(steps: readonly LayerStep[]): Generator<Buffer, void, undefined> {
  let waiting: Buffer[] = [LAYER_MAGIC];
  let bytes = LAYER_MAGIC.length;
  for (const step of steps) {
    const encoded = encodeStep(step);
    waiting.push(encoded);
    bytes += encoded.length;
    if (bytes < CHUNK) continue;
    yield Buffer.concat(waiting, bytes);
    waiting = [];
    bytes = 0;
  }
  waiting.push(encodeEnd(steps.length));
  yield Buffer.concat(waiting);
}

/** Has the shim build a layer. Throws ERR_STAGE_LAYER with the call that failed, ERR_STAGE_FULL, ERR_SHIM_MISSING. */
export async function buildLayer({ shim, upper, spool, tree, markers, steps }: BuildLayerInput): Promise<void> {
  const child = spawnShim(shim, ['upper', upper, spool, '--tree', tree, '--markers', markers], 'pipe');
  let errors = '';
  child.stderr?.on('data', (chunk: Buffer) => {
    errors = (errors + chunk.toString('utf8')).slice(-4096);
  });
  child.stdout?.resume();
  const ended = new Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }>((resolve, reject) => {
    child.once('error', (cause) => reject(new ProofrunError('ERR_SHIM_MISSING', { message: `could not start ${shim}: ${cause.message}`, cause })));
    child.once('close', (code, signal) => resolve({ code, signal }));
  });
  const { stdin } = child;
  const taken = { broken: false };
  stdin?.on('error', () => {
    // It ended before it took all: its exit says why.
    taken.broken = true;
  });
  for (const chunk of chunksOf(steps)) {
    if (taken.broken || stdin === null) break;
    if (!stdin.write(chunk)) await Promise.race([once(stdin, 'drain'), ended]).catch(() => undefined);
  }
  stdin?.end();
  const { code, signal } = await ended;
  if (code === 0) return;
  const { text, errno } = shimComplaint(errors);
  throw new ProofrunError(errno === 'ENOSPC' || errno === 'EDQUOT' ? 'ERR_STAGE_FULL' : 'ERR_STAGE_LAYER', {
    message: `the layer could not be built from what came back: ${text === '' ? `the shim ended ${signal === null ? `with ${code}` : `by ${signal}`}` : text}`,
    ...(errno === undefined ? {} : { data: { errno } }),
  });
}

import { messageOf } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { composeJob } from '../policy/compose.ts';
import { prepareJob, type CallerFacts } from '../policy/prepare.host.ts';
import type { JobRequest } from '../policy/request.ts';
import { OUTPUT_KEPT_BYTES, readKept, type OutputStream } from '../runner/kept-output.host.ts';
import type { Runner } from '../runner/open-runner.host.ts';
import type { RunHandle, RunResult } from '../runner/runner.ts';
import type { Tool, ToolAnswer, ToolCall, ToolSpec } from './contract.ts';

/** How the commands of tools run: in this runner, as this person, with the flags of this person. */
export interface ToolSandbox {
  readonly runner: Runner;
  readonly caller: CallerFacts;
  /** The person's own grants and ceilings: the same for every call. `argv` is the tool's. */
  readonly request: Omit<JobRequest, 'argv'>;
}

/** Bytes of each stream that the agent gets to see; the run keeps more. */
const SEEN_BYTES = 64 * 1024;

/**
 * A tool whose executions are runs: each a contained process under the job's plan, with its own receipts, stage and bundle, which the step names as
 * its evidence. `command`: argv with `{name}` for arguments; no shell reads it.
 */
export function sandboxTool(spec: ToolSpec, command: readonly string[], sandbox: ToolSandbox): Tool {
  return {
    spec,
    execute: async (call) => {
      const filled = fillCommand(command, call.arguments);
      if (filled.kind === 'error') return { outcome: 'refused', value: null, detail: filled.fault };
      return await executeRun(sandbox, filled.argv, call);
    },
  };
}

type Filled = { readonly kind: 'ok'; readonly argv: readonly string[] } | { readonly kind: 'error'; readonly fault: string };

/** `{path}` becomes the argument `path`: text, a number, true or false. An absent one that stands alone is left out; elsewhere it is an error. */
export function fillCommand(command: readonly string[], args: JsonValue): Filled {
  const values: JsonObject = typeof args === 'object' && args !== null && !Array.isArray(args) ? (args as JsonObject) : {};
  const argv: string[] = [];
  for (const word of command) {
    const alone = /^\{([A-Za-z0-9_]+)\}$/.exec(word)?.[1];
    if (alone !== undefined && !Object.hasOwn(values, alone)) continue;
    let fault: string | undefined;
    const text = word.replaceAll(/\{([A-Za-z0-9_]+)\}/g, (_, name: string) => {
      const value = Object.hasOwn(values, name) ? values[name] : undefined;
      if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') return String(value);
      fault = `the argument ${name} is no text, number, true or false`;
      return '';
    });
    if (fault !== undefined) return { kind: 'error', fault };
    if (text.includes('\0')) return { kind: 'error', fault: 'an argument holds a NUL character' };
    argv.push(text);
  }
  return argv.length === 0 || argv[0] === '' ? { kind: 'error', fault: 'no program is left of the command' } : { kind: 'ok', argv };
}

async function executeRun({ runner, caller, request }: ToolSandbox, argv: readonly string[], call: ToolCall): Promise<ToolAnswer> {
  let handle: RunHandle;
  try {
    const prepared = await prepareJob({ ...request, argv, env: [...(request.env ?? []), `PROOFRUN_ARGUMENTS=${call.request}`] }, caller, 'require');
    const admission = await runner.admit(composeJob(prepared.input));
    if (call.signal.aborted) return { outcome: 'not_sent', value: null, detail: 'nobody waits for it any more' };
    handle = await runner.start(admission, { io: { kind: 'pipes', stdin: 'none', stdout: undefined, stderr: undefined } });
  } catch (error) {
    // Nothing has been started.
    return { outcome: 'not_sent', value: null, detail: messageOf(error) };
  }
  const kill = (): void => {
    handle.kill();
  };
  call.signal.addEventListener('abort', kill, { once: true });
  if (isAborted(call.signal)) kill();
  try {
    return answerOf(await handle.result);
  } finally {
    call.signal.removeEventListener('abort', kill);
  }
}

/** It may have been aborted while the run was recorded. */
function isAborted(signal: AbortSignal): boolean {
  return signal.aborted;
}

function answerOf(result: RunResult): ToolAnswer {
  const { ending, bundle } = result;
  const evidence: JsonObject = {
    run: result.id,
    bundle_sha256: bundle.sha256,
    mode: bundle.run.mode,
    enforced: [...bundle.safety.enforced],
    promise: bundle.safety.promise,
    staged: result.stageState,
  };
  const seen = { ...seenOf(result, 'stdout'), ...seenOf(result, 'stderr') };
  switch (ending.kind) {
    case 'exit': {
      const value = { exit_code: ending.code, ...seen };
      return ending.code === 0
        ? { outcome: 'answered_ok', value, evidence }
        : { outcome: 'answered_error', value, detail: `the command ended with ${ending.code}`, evidence };
    }
    case 'refused':
      return { outcome: 'refused', value: null, detail: ending.detail, evidence };
    case 'evidence_missing':
    case 'launch_failed':
      return { outcome: 'not_sent', value: null, detail: `${ending.kind}: ${ending.detail}`, evidence };
    case 'not_found':
    case 'not_executable':
      return {
        outcome: 'not_sent',
        value: null,
        detail: `the program is ${ending.kind === 'not_found' ? 'not found' : 'not executable'} in the sandbox (${ending.errno})`,
        evidence,
      };
    case 'signal':
      return { outcome: 'cut_off', value: seen, detail: `ended by ${ending.signal}`, evidence };
    case 'timeout':
      return { outcome: 'cut_off', value: seen, detail: `ended after ${ending.afterMs} ms`, evidence };
    case 'limit':
      return { outcome: 'cut_off', value: seen, detail: `ended by a limit: ${ending.limit}`, evidence };
    case 'control_lost':
    case 'interrupted':
      return { outcome: 'cut_off', value: seen, detail: `${ending.kind}: ${ending.detail}`, evidence };
  }
}

/** Exact text where it is text; bytes that aren't UTF-8 as base64, under another name. */
function seenOf(result: RunResult, stream: OutputStream): JsonObject {
  const kept = readKept(result.directory, stream, OUTPUT_KEPT_BYTES);
  if (kept === undefined || kept.bytesTotal === 0) return {};
  const whole = Buffer.concat([kept.head, kept.tail]);
  const cut = kept.bytesTotal > SEEN_BYTES;
  const head = cut ? kept.head.subarray(0, SEEN_BYTES / 2) : whole;
  const tail = cut ? whole.subarray(Math.max(head.length, whole.length - SEEN_BYTES / 2)) : Buffer.alloc(0);
  return { ...pieceOf(stream, head), ...(cut ? { ...pieceOf(`${stream}_tail`, tail), [`${stream}_bytes`]: kept.bytesTotal } : {}) };
}

function pieceOf(name: string, bytes: Buffer): JsonObject {
  const text = bytes.toString('utf8');
  return Buffer.from(text, 'utf8').equals(bytes) ? { [name]: text } : { [`${name}_base64`]: bytes.toString('base64') };
}

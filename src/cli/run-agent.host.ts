import { ProofrunError } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { parseStrictJson } from '../core/strict-json.ts';
import { safeLine } from '../core/text-safety.ts';
import type { JobRequest } from '../policy/request.ts';
import { loadAgent, type AgentJob } from '../runtime/agent-file.host.ts';
import type { RunView } from '../runtime/record.ts';
import type { OpenControl } from '../runtime/runtime.host.ts';
import type { NewEvent } from '../store/index.ts';
import type { ParsedArgs } from './command.ts';
import type { CliContext } from './context.ts';
import { jobRequestOf } from './job-request.ts';
import { openControl, type OpenControlRuns } from './open-control.host.ts';
import { controlExitCode, controlJson, controlText } from './report/control.ts';
import { jsonLine } from './report/json.ts';
import { openIdFile } from './run-files.host.ts';

/** `job run --agent FILE`: the agent works until it ends or waits for a decision. */
export async function runAgent(args: ParsedArgs, path: string, context: CliContext): Promise<number> {
  const control = await openControl(context, progress(args, context));
  try {
    const request = sandboxRequest(args);
    const agent = await load(control, path, context.cwd, request);
    const idFile = args.flags.idFile === undefined ? undefined : openIdFile(args.flags.idFile, context.cwd);
    try {
      const open = await control.runtime.start({
        ...agent.definition,
        agentName: agent.name,
        task: args.flags.task ?? agent.task,
        workspace: control.runs.workspace(),
        ...(args.flags.name === undefined ? {} : { name: args.flags.name }),
        source: { file: agent.file, sha256: agent.sha256, directory: context.cwd, request: asJson(request) },
      });
      idFile?.write(open.id);
      return await work(args, context, control, open);
    } finally {
      idFile?.close();
    }
  } finally {
    await control.close();
  }
}

/** `job resume RUN`: with the agent file as it is now, and the flags of the first command. */
export async function resumeAgent(args: ParsedArgs, context: CliContext): Promise<number> {
  const control = await openControl(context, progress(args, context));
  try {
    const id = await control.find(args.words[0]);
    const store = control.runs.runner.parts.store.control;
    const source = sourceOf(parseStrictJson(store.spec(store.rows(id).run.spec_sha256)));
    if (source === undefined) {
      throw new ProofrunError('ERR_RUN_STATE', { message: `${id}: it was started by a program, which has to resume it`, hint: `job show ${id}` });
    }
    const agent = await load(control, source.file, source.directory, source.request);
    const open = await control.runtime.resume(id, agent.definition);
    if (open === undefined) return await report(args, context, control, control.runtime.view(id));
    return await work(args, context, control, open);
  } finally {
    await control.close();
  }
}

async function load(control: OpenControlRuns, path: string, currentDirectory: string, request: Omit<JobRequest, 'argv'>): Promise<AgentJob> {
  const { runner, caller } = control.runs;
  return await loadAgent({ path, currentDirectory, uid: caller.uid, sandbox: { runner, caller: { ...caller, currentDirectory }, request } });
}

async function work(args: ParsedArgs, context: CliContext, control: OpenControlRuns, open: OpenControl): Promise<number> {
  if (args.flags.quiet !== true && args.flags.json !== true) context.stderr.write(`job: ${open.id}\n`);
  return await report(args, context, control, await open.drive());
}

async function report(args: ParsedArgs, context: CliContext, control: OpenControlRuns, view: RunView): Promise<number> {
  const pending = control.runs.runner.parts.store.control.pending(view.id);
  context.stdout.write(args.flags.json === true ? jsonLine(controlJson(view)) : controlText(view, pending));
  return controlExitCode(view);
}

/** The flags as every tool call gets them: at least --safe, and nothing that belongs to the agent's run itself. */
function sandboxRequest(args: ParsedArgs): Omit<JobRequest, 'argv'> {
  const request = jobRequestOf({ ...args, words: [], afterDashes: true });
  const own: readonly string[] = ['argv', 'name'];
  const kept = Object.fromEntries(Object.entries(request).filter(([key]) => !own.includes(key)));
  return { ...kept, mode: request.mode === 'strict' ? 'strict' : 'safe' };
}

function progress(args: ParsedArgs, context: CliContext): (runId: string, event: NewEvent) => void {
  if (args.flags.quiet === true || args.flags.json === true) return () => undefined;
  return (_, event) => {
    if (!event.kind.startsWith('step.') && !event.kind.startsWith('approval.')) return;
    const facts = Object.entries(event.data ?? {}).map(
      ([key, value]: [string, JsonValue]) => `${key} ${safeLine(typeof value === 'string' ? value : JSON.stringify(value), 100)}`,
    );
    context.stderr.write(`job: ${event.kind}  ${facts.join('  ')}\n`);
  };
}

/** Only what JSON carries: a request is text, numbers and lists of text. */
function asJson(request: Omit<JobRequest, 'argv'>): JsonObject {
  return { ...request };
}

interface Source {
  readonly file: string;
  readonly directory: string;
  readonly request: Omit<JobRequest, 'argv'>;
}

function sourceOf(spec: JsonValue): Source | undefined {
  const source = typeof spec === 'object' && spec !== null && 'source' in spec ? spec.source : null;
  if (typeof source !== 'object' || source === null || Array.isArray(source)) return undefined;
  const { file, directory, request } = source as JsonObject;
  if (typeof file !== 'string' || typeof directory !== 'string' || typeof request !== 'object' || request === null) return undefined;
  // Written by runAgent and held to the run's digest by the store.
  return { file, directory, request: request as unknown as Omit<JobRequest, 'argv'> };
}

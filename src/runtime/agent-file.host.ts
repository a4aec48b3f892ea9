import { realpath } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { EFFECTS } from '../core/control.ts';
import { ProofrunError } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { parseStrictJson } from '../core/strict-json.ts';
import { parseDuration } from '../core/units.ts';
import { parseDocument, placeAt, type LocatedDocument } from '../policy/document.ts';
import { readJobFile, readPolicyFile } from '../policy/policy-file.host.ts';
import { checkDocument } from '../policy/schema-check.ts';
import type { ControlLimits, Tool, ToolSpec } from './contract.ts';
import { modelAgent } from './model-agent.ts';
import type { Model, ModelPrice } from './model.ts';
import type { Policy } from './policy.ts';
import type { ControlDefinition } from './runtime.host.ts';
import { sandboxTool, type ToolSandbox } from './sandbox-tool.host.ts';
import { parseScript, scriptModel } from './script-model.ts';
import { compileToolPolicy } from './tool-policy.ts';

/** An agent file, read and compiled. */
export interface AgentJob {
  readonly name: string;
  readonly task: string;
  /** Absolute real path. */
  readonly file: string;
  /** Of the file's bytes, lower-case hex. */
  readonly sha256: string;
  readonly definition: ControlDefinition;
}

export interface AgentFilePlan {
  readonly path: string;
  readonly currentDirectory: string;
  readonly uid: number;
  readonly sandbox: ToolSandbox;
}

const DEFAULT_TIMEOUT_MS = 5 * 60_000;

/**
 * Reads an agent file: YAML or JSON, paths relative to it. It grants nothing: the sandboxes of its tools get what the person and the policies
 * give. ERR_JOB_FILE and ERR_POLICY_FILE with file, line and what was expected.
 */
export async function loadAgent(plan: AgentFilePlan): Promise<AgentJob> {
  const path = resolve(plan.currentDirectory, plan.path);
  const { text, sha256 } = readJobFile(path, plan.path);
  const file = await realpath(path);
  const document = await parseDocument(text, plan.path, 'ERR_JOB_FILE');
  const value = await checkDocument(document, 'agent', 'ERR_JOB_FILE');
  const directory = dirname(file);
  const named = objectOf(value['model']);
  const tools = Object.entries(objectOf(value['tools'])).map(([name, tool]) => readTool(name, objectOf(tool), plan.sandbox));
  const price = readPrice(objectOf(named['price']));
  const model = await readModel(document, named, directory, price);
  const name = textOf(value['name']) ?? 'agent';
  const modelName = textOf(named['name']) ?? '';
  const maxOutputTokens = numberOf(named['max_output_tokens']) ?? null;
  return {
    name,
    task: textOf(value['task']) ?? '',
    file,
    sha256,
    definition: {
      agent: modelAgent({ model: modelName, system: textOf(value['system']) ?? '', maxOutputTokens, tools: tools.map(({ spec }) => spec) }),
      tools,
      policies: [await readPolicy(document, value['policy'], directory, plan)],
      limits: readLimits(objectOf(value['limits'])),
      model: { model, name: modelName, maxOutputTokens },
    },
  };
}

function readTool(name: string, tool: JsonObject, sandbox: ToolSandbox): Tool {
  const command = (Array.isArray(tool['command']) ? (tool['command'] as readonly JsonValue[]) : []).filter((word): word is string => typeof word === 'string');
  const spec: ToolSpec = {
    name,
    description: textOf(tool['description']) ?? `runs ${command.join(' ')}`,
    effect: EFFECTS.find((one) => one === tool['effect']) ?? 'side-effect',
    inputSchema: tool['input_schema'] === undefined ? { type: 'object', additionalProperties: false } : objectOf(tool['input_schema']),
    timeoutMs: durationOf(tool['timeout']) ?? DEFAULT_TIMEOUT_MS,
  };
  return sandboxTool(spec, command, sandbox);
}

async function readModel(document: LocatedDocument, model: JsonObject, directory: string, price: ModelPrice | undefined): Promise<Model> {
  const replies = textOf(model['replies']);
  if (replies === undefined) {
    const { line, column } = placeAt(document, '/model');
    throw new ProofrunError('ERR_JOB_FILE', {
      message: `${document.file}:${line}:${column}: the provider script needs \`replies\`, a JSON file`,
      hint: 'write replies: replies.json',
    });
  }
  const { text } = readJobFile(resolve(directory, replies), replies);
  return scriptModel(parseScript(parseStrictJson(text, { source: replies }), replies), price);
}

async function readPolicy(document: LocatedDocument, policy: JsonValue | undefined, directory: string, plan: AgentFilePlan): Promise<Policy> {
  const where =
    (of: LocatedDocument, base: string) =>
    (pointer: string): string =>
      `${of.file}:${placeAt(of, `${base}${pointer}`).line}`;
  if (typeof policy !== 'string') {
    const rules = policy === undefined ? { default_action: 'ask' } : objectOf(policy);
    return compileToolPolicy(rules, document.file, where(document, '/policy'));
  }
  return await loadToolPolicy(resolve(directory, policy), policy, plan.uid);
}

/** A tool policy from its file, which must be the person's or root's and writable by nobody else. ERR_POLICY_FILE. */
export async function loadToolPolicy(path: string, shown: string, uid: number): Promise<Policy> {
  const found = readPolicyFile(path, uid === 0 ? [0] : [uid, 0]);
  if (found === undefined) throw new ProofrunError('ERR_POLICY_FILE', { message: `${shown}: there is no such file`, hint: `ls -l ${shown}` });
  const document = await parseDocument(found.text, shown, 'ERR_POLICY_FILE');
  const value = await checkDocument(document, 'tool_policy', 'ERR_POLICY_FILE');
  return compileToolPolicy(value, textOf(value['name']) ?? shown, (pointer) => `${shown}:${placeAt(document, pointer).line}`);
}

function readLimits(limits: JsonObject): ControlLimits {
  const usd = textOf(limits['usd']);
  const of = (key: string, value: number | undefined): Partial<ControlLimits> => (value === undefined ? {} : { [key]: value });
  return {
    ...of('steps', numberOf(limits['steps'])),
    ...of('failures', numberOf(limits['failures'])),
    ...of('loops', numberOf(limits['loops'])),
    ...of('modelCalls', numberOf(limits['model_calls'])),
    ...of('inputTokens', numberOf(limits['input_tokens'])),
    ...of('outputTokens', numberOf(limits['output_tokens'])),
    ...of('costNanoUsd', usd === undefined ? undefined : thousandths(usd) * 1_000_000),
    ...of('activeMs', durationOf(limits['active_time'])),
    ...of('elapsedMs', durationOf(limits['elapsed_time'])),
    ...of('approvalMs', durationOf(limits['approval_time'])),
    ...of('grantMs', durationOf(limits['grant_time'])),
    ...of('parallel', numberOf(limits['parallel'])),
    ...of('retries', numberOf(limits['retries'])),
  };
}

function readPrice(price: JsonObject): ModelPrice | undefined {
  const input = textOf(price['input_per_million_usd']);
  const output = textOf(price['output_per_million_usd']);
  if (input === undefined || output === undefined) return undefined;
  return { inputMilliUsdPerMillion: thousandths(input), outputMilliUsdPerMillion: thousandths(output) };
}

/** `3.05` as 3050, without the rounding of floating point. */
function thousandths(decimal: string): number {
  const [whole = '0', fraction = ''] = decimal.split('.');
  return Number(whole + fraction.padEnd(3, '0'));
}

function objectOf(value: JsonValue | undefined): JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : {};
}

function textOf(value: JsonValue | undefined): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

function numberOf(value: JsonValue | undefined): number | undefined {
  return typeof value === 'number' ? value : undefined;
}

function durationOf(value: JsonValue | undefined): number | undefined {
  const parsed = typeof value === 'string' ? parseDuration(value) : undefined;
  return parsed?.kind === 'ok' && parsed.value > 0 ? parsed.value : undefined;
}

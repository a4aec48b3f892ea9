import type { ValidateFunction } from 'ajv';
import { messageOf, ProofrunError } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { safeLine } from '../core/text-safety.ts';
import { specDigest } from './approval.ts';
import type { Tool, ToolSpec } from './contract.ts';

/** A tool, ready to be asked for. */
export interface CompiledTool {
  readonly tool: Tool;
  readonly spec: ToolSpec;
  readonly specSha256: string;
  /** Undefined when the arguments fit, else what is wrong with them. */
  check(value: JsonValue): string | undefined;
}

const NAME = /^[A-Za-z0-9_-]{1,64}$/;

/** Validators by the digest of what is said about the tool: a thousand runs with the same tools compile each once. */
const known = new Map<string, ValidateFunction>();
const MOST_KNOWN = 1000;

/**
 * Compiles the schemas of tools. Refused (ERR_USAGE): a name that isn't one or is taken, a schema that isn't one, is no object's, or refers outside
 * itself. Arguments are only looked at: no default is filled in and no type converted, since what was approved is what runs.
 */
export async function compileTools(tools: readonly Tool[]): Promise<ReadonlyMap<string, CompiledTool>> {
  const compiled = new Map<string, CompiledTool>();
  if (tools.length === 0) return compiled;
  // ajv is a CommonJS module: a bundler gives its exports as the default alone.
  const {
    default: { Ajv2020 },
  } = await import('ajv/dist/2020.js');
  for (const tool of tools) {
    const { spec } = tool;
    if (!NAME.test(spec.name)) throw refused(spec.name, 'expected up to 64 letters, digits, `_` or `-` as the name of a tool');
    if (compiled.has(spec.name)) throw refused(spec.name, 'two tools have this name');
    if (!Number.isSafeInteger(spec.timeoutMs) || spec.timeoutMs < 1) throw refused(spec.name, 'expected a time limit in whole milliseconds');
    const outside = outsideReference(spec.inputSchema);
    if (outside !== undefined) throw refused(spec.name, `its schema refers to ${safeLine(outside, 80)}, outside itself`);
    const specSha256 = specDigest(spec);
    let found = known.get(specSha256);
    if (found === undefined) {
      try {
        // An instance each: one schema's names are nothing to another's.
        found = new Ajv2020({ allErrors: false, strict: false, validateFormats: false, logger: false }).compile(spec.inputSchema);
      } catch (error) {
        throw refused(spec.name, `its schema is none: ${safeLine(messageOf(error), 200)}`);
      }
      if (known.size < MOST_KNOWN) known.set(specSha256, found);
    }
    const validate = found;
    compiled.set(spec.name, {
      tool,
      spec,
      specSha256,
      check: (value) => {
        if (validate(value)) return undefined;
        const error = validate.errors?.[0];
        return `arguments${safeLine(error?.instancePath ?? '', 200)} ${safeLine(error?.message ?? 'do not match the schema', 300)}`;
      },
    });
  }
  return compiled;
}

function outsideReference(value: JsonValue): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  if (Array.isArray(value)) {
    for (const item of value as readonly JsonValue[]) {
      const found = outsideReference(item);
      if (found !== undefined) return found;
    }
    return undefined;
  }
  for (const [key, item] of Object.entries<JsonValue>(value as JsonObject)) {
    if ((key === '$ref' || key === '$dynamicRef') && typeof item === 'string' && !item.startsWith('#')) return item;
    const found = outsideReference(item);
    if (found !== undefined) return found;
  }
  return undefined;
}

function refused(name: string, fact: string): ProofrunError {
  return new ProofrunError('ERR_USAGE', { message: `tool ${safeLine(name, 80)}: ${fact}`, hint: 'correct the tool, or leave it out' });
}

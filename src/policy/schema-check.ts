import type { ErrorObject, ValidateFunction } from 'ajv';
import { ProofrunError } from '../core/errors.ts';
import { DURATION_FORM, SIZE_FORM, parseDuration, parseSize } from '../core/units.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { errorAt, escapePointer, placeAt, type DocumentCode, type LocatedDocument } from './document.ts';
import { didYouMean } from './near-names.ts';

export type SchemaName = 'job' | 'policy' | 'profile' | 'agent' | 'tool_policy';

type Validators = Readonly<Record<SchemaName, () => ValidateFunction>>;
let compiled: Promise<Validators> | undefined;

/** The published schemas, compiled once. The validator is loaded here and nowhere else. */
async function validators(): Promise<Validators> {
  // ajv is a CommonJS module: a bundler gives its exports as the default alone.
  const [
    {
      default: { Ajv2020 },
    },
    job,
    policy,
    profile,
    agent,
    toolPolicy,
  ] = await Promise.all([
    import('ajv/dist/2020.js'),
    import('../../schemas/job.schema.json', { with: { type: 'json' } }),
    import('../../schemas/policy.schema.json', { with: { type: 'json' } }),
    import('../../schemas/profile.schema.json', { with: { type: 'json' } }),
    import('../../schemas/agent.schema.json', { with: { type: 'json' } }),
    import('../../schemas/tool-policy.schema.json', { with: { type: 'json' } }),
  ]);
  // allErrors stays off: the first error is the one that is shown, and a hostile file can't make it collect without end.
  const ajv = new Ajv2020({ allErrors: false, verbose: true, strict: true, allowUnionTypes: true, strictRequired: false });
  for (const schema of [job, policy, profile, agent, toolPolicy]) ajv.addSchema(schema.default);
  // Compiled when first asked for, and kept.
  const of = (id: string) => (): ValidateFunction => {
    const validate = ajv.getSchema(id);
    if (validate === undefined) throw new ProofrunError('ERR_INTERNAL', { message: `no schema ${id}` });
    return validate;
  };
  return {
    job: of('job.schema.json'),
    policy: of('policy.schema.json'),
    profile: of('profile.schema.json'),
    agent: of('agent.schema.json'),
    tool_policy: of('tool-policy.schema.json'),
  };
}

/**
 * Checks a document against its schema. Throws `code` naming file, line, column, what was expected and what came; unknown keys with near
 * names. Returns the value, which is then known to be a mapping of the schema's shape.
 */
export async function checkDocument(document: LocatedDocument, schema: SchemaName, code: DocumentCode): Promise<JsonObject> {
  if (!isObject(document.value)) {
    throw errorAt(code, document.file, placeAt(document, ''), {
      message: `expected ${ARTICLES[schema]} as a mapping that begins with \`version: 1\`, found ${describe(document.value)}`,
    });
  }
  compiled ??= validators();
  const validate = (await compiled)[schema]();
  if (validate(document.value)) return document.value;
  const error = validate.errors?.[0];
  if (error === undefined) throw errorAt(code, document.file, undefined, { message: `does not match the schema of ${ARTICLES[schema]}` });
  const { pointer, message, hint } = explain(error, document.value);
  throw errorAt(code, document.file, placeAt(document, pointer), { message, ...(hint === undefined ? {} : { hint }) });
}

const ARTICLES: Readonly<Record<SchemaName, string>> = {
  job: 'a job',
  policy: 'a policy',
  profile: 'a profile',
  agent: 'an agent',
  tool_policy: 'a tool policy',
};

interface Explained {
  readonly pointer: string;
  readonly message: string;
  readonly hint?: string;
}

function explain(error: ErrorObject, root: JsonValue): Explained {
  const at = error.instancePath;
  const name = nameOf(at);
  const params = error.params as Readonly<Record<string, unknown>>;
  const schema = isRecord(error.parentSchema) ? error.parentSchema : {};
  const value = valueAt(root, at);
  switch (error.keyword) {
    case 'additionalProperties': {
      const key = String(params['additionalProperty']);
      const known = isRecord(schema['properties']) ? Object.keys(schema['properties']) : [];
      return {
        pointer: `${at}/${escapePointer(key)}`,
        message: `unknown key \`${key}\`${name === undefined ? '' : ` in ${name}`}${didYouMean(key, known)}`,
        hint: `known keys: ${known.join(', ')}`,
      };
    }
    case 'propertyNames':
    case 'pattern':
      if (error.propertyName !== undefined) {
        return {
          pointer: `${at}/${escapePointer(error.propertyName)}`,
          message: `\`${error.propertyName}\` is not a name that ${name ?? 'this mapping'} may hold`,
        };
      }
      break;
    case 'required':
      return {
        pointer: at,
        message: `${name ?? 'the file'} lacks \`${String(params['missingProperty'])}\``,
        ...(params['missingProperty'] === 'version' ? { hint: 'begin the file with `version: 1`' } : {}),
      };
    default:
      break;
  }
  if (at === '/command' && typeof value === 'string') {
    const words = value
      .trim()
      .split(/\s+/)
      .filter((word) => word !== '');
    return {
      pointer: at,
      message: 'command: expected a list, the program and its arguments, found text',
      hint: `write command: [${words.map(flowWord).join(', ')}]`,
    };
  }
  const expected = unitForm(schema, value) ?? (typeof schema['title'] === 'string' ? schema['title'] : wordsFor(error));
  const choices = Array.isArray(schema['enum']) ? schema['enum'].filter((choice) => typeof choice === 'string') : [];
  return {
    pointer: at,
    message: `${name ?? 'the file'}: expected ${expected}, found ${describe(value)}${typeof value === 'string' ? didYouMean(value, choices) : ''}`,
  };
}

/** The unit parsers know the likely spelling; the schema only knows the form. */
function unitForm(schema: Readonly<Record<string, unknown>>, value: JsonValue | undefined): string | undefined {
  const text = typeof value === 'string' ? value : typeof value === 'number' ? String(value) : undefined;
  const parse = schema['title'] === SIZE_FORM ? parseSize : schema['title'] === DURATION_FORM ? parseDuration : undefined;
  if (parse === undefined || text === undefined) return undefined;
  const result = parse(text);
  return result.kind === 'error' ? result.expected : undefined;
}

function wordsFor(error: ErrorObject): string {
  return error.message?.replace(/^must be /, '').replace(/^must /, 'to ') ?? 'something else';
}

/** `/permissions/network/allow/0` as `permissions.network.allow[0]`. */
function nameOf(pointer: string): string | undefined {
  if (pointer === '') return undefined;
  return pointer
    .slice(1)
    .split('/')
    .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'))
    .reduce((name, step) => (/^[0-9]+$/.test(step) ? `${name}[${step}]` : name === '' ? step : `${name}.${step}`), '');
}

function valueAt(root: JsonValue, pointer: string): JsonValue | undefined {
  let value: unknown = root;
  for (const step of pointer === '' ? [] : pointer.slice(1).split('/')) {
    if (typeof value !== 'object' || value === null) return undefined;
    value = Reflect.get(value, step.replaceAll('~1', '/').replaceAll('~0', '~')) as unknown;
  }
  return value as JsonValue | undefined;
}

function describe(value: JsonValue | undefined): string {
  if (value === undefined) return 'nothing';
  if (value === null) return 'nothing (null)';
  if (Array.isArray(value)) return value.length === 0 ? 'an empty list' : 'a list';
  if (typeof value === 'object') return 'a mapping';
  const text = JSON.stringify(value);
  return typeof value === 'string' ? `the text ${shorten(text)}` : typeof value === 'number' ? `the number ${text}` : text;
}

function shorten(text: string): string {
  return text.length <= 60 ? text : `${text.slice(0, 57)}..."`;
}

function flowWord(word: string): string {
  return /^[A-Za-z_./][A-Za-z0-9_./=-]*$/.test(word) && !/^(true|false|null)$/i.test(word) ? word : JSON.stringify(word);
}

function isObject(value: JsonValue): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

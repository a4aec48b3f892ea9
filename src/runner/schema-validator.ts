import { canonicalJson } from '../core/canonical-json.ts';
import { ProofrunError } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';

/** Returns what is wrong, in words, the first fault only; empty when the value fits. */
export type SchemaValidator = (value: JsonValue) => readonly string[];

type Check = (value: JsonValue, place: string) => string | undefined;

/** Say nothing about what fits. */
const ANNOTATIONS: ReadonlySet<string> = new Set(['$schema', '$id', '$defs', 'title', 'description']);

/**
 * A validator for the part of JSON Schema (draft 2020-12) that our own schemas of bundle, run and journal are written in. Any other keyword
 * is ERR_INTERNAL, so nothing is left unchecked silently. ajv takes some 200 ms to compile the bundle's schema, which every `job status`
 * would pay; the tests hold this one to ajv's verdicts.
 */
export function compileSchema(schema: object): SchemaValidator {
  // Ours, and read from JSON.
  const root = schema as JsonObject;
  const check = compile(root, { root, known: new Map() });
  return (value) => {
    const fault = check(value, '');
    return fault === undefined ? [] : [fault];
  };
}

interface Compilation {
  readonly root: JsonObject;
  /** Compiled definitions; the indirection lets one refer to itself. */
  readonly known: Map<string, Check>;
}

function compile(schema: JsonValue | undefined, compilation: Compilation): Check {
  if (!isObject(schema)) throw unsupported('a schema that is not an object');
  const checks = Object.entries(schema).flatMap(([keyword, argument]) => {
    const check = ANNOTATIONS.has(keyword) ? undefined : compileKeyword(keyword, argument, schema, compilation);
    return check === undefined ? [] : [check];
  });
  return (value, place) => {
    for (const check of checks) {
      const fault = check(value, place);
      if (fault !== undefined) return fault;
    }
    return undefined;
  };
}

function compileKeyword(keyword: string, argument: JsonValue, schema: JsonObject, compilation: Compilation): Check | undefined {
  switch (keyword) {
    case '$ref':
      return reference(argument, compilation);
    case 'type':
      return typed(strings(argument));
    case 'enum':
      return list(argument).every((word) => typeof word !== 'object' || word === null) ? among(list(argument)) : unreachable('an enum of objects');
    case 'const':
      return among([argument]);
    case 'pattern':
      return matches(text(argument));
    case 'minimum':
      return bounded((value, limit) => value >= limit, argument, 'at least');
    case 'maximum':
      return bounded((value, limit) => value <= limit, argument, 'at most');
    case 'exclusiveMinimum':
      return bounded((value, limit) => value > limit, argument, 'more than');
    case 'minItems':
      return (value, place) =>
        Array.isArray(value) && value.length < number(argument) ? `${named(place)} has fewer than ${number(argument)} items` : undefined;
    case 'items':
      return items(compile(argument, compilation));
    case 'required':
      return required(strings(argument));
    case 'properties':
      return properties(argument, compilation);
    case 'additionalProperties':
      return argument === false ? closed(schema) : unreachable('additionalProperties other than false');
    case 'anyOf':
      return oneOfForms(argument, compilation, false);
    case 'oneOf':
      return oneOfForms(argument, compilation, true);
    default:
      throw unsupported(`the keyword ${keyword}`);
  }
}

function reference(argument: JsonValue, compilation: Compilation): Check {
  const name = /^#\/\$defs\/(\w+)$/.exec(text(argument))?.[1];
  const definitions = compilation.root.$defs;
  if (name === undefined || !isObject(definitions)) throw unsupported(`the reference ${text(argument)}`);
  return (value, place) => {
    let check = compilation.known.get(name);
    if (check === undefined) {
      check = compile(definitions[name], compilation);
      compilation.known.set(name, check);
    }
    return check(value, place);
  };
}

function typed(types: readonly string[]): Check {
  return (value, place) => (types.some((type) => isOfType(value, type)) ? undefined : `${named(place)} is ${typeName(value)}, expected ${types.join(' or ')}`);
}

function isOfType(value: JsonValue, type: string): boolean {
  switch (type) {
    case 'null':
      return value === null;
    case 'array':
      return Array.isArray(value);
    case 'object':
      return isObject(value);
    case 'integer':
      return Number.isInteger(value);
    case 'string':
    case 'number':
    case 'boolean':
      return typeof value === type;
    default:
      throw unsupported(`the type ${type}`);
  }
}

function among(words: readonly JsonValue[]): Check {
  return (value, place) => (words.includes(value) ? undefined : `${named(place)} is ${show(value)}, expected ${words.map(show).join(' or ')}`);
}

function matches(pattern: string): Check {
  const expression = new RegExp(pattern, 'u');
  return (value, place) =>
    typeof value !== 'string' || expression.test(value) ? undefined : `${named(place)} is ${show(value)}, expected the form ${pattern}`;
}

function bounded(holds: (value: number, limit: number) => boolean, argument: JsonValue, words: string): Check {
  const limit = number(argument);
  return (value, place) => (typeof value !== 'number' || holds(value, limit) ? undefined : `${named(place)} is ${value}, expected ${words} ${limit}`);
}

function items(check: Check): Check {
  return (value, place) => {
    if (!Array.isArray(value)) return undefined;
    const entries: readonly JsonValue[] = value;
    for (const [index, item] of entries.entries()) {
      const fault = check(item, `${place}[${index}]`);
      if (fault !== undefined) return fault;
    }
    return undefined;
  };
}

function required(names: readonly string[]): Check {
  return (value, place) => {
    if (!isObject(value)) return undefined;
    const gone = names.find((name) => !Object.hasOwn(value, name));
    return gone === undefined ? undefined : `${named(place)} lacks ${gone}`;
  };
}

function properties(argument: JsonValue, compilation: Compilation): Check {
  if (!isObject(argument)) throw unsupported('properties that are not an object');
  const checks = Object.entries(argument).map(([name, schema]) => [name, compile(schema, compilation)] as const);
  return (value, place) => {
    if (!isObject(value)) return undefined;
    for (const [name, check] of checks) {
      const item = Object.hasOwn(value, name) ? value[name] : undefined;
      const fault = item === undefined ? undefined : check(item, place === '' ? name : `${place}.${name}`);
      if (fault !== undefined) return fault;
    }
    return undefined;
  };
}

function closed(schema: JsonObject): Check {
  const names = new Set(isObject(schema.properties) ? Object.keys(schema.properties) : []);
  return (value, place) => {
    const extra = isObject(value) ? Object.keys(value).find((name) => !names.has(name)) : undefined;
    return extra === undefined ? undefined : `${named(place)} has the unknown key ${show(extra)}`;
  };
}

/** The fault of the form that the value's own `kind` names is the one that helps. */
function oneOfForms(argument: JsonValue, compilation: Compilation, exactlyOne: boolean): Check {
  const forms = list(argument).map((schema) => ({ check: compile(schema, compilation), kinds: kindsOf(schema, compilation) }));
  return (value, place) => {
    const fits = forms.filter(({ check }) => check(value, place) === undefined).length;
    if (exactlyOne ? fits === 1 : fits > 0) return undefined;
    const kind = isObject(value) ? value.kind : undefined;
    const meant =
      forms.length === 2 && forms[1]?.kinds === null && value !== null
        ? forms[0]
        : forms.find(({ kinds }) => kind !== undefined && kinds?.includes(kind) === true);
    return meant?.check(value, place) ?? `${named(place)} fits none of its forms`;
  };
}

/** Values that a form allows for `kind`; null for the form that is only null. */
function kindsOf(schema: JsonValue, compilation: Compilation): readonly JsonValue[] | null {
  if (!isObject(schema)) return [];
  if (schema.type === 'null') return null;
  const definitions = compilation.root.$defs;
  if (typeof schema.$ref === 'string' && isObject(definitions)) return kindsOf(definitions[schema.$ref.slice('#/$defs/'.length)] ?? null, compilation);
  const kind = isObject(schema.properties) ? schema.properties.kind : undefined;
  if (!isObject(kind)) return [];
  if (kind.const !== undefined) return [kind.const];
  return kind.enum === undefined ? [] : list(kind.enum);
}

function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function list(value: JsonValue): readonly JsonValue[] {
  if (!Array.isArray(value)) throw unsupported('a keyword without its list');
  return value as readonly JsonValue[];
}

function strings(value: JsonValue): readonly string[] {
  return (Array.isArray(value) ? list(value) : [value]).map(text);
}

function text(value: JsonValue): string {
  if (typeof value !== 'string') throw unsupported('a keyword without its text');
  return value;
}

function number(value: JsonValue): number {
  if (typeof value !== 'number') throw unsupported('a keyword without its number');
  return value;
}

function named(place: string): string {
  return place === '' ? 'the document' : place;
}

function typeName(value: JsonValue): string {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'array' : typeof value;
}

function show(value: JsonValue): string {
  const shown = canonicalJson(value);
  return shown.length > 60 ? `${shown.slice(0, 60)}...` : shown;
}

function unreachable(what: string): never {
  throw unsupported(what);
}

function unsupported(what: string): ProofrunError {
  return new ProofrunError('ERR_INTERNAL', { message: `our schemas are not written with ${what}` });
}

import type { JsonObject, JsonValue } from '../src/core/json.ts';

/** One field of a JSON document as the reference shows it. */
export interface SchemaField {
  /** `permissions.network.allow[]`. */
  readonly path: string;
  readonly form: string;
  readonly description: string;
  readonly required: boolean;
}

/** All fields that a schema describes, parents before children. References are followed; a definition that contains itself is shown once. */
export function schemaFields(schema: JsonObject, schemas: ReadonlyMap<string, JsonObject>): readonly SchemaField[] {
  const fields: SchemaField[] = [];
  walk(schema, '', { schema, schemas, fields, open: [] });
  return merged(fields);
}

/** One row a path: alternatives that share a field list their forms, and what they say of it where that differs. */
function merged(fields: readonly SchemaField[]): readonly SchemaField[] {
  const byPath = new Map<string, SchemaField[]>();
  for (const field of fields) byPath.set(field.path, [...(byPath.get(field.path) ?? []), field]);
  const distinct = (texts_: readonly string[]): readonly string[] => [...new Set(texts_.filter((text) => text !== ''))];
  return [...byPath].map(([path, group]) => ({
    path,
    form: distinct(group.map((field) => field.form)).join(' or '),
    description: distinct(group.map((field) => field.description)).join(' '),
    required: group.every((field) => field.required),
  }));
}

interface Walk {
  /** The document that a `#/...` reference is about. */
  readonly schema: JsonObject;
  readonly schemas: ReadonlyMap<string, JsonObject>;
  readonly fields: SchemaField[];
  /** References that are being followed. */
  readonly open: readonly string[];
}

function walk(node: JsonObject, path: string, state: Walk): void {
  const { node: target, state: inner } = resolve(node, state);
  if (target === undefined) return;
  const required = texts(target['required']);
  for (const [key, value] of Object.entries(objectOf(target['properties']))) {
    if (!isObject(value)) continue;
    const here = path === '' ? key : `${path}.${key}`;
    inner.fields.push({ path: here, form: formOf(value, inner), description: describe(value, inner), required: required.includes(key) });
    descend(value, here, inner);
  }
  for (const part of [...list(target['allOf']), ...list(target['anyOf']), ...list(target['oneOf'])]) if (isObject(part)) walk(part, path, inner);
}

/** Into what a value holds: members of an object, items of a list, values of a mapping with free keys. */
function descend(value: JsonObject, path: string, state: Walk): void {
  const { node, state: inner } = resolve(value, state);
  if (node === undefined) return;
  walk(node, path, inner);
  for (const part of [node, ...[...list(node['anyOf']), ...list(node['oneOf'])].filter(isObject)]) {
    const resolved = resolve(part, inner);
    if (resolved.node === undefined) continue;
    const { items, additionalProperties } = resolved.node;
    if (isObject(items)) descend(items, `${path}[]`, resolved.state);
    if (isObject(additionalProperties)) descend(additionalProperties, `${path}.*`, resolved.state);
  }
}

function resolve(node: JsonObject, state: Walk): { readonly node: JsonObject | undefined; readonly state: Walk } {
  const reference = node['$ref'];
  if (typeof reference !== 'string') return { node, state };
  const [file = '', pointer = ''] = reference.split('#');
  const document = file === '' ? state.schema : state.schemas.get(file);
  if (document === undefined) throw new Error(`no schema ${file}`);
  const { $id } = document;
  const key = `${typeof $id === 'string' ? $id : ''}#${pointer}`;
  if (state.open.includes(key)) return { node: undefined, state };
  let found: JsonValue = document;
  for (const step of pointer.split('/').slice(1)) found = isObject(found) ? (found[step] ?? null) : null;
  if (!isObject(found)) throw new Error(`no definition ${reference}`);
  const next = { ...state, schema: document, open: [...state.open, key] };
  return '$ref' in found ? resolve(found, next) : { node: found, state: next };
}

/** What may stand there, in words: the schema's own title first. */
function formOf(value: JsonObject, state: Walk): string {
  if (typeof value['title'] === 'string') return value['title'];
  const { node, state: inner } = resolve(value, state);
  if (node === undefined) return 'as above';
  if (typeof node['title'] === 'string') return node['title'];
  if ('const' in node) return JSON.stringify(node['const']);
  const choices = list(node['enum']);
  if (choices.length > 0) return choices.map((choice) => JSON.stringify(choice)).join(' or ');
  const parts = [...list(node['anyOf']), ...list(node['oneOf'])].filter(isObject);
  if (parts.length > 0) return [...new Set(parts.map((part) => formOf(part, inner)))].join(' or ');
  const { items } = node;
  if (node['type'] === 'array') return isObject(items) ? `list of ${formOf(items, inner)}` : 'list';
  return texts([node['type']].flat()).join(' or ') || 'any value';
}

function describe(value: JsonObject, state: Walk): string {
  if (typeof value['description'] === 'string') return value['description'];
  const { node } = resolve(value, state);
  return typeof node?.['description'] === 'string' ? node['description'] : '';
}

function objectOf(value: JsonValue | undefined): JsonObject {
  return isObject(value) ? value : {};
}

function list(value: JsonValue | undefined): readonly JsonValue[] {
  return Array.isArray(value) ? (value as readonly JsonValue[]) : [];
}

function texts(value: JsonValue | readonly (JsonValue | undefined)[] | undefined): readonly string[] {
  return Array.isArray(value) ? value.filter((item): item is string => typeof item === 'string') : [];
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

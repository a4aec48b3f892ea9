import { Ajv2020 } from 'ajv/dist/2020.js';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import bundleSchema from '../../schemas/run-bundle.schema.json' with { type: 'json' };
import journalSchema from '../../schemas/journal.schema.json' with { type: 'json' };
import runSchema from '../../schemas/run.schema.json' with { type: 'json' };
import { toSnake } from '../../src/core/case.ts';
import type { JsonObject, JsonValue } from '../../src/core/json.ts';
import { formatBundle } from '../../src/runner/bundle-form.ts';
import { JournalThread } from '../../src/runner/journal.ts';
import { compileSchema } from '../../src/runner/schema-validator.ts';
import { refusedBody, sampleBody } from '../support/sample-bundle.ts';

type Place = readonly (string | number)[];

function isObject(value: JsonValue): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Every node of a value, leaves and inner ones. */
function places(value: JsonValue, place: Place = []): readonly Place[] {
  if (typeof value !== 'object' || value === null) return [place];
  const entries: readonly (readonly [string | number, JsonValue])[] = Array.isArray(value)
    ? value.map((item: JsonValue, index) => [index, item] as const)
    : Object.entries(value);
  return [place, ...entries.flatMap(([key, item]) => places(item, [...place, key]))];
}

/** `edit` gets the node at the place; undefined removes it from its object. */
function edited(value: JsonValue, place: Place, edit: (node: JsonValue) => JsonValue | undefined): JsonValue {
  const [first, ...rest] = place;
  if (first === undefined) return edit(value) ?? null;
  if (Array.isArray(value)) return value.map((item: JsonValue, index) => (index === first ? edited(item, rest, edit) : item));
  return Object.fromEntries(
    Object.entries(value as Readonly<Record<string, JsonValue>>).flatMap(([key, item]): [string, JsonValue][] => {
      if (key !== first) return [[key, item]];
      if (rest.length > 0) return [[key, edited(item, rest, edit)]];
      const next = edit(item);
      return next === undefined ? [] : [[key, next]];
    }),
  );
}

const entry = new JournalThread().follow({
  kind: 'command.ended',
  runId: 'run-01KC4Q8Z000000000000000000',
  attempt: 'att-01KC4Q8Z000000000000000000',
  timeMs: 1,
  data: { ending: 'exit', code: 1 },
});
const facts = {
  ...{
    version: 1,
    id: 'run-01KC4Q8Z000000000000000000',
    attempt: null,
    name: null,
    state: 'finished',
    ending: { kind: 'exit', code: 1 },
    mode: 'safe',
    argv: ['true'],
    cwd: '/w',
    workspace: '/w',
  },
  ...{ user: { uid: 0, gid: 0 }, recorded_ms: 1, started_ms: null, ended_ms: null, executor: { id: 'native', version: '1' }, proofrun_version: '0.1.0' },
};

const CASES: readonly (readonly [string, object, JsonValue])[] = [
  ['the bundle of a run', bundleSchema, toSnake(formatBundle(sampleBody()).bundle)],
  ['the bundle of a refused job', bundleSchema, toSnake(formatBundle(refusedBody()).bundle)],
  ['run.json', runSchema, facts],
  ['a line of a journal', journalSchema, toSnake(entry)],
];

const other = fc.oneof(
  fc.constantFrom<JsonValue>(
    null,
    true,
    0,
    1,
    -1,
    1.5,
    2 ** 53 - 1,
    '',
    'exit',
    'signal',
    'enforced',
    'utf8',
    [],
    {},
    [null],
    { kind: 'exit' },
    { kind: 'equals', value: 1 },
  ),
  fc.string(),
  fc.integer(),
);

describe('our validator', () => {
  it.each(CASES)('agrees with ajv about %s', (_name, schema, sound) => {
    const ours = compileSchema(schema);
    const ajv = new Ajv2020({ strict: true, allowUnionTypes: true }).compile(schema);
    expect([ours(sound), ajv(sound)]).toEqual([[], true]);
    const all = places(sound);
    const edit = fc.oneof(
      other.map((value) => () => value),
      fc.constant(() => undefined),
      other.map((value) => (node: JsonValue) => (isObject(node) ? { ...node, added: value } : value)),
      fc.constant((node: JsonValue) => (Array.isArray(node) ? [...(node as readonly JsonValue[]), ...(node as readonly JsonValue[])] : node)),
    );
    let refused = 0;
    fc.assert(
      fc.property(fc.constantFrom(...all), edit, (place, change) => {
        const value = edited(sound, place, change);
        const faults = ours(value);
        refused += faults.length;
        expect(faults.length === 0).toBe(ajv(value));
      }),
      { numRuns: 400 },
    );
    // Both sides of the verdict were met.
    expect(refused).toBeGreaterThan(50);
    expect(refused).toBeLessThan(400);
  });

  it('refuses a schema with a keyword that it does not know', () => {
    for (const schema of [
      { maxLength: 1 },
      { properties: { a: { format: 'date' } } },
      { $ref: 'other.json' },
      { additionalProperties: true },
      { type: 'text' },
    ]) {
      expect(() => compileSchema(schema)({ a: 'x' })).toThrow(expect.objectContaining({ code: 'ERR_INTERNAL' }));
    }
  });
});

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { RunBundle } from '../../src/core/bundle.ts';
import { canonicalSha256 } from '../../src/core/canonical-json.ts';
import { toCamel, toSnake } from '../../src/core/case.ts';
import { DIMENSIONS } from '../../src/core/dimension.ts';
import type { JsonValue } from '../../src/core/json.ts';
import { bundleSha256, formatBundle } from '../../src/runner/bundle-form.ts';
import { verifyBundle } from '../../src/runner/verify.ts';
import { OBSERVATIONS, RECEIPTS, sampleBody } from '../support/sample-bundle.ts';

const SOUND = formatBundle(sampleBody()).bundle;
const JSON_FORM = toSnake(SOUND);

/** Verified after the hash was made to fit again. */
function problemsOf(change: Partial<RunBundle>): readonly string[] {
  const changed = { ...SOUND, ...change };
  return verifyBundle({ ...changed, sha256: canonicalSha256(toSnake({ ...changed, sha256: undefined })) }).problems;
}

/** Where every leaf of the bundle lies. */
function leaves(value: JsonValue, place: readonly (string | number)[] = []): readonly (readonly (string | number)[])[] {
  if (typeof value !== 'object' || value === null) return [place];
  const entries: readonly (readonly [string | number, JsonValue])[] = Array.isArray(value)
    ? value.map((item: JsonValue, index) => [index, item] as const)
    : Object.entries(value);
  return entries.flatMap(([key, item]) => leaves(item, [...place, key]));
}

function replaced(value: JsonValue, place: readonly (string | number)[], leaf: JsonValue): JsonValue {
  const [first, ...rest] = place;
  if (first === undefined) return leaf;
  if (Array.isArray(value)) return value.map((item: JsonValue, index) => (index === first ? replaced(item, rest, leaf) : item));
  return Object.fromEntries(
    Object.entries(value as Readonly<Record<string, JsonValue>>).map(([key, item]) => [key, key === first ? replaced(item, rest, leaf) : item]),
  );
}

function at(value: JsonValue, place: readonly (string | number)[]): JsonValue {
  return place.reduce<JsonValue>((inner, key) => (inner as Readonly<Record<string | number, JsonValue>>)[key] ?? null, value);
}

describe('verifyBundle', () => {
  it('notices any change of any leaf by the hash', () => {
    fc.assert(
      fc.property(fc.constantFrom(...leaves(JSON_FORM)), fc.oneof(fc.integer(), fc.string(), fc.boolean(), fc.constant(null)), (place, leaf) => {
        fc.pre(at(JSON_FORM, place) !== leaf && !(Object.is(leaf, -0) && at(JSON_FORM, place) === 0));
        const changed = replaced(JSON_FORM, place, leaf) as Readonly<Record<string, JsonValue>>;
        expect(bundleSha256(changed) === changed.sha256).toBe(false);
      }),
      { numRuns: 500 },
    );
  });

  it('names the dimension of any owed receipt that is flipped, with a hash that fits', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: RECEIPTS.length - 1 }), fc.constantFrom('value', 'gone', 'renamed', 'phase'), (index, how) => {
        const receipts = RECEIPTS.flatMap((receipt, position) => {
          if (position !== index) return [receipt];
          if (how === 'gone') return [];
          if (how === 'renamed') return [{ ...receipt, id: `${receipt.id}.x` }];
          if (how === 'phase') return [{ ...receipt, phase: receipt.phase === 'gate' ? ('end' as const) : ('gate' as const) }];
          // `ok` meets no expectation of a probe, null no other.
          return [{ ...receipt, value: receipt.kind === 'probe' ? 'ok' : null }];
        });
        const flipped = RECEIPTS[index];
        const owing = OBSERVATIONS.requirements.filter((one) => one.id === flipped?.id && one.phase === flipped.phase).map((one) => one.dimension);
        expect(owing.length).toBeGreaterThan(0);
        const problems = problemsOf({ executorObservations: { ...OBSERVATIONS, receipts } });
        for (const dimension of owing) {
          expect(problems).toContain(`executor_observations.dimensions.${dimension}.level: recorded "enforced", derived "unenforced"`);
        }
      }),
    );
  });

  it('names any level that is flipped, with a hash that fits', () => {
    const levels = ['unenforced', 'cooperative', 'enforced'] as const;
    fc.assert(
      fc.property(fc.constantFrom(...DIMENSIONS), fc.constantFrom(...levels), fc.boolean(), (dimension, level, inSummary) => {
        const { dimensions } = OBSERVATIONS;
        fc.pre(dimensions[dimension].level !== level);
        const problems = inSummary
          ? problemsOf({
              safety: { ...SOUND.safety, dimensions: { ...SOUND.safety.dimensions, [dimension]: { ...SOUND.safety.dimensions[dimension], observed: level } } },
            })
          : problemsOf({ executorObservations: { ...OBSERVATIONS, dimensions: { ...dimensions, [dimension]: { ...dimensions[dimension], level } } } });
        const place = inSummary ? `safety.dimensions.${dimension}.observed` : `executor_observations.dimensions.${dimension}.level`;
        expect(problems.some((problem) => problem.startsWith(`${place}: recorded "${level}", derived `))).toBe(true);
      }),
    );
  });

  it('is total: any leaf may be anything of its type', () => {
    fc.assert(
      fc.property(fc.constantFrom(...leaves(JSON_FORM)), fc.string(), fc.maxSafeInteger(), (place, text, number) => {
        const leaf = at(JSON_FORM, place);
        // Words of the vocabulary are the schema's business.
        fc.pre(typeof leaf === 'number' || typeof leaf === 'boolean' || /value|path|name|scope|head|tail|rule/.test(String(place.at(-1))));
        const other = typeof leaf === 'number' ? number : typeof leaf === 'boolean' ? !leaf : text;
        const changed = toCamel(replaced(JSON_FORM, place, other)) as unknown as RunBundle;
        expect(verifyBundle(changed).ok).toBe(leaf === other);
      }),
      { numRuns: 200 },
    );
  });
});

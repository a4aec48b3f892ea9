import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { BundlePermissions, BundlePlan } from '../../src/core/bundle.ts';
import { DIMENSIONS, perDimension, type Dimension, type PerDimension } from '../../src/core/dimension.ts';
import type { ExecutorObservations } from '../../src/core/observation.ts';
import { CONTROLS, EXECUTOR_IDS, type ControlId } from '../../src/core/plan.ts';
import { isReceipt, mintReceipt, type Expectation, type Receipt, type ReceiptFact, type ReceiptRequirement } from '../../src/core/receipt.ts';
import { decideGate, deriveObservations, OWED, requireReceipts, type ExpectedReceipt } from '../../src/evidence/index.ts';
import { summariseSafety } from '../../src/runner/bundle-safety.ts';
import { sampleBody } from '../support/sample-bundle.ts';

/** One expectation of each kind, with a value that meets it and one that doesn't. */
interface Sample {
  readonly expect: Expectation;
  readonly good: ReceiptFact['value'];
  readonly bad: ReceiptFact['value'];
}
const SAMPLES: readonly Sample[] = [
  { expect: { kind: 'equals', value: ['/ tmpfs ro', { uid: 1500 }] }, good: ['/ tmpfs ro', { uid: 1500 }], bad: ['/ tmpfs rw', { uid: 1500 }] },
  { expect: { kind: 'differs', from: 'net:[1]' }, good: 'net:[2]', bad: 'net:[1]' },
  { expect: { kind: 'at_least', value: 2 }, good: 2, bad: 1 },
  { expect: { kind: 'at_most', value: 1000 }, good: 999, bad: 1001 },
  { expect: { kind: 'refused', errnos: ['EPERM', 'ENOSYS'] }, good: 'ENOSYS', bad: 'ok' },
];
const UNUSED: Sample = { expect: { kind: 'equals', value: 0 }, good: 0, bad: 1 };
/** A receipt is one fact, whoever owes it: its sample depends on its name alone. */
function sampleOf(id: string): Sample {
  let sum = 0;
  for (const letter of id) sum = (sum * 31 + letter.charCodeAt(0)) % 9973;
  return (id.startsWith('probe.') ? SAMPLES[4] : SAMPLES[sum % 5]) ?? UNUSED;
}

function receipt(id: string, phase: 'gate' | 'end', value: ReceiptFact['value'], more: Partial<ReceiptFact> = {}): Receipt {
  const kind = sampleOf(id).expect.kind === 'refused' ? 'probe' : 'fact';
  return mintReceipt({ id, kind, source: 'shim', phase, readFrom: 'a file', value, ...more });
}

/** Controls that open something restrict nothing, so they make no level by themselves; one that can be gone around makes a lower one. */
const RESTRICTING = CONTROLS.filter((control) => control !== 'network_public' && control !== 'proxy_offered');
const chosen = fc.subarray([...RESTRICTING], { minLength: 1, maxLength: 6 });
const planned: fc.Arbitrary<PerDimension<readonly ControlId[]>> = fc
  .tuple(...DIMENSIONS.map(() => fc.option(chosen, { nil: [] })))
  .map((lists) => perDimension((dimension) => lists[DIMENSIONS.indexOf(dimension)] ?? []))
  .filter((controls) => DIMENSIONS.some((dimension) => controls[dimension].length > 0));

function requirementsOf(controls: PerDimension<readonly ControlId[]>): readonly ReceiptRequirement[] {
  const expected = Object.entries(OWED).flatMap(([control, owed]) =>
    owed.map(({ id, phase }): ExpectedReceipt => ({ control: control as ControlId, id, phase, expect: sampleOf(id).expect })),
  );
  return requireReceipts(controls, expected);
}

/** One matching receipt for everything that is owed. */
function matching(requirements: readonly ReceiptRequirement[]): readonly Receipt[] {
  const known = new Map(requirements.map(({ id, phase }) => [`${phase} ${id}`, { id, phase }]));
  return [...known.values()].map(({ id, phase }) => receipt(id, phase, sampleOf(id).good));
}

const SCOPES = perDimension(() => 'a scope');
const levelsOf = (requirements: readonly ReceiptRequirement[], receipts: readonly ReceiptFact[], scopes = SCOPES): PerDimension<string> => {
  const observed = deriveObservations(requirements, receipts, scopes);
  return perDimension((dimension) => observed[dimension].level);
};
const owing = (requirements: readonly ReceiptRequirement[], id: string, phase: string): ReadonlySet<Dimension> =>
  new Set(requirements.filter((one) => one.id === id && one.phase === phase).map((one) => one.dimension));

/** In an order that the numbers decide. */
function shuffle<T>(list: readonly T[], numbers: readonly number[]): readonly T[] {
  return list
    .map((one, index) => ({ one, place: numbers[index % numbers.length] ?? 0 }))
    .sort((a, b) => a.place - b.place)
    .map(({ one }) => one);
}

const anyWord = fc.oneof(fc.string(), fc.constantFrom('enforced', 'planned', '--strict', 'native', 'bubblewrap'));
const anyScopes = fc.array(anyWord, { minLength: 8, maxLength: 8 }).map((words) => perDimension((dimension) => words[DIMENSIONS.indexOf(dimension)] ?? ''));
/** Facts that nobody owes. */
const strayFacts = fc.array(
  fc.record<ReceiptFact>({
    id: fc.string().map((text) => `stray.${text}`),
    kind: fc.constantFrom('fact', 'probe'),
    source: fc.constantFrom('shim', 'proc', 'engine'),
    phase: fc.constantFrom('gate', 'end'),
    readFrom: anyWord,
    value: fc.oneof(fc.string(), fc.integer(), fc.constant(null), fc.boolean()),
  }),
  { maxLength: 5 },
);

describe('levels follow from receipts', () => {
  it('all that is owed and matches enforces what owes it, and nothing else', () => {
    fc.assert(
      fc.property(planned, (controls) => {
        const requirements = requirementsOf(controls);
        const levels = levelsOf(requirements, matching(requirements));
        for (const dimension of DIMENSIONS) expect(levels[dimension]).toBe(controls[dimension].length > 0 ? 'enforced' : 'unenforced');
      }),
    );
  });

  it('words change nothing: scopes, where a fact was read, who said it, the order, facts that nobody owes', () => {
    fc.assert(
      fc.property(
        planned,
        anyScopes,
        anyWord,
        fc.constantFrom('shim', 'proc', 'engine'),
        strayFacts,
        fc.array(fc.nat(), { minLength: 1, maxLength: 40 }),
        fc.array(fc.boolean(), { minLength: 1, maxLength: 40 }),
        (controls, scopes, word, source, strays, order, drops) => {
          const requirements = requirementsOf(controls);
          const kept = matching(requirements).filter((_, index) => drops[index % drops.length] !== true);
          const before = levelsOf(requirements, kept);
          const reworded = shuffle([...kept.map((one) => ({ ...one, readFrom: word, source })), ...strays], order);
          expect(levelsOf(shuffle(requirements, order), reworded, scopes)).toEqual(before);
        },
      ),
    );
  });

  it('dropping or altering an owed receipt lowers exactly the dimensions that owe it', () => {
    fc.assert(
      fc.property(planned, fc.nat(), fc.constantFrom('dropped', 'altered', 'other phase', 'contradicted', 'null', 'told'), (controls, which, how) => {
        const requirements = requirementsOf(controls);
        const receipts = matching(requirements);
        const target = receipts[which % receipts.length];
        if (target === undefined) return;
        const { id, phase } = target;
        const changed = receipts.flatMap((one): readonly Receipt[] => {
          if (one !== target) return [one];
          if (how === 'dropped') return [];
          if (how === 'altered') return [receipt(id, phase, sampleOf(id).bad)];
          if (how === 'null') return [receipt(id, phase, null)];
          // An errno that somebody tells is no attempt.
          if (how === 'told' && sampleOf(id).expect.kind === 'refused') return [receipt(id, phase, one.value, { kind: 'fact' })];
          if (how === 'told') return [receipt(id, phase, sampleOf(id).bad)];
          // Taken twice, one of them wrong.
          if (how === 'contradicted') return [one, receipt(id, phase, sampleOf(id).bad)];
          return [receipt(id, phase === 'gate' ? 'end' : 'gate', one.value)];
        });
        const lowered = owing(requirements, id, phase);
        // What was taken in the other phase may be owed there too, and then is taken twice: still the same fact.
        const before = levelsOf(requirements, receipts);
        const after = levelsOf(requirements, changed);
        for (const dimension of DIMENSIONS) {
          expect([dimension, after[dimension]]).toEqual([dimension, lowered.has(dimension) ? 'unenforced' : before[dimension]]);
        }
      }),
    );
  });

  it('a receipt that is owed and for which no value was stated is never met', () => {
    fc.assert(
      fc.property(planned, fc.nat(), (controls, which) => {
        const stated = Object.entries(OWED).flatMap(([control, owed]) =>
          owed.map(({ id, phase }): ExpectedReceipt => ({ control: control as ControlId, id, phase, expect: sampleOf(id).expect })),
        );
        const forgotten = stated[which % stated.length];
        const requirements = requireReceipts(
          controls,
          stated.filter((one) => one !== forgotten),
        );
        const levels = levelsOf(requirements, matching(requirements));
        for (const dimension of DIMENSIONS) {
          const owes = forgotten !== undefined && controls[dimension].includes(forgotten.control);
          expect(levels[dimension]).toBe(owes || controls[dimension].length === 0 ? 'unenforced' : 'enforced');
        }
      }),
    );
  });

  it('more receipts of one dimension never raise another', () => {
    fc.assert(
      fc.property(planned, fc.constantFrom(...DIMENSIONS), (controls, missing) => {
        const requirements = requirementsOf(controls);
        const own = new Set(requirements.filter((one) => one.dimension === missing).map((one) => `${one.phase} ${one.id}`));
        const others = matching(requirements).filter((one) => !own.has(`${one.phase} ${one.id}`));
        expect(levelsOf(requirements, others)[missing]).toBe('unenforced');
        expect(levelsOf(requirements, [...others, ...others])[missing]).toBe('unenforced');
      }),
    );
  });

  it('a control that the command can go around makes its dimension cooperative at best', () => {
    fc.assert(
      fc.property(chosen, (controls) => {
        const list: readonly ControlId[] = [...controls, 'proxy_offered'];
        const requirements = requirementsOf(perDimension((dimension) => (dimension === 'network' ? list : [])));
        expect(levelsOf(requirements, matching(requirements)).network).toBe('cooperative');
        const without = matching(requirements).filter(({ id }) => id !== 'proxy.listener');
        expect(levelsOf(requirements, without).network).toBe('unenforced');
      }),
    );
  });

  it('an open network is never enforced by being open', () => {
    const requirements = requirementsOf(perDimension((dimension) => (dimension === 'network' ? ['network_public'] : [])));
    expect(levelsOf(requirements, matching(requirements)).network).toBe('unenforced');
  });
});

describe('the gate', () => {
  const needed = fc.subarray([...DIMENSIONS]);

  it('opens when every needed dimension owes something at the gate and all of it was taken and matches', () => {
    fc.assert(
      fc.property(planned, needed, (controls, dimensions) => {
        const requirements = requirementsOf(controls);
        const complete = dimensions.every((dimension) => requirements.some((one) => one.dimension === dimension && one.phase === 'gate'));
        expect(decideGate(dimensions, requirements, matching(requirements)).kind).toBe(complete ? 'release' : 'refuse');
      }),
    );
  });

  it('closes when one receipt of a needed dimension is dropped or altered, and names it', () => {
    fc.assert(
      fc.property(planned, needed, fc.nat(), fc.boolean(), (controls, dimensions, which, dropped) => {
        const requirements = requirementsOf(controls);
        const receipts = matching(requirements);
        const owed = requirements.filter((one) => one.phase === 'gate' && dimensions.includes(one.dimension));
        const target = owed[which % Math.max(1, owed.length)];
        if (target === undefined) return;
        const changed = receipts.flatMap((one) => {
          if (one.id !== target.id || one.phase !== 'gate') return [one];
          return dropped ? [] : [receipt(one.id, 'gate', sampleOf(one.id).bad)];
        });
        const decision = decideGate(dimensions, requirements, changed);
        expect(decision.kind).toBe('refuse');
        if (decision.kind !== 'refuse') return;
        const named = decision.missing.filter(({ outcome }) => outcome.id === target.id);
        expect(new Set(named.map(({ dimension }) => dimension))).toEqual(
          new Set([...owing(requirements, target.id, 'gate')].filter((one) => dimensions.includes(one))),
        );
        expect(new Set(named.map(({ outcome }) => outcome.status))).toEqual(new Set([dropped ? 'missing' : 'differs']));
      }),
    );
  });

  it('is not opened by look-alikes of receipts', () => {
    const lookAlikes: readonly ((one: Receipt) => unknown)[] = [
      (one) => ({ ...one }),
      (one) => structuredClone(one),
      (one) => JSON.parse(JSON.stringify(one)) as unknown,
      (one) => Object.create(one) as unknown,
      (one) => Object.freeze(Object.assign(Object.create(Object.getPrototypeOf(one) as object) as object, one)),
      (one) => new Proxy(one, {}),
      (one) => Object.defineProperties({}, Object.getOwnPropertyDescriptors(one)),
    ];
    fc.assert(
      fc.property(planned, fc.constantFrom(...lookAlikes), fc.nat(), fc.boolean(), (controls, disguise, which, all) => {
        const requirements = requirementsOf(controls);
        const receipts = matching(requirements).filter((one) => one.phase === 'gate');
        const dimensions = DIMENSIONS.filter((dimension) => requirements.some((one) => one.dimension === dimension && one.phase === 'gate'));
        fc.pre(receipts.length > 0);
        const forged = receipts.map((one, index) => (all || index === which % receipts.length ? (disguise(one) as Receipt) : one));
        expect(forged.every(isReceipt)).toBe(false);
        expect(decideGate(dimensions, requirements, receipts).kind).toBe('release');
        expect(decideGate(dimensions, requirements, forged).kind).toBe('refuse');
      }),
    );
  });

  it('a receipt can not be changed after it was made', () => {
    const one = receipt('status.seccomp', 'gate', 0);
    expect(() => Object.assign(one, { value: 2 })).toThrow(TypeError);
    expect(one.value).toBe(0);
  });
});

describe('the summary of a bundle', () => {
  const flags = fc.array(fc.boolean(), { minLength: 8, maxLength: 8 });
  const planLevels = fc.array(fc.constantFrom('unsupported', 'cooperative', 'planned'), { minLength: 8, maxLength: 8 });

  it('shows the observed level, whatever was asked for, planned, needed, waived or called', () => {
    const body = sampleBody();
    const planOfBody = body.plan;
    if (planOfBody === null) throw new Error('the sample has no plan');
    fc.assert(
      fc.property(
        flags,
        planLevels,
        fc.subarray([...DIMENSIONS]),
        fc.subarray([...DIMENSIONS]),
        anyWord,
        fc.constantFrom('default', 'safe', 'strict'),
        fc.constantFrom(...EXECUTOR_IDS),
        (requested, levels, needed, waived, word, mode, executor) => {
          const at = (dimension: Dimension): number => DIMENSIONS.indexOf(dimension);
          const asked = (dimension: Dimension): boolean => requested[at(dimension)] === true;
          const permissions: BundlePermissions = {
            ...body.permissions,
            fileRead: { ...body.permissions.fileRead, requested: asked('file_read') },
            fileWrite: { ...body.permissions.fileWrite, requested: asked('file_write') },
            network: { ...body.permissions.network, requested: asked('network') },
            subprocess: { ...body.permissions.subprocess, requested: asked('subprocess') },
            credentials: { ...body.permissions.credentials, requested: asked('credentials') },
            models: { requested: asked('models') },
            tools: { requested: asked('tools') },
            resources: { ...body.permissions.resources, requested: asked('resources') },
          };
          const plan: BundlePlan = {
            ...planOfBody,
            mode,
            executor,
            needed,
            waived,
            dimensions: perDimension((dimension) => ({
              level: levels[at(dimension)] ?? 'planned',
              requested: asked(dimension),
              asked: word,
              controls: [],
              scope: word,
            })),
          };
          const observations: ExecutorObservations = { ...body.executorObservations, executor: word };
          const summary = summariseSafety({ permissions, plan, refusal: null, executorObservations: observations });
          for (const dimension of DIMENSIONS) {
            expect(summary.dimensions[dimension].observed).toBe(body.executorObservations.dimensions[dimension].level);
            expect(summary.enforced.includes(dimension)).toBe(body.executorObservations.dimensions[dimension].level === 'enforced');
          }
        },
      ),
    );
  });
});

import type { ReadablePath, RunBundle } from '../../core/bundle.ts';
import type { Dimension } from '../../core/dimension.ts';
import type { JsonValue } from '../../core/json.ts';
import type { Expectation } from '../../core/receipt.ts';
import { safeLine } from '../../core/text-safety.ts';
import { dimensionList, REPORT_ORDER } from './words.ts';

const ACCESS: Readonly<Record<ReadablePath['access'], string>> = {
  read_only: 'read-only',
  staged: 'staged',
  private_writes: 'writes private, thrown away',
  direct: 'written directly',
};

/** Readable host paths by what the job may do with them, in the order in which they appear. */
export function readableGroups(readable: readonly ReadablePath[]): readonly { readonly paths: readonly string[]; readonly meaning: string }[] {
  const groups = new Map<ReadablePath['access'], string[]>();
  for (const { path, access } of readable) {
    const group = groups.get(access);
    if (group === undefined) groups.set(access, [path]);
    else group.push(path);
  }
  return [...groups].map(([access, paths]) => ({ paths, meaning: ACCESS[access] }));
}

/** What the level of each dimension covers, in words: of those that were asked for or enforced. */
export function scopesOf(bundle: RunBundle): readonly { readonly dimension: Dimension; readonly scope: string }[] {
  return REPORT_ORDER.flatMap((dimension) => {
    const { requested, needed, observed } = bundle.safety.dimensions[dimension];
    const scope = safeLine(bundle.executorObservations.dimensions[dimension].scope.trim().replace(/\.$/, ''), 300);
    return scope === '' || !(requested || needed || observed !== 'unenforced') ? [] : [{ dimension, scope }];
  });
}

/** A sentence for each owed receipt that is missing or differs, of dimensions that were planned. */
export function mismatches(bundle: RunBundle): readonly string[] {
  const { dimensions, requirements, receipts } = bundle.executorObservations;
  const lines: string[] = [];
  for (const dimension of REPORT_ORDER) {
    for (const outcome of dimensions[dimension].outcomes) {
      if (outcome.status === 'matched') continue;
      const owed = requirements.find(
        (requirement) =>
          requirement.dimension === dimension &&
          requirement.id === outcome.id &&
          requirement.phase === outcome.phase &&
          requirement.control === outcome.control,
      );
      const got = receipts.find((receipt) => receipt.id === outcome.id && receipt.phase === outcome.phase);
      const expected = owed === undefined ? '' : `; expected ${expectationWords(owed.expect)}`;
      const received =
        outcome.status === 'missing' || got === undefined ? 'no receipt' : `received ${valueWords(got.value)} from ${safeLine(got.readFrom, 120)}`;
      lines.push(`Missing: ${dimensionList([dimension])}, ${outcome.control} (${outcome.id}, at the ${outcome.phase})${expected}, ${received}.`);
    }
  }
  return lines;
}

function expectationWords(expect: Expectation): string {
  switch (expect.kind) {
    case 'equals':
      return valueWords(expect.value);
    case 'differs':
      return `anything but ${valueWords(expect.from)}`;
    case 'at_least':
      return `at least ${expect.value}`;
    case 'at_most':
      return `at most ${expect.value}`;
    case 'refused':
      return `refusal by ${expect.errnos.join(' or ')}`;
  }
}

function valueWords(value: JsonValue): string {
  return safeLine(JSON.stringify(value), 120);
}

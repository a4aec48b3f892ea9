import type { EffectivePermissions } from '../core/job.ts';
import { denyWords, eitherLine, type Violation } from './ceiling.ts';
import type { Joined } from './joined.ts';
import type { ProgramRules, RuleLayer } from './rules.ts';

type Subprocess = EffectivePermissions['subprocess'];

/**
 * Joins which programs may be started. Nobody says anything: any, contained. `default_action: deny` with a list: those; without one: none beyond the
 * command itself.
 */
export function composeSubprocess(joined: Joined): { readonly value: Subprocess; readonly violations: readonly Violation[] } {
  const violations: Violation[] = [];
  const grants = sections(joined.grants);
  const ceilings = sections(joined.ceilings);
  const defaults = grants.flatMap((section) => (section.defaultAction === undefined ? [] : [section.defaultAction]));
  const blanket = defaults.find((one) => one.value === 'allow');
  const refused = defaults.find((one) => one.value === 'deny');
  const closing = ceilings.filter((section) => section.defaultAction?.value === 'deny');
  const listed = grants.flatMap((section) => section.allow);

  for (const ceiling of closing) {
    const origin = ceiling.defaultAction?.origin ?? ceiling.origin;
    const above = (what: string, grant: ProgramRules['origin']): void => {
      violations.push({ dimension: 'subprocess', what, grant, ceiling: origin, limit: denyWords('subprocess', ceiling), hint: eitherLine(grant, origin) });
    };
    if (blanket !== undefined && ceiling.grants !== 'any') above('every program', blanket.origin);
    if (ceiling.grants !== 'none') continue;
    for (const program of listed) {
      // A profile lists programs for jobs that list programs; it doesn't ask for them.
      if (program.origin.layer !== 'profile' && !ceiling.allow.some((own) => own.value === program.value)) {
        above(`the program ${program.value}`, program.origin);
      }
    }
  }

  const restricted = refused !== undefined || closing.length > 0;
  const narrowed =
    refused === undefined && closing.length > 0
      ? closing.map((section) => section.allow.map((program) => program.value)).reduce((left, right) => left.filter((name) => right.includes(name)))
      : [];
  const admitted = listed.filter(
    (program) =>
      program.origin.layer !== 'profile' || closing.every((ceiling) => ceiling.grants !== 'none' || ceiling.allow.some((own) => own.value === program.value)),
  );
  const allow = restricted ? [...new Set([...admitted.map((program) => program.value), ...narrowed])].sort() : [];
  const defaultOrigin = refused?.origin ?? closing[0]?.defaultAction?.origin ?? blanket?.origin;
  return {
    value: {
      requested: [...joined.grants, ...joined.ceilings].some((layer) => layer.subprocess !== undefined),
      kind: !restricted ? 'contained' : allow.length > 0 ? 'listed' : 'none',
      allow,
      ...(defaultOrigin === undefined ? {} : { defaultOrigin }),
    },
    violations,
  };
}

function sections(layers: readonly RuleLayer[]): readonly ProgramRules[] {
  return layers.flatMap((layer) => (layer.subprocess === undefined ? [] : [layer.subprocess]));
}

import { ProofrunError } from '../core/errors.ts';
import type { EffectivePermissions, GitIdentity, Origin, PathRule } from '../core/job.ts';
import { denyWords, eitherLine, type Violation } from './ceiling.ts';
import type { Joined } from './joined.ts';
import { bySpecificity, compileMatcher, coversPath, intersectPathRules, isWithin, literalBase } from './path-rule.ts';
import { formatOrigin, type ReadRules, type RuleLayer, type WriteRules } from './rules.ts';
import type { SensitivePath } from './sensitive.ts';

type FileRead = EffectivePermissions['fileRead'];
type FileWrite = EffectivePermissions['fileWrite'];

interface Composed<T> {
  readonly value: T;
  readonly violations: readonly Violation[];
  readonly warnings: readonly string[];
}

/** Joins what may be read. Nobody says anything: everything that the caller can read. */
export function composeFileRead(joined: Joined, direct: readonly PathRule[], logins: readonly PathRule[] = [], gitIdentity?: GitIdentity): Composed<FileRead> {
  const violations: Violation[] = [];
  const warnings: string[] = [];
  const grants = readSections(joined.grants);
  const ceilings = readSections(joined.ceilings);
  const defaults = grants.flatMap((section) => (section.defaultAction === undefined ? [] : [section.defaultAction]));
  const blanket = defaults.find((one) => one.value === 'allow');
  const refused = defaults.find((one) => one.value === 'deny');
  const closing = ceilings.filter((section) => section.defaultAction?.value === 'deny');
  const projected = refused !== undefined || closing.length > 0;

  for (const ceiling of closing) {
    const origin = ceiling.defaultAction?.origin ?? ceiling.origin;
    if (blanket !== undefined && ceiling.grants === 'none') violations.push(aboveRead('every file', blanket.origin, ceiling));
    if (blanket !== undefined && ceiling.grants !== 'none') {
      warnings.push(
        `${formatOrigin(blanket.origin)} allows reading by default; under ${formatOrigin(origin)} that means the workspace, the system, the toolchain and what is named`,
      );
    }
    if (ceiling.grants !== 'none') continue;
    for (const rule of grants.flatMap((section) => [...section.allow, ...section.config])) {
      if (!ceiling.allow.some((outer) => coversPath(outer, rule))) violations.push(aboveRead(rule.pattern, rule.origin, ceiling));
    }
  }

  const stated = grants.flatMap((section) => section.allow);
  const implicit = blanket === undefined && refused === undefined && closing.length > 0;
  const narrowed = implicit
    ? closing.map((section) => section.allow).reduce((left, right) => left.flatMap((a) => right.flatMap((b) => intersectPathRules(a, b) ?? [])))
    : [];
  const allow = uniquePaths([...stated, ...narrowed]);
  const homeCopies = uniquePaths(grants.flatMap((section) => section.config));
  if (!projected) {
    for (const rule of stated) {
      if (rule.origin.layer === 'flag') {
        warnings.push(`${rule.origin.name} changes nothing: without --safe, and with no rule that denies by default, reads are not restricted`);
      }
    }
  }

  const guarded =
    joined.mode === 'default' || allow.length + homeCopies.length + direct.length + logins.length === 0
      ? { deny: [], violations: [], warnings: [] }
      : guardSensitive(joined, [...allow, ...homeCopies, ...direct, ...logins], logins);
  violations.push(...guarded.violations);
  warnings.push(...guarded.warnings);
  const deny = uniquePaths([...[...grants, ...ceilings].flatMap((section) => section.deny), ...guarded.deny]);
  for (const rule of allow) {
    const denial = deny.find((one) => coversPath(one, rule));
    if (denial !== undefined) {
      warnings.push(`${formatOrigin(rule.origin)} allows reading ${rule.pattern}, but ${formatOrigin(denial.origin)} denies it: it stays hidden`);
    }
  }
  const caches = joined.grants.flatMap((layer) =>
    layer.layer === 'profile' ? (layer.fileRead?.cache ?? []).map((rule) => ({ path: rule.pattern, profile: layer.name })) : [],
  );
  const states = joined.grants.flatMap((layer) =>
    layer.layer === 'profile' ? (layer.fileRead?.state ?? []).map((rule) => ({ path: rule.pattern, profile: layer.name, origin: rule.origin })) : [],
  );
  checkKeptPlaces(joined);
  const defaultOrigin = refused?.origin ?? closing[0]?.defaultAction?.origin;
  return {
    value: {
      requested: [...joined.grants, ...joined.ceilings].some((layer) => layer.fileRead !== undefined),
      root: projected ? 'projected' : 'host',
      home: projected ? 'private' : 'real',
      allow,
      deny,
      ...(projected && homeCopies.length > 0 ? { homeCopies } : {}),
      ...(projected && caches.length > 0 ? { caches } : {}),
      ...(projected && states.length > 0 ? { states } : {}),
      ...(projected && gitIdentity !== undefined ? { gitIdentity } : {}),
      ...(defaultOrigin === undefined ? {} : { defaultOrigin }),
    },
    violations,
    warnings,
  };
}

/** Joins what may be written. Nobody says anything: the workspace, staged. Throws ERR_JOB_FILE or ERR_USAGE for a place that can't be staged or shared. */
export function composeFileWrite(joined: Joined): Composed<FileWrite> {
  const violations: Violation[] = [];
  const grants = writeSections(joined.grants);
  const ceilings = writeSections(joined.ceilings);
  const direct = uniquePaths(grants.flatMap((section) => section.direct));
  for (const rule of direct) checkDirect(joined, rule);
  for (const ceiling of ceilings) {
    if (ceiling.defaultAction?.value !== 'deny' || ceiling.grants !== 'none') continue;
    const { origin } = ceiling.defaultAction;
    for (const rule of direct) {
      if (!ceiling.direct.some((outer) => coversPath(outer, rule))) {
        violations.push({
          dimension: 'file_write',
          what: `unstaged writes to ${rule.pattern}`,
          grant: rule.origin,
          ceiling: origin,
          limit: denyWords('file_write', ceiling),
          hint: eitherLine(rule.origin, origin),
        });
      }
    }
  }

  const stated = grants.flatMap((section) => (section.stage === undefined ? [] : [section.stage]));
  let stage = stated.length === 0 ? [joined.workspace] : unique(stated.flatMap((one) => one.paths.map((rule) => stagePath(joined, rule))));
  for (const { stage: ceiling } of ceilings) {
    if (ceiling === undefined) continue;
    const limits = ceiling.paths.map((rule) => stagePath(joined, rule));
    const outside = stage.filter((path) => !limits.some((limit) => isWithin(path, limit)));
    if (outside.length === 0) continue;
    const [first] = stated;
    if (first !== undefined) {
      for (const path of outside) {
        violations.push({
          dimension: 'file_write',
          what: `staged writes to ${path}`,
          grant: first.origin,
          ceiling: ceiling.origin,
          limit: limits.length === 0 ? 'stage: []' : `stage: ${limits.join(', ')}`,
          hint: eitherLine(first.origin, ceiling.origin),
        });
      }
      continue;
    }
    stage = unique(
      stage.flatMap((path) =>
        isWithin(path, limits.find((limit) => isWithin(path, limit)) ?? '\0') ? [path] : limits.filter((limit) => isWithin(limit, path)),
      ),
    );
  }
  // Committing writes to the common directory; a stage of parts has no use for it.
  if (joined.commonDirectory !== undefined && stage.includes(joined.workspace)) stage = [...stage, joined.commonDirectory];
  return {
    value: {
      requested: [...joined.grants, ...joined.ceilings].some((layer) => layer.fileWrite !== undefined),
      stage: outermost(stage),
      direct,
      deny: uniquePaths([...grants, ...ceilings].flatMap((section) => section.deny)),
    },
    violations,
    warnings: [],
  };
}

/**
 * Under --safe and --strict a sensitive path is opened only by the person's own `--allow-read`, or for a tool's shipped profile when it is that tool's
 * login. Sensitive paths inside a directory that is opened are denied there.
 */
function guardSensitive(
  joined: Joined,
  opened: readonly PathRule[],
  logins: readonly PathRule[],
): { readonly deny: readonly PathRule[]; readonly violations: readonly Violation[]; readonly warnings: readonly string[] } {
  const deny: PathRule[] = [];
  const violations: Violation[] = [];
  const warnings = new Set<string>();
  const personal = readSections(joined.grants)
    .flatMap((section) => section.allow)
    .filter((rule) => rule.origin.layer === 'flag');
  for (const sensitive of joined.sensitive) {
    const matches = compileMatcher(sensitive.rule);
    const byPerson = (paths: readonly string[]): boolean =>
      personal.some((rule) => rule.literal && paths.some((path) => matches(path) && isWithin(path, rule.pattern)) && matches(rule.pattern));
    const { profile } = sensitive.entry;
    const byProfile = (rule: PathRule): boolean =>
      profile !== undefined &&
      rule.origin.layer === 'profile' &&
      ((rule.origin.name === profile && joined.shippedProfiles.includes(profile)) || (logins.includes(rule) && joined.ownProfiles.includes(rule.origin.name)));
    for (const rule of opened) {
      const base = literalBase(rule);
      const real = joined.realPath(base);
      // A rule that names the sensitive path, or something in it, or leads there by a link.
      if (matches(base) || matches(real) || (!rule.literal && sensitive.rule.literal && compileMatcher(rule)(sensitive.rule.pattern))) {
        const paths = [base, real];
        if (byPerson(paths)) warnings.add(`${formatOrigin(rule.origin)} opens ${base}, which holds credentials of ${sensitive.entry.tool}`);
        else if (byProfile(rule)) {
          if (logins.includes(rule)) warnings.add(`the profile ${rule.origin.name} lets the job read the login of ${sensitive.entry.tool}: ${base}`);
        } else violations.push(aboveSensitive(rule, base, sensitive));
        continue;
      }
      const inside = literalBase(sensitive.rule);
      if (isWithin(inside, base) || isWithin(inside, real)) deny.push(sensitive.rule);
    }
  }
  const exempt = (rule: PathRule): boolean => opened.some((one) => one.literal && compileMatcher(rule)(one.pattern));
  return { deny: deny.filter((rule) => !exempt(rule)), violations, warnings: [...warnings] };
}

/**
 * A directory of ours that an earlier job wrote must not decide where something else is mounted, so none of them lies in another, and no login or
 * configuration in one. Throws ERR_POLICY_FILE.
 */
function checkKeptPlaces(joined: Joined): void {
  const layers = joined.grants.filter((layer) => layer.layer === 'profile');
  const kept = layers.flatMap((layer) => [...(layer.fileRead?.state ?? []), ...(layer.fileRead?.cache ?? [])]);
  const others = layers.flatMap((layer) => [...(layer.fileRead?.config ?? []), ...(layer.credentials?.login ?? []).map((login) => login.rule)]);
  const opened = joined.grants.flatMap((layer) => [...(layer.fileRead?.allow ?? []), ...(layer.fileWrite?.direct ?? [])]);
  for (const place of kept) {
    if (!place.literal || place.pattern === joined.home || !isWithin(place.pattern, joined.home)) {
      throw placeError(
        place.origin,
        `${formatOrigin(place.origin)}: expected a directory below your home without globs, found ${place.pattern}`,
        'name one directory',
      );
    }
    const inside = [...kept, ...others, ...opened].find((other) => other !== place && isWithin(literalBase(other), place.pattern));
    if (inside === undefined) continue;
    throw placeError(
      inside.origin,
      `${formatOrigin(inside.origin)}: ${inside.pattern} lies in ${place.pattern}, which ${formatOrigin(place.origin)} keeps between runs`,
      'name another place, or leave that profile out',
    );
  }
}

function aboveSensitive(rule: PathRule, path: string, sensitive: SensitivePath): Violation {
  return {
    dimension: 'file_read',
    what: `${path}, a sensitive path (${sensitive.entry.tool})`,
    grant: rule.origin,
    ceiling: sensitive.rule.origin,
    limit: 'sensitive paths stay closed under --safe',
    hint: `only your own flag opens it: --allow-read ${path}`,
  };
}

function aboveRead(what: string, grant: Origin, ceiling: ReadRules): Violation {
  const origin = ceiling.defaultAction?.origin ?? ceiling.origin;
  return { dimension: 'file_read', what: `reading ${what}`, grant, ceiling: origin, limit: denyWords('file_read', ceiling), hint: eitherLine(grant, origin) };
}

function stagePath(joined: Joined, rule: PathRule): string {
  const path = rule.literal ? joined.realPath(rule.pattern) : '';
  if (!isWithin(path, joined.workspace)) {
    throw placeError(
      rule.origin,
      `${formatOrigin(rule.origin)}: stage names ${rule.pattern}: expected a directory inside the workspace ${joined.workspace}`,
      'choose a higher workspace, or share the path unstaged under `direct`',
    );
  }
  return path;
}

function checkDirect(joined: Joined, rule: PathRule): void {
  if (!rule.literal) {
    throw placeError(rule.origin, `${formatOrigin(rule.origin)}: a direct share is one path, not the glob ${rule.pattern}`, 'name the directory');
  }
  const real = joined.realPath(rule.pattern);
  if (isWithin(joined.home, real)) {
    throw placeError(
      rule.origin,
      `${formatOrigin(rule.origin)}: ${rule.pattern} ${real === joined.home ? 'is' : 'contains'} your home directory and can't be shared unstaged`,
      'name a directory below it',
    );
  }
}

function placeError(origin: Origin, message: string, hint: string): ProofrunError {
  return new ProofrunError(origin.layer === 'flag' ? 'ERR_USAGE' : origin.layer === 'job' ? 'ERR_JOB_FILE' : 'ERR_POLICY_FILE', { message, hint });
}

function readSections(layers: readonly RuleLayer[]): readonly ReadRules[] {
  return layers.flatMap((layer) => (layer.fileRead === undefined ? [] : [layer.fileRead]));
}

function writeSections(layers: readonly RuleLayer[]): readonly WriteRules[] {
  return layers.flatMap((layer) => (layer.fileWrite === undefined ? [] : [layer.fileWrite]));
}

/** Once each, the most specific first, so that the order of layers and rules changes nothing. */
function uniquePaths(rules: readonly PathRule[]): readonly PathRule[] {
  const byPattern = new Map<string, PathRule>();
  for (const rule of rules) {
    const key = `${rule.literal ? 'literal' : 'glob'} ${rule.pattern}`;
    if (!byPattern.has(key)) byPattern.set(key, rule);
  }
  return [...byPattern.values()].sort(bySpecificity);
}

function unique(paths: readonly string[]): string[] {
  return [...new Set(paths)];
}

/** Without paths that lie inside another one of the list; the order is kept. */
function outermost(paths: readonly string[]): readonly string[] {
  return paths.filter((path) => !paths.some((other) => other !== path && isWithin(path, other)));
}

import { ProofrunError } from '../core/errors.ts';
import { PLACEHOLDER_PREFIX, type EffectivePermissions, type Origin } from '../core/job.ts';
import { denyWords, eitherLine, type Violation } from './ceiling.ts';
import { BASE_ENVIRONMENT, compileNames, coversName, looksLikeCredential } from './environment.ts';
import type { Joined } from './joined.ts';
import { formatOrigin, type CredentialRules, type RuleLayer } from './rules.ts';

type Credentials = EffectivePermissions['credentials'];

export interface EnvironmentInput {
  /** The caller's. */
  readonly caller: Readonly<Record<string, string>>;
  /** Given values, later ones win: profiles (only where the caller has none), the job file, `-e NAME=VALUE`. */
  readonly defaults: Readonly<Record<string, string>>;
  readonly set: Readonly<Record<string, string>>;
  readonly home: string;
  readonly cwd: string;
  /** Values of secrets that enter the job, by name; the host read them. */
  readonly secretValues: Readonly<Record<string, string>>;
}

/**
 * Decides the environment. Nobody says anything: the caller's, whole. Otherwise the base set and what is named. HOME stays the caller's path; what it holds in the job is file_read's
 * business.
 */
export function composeCredentials(
  joined: Joined,
  environment: EnvironmentInput,
): { readonly value: Credentials; readonly violations: readonly Violation[]; readonly warnings: readonly string[] } {
  const violations: Violation[] = [];
  const grants = sections(joined.grants);
  const ceilings = sections(joined.ceilings);
  const defaults = grants.flatMap((section) => (section.defaultAction === undefined ? [] : [section.defaultAction]));
  const blanket = defaults.find((one) => one.value === 'allow');
  const refused = defaults.find((one) => one.value === 'deny');
  const closing = ceilings.filter((section) => section.defaultAction?.value === 'deny');
  const passed = grants.flatMap((section) => section.passEnv);
  const secrets = grants.flatMap((section) => section.secrets);
  const sockets = grants.flatMap((section) => section.agentSockets);

  for (const ceiling of closing) {
    const origin = ceiling.defaultAction?.origin ?? ceiling.origin;
    const above = (what: string, grant: Origin): void => {
      violations.push({ dimension: 'credentials', what, grant, ceiling: origin, limit: denyWords('credentials', ceiling), hint: eitherLine(grant, origin) });
    };
    if (blanket !== undefined && ceiling.grants !== 'any') {
      violations.push({
        dimension: 'credentials',
        what: 'every variable',
        grant: blanket.origin,
        ceiling: origin,
        limit: denyWords('credentials', ceiling),
        hint: 'name the variables under `pass_env` instead',
      });
    }
    if (ceiling.grants !== 'none') continue;
    for (const name of passed) {
      if (![...ceiling.passEnv.map((own) => own.value), ...BASE_ENVIRONMENT].some((own) => coversName(own, name.value))) {
        above(`the variable ${name.value}`, name.origin);
      }
    }
    for (const secret of secrets) {
      if (!ceiling.secretNames.some((own) => coversName(own, secret.name))) above(`the secret ${secret.name}`, secret.origin);
    }
    for (const socket of sockets) {
      if (!ceiling.agentSockets.some((own) => own.value === socket.value)) above(`the socket of ${socket.value}`, socket.origin);
    }
  }

  const restricted = refused !== undefined || (blanket === undefined && closing.length > 0);
  const implicit = refused === undefined && closing.length > 0;
  const narrowed = implicit
    ? closing
        .map((section) => section.passEnv.map((name) => name.value))
        .reduce((left, right) => [
          ...left.filter((name) => right.some((own) => coversName(own, name))),
          ...right.filter((name) => left.some((own) => coversName(own, name))),
        ])
    : [];
  const passes = restricted ? compileNames([...BASE_ENVIRONMENT, ...passed.map((name) => name.value), ...narrowed]) : (): boolean => true;
  const values = new Map(Object.entries(environment.caller).filter(([name]) => passes(name)));
  for (const [name, value] of Object.entries(environment.defaults)) {
    if (environment.caller[name] === undefined) values.set(name, value);
  }
  for (const [name, value] of Object.entries(environment.set)) values.set(name, value);
  const entering = secrets.filter((secret) => secret.inject === undefined);
  for (const secret of entering) {
    const value = environment.secretValues[secret.name];
    if (value === undefined) {
      // A secret that may not be used is refused for that.
      if (violations.length > 0) continue;
      throw new ProofrunError('ERR_USAGE', {
        message: `${formatOrigin(secret.origin)}: the secret ${secret.name} could not be read from ${secret.from}`,
        hint: secret.from.startsWith('env:') ? `set ${secret.from.slice(4)} before the run` : 'check that the source exists and that you may read it',
      });
    }
    values.set(secret.name, value);
  }
  for (const secret of secrets) {
    if (secret.inject === undefined) continue;
    // The job gets the placeholder alone: not what the value is read from.
    const variable = secret.from.startsWith('env:') ? secret.from.slice(4) : undefined;
    if (variable !== undefined && environment.set[variable] === undefined) values.delete(variable);
  }
  // A run replaces each by one of its own.
  for (const secret of secrets) if (secret.inject !== undefined) values.set(secret.name, PLACEHOLDER_PREFIX);
  values.set('HOME', environment.home);
  values.set('PWD', environment.cwd);
  const names = [...values.keys()].sort();
  const injectedNames = new Set(secrets.flatMap((secret) => (secret.inject === undefined ? [] : [secret.name])));
  const secretNames = new Set(entering.map((secret) => secret.name));
  const visible = names.filter((name) => secretNames.has(name) || (!injectedNames.has(name) && looksLikeCredential(name, values.get(name) ?? '')));
  const defaultOrigin = restricted ? (refused?.origin ?? closing[0]?.defaultAction?.origin) : undefined;
  return {
    value: {
      requested: [...joined.grants, ...joined.ceilings].some((layer) => layer.credentials !== undefined),
      environment: Object.fromEntries(names.map((name) => [name, values.get(name) ?? ''])),
      visible,
      secrets: [...secrets].sort((a, b) => (a.name < b.name ? -1 : Number(a.name > b.name))),
      agentSockets: [...new Set(sockets.map((socket) => socket.value))].sort(),
      ...(defaultOrigin === undefined ? {} : { defaultOrigin }),
    },
    violations,
    warnings: [],
  };
}

function sections(layers: readonly RuleLayer[]): readonly CredentialRules[] {
  return layers.flatMap((layer) => (layer.credentials === undefined ? [] : [layer.credentials]));
}

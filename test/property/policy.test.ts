import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { admit } from '../../src/admission/admit.ts';
import { CONTAINMENT_DIMENSIONS, MODES, raiseMode } from '../../src/core/dimension.ts';
import { ProofrunError } from '../../src/core/errors.ts';
import type { EffectiveJob } from '../../src/core/job.ts';
import { formatDuration, formatSize, parseDuration, parseSize } from '../../src/core/units.ts';
import { parseCidr } from '../../src/policy/cidr.ts';
import { composeJob, type ComposeInput, type PolicyLayer, type ProfileLayer } from '../../src/policy/compose.ts';
import { decideHost, decideRead, decideWrite } from '../../src/policy/decide.ts';
import { parseDocument } from '../../src/policy/document.ts';
import { compileGlob } from '../../src/policy/glob.ts';
import { canonicalHostName, formatHostRule, parseHostRule } from '../../src/policy/host-rule.ts';
import type { CompiledLayer, GrantScope, PermissionSections, RawHost, Sited } from '../../src/policy/layer.ts';
import { compileMatcher, escapeGlob, parsePathRule } from '../../src/policy/path-rule.ts';
import { readSettings } from '../../src/policy/registries/config-text.ts';
import { cargoUrls, gitUrls, mavenUrls, npmUrls, pipUrls } from '../../src/policy/registries/parsers.ts';
import { resolveUrls } from '../../src/policy/registry.ts';
import { NATIVE, WORKSPACE, inputOf } from '../unit/policy-fixture.ts';

const base = await inputOf({});

const hostText = fc.constantFrom(
  'a.example',
  'b.example',
  '*.example',
  'x.a.example',
  '*.a.example',
  '10.0.0.0/8',
  '10.1.0.0/16',
  '192.0.2.1',
  '2001:db8::/32',
);
const rawHost: fc.Arbitrary<RawHost> = fc
  .record({
    host: hostText,
    ports: fc.option(fc.uniqueArray(fc.constantFrom(22, 80, 443, 8080), { minLength: 1, maxLength: 3 }), { nil: undefined }),
    private: fc.boolean(),
  })
  .map(({ host, ports, private: isPrivate }) => ({ host, ...(ports === undefined ? {} : { ports }), private: isPrivate }));
const pathText = fc.constantFrom('src', 'src/a', '**/*.pem', '/srv/data', '/srv/data/x', '/srv/*', 'src/*.ts', '/opt', '~/notes', '.git/hooks/**');
const programs = fc.uniqueArray(fc.constantFrom('node', 'npm', 'git', 'sh'));
const variables = fc.uniqueArray(fc.constantFrom('EDITOR', 'GITHUB_TOKEN', 'GITHUB_*', 'LC_*', '*'));

function sited<T>(values: readonly T[]): readonly Sited<T>[] {
  return values.map((value, index) => ({ value, line: index + 1 }));
}

function maybe<T extends object>(arbitrary: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> {
  return fc.option(arbitrary, { nil: undefined });
}

/** Without the keys whose value is undefined. */
function present<T extends object>(value: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(value).filter(([, one]) => one !== undefined)) as { [K in keyof T]?: Exclude<T[K], undefined> };
}

const action = fc.option(fc.constantFrom('allow' as const, 'deny' as const), { nil: undefined });
const scope: fc.Arbitrary<GrantScope | undefined> = fc.option(fc.constantFrom('none' as const, 'named' as const, 'any' as const), { nil: undefined });

function sections(kind: 'grant' | 'ceiling' | 'profile'): fc.Arbitrary<PermissionSections> {
  const head = fc
    .record({ defaultAction: kind === 'profile' ? fc.constant(undefined) : action, grants: kind === 'ceiling' ? scope : fc.constant(undefined) })
    .map(({ defaultAction, grants }) => ({
      line: 1,
      ...present({
        defaultAction: defaultAction === undefined ? undefined : { value: defaultAction, line: 2 },
        grants: grants === undefined ? undefined : { value: grants, line: 3 },
      }),
    }));
  const denials = kind === 'profile' ? fc.constant([]) : fc.array(rawHost, { maxLength: 2 });
  const paths = fc.array(pathText, { maxLength: 3 });
  return fc
    .record({
      network: maybe(
        fc.record({ head, allow: maybe(fc.array(rawHost, { maxLength: 3 })), deny: denials }).map(({ head: top, allow, deny }) => ({
          ...top,
          ...present({ allow: allow === undefined ? undefined : sited(allow) }),
          ...(deny.length === 0 ? {} : { deny: sited(deny) }),
        })),
      ),
      fileRead: maybe(
        fc.record({ head, allow: paths, deny: kind === 'profile' ? fc.constant([]) : paths }).map(({ head: top, allow, deny }) => ({
          ...top,
          ...(allow.length === 0 ? {} : { allow: sited(allow) }),
          ...(deny.length === 0 ? {} : { deny: sited(deny) }),
        })),
      ),
      subprocess: maybe(
        fc
          .record({ head, allow: maybe(programs) })
          .map(({ head: top, allow }) => ({ ...top, ...present({ allow: allow === undefined ? undefined : sited(allow) }) })),
      ),
      credentials: maybe(
        fc
          .record({ head, passEnv: maybe(variables) })
          .map(({ head: top, passEnv }) => ({ ...top, ...present({ passEnv: passEnv === undefined ? undefined : sited(passEnv) }) })),
      ),
      resources: maybe(
        fc
          .record({
            memoryBytes: fc.option(fc.integer({ min: 1, max: 100 }), { nil: undefined }),
            processes: fc.option(fc.integer({ min: 1, max: 100 }), { nil: undefined }),
          })
          .map((limits) => ({ line: 1, limits: Object.fromEntries(Object.entries(present(limits)).map(([field, value]) => [field, { value, line: 1 }])) })),
      ),
    })
    .map(present);
}

function layer(kind: 'policy' | 'profile', permissions: PermissionSections, name: string): CompiledLayer {
  return { kind, name, file: `${name}.yaml`, sha256: name, permissions };
}

const policyLists = fc
  .array(sections('ceiling'), { maxLength: 3 })
  .map((list) => list.map((permissions, index): PolicyLayer => ({ layer: 'policy', compiled: layer('policy', permissions, `policy${String(index)}`) })));
const profileLists = fc
  .array(sections('profile'), { maxLength: 2 })
  .map((list) =>
    list.map((permissions, index): ProfileLayer => ({ compiled: layer('profile', permissions, `profile${String(index)}`), shipped: false, chosen: 'use' })),
  );
const jobSections = maybe(sections('grant'));

interface World {
  readonly mode: (typeof MODES)[number];
  readonly job: PermissionSections | undefined;
  readonly profiles: readonly ProfileLayer[];
  readonly policies: readonly PolicyLayer[];
}
const world: fc.Arbitrary<World> = fc.record({ mode: fc.constantFrom(...MODES), job: jobSections, profiles: profileLists, policies: policyLists });

function input({ mode, job, profiles, policies }: World): ComposeInput {
  return {
    ...base,
    request: { argv: ['true'], mode },
    ...(job === undefined
      ? {}
      : { jobFile: { parsed: { file: 'job.yaml', sha256: 'f', use: [], policies: [], degrade: [], permissions: job }, directory: WORKSPACE } }),
    profiles,
    policies,
  };
}

/** The job, or undefined when it is refused for a ceiling. Anything else is a fault. */
function outcome(one: World): EffectiveJob | undefined {
  try {
    return composeJob(input(one));
  } catch (error) {
    if (error instanceof ProofrunError && error.code === 'ERR_POLICY_CEILING') {
      expect(error.message).toMatch(/\.yaml:\d+ grants .+, above the ceiling of .+\.yaml:\d+/);
      return undefined;
    }
    throw error;
  }
}

const HOSTS = ['a.example', 'x.a.example', 'b.example', 'example', 'other.test', '10.1.2.3', '10.9.9.9', '192.0.2.1', '2001:db8::1'];
const PORTS = [22, 80, 443, 8080];
const PATHS = [
  `${WORKSPACE}/src/a/b.ts`,
  `${WORKSPACE}/k.pem`,
  '/srv/data/x',
  '/srv/other',
  '/opt/x',
  '/home/ada/notes',
  '/home/ada/.ssh/id',
  '/usr/bin/env',
  `${WORKSPACE}/.git/hooks/x`,
  `${WORKSPACE}/.env`,
];

/** Everything that a job is allowed, as a set of facts: what is compared when something widens or narrows. */
function allowed(job: EffectiveJob): ReadonlySet<string> {
  const { permissions } = job;
  const facts = new Set<string>();
  for (const host of HOSTS) for (const port of PORTS) if (decideHost(permissions.network, host, port).allowed) facts.add(`net ${host}:${String(port)}`);
  for (const path of PATHS) {
    const read = decideRead(job, path).decision;
    if (read !== 'hidden') facts.add(`read ${path}`);
    if (permissions.fileRead.root === 'host' && read === 'visible') facts.add(`host read ${path}`);
    const write = decideWrite(job, path).decision;
    if (write === 'staged' || write === 'direct') facts.add(`write ${path}`);
  }
  for (const program of ['node', 'npm', 'git', 'sh', 'curl']) {
    if (permissions.subprocess.kind === 'contained' || permissions.subprocess.allow.includes(program)) facts.add(`run ${program}`);
  }
  for (const name of Object.keys(permissions.credentials.environment)) facts.add(`env ${name}`);
  return facts;
}

function limitsOf(job: EffectiveJob): readonly number[] {
  const { memoryBytes, processes } = job.permissions.resources.limits;
  return [memoryBytes ?? Number.POSITIVE_INFINITY, processes ?? Number.POSITIVE_INFINITY];
}

/** The decisions of a job, without the origins, which name the first of several equal rules. */
function decisions(job: EffectiveJob | undefined): unknown {
  if (job === undefined) return 'refused';
  const { permissions } = job;
  return {
    allowed: [...allowed(job)].sort(),
    limits: limitsOf(job),
    kinds: [permissions.network.kind, permissions.fileRead.root, permissions.fileRead.home, permissions.subprocess.kind],
  };
}

function reversed(permissions: PermissionSections): PermissionSections {
  const flip = (value: unknown): unknown =>
    Array.isArray(value)
      ? [...(value as readonly unknown[])].reverse().map(flip)
      : typeof value === 'object' && value !== null
        ? Object.fromEntries(Object.entries(value).map(([key, item]) => [key, flip(item)]))
        : value;
  return flip(permissions) as PermissionSections;
}

const RUNS = { numRuns: 150 };

describe('policy', () => {
  it('the order of layers and rules never changes a decision', () => {
    fc.assert(
      fc.property(world, (one) => {
        const other: World = {
          ...one,
          job: one.job === undefined ? undefined : reversed(one.job),
          profiles: [...one.profiles]
            .reverse()
            .map((profile) => ({ ...profile, compiled: { ...profile.compiled, permissions: reversed(profile.compiled.permissions) } })),
          policies: [...one.policies]
            .reverse()
            .map((policy) => ({ ...policy, compiled: { ...policy.compiled, permissions: reversed(policy.compiled.permissions) } })),
        };
        expect(decisions(outcome(other))).toEqual(decisions(outcome(one)));
      }),
      RUNS,
    );
  });

  it('one more policy never widens: the job is refused, or allowed no more than before', () => {
    fc.assert(
      fc.property(world, sections('ceiling'), (one, more) => {
        const before = outcome(one);
        const after = outcome({ ...one, policies: [...one.policies, { layer: 'policy', compiled: layer('policy', more, 'more') }] });
        if (after === undefined) return;
        expect(before).toBeDefined();
        if (before === undefined) return;
        const known = allowed(before);
        expect([...allowed(after)].filter((fact) => !known.has(fact))).toEqual([]);
        limitsOf(after).forEach((limit, index) => {
          expect(limit).toBeLessThanOrEqual(limitsOf(before)[index] ?? 0);
        });
      }),
      RUNS,
    );
  });

  it('a higher mode never widens', () => {
    fc.assert(
      fc.property(world, fc.constantFrom(...MODES), (one, mode) => {
        const before = outcome(one);
        const after = outcome({ ...one, mode: raiseMode(one.mode, mode) });
        if (before === undefined || after === undefined) return;
        const known = allowed(before);
        // A profile names variables and files that default mode passes anyway, so nothing new can appear.
        expect([...allowed(after)].filter((fact) => !known.has(fact))).toEqual([]);
      }),
      RUNS,
    );
  });

  it('one more profile never narrows', () => {
    fc.assert(
      fc.property(world, sections('profile'), (one, more) => {
        const before = outcome(one);
        const after = outcome({ ...one, profiles: [...one.profiles, { compiled: layer('profile', more, 'more'), shipped: false, chosen: 'use' }] });
        if (before === undefined || after === undefined) return;
        const now = allowed(after);
        expect([...allowed(before)].filter((fact) => !now.has(fact))).toEqual([]);
      }),
      RUNS,
    );
  });

  it('a denial from anywhere always wins', () => {
    fc.assert(
      fc.property(world, rawHost, fc.constantFrom('policy', 'user policy', 'workspace policy'), (one, denied, from) => {
        const parsed = parseHostRule(denied, 'deny', { layer: 'policy', name: 'x' });
        if (parsed.kind === 'error') return;
        const job = outcome({
          ...one,
          policies: [
            ...one.policies,
            {
              layer: from,
              compiled: layer('policy', { network: { line: 1, defaultAction: { value: 'allow', line: 1 }, deny: [{ value: denied, line: 1 }] } }, 'deny'),
            },
          ],
        });
        if (job === undefined) return;
        for (const host of HOSTS) {
          for (const port of PORTS) {
            if (!decideHost({ allow: [], deny: [parsed.rule], defaultAllow: true }, host, port).allowed) {
              expect(decideHost(job.permissions.network, host, port).allowed).toBe(false);
            }
          }
        }
      }),
      RUNS,
    );
  });

  it('a read denial beats every grant, wherever each stands', () => {
    fc.assert(
      fc.property(world, pathText, (one, denied) => {
        const job = outcome({
          ...one,
          policies: [
            ...one.policies,
            {
              layer: 'policy',
              compiled: layer('policy', { fileRead: { line: 1, defaultAction: { value: 'allow', line: 1 }, deny: [{ value: denied, line: 1 }] } }, 'deny'),
            },
          ],
        });
        const parsed = parsePathRule(denied, { home: '/home/ada', directory: WORKSPACE }, { layer: 'policy', name: 'x' });
        if (job === undefined || parsed.kind === 'error') return;
        const matches = compileMatcher(parsed.rule);
        for (const path of PATHS.filter(matches)) {
          expect(decideRead(job, path).decision).toBe('hidden');
          expect(decideWrite(job, path).decision).not.toBe('staged');
        }
      }),
      RUNS,
    );
  });

  it('under --safe and --strict a plan is complete or refused; nothing but a warning in default mode', () => {
    fc.assert(
      fc.property(world, fc.subarray([...NATIVE.controls]), (one, controls) => {
        const job = outcome(one);
        if (job === undefined) return;
        const admission = admit(job, [{ ...NATIVE, controls }]);
        if (admission.kind === 'refused') {
          expect(job.mode).not.toBe('default');
          expect(admission.refusal.rows.length).toBeGreaterThan(0);
          for (const row of admission.refusal.rows) expect(row.missing).not.toBe('');
          return;
        }
        const { plan } = admission;
        for (const dimension of plan.needed) expect(plan.dimensions[dimension].level).toBe('planned');
        if (job.mode !== 'default') for (const dimension of CONTAINMENT_DIMENSIONS) expect(plan.needed).toContain(dimension);
        for (const dimension of Object.values(plan.dimensions)) {
          for (const control of dimension.controls) expect(controls).toContain(control);
          if (dimension.level === 'unsupported') expect(dimension.controls).toEqual([]);
        }
        // A restriction that was stated is never planned as an open network.
        if (job.permissions.network.kind !== 'public') expect(plan.dimensions.network.controls).not.toContain('network_public');
      }),
      RUNS,
    );
  });
});

describe('deciding is total', () => {
  it('for any host and port', () => {
    fc.assert(
      fc.property(world, fc.oneof(fc.string({ unit: 'binary' }), fc.domain(), fc.ipV4(), fc.ipV6()), fc.oneof(fc.integer(), fc.double()), (one, host, port) => {
        const job = outcome(one);
        if (job !== undefined) expect(typeof decideHost(job.permissions.network, host, port).allowed).toBe('boolean');
      }),
      RUNS,
    );
  });

  it('for any path', () => {
    fc.assert(
      fc.property(world, fc.string({ unit: 'binary' }), (one, path) => {
        const job = outcome(one);
        if (job === undefined) return;
        expect(decideRead(job, `/${path}`).decision).toBeTruthy();
        expect(decideWrite(job, `/${path}`).decision).toBeTruthy();
      }),
      RUNS,
    );
  });
});

describe('what is written is what is read', () => {
  const whole = fc.oneof(fc.integer({ min: 0, max: 10_000_000 }), fc.maxSafeNat());

  it('sizes', () => {
    fc.assert(
      fc.property(whole, (bytes) => {
        expect(parseSize(formatSize(bytes))).toEqual({ kind: 'ok', value: bytes });
      }),
    );
  });

  it('durations', () => {
    fc.assert(
      fc.property(whole, (ms) => {
        expect(parseDuration(formatDuration(ms))).toEqual({ kind: 'ok', value: ms });
      }),
    );
  });

  it('host rules', () => {
    fc.assert(
      fc.property(rawHost, fc.constantFrom('allow' as const, 'deny' as const), (raw, effect) => {
        const parsed = parseHostRule(raw, effect, { layer: 'flag', name: 'x' });
        if (parsed.kind === 'error') throw new Error(parsed.message);
        expect(parseHostRule({ host: formatHostRule(parsed.rule, effect), private: parsed.rule.private }, effect, parsed.rule.origin)).toEqual(parsed);
      }),
    );
  });

  it('names and addresses have one canonical form', () => {
    fc.assert(
      fc.property(fc.domain(), (name) => {
        const canonical = canonicalHostName(name.toUpperCase());
        if (canonical === undefined) return;
        expect(canonicalHostName(canonical)).toBe(canonical);
        expect(canonicalHostName(`${canonical}.`)).toBe(canonical);
      }),
    );
    fc.assert(
      fc.property(fc.oneof(fc.ipV4(), fc.ipV6()), fc.integer({ min: 0, max: 128 }), (address, prefix) => {
        const canonical = parseCidr(address.includes(':') ? `${address}/${String(prefix)}` : `${address}/${String(prefix % 33)}`);
        expect(canonical).toBeDefined();
        expect(parseCidr(canonical ?? '')).toBe(canonical);
      }),
    );
  });

  it('IPv6 as the URL parser writes it', () => {
    fc.assert(
      fc.property(fc.ipV6(), (address) => {
        expect(parseCidr(address)).toBe(`${new URL(`http://[${address}]/`).hostname.slice(1, -1)}/128`);
      }),
    );
  });

  it('a path escaped as a glob matches that path alone', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', minLength: 1 }), fc.string(), (name, other) => {
        const path = `/${name.replaceAll('/', '_')}`;
        const glob = compileGlob(escapeGlob(path));
        if (glob.kind === 'error') throw new Error(glob.message);
        expect(glob.regex.test(path)).toBe(true);
        if (`/${other}` !== path) expect(glob.regex.test(`/${other}`)).toBe(false);
      }),
    );
  });
});

describe('parsers survive anything', () => {
  it('documents end in data or in an error of ours', async () => {
    const fragment = fc.constantFrom(
      'version: 1\n',
      'a: ',
      '- ',
      '&x ',
      '*x',
      '{',
      '}',
      '[',
      ']',
      '"',
      "'",
      '|\n  ',
      '>\n',
      '!t ',
      '? ',
      '\t',
      '\n',
      '#',
      '%YAML 1.1\n',
      '---\n',
      '...',
      '<<: ',
      '0x10',
      '.nan',
      '~',
    );
    await fc.assert(
      fc.asyncProperty(fc.array(fc.oneof(fragment, fc.string({ unit: 'binary', maxLength: 8 })), { maxLength: 30 }), async (parts) => {
        await parseDocument(parts.join(''), 'x.yaml', 'ERR_JOB_FILE').catch((error: unknown) => {
          expect(error).toBeInstanceOf(ProofrunError);
        });
      }),
      { numRuns: 500 },
    );
  });

  it('host rules, path rules and globs answer', () => {
    const text = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.array(fc.constantFrom('*', '**', '/', '[', ']', '{', '}', ',', '\\', '!', '-', '?', 'a', '..', '~'), { maxLength: 12 }).map((parts) => parts.join('')),
    );
    fc.assert(
      fc.property(text, (one) => {
        expect(['ok', 'error']).toContain(parseHostRule({ host: one }, 'allow', { layer: 'flag', name: 'x' }).kind);
        const parsed = parsePathRule(one, { home: '/h', directory: '/w' }, { layer: 'flag', name: 'x' });
        if (parsed.kind === 'ok') {
          expect(parsed.rule.pattern.startsWith('/')).toBe(true);
          expect(typeof compileMatcher(parsed.rule)('/w/a')).toBe('boolean');
        }
      }),
      { numRuns: 1000 },
    );
  });

  it('configuration files of tools', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 400 }), (text) => {
        const file = { file: 'x', text, fromWorkspace: false };
        readSettings(text);
        for (const urls of [npmUrls([file], {}), pipUrls([file], {}), cargoUrls([file], {}), mavenUrls([file], {}), gitUrls([file])]) {
          resolveUrls('npm-config', urls);
        }
      }),
    );
  });
});

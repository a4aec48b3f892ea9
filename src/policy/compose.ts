import { isAbsolute, posix } from 'node:path';
import { CONTAINMENT_DIMENSIONS, raiseMode, type Mode } from '../core/dimension.ts';
import { ProofrunError } from '../core/errors.ts';
import type { EffectiveJob, EffectivePermissions, GitIdentity, LayerRecord, Origin } from '../core/job.ts';
import { ceilingError, type Violation } from './ceiling.ts';
import { composeCredentials } from './compose-credentials.ts';
import { composeFileRead, composeFileWrite } from './compose-files.ts';
import { composeLimits } from './compose-limits.ts';
import { composeLogins } from './compose-logins.ts';
import { composeNetwork } from './compose-network.ts';
import { composeSubprocess } from './compose-programs.ts';
import { compileFlags } from './flag-rules.ts';
import type { JobFile } from './job-file.ts';
import type { Joined } from './joined.ts';
import type { CompiledLayer, RegistrySource } from './layer.ts';
import { compileMatcher, isWithin, type PathBase } from './path-rule.ts';
import { parseEnvFlag, type JobRequest } from './request.ts';
import { coveredBy, formatHostRule } from './host-rule.ts';
import { compileRules, formatOrigin, type RuleLayer } from './rules.ts';
import { sensitivePaths, workspaceSecrets, type SensitiveData } from './sensitive.ts';
import type { ResolvedRegistry } from './registry.ts';
import { checkWorkspace, type WorkspaceFacts } from './workspace.ts';

/** What the host knows about the caller. Data only. */
export interface HostFacts {
  /** The caller's home, absolute real path. */
  readonly home: string;
  /** Home directories of this machine that no workspace may be or contain. */
  readonly homes: readonly string[];
  readonly uid: number;
  readonly platform: NodeJS.Platform;
  readonly env: Readonly<Record<string, string>>;
}

export interface PolicyLayer {
  readonly layer: 'policy' | 'user policy' | 'workspace policy';
  readonly compiled: CompiledLayer;
}

export interface ProfileLayer {
  readonly compiled: CompiledLayer;
  /** It came with Proofrun, so it may read its own tool's login. */
  readonly shipped: boolean;
  /** It is the person's own: in their profile directory, or named by a flag, and outside the workspace. */
  readonly own?: boolean;
  /** `use`: named. `program`: chosen for the program that runs. */
  readonly chosen: 'use' | 'program';
}

/** Everything that a job is made of, read from the host before: `composeJob` opens nothing. */
export interface ComposeInput {
  readonly request: JobRequest;
  /** Absolute. */
  readonly currentDirectory: string;
  readonly jobFile?: { readonly parsed: JobFile; readonly directory: string };
  readonly profiles: readonly ProfileLayer[];
  readonly policies: readonly PolicyLayer[];
  /** The ceilings of the modes: policies/safe.yaml and policies/strict.yaml. */
  readonly modes: Readonly<Record<'safe' | 'strict', CompiledLayer>>;
  readonly host: HostFacts;
  readonly workspace: WorkspaceFacts;
  readonly sensitive: SensitiveData;
  /** Hosts that `allow_from` found in the configuration of tools. */
  readonly registries: readonly ResolvedRegistry[];
  /** The caller's git name and email. Absent: none is set. */
  readonly gitIdentity?: GitIdentity;
  /** Values of secrets that enter the job. */
  readonly secretValues: Readonly<Record<string, string>>;
  /** A path without symbolic links; the path itself when it doesn't exist. */
  readonly realPath: (path: string) => string;
}

/**
 * Joins the grants, intersects the ceilings, takes every denial away. The result is complete and absolute; every rule keeps the place where it was written.
 * Throws ERR_POLICY_CEILING (each grant above a ceiling with both lines), ERR_WORKSPACE, ERR_USAGE, ERR_JOB_FILE, ERR_POLICY_FILE.
 */
export function composeJob(input: ComposeInput): EffectiveJob {
  const { request, host, workspace, jobFile } = input;
  const { mode, origin: modeOrigin } = effectiveMode(input);
  const argv = commandOf(input);
  const workspaceBase: PathBase = { home: host.home, directory: workspace.workspace };
  const sensitive = sensitivePaths(input.sensitive, workspaceBase);
  checkWorkspace(workspace, { home: host.home, homes: host.homes, argv: request.argv.length > 0 ? request.argv : argv }, sensitive);

  const flags = compileFlags(request, { home: host.home, directory: input.currentDirectory });
  const grants: RuleLayer[] = [
    flags,
    ...(jobFile === undefined
      ? []
      : [
          compileRules(jobFile.parsed.permissions, {
            layer: 'job',
            name: jobFile.parsed.file,
            file: jobFile.parsed.file,
            base: { home: host.home, directory: jobFile.directory },
          }),
        ]),
    ...input.profiles.map(({ compiled }) =>
      withRegistries(compileRules(compiled.permissions, { layer: 'profile', name: compiled.name, file: compiled.file, base: workspaceBase }), input.registries),
    ),
  ];
  const modeLayer = mode === 'default' ? undefined : input.modes[mode];
  const policies = input.policies.filter(({ compiled }) => compiled !== modeLayer);
  const ceilings: RuleLayer[] = [
    ...(modeLayer === undefined
      ? []
      : [compileRules(modeLayer.permissions, { layer: 'mode', name: modeLayer.name, file: modeLayer.file, base: workspaceBase })]),
    ...policies.map(({ layer, compiled }) => compileRules(compiled.permissions, { layer, name: compiled.name, file: compiled.file, base: workspaceBase })),
  ];
  const joined: Joined = {
    mode,
    grants,
    ceilings,
    home: host.home,
    workspace: workspace.workspace,
    commonDirectory: workspace.commonDirectory,
    sensitive,
    shippedProfiles: namesOfAll(input.profiles, (profile) => profile.shipped),
    ownProfiles: namesOfAll(input.profiles, (profile) => profile.own === true),
    realPath: input.realPath,
  };

  const hints = input.profiles.flatMap(({ compiled }) => (compiled.hint === undefined ? [] : [`${compiled.name}: ${compiled.hint}`]));
  const network = composeNetwork(joined);
  const fileWrite = composeFileWrite(joined);
  const logins = composeLogins(joined);
  const fileRead = composeFileRead(
    joined,
    fileWrite.value.direct,
    logins.map((login) => ({ pattern: login.path, literal: true, origin: login.origin })),
    grants.some((layer) => layer.credentials?.gitIdentity !== undefined) ? input.gitIdentity : undefined,
  );
  const subprocess = composeSubprocess(joined);
  const credentials = composeCredentials(joined, {
    caller: host.env,
    defaults: Object.assign({}, ...input.profiles.map((profile) => profile.compiled.env ?? {})) as Readonly<Record<string, string>>,
    set: { ...jobFile?.parsed.env?.value, ...setByFlags(request) },
    home: host.home,
    cwd: workspace.cwd,
    secretValues: input.secretValues,
  });
  const [first, ...rest]: readonly Violation[] = [
    ...network.violations,
    ...fileWrite.violations,
    ...fileRead.violations,
    ...subprocess.violations,
    ...credentials.violations,
  ];
  if (first !== undefined) throw ceilingError([first, ...rest]);

  const permissions: EffectivePermissions = {
    fileRead: mode === 'default' ? fileRead.value : { ...fileRead.value, secretNames: hiddenNames(input, workspace) },
    fileWrite: fileWrite.value,
    network: network.network,
    subprocess: subprocess.value,
    // Without a private home the real files are visible, and what the job writes to them is thrown away with the rest.
    credentials: logins.length === 0 || fileRead.value.home === 'real' ? credentials.value : { ...credentials.value, logins },
    models: { requested: [...grants, ...ceilings].some((layer) => layer.models !== undefined) },
    tools: { requested: [...grants, ...ceilings].some((layer) => layer.tools !== undefined) },
    resources: composeLimits(joined),
  };
  return {
    name: request.name ?? jobFile?.parsed.name?.value,
    mode,
    ...(modeOrigin === undefined ? {} : { modeOrigin }),
    argv,
    cwd: workspace.cwd,
    workspace: workspace.workspace,
    home: host.home,
    executor: request.executor ?? jobFile?.parsed.executor?.value ?? 'auto',
    image: request.image ?? jobFile?.parsed.image?.value,
    ...optionalRuntime(request.runtime ?? jobFile?.parsed.runtime?.value),
    waived: waivers(input, mode),
    permissions,
    layers: layerRecords(input, modeLayer),
    warnings: [
      ...workspaceWarnings(workspace),
      ...fileRead.warnings,
      ...fileWrite.warnings,
      ...network.warnings,
      ...registryWarnings(input.registries, network.network),
      ...credentials.warnings,
      ...(logins.length > 0 && fileRead.value.home === 'real'
        ? ['the home is the real one, so the login and the state of an agent are not kept: --safe gives it a home of its own']
        : []),
    ],
    ...(hints.length === 0 ? {} : { hints }),
  };
}

/** Names that every profile of that name answers to: a borrowed name says nothing. */
function namesOfAll(profiles: readonly ProfileLayer[], holds: (profile: ProfileLayer) => boolean): readonly string[] {
  const others = new Set(profiles.filter((profile) => !holds(profile)).map((profile) => profile.compiled.name));
  return profiles.flatMap((profile) => (others.has(profile.compiled.name) ? [] : [profile.compiled.name]));
}

function workspaceWarnings(workspace: WorkspaceFacts): readonly string[] {
  const strange = workspace.strangeGitDirectory;
  return strange === undefined ? [] : [`.git points to ${strange}, which does not know this directory: it is not opened, and git does not work in the job`];
}

/** The highest mode that the flag, the job file or a policy asks for, and who asked first. */
export function effectiveMode(input: Pick<ComposeInput, 'request' | 'jobFile' | 'policies'>): { readonly mode: Mode; readonly origin?: Origin } {
  const { request, jobFile, policies } = input;
  const asked: readonly { readonly mode: Mode; readonly origin: Origin }[] = [
    ...(request.mode === undefined ? [] : [{ mode: request.mode, origin: { layer: 'flag' as const, name: `--${request.mode}` } }]),
    ...(jobFile?.parsed.mode === undefined
      ? []
      : [
          {
            mode: jobFile.parsed.mode.value,
            origin: { layer: 'job' as const, name: jobFile.parsed.file, file: jobFile.parsed.file, line: jobFile.parsed.mode.line },
          },
        ]),
    ...policies.flatMap(({ layer, compiled }) =>
      compiled.mode === undefined ? [] : [{ mode: compiled.mode.value, origin: { layer, name: compiled.name, file: compiled.file, line: compiled.mode.line } }],
    ),
  ];
  const mode = asked.reduce<Mode>((highest, one) => raiseMode(highest, one.mode), 'default');
  const origin = mode === 'default' ? undefined : asked.find((one) => one.mode === mode)?.origin;
  return { mode, ...(origin === undefined ? {} : { origin }) };
}

function commandOf(input: ComposeInput): readonly [string, ...string[]] {
  const typed = input.request.argv;
  const [program, ...args] = typed.length > 0 ? typed : (input.jobFile?.parsed.command?.value ?? []);
  if (program === undefined || program === '') {
    throw new ProofrunError('ERR_USAGE', {
      message: input.jobFile === undefined ? 'no command was given' : `${input.jobFile.parsed.file} has no command, and none was typed`,
      hint: 'job run --safe -- npm test',
    });
  }
  const bad = [program, ...args].findIndex((word) => word.includes('\0'));
  if (bad >= 0) throw new ProofrunError('ERR_USAGE', { message: `argument ${String(bad)} of the command holds a NUL byte` });
  return [program, ...args];
}

function setByFlags(request: JobRequest): Readonly<Record<string, string>> {
  return Object.fromEntries(
    (request.env ?? []).flatMap((text) => {
      const flag = parseEnvFlag(text);
      return flag.kind === 'set' ? [[flag.name, flag.value] as const] : [];
    }),
  );
}

function waivers(input: ComposeInput, mode: Mode): readonly string[] {
  const waived = [...new Set([...(input.request.degrade ?? []), ...(input.jobFile?.parsed.degrade ?? []).map((one) => one.value)])];
  const kept = waived.find((dimension) => CONTAINMENT_DIMENSIONS.some((one) => one === dimension));
  if (kept !== undefined) {
    throw new ProofrunError('ERR_USAGE', {
      message: `--degrade ${kept}: file_read, file_write, network and subprocess can't be waived`,
      hint: 'run without --safe to accept less',
    });
  }
  if (mode === 'strict' && waived.length > 0) {
    throw new ProofrunError('ERR_USAGE', {
      message: `--strict has no waiver, and ${waived.join(', ')} would be waived`,
      hint: 'use --safe with --degrade, or leave the waiver out',
    });
  }
  return waived.sort();
}

function hiddenNames(input: ComposeInput, workspace: WorkspaceFacts): NonNullable<EffectivePermissions['fileRead']['secretNames']> {
  const { always, privateKeys } = workspaceSecrets(input.sensitive, workspace.workspace);
  const except = input.sensitive.workspaceExcept.flatMap((name) =>
    always.slice(0, 1).map((rule) => ({ pattern: `${rule.pattern.slice(0, rule.pattern.lastIndexOf('/'))}/${name}`, literal: false, origin: rule.origin })),
  );
  // The person's own flag opens a single name again.
  const personal = (input.request.allowRead ?? [])
    .map((path) => (isAbsolute(path) ? posix.normalize(path) : posix.resolve(input.currentDirectory, path)))
    .filter((path) => isWithin(path, workspace.workspace) && [...always, ...privateKeys].some((rule) => compileMatcher(rule)(path)));
  return {
    always,
    privateKeys,
    except: [...except, ...personal.map((path) => ({ pattern: path, literal: true, origin: { layer: 'flag' as const, name: `--allow-read ${path}` } }))],
  };
}

function withRegistries(layer: RuleLayer, registries: readonly ResolvedRegistry[]): RuleLayer {
  const { network } = layer;
  if (network === undefined || network.allowFrom.length === 0) return layer;
  const wanted = new Set<RegistrySource>(network.allowFrom.map((one) => one.value));
  const found = registries.filter((registry) => wanted.has(registry.source));
  return {
    ...layer,
    network: {
      ...network,
      allow: [...network.allow, ...found.flatMap((registry) => registry.hosts)],
      hostPorts: [...network.hostPorts, ...found.flatMap((registry) => registry.hostPorts)],
    },
  };
}

/** A host that only a file of the workspace names is a wish of whoever wrote the workspace. */
function registryWarnings(registries: readonly ResolvedRegistry[], network: EffectivePermissions['network']): readonly string[] {
  if (network.defaultAllow) return [];
  return registries.flatMap((registry) =>
    registry.onlyInWorkspace
      .filter((rule) => !coveredBy(rule, network.allow))
      .map(
        (rule) =>
          `${formatOrigin(rule.origin)} names ${formatHostRule(rule, 'allow')}, which a file of the workspace can't open; --allow-net ${formatHostRule(rule, 'allow')} does`,
      ),
  );
}

function layerRecords(input: ComposeInput, modeLayer: CompiledLayer | undefined): readonly LayerRecord[] {
  const record = (compiled: CompiledLayer): LayerRecord => ({ kind: compiled.kind, name: compiled.name, source: compiled.file, sha256: compiled.sha256 });
  const { jobFile } = input;
  return [
    ...(jobFile === undefined
      ? []
      : [{ kind: 'job' as const, name: jobFile.parsed.name?.value ?? jobFile.parsed.file, source: jobFile.parsed.file, sha256: jobFile.parsed.sha256 }]),
    ...input.profiles.map((profile) => record(profile.compiled)),
    ...(modeLayer === undefined ? [] : [record(modeLayer)]),
    ...input.policies.filter(({ compiled }) => compiled !== modeLayer).map((policy) => record(policy.compiled)),
  ];
}

function optionalRuntime(runtime: string | undefined): { readonly runtime?: string } {
  return runtime === undefined ? {} : { runtime };
}

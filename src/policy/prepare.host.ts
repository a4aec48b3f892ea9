import { constants } from 'node:fs';
import { access, readFile, realpath, stat } from 'node:fs/promises';
import { realpathSync } from 'node:fs';
import { basename, delimiter, dirname, isAbsolute, join, relative, resolve } from 'node:path';
import { ProofrunError, errnoOf } from '../core/errors.ts';
import type { Origin } from '../core/job.ts';
import { effectiveMode, type ComposeInput, type PolicyLayer, type ProfileLayer } from './compose.ts';
import { parseJobFile, type JobFile } from './job-file.ts';
import type { CompiledLayer } from './layer.ts';
import { loadPresets } from './load.host.ts';
import { didYouMean } from './near-names.ts';
import { isWithin } from './path-rule.ts';
import { readJobFile, readPolicyFile } from './policy-file.host.ts';
import { compilePreset, type Presets } from './presets.ts';
import { resolveRegistries } from './registries.host.ts';
import { parseSecretFlag, type JobRequest } from './request.ts';
import { formatOrigin } from './rules.ts';
import { trustQuestion, type TrustQuestion } from './trust.ts';
import { isTrusted } from './trust.host.ts';
import { findWorkspace } from './workspace.host.ts';
import { quoteWord } from './workspace.ts';

/** The process that asks. */
export interface CallerFacts {
  /** Absolute. */
  readonly currentDirectory: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly uid: number;
  /** As in HOME, else as in the password file. */
  readonly home: string;
  readonly platform: NodeJS.Platform;
  /** Holds policy.yaml, policies/, profiles/: `$XDG_CONFIG_HOME/proofrun`, else `~/.config/proofrun`. */
  readonly configDirectory: string;
  readonly stateDirectory: string;
}

/** require: a job file inside the workspace that grants anything must have been accepted. ignore: for explain, check and trust itself. */
export type TrustRule = 'require' | 'ignore';

export interface Prepared {
  readonly input: ComposeInput;
  /** Set when the job file lies in the workspace and grants something. */
  readonly trust?: TrustQuestion & { readonly file: string };
}

/**
 * Reads from the host everything that a job is made of: job file, presets, policy files, workspace, the configuration of package managers, secrets that enter. Nothing is
 * run. Pass `input` to composeJob. Throws ERR_JOB_FILE, ERR_POLICY_FILE, ERR_PROFILE_UNKNOWN, ERR_WORKSPACE, ERR_JOB_UNTRUSTED, ERR_USAGE.
 */
export async function prepareJob(request: JobRequest, caller: CallerFacts, trustRule: TrustRule): Promise<Prepared> {
  const presets = await loadPresets();
  const jobFile = request.jobFile === undefined ? undefined : await openJob(resolve(caller.currentDirectory, request.jobFile), caller.currentDirectory);
  const home = await realpath(caller.home).catch(() => caller.home);
  const workspace = await findWorkspace({
    currentDirectory: caller.currentDirectory,
    ...(request.workspace === undefined ? {} : { workspace: request.workspace }),
    ...(request.cwd === undefined ? {} : { cwd: request.cwd }),
    ...(jobFile?.parsed.workspace === undefined ? {} : { jobWorkspace: fromFile(jobFile.directory, jobFile.parsed.workspace.value, home) }),
    ...(jobFile?.parsed.cwd === undefined ? {} : { jobCwd: fromFile(jobFile.directory, jobFile.parsed.cwd.value, home) }),
  });
  const policies = await loadPolicies({ request, jobFile, caller, presets, workspace: workspace.workspace });
  const profiles = await loadProfiles({ request, jobFile, caller, presets, workspace: workspace.workspace });
  const question =
    jobFile !== undefined && isWithin(jobFile.realFile, workspace.workspace)
      ? trustQuestion(jobFile.parsed, namedProfiles(jobFile.parsed, profiles))
      : undefined;
  const trust = jobFile === undefined || question === undefined ? undefined : { ...question, file: jobFile.realFile };
  if (trust !== undefined && trustRule === 'require') await requireTrust(trust, request, caller);

  const jobParts = jobFile === undefined ? {} : { jobFile: { parsed: jobFile.parsed, directory: jobFile.directory } };
  const argv = request.argv.length > 0 ? request.argv : (jobFile?.parsed.command?.value ?? []);
  const mode = effectiveMode({ request, ...jobParts, policies });
  const chosen = mode === 'default' ? undefined : await profileOfProgram(argv[0], workspace.cwd, workspace.workspace, caller, presets);
  const allProfiles: readonly ProfileLayer[] =
    chosen === undefined || profiles.some((profile) => profile.compiled.name === chosen.name)
      ? profiles
      : [...profiles, { compiled: chosen, shipped: true, chosen: 'program' }];
  const env = definedOnly(caller.env);
  const wanted = new Set(allProfiles.flatMap((profile) => (profile.compiled.permissions.network?.allowFrom ?? []).map((one) => one.value)));
  const input: ComposeInput = {
    request,
    currentDirectory: caller.currentDirectory,
    ...jobParts,
    profiles: allProfiles,
    policies,
    modes: { safe: shippedPolicy(presets, 'safe'), strict: shippedPolicy(presets, 'strict') },
    host: { home, homes: await homeDirectories(), uid: caller.uid, platform: caller.platform, env },
    workspace,
    sensitive: presets.sensitive,
    registries: wanted.size === 0 ? [] : await resolveRegistries([...wanted], { home, workspace: workspace.workspace, cwd: workspace.cwd, env }),
    secretValues: await readSecrets(request, jobFile?.parsed, jobFile?.directory ?? caller.currentDirectory, caller.currentDirectory, env, home),
    realPath: realPathOf,
  };
  return { input, ...(trust === undefined ? {} : { trust }) };
}

interface OpenJob {
  readonly parsed: JobFile;
  readonly directory: string;
  readonly realFile: string;
}

/** A job file by its absolute path. */
export async function openJob(path: string, currentDirectory: string): Promise<OpenJob> {
  const shown = shownPath(path, currentDirectory);
  const { text, sha256 } = await readJobFile(path, shown);
  const realFile = await realpath(path);
  return { parsed: await parseJobFile(text, shown, sha256), directory: dirname(realFile), realFile };
}

async function requireTrust(trust: TrustQuestion & { readonly file: string }, request: JobRequest, caller: CallerFacts): Promise<void> {
  if (request.trust === trust.digest || (await isTrusted(caller.stateDirectory, caller.uid, trust.file, trust.digest))) return;
  const shown = shownPath(trust.file, caller.currentDirectory);
  const stale = request.trust === undefined ? '' : `; the digest given is another one (${request.trust})`;
  throw new ProofrunError('ERR_JOB_UNTRUSTED', {
    message: `${shown} lies in the workspace and asks for what nobody has accepted yet${stale}:\n${trust.grants.map((grant) => `  ${shown}:${String(grant.line)}  ${grant.what}`).join('\n')}`,
    hint: `job trust ${quoteWord(shown)} accepts it and remembers; in CI: --trust ${trust.digest}`,
    data: { file: trust.file, digest: trust.digest, grants: trust.grants },
  });
}

interface LayerSources {
  readonly request: JobRequest;
  readonly jobFile: OpenJob | undefined;
  readonly caller: CallerFacts;
  readonly presets: Presets;
  readonly workspace: string;
}

async function loadPolicies(sources: LayerSources): Promise<readonly PolicyLayer[]> {
  const { request, jobFile, caller, presets, workspace } = sources;
  const layers: PolicyLayer[] = [];
  const userFile = join(caller.configDirectory, 'policy.yaml');
  const user = await readPolicyFile(userFile, [caller.uid, 0]);
  if (user !== undefined) layers.push({ layer: 'user policy', compiled: await compilePreset(user.text, userFile, 'policy', user.sha256, 'user policy') });
  const workspaceFile = join(workspace, '.proofrun', 'policy.yaml');
  // It can only narrow, so whoever owns the workspace may write it.
  const owner = (await stat(workspace)).uid;
  const own = await readPolicyFile(workspaceFile, [...new Set([caller.uid, 0, owner])]);
  if (own !== undefined) {
    layers.push({
      layer: 'workspace policy',
      compiled: await compilePreset(own.text, shownPath(workspaceFile, caller.currentDirectory), 'policy', own.sha256, 'workspace policy'),
    });
  }
  for (const named of names(request.policies, '--policy', caller.currentDirectory, jobFile, 'policies')) {
    const { compiled } = await findLayer(named, 'policy', presets.policies, caller);
    if (!layers.some((layer) => layer.compiled.sha256 === compiled.sha256 && layer.compiled.name === compiled.name)) layers.push({ layer: 'policy', compiled });
  }
  return layers;
}

async function loadProfiles(sources: LayerSources): Promise<readonly ProfileLayer[]> {
  const { request, jobFile, caller, presets } = sources;
  const layers: ProfileLayer[] = [];
  for (const named of names(request.use, '--use', caller.currentDirectory, jobFile, 'use')) {
    const { compiled, shipped } = await findLayer(named, 'profile', presets.profiles, caller);
    if (!layers.some((layer) => layer.compiled.sha256 === compiled.sha256 && layer.compiled.name === compiled.name)) {
      layers.push({ compiled, shipped, chosen: 'use' });
    }
  }
  return layers;
}

interface NamedLayer {
  readonly name: string;
  readonly origin: Origin;
  /** For names that are paths. */
  readonly directory: string;
}

function names(
  flags: readonly string[] | undefined,
  flag: string,
  currentDirectory: string,
  jobFile: OpenJob | undefined,
  key: 'use' | 'policies',
): readonly NamedLayer[] {
  return [
    ...(jobFile === undefined
      ? []
      : jobFile.parsed[key].map(({ value, line }) => ({
          name: value,
          origin: { layer: 'job' as const, name: jobFile.parsed.file, file: jobFile.parsed.file, line },
          directory: jobFile.directory,
        }))),
    ...(flags ?? []).map((name) => ({ name, origin: { layer: 'flag' as const, name: `${flag} ${name}` }, directory: currentDirectory })),
  ];
}

/** A layer by name (the person's own directory first, then the shipped ones) or by path. Throws ERR_PROFILE_UNKNOWN. */
async function findLayer(
  named: NamedLayer,
  kind: 'policy' | 'profile',
  shipped: readonly CompiledLayer[],
  caller: CallerFacts,
): Promise<{ readonly compiled: CompiledLayer; readonly shipped: boolean }> {
  const { name } = named;
  const isPath = name.includes('/') || /\.(?:ya?ml|json)$/.test(name);
  const path = isPath
    ? resolve(named.directory, name.startsWith('~/') ? join(caller.home, name.slice(2)) : name)
    : join(caller.configDirectory, kind === 'policy' ? 'policies' : 'profiles', `${name}.yaml`);
  const file = await readPolicyFile(path, [caller.uid, 0]);
  if (file !== undefined) return { compiled: await compilePreset(file.text, shownPath(path, caller.currentDirectory), kind, file.sha256), shipped: false };
  const preset = isPath ? undefined : shipped.find((layer) => layer.name === name);
  if (preset !== undefined) return { compiled: preset, shipped: true };
  throw new ProofrunError('ERR_PROFILE_UNKNOWN', {
    message: `${formatOrigin(named.origin)}: there is no ${kind} ${isPath ? `at ${path}` : `named ${JSON.stringify(name)}`}${
      isPath
        ? ''
        : didYouMean(
            name,
            shipped.map((layer) => layer.name),
          )
    }`,
    hint: 'job policy ls lists them',
  });
}

function namedProfiles(
  job: JobFile,
  profiles: readonly ProfileLayer[],
): readonly { readonly name: string; readonly sha256: string; readonly shipped: boolean }[] {
  return job.use.length === 0 ? [] : profiles.map(({ compiled, shipped }) => ({ name: compiled.name, sha256: compiled.sha256, shipped }));
}

/** The shipped profile of a program, when PATH finds that program outside the workspace: a file of the workspace chooses nothing. */
async function profileOfProgram(
  program: string | undefined,
  cwd: string,
  workspace: string,
  caller: CallerFacts,
  presets: Presets,
): Promise<CompiledLayer | undefined> {
  if (program === undefined) return undefined;
  const profile = presets.profiles.find((one) => one.programs?.includes(basename(program)) === true);
  if (profile === undefined) return undefined;
  const found = await findProgram(program, cwd, caller.env['PATH'] ?? '');
  return found === undefined || isWithin(found.path, workspace) || isWithin(found.real, workspace) ? undefined : profile;
}

async function findProgram(program: string, cwd: string, path: string): Promise<{ readonly path: string; readonly real: string } | undefined> {
  const candidates = program.includes('/') ? [resolve(cwd, program)] : path.split(delimiter).map((directory) => join(resolve(cwd, directory), program));
  for (const candidate of candidates) {
    const usable = await access(candidate, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (!usable) continue;
    const entry = await stat(candidate);
    if (entry.isFile()) return { path: candidate, real: await realpath(candidate) };
  }
  return undefined;
}

/** Homes in the password file: of root and of people. */
async function homeDirectories(): Promise<readonly string[]> {
  const text = await readFile('/etc/passwd', 'utf8').catch(() => '');
  const homes = text.split('\n').flatMap((line) => {
    const [, , uid, , , home] = line.split(':');
    return home !== undefined && isAbsolute(home) && home !== '/' && (Number(uid) === 0 || (Number(uid) >= 1000 && Number(uid) < 65534)) ? [home] : [];
  });
  return [...new Set([...homes, ...homes.map(realPathOf)])];
}

/** Values of secrets that enter the job: `env:` and `file:`. Others are refused: nothing here runs a command. */
async function readSecrets(
  request: JobRequest,
  job: JobFile | undefined,
  jobDirectory: string,
  currentDirectory: string,
  env: Readonly<Record<string, string>>,
  home: string,
): Promise<Readonly<Record<string, string>>> {
  const values: Record<string, string> = {};
  const flags = (request.secrets ?? []).flatMap((text) => {
    const flag = parseSecretFlag(text);
    return flag.kind === 'ok' ? [{ ...flag.secret, directory: currentDirectory, where: `--secret ${flag.secret.name}` }] : [];
  });
  const own = (job?.permissions.credentials?.secrets ?? []).flatMap(({ value, line }) =>
    value.from === undefined
      ? []
      : [{ name: value.name, from: value.from, inject: value.inject, directory: jobDirectory, where: `${job?.file ?? ''}:${String(line)}` }],
  );
  for (const secret of [...own, ...flags]) {
    const colon = secret.from.indexOf(':');
    const [kind, rest] = [secret.from.slice(0, colon), secret.from.slice(colon + 1)];
    if (kind === 'env') {
      const value = env[rest];
      if (value !== undefined) values[secret.name] = value;
    } else if (kind === 'file') {
      values[secret.name] = await readSecretFile(fromFile(secret.directory, rest, home), secret.where);
    } else {
      throw new ProofrunError('ERR_USAGE', {
        message: `${secret.where}: secrets from ${kind}: are not supported by this version`,
        hint: 'use env:NAME or file:PATH',
      });
    }
  }
  return values;
}

const MAX_SECRET_BYTES = 65536;

async function readSecretFile(path: string, where: string): Promise<string> {
  const fail = (reason: string, cause?: unknown): never => {
    throw new ProofrunError('ERR_USAGE', { message: `${where}: ${path} ${reason}`, ...(cause === undefined ? {} : { cause }) });
  };
  const entry = await stat(path).catch((cause: unknown) => fail(`can't be read (${errnoOf(cause) ?? 'unknown'})`, cause));
  if (!entry.isFile() || entry.size > MAX_SECRET_BYTES) return fail('is no regular file of at most 64 KiB');
  return (await readFile(path, 'utf8').catch((cause: unknown) => fail(`can't be read (${errnoOf(cause) ?? 'unknown'})`, cause))).replace(/\r?\n$/, '');
}

function shippedPolicy(presets: Presets, name: string): CompiledLayer {
  const policy = presets.policies.find((one) => one.name === name);
  if (policy === undefined) throw new ProofrunError('ERR_INTERNAL', { message: `the policy ${name} was not shipped` });
  return policy;
}

function fromFile(directory: string, path: string, home: string): string {
  return path === '~' || path.startsWith('~/') ? join(home, path.slice(1)) : resolve(directory, path);
}

/** Without links; of a path that doesn't exist, the part that does. */
function realPathOf(path: string): string {
  for (let existing = path, rest = ''; ; rest = join(basename(existing), rest), existing = dirname(existing)) {
    try {
      return join(realpathSync(existing), rest).replace(/(?<=.)\/$/, '');
    } catch {
      if (dirname(existing) === existing) return path;
    }
  }
}

function shownPath(path: string, currentDirectory: string): string {
  const shown = relative(currentDirectory, path);
  return shown === '' || shown.startsWith('..') ? path : shown;
}

function definedOnly(env: Readonly<Record<string, string | undefined>>): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(env).flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as const])));
}

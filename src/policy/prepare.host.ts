import { readFileSync, realpathSync } from 'node:fs';
import { basename, dirname, isAbsolute, join, resolve } from 'node:path';
import { ProofrunError } from '../core/errors.ts';
import { fromFile, shownPath } from './caller-paths.ts';
import { effectiveMode, type ComposeInput, type ProfileLayer } from './compose.ts';
import { loadPolicies, loadProfiles, type OpenJob } from './find-layers.host.ts';
import { readGitIdentity } from './git-identity.host.ts';
import { parseJobFile, type JobFile } from './job-file.ts';
import type { CompiledLayer, RegistrySource } from './layer.ts';
import { loadPresets } from './load.host.ts';
import { isWithin } from './path-rule.ts';
import { readJobFile } from './policy-file.host.ts';
import type { Presets } from './presets.ts';
import { profileOfProgram } from './program-profile.host.ts';
import type { RegistryCaller } from './registries.host.ts';
import type { ResolvedRegistry } from './registry.ts';
import type { JobRequest } from './request.ts';
import { readSecrets } from './secrets.host.ts';
import { trustQuestion, type TrustQuestion } from './trust.ts';
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
  const home = realPathOf(caller.home);
  const workspace = findWorkspace({
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
  const { mode } = effectiveMode({ request, ...jobParts, policies });
  const chosen = mode === 'default' ? undefined : profileOfProgram(argv[0], workspace.cwd, workspace.workspace, caller, presets);
  const allProfiles: readonly ProfileLayer[] =
    chosen === undefined || profiles.some((profile) => profile.compiled.name === chosen.name)
      ? profiles
      : [...profiles, { compiled: chosen, shipped: true, chosen: 'program' }];
  const env = definedOnly(caller.env);
  const wanted = new Set(allProfiles.flatMap((profile) => (profile.compiled.permissions.network?.allowFrom ?? []).map((one) => one.value)));
  const gitIdentity = allProfiles.some((profile) => profile.compiled.permissions.credentials?.gitIdentity === true) ? readGitIdentity(home, env) : undefined;
  const input: ComposeInput = {
    request,
    currentDirectory: caller.currentDirectory,
    ...jobParts,
    profiles: allProfiles,
    policies,
    modes: { safe: shippedPolicy(presets, 'safe'), strict: shippedPolicy(presets, 'strict') },
    host: { home, homes: homeDirectories(), uid: caller.uid, platform: caller.platform, env },
    workspace,
    sensitive: presets.sensitive,
    registries: await registriesOf([...wanted], { home, workspace: workspace.workspace, cwd: workspace.cwd, env }),
    ...(gitIdentity === undefined ? {} : { gitIdentity }),
    secretValues: readSecrets(request, jobFile?.parsed, jobFile?.directory ?? caller.currentDirectory, caller.currentDirectory, env, home),
    realPath: realPathOf,
  };
  return { input, ...(trust === undefined ? {} : { trust }) };
}

/** A job file by its absolute path. */
export async function openJob(path: string, currentDirectory: string): Promise<OpenJob> {
  const shown = shownPath(path, currentDirectory);
  const { text, sha256 } = readJobFile(path, shown);
  const realFile = realpathSync(path);
  return { parsed: await parseJobFile(text, shown, sha256), directory: dirname(realFile), realFile };
}

async function requireTrust(trust: TrustQuestion & { readonly file: string }, request: JobRequest, caller: CallerFacts): Promise<void> {
  const { isTrusted } = await import('./trust.host.ts');
  if (request.trust === trust.digest || (await isTrusted(caller.stateDirectory, caller.uid, trust.file, trust.digest))) return;
  const shown = shownPath(trust.file, caller.currentDirectory);
  const stale = request.trust === undefined ? '' : `; the digest given is another one (${request.trust})`;
  throw new ProofrunError('ERR_JOB_UNTRUSTED', {
    message: `${shown} lies in the workspace and asks for what nobody has accepted yet${stale}:\n${trust.grants.map((grant) => `  ${shown}:${String(grant.line)}  ${grant.what}`).join('\n')}`,
    hint: `job trust ${quoteWord(shown)} accepts it and remembers; in CI: --trust ${trust.digest}`,
    data: { file: trust.file, digest: trust.digest, grants: trust.grants },
  });
}

function namedProfiles(
  job: JobFile,
  profiles: readonly ProfileLayer[],
): readonly { readonly name: string; readonly sha256: string; readonly shipped: boolean }[] {
  return job.use.length === 0 ? [] : profiles.map(({ compiled, shipped }) => ({ name: compiled.name, sha256: compiled.sha256, shipped }));
}

/** Homes in the password file: of root and of people. */
function homeDirectories(): readonly string[] {
  const text = passwordFile();
  const homes = text.split('\n').flatMap((line) => {
    const [, , uid, , , home] = line.split(':');
    return home !== undefined && isAbsolute(home) && home !== '/' && (Number(uid) === 0 || (Number(uid) >= 1000 && Number(uid) < 65534)) ? [home] : [];
  });
  return [...new Set([...homes, ...homes.map(realPathOf)])];
}

function passwordFile(): string {
  try {
    return readFileSync('/etc/passwd', 'utf8');
  } catch {
    return '';
  }
}

/** Loaded when a profile asks for hosts of a tool's configuration. */
async function registriesOf(sources: readonly RegistrySource[], caller: RegistryCaller): Promise<readonly ResolvedRegistry[]> {
  if (sources.length === 0) return [];
  const { resolveRegistries } = await import('./registries.host.ts');
  return await resolveRegistries(sources, caller);
}

function shippedPolicy(presets: Presets, name: string): CompiledLayer {
  const policy = presets.policies.find((one) => one.name === name);
  if (policy === undefined) throw new ProofrunError('ERR_INTERNAL', { message: `the policy ${name} was not shipped` });
  return policy;
}

/** Without links; of a path that doesn't exist, the part that does. */
function realPathOf(path: string): string {
  for (let existing = path, rest = ''; ; rest = join(basename(existing), rest), existing = dirname(existing)) {
    try {
      return join(realpathSync.native(existing), rest).replace(/(?<=.)\/$/, '');
    } catch {
      if (dirname(existing) === existing) return path;
    }
  }
}

function definedOnly(env: Readonly<Record<string, string | undefined>>): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(env).flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as const])));
}

import { realpathSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { ProofrunError } from '../core/errors.ts';
import type { Origin } from '../core/job.ts';
import { shownPath } from './caller-paths.ts';
import type { PolicyLayer, ProfileLayer } from './compose.ts';
import type { JobFile } from './job-file.ts';
import type { CompiledLayer } from './layer.ts';
import { isWithin } from './path-rule.ts';
import { didYouMean } from './near-names.ts';
import { readPolicyFile } from './policy-file.host.ts';
import type { CallerFacts } from './prepare.host.ts';
import { compilePreset, type Presets } from './presets.ts';
import type { JobRequest } from './request.ts';
import { formatOrigin } from './rules.ts';

/** A job file that was read, and where it lies. */
export interface OpenJob {
  readonly parsed: JobFile;
  readonly directory: string;
  readonly realFile: string;
}

export interface LayerSources {
  readonly request: JobRequest;
  readonly jobFile: OpenJob | undefined;
  readonly caller: CallerFacts;
  readonly presets: Presets;
  readonly workspace: string;
}

/** The user file, the workspace file, and the policies that job file and flags name. Throws ERR_POLICY_FILE, ERR_PROFILE_UNKNOWN. */
export async function loadPolicies(sources: LayerSources): Promise<readonly PolicyLayer[]> {
  const { request, jobFile, caller, presets, workspace } = sources;
  const layers: PolicyLayer[] = [];
  const userFile = join(caller.configDirectory, 'policy.yaml');
  const user = readPolicyFile(userFile, [caller.uid, 0]);
  if (user !== undefined) layers.push({ layer: 'user policy', compiled: await compilePreset(user.text, userFile, 'policy', user.sha256, 'user policy') });
  const workspaceFile = join(workspace, '.proofrun', 'policy.yaml');
  // It can only narrow, so whoever owns the workspace may write it.
  const owner = statSync(workspace).uid;
  const own = readPolicyFile(workspaceFile, [...new Set([caller.uid, 0, owner])]);
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

/** The profiles that job file and flags name. Throws ERR_POLICY_FILE, ERR_PROFILE_UNKNOWN. */
export async function loadProfiles(sources: LayerSources): Promise<readonly ProfileLayer[]> {
  const { request, jobFile, caller, presets } = sources;
  const layers: ProfileLayer[] = [];
  for (const named of names(request.use, '--use', caller.currentDirectory, jobFile, 'use')) {
    const { compiled, shipped, place } = await findLayer(named, 'profile', presets.profiles, caller);
    // A path in a job file is the job file's choice, not the person's.
    const own = place !== undefined && !isWithin(place.realFile, sources.workspace) && (!place.isPath || named.origin.layer === 'flag');
    if (!layers.some((layer) => layer.compiled.sha256 === compiled.sha256 && layer.compiled.name === compiled.name)) {
      layers.push({ compiled, shipped, own, chosen: 'use' });
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
): Promise<{ readonly compiled: CompiledLayer; readonly shipped: boolean; readonly place?: { readonly realFile: string; readonly isPath: boolean } }> {
  const { name } = named;
  const isPath = name.includes('/') || /\.(?:ya?ml|json)$/.test(name);
  const path = isPath
    ? resolve(named.directory, name.startsWith('~/') ? join(caller.home, name.slice(2)) : name)
    : join(caller.configDirectory, kind === 'policy' ? 'policies' : 'profiles', `${name}.yaml`);
  const file = readPolicyFile(path, [caller.uid, 0]);
  if (file !== undefined) {
    return {
      compiled: await compilePreset(file.text, shownPath(path, caller.currentDirectory), kind, file.sha256),
      shipped: false,
      place: { realFile: realpathSync(path), isPath },
    };
  }
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

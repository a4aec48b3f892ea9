import { fileURLToPath } from 'node:url';
import type { EffectiveJob } from '../../src/core/job.ts';
import type { ExecutorCapabilities } from '../../src/core/plan.ts';
import { CONTROLS } from '../../src/core/plan.ts';
import { composeJob, type ComposeInput, type PolicyLayer, type ProfileLayer } from '../../src/policy/compose.ts';
import { parseJobFile } from '../../src/policy/job-file.ts';
import { compileDirectory } from '../../src/policy/load.host.ts';
import { compilePreset, type Presets } from '../../src/policy/presets.ts';
import type { JobRequest } from '../../src/policy/request.ts';

/** The presets as they lie in the source tree. */
export const shipped: Presets = await compileDirectory(fileURLToPath(new URL('../../policies/', import.meta.url)));

export const HOME = '/home/ada';
export const WORKSPACE = '/home/ada/src/shop';

export interface Scenario {
  readonly request?: JobRequest | Omit<JobRequest, 'argv'>;
  /** Text of a job file in the workspace. */
  readonly job?: string;
  readonly policies?: readonly { readonly layer?: PolicyLayer['layer']; readonly text: string; readonly file: string }[];
  readonly profiles?: readonly { readonly text: string; readonly file: string; readonly shipped?: boolean }[];
  readonly use?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly over?: Partial<ComposeInput>;
}

export function presetNamed(kind: 'policies' | 'profiles', name: string): Presets['policies'][number] {
  const found = shipped[kind].find((layer) => layer.name === name);
  if (found === undefined) throw new Error(`no preset ${name}`);
  return found;
}

/** The input of a composition, without a host: a home, a workspace below it, no links. */
export async function inputOf(scenario: Scenario): Promise<ComposeInput> {
  const policies: PolicyLayer[] = [];
  for (const { text, file, layer } of scenario.policies ?? []) {
    policies.push({ layer: layer ?? 'policy', compiled: await compilePreset(text, file, 'policy', 'cafe') });
  }
  const profiles: ProfileLayer[] = (scenario.use ?? []).map((name) => ({ compiled: presetNamed('profiles', name), shipped: true, chosen: 'use' }));
  for (const { text, file, shipped: own } of scenario.profiles ?? []) {
    profiles.push({ compiled: await compilePreset(text, file, 'profile', 'beef'), shipped: own ?? false, chosen: 'use' });
  }
  return {
    request: { argv: ['npm', 'test'], ...scenario.request },
    currentDirectory: WORKSPACE,
    ...(scenario.job === undefined ? {} : { jobFile: { parsed: await parseJobFile(scenario.job, 'job.yaml', 'f00d'), directory: WORKSPACE } }),
    profiles,
    policies,
    modes: { safe: presetNamed('policies', 'safe'), strict: presetNamed('policies', 'strict') },
    host: {
      home: HOME,
      homes: ['/root', HOME],
      uid: 1000,
      platform: 'linux',
      env: { PATH: '/usr/bin:/bin', HOME, LANG: 'en_GB.UTF-8', EDITOR: 'vi', GITHUB_TOKEN: 'ghp_x', LC_TIME: 'C', ...scenario.env },
    },
    workspace: { workspace: WORKSPACE, cwd: WORKSPACE, chosen: 'git work tree' },
    sensitive: shipped.sensitive,
    registries: [],
    secretValues: {},
    realPath: (path) => path,
    ...scenario.over,
  };
}

export async function compose(scenario: Scenario): Promise<EffectiveJob> {
  return composeJob(await inputOf(scenario));
}

/** Native as it is when everything works. */
export const NATIVE: ExecutorCapabilities = {
  executor: 'native',
  available: true,
  version: '1',
  user: 'user',
  controls: [...CONTROLS],
  network: { public: true, deny: true, selective: false },
  subprocess: { contained: true, listed: false, none: true },
  limits: { memory: true, cpus: true, processes: true, swap: true },
  cooperative: [],
};

export const HOST: ExecutorCapabilities = {
  executor: 'host',
  available: true,
  version: '1',
  user: 'user',
  controls: ['environment', 'rlimits', 'wall_time'],
  network: { public: true, deny: false, selective: false },
  subprocess: { contained: false, listed: false, none: false },
  limits: { memory: false, cpus: false, processes: false, swap: false },
  cooperative: ['credentials'],
};

/** What /info and /images/<id>/json say, as far as it matters here. Parsed: an engine may be anything that speaks the API. */
export interface EngineInfo {
  readonly runtimes: readonly string[];
  readonly defaultRuntime: string;
  readonly cgroupVersion: 1 | 2;
  /** Which limits the engine's kernel can set. */
  readonly limits: { readonly memory: boolean; readonly swap: boolean; readonly cpus: boolean; readonly processes: boolean };
  /** The engine's own filter is in place by default. */
  readonly seccomp: boolean;
  readonly rootless: boolean;
  /** Container ids are mapped (userns-remap): --userns host is asked for. */
  readonly remapped: boolean;
  /** Where images and container roots are kept: overlay2, vfs ... */
  readonly storageDriver: string;
  readonly dataRoot: string;
  readonly operatingSystem: string;
  readonly kernel: string;
  readonly name: string;
}

export interface ImageFacts {
  /** sha256:<64 hex>. */
  readonly id: string;
  /** name@sha256:... of registries; none for an image that was built or imported here. */
  readonly digests: readonly string[];
  /** Names of the variables that the image sets. */
  readonly variables: readonly string[];
  /** Paths that the image declares as volumes. */
  readonly volumes: readonly string[];
  readonly os: string;
  readonly architecture: string;
}

function object(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}
const text = (value: unknown): string => (typeof value === 'string' ? value : '');
const texts = (value: unknown): readonly string[] => (Array.isArray(value) ? value.filter((one): one is string => typeof one === 'string') : []);

/** Anything that is missing counts as not there. */
export function parseEngineInfo(value: unknown): EngineInfo {
  const info = object(value);
  const security = texts(info['SecurityOptions']);
  const has = (name: string): boolean => security.some((one) => one === name || one.startsWith(`name=${name}`));
  return {
    runtimes: Object.keys(object(info['Runtimes'])).sort(),
    defaultRuntime: text(info['DefaultRuntime']),
    cgroupVersion: text(info['CgroupVersion']) === '2' ? 2 : 1,
    limits: {
      memory: info['MemoryLimit'] === true,
      swap: info['SwapLimit'] === true,
      cpus: info['CpuCfsQuota'] === true || info['CPUCfsQuota'] === true,
      processes: info['PidsLimit'] === true,
    },
    seccomp: has('seccomp'),
    rootless: has('rootless'),
    remapped: has('userns'),
    storageDriver: text(info['Driver']),
    dataRoot: text(info['DockerRootDir']),
    operatingSystem: text(info['OperatingSystem']),
    kernel: text(info['KernelVersion']),
    name: text(info['Name']),
  };
}

/** Undefined: what came describes no image. */
export function parseImage(value: unknown): ImageFacts | undefined {
  const image = object(value);
  const id = text(image['Id']);
  if (!/^sha256:[0-9a-f]{64}$/.test(id)) return undefined;
  const config = object(image['Config']);
  return {
    id,
    digests: [...texts(image['RepoDigests'])].sort(),
    variables: texts(config['Env']).map((one) => one.split('=')[0] ?? ''),
    volumes: Object.keys(object(config['Volumes'])).sort(),
    os: text(image['Os']),
    architecture: text(image['Architecture']),
  };
}

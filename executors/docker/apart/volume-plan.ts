import { dirname } from 'node:path';
import { ProofrunError } from '../../../src/core/errors.ts';
import type { JsonValue } from '../../../src/core/json.ts';
import type { LaunchRequest } from '../../../src/executor/executor.ts';
import { formatMount } from '../../native/mountinfo.ts';
import { runtimeMounts, runtimeWritable, type MachineFacts } from '../container-mounts.ts';
import type { DockerFacts } from '../facts.host.ts';
import type { MountBody } from '../lower.ts';
import { ENGINE_FILES, SHIM_IN_CONTAINER, SHM_BYTES, type MountPlan, type VolumePlan } from '../mount-plan.ts';
import { engineFileLine, rootLine, volumeLine } from './volume-mounts.ts';

const within = (path: string, root: string): boolean => path === root || path.startsWith(root === '/' ? '/' : `${root}/`);

/** What every engine's machine has; the rest is optional there, and left out of the table that is compared. */
export function commonMachine(cgroupVersion: 1 | 2): MachineFacts {
  return { cgroupVersion, hierarchies: [], rootType: '', masked: [], readOnly: [] };
}

function cannot(what: string, hint: string): ProofrunError {
  return new ProofrunError('ERR_LAUNCH', { message: `${what}: the engine doesn't see this machine's files`, hint });
}

/**
 * The container's mounts on an engine that doesn't see this machine's files: volumes of this run, filled from here. Pure. Throws ERR_LAUNCH
 * for what only a mount from here could give.
 */
export function planVolumes(request: LaunchRequest, facts: DockerFacts, labels: Readonly<Record<string, string>>, nonce: string): MountPlan {
  const { job } = request.plan;
  const { scratch } = request;
  for (const { path } of facts.direct) throw cannot(`${path} can't be shared for writing`, 'stage it instead, or use an engine of this machine');
  const files = facts.granted.filter((one) => !one.directory);
  const apart = files.find(({ path }) => !within(path, job.home));
  if (apart !== undefined) throw cannot(`the file ${apart.path} can't be shown alone`, 'grant the directory that holds it');
  const shutFile = facts.writeDenied.find((one) => !one.directory);
  if (shutFile !== undefined) {
    throw cannot(`the file ${shutFile.path} can't be kept from being written`, 'deny the directory that holds it, or use an engine of this machine');
  }

  const volumes: VolumePlan[] = [];
  const volume = (target: string, readOnly: boolean, holds: VolumePlan['holds']): void => {
    volumes.push({ name: `proofrun-${nonce}-${volumes.length}`, target, readOnly, holds });
  };
  volume(dirname(SHIM_IN_CONTAINER), true, { kind: 'shim' });
  volume(job.home, false, { kind: 'home' });
  for (const root of request.stage) volume(root.root, false, { kind: 'staged', root });
  for (const { path, directory } of facts.granted) if (directory) volume(path, true, { kind: 'granted' });
  for (const { path } of facts.writeDenied) {
    const root = request.stage.find((one) => within(path, one.root));
    if (root !== undefined) volume(path, true, { kind: 'denied', within: root.root });
  }

  const machine = commonMachine(facts.engine.cgroupVersion);
  const table = [
    rootLine(true),
    ...runtimeMounts(machine).slice(1),
    ...ENGINE_FILES.map(engineFileLine),
    ...volumes.map(({ target, name, readOnly }) => volumeLine(target, name, readOnly)),
  ];
  const writable = [...runtimeWritable(machine), ...volumes.filter((one) => !one.readOnly).map(({ target }) => target)];

  const limit = job.permissions.resources.limits.tmpSizeBytes;
  const targets = new Set(volumes.map(({ target }) => target));
  const tmpfs: Record<string, string> = {};
  // A volume that the image declares would be one of the engine's, kept beyond the run.
  for (const path of ['/tmp', '/var/tmp', ...facts.image.volumes]) {
    if (targets.has(path) || path in tmpfs || !path.startsWith('/') || path === '/') continue;
    tmpfs[path] = `rw,exec,nosuid,nodev,mode=1777${limit === undefined ? '' : `,size=${limit}`}`;
    table.push(formatMount(path, 'tmpfs', ['rw', 'nosuid', 'nodev']));
    writable.push(path);
  }

  const below = [...targets, ...Object.keys(tmpfs)].filter((path) => path !== job.home && within(path, job.home));
  const copied = [...facts.homeCopies.map(({ path }) => path), ...files.map(({ path }) => path)];
  const homeDirectories = [...new Set([...below, ...facts.caches.map(({ path }) => path), ...[...below, ...copied].map(dirname)])]
    .filter((path) => path !== job.home && within(path, job.home))
    .sort();
  const bodies = volumes.map(({ name, target, readOnly }): MountBody => ({
    Type: 'volume',
    Source: name,
    Target: target,
    ReadOnly: readOnly,
    VolumeOptions: { NoCopy: true, Labels: labels, DriverConfig: { Name: 'local', Options: {} } },
  }));
  const seen = [...request.stage.map((one) => one.root), ...facts.granted.map((one) => one.path)];
  return {
    bodies,
    tmpfs,
    shmBytes: limit ?? SHM_BYTES,
    layers: [],
    homeDirectories,
    homeFiles: [],
    homeLower: `${scratch}/home/lower`,
    homeUpper: `${scratch}/home/upper`,
    homeWork: `${scratch}/home/work`,
    table: table.sort(),
    writable: [...new Set(writable)].sort(),
    receiving: [],
    uppers: volumes
      .flatMap(({ name, target, holds }) => (holds.kind === 'staged' ? [{ mount_point: target, upper: name }] : []))
      .sort((a, b) => (a.mount_point < b.mount_point ? -1 : 1)),
    engineMounts: volumes
      .map(({ name, target, readOnly }): JsonValue & { readonly target: string } => ({ type: 'volume', target, writable: !readOnly, from: name }))
      .sort((a, b) => (a.target < b.target ? -1 : 1)),
    volumes,
    shows: (path) => seen.some((root) => within(path, root)),
  };
}

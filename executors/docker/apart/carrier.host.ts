import { lstatSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { Readable } from 'node:stream';
import type Docker from 'dockerode';
import type { StagedRoot } from '../../../src/core/change.ts';
import { messageOf, ProofrunError } from '../../../src/core/errors.ts';
import type { LaunchRequest, SessionClosing } from '../../../src/executor/executor.ts';
import { engineClient } from '../engine-client.host.ts';
import type { DockerFacts } from '../facts.host.ts';
import { statusOf } from '../images.host.ts';
import { SHIM_IN_CONTAINER, type MountPlan, type VolumePlan } from '../mount-plan.ts';
import { createWorkspaceTransfer, uploadTree, type Manifest } from '../transfer/index.ts';
import { encodeEntry, END_OF_ARCHIVE } from '../transfer/tar-writer.ts';
import { paddingOf } from '../transfer/tar-header.ts';
import { bytePathOfText } from '../../../src/stage/byte-path.ts';
import { countReturned } from './count-returned.ts';
import { formatSent, SENT_RECORD } from './sent-record.ts';

/** Where the carrier has the volume of this number. */
const placeOf = (index: number): string => `/proofrun-${index}`;

/**
 * A container that is never started, with the volumes of one run: through it they are filled before the job's container starts and read after
 * it has ended, wherever the engine is. It lasts until everything was fetched, so what a job changed outlives whoever started it.
 */
export interface Carrier {
  readonly warnings: readonly string[];
  /** Whether a name lies in a staged root's volume (root given) or in the private home. */
  has(root: StagedRoot | 'home', name: string): Promise<boolean>;
  /** Writes what the job changed into the roots' upper directories. Throws ERR_TRANSFER_*, ERR_STAGE_*, ERR_ENGINE. */
  fetch(): Promise<readonly string[]>;
  /** What the job wrote to its home. null: it could not be counted. */
  countHome(): Promise<SessionClosing['discarded']>;
  /** Removes the carrier and its volumes. Resolves to what is left, in words. */
  remove(): Promise<readonly string[]>;
}

export interface CarrierRequest {
  readonly docker: Docker;
  readonly image: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly request: LaunchRequest;
  readonly facts: DockerFacts;
  readonly mounts: MountPlan;
}

/** Makes the volumes and fills them. Rejects with what the engine or the transfer said; then nothing is left. */
export async function loadCarrier(input: CarrierRequest): Promise<Carrier> {
  const { docker, request, facts, mounts } = input;
  const volumes = mounts.volumes ?? [];
  let container: Docker.Container;
  try {
    container = await docker.createContainer({
      Image: input.image,
      // Never started.
      Entrypoint: [SHIM_IN_CONTAINER],
      Cmd: [],
      NetworkDisabled: true,
      Labels: { ...input.labels },
      HostConfig: {
        NetworkMode: 'none',
        Mounts: volumes.map((volume) => ({
          Type: 'volume',
          Source: volume.name,
          Target: placeIn(volumes, volume),
          ReadOnly: false,
          VolumeOptions: { NoCopy: true, Labels: { ...input.labels }, DriverConfig: { Name: 'local', Options: {} } },
        })),
      },
    });
  } catch (error) {
    await removeVolumes(docker, volumes);
    throw new ProofrunError('ERR_LAUNCH', {
      message: `the engine can't make the container for the transfer: ${messageOf(error)}`,
      hint: 'job doctor',
      cause: error,
    });
  }
  const remove = async (): Promise<readonly string[]> => {
    const left: string[] = [];
    await container.remove({ force: true, v: true }).catch((error: unknown) => {
      if (statusOf(error) !== 404) left.push(`the container ${container.id.slice(0, 12)} could not be removed: ${messageOf(error)}`);
    });
    return [...left, ...(await removeVolumes(docker, volumes))];
  };
  try {
    const client = engineClient(docker);
    const transfer = createWorkspaceTransfer({ shim: facts.shim, markers: facts.asRoot ? 'trusted' : 'user' });
    const hidden = [...request.hidden, request.stateDirectory];
    const roots: { readonly root: StagedRoot; readonly path: string }[] = [];
    const warnings: string[] = [];
    let home: Manifest | undefined;
    for (const [index, volume] of volumes.entries()) {
      const path = placeOf(index);
      switch (volume.holds.kind) {
        case 'shim':
          await client.putArchive(container.id, path, Readable.from(packShim(facts.shim), { objectMode: false }));
          break;
        case 'home': {
          const up = uploadTree({ root: mounts.homeLower, hidden: [], under: path.slice(1), owner: facts.job });
          await client.putTree(container.id, path, up.stream);
          home = up.manifest();
          break;
        }
        case 'staged':
          warnings.push(...(await transfer.upload({ client, container: container.id, path }, volume.holds.root, hidden)).warnings);
          roots.push({ root: volume.holds.root, path });
          break;
        case 'granted': {
          const up = uploadTree({ root: volume.target, hidden, under: path.slice(1) });
          await client.putTree(container.id, path, up.stream);
          break;
        }
        case 'denied':
          // Filled with the root that it lies in.
          break;
      }
    }
    writeFileSync(join(request.scratch, SENT_RECORD), formatSent({ container: container.id, markers: facts.asRoot ? 'trusted' : 'user', roots }), {
      mode: 0o600,
    });
    const homeAt = placeOf(volumes.findIndex(({ holds }) => holds.kind === 'home'));
    return {
      warnings,
      has: async (root, name) => {
        const at = root === 'home' ? homeAt : (roots.find((one) => one.root === root)?.path ?? '/nowhere');
        try {
          await container.infoArchive({ path: `${at}/${name}` });
          return true;
        } catch (error) {
          // What can't be asked is not known to be absent.
          return statusOf(error) !== 404;
        }
      },
      fetch: () => fetchRoots(docker, facts.shim, { container: container.id, markers: facts.asRoot ? 'trusted' : 'user', roots }),
      countHome: async () => {
        try {
          return await countReturned(await client.getArchive(container.id, homeAt), home);
        } catch {
          return null;
        }
      },
      remove,
    };
  } catch (error) {
    await remove();
    throw error;
  }
}

/** A volume that is part of another lies in it here too, so that one tree fills both and one tree comes back. */
function placeIn(volumes: readonly VolumePlan[], volume: VolumePlan): string {
  const index = volumes.indexOf(volume);
  if (volume.holds.kind !== 'denied') return placeOf(index);
  const { within } = volume.holds;
  const outer = volumes.findIndex(({ holds, target }) => holds.kind === 'staged' && target === within);
  return `${placeOf(outer)}${volume.target.slice(within.length)}`;
}

/** What was sent, and where it can be fetched from. */
export interface Sent {
  readonly container: string;
  readonly markers: 'user' | 'trusted';
  readonly roots: readonly { readonly root: StagedRoot; readonly path: string }[];
}

/** Fetches each root whose upper directory was not filled yet. Resolves to warnings. */
export async function fetchRoots(docker: Docker, shim: string, { container, markers, roots }: Sent): Promise<readonly string[]> {
  const client = engineClient(docker);
  const transfer = createWorkspaceTransfer({ shim, markers });
  const warnings: string[] = [];
  for (const { root, path } of roots) {
    // A root that came back whole has no record of what was sent any more.
    if (!transfer.owed(root)) continue;
    warnings.push(...(await transfer.download({ client, container, path }, root)).warnings);
  }
  return warnings;
}

async function removeVolumes(docker: Docker, volumes: readonly VolumePlan[]): Promise<readonly string[]> {
  const left: string[] = [];
  for (const { name } of volumes) {
    try {
      await docker.getVolume(name).remove({ force: true });
    } catch (error) {
      if (statusOf(error) !== 404) left.push(`the volume ${name} could not be removed: ${messageOf(error)}`);
    }
  }
  return left;
}

/** The shim alone, as root's, that everybody may execute and nobody write. */
function* packShim(path: string): Generator<Buffer, void, undefined> {
  const bytes = readFileSync(path);
  const { mtimeMs } = lstatSync(path);
  yield encodeEntry({
    type: 'file',
    name: bytePathOfText(basename(SHIM_IN_CONTAINER)),
    size: bytes.byteLength,
    mode: 0o555,
    uid: 0,
    gid: 0,
    mtime: { seconds: Math.floor(mtimeMs / 1000), nanoseconds: 0 },
    link: bytePathOfText(''),
    device: { major: 0, minor: 0 },
  });
  yield bytes;
  if (paddingOf(bytes.byteLength) > 0) yield Buffer.alloc(paddingOf(bytes.byteLength));
  yield END_OF_ARCHIVE;
}

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { messageOf } from '../../src/core/errors.ts';
import { fetchRoots } from './apart/carrier.host.ts';
import { parseSent, SENT_RECORD } from './apart/sent-record.ts';
import type { Engine } from './connect.host.ts';
import { bootId, pidNamespace, stateToken } from './facts.host.ts';
import { statusOf } from './images.host.ts';
import { LABEL, parseOwner, runMark, stateMark } from './labels.ts';

/** A label that an owner who is gone left: another boot, no such process, or a process that started at another time. */
function isOrphan(label: string | undefined): boolean {
  const owner = parseOwner(label);
  if (owner === undefined) return false;
  if (owner.boot !== bootId()) return true;
  // In another container: its number says nothing here. Its own run's lease does, and whoever takes that run over removes what is left.
  if (owner.namespace !== undefined && owner.namespace !== pidNamespace()) return false;
  try {
    const stat = readFileSync(`/proc/${owner.pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return fields[19] !== owner.started || fields[0] === 'Z' || fields[0] === 'X';
  } catch {
    return true;
  }
}

async function removeMatching(engine: Engine, filters: readonly string[], doomed: (label: string | undefined) => boolean): Promise<readonly string[]> {
  const left: string[] = [];
  const containers = await engine.docker.listContainers({ all: true, filters: { label: [...filters] } });
  for (const { Id, Labels } of containers) {
    if (!doomed(Labels[LABEL.owner])) continue;
    try {
      await engine.docker.getContainer(Id).remove({ force: true, v: true });
    } catch (error) {
      // 404: it went by itself. 409: its removal is under way.
      if (statusOf(error) !== 404 && statusOf(error) !== 409) left.push(`the container ${Id.slice(0, 12)} could not be removed: ${messageOf(error)}`);
    }
  }
  // The engine says null for none.
  const found: { readonly Volumes: readonly { readonly Name: string; readonly Labels: Readonly<Record<string, string>> | null }[] | null } =
    await engine.docker.listVolumes({ filters: { label: [...filters] } });
  for (const { Name, Labels } of found.Volumes ?? []) {
    if (!doomed(Labels?.[LABEL.owner])) continue;
    try {
      await engine.docker.getVolume(Name).remove({ force: true });
    } catch (error) {
      if (statusOf(error) !== 404) left.push(`the volume ${Name.slice(0, 12)} could not be removed: ${messageOf(error)}`);
    }
  }
  return left;
}

/** Everything that one run made on the engine; what its job had changed there is fetched first. Resolves to what is left, in words. */
export async function reapRun(engine: Engine, scratch: string, shim: string): Promise<readonly string[]> {
  const warnings = await fetchLeft(engine, scratch, shim);
  return [...warnings, ...(await removeMatching(engine, [`${LABEL.run}=${runMark(scratch)}`], (owner) => parseOwner(owner) !== undefined))];
}

async function fetchLeft(engine: Engine, scratch: string, shim: string): Promise<readonly string[]> {
  let text: string;
  try {
    text = readFileSync(join(scratch, SENT_RECORD), 'utf8');
  } catch {
    return []; // nothing was sent
  }
  const sent = parseSent(text);
  if (sent === undefined) return ['what was sent to the engine is not recorded in a form that can be read: what the job changed there is lost'];
  // The job's own container first: what it still writes would come half.
  const containers = await engine.docker.listContainers({ filters: { label: [`${LABEL.run}=${runMark(scratch)}`] } });
  for (const { Id } of containers) {
    await engine.docker
      .getContainer(Id)
      .remove({ force: true, v: true })
      .catch(() => undefined);
  }
  try {
    return await fetchRoots(engine.docker, shim, sent);
  } catch (error) {
    return [`what the job changed did not come back from the engine: ${messageOf(error)}`];
  }
}

/** What runs of this state directory left whose owner is gone. */
export async function sweepOrphans(engine: Engine, stateDirectory: string): Promise<readonly string[]> {
  return await removeMatching(engine, [`${LABEL.state}=${stateMark(stateToken(stateDirectory))}`], isOrphan);
}

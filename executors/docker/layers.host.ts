import { spawn } from 'node:child_process';
import { chmodSync, chownSync, copyFileSync, lstatSync, mkdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Duplex } from 'node:stream';
import { errnoOf, ProofrunError } from '../../src/core/errors.ts';
import type { LaunchRequest } from '../../src/executor/executor.ts';
import { maskOperations } from '../native/root-plan.ts';
import { encodeOperation, errnoName, FrameSplitter, parseFrame } from '../shim/protocol.ts';
import type { DockerFacts } from './facts.host.ts';
import type { MountPlan } from './mount-plan.ts';

/** Makes what the container mounts and what must not be seen: layers of the private home, masks, an empty directory, a file outside. */
export async function prepareLayers(request: LaunchRequest, facts: DockerFacts, plan: MountPlan, nonce: string): Promise<void> {
  const { scratch } = request;
  const { uid, gid } = facts.job;
  const own = (path: string): void => {
    if (facts.asRoot) chownSync(path, uid, gid);
  };
  for (const path of [join(scratch, 'home'), plan.homeLower, plan.homeUpper, plan.homeWork, join(scratch, 'empty')]) {
    mkdirSync(path, { mode: 0o700, recursive: true });
  }
  for (const path of [plan.homeLower, plan.homeUpper]) {
    chmodSync(path, 0o700);
    own(path);
  }
  const home = request.plan.job.home.length;
  // Made here, or the engine would make them in our layer, as root.
  for (const path of plan.homeDirectories) {
    const inLayer = `${plan.homeLower}${path.slice(home)}`;
    mkdirSync(inLayer, { recursive: true, mode: 0o755 });
    own(inLayer);
  }
  for (const path of plan.homeFiles) writeFileSync(`${plan.homeLower}${path.slice(home)}`, '');
  for (const { path, text } of facts.homeTexts) writeFileSync(`${plan.homeLower}${path.slice(home)}`, text, { mode: 0o644 });
  for (const { path, source, mode } of facts.homeCopies) {
    const inLayer = `${plan.homeLower}${path.slice(home)}`;
    copyFileSync(source, inLayer);
    chmodSync(inLayer, mode);
    own(inLayer);
  }
  for (const { source } of facts.caches) {
    mkdirSync(source, { recursive: true, mode: 0o700 });
    own(source);
  }
  writeFileSync(join(scratch, `outside-${nonce}`), 'not for the job\n', { mode: 0o644 });
  await makeMasks(plan, facts);
}

/** Whiteouts are device nodes, which only the shim can make. */
async function makeMasks(plan: MountPlan, facts: DockerFacts): Promise<void> {
  const operations = plan.layers.flatMap(({ directory, root }) => {
    const mask = root === undefined ? undefined : facts.masks.get(root);
    return mask === undefined || root === undefined ? [] : maskOperations(directory, root, mask, facts.job);
  });
  if (operations.length === 0) return;
  const child = spawn(facts.shim, ['outer'], { env: {}, cwd: '/', stdio: ['ignore', 'ignore', 'ignore', 'pipe'] });
  const control = child.stdio[3];
  if (!(control instanceof Duplex)) throw new ProofrunError('ERR_LAUNCH', { message: 'the shim was started without a control channel' });
  const splitter = new FrameSplitter();
  let failure: ProofrunError | undefined;
  control.on('data', (chunk: Buffer) => {
    for (const frame of splitter.push(chunk).map(parseFrame)) {
      if (frame.say !== 'error') continue;
      failure = new ProofrunError('ERR_LAUNCH', { message: `hidden names could not be masked: ${frame.call} ${frame.subject}: ${errnoName(frame.errno)}` });
    }
  });
  control.on('error', () => undefined);
  control.end(Buffer.concat(operations.map(encodeOperation)));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  });
  if (failure !== undefined) throw failure;
  if (code !== 0) throw new ProofrunError('ERR_LAUNCH', { message: `hidden names could not be masked: the shim ended with ${String(code)}` });
}

/** The kernel's own directory in an overlay's work directory, made by the engine, so root's. True when nothing of it is left. */
export function removeKernelWork(work: string): boolean {
  for (const name of ['work', 'index']) {
    try {
      rmdirSync(join(work, name));
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') return false;
    }
  }
  return lstatSync(join(work, 'work'), { throwIfNoEntry: false }) === undefined;
}

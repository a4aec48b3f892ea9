import { mkdirSync, rmdirSync, watch, writeFile, writeFileSync, type FSWatcher } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { ProofrunError, errnoOf, messageOf } from '../../src/core/errors.ts';
import { parseFlatKeyed, parseMembers } from './cgroup-files.ts';
import { readOr, subdirectories } from './cgroup-read.host.ts';
import { roundLimits, type CgroupLimits, type CgroupPlace, type CgroupSupport } from './cgroup.ts';
import { readFacts, readPeaks, type CgroupDirectory, type CgroupFact, type CgroupPeaks } from './cgroup-facts.host.ts';

export { detectCgroups, type DetectOptions } from './cgroup-detect.host.ts';

/** Not performance.now(), whose module takes milliseconds to load. */
const monotonicMs = (): number => process.uptime() * 1000;

/** The parent of the groups of all runs below one place. */
const PARENT = 'proofrun';
/** Run ids; anything that is a plain name. */
const ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
/** How long a killed group may take to become empty, and a directory to be free, before it is reported as left. */
const PATIENCE_MS = 5000;

/** The control group of one run, in every hierarchy that it uses. The caller removes it. */
export interface Cgroup {
  readonly id: string;
  readonly directories: readonly CgroupDirectory[];
  /** Each of these takes the pid of the process to be confined, before it starts anything: see joinCgroup. */
  readonly procsFiles: readonly string[];
  /**
   * The limits as the kernel shows them now, each with its file and raw text. With a pid they are read in the groups that
   * /proc/<pid>/cgroup names, so a process that isn't in this group is noticed. Read before kill, which may close pids.max.
   * Throws ERR_LAUNCH when a file is gone.
   */
  readBack(pid?: number): readonly CgroupFact[];
  /** Processes in it, by this process's pid namespace. */
  members(): readonly number[];
  /** What was used at most, and how often limits were hit. null: this kernel doesn't say. */
  peaks(): CgroupPeaks;
  /** Kills every process in it and waits until it is empty. The pids that are still there after 5 s, normally none. */
  kill(): Promise<readonly number[]>;
  /** Kills what is in it and removes it, and the parent when it was the last one. The directories left, normally none. Idempotent. */
  remove(): Promise<readonly string[]>;
}

function failure(what: string, error: unknown): ProofrunError {
  return new ProofrunError('ERR_LAUNCH', { message: `control group: ${what}: ${messageOf(error)}`, cause: error });
}

/**
 * Puts a process into a group by its cgroup.procs files, before it starts anything. Off the main thread: a migration can wait for a grace
 * period of the kernel's read-copy-update, some 10 ms. A process that is gone is no error: whoever waits for it knows. ERR_LAUNCH.
 */
export async function joinCgroup(procsFiles: readonly string[], pid: number): Promise<void> {
  await Promise.all(
    procsFiles.map(
      (file) =>
        new Promise<void>((resolve, reject) => {
          writeFile(file, String(pid), { flag: 'r+' }, (error) => {
            if (error === null || error.code === 'ESRCH') resolve();
            else reject(failure(`write ${pid} to ${file}`, error));
          });
        }),
    ),
  );
}

/** cgroup files exist or the controller is missing: never make one. */
function writeControl(directory: string, file: string, text: string): void {
  const path = join(directory, file);
  try {
    writeFileSync(path, text, { flag: 'r+' });
  } catch (error) {
    throw failure(`write ${text} to ${path}`, error);
  }
}

function makeDirectory(place: CgroupPlace, id: string): string {
  const parent = join(place.directory, PARENT);
  const directory = join(parent, id);
  for (const name of place.enable) writeControl(place.directory, 'cgroup.subtree_control', `+${name}`);
  // Another run may remove the parent when it was the last one in it, between our two calls.
  for (let attempt = 0; ; attempt++) {
    try {
      mkdirSync(parent, { recursive: true, mode: 0o755 });
      if (place.version === 2) for (const name of place.controllers) writeControl(parent, 'cgroup.subtree_control', `+${name}`);
      mkdirSync(directory, { mode: 0o755 });
      return directory;
    } catch (error) {
      const raced = errnoOf(error) === 'ENOENT' || errnoOf(error instanceof Error ? error.cause : undefined) === 'ENOENT';
      if (!raced || attempt === 9) throw error instanceof ProofrunError ? error : failure(`mkdir ${directory}`, error);
    }
  }
}

function setLimits(directories: readonly CgroupDirectory[], limits: CgroupLimits, swap: boolean): void {
  const rounded = roundLimits(limits, swap);
  for (const { version, directory, controllers } of directories) {
    if (controllers.includes('memory') && rounded.memoryBytes !== undefined) {
      writeControl(directory, version === 1 ? 'memory.limit_in_bytes' : 'memory.max', String(rounded.memoryBytes));
    }
    if (controllers.includes('memory') && rounded.swapBytes !== undefined) {
      // v1 limits the sum, and only after the memory limit, which may not exceed it.
      if (version === 1) writeControl(directory, 'memory.memsw.limit_in_bytes', String((rounded.memoryBytes ?? 0) + rounded.swapBytes));
      else writeControl(directory, 'memory.swap.max', String(rounded.swapBytes));
    }
    if (controllers.includes('pids') && rounded.processes !== undefined) writeControl(directory, 'pids.max', String(rounded.processes));
    if (controllers.includes('cpu') && rounded.cpuQuotaUs !== undefined) {
      if (version === 1) {
        writeControl(directory, 'cpu.cfs_period_us', '100000');
        writeControl(directory, 'cpu.cfs_quota_us', String(rounded.cpuQuotaUs));
      } else writeControl(directory, 'cpu.max', `${rounded.cpuQuotaUs} 100000`);
    }
  }
}

/**
 * Makes the group of a run and sets its limits. Limits that `unsupportedLimits` names aren't set: ask it first.
 * Throws ERR_LAUNCH, with the failing path, and leaves nothing behind; ERR_USAGE for an id that is no plain name.
 */
export async function createCgroup(support: CgroupSupport, id: string, limits: CgroupLimits): Promise<Cgroup> {
  if (!ID.test(id)) throw new ProofrunError('ERR_USAGE', { message: `control group: ${JSON.stringify(id)} is no plain name` });
  const directories: CgroupDirectory[] = [];
  try {
    for (const place of support.places) directories.push({ version: place.version, controllers: place.controllers, directory: makeDirectory(place, id) });
    setLimits(directories, limits, support.swap);
  } catch (error) {
    await new RunCgroup(id, directories).remove();
    throw error;
  }
  return new RunCgroup(id, directories);
}

/** A group that an earlier process recorded. Its directories may be gone by now. Throws ERR_USAGE for paths that aren't groups of runs. */
export function openCgroup(id: string, directories: readonly CgroupDirectory[]): Cgroup {
  const foreign = directories.find(({ directory }) => !directory.endsWith(`/${PARENT}/${id}`));
  if (!ID.test(id) || foreign !== undefined) {
    throw new ProofrunError('ERR_USAGE', { message: `control group: ${foreign?.directory ?? id} is not the group of a run` });
  }
  return new RunCgroup(id, directories);
}

/** Groups of runs that are in these places now, by id. */
export function listCgroups(support: CgroupSupport): readonly Cgroup[] {
  const found = new Map<string, CgroupDirectory[]>();
  for (const { directory, version, controllers } of support.places) {
    for (const id of subdirectories(join(directory, PARENT))) {
      if (!ID.test(id)) continue;
      const list = found.get(id) ?? [];
      list.push({ version, controllers, directory: join(directory, PARENT, id) });
      found.set(id, list);
    }
  }
  return [...found].map(([id, directories]) => new RunCgroup(id, directories));
}

/** Kills and removes the groups of runs that are dead. The ids removed, and the directories that could not be. */
export async function reapCgroups(
  support: CgroupSupport,
  isAlive: (id: string) => boolean,
): Promise<{ readonly removed: readonly string[]; readonly left: readonly string[] }> {
  const removed: string[] = [];
  const left: string[] = [];
  for (const group of listCgroups(support)) {
    if (isAlive(group.id)) continue;
    const rest = await group.remove();
    if (rest.length === 0) removed.push(group.id);
    left.push(...rest);
  }
  return { removed, left };
}

class RunCgroup implements Cgroup {
  readonly id: string;
  readonly directories: readonly CgroupDirectory[];

  constructor(id: string, directories: readonly CgroupDirectory[]) {
    this.id = id;
    this.directories = directories;
  }

  get procsFiles(): readonly string[] {
    return this.directories.map(({ directory }) => join(directory, 'cgroup.procs'));
  }

  readBack(pid?: number): readonly CgroupFact[] {
    return readFacts(this.directories, pid);
  }

  members(): readonly number[] {
    return [...new Set(this.#trees().flatMap((directory) => parseMembers(readOr(join(directory, 'cgroup.procs'), ''))))];
  }

  /** Every directory of the group, deepest first: a job that can write to its group may have made more below it. */
  #trees(): readonly string[] {
    return this.directories.flatMap(({ directory }) => descend(directory));
  }

  peaks(): CgroupPeaks {
    return readPeaks(this.directories);
  }

  /** True while a process is in it; zombies don't count. */
  #populated(): boolean {
    return this.directories.some(({ version, directory }) => {
      const events = version === 2 ? readOr(join(directory, 'cgroup.events'), '') : '';
      return events === '' ? descend(directory).some((path) => readOr(join(path, 'cgroup.procs'), '') !== '') : parseFlatKeyed(events).get('populated') === 1;
    });
  }

  /** Whether the kernel took over the killing (cgroup.kill); otherwise a signal for each process seen, and more rounds may be needed. */
  #killOnce(): boolean {
    const killed = this.directories.filter(({ version, directory }) => version === 2 && tryWrite(join(directory, 'cgroup.kill'), '1'));
    if (killed.length === this.directories.length) return true;
    // Without cgroup.kill (Linux 5.14) a fork could outrun the signals: no more of them.
    if (killed.length === 0) {
      for (const { directory, controllers } of this.directories) if (controllers.includes('pids')) tryWrite(join(directory, 'pids.max'), '0');
    }
    for (const pid of this.members()) {
      if (pid === 0 || pid === process.pid) continue;
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // gone meanwhile
      }
    }
    return killed.length > 0;
  }

  async kill(): Promise<readonly number[]> {
    const deadline = monotonicMs() + PATIENCE_MS;
    for (let round = 0; this.#populated(); round++) {
      if (monotonicMs() > deadline) return this.members();
      if (this.#killOnce()) await this.#changed(deadline);
      else await delay(Math.min(2 ** round, 64)); // v1 announces nothing
    }
    return [];
  }

  /** Until the kernel announces that a unified directory was emptied, or one look later where processes are in v1 groups only. */
  async #changed(deadline: number): Promise<void> {
    const events = this.directories.filter(
      ({ version, directory }) => version === 2 && parseFlatKeyed(readOr(join(directory, 'cgroup.events'), '')).get('populated') === 1,
    );
    const [populated] = events;
    if (populated === undefined) {
      await delay(1);
      return;
    }
    await new Promise<void>((resolve) => {
      const watcher = watchOr(join(populated.directory, 'cgroup.events'), resolve);
      if (watcher === undefined) return;
      const timer = setTimeout(settle, Math.max(1, deadline - monotonicMs()));
      function settle(): void {
        clearTimeout(timer);
        watcher?.close();
        resolve();
      }
      watcher.on('change', settle);
      watcher.on('error', settle);
      // Emptied between the last look and the watch: no event would come.
      if (!this.#populated()) settle();
    });
  }

  async remove(): Promise<readonly string[]> {
    await this.kill();
    const deadline = monotonicMs() + PATIENCE_MS;
    const left: string[] = [];
    for (const directory of this.#trees()) {
      for (let round = 0; ; round++) {
        const errno = removeDirectory(directory);
        if (errno === undefined) break;
        if (errno !== 'EBUSY' || monotonicMs() > deadline) {
          left.push(directory);
          break;
        }
        if (this.#populated()) await this.kill();
        else await delay(Math.min(2 ** round, 64)); // the last exit is still being accounted
      }
    }
    // The parent goes with its last group; EBUSY and ENOTEMPTY mean that others are in it.
    for (const { directory } of this.directories) removeDirectory(dirname(directory));
    return left;
  }
}

function tryWrite(path: string, text: string): boolean {
  try {
    writeFileSync(path, text, { flag: 'r+' });
    return true;
  } catch {
    return false;
  }
}

function watchOr(path: string, gone: () => void): FSWatcher | undefined {
  try {
    return watch(path);
  } catch {
    gone();
    return undefined;
  }
}

function descend(directory: string): readonly string[] {
  return [...subdirectories(directory).flatMap((name) => descend(join(directory, name))), directory];
}

/** rmdir(2): undefined when the directory is gone, else the errno name. */
function removeDirectory(directory: string): string | undefined {
  try {
    rmdirSync(directory);
    return undefined;
  } catch (error) {
    const errno = errnoOf(error);
    return errno === 'ENOENT' ? undefined : (errno ?? messageOf(error));
  }
}

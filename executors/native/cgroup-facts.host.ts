import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ProofrunError, messageOf } from '../../src/core/errors.ts';
import type { JsonValue } from '../../src/core/json.ts';
import { parseCgroupMounts, parseCpuMax, parseFlatKeyed, parseLimit, parseMembership } from './cgroup-files.ts';
import { reach, type LimitFactName } from './cgroup.ts';

/** One directory of a group: where it is, and what it controls. Data, so that a run can be recorded with it. */
export interface CgroupDirectory {
  readonly version: 1 | 2;
  readonly directory: string;
  readonly controllers: readonly string[];
}

/** A limit, or the membership of a process, as the kernel shows it. */
export interface CgroupFact {
  /** `group`: the directories that a process is in. */
  readonly name: LimitFactName | 'group';
  /** The file, or two files with a comma between, that it was read from. */
  readonly file: string;
  /** Their texts, one after the other, as they were. */
  readonly text: string;
  /** Bytes, tasks or CPUs; null: no limit; for `group` the list of directories. Undefined parses are the text itself. */
  readonly value: JsonValue;
}

/** What was used at most and which limits were hit. null: this kernel, or this layout, doesn't say. */
export interface CgroupPeaks {
  readonly memoryBytes: number | null;
  /** Tasks, so threads too. */
  readonly processes: number | null;
  readonly cpuTimeMs: number | null;
  /** Processes that the kernel killed because the group was out of memory. */
  readonly oomKills: number | null;
  /** Forks and clones that failed at the limit. */
  readonly processLimitHits: number | null;
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new ProofrunError('ERR_LAUNCH', { message: `control group: read ${file}: ${messageOf(error)}`, cause: error });
  }
}

/** How a file of a group is read: here, or from what a shim said that it read elsewhere. Undefined: it isn't there. */
export type GroupReader = (file: string) => string | undefined;

function readIfThere(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}

function required(look: GroupReader, file: string): string {
  if (look === readIfThere) return read(file);
  const text = look(file);
  if (text === undefined) throw new ProofrunError('ERR_LAUNCH', { message: `control group: there is no ${file}` });
  return text;
}

function limitFact(look: GroupReader, name: LimitFactName, file: string): CgroupFact {
  const text = required(look, file);
  const value = parseLimit(text);
  return { name, file, text, value: value === undefined ? text : value };
}

/** v1 shows memory plus swap; the fact is the difference. Undefined where swap isn't counted. */
function legacySwapFact(look: GroupReader, directory: string): CgroupFact | undefined {
  const files = [join(directory, 'memory.limit_in_bytes'), join(directory, 'memory.memsw.limit_in_bytes')] as const;
  const sumText = look(files[1]);
  if (sumText === undefined) return undefined;
  const memoryText = required(look, files[0]);
  const memory = parseLimit(memoryText);
  const sum = parseLimit(sumText);
  const value = typeof sum === 'number' && typeof memory === 'number' ? sum - memory : sum === undefined || memory === undefined ? memoryText + sumText : null;
  return { name: 'swap_limit', file: files.join(', '), text: memoryText + sumText, value };
}

function cpuFact(look: GroupReader, version: 1 | 2, directory: string): CgroupFact {
  if (version === 2) {
    const file = join(directory, 'cpu.max');
    const text = required(look, file);
    const parsed = parseCpuMax(text);
    return { name: 'cpu_limit', file, text, value: parsed === undefined ? text : parsed.quotaUs === null ? null : parsed.quotaUs / parsed.periodUs };
  }
  const files = [join(directory, 'cpu.cfs_quota_us'), join(directory, 'cpu.cfs_period_us')] as const;
  const [quotaText, periodText] = [required(look, files[0]), required(look, files[1])];
  const [quota, period] = [parseLimit(quotaText), parseLimit(periodText)];
  const value = typeof quota === 'number' && typeof period === 'number' && period > 0 ? quota / period : quota === null ? null : quotaText + periodText;
  return { name: 'cpu_limit', file: files.join(', '), text: quotaText + periodText, value };
}

/** The same hierarchies, but the directories in which a process really is. */
function directoriesOf(directories: readonly CgroupDirectory[], membershipText: string): readonly CgroupDirectory[] {
  const membership = parseMembership(membershipText);
  const mounts = parseCgroupMounts(read('/proc/self/mountinfo'));
  return directories.map((directory) => {
    const own = membership.find(({ controllers }) =>
      directory.version === 2 ? controllers.length === 0 : directory.controllers.every((name) => controllers.includes(name)),
    );
    const reached = own === undefined ? undefined : reach(mounts, own);
    if (reached === undefined) {
      throw new ProofrunError('ERR_LAUNCH', {
        message: `control group: the process is in no visible group with ${directory.controllers.join(', ') || 'the unified hierarchy'}`,
      });
    }
    return { ...directory, directory: reached.directory };
  });
}

/** The limits in these directories or, with a pid, in those that /proc/<pid>/cgroup names. Throws ERR_LAUNCH when a file can't be read. */
export function readFacts(directories: readonly CgroupDirectory[], pid?: number, look: GroupReader = readIfThere): readonly CgroupFact[] {
  const facts: CgroupFact[] = [];
  let places = directories;
  if (pid !== undefined) {
    const file = `/proc/${pid}/cgroup`;
    const text = read(file);
    places = directoriesOf(directories, text);
    facts.push({ name: 'group', file, text, value: places.map(({ directory }) => directory) });
  }
  for (const { version, directory, controllers } of places) {
    if (controllers.includes('memory')) {
      facts.push(limitFact(look, 'memory_limit', join(directory, version === 1 ? 'memory.limit_in_bytes' : 'memory.max')));
      const swap =
        version === 1
          ? legacySwapFact(look, directory)
          : look(join(directory, 'memory.swap.max')) === undefined
            ? undefined
            : limitFact(look, 'swap_limit', join(directory, 'memory.swap.max'));
      if (swap !== undefined) facts.push(swap);
    }
    if (controllers.includes('pids')) facts.push(limitFact(look, 'process_limit', join(directory, 'pids.max')));
    if (controllers.includes('cpu')) facts.push(cpuFact(look, version, directory));
  }
  return facts;
}

/** Never throws: what can't be read is null. */
export function readPeaks(directories: readonly CgroupDirectory[], look: GroupReader = readIfThere): CgroupPeaks {
  const first = <T>(pick: (directory: CgroupDirectory) => T | undefined): T | null => {
    for (const directory of directories) {
      const value = pick(directory);
      if (value !== undefined) return value;
    }
    return null;
  };
  const number = (directory: string, file: string): number | undefined => parseLimit(look(join(directory, file)) ?? '') ?? undefined;
  const keyed = (directory: string, file: string, key: string): number | undefined => parseFlatKeyed(look(join(directory, file)) ?? '').get(key);
  const of = (controller: string, pick: (version: 1 | 2, directory: string) => number | undefined) =>
    first(({ version, directory, controllers }) => (controllers.includes(controller) ? pick(version, directory) : undefined));
  return {
    memoryBytes: of('memory', (version, directory) => number(directory, version === 1 ? 'memory.max_usage_in_bytes' : 'memory.peak')),
    processes: of('pids', (_, directory) => number(directory, 'pids.peak')),
    cpuTimeMs: first(({ version, directory, controllers }) => {
      // cpu.stat of the unified hierarchy counts time whatever controllers it has; the one of v1 only counts throttling.
      if (version === 2) return scaled(keyed(directory, 'cpu.stat', 'usage_usec'), 1000);
      return controllers.includes('cpuacct') ? scaled(number(directory, 'cpuacct.usage'), 1_000_000) : undefined;
    }),
    oomKills: of('memory', (version, directory) => keyed(directory, version === 1 ? 'memory.oom_control' : 'memory.events', 'oom_kill')),
    processLimitHits: of('pids', (_, directory) => keyed(directory, 'pids.events', 'max')),
  };
}

function scaled(value: number | undefined, unitsPerMs: number): number | undefined {
  return value === undefined ? undefined : Math.round(value / unitsPerMs);
}

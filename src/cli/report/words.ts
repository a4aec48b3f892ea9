import type { BundleLineage } from '../../core/bundle.ts';
import type { Dimension, Mode, ObservedLevel, PlanLevel } from '../../core/dimension.ts';
import type { Ending } from '../../core/run.ts';
import { safeLine, safeText } from '../../core/text-safety.ts';

/** Order of the control table: containment first, the gateways last. */
export const REPORT_ORDER: readonly Dimension[] = ['file_read', 'file_write', 'network', 'subprocess', 'credentials', 'resources', 'models', 'tools'];

const NAMES: Readonly<Record<Dimension, readonly [title: string, inSentence: string]>> = {
  file_read: ['File reads', 'file reads'],
  file_write: ['File writes', 'file writes'],
  network: ['Network', 'network'],
  subprocess: ['Subprocesses', 'subprocesses'],
  credentials: ['Credentials', 'credentials'],
  models: ['Models', 'models'],
  tools: ['Tools', 'tools'],
  resources: ['Resources', 'resources'],
};

export function dimensionTitle(dimension: Dimension): string {
  return NAMES[dimension][0];
}

/** `file reads, network`, in the order of the table. */
export function dimensionList(dimensions: readonly Dimension[]): string {
  return REPORT_ORDER.filter((dimension) => dimensions.includes(dimension))
    .map((dimension) => NAMES[dimension][1])
    .join(', ');
}

/** `run-` and the first eight characters of the ULID; `list.ts` takes more where that isn't unique. */
export function shortId(id: string): string {
  return id.slice(0, 12);
}

/** `--safe on native`, `default mode on host`, `--strict`. */
export function modeOn(mode: Mode, executor: string | null): string {
  const words = mode === 'default' ? 'default mode' : `--${mode}`;
  return executor === null ? words : `${words} on ${executor}`;
}

/** 14.2 s, 3 m 20 s, 2 h 5 m; milliseconds below one second. */
export function durationWords(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 59.95) return `${(Math.round(seconds * 10) / 10).toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return twoUnits(Math.floor(whole / 60), 'm', whole % 60, 's');
  const minutes = Math.round(seconds / 60);
  return minutes < 1440
    ? twoUnits(Math.floor(minutes / 60), 'h', minutes % 60, 'm')
    : twoUnits(Math.floor(minutes / 1440), 'd', Math.floor((minutes % 1440) / 60), 'h');
}

function twoUnits(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large} ${largeUnit}` : `${large} ${largeUnit} ${small} ${smallUnit}`;
}

/** 18.4 MiB; whole bytes below one KiB. */
export function sizeWords(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  let value = bytes / 1024;
  let unit = 0;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  while (value >= 1023.95 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(1)} ${units[unit] ?? ''}`;
}

/** 1,204. */
export function countWords(count: number): string {
  return count.toString().replace(/\B(?=(\d{3})+$)/g, ',');
}

/** `1 file`, `7 files`. */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${countWords(count)} ${count === 1 ? one : many}`;
}

/** `-` for what nobody observed; 0 is an observation. */
export function observed(count: number | null): string {
  return count === null ? '-' : countWords(count);
}

/** 2026-12-01 09:41, in the time zone of the process. */
export function dateWords(ms: number): string {
  const date = new Date(ms);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

/** 09:41:12. */
export function clockWords(ms: number): string {
  const date = new Date(ms);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

function two(value: number): string {
  return value.toString().padStart(2, '0');
}

/** Words that a shell would read back as the same arguments, made safe for a screen. At most `max` characters, the end cut first. */
export function commandWords(argv: readonly string[], max = 400): string {
  return safeLine(argv.map(shellWord).join(' '), Math.max(64, max));
}

/** One argument as a shell reads it; characters that a screen would act on as `$'...'` escapes, which bash and zsh know. */
export function shellWord(text: string): string {
  if (safeText(text) !== text) return `$'${safeText(text.replaceAll('\\', '\\\\').replaceAll("'", "\\'"))}'`;
  return /^[A-Za-z0-9_@%+=:,./~^-]+$/.test(text) && !text.startsWith('~') ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** How a command ended, for the head of a review: `exit 1`, `SIGTERM`, `timeout`. */
export function endingWords(ending: Ending | null): string {
  if (ending === null) return 'no end seen';
  switch (ending.kind) {
    case 'exit':
      return `exit ${ending.code}`;
    case 'signal':
      return ending.signal;
    case 'timeout':
      return `timeout after ${durationWords(ending.afterMs)}`;
    case 'limit':
      return `limit: ${safeLine(ending.limit)}`;
    case 'not_found':
      return 'program not found';
    case 'not_executable':
      return `not executable (${safeLine(ending.errno)})`;
    case 'refused':
      return 'refused';
    case 'evidence_missing':
      return 'evidence missing';
    case 'control_lost':
      return 'control lost';
    case 'launch_failed':
      return 'launch failed';
    case 'interrupted':
      return 'interrupted';
  }
}

/** The same as a clause after the command: `exited 1 after 14.2 s`. */
export function endingClause(ending: Ending | null, elapsedMs: number | null): string {
  const after = elapsedMs === null ? '' : ` after ${durationWords(elapsedMs)}`;
  if (ending === null) return 'has no recorded end';
  switch (ending.kind) {
    case 'exit':
      return `exited ${ending.code}${after}`;
    case 'signal':
      return `was ended by ${ending.signal}${after}`;
    case 'timeout':
      return `was ended by its time limit of ${durationWords(ending.afterMs)}`;
    case 'limit':
      return `was ended by its limit (${safeLine(ending.limit)})${after}`;
    case 'not_found':
      return 'was not found in the sandbox';
    case 'not_executable':
      return `could not be executed (${safeLine(ending.errno)})`;
    case 'refused':
      return 'was refused and not started';
    case 'evidence_missing':
      return 'was not started: evidence missing';
    case 'control_lost':
      return `was ended: control lost${after}`;
    case 'launch_failed':
      return 'was not started: the sandbox could not be built';
    case 'interrupted':
      return `was interrupted${after}`;
  }
}

/** What went wrong, for endings that carry words. */
export function endingDetail(ending: Ending | null): string | undefined {
  return ending !== null && 'detail' in ending && ending.detail !== '' ? safeLine(ending.detail, 1000) : undefined;
}

export type Tone = 'good' | 'bad' | 'warn' | 'none';

/** How a level looks: only what was proved is good. */
export function levelTone(level: ObservedLevel | PlanLevel, wanted: boolean): Tone {
  if (level === 'enforced') return 'good';
  if (level === 'cooperative') return 'warn';
  return level === 'unenforced' && wanted ? 'bad' : 'none';
}

/** A path as a person knows it: relative below `workspace`, `~/...` below `home`, else absolute. Not yet made safe. */
export function friendlyPath(path: string, workspace: string | undefined, home: string | undefined): string {
  if (workspace !== undefined && path === workspace) return '.';
  if (workspace !== undefined && workspace !== '/' && path.startsWith(`${workspace}/`)) return path.slice(workspace.length + 1);
  if (home !== undefined && home !== '/' && path === home) return '~';
  if (home !== undefined && home !== '/' && path.startsWith(`${home}/`)) return `~/${path.slice(home.length + 1)}`;
  return path;
}

/** `on the staged result of run-...`; undefined: from the workspace alone. */
export function lineageWords(lineage: BundleLineage): string | undefined {
  if (lineage.on !== null) return `on the staged result of ${lineage.on}`;
  if (lineage.forkedFrom === null) return undefined;
  return `from the checkpoint ${lineage.checkpoint ?? '-'} of ${lineage.forkedFrom}`;
}

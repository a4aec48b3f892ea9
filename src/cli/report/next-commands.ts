import { relative } from 'node:path';
import type { BundleChanges } from '../../core/bundle.ts';
import type { Change } from '../../core/change.ts';
import { safeLine } from '../../core/text-safety.ts';
import { listedChanges } from './changes.ts';
import { shellWord } from './words.ts';

export interface NextCommands {
  /** A text file that is worth a look, as `job diff` takes it; undefined without one. */
  readonly diffPath: string | undefined;
  /** The directory (or file) at the top of the workspace that holds most of what can be applied as it is. */
  readonly applyPath: string | undefined;
  /** `--allow-exec PATH ...` for every path that the host would run, when that is a short list. */
  readonly allowExec: string;
  readonly executes: readonly Change[];
}

/** Paths are relative to `cwd`, and quoted for a shell. */
export function nextCommands(changes: BundleChanges, workspace: string, cwd: string): NextCommands {
  const prefix = relative(cwd, workspace);
  const typed = (path: string): string => shellWord(prefix === '' ? path : `${prefix}/${path}`);
  const listed = listedChanges(changes).filter((change) => change.root === 0 && change.encoding === 'utf8' && change.applied !== true);
  const executes = listedChanges(changes).filter((change) => change.executes !== undefined && change.applied !== true);
  const free = listed.filter((change) => change.executes === undefined && change.conflict === undefined && change.unappliable === undefined);
  const counts = new Map<string, number>();
  for (const change of free) {
    const slash = change.path.indexOf('/');
    if (slash > 0) counts.set(change.path.slice(0, slash), (counts.get(change.path.slice(0, slash)) ?? 0) + 1);
  }
  const [directory] = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))[0] ?? [];
  const applyPath = directory ?? free[0]?.path;
  const diffPath = (
    free.find((change) => change.kind === 'modified' && change.path.startsWith(directory ?? '')) ??
    free.find((change) => !change.binary) ??
    free[0]
  )?.path;
  return {
    diffPath: diffPath === undefined ? undefined : typed(diffPath),
    applyPath: applyPath === undefined ? undefined : typed(applyPath),
    allowExec:
      executes.length > 0 && executes.length <= 3
        ? executes.map((change) => `--allow-exec ${typed(change.path)}`).join(' ')
        : executes.length === 0
          ? ''
          : '--allow-exec PATH (for each path marked !)',
    executes,
  };
}

/** The same command line with flags added before the program: `job run --safe --allow-net a.example -- npm test`. */
export function rerunWith(flags: readonly string[], argv: readonly string[], words: readonly string[]): string {
  const ours = argv.slice(1, argv.length - words.length).filter((word, index, all) => !(word === '--' && index === all.length - 1));
  return safeLine(['job', argv[0] ?? 'run', ...ours, ...flags, '--', ...words].map(shellWord).join(' '), 2000);
}

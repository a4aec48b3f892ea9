import { ProofrunError } from '../core/errors.ts';
import { compileGlob } from './glob.ts';

/** One line of policies/executes-on-host.yaml: files that somebody's tool runs or obeys by itself. */
export interface ExecutesEntry {
  /** Relative to the workspace, globs allowed; a directory covers what is below it. */
  readonly paths: readonly string[];
  /** Also in every directory below the workspace. */
  readonly anywhere: boolean;
  /** The path itself only, not what is below it. */
  readonly exact: boolean;
  /** Of a JSON file: only a change of one of these keys counts. */
  readonly keys?: readonly string[];
  readonly tool: string;
  /** When the host runs it; completes the tool's name. */
  readonly when: string;
  readonly source: string;
  readonly line: number;
}

export interface ExecutesData {
  readonly file: string;
  readonly sha256: string;
  readonly entries: readonly ExecutesEntry[];
}

export interface ExecutesQuestion {
  /** Which staged root the path belongs to. `git`: the common directory of a linked worktree. */
  readonly root?: 'workspace' | 'git';
  /** The text before and after, where an entry looks only at keys of a JSON file; undefined for a file that isn't there. Leave both out when unknown: then the path decides. */
  readonly contents?: { readonly before: string | undefined; readonly after: string | undefined };
}

/** Says why the host would run or obey a changed path (relative to its staged root), or undefined. Matching ignores case, as some filesystems do. */
export type ExecutesOnHost = (relativePath: string, question?: ExecutesQuestion) => string | undefined;

/** Compiles the table once; a call that matches nothing costs one match. The first entry that matches gives the reason. */
export function compileExecutesOnHost(data: ExecutesData): ExecutesOnHost {
  const entries = data.entries.map((entry) => ({
    reason: `${entry.tool} ${entry.when}`,
    keys: entry.keys,
    regexes: entry.paths.map((path) => {
      const glob = compileGlob(entry.anywhere ? `**/${path}` : path, { descendants: !entry.exact });
      if (glob.kind === 'error') throw new ProofrunError('ERR_POLICY_FILE', { message: `${data.file}:${String(entry.line)}: ${path}: ${glob.message}` });
      return new RegExp(glob.regex.source, 'sui');
    }),
  }));
  const any = new RegExp(entries.flatMap((entry) => entry.regexes.map((regex) => regex.source)).join('|') || '(?!)', 'sui');
  return (relativePath, question) => {
    const path = question?.root === 'git' ? `.git/${relativePath}` : relativePath;
    if (!any.test(path)) return undefined;
    const { contents } = question ?? {};
    return entries.find(
      (entry) =>
        entry.regexes.some((regex) => regex.test(path)) &&
        (entry.keys === undefined || contents === undefined || keysDiffer(contents.before, contents.after, entry.keys)),
    )?.reason;
  };
}

/** True when one of the keys differs, or when either text can't be read: then nothing is known. */
function keysDiffer(before: string | undefined, after: string | undefined, keys: readonly string[]): boolean {
  // A file that goes away runs nothing.
  if (after === undefined) return false;
  const [old, now] = [readObject(before ?? '{}'), readObject(after)];
  if (old === undefined || now === undefined) return true;
  return keys.some((key) => JSON.stringify(old[key]) !== JSON.stringify(now[key]));
}

function readObject(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Readonly<Record<string, unknown>>) : undefined;
  } catch {
    return undefined;
  }
}

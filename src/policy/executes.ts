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
  const any = anyOf(entries.flatMap((entry) => entry.regexes));
  // Most paths have no name in common with the table: that is seen without the long expression.
  const paths = data.entries.flatMap((entry, index) => entry.paths.map((path, at) => ({ name: plainName(path), regex: entries[index]?.regexes[at] })));
  const names = new Set(paths.flatMap(({ name }) => name ?? []));
  const nameless = anyOf(paths.flatMap(({ name, regex }) => (name === undefined && regex !== undefined ? [regex] : [])));
  const matches = (path: string): boolean => {
    // Beyond ASCII letters have more forms than two.
    if (!ASCII.test(path)) return any.test(path);
    return path
      .toLowerCase()
      .split('/')
      .some((part) => names.has(part))
      ? any.test(path)
      : nameless.test(path);
  };
  return (relativePath, question) => {
    const path = question?.root === 'git' ? `.git/${relativePath}` : relativePath;
    if (!matches(path)) return undefined;
    const { contents } = question ?? {};
    return entries.find(
      (entry) =>
        entry.regexes.some((regex) => regex.test(path)) &&
        (entry.keys === undefined || contents === undefined || keysDiffer(contents.before, contents.after, entry.keys)),
    )?.reason;
  };
}

// eslint-disable-next-line no-control-regex -- every character below U+0080
const ASCII = /^[\x00-\x7f]*$/;

function anyOf(regexes: readonly RegExp[]): RegExp {
  return new RegExp(regexes.map((regex) => regex.source).join('|') || '(?!)', 'sui');
}

/** A part of a pattern that stands for itself alone: every path that matches has it. In lower case. */
function plainName(pattern: string): string | undefined {
  return pattern
    .toLowerCase()
    .split('/')
    .find((part) => /^[a-z0-9._-]+$/.test(part));
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

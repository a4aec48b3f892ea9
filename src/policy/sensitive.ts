import type { PathBase } from './path-rule.ts';
import { parsePathRule } from './path-rule.ts';
import type { PathRule } from '../core/job.ts';

/** One line of policies/sensitive.yaml. */
export interface SensitiveEntry {
  /** Absolute, below `~`, or a glob relative to the workspace. */
  readonly path: string;
  /** Whose it is. */
  readonly tool: string;
  readonly source: string;
  readonly line: number;
  /** Hidden only when the file holds a private key. */
  readonly privateKey?: true;
  /** The shipped profile of this name may read it: its own login. */
  readonly profile?: string;
}

export interface SensitiveData {
  readonly file: string;
  readonly sha256: string;
  /** Paths of a home, sockets, system files. */
  readonly host: readonly SensitiveEntry[];
  /** Names hidden in the workspace under --safe. */
  readonly workspace: readonly SensitiveEntry[];
  /** Names that a glob of `workspace` matches and that are not hidden: `.env.example`. */
  readonly workspaceExcept: readonly string[];
}

export interface SensitivePath {
  readonly rule: PathRule;
  readonly entry: SensitiveEntry;
}

/** The host entries as absolute rules. */
export function sensitivePaths(data: SensitiveData, base: PathBase): readonly SensitivePath[] {
  return data.host.flatMap((entry) => {
    const parsed = parsePathRule(entry.path, base, { layer: 'built-in', name: data.file, file: data.file, line: entry.line });
    return parsed.kind === 'ok' ? [{ rule: parsed.rule, entry }] : [];
  });
}

/** The names hidden in the workspace, as rules below it; with those apart that need a look at the content. */
export function workspaceSecrets(data: SensitiveData, workspace: string): { readonly always: readonly PathRule[]; readonly privateKeys: readonly PathRule[] } {
  const rules = (entries: readonly SensitiveEntry[]): readonly PathRule[] =>
    entries.flatMap((entry) => {
      const parsed = parsePathRule(
        `**/${entry.path}`,
        { home: workspace, directory: workspace },
        { layer: 'built-in', name: data.file, file: data.file, line: entry.line },
      );
      return parsed.kind === 'ok' ? [parsed.rule] : [];
    });
  return {
    always: rules(data.workspace.filter((entry) => entry.privateKey !== true)),
    privateKeys: rules(data.workspace.filter((entry) => entry.privateKey === true)),
  };
}

import { accessSync, constants, realpathSync, statSync } from 'node:fs';
import { basename, delimiter, join, resolve } from 'node:path';
import type { CompiledLayer } from './layer.ts';
import { isWithin } from './path-rule.ts';
import type { CallerFacts } from './prepare.host.ts';
import type { Presets } from './presets.ts';

/** The shipped profile of a program, when PATH finds that program outside the workspace: a file of the workspace chooses nothing. */
export function profileOfProgram(
  program: string | undefined,
  cwd: string,
  workspace: string,
  caller: CallerFacts,
  presets: Presets,
): CompiledLayer | undefined {
  if (program === undefined) return undefined;
  const profile = presets.profiles.find((one) => one.programs?.includes(basename(program)) === true);
  if (profile === undefined) return undefined;
  const found = findProgram(program, cwd, caller.env['PATH'] ?? '');
  return found === undefined || isWithin(found.path, workspace) || isWithin(found.real, workspace) ? undefined : profile;
}

function findProgram(program: string, cwd: string, path: string): { readonly path: string; readonly real: string } | undefined {
  const candidates = program.includes('/') ? [resolve(cwd, program)] : path.split(delimiter).map((directory) => join(resolve(cwd, directory), program));
  for (const candidate of candidates) {
    if (isExecutable(candidate) && statSync(candidate).isFile()) return { path: candidate, real: realpathSync(candidate) };
  }
  return undefined;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

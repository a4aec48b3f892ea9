import { constants } from 'node:fs';
import { access, realpath, stat } from 'node:fs/promises';
import { basename, delimiter, join, resolve } from 'node:path';
import type { CompiledLayer } from './layer.ts';
import { isWithin } from './path-rule.ts';
import type { CallerFacts } from './prepare.host.ts';
import type { Presets } from './presets.ts';

/** The shipped profile of a program, when PATH finds that program outside the workspace: a file of the workspace chooses nothing. */
export async function profileOfProgram(
  program: string | undefined,
  cwd: string,
  workspace: string,
  caller: CallerFacts,
  presets: Presets,
): Promise<CompiledLayer | undefined> {
  if (program === undefined) return undefined;
  const profile = presets.profiles.find((one) => one.programs?.includes(basename(program)) === true);
  if (profile === undefined) return undefined;
  const found = await findProgram(program, cwd, caller.env['PATH'] ?? '');
  return found === undefined || isWithin(found.path, workspace) || isWithin(found.real, workspace) ? undefined : profile;
}

async function findProgram(program: string, cwd: string, path: string): Promise<{ readonly path: string; readonly real: string } | undefined> {
  const candidates = program.includes('/') ? [resolve(cwd, program)] : path.split(delimiter).map((directory) => join(resolve(cwd, directory), program));
  for (const candidate of candidates) {
    const usable = await access(candidate, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (!usable) continue;
    const entry = await stat(candidate);
    if (entry.isFile()) return { path: candidate, real: await realpath(candidate) };
  }
  return undefined;
}

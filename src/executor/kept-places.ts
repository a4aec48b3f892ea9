import { join } from 'node:path';
import { sha256Hex } from '../core/canonical-json.ts';

/** A plain name for a path. */
export function placeName(path: string): string {
  return sha256Hex(path).slice(0, 16);
}

/**
 * Our directory that the job sees at `path` of its private home: one for each profile and workspace. Jobs write it, and nothing of the host runs or reads
 * what lies in it.
 */
export function agentStatePlace(stateDirectory: string, workspace: string, state: { readonly path: string; readonly profile: string }): string {
  return join(stateDirectory, 'agents', state.profile, placeName(workspace), placeName(state.path));
}

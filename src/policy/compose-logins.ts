import { ProofrunError } from '../core/errors.ts';
import type { LoginGrant } from '../core/job.ts';
import type { Joined } from './joined.ts';
import { isWithin } from './path-rule.ts';
import { formatOrigin } from './rules.ts';

/**
 * The login files of the profiles in use. Only a shipped profile and one of the person's own may name any: whoever writes a workspace doesn't choose
 * which file of a home enters a job, and is written after it. Throws ERR_POLICY_FILE.
 */
export function composeLogins(joined: Joined): readonly LoginGrant[] {
  const byPath = new Map<string, LoginGrant>();
  for (const layer of joined.grants) {
    for (const { rule, writeBack, values, newest } of layer.credentials?.login ?? []) {
      const refuse = (fact: string, hint: string): never => {
        throw new ProofrunError('ERR_POLICY_FILE', { message: `${formatOrigin(rule.origin)}: ${fact}`, hint });
      };
      if (layer.layer !== 'profile' || !(joined.shippedProfiles.includes(layer.name) || joined.ownProfiles.includes(layer.name))) {
        refuse(
          `${layer.name} names the login file ${rule.pattern}, which only a shipped profile or one of your own may do`,
          'put the profile into ~/.config/proofrun/profiles',
        );
      }
      if (!rule.literal || rule.pattern === joined.home || !isWithin(rule.pattern, joined.home)) {
        refuse(`expected one file below your home as a login, found ${rule.pattern}`, 'name the file itself');
      }
      if (isWithin(rule.pattern, joined.workspace)) refuse(`the login file ${rule.pattern} lies in the workspace`, 'choose another workspace');
      if (writeBack && values.length === 0) refuse(`${rule.pattern} is to be written back, and no values are named that may change`, 'values: [tokens.*]');
      if (!byPath.has(rule.pattern)) {
        byPath.set(rule.pattern, {
          path: rule.pattern,
          profile: layer.name,
          writeBack,
          values,
          ...(newest === undefined ? {} : { newest }),
          origin: rule.origin,
        });
      }
    }
  }
  return [...byPath.values()].sort((a, b) => (a.path < b.path ? -1 : 1));
}

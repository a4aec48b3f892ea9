import { ownUser } from '../runner/own-user.host.ts';
import { isAbsolute, join } from 'node:path';
import { ProofrunError } from '../core/errors.ts';
import type { CallerFacts } from '../policy/prepare.host.ts';
import { stateDirectoryOf } from '../runner/state-directory.ts';
import type { CliContext } from './context.ts';

/** Who calls, and where their files are. Asks the user database, so it is made once a command. Throws ERR_USAGE without a usable home. */
export function callerFacts(context: CliContext): CallerFacts {
  const { env, cwd } = context;
  const user = ownUser();
  const home = env.HOME !== undefined && isAbsolute(env.HOME) ? env.HOME : user.homedir;
  if (!isAbsolute(home)) {
    throw new ProofrunError('ERR_USAGE', {
      message: `no home: HOME is ${JSON.stringify(env.HOME ?? '')} and the user database gives ${JSON.stringify(user.homedir)}`,
      hint: 'export HOME=/an/absolute/directory',
    });
  }
  const config = env.XDG_CONFIG_HOME !== undefined && isAbsolute(env.XDG_CONFIG_HOME) ? env.XDG_CONFIG_HOME : join(home, '.config');
  return {
    currentDirectory: cwd,
    env,
    uid: user.uid,
    home,
    platform: process.platform,
    configDirectory: join(config, 'proofrun'),
    stateDirectory: stateDirectoryOf({ env, home: user.homedir }),
  };
}

import { homedir } from 'node:os';
import { ProofrunError } from '../../../src/core/errors.ts';
import { safeLine } from '../../../src/core/text-safety.ts';
import { connect, findEndpoint } from '../connect.host.ts';
import { engineClient } from '../engine-client.host.ts';
import type { EngineClient } from '../engine-client.ts';

/** The engine that jobs run on (DOCKER_HOST, a context, the default socket), once it has answered. Throws ERR_EXECUTOR_UNAVAILABLE. */
export async function openEngine(): Promise<EngineClient> {
  const connection = await connect(findEndpoint(process.env, homedir()));
  if ('engine' in connection) return engineClient(connection.engine.docker);
  const { reason, remedy } = connection.obstacle;
  throw new ProofrunError('ERR_EXECUTOR_UNAVAILABLE', { message: safeLine(reason, 500), hint: remedy });
}

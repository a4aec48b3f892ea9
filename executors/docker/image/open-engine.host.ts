import { messageOf, ProofrunError } from '../../../src/core/errors.ts';
import { safeLine } from '../../../src/core/text-safety.ts';
import type { EngineClient } from '../engine-client.ts';
import { engineClient } from '../engine-client.host.ts';

/** The engine that the environment names (DOCKER_HOST, else the default socket), once it has answered. Throws ERR_EXECUTOR_UNAVAILABLE. */
export async function openEngine(): Promise<EngineClient> {
  const { default: Dockerode } = await import('dockerode');
  const docker = new Dockerode();
  try {
    await docker.ping();
  } catch (cause) {
    throw new ProofrunError('ERR_EXECUTOR_UNAVAILABLE', {
      message: `no container engine answers: ${safeLine(messageOf(cause), 300)}`,
      hint: 'is it running, and may you use its socket? docker version    (DOCKER_HOST names another one)',
      cause,
    });
  }
  return engineClient(docker);
}

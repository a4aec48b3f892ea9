import { connect } from 'node:net';
import { errnoOf, ProofrunError } from '../core/errors.ts';
import type { JsonObject } from '../core/json.ts';
import { byteLines, formatAgentRequest, parseAgentAnswer, type AgentRequest } from './agent-protocol.ts';
import { agentAddress } from './agent-place.host.ts';

/** How long a program is waited for when nobody says otherwise. Milliseconds. */
export const AGENT_PATIENCE_MS = 30_000;

/** The owner's process answers in one line of at most so many bytes. */
const LONGEST_ANSWER = 1 << 20;

/** Asks the process that owns a live run. ERR_AGENT with its reason when it refuses, when the run has no AgentCtl, or its owner went away. */
export async function askAgent(runDirectory: string, runId: string, request: AgentRequest): Promise<JsonObject> {
  const absent = (why: string): ProofrunError => new ProofrunError('ERR_AGENT', { message: `${runId}: ${why}`, hint: `job status ${runId}` });
  let address: ReturnType<typeof agentAddress>;
  try {
    address = agentAddress(runDirectory);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') throw absent('it has no AgentCtl');
    throw error;
  }
  return await new Promise<JsonObject>((resolve, reject) => {
    const socket = connect(address.path);
    const lines = byteLines(LONGEST_ANSWER);
    socket.once('connect', () => {
      address.close();
      socket.write(formatAgentRequest(request));
    });
    socket.once('error', (error) => {
      const errno = errnoOf(error);
      if (errno === 'ENOENT' || errno === 'ECONNREFUSED') reject(absent('its process does not listen: it has no AgentCtl, or its command has ended'));
      else if (errno === 'ECONNRESET' || errno === 'EPIPE') reject(absent('its process turned this one away'));
      else reject(error);
    });
    socket.once('close', () => {
      reject(absent('its process went away, or turned this one away'));
    });
    socket.on('data', (bytes: Buffer) => {
      const [line] = lines.feed(bytes);
      if (line === undefined) return;
      const answer = parseAgentAnswer(line);
      if (answer === undefined) reject(absent('its process said something that is no answer'));
      else if (answer.kind === 'refused') reject(new ProofrunError('ERR_AGENT', { message: `${runId}: ${answer.message}` }));
      else resolve(answer.facts);
      socket.destroy();
    });
  });
}

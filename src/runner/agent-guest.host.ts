import { connect, type Socket } from 'node:net';
import { messageOf, ProofrunError } from '../core/errors.ts';
import {
  AGENT_PROTOCOL,
  AGENT_VARIABLE,
  byteLines,
  formatMessage,
  LONGEST_AGENT_LINE,
  parseHostLine,
  type AgentState,
  type Directive,
} from './agent-protocol.ts';

export interface AgentGuestOptions {
  /** How the program calls itself, at most 100 characters. */
  readonly agent?: string;
  /** What the host asks: come to rest and say `quiesced`, go on, end. */
  readonly onDirective: (directive: Directive) => void;
  /** Default: the process's. */
  readonly env?: Readonly<Record<string, string | undefined>>;
}

/** A program in a job, as AgentCtl sees it. */
export interface AgentGuest {
  /** Tells the host what the program does now. Rejects with ERR_AGENT when the host went away. */
  say(state: AgentState): Promise<void>;
  /** Idempotent. */
  close(): void;
}

/**
 * For a program that runs in a job: joins AgentCtl over the socket that PROOFRUN_AGENTCTL names. Undefined where there is none: outside a job,
 * or with an executor that has no AgentCtl. It doesn't hold the process. ERR_AGENT when the socket is there and doesn't answer.
 */
export async function joinAgentCtl(options: AgentGuestOptions): Promise<AgentGuest | undefined> {
  const path = (options.env ?? process.env)[AGENT_VARIABLE];
  if (path === undefined) return undefined;
  const socket = await reach(path);
  const waiting: { readonly done: () => void; readonly fail: (error: Error) => void }[] = [];
  const lines = byteLines(LONGEST_AGENT_LINE);
  const lost = (): void => {
    for (const one of waiting.splice(0)) one.fail(new ProofrunError('ERR_AGENT', { message: 'the host closed AgentCtl' }));
  };
  socket.on('error', lost);
  socket.on('close', lost);
  const greeted = new Promise<void>((done, fail) => waiting.push({ done, fail }));
  socket.on('data', (bytes: Buffer) => {
    for (const line of lines.feed(bytes)) {
      const message = parseHostLine(line);
      if (message?.type === 'hello' || message?.type === 'noted') waiting.shift()?.done();
      else if (message?.type === 'directive') options.onDirective(message.directive);
      else if (message?.type === 'refused') waiting.shift()?.fail(new ProofrunError('ERR_AGENT', { message: message.reason }));
    }
  });
  socket.write(formatMessage({ type: 'hello', protocol: AGENT_PROTOCOL, ...(options.agent === undefined ? {} : { agent: options.agent }) }));
  await greeted;
  socket.unref();
  return {
    say: async (state) => {
      if (!socket.writable) throw new ProofrunError('ERR_AGENT', { message: 'the host closed AgentCtl' });
      await new Promise<void>((done, fail) => {
        waiting.push({ done, fail });
        socket.write(formatMessage({ type: 'state', state }));
      });
    },
    close: () => {
      socket.destroy();
    },
  };
}

function reach(path: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    socket.once('error', (error) => {
      reject(new ProofrunError('ERR_AGENT', { message: `${path}: ${messageOf(error)}`, cause: error }));
    });
    socket.once('connect', () => {
      resolve(socket);
    });
  });
}

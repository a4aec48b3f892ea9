import type { BundleAgentCtl } from '../core/bundle.ts';
import { messageOf, ProofrunError } from '../core/errors.ts';
import type { JsonObject } from '../core/json.ts';
import type { AgentLink } from '../executor/executor.ts';
import {
  AGENT_PROTOCOL,
  byteLines,
  formatMessage,
  LONGEST_AGENT_LINE,
  parseAgentRequest,
  parseGuestLine,
  type AgentRequest,
  type AgentState,
  type ByteLines,
  type Directive,
} from './agent-protocol.ts';
import { startTimer } from './long-timer.ts';

/** What the desk may do with the run; nothing of it is reachable for a guest. */
export interface AgentDeskRun {
  readonly id: string;
  /** Milliseconds since the epoch. */
  readonly clock: () => number;
  /** Keeps what is staged now. `unchanged` is asked at the end: it throws when the program said meanwhile that it goes on. */
  readonly checkpoint: (name: string | null, unchanged: () => void) => Promise<JsonObject>;
  readonly stop: () => void;
}

export interface AgentDesk {
  /** Undefined: nobody ever spoke. */
  record(): BundleAgentCtl | undefined;
  /** The command has ended: waiting requests are refused, and a checkpoint that is being written is waited for. */
  end(): Promise<void>;
}

interface Guest {
  readonly lines: ByteLines;
  greeted: boolean;
}

/**
 * Both ends of AgentCtl in the process that owns a run. A guest can say three things about itself; what it says is kept as said by it, and
 * decides nothing but whether a request of the owner's goes on. A line that isn't one of its words ends its connection.
 */
export function openDesk(link: AgentLink, run: AgentDeskRun): AgentDesk {
  const guests = new Map<number, Guest>();
  const hosts = new Map<number, ByteLines>();
  const said = { agent: null as string | null, state: null as AgentState | null, messages: 0, malformed: 0, connections: 0, refusedUids: 0 };
  const directives: { directive: Directive; atMs: number }[] = [];
  let directive: Directive = 'continue';
  let busy: string | undefined;
  let over = false;
  let touched = false;
  let wake: ((outcome: 'quiesced' | 'ended') => void) | undefined;
  let leaves: ((why: string) => void) | undefined;
  let work: Promise<unknown> = Promise.resolve();
  let stopLater: (() => void) | undefined;

  const direct = (next: Directive): void => {
    directive = next;
    directives.push({ directive: next, atMs: run.clock() });
    if (directives.length > MOST_DIRECTIVES) directives.shift();
    for (const [connection, guest] of guests) if (guest.greeted) link.send(connection, formatMessage({ type: 'directive', directive: next }));
  };
  /** What a guest that says hello now has not been told, or not answered. */
  const outstanding = (): Directive | undefined => {
    if (directive === 'shutdown') return directive;
    if (directive === 'quiesce') return said.state === 'quiesced' ? undefined : directive;
    return said.state === 'quiesced' ? directive : undefined;
  };
  const turnAway = (connection: number, reason: string): void => {
    said.malformed += 1;
    link.send(connection, formatMessage({ type: 'refused', reason }));
    link.close(connection);
    guests.delete(connection);
  };
  const hear = (connection: number, guest: Guest, line: Uint8Array): void => {
    const message = parseGuestLine(line);
    if (message === undefined) {
      turnAway(connection, 'not a line of AgentCtl');
      return;
    }
    said.messages += 1;
    if (message.type === 'hello') {
      if (message.protocol !== AGENT_PROTOCOL) {
        turnAway(connection, `protocol ${AGENT_PROTOCOL} is spoken here`);
        return;
      }
      guest.greeted = true;
      if (message.agent !== undefined) said.agent = message.agent;
      link.send(connection, formatMessage({ type: 'hello', protocol: AGENT_PROTOCOL }));
      const open = outstanding();
      if (open !== undefined) link.send(connection, formatMessage({ type: 'directive', directive: open }));
      return;
    }
    if (!guest.greeted) {
      turnAway(connection, 'hello comes first');
      return;
    }
    said.state = message.state;
    link.send(connection, formatMessage({ type: 'noted', state: message.state }));
    if (message.state === 'quiesced' && directive === 'quiesce') wake?.('quiesced');
    if (message.state !== 'quiesced') leaves?.(`the program said that it is ${message.state}`);
  };

  /** Resolves when the program says that it is quiet. */
  const quiesce = async (timeoutMs: number): Promise<void> => {
    if (directive === 'shutdown') throw refused('the program was asked to end');
    if (directive === 'quiesce' && said.state === 'quiesced') return;
    if (said.messages === 0) throw refused('no program in the job has spoken AgentCtl: there is nobody to ask');
    // What it said before it was asked doesn't count.
    if (said.state === 'quiesced') said.state = null;
    const outcome = await new Promise<'quiesced' | 'ended' | 'late'>((resolve) => {
      const cancel = startTimer(timeoutMs, () => {
        resolve('late');
      });
      wake = (how) => {
        cancel();
        resolve(how);
      };
      direct('quiesce');
    });
    wake = undefined;
    if (outcome === 'quiesced') return;
    if (outcome === 'ended') throw refused('the command ended');
    direct('continue');
    throw refused(`the program did not say within ${timeoutMs} ms that it is quiet`);
  };
  const checkpoint = async (timeoutMs: number, name: string | null): Promise<JsonObject> => {
    const held = directive === 'quiesce' && said.state === 'quiesced';
    await quiesce(timeoutMs);
    let broken: string | undefined;
    leaves = (why) => {
      broken ??= why;
    };
    try {
      return await run.checkpoint(name, () => {
        if (broken !== undefined) throw refused(`${broken} before the checkpoint was whole`);
      });
    } finally {
      leaves = undefined;
      if (!held && !over) direct('continue');
    }
  };
  const status = (): JsonObject => ({ run: run.id, said_by_guest: { agent: said.agent, state: said.state }, directive });

  const carryOut = async (request: AgentRequest): Promise<JsonObject> => {
    if (over) throw refused('the command has ended');
    if (request.op === 'status') return status();
    if (request.op === 'cancel') {
      direct('shutdown');
      wake?.('ended');
      stopLater ??= startTimer(request.graceMs, run.stop);
      return status();
    }
    if (busy !== undefined) throw refused(`another ${busy} is under way`);
    if (request.op === 'continue') {
      direct('continue');
      return status();
    }
    busy = request.op;
    try {
      if (request.op === 'checkpoint') return await checkpoint(request.timeoutMs, request.name);
      await quiesce(request.timeoutMs);
      return status();
    } finally {
      busy = undefined;
    }
  };
  const answer = async (connection: number, line: Uint8Array): Promise<void> => {
    try {
      const facts = await carryOut(parseAgentRequest(line));
      if (hosts.has(connection)) link.send(connection, formatMessage({ kind: 'done', facts }));
    } catch (error) {
      if (hosts.has(connection)) link.send(connection, formatMessage({ kind: 'refused', message: messageOf(error) }));
    }
  };

  link.attach({
    opened: (connection, side) => {
      touched = true;
      if (side === 'host') {
        hosts.set(connection, byteLines(LONGEST_AGENT_LINE));
        return;
      }
      said.connections += 1;
      guests.set(connection, { lines: byteLines(LONGEST_AGENT_LINE), greeted: false });
    },
    closed: (connection) => {
      guests.delete(connection);
      hosts.delete(connection);
    },
    refused: () => {
      touched = true;
      said.refusedUids += 1;
    },
    data: (connection, bytes) => {
      const guest = guests.get(connection);
      if (guest !== undefined) {
        for (const line of guest.lines.feed(bytes)) if (guests.has(connection)) hear(connection, guest, line);
        if (guest.lines.overlong && guests.has(connection)) turnAway(connection, `a line has at most ${LONGEST_AGENT_LINE} bytes`);
        return;
      }
      const lines = hosts.get(connection);
      if (lines === undefined) return;
      for (const line of lines.feed(bytes)) {
        const answered = answer(connection, line);
        work = Promise.all([work, answered]);
      }
      if (lines.overlong) {
        hosts.delete(connection);
        link.close(connection);
      }
    },
  });

  return {
    record: () => {
      if (!touched && directives.length === 0) return undefined;
      const { agent, state, messages, malformed, connections, refusedUids } = said;
      return { saidByGuest: { agent, state }, messages, malformed, connections, refusedPeers: refusedUids, directives: [...directives] };
    },
    end: async () => {
      over = true;
      stopLater?.();
      wake?.('ended');
      await work;
    },
  };
}

/** Directives that the record keeps, the latest. */
const MOST_DIRECTIVES = 64;

function refused(message: string): ProofrunError {
  return new ProofrunError('ERR_AGENT', { message });
}

import type { Duplex } from 'node:stream';
import type { AgentLink, AgentListener } from '../../src/executor/executor.ts';
import { encodeAgentClose, encodeAgentData, FrameSplitter, parseAgentFrame, type AgentFrame } from '../shim/protocol.ts';

/** Where a sandbox has the socket of AgentCtl; the client lies beside it. */
export const AGENT_SOCKET = '/tmp/.proofrun/agentctl.sock';

/** Frames that may wait for a listener: what comes before the gate is open. */
const MOST_WAITING = 256;

/** The guard's end of AgentCtl (executors/shim/agent.c). A channel that breaks is closed, and the run goes on without. */
export class NativeAgentLink implements AgentLink {
  /** Resolves when the guard's process is gone, and with it its hold on the sandbox's mounts. */
  readonly gone: Promise<void>;
  private readonly channel: Duplex;
  private readonly splitter = new FrameSplitter();
  private readonly waiting: AgentFrame[] = [];
  private listener: AgentListener | undefined;

  constructor(channel: Duplex) {
    this.channel = channel;
    this.gone = new Promise((resolve) => {
      channel.once('close', resolve);
    });
    channel.on('error', () => undefined);
    channel.on('data', (chunk: Buffer) => {
      this.hear(chunk);
    });
  }

  attach(listener: AgentListener): void {
    this.listener = listener;
    for (const frame of this.waiting.splice(0)) this.tell(listener, frame);
  }

  send(connection: number, text: string): void {
    if (this.channel.writable) this.channel.write(encodeAgentData(connection, text));
  }

  close(connection: number): void {
    if (this.channel.writable) this.channel.write(encodeAgentClose(connection));
  }

  /** Lets the guard go. */
  end(): void {
    this.channel.resume();
    this.channel.end();
  }

  private hear(chunk: Buffer): void {
    try {
      for (const bytes of this.splitter.push(chunk)) {
        const frame = parseAgentFrame(bytes);
        if (this.listener !== undefined) this.tell(this.listener, frame);
        else if (this.waiting.push(frame) > MOST_WAITING) throw new Error('too much before the gate');
      }
    } catch {
      this.channel.destroy();
    }
  }

  private tell(listener: AgentListener, frame: AgentFrame): void {
    switch (frame.say) {
      case 'opened':
        listener.opened(frame.connection, frame.side);
        break;
      case 'data':
        listener.data(frame.connection, frame.bytes);
        break;
      case 'closed':
        listener.closed(frame.connection);
        break;
      case 'refused':
        listener.refused(frame.uid);
        break;
      case 'listening':
    }
  }
}

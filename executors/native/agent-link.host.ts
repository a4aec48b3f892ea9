import type { Duplex } from 'node:stream';
import type { AgentLink, AgentListener } from '../../src/executor/executor.ts';
import { encodeAgentBegin, encodeAgentClose, encodeAgentData, FrameSplitter, parseAgentFrame, type AgentFrame } from '../shim/protocol.ts';

/** Where a sandbox has the socket of AgentCtl; a link beside it leads to the client. */
export const AGENT_SOCKET = '/tmp/.proofrun/agentctl.sock';

/** The shim's end of AgentCtl (executors/shim/agent.c). A channel that breaks is closed, and the run goes on without. */
export class NativeAgentLink implements AgentLink {
  /** Resolves when no process of the shim's holds it any more, and with it the sandbox's mounts. */
  readonly gone: Promise<void>;
  private readonly channel: Duplex;
  private readonly splitter = new FrameSplitter();
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
    if (this.channel.writable) this.channel.write(encodeAgentBegin());
  }

  send(connection: number, text: string): void {
    if (this.channel.writable) this.channel.write(encodeAgentData(connection, text));
  }

  close(connection: number): void {
    if (this.channel.writable) this.channel.write(encodeAgentClose(connection));
  }

  /** Lets the guard go, if there is one. */
  end(): void {
    this.channel.resume();
    this.channel.end();
  }

  private hear(chunk: Buffer): void {
    try {
      for (const bytes of this.splitter.push(chunk)) {
        if (this.listener === undefined) throw new Error('nobody was to be answered yet');
        this.tell(this.listener, parseAgentFrame(bytes));
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
    }
  }
}

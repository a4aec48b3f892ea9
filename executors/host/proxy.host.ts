import { once } from 'node:events';
import { createServer } from 'node:net';
import { proxyVariables } from '../../src/admission/proxy-variables.ts';
import { perDimension } from '../../src/core/dimension.ts';
import { ProofrunError } from '../../src/core/errors.ts';
import type { Receipt, ReceiptRequirement } from '../../src/core/receipt.ts';
import { requireReceipts } from '../../src/evidence/index.ts';
import type { LaunchRequest } from '../../src/executor/executor.ts';
import type { OpenNetwork } from '../../src/executor/network.ts';
import { formatListener } from '../shim/overlay-plan.ts';
import { ownSockets, waitingSockets } from '../shim/own-sockets.host.ts';
import { receiptOfProxy } from '../shim/receipts.ts';

export const PROXY_SCOPE = 'clients that use the proxy variables reach the listed hosts alone; every other connection goes around the proxy';

/** The rules of a network without isolation: a proxy that the command is asked to use. */
export interface OfferedProxy {
  readonly network: OpenNetwork;
  /** For the environment of the command. */
  readonly variables: Readonly<Record<string, string>>;
  readonly requirements: readonly ReceiptRequirement[];
  readonly receipts: readonly Receipt[];
}

/** Listens at a port of the kernel's choice on 127.0.0.1. Undefined: the plan has no rules for hosts. Close `network`. */
export async function offerProxy(request: LaunchRequest): Promise<OfferedProxy | undefined> {
  const { dimensions } = request.plan;
  if (!dimensions.network.controls.includes('proxy_offered')) return undefined;
  if (request.network === undefined) throw new ProofrunError('ERR_LAUNCH', { message: 'the plan offers a proxy, and nothing answers there' });
  const server = createServer({ allowHalfOpen: true });
  server.listen({ host: '127.0.0.1', port: 0, exclusive: true });
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new ProofrunError('ERR_LAUNCH', { message: 'the proxy has no address' });
  const { port } = address;
  const network = await request.network.open([{ kind: 'proxy', server }]);
  const listener = formatListener({ kind: 'tcp', address: '127.0.0.1', port });
  const requirements = requireReceipts(
    perDimension((dimension) => (dimension === 'network' ? dimensions.network.controls : [])),
    [{ control: 'proxy_offered', id: 'proxy.listener', phase: 'gate', expect: { kind: 'equals', value: listener } }],
  );
  return { network, variables: proxyVariables(`http://127.0.0.1:${port}`), requirements, receipts: listening(port) };
}

function listening(port: number): readonly Receipt[] {
  try {
    const own = ownSockets();
    const line = waitingSockets('self').find((one) => one.kind === 'tcp' && one.port === port && own.has(one.inode));
    return line === undefined ? [] : [receiptOfProxy(formatListener(line), '/proc/self/net/tcp and /proc/self/fd')];
  } catch {
    return []; // no receipt: what is owed stays missing
  }
}

import type { EffectivePermissions } from '../../src/core/job.ts';
import { decideHost } from '../../src/policy/decide.ts';
import type { OuterOperation } from './protocol.ts';

type Network = EffectivePermissions['network'];

/** The job's own address (RFC 2544 block, never routed): lookups that ask for a configured family find one. The resolver answers there. */
export const OVERLAY_V4 = '198.18.0.2';
/** The same for IPv6: a unique local address (RFC 4193). */
export const OVERLAY_V6 = 'fd53:7072:6f6f:6672::2';
/** The port of the explicit proxy at OVERLAY_V4: HTTP and SOCKS, for clients that are configured so. One that no service is known by. */
export const PROXY_PORT = 17817;
export const DNS_PORT = 53;

export interface PlannedListener {
  readonly kind: 'tcp' | 'udp';
  readonly address: string;
  readonly port: number;
}

/** The network of a job whose rules name hosts. Data. */
export interface OverlayPlan {
  readonly operations: readonly OuterOperation[];
  readonly listeners: readonly PlannedListener[];
  /** What `net.addresses` has to hold. */
  readonly addresses: readonly string[];
  /** What `net.local` has to hold: the families in which every address is local. */
  readonly local: readonly string[];
}

/** Answered in every such network, so that an attempt at the usual ports is judged and counted. No job may bind them: they are below 1024. */
const USUAL_PORTS = [80, 443];

/**
 * The listeners that a job's rules ask for. A rule for names, or for a block of addresses, needs its ports on every address, because
 * names have addresses of our choice; a rule for one address takes its ports on that address alone, and the job keeps its own. Ports of the
 * host's loopback are taken on the job's loopback alone.
 */
export function planListeners(network: Pick<Network, 'allow' | 'hostPorts'>, ipv6: boolean): readonly PlannedListener[] {
  const everywhere = new Set<number>(USUAL_PORTS);
  const single = new Map<string, PlannedListener>();
  const add = (address: string, port: number): void => {
    if (address.includes(':') && !ipv6) return;
    single.set(`${address} ${String(port)}`, { kind: 'tcp', address, port });
  };
  for (const rule of network.allow) {
    for (const port of rule.ports ?? []) {
      const address = rule.kind === 'cidr' ? oneAddress(rule.host) : undefined;
      if (address === undefined) everywhere.add(port);
      else add(address, port);
    }
  }
  for (const port of network.hostPorts) for (const address of ['127.0.0.1', '::1']) add(address, port);
  add(OVERLAY_V4, PROXY_PORT);
  add(OVERLAY_V4, DNS_PORT);
  const ports = [...everywhere].sort((a, b) => a - b);
  return [
    ...ports.flatMap((port): PlannedListener[] => ['0.0.0.0', ...(ipv6 ? ['::'] : [])].map((address) => ({ kind: 'tcp', address, port }))),
    ...[...single.values()].filter((one) => !everywhere.has(one.port)),
    { kind: 'udp', address: OVERLAY_V4, port: DNS_PORT },
  ];
}

/** The address of a block that holds one, undefined for a larger one. */
function oneAddress(cidr: string): string | undefined {
  const [address = '', prefix] = cidr.split('/');
  return prefix === (address.includes(':') ? '128' : '32') ? address : undefined;
}

/** The operations that make the network, in the network namespace of the job, with lo up. */
export function planOverlay(network: Network, ipv6: boolean): OverlayPlan {
  const listeners = planListeners(network, ipv6);
  return {
    operations: [
      { op: 'address', address: OVERLAY_V4, prefix: 32 },
      { op: 'all_local', source: OVERLAY_V4 },
      ...(ipv6
        ? ([
            { op: 'address', address: OVERLAY_V6, prefix: 128 },
            { op: 'all_local', source: OVERLAY_V6 },
          ] as const)
        : []),
      ...listeners.map((one): OuterOperation => ({ op: 'listener', ...one })),
      ...(network.publish.length === 0 ? [] : [{ op: 'dialer' } as const]),
    ],
    listeners,
    addresses: ['127.0.0.1/8 lo', `${OVERLAY_V4}/32 lo`, ...(ipv6 ? ['::1/128 lo', `${OVERLAY_V6}/128 lo`] : [])].sort(),
    local: ipv6 ? ['v4', 'v6'] : ['v4'],
  };
}

/** How a listener of this process is named in the receipt `net.listeners`. */
export function formatListener({ kind, address, port }: PlannedListener): string {
  return address.includes(':') ? `${kind} [${address}]:${String(port)}` : `${kind} ${address}:${String(port)}`;
}

/** Documentation addresses, reserved ones, and those of a rule's neighbourhood: nothing that exists is ever dialled by a probe. */
const NOWHERE_V4 = ['192.0.2.1', '198.51.100.1', '203.0.113.1', '240.0.0.1'];
const NOWHERE_V6 = ['2001:db8::1', '3fff::1', '100::1'];
/** The metadata service of clouds, and others of its block for a job that may use it. */
const METADATA = ['169.254.169.254', '169.254.170.2', '169.254.0.1'];

export interface DeniedTarget {
  readonly address: string;
  readonly port: number;
}

/**
 * An address and a port that the rules deny, best one on which we listen, so that a process has to judge it; otherwise a port that nobody
 * answers. Undefined when the rules deny nothing of these.
 */
export function deniedTarget(network: Network, of: 'v4' | 'v6' | 'metadata', listeners: readonly PlannedListener[]): DeniedTarget {
  const candidates = of === 'v4' ? NOWHERE_V4 : of === 'v6' ? NOWHERE_V6 : METADATA;
  const any = of === 'v6' ? '::' : '0.0.0.0';
  const ports = [...listeners.filter((one) => one.kind === 'tcp' && one.address === any).map((one) => one.port)].sort((a, b) => b - a);
  for (const address of candidates) {
    const port = ports.find((one) => !decideHost(network, address, one).allowed);
    if (port !== undefined) return { address, port };
  }
  // Port 9 discards (RFC 863), and no rule of ours can have it open on an address that is not its own.
  const [address = ''] = candidates;
  return { address, port: ports.includes(9) ? 11 : 9 };
}

/** The files of /etc that a job with such a network gets in place of the host's. */
export function overlayFiles(hostName: string): ReadonlyMap<string, string> {
  const name = /^[A-Za-z0-9.-]{1,64}$/.test(hostName) ? ` ${hostName}` : '';
  return new Map([
    ['/etc/resolv.conf', `nameserver ${OVERLAY_V4}\n`],
    ['/etc/hosts', `127.0.0.1 localhost${name}\n::1 localhost ip6-localhost ip6-loopback\n`],
  ]);
}

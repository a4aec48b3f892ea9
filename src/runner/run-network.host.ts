import type { EffectiveJob } from '../core/job.ts';
import type { NetworkService } from '../executor/network.ts';
import type { SecretInjector } from '../overlaynet/injection.ts';
import type { OverlayListener } from '../overlaynet/overlaynet.host.ts';
import type { ProxyVariables } from '../overlaynet/upstream-proxy.ts';

/** How this machine reaches the world. */
export interface UpstreamSettings {
  /** `address` or `address:port`. Absent: as this machine resolves names. */
  readonly nameservers?: readonly string[];
  /** The caller's own proxy variables. */
  readonly env?: ProxyVariables;
}

/** What answers the connections of a job whose rules name hosts: the data path, with the rules of the job. Undefined for other networks. */
export function networkServiceFor(job: EffectiveJob, upstream: UpstreamSettings, clock: () => number, secrets?: SecretInjector): NetworkService | undefined {
  const { network } = job.permissions;
  if (network.kind !== 'selective') return undefined;
  return {
    open: async (listeners) => {
      // Loaded when it is needed: most jobs have no such network.
      const { startOverlayNet } = await import('../overlaynet/overlaynet.host.ts');
      const proxies = listeners.filter((one) => one.kind === 'proxy');
      const overlay = await startOverlayNet({
        rules: network,
        hostPorts: network.hostPorts,
        listeners: listeners.filter((one): one is OverlayListener => one.kind !== 'proxy'),
        upstream,
        secrets,
        clock,
      });
      for (const { server } of proxies) overlay.attachProxy(server);
      return overlay;
    },
  };
}

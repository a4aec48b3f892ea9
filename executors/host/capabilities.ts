import type { Dimension } from '../../src/core/dimension.ts';
import type { ExecutorCapabilities } from '../../src/core/plan.ts';

/** What the host executor can do anywhere: project the environment and keep the time. It isolates nothing. */
export function hostCapabilities(user: 'root' | 'user', version: string): ExecutorCapabilities {
  return {
    executor: 'host',
    available: true,
    version,
    user,
    controls: ['proxy_offered', 'environment', 'wall_time'],
    network: { public: true, deny: false, selective: false, byProxy: true },
    subprocess: { contained: false, listed: false, none: false },
    limits: { memory: false, cpus: false, processes: false, swap: false },
    cooperative: ['credentials'],
  };
}

/** What each dimension comes to without isolation, in words. */
export const HOST_SCOPES: Readonly<Record<Dimension, string>> = {
  file_read: 'the command reads whatever you can read',
  file_write: 'the command writes wherever you can write; nothing is staged',
  network: "the command has your network, this machine's own services included",
  subprocess:
    "no containment; at the end the process group and session of the command and the descendants that are found are killed. A process that made a session of its own and whose parent has ended is not found; on a terminal, neither is one whose parent has ended. Descriptors that this program inherited are the command's too",
  credentials: 'the command starts with the projected environment; your files, agents and other processes are open to it',
  models: 'no gateway',
  tools: 'no gateway',
  resources: 'wall time only, by killing what is found; no limit on memory, processor, processes or files',
};

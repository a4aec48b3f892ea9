import { CONTROLS, type ExecutorCapabilities } from '../src/core/plan.ts';
import { hostCapabilities } from '../executors/host/capabilities.ts';
import { OVERLAY_V4, PROXY_PORT } from '../executors/shim/overlay-plan.ts';

/**
 * What each executor can do where nothing stands in its way: a control group of its own included. test/unit/cli-docs.test.ts holds the native row
 * to the probe of the machine that runs the test, and test/escape/docker-runtime.test.ts the docker row to the tests' engine.
 */
export const DOCUMENTED: readonly ExecutorCapabilities[] = [
  {
    executor: 'native',
    available: true,
    version: '',
    user: 'user',
    controls: CONTROLS.filter((control) => control !== 'proxy_offered'),
    network: { public: true, deny: true, selective: true, proxy: `http://${OVERLAY_V4}:${String(PROXY_PORT)}` },
    subprocess: { contained: true, listed: true, none: true },
    limits: { memory: true, cpus: true, processes: true, swap: true },
    cooperative: [],
  },
  {
    executor: 'docker',
    available: true,
    version: '',
    user: 'user',
    controls: CONTROLS.filter(
      (control) => !['listed_programs', 'secret_injection', 'overlay_network', 'published_ports', 'proxy_offered', 'stage_size'].includes(control),
    ),
    network: { public: true, deny: true, selective: false },
    subprocess: { contained: true, listed: false, none: true },
    limits: { memory: true, cpus: true, processes: true, swap: true },
    cooperative: [],
    images: true,
  },
  hostCapabilities('user', ''),
];

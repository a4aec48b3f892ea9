import type { EffectiveJob } from '../core/job.ts';

/** The plainest job under --safe: a staged workspace, a private home, no network, contained processes. For questions about what can be planned. */
export const SAMPLE_SAFE_JOB: EffectiveJob = {
  name: undefined,
  mode: 'safe',
  argv: ['true'],
  cwd: '/workspace',
  workspace: '/workspace',
  home: '/home/user',
  executor: 'auto',
  image: undefined,
  waived: [],
  permissions: {
    fileRead: { requested: true, root: 'projected', home: 'private', allow: [], deny: [] },
    fileWrite: { requested: true, stage: ['/workspace'], direct: [], deny: [] },
    network: { requested: true, kind: 'deny', defaultAllow: false, allow: [], deny: [], hostPorts: [], publish: [] },
    subprocess: { requested: true, kind: 'contained', allow: [] },
    credentials: { requested: true, environment: {}, visible: [], secrets: [], agentSockets: [] },
    models: { requested: false },
    tools: { requested: false },
    resources: { requested: true, limits: { processes: 512 } },
  },
  layers: [],
  warnings: [],
};

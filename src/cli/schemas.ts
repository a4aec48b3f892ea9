interface SchemaRow {
  readonly describes: string;
  readonly load: () => Promise<{ readonly default: object }>;
}

/** The published JSON Schemas, by the name that `job schema` takes. Each is loaded when it is asked for. */
export const SCHEMAS = {
  job: { describes: 'a job file (job.yaml)', load: () => import('../../schemas/job.schema.json', { with: { type: 'json' } }) },
  policy: { describes: 'a policy file: ceilings and denials', load: () => import('../../schemas/policy.schema.json', { with: { type: 'json' } }) },
  profile: { describes: 'a profile file: grants', load: () => import('../../schemas/profile.schema.json', { with: { type: 'json' } }) },
  bundle: { describes: 'run-bundle.json, the whole account of a run', load: () => import('../../schemas/run-bundle.schema.json', { with: { type: 'json' } }) },
  run: { describes: 'run.json, the facts of a run without evidence', load: () => import('../../schemas/run.schema.json', { with: { type: 'json' } }) },
  journal: { describes: 'one line of an event journal (--journal FILE)', load: () => import('../../schemas/journal.schema.json', { with: { type: 'json' } }) },
  agent: { describes: 'an agent file (job run --agent FILE)', load: () => import('../../schemas/agent.schema.json', { with: { type: 'json' } }) },
  'tool-policy': { describes: 'which calls of tools may run', load: () => import('../../schemas/tool-policy.schema.json', { with: { type: 'json' } }) },
} as const satisfies Record<string, SchemaRow>;

export type SchemaName = keyof typeof SCHEMAS;
export const SCHEMA_NAMES = Object.keys(SCHEMAS) as SchemaName[];

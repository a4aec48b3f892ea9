import { CONTAINMENT_DIMENSIONS, type Dimension } from '../core/dimension.ts';
import type { EffectiveJob } from '../core/job.ts';
import type { DimensionPlan, ExecutorCapabilities, ExecutorId, RefusalRow } from '../core/plan.ts';
import { formatOrigin } from '../policy/rules.ts';
import { quoteWord } from '../policy/workspace.ts';

type Change = NonNullable<RefusalRow['change']>;

/** One command that would get past a refusal in one dimension, and what it gives up. Undefined when there is none. */
export function changeFor(
  job: EffectiveJob,
  dimension: Dimension,
  plan: DimensionPlan | undefined,
  enforcers: readonly ExecutorId[],
  capabilities: readonly ExecutorCapabilities[],
): Change | undefined {
  const file = job.layers.find((layer) => layer.kind === 'job')?.source;
  const what = file === undefined ? `-- ${job.argv.map(quoteWord).join(' ')}` : quoteWord(file);
  const run = (flags: string): string => `job run ${flags}${flags === '' ? '' : ' '}${what}`;
  const mode = job.mode === 'default' ? '' : `--${job.mode} `;
  const [other] = enforcers;
  if (other !== undefined) return { command: run(`${mode}--executor ${other}`), givesUp: 'nothing: the same rules on another executor' };
  const remedy = capabilities.find((one) => !one.available && one.remedy !== undefined)?.remedy;
  if (plan === undefined && remedy !== undefined) return { command: 'job doctor', givesUp: `nothing: it explains the remedy (${remedy})` };
  if (dimension === 'network' && job.permissions.network.kind === 'selective') {
    return { command: run(`${mode}--no-net`), givesUp: 'the network: none of the allowed hosts can be reached' };
  }
  if (dimension === 'subprocess' && job.permissions.subprocess.kind !== 'contained') {
    const { defaultOrigin } = job.permissions.subprocess;
    const where = defaultOrigin === undefined ? 'the subprocess section' : formatOrigin(defaultOrigin);
    return {
      command: run(mode.trim()),
      givesUp: `the list of programs: take ${where} out first; any program then runs, contained`,
    };
  }
  const lower = job.modeOrigin?.file === undefined ? '' : `; take the mode out of ${formatOrigin(job.modeOrigin)} first`;
  if (job.mode !== 'default' && !CONTAINMENT_DIMENSIONS.some((one) => one === dimension)) {
    const strict = job.mode === 'strict';
    return { command: run(`--safe --degrade ${dimension}`), givesUp: `${strict ? '--strict, and ' : ''}${GIVEN_UP[dimension]}${strict ? lower : ''}` };
  }
  if (job.mode !== 'default') {
    return { command: run(''), givesUp: `${mode.trim()}: what is missing is recorded as a warning and the command runs without it${lower}` };
  }
  return { command: run('--executor host'), givesUp: 'isolation: the command runs as you, with your files and network' };
}

const GIVEN_UP: Readonly<Record<Dimension, string>> = {
  file_read: 'hidden files',
  file_write: 'the stage',
  network: 'the network rules',
  subprocess: 'containment of processes',
  credentials: 'proof of what the job knows: the missing part is recorded as a warning',
  models: 'the gateway: the job has no way to models',
  tools: 'the gateway: the job has no way to tools',
  resources: "the limits that can't be set here: the job may use what the machine has",
};

import { TERMINAL_STATES } from '../../core/run.ts';
import { RUN_LIVING } from '../../runner/live-states.ts';
import type { RunFilter } from '../../store/index.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openRuns } from '../open-runs.host.ts';
import { jsonLine, runJson } from '../report/json.ts';
import { listText } from '../report/list.ts';
import { paletteFor } from '../report/palette.ts';

/** Runs of this workspace, newest first, or of all. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const { flags } = args;
  const runs = await openRuns(context, flags.workspace);
  try {
    const everywhere = flags.all === true && flags.workspace === undefined;
    const found = runs.runner.parts.store.listRuns({
      ...(everywhere ? {} : { workspace: runs.workspace() }),
      ...stateFilter(flags.state),
      limit: flags.limit ?? 20,
    });
    const lineage = flags.tree === true || flags.json === true ? runs.runner.parts.store.lineage() : undefined;
    if (flags.json === true) {
      const parents = new Map(lineage?.map((one) => [one.runId, one]));
      context.stdout.write(
        jsonLine(
          found.map((one) => {
            const line = parents.get(one.id);
            const { parent = null, kind = null, checkpoint = null } = line ?? {};
            return { ...runJson(one), lineage: line === undefined ? null : { parent, kind, checkpoint } };
          }),
        ),
      );
    } else {
      context.stdout.write(
        listText({
          runs: found,
          workspaces: everywhere,
          home: runs.caller.home,
          nowMs: context.clock(),
          width: context.columns,
          palette: paletteFor(context, 'stdout'),
          ...(lineage === undefined ? {} : { lineage }),
        }),
      );
    }
    return 0;
  } finally {
    runs.close();
  }
}

function stateFilter(state: ParsedArgs['flags']['state']): Pick<RunFilter, 'states' | 'stageStates'> {
  switch (state) {
    case undefined:
      return {};
    case 'live':
      return { states: RUN_LIVING };
    case 'staged':
      return { stageStates: ['staged', 'partly_applied'] };
    case 'refused':
    case 'finished':
    case 'failed':
    case 'interrupted':
      return { states: TERMINAL_STATES.filter((one) => one === state) };
  }
}

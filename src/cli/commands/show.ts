import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openControl } from '../open-control.host.ts';
import { controlJson, controlListText, controlText } from '../report/control.ts';
import { jsonLine } from '../report/json.ts';

/** One agent run in full, or the list of them. A damaged one is shown and said to be. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const { flags } = args;
  const control = await openControl(context);
  try {
    const store = control.runs.runner.parts.store.control;
    if (flags.list === true) {
      const rows = store.list({ ...(flags.all === true ? {} : { workspace: control.runs.workspace() }), limit: flags.limit ?? 20 });
      context.stdout.write(
        flags.json === true
          ? jsonLine(rows.map((row) => ({ id: row.id, name: row.name, agent: row.agent, state: row.state, reason: row.reason, created_ms: row.created_ms })))
          : controlListText(rows, context.clock()),
      );
      return 0;
    }
    const id = await control.find(args.words[0]);
    const check = store.check(id);
    const damaged = check.ok ? undefined : `event ${check.seq} ${check.fact}`;
    const view = control.runtime.view(id);
    if (flags.json === true) context.stdout.write(jsonLine({ ...controlJson(view), damaged: damaged ?? null }));
    else {
      context.stdout.write(
        `${controlText(view, store.pending(id))}${damaged === undefined ? '' : `  damaged    ${damaged}; it can be cancelled, not continued\n`}`,
      );
    }
    return 0;
  } finally {
    await control.close();
  }
}

import { setTimeout as delay } from 'node:timers/promises';
import type { StoredEvent } from '../../store/index.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openRuns } from '../open-runs.host.ts';
import { eventDay, eventLines } from '../report/events.ts';
import { eventJson, jsonLine } from '../report/json.ts';
import { livenessOf } from '../../store/index.ts';

/** How often the store is asked for new events with --follow, in milliseconds. */
const LOOK_MS = 200;

/** The recorded events of a run, oldest first; with --follow until it is over. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const { flags } = args;
  if (args.words[0]?.startsWith('ctl-') === true) {
    const { controlEvents } = await import('../control-events.host.ts');
    return await controlEvents(args, args.words[0], context);
  }
  const runs = await openRuns(context);
  try {
    const { store } = runs.runner.parts;
    const { id } = runs.find(args.words[0]);
    let seq = 0;
    let day: string | undefined;
    const show = (events: readonly StoredEvent[]): void => {
      const last = events.at(-1);
      if (last === undefined) return;
      context.stdout.write(
        flags.json === true ? events.map((event) => jsonLine(eventJson(event))).join('') : `${eventLines(events, context.columns, day).join('\n')}\n`,
      );
      seq = last.seq;
      day = eventDay(last);
    };
    const events = store.events(id);
    show(flags.limit === undefined ? events : events.slice(-flags.limit));
    while (flags.follow === true) {
      const live = store.readRun(id)?.lease;
      show(store.events(id, { seq }));
      if (live === null || live === undefined || livenessOf(live.owner) === 'dead') break;
      await delay(LOOK_MS);
    }
    return 0;
  } finally {
    runs.close();
  }
}

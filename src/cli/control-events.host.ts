import { setTimeout as delay } from 'node:timers/promises';
import { CONTROL_ENDS } from '../core/control.ts';
import type { ControlEvent } from '../store/index.ts';
import type { ParsedArgs } from './command.ts';
import type { CliContext } from './context.ts';
import { openControl } from './open-control.host.ts';
import { eventDay, eventLines } from './report/events.ts';
import { jsonLine } from './report/json.ts';

/** How often the store is asked for new events with --follow, in milliseconds. */
const LOOK_MS = 200;

/** Events of an agent run; with --follow until it is over, also while it waits for a decision. */
export async function controlEvents(args: ParsedArgs, selector: string, context: CliContext): Promise<number> {
  const { flags } = args;
  const control = await openControl(context);
  try {
    const store = control.runs.runner.parts.store.control;
    const id = await control.find(selector);
    let seq = 0;
    let day: string | undefined;
    const show = (events: readonly ControlEvent[]): void => {
      const last = events.at(-1);
      if (last === undefined) return;
      const text = eventLines(events, context.columns, day).join('\n');
      context.stdout.write(flags.json === true ? events.map((event) => jsonLine(eventJson(event))).join('') : `${text}\n`);
      seq = last.seq;
      day = eventDay(last);
    };
    const events = store.events(id);
    show(flags.limit === undefined ? events : events.slice(-flags.limit));
    while (flags.follow === true) {
      const over = CONTROL_ENDS.includes(store.read(id)?.state ?? 'failed');
      show(store.events(id, { seq }));
      if (over) break;
      await delay(LOOK_MS);
    }
    return 0;
  } finally {
    await control.close();
  }
}

function eventJson(event: ControlEvent): Parameters<typeof jsonLine>[0] {
  return { run: event.runId, seq: event.seq, time_ms: event.timeMs, kind: event.kind, data: event.data, hash: event.hash };
}

import type { JsonValue } from '../../core/json.ts';
import { safeLine } from '../../core/text-safety.ts';
import type { StoredEvent } from '../../store/event-chain.ts';
import { flow, pad } from './layout.ts';
import { clockWords, dateWords } from './words.ts';

const KIND = 22;
/** Of one fact; `--json` has all of it. */
const MOST_OF_FACT = 160;
const HEAD = 4 + 2 + 8 + 2 + KIND;

/** One event on one line or more: number, time, kind, facts. The date stands above the first event of each day. */
export function eventLines(events: readonly Pick<StoredEvent, 'seq' | 'timeMs' | 'kind' | 'data'>[], width: number, dayBefore?: string): readonly string[] {
  let day = dayBefore;
  return events.flatMap((event) => {
    const today = eventDay(event);
    const head = `${String(event.seq).padStart(4)}  ${clockWords(event.timeMs)}  ${pad(safeLine(event.kind, 80), KIND)}`;
    const facts = flow(factItems(event.data), Math.max(24, width - HEAD), '  ');
    const lines = [`${head}${facts[0] ?? ''}`.trimEnd(), ...facts.slice(1).map((line) => ' '.repeat(HEAD) + line)];
    const dated = today === day ? lines : [today, ...lines];
    day = today;
    return dated;
  });
}

/** `2026-12-01`: for `dayBefore` when a list goes on. */
export function eventDay(event: Pick<StoredEvent, 'timeMs'>): string {
  return dateWords(event.timeMs).slice(0, 10);
}

function factItems(data: JsonValue): readonly string[] {
  if (typeof data !== 'object' || data === null || Array.isArray(data)) return [safeLine(JSON.stringify(data), 300)];
  return Object.entries(data).map(
    ([key, value]: [string, JsonValue]) => `${safeLine(key, 80)}=${safeLine(typeof value === 'string' ? value : JSON.stringify(value), MOST_OF_FACT)}`,
  );
}

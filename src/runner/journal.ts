import { canonicalJson } from '../core/canonical-json.ts';
import { toSnake } from '../core/case.ts';
import { ProofrunError } from '../core/errors.ts';
import { newEventId, newOperationId, type EventId, type OperationId } from '../core/ids.ts';
import { parseStrictJson } from '../core/strict-json.ts';

export const JOURNAL_VERSION = 1;

interface JournalKind {
  /** The newest earlier event of one of these kinds is what led to this one. */
  readonly cause: readonly string[];
  /** The event belongs to the one process run of the attempt. */
  readonly operation: boolean;
  /** Names that `data` may hold. */
  readonly data: readonly string[];
}

/**
 * Everything that a journal may say: the life of a run, never what it changed, what it printed or which controls there were. The schema
 * (schemas/journal.schema.json) says the same; a test compares the two.
 */
export const JOURNAL_KINDS = {
  'run.recorded': { cause: [], operation: false, data: ['executor', 'mode'] },
  'run.refused': { cause: [], operation: false, data: ['reason', 'mode'] },
  'run.launched': { cause: ['run.recorded'], operation: false, data: [] },
  'gate.decided': { cause: ['run.launched'], operation: false, data: ['decision'] },
  'command.released': { cause: ['gate.decided'], operation: true, data: [] },
  'command.ended': { cause: ['command.released'], operation: true, data: ['ending', 'code', 'signal'] },
  'run.closed': { cause: ['command.ended', 'gate.decided', 'run.launched', 'run.recorded'], operation: false, data: [] },
  'bundle.written': { cause: ['run.closed', 'run.refused', 'run.recorded'], operation: false, data: ['sha256'] },
  'run.finished': { cause: ['bundle.written', 'run.closed'], operation: false, data: ['state', 'ending', 'exit_code'] },
} as const satisfies Record<string, JournalKind>;

export type JournalKindName = keyof typeof JOURNAL_KINDS;

/** What happened, as the runner tells it. */
export interface JournalNotice {
  readonly kind: string;
  readonly runId: string;
  readonly attempt: string | null;
  /** Milliseconds since the epoch. */
  readonly timeMs: number;
  readonly data: Readonly<Record<string, string | number | boolean | null>>;
}

/** One line. */
export interface JournalEntry {
  readonly version: 1;
  readonly id: EventId;
  readonly timeMs: number;
  readonly run: string;
  readonly attempt: string | null;
  readonly operation: OperationId | null;
  /** Id of the event that led to this one. */
  readonly cause: EventId | null;
  readonly kind: JournalKindName;
  readonly data: Readonly<Record<string, string | number | boolean | null>>;
}

/** Gives each notice its id, its operation and its cause. One a journal. */
export class JournalThread {
  readonly #seen = new Map<string, EventId>();
  readonly #operations = new Map<string, OperationId>();

  /** Throws ERR_INTERNAL for a kind or a name in `data` that the vocabulary doesn't have. */
  follow(notice: JournalNotice): JournalEntry {
    const kind = kindNamed(notice.kind);
    const row: JournalKind = JOURNAL_KINDS[kind];
    for (const name of Object.keys(notice.data)) if (!row.data.includes(name)) throw unknownWord(`${kind}: ${name}`);
    const id = newEventId(notice.timeMs);
    const cause = row.cause.map((earlier) => this.#seen.get(`${notice.runId} ${earlier}`)).find((found) => found !== undefined) ?? null;
    this.#seen.set(`${notice.runId} ${kind}`, id);
    return {
      version: JOURNAL_VERSION,
      id,
      timeMs: notice.timeMs,
      run: notice.runId,
      attempt: notice.attempt,
      operation: row.operation ? this.#operationOf(notice) : null,
      cause,
      kind,
      data: notice.data,
    };
  }

  #operationOf(notice: JournalNotice): OperationId {
    const key = notice.attempt ?? notice.runId;
    const operation = this.#operations.get(key) ?? newOperationId(notice.timeMs);
    this.#operations.set(key, operation);
    return operation;
  }
}

/** The line with its newline. */
export function formatEntry(entry: JournalEntry): string {
  return `${canonicalJson(toSnake(entry))}\n`;
}

/** True when the text is a whole line of a journal. */
export function isJournalLine(line: Uint8Array): boolean {
  try {
    const value = parseStrictJson(line);
    return typeof value === 'object' && value !== null && 'version' in value && 'kind' in value && 'run' in value && typeof value.version === 'number';
  } catch {
    return false;
  }
}

function kindNamed(kind: string): JournalKindName {
  if (!Object.hasOwn(JOURNAL_KINDS, kind)) throw unknownWord(kind);
  return kind as JournalKindName;
}

function unknownWord(word: string): ProofrunError {
  return new ProofrunError('ERR_INTERNAL', { message: `the journal has no word for ${JSON.stringify(word)}` });
}

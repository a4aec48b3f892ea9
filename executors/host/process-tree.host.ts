import { readFileSync, readdirSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { membersOf, parseStat, type ProcessRow } from './process-table.ts';

/** How long killed processes may take to go before they are given up. */
const PATIENCE_MS = 5000;
/** A process in an uninterruptible call stops late: it isn't waited for longer than this many looks. */
const MOST_LOOKS = 20;

function readTable(): readonly ProcessRow[] {
  let names: readonly string[];
  try {
    names = readdirSync('/proc');
  } catch {
    return []; // no /proc: not Linux
  }
  const rows: ProcessRow[] = [];
  for (const name of names) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const row = parseStat(readFileSync(`/proc/${name}/stat`, 'utf8'));
      if (row !== undefined) rows.push(row);
    } catch {
      // ended meanwhile
    }
  }
  return rows;
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // ended meanwhile, or of another user
  }
}

/** The processes that a command started, as far as the process table tells. Nothing holds them together: see HOST_SCOPES. */
export class ProcessTree {
  readonly leader: number;
  readonly #ownSession: boolean;
  /** Once the leader was waited for, its number may belong to somebody else. */
  #leaderEnded = false;

  constructor(leader: number, ownSession: boolean) {
    this.leader = leader;
    this.#ownSession = ownSession;
  }

  leaderHasEnded(): void {
    this.#leaderEnded = true;
  }

  #look(): readonly ProcessRow[] {
    const tree = { leader: this.leader, ownSession: this.#ownSession, leaderEnded: this.#leaderEnded };
    return membersOf(tree, readTable()).filter(({ pid }) => pid !== process.pid);
  }

  signalLeader(signal: NodeJS.Signals): void {
    if (!this.#leaderEnded) send(this.leader, signal);
  }

  /** A stopped tree starts nothing more, and its parents are still there to find it by: stops and looks again until nobody new is there and nobody runs. */
  async #stopped(first: readonly ProcessRow[]): Promise<readonly ProcessRow[]> {
    let rows = first;
    for (let round = 0; round < MOST_LOOKS; round++) {
      for (const { pid, state } of rows) if (state !== 'T') send(pid, 'SIGSTOP');
      const before = new Set(rows.map(({ pid }) => pid));
      rows = this.#look();
      if (rows.every(({ pid, state }) => before.has(pid) && state === 'T')) break;
      await delay(1);
    }
    return rows;
  }

  /** Kills what is found until nothing is. Resolves to the rows of all that were killed besides the leader, and of those still there after 5 s. */
  async kill(): Promise<{ readonly killed: readonly ProcessRow[]; readonly left: readonly ProcessRow[] }> {
    const killed = new Map<number, ProcessRow>();
    const deadline = performance.now() + PATIENCE_MS;
    for (let round = 0; ; round++) {
      const rows = this.#look();
      if (rows.length === 0) break;
      if (performance.now() > deadline) return { killed: [...killed.values()], left: rows };
      for (const row of await this.#stopped(rows)) {
        send(row.pid, 'SIGKILL');
        if (row.pid !== this.leader) killed.set(row.pid, row);
      }
      // Nobody announces the end of a process that isn't a child of ours.
      await delay(Math.min(2 ** round, 64));
    }
    // Also where there is no process table.
    if (this.#ownSession && !this.#leaderEnded) send(-this.leader, 'SIGKILL');
    return { killed: [...killed.values()], left: [] };
  }
}

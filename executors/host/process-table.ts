/** A row of the process table: proc_pid_stat(5). */
export interface ProcessRow {
  readonly pid: number;
  readonly name: string;
  readonly state: string;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
}

/** The text of /proc/<pid>/stat; a name may hold spaces and parentheses. Undefined when it is something else. */
export function parseStat(text: string): ProcessRow | undefined {
  const open = text.indexOf('(');
  const close = text.lastIndexOf(')');
  if (open < 0 || close < open) return undefined;
  const pid = Number(text.slice(0, open).trim());
  const [state, parent, group, session] = text.slice(close + 2).split(' ');
  if (!Number.isInteger(pid) || state === undefined || session === undefined) return undefined;
  return { pid, name: text.slice(open + 1, close), state, parent: Number(parent), group: Number(group), session: Number(session) };
}

/** Zombies and the dead hold nothing and need no killing. */
function lives({ state }: ProcessRow): boolean {
  return state !== 'Z' && state !== 'X' && state !== 'x';
}

export interface Tree {
  /** The process that was started. */
  readonly leader: number;
  /** It leads a session and a process group of its own. Else only parents tell who belongs to it. */
  readonly ownSession: boolean;
  /** It was waited for: a row with its number is somebody else's. */
  readonly leaderEnded: boolean;
}

/** The living processes that belong to a tree: its session, its group, and every descendant of a member. */
export function membersOf(tree: Tree, table: readonly ProcessRow[]): readonly ProcessRow[] {
  const { leader, ownSession, leaderEnded } = tree;
  // A number is free only when no session or group has it: nothing of ours is left.
  if (leaderEnded && table.some(({ pid }) => pid === leader)) return [];
  const members = new Set<number>();
  for (const { pid, group, session } of table) {
    if (pid === leader || (ownSession && (group === leader || session === leader))) members.add(pid);
  }
  for (let grew = true; grew;) {
    grew = false;
    for (const { pid, parent } of table) {
      if (members.has(parent) && !members.has(pid)) {
        members.add(pid);
        grew = true;
      }
    }
  }
  return table.filter((row) => members.has(row.pid) && lives(row));
}

/** Types of directory entry. A whiteout is not a type: it is the absence of one. */
export type EntryType = 'file' | 'directory' | 'symlink' | 'fifo' | 'socket' | 'block' | 'char';

export type ChangeKind = 'added' | 'modified' | 'deleted' | 'type_changed' | 'renamed' | 'attributes';

export interface EntryFacts {
  readonly type: EntryType;
  /** Bytes; of the target text for a symlink. */
  readonly size: number;
  /** Permission bits, setuid, setgid and sticky included (0o7777). */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Of the content of a file, or of the target of a symlink; lower-case hex. Absent for the other types. */
  readonly sha256?: string;
  /** Symlink target, base64 of its bytes when `targetEncoding` says so. */
  readonly target?: string;
  /** Only when the target isn't UTF-8. */
  readonly targetEncoding?: 'base64';
}

/** One staged change. `path` is relative to the staged root. */
export interface Change {
  /** Index of the staged root in the run's list (0: the workspace). */
  readonly root: number;
  readonly path: string;
  /** base64: the name isn't UTF-8, and `path` is the base64 of its bytes. */
  readonly encoding: 'utf8' | 'base64';
  readonly kind: ChangeKind;
  readonly before?: EntryFacts;
  readonly after?: EntryFacts;
  /** Old path of a rename. */
  readonly from?: string;
  readonly binary: boolean;
  readonly addedLines: number | null;
  readonly removedLines: number | null;
  /** Why the host would run it (policies/executes-on-host.yaml), else undefined. */
  readonly executes?: string;
  /** Why it can never be applied (device, socket, setuid), else undefined. */
  readonly unappliable?: string;
  /** A symlink that leads out of the root. */
  readonly leavesRoot?: boolean;
  /** The workspace changed here since the run began. */
  readonly conflict?: {
    readonly reason: string;
    readonly stagedSha256: string | null;
    readonly hereSha256: string | null;
    readonly stagedTimeMs: number | null;
    readonly hereTimeMs: number | null;
  };
  readonly applied?: boolean;
  /** A directory that comes or goes only with what lies in it: reports leave it out and the totals don't count it. */
  readonly implied?: boolean;
}

export interface ChangeSet {
  readonly changes: readonly Change[];
  readonly totals: {
    readonly added: number;
    readonly modified: number;
    readonly deleted: number;
    readonly other: number;
    readonly conflicts: number;
    readonly addedLines: number;
    readonly removedLines: number;
  };
}

/**
 * One path that an apply touched, kept with the run. present and absent: it was carried out; later looks at the stage
 * leave it out, and a directory that was made counts as the one that the run knew. restored: an apply that was rolled
 * back put it back as it was, and the ctime that it has by that is no sign of somebody's change.
 */
export interface AppliedPath {
  readonly root: number;
  readonly path: string;
  readonly encoding: 'utf8' | 'base64';
  readonly state: 'present' | 'absent' | 'restored';
  /** Identity in the tree after the apply, decimal; "0" when absent. `dev` is major << 32 | minor. */
  readonly dev: string;
  readonly ino: string;
  /** Only with `restored`: seconds and nanoseconds. */
  readonly ctime?: readonly [number, number];
}

/** One staged root on the host: the lower directory and the layer above it. */
export interface StagedRoot {
  /** Absolute host path of the directory that is staged. */
  readonly root: string;
  /** Directory of the layer's upper entries. */
  readonly upper: string;
  /** Overlayfs work directory. */
  readonly work: string;
  /** File that holds the preimage walk. */
  readonly preimage: string;
  /** Absolute paths of directories below it whose owner or group isn't the caller's, as they were at the start. Absent or empty for root. */
  readonly foreign?: readonly string[];
  /** A file has several names in it, or may have: as root they stay names of one file. */
  readonly linked?: boolean;
  /** A read-only layer between the directory and `upper`: the staged result that the run started from. Gone once the run is over: `upper` holds both then. */
  readonly base?: string;
  /** File that lists what the run itself touched. Only of a run that started from another result. */
  readonly index?: string;
  /** The results that are part of this stage, the latest first. */
  readonly earlier?: readonly EarlierStage[];
}

/** What a run contributed to the stage of a later one. */
export interface EarlierStage {
  readonly run: string;
  /** File that holds the walk before that run. */
  readonly preimage: string;
  /** File that lists what that run touched. */
  readonly index: string;
  /** Absolute paths that it could not see. */
  readonly hidden: readonly string[];
}

import type { ErrorKind } from './errors.ts';

interface ErrorRow {
  readonly kind: ErrorKind;
  /** One line for docs/reference/errors.md. */
  readonly summary: string;
}

/** Every error that Proofrun can show: `ERR_AREA_FACT`. docs/reference/errors.md is generated from this table. */
export const ERRORS = {
  ERR_USAGE: { kind: 'usage', summary: 'The command line is wrong: an unknown flag, a missing value, flags that contradict.' },
  ERR_JOB_FILE: { kind: 'usage', summary: 'A job file has an unknown or repeated key, a wrong type or unit; the message names file and line.' },
  ERR_JOB_UNTRUSTED: { kind: 'refused', summary: 'A job file inside a workspace asks for grants that nobody has accepted yet.' },
  ERR_POLICY_FILE: { kind: 'refused', summary: 'A policy or profile file is malformed, a symlink, too large, or writable by others.' },
  ERR_POLICY_CEILING: { kind: 'refused', summary: 'A grant is above a ceiling; both lines are named.' },
  ERR_PROFILE_UNKNOWN: { kind: 'usage', summary: 'No profile or policy has that name.' },
  ERR_WORKSPACE: { kind: 'usage', summary: 'The workspace is missing, is / or a home, or is a sensitive path.' },
  ERR_ADMISSION_REFUSED: { kind: 'refused', summary: 'No executor can plan what the mode needs; the refusal table says what is missing.' },
  ERR_EVIDENCE_MISSING: { kind: 'evidence', summary: 'A required receipt was missing or differed at the gate; the command was not started.' },
  ERR_CONTROL_LOST: { kind: 'control_lost', summary: 'A control was lost while the command ran, or was not there at the end.' },
  ERR_EXECUTOR_UNAVAILABLE: { kind: 'refused', summary: 'The executor can not run here; the reason and its remedy are named.' },
  ERR_IMAGE: { kind: 'launch', summary: 'The image is not on the engine, or can not be fetched; the next command is named.' },
  ERR_LAUNCH: { kind: 'launch', summary: 'The sandbox could not be built; the failing call is named.' },
  ERR_LIMIT: { kind: 'limit', summary: 'A limit of the job ended it.' },
  ERR_STAGE_CONFLICT: { kind: 'conflict', summary: 'The workspace changed since the run began; nothing was applied.' },
  ERR_STAGE_EXECUTES: { kind: 'conflict', summary: 'A selected path would be run by the host; it needs --allow-exec.' },
  ERR_STAGE_REFUSED: { kind: 'conflict', summary: 'A selected path can not be applied (device, socket, setuid, or a parent that is missing).' },
  ERR_STAGE_LAYER: { kind: 'internal', summary: 'The stage could not be read.' },
  ERR_STAGE_FULL: { kind: 'limit', summary: 'The disk or the limit that holds the stage is full.' },
  ERR_APPLY_INTERRUPTED: { kind: 'internal', summary: 'An apply ended half way; the message says what the next command does.' },
  ERR_APPLY_LOCKED: { kind: 'wrong_state', summary: 'Another command is applying to this workspace.' },
  ERR_RUN_NOT_FOUND: { kind: 'not_found', summary: 'No run matches the selector.' },
  ERR_RUN_AMBIGUOUS: { kind: 'not_found', summary: 'More than one run matches the selector.' },
  ERR_CHECKPOINT_NOT_FOUND: { kind: 'not_found', summary: 'No checkpoint, or more than one, matches the selector.' },
  ERR_CHECKPOINT_ALTERED: { kind: 'evidence', summary: 'A checkpoint does not hold what it held when it was made; the paths are named.' },
  ERR_AGENT: { kind: 'wrong_state', summary: 'The program in the job did not do what it was asked over AgentCtl, or does not speak it.' },
  ERR_PATH_NOT_FOUND: { kind: 'not_found', summary: 'No staged change is at that path.' },
  ERR_RUN_STATE: { kind: 'wrong_state', summary: 'The run is not in a state that allows this.' },
  ERR_STORE_UNREADABLE: { kind: 'internal', summary: 'The store can not be opened: owner, mode, link, damage or version.' },
  ERR_STORE_STALE: { kind: 'wrong_state', summary: 'The record changed under the command, or another process owns it.' },
  ERR_BUNDLE_INVALID: { kind: 'evidence', summary: 'A bundle is missing, altered, or lacks executor_observations.' },
  ERR_LOGIN_KEPT: { kind: 'conflict', summary: 'A login file that the job changed was not written back; the message names the copy that is kept.' },
  ERR_JOURNAL: { kind: 'usage', summary: 'The journal file can not be written.' },
  ERR_JSON: { kind: 'usage', summary: 'Strict JSON refused the text: bad UTF-8, a repeated key, trailing data, nesting, a number out of range.' },
  ERR_UPSTREAM_PROXY: { kind: 'usage', summary: 'A proxy variable of this machine can not be used; the message says what was expected.' },
  ERR_SHIM_MISSING: { kind: 'launch', summary: 'The shim is not built for this machine.' },
  ERR_SHIM_PROTOCOL: { kind: 'launch', summary: 'The shim said something that the protocol does not know.' },
  ERR_TRANSFER_READ: { kind: 'launch', summary: 'A file of the workspace could not be sent to the engine whole.' },
  ERR_TRANSFER_LIMIT: {
    kind: 'limit',
    summary: 'A tree that goes to the engine or comes back from it is beyond a limit of the transfer; nothing of it was staged.',
  },
  ERR_TRANSFER_STREAM: { kind: 'internal', summary: 'The tree that came back from the engine is not one that an engine sends; nothing of it was staged.' },
  ERR_ENGINE: { kind: 'launch', summary: 'The container engine refused or failed a call; its own words are in the message.' },
  ERR_IMAGE_SOURCE: { kind: 'usage', summary: 'The root filesystem for an image is missing, damaged or empty, or busybox is not installed.' },
  ERR_DISK_FULL: { kind: 'launch', summary: 'No space is left where the state directory lies.' },
  ERR_INTERNAL: { kind: 'internal', summary: 'A fault of Proofrun itself.' },
} as const satisfies Record<string, ErrorRow>;

export type ErrorCode = keyof typeof ERRORS;

import type { ControlId } from '../core/plan.ts';

/** One thing that every executor has to do. */
export interface Requirement {
  readonly id: string;
  readonly text: string;
  /** Holds only for executors that have this control; the others say in their scope what they lack. */
  readonly needs?: ControlId;
}

/**
 * The contract of Executor and Session, numbered. test/conformance runs each one against each backend, and checks that every
 * requirement has a test and every test a requirement. Numbers are never reused.
 */
export const REQUIREMENTS = [
  { id: 'REQ-01', text: "probe() answers with the executor's own id, and with a reason when it is not available." },
  { id: 'REQ-02', text: 'When launch() resolves every requirement of the gate has its receipt; none is added before release().' },
  { id: 'REQ-03', text: 'Nothing of the command runs before release().' },
  { id: 'REQ-04', text: 'release() starts the command once; a second call rejects and starts nothing.' },
  { id: 'REQ-05', text: 'The exit code of the command arrives as it is.' },
  { id: 'REQ-06', text: 'A signal that ended the command is reported by name and number.' },
  { id: 'REQ-07', text: 'The command gets its arguments byte for byte: empty, with newlines, quotes, any Unicode, 100 KiB long.' },
  { id: 'REQ-08', text: 'The command gets the projected environment byte for byte, and nothing else.', needs: 'environment' },
  { id: 'REQ-09', text: 'The command starts in the working directory of the job.' },
  { id: 'REQ-10', text: 'A command that does not exist ends as not_found with its errno; nothing throws.' },
  { id: 'REQ-11', text: 'A command that may not be executed ends as not_executable with its errno; nothing throws.' },
  { id: 'REQ-12', text: 'Standard output and standard error arrive apart and byte for byte.' },
  { id: 'REQ-13', text: 'A reader that stops reading holds the command up instead of filling memory; afterwards everything arrives.' },
  { id: 'REQ-14', text: 'Without standard input the command reads its end at once.' },
  { id: 'REQ-15', text: 'signal() reaches the command, which may handle it and go on.' },
  { id: 'REQ-16', text: 'signal("SIGKILL") ends the command and its children.' },
  { id: 'REQ-17', text: 'After a signal that came before release() the command never starts: release() rejects and exited resolves.' },
  { id: 'REQ-18', text: 'After close() without release() the command never starts, and exited resolves.' },
  { id: 'REQ-19', text: 'close() ends a running command, and exited resolves.' },
  { id: 'REQ-20', text: 'close() may be called again, and at the same time: one answer.' },
  { id: 'REQ-21', text: "After close() no process of the command's session lives: background, stopped, or deaf to signals." },
  { id: 'REQ-22', text: 'After close() no process that the command started lives, whatever session and parent it has.', needs: 'tree_killed' },
  { id: 'REQ-23', text: 'exited resolves when the command has ended, though a descendant holds its output; the streams end after close().' },
  { id: 'REQ-24', text: 'When the wall time is over the tree is ended, the ending is timeout, and wall_time is named as hit.', needs: 'wall_time' },
  { id: 'REQ-25', text: 'The command has descriptors 0, 1 and 2 and no other.', needs: 'descriptors' },
  { id: 'REQ-26', text: 'After close() the launching process has the descriptors and children that it had before.' },
  { id: 'REQ-27', text: 'An aborted launch rejects with ERR_LAUNCH, or gives a session that can be closed; nothing of it is left.' },
  { id: 'REQ-28', text: 'A session refused at the gate leaves no process and no mount, and the workspace as it was.' },
  { id: 'REQ-29', text: 'Observations name every dimension with a scope, and every level follows from the receipts in them.' },
  { id: 'REQ-30', text: 'Processes that outlived the command and were killed are named.' },
  { id: 'REQ-31', text: 'Sessions at the same time do not mix.' },
  { id: 'REQ-32', text: 'An argument with a NUL byte, which no system call can pass, makes launch() reject with ERR_LAUNCH.' },
  {
    id: 'REQ-33',
    text: 'A working directory that is missing keeps the command from starting: launch() rejects with ERR_LAUNCH, or the ending is launch_failed.',
  },
  { id: 'REQ-34', text: 'Output that was written right before the end arrives whole, however slowly it is read.' },
  { id: 'REQ-35', text: 'The command can open its output again: /dev/stdout and /dev/stderr work.' },
  {
    id: 'REQ-36',
    text: 'After close() what the command changed in the workspace lies in its layer, and the workspace is as it was.',
    needs: 'staged_workspace',
  },
] as const satisfies readonly Requirement[];

export type RequirementId = (typeof REQUIREMENTS)[number]['id'];

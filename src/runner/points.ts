/**
 * Named moments in the life of a run, in order. Crash tests stop a process at each of them and kill it there; nothing else depends on them.
 *
 *   recorded        the run and its plan are in the store
 *   stage-prepared  the layer's directories exist and the workspace was walked
 *   launched        the sandbox is built and waits
 *   gate            its receipts were compared with what is owed
 *   released        the command may start
 *   running         the store says so
 *   exited          the command's end is known
 *   closing         the tree is about to be ended and the final receipts taken
 *   closed          the sandbox is gone
 *   change-set      the stage was read
 *   bundle-written  the bundle is on disk
 *   committed       the store holds the end
 */
export const POINTS = [
  'recorded',
  'stage-prepared',
  'launched',
  'gate',
  'released',
  'running',
  'exited',
  'closing',
  'closed',
  'change-set',
  'bundle-written',
  'committed',
] as const;

/** Of a run that starts from the staged result of another, between `closed` and `change-set`. */
export const LAYER_POINTS = ['layers-joined', 'layers-named'] as const;
export type LayerPoint = (typeof LAYER_POINTS)[number];

/**
 *   checkpoint-recorded  the store knows that it is being made
 *   checkpoint-layers    its layers were taken over
 *   checkpoint-written   its manifest is on disk
 *   checkpoint-whole     the store says that it can be used
 *   checkpoint-going     the store says that it goes
 *   checkpoint-gone      its files are gone
 */
export const CHECKPOINT_POINTS = [
  'checkpoint-recorded',
  'checkpoint-layers',
  'checkpoint-written',
  'checkpoint-whole',
  'checkpoint-going',
  'checkpoint-gone',
] as const;
export type CheckpointPoint = (typeof CHECKPOINT_POINTS)[number];
/**
 *   login-judged   what the job left may be written back
 *   login-written  the new file lies beside the host's
 *   login-renamed  it has taken the host's place
 *   login-settled  the record of the run says so
 */
export type LoginPoint = 'login-judged' | 'login-written' | 'login-renamed' | 'login-settled';

export type Point = (typeof POINTS)[number] | LayerPoint | CheckpointPoint;

/** Called at each point; the run goes on when it resolves. */
export type AtPoint = (point: Point) => Promise<void>;

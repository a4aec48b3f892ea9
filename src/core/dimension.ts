/** The eight dimensions in which a job can be confined (DESIGN: each is claimed and proven on its own). */
export const DIMENSIONS = ['file_read', 'file_write', 'network', 'subprocess', 'credentials', 'models', 'tools', 'resources'] as const;
export type Dimension = (typeof DIMENSIONS)[number];

/** The four dimensions that --safe and --strict always need, and that `--degrade` can't waive. */
export const CONTAINMENT_DIMENSIONS = ['file_read', 'file_write', 'network', 'subprocess'] as const;

/** What an executor can promise before the run. */
export type PlanLevel = 'unsupported' | 'cooperative' | 'planned';

/** What receipts of this run proved. Nothing else makes a level. */
export type ObservedLevel = 'unenforced' | 'cooperative' | 'enforced';

/** default: install what works, record what is missing. safe: refuse when containment is missing. strict: no waiver at all. */
export const MODES = ['default', 'safe', 'strict'] as const;
export type Mode = (typeof MODES)[number];

/** A flag or a file can only raise the mode, never lower it. */
export function raiseMode(a: Mode, b: Mode): Mode {
  return MODES.indexOf(a) >= MODES.indexOf(b) ? a : b;
}

/** One value for each dimension. */
export type PerDimension<T> = Readonly<Record<Dimension, T>>;

/** Builds a PerDimension from a function; total, in the order of DIMENSIONS. */
export function perDimension<T>(make: (dimension: Dimension) => T): PerDimension<T> {
  return {
    file_read: make('file_read'),
    file_write: make('file_write'),
    network: make('network'),
    subprocess: make('subprocess'),
    credentials: make('credentials'),
    models: make('models'),
    tools: make('tools'),
    resources: make('resources'),
  };
}

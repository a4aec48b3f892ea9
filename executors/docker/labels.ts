import { createHash } from 'node:crypto';

/** Labels of everything that is made on an engine. An image can't set them: ours win. */
export const LABEL = { run: 'io.proofrun.run', state: 'io.proofrun.state', owner: 'io.proofrun.owner' } as const;

/** The process that owns a container: number, start in the kernel's ticks, and the boot of the machine that they belong to. */
export interface OwnerMark {
  readonly pid: number;
  readonly started: string;
  readonly boot: string;
  /** Number of the pid namespace that the process is counted in. Undefined: a label of an earlier version. */
  readonly namespace?: string;
}

export function formatOwner(owner: OwnerMark): string {
  return [owner.pid, owner.started, owner.boot, ...(owner.namespace === undefined ? [] : [owner.namespace])].join('.');
}

/** Undefined: no label of ours. */
export function parseOwner(text: string | undefined): OwnerMark | undefined {
  const match = /^(\d{1,10})\.(\d{1,20})\.([0-9a-f-]{1,64})(?:\.(\d{1,20}))?$/.exec(text ?? '');
  return match?.[1] === undefined || match[2] === undefined || match[3] === undefined
    ? undefined
    : { pid: Number(match[1]), started: match[2], boot: match[3], ...(match[4] === undefined ? {} : { namespace: match[4] }) };
}

/** Which state directory a container belongs to, by that directory's own token: paths are the same on many machines and in many containers. */
export function stateMark(token: string): string {
  return createHash('sha256').update(token).digest('hex').slice(0, 24);
}

/** The run's directory name: unique, and the same when the run is reaped later. */
export function runMark(scratch: string): string {
  return scratch.split('/').at(-2) ?? 'run';
}

export function labelsOf(scratch: string, stateToken: string, owner: OwnerMark): Readonly<Record<string, string>> {
  return { [LABEL.run]: runMark(scratch), [LABEL.state]: stateMark(stateToken), [LABEL.owner]: formatOwner(owner) };
}

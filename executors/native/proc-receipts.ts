import type { JsonValue } from '../../src/core/json.ts';
import { mintReceipt, type Receipt, type ReceiptPhase } from '../../src/core/receipt.ts';
import { parseStatus } from '../shim/receipts.ts';
import type { CgroupFact } from './cgroup-facts.host.ts';

function procReceipt(id: string, readFrom: string, value: JsonValue, phase: ReceiptPhase = 'gate'): Receipt {
  return mintReceipt({ id, kind: 'fact', source: 'proc', phase, readFrom, value });
}

/** /proc/<pid>/status of the command's process, read by the host. */
export function receiptsOfStatus(text: string, pid: number): readonly Receipt[] {
  const from = `/proc/${pid}/status on the host`;
  const parsed = parseStatus(text);
  const values: readonly (readonly [string, JsonValue | undefined])[] = [
    ['outside.no_new_privs', parsed.noNewPrivs],
    ['outside.capabilities', parsed.capabilities],
    ['outside.seccomp', parsed.seccomp],
    ['outside.ids', parsed.ids],
  ];
  return values.flatMap(([id, value]) => (value === undefined ? [] : [procReceipt(id, from, value)]));
}

/** Where a file that the command's process made came to lie, by lstat(2) of the host. */
export function receiptOfLanding(id: string, upper: string, inUpper: boolean, onHost: boolean): Receipt {
  const value = inUpper && !onHost ? 'in our layer only' : inUpper ? 'in our layer and on the host' : onHost ? 'on the host' : 'nowhere';
  return procReceipt(id, `lstat(2) of ${upper}`, value);
}

/** Sockets of the job's network that wait for connections or datagrams, each with whether it belongs to this process. */
export function receiptOfListeners(listeners: readonly string[], readFrom: string, phase: ReceiptPhase = 'gate'): Receipt {
  return procReceipt(phase === 'gate' ? 'net.listeners' : 'end.net.listeners', readFrom, listeners, phase);
}

/** Listeners of published ports on the host, by this process's own tables. */
export function receiptOfPublished(listeners: readonly string[], readFrom: string, phase: ReceiptPhase = 'gate'): Receipt {
  return procReceipt(phase === 'gate' ? 'net.published' : 'end.net.published', readFrom, listeners, phase);
}

/** PID 1 of the sandbox after the end: `/proc/<pid>` is gone, or names another process. */
export function receiptOfInitGone(pid: number, gone: boolean): Receipt {
  return procReceipt('end.init_gone', `/proc/${pid} on the host`, gone ? 'gone' : 'alive', 'end');
}

const LIMIT_IDS = { memory_limit: 'limit.memory', swap_limit: 'limit.swap', process_limit: 'limit.processes', cpu_limit: 'limit.cpus' } as const;

/** Limits of the control groups that /proc/<pid>/cgroup of the job names; `source`: who read them. */
export function receiptsOfCgroup(facts: readonly CgroupFact[], source: 'proc' | 'shim' = 'proc'): readonly Receipt[] {
  return facts.flatMap((fact) =>
    fact.name === 'group' ? [] : [mintReceipt({ id: LIMIT_IDS[fact.name], kind: 'fact', source, phase: 'gate', readFrom: fact.file, value: fact.value })],
  );
}

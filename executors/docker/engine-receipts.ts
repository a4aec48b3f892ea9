import type { JsonValue } from '../../src/core/json.ts';
import { mintReceipt, type Receipt } from '../../src/core/receipt.ts';

function object(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}
const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
const strings = (value: unknown): readonly string[] => list(value).filter((one): one is string => typeof one === 'string');
const sorted = (value: unknown): readonly string[] => [...strings(value)].sort();

/** A value of inspect that isn't there gives no receipt. */
function scalar(value: unknown): JsonValue | undefined {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? value : undefined;
}

/** The mounts that the engine really made, each with what it was asked for: an overlay's options, a volume's name, a bind's source. */
function mountsOf(inspect: Readonly<Record<string, unknown>>, host: Readonly<Record<string, unknown>>): JsonValue {
  const asked = new Map(list(host['Mounts']).map((one) => [String(object(one)['Target']), object(one)]));
  return list(inspect['Mounts'])
    .map((one) => object(one))
    .map((mount) => {
      const target = String(mount['Destination']);
      const options = object(object(object(asked.get(target)?.['VolumeOptions'])['DriverConfig'])['Options']);
      const named = asked.get(target)?.['Source'] !== undefined;
      const from = mount['Type'] === 'volume' ? (named ? mount['Name'] : options['o']) : mount['Source'];
      return { type: String(mount['Type']), target, writable: mount['RW'] === true, from: typeof from === 'string' ? from : '' };
    })
    .sort((a, b) => (a.target < b.target ? -1 : 1));
}

/**
 * The receipts that GET /containers/<id>/json gives, read while the container waits at the gate. The engine says what it was told and
 * set; what the kernel made of it is read from inside and from /proc.
 */
export function receiptsOfInspect(value: unknown): readonly Receipt[] {
  const inspect = object(value);
  const host = object(inspect['HostConfig']);
  const config = object(inspect['Config']);
  const text = (one: unknown): string => (typeof one === 'string' ? one : '');
  const health = strings(object(config['Healthcheck'])['Test']);
  const values: readonly (readonly [string, string, JsonValue | undefined])[] = [
    ['engine.image', 'Image', scalar(inspect['Image'])],
    ['engine.mounts', 'Mounts, HostConfig.Mounts', mountsOf(inspect, host)],
    ['engine.readonly_rootfs', 'HostConfig.ReadonlyRootfs', scalar(host['ReadonlyRootfs'])],
    ['engine.masked_paths', 'HostConfig.MaskedPaths', sorted(host['MaskedPaths'])],
    ['engine.readonly_paths', 'HostConfig.ReadonlyPaths', sorted(host['ReadonlyPaths'])],
    ['engine.network_mode', 'HostConfig.NetworkMode', scalar(host['NetworkMode'])],
    [
      'engine.namespaces',
      'HostConfig.PidMode, IpcMode, UTSMode, CgroupnsMode',
      { pid: text(host['PidMode']), ipc: text(host['IpcMode']), uts: text(host['UTSMode']), cgroup: text(host['CgroupnsMode']) },
    ],
    [
      'engine.process',
      'Path, Args, Config.User, HostConfig.Init',
      { path: text(inspect['Path']), args: strings(inspect['Args']), user: text(config['User']), init: host['Init'] === true },
    ],
    ['engine.healthcheck', 'Config.Healthcheck', health[0] === 'NONE' ? 'none' : health.join(' ')],
    [
      'engine.privileges',
      'HostConfig.Privileged, CapAdd, CapDrop, Devices',
      {
        privileged: host['Privileged'] === true,
        cap_add: sorted(host['CapAdd']),
        cap_drop: sorted(host['CapDrop']),
        devices: list(host['Devices']).length === 0 ? [] : ['some'],
      },
    ],
    ['engine.security', 'HostConfig.SecurityOpt', sorted(host['SecurityOpt'])],
    [
      'engine.ulimits',
      'HostConfig.Ulimits',
      Object.fromEntries(list(host['Ulimits']).map((one) => [text(object(one)['Name']), `${String(object(one)['Soft'])}:${String(object(one)['Hard'])}`])),
    ],
    ['engine.pids_limit', 'HostConfig.PidsLimit', scalar(host['PidsLimit'])],
    ['engine.memory', 'HostConfig.Memory, MemorySwap', { memory: scalar(host['Memory']) ?? null, with_swap: scalar(host['MemorySwap']) ?? null }],
    ['engine.cpu', 'HostConfig.CpuQuota, CpuPeriod', { quota_us: scalar(host['CpuQuota']) ?? null, period_us: scalar(host['CpuPeriod']) ?? null }],
    ['engine.runtime', 'HostConfig.Runtime', scalar(host['Runtime'])],
  ];
  return values.flatMap(([id, field, read]) =>
    read === undefined ? [] : [mintReceipt({ id, kind: 'fact', source: 'engine', phase: 'gate', readFrom: `${field} of the engine's inspect`, value: read })],
  );
}

/** The number of the container's first process on the engine's machine; undefined: it doesn't run. */
export function pidOfInspect(value: unknown): number | undefined {
  const pid = object(object(value)['State'])['Pid'];
  return typeof pid === 'number' && Number.isInteger(pid) && pid > 0 ? pid : undefined;
}

/** Where a file that the command's process made came to lie, by the engine's archive of the volume and lstat(2) of the host. */
export function receiptOfVolumeLanding(id: string, place: string, inVolume: boolean, onHost: boolean): Receipt {
  const value = inVolume && !onHost ? 'in our layer only' : inVolume ? 'in our layer and on the host' : onHost ? 'on the host' : 'nowhere';
  return mintReceipt({ id, kind: 'fact', source: 'engine', phase: 'gate', readFrom: `HEAD archive of ${place}`, value });
}

/** The engine has no such container any more, so nothing of it runs. */
export function receiptOfContainerGone(id: string, gone: boolean): Receipt {
  const readFrom = `the engine's inspect of ${id.slice(0, 12)}`;
  return mintReceipt({ id: 'end.init_gone', kind: 'fact', source: 'engine', phase: 'end', readFrom, value: gone ? 'gone' : 'alive' });
}

/** What the job changed came back, to the last byte of the engine's stream. */
export function receiptOfReturn(released: boolean): Receipt {
  const readFrom = released ? "the engine's archive of the staged volumes, read to its end" : 'the command was never released';
  return mintReceipt({ id: 'end.stage.returned', kind: 'fact', source: 'engine', phase: 'end', readFrom, value: 'whole' });
}

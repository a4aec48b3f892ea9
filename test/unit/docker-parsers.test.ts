import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { AttachSplitter } from '../../executors/docker/attach-channel.host.ts';
import { parseEngineInfo, parseImage } from '../../executors/docker/engine-facts.ts';
import { pidOfInspect, receiptsOfInspect } from '../../executors/docker/engine-receipts.ts';
import { formatOwner, labelsOf, parseOwner } from '../../executors/docker/labels.ts';
import { foldProgress, noProgress } from '../../executors/docker/pull-progress.ts';
import { registryOf } from '../../executors/docker/registry-auth.host.ts';
import { runtimesOf } from '../../executors/docker/runtimes.ts';
import { CONTROLS } from '../../src/core/plan.ts';
import { isReceipt } from '../../src/core/receipt.ts';

describe('what an engine says', () => {
  it('any answer is parsed without a throw, and each receipt is one, with a place', () => {
    fc.assert(
      fc.property(fc.anything(), (value) => {
        parseEngineInfo(value);
        parseImage(value);
        pidOfInspect(value);
        for (const receipt of receiptsOfInspect(value)) {
          expect(isReceipt(receipt)).toBe(true);
          expect([receipt.source, receipt.phase, receipt.readFrom]).toEqual(['engine', 'gate', expect.stringMatching(/inspect$/)]);
        }
      }),
    );
  });

  const value = (id: string, inspect: unknown): unknown => receiptsOfInspect(inspect).find((one) => one.id === id)?.value;

  it('what is missing gives no receipt, or one that says so', () => {
    expect(value('engine.image', {})).toBeUndefined();
    expect(value('engine.readonly_rootfs', {})).toBeUndefined();
    expect(value('engine.pids_limit', { HostConfig: { PidsLimit: null } })).toBeUndefined();
    expect(value('engine.privileges', {})).toEqual({ privileged: false, cap_add: [], cap_drop: [], devices: [] });
  });

  it('a mount more than was asked for is in the list', () => {
    const inspect = {
      Mounts: [
        { Type: 'volume', Destination: '/w', RW: true },
        { Type: 'volume', Destination: '/data', RW: true },
      ],
      HostConfig: { Mounts: [{ Type: 'volume', Target: '/w', VolumeOptions: { DriverConfig: { Options: { o: 'lowerdir=/a' } } } }] },
    };
    expect(value('engine.mounts', inspect)).toEqual([
      { type: 'volume', target: '/data', writable: true, from: '' },
      { type: 'volume', target: '/w', writable: true, from: 'lowerdir=/a' },
    ]);
  });

  it('an image is named by its whole digest', () => {
    const id = `sha256:${'a'.repeat(64)}`;
    expect(parseImage({ Id: id, RepoDigests: ['b', 'a'], Config: { Env: ['A=1', 'B'], Volumes: { '/v': {} } } })).toMatchObject({
      id,
      digests: ['a', 'b'],
      variables: ['A', 'B'],
      volumes: ['/v'],
    });
    expect(parseImage({ Id: 'sha256:short' })).toBeUndefined();
  });
});

describe('labels', () => {
  it('an owner is read as it was written', () => {
    const owner = { pid: 17, started: '12345', boot: '0a0b-1' };
    expect(parseOwner(formatOwner(owner))).toEqual(owner);
    expect(parseOwner(formatOwner({ ...owner, namespace: '4026531836' }))).toEqual({ ...owner, namespace: '4026531836' });
    for (const text of [undefined, '', '1', '1.2', 'x.1.a', '1.2.a b', '-1.2.a']) expect(parseOwner(text)).toBeUndefined();
  });

  it('hold no path of the machine', () => {
    const labels = labelsOf('/home/ana/state/runs/run-1/scratch', '/home/ana/state', { pid: 1, started: '2', boot: 'a' });
    expect(JSON.stringify(labels)).not.toContain('/');
    expect(labels['io.proofrun.run']).toBe('run-1');
  });
});

describe('the attach stream', () => {
  const frame = (stream: number, text: string): Buffer => {
    const head = Buffer.alloc(8);
    head[0] = stream;
    head.writeUInt32BE(Buffer.byteLength(text), 4);
    return Buffer.concat([head, Buffer.from(text)]);
  };

  it('is the same however it is cut', () => {
    const whole = Buffer.concat([frame(1, 'one'), frame(2, 'not this'), frame(1, ''), frame(1, 'two')]);
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1 }), (sizes) => {
        const splitter = new AttachSplitter();
        let text = '';
        for (let at = 0, turn = 0; at < whole.length; turn++) {
          const size = sizes[turn % sizes.length] ?? 1;
          text += Buffer.concat([...splitter.push(whole.subarray(at, at + size))]).toString();
          at += size;
        }
        expect(text).toBe('onetwo');
      }),
    );
  });

  it('anything else is refused', () => {
    expect(() => new AttachSplitter().push(Buffer.from('HTTP/1.1 500'))).toThrow(/no attach stream/);
    const huge = Buffer.alloc(8);
    huge[0] = 1;
    huge.writeUInt32BE(0x7fffffff, 4);
    expect(() => new AttachSplitter().push(huge)).toThrow(/no attach stream/);
  });
});

describe('fetching an image', () => {
  it('adds up what its layers say, and survives anything', () => {
    let state = noProgress('node:20');
    state = foldProgress(state, { status: 'Downloading', id: 'a', progressDetail: { current: 5, total: 10 } });
    state = foldProgress(state, { status: 'Downloading', id: 'b', progressDetail: { current: 1, total: 20 } });
    state = foldProgress(state, { status: 'Downloading', id: 'a', progressDetail: { current: 10, total: 10 } });
    expect([state.bytes, state.totalBytes]).toEqual([11, 30]);
    fc.assert(
      fc.property(fc.anything(), (event) => {
        expect(foldProgress(state, event).bytes).toBeGreaterThanOrEqual(0);
      }),
    );
  });

  it.each([
    ['node:20', 'https://index.docker.io/v1/'],
    ['ana/app', 'https://index.docker.io/v1/'],
    ['registry.example/app', 'registry.example'],
    ['localhost/app', 'localhost'],
    ['host:5000/app', 'host:5000'],
  ])('%s comes from %s', (reference, registry) => {
    expect(registryOf(reference)).toBe(registry);
  });
});

describe('runtimes', () => {
  it('a kernel in user space has no receipts of what it does not show; the others have all', () => {
    const [runc, runsc] = runtimesOf(['runc', 'runsc'], CONTROLS);
    expect(runc?.controls).toEqual(CONTROLS);
    expect(runsc?.controls).not.toContain('seccomp');
    expect(runsc?.controls).toContain('network_namespace');
    expect(runsc?.note).toMatch(/user space/);
  });
});

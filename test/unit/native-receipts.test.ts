import { describe, expect, test } from 'vitest';
import { parseMountinfo, summariseTable, summariseUppers, tmpfsBytes, formatMount } from '../../executors/native/mountinfo.ts';
import { receiptOfLanding, receiptsOfStatus } from '../../executors/native/proc-receipts.ts';
import { hasEnded, lives, markProcess } from '../../executors/native/process-end.host.ts';
import { parseStatus, receiptsAtGate, type ShimReceiptInput } from '../../executors/shim/receipts.ts';
import { isReceipt } from '../../src/core/receipt.ts';

const STATUS = `Name:\tsh
Uid:\t1500\t1500\t1500\t1500
Gid:\t1500\t1500\t1500\t1500
Groups:\t27 4 1500
CapInh:\t0000000000000000
CapPrm:\t0000000000000000
CapEff:\t0000000000000000
CapBnd:\t0000000000000000
CapAmb:\t0000000000000000
NoNewPrivs:\t1
Seccomp:\t2
Seccomp_filters:\t1
`;

describe('/proc/PID/status', () => {
  test('of a confined process', () => {
    expect(parseStatus(STATUS)).toEqual({ noNewPrivs: 1, capabilities: 'none', seccomp: 2, filters: 1, ids: { uid: 1500, gid: 1500 }, groups: [4, 27, 1500] });
  });

  test.each([
    ['one capability anywhere is told', 'CapBnd:\t0000000000000000', 'CapBnd:\t0000000000200000', { capabilities: 'CapBnd=0000000000200000' }],
    ['a set that is not there is not empty', 'CapAmb:\t0000000000000000\n', '', { capabilities: 'CapAmb=unread' }],
    ['a saved uid of root is told', 'Uid:\t1500\t1500\t1500\t1500', 'Uid:\t1500\t1500\t0\t1500', { ids: '1500\t1500\t0\t1500 1500\t1500\t1500\t1500' }],
    ['a line that is not there gives nothing', 'NoNewPrivs:\t1\n', '', { noNewPrivs: undefined }],
    ['a number that is none gives nothing', 'Seccomp:\t2', 'Seccomp:\ttwo', { seccomp: undefined }],
  ])('%s', (_reason, from, to, expected) => {
    expect(parseStatus(STATUS.replace(from, to))).toMatchObject(expected);
  });

  test('what is not there gives no receipt', () => {
    expect(receiptsOfStatus(STATUS.replace('Seccomp:\t2\n', ''), 7).map(({ id }) => id)).toEqual([
      'outside.no_new_privs',
      'outside.capabilities',
      'outside.ids',
    ]);
  });
});

describe('mountinfo', () => {
  const LINES = [
    '100 99 0:50 / / ro,nosuid,nodev,relatime - tmpfs proofrun rw,mode=755',
    '101 100 0:51 / /with\\040space rw,nosuid,nodev,relatime - overlay proofrun rw,lowerdir+=/a,upperdir=/state/upper,workdir=/state/work',
    '102 100 0:52 / /tmp rw,nosuid,nodev - tmpfs proofrun rw,size=16384k',
    '103 100 0:53 / /open rw master:5 - tmpfs x rw',
    '104 100 0:54 / /long rw,nosuid - overlay proofrun rw,upperdir=/proc/self/fd/9',
    'no line at all',
  ].join('\n');
  const parsed = parseMountinfo(LINES);

  test('each mount with its place, type and protective flags', () => {
    expect(summariseTable(parsed)).toEqual([
      '/ tmpfs ro nosuid nodev',
      '/long overlay rw nosuid',
      '/open tmpfs rw',
      '/tmp tmpfs rw nosuid nodev',
      '/with space overlay rw nosuid nodev',
    ]);
    expect(formatMount('/x', 'proc', ['rw', 'noexec', 'relatime'])).toBe('/x proc rw noexec');
  });

  test('upper layers by name, or null where they went in as a descriptor', () => {
    expect(summariseUppers(parsed)).toEqual([
      { mount_point: '/long', upper: null },
      { mount_point: '/with space', upper: '/state/upper' },
    ]);
  });

  test('propagation and sizes', () => {
    expect(parsed.filter((line) => line.propagates).map((line) => line.mountPoint)).toEqual(['/open']);
    expect(parsed.map(tmpfsBytes)).toEqual([null, null, 16 << 20, null, null]);
  });
});

describe('what the shim reports', () => {
  const fact = (id: string, text: string) => [id, { say: 'fact', id, from: `read ${id}`, bytes: Buffer.from(text) }] as const;
  const input = (facts: readonly (readonly [string, string])[], more: Partial<ShimReceiptInput> = {}): ShimReceiptInput => ({
    facts: new Map(facts.map(([id, text]) => fact(id, text))),
    probes: [],
    digest: (bytes) => bytes.byteLength,
    processLimitByRlimit: true,
    mounts: () => ({ table: [], propagation: [], writable: [], executable: [], stage: [], tmp_size: null }),
    ...more,
  });
  const valueOf = (facts: readonly (readonly [string, string])[], id: string): unknown => receiptsAtGate(input(facts)).find((one) => one.id === id)?.value;

  test.each([
    ['a file that could not be read', [['status', '!13']], 'status.seccomp'],
    ['a timer that is not armed', [['wall.armed_ms', '0']], 'wall.armed_ms'],
    ['a timer that says something else', [['wall.armed_ms', '-1']], 'wall.armed_ms'],
    ['a namespace that could not be read', [['ns.net', '!2']], 'ns.net'],
    ['no report at all', [], 'fds'],
    ['routes without a table', [['net.route', '!2']], 'net.routes'],
    ['a keyring that was looked at only once', [['keyring.after', '7']], 'keyring.session'],
  ] as const)('%s gives no receipt', (_reason, facts, id) => {
    expect(valueOf(facts, id)).toBeUndefined();
  });

  test.each([
    ['a timer', [['wall.armed_ms', '1500']], 'wall.armed_ms', 1500],
    ['descriptors', [['fds', '0:pipe:1:2 1:pipe:1:3 9:file:4:5']], 'fds', ['0:pipe', '1:pipe', '9:file']],
    ['no descriptors', [['fds', '']], 'fds', []],
    ['processes', [['proc.pids', '10 2 1']], 'proc.pids', [1, 2, 10]],
    [
      'a keyring of its own',
      [
        ['keyring.before', '5'],
        ['keyring.after', '7'],
      ],
      'keyring.session',
      'fresh',
    ],
    [
      "the caller's keyring",
      [
        ['keyring.before', '7'],
        ['keyring.after', '7'],
      ],
      'keyring.session',
      'inherited',
    ],
    [
      'a join that failed',
      [
        ['keyring.before', '7'],
        ['keyring.after', '-13'],
      ],
      'keyring.session',
      'inherited',
    ],
    [
      'a kernel without keyrings',
      [
        ['keyring.before', '-38'],
        ['keyring.after', '-38'],
      ],
      'keyring.session',
      'no keyrings in this kernel',
    ],
    ['a route that leaves', [['net.route', 'Iface\tDestination\n eth0\t00000000\t0101A8C0\n lo\t0000007F\t0\n']], 'net.routes', ['v4 eth0 00000000']],
    ['limits', [['rlimits', '4=0:0 6=128:128']], 'limit.processes', 128],
  ] as const)('%s', (_reason, facts, id, value) => {
    expect(valueOf(facts, id)).toEqual(value);
  });

  test('a limit on processes that a control group keeps is not taken from the rlimit', () => {
    expect(receiptsAtGate(input([['rlimits', '6=128:128']], { processLimitByRlimit: false })).map(({ id }) => id)).toEqual(['rlimits']);
  });

  test('every receipt is one, and says where it was read', () => {
    const receipts = receiptsAtGate(
      input(
        [
          ['status', STATUS],
          ['ns.mnt', 'mnt:[2]'],
        ],
        { probes: [{ say: 'probe', id: 'probe.x', attempt: 'open(2) of /x', errno: 13 }] },
      ),
    );
    expect(receipts.length).toBeGreaterThan(5);
    expect(receipts.every(isReceipt)).toBe(true);
    expect(receipts.find(({ id }) => id === 'probe.x')).toMatchObject({ kind: 'probe', value: 'EACCES', readFrom: 'open(2) of /x' });
    expect(receipts.find(({ id }) => id === 'status.ids')?.readFrom).toBe('read status');
  });

  test.each([
    [true, false, 'in our layer only'],
    [true, true, 'in our layer and on the host'],
    [false, true, 'on the host'],
    [false, false, 'nowhere'],
  ])('a landing: in the layer %s, on the host %s', (inUpper, onHost, value) => {
    expect(receiptOfLanding('stage.landed', '/upper/x', inUpper, onHost).value).toBe(value);
  });
});

describe('the end of a process', () => {
  test('a process lives until it has ended; its number alone is not enough', async () => {
    const own = markProcess(process.pid);
    if (own === undefined) throw new Error('this process is not there');
    expect(lives(own)).toBe(true);
    expect(lives({ ...own, started: '1' })).toBe(false);
    expect(await hasEnded({ ...own, started: '1' }, 0)).toBe(true);
    expect(await hasEnded(own, 0)).toBe(false);
    expect(markProcess(2 ** 22 + 1)).toBeUndefined();
  });
});

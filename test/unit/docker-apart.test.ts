import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { formatSent, parseSent } from '../../executors/docker/apart/sent-record.ts';
import { readVolumeMounts } from '../../executors/docker/apart/volume-mounts.ts';

const ID = 'a'.repeat(64);
const line = (root: string, point: string, options: string, rest: string): string => `100 99 0:30 ${root} ${point} ${options} - ${rest}`;
/** As runc makes them: a root, a volume, the engine's files, closed paths. */
const TABLE = [
  line('/', '/', 'ro,relatime', 'overlay overlay rw'),
  line('/', '/proc', 'rw,nosuid,nodev,noexec', 'proc proc rw'),
  line('/sys', '/proc/sys', 'ro,nosuid,nodev,noexec', 'proc proc rw'),
  line('/', '/proc/acpi', 'ro,relatime', 'tmpfs tmpfs ro'),
  line('/null', '/proc/kcore', 'rw,nosuid', 'tmpfs tmpfs rw'),
  line('/', '/sys/fs/cgroup/memory', 'ro,nosuid,nodev,noexec', 'cgroup cgroup rw,memory'),
  line('/var/lib/docker/volumes/proofrun-1-2/_data', '/w', 'rw,relatime master:1', 'ext4 /dev/vda rw'),
  line(`/var/lib/docker/containers/${ID}/hosts`, '/etc/hosts', 'ro,relatime', 'ext4 /dev/vda rw'),
];

describe('the mount table of a container on another machine', () => {
  test('volumes are named by the directory that the kernel shows, and what is the machine’s choice is left out', () => {
    const read = readVolumeMounts(TABLE.join('\n'), ['/w']);
    expect(read.table).toEqual(['/ root ro', '/etc/hosts engine ro', '/proc proc rw nosuid nodev noexec', '/w volume proofrun-1-2 rw']);
    expect(read.stage).toEqual([{ mount_point: '/w', upper: 'proofrun-1-2' }]);
    expect(read.writable).toEqual(['/proc', '/w']);
    expect(read.propagation).toEqual([]);
  });

  const strange: readonly (readonly [string, string])[] = [
    ['a bind of the machine in place of a closed path', line('/etc', '/proc/acpi', 'ro,relatime', 'ext4 /dev/vda rw')],
    ['a closed path that can be written', line('/', '/proc/acpi', 'rw,relatime', 'tmpfs tmpfs rw')],
    ['a hierarchy of control groups that can be written', line('/', '/sys/fs/cgroup/pids', 'rw,nosuid,nodev,noexec', 'cgroup cgroup rw,pids')],
    ['/proc/sys that can be written', line('/sys', '/proc/sys', 'rw,nosuid,nodev,noexec', 'proc proc rw')],
    ['a file of another place as /etc/hosts', line('/home/x/hosts', '/etc/hosts', 'ro,relatime', 'ext4 /dev/vda rw')],
    ['a directory that only ends like a volume', line('/volumes/../_data', '/w2', 'rw,relatime', 'ext4 /dev/vda rw')],
    ['another volume', line('/var/lib/docker/volumes/other/_data', '/w', 'rw,relatime', 'ext4 /dev/vda rw')],
  ];
  test.each(strange)('%s is a line of its own', (_, one) => {
    expect(readVolumeMounts([...TABLE, one].join('\n'), ['/w']).table).not.toEqual(readVolumeMounts(TABLE.join('\n'), ['/w']).table);
  });

  test('a mount that sends what is mounted below it is seen', () => {
    const shared = '100 99 0:30 /var/lib/docker/volumes/proofrun-1-2/_data /w rw,relatime shared:7 - ext4 /dev/vda rw';
    expect(readVolumeMounts([...TABLE, shared].join('\n'), ['/w']).propagation).toEqual(['/w']);
  });

  test('a mount that the plan does not know is never left out of the table', () => {
    const part = fc.stringMatching(/^[a-z_.]{1,8}$/);
    fc.assert(
      fc.property(
        fc.array(part, { minLength: 1, maxLength: 4 }),
        fc.constantFrom('ext4', 'overlay', 'devtmpfs', 'sysfs', 'fuse'),
        fc.boolean(),
        (names, type, ro) => {
          const added = line('/', `/${names.join('/')}`, ro ? 'ro,relatime' : 'rw,relatime', `${type} x rw`);
          const table = readVolumeMounts([...TABLE, added].join('\n'), []).table;
          expect(Array.isArray(table) && table.length).toBe(5);
        },
      ),
    );
  });
});

describe('the record of what was sent', () => {
  const sent = {
    container: ID,
    markers: 'user',
    roots: [{ path: '/proofrun-2', root: { root: '/w', upper: '/s/upper', work: '/s/work', preimage: '/s/preimage' } }],
  } as const;
  test('is read as it was written', () => {
    expect(parseSent(formatSent(sent))).toEqual(sent);
  });
  test('anything else is none', () => {
    for (const text of [
      '',
      '{}',
      '[]',
      'null',
      formatSent({ ...sent, container: 'x' }),
      formatSent({ ...sent, roots: [{ ...sent.roots[0], path: 'proofrun-2' }] }),
    ]) {
      expect(parseSent(text)).toBeUndefined();
    }
    fc.assert(fc.property(fc.json(), (text) => void parseSent(text)));
  });
});

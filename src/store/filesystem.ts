/**
 * What a filesystem means for SQLite in WAL mode, by the magic number of statfs(2). WAL needs shared memory between all processes that
 * use the database, and locks that hold: network filesystems have neither (sqlite.org/wal.html).
 */
export type FilesystemVerdict =
  { readonly kind: 'local' } | { readonly kind: 'network'; readonly name: string } | { readonly kind: 'doubtful'; readonly name: string };

const NETWORK = new Map([
  [0x6969, 'NFS'],
  [0x517b, 'SMB'],
  [0xff534d42, 'CIFS'],
  [0xfe534d42, 'SMB2'],
  [0x5346414f, 'AFS'],
  [0x6b414653, 'kAFS'],
  [0x73757245, 'Coda'],
  [0x00c36400, 'Ceph'],
  [0x0bd00bd0, 'Lustre'],
  [0x47504653, 'GPFS'],
  [0x19830326, 'BeeGFS'],
  [0x564c, 'NCP'],
]);

/** May be local or not: FUSE carries sshfs and virtiofs as well as local drivers. GFS2 and OCFS2 are shared disks. */
const DOUBTFUL = new Map([
  [0x65735546, 'FUSE'],
  [0x01021997, '9p'],
  [0x786f4256, 'vboxsf'],
  [0x01161970, 'GFS2'],
  [0x7461636f, 'OCFS2'],
]);

/** `type` is the f_type of statfs(2), as Node gives it. */
export function judgeFilesystem(type: number): FilesystemVerdict {
  // The kernel's field is signed on some machines.
  const magic = type >>> 0;
  const network = NETWORK.get(magic);
  if (network !== undefined) return { kind: 'network', name: network };
  const doubtful = DOUBTFUL.get(magic);
  return doubtful === undefined ? { kind: 'local' } : { kind: 'doubtful', name: doubtful };
}

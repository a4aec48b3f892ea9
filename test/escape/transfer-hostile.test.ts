import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { TransferLimits } from '../../executors/docker/transfer/index.ts';
import { ProofrunError } from '../../src/core/errors.ts';
import { downloadLab } from '../support/download-lab.host.ts';
import { naiveUntar } from '../support/naive-untar.host.ts';
import { archive, END, forged, type ForgedEntry } from '../support/tar-forge.ts';
import { temporaryDirectories } from '../support/temporary.ts';
import { useStageDriver } from '../support/stage-lab.host.ts';
import { TransferLab } from '../support/transfer-lab.host.ts';
import { describeUsers } from '../support/users.host.ts';

const directory = temporaryDirectories();

interface Attack {
  readonly bytes: (canary: string) => Buffer;
  /** Of the message. */
  readonly refused: RegExp;
  readonly limits?: Partial<TransferLimits>;
}

const file = (name: string, content = 'evil'): ForgedEntry => ({ name, content });
const link = (name: string, target: string): ForgedEntry => ({ name, type: 'link', link: target });
const symlink = (name: string, target: string): ForgedEntry => ({ name, type: 'symlink', link: target });
const folder = (name: string): ForgedEntry => ({ name, type: 'directory' });
const bomb = (records: Readonly<Record<string, string>>): ForgedEntry => ({ ...file('ws/f'), pax: records });

/** Archives that change the canary when a careless program unpacks them. */
const ESCAPES: Readonly<Record<string, Attack>> = {
  'a name with ..': { bytes: () => archive(file('ws/../../canary/file')), refused: /a name with \.\./ },
  'an absolute name': { bytes: (canary) => archive(file(`${canary}/file`)), refused: /an absolute name/ },
  'an absolute name in an extended header': { bytes: (canary) => archive({ ...file('ws/f'), pax: { path: `${canary}/file` } }), refused: /an absolute name/ },
  'a file through a symlink of the archive': {
    bytes: (canary) => archive(symlink('ws/out', canary), file('ws/out/file')),
    refused: /an entry beneath a symlink/,
  },
  'a file through a relative symlink': {
    bytes: () => archive(symlink('ws/out', '../../canary'), file('ws/out/file')),
    refused: /an entry beneath a symlink/,
  },
  'a file written through a symlink of its own name': {
    bytes: (canary) => archive(symlink('ws/f', `${canary}/file`), file('ws/f')),
    refused: /a name twice/,
  },
  'a hard link to a file outside, then written through': {
    bytes: (canary) => archive(link('ws/f', `${canary}/file`), file('ws/f')),
    refused: /an absolute name|a hard link to what is not a file/,
  },
  'a hard link with ..': { bytes: () => archive(link('ws/f', 'ws/../../canary/file'), file('ws/f')), refused: /a name with \.\./ },
  'a root that is a symlink': {
    bytes: (canary) => Buffer.concat([forged(symlink('ws', canary)), forged(file('ws/file')), END]),
    refused: /does not begin with its root directory/,
  },
};

const huge = 10 * 2 ** 40;

const ATTACKS: Readonly<Record<string, Attack>> = {
  ...ESCAPES,
  'a hard link to a later entry': { bytes: () => archive(link('ws/a', 'ws/b'), file('ws/b')), refused: /not a file that came before/ },
  'a hard link to a directory': { bytes: () => archive(folder('ws/d/'), link('ws/a', 'ws/d')), refused: /not a file that came before/ },
  'a hard link to a symlink': { bytes: () => archive(symlink('ws/l', 'old'), link('ws/a', 'ws/l')), refused: /not a file that came before/ },
  'a hard link to itself': { bytes: () => archive(link('ws/a', 'ws/a')), refused: /not a file that came before/ },
  'a hard link outside of the root directory': { bytes: () => archive(link('ws/a', 'canary/file')), refused: /outside of the root directory/ },
  'a hard link with content': { bytes: () => archive({ ...link('ws/a', 'ws/b'), content: 'x' }), refused: /a link with content/ },
  'a directory with content': { bytes: () => archive({ ...folder('ws/d/'), content: Buffer.alloc(512) }), refused: /a directory with content/ },
  'a name outside of the root directory': { bytes: () => archive(file('other/f')), refused: /outside of the root directory/ },
  'a second root': { bytes: () => archive(folder('ws/')), refused: /a name twice/ },
  'a name twice': { bytes: () => archive(file('ws/f'), file('ws/f', 'other')), refused: /a name twice/ },
  'a file, then a directory of its name': { bytes: () => archive(file('ws/f'), folder('ws/f/'), file('ws/f/g')), refused: /a name twice/ },
  'an entry beneath a file': { bytes: () => archive(file('ws/f'), file('ws/f/g')), refused: /an entry beneath a file/ },
  'an entry before its directory': { bytes: () => archive(file('ws/d/f')), refused: /an entry before its directory/ },
  'a name with an empty part': { bytes: () => archive(folder('ws/d/'), file('ws/d//f')), refused: /an empty part/ },
  'a file with a slash at its end': { bytes: () => archive(file('ws/f/')), refused: /an empty part/ },
  'a name with the part .': { bytes: () => archive(file('ws/./f')), refused: /the part \./ },
  'an empty name': { bytes: () => archive(file('')), refused: /an empty part|absolute/ },
  'NUL in a name': { bytes: () => archive({ ...file('ws/f'), pax: { path: 'ws/f\0/../../x' } }), refused: /NUL in path/ },
  'NUL in a target': { bytes: () => archive({ ...symlink('ws/l', 'x'), pax: { linkpath: 'a\0b' } }), refused: /NUL in linkpath/ },
  'a symlink without a target': { bytes: () => archive(symlink('ws/l', '')), refused: /without a target/ },
  'a size that is negative': { bytes: () => archive({ ...file('ws/f'), alter: (block) => block.fill(0xff, 124, 136) }), refused: /size: a negative number/ },
  'a size beyond 2^53': {
    bytes: () =>
      archive({
        ...file('ws/f'),
        alter: (block) => {
          block.fill(0, 124, 136);
          block[124] = 0x80;
          block[127] = 0x7f;
        },
      }),
    refused: /size: a number above 2\^53/,
  },
  'a size that is no number': { bytes: () => archive({ ...file('ws/f'), alter: (block) => block.write('0x11', 124) }), refused: /size: not a number/ },
  'a negative size in an extended header': { bytes: () => archive(bomb({ size: '-1' })), refused: /size is not a whole number/ },
  'a size like 1e3': { bytes: () => archive(bomb({ size: '1e3' })), refused: /size is not a whole number/ },
  'a huge file': {
    bytes: () =>
      archive({
        ...file('ws/f'),
        alter: (block) => {
          block.writeUInt32BE(0x80000000, 124);
          block.writeBigUInt64BE(BigInt(huge), 128);
        },
      }),
    refused: /a file of more than/,
  },
  'a huge size in an extended header': { bytes: () => archive(bomb({ size: String(huge) })), refused: /a file of more than/ },
  'many files that are huge together': {
    bytes: () => archive(...Array.from({ length: 8 }, (_, index) => ({ name: `ws/${index}`, content: Buffer.alloc(1 << 20, 1) }))),
    refused: /more than 4MiB of files in all/,
    limits: { bytes: 4 << 20 },
  },
  'more changes than are kept': {
    bytes: () => archive(...Array.from({ length: 8 }, (_, index) => ({ name: `ws/${index}`, content: Buffer.alloc(1 << 20, 1) }))),
    refused: /more than 4MiB of changed files/,
    limits: { keptBytes: 4 << 20 },
  },
  'a sparse file of GNU tar': { bytes: () => archive({ ...file('ws/f'), alter: (block) => block.write('S', 156) }), refused: /GNU sparse file/ },
  'a sparse bomb in an extended header': {
    bytes: () => archive(bomb({ 'GNU.sparse.major': '1', 'GNU.sparse.minor': '0', 'GNU.sparse.name': 'ws/g', 'GNU.sparse.realsize': String(huge) })),
    refused: /GNU sparse file/,
  },
  'a GNU long name': { bytes: () => archive({ ...file('ws/f', '../../x'), alter: (block) => block.write('L', 156) }), refused: /GNU long name/ },
  'a GNU long link': { bytes: () => archive({ ...file('ws/f', '../../x'), alter: (block) => block.write('K', 156) }), refused: /GNU long link/ },
  'a global extended header': {
    bytes: () => archive({ ...file('ws/f', '11 path=/x\n'), alter: (block) => block.write('g', 156) }),
    refused: /global extended header/,
  },
  'an unknown type': { bytes: () => archive({ ...file('ws/f'), alter: (block) => block.write('Q', 156) }), refused: /an entry of type "Q"/ },
  'a header of the old format': { bytes: () => archive({ ...file('ws/f'), alter: (block) => block.fill(0, 257, 265) }), refused: /not of the POSIX format/ },
  'a wrong checksum': { bytes: () => archive({ ...file('ws/f'), badChecksum: true }), refused: /checksum/ },
  'an extended header that is a bomb': {
    bytes: () => archive({ ...file('ws/f'), pax: Buffer.alloc(300 << 10, 0x20) }),
    refused: /an extended header of more than/,
  },
  'an extended header of a size that is never sent': {
    bytes: () => archive({ name: 'PaxHeader', type: 'pax', size: 2 ** 32 }),
    refused: /an extended header of more than/,
  },
  'an extended header for an extended header': {
    bytes: () => archive({ ...file('ws/f'), type: 'pax', content: '9 uid=1\n', pax: { path: 'ws/g' } }),
    refused: /two extended headers/,
  },
  'an extended header at the end': { bytes: () => archive({ name: 'x', type: 'pax', content: '9 path=x\n' }), refused: /without its entry/ },
  'a record longer than its header': { bytes: () => archive({ ...file('ws/f'), pax: Buffer.from('99 path=ws/g\n') }), refused: /length is wrong/ },
  'a record of length 0': { bytes: () => archive({ ...file('ws/f'), pax: Buffer.from('0 path=ws/g\n') }), refused: /length is wrong/ },
  'a record that eats the next': {
    bytes: () => archive({ ...file('ws/f'), pax: Buffer.from('6 a=b\n5 a=\n') }),
    refused: /without a key|length is wrong|twice/,
  },
  'a key twice': { bytes: () => archive({ ...file('ws/f'), pax: Buffer.from('11 path=ws\n11 path=wx\n') }), refused: /path twice/ },
  'records without end': {
    bytes: () => archive({ ...file('ws/f'), pax: Object.fromEntries(Array.from({ length: 2000 }, (_, index) => [`k${index}`, 'v'])) }),
    refused: /more than 1024 records/,
  },
  'an owner that is none': { bytes: () => archive(bomb({ uid: '4294967295' })), refused: /uid is not a whole number/ },
  'a time that is none': { bytes: () => archive(bomb({ mtime: 'NaN' })), refused: /mtime is not a time/ },
  'more entries than allowed': {
    bytes: () => archive(...Array.from({ length: 60 }, (_, index) => file(`ws/${index}`))),
    refused: /more than 50 entries/,
    limits: { entries: 50 },
  },
  'directories without end': {
    bytes: () => archive(...Array.from({ length: 40 }, (_, index) => folder(`ws/${'d/'.repeat(index + 1)}`))),
    refused: /more than 30 directories one in another/,
    limits: { depth: 30 },
  },
  'a name that no directory holds': {
    bytes: () => archive({ ...file('x'), pax: { path: `ws/${'n'.repeat(256)}` } }),
    refused: /a name of more than 255 bytes/,
  },
  'a path that no system call takes': {
    bytes: () => archive(...paths(40).map((path) => ({ ...folder('x'), pax: { path: `ws/${path}/` } }))),
    refused: /a path of more than 4095 bytes/,
  },
  'a target that no link holds': {
    bytes: () => archive({ ...symlink('ws/l', 'x'), pax: { linkpath: 't'.repeat(4096) } }),
    refused: /a path of more than 4095 bytes/,
  },
  'paths that fill the memory': {
    bytes: () => archive(...paths(30).map((path) => ({ ...folder('x'), pax: { path: `ws/${path}/` } }))),
    refused: /more than 32KiB of paths/,
    limits: { allPathBytes: 32 << 10 },
  },
  'a stream that ends in a header': { bytes: () => archive(file('ws/f')).subarray(0, 700), refused: /ended before the archive did/ },
  'a stream that ends in content': { bytes: () => archive(file('ws/f', 'x'.repeat(5000))).subarray(0, 3000), refused: /ended before the archive did/ },
  'a stream that ends between entries': { bytes: () => archive(file('ws/f')).subarray(0, -1024), refused: /ended before the archive did/ },
  'one block of zeros at the end': { bytes: () => archive(file('ws/f')).subarray(0, -512), refused: /ended before the archive did/ },
  'no bytes at all': { bytes: () => Buffer.alloc(0), refused: /ended before the archive did/ },
  'bytes after the end': { bytes: () => Buffer.concat([archive(file('ws/f')), Buffer.from('garbage')]), refused: /bytes after the end/ },
  'another archive after the end': { bytes: () => Buffer.concat([archive(file('ws/f')), archive(file('ws/g'))]), refused: /bytes after the end/ },
  'zeros without end': { bytes: () => Buffer.concat([archive(file('ws/f')), Buffer.alloc(2 << 20)]), refused: /bytes after the end/ },
  'an entry after a block of zeros': { bytes: () => archive(file('ws/f'), Buffer.alloc(512), file('ws/g')), refused: /after a block of zeros/ },
};

/** Nested directories of 250 bytes each: the first so many. */
function paths(count: number): readonly string[] {
  return Array.from({ length: count }, (_, index) => Array.from({ length: index + 1 }, () => 'd'.repeat(250)).join('/'));
}

test.each(Object.entries(ESCAPES))('control arm: unpacked without care, %s changes what lies outside', async (_, { bytes }) => {
  const lab = await downloadLab(directory());
  await naiveUntar(bytes(lab.canary), join(lab.base, 'naive'));
  expect(readFileSync(join(lab.canary, 'file'), 'utf8')).toBe('evil');
});

test.each(Object.entries(ATTACKS))('%s is refused, and nothing is written', async (_, { bytes, refused, limits }) => {
  const lab = await downloadLab(directory());
  const before = lab.surroundings();
  const hostile = bytes(lab.canary);
  for (const chunk of [65_536, 509]) {
    const answer = await lab.stage(hostile, { chunk, ...(limits === undefined ? {} : { limits }) });
    if (!(answer instanceof ProofrunError)) throw new Error(`it was taken: ${JSON.stringify(answer)}`);
    expect(['ERR_TRANSFER_STREAM', 'ERR_TRANSFER_LIMIT']).toContain(answer.code);
    expect(answer.message).toMatch(refused);
    expect(readdirSync(lab.root.upper)).toEqual([]);
    expect(lab.surroundings()).toEqual(before);
  }
  // The stage is as good as before.
  expect(await lab.stage(archive(file('ws/old', 'old'), file('ws/new', 'fine')))).not.toBeInstanceOf(ProofrunError);
  expect(readdirSync(lab.root.upper)).toEqual(['new']);
});

test('links that lead anywhere are staged as links, and nothing is read or written through them', async () => {
  const lab = await downloadLab(directory());
  const before = lab.surroundings();
  const answer = await lab.stage(
    archive(
      file('ws/old', 'old'),
      symlink('ws/a', lab.canary),
      symlink('ws/b', '../../../../etc/passwd'),
      symlink('ws/c', '/proc/self/fd/0'),
      symlink('ws/d', 'd'),
    ),
  );
  expect(answer).not.toBeInstanceOf(ProofrunError);
  expect(readdirSync(lab.root.upper).sort()).toEqual(['a', 'b', 'c', 'd']);
  expect(lab.surroundings()).toEqual(before);
});

test('devices are left out, and one that looks like a whiteout deletes nothing', async () => {
  const lab = await downloadLab(directory());
  const device = (name: string, major: number, minor: number, type: 'char' | 'block' = 'char'): ForgedEntry => ({ name, type, device: { major, minor } });
  const answer = await lab.stage(archive(device('ws/old', 0, 0), device('ws/null', 1, 3), device('ws/disk', 8, 0, 'block'), file('ws/f')));
  if (answer instanceof ProofrunError) throw answer;
  expect(answer.leftOut.map(({ path, why }) => `${path}: ${why}`)).toEqual(['disk: a device', 'null: a device', 'old: a device']);
  expect(readdirSync(lab.root.upper)).toEqual(['f']);
});

test('names that look like marks of a layer are names', async () => {
  const lab = await downloadLab(directory());
  await lab.stage(
    archive(file('ws/old', 'old'), file('ws/.wh.old', ''), file('ws/.wh..wh..opq', ''), {
      ...file('ws/x', ''),
      pax: { 'SCHILY.xattr.trusted.overlay.whiteout': 'y' },
    }),
  );
  expect(readdirSync(lab.root.upper).sort()).toEqual(['.wh..wh..opq', '.wh.old', 'x']);
});

test('names that differ only in case are two names', async () => {
  const lab = await downloadLab(directory());
  await lab.stage(archive(folder('ws/.GIT/'), file('ws/.GIT/config'), folder('ws/.git/'), file('ws/.git/config', 'two'), file('ws/old', 'old')));
  expect(readFileSync(join(lab.root.upper, '.GIT/config'), 'utf8')).toBe('evil');
  expect(readFileSync(join(lab.root.upper, '.git/config'), 'utf8')).toBe('two');
});

describeUsers('hostile archives', (user) => {
  useStageDriver();

  test('leave the canary as it is, and the error says that nothing was staged', async () => {
    const lab = await TransferLab.away(user, 'echo old > old');
    await lab.upload();
    const canary = lab.directory('canary');
    await lab.here(`echo canary > '${canary}/file'`);
    for (const [name, { bytes }] of Object.entries(ESCAPES)) {
      const outcome = await lab.downloadBytes(bytes(canary));
      expect([name, outcome.error?.code]).toEqual([name, 'ERR_TRANSFER_STREAM']);
      expect(outcome.error?.message).toContain('nothing of it was staged');
      expect(readFileSync(join(canary, 'file'), 'utf8')).toBe('canary\n');
      expect(readdirSync(lab.upper)).toEqual([]);
      expect(lab.leftBeside()).toEqual([]);
    }
  });
});

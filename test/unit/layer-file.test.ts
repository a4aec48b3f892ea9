import { execFileSync } from 'node:child_process';
import { chmodSync, linkSync, mkdirSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { readLayerFile } from '../../src/runner/layer-file.host.ts';
import { temporaryDirectories } from '../support/temporary.ts';

const directory = temporaryDirectories();
const NAMES = ['.tool', 'auth.json'];

function layer(): { readonly top: string; readonly file: string } {
  const top = directory();
  mkdirSync(join(top, '.tool'));
  return { top, file: join(top, '.tool/auth.json') };
}

it('reads a regular file of the layer, and sees that there is none', () => {
  const { top, file } = layer();
  expect(readLayerFile(top, NAMES, 10)).toEqual({ kind: 'absent' });
  writeFileSync(file, '0123456789');
  expect(readLayerFile(top, NAMES, 10)).toEqual({ kind: 'file', bytes: Buffer.from('0123456789') });
  expect(readLayerFile(directory(), NAMES, 10)).toEqual({ kind: 'absent' });
});

it('a whiteout is a deletion, of the file and of a directory above it', (context) => {
  if (process.geteuid?.() !== 0) return context.skip('only root makes device nodes here');
  const { top, file } = layer();
  execFileSync('mknod', [file, 'c', '0', '0']);
  expect(readLayerFile(top, NAMES, 10)).toEqual({ kind: 'deleted' });
  const other = directory();
  execFileSync('mknod', [join(other, '.tool'), 'c', '0', '0']);
  expect(readLayerFile(other, NAMES, 10)).toEqual({ kind: 'deleted' });
  const device = layer();
  execFileSync('mknod', [device.file, 'c', '1', '5']);
  expect(readLayerFile(device.top, NAMES, 10)).toMatchObject({ kind: 'refused', reason: 'no regular file' });
});

it.each<readonly [string, (at: { readonly top: string; readonly file: string }) => void, RegExp]>([
  ['a link', ({ file, top }) => symlinkSync(join(top, 'x'), file), /a symbolic link/],
  ['a FIFO', ({ file }) => execFileSync('mkfifo', [file]), /a FIFO/],
  ['a directory', ({ file }) => mkdirSync(file), /a directory/],
  [
    'a second name',
    ({ file, top }) => {
      writeFileSync(file, 'x');
      linkSync(file, join(top, 'second'));
    },
    /2 names/,
  ],
  [
    'one byte too many',
    ({ file }) => {
      writeFileSync(file, '0123456789a');
    },
    /a file of 11 bytes/,
  ],
  [
    'a hole of a terabyte',
    ({ file }) => {
      writeFileSync(file, '');
      truncateSync(file, 1e12);
    },
    /a file of 1000000000000 bytes/,
  ],
])('%s is refused, without waiting and without following it', (_what, make, reason) => {
  const at = layer();
  make(at);
  const read = readLayerFile(at.top, NAMES, 10);
  expect(read.kind === 'refused' ? read.reason : read.kind).toMatch(reason);
});

it('a socket is refused', async () => {
  const { top, file } = layer();
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(file, resolve));
  expect(readLayerFile(top, NAMES, 10)).toMatchObject({ kind: 'refused', reason: 'no regular file' });
  await new Promise((resolve) => server.close(resolve));
});

it('a directory on the way that is a link, or a file, leads nowhere', () => {
  const elsewhere = directory();
  writeFileSync(join(elsewhere, 'auth.json'), 'secret');
  const top = directory();
  symlinkSync(elsewhere, join(top, '.tool'));
  expect(readLayerFile(top, NAMES, 10)).toEqual({ kind: 'refused', reason: 'a symbolic link' });
  const file = directory();
  writeFileSync(join(file, '.tool'), 'x');
  expect(readLayerFile(file, NAMES, 10)).toMatchObject({ kind: 'refused', reason: 'below something that is no directory' });
  const link = join(directory(), 'layer');
  symlinkSync(elsewhere, link);
  expect(readLayerFile(link, ['auth.json'], 10).kind).toBe('refused');
});

it('what the job made unreadable is refused in words', (context) => {
  if (process.geteuid?.() === 0) return context.skip('root reads everything');
  const { top, file } = layer();
  writeFileSync(file, 'x');
  chmodSync(file, 0);
  expect(readLayerFile(top, NAMES, 10)).toMatchObject({ kind: 'refused', reason: 'not readable (EACCES)' });
});

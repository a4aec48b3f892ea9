import { expect, test } from 'vitest';
import { mountsBelow } from '../../src/stage/stage-directory.host.ts';

const line = (point: string) => `36 35 98:0 / ${point} rw,noatime shared:1 - ext4 /dev/root rw`;

test('mount points below a root, with their escapes undone, and no neighbour', () => {
  const info = [line('/'), line('/ws'), line('/ws/b'), line('/ws/a\\040b\\134c'), line('/wsx/c'), line('/ws/\\303\\251'), ''].join('\n');
  expect(mountsBelow(info, '/ws')).toEqual(['/ws/a b\\c', '/ws/b', '/ws/é']);
  expect(mountsBelow('', '/ws')).toEqual([]);
});

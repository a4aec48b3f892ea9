import { expect, test } from 'vitest';
import { leavesRoot } from '../../src/stage/symlink-target.ts';
import { path } from '../support/stage-facts.ts';

const links: Readonly<Record<string, string>> = { out: '/etc', up: '..', in: 'd', loop: 'loop', 'd/deep': '../in', chain: 'out/x' };
const linkAt = (at: string) => (links[at] === undefined ? undefined : path(links[at]));

test.each([
  ['l', 'f', false],
  ['l', 'd/../f', false],
  ['l', '.', false],
  ['l', '..', true],
  ['d/l', '..', false],
  ['d/l', '../..', true],
  ['d/l', '../../ws/f', true],
  ['l', '/ws/f', false],
  ['l', '/ws', false],
  ['l', '/wsx', true],
  ['l', '/ws/../etc', true],
  ['l', 'out/passwd', true],
  ['l', 'chain', true],
  ['l', 'in/f', false],
  ['l', 'd/deep/f', false],
  ['l', 'up/f', true],
  ['l', 'loop', true],
  ['l', 'missing/../..', true],
])('a link at %s to %s leaves: %s', (at, target, leaves) => {
  expect(leavesRoot(path(at), path(target), '/ws', linkAt)).toBe(leaves);
});

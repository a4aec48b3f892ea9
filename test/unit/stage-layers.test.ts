import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, linkSync, lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { locateShim } from '../../executors/shim/locate.host.ts';
import { bytePathOfText } from '../../src/stage/byte-path.ts';
import { parseLayerIndex } from '../../src/stage/layer-index.ts';
import { listLayer, mergeLayers, readLayerIndex } from '../../src/stage/layer.host.ts';
import { temporaryDirectories } from '../support/temporary.ts';

const shim = locateShim();
const fresh = temporaryDirectories();
const asRoot = process.geteuid?.() === 0;

let base: string;
let place: (name: string) => string;

beforeEach(() => {
  base = fresh();
  place = (name) => join(base, name);
});

function layer(name: string, files: Readonly<Record<string, string>>): string {
  const root = place(name);
  mkdirSync(root);
  for (const [path, text] of Object.entries(files)) {
    const full = join(root, path);
    mkdirSync(join(full, '..'), { recursive: true });
    if (text === 'WHITEOUT') execFileSync('mknod', [full, 'c', '0', '0']);
    else if (text === 'DIRECTORY') mkdirSync(full);
    else writeFileSync(full, text);
  }
  return root;
}

function tree(root: string, below = ''): readonly string[] {
  return readdirSync(join(root, below))
    .sort()
    .flatMap((name) => {
      const path = join(below, name);
      const facts = lstatSync(join(root, path));
      if (facts.isDirectory()) return [`${path}/`, ...tree(root, path)];
      if (facts.isSymbolicLink()) return [`${path} -> ${readlinkSync(join(root, path))}`];
      return [facts.isCharacterDevice() ? `${path} gone` : `${path}=${readFileSync(join(root, path), 'utf8')}`];
    });
}

describe('layers', () => {
  it('of two the upper one wins, and files are linked, not copied', async () => {
    const lower = layer('lower', { a: '1', 'd/x': 'x', 'd/y': 'y', only: 'o', 'sub/deep/f': 'f' });
    const upper = layer('upper', { a: '2', 'd/x': 'X', 'new/n': 'n' });
    symlinkSync('nowhere', join(upper, 'l'));
    await mergeLayers({ shim, to: place('to'), base: lower, over: upper });
    expect(tree(place('to'))).toEqual(['a=2', 'd/', 'd/x=X', 'd/y=y', 'l -> nowhere', 'new/', 'new/n=n', 'only=o', 'sub/', 'sub/deep/', 'sub/deep/f=f']);
    expect(statSync(place('to/only')).ino).toBe(statSync(join(lower, 'only')).ino);
    expect(statSync(place('to/a')).ino).toBe(statSync(join(upper, 'a')).ino);
    expect(tree(lower)).toContain('a=1');
  });

  it('copies what may still be written, names of one file together', async () => {
    const lower = layer('lower', { a: 'one' });
    linkSync(join(lower, 'a'), join(lower, 'b'));
    await mergeLayers({ shim, to: place('to'), base: lower, copy: true });
    writeFileSync(join(lower, 'a'), 'two');
    expect(tree(place('to'))).toEqual(['a=one', 'b=one']);
    expect(statSync(place('to/a')).ino).toBe(statSync(place('to/b')).ino);
    expect(statSync(place('to/a')).ino).not.toBe(statSync(join(lower, 'a')).ino);
  });

  it.runIf(asRoot)('a whiteout is kept where the tree has something, and left out where it hides nothing', async () => {
    const under = layer('tree', { here: 'h', 'd/f': 'f' });
    const lower = layer('lower', { 'made/x': 'x', there: 't' });
    const upper = layer('upper', { here: 'WHITEOUT', there: 'WHITEOUT', 'made/x': 'WHITEOUT', 'd/f': 'WHITEOUT', 'd/g': 'WHITEOUT' });
    await mergeLayers({ shim, to: place('to'), base: lower, over: upper, tree: under });
    expect(tree(place('to'))).toEqual(['d/', 'd/f gone', 'here gone', 'made/']);
    await mergeLayers({ shim, to: place('all'), base: lower, over: upper });
    expect(tree(place('all'))).toEqual(['d/', 'd/f gone', 'd/g gone', 'here gone', 'made/', 'made/x gone', 'there gone']);
  });

  it.runIf(asRoot)('a directory over something else, or over an opaque one, lets nothing of the tree through', async () => {
    const lower = layer('lower', { gone: 'WHITEOUT', file: 'f', 'opaque/old': 'o' });
    const attribute = (code: string, path: string): string => execFileSync('python3', ['-c', `import os, sys; ${code}`, path], { encoding: 'utf8' });
    attribute("os.setxattr(sys.argv[1], 'trusted.overlay.opaque', b'y')", join(lower, 'opaque'));
    const upper = layer('upper', { 'gone/n': 'n', 'file/n': 'n', 'opaque/n': 'n' });
    await mergeLayers({ shim, to: place('to'), base: lower, over: upper });
    for (const name of ['gone', 'file', 'opaque']) {
      expect(attribute("print(os.getxattr(sys.argv[1], 'trusted.overlay.opaque').decode(), end='')", place(`to/${name}`))).toBe('y');
    }
    expect(tree(place('to'))).toEqual(['file/', 'file/n=n', 'gone/', 'gone/n=n', 'opaque/', 'opaque/n=n', 'opaque/old=o']);
  });

  it('the index says what the topmost layer touches', async () => {
    const lower = layer('lower', { 'd/x': 'x', other: 'o' });
    const upper = layer('upper', { 'd/y': 'y', 'e/f/g': 'g' });
    await mergeLayers({ shim, to: place('to'), base: lower, over: upper, index: place('index') });
    const index = readLayerIndex(place('index'));
    const touched = (path: string): boolean => index.touches(bytePathOfText(path));
    expect(['d', 'd/y', 'd/y/below', 'e/f', 'e/f/g'].map(touched)).toEqual([true, true, true, true, true]);
    expect(['', 'd/x', 'other', 'e/h'].map(touched)).toEqual([false, false, false, false]);
  });

  it('an index that is cut off or altered is refused', () => {
    const whole = Buffer.from('PRINDEX1cpath\0z\0');
    expect(parseLayerIndex(whole).touches(bytePathOfText('path/x'))).toBe(true);
    for (let length = 0; length < whole.length; length++) expect(() => parseLayerIndex(whole.subarray(0, length))).toThrow(/damaged/);
    expect(() => parseLayerIndex(Buffer.from('PRINDEX1qpath\0z\0'))).toThrow(/damaged/);
  });

  it('a list shows every byte, mode and time; directories that their owner closed are read, and closed again', async () => {
    const lower = layer('lower', { 'd/f': 'f', g: 'g' });
    chmodSync(join(lower, 'd'), 0o000);
    const before = await listLayer(shim, lower, 'content');
    expect(statSync(join(lower, 'd')).mode & 0o777).toBe(0);
    await mergeLayers({ shim, to: place('to'), base: lower });
    expect(statSync(place('to/d')).mode & 0o777).toBe(0);
    expect((await listLayer(shim, place('to'), 'content')).equals(before)).toBe(true);
    chmodSync(join(lower, 'g'), 0o600);
    expect((await listLayer(shim, lower, 'content')).equals(before)).toBe(false);
    for (const path of [join(lower, 'd'), place('to/d')]) chmodSync(path, 0o700);
  });

  it('what exists already is never overwritten', async () => {
    const lower = layer('lower', { a: 'a' });
    layer('to', { b: 'b' });
    await expect(mergeLayers({ shim, to: place('to'), base: lower })).rejects.toMatchObject({ code: 'ERR_STAGE_LAYER' });
    expect(existsSync(place('to/a'))).toBe(false);
  });
});

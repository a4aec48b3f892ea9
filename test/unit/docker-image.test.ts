import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { appletPaths, baseRootfs } from '../../executors/docker/image/base-rootfs.ts';
import { findBusybox } from '../../executors/docker/image/busybox.host.ts';
import { parseProgram } from '../../executors/shim/elf.ts';
import { labelInstruction, parseImageName, parseLabel } from '../../executors/docker/image/image-name.ts';
import { parseImportAnswer } from '../../executors/docker/image/import-answer.ts';
import { checkRootfs } from '../../executors/docker/image/rootfs-file.host.ts';
import { drained } from '../support/download-lab.host.ts';
import { archive } from '../support/tar-forge.ts';
import { temporaryDirectories } from '../support/temporary.ts';

const directory = temporaryDirectories();

describe('names of images', () => {
  test.each([
    ['base', 'base', 'latest'],
    ['team/base:1.0-x', 'team/base', '1.0-x'],
    ['host.example:5000/a/b:T', 'host.example:5000/a/b', 'T'],
    ['a__b', 'a__b', 'latest'],
  ])('%s', (text, repository, tag) => expect(parseImageName(text)).toEqual({ repository, tag }));

  test.each(['', 'Base', 'a:', ':1', 'a b', 'a:b:c', '-a', 'a/', '../x', 'a@sha256:0', `a:${'t'.repeat(129)}`, 'a'.repeat(300)])('%j is refused', (text) =>
    expect(() => parseImageName(text)).toThrow(/--tag: expected a name/),
  );

  test('labels', () => {
    expect(parseLabel('a.b=c d=e')).toEqual(['a.b', 'c d=e']);
    for (const bad of ['a', '=b', 'A=b', 'a=\n', 'proofrun.image=x', 'proofrun.image.source=x']) expect(() => parseLabel(bad), bad).toThrow(/--label/);
    expect(labelInstruction('k', 'a"b\\c$d')).toBe('LABEL k="a\\"b\\\\c\\$d"');
  });
});

describe('the busybox of this machine', () => {
  test('is missing: the line that installs it', async () => {
    await expect(findBusybox(['/nonexistent/busybox'])).rejects.toMatchObject({
      code: 'ERR_IMAGE_SOURCE',
      hint: expect.stringContaining('apt-get install -y busybox-static') as string,
    });
  });

  test('is a script, or needs libraries: refused, and the next place is tried', async () => {
    const script = join(directory(), 'busybox');
    writeFileSync(script, '#!/bin/sh\n');
    chmodSync(script, 0o755);
    await expect(findBusybox([script])).rejects.toThrow(/is no program/);
    await expect(findBusybox([process.execPath])).rejects.toThrow(/not a static program/);
  });

  test('a program is static when it names no interpreter', () => {
    expect(parseProgram(readFileSync(process.execPath).subarray(0, 65_536))?.isStatic).toBe(false);
    expect(parseProgram(Buffer.from('#!/bin/sh'))).toBeUndefined();
    expect(parseProgram(Buffer.alloc(100))).toBeUndefined();
    // Headers that lie beyond what was read, and cut ones.
    const head = Buffer.from(readFileSync(process.execPath).subarray(0, 65_536));
    head.writeBigUInt64LE(2n ** 60n, 32);
    expect(parseProgram(head)).toBeUndefined();
  });
});

describe('a base root filesystem', () => {
  test('is the same bytes for the same busybox, and links applets only where they belong', async () => {
    const input = {
      program: Buffer.from('program'),
      applets: ['bin/sh', 'usr/bin/env', 'bin/[', '../etc/passwd', 'bin/../../x', '/sbin/init', 'linuxrc', 'bin/busybox'],
    };
    expect(appletPaths(input.applets)).toEqual(['bin/[', 'bin/sh', 'sbin/init', 'usr/bin/env']);
    const [one, two] = [await drained(baseRootfs(input)), await drained(baseRootfs(input))];
    expect(two.equals(one)).toBe(true);
    const file = join(directory(), 'base.tar');
    writeFileSync(file, one);
    expect(execFileSync('tar', ['-tvf', file], { encoding: 'utf8' })).toMatch(/drwxrwxrwt 0\/0 .* tmp\n/);
    expect(await checkRootfs(file)).toMatchObject({ entries: 24 });
  });
});

describe('an archive of a root filesystem', () => {
  test.each([
    ['nothing there', undefined, /can't be read: ENOENT/],
    ['an empty file', Buffer.alloc(0), /is empty/],
    ['no archive', Buffer.alloc(2000, 0x41), /is damaged, or no tar archive, after 0 entries/],
    ['an archive that is cut', archive({ name: 'ws/f', content: 'x'.repeat(5000) }).subarray(0, 2000), /is damaged, or no tar archive, after/],
    ['an archive without entries', Buffer.alloc(1024), /holds no entry/],
    ['gzip that is damaged', Buffer.concat([gzipSync(archive()).subarray(0, 40)]), /is damaged/],
  ])('%s', async (_, bytes, message) => {
    const file = join(directory(), 'rootfs.tar');
    if (bytes !== undefined) writeFileSync(file, bytes);
    await expect(checkRootfs(file)).rejects.toThrow(message);
  });

  test('a directory, and a whole archive, plain and compressed', async () => {
    const base = directory();
    mkdirSync(join(base, 'd'));
    await expect(checkRootfs(join(base, 'd'))).rejects.toThrow(/is a directory/);
    writeFileSync(join(base, 'plain'), archive({ name: 'ws/f', content: 'x' }));
    writeFileSync(join(base, 'gz'), gzipSync(archive({ name: 'ws/f', content: 'x' })));
    expect(await checkRootfs(join(base, 'plain'))).toEqual({ entries: 2, compressed: undefined });
    expect(await checkRootfs(join(base, 'gz'))).toEqual({ entries: 2, compressed: 'gzip' });
  });
});

test('what an import says', () => {
  const id = `sha256:${'a'.repeat(64)}`;
  expect(parseImportAnswer(`{"status":"${id}"}\r\n`)).toEqual({ id, error: undefined });
  expect(parseImportAnswer(`{"status":"${id}"}\n{"error":"no space"}`)).toEqual({ id: undefined, error: 'no space' });
  expect(parseImportAnswer('garbage\n[1]\n{"status":5}')).toEqual({ id: undefined, error: undefined });
});

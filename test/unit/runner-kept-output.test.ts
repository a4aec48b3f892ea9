import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { keepOutput, readKept } from '../../src/runner/kept-output.host.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'proofrun-kept-'));
});
afterEach(() => {
  rmSync(directory, { recursive: true, force: true });
});

/** Bytes that tell their place: a wrong offset can't look right. */
function numbered(length: number): Buffer {
  const bytes = Buffer.alloc(length);
  for (let at = 0; at < length; at += 1) bytes[at] = (at * 7 + (at >> 8) * 13) & 0xff;
  return bytes;
}

function expectEnds(total: Buffer, kept: number, read: ReturnType<typeof readKept>): void {
  const half = Math.floor(kept / 2);
  if (read === undefined) throw new Error('nothing was kept');
  expect(read.bytesTotal).toBe(total.length);
  if (total.length <= kept) {
    expect(Buffer.concat([read.head, read.tail]).equals(total)).toBe(true);
    return;
  }
  expect(read.head.equals(total.subarray(0, kept - half))).toBe(true);
  expect(read.tail.equals(total.subarray(total.length - half))).toBe(true);
}

describe('kept output', () => {
  const kept = 101;
  for (const length of [1, 50, 51, 52, 100, 101, 102, 150, 151, 152, 201, 202, 203, 250, 1000, 5000]) {
    for (const piece of [1, 7, 50, 51, 100, 5000]) {
      test(`${length} bytes in pieces of ${piece}: exact beginning and end, live and finished`, () => {
        const total = numbered(length);
        const output = keepOutput(directory, 'stdout', kept);
        for (let at = 0; at < length; at += piece) output.write(total.subarray(at, at + piece));
        expect(output.total()).toBe(length);
        const live = readKept(directory, 'stdout', kept);
        expectEnds(total, kept, live);
        output.finish();
        output.finish();
        expect(output.fault()).toBeUndefined();
        expectEnds(total, kept, readKept(directory, 'stdout', kept, length));
        expect(readdirSync(directory)).toEqual(['stdout.log']);
        expect(statSync(join(directory, 'stdout.log')).size).toBeLessThanOrEqual(kept);
      });
    }
  }

  test('files are 0600 and exist only when something came', () => {
    const output = keepOutput(directory, 'stderr', 100);
    output.finish();
    expect(readdirSync(directory)).toEqual([]);
    expect(readKept(directory, 'stderr', 100)).toBeUndefined();
    const other = keepOutput(directory, 'stdout', 100);
    other.write(Buffer.from('x'));
    expect(statSync(join(directory, 'stdout.log')).mode & 0o777).toBe(0o600);
    other.finish();
  });

  test('the disk never holds more than one and a half times what is kept', () => {
    const output = keepOutput(directory, 'stdout', 1000);
    for (let round = 0; round < 400; round += 1) {
      output.write(numbered(33));
      const bytes = readdirSync(directory).reduce((sum, name) => sum + statSync(join(directory, name)).size, 0);
      expect(bytes).toBeLessThanOrEqual(1500);
    }
    output.finish();
  });

  test('a directory that is gone ends the keeping, not the run', () => {
    rmSync(directory, { recursive: true });
    const output = keepOutput(directory, 'stdout', 100);
    output.write(Buffer.from('first'));
    output.write(Buffer.from('second'));
    expect(output.total()).toBe(11);
    expect(output.fault()).toContain('stdout');
    output.finish();
  });

  test('nothing is kept of 0 bytes, and everything is counted', () => {
    const output = keepOutput(directory, 'stdout', 0);
    output.write(numbered(10));
    output.finish();
    expect(output.total()).toBe(10);
    expect(readdirSync(directory)).toEqual([]);
  });

  test('a link in place of the file is not written through', () => {
    const output = keepOutput(directory, 'stdout', 100);
    rmSync(join(directory, 'stdout.log'), { force: true });
    const victim = join(directory, 'victim');
    writeFileSync(victim, 'untouched');
    symlinkSync(victim, join(directory, 'stdout.log'));
    output.write(Buffer.from('through'));
    expect(readFileSync(victim, 'utf8')).toBe('untouched');
    expect(output.fault()).toBeDefined();
  });
});

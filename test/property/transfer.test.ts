import fc from 'fast-check';
import { chmodSync, linkSync, lutimesSync, mkdirSync, readFileSync, readdirSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { execFileSync } from 'node:child_process';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { extract } from 'tar-stream';
import { describe, expect, test } from 'vitest';
import { DEFAULT_LIMITS, downloadTree, formatManifest, parseManifest, uploadTree, type Manifest } from '../../executors/docker/transfer/index.ts';
import { planLayer } from '../../executors/docker/transfer/layer-plan.ts';
import { parsePax, parsePaxTime, paxRecord, paxTime } from '../../executors/docker/transfer/pax.ts';
import { encodeEntry, END_OF_ARCHIVE } from '../../executors/docker/transfer/tar-writer.ts';
import { paddingOf, TarFault, type TarHeader } from '../../executors/docker/transfer/tar-header.ts';
import { createTarReader, type TarEntry } from '../../executors/docker/transfer/tar-reader.ts';
import { createTreeCheck, type ReturnedEntry } from '../../executors/docker/transfer/tree-check.ts';
import type { ManifestEntry } from '../../executors/docker/transfer/manifest.ts';
import { ProofrunError } from '../../src/core/errors.ts';
import { bytePath, joinBytes, parentOf, type BytePath } from '../../src/stage/byte-path.ts';
import { downloadLab, drained, facts } from '../support/download-lab.host.ts';
import { SHIM } from '../support/stage-lab.host.ts';
import { archive, END, forged } from '../support/tar-forge.ts';
import { temporaryDirectories } from '../support/temporary.ts';

const directory = temporaryDirectories();
const LIMITS = { paxBytes: 1 << 20, trailingBytes: 1 << 20 };

/** Bytes that a directory can hold as one name, as one character a byte. */
const name = fc
  .uint8Array({ minLength: 1, maxLength: 20 })
  .map((bytes) => bytePath(Buffer.from(bytes)))
  .filter((text) => !text.includes('/') && !text.includes('\0') && text !== '.' && text !== '..');
const longName = fc.oneof(
  { weight: 4, arbitrary: name },
  { weight: 1, arbitrary: fc.integer({ min: 90, max: 255 }).map((length) => 'n'.repeat(length) as BytePath) },
);
const moment = fc.record({ seconds: fc.integer({ min: -(2 ** 40), max: 2 ** 40 }), nanoseconds: fc.integer({ min: 0, max: 999_999_999 }) });
const mode = fc.integer({ min: 0, max: 0o7777 });
const id = fc.integer({ min: 0, max: 2 ** 32 - 2 });

function readAll(bytes: Buffer, chunk: number): readonly { readonly entry: TarEntry; readonly content: Buffer }[] {
  const reader = createTarReader(LIMITS);
  const found: { entry: TarEntry; parts: Buffer[] }[] = [];
  for (let at = 0; at < bytes.length; at += chunk) {
    for (const event of reader.take(bytes.subarray(at, at + chunk))) {
      if (event.kind === 'entry') found.push({ entry: event.entry, parts: [] });
      else if (event.kind === 'content') found.at(-1)?.parts.push(Buffer.from(event.bytes));
    }
  }
  reader.end();
  return found.map(({ entry, parts }) => ({ entry, content: Buffer.concat(parts) }));
}

describe('archives', () => {
  const header: fc.Arbitrary<TarHeader> = fc
    .record({
      type: fc.constantFrom('file', 'directory', 'symlink', 'link', 'fifo'),
      path: fc.array(longName, { minLength: 1, maxLength: 6 }),
      mode,
      uid: id,
      gid: id,
      mtime: moment,
      link: fc.array(longName, { minLength: 1, maxLength: 4 }),
      size: fc.constant(0),
    })
    .map(({ path, link, ...rest }) => ({
      ...rest,
      name: path.join('/') as BytePath,
      link: (rest.type === 'link' || rest.type === 'symlink' ? link.join('/') : '') as BytePath,
      device: { major: 0, minor: 0 },
    }));

  test('what is written is read as it was, however the stream is cut', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(header, fc.uint8Array({ maxLength: 3000 })), { maxLength: 8 }), fc.integer({ min: 1, max: 2000 }), (entries, chunk) => {
        const sized = entries.map(([one, content]) => ({
          one: one.type === 'file' ? { ...one, size: content.length } : one,
          content: one.type === 'file' ? Buffer.from(content) : Buffer.alloc(0),
        }));
        const bytes = Buffer.concat([
          ...sized.flatMap(({ one, content }) => [encodeEntry(one), content, Buffer.alloc(paddingOf(content.length))]),
          END_OF_ARCHIVE,
        ]);
        expect(readAll(bytes, chunk)).toEqual(sized.map(({ one, content }) => ({ entry: { ...one, xattrs: [] }, content })));
      }),
      { numRuns: 150 },
    );
  });

  test('another reader reads what is written', async () => {
    const text = fc.stringMatching(/^[a-zé€-]{1,60}$/);
    await fc.assert(
      fc.asyncProperty(
        fc.array(text, { minLength: 1, maxLength: 5 }),
        fc.integer({ min: 0, max: 0o777 }),
        fc.integer({ min: 0, max: 2 ** 31 }),
        async (path, bits, seconds) => {
          const bytes = encodeEntry({
            type: 'symlink',
            name: bytePath(Buffer.from(path.join('/'))),
            link: bytePath(Buffer.from(path.join('/'))),
            mode: bits,
            uid: 5,
            gid: 6,
            size: 0,
            mtime: { seconds, nanoseconds: 0 },
            device: { major: 0, minor: 0 },
          });
          const seen: unknown[] = [];
          const reader = extract();
          reader.on('entry', (one, stream, next) => {
            seen.push([one.name, one.linkname, one.type, one.mode, one.uid, one.gid, one.mtime.getTime()]);
            stream.on('end', next);
            stream.resume();
          });
          await pipeline(Readable.from([bytes, END]), reader);
          expect(seen).toEqual([[path.join('/'), path.join('/'), 'symlink', bits, 5, 6, seconds * 1000]]);
        },
      ),
      { numRuns: 60 },
    );
  });

  test('parse(format(x)) = x: records, times, manifests', () => {
    fc.assert(
      fc.property(fc.stringMatching(/^[a-z.]{1,8}$/), fc.uint8Array({ maxLength: 300 }), (key, value) => {
        const record = paxRecord(key, Buffer.from(value).toString('latin1'));
        expect(record.toString('latin1').startsWith(`${record.length} `)).toBe(true);
        if (['path', 'linkpath', 'size', 'uid', 'gid', 'mtime'].includes(key)) return;
        expect(parsePax(record).xattrs).toEqual([]);
      }),
    );
    fc.assert(
      fc.property(moment, (at) => {
        expect(parsePaxTime(paxTime(at))).toEqual(at);
      }),
    );
    const one: fc.Arbitrary<ManifestEntry> = fc.record({
      type: fc.constantFrom('file', 'directory', 'symlink', 'fifo'),
      mode,
      uid: id,
      gid: id,
      size: fc.maxSafeNat(),
      mtime: moment,
      sha256: fc.stringMatching(/^[0-9a-f]{64}$|^$/),
      target: fc.oneof(name, fc.constant('' as BytePath)),
    });
    const manifest: fc.Arbitrary<Manifest> = fc.record({
      entries: fc.array(fc.tuple(name, one)).map((list) => new Map(list)),
      leftOut: fc
        .array(
          fc.tuple(
            name,
            fc.string().filter((text) => !text.includes('\0') && Buffer.from(text).toString() === text),
          ),
        )
        .map((list) => new Map(list)),
    });
    fc.assert(
      fc.property(manifest, (it) => {
        expect(parseManifest(formatManifest(it))).toEqual(it);
      }),
    );
    fc.assert(
      fc.property(manifest, fc.nat(), (it, cut) => {
        const bytes = formatManifest(it);
        expect(() => parseManifest(bytes.subarray(0, cut % bytes.length))).toThrow(ProofrunError);
      }),
    );
  });

  test('any bytes are read without a crash: a fault, a refusal, or entries that lie beneath the root', () => {
    const good = archive(
      { name: 'ws/d/', type: 'directory' },
      { name: 'ws/d/f', content: 'content' },
      { name: 'x', content: 'c', pax: { path: 'ws/d/longer name', mtime: '12.5', size: '1' } },
      { name: 'ws/l', type: 'symlink', link: '../x' },
      { name: 'ws/h', type: 'link', link: 'ws/d/f' },
    );
    const mutated = fc.array(fc.tuple(fc.nat(good.length - 1), fc.integer({ min: 0, max: 255 })), { minLength: 1, maxLength: 6 }).map((changes) => {
      const bytes = Buffer.from(good);
      for (const [at, value] of changes) bytes[at] = value;
      return resealed(bytes);
    });
    const random = fc.uint8Array({ maxLength: 4096 }).map((bytes) => Buffer.from(bytes));
    fc.assert(
      fc.property(fc.oneof(mutated, random), fc.integer({ min: 1, max: 1500 }), (bytes, chunk) => {
        const reader = createTarReader(LIMITS);
        const check = createTreeCheck(DEFAULT_LIMITS);
        try {
          for (let at = 0; at < bytes.length; at += chunk) {
            for (const event of reader.take(bytes.subarray(at, at + chunk))) if (event.kind === 'entry') check.place(event.entry);
          }
          reader.end();
        } catch (error) {
          if (!(error instanceof TarFault) && !(error instanceof ProofrunError)) throw error;
        }
        for (const path of check.placed.keys()) {
          if (path === '') continue;
          for (const part of path.split('/')) expect(part !== '' && part !== '.' && part !== '..' && !part.includes('\0') && part.length <= 255).toBe(true);
          expect(check.placed.get(parentOf(path))?.type).toBe('directory');
        }
      }),
      { numRuns: 2000 },
    );
  });
});

/** Puts the checksums of all headers right again, so that a mutation reaches what lies behind them. */
function resealed(bytes: Buffer): Buffer {
  for (let at = 0; at + 512 <= bytes.length; at += 512) {
    const block = bytes.subarray(at, at + 512);
    if (block.toString('latin1', 257, 262) !== 'ustar') continue;
    block.fill(0x20, 148, 156);
    block.write(
      `${block
        .reduce((sum, byte) => sum + byte, 0)
        .toString(8)
        .padStart(6, '0')}\0 `,
      148,
      'latin1',
    );
  }
  return bytes;
}

describe('the plan of a layer', () => {
  type Thing = { readonly type: 'file' | 'directory' | 'symlink' | 'fifo'; readonly value: string; readonly mode: number };
  const thing: fc.Arbitrary<Thing> = fc.record({
    type: fc.constantFrom('file', 'directory', 'directory', 'symlink', 'fifo'),
    value: fc.constantFrom('one', 'two'),
    mode: fc.constantFrom(0o644, 0o755),
  });
  const tree = fc.array(fc.tuple(fc.array(fc.constantFrom('a', 'b', 'c'), { minLength: 1, maxLength: 4 }), thing), { maxLength: 25 }).map((list) => {
    const found = new Map<BytePath, Thing>([['' as BytePath, { type: 'directory', value: '', mode: 0o755 }]]);
    for (const [parts, one] of list) {
      const path = parts.join('/') as BytePath;
      // Only beneath directories, and nothing twice.
      if (!found.has(path) && found.get(parentOf(path))?.type === 'directory') found.set(path, one);
    }
    return found;
  });
  const mtime = { seconds: 0, nanoseconds: 0 };
  /** As far as it counts: the mode of a symlink doesn't, nor the value of what has no content. */
  const essence = ({ type, value, mode: bits }: Thing): string =>
    `${type} ${type === 'symlink' ? '' : bits} ${type === 'file' || type === 'symlink' ? value : ''}`;
  const hash = (one: Thing): string => (one.type === 'file' ? one.value : '');
  const sentOf = (it: ReadonlyMap<BytePath, Thing>): Manifest => ({
    entries: new Map(
      [...it].map(([path, one]) => [
        path,
        { type: one.type, mode: one.mode, uid: 0, gid: 0, size: 3, mtime, sha256: hash(one), target: (one.type === 'symlink' ? one.value : '') as BytePath },
      ]),
    ),
    leftOut: new Map(),
  });
  const returnedOf = (it: ReadonlyMap<BytePath, Thing>): Map<BytePath, ReturnedEntry> =>
    new Map(
      [...it].map(([path, one]) => [
        path,
        {
          type: one.type,
          mode: one.mode,
          uid: 0,
          gid: 0,
          size: 3,
          mtime,
          target: (one.type === 'symlink' ? one.value : '') as BytePath,
          linkOf: undefined,
          xattrs: [],
        },
      ]),
    );

  test('laid over the tree that was sent, it gives the tree that came back, and holds nothing that is the same', () => {
    fc.assert(
      fc.property(tree, tree, (before, after) => {
        const plan = planLayer({
          sent: sentOf(before),
          returned: returnedOf(after),
          content: () => ({ kind: 'part', offset: 0, size: 3 }),
          sha256: (path) => hash(after.get(path) ?? { type: 'fifo', value: '', mode: 0 }),
          compareOwners: true,
          nextNumber: 1,
        });
        const result = new Map(before);
        const remove = (path: BytePath): void => {
          for (const one of [...result.keys()]) if (one === path || one.startsWith(`${path}/`)) result.delete(one);
        };
        let here = '' as BytePath;
        for (const step of plan.steps) {
          if (step.kind === 'leave') here = parentOf(here);
          else if (step.kind === 'root') expect(here).toBe('');
          else {
            const path = joinBytes(here, step.name);
            if (step.kind === 'whiteout') {
              expect(result.has(path)).toBe(true);
              remove(path);
            } else if (step.kind === 'enter') {
              if (result.get(path)?.type !== 'directory') {
                expect(step.opaque).toBe(true);
                remove(path);
              } else expect(step.opaque).toBe(false);
              result.set(path, { type: 'directory', value: after.get(path)?.value ?? '', mode: step.attributes.mode });
              here = path;
            } else {
              const now = after.get(path);
              expect(now).toBeDefined();
              if (now === undefined) continue;
              // Never something that is already so.
              const was = result.get(path);
              expect(was !== undefined && essence(was) === essence(now)).toBe(false);
              remove(path);
              result.set(path, now);
            }
          }
        }
        const plain = (it: ReadonlyMap<BytePath, Thing>): string[] => [...it].map(([path, one]) => `${path} ${essence(one)}`).sort();
        expect(plain(result)).toEqual(plain(after));
      }),
      { numRuns: 500 },
    );
  });
});

/** Makes random trees on the disk; names that are no UTF-8 included. */
const onDisk = fc.array(
  fc.record({
    parent: fc.nat(),
    name: longName,
    kind: fc.constantFrom('file', 'file', 'directory', 'directory', 'symlink', 'hard link', 'fifo'),
    content: fc.oneof(fc.uint8Array({ maxLength: 2000 }), fc.constant(new Uint8Array(1 << 21).fill(7)), fc.constant(new Uint8Array(1_200_000))),
    mode: fc.constantFrom(0o644, 0o600, 0o755, 0o4755, 0o700, 0o1777),
    seconds: fc.integer({ min: 1, max: 2_000_000_000 }),
    target: name,
  }),
  { maxLength: 20 },
);
type Made = typeof onDisk extends fc.Arbitrary<infer T> ? T : never;

function make(top: string, things: Made): void {
  const directories = [Buffer.from(top)];
  const files: Buffer[] = [];
  const stamps: [Buffer, number][] = [];
  for (const { parent, name: own, kind, content, mode: bits, seconds, target } of things) {
    const above = directories[parent % directories.length] ?? Buffer.from(top);
    const path = Buffer.concat([above, Buffer.from('/'), Buffer.from(own, 'latin1')]);
    if (path.length > 3000) continue;
    try {
      switch (kind) {
        case 'directory':
          mkdirSync(path);
          directories.push(path);
          break;
        case 'file':
          writeFileSync(path, content, { flag: 'wx' });
          files.push(path);
          break;
        case 'symlink':
          symlinkSync(Buffer.from(target, 'latin1'), path);
          lutimesSync(path, seconds, seconds);
          continue;
        case 'hard link': {
          const first = files[parent % Math.max(1, files.length)];
          if (first !== undefined) linkSync(first, path);
          continue;
        }
        case 'fifo':
          execFileSync('python3', ['-c', 'import os,sys; os.mkfifo(bytes.fromhex(sys.argv[1]))', path.toString('hex')]);
          break;
      }
      // What its own owner can't read is only sent by root.
      chmodSync(path, process.geteuid?.() === 0 ? bits : bits | (kind === 'directory' ? 0o700 : 0o600));
      stamps.push([path, seconds]);
    } catch (error) {
      // A name that is taken.
      if (!(error instanceof Error) || !('code' in error) || error.code !== 'EEXIST') throw error;
    }
  }
  for (const [path, seconds] of stamps.reverse()) utimesSync(path, seconds, seconds);
}

/** What an engine would send of what it was sent: the same entries beneath a root directory of their own. */
function sentBack(bytes: Buffer): Buffer {
  const parts: Buffer[] = [];
  for (const { entry, content } of readAll(bytes, 1 << 20)) {
    const plain = entry.name.replace(/^\.\//, '');
    const link = entry.type === 'link' ? `ws/${entry.link}` : entry.link;
    parts.push(encodeEntry({ ...entry, name: `ws/${plain}` as BytePath, link: link as BytePath }), content, Buffer.alloc(paddingOf(content.length)));
  }
  return Buffer.concat([...parts, END_OF_ARCHIVE]);
}

describe('trees', () => {
  test('a random tree goes up and comes down exactly; unchanged, nothing of it is staged', async () => {
    await fc.assert(
      fc.asyncProperty(onDisk, async (things) => {
        const base = directory();
        const tree = join(base, 'tree');
        mkdirSync(tree);
        make(tree, things);
        const up = uploadTree({ root: tree, hidden: [] });
        const back = sentBack(await drained(up.stream));
        const root = { root: tree, upper: join(base, 'upper'), work: '', preimage: '' };
        mkdirSync(root.upper);
        const options = { shim: SHIM, root, markers: process.geteuid?.() === 0 ? ('trusted' as const) : ('user' as const) };
        expect(await downloadTree({ ...options, stream: Readable.from([back]), sent: up.manifest() })).toMatchObject({ leftOut: [] });
        expect(readdirSync(root.upper)).toEqual([]);
        const nothing: Manifest = { entries: new Map(), leftOut: new Map() };
        await downloadTree({ ...options, stream: Readable.from([back]), sent: nothing });
        expect(facts(root.upper, { times: true })).toEqual(facts(tree, { times: true }));
      }),
      { numRuns: 25 },
    );
  }, 120_000);

  test('mutated archives stage what lies beneath, or nothing, and change nothing else', async () => {
    const lab = await downloadLab(directory());
    // The upper directory itself may take what the archive says of the workspace's: owner, mode, time.
    const around = (): Record<string, unknown> => Object.fromEntries(Object.entries(lab.surroundings()).filter(([path]) => path !== 'stage/root-0/upper'));
    const before = around();
    const good = archive(
      { name: 'ws/old', content: 'old' },
      { name: 'ws/d/', type: 'directory' },
      { name: 'ws/d/f', content: 'x'.repeat(600) },
      { name: 'ws/l', type: 'symlink', link: '../canary/file' },
      forged({ name: 'x', content: 'c', pax: { path: 'ws/d/other', linkpath: '../../canary' } }),
      { name: 'ws/h', type: 'link', link: 'ws/d/f' },
      { name: 'ws/p', type: 'fifo' },
    );
    const interesting = fc.constantFrom(0x2e, 0x2f, 0x30, 0x31, 0x32, 0x35, 0x78, 0x00, 0x80, 0xff);
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(fc.nat(good.length - 1), interesting), { minLength: 1, maxLength: 4 }), async (changes) => {
        const bytes = Buffer.from(good);
        for (const [at, value] of changes) bytes[at] = value;
        await lab.stage(resealed(bytes));
        expect(around()).toEqual(before);
        expect(readFileSync(join(lab.canary, 'file'), 'utf8')).toBe('canary');
        execFileSync('sh', ['-c', 'chmod -R u+rwx "$1"; rm -rf "$1"; mkdir "$1"', 'sh', lab.root.upper]);
      }),
      { numRuns: 80 },
    );
  }, 120_000);
});

import Database from 'better-sqlite3';
import { execFileSync } from 'node:child_process';
import { appendFileSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { parseStrictJson } from '../../src/core/strict-json.ts';
import { openJournal } from '../../src/runner/journal.host.ts';
import { sweepTemporaries, writeDurably } from '../../src/store/durable-file.host.ts';
import { openStore } from '../../src/store/index.ts';
import { removeStoreProgram, startStoreProcess } from '../support/store-process.host.ts';
import { record } from '../support/store-run.ts';
import { temporaryDirectories } from '../support/temporary.ts';

const directory = temporaryDirectories();
afterAll(removeStoreProgram);

/** Five writes of four points each; what the store has to hold when the process dies at each of them. */
const WRITES = ['nothing', 'recorded', 'running', 'finished', 'open batch', 'applied'] as const;
const POINTS = ['begin', 'rows', 'commit', 'committed'] as const;
const DEATHS = Array.from({ length: 20 }, (_, index) => {
  const point = POINTS[index % 4] ?? 'begin';
  const before = Math.floor(index / 4);
  return { number: index + 1, point, holds: WRITES[point === 'committed' ? before + 1 : before] ?? 'nothing' };
});

describe('SIGKILL in the middle of a write', () => {
  it.each(DEATHS)('point $number, $point: the store is sound and holds $holds', async ({ number, point, holds }) => {
    const state = join(directory(), 'state');
    const victim = startStoreProcess('die', state, String(number));
    expect(await victim.line()).toBe('ready');
    victim.go();
    expect(await victim.line()).toBe(`at ${point}`);
    await victim.kill();

    const store = openStore(state, Date.now);
    const [run] = store.listRuns();
    const batch = store.openApplies();
    expect(whatIs(run, batch.length)).toBe(holds);
    if (run !== undefined) {
      expect(store.checkChain(run.id)).toEqual({ ok: true });
      expect(store.reconcilable().map((orphan) => orphan.id)).toEqual(run.state === 'finished' ? [] : [run.id]);
    }
    // The lock died with the process.
    record(store, { workspace: '/next' });
    store.close();

    const db = new Database(join(state, 'proofrun.db'), { readonly: true });
    expect(db.pragma('integrity_check', { simple: true })).toBe('ok');
    expect(db.pragma('foreign_key_check')).toEqual([]);
    db.close();
  });
});

function whatIs(run: { readonly state: string; readonly stageState: string } | undefined, open: number): string {
  if (run === undefined) return 'nothing';
  if (run.state !== 'finished') return run.state;
  if (run.stageState === 'applied') return 'applied';
  return open === 1 ? 'open batch' : 'finished';
}

describe.runIf(process.geteuid?.() === 0)('a full disk (mounting one needs root)', () => {
  const mounted: string[] = [];
  afterEach(() => {
    for (const folder of mounted.splice(0)) execFileSync('umount', ['--lazy', folder]);
  });

  /** A filesystem of 512 KiB. */
  function smallDisk(): { readonly folder: string; readonly fill: () => void; readonly release: () => void } {
    const folder = directory();
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=512k,mode=0700', 'proofrun-test', folder]);
    mounted.push(folder);
    const ballast = join(folder, 'ballast');
    return {
      folder,
      fill: () => {
        expect(() => {
          for (;;) appendFileSync(ballast, Buffer.alloc(4096));
        }).toThrow(/ENOSPC/);
      },
      release: () => {
        rmSync(ballast);
      },
    };
  }

  it('fails the write, keeps what was there, and heals', () => {
    const { folder, fill, release } = smallDisk();
    const store = openStore(join(folder, 'state'), Date.now);
    const { id } = record(store);
    fill();
    const full = expect.objectContaining({ code: 'ERR_DISK_FULL', hint: 'job prune' }) as unknown;
    expect(() => {
      for (;;) record(store, { argv: ['x'.repeat(20_000)] });
    }).toThrow(full);
    const kept = store.listRuns();
    expect(kept.map((run) => run.id)).toContain(id);
    for (const run of kept) expect(store.checkChain(run.id)).toEqual({ ok: true });
    release();
    record(store);
    expect(store.listRuns()).toHaveLength(kept.length + 1);
    store.close();
  });

  it('can hold no new store', () => {
    const { folder, fill } = smallDisk();
    fill();
    expect(() => openStore(join(folder, 'state'), Date.now)).toThrow(expect.objectContaining({ code: 'ERR_DISK_FULL' }));
  });

  it('leaves the old file as it was', () => {
    const { folder, fill } = smallDisk();
    const file = join(folder, 'run-bundle.json');
    writeDurably(file, 'old content');
    fill();
    expect(() => {
      writeDurably(file, 'x'.repeat(100_000));
    }).toThrow(expect.objectContaining({ code: 'ERR_DISK_FULL' }));
    expect(readFileSync(file, 'utf8')).toBe('old content');
    expect(readdirSync(folder).sort()).toEqual(['ballast', 'run-bundle.json']);
  });

  it('tears a journal, which the next opening mends', () => {
    const { folder, fill, release } = smallDisk();
    const file = join(folder, 'run.jsonl');
    const notice = { kind: 'run.recorded', runId: 'run-01KC4Q8Z000000000000000000', attempt: null, timeMs: 1, data: { executor: 'native', mode: 'safe' } };
    const journal = openJournal(file);
    journal.append(notice);
    fill();
    let written = 1;
    expect(() => {
      for (;;) {
        journal.append(notice);
        written += 1;
      }
    }).toThrow(expect.objectContaining({ code: 'ERR_JOURNAL' }));
    journal.close();
    release();
    const again = openJournal(file);
    again.append(notice);
    again.close();
    const lines = readFileSync(file, 'utf8')
      .split('\n')
      .filter((line) => line.trim() !== '');
    expect(lines).toHaveLength(written + 1);
    for (const line of lines) expect(parseStrictJson(line)).toMatchObject({ kind: 'run.recorded' });
  });
});

describe('SIGKILL in the middle of a durable file', () => {
  it.each([
    ['created', 'old content'],
    ['written', 'old content'],
    ['synced', 'old content'],
    ['renamed', 'new content'],
    ['durable', 'new content'],
  ])('at %s leaves the %s', async (point, content) => {
    const folder = directory();
    const file = join(folder, 'run-bundle.json');
    writeFileSync(file, 'old content');
    const victim = startStoreProcess('write-file', file, point);
    expect(await victim.line()).toBe('ready');
    victim.go();
    expect(await victim.line()).toBe(`at ${point}`);
    await victim.kill();
    expect(readFileSync(file, 'utf8')).toBe(content);
    expect(readdirSync(folder)).toHaveLength(content === 'old content' ? 2 : 1);
    sweepTemporaries(file);
    expect(readdirSync(folder)).toEqual(['run-bundle.json']);
  });
});

import { spawnSync } from 'node:child_process';
import { appendFileSync, chmodSync, lstatSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import schema from '../../schemas/journal.schema.json' with { type: 'json' };
import type { JsonObject } from '../../src/core/json.ts';
import { parseStrictJson } from '../../src/core/strict-json.ts';
import { openJournal } from '../../src/runner/journal.host.ts';
import { JOURNAL_KINDS, JournalThread, type JournalNotice } from '../../src/runner/journal.ts';
import { compileSchema } from '../../src/runner/schema-validator.ts';
import { temporaryDirectories } from '../support/temporary.ts';

const directory = temporaryDirectories();
const RUN = 'run-01KC4Q8Z000000000000000000';
const ATTEMPT = 'att-01KC4Q8Z000000000000000000';

function notice(kind: string, data: JournalNotice['data'] = {}, more: Partial<JournalNotice> = {}): JournalNotice {
  return { kind, runId: RUN, attempt: ATTEMPT, timeMs: 1_000, data, ...more };
}

/** A whole life, as the runner tells it. */
const LIFE: readonly JournalNotice[] = [
  notice('run.recorded', { executor: 'native', mode: 'safe' }),
  notice('run.launched'),
  notice('gate.decided', { decision: 'release' }),
  notice('command.released'),
  notice('command.ended', { ending: 'exit', code: 1 }),
  notice('run.closed'),
  notice('bundle.written', { sha256: 'ab'.repeat(32) }),
  notice('run.finished', { state: 'finished', ending: 'exit', exit_code: 1 }),
];
const OTHERS: readonly JournalNotice[] = [
  notice('run.refused', { reason: 'no executor', mode: 'strict' }, { attempt: null }),
  notice('gate.decided', { decision: 'refuse' }),
  notice('command.ended', { ending: 'signal', signal: 'SIGTERM', code: null }),
];

function lines(file: string): JsonObject[] {
  return readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => parseStrictJson(line) as JsonObject);
}

function refusal(file: string): string {
  try {
    openJournal(file).close();
  } catch (error) {
    expect(error).toMatchObject({ code: 'ERR_JOURNAL' });
    return error instanceof Error ? error.message : '';
  }
  throw new Error('the journal was opened');
}

describe('the journal', () => {
  it('holds a line for each event, with ids, the operation and the cause', () => {
    const file = join(directory(), 'run.jsonl');
    const journal = openJournal(file);
    const entries = LIFE.map((event) => journal.append(event));
    journal.close();
    journal.close();
    expect(lstatSync(file).mode & 0o777).toBe(0o600);
    const written = lines(file);
    expect(written.map((line) => line.kind)).toEqual(LIFE.map((event) => event.kind));
    expect(new Set(written.map((line) => line.id)).size).toBe(LIFE.length);
    expect(written.map((line) => line.cause)).toEqual([null, ...entries.slice(0, -1).map((entry) => entry.id)]);
    const operations = written.map((line) => line.operation);
    expect(operations[3]).toMatch(/^op-/);
    expect(operations[4]).toBe(operations[3]);
    expect(operations.filter((operation) => operation !== null)).toHaveLength(2);
  });

  it('fits its schema, for every kind', async () => {
    const file = join(directory(), 'run.jsonl');
    const journal = openJournal(file);
    for (const event of [...LIFE, ...OTHERS]) journal.append(event);
    journal.close();
    const validate = compileSchema(schema);
    for (const line of lines(file)) expect([line.kind, validate(line)]).toEqual([line.kind, []]);
    expect(new Set(lines(file).map((line) => line.kind))).toEqual(new Set(Object.keys(JOURNAL_KINDS)));
  });

  it('has a schema with exactly its vocabulary', () => {
    const words = schema.oneOf.map((kind) => [kind.properties.kind.const, Object.keys(kind.properties.data.properties).sort()]);
    expect(words).toEqual(Object.entries(JOURNAL_KINDS).map(([kind, row]) => [kind, [...row.data].sort()]));
  });

  it.each([
    ['an unknown kind', notice('file.changed')],
    ['a kind of every object', notice('constructor')],
    ['unknown data', notice('run.closed', { path: 'src/a.ts' })],
  ])('has no word for %s', (_reason, event) => {
    const file = join(directory(), 'run.jsonl');
    const journal = openJournal(file);
    expect(() => journal.append(event)).toThrow(expect.objectContaining({ code: 'ERR_INTERNAL' }));
    journal.close();
    expect(readFileSync(file, 'utf8')).toBe('');
  });

  it.each([
    ['an unknown key', { extra: 1 }],
    ['a level', { level: 'enforced' }],
    ['a wrong id', { run: 'run-1' }],
    ['another version', { version: 2 }],
    ['a file change in data', { data: { path: 'src/a.ts' } }],
    ['an operation where there is none', { operation: 'op-01KC4Q8Z000000000000000000' }],
  ])('has a schema that refuses %s', async (_reason, change) => {
    const validate = compileSchema(schema);
    const entry = new JournalThread().follow(notice('run.closed'));
    const line = { version: 1, id: entry.id, time_ms: 1, run: RUN, attempt: ATTEMPT, operation: null, cause: null, kind: 'run.closed', data: {} };
    expect(validate(line)).toEqual([]);
    expect(validate({ ...line, ...change })).not.toEqual([]);
  });

  it('keeps the lines of several runs apart', () => {
    const file = join(directory(), 'run.jsonl');
    const other = { runId: 'run-01KC4Q8Z000000000000000001' };
    const first = openJournal(file);
    const second = openJournal(file);
    first.append(notice('run.recorded'));
    second.append(notice('run.recorded', {}, other));
    first.append(notice('run.launched'));
    second.append(notice('run.launched', {}, other));
    const written = lines(file);
    expect(written.map((line) => line.run)).toEqual([RUN, other.runId, RUN, other.runId]);
    expect(written[2]?.cause).toBe(written[0]?.id);
    expect(written[3]?.cause).toBe(written[1]?.id);
    first.close();
    second.close();
  });

  it('has no cause for what came out of the blue', () => {
    const thread = new JournalThread();
    expect(thread.follow(notice('run.closed')).cause).toBeNull();
  });
});

describe('a torn journal', () => {
  /** A journal of two lines. */
  function journalOf(): { readonly file: string; readonly whole: string } {
    const file = join(directory(), 'run.jsonl');
    const journal = openJournal(file);
    journal.append(notice('run.recorded', { executor: 'native', mode: 'safe' }));
    journal.append(notice('run.launched'));
    journal.close();
    return { file, whole: readFileSync(file, 'utf8') };
  }

  it('is mended at every place where it can tear, and loses no whole line', () => {
    const { file, whole } = journalOf();
    const firstLine = whole.slice(0, whole.indexOf('\n') + 1);
    for (let length = 1; length < whole.length; length += 1) {
      writeFileSync(file, whole.slice(0, length));
      const journal = openJournal(file);
      journal.append(notice('run.launched'));
      journal.close();
      const kinds = lines(file).map((line) => line.kind);
      const kept = length < firstLine.length - 1 ? [] : length < whole.length - 1 ? ['run.recorded'] : ['run.recorded', 'run.launched'];
      expect([length, kinds]).toEqual([length, [...kept, 'run.launched']]);
    }
  });

  it('is mended as well by a run that has it open when another one is killed', () => {
    const { file } = journalOf();
    const journal = openJournal(file);
    appendFileSync(file, '{"attempt":nul');
    journal.append(notice('run.launched'));
    journal.close();
    expect(lines(file).map((line) => line.kind)).toEqual(['run.recorded', 'run.launched', 'run.launched']);
  });

  it('with a very long tear is mended', () => {
    const { file, whole } = journalOf();
    writeFileSync(file, `${whole}{"attempt":"${'x'.repeat(200_000)}`);
    openJournal(file).close();
    expect(lines(file)).toHaveLength(2);
    expect(readFileSync(file)).toHaveLength(whole.length + 200_012);
  });
});

describe('a journal is never', () => {
  it('a symlink, even to nothing', () => {
    const folder = directory();
    writeFileSync(join(folder, 'target'), '');
    symlinkSync('target', join(folder, 'link'));
    symlinkSync('nowhere', join(folder, 'dangling'));
    expect(refusal(join(folder, 'link'))).toMatch(/is a symlink/);
    expect(refusal(join(folder, 'dangling'))).toMatch(/is a symlink/);
    expect(readFileSync(join(folder, 'target'), 'utf8')).toBe('');
  });

  it('a directory, a FIFO or a device', () => {
    const folder = directory();
    mkdirSync(join(folder, 'directory'));
    expect(spawnSync('mkfifo', [join(folder, 'fifo')]).status).toBe(0);
    expect(refusal(join(folder, 'directory'))).toMatch(/is a directory/);
    expect(refusal(join(folder, 'fifo'))).toMatch(/is not a regular file/);
    expect(refusal('/dev/null')).toMatch(/is not a regular file/);
  });

  it('a file of something else, which is left alone', () => {
    const file = join(directory(), 'package.json');
    for (const text of ['{"name":"x"}', 'notes without an end', '{"a":1}\n{"attempt":nul', '[1]\n', `${'x'.repeat(100_000)}\n`, '{"attem', '{"attempt":1}\n']) {
      writeFileSync(file, text);
      const whole = text === '{"attem';
      if (whole) openJournal(file).close();
      else expect([text, refusal(file)]).toEqual([text, expect.stringContaining('is not a journal')]);
      if (!whole) expect(readFileSync(file, 'utf8')).toBe(text);
    }
  });

  it('somewhere that does not exist or may not be written', () => {
    expect(refusal(join(directory(), 'missing', 'run.jsonl'))).toMatch(/ENOENT/);
    if (process.geteuid?.() === 0) return;
    const file = join(directory(), 'run.jsonl');
    writeFileSync(file, '');
    chmodSync(file, 0o400);
    expect(refusal(file)).toMatch(/EACCES/);
  });
});

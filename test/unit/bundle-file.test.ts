import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import schema from '../../schemas/run-bundle.schema.json' with { type: 'json' };
import { canonicalJson, canonicalSha256 } from '../../src/core/canonical-json.ts';
import { toSnake } from '../../src/core/case.ts';
import type { JsonObject } from '../../src/core/json.ts';
import { parseStrictJson } from '../../src/core/strict-json.ts';
import { bundleSha256, formatBundle } from '../../src/runner/bundle-form.ts';
import { readBundle, writeBundle } from '../../src/runner/bundle.host.ts';
import { compileSchema } from '../../src/runner/schema-validator.ts';
import { matching } from '../support/matching.ts';
import { refusedBody, sampleBody } from '../support/sample-bundle.ts';
import { temporaryDirectories } from '../support/temporary.ts';

const directory = temporaryDirectories();
const umask = process.umask(0o022);
process.umask(umask);
afterEach(() => {
  process.umask(umask);
});

/** Writes the sample, edits its JSON, and writes that back with a hash that fits. */
function edited(edit: (bundle: Record<string, unknown>) => void): string {
  const file = join(directory(), 'run-bundle.json');
  const bundle = JSON.parse(formatBundle(sampleBody()).text) as Record<string, unknown>;
  edit(bundle);
  bundle.sha256 = bundleSha256(bundle as JsonObject);
  writeFileSync(file, JSON.stringify(bundle));
  return file;
}

async function refusal(file: string, expected?: string): Promise<string> {
  try {
    await readBundle(file, expected);
  } catch (error) {
    expect(error).toMatchObject({ code: 'ERR_BUNDLE_INVALID' });
    return error instanceof Error ? error.message : '';
  }
  throw new Error('the bundle was accepted');
}

describe('the bundle', () => {
  it.each([
    ['a run', sampleBody()],
    ['a refused job', refusedBody()],
    ['an interrupted run', sampleBody({ changes: null, discarded: null, outputs: [] })],
  ])('of %s is read as it was written', async (_reason, body) => {
    const folder = directory();
    process.umask(0o077);
    const written = writeBundle(folder, body);
    expect(readdirSync(folder)).toEqual(['run-bundle.json']);
    const read = await readBundle(join(folder, 'run-bundle.json'), written.sha256);
    expect(read).toEqual(written);
    const { sha256, ...rest } = read;
    expect(rest).toEqual(body);
    expect(sha256).toBe(canonicalSha256(toSnake(body)));
  });

  it.each([0o000, 0o777])('is 0600 under umask %o, canonical, with one newline', (value) => {
    const folder = directory();
    process.umask(value);
    writeBundle(folder, sampleBody());
    const file = join(folder, 'run-bundle.json');
    expect(statSync(file).mode & 0o7777).toBe(0o600);
    const text = readFileSync(file, 'utf8');
    expect(`${canonicalJson(parseStrictJson(text))}\n`).toBe(text);
  });

  it('replaces the old one as a whole, and never writes through a symlink', async () => {
    const folder = directory();
    const file = join(folder, 'run-bundle.json');
    const target = join(directory(), 'target');
    writeFileSync(target, 'untouched');
    symlinkSync(target, file);
    writeBundle(folder, sampleBody());
    expect(readFileSync(target, 'utf8')).toBe('untouched');
    expect((await readBundle(file)).run.name).toBe('unit');
  });

  it('leaves nothing when it can not be written', () => {
    const folder = directory();
    mkdirSync(join(folder, 'run-bundle.json'));
    expect(() => writeBundle(folder, sampleBody())).toThrow();
    expect(readdirSync(folder)).toEqual(['run-bundle.json']);
    expect(() => writeBundle(join(folder, 'missing'), sampleBody())).toThrow(/ENOENT/);
    expect(() => writeBundle(directory(), sampleBody({ warnings: ['\ud800'] }))).toThrow(expect.objectContaining({ code: 'ERR_JSON' }));
  });

  // Stored bundles and what refers to them depend on it.
  it('has a pinned hash', () => {
    expect(formatBundle(sampleBody()).bundle.sha256).toBe('d01af6965428a4141f0a085b306fae7e1ff1d0be461f2f03ada0604ee946ed45');
  });

  it('holds no value of the environment', () => {
    expect(formatBundle(sampleBody()).text).not.toMatch(/"environment":/);
  });
});

describe('a bundle is refused', () => {
  it.each([
    ['without executor_observations', (bundle: Record<string, unknown>) => delete bundle.executor_observations, /has no executor_observations/],
    ['of another version', (bundle: Record<string, unknown>) => (bundle.version = 2), /has version 2, this Proofrun reads 1/],
    ['with an unknown key', (bundle: Record<string, unknown>) => (bundle.verified = true), /unknown key "verified"/],
    ['with an unknown level', (bundle: Record<string, unknown>) => ((bundle.safety as JsonObjectLike).promise = 'sure'), /safety\.promise is "sure"/],
    ['with counts of file operations', (bundle: Record<string, unknown>) => (bundle.file_operations = { read: 1 }), /file_operations/],
    ['without its hash', (bundle: Record<string, unknown>) => delete bundle.lineage, /lineage/],
    [
      'of another contract',
      (bundle: Record<string, unknown>) => ((bundle.executor_observations as JsonObjectLike).contract = 2),
      /executor_observations\.contract is 2, expected 1/,
    ],
    [
      'without a dimension',
      (bundle: Record<string, unknown>) => delete ((bundle.executor_observations as JsonObjectLike).dimensions as JsonObjectLike).network,
      /network/,
    ],
  ])('%s', async (_reason, edit, message) => {
    expect(await refusal(edited(edit))).toMatch(message);
  });

  it('altered, or cut', async () => {
    const file = edited(() => undefined);
    const text = readFileSync(file, 'utf8');
    expect((await readBundle(file)).run.name).toBe('unit');
    writeFileSync(file, text.replace('"unit"', '"unix"'));
    expect(await refusal(file)).toMatch(/was altered: its hash is [0-9a-f]{16}, it states [0-9a-f]{16}/);
    writeFileSync(file, text);
    truncateSync(file, text.length - 10);
    expect(await refusal(file)).toMatch(/JSON/);
  });

  it('with a repeated key, trailing data, or bytes that are not UTF-8', async () => {
    const file = edited(() => undefined);
    const text = readFileSync(file, 'utf8');
    writeFileSync(file, text.replace('{', '{"version":1,'));
    expect(await refusal(file)).toMatch(/key "version" is repeated/);
    writeFileSync(file, `${text} {}`);
    expect(await refusal(file)).toMatch(/expected the end/);
    writeFileSync(file, Buffer.concat([Buffer.from(text.replace('unit', 'uni')), Buffer.from([0xff])]));
    expect(await refusal(file)).toMatch(/not UTF-8/);
    writeFileSync(file, '[]');
    expect(await refusal(file)).toMatch(/is not a JSON object/);
  });

  it('that is not the one that the store recorded', async () => {
    expect(
      await refusal(
        edited(() => undefined),
        '0'.repeat(64),
      ),
    ).toMatch(/is another bundle/);
  });

  it('that is missing, a symlink, a directory or a FIFO', async () => {
    const folder = directory();
    expect(await refusal(join(folder, 'none'))).toMatch(/there is no bundle/);
    symlinkSync(
      edited(() => undefined),
      join(folder, 'link'),
    );
    expect(await refusal(join(folder, 'link'))).toMatch(/is a symlink/);
    expect(await refusal(folder)).toMatch(/not a regular file/);
    expect(spawnSync('mkfifo', [join(folder, 'fifo')]).status).toBe(0);
    expect(await refusal(join(folder, 'fifo'))).toMatch(/not a regular file/);
  });

  it('that is too large to be one', async () => {
    const file = join(directory(), 'run-bundle.json');
    writeFileSync(file, '');
    truncateSync(file, 257 * 1024 * 1024);
    expect(await refusal(file)).toMatch(/at most 268435456 are read/);
  });

  it.runIf(process.geteuid?.() !== 0)('that may not be read', async () => {
    const file = edited(() => undefined);
    chmodSync(file, 0o000);
    expect(await refusal(file)).toMatch(/EACCES/);
  });
});

type JsonObjectLike = Record<string, unknown>;

/** Every subschema, with where it is. */
function* subschemas(node: unknown, place = '$'): Generator<{ readonly place: string; readonly node: JsonObjectLike }> {
  if (Array.isArray(node)) {
    for (const [index, item] of node.entries()) yield* subschemas(item, `${place}[${index}]`);
  } else if (typeof node === 'object' && node !== null) {
    yield { place, node: node as JsonObjectLike };
    for (const [key, item] of Object.entries(node)) yield* subschemas(item, `${place}.${key}`);
  }
}

describe('the schema', () => {
  it('is strict: every object is closed and every property is described', async () => {
    for (const { place, node } of subschemas(schema)) {
      if (node.type !== 'object' || typeof node.properties !== 'object' || node.properties === null) continue;
      expect([place, node.additionalProperties]).toEqual([place, false]);
      for (const [name, property] of Object.entries(node.properties)) {
        if (/^\$\.(?:\$defs\.\w+|properties\.\w+)?\.?.*dimensions$/.test(place)) continue;
        const { description, $ref } = property as JsonObjectLike;
        expect([`${place}.${name}`, description ?? $ref]).toEqual([`${place}.${name}`, matching(/./)]);
      }
    }
    const validate = compileSchema(schema);
    expect(validate(toSnake(formatBundle(sampleBody()).bundle))).toEqual([]);
    expect(validate(toSnake(formatBundle(refusedBody()).bundle))).toEqual([]);
  });

  it('needs every member', async () => {
    const validate = compileSchema(schema);
    const whole = toSnake(formatBundle(sampleBody()).bundle) as JsonObject;
    for (const key of Object.keys(whole)) {
      const rest = Object.fromEntries(Object.entries(whole).filter(([name]) => name !== key));
      expect([key, validate(rest).length]).toEqual([key, 1]);
    }
  });

  it('is found where the package publishes it', () => {
    expect(existsSync(join(import.meta.dirname, '../../schemas/run-bundle.schema.json'))).toBe(true);
  });
});

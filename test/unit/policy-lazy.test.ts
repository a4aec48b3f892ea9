import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const SRC = fileURLToPath(new URL('../../src/', import.meta.url));

/** Libraries that only a run with files of its own may pay for. */
const LAZY = /^import (?!type )[^;]*from '(?:yaml|ajv(?:\/[^']*)?|picomatch|ipaddr\.js)'/m;

describe('a run without a job file', () => {
  it('loads no YAML, schema or glob library: nothing in policy and admission imports one statically', async () => {
    const files = (
      await Promise.all(
        ['policy', 'policy/registries', 'admission'].map(async (folder) =>
          (await readdir(join(SRC, folder))).filter((name) => name.endsWith('.ts')).map((name) => join(SRC, folder, name)),
        ),
      )
    ).flat();
    expect(files.length).toBeGreaterThan(30);
    for (const file of files) expect(LAZY.exec(await readFile(file, 'utf8'))?.[0], file).toBeUndefined();
  });

  it('the pattern sees a static import and not a lazy one', () => {
    expect(LAZY.test("import { parse } from 'yaml';")).toBe(true);
    expect(LAZY.test("import { Ajv2020 } from 'ajv/dist/2020.js';")).toBe(true);
    expect(LAZY.test("import type { ErrorObject } from 'ajv';")).toBe(false);
    expect(LAZY.test("const yaml = await import('yaml');")).toBe(false);
  });
});

import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { locateShim, packageRoot, shimPath } from '../../executors/shim/locate.host.ts';
import { ProofrunError } from '../../src/core/errors.ts';

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'proofrun-locate-'));
});

afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

describe('locateShim', () => {
  test('takes the path that the caller of the library gives', () => {
    const path = join(folder, 'shim');
    writeFileSync(path, '');
    chmodSync(path, 0o755);
    expect(locateShim(path)).toBe(path);
  });

  test.each([
    ['absent', () => join(folder, 'absent')],
    [
      'not executable',
      () => {
        const path = join(folder, 'plain');
        writeFileSync(path, '', { mode: 0o644 });
        return path;
      },
    ],
  ])('a given path that is %s: ERR_SHIM_MISSING names the command that builds it', (_kind, make) => {
    let thrown: unknown;
    try {
      locateShim(make());
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(ProofrunError);
    expect(thrown).toMatchObject({ code: 'ERR_SHIM_MISSING', hint: `node ${join(packageRoot(), 'scripts', 'build-shim.mjs')}` });
  });

  test('no environment variable chooses the shim', () => {
    const before = process.env;
    const without = outcome();
    process.env = {
      ...before,
      PROOFRUN_SHIM: '/bin/true',
      PROOFRUN_SHIM_PATH: '/bin/true',
      npm_config_proofrun_shim: '/bin/true',
      npm_package_config_shim: '/bin/true',
    };
    try {
      expect(outcome()).toBe(without);
      expect([shimPath(packageRoot(), process.arch), 'ERR_SHIM_MISSING']).toContain(without);
    } finally {
      process.env = before;
    }
  });

  function outcome(): string {
    try {
      return locateShim();
    } catch (error) {
      return error instanceof ProofrunError ? error.code : 'other';
    }
  }

  test('the package is the one whose package.json names it', () => {
    expect(packageRoot()).toBe(join(import.meta.dirname, '../..'));
  });
});

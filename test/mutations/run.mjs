#!/usr/bin/env node
// npm run mutate [-- PROMISE]: takes out each mechanism of test/mutations/list.mjs in a copy of the tree; its tests have to fail.
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { MUTATIONS } from './list.mjs';

const ROOT = resolve(import.meta.dirname, '../..');
const wanted = process.argv.slice(2).map(Number);
const copy = mkdtempSync(join(tmpdir(), 'proofrun-mutate-'));
let survived = 0;
try {
  for (const name of ['src', 'test', 'executors', 'schemas', 'policies', 'scripts', 'package.json', 'tsconfig.json', 'vitest.config.ts']) {
    cpSync(join(ROOT, name), join(copy, name), { recursive: true });
  }
  symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
  const list = MUTATIONS.filter(({ promise }) => wanted.length === 0 || wanted.includes(promise));
  const files = [...new Set(list.map(({ tests }) => testFile(tests)))];
  const base = vitest(files);
  if (base.status !== 0) throw new Error(`without any change the tests fail:\n${base.stdout}`);
  for (const mutation of list) survived += mutate(mutation) ? 0 : 1;
  console.log(survived === 0 ? `mutate: all ${list.length} were noticed` : `mutate: ${survived} of ${list.length} were not noticed`);
} finally {
  rmSync(copy, { recursive: true, force: true });
}
process.exit(survived === 0 ? 0 : 1);

function testFile(tests) {
  return tests.startsWith('../') ? `test/unit/${tests.slice(3)}.test.ts` : `test/unit/control-${tests}.test.ts`;
}

function mutate({ promise, what, file, find, put, tests }) {
  const path = join(copy, file);
  const text = readFileSync(path, 'utf8');
  if (text.split(find).length !== 2) {
    console.log(`STALE     ${promise}  ${what}: ${file} does not hold its text exactly once`);
    return false;
  }
  writeFileSync(
    path,
    text.replace(find, () => put),
  );
  const { status, stdout } = vitest([testFile(tests)], '--bail', '1');
  writeFileSync(path, text);
  // A test has to fail: a file that doesn't load, or a run that was cut off, shows nothing.
  const noticed = status === 1 && /Tests\s+[0-9]+ failed/.test(stdout.replaceAll(/\u001b\[[0-9;]*m/g, ''));
  console.log(`${noticed ? 'noticed ' : status === 0 ? 'SURVIVED' : 'BROKEN  '}  ${promise}  ${what}`);
  return noticed;
}

function vitest(files, ...more) {
  return spawnSync(process.execPath, [join(ROOT, 'node_modules/vitest/vitest.mjs'), 'run', ...files, '--root', copy, '--reporter=dot', ...more], {
    cwd: copy,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 180_000,
  });
}

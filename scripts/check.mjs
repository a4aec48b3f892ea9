#!/usr/bin/env node
// npm run check: types, lint, format, unused code, unit and property tests, docs in step. Two at a time; each prints when it ends.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, handOver, prepare } from './setup.mjs';

const bin = (path) => join(ROOT, 'node_modules', path);
const CHECKS = [
  ['lint', [bin('eslint/bin/eslint.js'), '.', '--max-warnings=0']],
  ['types', [bin('typescript/bin/tsc'), '-p', '.']],
  ['unit and property tests', [bin('vitest/vitest.mjs'), 'run', '--project', 'unit', '--project', 'property', '--reporter=default']],
  [
    'format',
    [
      bin('prettier/bin/prettier.cjs'),
      '--check',
      '.',
      '--log-level=warn',
      '--cache',
      '--cache-strategy=content',
      `--cache-location=${join(ROOT, 'build', 'prettier-cache')}`,
    ],
  ],
  ['unused code', [bin('knip/bin/knip.js'), '--no-progress']],
  ...(existsSync(join(ROOT, 'scripts', 'gen-docs.mjs')) ? [['docs in step', [join(ROOT, 'scripts', 'gen-docs.mjs'), '--check']]] : []),
];

await prepare({ tests: true });
const waiting = [...CHECKS];
const failed = [];
await Promise.all([drain(), drain()]);
handOver();
console.log(failed.length === 0 ? 'check: all good' : `check: failed: ${failed.join(', ')}`);
process.exit(failed.length === 0 ? 0 : 1);

async function drain() {
  for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
    const [name, argv] = next;
    const began = performance.now();
    const { code, output } = await collect(argv);
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    console.log(`${code === 0 ? 'ok    ' : 'FAILED'}  ${name}  ${seconds} s`);
    if (code !== 0) {
      failed.push(name);
      console.log(output.trimEnd());
    }
  }
}

/** Output is shown only for a check that failed. */
function collect(argv) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, argv, { cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'] });
    const parts = [];
    child.stdout.on('data', (part) => parts.push(part));
    child.stderr.on('data', (part) => parts.push(part));
    child.on('error', (error) => parts.push(Buffer.from(String(error))));
    child.on('close', (code) => resolve({ code, output: Buffer.concat(parts).toString() }));
  });
}

import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { receiptLine } from '../src/receipt.js';

test('a line is 28 columns wide', () => {
  const line = receiptLine('apples', 1250);
  assert.equal(line, 'apples                 12.50');
  // A real result of the tests: worth applying.
  mkdirSync('reports', { recursive: true });
  writeFileSync('reports/receipt.txt', `${line}\n`);
});

#!/usr/bin/env node
// Prints `N passed, N failed, N skipped` for the last run of the tests.
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const RESULTS = join(dirname(dirname(fileURLToPath(import.meta.url))), 'build', 'test-results.json');

/**
 * Counts of the last run. A file that could not be loaded, or whose hooks failed, counts as one failed test;
 * a run that wrote no results at all does too.
 */
export function readSummary() {
  let counts = { passed: 0, failed: 1, skipped: 0 };
  try {
    counts = count(JSON.parse(readFileSync(RESULTS, 'utf8')));
  } catch {
    // No results: the runner itself failed, and has said why.
  }
  return { ...counts, line: `${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped` };
}

function count(results) {
  const broken = results.testResults.filter((file) => file.status === 'failed' && !file.assertionResults.some((test) => test.status === 'failed')).length;
  return { passed: results.numPassedTests, failed: results.numFailedTests + broken, skipped: results.numPendingTests + results.numTodoTests };
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  console.log(readSummary().line);
}

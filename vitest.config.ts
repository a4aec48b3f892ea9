import { defineConfig } from 'vitest/config';

/**
 * Each folder of test/ is a project. The ones that start sandboxes share a session: the bundles and the shim are built,
 * and as root a copy that the ordinary user can read is made (test/support/session.host.ts).
 * Groups run one after the other; two workers, so that what is timed isn't starved on a small machine.
 */
const plain = (name: string, groupOrder: number) => ({
  test: { name, include: [`test/${name}/**/*.test.ts`], maxWorkers: 2, sequence: { groupOrder }, testTimeout: 20_000 },
});

const sandboxed = (name: string, groupOrder: number, maxWorkers: number) => ({
  test: {
    name,
    include: [`test/${name}/**/*.test.ts`],
    maxWorkers,
    sequence: { groupOrder },
    globalSetup: ['test/support/session.host.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});

export default defineConfig({
  test: {
    environment: 'node',
    pool: 'forks',
    projects: [
      plain('unit', 0),
      plain('property', 0),
      plain('golden', 0),
      sandboxed('conformance', 1, 2),
      sandboxed('escape', 1, 2),
      sandboxed('e2e', 1, 2),
      sandboxed('fault', 2, 1),
    ],
    reporters: ['default', ['json', { outputFile: 'build/test-results.json' }]],
  },
});

import { readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import schema from '../../schemas/run.schema.json' with { type: 'json' };
import { readRunFacts, writeRunFacts, type RunFacts } from '../../src/runner/run-json.host.ts';
import { temporaryDirectories } from '../support/temporary.ts';

const directory = temporaryDirectories();

const FACTS: RunFacts = {
  version: 1,
  id: 'run-01KC4Q8Z000000000000000000',
  attempt: 'att-01KC4Q8Z000000000000000000',
  name: 'unit',
  state: 'finished',
  ending: { kind: 'timeout', afterMs: 1_800_000 },
  mode: 'safe',
  argv: ['npm', 'test'],
  cwd: '/home/ana/shop',
  workspace: '/home/ana/shop',
  user: { uid: 1000, gid: 1000 },
  recordedMs: 1_000,
  startedMs: 1_014,
  endedMs: 15_200,
  executor: { id: 'native', version: 'bubblewrap 0.8.0' },
  proofrunVersion: '0.1.0',
};

/** Words that would state something about enforcement. */
const CLAIMS = /level|receipt|claim|enforc|observ|evidence|probe|control|safety|plan|verif|protect|secure|dimension|enforced|cooperative/i;

/** Names of all properties of a schema, at any depth. */
function propertyNames(node: unknown): readonly string[] {
  if (typeof node !== 'object' || node === null) return [];
  return Object.entries(node).flatMap(([key, value]: [string, unknown]) => [
    ...(key === 'properties' && typeof value === 'object' && value !== null ? Object.keys(value) : []),
    ...propertyNames(value),
  ]);
}

describe('run.json', () => {
  it('is read as it was written, 0600', async () => {
    const folder = directory();
    writeRunFacts(folder, FACTS);
    expect(statSync(join(folder, 'run.json')).mode & 0o7777).toBe(0o600);
    expect(await readRunFacts(folder)).toEqual(FACTS);
    const bare: RunFacts = { ...FACTS, attempt: null, name: null, ending: null, startedMs: null, endedMs: null, executor: null, state: 'recorded' };
    writeRunFacts(folder, bare);
    expect(await readRunFacts(folder)).toEqual(bare);
  });

  it('has no place for a level, a receipt or a claim', () => {
    expect(propertyNames(schema).filter((name) => CLAIMS.test(name))).toEqual([]);
    const text = JSON.stringify(schema);
    // An open object anywhere would be such a place.
    expect(text.match(/"type":"object"/g)?.length).toBe(text.match(/"type":"object","additionalProperties":false/g)?.length);
    expect(text).not.toMatch(/"(?:unenforced|cooperative|enforced|planned|unsupported)"/);
  });

  it.each([
    ['a level', { level: 'enforced' }],
    ['receipts', { receipts: [] }],
    ['a claim', { sandboxed: true }],
    ['a level of the executor', { executor: { id: 'native', version: '1', level: 'enforced' } }],
    ['executor_observations', { executor_observations: {} }],
    ['an unknown state', { state: 'safe' }],
    ['another version', { version: 2 }],
    ['no command', { argv: [] }],
  ])('is refused with %s', async (_reason, change) => {
    const folder = directory();
    writeRunFacts(folder, FACTS);
    const text = readFileSync(join(folder, 'run.json'), 'utf8');
    writeFileSync(join(folder, 'run.json'), JSON.stringify({ ...(JSON.parse(text) as object), ...change }));
    await expect(readRunFacts(folder)).rejects.toMatchObject({ code: 'ERR_BUNDLE_INVALID' });
  });

  it('is never read through a symlink', async () => {
    const real = directory();
    writeRunFacts(real, FACTS);
    const folder = directory();
    symlinkSync(join(real, 'run.json'), join(folder, 'run.json'));
    await expect(readRunFacts(folder)).rejects.toThrow(/is a symlink/);
    await expect(readRunFacts(directory())).rejects.toThrow(/ENOENT/);
  });
});

import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { EXIT_CODES } from '../../src/core/errors.ts';
import { exitCodeRows } from '../../src/cli/exit-codes.ts';
import { COMMAND_NAMES } from '../../src/cli/command-table.ts';
import { flagsOf, flagText } from '../../src/cli/flags.ts';
import { formatHelp } from '../../src/cli/help.ts';
import { parseCommandLine, type HelpTopic } from '../../src/cli/parse.ts';

const TOPICS: readonly (readonly [string, HelpTopic | undefined])[] = [
  ['job', undefined],
  ['exit-codes', 'exit-codes'],
  ['policy', { family: 'policy' }],
  ...COMMAND_NAMES.map((name) => [name.replace(' ', '-'), name] as const),
];

describe('help', () => {
  test.each(TOPICS)('%s', async (name, topic) => {
    const text = formatHelp(topic);
    for (const line of text.split('\n')) expect(line.length, line).toBeLessThanOrEqual(80);
    await expect(text).toMatchFileSnapshot(join(import.meta.dirname, 'help', `${name === 'policy' ? 'policy-family' : name}.txt`));
  });

  test('names every flag of a command', () => {
    for (const name of COMMAND_NAMES) for (const key of flagsOf(name)) expect(formatHelp(name)).toContain(flagText(key));
  });

  test('shows only examples that the parser reads', () => {
    for (const name of COMMAND_NAMES) {
      const examples = formatHelp(name).split('Examples:\n')[1] ?? '';
      for (const line of examples.split('\n').filter((text) => text.startsWith('  job '))) {
        const words = line.trim().replace(/ >.*$/, '').split(' ').slice(1);
        expect(parseCommandLine(words).kind, line).toBe(name === 'help' ? 'help' : 'command');
      }
    }
  });

  test('lists every exit code', () => {
    const listed = new Set(exitCodeRows().map(([code]) => code));
    for (const code of Object.values(EXIT_CODES)) expect(listed.has(String(code))).toBe(true);
  });
});

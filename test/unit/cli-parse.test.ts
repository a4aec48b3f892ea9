import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ProofrunError } from '../../src/core/errors.ts';
import { COMMAND_NAMES, type CommandName } from '../../src/cli/command-table.ts';
import { EXCLUSIVE, FLAG_KEYS, flagRow, flagsOf, flagText, longName } from '../../src/cli/flags.ts';
import { jobFileOf, jobRequestOf } from '../../src/cli/job-request.ts';
import { parseCommandLine } from '../../src/cli/parse.ts';
import type { ParsedArgs } from '../../src/cli/command.ts';

function parse(...argv: string[]): ParsedArgs {
  const line = parseCommandLine(argv);
  if (line.kind !== 'command') throw new Error(`help: ${JSON.stringify(line.topic)}`);
  return line.args;
}

function refusal(...argv: string[]): ProofrunError {
  try {
    parseCommandLine(argv);
  } catch (error) {
    if (error instanceof ProofrunError) return error;
    throw error;
  }
  throw new Error(`accepted: ${argv.join(' ')}`);
}

describe('where our flags end', () => {
  test.each([
    { argv: ['run', '--safe', '--', 'npm', 'test'], flags: { safe: true }, words: ['npm', 'test'], afterDashes: true },
    { argv: ['run', 'npm', 'test'], flags: {}, words: ['npm', 'test'], afterDashes: false },
    { argv: ['run', 'npm', '--safe', '--help'], flags: {}, words: ['npm', '--safe', '--help'], afterDashes: false },
    { argv: ['run', '--', '--odd', '--', 'x'], flags: {}, words: ['--odd', '--', 'x'], afterDashes: true },
    { argv: ['run', '--memory', '2GiB', 'make'], flags: { memory: 2 ** 31 }, words: ['make'], afterDashes: false },
    { argv: ['run', '--safe', 'sh', '-c', '-x'], flags: { safe: true }, words: ['sh', '-c', '-x'], afterDashes: false },
    { argv: ['run', '-'], flags: {}, words: ['-'], afterDashes: false },
    { argv: ['run', 'a', ''], flags: {}, words: ['a', ''], afterDashes: false },
    { argv: ['policy', 'explain', '--safe', 'npm', 'ci'], flags: { safe: true }, words: ['npm', 'ci'], afterDashes: false },
    { argv: ['status', 'last', '--review'], flags: { review: true }, words: ['last'], afterDashes: false },
  ])('$argv', ({ argv, flags, words, afterDashes }) => {
    expect(parse(...argv)).toMatchObject({ flags, words, afterDashes, argv });
  });

  test('whatever follows the program belongs to it, byte for byte', () => {
    fc.assert(
      fc.property(fc.array(fc.string()), (rest) => {
        expect(parse('run', '--safe', '--', 'x', ...rest).words).toEqual(['x', ...rest]);
        expect(parse('run', '--safe', 'x', ...rest).words).toEqual(['x', ...rest]);
      }),
    );
  });

  test('any arguments are either read or refused with ERR_USAGE', () => {
    const word = fc.oneof(fc.string(), fc.constantFrom('run', 'status', '--safe', '-e', '--memory', '--', '-dq', '--name=', '--no-net', 'policy', '--help'));
    fc.assert(
      fc.property(fc.array(word, { maxLength: 8 }), (argv) => {
        try {
          parseCommandLine(argv);
        } catch (error) {
          expect(error).toMatchObject({ code: 'ERR_USAGE', exitCode: 2 });
        }
      }),
      { numRuns: 2000 },
    );
  });
});

describe('values', () => {
  test('are converted to bytes, milliseconds and numbers', () => {
    expect(parse('run', '--memory', '512MiB', '--cpus=1.5', '--processes', '64', '--timeout', '1h30m', 'x').flags).toEqual({
      memory: 512 * 2 ** 20,
      cpus: 1.5,
      processes: 64,
      timeout: 5_400_000,
    });
  });

  test('of a flag that repeats form a list, in order', () => {
    expect(parse('run', '-e', 'B=2', '--env', 'A', '-eC', '--allow-net', 'a.example', '--allow-net=b.example:8443', 'x').flags).toEqual({
      env: ['B=2', 'A', 'C'],
      allowNet: ['a.example', 'b.example:8443'],
    });
  });

  test('short flags may be grouped', () => {
    expect(parse('run', '-dq', 'x').flags).toEqual({ detach: true, quiet: true });
    expect(parse('run', '-qe', 'A=1', 'x').flags).toEqual({ quiet: true, env: ['A=1'] });
  });

  test.each([
    { argv: ['run', '--memory', '2G', 'x'], says: ['--memory expects a size with a unit', 'received "2G"'], hint: 'write --memory 2GiB' },
    { argv: ['run', '--memory', '2', 'x'], says: ['received "2"'], hint: 'write --memory 2B, 2MiB or 2GiB' },
    { argv: ['run', '--memory', '0B', 'x'], says: ['above 0', 'received "0B"'], hint: 'write --memory 512MiB' },
    { argv: ['run', '--timeout', '5 min', 'x'], says: ['--timeout expects a duration with a unit'], hint: 'write --timeout 5m' },
    { argv: ['run', '--processes', '-1', 'x'], says: ['--processes needs a value (N); received "-1"'], hint: 'write --processes 64' },
    { argv: ['run', '--processes=1.5', 'x'], says: ['a whole number from 1; received "1.5"'], hint: 'write --processes 64' },
    { argv: ['run', '--cpus', '0', 'x'], says: ['a number above 0; received "0"'], hint: 'write --cpus 1.5' },
    { argv: ['run', '--executor', 'nativ', 'x'], says: ['one of auto, native, docker, host; received "nativ"'], hint: 'write --executor native' },
    { argv: ['run', '--degrade', 'network', 'x'], says: ['cannot waive network'], hint: 'leave --safe out' },
    { argv: ['run', '--degrade', 'credential', 'x'], says: ['one of credentials, models, tools, resources'], hint: 'write --degrade credentials' },
    { argv: ['run', '--name=', 'x'], says: ['--name expects NAME; received ""'], hint: 'write --name NAME' },
    { argv: ['run', '--workspace', 'a\0b', 'x'], says: ['--workspace expects DIR; received "a\\u0000b"'], hint: 'write --workspace DIR' },
    { argv: ['run', '--name', '--safe', 'x'], says: ['--name needs a value (NAME); received "--safe"'], hint: '--name=--safe if that is meant' },
    { argv: ['run', '--memory'], says: ['--memory needs a value (SIZE); received nothing'], hint: 'write --memory 512MiB' },
    { argv: ['run', '--safe=yes', 'x'], says: ['--safe takes no value; received "yes"'], hint: 'write --safe alone' },
    { argv: ['run', '--name', 'a', '--name', 'b', 'x'], says: ['--name is given twice'], hint: 'keep one --name' },
  ])('$argv', ({ argv, says, hint }) => {
    const error = refusal(...argv);
    expect(error.code).toBe('ERR_USAGE');
    for (const part of says) expect(error.message).toContain(part);
    expect(error.hint).toContain(hint);
  });
});

describe('what does not exist or does not go together', () => {
  test.each([
    { argv: ['run', '--saef', 'x'], says: 'has no flag "--saef"; did you mean `--safe`?' },
    { argv: ['run', '-z', 'x'], says: '`job run` has no flag "-z"' },
    { argv: ['status', '--patch'], says: 'it belongs to `job diff`' },
    { argv: ['rnu'], says: 'did you mean `run`' },
    { argv: ['npm'], says: 'unknown command "npm"' },
    { argv: ['\x1b[2J'], says: 'unknown command "\\u001b[2J"' },
    { argv: ['--safe', 'npm'], says: 'a command comes before flags; received "--safe"' },
    { argv: ['policy'], says: 'needs one of ls, show, check, explain; received nothing' },
    { argv: ['policy', 'sho'], says: 'received "sho"' },
    { argv: ['run'], says: '`job run` needs [--] COMMAND [ARG...] | JOBFILE | --agent FILE; received nothing' },
    { argv: ['run', '--safe'], says: 'received nothing' },
    { argv: ['run', '--safe', '--'], says: 'received nothing' },
    { argv: ['ls', 'x'], says: '`job ls` takes no words; received "x" as well' },
    { argv: ['status', 'a', 'b'], says: 'takes [RUN]; received "b" as well' },
    { argv: ['help', 'rn'], says: 'no help on "rn"; did you mean `run`' },
  ])('$argv', ({ argv, says }) => {
    const error = refusal(...argv);
    expect(error.exitCode).toBe(2);
    expect(error.message).toContain(says);
    expect(error.hint).toBeTruthy();
  });

  test.each([
    ['run', '--no-net', '--allow-net', 'a.example', 'x'],
    ['run', '-t', '-T', 'x'],
    ['run', '-d', '-t', 'x'],
    ['run', '-dt', 'x'],
    ['run', '--strict', '--degrade', 'resources', 'x'],
    ['diff', '--patch', '--stat'],
    ['apply', '--all', '--path', 'src'],
  ])('%s %s %s', (...argv) => {
    expect(refusal(...argv).message).toMatch(/contradict each other: /);
  });

  test('each group of contradictions can be typed, so that its row is alive', () => {
    for (const { flags } of EXCLUSIVE) {
      const command = COMMAND_NAMES.find((name) => flags.every((key) => flagsOf(name).includes(key)));
      expect(command, flags.join(' ')).toBeDefined();
    }
  });
});

describe('the table', () => {
  test('names and short letters are unique within a command', () => {
    for (const command of COMMAND_NAMES) {
      const keys = flagsOf(command);
      const shorts = keys.flatMap((key) => flagRow(key).short ?? []);
      expect(new Set(shorts).size).toBe(shorts.length);
      expect(new Set(keys.map(longName)).size).toBe(keys.length);
    }
  });

  test('every flag belongs to a command, and its text leads back to it', () => {
    for (const key of FLAG_KEYS) {
      const commands = COMMAND_NAMES.filter((name) => flagsOf(name).includes(key));
      expect(commands.length, key).toBeGreaterThan(0);
      expect(flagText(key)).toMatch(/^--[a-z]+(-[a-z]+)*$/);
    }
  });

  const sample = (key: (typeof FLAG_KEYS)[number]): string[] => {
    const { value } = flagRow(key);
    switch (value.kind) {
      case 'none':
        return [flagText(key)];
      case 'size':
        return [flagText(key), '1MiB'];
      case 'duration':
        return [flagText(key), '1s'];
      case 'count':
      case 'decimal':
        return [flagText(key), '2'];
      case 'dimension':
        return [flagText(key), 'resources'];
      case 'choice':
        return [flagText(key), value.of[0] ?? ''];
      default:
        return [flagText(key), 'x'];
    }
  };

  test('every command reads every flag of its row', () => {
    const leastWords: Partial<Record<CommandName, string[]>> = {
      run: ['x'],
      fork: ['cp', 'x'],
      inspect: ['last', 'x'],
      'checkpoint delete': ['cp'],
      approve: ['x'],
      reject: ['x'],
      'policy show': ['x'],
      'policy check': ['x'],
      'policy explain': ['x'],
      completion: ['bash'],
    };
    for (const command of COMMAND_NAMES) {
      if (command === 'help') continue;
      for (const key of flagsOf(command)) {
        if (key === 'help') continue;
        const words = key === 'agent' ? [] : (leastWords[command] ?? []);
        expect(Object.keys(parse(...command.split(' '), ...sample(key), ...words).flags)).toEqual([key]);
      }
    }
  });

  test('--help anywhere before the program explains the command', () => {
    for (const command of COMMAND_NAMES) {
      expect(parseCommandLine([...command.split(' '), '--help'])).toEqual({ kind: 'help', topic: command === 'help' ? 'help' : command });
    }
    expect(parseCommandLine(['run', '--safe', '-h', 'npm'])).toEqual({ kind: 'help', topic: 'run' });
    expect(parseCommandLine(['--help'])).toEqual({ kind: 'help', topic: undefined });
    expect(parseCommandLine([])).toEqual({ kind: 'help', topic: undefined });
    expect(parseCommandLine(['policy', '--help'])).toEqual({ kind: 'help', topic: { family: 'policy' } });
    expect(parseCommandLine(['help', 'policy', 'explain'])).toEqual({ kind: 'help', topic: 'policy explain' });
    expect(parseCommandLine(['help', 'exit-codes'])).toEqual({ kind: 'help', topic: 'exit-codes' });
  });
});

describe('a job file', () => {
  test.each([
    [['run', 'job.yaml'], 'job.yaml'],
    [['run', '--safe', './ci/unit.yml'], './ci/unit.yml'],
    [['run', 'job.json'], 'job.json'],
    [['run', '--', 'job.yaml'], undefined],
    [['run', 'job.yaml', 'more'], undefined],
    [['run', 'npm'], undefined],
  ])('%j', (argv, file) => {
    expect(jobFileOf(parse(...argv))).toBe(file);
  });

  test('flags become the request, under the names of the policy', () => {
    const args = parse(
      'run',
      '--strict',
      '--use',
      'npm-install',
      '--policy',
      'ci',
      '--no-net',
      '--deny-read',
      '~/x',
      '-e',
      'A=1',
      '--timeout',
      '5m',
      '--workspace',
      'w',
      '--',
      'npm',
      'ci',
    );
    expect(jobRequestOf(args)).toEqual({
      argv: ['npm', 'ci'],
      mode: 'strict',
      use: ['npm-install'],
      policies: ['ci'],
      noNet: true,
      denyRead: ['~/x'],
      env: ['A=1'],
      timeoutMs: 300_000,
      workspace: 'w',
    });
    expect(jobRequestOf(parse('run', '--safe', 'job.yaml'))).toEqual({ argv: [], jobFile: 'job.yaml', mode: 'safe' });
  });
});

import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { completionScript, SHELLS } from '../../src/cli/completion.ts';
import { COMMAND_NAMES } from '../../src/cli/command-table.ts';
import { flagsOf, flagText, longName } from '../../src/cli/flags.ts';

let directory = '';
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'proofrun-completion-'));
  for (const shell of SHELLS) writeFileSync(join(directory, `job.${shell}`), completionScript(shell));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** Not everybody has it; the tests say so when it is absent. */
const FISH: string = SHELLS[2];

function has(program: string): boolean {
  return spawnSync(program, ['-c', 'exit 0']).status === 0;
}

/** What bash offers for the last word. `job` itself is not on the path, so runs offer only `last`. */
function offered(...words: string[]): readonly string[] {
  const script = `source ${join(directory, 'job.bash')}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _job; printf '%s\\n' "\${COMPREPLY[@]}"`;
  return execFileSync('bash', ['--norc', '-c', script, 'bash', 'job', ...words], { encoding: 'utf8', cwd: directory, stdio: ['ignore', 'pipe', 'pipe'] })
    .split('\n')
    .filter((line) => line !== '');
}

describe('bash', () => {
  test('commands, then the words of a family', () => {
    expect(offered('sta')).toEqual(['status']);
    expect(offered('policy', '')).toEqual(['ls', 'show', 'check', 'explain']);
  });

  test('every flag of every command, and none of another', () => {
    for (const name of COMMAND_NAMES) {
      const flags = offered(...name.split(' '), '--').filter((word) => word.startsWith('--'));
      expect([...flags].sort(), name).toEqual(flagsOf(name).map(flagText).sort());
    }
  });

  test('values of a closed list, files for a path', () => {
    expect(offered('run', '--executor', '')).toEqual(['auto', 'native', 'docker', 'host']);
    expect(offered('run', '--degrade', 'c')).toEqual(['credentials']);
    expect(offered('run', '--id-file', 'job.b')).toEqual(['job.bash']);
    expect(offered('completion', '')).toEqual([...SHELLS]);
  });

  test('after the program our flags are over', () => {
    expect(offered('run', '--safe', '--', 'cat', '--')).toEqual([]);
    expect(offered('run', '--memory', '1GiB', '--')).toContain('--safe');
    expect(offered('run', 'cat', 'job.z')).toEqual(['job.zsh']);
  });

  test('a run', () => {
    expect(offered('status', 'la')).toEqual(['last']);
  });
});

describe.skipIf(!has('zsh'))('zsh (skipped without zsh)', () => {
  test('reads the script', () => {
    expect(spawnSync('zsh', ['-n', join(directory, 'job.zsh')], { encoding: 'utf8' })).toMatchObject({ status: 0, stderr: '' });
  });
});

describe.skipIf(!has(FISH))('fish (skipped without fish)', () => {
  test('offers commands and flags', () => {
    const complete = (line: string): readonly string[] =>
      execFileSync(FISH, ['--no-config', '-c', `source ${join(directory, 'job.fish')}; complete -C '${line}'`], {
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'ignore'],
        env: { ...process.env, HOME: directory },
      })
        .split('\n')
        .map((text) => text.split('\t')[0] ?? '')
        .filter((text) => text !== '');
    expect(complete('job sta')).toEqual(['status']);
    expect(complete('job policy ')).toEqual(expect.arrayContaining(['ls', 'show', 'check', 'explain']));
    expect(complete('job apply --al')).toEqual(expect.arrayContaining(['--all', '--allow-exec']));
    expect(complete('job run --executor ')).toEqual(expect.arrayContaining(['auto', 'native', 'docker', 'host']));
    expect(completionScript('fish')).toContain(`-l ${longName('denyRead')}`);
  });
});

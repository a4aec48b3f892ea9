import { chmodSync, chownSync, copyFileSync, mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { outcomes } from '../support/native-attack.host.ts';
import { NativeLab } from '../support/native-lab.host.ts';
import { compileC } from '../support/native-programs.host.ts';
import { describeUsers } from '../support/users.host.ts';

/** A program of the system that takes no argument and that no list of these tests names. */
const UNLISTED = '/usr/bin/true';
/** What any job may do. */
const HARMLESS = ['thread'];
/** What the lists of programs don't touch: processes of the listed programs. Code can be mapped where it may be executed. */
const PROCESSES = ['fork', 'fork itself', 'vfork'];

describeUsers('a job whose programs are limited', (user) => {
  const lab = new NativeLab(user);
  const program = compileC('program-attack', [resolve(import.meta.dirname, '../fixtures/escape/program-attack.c')], ['-static', '-pthread']);
  const tools = join(lab.base, 'tools');
  const attack = join(tools, 'program-attack');
  const writable = [lab.workspace, '/tmp', '/dev/shm', lab.home];
  beforeAll(() => {
    mkdirSync(tools, { recursive: true, mode: 0o755 });
    copyFileSync(program, attack);
    chmodSync(attack, 0o755);
    chownSync(tools, user.uid, user.gid);
  });
  afterAll(() => lab.dispose());

  const attempts = async (programs: 'none' | readonly string[] | undefined) => {
    const report = await lab.run([attack, UNLISTED, ...writable], { allowRead: [tools], ...(programs === undefined ? {} : { programs }) });
    expect([report.error, report.unmet, report.stderr]).toEqual([undefined, [], expect.any(String) as string]);
    expect([report.ending, report.levels?.subprocess]).toEqual([{ kind: 'exit', code: 0 }, 'enforced']);
    return outcomes(report.stdout);
  };

  test('control arm: contained only, every program starts', async () => {
    const open = await attempts(undefined);
    expect(Object.keys(open).length).toBeGreaterThanOrEqual(30);
    const refused = Object.entries(open).filter(([, outcome]) => outcome !== 'ok');
    // clone3 is not there for any job: its flags are out of a filter's reach.
    expect(refused).toEqual([['clone3', 'ENOSYS']]);
  });

  test('no further program: none starts, by no way', async () => {
    const met = await attempts('none');
    for (const [name, outcome] of Object.entries(met)) {
      if (HARMLESS.includes(name) || name.startsWith('code mapped from ')) expect([name, outcome]).toEqual([name, 'ok']);
      else expect([name, outcome]).toEqual([name, name === 'clone3' ? 'ENOSYS' : 'EPERM']);
    }
    expect(Object.keys(met)).toEqual(Object.keys(await attempts(undefined)));
  });

  test('a list of programs: nothing that the job makes can be executed, and no unlisted program is there', async () => {
    const met = await attempts(['sh', 'ls']);
    for (const [name, outcome] of Object.entries(met)) {
      if (HARMLESS.includes(name) || PROCESSES.includes(name)) expect([name, outcome]).toEqual([name, 'ok']);
      else if (name.startsWith('code mapped from ')) expect([name, outcome]).toEqual([name, 'EPERM']);
      else if (name === 'copy in memory' || name === 'clone3') expect([name, outcome]).toEqual([name, 'ENOSYS']);
      else if (name.startsWith('unlisted program') && !name.endsWith('loader')) expect([name, outcome]).toEqual([name, 'ENOENT']);
      else expect([name, outcome]).toEqual([name, 'EACCES']);
    }
  });

  test('listed programs start, with the interpreters that they name; what they execute is judged like anything else', async () => {
    const script = join(tools, 'tool');
    lab.write('script.sh', '#!/bin/sh\necho script\n', 0o755);
    const words = 'ls / > /dev/null && echo ls; perl -e 1 || echo no perl; ./script.sh || echo no script; sh ./script.sh; mkdir x || echo no mkdir';
    const report = await lab.run(['/bin/sh', '-c', words], { allowRead: [tools], programs: ['ls', script, 'no-such-program-here'] });
    expect(report.stdout).toBe('ls\nno perl\nno script\nscript\nno mkdir\n');
    expect(report.warnings).toEqual(expect.arrayContaining([expect.stringContaining('no-such-program-here') as string]));
  });

  test('renames across directories still work, which the kernel would deny by default', async () => {
    const report = await lab.run(['/bin/sh', '-c', 'mkdir a b && echo x > a/f && mv a/f b/f && ln b/f a/g && cat a/g'], {
      programs: ['mkdir', 'mv', 'ln', 'cat'],
    });
    expect([report.stdout, report.stderr]).toEqual(['x\n', '']);
  });

  test('a command that lies where the job can write is refused, with what to do instead', async () => {
    lab.write('own', '#!/bin/sh\necho own\n', 0o755);
    const report = await lab.run(['./own'], { programs: ['sh'] });
    expect(report.error).toMatchObject({ code: 'ERR_LAUNCH', message: expect.stringContaining('./own lies in a place that the job can write') as string });
  });
});

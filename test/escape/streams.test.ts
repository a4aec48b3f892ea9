import { closeSync, openSync, readFileSync, readdirSync, writeFileSync, chownSync, mkdirSync, statSync, constants } from 'node:fs';
import { once } from 'node:events';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { jobLab, type JobLab } from '../support/job-lab.host.ts';
import { outcomes, plantAttack } from '../support/native-attack.host.ts';
import { spawnAs, describeUsers } from '../support/users.host.ts';
import { NativeDriver, NativeLab } from '../support/native-lab.host.ts';
import { buildVariant } from '../support/native-shims.host.ts';
import { SHIM_VARIANTS } from '../support/native-variants.ts';

interface Held {
  readonly input: string;
  readonly output: string;
  readonly directory: string;
}

describeUsers('rewriting what the caller handed over', (user) => {
  const own = (path: string): string => {
    chownSync(path, user.uid, user.gid);
    return path;
  };
  const hold = (base: string): Held => {
    const directory = join(base, 'outside');
    mkdirSync(directory);
    for (const name of ['input', 'output']) {
      writeFileSync(join(directory, name), `${name} as it was\n`, { mode: 0o600 });
      own(join(directory, name));
    }
    own(directory);
    return { input: join(directory, 'input'), output: join(directory, 'output'), directory };
  };
  const asItWas = (held: Held): void => {
    expect(readFileSync(held.input, 'utf8')).toBe('input as it was\n');
    expect(statSync(held.input).mode & 0o777).toBe(0o600);
    expect(statSync(held.output).mode & 0o777).toBe(0o600);
    expect(readdirSync(held.directory).sort()).toEqual(['input', 'output']);
  };
  /** `job run ... < input > output 2> output 5<> input 6< directory`, to its end. */
  const run = async (lab: JobLab, held: Held, words: readonly string[], stdin: number | string, through = lab.spawn): Promise<number | null> => {
    const zero = typeof stdin === 'string' ? openSync(stdin, constants.O_RDWR) : stdin;
    const fds = [zero, openSync(held.output, constants.O_RDWR | constants.O_APPEND), openSync(held.output, constants.O_RDWR | constants.O_APPEND)];
    const more = [openSync(held.input, constants.O_RDWR), openSync(held.directory, constants.O_RDONLY), openSync('/', constants.O_RDONLY)];
    const child = through(words, { stdio: [...fds, 'ignore', ...more] });
    const [code] = (await once(child, 'close')) as [number | null];
    for (const fd of [...fds, ...more]) closeSync(fd);
    return code;
  };

  test('fails through the three streams of `job run`', async () => {
    const lab = jobLab(user);
    plantAttack(user, lab.workspace);
    const held = hold(lab.base);
    expect(await run(lab, held, ['run', '--safe', '-q', '--', './attack', 'streams'], held.input)).toBe(0);
    expect(await run(lab, held, ['run', '--safe', '-q', '--', './attack', 'stdout'], held.input)).toBe(0);
    asItWas(held);
    expect(readFileSync(held.output, 'utf8')).toBe('output as it was\n');
    // The command saw pipes of the shim's own.
    expect(await run(lab, held, ['run', '--safe', '-q', '--', './attack', 'streams'], held.input)).toBe(0);
    const kinds = await lab.job(['run', '--safe', '-q', '--', 'sh', '-c', './attack streams; cat answers'], { input: 'typed\n' });
    expect(kinds.stdout).toBe('kind 0 pipe\nkind 2 pipe\n');
  });

  test('fails through a directory as standard input', async () => {
    const lab = jobLab(user);
    plantAttack(user, lab.workspace);
    const held = hold(lab.base);
    const directory = openSync(held.directory, constants.O_RDONLY);
    expect(await run(lab, held, ['run', '--safe', '-q', '--', './attack', 'streams'], directory)).toBe(0);
    asItWas(held);
  });

  test('fails through descriptors that leaked into `job`: the command has 0, 1 and 2', async () => {
    const lab = jobLab(user);
    plantAttack(user, lab.workspace);
    const held = hold(lab.base);
    for (const mode of [['--safe'], []]) {
      expect(await run(lab, held, ['run', ...mode, '-q', '--', 'sh', '-c', './attack descriptors > found; cat found'], held.input)).toBe(0);
      asItWas(held);
      expect(readFileSync(held.output, 'utf8')).toBe('output as it was\n');
    }
  });

  test('output that the command writes still arrives', async () => {
    const lab = jobLab(user);
    const held = hold(lab.base);
    expect(await run(lab, held, ['run', '--safe', '-q', '--', 'sh', '-c', 'cat; echo again > /dev/stdout; echo err >&2'], held.input)).toBe(0);
    expect(readFileSync(held.output, 'utf8').split('\n').slice(0, -1).sort()).toEqual(['again', 'err', 'input as it was', 'output as it was']);
  });

  test('control arm: without a sandbox the same program rewrites, opens up and climbs', async () => {
    const lab = jobLab(user);
    const attack = plantAttack(user, lab.workspace);
    const held = hold(lab.base);
    const bare = (words: readonly string[], options: Parameters<typeof spawnAs>[2] = {}): ReturnType<typeof spawnAs> =>
      spawnAs(user, [attack, ...words], { cwd: lab.workspace, ...options });
    expect(await run(lab, held, ['streams'], held.input, bare)).toBe(0);
    expect(outcomes(readFileSync(join(lab.workspace, 'answers'), 'utf8'))).toMatchObject({ 'rewrite 0': 'ok', 'chmod 0': 'ok' });
    expect(readFileSync(held.input, 'utf8')).toBe('owned as it was\n');
    expect(await run(lab, held, ['descriptors'], held.input, bare)).toBe(0);
    expect(readdirSync(held.directory)).toContain('owned');
    expect(readFileSync(held.output, 'utf8')).toMatch(/climb from 5 ok/);
  });

  test('control arm: a shim that hands the streams on is caught at the gate, and lets the attack through without one', async () => {
    const lab = new NativeLab(user);
    plantAttack(user, lab.workspace);
    const held = hold(lab.base);
    const variant = SHIM_VARIANTS.find(({ how }) => how === "the caller's own streams are handed on");
    if (variant === undefined) throw new Error('no such variant');
    const shim = buildVariant(variant);
    for (const mode of ['safe', 'default'] as const) {
      const input = openSync(held.input, constants.O_RDWR);
      const driver = new NativeDriver(user, { stdio: [input] });
      const report = await lab.run([join(lab.workspace, 'attack'), 'streams'], { mode, stdin: 'inherit', shim }, driver);
      await driver.end();
      closeSync(input);
      if (mode === 'safe') {
        expect(report.decision?.kind).toBe('refuse');
        asItWas(held);
      } else {
        expect(report.levels?.subprocess).toBe('unenforced');
        expect(readFileSync(held.input, 'utf8')).toBe('owned as it was\n');
      }
    }
    await lab.dispose();
  });
});

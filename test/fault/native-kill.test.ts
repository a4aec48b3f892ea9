import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { basename, join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { mountsBelow } from '../support/job-lab.host.ts';
import { AttackLab } from '../support/native-attack.host.ts';
import { NativeDriver, type LabRun } from '../support/native-lab.host.ts';
import { describeUsers } from '../support/users.host.ts';

/** Processes whose environment or command line holds a text. */
function carrying(text: string): readonly string[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) =>
      ['environ', 'cmdline'].some((file) => {
        try {
          return readFileSync(`/proc/${pid}/${file}`, 'latin1').includes(text);
        } catch {
          return false;
        }
      }),
    );
}

function childrenOf(pid: number): readonly string[] {
  return readdirSync(`/proc/${pid}/task`).flatMap((task) =>
    readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8')
      .split(' ')
      .filter((child) => child !== ''),
  );
}

/** A zombie that its reaper hasn't looked at yet is dead. */
function isAlive(pid: string): boolean {
  try {
    return !/\) [ZX]/.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

/** Control groups of a run, in every hierarchy. */
function groupsOf(name: string): readonly string[] {
  return spawnSync('find', ['/sys/fs/cgroup', '-type', 'd', '-name', name], { encoding: 'utf8' })
    .stdout.split('\n')
    .filter((line) => line !== '');
}

describeUsers('kill -9 of the process that holds a sandbox', (user) => {
  const lab = new AttackLab(user);
  afterAll(() => lab.dispose());
  const TREE = ['/bin/sh', '-c', './attack storm session 5 && ./attack storm forking 3 && exec sleep 300'] as const;

  /** Brings a sandbox to a point and kills its driver there. */
  const killAt = async (options: LabRun, reach?: () => Promise<() => void | Promise<void>>): Promise<{ readonly base: string; readonly mark: string }> => {
    const mark = `killed-${randomBytes(6).toString('hex')}`;
    const base = lab.nextBase();
    const driver = new NativeDriver(user);
    const { limits } = await driver.capabilities();
    const before = readdirSync(lab.workspace);
    const running = lab.run(
      [...TREE],
      { env: { MARK: mark }, limits: { processes: 300, ...(limits.memory ? { memoryBytes: 256 << 20 } : {}) }, ...options },
      driver,
      base,
    );
    let after: (() => void | Promise<void>) | undefined;
    if (reach === undefined) expect((await running).decision).toEqual({ kind: 'release' });
    else {
      after = await Promise.race([
        reach(),
        running.then((report) => {
          throw new Error(`the point was not reached: ${report.error?.message ?? report.unmet.join(', ')}`);
        }),
      ]);
    }
    const started = childrenOf(driver.child.pid ?? -1);
    expect(started.length).toBe(1);
    await driver.kill();
    await running.catch(() => undefined);
    await after?.();
    // Nobody waits for the orphans of a killed process: they end by themselves, within moments.
    await expect.poll(() => started.filter(isAlive), { interval: 5, timeout: 5000 }).toEqual([]);
    expect(readdirSync(lab.workspace)).toEqual(before);
    return { base, mark };
  };

  const nothingLeft = async ({ base, mark }: { readonly base: string; readonly mark: string }): Promise<void> => {
    await expect.poll(() => [...carrying(mark), ...carrying(base)], { interval: 5, timeout: 5000 }).toEqual([]);
    expect(mountsBelow(base)).toEqual([]);
    const next = new NativeDriver(user);
    expect(await next.reap(base)).toEqual([]);
    await next.end();
    expect(groupsOf(basename(base))).toEqual([]);
  };

  test('while the root is built: no process, mount or control group is left', async () => {
    const pipe = join(lab.base, 'building');
    spawnSync('mkfifo', ['-m', '666', pipe]);
    const left = await killAt({ alterations: ['outer reads a named pipe on its way'], parameters: { pipe } }, async () => {
      // Opening waits until outer has opened the other side.
      const writer = await open(pipe, 'w');
      return () => writer.close();
    });
    await nothingLeft(left);
  });

  test('while the probes are made', async () => {
    const server = createServer((socket) => socket.on('error', () => undefined)).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const left = await killAt(
      { mode: 'default', network: 'public', alterations: ['the command dials a port among its probes and waits there'], parameters: { port: String(port) } },
      async () => {
        await once(server, 'connection');
        return () => undefined;
      },
    );
    await nothingLeft(left);
    server.close();
  });

  test('at the gate: the command never starts', async () => {
    const left = await killAt({ stop: 'gate' });
    await nothingLeft(left);
    expect(readdirSync(join(left.base, 'upper')).filter((name) => !name.startsWith('.proofrun-probe-'))).toEqual([]);
  });

  test('while the command and a storm of its children run', async () => {
    const left = await killAt({ stop: 'line' });
    await nothingLeft(left);
  });

  test('control: before the reaping the control group of root is still there', async ({ skip }) => {
    const { limits } = await lab.shared.capabilities();
    if (user.kind !== 'root' || !limits.processes) skip('no control group is made');
    const left = await killAt({ stop: 'line' });
    expect(groupsOf(basename(left.base))).not.toEqual([]);
    await nothingLeft(left);
  });
});

describeUsers('kill -9 of a part of the sandbox from outside', (user) => {
  const lab = new AttackLab(user);
  afterAll(() => lab.dispose());
  const PARTS = ['the relay', 'bubblewrap', 'PID 1 of the sandbox', 'the process of the command'] as const;

  test.each(PARTS.flatMap((part, index) => (['gate', 'line'] as const).map((stop) => [part, stop, index] as const)))(
    '%s, at the %s: the run ends, and nothing is left',
    async (part, stop, index) => {
      const mark = `part-${randomBytes(6).toString('hex')}`;
      const base = lab.nextBase();
      const held = await lab.run(
        ['/bin/sh', '-c', './attack storm session 3; echo x > marker; exec sleep 300'],
        { env: { MARK: mark }, limits: { processes: 300 }, stop },
        lab.shared,
        base,
      );
      const pid = held.hostPids[index];
      if (pid === undefined) throw new Error(`no process for ${part}`);
      process.kill(pid, 'SIGKILL');
      const closed = await lab.shared.then('close', base);
      expect(closed.ending?.kind).not.toBe('exit');
      // Only PID 1 can take the final receipts: without it the end of the tree is unproven. The others may leave it the time to take them.
      if (index === 2) expect(closed.levels?.subprocess).toBe('unenforced');
      expect(carrying(mark)).toEqual([]);
      expect(mountsBelow(base)).toEqual([]);
      expect(groupsOf(basename(base))).toEqual([]);
      if (stop === 'gate') expect(existsSync(join(base, 'upper', 'marker'))).toBe(false);
    },
  );
});

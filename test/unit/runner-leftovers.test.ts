import { spawn, type ChildProcess } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { endLeftovers } from '../../src/runner/leftover-processes.host.ts';
import { identify, readAttempt, writeAttempt } from '../../src/runner/process-identity.host.ts';
import { removeFile, removeTree } from '../../src/runner/run-directory.host.ts';
import { currentOwner, type Owner } from '../../src/store/index.ts';

let directory: string;
const children: ChildProcess[] = [];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'proofrun-leftovers-'));
});
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  rmSync(directory, { recursive: true, force: true });
});

/** A shell in a session of its own that has started what the script says, once it says `ready`. */
async function session(script: string): Promise<{ readonly child: ChildProcess; readonly pids: readonly number[] }> {
  const child = spawn('sh', ['-c', script], { detached: true, stdio: ['ignore', 'pipe', 'ignore'] });
  children.push(child);
  let text = '';
  for await (const chunk of child.stdout as AsyncIterable<Buffer>) {
    text += chunk.toString();
    if (text.includes('ready')) break;
  }
  return {
    child,
    pids: text
      .split('\n')
      .filter((line) => /^\d+$/.test(line))
      .map(Number),
  };
}

function lives(pid: number | undefined): boolean {
  try {
    return !/^\d+ \(.*\) [ZX] /s.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

function recordOf(pid: number | undefined): Owner {
  const [owner] = identify([pid ?? 0]);
  if (owner === undefined) throw new Error('not there');
  return owner;
}

describe('leftover processes', () => {
  test('the recorded process goes, with what it started', async () => {
    const { child, pids } = await session('sleep 300 & echo $!; (sleep 300 & echo $!; echo ready; wait) & wait');
    const { left } = endLeftovers([recordOf(child.pid)]);
    expect(left).toEqual([]);
    expect([child.pid, ...pids].filter(lives)).toEqual([]);
    expect(pids).toHaveLength(2);
  });

  test('its session goes too when it has ended itself', async () => {
    const { child, pids } = await session('sleep 300 & echo $!; echo ready');
    const record = { ...currentOwner(), pid: child.pid ?? 0, startTicks: 1 };
    await new Promise((resolve) => (child.exitCode === null ? child.once('exit', resolve) : resolve(undefined)));
    expect(pids.filter(lives)).toEqual(pids);
    expect(endLeftovers([record]).left).toEqual([]);
    expect(pids.filter(lives)).toEqual([]);
  });

  test('a number that means another process by now is left alone', async () => {
    const { child } = await session('echo ready; exec sleep 300');
    const record = recordOf(child.pid);
    for (const other of [
      { ...record, startTicks: record.startTicks + 1 },
      { ...record, bootId: 'another boot' },
      { ...record, pidNamespace: 'pid:[1]' },
    ]) {
      expect(endLeftovers([other])).toEqual({ killed: [], left: [] });
    }
    expect(lives(child.pid)).toBe(true);
  });

  test('never this process, and never anything older than the leader of a session', () => {
    const self = currentOwner();
    expect(endLeftovers([self])).toEqual({ killed: [], left: [] });
    expect(identify([2 ** 22 + 1])).toEqual([]);
  });
});

describe('the record of an attempt', () => {
  test('survives its file, and what is cut off or planted counts for nothing', () => {
    const path = join(directory, 'attempt.json');
    const record = { attempt: 'att-1', executor: 'native', processes: [{ ...currentOwner(), pid: 4242 }] };
    writeAttempt(path, record);
    expect(readAttempt(path)).toEqual(record);
    writeFileSync(path, JSON.stringify(record).slice(0, -10));
    expect(readAttempt(path)).toBeUndefined();
    for (const pid of [1, 0, -1, 1.5, process.pid, '4242']) {
      writeFileSync(path, JSON.stringify({ ...record, processes: [{ ...currentOwner(), pid }] }));
      expect(readAttempt(path)?.processes).toEqual([]);
    }
    expect(readAttempt(join(directory, 'nothing'))).toBeUndefined();
  });
});

describe('removing a tree', () => {
  test('whatever its modes and names, and never through a link', () => {
    const victim = join(directory, 'victim');
    writeFileSync(victim, 'stays');
    const tree = join(directory, 'tree');
    mkdirSync(join(tree, 'closed', 'inner'), { recursive: true });
    writeFileSync(Buffer.concat([Buffer.from(`${tree}/`), Buffer.from([0xff, 0xfe])]), '');
    symlinkSync(victim, join(tree, 'link'));
    symlinkSync(directory, join(tree, 'closed', 'up'));
    chmodSync(join(tree, 'closed', 'inner'), 0);
    chmodSync(join(tree, 'closed'), 0);
    expect(removeTree(tree)).toEqual([]);
    expect(existsSync(tree)).toBe(false);
    expect(readFileSync(victim, 'utf8')).toBe('stays');
    expect(removeTree(tree)).toEqual([]);
  });

  test('a file that is gone is no error, a directory is one', () => {
    removeFile(join(directory, 'nothing'));
    expect(() => {
      removeFile(directory);
    }).toThrow();
  });
});

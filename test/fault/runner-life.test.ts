import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { createHostExecutor } from '../../executors/host/index.ts';
import { createNativeExecutor } from '../../executors/native/index.ts';
import { ProofrunError } from '../../src/core/errors.ts';
import { perDimension } from '../../src/core/dimension.ts';
import type { RunId } from '../../src/core/ids.ts';
import type { Executor } from '../../src/executor/executor.ts';
import type { ExecutorEntry } from '../../src/executor/registry.ts';
import { libraryLab, type LibraryLab } from '../support/library-lab.host.ts';
import { changed, closingWith, oddExecutor } from '../support/odd-executor.host.ts';

const HOST: ExecutorEntry = { id: 'host', load: () => Promise.resolve(createHostExecutor({ version: 'test' })) };

/** Native, with its sessions changed: what the runner makes of a sandbox whose end isn't what its gate was. */
function wrappedNative(change: (session: Awaited<ReturnType<Executor['launch']>>) => Awaited<ReturnType<Executor['launch']>>): ExecutorEntry {
  return {
    id: 'native',
    load: () => {
      const native = createNativeExecutor({ version: 'test' });
      return Promise.resolve({
        id: native.id,
        probe: () => native.probe(),
        launch: async (request) => change(await native.launch(request)),
      } satisfies Executor);
    },
  };
}

const NOTHING_HOLDS = {
  contract: 1 as const,
  executor: 'native',
  dimensions: perDimension(() => ({ level: 'unenforced' as const, scope: 'nothing', outcomes: [] })),
  requirements: [],
  receipts: [],
};

/** What lies in a run's directory when the run is over. */
function leftovers(lab: LibraryLab, id: string): readonly string[] {
  return readdirSync(join(lab.state, 'runs', id)).filter((name) => !['run.json', 'run-bundle.json', 'stdout.log', 'stderr.log'].includes(name));
}

describe('the gate', () => {
  test('an executor that claims everything and proves nothing is not released under --safe', async () => {
    const lab = await libraryLab({ executors: [oddExecutor()] });
    const result = await lab.proofrun.run({ argv: ['sh', '-c', 'touch started'], mode: 'safe' });
    expect(result).toMatchObject({ state: 'failed', exitCode: 201, ending: { kind: 'evidence_missing' }, stageState: 'none' });
    expect(existsSync(join(lab.workspace, 'started'))).toBe(false);
    expect(result.bundle.safety.promise).toBe('broken');
    expect(result.bundle.safety.enforced).toEqual([]);
    expect(leftovers(lab, result.id)).toEqual([]);
  });

  test('in default mode it runs, and every promise that was not kept is a warning', async () => {
    const lab = await libraryLab({ executors: [oddExecutor()] });
    const result = await lab.proofrun.run({ argv: ['true'], noNet: true });
    expect(result).toMatchObject({ state: 'finished', exitCode: 0 });
    for (const dimension of ['file_read', 'file_write', 'network', 'subprocess']) {
      expect(result.bundle.warnings.join('\n')).toMatch(new RegExp(`^${dimension} was planned and is unenforced`, 'm'));
    }
  });

  test('a launch that fails leaves nothing, and its reason is the ending', async () => {
    const lab = await libraryLab({
      executors: [oddExecutor({ launch: () => Promise.reject(new ProofrunError('ERR_LAUNCH', { message: 'mount: EPERM', hint: 'job doctor' })) })],
    });
    const result = await lab.proofrun.run({ argv: ['true'], mode: 'safe' });
    expect(result).toMatchObject({ state: 'failed', exitCode: 203, ending: { kind: 'launch_failed', detail: 'mount: EPERM; job doctor' }, stageState: 'none' });
    expect(leftovers(lab, result.id)).toEqual([]);
  });

  test('a sandbox that is gone at the release is a launch that failed', async () => {
    const lab = await libraryLab({
      executors: [oddExecutor({ change: (session) => changed(session, { release: () => Promise.reject(new Error('the sandbox is gone')) }) })],
    });
    const result = await lab.proofrun.run({ argv: ['touch', 'started'] });
    expect(result).toMatchObject({ state: 'failed', exitCode: 203, ending: { kind: 'launch_failed', detail: 'the sandbox is gone' } });
    expect(existsSync(join(lab.workspace, 'started'))).toBe(false);
  });
});

describe('control lost', () => {
  test('a needed dimension that is not enforced at the end: the exit code of the command counts for nothing', async () => {
    const lab = await libraryLab({
      executors: [wrappedNative((session) => changed(session, { close: () => closingWith(session, { observations: NOTHING_HOLDS }) }))],
    });
    const result = await lab.proofrun.run({ argv: ['sh', '-c', 'echo a > a.txt'], mode: 'safe' });
    expect(result).toMatchObject({ state: 'failed', exitCode: 202, ending: { kind: 'control_lost' }, stageState: 'staged' });
    expect(result.ending).toHaveProperty('detail', expect.stringMatching(/file_read, file_write, network, subprocess/));
  });

  test('the same without --safe is a warning', async () => {
    const lab = await libraryLab({
      executors: [wrappedNative((session) => changed(session, { close: () => closingWith(session, { observations: NOTHING_HOLDS }) }))],
    });
    const result = await lab.proofrun.run({ argv: ['true'], noNet: true });
    expect(result).toMatchObject({ state: 'finished', exitCode: 0 });
    expect(result.bundle.warnings.join('\n')).toMatch(/network was planned and is unenforced/);
  });

  test('a sandbox that can not be closed leaves no observations, so no promise', async () => {
    const lab = await libraryLab({
      executors: [
        wrappedNative((session) =>
          changed(session, {
            close: async () => {
              await session.close();
              throw new Error('umount: EBUSY');
            },
          }),
        ),
      ],
    });
    const result = await lab.proofrun.run({ argv: ['true'], mode: 'safe' });
    expect(result).toMatchObject({ state: 'failed', exitCode: 202 });
    expect(result.bundle.warnings.join('\n')).toContain('umount: EBUSY');
  });
});

describe('first cause', () => {
  test('what is killed because its time is over ended by timeout', async () => {
    const lab = await libraryLab({ executors: [HOST] });
    const result = await lab.proofrun.run({ argv: ['sleep', '60'], executor: 'host', timeoutMs: 100 });
    expect(result).toMatchObject({ exitCode: 124, ending: { kind: 'timeout', afterMs: 100 } });
  });

  test('the runner keeps the time also for an executor that does not', async () => {
    const lab = await libraryLab({ executors: [oddExecutor({ change: (session) => changed(session, { exited: new Promise(() => undefined) }) })] });
    const result = await lab.proofrun.run({ argv: ['sleep', '60'], timeoutMs: 100 });
    expect(result).toMatchObject({ exitCode: 124, ending: { kind: 'timeout', afterMs: 100 } });
  });

  test('a signal before the release: the command never starts', async () => {
    const lab = await libraryLab({ executors: [HOST] });
    const handle = await lab.proofrun.start({ argv: ['touch', 'started'], executor: 'host' });
    handle.signal('SIGINT');
    const result = await handle.result;
    expect(result).toMatchObject({ state: 'failed', exitCode: 130, ending: { kind: 'signal', signal: 'SIGINT' } });
    expect(existsSync(join(lab.workspace, 'started'))).toBe(false);
  });

  test('a signal that would end nothing does not end a run that is being prepared', async () => {
    const lab = await libraryLab({ executors: [HOST] });
    const handle = await lab.proofrun.start({ argv: ['true'], executor: 'host' });
    handle.signal('SIGWINCH');
    expect(await handle.result).toMatchObject({ state: 'finished', exitCode: 0 });
  });

  test('memory that ran out explains a SIGKILL only when it was seen', async () => {
    for (const [limitHits, code] of [
      [['memory'], 204],
      [[], 137],
    ] as const) {
      const lab = await libraryLab({
        executors: [oddExecutor({ change: (session) => changed(session, { close: () => closingWith(session, { limitHits }) }) })],
      });
      const result = await lab.proofrun.run({ argv: ['sh', '-c', 'kill -KILL $$'], memoryBytes: 1 << 30 });
      expect(result.exitCode).toBe(code);
    }
  });
});

describe('the library', () => {
  test('many jobs at once: each has its own end, output, stage and record', async () => {
    const lab = await libraryLab();
    const jobs = Array.from({ length: 24 }, (_, index) =>
      lab.proofrun.run({ argv: ['sh', '-c', `echo out ${index}; echo ${index} > file-${index}.txt; exit ${index}`], mode: 'safe' }),
    );
    const results = await Promise.all(jobs);
    expect(results.map((result) => result.exitCode)).toEqual(jobs.map((_, index) => index));
    for (const [index, result] of results.entries()) {
      expect(lab.proofrun.output(result.id, 'stdout')?.head.toString()).toBe(`out ${index}\n`);
      expect(result.bundle.changes?.changes.map((change) => change.path)).toEqual([`file-${index}.txt`]);
      expect(result.bundle.safety.promise).toBe('kept');
    }
    expect(new Set(results.map((result) => result.id)).size).toBe(24);
  });

  test('a run, its review, its apply', async () => {
    const lab = await libraryLab();
    const job = await lab.proofrun.compose({ argv: ['sh', '-c', 'echo a > a.txt'], mode: 'safe', name: 'first' });
    expect(await lab.proofrun.plan(job)).toMatchObject({ kind: 'admitted' });
    const notices: string[] = [];
    const result = await lab.proofrun.run(job, { onNotice: (notice) => notices.push(notice.kind) });
    expect(notices).toEqual([
      'run.recorded',
      'run.launched',
      'gate.decided',
      'command.released',
      'command.ended',
      'run.closed',
      'bundle.written',
      'run.finished',
    ]);
    expect(lab.proofrun.find('first', lab.workspace).id).toBe(result.id);
    expect((await lab.proofrun.bundle(result.id)).sha256).toBe(result.bundle.sha256);
    expect((await lab.proofrun.changes(result.id)).totals.added).toBe(1);
    const { run } = await lab.proofrun.apply(result.id, { cwd: lab.workspace, paths: ['a.txt'], include: [], exclude: [], allowExec: [], overwrite: [] });
    expect(run.stageState).toBe('applied');
    expect(existsSync(join(lab.workspace, 'a.txt'))).toBe(true);
    await expect(lab.proofrun.drop(result.id)).rejects.toMatchObject({ code: 'ERR_RUN_STATE' });
    await expect(lab.proofrun.bundle('run-00000000000000000000000000' as RunId)).rejects.toMatchObject({ code: 'ERR_RUN_NOT_FOUND' });
  });

  test('close ends what still runs', async () => {
    const lab = await libraryLab({ executors: [HOST] });
    const handle = await lab.proofrun.start({ argv: ['sleep', '60'], executor: 'host' });
    await lab.proofrun.close();
    expect((await handle.result).exitCode).toBe(137);
  });

  test('a callback that throws ends the run before anything starts', async () => {
    const lab = await libraryLab({ executors: [HOST] });
    const result = await lab.proofrun.run(
      { argv: ['touch', 'started'], executor: 'host' },
      {
        onRecorded: () => {
          throw new Error('no room for the id');
        },
      },
    );
    expect(result).toMatchObject({ state: 'failed', exitCode: 203, ending: { detail: 'no room for the id' } });
    expect(existsSync(join(lab.workspace, 'started'))).toBe(false);
  });
});

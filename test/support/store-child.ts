import { readSync, writeSync } from 'node:fs';
import { newRunId, parseRunId, type RunId } from '../../src/core/ids.ts';
import { messageOf, ProofrunError } from '../../src/core/errors.ts';
import { writeDurably } from '../../src/store/durable-file.host.ts';
import { currentOwner, openStore } from '../../src/store/index.ts';
import { finish, record } from './store-run.ts';

/** A process that uses the store, for tests with several of them. Says `ready`, and starts when a byte comes in. */
const [task, target = '', argument = ''] = process.argv.slice(2);

function say(word: string): void {
  writeSync(1, `${word}\n`);
}

function waitForGo(): void {
  say('ready');
  readSync(0, Buffer.alloc(1));
}

/** Announces and stops for good: the parent kills the process here. */
function stopAt(point: string): void {
  say(`at ${point}`);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
}

function runId(text: string): RunId {
  const id = parseRunId(text);
  if (id === undefined) throw new Error(`not a run id: ${text}`);
  return id;
}

function main(): void {
  switch (task) {
    case 'record-many': {
      waitForGo();
      const store = openStore(target, Date.now);
      for (let count = 0; count < Number(argument); count += 1) finish(store, record(store).id);
      store.close();
      return;
    }
    case 'race': {
      const store = openStore(target, Date.now);
      waitForGo();
      try {
        store.transition(runId(argument), { from: ['recorded'], to: 'running', events: [{ kind: 'run.running', data: { pid: process.pid } }], fence: 1 });
        say('won');
      } catch (error) {
        if (!(error instanceof ProofrunError)) throw error;
        say(error.code);
      }
      store.close();
      return;
    }
    case 'apply-race': {
      const store = openStore(target, Date.now);
      waitForGo();
      try {
        store.beginApply({ runId: runId(argument), workspace: '/w', owner: currentOwner(), selection: null, paths: [] });
        say('won');
      } catch (error) {
        if (!(error instanceof ProofrunError)) throw error;
        say(error.code);
      }
      // Stays alive: its batch is open.
      readSync(0, Buffer.alloc(1));
      return;
    }
    case 'open-announced': {
      const store = openStore(target, Date.now, {
        announce: (point) => {
          if (point === 'waiting') say('waiting');
        },
      });
      say(`opened ${String(store.listRuns().length)}`);
      store.close();
      return;
    }
    case 'own': {
      const store = openStore(target, Date.now);
      say(record(store, { id: newRunId() }).id);
      readSync(0, Buffer.alloc(1));
      store.close();
      return;
    }
    case 'write-file': {
      waitForGo();
      writeDurably(target, 'new content', { announce: (point) => point === argument && stopAt(point) });
      return;
    }
    case 'die': {
      // argument: number of the announced point at which to stop.
      waitForGo();
      let left = Number(argument);
      const store = openStore(target, Date.now, {
        announce: (point) => {
          left -= 1;
          if (left === 0) stopAt(point);
        },
      });
      const { id } = record(store);
      store.transition(id, { from: ['recorded'], to: 'running', events: [{ kind: 'run.gate' }, { kind: 'run.running' }], fence: 1 });
      store.transition(id, { from: ['running'], to: 'finished', events: [{ kind: 'run.finished' }], fence: 1, fields: { stageState: 'staged' } });
      const apply = store.beginApply({
        runId: id,
        workspace: '/w',
        owner: currentOwner(),
        selection: null,
        paths: [{ root: 0, path: 'a', encoding: 'utf8', kind: 'added', before: null, after: null, backup: null }],
      });
      store.finishApply(apply, { state: 'done', result: null, stage: { from: ['staged'], to: 'applied' } });
      store.close();
      return;
    }
    default:
      throw new Error(`unknown task ${String(task)}`);
  }
}

try {
  main();
} catch (error) {
  say(`failed ${messageOf(error)}`);
  process.exitCode = 1;
}

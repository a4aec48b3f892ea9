import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { Worker } from 'node:worker_threads';
import { RENEW_SQL } from './control.host.ts';

/** Renews the leases of one holder while it runs. */
export interface LeaseRenewal {
  /** Resolves when the thread has ended. Idempotent. */
  stop(): Promise<void>;
  /** Why renewing stopped, or undefined. Leases then lapse, and nothing more is started under them. */
  fault(): string | undefined;
}

/**
 * The thread's program: CommonJS, because a thread is given text. It opens the database that the main thread has checked, and moves the end of
 * the leases until it is told to stop.
 */
const PROGRAM = `
const { workerData, parentPort } = require('node:worker_threads');
const { createRequire } = require('node:module');
const Database = createRequire(workerData.from)('better-sqlite3');
const db = new Database(workerData.file, { fileMustExist: true, timeout: workerData.everyMs });
db.exec('PRAGMA trusted_schema = OFF; PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL; PRAGMA mmap_size = 0;');
const renew = db.prepare(workerData.sql);
const timer = setInterval(() => {
  try {
    renew.run(Date.now() + workerData.leaseMs, workerData.leaseId);
  } catch (error) {
    if (String(error && error.code).startsWith('SQLITE_BUSY')) return;
    throw error;
  }
}, workerData.everyMs);
parentPort.on('message', () => {
  clearInterval(timer);
  db.close();
  parentPort.close();
});
`;

/**
 * Starts the thread. It goes on while the main thread is busy with something else, so that a lease lapses only when the process is gone, stopped
 * or out of reach of its database.
 */
export function renewLeases(plan: { readonly file: string; readonly leaseId: string; readonly leaseMs: number }): LeaseRenewal {
  const from = import.meta.url.startsWith('file:') ? import.meta.url : pathToFileURL(`${process.cwd()}/`).href;
  let fault: string | undefined;
  // Asked here: a thread that can't find it would only say so later.
  createRequire(from).resolve('better-sqlite3');
  const worker = new Worker(PROGRAM, { eval: true, workerData: { ...plan, from, sql: RENEW_SQL, everyMs: Math.max(20, Math.floor(plan.leaseMs / 4)) } });
  worker.on('error', (error) => {
    fault = error.message;
  });
  worker.unref();
  const ended = new Promise<void>((resolve) => {
    worker.once('exit', () => resolve());
  });
  let stopping: Promise<void> | undefined;
  return {
    fault: () => fault,
    stop: () => {
      stopping ??= (async () => {
        worker.ref();
        worker.postMessage('stop');
        await ended;
      })();
      return stopping;
    },
  };
}

// The network engine against native loopback, in one run. `node bench/overlaynet.mjs`, or with --requests 2000 --connections 1000 --megabytes 512.
// The engine runs in a process of its own, as in a run; client and server share another, natively too.
import { fork } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer as createHttpServer, request, Agent } from 'node:http';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { buildSync } from 'esbuild';
import { median } from './measure.mjs';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const { values } = parseArgs({
  options: { requests: { type: 'string', default: '2000' }, connections: { type: 'string', default: '1500' }, megabytes: { type: 'string', default: '512' } },
});

const scratch = mkdtempSync(join(tmpdir(), 'proofrun-bench-'));
const bundle = join(scratch, 'engine.mjs');
const banner = { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" };
buildSync({
  entryPoints: [join(ROOT, 'bench/overlaynet-engine.mjs')],
  bundle: true,
  platform: 'node',
  format: 'esm',
  outfile: bundle,
  banner,
  logLevel: 'error',
});

const body = Buffer.alloc(1024, 'x');
const http = createHttpServer((_request, response) => response.end(body));
const bulk = createServer((socket) => {
  socket.on('error', () => undefined);
  socket.once('data', () => {
    let left = Number(values.megabytes) * 16;
    const chunk = Buffer.alloc(65_536);
    const more = () => {
      while (left > 0) {
        left -= 1;
        if (!socket.write(chunk)) return void socket.once('drain', more);
      }
      socket.end();
    };
    more();
  });
});
const echo = createServer((socket) => socket.on('error', () => undefined).pipe(socket));
const listen = (server) => new Promise((resolve) => server.listen({ host: '127.0.0.1', port: 0, backlog: 4096 }, () => resolve(server.address().port)));
const ports = { http: await listen(http), bulk: await listen(bulk), echo: await listen(echo) };

const engine = fork(bundle, [JSON.stringify(Object.values(ports))], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
await new Promise((resolve) => engine.once('message', resolve));
/** good.test, the first name that was looked up. */
const through = '127.64.1.0';
try {
  const requests = { native: [], engine: [] };
  const agents = { native: new Agent({ keepAlive: true }), engine: new Agent({ keepAlive: true }) };
  for (let index = 0; index < Number(values.requests); index += 1) {
    requests.native.push(await timed(() => get('127.0.0.1', agents.native)));
    requests.engine.push(await timed(() => get(through, agents.engine)));
  }
  const rates = { native: [], engine: [] };
  const speeds = { native: [], engine: [] };
  for (let round = 0; round < 5; round += 1) {
    for (const [way, host] of [
      ['native', '127.0.0.1'],
      ['engine', through],
    ]) {
      const count = Number(values.connections);
      const took = await timed(() => many(host, count, 16));
      rates[way].push((count * 1000) / took);
      speeds[way].push((Number(values.megabytes) * 1000) / (await timed(() => download(host))));
    }
  }
  const errors = await together(through, 1000);
  const rows = [
    row('1 KiB request, kept alive, median ms', median(requests.native), median(requests.engine), (a, b) => `+${(b - a).toFixed(2)} ms`),
    row('1 KiB request, kept alive, 99th percentile ms', at(requests.native, 0.99), at(requests.engine, 0.99), (a, b) => `+${(b - a).toFixed(2)} ms`),
    row('new connections a second, 16 at once', median(rates.native), median(rates.engine), (a, b) => `${((100 * b) / a).toFixed(0)} %`),
    row(`bulk, ${values.megabytes} MiB, MiB/s`, median(speeds.native), median(speeds.engine), (a, b) => `${((100 * b) / a).toFixed(0)} %`),
  ];
  console.log('OverlayNet against native loopback (client and server in one process, the engine in another)');
  for (const { what, native, engine, ratio } of rows) console.log(`  ${what.padEnd(50)} ${native.padStart(10)} ${engine.padStart(10)}   ${ratio}`);
  console.log(`1,000 connections at once, each with bytes both ways: ${errors} errors`);
  process.exitCode = errors === 0 ? 0 : 1;
} finally {
  engine.disconnect();
  for (const server of [http, bulk, echo]) server.close();
  http.closeAllConnections();
  rmSync(scratch, { recursive: true, force: true });
}
process.exit();

function row(what, native, through, compare) {
  return { what, native: native.toFixed(2), engine: through.toFixed(2), ratio: compare(native, through) };
}

function at(list, share) {
  return list.toSorted((a, b) => a - b)[Math.floor(list.length * share)];
}

async function timed(work) {
  const before = performance.now();
  await work();
  return performance.now() - before;
}

function get(host, agent) {
  return new Promise((resolve, reject) => {
    request({ host, port: ports.http, agent, headers: { host: 'good.test' } }, (response) => response.resume().on('end', resolve))
      .on('error', reject)
      .end();
  });
}

function exchange(host) {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port: ports.echo, noDelay: true }, () => socket.write('\0ping'));
    socket
      .on('data', () => socket.end())
      .on('close', resolve)
      .on('error', reject);
  });
}

async function many(host, count, atOnce) {
  let left = count;
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      while (left > 0) {
        left -= 1;
        await exchange(host);
      }
    }),
  );
}

function download(host) {
  return new Promise((resolve, reject) => {
    let bytes = 0;
    // A buffer of its own keeps the client from being what is measured.
    const onread = { buffer: Buffer.alloc(1 << 20), callback: (count) => ((bytes += count), true) };
    const socket = connect({ host, port: ports.bulk, onread }, () => socket.write('\0go'));
    socket.on('close', () => (bytes === Number(values.megabytes) << 20 ? resolve() : reject(new Error(`${bytes} bytes came`)))).on('error', reject);
  });
}

/** Opens all, then sends on all, then reads from all. Resolves to how many failed. */
async function together(host, count) {
  const sockets = await Promise.allSettled(
    Array.from(
      { length: count },
      () =>
        new Promise((resolve, reject) => {
          const socket = connect({ host, port: ports.echo }, () => resolve(socket)).on('error', reject);
        }),
    ),
  );
  const answers = await Promise.allSettled(
    sockets.map(
      ({ value: socket }) =>
        new Promise((resolve, reject) => {
          if (socket === undefined) return reject(new Error('not connected'));
          socket.on('data', resolve).on('close', reject).on('error', reject).write('\0ping');
        }),
    ),
  );
  for (const { value: socket } of sockets) socket?.destroy();
  return answers.filter(({ status }) => status === 'rejected').length;
}

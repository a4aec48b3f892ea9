// Runs where it is measured: node client.mjs HOST PORT SECONDS BULK_MIB [proxy]. One JSON object on stdout.
import { Agent, request } from 'node:http';

const [host, port, seconds, bulk, by] = process.argv.slice(2);
const proxy = by === 'proxy' ? new URL(process.env.HTTP_PROXY ?? process.env.http_proxy) : undefined;
const authorization = proxy?.username
  ? { 'proxy-authorization': `Basic ${Buffer.from(`${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`).toString('base64')}` }
  : {};

/** Resolves to the bytes of the answer's body. */
const get = (path, agent) =>
  new Promise((resolve, reject) => {
    const to = proxy === undefined ? { host, port, path } : { host: proxy.hostname, port: proxy.port, path: `http://${host}:${port}${path}` };
    const asked = request({ ...to, agent, headers: { host: `${host}:${port}`, ...authorization } }, (response) => {
      let bytes = 0;
      response.on('data', (part) => (bytes += part.length));
      response.on('end', () => (response.statusCode === 200 ? resolve(bytes) : reject(new Error(String(response.statusCode)))));
      response.on('error', reject);
    });
    asked.on('error', reject);
    asked.end();
  });

const one = new Agent({ keepAlive: true, maxSockets: 1 });
const times = [];
for (let n = 0; n < 2200; n += 1) {
  const began = process.hrtime.bigint();
  await get('/', one);
  if (n >= 200) times.push(Number(process.hrtime.bigint() - began) / 1e6);
}
times.sort((a, b) => a - b);
one.destroy();

let made = 0;
const until = Date.now() + Number(seconds) * 1000;
await Promise.all(
  Array.from({ length: 16 }, async () => {
    while (Date.now() < until) {
      await get('/', new Agent({ keepAlive: false }));
      made += 1;
    }
  }),
);

const began = process.hrtime.bigint();
const bytes = await get(`/?bulk=${Number(bulk) << 20}`, new Agent());
const took = Number(process.hrtime.bigint() - began) / 1e9;

// A thousand at once: every connection is open before the first one ends.
const many = new Agent({ keepAlive: true, maxSockets: 1000 });
const ended = await Promise.allSettled(Array.from({ length: 1000 }, () => get('/', many)));
many.destroy();

console.log(
  JSON.stringify({
    latency_ms_median: Number(times[times.length >> 1].toFixed(3)),
    latency_ms_p99: Number(times[Math.floor(times.length * 0.99)].toFixed(3)),
    connections_per_second: Math.round(made / Number(seconds)),
    bulk_mib_per_second: Math.round(bytes / (1 << 20) / took),
    concurrent_errors: ended.filter((result) => result.status === 'rejected').length,
  }),
);
process.exit(0);

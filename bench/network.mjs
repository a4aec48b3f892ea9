// The network of a job against the plain loopback, and against the proxies of @anthropic-ai/sandbox-runtime when it can be installed for the
// comparison (development only; it needs socat). `node bench/network.mjs [--seconds 2] [--bulk 512] [--compare]`. Needs `npm run build`.
import { execFileSync, spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { decode, encode } from 'dns-packet';

const HERE = dirname(fileURLToPath(import.meta.url));
const NAME = 'bench.test';
const SANDBOX_RUNTIME = '@anthropic-ai/sandbox-runtime@0.0.83';
const { values } = parseArgs({
  options: { seconds: { type: 'string', default: '2' }, bulk: { type: 'string', default: '512' }, compare: { type: 'boolean', default: false } },
});
const { createProofrun } = await import('../dist/index.mjs');
const scratch = mkdtempSync(join(tmpdir(), 'proofrun-bench-net-'));
const server = spawn(process.execPath, [join(HERE, 'network-server.mjs')], { stdio: ['ignore', 'pipe', 'inherit'] });
const port = Number((await once(createInterface({ input: server.stdout }), 'line'))[0]);
const resolver = createSocket('udp4');
resolver.on('message', (message, from) => {
  const { id, questions } = decode(message);
  const answers = questions[0].type === 'A' ? [{ type: 'A', name: questions[0].name, ttl: 60, data: '127.0.0.1' }] : [];
  resolver.send(encode({ type: 'response', id, flags: 0x180, questions, answers }), from.port, from.address);
});
resolver.bind(0, '127.0.0.1');
await once(resolver, 'listening');

try {
  const workspace = join(scratch, 'work');
  const home = join(scratch, 'home');
  for (const directory of [workspace, home]) mkdirSync(directory);
  const client = join(workspace, 'client.mjs');
  writeFileSync(client, execFileSync('cat', [join(HERE, 'network-client.mjs')]));
  const words = (host) => [client, host, String(port), values.seconds, values.bulk];
  const results = {};

  results.loopback = JSON.parse(execFileSync(process.execPath, words('127.0.0.1'), { encoding: 'utf8', env: { PATH: process.env.PATH } }));

  const proofrun = await createProofrun({
    stateDirectory: join(scratch, 'state'),
    configDirectory: join(scratch, 'config'),
    currentDirectory: workspace,
    env: { PATH: process.env.PATH, HOME: home, LANG: 'C.UTF-8' },
    nameservers: [`127.0.0.1:${resolver.address().port}`],
  });
  try {
    const file = join(scratch, 'job.json');
    const argv = ['/usr/bin/env', ...['http_proxy', 'HTTP_PROXY', 'no_proxy', 'NO_PROXY'].flatMap((name) => ['-u', name]), process.execPath, ...words(NAME)];
    writeFileSync(
      file,
      JSON.stringify({
        version: 1,
        mode: 'safe',
        command: argv,
        permissions: { file_read: { allow: [process.execPath] }, network: { default_action: 'deny', allow: [{ host: NAME, ports: [port], private: true }] } },
      }),
    );
    const run = await proofrun.run({ argv: [], jobFile: file, workspace });
    const output = proofrun.output(run.id, 'stdout');
    if (run.exitCode !== 0) throw new Error(`the job ended with ${run.exitCode}: ${JSON.stringify(proofrun.output(run.id, 'stderr'))}`);
    results.overlaynet = JSON.parse(String(output.head));
    results.overlaynet.level = run.bundle.executorObservations.dimensions.network.level;
  } finally {
    await proofrun.close();
  }

  if (values.compare) results.sandbox_runtime = await sandboxRuntime(words, workspace, home);
  const rows = ['latency_ms_median', 'latency_ms_p99', 'connections_per_second', 'bulk_mib_per_second', 'concurrent_errors'];
  console.log(['', ...Object.keys(results)].map((cell) => cell.padEnd(24)).join(''));
  for (const row of rows)
    console.log([row, ...Object.values(results).map((one) => String(one?.[row] ?? one?.reason ?? '-'))].map((cell) => cell.padEnd(24)).join(''));
  console.log(`\nadded latency, median: ${(results.overlaynet.latency_ms_median - results.loopback.latency_ms_median).toFixed(3)} ms`);
  console.log(`bulk against loopback: ${((100 * results.overlaynet.bulk_mib_per_second) / results.loopback.bulk_mib_per_second).toFixed(0)} %`);
} finally {
  server.kill();
  resolver.close();
  rmSync(scratch, { recursive: true, force: true });
}

/** The same client through the proxies that it offers by variables. */
async function sandboxRuntime(words, workspace, home) {
  const place = join(scratch, 'srt');
  mkdirSync(place);
  try {
    execFileSync('npm', ['install', '--no-audit', '--no-fund', '--ignore-scripts', '--prefix', place, SANDBOX_RUNTIME], { stdio: 'pipe' });
    execFileSync('socat', ['-V'], { stdio: 'pipe' });
  } catch (error) {
    return { reason: `not here: ${String(error.message).split('\n')[0].slice(0, 60)}` };
  }
  writeFileSync(
    join(place, 'settings.json'),
    JSON.stringify({
      network: { allowedDomains: ['localhost', '127.0.0.1', NAME], deniedDomains: [] },
      filesystem: { denyRead: [], allowWrite: [workspace], denyWrite: [] },
    }),
  );
  try {
    const text = execFileSync(
      process.execPath,
      [
        join(place, 'node_modules/@anthropic-ai/sandbox-runtime/dist/cli.js'),
        '--settings',
        join(place, 'settings.json'),
        process.execPath,
        ...words('localhost'),
        'proxy',
      ],
      {
        encoding: 'utf8',
        cwd: workspace,
        env: { PATH: process.env.PATH, HOME: home },
        timeout: 120_000,
      },
    );
    return JSON.parse(text.slice(text.indexOf('{')));
  } catch (error) {
    return {
      reason: String(error.stderr ?? error.message)
        .split('\n')[0]
        .slice(0, 60),
    };
  }
}

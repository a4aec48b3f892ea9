// Upload and download of a workspace beside tar, in one run: `node bench/transfer.mjs [--rounds 5] [--files 10000] [--large-mib 512] [--engine]`.
// --engine: also through the engine that DOCKER_HOST names, beside the same bytes sent to it by tar (an image proofrun-base: job image build).
import { spawn } from 'node:child_process';
import { createReadStream, createWriteStream, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { build } from 'esbuild';
import { interleave, median, rows, table } from './measure.mjs';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    files: { type: 'string', default: '10000' },
    'large-mib': { type: 'string', default: '512' },
    engine: { type: 'boolean', default: false },
  },
});
const rounds = Number(values.rounds);
const SHIM = join(ROOT, 'prebuilt', `linux-${process.arch}`, 'proofrun-shim');

const scratch = mkdtempSync(join(tmpdir(), 'proofrun-bench-'));
// Beside its packages, so that dockerode is found.
const bundle = join(ROOT, 'build', `bench-transfer-${process.pid}.mjs`);
try {
  await build({
    absWorkingDir: ROOT,
    stdin: {
      contents:
        "export * from './executors/docker/transfer/index.ts'; export { engineClient } from './executors/docker/engine-client.host.ts'; export { prepareStage } from './src/stage/index.ts';",
      resolveDir: ROOT,
    },
    bundle: true,
    platform: 'node',
    format: 'esm',
    packages: 'external',
    outfile: bundle,
    logLevel: 'warning',
  });
  const ours = await import(pathToFileURL(bundle).href);
  const count = Number(values.files);
  const large = Number(values['large-mib']);
  for (const [title, make, bytes] of [
    [`${count} files of 4 KiB`, (at) => small(at, count), count * 4096],
    [`one file of ${large} MiB`, (at) => big(at, large), large * 2 ** 20],
  ]) {
    await compare(ours, title, make, bytes);
  }
} finally {
  rmSync(scratch, { recursive: true, force: true });
  rmSync(bundle, { force: true });
}

/** A hundred files a directory, their contents all different. */
function small(at, count) {
  const content = Buffer.alloc(4096, 'content ');
  for (let file = 0; file < count; file += 1) {
    const directory = join(at, `d${Math.floor(file / 100)}`);
    if (file % 100 === 0) mkdirSync(directory, { recursive: true });
    content.writeUInt32LE(file, 0);
    writeFileSync(join(directory, `f${file}`), content);
  }
}

function big(at, mib) {
  mkdirSync(at, { recursive: true });
  const chunk = Buffer.alloc(1 << 20, 'content ');
  for (let index = 0; index < mib; index += 1) {
    chunk.writeUInt32LE(index, 0);
    writeFileSync(join(at, 'large'), chunk, { flag: 'a' });
  }
}

function finished(child) {
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => (code === 0 ? resolve() : reject(new Error(`${child.spawnargs.join(' ')} ended with ${code}`))));
  });
}

function nowhere() {
  return new Writable({ write: (_chunk, _encoding, done) => done() });
}

async function compare(ours, title, make, bytes) {
  const base = mkdtempSync(join(scratch, 'case-'));
  const ws = join(base, 'ws');
  make(ws);
  const { roots } = await ours.prepareStage({ shim: SHIM, directory: join(base, 'stage'), roots: [ws], patterns: [] });
  const [staged] = roots;
  const archive = join(base, 'back.tar');
  await finished(spawn('tar', ['--format=pax', '--pax-option=delete=atime,delete=ctime', '--sort=name', '-cf', archive, '-C', base, 'ws']));
  const up = ours.uploadTree({ root: ws, hidden: [] });
  await pipeline(up.stream, nowhere());
  const sent = up.manifest();
  const nothing = { entries: new Map(), leftOut: new Map() };
  let turn = 0;
  const markers = process.geteuid() === 0 ? 'trusted' : 'user';
  const down = async (before) => {
    const upper = join(base, `upper-${(turn += 1)}`);
    mkdirSync(upper);
    await ours.downloadTree({ shim: SHIM, stream: createReadStream(archive, { highWaterMark: 1 << 16 }), sent: before, root: { ...staged, upper }, markers });
    return upper;
  };
  const untar = async () => {
    const at = join(base, `untar-${(turn += 1)}`);
    mkdirSync(at);
    await finished(spawn('tar', ['-xf', archive, '-C', at]));
  };
  const show = (name, times, reference) => {
    console.log(table(`${name}: ${title}`, rows(times, reference)));
    for (const [arm, all] of times) console.log(`  ${arm.padEnd(34)} ${(bytes / 2 ** 20 / (median(all) / 1000)).toFixed(0).padStart(9)} MiB/s`);
    console.log('');
  };
  const packs = [
    {
      name: 'tar -c into this process',
      run: async () => {
        const child = spawn('tar', ['-cf', '-', '-C', ws, '.'], { stdio: ['ignore', 'pipe', 'inherit'] });
        await Promise.all([pipeline(child.stdout, nowhere()), finished(child)]);
      },
    },
    { name: 'upload, with a hash of each file', run: async () => pipeline(ours.uploadTree({ root: ws, hidden: [] }).stream, nowhere()) },
  ];
  show('Up', await interleave(packs, rounds), packs[0].name);
  const unpacks = [
    { name: 'tar -x', run: untar },
    { name: 'download, nothing changed', run: () => down(sent) },
    { name: 'download, everything changed', run: () => down(nothing) },
  ];
  show('Down', await interleave(unpacks, rounds), unpacks[0].name);
  if (values.engine) await throughEngine(ours, { ws, base, sent, staged, show, markers });
}

async function throughEngine(ours, { ws, base, sent, staged, show, markers }) {
  const { default: Dockerode } = await import('dockerode');
  const docker = new Dockerode();
  const client = ours.engineClient(docker);
  const container = await docker.createContainer({
    Image: 'proofrun-base',
    Cmd: ['/bin/true'],
    HostConfig: { NetworkMode: 'none', ReadonlyRootfs: true, Mounts: [{ Type: 'volume', Source: '', Target: '/ws' }] },
  });
  try {
    let turn = 0;
    const puts = [
      {
        name: 'tar -c sent to the engine',
        run: async () => {
          const child = spawn('tar', ['-cf', '-', '-C', ws, '.'], { stdio: ['ignore', 'pipe', 'inherit'] });
          await Promise.all([client.putArchive(container.id, '/ws', child.stdout), finished(child)]);
        },
      },
      { name: 'upload to the engine', run: () => client.putTree(container.id, '/ws', ours.uploadTree({ root: ws, hidden: [], under: 'ws' }).stream) },
    ];
    show('Up through the engine', await interleave(puts, rounds), puts[0].name);
    const gets = [
      {
        name: 'archive of the engine into tar -x',
        run: async () => {
          const at = join(base, `engine-${(turn += 1)}`);
          mkdirSync(at);
          const child = spawn('tar', ['-xf', '-', '-C', at], { stdio: ['pipe', 'ignore', 'inherit'] });
          await Promise.all([pipeline(await client.getArchive(container.id, '/ws'), child.stdin), finished(child)]);
        },
      },
      {
        name: 'archive of the engine into a file',
        run: async () => pipeline(await client.getArchive(container.id, '/ws'), createWriteStream(join(base, 'engine.tar'))),
      },
      {
        name: 'download from the engine, unchanged',
        run: async () => {
          const upper = join(base, `upper-engine-${(turn += 1)}`);
          mkdirSync(upper);
          await ours.downloadTree({ shim: SHIM, stream: await client.getArchive(container.id, '/ws'), sent, root: { ...staged, upper }, markers });
        },
      },
    ];
    show('Down through the engine', await interleave(gets, rounds), gets[0].name);
  } finally {
    await container.remove({ force: true, v: true });
  }
}

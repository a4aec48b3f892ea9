#!/usr/bin/env node
// A root filesystem for the tests' engine, as a tar stream on stdout: programs of this machine with the libraries that they load.
// No registry takes part.
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

/** Programs that jobs of the tests run, by their usual names. */
const PROGRAMS = [
  ...[
    'sh',
    'bash',
    'cat',
    'ls',
    'pwd',
    'true',
    'false',
    'sleep',
    'kill',
    'mkdir',
    'rm',
    'mv',
    'cp',
    'ln',
    'chmod',
    'chown',
    'touch',
    'echo',
    'env',
    'id',
    'wc',
  ],
  ...[
    'head',
    'tail',
    'seq',
    'stat',
    'find',
    'grep',
    'sed',
    'tr',
    'dd',
    'ps',
    'mount',
    'umount',
    'setsid',
    'nohup',
    'tee',
    'stty',
    'tty',
    'uname',
    'readlink',
    'mkfifo',
    'mknod',
  ],
  ...[
    'perl',
    'python3',
    'git',
    'printf',
    'test',
    'sort',
    'cut',
    'date',
    'df',
    'du',
    'unshare',
    'nsenter',
    'yes',
    'timeout',
    'md5sum',
    'sha256sum',
    'truncate',
    'cmp',
    'diff',
  ],
];
/** Trees that those programs read. */
const TREES = ['/usr/lib/git-core', '/usr/share/git-core'];

/** Copies a path with every link on its way. */
function copy(path, root) {
  const target = join(root, path);
  if (existsSync(target) || lstatSync(target, { throwIfNoEntry: false }) !== undefined) return;
  const parent = dirname(path);
  if (parent !== '/') copyParent(parent, root);
  const facts = lstatSync(path);
  if (facts.isSymbolicLink()) {
    symlinkSync(readlinkSync(path), target);
    const real = join(dirname(path), readlinkSync(path));
    copy(readlinkSync(path).startsWith('/') ? readlinkSync(path) : real, root);
  } else cpSync(path, target, { recursive: true, verbatimSymlinks: true, filter: (source) => !/\/(config-3\.\d+-|__pycache__|test$|idlelib$)/.test(source) });
}

function copyParent(path, root) {
  const target = join(root, path);
  if (lstatSync(target, { throwIfNoEntry: false }) !== undefined) return;
  if (dirname(path) !== '/') copyParent(dirname(path), root);
  if (lstatSync(path).isSymbolicLink()) {
    symlinkSync(readlinkSync(path), target);
    copyParent(realpathSync(path), root);
  } else mkdirSync(target, { recursive: true });
}

function libraries(program) {
  const { stdout } = spawnSync('ldd', [program], { encoding: 'utf8' });
  return (stdout ?? '').split('\n').flatMap((line) => /(?:=> )?(\/\S+) \(0x/.exec(line)?.[1] ?? []);
}

/** Fills an empty directory. */
export function fillRoot(root) {
  for (const name of ['bin', 'sbin', 'lib', 'lib64']) {
    if (lstatSync(`/${name}`, { throwIfNoEntry: false })?.isSymbolicLink() === true) {
      symlinkSync(readlinkSync(`/${name}`), join(root, name));
      mkdirSync(join(root, readlinkSync(`/${name}`)), { recursive: true });
    }
  }
  for (const name of ['tmp', 'var/tmp', 'etc', 'proc', 'sys', 'dev', 'run', 'root', 'home']) mkdirSync(join(root, name), { recursive: true });
  for (const name of ['tmp', 'var/tmp']) chmodSync(join(root, name), 0o1777);
  const found = PROGRAMS.flatMap((name) => ['/usr/bin', '/bin', '/usr/sbin'].map((folder) => join(folder, name)).find((path) => existsSync(path)) ?? []);
  for (const program of [...found, process.execPath, realpathSync(process.execPath)]) {
    copy(program, root);
    for (const library of libraries(realpathSync(program))) copy(library, root);
  }
  const perl = readdirSync('/usr/lib').flatMap((name) => (existsSync(`/usr/lib/${name}/perl-base`) ? [`/usr/lib/${name}/perl-base`] : []));
  const python = readdirSync('/usr/lib')
    .filter((name) => /^python3\.\d+$/.test(name))
    .map((name) => `/usr/lib/${name}`);
  for (const tree of [...TREES, ...perl, ...python]) if (existsSync(tree)) copy(tree, root);
  for (const tree of python) {
    const dynamic = join(tree, 'lib-dynload');
    if (existsSync(dynamic)) for (const name of readdirSync(dynamic)) for (const library of libraries(join(dynamic, name))) copy(library, root);
  }
  writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n');
  writeFileSync(join(root, 'etc/group'), 'root:x:0:\nnogroup:x:65534:\n');
  if (existsSync('/etc/ld.so.cache')) writeFileSync(join(root, 'etc/ld.so.cache'), readFileSync('/etc/ld.so.cache'));
}

if (process.argv[1] !== undefined && realpathSync(process.argv[1]) === import.meta.filename) {
  const root = mkdtempSync(join(tmpdir(), 'proofrun-image-'));
  try {
    fillRoot(root);
    const run = spawnSync('tar', ['-C', root, '--owner=0', '--group=0', '--numeric-owner', '-c', '.'], { stdio: ['ignore', 'inherit', 'inherit'] });
    process.exitCode = run.status ?? 1;
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

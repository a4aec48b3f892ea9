import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { interleave, rows } from './measure.mjs';

const BWRAP = [
  'bwrap',
  ...['--unshare-user', '--unshare-pid', '--unshare-net', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup-try'],
  ...[
    '--die-with-parent',
    '--new-session',
    '--cap-drop',
    'ALL',
    '--clearenv',
    '--ro-bind',
    '/',
    '/',
    '--proc',
    '/proc',
    '--dev',
    '/dev',
    '--tmpfs',
    '/tmp',
    '--chdir',
    '/',
  ],
];

/** `true` through the command line against the same program bare, in bubblewrap, and an empty Node. */
export async function startOfTrue({ job, workspace, env, rounds }) {
  const arms = [
    { name: 'true', argv: ['true'] },
    { name: 'bwrap true', argv: [...BWRAP, 'true'] },
    { name: 'node -e 0', argv: [process.execPath, '-e', '0'] },
    { name: 'job version', argv: [...job, 'version'] },
    { name: 'job run --safe -- true', argv: [...job, 'run', '--safe', '-q', '--', 'true'] },
  ].map((arm) => ({ cwd: workspace, env, ...arm }));
  return rows(await interleave(arms, rounds), 'node -e 0');
}

/** Whether the size of the workspace shows in the time of a start. */
export async function startInTree({ job, scratch, env, rounds, files }) {
  const empty = join(scratch, 'empty');
  const large = join(scratch, 'large');
  mkdirSync(empty);
  fill(large, files);
  const arm = (name, cwd) => ({ name, cwd, env, argv: [...job, 'run', '--safe', '-q', '--', 'true'] });
  return rows(await interleave([arm('empty workspace', empty), arm(`${files.toLocaleString('en')} files`, large)], rounds), 'empty workspace');
}

function fill(root, files) {
  for (let folder = 0; folder * 100 < files; folder += 1) {
    const path = join(root, `part-${Math.floor(folder / 20)}`, `folder-${folder}`);
    mkdirSync(path, { recursive: true });
    for (let file = 0; file < 100; file += 1) {
      writeFileSync(join(path, `file-${file}.txt`), `${folder} ${file}\n`);
    }
  }
}

export { BWRAP };

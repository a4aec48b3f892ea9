import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { rows } from './measure.mjs';

/** Makes `argv[1]` files of a few bytes, a hundred in a directory. */
const MAKE = `
import os, sys
for n in range(int(sys.argv[1])):
    if n % 100 == 0:
        os.makedirs("made/d%d" % (n // 100), exist_ok=True)
    with open("made/d%d/f%d.txt" % (n // 100, n % 100), "w") as f:
        f.write("file %d\\nof many\\n" % n)
`;

function must(argv, options) {
  const ended = spawnSync(argv[0], argv.slice(1), { stdio: ['ignore', 'pipe', 'pipe'], encoding: 'utf8', maxBuffer: 1 << 28, ...options });
  if (ended.status !== (options.code ?? 0)) throw new Error(`${argv.join(' ')} ended with ${ended.status ?? ended.signal}: ${ended.stderr}`);
  return ended.stdout;
}

function timed(run) {
  const began = process.hrtime.bigint();
  run();
  return Number(process.hrtime.bigint() - began) / 1e6;
}

/**
 * Apply, undo, drop, refusal by a conflict, and review of `files` new files, against `git apply` of the same patch and `cp -a` with sync.
 * Every arm ends on disk: git apply and cp are followed by a sync of the filesystem, as apply syncs itself.
 */
export function applyOf({ job, scratch, env, files, rounds }) {
  const times = new Map();
  const note = (name, ms) => times.set(name, [...(times.get(name) ?? []), ms]);
  for (let round = 0; round <= rounds; round += 1) {
    const base = join(scratch, `apply-${files}-${round}`);
    const [workspace, git, copy] = ['workspace', 'git', 'copy'].map((name) => join(base, name));
    for (const path of [workspace, git, copy]) mkdirSync(path, { recursive: true });
    const here = { cwd: workspace, env: { ...env, XDG_STATE_HOME: join(base, 'state') } };
    const stage = () => must([...job, 'run', '-q', '--', 'python3', '-c', MAKE, String(files)], here);
    stage();
    const patch = join(base, 'patch');
    writeFileSync(patch, must([...job, 'diff', 'last', '--patch'], here));
    const upper = execFileSync('find', [join(base, 'state'), '-name', 'upper', '-path', '*/stage/*'], { encoding: 'utf8' }).trim();
    execFileSync('sync', ['-f', base]);
    const arms = {
      'walk of the layer (find)': () => must(['find', upper, '-printf', ''], here),
      'review (job status --review)': () => must([...job, 'status', 'last', '--review'], here),
      'cp -a and sync': () => {
        must(['cp', '-a', `${upper}/.`, copy], here);
        must(['sync', '-f', copy], here);
      },
      'git apply and sync': () => {
        must(['git', 'apply', '--binary', patch], { cwd: git, env: { ...env, GIT_CEILING_DIRECTORIES: base } });
        must(['sync', '-f', git], here);
      },
      'conflict refused (job apply)': () => {
        mkdirSync(join(workspace, 'made'));
        try {
          must([...job, 'apply', 'last', '--all'], { ...here, code: 205 });
        } finally {
          rmSync(join(workspace, 'made'), { recursive: true });
        }
      },
      'job apply': () => must([...job, 'apply', 'last', '--all'], here),
      'job undo': () => must([...job, 'undo', 'last'], here),
      'job drop': () => must([...job, 'drop', 'last'], here),
      'job version (start alone)': () => must([...job, 'version'], here),
    };
    for (const [name, run] of Object.entries(arms)) {
      const ms = timed(run);
      if (round > 0) note(name, ms);
    }
    rmSync(base, { recursive: true, force: true });
  }
  return rows(times, 'cp -a and sync');
}

/** Does its work twice and says how long each took, start of Python not counted: the first meets a mount that nobody has looked at. */
const WORK = `
import os, subprocess, sys, time
what = sys.argv[1]
for turn in ("a", "b"):
    began = time.perf_counter()
    if what == "walk":
        for at, _, names in os.walk("tree"):
            for name in names:
                os.lstat(at + "/" + name)
    elif what == "status":
        subprocess.run(["git", "status", "--porcelain"], check=True, stdout=subprocess.DEVNULL)
    else:
        os.makedirs("written-" + turn, exist_ok=True)
        for n in range(1000):
            with open("written-%s/%d" % (turn, n), "w") as f:
                f.write("some bytes %d" % n)
    print((time.perf_counter() - began) * 1000)
`;

/** An overlay of the kernel's over the directory, and nothing else: what a job's stage can't be faster than. */
const BARE = 'mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work$3" "$2/view" && cd "$2/view" && shift 3 && exec "$@"';

/** The same work in a job over its stage, in a bare overlay, and directly. */
export function stagedWork({ job, scratch, env, files, rounds }) {
  const workspace = join(scratch, 'work');
  mkdirSync(workspace, { recursive: true });
  must(['python3', '-c', MAKE.replaceAll('made', 'tree'), String(files)], { cwd: workspace, env });
  const git = (...words) => must(['git', '-c', 'user.name=bench', '-c', 'user.email=bench@localhost', ...words], { cwd: workspace, env });
  git('init', '-q');
  git('add', '-A');
  git('commit', '-qm', 'tree');
  const root = process.geteuid() === 0;
  const bare = (round, words) => {
    const layers = join(scratch, `bare-${round}`);
    for (const name of ['upper', 'work', 'view']) mkdirSync(join(layers, name), { recursive: true });
    const said = must(['unshare', root ? '-m' : '-Urm', 'sh', '-c', BARE, 'sh', workspace, layers, root ? '' : ',userxattr', ...words], {
      cwd: workspace,
      env,
    });
    rmSync(layers, { recursive: true, force: true });
    return said;
  };
  return ['walk', 'status', 'write'].map((what) => {
    const words = ['python3', '-c', WORK, what];
    const arms = {
      direct: () => must(words, { cwd: workspace, env }),
      'in a bare overlay': (round) => bare(round, words),
      'in a job': () => must([...job, 'run', '-q', '--', ...words], { cwd: workspace, env }),
    };
    const times = new Map(
      Object.keys(arms).flatMap((name) => [
        [`${what}, ${name}`, []],
        [`${what}, ${name}, again`, []],
      ]),
    );
    for (let round = 0; round <= rounds; round += 1) {
      for (const [name, run] of Object.entries(arms)) {
        const [first, second] = run(round).trim().split('\n').map(Number);
        for (const turn of ['a', 'b']) rmSync(join(workspace, `written-${turn}`), { recursive: true, force: true });
        if (round === 0) continue;
        times.get(`${what}, ${name}`).push(first);
        times.get(`${what}, ${name}, again`).push(second);
      }
    }
    return [what, rows(times, `${what}, direct`)];
  });
}

import { spawn, type ChildProcess } from 'node:child_process';
import { chownSync, existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { Socket } from 'node:net';
import { dirname, join } from 'node:path';
import { jobCommand } from './job-command.host.ts';
import { asUser, spawnAs, temporaryDirectory, type AsUserOptions, type Ended, type TestUser } from './users.host.ts';

/** A home, a workspace and a state directory of a user's own, and `job` to run there. */
export interface JobLab {
  readonly user: TestUser;
  /** Holds `home` and `work`. */
  readonly base: string;
  readonly home: string;
  readonly workspace: string;
  /** Proofrun's state directory. */
  readonly state: string;
  readonly env: Readonly<Record<string, string>>;
  /** Runs `job ARGS` in the workspace to its end. */
  job(args: readonly string[], options?: AsUserOptions): Promise<Ended>;
  /** Starts `job ARGS` in the workspace with pipes. The caller ends it. */
  spawn(args: readonly string[], options?: Parameters<typeof spawnAs>[2]): ChildProcess;
  /** Writes a file that belongs to the user; directories are made. Relative to the workspace. */
  write(path: string, text: string, mode?: number): string;
  /** Files and links below a directory (default: the workspace), relative, sorted; a link with its target. */
  tree(directory?: string): readonly string[];
}

export function jobLab(user: TestUser): JobLab {
  const base = temporaryDirectory(user, 'proofrun-lab-');
  const own = (path: string): string => {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    chownSync(path, user.uid, user.gid);
    return path;
  };
  const home = own(join(base, 'home'));
  const workspace = own(join(base, 'work'));
  const stateHome = own(join(base, 'state'));
  const env = { HOME: home, XDG_STATE_HOME: stateHome, XDG_CONFIG_HOME: join(home, '.config') };
  const command = (args: readonly string[]): [string, ...string[]] => [...jobCommand(user), ...args];
  return {
    user,
    base,
    home,
    workspace,
    state: join(stateHome, 'proofrun'),
    env,
    job: (args, options = {}) => asUser(user, command(args), { cwd: workspace, ...options, env: { ...env, ...options.env } }),
    spawn: (args, options = {}) => spawnAs(user, command(args), { cwd: workspace, ...options, env: { ...env, ...options.env } }),
    write: (path, text, mode = 0o644) => {
      const full = join(workspace, path);
      for (const directory of missing(dirname(full))) own(directory);
      writeFileSync(full, text, { mode });
      chownSync(full, user.uid, user.gid);
      return full;
    },
    tree: (directory = workspace) => list(directory, ''),
  };
}

function missing(directory: string): readonly string[] {
  return existsSync(directory) ? [] : [...missing(dirname(directory)), directory];
}

function list(directory: string, prefix: string): readonly string[] {
  return readdirSync(directory)
    .sort()
    .flatMap((name) => {
      const path = join(directory, name);
      const shown = `${prefix}${name}`;
      const stat = lstatSync(path);
      if (stat.isDirectory()) return [`${shown}/`, ...list(path, `${shown}/`)];
      return [stat.isSymbolicLink() ? `${shown} -> ${readlinkSync(path)}` : shown];
    });
}

/** Process ids whose command line holds a text, zombies left out. */
export function processesWith(text: string): readonly number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes(text);
      } catch {
        return false;
      }
    });
}

/** Mounts of this mount namespace at or below a path. */
export function mountsBelow(path: string): readonly string[] {
  return readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '')
    .filter((point) => point === path || point.startsWith(`${path}/`));
}

/** The ids of all runs of a lab, as `job ls --all --json` gives them, newest first. */
export async function runsOf(lab: JobLab): Promise<readonly RunLine[]> {
  const ended = await lab.job(['ls', '--all', '--json']);
  if (ended.code !== 0) throw new Error(`job ls: ${ended.stderr}`);
  return JSON.parse(ended.stdout) as readonly RunLine[];
}

export interface RunLine {
  readonly id: string;
  readonly state: string;
  readonly stage_state: string;
  readonly ending: { readonly kind: string; readonly code?: number; readonly detail?: string } | null;
  readonly exit_code: number | null;
  readonly name: string | null;
  readonly bundle: { readonly path: string } | null;
}

/** Resolves when a detached run has said something: its command has begun, and has set its traps. */
export async function untilOutput(lab: JobLab, id: string): Promise<void> {
  const follower = lab.spawn(['logs', id, '--follow'], { stdio: ['ignore', 'pipe', 'ignore'] });
  await new Promise((resolve) => follower.stdout?.once('data', resolve));
  follower.kill('SIGKILL');
  await new Promise((resolve) => follower.once('close', resolve));
}

/** A command of `job` that stops at each named point of its runs and says so. */
export interface AnnouncingJob {
  readonly child: ChildProcess;
  readonly stderr: () => string;
  /** Lets the run go on to this point and resolves when it stands there; rejects when the process ends before. */
  reach(point: string): Promise<void>;
  /** Lets it run to its end. */
  finish(): Promise<number | null>;
}

/** See src/cli/points.host.ts: argv[0] asks for the announcements. */
export function spawnAnnouncing(lab: JobLab, args: readonly string[]): AnnouncingJob {
  const [node, ...rest] = jobCommand(lab.user);
  const ids = lab.user.uid === process.getuid?.() ? {} : { uid: lab.user.uid, gid: lab.user.gid };
  const child = spawn(node, [...rest, ...args], {
    argv0: 'job-announcing-points',
    cwd: lab.workspace,
    env: { PATH: '/usr/local/bin:/usr/bin:/bin', LANG: 'C.UTF-8', ...lab.env },
    stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
    ...ids,
  });
  const errors: Buffer[] = [];
  child.stdout?.resume();
  child.stderr?.on('data', (part: Buffer) => errors.push(part));
  const stderr = (): string => Buffer.concat(errors).toString();
  const pipe = child.stdio[3];
  if (!(pipe instanceof Socket)) throw new Error('no pipe for the points');
  const waiting: string[] = [];
  let wake: (() => void) | undefined;
  let ended = false;
  let standing = false;
  const closed = new Promise<number | null>((resolve) => {
    child.once('close', (code) => {
      ended = true;
      wake?.();
      resolve(code);
    });
  });
  pipe.setEncoding('utf8');
  pipe.on('error', () => undefined);
  pipe.on('data', (text: string) => {
    waiting.push(...text.split('\n').filter((line) => line !== ''));
    wake?.();
  });
  const next = async (): Promise<string | undefined> => {
    while (waiting.length === 0 && !ended) {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
    return waiting.shift();
  };
  return {
    child,
    stderr,
    reach: async (point) => {
      if (standing) pipe.write('.');
      standing = false;
      for (;;) {
        const here = await next();
        if (here === undefined) throw new Error(`the process ended before ${point}: ${stderr()}`);
        if (here === point) {
          standing = true;
          return;
        }
        pipe.write('.');
      }
    },
    finish: async () => {
      pipe.write('.');
      void (async () => {
        while ((await next()) !== undefined) pipe.write('.');
      })();
      return await closed;
    },
  };
}

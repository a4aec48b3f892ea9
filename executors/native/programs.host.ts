import { accessSync, closeSync, constants, openSync, readdirSync, readSync, realpathSync, statSync } from 'node:fs';
import { basename, isAbsolute, join, resolve } from 'node:path';
import { ProofrunError } from '../../src/core/errors.ts';
import type { EffectiveJob } from '../../src/core/job.ts';
import { parseProgram } from '../shim/elf.ts';

/** What a job may execute whose programs are listed. */
export interface ListedPrograms {
  /** Files, and directories with all below them: the command, the listed programs, and the interpreters and loaders that the kernel opens for them. */
  readonly allowed: readonly string[];
  /** Every other name in the directories of programs: hidden, so that the loader can't map them either. Absolute, of the real directory. */
  readonly hidden: readonly string[];
  /** Listed names that this machine doesn't have. */
  readonly missing: readonly string[];
}

/** Directories of programs besides those of PATH. */
const PROGRAM_DIRECTORIES = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin', '/usr/local/games', '/usr/games'];

/** Directories that hold the parts which a program executes by itself, by its name. */
const PARTS: Readonly<Record<string, readonly string[]>> = {
  git: ['/usr/lib/git-core', '/usr/libexec/git-core', '/usr/local/libexec/git-core'],
  gcc: ['/usr/lib/gcc', '/usr/libexec/gcc'],
  cc: ['/usr/lib/gcc', '/usr/libexec/gcc'],
  'g++': ['/usr/lib/gcc', '/usr/libexec/gcc'],
};

/** As much of a file as the kernel looks at for `#!` (BINPRM_BUF_SIZE is 256), and room for the headers of an ELF program. */
const HEAD_BYTES = 4096;
/** A script whose interpreter is a script: the kernel follows five (BINPRM recursion). */
const MOST_INTERPRETERS = 5;

const within = (path: string, root: string): boolean => path === root || root === '/' || path.startsWith(`${root}/`);

/** What lies where in the job's root: of two nested places the inner one counts. */
export interface ProgramPlaces {
  readonly writable: readonly string[];
  readonly readOnly: readonly string[];
}

/**
 * Resolves a job's list on this machine, with the job's own PATH. Files in writable places can't be on it: nothing there can be executed, so
 * that the job makes no program of its own. Throws ERR_LAUNCH when the command itself lies there.
 */
export function listPrograms(job: EffectiveJob, places: ProgramPlaces): ListedPrograms {
  const { subprocess, credentials } = job.permissions;
  const path = (credentials.environment['PATH'] ?? '').split(':').filter((entry) => isAbsolute(entry));
  const allowed = new Set<string>();
  const missing: string[] = [];
  const depthIn = (file: string, roots: readonly string[]): number => Math.max(0, ...roots.filter((root) => within(file, root)).map((root) => root.length));
  const isWritable = (file: string): boolean => depthIn(file, places.writable) > depthIn(file, places.readOnly);
  /** Adds a file and what the kernel opens to run it. */
  const add = (file: string, depth = 0): void => {
    const real = realOf(file);
    if (real === undefined || allowed.has(real) || isWritable(real) || depth > MOST_INTERPRETERS) return;
    allowed.add(real);
    const head = headOf(real);
    const script = /^#![ \t]*([^\s]+)(?:[ \t]+([^\n]*))?/.exec(head.toString('latin1'));
    if (script?.[1] !== undefined) {
      add(script[1], depth + 1);
      const named = basename(script[1]) === 'env' ? programOfEnv(script[2] ?? '') : undefined;
      const found = named === undefined ? undefined : find(named, path, job.cwd);
      if (found !== undefined) add(found, depth + 1);
    }
    const loader = parseProgram(head)?.interpreter;
    if (loader !== undefined) add(loader, depth + 1);
  };

  const [command] = job.argv;
  const program = find(command, path, job.cwd);
  if (program !== undefined) {
    if (isWritable(realOf(program) ?? program)) {
      throw new ProofrunError('ERR_LAUNCH', {
        message: `the command ${command} lies in a place that the job can write, and programs are listed: nothing there can be executed`,
        hint: `run it through its interpreter, for example: sh ${command}`,
        data: { program },
      });
    }
    add(program);
  }
  for (const name of subprocess.allow) {
    const found = find(name, path, job.cwd);
    if (found === undefined || isWritable(realOf(found) ?? found)) missing.push(name);
    else add(found);
    for (const part of PARTS[basename(name)] ?? []) if (isDirectory(part)) allowed.add(part);
  }

  const directories = new Set([...path, ...PROGRAM_DIRECTORIES].flatMap((directory) => realOf(directory) ?? []));
  const hidden: string[] = [];
  for (const directory of directories) {
    if (isWritable(directory) || allowed.has(directory)) continue;
    for (const entry of entriesOf(directory)) {
      if (entry.isDirectory()) continue;
      const name = join(directory, entry.name);
      const real = entry.isSymbolicLink() ? realOf(name) : name;
      // A link that leads to a directory, or nowhere, is no program.
      if (real === undefined || (real !== name && isDirectory(real)) || allowed.has(real)) continue;
      hidden.push(name);
    }
  }
  return { allowed: [...allowed].sort(), hidden: hidden.sort(), missing };
}

/** The file that execvp(3) would take for a name. */
function find(name: string, path: readonly string[], cwd: string): string | undefined {
  const candidates = name.includes('/') ? [resolve(cwd, name)] : path.map((directory) => join(directory, name));
  return candidates.find((file) => {
    try {
      accessSync(file, constants.X_OK);
      return statSync(file).isFile();
    } catch {
      return false;
    }
  });
}

/** The program that `#!/usr/bin/env …` names: env(1) takes options and NAME=value before it. */
function programOfEnv(words: string): string | undefined {
  return words.split(/[ \t]+/).find((word) => word !== '' && !word.startsWith('-') && !word.includes('='));
}

function realOf(path: string): string | undefined {
  try {
    return realpathSync(path);
  } catch {
    return undefined;
  }
}

function isDirectory(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}

function entriesOf(directory: string): ReturnType<typeof readEntries> {
  try {
    return readEntries(directory);
  } catch {
    return [];
  }
}

function readEntries(directory: string) {
  return readdirSync(directory, { withFileTypes: true });
}

function headOf(file: string): Buffer {
  let fd: number;
  try {
    fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch {
    return Buffer.alloc(0); // it can be executed and not read: nothing is known of its interpreter
  }
  try {
    const head = Buffer.alloc(HEAD_BYTES);
    return head.subarray(0, readSync(fd, head, 0, HEAD_BYTES, 0));
  } finally {
    closeSync(fd);
  }
}

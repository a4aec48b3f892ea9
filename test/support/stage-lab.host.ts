import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { buildSync } from 'esbuild';
import { chmodSync, mkdtempSync, readFileSync, readdirSync, existsSync, lstatSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll } from 'vitest';
import type { AppliedPath, Change, ChangeSet, StagedRoot } from '../../src/core/change.ts';
import type { PreparedStage, RecoveredApply } from '../../src/stage/index.ts';
import type { StageRequest } from '../fixtures/stage-driver.ts';
import { asUser, temporaryDirectory, type Ended, type TestUser } from './users.host.ts';

const CLONE = resolve(import.meta.dirname, '../..');
const NODE = process.env['PROOFRUN_TEST_NODE'] ?? process.execPath;
export const SHIM = join(process.env['PROOFRUN_TEST_INSTALL'] ?? CLONE, 'prebuilt', `linux-${process.arch}`, 'proofrun-shim');

let driver = '';
const bases: string[] = [];

/** Call at the top of a test file: bundles src/stage so that another user can run it. */
export function useStageDriver(): void {
  let directory = '';
  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), 'proofrun-stage-driver-'));
    driver = join(directory, 'driver.mjs');
    const banner = { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" };
    buildSync({
      entryPoints: [join(CLONE, 'test/fixtures/stage-driver.ts')],
      bundle: true,
      platform: 'node',
      format: 'esm',
      outfile: driver,
      banner,
      logLevel: 'error',
    });
    chmodSync(directory, 0o755);
    chmodSync(driver, 0o644);
  });
  afterAll(() => {
    rmSync(directory, { recursive: true, force: true });
    // Names that are no UTF-8, closed directories and paths beyond PATH_MAX are beyond what Node removes.
    for (const base of bases.splice(0)) execFileSync('sh', ['-c', 'chmod -R u+rwx "$1"; rm -rf "$1"', 'sh', base], { stdio: 'ignore' });
  });
}

export interface StageError {
  readonly code: string;
  readonly message: string;
  readonly hint: string;
  readonly data: Readonly<Record<string, unknown>>;
}

export interface Applied {
  readonly applied: readonly AppliedPath[];
  readonly complete: boolean;
  readonly notes: readonly { readonly path: string; readonly because: string }[];
  readonly recovered: readonly RecoveredApply[];
}

export interface Outcome<T> {
  readonly value?: T;
  readonly error?: StageError;
  readonly recorded: readonly AppliedPath[][];
  /** Ids of the applies and undos that ended. */
  readonly batches?: readonly string[];
  /** The driver was killed, as the request asked. */
  readonly died?: true;
}

/** A workspace, a stage over it and a state directory, all of one user's; jobs run on a real overlay. */
export class StageLab {
  readonly user: TestUser;
  readonly base: string;
  readonly workspace: string;
  staged: StagedRoot[] = [];
  hidden: string[] = [];
  applied: AppliedPath[] = [];
  executes: string[] = [];
  constructor(user: TestUser) {
    this.user = user;
    this.base = temporaryDirectory(user, 'proofrun-stage-');
    this.workspace = join(this.base, 'ws');
    bases.push(this.base);
  }

  get markers(): 'user' | 'trusted' {
    return this.user.kind === 'root' ? 'trusted' : 'user';
  }

  get upper(): string {
    return join(this.base, 'stage', 'root-0', 'upper');
  }

  /** Runs a shell script as the user in the workspace, outside any stage. */
  async here(script: string): Promise<string> {
    const run = await asUser(this.user, ['sh', '-ec', `umask 022; mkdir -p ws; cd ws; ${script}`], { cwd: this.base });
    if (run.code !== 0) throw new Error(`the script failed (${run.code ?? run.signal}): ${run.stderr}`);
    return run.stdout;
  }

  private fill(verb: StageRequest['verb'], extra: Partial<StageRequest>): StageRequest {
    return {
      verb,
      shim: SHIM,
      directory: join(this.base, 'stage'),
      stateDirectory: join(this.base, 'state'),
      roots: [this.workspace],
      staged: this.staged,
      patterns: [],
      markers: this.markers,
      hidden: this.hidden.map((path) => join(this.workspace, path)),
      applied: this.applied,
      executes: this.executes,
      form: 'patch',
      selection: { cwd: this.workspace, paths: [], include: [], exclude: [], allowExec: [], overwrite: [] },
      at: {},
      ...extra,
    };
  }

  async request<T>(verb: StageRequest['verb'], extra: Partial<StageRequest> = {}): Promise<Outcome<T>> {
    const request = this.fill(verb, extra);
    const run: Ended = await asUser(this.user, [NODE, driver], { cwd: this.base, input: JSON.stringify(request) });
    if (run.signal === 'SIGKILL') return { died: true, recorded: [], batches: [] };
    if (run.code !== 0) throw new Error(`the driver failed (${run.code ?? run.signal}): ${run.stderr}`);
    const outcome = JSON.parse(run.stdout) as Outcome<T>;
    for (const paths of outcome.recorded) this.applied.push(...paths);
    return outcome;
  }

  async must<T>(verb: StageRequest['verb'], extra: Partial<StageRequest> = {}): Promise<T> {
    const outcome = await this.request<T>(verb, extra);
    if (outcome.value === undefined) throw new Error(`${verb} was refused: ${JSON.stringify(outcome.error)}`);
    return outcome.value;
  }

  async prepare(extra: Partial<StageRequest> = {}): Promise<PreparedStage> {
    const prepared = await this.must<PreparedStage>('prepare', extra);
    this.staged = [...prepared.roots];
    return prepared;
  }

  /** Names in the workspace and in the state's apply directory that an apply could have left. */
  litter(state = join(this.base, 'state')): string[] {
    const inside = readdirSync(this.workspace).filter((name) => name.startsWith('.proofrun'));
    const apply = join(state, 'apply');
    return [...inside, ...(existsSync(apply) ? readdirSync(apply).filter((name) => !name.endsWith('.lock')) : [])];
  }

  /** Makes the workspace with a script, then a stage over it. */
  static async over(user: TestUser, script: string, hidden: readonly string[] = []): Promise<StageLab> {
    const lab = new StageLab(user);
    await lab.here(script);
    lab.hidden = [...hidden];
    await lab.prepare();
    return lab;
  }

  /** Runs a shell script on the overlay, as the job would: hidden paths are masked. */
  async job(script: string): Promise<string> {
    const root = this.staged[0];
    if (root === undefined) throw new Error('prepare first');
    const options = this.user.kind === 'root' ? 'redirect_dir=on' : 'userxattr';
    const mask = this.hidden.length === 0 ? [] : ['mkdir mask; mount -t tmpfs tmpfs mask', ...this.hidden.map((path) => maskOf(path))];
    const lower = this.hidden.length === 0 ? root.root : `mask:${root.root}`;
    const whole = [
      'cd "$1"; mkdir -p merged',
      ...mask,
      `mount -t overlay overlay -o "lowerdir=${lower},upperdir=${root.upper},workdir=${root.work},${options}" merged`,
      'cd merged',
      'eval "$2"',
    ].join('\n');
    const flags = this.user.kind === 'root' ? '-m' : '-Urm';
    const run = await asUser(this.user, ['unshare', flags, '--propagation', 'private', 'sh', '-euc', whole, 'sh', this.base, script], { cwd: this.base });
    if (run.code !== 0) throw new Error(`the job failed (${run.code ?? run.signal}): ${run.stderr}`);
    return run.stdout;
  }

  /** Runs a shell script in the workspace with the rights that a job has on the overlay. */
  async hereAsJob(script: string): Promise<void> {
    const flags = this.user.kind === 'root' ? '-m' : '-Urm';
    const run = await asUser(this.user, ['unshare', flags, 'sh', '-euc', script], { cwd: this.workspace });
    if (run.code !== 0) throw new Error(`the script failed (${run.code ?? run.signal}): ${run.stderr}`);
  }

  async view(): Promise<ChangeSet> {
    return this.must<ChangeSet>('view');
  }

  /** `kind path` of each change, in order of path. */
  async kinds(): Promise<string[]> {
    return (await this.view()).changes.map((change) => `${change.kind} ${change.from === undefined ? '' : `${change.from} -> `}${change.path}`).sort();
  }

  async change(path: string): Promise<Change> {
    const found = (await this.view()).changes.find((change) => change.path === path);
    if (found === undefined) throw new Error(`no change at ${path}`);
    return found;
  }

  apply(selection: Partial<StageRequest['selection']> = {}, extra: Partial<StageRequest> = {}): Promise<Outcome<Applied>> {
    return this.request<Applied>('apply', {
      selection: { cwd: this.workspace, paths: [], include: [], exclude: [], allowExec: [], overwrite: [], ...selection },
      ...extra,
    });
  }

  /** The file that a driver can be given on standard input, and the command that does so: for a second command while the first waits. */
  async commandFor(verb: StageRequest['verb'], output: string): Promise<string> {
    const request = join(this.base, `request-${output}`);
    writeFileSync(request, JSON.stringify(this.fill(verb, {})), { mode: 0o644 });
    return `'${NODE}' '${driver}' < '${request}' > '${join(this.base, output)}'`;
  }

  /**
   * Every entry of the workspace with what an apply carries: type, mode, owner, content, target. `exact` adds identity and
   * time of everything but directories: the very same files, not equal ones.
   */
  snapshot(form: 'equal' | 'exact' = 'equal', root = this.workspace): Record<string, string> {
    const found: Record<string, string> = {};
    const visit = (directory: Buffer, name: string): void => {
      for (const entry of readdirSync(directory, { withFileTypes: true, encoding: 'buffer' })) {
        const path = Buffer.concat([directory, Buffer.from('/'), entry.name]);
        const key = name + entry.name.toString('latin1');
        const facts = lstatSync(path, { bigint: true });
        const very = form === 'exact' ? ` ${facts.ino} ${facts.mtimeNs}` : '';
        const common = `${(Number(facts.mode) & 0o7777).toString(8)} ${facts.uid}:${facts.gid}`;
        if (facts.isDirectory()) {
          found[key] = `directory ${common}`;
          visit(path, `${key}/`);
        } else if (facts.isSymbolicLink()) {
          found[key] = `symlink ${facts.uid}:${facts.gid} ${readlinkSync(path, { encoding: 'buffer' }).toString('latin1')}${very}`;
        } else if (facts.isFile()) {
          found[key] = `file ${common} ${facts.size} ${createHash('sha256').update(readFileSync(path)).digest('hex').slice(0, 16)}${very}`;
        } else {
          found[key] = `${facts.isFIFO() ? 'fifo' : facts.isSocket() ? 'socket' : 'device'} ${common}${very}`;
        }
      }
    };
    visit(Buffer.from(root), '');
    return found;
  }
}

/** A whiteout in the mask layer, and the directories above it as they are in the workspace. */
function maskOf(path: string): string {
  const slash = path.lastIndexOf('/');
  const above = slash < 0 ? '' : `mkdir -p 'mask/${path.slice(0, slash)}';`;
  return `${above} mknod 'mask/${path}' c 0 0`;
}

import { resolve } from 'node:path';
import { EXIT_CODES, ProofrunError } from '../core/errors.ts';
import type { EffectiveJob } from '../core/job.ts';
import { safeLine } from '../core/text-safety.ts';
import type { Admission } from '../core/plan.ts';
import { composeJob } from '../policy/compose.ts';
import { prepareJob, type Prepared } from '../policy/prepare.host.ts';
import { flushed } from '../runner/output-pump.host.ts';
import type { Runner } from '../runner/open-runner.host.ts';
import type { RecordedRun, RunIo, RunNotice, RunResult } from '../runner/runner.ts';
import type { StartingPoint } from '../runner/starting-point.host.ts';
import type { ParsedArgs } from './command.ts';
import type { CliContext } from './context.ts';
import { jobRequestOf } from './job-request.ts';
import { ioOf } from './run-io.ts';
import { openRuns, type OpenRuns } from './open-runs.host.ts';
import { startProgress, type Progress } from './report/progress.ts';
import { openIdFile, writeResultFile } from './run-files.host.ts';
import { forwardSignals } from './run-signals.host.ts';

/** What a job starts from, as typed: the staged result of a run, or a checkpoint. */
export interface Start {
  readonly kind: 'run' | 'checkpoint';
  readonly selector: string;
}

export interface RunJobOptions {
  readonly start?: Start | undefined;
  /** Of a supervisor, which has no streams for the command. */
  readonly onRunning?: (id: string) => void;
}

/** One job from its command line to its exit code. */
export async function runJob(args: ParsedArgs, context: CliContext, { start, onRunning }: RunJobOptions = {}): Promise<number> {
  const runs = await openRuns(context);
  try {
    void runs.runner.probe();
    const prepared = await prepareJob(jobRequestOf(args), runs.caller, 'require');
    const composed = composeJob(prepared.input);
    const job = args.flags.learn === undefined ? composed : await learning(args.flags.learn, composed, context);
    const from = start === undefined ? undefined : await startingPoint(runs, start, job.workspace);
    const admission = await admitShowing(args, context, runs.runner, job);
    if (args.flags.dryRun === true) return await showPlan(args, context, admission);
    return await liveJob({ args, context, runs, prepared, job, admission, from, onRunning });
  } finally {
    runs.close();
  }
}

async function startingPoint({ runner: { parts } }: OpenRuns, start: Start, workspace: string): Promise<StartingPoint> {
  if (start.kind === 'run') {
    const { startOnRun } = await import('../runner/starting-point.host.ts');
    return startOnRun(parts, parts.store.findRun(start.selector, workspace));
  }
  const { startFromCheckpoint } = await import('../runner/checkpoint.host.ts');
  return await startFromCheckpoint(parts, parts.store.findCheckpoint(start.selector, workspace));
}

/** Fetches the image with a bar on stderr, where the job needs one that isn't there. A dry run fetches nothing. */
async function admitShowing({ flags }: ParsedArgs, context: CliContext, runner: Runner, job: EffectiveJob): Promise<Admission> {
  const pull = flags.dryRun === true ? 'never' : (flags.pull ?? 'missing');
  let bar: Progress | undefined;
  try {
    return await runner.admit(job, {
      pull,
      progress: ({ reference, bytes, totalBytes }) => {
        if (flags.quiet === true) return;
        bar ??= startProgress(`fetching ${safeLine(reference, 80)}`, context, { json: flags.json === true });
        bar.update(bytes, totalBytes);
      },
    });
  } finally {
    bar?.stop();
  }
}

/** The job with its network recorded. ERR_USAGE when the file is there already, before anything has run. */
async function learning(file: string, job: EffectiveJob, context: CliContext): Promise<EffectiveJob> {
  const { existsSync } = await import('node:fs');
  if (existsSync(resolve(context.cwd, file))) {
    throw new ProofrunError('ERR_USAGE', {
      message: `--learn ${file}: the file exists already`,
      hint: 'name a new one; what was learned before can be used: --use FILE',
    });
  }
  const { recordedNetwork } = await import('./report/learned.ts');
  return recordedNetwork(job);
}

interface JobLine {
  readonly args: ParsedArgs;
  readonly context: CliContext;
  readonly runs: OpenRuns;
  readonly prepared: Prepared;
  readonly job: EffectiveJob;
  readonly admission: Admission;
  readonly from: StartingPoint | undefined;
  readonly onRunning: ((id: string) => void) | undefined;
}

async function liveJob(line: JobLine): Promise<number> {
  const { args, context, runs } = line;
  const { flags } = args;
  const io: RunIo = line.onRunning === undefined ? ioOf(args, context) : { kind: 'pipes', stdin: 'none', stdout: undefined, stderr: undefined };
  const idFile = flags.idFile === undefined ? undefined : openIdFile(flags.idFile, context.cwd);
  const journal = flags.journal === undefined ? undefined : await openJournalFile(resolve(context.cwd, flags.journal), context);
  if (flags.quiet !== true) await sayWorkspace(line);
  let id = '';
  try {
    const handle = await runs.runner.start(line.admission, {
      io,
      ...(line.from === undefined ? {} : { from: line.from }),
      onRecorded: (recorded) => {
        ({ id } = recorded);
        idFile?.write(id);
        if (flags.quiet !== true) sayUnseen(recorded, context);
      },
      onReleased: () => line.onRunning?.(id),
      ...(journal === undefined ? {} : { onNotice: journal.notice }),
    });
    const restore = forwardSignals(handle, io.kind);
    let result: RunResult;
    try {
      result = await handle.result;
    } finally {
      restore();
    }
    return await account(line, result);
  } finally {
    idFile?.close();
    journal?.close();
    // What is still on its way would be cut off by the exit.
    await Promise.all([flushed(context.stdout), flushed(context.stderr)]);
  }
}

interface OpenJournal {
  readonly notice: (notice: RunNotice) => void;
  readonly close: () => void;
}

/** A journal that can't be written any more is told once; the run goes on. */
async function openJournalFile(file: string, context: CliContext): Promise<OpenJournal> {
  const { openJournal } = await import('../runner/journal.host.ts');
  const journal = openJournal(file);
  let broken = false;
  return {
    notice: (notice) => {
      if (broken) return;
      try {
        journal.append(notice);
      } catch (error) {
        if (!(error instanceof ProofrunError)) throw error;
        broken = true;
        context.stderr.write(`job: ${error.message}; the journal ends here\n`);
      }
    },
    close: journal.close,
  };
}

/** The workspace is what will be staged: said where it isn't simply the current directory. */
async function sayWorkspace({ context, prepared }: JobLine): Promise<void> {
  const { workspace, chosen } = prepared.input.workspace;
  if (workspace === context.cwd || chosen === 'flag') return;
  const { displayPath } = await import('../core/text-safety.ts');
  context.stderr.write(`job: workspace ${displayPath(workspace)} (${chosen})\n`);
}

function sayUnseen({ unseenStages }: RecordedRun, context: CliContext): void {
  if (unseenStages.length === 0) return;
  const shown = unseenStages.slice(0, 3).join(', ');
  const more = unseenStages.length > 3 ? ` and ${unseenStages.length - 3} more` : '';
  context.stderr.write(`job: staged and not applied, so this run does not see it: ${shown}${more}\n`);
}

async function showPlan(args: ParsedArgs, context: CliContext, admission: Admission): Promise<number> {
  const { toSnake } = await import('../core/case.ts');
  const { jsonPage } = await import('./report/json.ts');
  const { paletteFor } = await import('./report/palette.ts');
  const refused = admission.kind === 'refused';
  if (args.flags.json === true) {
    const { planRecord } = await import('../runner/bundle-plan.ts');
    context.stdout.write(
      jsonPage(
        toSnake(refused ? { plan: null, refusal: admission.refusal } : { plan: planRecord(admission.plan), refusal: null, warnings: admission.plan.warnings }),
      ),
    );
  } else if (refused) {
    const { refusalText } = await import('./report/refusal.ts');
    context.stderr.write(
      refusalText({
        refusal: admission.refusal,
        argv: admission.job.argv,
        mode: admission.job.mode,
        runId: undefined,
        width: context.columns,
        palette: paletteFor(context, 'stderr'),
      }),
    );
  } else {
    const { planText } = await import('./report/plan.ts');
    context.stdout.write(planText({ plan: admission.plan, width: context.columns, palette: paletteFor(context, 'stdout') }));
  }
  await Promise.all([flushed(context.stdout), flushed(context.stderr)]);
  return refused ? EXIT_CODES.refused : 0;
}

/** The end as the person sees it, and the exit code. */
async function account(line: JobLine, result: RunResult): Promise<number> {
  const { args, context, runs } = line;
  const { flags } = args;
  const applied = flags.apply === 'on-success' && result.exitCode === 0 ? await applyAll(line, result) : undefined;
  const appliedFiles = applied?.kind === 'applied' ? applied.files : undefined;
  if (flags.learn !== undefined && result.refusal === null) await writeLearned(flags.learn, context, result);
  if (flags.json === true || flags.result !== undefined) {
    const { jsonPage, summaryJson } = await import('./report/json.ts');
    const json = jsonPage(summaryJson(result.bundle, { appliedFiles: appliedFiles ?? null, bundlePath: resolve(result.directory, 'run-bundle.json') }));
    if (flags.json === true) context.stdout.write(json);
    if (flags.result !== undefined) writeResultFile(flags.result, context.cwd, json);
  }
  if (flags.json !== true) {
    const { paletteFor } = await import('./report/palette.ts');
    const look = { width: context.columns, palette: paletteFor(context, 'stderr') };
    if (result.refusal !== null) {
      const { refusalText } = await import('./report/refusal.ts');
      context.stderr.write(refusalText({ refusal: result.refusal, argv: line.job.argv, mode: line.job.mode, runId: result.id, ...look }));
    } else if (flags.quiet !== true || result.state !== 'finished') {
      const { summaryText } = await import('./report/summary.ts');
      const selector = await selectorOf(line, result);
      context.stderr.write(
        summaryText({
          bundle: result.bundle,
          argv: args.argv,
          words: args.words,
          cwd: context.cwd,
          home: runs.caller.home,
          selector,
          ...(appliedFiles === undefined ? {} : { applied: appliedFiles }),
          ...(line.job.hints === undefined ? {} : { hints: line.job.hints }),
          ...look,
        }),
      );
    }
  }
  const lost = (result.bundle.credentials.logins ?? []).filter(({ outcome }) => outcome === 'failed');
  if (lost.length === 0 && applied?.kind !== 'refused') return result.exitCode;
  const { reportError } = await import('./report/error.ts');
  let code = result.exitCode;
  if (lost.length > 0) {
    const { failedLogin } = await import('../runner/login-words.ts');
    const error = new ProofrunError('ERR_LOGIN_KEPT', {
      message: lost.map(failedLogin).join('\n'),
      hint: 'look at the kept copy before you use it: a job wrote it; logging in again also helps',
    });
    const own = reportError(error, false, context);
    // The command's own failure is said by its own code.
    if (code === 0) code = own;
  }
  return applied?.kind === 'refused' ? reportError(applied.error, false, context) : code;
}

async function writeLearned(file: string, context: CliContext, { bundle }: RunResult): Promise<void> {
  const { learnedProfile } = await import('./report/learned.ts');
  const { writeNewFile } = await import('./write-file.host.ts');
  const { text, hosts } = learnedProfile(bundle);
  writeNewFile(context.cwd, file, text, false);
  context.stderr.write(`job: wrote ${JSON.stringify(file)}: ${hosts} ${hosts === 1 ? 'host' : 'hosts'} that the command asked for\n`);
}

type AutoApply = { readonly kind: 'applied'; readonly files: number } | { readonly kind: 'refused'; readonly error: ProofrunError };

/** --apply on-success: all of it, under the same refusals as by hand. */
async function applyAll({ context, runs }: JobLine, result: RunResult): Promise<AutoApply> {
  if (result.stageState !== 'staged') return { kind: 'applied', files: 0 };
  const { applyRun } = await import('../runner/apply-run.host.ts');
  const { parts } = runs.runner;
  const run = parts.store.readRun(result.id);
  if (run === undefined) return { kind: 'applied', files: 0 };
  try {
    const { result: done } = await applyRun(parts, run, { cwd: context.cwd, paths: [], include: [], exclude: [], allowExec: [], overwrite: [] });
    return { kind: 'applied', files: done.selected.entries.filter(({ change }) => change.implied !== true).length };
  } catch (error) {
    if (error instanceof ProofrunError) return { kind: 'refused', error };
    throw error;
  }
}

/** `last` when that names this run from where the person stands, else its id. */
async function selectorOf({ runs }: JobLine, result: RunResult): Promise<string> {
  const workspace = runs.workspace();
  return runs.runner.parts.store.listRuns({ workspace, limit: 1 })[0]?.id === result.id ? 'last' : result.id;
}

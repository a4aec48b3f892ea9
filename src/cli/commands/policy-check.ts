import { resolve } from 'node:path';
import { EXIT_CODES, ProofrunError } from '../../core/errors.ts';
import { displayPath, safeText } from '../../core/text-safety.ts';
import { isMapping } from '../../policy/compile.ts';
import { parseDocument } from '../../policy/document.ts';
import { parseJobFile } from '../../policy/job-file.ts';
import { readJobFile, readPolicyFile } from '../../policy/policy-file.host.ts';
import { compilePreset } from '../../policy/presets.ts';
import { callerFacts } from '../caller.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { jsonLine } from '../report/json.ts';
import { paletteFor } from '../report/palette.ts';

type Kind = 'job' | 'policy' | 'profile';

interface Checked {
  readonly file: string;
  readonly kind: Kind | null;
  /** null: nothing is wrong. */
  readonly error: { readonly code: string; readonly message: string; readonly hint: string | null } | null;
}

/** Checks each file as the kind of thing that it is; the first fault of each is named by line. 2 when there is one. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const { uid } = callerFacts(context);
  const results: Checked[] = [];
  for (const file of args.words) results.push(await check(file, args.flags.kind, context.cwd, uid));
  const bad = results.filter((result) => result.error !== null);
  if (args.flags.json === true) {
    context.stdout.write(
      jsonLine(results.map((result) => ({ file: result.file, kind: result.kind, error: result.error === null ? null : { ...result.error } }))),
    );
  } else {
    const palette = paletteFor(context, 'stdout');
    for (const { file, kind, error } of results) {
      context.stdout.write(
        error === null
          ? `${palette.good('ok')}     ${displayPath(file)}  (${kind ?? 'unknown'})\n`
          : `${palette.bad('wrong')}  ${safeText(error.message, { lines: true })}\n${error.hint === null ? '' : `       ${safeText(error.hint, { lines: true })}\n`}`,
      );
    }
  }
  return bad.length === 0 ? 0 : EXIT_CODES.usage;
}

async function check(file: string, wanted: Kind | undefined, cwd: string, uid: number): Promise<Checked> {
  let kind: Kind | null = wanted ?? kindByName(file) ?? null;
  try {
    const path = resolve(cwd, file);
    kind ??= await kindByKeys(path, file);
    if (kind === 'job') {
      const { text, sha256 } = readJobFile(path, file);
      await parseJobFile(text, file, sha256);
    } else {
      const found = readPolicyFile(path, [uid, 0]);
      if (found === undefined) throw new ProofrunError('ERR_POLICY_FILE', { message: `${file}: there is no such file` });
      await compilePreset(found.text, file, kind, found.sha256);
    }
    return { file, kind, error: null };
  } catch (error) {
    if (!(error instanceof ProofrunError)) throw error;
    return { file, kind, error: { code: error.code, message: error.message, hint: error.hint ?? null } };
  }
}

function kindByName(file: string): Kind | undefined {
  if (/(^|\/)profiles\/[^/]+$/.test(file)) return 'profile';
  if (/(^|\/)policies\/[^/]+$/.test(file) || /(^|\/)policy\.(?:ya?ml|json)$/.test(file)) return 'policy';
  return /(^|\/)job\.(?:ya?ml|json)$/.test(file) ? 'job' : undefined;
}

/** Keys that only one kind of file has. A file with none of them is taken for a job: the form that most people write. */
async function kindByKeys(path: string, file: string): Promise<Kind> {
  const { text } = readJobFile(path, file);
  const { value } = await parseDocument(text, file, 'ERR_JOB_FILE');
  const keys = isMapping(value) ? Object.keys(value) : [];
  if (keys.some((key) => ['programs', 'notes', 'sources'].includes(key))) return 'profile';
  return keys.includes('description') ? 'policy' : 'job';
}

import { join, resolve } from 'node:path';
import { ProofrunError } from '../../core/errors.ts';
import { displayPath, safeText } from '../../core/text-safety.ts';
import { loadPresets } from '../../policy/load.host.ts';
import { didYouMean } from '../../policy/near-names.ts';
import { readPolicyFile } from '../../policy/policy-file.host.ts';
import { callerFacts } from '../caller.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { jsonLine } from '../report/json.ts';
import { readShipped } from '../rule-files.host.ts';

interface Found {
  readonly kind: 'policy' | 'profile';
  readonly source: string;
  readonly sha256: string | null;
  readonly text: string;
}

/** Prints the file behind a name, as it is written: the person's own first, then the shipped one. Throws ERR_PROFILE_UNKNOWN, ERR_POLICY_FILE. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const found = await find(args.words[0] ?? '', context);
  if (args.flags.json === true) {
    context.stdout.write(jsonLine({ ...found }));
    return 0;
  }
  context.stderr.write(`job: ${found.kind}, ${found.source}${found.sha256 === null ? '' : `, sha256 ${found.sha256.slice(0, 12)}`}\n`);
  context.stdout.write(safeText(found.text, { lines: true }));
  return 0;
}

async function find(name: string, context: CliContext): Promise<Found> {
  const caller = callerFacts(context);
  const isPath = name.includes('/') || /\.(?:ya?ml|json)$/.test(name);
  const places = isPath
    ? [['policy', resolve(context.cwd, name)] as const]
    : ([
        ['policy', join(caller.configDirectory, 'policies', `${name}.yaml`)],
        ['profile', join(caller.configDirectory, 'profiles', `${name}.yaml`)],
      ] as const);
  for (const [kind, path] of places) {
    const file = readPolicyFile(path, [caller.uid, 0]);
    if (file !== undefined) {
      return { kind: isPath && /(^|\/)profiles\//.test(path) ? 'profile' : kind, source: displayPath(path), sha256: file.sha256, text: file.text };
    }
  }
  if (isPath) throw new ProofrunError('ERR_PROFILE_UNKNOWN', { message: `there is no file ${displayPath(name)}`, hint: 'job policy ls' });
  const presets = await loadPresets();
  const preset = [...presets.policies, ...presets.profiles].find((layer) => layer.name === name);
  if (preset === undefined || preset.kind === 'job') {
    const known = [...presets.policies, ...presets.profiles].map((layer) => layer.name);
    throw new ProofrunError('ERR_PROFILE_UNKNOWN', {
      message: `no policy or profile is named ${JSON.stringify(name)}${didYouMean(name, known)}`,
      hint: 'job policy ls lists them',
    });
  }
  return { kind: preset.kind, source: `shipped ${preset.file}`, sha256: preset.sha256, text: await readShipped(preset.kind, preset.file) };
}

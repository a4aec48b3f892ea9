import { join } from 'node:path';
import { displayPath, safeLine } from '../../core/text-safety.ts';
import { loadPresets } from '../../policy/load.host.ts';
import { readPolicyFile } from '../../policy/policy-file.host.ts';
import { findWorkspace } from '../../policy/workspace.host.ts';
import { callerFacts } from '../caller.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { jsonLine } from '../report/json.ts';
import { flowWords, labelled, pad } from '../report/layout.ts';
import { namesIn } from '../rule-files.host.ts';

interface Row {
  readonly kind: 'policy' | 'profile';
  readonly name: string;
  readonly from: 'shipped' | 'yours' | 'always';
  readonly description: string;
}

const NAME = 16;

/** Presets, the person's own, and the two files that always take part. Throws ERR_POLICY_FILE for one of those that may not rule. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const caller = callerFacts(context);
  const presets = await loadPresets();
  const { workspace } = findWorkspace({ currentDirectory: context.cwd });
  const own = async (kind: Row['kind'], folder: string): Promise<readonly Row[]> =>
    (await namesIn(join(caller.configDirectory, folder))).map((name) => ({
      kind,
      name,
      from: 'yours',
      description: displayPath(join(caller.configDirectory, folder, `${name}.yaml`)),
    }));
  const always: Row[] = [];
  for (const [name, path] of [
    ['user policy', join(caller.configDirectory, 'policy.yaml')],
    ['workspace policy', join(workspace, '.proofrun', 'policy.yaml')],
  ] as const) {
    if (readPolicyFile(path, [caller.uid, 0]) !== undefined) always.push({ kind: 'policy', name, from: 'always', description: displayPath(path) });
  }
  const rows: readonly Row[] = [
    ...always,
    ...(await own('policy', 'policies')),
    ...presets.policies.map((layer): Row => ({ kind: 'policy', name: layer.name, from: 'shipped', description: layer.description ?? '' })),
    ...(await own('profile', 'profiles')),
    ...presets.profiles.map((layer): Row => ({ kind: 'profile', name: layer.name, from: 'shipped', description: layer.description ?? '' })),
  ];
  context.stdout.write(args.flags.json === true ? jsonLine(rows.map((row) => ({ ...row }))) : text(rows, context.columns));
  return 0;
}

function text(rows: readonly Row[], width: number): string {
  const section = (kind: Row['kind'], title: string): readonly string[] => [
    title,
    ...rows
      .filter((row) => row.kind === kind)
      .flatMap((row) =>
        labelled(
          safeLine(row.name, 80),
          NAME + 2,
          flowWords(`${row.from === 'shipped' ? '' : `(${row.from}) `}${safeLine(row.description, 300)}`, width - NAME - 4),
          '  ',
        ).map((line, index) => (index === 0 && row.name.length >= NAME + 2 ? `  ${pad(row.name, NAME)}  ${line.slice(row.name.length + 2)}` : line)),
      ),
  ];
  return `${[...section('policy', 'Policies (ceilings; --policy NAME):'), '', ...section('profile', 'Profiles (grants; --use NAME):')].join('\n')}\n`;
}

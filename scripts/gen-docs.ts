/** Makes the pages of docs/reference from the program's own tables and schemas. Run through scripts/gen-docs.mjs. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ERRORS, type ErrorCode } from '../src/core/error-codes.ts';
import { EXIT_CODES } from '../src/core/errors.ts';
import type { JsonObject } from '../src/core/json.ts';
import { exitCodeRows } from '../src/cli/exit-codes.ts';
import { COMMAND_GROUPS, COMMAND_NAMES, commandRow, type CommandName } from '../src/cli/command-table.ts';
import { EXCLUSIVE, FLAG_SECTIONS, flagRow, flagsOf, flagText, type FlagKey } from '../src/cli/flags.ts';
import { flagSynopsis } from '../src/cli/help.ts';
import { DIMENSIONS } from '../src/core/dimension.ts';
import { CONTROLS } from '../src/core/plan.ts';
import { planDimensions } from '../src/admission/dimensions.ts';
import { SAMPLE_SAFE_JOB } from '../src/cli/sample-job.ts';
import { dimensionTitle } from '../src/cli/report/words.ts';
import { OWED } from '../src/evidence/index.ts';
import { REQUIREMENTS } from '../src/executor/conformance.ts';
import { DOCUMENTED } from './capability-table.ts';
import { JOURNAL_KINDS } from '../src/runner/journal.ts';
import { compileDirectory } from '../src/policy/load.host.ts';
import type { CompiledLayer } from '../src/policy/layer.ts';
import { schemaFields, isObject, type SchemaField } from './schema-fields.ts';

const GENERATED = '<!-- Made by scripts/gen-docs.mjs from the tables and schemas of the program. Change those instead. -->';

/** Every page by its file name. */
export async function makePages(root: string): Promise<ReadonlyMap<string, string>> {
  const schemas = readSchemas(root);
  return new Map([
    ['cli.md', cliPage()],
    ['exit-codes.md', exitCodePage()],
    ['errors.md', errorPage()],
    ['job-file.md', jobFilePage(schemas)],
    ['policies.md', await policyPage(root, schemas)],
    ['bundle.md', bundlePage(schemas)],
    ['journal.md', journalPage(schemas)],
    ['agent-file.md', agentPage(schemas)],
    ['capabilities.md', capabilityPage(root)],
  ]);
}

function page(title: string, ...blocks: readonly string[]): string {
  return `${[`# ${title}`, GENERATED, ...blocks].join('\n\n')}\n`;
}

function table(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string => `| ${cells.map((cell) => cell.replaceAll('|', '\\|').replaceAll('\n', ' ')).join(' | ')} |`;
  return [line(header), line(header.map(() => '---')), ...rows.map(line)].join('\n');
}

function code(text: string): string {
  return `\`${text}\``;
}

// The command line.

function cliPage(): string {
  const groups = COMMAND_GROUPS.map(
    (group) =>
      `**${group}**: ${COMMAND_NAMES.filter((name) => commandRow(name).group === group)
        .map((name) => `[${code(name)}](#job-${name.replace(' ', '-')})`)
        .join(' ')}`,
  );
  return page(
    'Command line',
    'The command is `job`. Results go to stdout, its own lines to stderr. `--json` writes JSON with snake_case keys instead of text. The first word that is no flag ends the flags of `job run`: what follows belongs to the program.',
    groups.join('\n\n'),
    ...COMMAND_NAMES.map(commandSection),
    '## Flags that contradict each other',
    table(
      ['At most one of', 'Because'],
      EXCLUSIVE.map(({ flags, why }) => [flags.map((key) => code(flagText(key))).join(', '), why]),
    ),
  );
}

function commandSection(name: CommandName): string {
  const row = commandRow(name);
  const usage = row.words.split(' | ').map((words) => `job ${name} [FLAGS]${words === '' ? '' : ` ${words}`}`);
  const blocks = [`## job ${name}`, `${row.summary}.`, `\`\`\`text\n${usage.join('\n')}\n\`\`\``, ...row.about];
  for (const section of FLAG_SECTIONS) {
    const keys = flagsOf(name).filter((key) => flagRow(key).section === section);
    if (keys.length > 0) {
      blocks.push(
        table(
          [section, 'Meaning'],
          keys.map((key) => [code(flagSynopsis(key).trim()), flagMeaning(key)]),
        ),
      );
    }
  }
  if (row.examples.length > 0) {
    blocks.push(`\`\`\`sh\n${row.examples.map(([line, meaning]) => (meaning === '' ? line : `${line}  # ${meaning}`)).join('\n')}\n\`\`\``);
  }
  return blocks.join('\n\n');
}

function flagMeaning(key: FlagKey): string {
  const row = flagRow(key);
  return `${row.help}.${row.repeat === true ? ' May be given more than once.' : ''}`;
}

// Exit codes and errors.

function exitCodePage(): string {
  return page(
    'Exit codes',
    "`job run`, `job wait` and `job attach` exit with the command's own code. Every other code is one of these; a command that itself exits with one of them can be told apart by `--result FILE` or `job status --json`.",
    table(['Code', 'Meaning'], exitCodeRows()),
  );
}

function errorPage(): string {
  const rows = (Object.keys(ERRORS) as ErrorCode[]).map((name) => {
    const { kind, summary } = ERRORS[name];
    return [code(name), summary, String(EXIT_CODES[kind])];
  });
  return page(
    'Errors',
    'With `--json` an error is one line on stdout: `{"error":{"code","kind","message","hint","exit_code","data"}}`. Without, `job: MESSAGE` on stderr, and below it what to do next.',
    table(['Code', 'When', 'Exit code'], rows),
  );
}

// Files.

function readSchemas(root: string): ReadonlyMap<string, JsonObject> {
  const read = (name: string): readonly [string, JsonObject] => {
    const value: unknown = JSON.parse(readFileSync(join(root, 'schemas', name), 'utf8'));
    if (!isObject(value)) throw new Error(`${name} is no object`);
    return [name, value];
  };
  return new Map(
    [
      'job.schema.json',
      'policy.schema.json',
      'profile.schema.json',
      'run-bundle.schema.json',
      'run.schema.json',
      'journal.schema.json',
      'agent.schema.json',
      'tool-policy.schema.json',
    ].map(read),
  );
}

function fieldsOf(name: string, schemas: ReadonlyMap<string, JsonObject>): readonly SchemaField[] {
  const schema = schemas.get(name);
  if (schema === undefined) throw new Error(`no schema ${name}`);
  return schemaFields(schema, schemas);
}

function fieldTable(fields: readonly SchemaField[], title = 'Key'): string {
  return table(
    [title, 'Form', 'Meaning'],
    fields.map((field) => [`${code(field.path)}${field.required ? ' *' : ''}`, field.form, field.description]),
  );
}

function agentPage(schemas: ReadonlyMap<string, JsonObject>): string {
  return page(
    'Agent file',
    'What `job run --agent FILE` works with: YAML 1.2 (or JSON), paths relative to the file, unknown keys are errors, keys that begin with `x-` are ignored. It grants nothing: what the sandboxes of its tools may reach comes from the command line and from policies. `job schema agent` prints the schema. Required keys carry a star.',
    fieldTable(fieldsOf('agent.schema.json', schemas)),
    '## Tool policy',
    'The rules under `policy`, or a file of their own. A matching denial beats a matching question, which beats a matching allowance, whatever their order. `job schema tool-policy` prints the schema.',
    fieldTable(fieldsOf('tool-policy.schema.json', schemas)),
  );
}

function jobFilePage(schemas: ReadonlyMap<string, JsonObject>): string {
  return page(
    'Job file',
    'YAML 1.2 (or JSON): one document, no custom tags, no repeated keys. Paths are relative to the file. Unknown keys are errors; keys that begin with `x-` are ignored. `job init` writes one with comments, `job policy check` checks one, `job schema job` prints the schema. Required keys carry a star.',
    fieldTable(fieldsOf('job.schema.json', schemas)),
    '## Absent, empty and stated',
    'A section that is absent says nothing: the mode decides. A section with rules and without `default_action` denies what no rule names. `allow: []` allows nothing. No network section in default mode means a public network; under `safe` and `strict` it means none.',
  );
}

async function policyPage(root: string, schemas: ReadonlyMap<string, JsonObject>): Promise<string> {
  const presets = await compileDirectory(join(root, 'policies'));
  const layers = (list: readonly CompiledLayer[]): string =>
    table(
      ['Name', 'What it is', 'Digest'],
      list.map((layer) => [code(layer.name), layer.description ?? '', code(layer.sha256.slice(0, 12))]),
    );
  return page(
    'Policies and profiles',
    'A profile is a file of grants; grants from profiles, the job file and flags are joined. A policy is a file of ceilings and denials; ceilings are intersected. A grant above a ceiling is refused and both lines are named. `job policy show NAME` prints one, `job policy explain` says which line decides.',
    '## Shipped policies',
    layers(presets.policies),
    '## Shipped profiles',
    layers(presets.profiles),
    '## Fields of a policy',
    fieldTable(fieldsOf('policy.schema.json', schemas)),
    '## Fields of a profile',
    fieldTable(fieldsOf('profile.schema.json', schemas)),
    '## Sensitive paths',
    'Hidden under --safe and --strict; a job that grants, stages or uses one is refused unless `--allow-read PATH` names it.',
    table(
      ['Path', 'Tool', 'Source'],
      presets.sensitive.host.map((entry) => [code(entry.path), entry.tool, entry.source]),
    ),
    'In the workspace:',
    table(
      ['Name', 'Tool', 'Only when'],
      presets.sensitive.workspace.map((entry) => [code(entry.path), entry.tool, entry.privateKey === true ? 'it holds a private key' : 'always']),
    ),
    '## What the host runs by itself',
    'Staged like any other file, listed first in a review, and applied only with `--allow-exec PATH`.',
    table(
      ['Paths', 'Tool', 'When', 'Source'],
      presets.executes.entries.map((entry) => [entry.paths.map(code).join(' '), entry.tool, entry.when, entry.source]),
    ),
  );
}

function bundlePage(schemas: ReadonlyMap<string, JsonObject>): string {
  return page(
    'Run bundle and run.json',
    '`run-bundle.json` is the whole account of a run: canonical JSON, mode 0600, with its own SHA-256. `executor_observations` is the only evidence of enforcement in it; a bundle without it is refused by every command. `job verify` recomputes `safety` and every level from the receipts. `null` is what nobody observed, `0` is an observation. `job schema bundle` prints the schema.',
    fieldTable(fieldsOf('run-bundle.schema.json', schemas)),
    '## run.json',
    "Facts of the run and its executor's identity, for programs that need no evidence; it never holds a level, a receipt or a claim. `job schema run` prints the schema.",
    fieldTable(fieldsOf('run.schema.json', schemas)),
  );
}

function journalPage(schemas: ReadonlyMap<string, JsonObject>): string {
  const fields = fieldsOf('journal.schema.json', schemas).filter((field) => !field.path.startsWith('data.'));
  const common = fields.map((field) =>
    field.path === 'kind'
      ? { ...field, form: 'text', description: 'One of those below.' }
      : field.path === 'operation'
        ? { ...field, description: 'The one process run of the attempt; null for events about no single operation.' }
        : field,
  );
  const kinds = Object.entries(JOURNAL_KINDS).map(([kind, row]) => [
    code(kind),
    row.operation ? 'yes' : 'no',
    row.cause.map(code).join(' ') || '-',
    row.data.map(code).join(' ') || '-',
  ]);
  return page(
    'Event journal',
    '`job run --journal FILE` appends one JSON object a line, each on disk before the run goes on. It tells the life of a run and nothing else: no file changes, no outputs, no controls. Several runs may write to one file; a torn last line is repaired by the next writer. The order of lines is the order of writing, not of effects outside. `job schema journal` prints the schema.',
    fieldTable(common),
    '## Kinds',
    'The cause of an event is the newest earlier one of the kinds named.',
    table(['Kind', 'About the process', 'Cause', 'Data'], kinds),
  );
}

/** What the last recorded run of the conformance suite found: test/conformance/executor.test.ts holds it to each later run. */
function conformanceTable(root: string): string {
  const found: unknown = JSON.parse(readFileSync(join(root, 'test/conformance/results.json'), 'utf8'));
  if (!isObject(found)) throw new Error('test/conformance/results.json holds no object');
  const rows = REQUIREMENTS.map(({ id, text }) => [
    id,
    text,
    ...Object.values(found).map((outcomes) => {
      const outcome = isObject(outcomes) ? outcomes[id] : undefined;
      return typeof outcome === 'string' ? outcome : 'not run';
    }),
  ]);
  return table(['Requirement', '', ...Object.keys(found)], rows);
}

function capabilityPage(root: string): string {
  const plans = DOCUMENTED.map((capabilities) => planDimensions(SAMPLE_SAFE_JOB, capabilities));
  const dimensions = DIMENSIONS.map((dimension) => [
    dimensionTitle(dimension),
    ...plans.map((plan) => {
      const { level, scope, reason } = plan[dimension];
      return level === 'planned' ? `planned: ${scope}` : `${level}: ${reason ?? scope}`;
    }),
  ]);
  const yes = (can: boolean): string => (can ? 'yes' : 'no');
  const abilities: readonly (readonly string[])[] = [
    ...(['public', 'deny', 'selective'] as const).map((kind) => [`network, ${kind}`, ...DOCUMENTED.map((one) => yes(one.network[kind]))]),
    ...(['contained', 'listed', 'none'] as const).map((kind) => [`programs, ${kind}`, ...DOCUMENTED.map((one) => yes(one.subprocess[kind]))]),
    ...(['memory', 'cpus', 'processes', 'swap'] as const).map((limit) => [
      `limit of the whole tree, ${limit}`,
      ...DOCUMENTED.map((one) => yes(one.limits[limit])),
    ]),
  ];
  const names = DOCUMENTED.map(({ executor }) => executor);
  const controls = CONTROLS.map((control) => {
    const at = (phase: string): string =>
      OWED[control]
        .filter((owed) => owed.phase === phase)
        .map(({ id }) => code(id))
        .join(' ') || '-';
    return [code(control), at('gate'), at('end'), ...DOCUMENTED.map((one) => yes(one.controls.includes(control)))];
  });
  return page(
    'Capabilities',
    'What each executor can do where nothing stands in its way. `job doctor` says what is true on your machine. A plan is never evidence: whether a dimension was enforced is in the bundle of each run.',
    '## The plainest job under --safe',
    table(['Dimension', ...names], dimensions),
    '## Abilities',
    'Limits of the whole tree need a control group that the caller may use; `processes` needs none for an ordinary user.',
    table(['Ability', ...names], abilities),
    '## What the conformance suite found',
    'The same numbered requirements are tried on each executor; docker-remote is an engine over TCP with TLS, which gets the workspace as a stream and gives the changes back. A control that an executor never has is named: the requirement does not apply there.',
    conformanceTable(root),
    '## Controls and the receipts that they owe',
    'An executor may owe more than these. A control whose receipts are not all taken and matching is not installed. `probe.` marks an attempt to break the rule.',
    table(['Control', 'At the gate', 'At the end', ...names], controls),
  );
}

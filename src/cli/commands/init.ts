import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { writeNewFile } from '../write-file.host.ts';
import { jsonLine } from '../report/json.ts';

/** Writes a commented job file. Throws ERR_USAGE when the file exists and --force isn't given, or can't be written. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const name = args.words[0] ?? 'job.yaml';
  const path = writeNewFile(context.cwd, name, JOB_FILE, args.flags.force === true);
  if (args.flags.json === true) context.stdout.write(jsonLine({ file: path }));
  else {
    context.stderr.write(
      `job: wrote ${JSON.stringify(name)}\n     job policy explain ${name}   what it means, line by line\n     job trust ${name}            accept what it asks for\n     job run ${name}\n`,
    );
  }
  return Promise.resolve(0);
}

/** test/unit/cli-init.test.ts parses it, and each line that is commented out. */
export const JOB_FILE = `# A job: what runs, and what it may do. docs/reference/job-file.md explains every key.
# Check it:   job policy check job.yaml
# See what it means, line by line:   job policy explain job.yaml
# Run it:     job run job.yaml
version: 1
name: unit

# default: install what works and record what is missing. safe: refuse unless reads, writes, network and
# processes are contained. strict: the same for everything that is asked for, without waiver.
mode: safe

# The program and its arguments, one item each; no shell reads them.
command: [npm, test]

# Grants of a ready-made profile, joined with those below; \`job policy ls\` lists them.
#use: [npm-install]

# Ceilings, intersected: nothing above them is granted.
#policies: [ci]

# What is not mentioned here is as the mode has it.
permissions:
  # Hidden names read as absent. A denial always wins.
  file_read:
    deny: ["**/*.local.json"]

  # Changes in the workspace are staged until \`job apply\`. Listed under direct, they bypass the stage.
  #file_write:
  #  direct: [dist]

  # No network at all. Leaving the section out means what the mode says.
  network:
    default_action: deny

  # Variables of the caller that the command gets besides the usual few (PATH, LANG, TERM ...).
  credentials:
    pass_env: [CI]

  resources:
    processes: 512
    wall_time: 10m
    #memory: 2GiB
`;

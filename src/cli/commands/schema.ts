import { ProofrunError } from '../../core/errors.ts';
import { didYouMean } from '../../policy/near-names.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { SCHEMA_NAMES, SCHEMAS } from '../schemas.ts';
import { jsonLine } from '../report/json.ts';

/** Without a name: the list. With one: the schema itself, which is JSON with or without --json. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const word = args.words[0];
  if (word === undefined) {
    const rows = SCHEMA_NAMES.map((name) => ({ name, describes: SCHEMAS[name].describes }));
    context.stdout.write(args.flags.json === true ? jsonLine(rows) : rows.map(({ name, describes }) => `${name.padEnd(12)} ${describes}\n`).join(''));
    return 0;
  }
  const name = SCHEMA_NAMES.find((known) => known === word);
  if (name === undefined) {
    throw new ProofrunError('ERR_USAGE', {
      message: `no schema is named ${JSON.stringify(word)}${didYouMean(word, SCHEMA_NAMES)}`,
      hint: `job schema lists them: ${SCHEMA_NAMES.join(', ')}`,
    });
  }
  const { default: schema } = await SCHEMAS[name].load();
  context.stdout.write(`${JSON.stringify(schema, null, 2)}\n`);
  return 0;
}

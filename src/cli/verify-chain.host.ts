import { EXIT_CODES, ProofrunError } from '../core/errors.ts';
import { safeLine } from '../core/text-safety.ts';
import type { ParsedArgs } from './command.ts';
import type { CliContext } from './context.ts';
import { openControl } from './open-control.host.ts';
import { jsonLine } from './report/json.ts';

/** `job verify --chain [--head SEQ:HASH]`: 0 when the chain is whole and leads to every row as it is, else 201. Prints the head to note. */
export async function verifyChain(args: ParsedArgs, context: CliContext): Promise<number> {
  const head = args.flags.head === undefined ? undefined : readHead(args.flags.head);
  const control = await openControl(context);
  try {
    const { store } = control.runs.runner.parts;
    const word = args.words[0];
    const isControl = word?.startsWith('ctl-') === true;
    const id = isControl ? await control.find(word) : control.runs.find(word).id;
    if (!isControl && head !== undefined) {
      const noted = store.events(control.runs.find(word).id).find((event) => event.seq === head.seq);
      if (noted?.hash !== head.hash) return told(args, context, { id, ok: false, fact: `event ${head.seq} is not the one that was noted as head`, head: null });
    }
    const check = isControl ? store.control.check(id, head) : store.checkChain(control.runs.find(word).id);
    const last = isControl ? store.control.read(id) : undefined;
    const run = isControl ? undefined : control.runs.find(word);
    const now = last === undefined ? `${run?.lastSeq ?? 0}:${run?.chain ?? ''}` : `${last.last_seq}:${last.chain}`;
    return told(args, context, check.ok ? { id, ok: true, fact: null, head: now } : { id, ok: false, fact: `event ${check.seq} ${check.fact}`, head: now });
  } finally {
    await control.close();
  }
}

interface Told {
  readonly id: string;
  readonly ok: boolean;
  readonly fact: string | null;
  readonly head: string | null;
}

function told(args: ParsedArgs, context: CliContext, { id, ok, fact, head }: Told): number {
  if (args.flags.json === true) context.stdout.write(jsonLine({ run: id, ok, fact, head }));
  else context.stdout.write(ok ? `${id}: the chain is whole\nhead ${head ?? ''}\n` : `${id}: ${safeLine(fact ?? '', 400)}\n`);
  return ok ? 0 : EXIT_CODES.evidence;
}

function readHead(text: string): { readonly seq: number; readonly hash: string } {
  const match = /^([1-9][0-9]{0,15}):([0-9a-f]{64})$/.exec(text);
  if (match === null) {
    throw new ProofrunError('ERR_USAGE', {
      message: `--head expects SEQ:HASH as \`job verify --chain\` prints it; received ${JSON.stringify(text)}`,
      hint: 'job verify --chain RUN',
    });
  }
  return { seq: Number(match[1]), hash: match[2] ?? '' };
}

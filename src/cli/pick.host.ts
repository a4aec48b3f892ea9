import { createInterface } from 'node:readline';
import { ProofrunError } from '../core/errors.ts';
import { displayPath, safeText } from '../core/text-safety.ts';
import { choiceOf, completeSelection, hunksOf, type Choice, type SelectedChanges, type StageView, type TakenEntry } from '../stage/index.ts';
import type { CliContext } from './context.ts';
import { paletteFor } from './report/palette.ts';
import { plural } from './report/words.ts';

type Entry = SelectedChanges['entries'][number];

/** Questions on stderr, answers from the terminal, one line each. */
interface Terminal {
  /** Undefined: the input has ended. */
  ask(question: string): Promise<string | undefined>;
  close(): void;
}

function openTerminal(context: CliContext): Terminal {
  const lines = createInterface({ input: process.stdin, output: context.stderr, terminal: false });
  const answers = lines[Symbol.asyncIterator]();
  return {
    ask: async (question) => {
      context.stderr.write(question);
      const answer = await answers.next();
      return answer.done === true ? undefined : answer.value.trim().toLowerCase();
    },
    close: () => lines.close(),
  };
}

const FILE_HELP = 'y take it, n leave it, h hunk by hunk, a take all that is left, d leave all that is left, q apply nothing';
const HUNK_HELP = 'y take it, n leave it, a take the rest of the file, d leave the rest of the file, q apply nothing';

type Answer = 'take' | 'leave' | 'hunks' | 'take-rest' | 'leave-rest' | 'quit';
const ANSWERS: Readonly<Record<string, Answer>> = { y: 'take', n: 'leave', h: 'hunks', a: 'take-rest', d: 'leave-rest', q: 'quit' };

async function answerTo(terminal: Terminal, context: CliContext, question: string, letters: string, help: string): Promise<Answer> {
  for (;;) {
    const typed = await terminal.ask(`${question} [${letters.replaceAll(/(?=.)/g, ',').slice(1)},?] `);
    if (typed === undefined) return 'quit';
    const answer = typed.length === 1 && letters.includes(typed) ? ANSWERS[typed] : undefined;
    if (answer !== undefined) return answer;
    context.stderr.write(`${help}\n`);
  }
}

/** ERR_USAGE where nobody can answer. */
export function requireTerminal(context: CliContext): void {
  if (context.isTerminal.stdin && context.isTerminal.stderr) return;
  throw new ProofrunError('ERR_USAGE', {
    message: '--interactive asks questions, and there is no terminal to answer them',
    hint: 'job apply last --path FILE',
  });
}

/** Asks for each change, and where a text has several hunks for each of them. Undefined: the person wants nothing applied. */
export async function pickChanges(selected: SelectedChanges, view: StageView, context: CliContext): Promise<Choice | undefined> {
  const terminal = openTerminal(context);
  const asked = selected.entries.filter(({ change }) => change.implied !== true);
  const taken = new Map<Entry, TakenEntry>();
  let rest: 'ask' | 'take' | 'leave' = 'ask';
  try {
    for (const [index, entry] of asked.entries()) {
      if (rest === 'leave') break;
      if (rest === 'take') {
        taken.set(entry, { entry });
        continue;
      }
      const hunked = await hunksOf(entry, view);
      const { change } = entry;
      const lines = change.addedLines === null ? '' : `  +${change.addedLines} -${change.removedLines ?? 0}`;
      const title = `${index + 1}/${asked.length}  ${change.kind.replace('_', ' ')} ${displayPath(change.path, change.encoding)}${lines}`;
      const answer = await answerTo(terminal, context, title, hunked === undefined ? 'ynadq' : 'ynhadq', FILE_HELP);
      if (answer === 'quit') return undefined;
      if (answer === 'take-rest') rest = 'take';
      if (answer === 'leave-rest') rest = 'leave';
      if (answer === 'take' || answer === 'take-rest') taken.set(entry, { entry });
      if (answer !== 'hunks' || hunked === undefined) continue;
      const hunks = await pickHunks(terminal, hunked, context);
      if (hunks === undefined) return undefined;
      if (hunks.size === hunked.hunks.length) taken.set(entry, { entry });
      else if (hunks.size > 0) taken.set(entry, { entry, part: { text: hunked, hunks } });
    }
  } finally {
    terminal.close();
  }
  const left = new Set(asked.filter((entry) => !taken.has(entry)));
  const { entries, notes } = completeSelection([...taken.keys()], view.entries, left);
  for (const { path, because } of notes) context.stderr.write(`with it: ${displayPath(path)}: ${because}\n`);
  context.stderr.write(`${plural(taken.size, 'change')} taken, ${asked.length - taken.size} left\n`);
  return choiceOf(entries.map((entry) => taken.get(entry) ?? { entry }));
}

async function pickHunks(terminal: Terminal, { hunks }: NonNullable<TakenEntry['part']>['text'], context: CliContext): Promise<Set<number> | undefined> {
  const palette = paletteFor(context, 'stderr');
  const chosen = new Set<number>();
  for (const [index, hunk] of hunks.entries()) {
    for (const line of hunk.lines) {
      const text = safeText(Buffer.from(line, 'latin1'), { lines: true });
      context.stderr.write(`${line.startsWith('+') ? palette.good(text) : line.startsWith('-') ? palette.bad(text) : text}\n`);
    }
    const answer = await answerTo(terminal, context, `hunk ${index + 1}/${hunks.length}`, 'ynadq', HUNK_HELP);
    if (answer === 'quit') return undefined;
    if (answer === 'take') chosen.add(index);
    if (answer === 'leave-rest') break;
    if (answer === 'take-rest') {
      for (let later = index; later < hunks.length; later++) chosen.add(later);
      break;
    }
  }
  return chosen;
}

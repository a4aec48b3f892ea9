import type { JobRequest } from '../policy/request.ts';
import type { ParsedArgs } from './command.ts';

/** Flags and words of `job run` or `job policy explain` as what the policy asks for. Paths stay as typed. */
export function jobRequestOf(args: ParsedArgs): JobRequest {
  const { flags } = args;
  const file = jobFileOf(args);
  const mode = flags.strict === true ? 'strict' : flags.safe === true ? 'safe' : undefined;
  return {
    argv: file === undefined ? args.words : [],
    ...(file === undefined ? {} : { jobFile: file }),
    ...(mode === undefined ? {} : { mode }),
    ...(flags.workspace === undefined ? {} : { workspace: flags.workspace }),
    ...(flags.cwd === undefined ? {} : { cwd: flags.cwd }),
    ...(flags.name === undefined ? {} : { name: flags.name }),
    ...(flags.executor === undefined ? {} : { executor: flags.executor }),
    ...(flags.image === undefined ? {} : { image: flags.image }),
    ...(flags.runtime === undefined ? {} : { runtime: flags.runtime }),
    ...(flags.use === undefined ? {} : { use: flags.use }),
    ...(flags.policy === undefined ? {} : { policies: flags.policy }),
    ...(flags.allowNet === undefined ? {} : { allowNet: flags.allowNet }),
    ...(flags.denyNet === undefined ? {} : { denyNet: flags.denyNet }),
    ...(flags.noNet === undefined ? {} : { noNet: true }),
    ...(flags.allowRead === undefined ? {} : { allowRead: flags.allowRead }),
    ...(flags.denyRead === undefined ? {} : { denyRead: flags.denyRead }),
    ...(flags.writeDirect === undefined ? {} : { writeDirect: flags.writeDirect }),
    ...(flags.env === undefined ? {} : { env: flags.env }),
    ...(flags.memory === undefined ? {} : { memoryBytes: flags.memory }),
    ...(flags.cpus === undefined ? {} : { cpus: flags.cpus }),
    ...(flags.processes === undefined ? {} : { processes: flags.processes }),
    ...(flags.timeout === undefined ? {} : { timeoutMs: flags.timeout }),
    ...(flags.degrade === undefined ? {} : { degrade: flags.degrade }),
    ...(flags.trust === undefined ? {} : { trust: flags.trust }),
  };
}

/** A single word that is named like a job file, unless `--` said that it is a program. */
export function jobFileOf(args: Pick<ParsedArgs, 'words' | 'afterDashes'>): string | undefined {
  const [word, ...more] = args.words;
  return word !== undefined && more.length === 0 && !args.afterDashes && /\.(ya?ml|json)$/.test(word) ? word : undefined;
}

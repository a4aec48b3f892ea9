import type { Dimension, Mode } from '../core/dimension.ts';
import type { SecretGrant } from '../core/job.ts';

/**
 * What the person typed: flags of `job run` after the parser, or the options of the library. Paths are as typed, relative to `currentDirectory`.
 * An absent field was not given.
 */
export interface JobRequest {
  /** Empty when the job file names the command. */
  readonly argv: readonly string[];
  readonly jobFile?: string;
  readonly mode?: Mode;
  readonly workspace?: string;
  readonly cwd?: string;
  readonly name?: string;
  readonly executor?: 'auto' | 'native' | 'docker' | 'host';
  readonly image?: string;
  readonly runtime?: string;
  readonly use?: readonly string[];
  readonly policies?: readonly string[];
  /** Host rules as typed. */
  readonly allowNet?: readonly string[];
  readonly denyNet?: readonly string[];
  readonly noNet?: boolean;
  readonly allowRead?: readonly string[];
  readonly denyRead?: readonly string[];
  readonly writeDirect?: readonly string[];
  /** `NAME` passes the caller's value, `NAME=VALUE` sets one. */
  readonly env?: readonly string[];
  /** `NAME`, `NAME=SOURCE` or `NAME=SOURCE@HOST`. */
  readonly secrets?: readonly string[];
  readonly memoryBytes?: number;
  readonly cpus?: number;
  readonly processes?: number;
  readonly timeoutMs?: number;
  readonly degrade?: readonly Dimension[];
  /** Digest of a job file's grants that the person accepts now (`--trust`). */
  readonly trust?: string;
}

export type SecretFlag = { readonly kind: 'ok'; readonly secret: Omit<SecretGrant, 'origin'> } | { readonly kind: 'error'; readonly message: string };

/**
 * `--secret NPM_TOKEN`, `--secret NPM_TOKEN=env:OTHER`, `--secret NPM_TOKEN=env:OTHER@packages.example.com`. Without a source the variable of the same
 * name; with a host it is added there as `Authorization: Bearer` and never enters the job.
 */
export function parseSecretFlag(text: string): SecretFlag {
  const match = /^([A-Za-z_][A-Za-z0-9_]*)(?:=(.*?))?(?:@([^@]+))?$/s.exec(text);
  if (match === null) return { kind: 'error', message: `--secret expects NAME[=SOURCE[@HOST]], received ${JSON.stringify(text)}` };
  const [, name = '', source = `env:${name}`, host] = match;
  if (!/^(?:env|file|command|keyring):./s.test(source)) {
    return {
      kind: 'error',
      message: `--secret ${name}: expected a source env:NAME, file:PATH, command:... or keyring:..., received ${JSON.stringify(source)}`,
    };
  }
  return { kind: 'ok', secret: { name, from: source, ...(host === undefined ? {} : { inject: { host, header: 'Authorization', format: 'Bearer {}' } }) } };
}

export type EnvFlag =
  | { readonly kind: 'pass'; readonly pattern: string }
  | { readonly kind: 'set'; readonly name: string; readonly value: string }
  | { readonly kind: 'error'; readonly message: string };

/** `-e NAME`, `-e 'LC_*'`, `-e NAME=VALUE`. */
export function parseEnvFlag(text: string): EnvFlag {
  const equals = text.indexOf('=');
  if (equals < 0) {
    return /^[A-Za-z_*][A-Za-z0-9_*]*$/.test(text)
      ? { kind: 'pass', pattern: text }
      : { kind: 'error', message: `-e expects NAME or NAME=VALUE, received ${JSON.stringify(text)}` };
  }
  const name = text.slice(0, equals);
  if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name) || text.includes('\0')) {
    return { kind: 'error', message: `-e expects NAME or NAME=VALUE, received ${JSON.stringify(text)}` };
  }
  return { kind: 'set', name, value: text.slice(equals + 1) };
}

import type { EffectiveJob, PathRule } from '../core/job.ts';
import { compileMatcher } from './path-rule.ts';

/** What must read as absent. */
export interface HiddenPatterns {
  /** Absolute paths; each covers what is below it. They hold whether or not they exist now. */
  readonly literals: readonly PathRule[];
  /** Absolute globs; they hold for the names present at the start. */
  readonly globs: readonly PathRule[];
  /** Globs whose matches are hidden when the file holds a private key. */
  readonly privateKeys: readonly PathRule[];
  /** Stay visible although a built-in glob matches. A denial that somebody wrote beats them. */
  readonly except: readonly PathRule[];
}

/** The denials of file_read, and under --safe and --strict the secret names of the workspace. */
export function hiddenPatterns(job: EffectiveJob): HiddenPatterns {
  const { deny, secretNames } = job.permissions.fileRead;
  return {
    literals: deny.filter((rule) => rule.literal),
    globs: [...deny.filter((rule) => !rule.literal), ...(secretNames?.always ?? [])],
    privateKeys: secretNames?.privateKeys ?? [],
    except: secretNames?.except ?? [],
  };
}

/** One path that a rule hides. */
export interface HiddenMatch {
  readonly path: string;
  readonly rule: PathRule;
  /** Hidden only when the file's content is a private key: ask `holdsPrivateKey`. */
  readonly needsContent: boolean;
}

/**
 * Which of the paths that exist are hidden. Paths are absolute. Below a hidden directory nothing more is reported when its path comes before its
 * descendants', as a walk gives them.
 */
export function matchHidden(candidatePaths: Iterable<string>, job: EffectiveJob): readonly HiddenMatch[] {
  const patterns = hiddenPatterns(job);
  const written = [...patterns.literals, ...patterns.globs.filter((rule) => rule.origin.layer !== 'built-in')].map(compileRule);
  const builtIn = patterns.globs.filter((rule) => rule.origin.layer === 'built-in').map(compileRule);
  const keys = patterns.privateKeys.map(compileRule);
  const except = patterns.except.map(compileMatcher);
  const found: HiddenMatch[] = [];
  let covered: string | undefined;
  for (const path of candidatePaths) {
    if (covered !== undefined && path.startsWith(covered)) continue;
    const open = (): boolean => except.some((matches) => matches(path));
    const certain = written.find(({ matches }) => matches(path)) ?? builtIn.find(({ matches }) => matches(path) && !open());
    const possible = certain ?? keys.find(({ matches }) => matches(path) && !open());
    if (possible === undefined) continue;
    found.push({ path, rule: possible.rule, needsContent: certain === undefined });
    if (certain !== undefined) covered = `${path}/`;
  }
  return found;
}

function compileRule(rule: PathRule): { readonly rule: PathRule; readonly matches: (path: string) => boolean } {
  return { rule, matches: compileMatcher(rule) };
}

/** Bytes of a file that `holdsPrivateKey` needs. */
export const KEY_HEAD_BYTES = 65536;

const PEM_KEY = /-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----|^PuTTY-User-Key-File-[0-9]+:|-----BEGIN PGP PRIVATE KEY BLOCK-----/m;

/**
 * True when the first KEY_HEAD_BYTES of a file hold a private key: PEM (PKCS#1, PKCS#8, SEC1, OpenSSH; RFC 7468), a PuTTY or PGP key, or DER that begins like
 * PKCS#12 (RFC 7292) or PKCS#8 (RFC 5958). Certificates and public keys don't.
 */
export function holdsPrivateKey(head: Uint8Array): boolean {
  const text = Buffer.from(head.buffer, head.byteOffset, Math.min(head.byteLength, KEY_HEAD_BYTES)).toString('latin1');
  // UTF-16 text has a zero byte at every second place.
  return PEM_KEY.test(text) || PEM_KEY.test(text.replaceAll('\0', '')) || isKeyContainer(head);
}

/** A DER sequence that begins with version 3 (PFX) or version 0 or 1 and an algorithm (PKCS#8). */
function isKeyContainer(head: Uint8Array): boolean {
  if (head[0] !== 0x30) return false;
  const length = head[1] ?? 0;
  // BER allows the indefinite form, which some PKCS#12 writers use.
  const body = length < 0x80 || length === 0x80 ? 2 : 2 + (length & 0x7f);
  if (head[body] !== 0x02 || head[body + 1] !== 0x01) return false;
  const version = head[body + 2];
  const next = head[body + 3];
  return (
    (version === 3 && next === 0x30) ||
    (version === 0 && (next === 0x30 || next === 0x02)) ||
    (version === 1 && next === 0x30) ||
    (version === 1 && next === 0x04)
  );
}

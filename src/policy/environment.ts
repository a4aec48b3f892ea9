/**
 * Variables that a job gets when its environment is reduced: what programs need to find themselves, a person's language and terminal. None of them
 * carries a right.
 */
export const BASE_ENVIRONMENT: readonly string[] = [
  'PATH',
  'HOME',
  'USER',
  'LOGNAME',
  'SHELL',
  'TERM',
  'COLORTERM',
  'LANG',
  'LANGUAGE',
  'LC_*',
  'TZ',
  'NO_COLOR',
  'FORCE_COLOR',
  'CI',
  'PWD',
];

/** Tests variable names against patterns in which `*` stands for any characters. */
export function compileNames(patterns: readonly string[]): (name: string) => boolean {
  const exact = new Set(patterns.filter((pattern) => !pattern.includes('*')));
  const globs = patterns.filter((pattern) => pattern.includes('*')).map(compileName);
  return (name) => exact.has(name) || globs.some((glob) => glob.test(name));
}

/** True when every name that `inner` matches is matched by `outer`: equal, or `outer` matches `inner` read as a name. */
export function coversName(outer: string, inner: string): boolean {
  return outer === inner || compileName(outer).test(inner);
}

function compileName(pattern: string): RegExp {
  return new RegExp(
    `^${pattern
      .split('*')
      .map((part) => part.replaceAll(/[^A-Za-z0-9_]/g, '\\$&'))
      .join('.*')}$`,
    's',
  );
}

/**
 * Words between underscores that make a name look like a credential, and pairs of them. A table: a regular expression of this size takes
 * longer to compile than all names to look up.
 */
const CREDENTIAL_WORDS = new Set(
  [
    'TOKEN TOKENS SECRET SECRETS PASSWORD PASSWORDS PASSWD PASS PWD PASSPHRASE CREDENTIAL CREDENTIALS CREDS AUTH AUTHORIZATION COOKIE COOKIES',
    'KEY PRIVATEKEY APIKEY APIKEYS ACCESSKEY SIGNINGKEY ENCRYPTIONKEY PAT DSN',
    'API_KEYS WEBHOOK_URL CONNECTION_STRING',
  ].flatMap((line) => line.split(' ')),
);
/** Ends of a name that do so without an underscore before them. */
const CREDENTIAL_ENDS = ['TOKEN', 'SECRET', 'PASSWORD', 'APIKEY'];
/** Variables that look like credentials by name and aren't. */
const NOT_CREDENTIALS = new Set(['PWD', 'OLDPWD', 'SSH_AUTH_SOCK', 'XAUTHORITY', 'GIT_ASKPASS', 'SSH_ASKPASS', 'SUDO_ASKPASS']);
/** Forms that only credentials have: a URL with a password, and the prefixes that issuers of tokens document. */
const CREDENTIAL_VALUE =
  /^(?:[a-z][a-z0-9+.-]*:\/\/[^/\s:@]*:[^/\s@]+@|gh[pousr]_[A-Za-z0-9]{20}|github_pat_|glpat-|npm_[A-Za-z0-9]{20}|sk-[A-Za-z0-9_-]{16}|xox[abprs]-|AKIA[0-9A-Z]{16}|-----BEGIN [A-Z ]*PRIVATE KEY)/;

/** What a value of CREDENTIAL_VALUE begins with, but for URLs: most values are none, and are told apart without it. */
const ISSUER_STARTS = ['gh', 'glpat-', 'npm_', 'sk-', 'xox', 'AKIA', '-----BEGIN '];

/** True when a variable looks like a credential, by its name or by the form of its value. A sign, not a proof: a list of secrets is never complete. */
export function looksLikeCredential(name: string, value: string): boolean {
  if (value === '' || NOT_CREDENTIALS.has(name)) return false;
  return (
    namesCredential(name.toUpperCase()) || ((value.includes('://') || ISSUER_STARTS.some((start) => value.startsWith(start))) && CREDENTIAL_VALUE.test(value))
  );
}

function namesCredential(name: string): boolean {
  if (CREDENTIAL_ENDS.some((end) => name.endsWith(end))) return true;
  const words = name.split('_');
  return words.some((word, index) => CREDENTIAL_WORDS.has(word) || (index > 0 && CREDENTIAL_WORDS.has(`${words[index - 1] ?? ''}_${word}`)));
}

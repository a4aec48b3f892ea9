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

/** Words between underscores that make a name look like a credential. */
const CREDENTIAL_NAME =
  /(?:^|_)(?:TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASS|PWD|PASSPHRASE|CREDENTIALS?|CREDS|AUTH|AUTHORIZATION|COOKIES?|PRIVATE_?KEY|API_?KEYS?|ACCESS_?KEY(?:_ID)?|SIGNING_?KEY|ENCRYPTION_?KEY|KEY|APIKEY|PAT|DSN|WEBHOOK_URL|CONNECTION_STRING)(?:$|_)|(?:TOKEN|SECRET|PASSWORD|APIKEY)$/i;
/** Variables that look like credentials by name and aren't. */
const NOT_CREDENTIALS = new Set(['PWD', 'OLDPWD', 'SSH_AUTH_SOCK', 'XAUTHORITY', 'GIT_ASKPASS', 'SSH_ASKPASS', 'SUDO_ASKPASS']);
/** Forms that only credentials have: a URL with a password, and the prefixes that issuers of tokens document. */
const CREDENTIAL_VALUE =
  /^(?:[a-z][a-z0-9+.-]*:\/\/[^/\s:@]*:[^/\s@]+@|gh[pousr]_[A-Za-z0-9]{20}|github_pat_|glpat-|npm_[A-Za-z0-9]{20}|sk-[A-Za-z0-9_-]{16}|xox[abprs]-|AKIA[0-9A-Z]{16}|-----BEGIN [A-Z ]*PRIVATE KEY)/;

/** True when a variable looks like a credential, by its name or by the form of its value. A sign, not a proof: a list of secrets is never complete. */
export function looksLikeCredential(name: string, value: string): boolean {
  if (value === '' || NOT_CREDENTIALS.has(name)) return false;
  return CREDENTIAL_NAME.test(name) || CREDENTIAL_VALUE.test(value);
}

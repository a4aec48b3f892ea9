import type { GitIdentity } from '../core/job.ts';

const MOST_CHARACTERS = 200;

/**
 * user.name and user.email of a git configuration (git-config(1), Configuration file; the last value wins, includes are not followed). Undefined: neither
 * is there. A value with control characters or of more than 200 characters is none.
 */
export function parseGitIdentity(text: string): GitIdentity | undefined {
  let inUser = false;
  const found = { name: '', email: '' };
  for (const line of text.split('\n').slice(0, 20_000)) {
    const section = /^\s*\[\s*([-.A-Za-z0-9]+)\s*(?:"[^"]*"\s*)?\]\s*(.*)$/.exec(line);
    if (section !== null) inUser = section[1]?.toLowerCase() === 'user' && !line.includes('"', line.indexOf('['));
    const body = section === null ? line : (section[2] ?? '');
    const entry = /^\s*([A-Za-z][-A-Za-z0-9]*)\s*=\s*(.*)$/.exec(body);
    if (!inUser || entry === null) continue;
    const key = entry[1]?.toLowerCase();
    const value = valueOf(entry[2] ?? '');
    if ((key === 'name' || key === 'email') && value !== undefined) found[key] = value;
  }
  return found.name === '' && found.email === '' ? undefined : found;
}

/** The configuration that says the same, for a home that has no other. */
export function formatGitIdentity({ name, email }: GitIdentity): string {
  const line = (key: string, value: string): string => (value === '' ? '' : `\t${key} = "${value.replace(/[\\"]/g, '\\$&')}"\n`);
  return `[user]\n${line('name', name)}${line('email', email)}`;
}

function valueOf(text: string): string | undefined {
  let value = '';
  let end = 0;
  let quoted = false;
  for (let index = 0; index < text.length; index++) {
    const character = text.charAt(index);
    if (character === '"') quoted = !quoted;
    else if (character === '\\') {
      const next = text.charAt(++index);
      if (next !== '"' && next !== '\\') return undefined;
      value += next;
      end = value.length;
    } else if (!quoted && (character === '#' || character === ';')) break;
    else {
      value += character;
      if (quoted || character.trim() !== '') end = value.length;
    }
  }
  const kept = value.slice(0, end);
  // eslint-disable-next-line no-control-regex
  return quoted || kept.length > MOST_CHARACTERS || /[\u0000-\u001f\u007f-\u009f\u2028\u2029\ufffd]/.test(kept) ? undefined : kept;
}

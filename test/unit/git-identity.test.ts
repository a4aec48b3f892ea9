import { describe, expect, it } from 'vitest';
import { formatGitIdentity, parseGitIdentity } from '../../src/policy/git-identity.ts';

describe("the caller's git name", () => {
  it.each<readonly [string, string, { readonly name: string; readonly email: string } | undefined]>([
    ['both', '[user]\n\tname = Ada King\n\temail = ada@example.com\n', { name: 'Ada King', email: 'ada@example.com' }],
    ['any case, spaces and comments', '[ USER ]\nName=Ada ; c\n # no\n  EMAIL = "a b"  # c\n', { name: 'Ada', email: 'a b' }],
    ['on the line of the section', '[user] name = Ada\n', { name: 'Ada', email: '' }],
    ['the last one wins', '[user]\nname=A\n[core]\nname=B\n[user]\nname=C\n', { name: 'C', email: '' }],
    ['escapes and quotes', '[user]\nname = "A \\"B\\" # C\\\\"\n', { name: 'A "B" # C\\', email: '' }],
    ['a subsection is another section', '[user "x"]\nname = A\n', undefined],
    ['another section', '[author]\nname = A\n', undefined],
    ['a tab or a line break in it', '[user]\nname = A\\nB\n', undefined],
    ['control characters', '[user]\nname = A\u001bB\n', undefined],
    ['an endless name', `[user]\nname = ${'x'.repeat(300)}\n`, undefined],
    ['an open quote', '[user]\nname = "A\n', undefined],
    ['an include is not followed', '[include]\npath = other\n', undefined],
    ['nothing', '', undefined],
  ])('%s', (_what, text, expected) => {
    expect(parseGitIdentity(text)).toEqual(expected);
  });

  it('is written so that it reads the same', () => {
    for (const identity of [
      { name: 'Ada "L" King\\', email: 'a#b;c@example.com' },
      { name: '', email: 'x@y' },
      { name: '[core] fsmonitor = evil', email: '' },
    ]) {
      expect(parseGitIdentity(formatGitIdentity(identity))).toEqual(identity);
    }
  });
});

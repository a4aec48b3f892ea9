import { describe, expect, it } from 'vitest';
import { hiddenPatterns, holdsPrivateKey, matchHidden } from '../../src/policy/hidden.ts';
import { WORKSPACE, compose } from './policy-fixture.ts';

const at = (path: string): string => `${WORKSPACE}/${path}`;

describe('the hidden set', () => {
  it('parts what always holds from what holds for names that are there', async () => {
    const job = await compose({ request: { mode: 'safe', denyRead: ['secrets', '*.sqlite'] } });
    const patterns = hiddenPatterns(job);
    expect(patterns.literals.map((rule) => rule.pattern)).toEqual([at('secrets')]);
    expect(patterns.globs.map((rule) => rule.pattern)).toEqual([at('*.sqlite'), at('**/.env'), at('**/.env.*')]);
    expect(patterns.except.map((rule) => rule.pattern)).toEqual([at('**/.env.example')]);
  });

  it('is empty in default mode without a denial', async () => {
    const patterns = hiddenPatterns(await compose({}));
    expect([patterns.literals, patterns.globs, patterns.privateKeys]).toEqual([[], [], []]);
  });

  it.each<readonly [string, boolean | 'content', string]>([
    ['.env', true, 'a file of secrets'],
    ['packages/a/.env', true, 'at any depth'],
    ['.env.local', true, 'of an environment'],
    ['.env.example', false, 'an example holds none'],
    ['packages/a/.env.example', false, 'an example at any depth'],
    ['.env.example.local', true, 'not an example'],
    ['.environment', false, 'a name that begins alike'],
    ['.env/x', true, 'what lies below'],
    ['certs/dev.key', 'content', 'a key, by its content'],
    ['certs/ca.pem', 'content', 'a certificate or a key, by its content'],
    ['id_ed25519', 'content', 'a key of ssh, by its content'],
    ['id_ed25519.pub', false, 'a public key'],
    ['src/key.ts', false, 'a source file'],
  ])('under --safe %s: %s (%s)', async (path, hidden) => {
    const [match] = matchHidden([at(path)], await compose({ request: { mode: 'safe' } }));
    expect(match === undefined ? false : match.needsContent ? 'content' : true).toBe(hidden);
  });

  it('names the rule that hides', async () => {
    const [match] = matchHidden([at('.env')], await compose({ request: { mode: 'safe' } }));
    expect(match?.rule.origin).toMatchObject({ layer: 'built-in', file: 'sensitive.yaml' });
  });

  it('a denial that somebody wrote beats the exception', async () => {
    const job = await compose({ request: { mode: 'safe', denyRead: ['**/.env*'] } });
    expect(matchHidden([at('.env.example')], job).map((match) => match.needsContent)).toEqual([false]);
  });

  it('a written denial is certain where a key would need its content', async () => {
    const job = await compose({ request: { mode: 'safe', denyRead: ['certs'] } });
    expect(matchHidden([at('certs/dev.key')], job)[0]?.needsContent).toBe(false);
  });

  it('reports a hidden directory once, not what lies in it', async () => {
    const job = await compose({ request: { denyRead: ['secrets'] } });
    expect(matchHidden([at('a'), at('secrets'), at('secrets/b'), at('secrets/b/c'), at('secretsx')], job).map((match) => match.path)).toEqual([at('secrets')]);
  });

  it('the person opens one name again; the others stay', async () => {
    const job = await compose({ request: { mode: 'safe', allowRead: ['.env'] } });
    expect(matchHidden([at('.env'), at('a/.env')], job).map((match) => match.path)).toEqual([at('a/.env')]);
  });
});

describe('private keys', () => {
  const pem = (label: string): Uint8Array => Buffer.from(`Some text before\n-----BEGIN ${label}-----\nMIIE\n-----END ${label}-----\n`);

  it.each<readonly [string, Uint8Array]>([
    ['PKCS#8', pem('PRIVATE KEY')],
    ['PKCS#1', pem('RSA PRIVATE KEY')],
    ['SEC1', pem('EC PRIVATE KEY')],
    ['encrypted PKCS#8', pem('ENCRYPTED PRIVATE KEY')],
    ['OpenSSH', pem('OPENSSH PRIVATE KEY')],
    ['PGP', pem('PGP PRIVATE KEY BLOCK')],
    ['PuTTY', Buffer.from('PuTTY-User-Key-File-3: ssh-ed25519\n')],
    ['PEM in UTF-16', Buffer.from('-----BEGIN PRIVATE KEY-----\n', 'utf16le')],
    ['PKCS#12', Buffer.from('3082090f020103308208c5', 'hex')],
    ['PKCS#12 in the indefinite form', Buffer.from('308002010330800609', 'hex')],
    ['PKCS#8 in DER', Buffer.from('308204be020100300d0609', 'hex')],
    ['PKCS#1 in DER', Buffer.from('308204a40201000282010100', 'hex')],
    ['SEC1 in DER', Buffer.from('30770201010420', 'hex')],
  ])('%s is one', (_what, bytes) => {
    expect(holdsPrivateKey(bytes)).toBe(true);
  });

  it.each<readonly [string, Uint8Array]>([
    ['a certificate', pem('CERTIFICATE')],
    ['a public key', pem('PUBLIC KEY')],
    ['parameters', pem('DH PARAMETERS')],
    ['a certificate in DER', Buffer.from('3082030d308201f5a003020102', 'hex')],
    ['text', Buffer.from('the words PRIVATE KEY alone')],
    ['nothing', new Uint8Array()],
    ['one byte', Uint8Array.of(0x30)],
  ])('%s is none', (_what, bytes) => {
    expect(holdsPrivateKey(bytes)).toBe(false);
  });
});

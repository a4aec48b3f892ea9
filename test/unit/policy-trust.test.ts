import { describe, expect, it } from 'vitest';
import { parseJobFile } from '../../src/policy/job-file.ts';
import { trustQuestion, type NamedProfile, type TrustQuestion } from '../../src/policy/trust.ts';

async function ask(text: string, profiles: readonly NamedProfile[] = []): Promise<TrustQuestion | undefined> {
  return trustQuestion(await parseJobFile(`version: 1\n${text}`, 'job.yaml', 'f00d'), profiles);
}

const GRANTING = 'permissions:\n  network: { allow: [a.example, b.example], deny: [c.example] }\n';

describe('what accepting a job file means', () => {
  it.each([
    ['a command alone', 'command: [npm, test]\n'],
    ['a mode', 'mode: safe\n'],
    ['limits', 'permissions: { resources: { memory: 1GiB } }\n'],
    ['denials', 'permissions: { network: { deny: [a.example] }, file_read: { default_action: deny, deny: ["*.pem"] } }\n'],
    ['a policy', 'policies: [offline]\n'],
    ['a list of programs', 'permissions: { subprocess: { allow: [node] } }\n'],
  ])('%s asks for nothing', async (_what, text) => {
    expect(await ask(text)).toBeUndefined();
  });

  it('shows every grant in words, each with its line', async () => {
    const question = await ask(`use: [npm-install]
workspace: ..
executor: host
degrade: [resources]
permissions:
  file_read: { allow: ["~/data"] }
  file_write: { direct: [dist] }
  network: { allow: ["a.example:22", { host: db.corp, ports: [5432], private: true }], host_ports: [8080], publish: ["3000:3000"] }
  credentials: { pass_env: [CI], secrets: [{ name: T, from: "file:~/t", inject: { host: a.example, header: Authorization } }] }
  models: {}
`);
    expect(question?.grants).toEqual([
      { what: 'use the profile npm-install', line: 2 },
      { what: 'stage the workspace ..', line: 3 },
      { what: 'run on the host executor', line: 4 },
      { what: 'do without resources where it is missing', line: 5 },
      { what: 'read ~/data', line: 7 },
      { what: 'write dist without a stage', line: 8 },
      { what: 'connect to a.example:22', line: 9 },
      { what: 'connect to db.corp on 5432, private addresses included', line: 9 },
      { what: 'connect to port 8080 of this machine', line: 9 },
      { what: 'listen on port 3000 of this machine', line: 9 },
      { what: 'see the variable CI', line: 10 },
      { what: 'use the secret T from file:~/t, at a.example only', line: 10 },
      { what: 'call models', line: 11 },
    ]);
    expect(question?.digest).toMatch(/^sha256:[0-9a-f]{64}$/);
  });

  it.each<readonly [string, string]>([
    ['another command', `command: [rm]\n${GRANTING}`],
    ['another name', `name: x\n${GRANTING}`],
    ['a comment and other lines', `# why\n\n${GRANTING}`],
    ['another order of rules', 'permissions:\n  network: { deny: [c.example], allow: [b.example, a.example] }\n'],
    ['a key of somebody else', `x-owner: ada\n${GRANTING}`],
  ])('is the same question with %s', async (_what, text) => {
    expect((await ask(text))?.digest).toBe((await ask(GRANTING))?.digest);
  });

  it.each<readonly [string, string]>([
    ['one more host', GRANTING.replace('a.example,', 'a.example, d.example,')],
    ['another port', GRANTING.replace('a.example,', '"a.example:22",')],
    ['a denial taken away', GRANTING.replace(', deny: [c.example]', '')],
    ['a lower mode', `mode: default\n${GRANTING}`],
    ['another variable set', `env: { LD_PRELOAD: x }\n${GRANTING}`],
    ['a profile', `use: [claude]\n${GRANTING}`],
    ['a default written', GRANTING.replace('{ allow', '{ default_action: deny, allow')],
  ])('is another question with %s', async (_what, text) => {
    expect((await ask(text))?.digest).not.toBe((await ask(GRANTING))?.digest);
  });

  it('covers the content of a profile that did not come with the program', async () => {
    const own = (sha256: string): NamedProfile => ({ name: 'mine', sha256, shipped: false });
    const text = 'use: [./mine.yaml]\n';
    expect((await ask(text, [own('a')]))?.digest).not.toBe((await ask(text, [own('b')]))?.digest);
    expect((await ask(text, [{ ...own('a'), shipped: true }]))?.digest).toBe((await ask(text, [{ ...own('b'), shipped: true }]))?.digest);
  });
});

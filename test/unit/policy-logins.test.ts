import { describe, expect, it } from 'vitest';
import { composeJob, type ComposeInput } from '../../src/policy/compose.ts';
import { compilePreset } from '../../src/policy/presets.ts';
import { HOME, inputOf, WORKSPACE } from './policy-fixture.ts';

interface Standing {
  readonly shipped?: boolean;
  readonly own?: boolean;
}

async function composed(
  profiles: readonly (readonly [name: string, permissions: string, standing: Standing])[],
  use: readonly string[] = [],
): Promise<ReturnType<typeof composeJob>> {
  const input = await inputOf({ request: { mode: 'safe' }, use: [...use] });
  const more: ComposeInput['profiles'][number][] = [];
  for (const [name, permissions, { shipped = false, own = false }] of profiles) {
    const compiled = await compilePreset(`version: 1\nname: ${name}\npermissions:\n  ${permissions}\n`, `${name}.yaml`, 'profile', 'beef');
    more.push({ compiled, shipped, own, chosen: 'use' });
  }
  return composeJob({ ...input, profiles: [...input.profiles, ...more] });
}

const LOGIN = 'credentials: { login: [{ path: .tool/auth.json, write_back: json, values: [token] }] }';

describe('login files of profiles', () => {
  it("of the person's own profile enter; of any other one they are refused, with file and line", async () => {
    expect((await composed([['tool', LOGIN, { own: true }]])).permissions.credentials.logins).toMatchObject([
      { path: `${HOME}/.tool/auth.json`, profile: 'tool', writeBack: true, values: ['token'] },
    ]);
    await expect(composed([['tool', LOGIN, {}]])).rejects.toThrow(/tool\.yaml:4: tool names the login file .*only a shipped profile or one of your own/);
  });

  it('a profile that borrows the name of a shipped one in use gets nothing by it', async () => {
    const login = 'credentials: { login: [{ path: .ssh/id_ed25519 }] }';
    await expect(composed([['claude', login, {}]], ['claude'])).rejects.toThrow(/only a shipped profile or one of your own/);
    await expect(
      composed([
        ['tool', LOGIN, {}],
        ['tool', LOGIN, { own: true }],
      ]),
    ).rejects.toThrow(/only a shipped profile/);
  });

  it("the person's own profile may name an agent's login, and no other sensitive file", async () => {
    const at = (path: string): string => `credentials: { login: [{ path: ${path} }] }`;
    expect((await composed([['mine', at('.codex/auth.json'), { own: true }]])).permissions.credentials.logins).toHaveLength(1);
    await expect(composed([['mine', at('.ssh/id_ed25519'), { own: true }]])).rejects.toThrow(/a sensitive path \(OpenSSH\)/);
    await expect(composed([['codex', 'credentials: { login: [{ path: .claude.json }] }', { shipped: true }]])).rejects.toThrow(
      /a sensitive path \(Claude Code\)/,
    );
  });

  it.each<readonly [string, string, RegExp]>([
    ['a glob', 'credentials: { login: [{ path: ".tool/*" }] }', /expected one file below your home/],
    ['a path outside the home', 'credentials: { login: [{ path: /etc/passwd }] }', /expected one file below your home/],
    ['a way out of the home', 'credentials: { login: [{ path: ../../etc/passwd }] }', /expected one file below your home/],
    ['a file of the workspace', `credentials: { login: [{ path: ${WORKSPACE}/auth.json }] }`, /lies in the workspace/],
    ['written back, without values that may change', 'credentials: { login: [{ path: .tool/a.json, write_back: json }] }', /no values are named/],
    [
      'in a directory that is kept',
      'credentials: { login: [{ path: .tool/a.json }] }\n  file_read: { state: [.tool] }',
      /lies in .*\/\.tool, which .* keeps between runs/,
    ],
    ['state in state', 'file_read: { state: [.tool, .tool/more] }', /lies in .*\.tool, which/],
    ['state in a cache', 'file_read: { state: [.tool/more], cache: [.tool] }', /lies in .*\.tool, which/],
    ['configuration in state', 'file_read: { state: [.tool], config: [.tool/x] }', /lies in .*\.tool, which/],
    ['state that is the home', 'file_read: { state: ["~"] }', /expected a directory below your home/],
    ['state outside the home', 'file_read: { state: [/srv/x] }', /expected a directory below your home/],
  ])('%s is refused', async (_what, permissions, message) => {
    await expect(composed([['tool', permissions, { own: true }]])).rejects.toThrow(message);
  });

  it('state and login need a private home: without one nothing is kept, and a warning says so', async () => {
    const input = await inputOf({ use: ['codex'] });
    const job = composeJob(input);
    expect([job.permissions.credentials.logins, job.permissions.fileRead.states]).toEqual([undefined, undefined]);
    expect(job.warnings.join('\n')).toMatch(/--safe gives it a home of its own/);
  });

  it('the hints of the profiles in use are with the job', async () => {
    expect((await composed([], ['codex'])).hints?.[0]).toMatch(/^codex: Codex builds its own sandbox/);
    expect((await composed([])).hints).toBeUndefined();
  });
});

import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findWorkspace, gitConfigFile } from '../../src/policy/workspace.host.ts';

let top: string;

beforeEach(async () => {
  top = await realpath(await mkdtemp(join(tmpdir(), 'proofrun-workspace-')));
});
afterEach(async () => {
  await rm(top, { recursive: true, force: true });
});

async function repository(path: string): Promise<void> {
  await mkdir(join(path, '.git'), { recursive: true });
  await writeFile(join(path, '.git', 'HEAD'), 'ref: refs/heads/main\n');
}

function git(cwd: string, ...args: readonly string[]): void {
  execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@example.com', ...args], { cwd, stdio: 'pipe' });
}

describe('the workspace', () => {
  it('is the top of the enclosing work tree, and the start stays where it was', async () => {
    await repository(top);
    await mkdir(join(top, 'a', 'b'), { recursive: true });
    expect(findWorkspace({ currentDirectory: join(top, 'a', 'b') })).toEqual({ workspace: top, cwd: join(top, 'a', 'b'), chosen: 'git work tree' });
  });

  it('is the current directory where nothing encloses it', async () => {
    await mkdir(join(top, '.git'));
    await mkdir(join(top, 'a'));
    // A directory named .git without a HEAD is no repository.
    expect(findWorkspace({ currentDirectory: join(top, 'a') })).toEqual({ workspace: join(top, 'a'), cwd: join(top, 'a'), chosen: 'current directory' });
  });

  it('is the innermost work tree', async () => {
    await repository(top);
    await repository(join(top, 'vendor'));
    expect(findWorkspace({ currentDirectory: join(top, 'vendor') }).workspace).toBe(join(top, 'vendor'));
  });

  it('is what the flag names, before the job file; the command starts at its top unless the person stands inside', async () => {
    await mkdir(join(top, 'a', 'b'), { recursive: true });
    await mkdir(join(top, 'c'));
    expect(findWorkspace({ currentDirectory: top, workspace: 'a', jobWorkspace: join(top, 'c') })).toEqual({
      workspace: join(top, 'a'),
      cwd: join(top, 'a'),
      chosen: 'flag',
    });
    expect(findWorkspace({ currentDirectory: join(top, 'a', 'b'), workspace: '..' })).toMatchObject({
      workspace: join(top, 'a'),
      cwd: join(top, 'a', 'b'),
    });
    expect(findWorkspace({ currentDirectory: top, jobWorkspace: join(top, 'c') })).toMatchObject({ workspace: join(top, 'c'), chosen: 'job file' });
    expect(findWorkspace({ currentDirectory: top, workspace: 'a', cwd: 'a/b' })).toMatchObject({ workspace: join(top, 'a'), cwd: join(top, 'a', 'b') });
  });

  it('has no link in its path', async () => {
    await mkdir(join(top, 'real'));
    await symlink('real', join(top, 'link'));
    expect(findWorkspace({ currentDirectory: top, workspace: 'link' }).workspace).toBe(join(top, 'real'));
  });

  it('that is missing, or a file, is an error with the next step', async () => {
    await writeFile(join(top, 'file'), '');
    expect(() => findWorkspace({ currentDirectory: top, workspace: 'none' })).toThrow(
      expect.objectContaining({
        code: 'ERR_WORKSPACE',
        message: `the workspace ${join(top, 'none')} does not exist`,
      }),
    );
    expect(() => findWorkspace({ currentDirectory: top, workspace: 'file' })).toThrow(
      expect.objectContaining({
        code: 'ERR_WORKSPACE',
        message: `the workspace ${join(top, 'file')} is not a directory`,
      }),
    );
    expect(() => findWorkspace({ currentDirectory: top, cwd: 'none' })).toThrow(expect.objectContaining({ code: 'ERR_WORKSPACE' }));
  });
});

describe('a linked worktree', () => {
  it('brings the common directory of its repository', async () => {
    const main = join(top, 'main');
    await mkdir(main);
    git(main, 'init', '-q', '-b', 'main');
    git(main, 'commit', '-q', '--allow-empty', '-m', 'x');
    git(main, 'worktree', 'add', '-q', '../linked');
    const facts = findWorkspace({ currentDirectory: join(top, 'linked') });
    expect(facts).toEqual({ workspace: join(top, 'linked'), cwd: join(top, 'linked'), chosen: 'git work tree', commonDirectory: join(main, '.git') });
    expect(gitConfigFile(join(top, 'linked'))).toBe(join(main, '.git', 'config'));
    expect(findWorkspace({ currentDirectory: main })).not.toHaveProperty('commonDirectory');
    expect(gitConfigFile(main)).toBe(join(main, '.git', 'config'));
  });

  it('that its repository does not know brings nothing: a planted pointer opens no directory', async () => {
    const victim = join(top, 'victim');
    await repository(victim);
    await mkdir(join(victim, '.git', 'worktrees', 'w'), { recursive: true });
    await writeFile(join(victim, '.git', 'worktrees', 'w', 'HEAD'), 'ref: refs/heads/main\n');
    await writeFile(join(victim, '.git', 'worktrees', 'w', 'commondir'), '../..\n');
    await writeFile(join(victim, '.git', 'worktrees', 'w', 'gitdir'), `${join(top, 'elsewhere', '.git')}\n`);
    await mkdir(join(top, 'evil'));
    await writeFile(join(top, 'evil', '.git'), `gitdir: ${join(victim, '.git', 'worktrees', 'w')}\n`);
    const strange = join(victim, '.git', 'worktrees', 'w');
    expect(findWorkspace({ currentDirectory: join(top, 'evil') })).toEqual({
      workspace: join(top, 'evil'),
      cwd: join(top, 'evil'),
      chosen: 'git work tree',
      strangeGitDirectory: strange,
    });
    await writeFile(join(top, 'evil', '.git'), `gitdir: ${join(victim, '.git')}\n`);
    expect(findWorkspace({ currentDirectory: join(top, 'evil') })).toMatchObject({ strangeGitDirectory: join(victim, '.git') });
    expect(gitConfigFile(join(top, 'evil'))).toBeUndefined();
  });

  it('of a submodule brings its own git directory', async () => {
    const inner = join(top, 'inner');
    const outer = join(top, 'outer');
    await mkdir(inner);
    await mkdir(outer);
    git(inner, 'init', '-q', '-b', 'main');
    git(inner, 'commit', '-q', '--allow-empty', '-m', 'x');
    git(outer, 'init', '-q', '-b', 'main');
    git(outer, '-c', 'protocol.file.allow=always', 'submodule', 'add', '-q', '../inner', 'sub');
    expect(findWorkspace({ currentDirectory: join(outer, 'sub') })).toMatchObject({
      workspace: join(outer, 'sub'),
      commonDirectory: join(outer, '.git', 'modules', 'sub'),
    });
  });

  it.each([
    ['points nowhere', 'gitdir: /does/not/exist\n'],
    ['says something else', 'hello\n'],
    ['is too large', `gitdir: ${'x'.repeat(9000)}\n`],
  ])('whose .git file %s is an ordinary directory', async (_what, text) => {
    await writeFile(join(top, '.git'), text);
    expect(findWorkspace({ currentDirectory: top }).chosen).toBe('current directory');
  });
});

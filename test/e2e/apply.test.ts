import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { jobLab, runsOf, type JobLab } from '../support/job-lab.host.ts';
import { asUser, describeUsers } from '../support/users.host.ts';

const sh = (lab: JobLab, script: string) => lab.job(['run', '-q', '--', 'sh', '-ec', script]);
const read = (lab: JobLab, path: string) => readFileSync(join(lab.workspace, path), 'utf8');

describeUsers('job apply and undo', (user) => {
  test('--dry-run says what would happen and touches nothing', async () => {
    const lab = jobLab(user);
    lab.write('f', 'old\n');
    await sh(lab, 'echo new > f; echo n > n');
    const dry = await lab.job(['apply', 'last', '--all', '--dry-run']);
    expect(dry).toMatchObject({ code: 0, stderr: '' });
    expect(dry.stdout).toContain('would apply 2 changes; nothing was touched');
    expect(lab.tree()).toEqual(['f']);
    expect(read(lab, 'f')).toBe('old\n');
  });

  test('an undo gives the tree before, once; the changes are staged again and can be applied again', async () => {
    const lab = jobLab(user);
    lab.write('f', 'old\n');
    lab.write('d/gone', 'gone\n');
    await sh(lab, 'echo new > f; rm -r d; mkdir e; echo n > e/n');
    expect((await lab.job(['apply', 'last', '--all'])).stdout).toContain('nothing is left in the stage');
    expect(lab.tree()).toEqual(['e/', 'e/n', 'f']);
    const undone = await lab.job(['undo', 'last']);
    expect(undone).toMatchObject({ code: 0, stderr: '' });
    expect(undone.stdout).toContain('the changes are staged again');
    expect(lab.tree()).toEqual(['d/', 'd/gone', 'f']);
    expect(read(lab, 'f')).toBe('old\n');
    expect((await lab.job(['undo', 'last'])).stdout).toContain('was taken back already; nothing to do');
    expect((await runsOf(lab))[0]?.stage_state).toBe('staged');
    expect((await lab.job(['apply', 'last', '--all'])).code).toBe(0);
    expect(lab.tree()).toEqual(['e/', 'e/n', 'f']);
  });

  test('an undo of one of two applies leaves the other', async () => {
    const lab = jobLab(user);
    await sh(lab, 'echo a > a; echo b > b');
    await lab.job(['apply', 'last', '--path', 'a']);
    await lab.job(['apply', 'last', '--path', 'b']);
    const first = await lab.job(['undo', 'last', '--json']);
    const { batch, still_applied } = JSON.parse(first.stdout) as { batch: string; still_applied: string[] };
    expect(lab.tree()).toEqual(['a']);
    expect((await runsOf(lab))[0]?.stage_state).toBe('partly_applied');
    expect((await lab.job(['undo', 'last', '--batch', batch])).stdout).toContain('already');
    expect((await lab.job(['undo', 'last', '--batch', still_applied[0] ?? ''])).code).toBe(0);
    expect(lab.tree()).toEqual([]);
    expect((await runsOf(lab))[0]?.stage_state).toBe('staged');
  });

  test('an undo is refused as a whole when a file is no longer as it was applied', async () => {
    const lab = jobLab(user);
    lab.write('f', 'old\n');
    await sh(lab, 'echo new > f; mkdir d; echo n > d/n');
    await lab.job(['apply', 'last', '--all']);
    lab.write('d/mine', 'mine\n');
    const refused = await lab.job(['undo', 'last']);
    expect(refused.code).toBe(205);
    expect(refused.stderr).toContain('conflict: d');
    expect(lab.tree()).toEqual(['d/', 'd/mine', 'd/n', 'f']);
    expect(read(lab, 'f')).toBe('new\n');
  });

  test('--target applies to a copy, and refuses one that is something else', async () => {
    const lab = jobLab(user);
    lab.write('src/f', 'old\n');
    await sh(lab, 'echo new > src/f; echo n > n');
    await asUser(user, ['cp', '-a', lab.workspace, join(lab.base, 'copy')]);
    const applied = await lab.job(['apply', 'last', '--path', 'src', '--target', '../copy']);
    expect(applied).toMatchObject({ code: 0, stderr: '' });
    expect(applied.stdout).toContain('all of it stays staged');
    expect(lab.tree(join(lab.base, 'copy'))).toEqual(['src/', 'src/f']);
    expect(readFileSync(join(lab.base, 'copy/src/f'), 'utf8')).toBe('new\n');
    expect(read(lab, 'src/f')).toBe('old\n');
    expect((await lab.job(['undo', 'last'])).code).toBe(0);
    expect(readFileSync(join(lab.base, 'copy/src/f'), 'utf8')).toBe('old\n');
    await asUser(user, ['sh', '-c', 'echo other > "$1/copy/src/f"', 'sh', lab.base]);
    const refused = await lab.job(['apply', 'last', '--all', '--target', '../copy']);
    expect(refused.code).toBe(205);
    expect(refused.stderr.replace(/\s+/g, ' ')).toContain('it is not what the workspace has here');
    expect((await lab.job(['apply', 'last', '--all', '--target', '.'])).code).toBe(2);
  });

  test('--merge joins two runs that began alike, marks what both changed, and says what it can not merge', async () => {
    const lab = jobLab(user);
    lab.write('f', 'one\ntwo\nthree\nfour\nfive\n');
    await sh(lab, "sed -i 's/one/ONE/' f");
    await sh(lab, "sed -i 's/five/FIVE/' f");
    await sh(lab, "sed -i 's/one/Uno/' f");
    const [third, second, first] = (await runsOf(lab)).map(({ id }) => id);
    await lab.job(['apply', first ?? '', '--all']);
    expect((await lab.job(['apply', second ?? '', '--all'])).code).toBe(205);
    const merged = await lab.job(['apply', second ?? '', '--all', '--merge']);
    expect(merged).toMatchObject({ code: 0, stderr: '' });
    expect(merged.stdout).toContain('merged: f: no line was changed on both sides');
    expect(read(lab, 'f')).toBe('ONE\ntwo\nthree\nfour\nFIVE\n');
    const marked = await lab.job(['apply', third ?? '', '--all', '--merge']);
    expect(marked.stdout).toContain('1 place with markers to settle');
    expect(read(lab, 'f')).toBe('<<<<<<< here\nONE\n=======\nUno\n>>>>>>> staged\ntwo\nthree\nfour\nFIVE\n');
    expect((await lab.job(['undo', third ?? ''])).code).toBe(0);
    expect(read(lab, 'f')).toBe('ONE\ntwo\nthree\nfour\nFIVE\n');

    await sh(lab, 'echo staged >> f');
    await asUser(user, ['sh', '-c', 'echo mine >> "$1/f"', 'sh', lab.workspace]);
    const refused = await lab.job(['apply', 'last', '--all', '--merge']);
    expect(refused.code).toBe(205);
    expect(refused.stderr.replace(/\s+/g, ' ')).toContain("what the run saw of it isn't kept, so it can't be merged");
  });

  test('prune gives up what was kept for an undo', async () => {
    const lab = jobLab(user);
    lab.write('f', 'old\n');
    await sh(lab, 'echo new > f');
    await lab.job(['apply', 'last', '--all']);
    expect(readdirSync(join(lab.state, 'undo')).length).toBeGreaterThan(0);
    expect((await lab.job(['prune'])).code).toBe(0);
    expect(readdirSync(join(lab.state, 'undo'))).toEqual([]);
    expect(existsSync(join(lab.workspace, 'f'))).toBe(true);
  });

  test('--interactive needs a terminal', async () => {
    const lab = jobLab(user);
    await sh(lab, 'echo n > n');
    expect(await lab.job(['apply', 'last', '--interactive'])).toMatchObject({ code: 2 });
  });
});

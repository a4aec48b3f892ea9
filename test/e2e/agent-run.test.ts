import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { jobLab, type JobLab } from '../support/job-lab.host.ts';
import { hasScript, openScreen, shellLine } from '../support/screen.host.ts';
import { describeUsers } from '../support/users.host.ts';

const READ = { tool: 'read_file', arguments: { path: 'a.txt' } };
const WRITE = { tool: 'write_file', arguments: { path: 'b.txt', text: 'bye' } };
const REPLIES = [{ text: 'I look.', calls: [READ] }, { text: 'I write.', calls: [WRITE] }, { text: 'Done.' }];
const RULES = `
    - { tool: read_file, when: [{ at: /path, within: . }], action: allow }
    - { tool: write_file, action: ask, reason: It writes }`;

/** A workspace with an agent whose replies are in a file, and two tools: one that reads, and one that is asked about. */
function agentLab(user: Parameters<typeof jobLab>[0], replies: readonly unknown[] = REPLIES): JobLab {
  const lab = jobLab(user);
  lab.write('a.txt', 'hello\n');
  lab.write('replies.json', JSON.stringify(replies));
  lab.write(
    'rules.yaml',
    `version: 1\nname: stricter\nrules:\n    - { tool: read_file, action: deny, reason: not here }\n    - { tool: write_file, action: ask }\n`,
  );
  lab.write(
    'agent.yaml',
    `version: 1
name: reader
task: Read a.txt, then write b.txt.
model: { provider: script, name: scripted, replies: replies.json, max_output_tokens: 500 }
limits: { steps: 10, failures: 3, loops: 3, elapsed_time: 1h, approval_time: 30m }
tools:
  read_file:
    effect: read-only
    command: [cat, --, "{path}"]
    input_schema: { type: object, properties: { path: { type: string } }, required: [path] }
  write_file:
    command: [sh, -c, 'printf %s "$2" > "$1"', sh, "{path}", "{text}"]
    input_schema: { type: object, properties: { path: { type: string }, text: { type: string } }, required: [path, text] }
policy:
  rules:${RULES}
`,
  );
  return lab;
}

interface Asked {
  readonly id: string;
  readonly run: string;
  readonly shown_sha256: string;
}

async function asked(lab: JobLab): Promise<Asked> {
  const listed = await lab.job(['approvals', '--json']);
  const found = (JSON.parse(listed.stdout) as readonly Asked[])[0];
  if (found === undefined) throw new Error(`nothing waits: ${listed.stdout}${listed.stderr}`);
  return found;
}

async function waiting(lab: JobLab): Promise<Asked> {
  const first = await lab.job(['run', '--agent', 'agent.yaml']);
  expect([first.code, first.stdout]).toEqual([208, expect.stringContaining('waiting') as string]);
  return asked(lab);
}

interface Shown {
  readonly state: string;
  readonly reason: string | null;
  readonly steps: readonly { readonly state: string; readonly tool: string; readonly arguments: unknown; readonly observation: unknown }[];
}
const shown = async (lab: JobLab): Promise<Shown> => JSON.parse((await lab.job(['show', 'last', '--json'])).stdout) as Shown;

describeUsers('job run --agent', (user) => {
  test('asks, is approved as shown, goes on, and each call was a run of its own in a sandbox', async () => {
    const lab = agentLab(user);
    const { id, shown_sha256: hash } = await waiting(lab);
    const wrong = await lab.job(['approve', id, '0'.repeat(12)]);
    expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining('hash of what was shown') as string]);
    const short = await lab.job(['approve', id, hash.slice(0, 11)]);
    expect(short.code).toBe(2);
    expect((await lab.job(['approve', id, hash.slice(0, 12)])).code).toBe(0);
    const end = await lab.job(['resume', 'last']);
    expect([end.code, end.stdout]).toEqual([0, expect.stringContaining('completed') as string]);
    const runs = JSON.parse((await lab.job(['ls', '--json'])).stdout) as readonly { argv: readonly string[]; mode: string; state: string }[];
    expect(runs.map(({ argv, mode, state }) => [argv[0], mode, state]).sort()).toEqual([
      ['cat', 'safe', 'finished'],
      ['sh', 'safe', 'finished'],
    ]);
    expect(existsSync(join(lab.workspace, 'b.txt'))).toBe(false);
    expect((await lab.job(['diff', 'last'])).stdout).toContain('+bye');
    expect((await lab.job(['resume', 'last'])).code).toBe(207);
  });

  test('other arguments than those that were asked for are run, and recorded beside them', async () => {
    const lab = agentLab(user);
    const { id, shown_sha256: hash } = await waiting(lab);
    expect((await lab.job(['approve', id, hash, '--arguments', '{"path":"c.txt","text":"other"}'])).code).toBe(0);
    expect((await lab.job(['resume', 'last'])).code).toBe(0);
    expect((await lab.job(['diff', 'last'])).stdout).toContain('c.txt');
    expect((await lab.job(['show', 'last'])).stdout).toContain('b.txt');
  });

  test('other arguments that do not fit are not executed', async () => {
    const lab = agentLab(user);
    const { id, shown_sha256: hash } = await waiting(lab);
    expect((await lab.job(['approve', id, hash, '--arguments', '{"path":1}'])).code).toBe(0);
    await lab.job(['resume', 'last']);
    expect((await shown(lab)).steps.at(-1)?.state).not.toBe('done');
    expect(JSON.parse((await lab.job(['ls', '--json'])).stdout)).toMatchObject([{ argv: ['cat', '--', 'a.txt'] }]);
  });

  test('a rejection is told to the agent, and the run goes on to its end', async () => {
    const lab = agentLab(user);
    const { id, shown_sha256: hash } = await waiting(lab);
    expect((await lab.job(['reject', id, hash, '--note', 'not that file'])).code).toBe(0);
    expect((await lab.job(['resume', 'last'])).code).toBe(0);
    expect((await shown(lab)).steps.map(({ tool, state }) => [tool, state])).toEqual([
      ['read_file', 'done'],
      ['write_file', 'denied'],
    ]);
  });

  test('no answer decides nothing; a cancelled run stays cancelled', async () => {
    const lab = agentLab(user);
    const { id, run, shown_sha256: hash } = await waiting(lab);
    const unanswered = await lab.job(['approve', id]);
    expect(unanswered.code).toBe(2);
    expect((await asked(lab)).id).toBe(id);
    expect((await lab.job(['cancel', run, '--note', 'enough'])).code).toBe(0);
    expect((await lab.job(['approve', id, hash])).code).not.toBe(0);
    expect((await lab.job(['resume', run])).code).toBe(207);
    expect((await shown(lab)).state).toBe('cancelled');
  });

  test('the chain is checked against a head that was noted, and another policy is asked about the record', async () => {
    const lab = agentLab(user);
    const { run } = await waiting(lab);
    const whole = await lab.job(['verify', '--chain', run]);
    expect(whole.code).toBe(0);
    const head = /head ([0-9]+:[0-9a-f]{64})/.exec(whole.stdout)?.[1] ?? '';
    await lab.job(['cancel', run]);
    expect((await lab.job(['verify', '--chain', run, '--head', head])).code).toBe(0);
    const other = head.replace(/.$/, (digit) => (digit === '0' ? '1' : '0'));
    expect((await lab.job(['verify', '--chain', run, '--head', other])).code).not.toBe(0);
    const again = await lab.job(['recheck', run, '--rules', 'rules.yaml']);
    expect([again.code, again.stdout]).toEqual([205, expect.stringContaining('not here') as string]);
  });

  test('a reply that asks for a tool that is not there, or with arguments that do not fit, runs nothing', async () => {
    const lab = agentLab(user, [
      { text: 'x', calls: [{ tool: 'delete_all', arguments: {} }] },
      { text: 'y', calls: [{ tool: 'read_file', arguments: { path: 7 } }] },
      { text: 'Done.' },
    ]);
    const end = await lab.job(['run', '--agent', 'agent.yaml']);
    expect(end.code).toBe(0);
    expect((await shown(lab)).steps.map(({ state }) => state)).toEqual(['invalid', 'invalid']);
    expect(JSON.parse((await lab.job(['ls', '--json'])).stdout)).toEqual([]);
  });

  test.skipIf(!hasScript)('on a terminal the question is shown and answered with a y; anything else decides nothing', async () => {
    const lab = agentLab(user);
    const { id } = await waiting(lab);
    const no = openScreen(lab, shellLine(lab, ['approve', id]));
    await no.shows('Approving runs exactly these arguments once');
    no.type('n\r');
    expect(await no.ended).not.toBe(0);
    expect((await asked(lab)).id).toBe(id);
    const yes = openScreen(lab, shellLine(lab, ['approve', id]));
    await yes.shows('Approving runs exactly these arguments once');
    yes.type('y\r');
    expect(await yes.ended).toBe(0);
    expect((await lab.job(['resume', 'last'])).code).toBe(0);
  });
});

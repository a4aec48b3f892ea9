import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { jobLab, processesWith, runsOf } from '../support/job-lab.host.ts';
import { hasScript, openScreen, shellLine } from '../support/screen.host.ts';
import { describeUsers } from '../support/users.host.ts';

const onTerminal = hasScript ? test : test.skip;

describeUsers('job run on a terminal (script(1) makes it)', (user) => {
  onTerminal('the command has a terminal of its own on all three streams, of the same size', async () => {
    const lab = jobLab(user);
    const screen = openScreen(
      lab,
      `stty rows 33 cols 101; ${shellLine(lab, ['run', '--safe', '--', 'sh', '-c', 'test -t 0 && test -t 1 && test -t 2 && echo all three; tty; stty size; ls /dev/pts'])}`,
    );
    await screen.shows('all three');
    await screen.shows(/\/dev\/pts\/0\r\n/);
    await screen.shows('33 101');
    await screen.shows('exited 0');
    expect(await screen.ended).toBe(0);
    // What a terminal showed is not kept, and nobody claims that there was none.
    const review = await lab.job(['status', '--review', '--json']);
    expect((JSON.parse(review.stdout) as { bundle: { outputs: unknown[] } }).bundle.outputs).toEqual([]);
  });

  onTerminal('Ctrl-C and Ctrl-\\ are keys of the job, and the command line lives on', async () => {
    const lab = jobLab(user);
    const screen = openScreen(
      lab,
      shellLine(lab, [
        'run',
        '--safe',
        '--',
        'sh',
        '-c',
        'trap "echo got INT" INT; trap "echo got QUIT; exit 5" QUIT; echo ready; while :; do sleep 0.02; done',
      ]),
    );
    await screen.shows('ready');
    screen.type('\x03');
    await screen.shows('got INT');
    screen.type('\x1c');
    await screen.shows('got QUIT');
    await screen.shows('exited 5');
    expect(await screen.ended).toBe(5);
    expect(await runsOf(lab)).toMatchObject([{ state: 'finished', exit_code: 5 }]);
  });

  onTerminal("what is typed arrives, with the echo of the job's terminal", async () => {
    const lab = jobLab(user);
    const screen = openScreen(lab, shellLine(lab, ['run', '--safe', '--', 'sh', '-c', 'echo ask; read line; echo "answer: $line"']));
    await screen.shows('ask');
    screen.type('forty-two\r');
    await screen.shows('answer: forty-two');
    expect(await screen.ended).toBe(0);
  });

  onTerminal('the terminal is as it was afterwards, also after a kill', async () => {
    const lab = jobLab(user);
    const inside = ['run', '--safe', '-q', '--', 'sh', '-c', 'stty -echo raw; kill -9 $$'];
    const screen = openScreen(
      lab,
      `before=$(stty -g); ${shellLine(lab, inside)}; echo "code $?"; after=$(stty -g); test "$before" = "$after" && echo same settings`,
    );
    await screen.shows('code 137');
    await screen.shows('same settings');
    expect(await screen.ended).toBe(0);
  });

  onTerminal('SIGTERM reaches the command, and ends it when it does not go', async () => {
    const lab = jobLab(user);
    const marker = `65.${process.pid}${user.kind}`;
    const screen = openScreen(
      lab,
      shellLine(lab, ['run', '--safe', '--name', 'screen', '--', 'sh', '-c', `trap "exit 6" TERM; echo ready; : ${marker}; while :; do sleep 0.02; done`]),
    );
    await screen.shows('ready');
    const status = JSON.parse((await lab.job(['status', 'screen', '--json'])).stdout) as { owner: { pid: number } };
    process.kill(status.owner.pid, 'SIGTERM');
    await screen.shows('exited 6');
    expect(await screen.ended).toBe(6);
    expect(processesWith(marker)).toEqual([]);
  });

  // A shell that starts programs may be between vfork and exec when the key comes, and then can't stop: this one only reads.
  onTerminal('Ctrl-Z stops the job with the command line, and fg goes on', async () => {
    const lab = jobLab(user);
    const screen = openScreen(lab, 'bash --norc --noprofile -i');
    await screen.shows(/[$#] /);
    // Empty quotes tell what is printed from the echo of what was typed.
    screen.type(`PS1='pro''mpt> '\r`);
    await screen.shows('prompt> ');
    screen.type(`${shellLine(lab, ['run', '--safe', '--', 'sh', '-c', 'echo rea""dy; read x; echo went on: $x'])}\r`);
    await screen.shows('ready');
    screen.type('\x1a');
    await screen.shows('Stopped');
    screen.type('fg\r');
    await screen.shows('job.js');
    screen.type('again\r');
    await screen.shows('went on: again');
    await screen.shows('exited 0');
    screen.type('exit\r');
    expect(await screen.ended).toBe(0);
  });

  onTerminal('-T gives pipes on a terminal', async () => {
    const lab = jobLab(user);
    const screen = openScreen(lab, shellLine(lab, ['run', '-T', '--safe', '--', 'sh', '-c', 'test -t 1 || echo a pipe']));
    await screen.shows('a pipe');
    expect(await screen.ended).toBe(0);
    expect((await lab.job(['logs'])).stdout).toBe('a pipe\n');
  });

  onTerminal('apply --interactive takes files and hunks, and the rest stays staged', async () => {
    const lab = jobLab(user);
    const lines = Array.from({ length: 30 }, (_, index) => `line ${index}`);
    lab.write('f', `${lines.join('\n')}\n`);
    await lab.job(['run', '-q', '--', 'sh', '-ec', "sed -i 's/line 2$/first/; s/line 27/second/' f; echo a > a; echo b > b"]);
    const screen = openScreen(lab, shellLine(lab, ['apply', 'last', '--interactive']));
    await screen.shows('1/3  added a');
    screen.type('y\r');
    await screen.shows('2/3  added b');
    screen.type('?\r');
    await screen.shows('n leave it');
    await screen.shows('2/3  added b');
    screen.type('n\r');
    await screen.shows('3/3  modified f');
    screen.type('h\r');
    await screen.shows('hunk 1/2');
    screen.type('n\r');
    await screen.shows('hunk 2/2');
    screen.type('y\r');
    await screen.shows('the rest stays staged');
    expect(await screen.ended).toBe(0);
    expect(lab.tree()).toEqual(['a', 'f']);
    const now = lines.map((line) => (line === 'line 27' ? 'second' : line));
    expect(readFileSync(join(lab.workspace, 'f'), 'utf8')).toBe(`${now.join('\n')}\n`);
    // What was left is no conflict, and an undo takes the part back.
    expect((await lab.job(['apply', 'last', '--path', 'f'])).code).toBe(0);
    expect(readFileSync(join(lab.workspace, 'f'), 'utf8')).toContain('line 1\nfirst\n');
    expect((await lab.job(['apply', 'last', '--all'])).stdout).toContain('nothing is left in the stage');
    expect(lab.tree()).toEqual(['a', 'b', 'f']);
  });
});

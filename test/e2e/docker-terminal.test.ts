import { spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { beforeAll, describe, expect, test } from 'vitest';
import { engineClient, engineEnvironment, ensureImage, remoteEnvironment } from '../support/docker-lab.host.ts';
import { jobLab, type JobLab } from '../support/job-lab.host.ts';
import { hasScript, openScreen, shellLine } from '../support/screen.host.ts';
import { describeUsers, type TestUser } from '../support/users.host.ts';

const environment = engineEnvironment();
const remote = remoteEnvironment();
const places = [
  ['a local engine', typeof environment === 'string' ? {} : { ...environment }],
  ["over TLS, through the container's own input and output", typeof remote === 'string' ? {} : { ...remote }],
] as const;

describe.skipIf(typeof environment === 'string').each(places)('streams of a container: %s', (_, engine) => {
  beforeAll(async () => ensureImage(engineClient()));
  const labOf = (user: TestUser): JobLab => {
    const lab = jobLab(user);
    return { ...lab, env: { ...lab.env, ...engine } };
  };
  const run = ['run', '--safe', '--executor', 'docker'];

  describeUsers('job run --executor docker', (user) => {
    test.skipIf(!hasScript)('a terminal of its own, of the same size, that follows when the size changes', async () => {
      const lab = labOf(user);
      const script =
        'test -t 0 && test -t 1 && test -t 2 && echo all three; stty size; trap "stty size; exit 4" WINCH; echo waiting; while :; do sleep 0.02; done';
      const screen = openScreen(lab, `stty rows 33 cols 101; echo "on $(tty) here"; ${shellLine(lab, [...run, '--', 'sh', '-c', script])}`);
      const outer = /on (\/dev\/pts\/\d+) here/.exec(await screen.shows(/on \/dev\/pts\/\d+ here/))?.[1] ?? '';
      await screen.shows('all three');
      await screen.shows('33 101');
      await screen.shows('waiting');
      expect(spawnSync('stty', ['-F', outer, 'rows', '41', 'cols', '91']).status).toBe(0);
      await screen.shows('41 91');
      expect(await screen.ended).toBe(4);
    });

    test.skipIf(!hasScript)('keys reach the command, and the terminal is as it was afterwards', async () => {
      const lab = labOf(user);
      const script = 'trap "echo got INT" INT; echo ready; read line; echo "answer: $line"; echo again; read line; stty -echo raw; kill -9 $$';
      const screen = openScreen(
        lab,
        `before=$(stty -g); ${shellLine(lab, [...run, '--', 'bash', '-c', script])}; echo "code $?"; test "$before" = "$(stty -g)" && echo same settings`,
      );
      await screen.shows('ready');
      screen.type('\x03');
      await screen.shows('got INT');
      screen.type('forty-two\r');
      await screen.shows('answer: forty-two');
      await screen.shows('again');
      screen.type('\r');
      await screen.shows('code 137');
      await screen.shows('same settings');
      expect(await screen.ended).toBe(0);
    });

    test('what comes on standard input arrives byte for byte, and its end is an end', async () => {
      const lab = labOf(user);
      const bytes = randomBytes(3 << 20);
      const child = lab.spawn([...run, '-q', '--', 'sha256sum'], { env: engine, stdio: ['pipe', 'pipe', 'pipe'] });
      let said = '';
      let complained = '';
      child.stdout?.on('data', (part: Buffer) => (said += part.toString()));
      child.stderr?.on('data', (part: Buffer) => (complained += part.toString()));
      child.stdin?.end(bytes);
      const code = await new Promise((resolve) => child.once('close', resolve));
      expect([complained, code, said]).toEqual(['', 0, `${createHash('sha256').update(bytes).digest('hex')}  -\n`]);
    });
  });
});

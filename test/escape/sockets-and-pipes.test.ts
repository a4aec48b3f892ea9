import { spawnSync } from 'node:child_process';
import { chmodSync, chownSync, closeSync, constants, openSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { AttackLab, outcomes } from '../support/native-attack.host.ts';
import { describeUsers } from '../support/users.host.ts';

describeUsers('sockets and named pipes of the host', (user) => {
  const lab = new AttackLab(user);
  const runLike = lab.directory(join(lab.base, 'run'));
  const shared = lab.directory(join(lab.workspace, 'shared'));
  const places = { workspace: join(lab.workspace, 's'), home: join(lab.home, 's'), run: join(runLike, 's'), shared: join(shared, 's') };
  const abstract = `@proofrun-escape-${user.kind}-${process.pid}`;
  const pipes = Object.fromEntries(Object.entries(places).map(([name, path]) => [name, `${path}.fifo`]));
  const readers: number[] = [];
  let listener: Awaited<ReturnType<AttackLab['victim']>> | undefined;
  beforeAll(async () => {
    listener = await lab.victim([...Object.values(places), abstract]);
    for (const path of Object.values(places)) chmodSync(path, 0o777);
    for (const path of Object.values(pipes)) {
      spawnSync('mkfifo', [path]);
      chmodSync(path, 0o666);
      chownSync(path, user.uid, user.gid);
      readers.push(openSync(path, constants.O_RDWR | constants.O_NONBLOCK));
    }
  });
  afterAll(async () => {
    listener?.end();
    for (const fd of readers) closeSync(fd);
    await lab.dispose();
  });

  type Options = Parameters<AttackLab['inside']>[1];
  const meet = async (options: Options): Promise<Readonly<Record<string, string>>> => {
    const met = outcomes((await lab.inside(['connect', ...Object.values(places), abstract], options)).stdout);
    const fifos = outcomes((await lab.inside(['fifo', ...Object.values(pipes)], options)).stdout);
    return Object.fromEntries([
      ...Object.entries(places).map(([name, path]) => [name, met[`connect ${path}`] ?? '']),
      ['abstract', met[`connect ${abstract}`] ?? ''],
      ...Object.entries(pipes).map(([name, path]) => [`${name} pipe`, fifos[`fifo ${path}`] ?? '']),
    ]) as Readonly<Record<string, string>>;
  };

  test('do not answer through the stage, the private home and what is shown read-only', async () => {
    expect(await meet({ allowRead: [runLike] })).toEqual({
      workspace: 'ECONNREFUSED',
      home: 'ENOENT',
      run: 'ECONNREFUSED',
      shared: 'ECONNREFUSED',
      abstract: 'ECONNREFUSED',
      'workspace pipe': 'ENXIO',
      'home pipe': 'ENOENT',
      'run pipe': 'ENXIO',
      'shared pipe': 'ENXIO',
    });
  });

  test('do not answer in default mode, with the real home', async () => {
    expect(await meet({ mode: 'default', root: 'host' })).toMatchObject({
      workspace: 'ECONNREFUSED',
      home: 'ECONNREFUSED',
      abstract: 'ECONNREFUSED',
      'workspace pipe': 'ENXIO',
      'home pipe': 'ENXIO',
    });
  });

  test('control arm: without a sandbox they all answer', async () => {
    const met = outcomes(await lab.outside(['connect', ...Object.values(places), abstract]));
    expect(Object.values(met)).toEqual(Object.values(met).map(() => 'ok'));
    const fifos = outcomes(await lab.outside(['fifo', ...Object.values(pipes)]));
    expect(Object.values(fifos)).toEqual(Object.values(fifos).map(() => 'ok'));
  });

  test('control arm: through binds they answer', async () => {
    expect(await meet({ mode: 'default', allowRead: [runLike], alterations: ['the host is shown by read-only binds'] })).toMatchObject({
      run: 'ok',
      'run pipe': 'ok',
      workspace: 'ECONNREFUSED',
    });
    expect(await meet({ mode: 'default', alterations: ['staged_workspace: the workspace is bound as it is'] })).toMatchObject({
      workspace: 'ok',
      'workspace pipe': 'ok',
    });
    expect(await meet({ mode: 'default', alterations: ['network_namespace: no network namespace is made'] })).toMatchObject({ abstract: 'ok' });
  });

  test('limit: a direct share is the host itself, and its sockets and pipes answer', async () => {
    expect(await meet({ direct: [shared] })).toMatchObject({ shared: 'ok', 'shared pipe': 'ok', workspace: 'ECONNREFUSED', 'workspace pipe': 'ENXIO' });
  });

  test("limit: a public network shares the host's abstract sockets", async () => {
    expect(await meet({ mode: 'default', network: 'public' })).toMatchObject({ abstract: 'ok', workspace: 'ECONNREFUSED' });
  });
});

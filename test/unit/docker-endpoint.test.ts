import { describe, expect, it } from 'vitest';
import { chooseEndpoint, contextDirectory, formatEndpoint, parseHost, type DockerFiles } from '../../executors/docker/endpoint.ts';
import { compareVersions, explainFailure, negotiate, NEWEST_API } from '../../executors/docker/obstacle.ts';

const NONE: DockerFiles = { config: undefined, meta: () => undefined, home: '/home/ann' };

describe('which engine', () => {
  it.each([
    ['unix:///run/user/1000/docker.sock', { kind: 'unix', path: '/run/user/1000/docker.sock' }],
    ['tcp://build.example:2375', { kind: 'tcp', host: 'build.example', port: 2375, tls: undefined }],
    ['tcp://[::1]:4243', { kind: 'tcp', host: '::1', port: 4243, tls: undefined }],
    ['tcp://build.example', { kind: 'tcp', host: 'build.example', port: 2375, tls: undefined }],
    ['ssh://ann@build.example:2222', { kind: 'ssh', destination: 'ann@build.example', port: 2222 }],
    ['ssh://build.example', { kind: 'ssh', destination: 'build.example', port: undefined }],
  ])('%s', (text, endpoint) => {
    expect(parseHost(text, 'DOCKER_HOST', undefined)).toEqual(endpoint);
  });

  it.each([
    ['unix://relative.sock', /names no absolute socket/],
    ['npipe:////./pipe/docker_engine', /is no address of an engine/],
    ['build.example:2375', /is no address of an engine/],
    ['ssh://-oProxyCommand=touch%20x/', /no address of an engine|names no host/],
    ['ssh://-l@build.example', /names no host/],
    ['ssh://ann:secret@build.example', /holds a password/],
    ['tcp://', /is no address of an engine/],
  ])('refuses %s', (text, message) => {
    expect(() => parseHost(text, 'DOCKER_HOST', undefined)).toThrow(message);
  });

  it('is the default socket when nothing names one', () => {
    expect(chooseEndpoint({}, NONE)).toEqual({ endpoint: { kind: 'unix', path: '/var/run/docker.sock' }, from: 'the default' });
    expect(chooseEndpoint({ DOCKER_HOST: '', DOCKER_CONTEXT: 'default' }, NONE).from).toBe('the default');
  });

  const context = (name: string, meta: unknown, current?: string): DockerFiles => ({
    config: current === undefined ? undefined : JSON.stringify({ currentContext: current }),
    meta: (directory) => (directory === contextDirectory(name) ? JSON.stringify(meta) : undefined),
    home: '/home/ann',
  });

  it('DOCKER_HOST wins over contexts, DOCKER_CONTEXT over the current one', () => {
    const files = context('far', { Name: 'far', Endpoints: { docker: { Host: 'ssh://far.example' } } }, 'near');
    expect(chooseEndpoint({ DOCKER_HOST: 'tcp://a:1', DOCKER_CONTEXT: 'far' }, files).from).toBe('DOCKER_HOST');
    expect(chooseEndpoint({ DOCKER_CONTEXT: 'far' }, files)).toEqual({
      endpoint: { kind: 'ssh', destination: 'far.example', port: undefined },
      from: 'the context far (DOCKER_CONTEXT)',
    });
    expect(() => chooseEndpoint({}, files)).toThrow(/no docker context "near"/);
  });

  it('a context with TLS has its own keys, and may leave the check out', () => {
    const files = context('tls', { Endpoints: { docker: { Host: 'tcp://a:2376', SkipTLSVerify: true } } }, 'tls');
    expect(chooseEndpoint({}, files).endpoint).toEqual({
      kind: 'tcp',
      host: 'a',
      port: 2376,
      tls: { directory: `/home/ann/.docker/contexts/tls/${contextDirectory('tls')}/docker`, verify: false },
    });
  });

  it('TLS of DOCKER_HOST: checked with DOCKER_TLS_VERIFY, keys in DOCKER_CERT_PATH or ~/.docker', () => {
    expect(chooseEndpoint({ DOCKER_HOST: 'tcp://a', DOCKER_TLS_VERIFY: '1' }, NONE).endpoint).toEqual({
      kind: 'tcp',
      host: 'a',
      port: 2376,
      tls: { directory: '/home/ann/.docker', verify: true },
    });
    expect(chooseEndpoint({ DOCKER_HOST: 'tcp://a', DOCKER_CERT_PATH: '/keys' }, NONE).endpoint).toMatchObject({ tls: { directory: '/keys', verify: false } });
  });

  it('a broken file is told by its path', () => {
    expect(() => chooseEndpoint({}, { ...NONE, config: '{' })).toThrow(/\.docker\/config\.json is no JSON/);
    expect(() => chooseEndpoint({}, context('x', { Endpoints: {} }, 'x'))).toThrow(/the docker context x names no engine/);
  });

  it('formats what it parsed', () => {
    for (const text of ['unix:///a/b', 'tcp://h:1', 'tcp://[::1]:2', 'ssh://u@h', 'ssh://h:22']) {
      expect(formatEndpoint(parseHost(text, 'x', undefined))).toBe(text);
    }
  });
});

describe('the API version', () => {
  it.each([
    ['1.41', '1.12', '1.41'],
    ['1.99', '1.24', NEWEST_API],
    ['1.45', undefined, '1.45'],
  ])('an engine of %s (oldest %s) is spoken to in %s', (engine, oldest, version) => {
    expect(negotiate(engine, oldest)).toEqual({ version });
  });

  it('numbers are compared as numbers', () => {
    expect(compareVersions('1.9', '1.41')).toBeLessThan(0);
    expect(compareVersions('2.0', '1.99')).toBeGreaterThan(0);
    expect(compareVersions('1.41', 'x')).toBeUndefined();
  });

  it('an old engine and one that is too new are told with a remedy', () => {
    expect(negotiate('1.40', '1.12')).toEqual({ reason: 'the engine speaks API 1.40, and 1.41 is needed', remedy: 'install Docker 20.10 or later' });
    expect(negotiate('2.5', '2.0')).toMatchObject({ remedy: 'install a later Proofrun' });
    expect(negotiate('<html>', undefined)).toMatchObject({ remedy: 'see what answers there: docker version' });
  });
});

describe('why an engine can not be used', () => {
  const failure = (code: string): Error => Object.assign(new Error(`connect ${code}`), { code });
  const local = { endpoint: { kind: 'unix', path: '/var/run/docker.sock' }, from: 'the default' } as const;

  it.each([
    ['ENOENT', /no such socket/, /systemctl start docker/],
    ['ECONNREFUSED', /nobody answers/, /systemctl restart docker/],
    ['EACCES', /this user may not use/, /usermod -aG docker/],
  ])('%s of a socket', (code, reason, remedy) => {
    const obstacle = explainFailure(failure(code), local);
    expect(obstacle.reason).toMatch(reason);
    expect(obstacle.remedy).toMatch(remedy);
  });

  it('names, certificates and ssh', () => {
    const far = { endpoint: { kind: 'tcp', host: 'a', port: 1, tls: undefined }, from: 'DOCKER_HOST' } as const;
    expect(explainFailure(failure('ENOTFOUND'), far).remedy).toMatch(/DOCKER_HOST/);
    expect(explainFailure(new Error('self-signed certificate'), far).remedy).toMatch(/DOCKER_CERT_PATH/);
    expect(explainFailure(new Error('Client sent an HTTP request to an HTTPS server.'), far).remedy).toMatch(/DOCKER_TLS_VERIFY/);
    const ssh = { endpoint: { kind: 'ssh', destination: 'u@h', port: undefined }, from: 'DOCKER_HOST' } as const;
    expect(explainFailure(new Error('ssh ended with 255'), ssh).remedy).toBe('try by hand: ssh u@h docker version');
  });
});

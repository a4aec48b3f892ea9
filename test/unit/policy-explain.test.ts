import { describe, expect, it } from 'vitest';
import { explainEnv, explainHost, explainJob, explainProgram, explainRead, explainWrite, type Explanation } from '../../src/policy/explain.ts';
import { formatOrigin } from '../../src/policy/rules.ts';
import { HOME, WORKSPACE, compose, type Scenario } from './policy-fixture.ts';

const JOB = `version: 1
mode: safe
permissions:
  file_read:
    allow: [/srv/data]
    deny: ["**/*.sqlite"]
  file_write:
    direct: [dist]
    deny: [".git/hooks/**"]
  network:
    allow: [a.example, "git.example:22"]
    deny: [b.example]
  subprocess:
    allow: [node]
  credentials:
    pass_env: [EDITOR]
    secrets: [{ name: T, from: "env:T", inject: { host: a.example, header: Authorization } }]
`;

/** outcome, where, rule, what would allow it. */
function brief(one: Explanation): readonly (string | undefined)[] {
  return [one.outcome, one.origin === undefined ? undefined : formatOrigin(one.origin), one.rule, one.allowWith];
}

const SAFE: Scenario = { job: JOB };

describe('a host', () => {
  it.each<readonly [string, Scenario, string, number, readonly (string | undefined)[]]>([
    ['allowed by a rule', SAFE, 'a.example', 443, ['allowed', 'job.yaml:11', 'a.example', undefined]],
    ['denied by a rule', SAFE, 'b.example', 443, ['denied', 'job.yaml:12', 'b.example', 'take job.yaml:12 out']],
    ['denied by the default of a section', SAFE, 'c.example', 443, ['denied', 'job.yaml:10', 'default_action: deny', '--allow-net c.example']],
    ['denied on another port', SAFE, 'a.example', 22, ['denied', 'job.yaml:10', 'default_action: deny', '--allow-net a.example:22']],
    ['denied by the mode', { request: { mode: 'safe' } }, 'c.example', 443, ['denied', 'safe.yaml:14', 'default_action: deny', '--allow-net c.example']],
    ['denied by --no-net', { request: { noNet: true } }, 'c.example', 443, ['denied', '--no-net', '--no-net', 'leave --no-net out, and --allow-net c.example']],
    ['open', {}, 'c.example', 443, ['allowed', undefined, undefined, undefined]],
    ['no host', {}, 'a b', 443, ['denied', undefined, undefined, undefined]],
  ])('%s', async (_what, scenario, host, port, expected) => {
    expect(brief(explainHost(await compose(scenario), host, port))).toEqual(expected);
  });
});

describe('a path', () => {
  it.each<readonly [string, Scenario, string, readonly (string | undefined)[]]>([
    ['in the workspace', SAFE, `${WORKSPACE}/src/a.ts`, ['allowed', undefined, undefined, undefined]],
    ['allowed by a rule', SAFE, '/srv/data/x', ['allowed', 'job.yaml:5', '/srv/data', undefined]],
    ['hidden by a rule', SAFE, `${WORKSPACE}/db/x.sqlite`, ['denied', 'job.yaml:6', `${WORKSPACE}/**/*.sqlite`, 'take job.yaml:6 out']],
    ['hidden by its name', SAFE, `${WORKSPACE}/.env`, ['denied', `sensitive.yaml:137`, `${WORKSPACE}/**/.env`, `--allow-read ${WORKSPACE}/.env`]],
    ['hidden when it holds a key', SAFE, `${WORKSPACE}/a.pem`, ['depends', 'sensitive.yaml:145', `${WORKSPACE}/**/*.pem`, `--allow-read ${WORKSPACE}/a.pem`]],
    ['in the private home', SAFE, `${HOME}/notes.txt`, ['denied', 'job.yaml:4', 'default_action: deny', `--allow-read ${HOME}/notes.txt`]],
    ['of the system', SAFE, '/usr/bin/env', ['depends', 'job.yaml:4', 'default_action: deny', '--allow-read /usr/bin/env']],
    ['in default mode', {}, `${HOME}/.ssh/id_rsa`, ['allowed', undefined, undefined, undefined]],
  ])('read: %s', async (_what, scenario, path, expected) => {
    const [outcome, where, rule, allowWith] = brief(explainRead(await compose(scenario), path));
    const [wantedOutcome, wantedWhere, wantedRule, wantedAllow] = expected;
    expect([outcome, rule, allowWith]).toEqual([wantedOutcome, wantedRule, wantedAllow]);
    // The list of names grows; its lines are the file's business.
    expect(where?.replace(/(sensitive\.yaml):\d+/, '$1')).toBe(wantedWhere?.replace(/(sensitive\.yaml):\d+/, '$1'));
  });

  it.each<readonly [string, Scenario, string, readonly (string | undefined)[]]>([
    ['in the workspace', SAFE, `${WORKSPACE}/src/a.ts`, ['staged', undefined, undefined, undefined]],
    ['shared', SAFE, `${WORKSPACE}/dist/a.js`, ['allowed', 'job.yaml:8', `${WORKSPACE}/dist`, undefined]],
    ['denied', SAFE, `${WORKSPACE}/.git/hooks/pre-commit`, ['denied', 'job.yaml:9', `${WORKSPACE}/.git/hooks`, 'take job.yaml:9 out']],
    ['hidden', SAFE, `${WORKSPACE}/a.sqlite`, ['denied', 'job.yaml:6', `${WORKSPACE}/**/*.sqlite`, 'take job.yaml:6 out']],
    ['in the home', SAFE, `${HOME}/.cache/x`, ['private', undefined, undefined, undefined]],
    ['in /tmp', SAFE, '/tmp/x', ['private', undefined, undefined, undefined]],
    ['elsewhere', SAFE, '/etc/passwd', ['denied', undefined, undefined, '--write-direct /etc/passwd']],
  ])('written: %s', async (_what, scenario, path, expected) => {
    expect(brief(explainWrite(await compose(scenario), path))).toEqual(expected);
  });
});

describe('a variable', () => {
  it.each<readonly [string, Scenario, string, readonly (string | undefined)[]]>([
    ['of the base set', SAFE, 'PATH', ['allowed', undefined, undefined, undefined]],
    ['that is passed', SAFE, 'EDITOR', ['allowed', undefined, undefined, undefined]],
    ['that stays out', SAFE, 'GITHUB_TOKEN', ['denied', 'job.yaml:15', 'default_action: deny', '-e GITHUB_TOKEN']],
    ['that is injected', SAFE, 'T', ['private', 'job.yaml:17', undefined, undefined]],
    ['in default mode', {}, 'GITHUB_TOKEN', ['allowed', undefined, undefined, undefined]],
    ['that is not set', {}, 'NOPE', ['denied', undefined, undefined, '-e NOPE=VALUE']],
  ])('%s', async (_what, scenario, name, expected) => {
    expect(brief(explainEnv(await compose(scenario), name))).toEqual(expected);
  });
});

describe('a program', () => {
  it('is on the list, or the line that would put it there is named', async () => {
    const job = await compose(SAFE);
    expect(brief(explainProgram(job, 'node'))).toEqual(['allowed', 'job.yaml:13', 'default_action: deny', undefined]);
    expect(brief(explainProgram(job, 'curl'))).toEqual([
      'denied',
      'job.yaml:13',
      'default_action: deny',
      'a line under permissions.subprocess.allow of the job file',
    ]);
    expect(brief(explainProgram(await compose({}), 'curl'))).toEqual(['allowed', undefined, undefined, undefined]);
  });
});

describe('a whole job', () => {
  it('is every default and rule with its line, in the order of the dimensions', async () => {
    const rows = explainJob(await compose({ ...SAFE, request: { mode: 'safe', timeoutMs: 90_000, memoryBytes: 2 ** 31 } }));
    const dimensions = [...new Set(rows.map((row) => row.dimension))];
    expect(dimensions).toEqual(['file_read', 'file_write', 'network', 'subprocess', 'credentials', 'resources']);
    expect(
      rows
        .filter((row) => row.dimension === 'network')
        .map((row) => [row.subject, row.outcome, row.origin === undefined ? undefined : formatOrigin(row.origin)]),
    ).toEqual([
      ['*', 'denied', 'job.yaml:10'],
      ['a.example', 'allowed', 'job.yaml:11'],
      ['git.example:22', 'allowed', 'job.yaml:11'],
      ['b.example', 'denied', 'job.yaml:12'],
    ]);
    expect(
      rows
        .filter((row) => row.dimension === 'resources')
        .map((row) => [row.subject, row.reason, row.origin === undefined ? undefined : formatOrigin(row.origin)]),
    ).toEqual([
      ['memory', 'at most 2GiB', '--memory'],
      ['processes', 'at most 512', 'safe.yaml:20'],
      ['wall_time', 'at most 1m30s', '--timeout'],
    ]);
  });
});

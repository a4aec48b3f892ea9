import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { ProofrunError } from '../../src/core/errors.ts';
import { decodeDocument, MAX_DOCUMENT_BYTES, parseDocument } from '../../src/policy/document.ts';
import { parseJobFile, type JobFile } from '../../src/policy/job-file.ts';

/** The job file of the design: every section, every form. */
const WHOLE = `version: 1
name: unit
mode: safe
command: [npm, test]
workspace: .
env: { NODE_ENV: test }
use: [npm-install]
policies: [ci]
executor: auto
image: node:20
x-comment: [anything, { at: all }]
permissions:
  file_read:   { default_action: allow, deny: ["~/.ssh/**", "**/.env"] }
  file_write:  { stage: ["."], direct: [dist], deny: [".git/hooks/**"] }
  network:     { default_action: deny, allow: [packages.example.com, "github.com:22", { host: db.corp, ports: [5432], private: true }], host_ports: [8080], publish: ["3000:3000"] }
  subprocess:  { default_action: deny, allow: [node, npm, git, sh] }
  credentials: { pass_env: [CI, "LC_*"], secrets: [{ name: NPM_TOKEN, from: "env:NPM_TOKEN", inject: { host: packages.example.com, header: Authorization, format: "Bearer {}" } }] }
  models:      { default_action: deny, allow: ["claude-*"], budget: { calls: 50, input_tokens: 2000000, output_tokens: 200000, usd: "3.00" } }
  tools:       { default_action: deny, servers: { files: { command: [mcp-files, .] } }, allow: [{ server: files, tool: read_file, effect: read-only }] }
  resources:   { memory: 2GiB, cpus: 2, processes: 256, open_files: 4096, file_size: 1GiB, stage_size: 2GiB, tmp_size: 1GiB, wall_time: 30m, cpu_time: 10m, output_kept: 1MiB }
`;

async function parse(text: string, file = 'job.yaml'): Promise<JobFile> {
  return await parseJobFile(text, file, createHash('sha256').update(text).digest('hex'));
}

async function fault(text: string, file = 'job.yaml'): Promise<ProofrunError> {
  const error: unknown = await parse(text, file).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof ProofrunError)) throw new Error(`expected a ProofrunError, got ${String(error)}`);
  return error;
}

describe('a job file', () => {
  it('is parsed whole, each value with its line', async () => {
    const job = await parse(WHOLE);
    expect(job.command).toEqual({ value: ['npm', 'test'], line: 4 });
    expect(job.mode).toEqual({ value: 'safe', line: 3 });
    expect(job.use).toEqual([{ value: 'npm-install', line: 7 }]);
    expect(job.permissions.fileRead).toEqual({
      line: 13,
      defaultAction: { value: 'allow', line: 13 },
      deny: [
        { value: '~/.ssh/**', line: 13 },
        { value: '**/.env', line: 13 },
      ],
    });
    expect(job.permissions.network?.allow).toEqual([
      { value: { host: 'packages.example.com' }, line: 15 },
      { value: { host: 'github.com:22' }, line: 15 },
      { value: { host: 'db.corp', ports: [5432], private: true }, line: 15 },
    ]);
    expect(job.permissions.network?.publish).toEqual([{ value: { hostPort: 3000, jobPort: 3000 }, line: 15 }]);
    expect(job.permissions.resources?.limits).toMatchObject({
      memoryBytes: { value: 2 * 1024 ** 3, line: 20 },
      wallTimeMs: { value: 1_800_000, line: 20 },
      cpus: { value: 2, line: 20 },
      outputKeptBytes: { value: 1024 ** 2 },
    });
  });

  it('may be JSON, tabs included, with the same lines in errors', async () => {
    const job = await parse('{\n\t"version": 1,\n\t"command": ["npm", "test"]\n}', 'job.json');
    expect(job.command).toEqual({ value: ['npm', 'test'], line: 3 });
    expect((await fault('{\n "version": 1,\n "comand": ["npm"]\n}', 'job.json')).message).toBe('job.json:3:2: unknown key `comand`; did you mean `command`?');
  });

  it('tells absent, empty and unset apart', async () => {
    const absent = await parse('version: 1\ncommand: [true_]\n');
    const empty = await parse('version: 1\ncommand: [true_]\npermissions: { network: { allow: [] }, file_write: { stage: [] } }\n');
    expect(absent.permissions.network).toBeUndefined();
    expect(empty.permissions.network?.allow).toEqual([]);
    expect(empty.permissions.fileWrite).toMatchObject({ stage: [], stageLine: 3 });
  });

  it('keeps the line of each item of a block list', async () => {
    const job = await parse('version: 1\npermissions:\n  network:\n    allow:\n      - a.example\n      - host: b.example\n        ports: [22]\n');
    expect(job.permissions.network?.allow?.map((one) => one.line)).toEqual([5, 6]);
  });

  it.each<readonly [string, string, RegExp]>([
    ['an unknown key, with near names', 'version: 1\nworkspce: .\n', /^job\.yaml:2:1: unknown key `workspce`; did you mean `workspace`\?$/],
    [
      'an unknown key deep inside',
      'version: 1\npermissions:\n  network:\n    allowed: [a.example]\n',
      /^job\.yaml:4:5: unknown key `allowed` in permissions\.network; did you mean `allow`\?/,
    ],
    ['a repeated key', 'version: 1\nmode: safe\nmode: strict\n', /^job\.yaml:3:1: this key stands twice/],
    ['a repeated key in JSON', '{"version": 1,\n"version": 1}', /^job\.yaml:2:1: this key stands twice/],
    [
      'a command as text, with the list form',
      'version: 1\ncommand: npm test --watch\n',
      /^job\.yaml:2:1: command: expected a list, the program and its arguments, found text$/,
    ],
    ['a number in the command', 'version: 1\ncommand: [sleep, 5]\n', /^job\.yaml:2:18: command\[1\]: expected text \(quote numbers\), found the number 5$/],
    [
      'a size without a unit',
      'version: 1\npermissions:\n  resources:\n    memory: 2\n',
      /^job\.yaml:4:5: permissions\.resources\.memory: expected a size with a unit.*; write 2B, 2MiB or 2GiB, found the number 2$/,
    ],
    [
      'a wrong unit',
      'version: 1\npermissions: { resources: { memory: 2GB, wall_time: 30min } }\n',
      /^job\.yaml:2:42: permissions\.resources\.wall_time: expected a duration with a unit.*; write 30m, found the text "30min"$/,
    ],
    ['a limit of nothing', 'version: 1\npermissions: { resources: { memory: 0B } }\n', /^job\.yaml:2:29: memory: expected more than nothing, found 0B$/],
    [
      'a mode that is none',
      'version: 1\nmode: saef\n',
      /^job\.yaml:2:1: mode: expected default, safe or strict, found the text "saef"; did you mean `safe`\?$/,
    ],
    ['a list where a mapping belongs', 'version: 1\npermissions: []\n', /^job\.yaml:2:1: permissions: expected a mapping of dimensions, found an empty list$/],
    ['nothing where a list belongs', 'version: 1\nuse:\n', /^job\.yaml:2:1: use: expected a list of names or files, found nothing \(null\)$/],
    ['another version', 'version: 2\n', /^job\.yaml:1:1: version: expected 1, found the number 2$/],
    ['no version', 'command: [npm]\n', /^job\.yaml:1:1: the file lacks `version`$/],
    ['text instead of a mapping', 'npm test\n', /^job\.yaml:1:1: expected a job as a mapping/],
    ['an empty file', '', /^job\.yaml:1:1: expected a job as a mapping/],
    ['a custom tag', 'version: 1\nname: !secret x\n', /^job\.yaml:2:7: custom tag: !secret/],
    ['a second document', 'version: 1\n---\nversion: 1\n', /^job\.yaml:2:1: a second document begins/],
    ['an anchor that is missing', 'version: 1\nuse: *all\n', /^job\.yaml:2:6: /],
    ['an anchor that contains itself', 'version: 1\nx-a: &a [*a]\n', /^job\.yaml:2:10: the anchor a contains itself$/],
    ['a key that is no text', 'version: 1\nx-a: { 1: 2 }\n', /^job\.yaml:2:8: a key is text; quote it$/],
    ['a key that would reach the prototype', 'version: 1\n__proto__: { mode: safe }\n', /^job\.yaml:2:1: unknown key `__proto__`$/],
    ['an infinite number', 'version: 1\npermissions: { resources: { cpus: .inf } }\n', /^job\.yaml:2:35: not a finite number$/],
    [
      'no processors',
      'version: 1\npermissions: { resources: { cpus: 0 } }\n',
      /^job\.yaml:2:29: permissions\.resources\.cpus: expected a number of processors above 0, found the number 0$/,
    ],
    ['`*` as a host', 'version: 1\npermissions: { network: { allow: ["*"] } }\n', /^job\.yaml:2:35: `\*` alone is no host rule$/],
    ['a URL as a host', 'version: 1\npermissions: { network: { allow: ["https://a.example/x"] } }\n', /^job\.yaml:2:35: "https:\/\/a\.example\/x" is a URL$/],
    ['a port that is none', 'version: 1\npermissions: { network: { allow: ["a.example:99999"] } }\n', /^job\.yaml:2:35: .*a port from 1 to 65535/],
    ['published ports that are none', 'version: 1\npermissions: { network: { publish: ["0:3000"] } }\n', /^job\.yaml:2:37: expected two ports/],
    [
      'a secret without a source',
      'version: 1\npermissions: { credentials: { secrets: [{ name: A }] } }\n',
      /^job\.yaml:2:41: permissions\.credentials\.secrets\[0\] lacks `from`$/,
    ],
    ['a variable name that is none', 'version: 1\nenv: { "A-B": x }\n', /^job\.yaml:2:8: `A-B` is not a name that env may hold$/],
    [
      'waiving containment',
      'version: 1\ndegrade: [network]\n',
      /^job\.yaml:2:11: degrade\[0\]: expected credentials, models, tools or resources, found the text "network"$/,
    ],
    ['tabs as indentation', 'version: 1\npermissions:\n\tnetwork: {}\n', /^job\.yaml:3:1: /],
    ['an open bracket', 'version: 1\ncommand: [npm\n', /^job\.yaml:\d+:\d+: /],
  ])('refuses %s', async (_what, text, message) => {
    const error = await fault(text);
    expect(error.code).toBe('ERR_JOB_FILE');
    expect(error.message).toMatch(message);
    expect(error.exitCode).toBe(2);
  });

  it('shows the list form of a command in the hint, quoting what needs it', async () => {
    expect((await fault('version: 1\ncommand: npm test -- --a=1 true 5\n')).hint).toBe('write command: [npm, test, "--", "--a=1", "true", "5"]');
  });

  it('carries file, line and column as data', async () => {
    expect((await fault('version: 1\nmodes: safe\n')).data).toEqual({ file: 'job.yaml', line: 2, column: 1 });
  });
});

describe('a hostile file', () => {
  it('with aliases that multiply ends with an error, soon', async () => {
    const lines = [
      'x-0: &a0 [x, x, x, x, x, x, x, x, x, x]',
      ...Array.from(
        { length: 9 },
        (_, index) => `x-${String(index + 1)}: &a${String(index + 1)} [${Array.from({ length: 10 }, () => `*a${String(index)}`).join(', ')}]`,
      ),
    ];
    expect((await fault(`version: 1\n${lines.join('\n')}\n`)).message).toMatch(/too many values/);
  });

  it.each([
    ['brackets', '['.repeat(100_000)],
    ['mappings', '{a: '.repeat(50_000)],
    ['closed brackets', `x-a: ${'['.repeat(3000)}${']'.repeat(3000)}\nversion: 1\n`],
  ])('nested %s ends with an error', async (_what, text) => {
    expect((await fault(text)).code).toBe('ERR_JOB_FILE');
  });

  it('that is no UTF-8, holds NUL or is too large is refused before it is parsed', () => {
    const decode = (bytes: Uint8Array): (() => string) => {
      return () => decodeDocument(bytes, 'job.yaml', 'ERR_JOB_FILE');
    };
    expect(decode(Uint8Array.of(0xff, 0xfe))).toThrow(/not UTF-8/);
    expect(decode(Buffer.from('a: "\0"'))).toThrow(/NUL/);
    expect(decode(new Uint8Array(MAX_DOCUMENT_BYTES + 1))).toThrow(/larger than 1 MiB/);
    expect(decode(Buffer.from('\ufeffversion: 1'))()).toBe('version: 1');
  });

  it('with a key named like a pointer keeps its own place', async () => {
    const document = await parseDocument('"a/b": 1\n"a~b": 2\na:\n  b: 3\n', 'x.yaml', 'ERR_POLICY_FILE');
    expect(document.places.get('/a~1b')?.line).toBe(1);
    expect(document.places.get('/a~0b')?.line).toBe(2);
    expect(document.places.get('/a/b')?.line).toBe(4);
  });
});

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { executorRegistry } from '../../src/cli/executors.host.ts';
import { parseCommandLine } from '../../src/cli/parse.ts';
import { JOB_FILE } from '../../src/cli/commands/init.ts';
import { DOCUMENTED } from '../../scripts/capability-table.ts';
import { parseJobFile } from '../../src/policy/job-file.ts';
import { compilePreset } from '../../src/policy/presets.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const PAGES = [
  'README.md',
  ...['guides', 'explanation'].flatMap((folder) => readdirSync(join(ROOT, 'docs', folder)).map((name) => `docs/${folder}/${name}`)),
].filter((name) => name.endsWith('.md'));

/** Fenced blocks of one language. */
function blocks(page: string, language: string): readonly string[] {
  const text = readFileSync(join(ROOT, page), 'utf8');
  return [...text.matchAll(new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\``, 'gm'))].map(([, body = '']) => body);
}

/** The words of a shell line as far as the documents need it: quotes, a trailing comment, a redirection. */
function words(line: string): readonly string[] {
  const plain = line.replace(/\s+#.*$/, '').replace(/\s+>\s.*$/, '');
  return [...plain.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map(([, single, double, bare]) => single ?? double ?? bare ?? '');
}

describe('what the documents show', () => {
  const lines = PAGES.flatMap((page) =>
    blocks(page, 'sh').flatMap((block) =>
      block
        .split('\n')
        .filter((line) => line.startsWith('job '))
        .map((line) => [page, line] as const),
    ),
  );

  test('there are command lines to check', () => {
    expect(lines.length).toBeGreaterThan(30);
  });

  test.each(lines)('%s: %s', (_, line) => {
    expect(() => parseCommandLine(words(line).slice(1))).not.toThrow();
  });

  const files = PAGES.flatMap((page) => blocks(page, 'yaml').map((text, index) => [page, index, text] as const));
  test.each(files)('%s, file %i', async (page, _, text) => {
    if (/^command:/m.test(text)) expect((await parseJobFile(text, page, '')).command?.value.length).toBeGreaterThan(0);
    else expect((await compilePreset(text, page, 'policy', '')).kind).toBe('policy');
  });

  test('links between documents lead somewhere', () => {
    for (const page of PAGES) {
      for (const [, target = ''] of readFileSync(join(ROOT, page), 'utf8').matchAll(/\]\(([^)#:]+\.(?:md|ts|mjs))\)/g)) {
        expect(() => readFileSync(join(ROOT, page, '..', target)), `${page}: ${target}`).not.toThrow();
      }
    }
  });
});

describe('the capability matrix', () => {
  test('says of the native executor what its probe says here', async ({ skip }) => {
    const here = await executorRegistry().capabilities('native');
    if (!here.available) return skip(here.reason);
    const documented = DOCUMENTED.find(({ executor }) => executor === 'native');
    // Limits of the tree depend on the control groups of the machine.
    const limits = new Set(['process_limit', 'memory_limit', 'cpu_limit']);
    expect(here.controls.filter((control) => !limits.has(control)).sort()).toEqual(documented?.controls.filter((control) => !limits.has(control)).sort());
    expect(here.network).toEqual(documented?.network);
    expect(here.subprocess).toEqual(documented?.subprocess);
    expect(here.cooperative).toEqual(documented?.cooperative);
  });
});

describe('job init', () => {
  test('writes a file that is right, and so is each line that is commented out', async () => {
    expect((await parseJobFile(JOB_FILE, 'job.yaml', '')).mode?.value).toBe('safe');
    // `#key` is a setting, `# text` is prose.
    const opened = JOB_FILE.replace(/^(\s*)#(?! )(\S)/gm, '$1$2').replace(/^(\s*)#(\s+direct:)/gm, '$1$2');
    const job = await parseJobFile(opened, 'job.yaml', '');
    expect(job.use.map(({ value }) => value)).toEqual(['npm-install']);
    expect(job.policies.map(({ value }) => value)).toEqual(['ci']);
    expect(job.permissions.fileWrite?.direct?.map(({ value }) => value)).toEqual(['dist']);
    expect(job.permissions.resources?.limits.memoryBytes?.value).toBe(2 ** 31);
  });
});

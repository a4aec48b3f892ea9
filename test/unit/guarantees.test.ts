import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import ts from 'typescript';
import { describe, expect, test } from 'vitest';
import { CONTROLS } from '../../src/core/plan.ts';
import { REMOVALS } from '../support/native-removals.ts';
import { SHIM_VARIANTS } from '../support/native-variants.ts';

const root = resolve(import.meta.dirname, '../..');
const page = readFileSync(join(root, 'docs/reference/guarantees.md'), 'utf8');

interface Citation {
  readonly file: string;
  readonly title: string;
}
const citations: readonly Citation[] = [...page.matchAll(/^- `(test\/[^`]+)`: (.+)$/gm)].map(([, file = '', title = '']) => ({ file, title }));

/** First arguments of `test(...)`, `it(...)` and their `.each`, `.skipIf` and so on: a text, or a pattern for a template. */
function titlesOf(file: string): readonly (string | RegExp)[] {
  const source = ts.createSourceFile(file, readFileSync(join(root, file), 'utf8'), ts.ScriptTarget.ESNext, true);
  const found: (string | RegExp)[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isCallExpression(node) && /^(?:test|it)\b/.test(node.expression.getText())) {
      const [title] = node.arguments;
      if (title !== undefined && ts.isStringLiteralLike(title)) found.push(title.text);
      else if (title !== undefined && ts.isTemplateExpression(title)) {
        const parts = [title.head.text, ...title.templateSpans.map((span) => span.literal.text)];
        found.push(new RegExp(`^${parts.map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('.+')}$`));
      } else if (title?.kind === ts.SyntaxKind.Identifier) found.push(title.getText());
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

/** Titles that a file makes from a table: they count by the table, not by the template. */
const MADE: Readonly<Record<string, readonly string[]>> = {
  'test/escape/control-removal.test.ts': REMOVALS.map(({ control, how }) => `${control}: ${how}`),
  'test/escape/shim-variants.test.ts': SHIM_VARIANTS.map(({ control, how }) => `${control}: ${how}`),
};

describe('docs/reference/guarantees.md', () => {
  test('names guarantees', () => expect(citations.length).toBeGreaterThan(50));

  test.each([...new Set(citations.map(({ file }) => file))])('%s has every test that is named', (file) => {
    expect(existsSync(join(root, file)), file).toBe(true);
    const titles = titlesOf(file);
    const named = citations.filter((one) => one.file === file).map(({ title }) => title);
    const there = (title: string): boolean =>
      titles.some((one) => (typeof one === 'string' ? one === title : MADE[file] === undefined && one.test(title))) || MADE[file]?.includes(title) === true;
    expect(named.filter((title) => !there(title))).toEqual([]);
  });

  test('a title that is not there would be seen', () => {
    expect(titlesOf('test/unit/guarantees.test.ts')).toContain('a title that is not there would be seen');
    expect(titlesOf('test/unit/guarantees.test.ts')).not.toContain('no such title');
  });

  test('names every file of test/escape', () => {
    const files = readdirSync(join(root, 'test/escape')).map((name) => `test/escape/${name}`);
    expect(files.filter((file) => !citations.some((one) => one.file === file))).toEqual([]);
  });

  test('lists every control with all the ways in which it is left out', () => {
    const rows = new Map(
      [...page.slice(page.indexOf('## Controls')).matchAll(/^\| (\w+) \| (.*) \| ?(.*?) ?\|$/gm)].map(([, control = '', installed = '', shim = '']) => [
        control,
        [installed, shim] as const,
      ]),
    );
    rows.delete('control');
    expect([...rows.keys()].sort()).toEqual([...CONTROLS].sort());
    const ways = (table: readonly { readonly control: string; readonly how: string }[], control: string): string =>
      table
        .filter((one) => one.control === control)
        .map(({ how }) => how)
        .join('; ');
    for (const control of CONTROLS) {
      // The native executor doesn't list it.
      if (control === 'proxy_offered') continue;
      expect([control, rows.get(control)]).toEqual([control, [ways(REMOVALS, control), ways(SHIM_VARIANTS, control)]]);
    }
  });
});

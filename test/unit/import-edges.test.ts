import { readFileSync, readdirSync, statSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import ts from 'typescript';
import { describe, expect, test } from 'vitest';

/** scripts/import-edges.json: the table of allowed imports, which feeds eslint.config.js as well. */
interface Edges {
  readonly areas: Readonly<Record<string, string>>;
  readonly allowed: Readonly<Record<string, readonly string[]>>;
  /** Folders of JSON and YAML that any area may import. */
  readonly data: readonly string[];
  readonly restrictedNames: readonly { readonly module: string; readonly name: string; readonly importers: readonly string[] }[];
  readonly executorIds: { readonly values: readonly string[]; readonly only: string };
}

const root = resolve(import.meta.dirname, '../..');
const edges = JSON.parse(readFileSync(join(root, 'scripts/import-edges.json'), 'utf8')) as Edges;

function sources(folder: string): string[] {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return sources(path);
    return entry.name.endsWith('.ts') ? [path] : [];
  });
}

function areaOf(path: string): string | undefined {
  return Object.entries(edges.areas).find(([, folder]) => path === folder || path.startsWith(`${folder}/`))?.[0];
}

/** Every module that a text names: import, import type, export from, import(). */
function importsOf(text: string): string[] {
  return ts.preProcessFile(text, true, true).importedFiles.map((file) => file.fileName);
}

interface Edge {
  readonly from: string;
  readonly to: string;
}

function forbidden(from: string, text: string): Edge[] {
  const area = areaOf(from);
  return importsOf(text)
    .filter((name) => name.startsWith('.'))
    .map((name) => ({ from, to: relative(root, resolve(root, dirname(from), name)) }))
    .filter(({ to }) => {
      if (edges.data.some((folder) => to.startsWith(`${folder}/`))) return false;
      const other = areaOf(to);
      return area === undefined || other === undefined || (other !== area && edges.allowed[area]?.includes(other) !== true);
    });
}

/** Files that take a restricted name from its module in any way: import, export from, import *, import(), or a mention of it. */
function takers(row: Edges['restrictedNames'][number], files: readonly { readonly path: string; readonly text: string }[]): string[] {
  return files
    .filter(({ path, text }) => path !== row.module && new RegExp(`\\b${row.name}\\b|import\\(\\s*['"][^'"]*receipt\\.ts`).test(stripComments(text)))
    .map(({ path }) => path);
}

function stripComments(text: string): string {
  return text.replaceAll(/\/\*[\s\S]*?\*\//g, '').replaceAll(/^\s*\/\/.*$/gm, '');
}

/** Comparisons of something called an executor, or of anything with an id that only executors have, with an executor's id. */
function comparedIds(path: string, text: string): string[] {
  const file = ts.createSourceFile(path, text, ts.ScriptTarget.ESNext, true);
  const found: string[] = [];
  const check = (literal: ts.Node, other: ts.Node): void => {
    if (!ts.isStringLiteralLike(literal) || !edges.executorIds.values.includes(literal.text)) return;
    if (/executor/i.test(other.getText()) || literal.text === 'native' || literal.text === 'docker') {
      found.push(`${path}:${file.getLineAndCharacterOfPosition(literal.getStart()).line + 1} ${literal.parent.getText()}`);
    }
  };
  const equality = new Set([
    ts.SyntaxKind.EqualsEqualsEqualsToken,
    ts.SyntaxKind.ExclamationEqualsEqualsToken,
    ts.SyntaxKind.EqualsEqualsToken,
    ts.SyntaxKind.ExclamationEqualsToken,
  ]);
  const visit = (node: ts.Node): void => {
    if (ts.isBinaryExpression(node) && equality.has(node.operatorToken.kind)) {
      check(node.left, node.right);
      check(node.right, node.left);
    } else if (ts.isSwitchStatement(node)) {
      for (const clause of node.caseBlock.clauses) {
        if (ts.isCaseClause(clause)) check(clause.expression, node.expression);
      }
    }
    ts.forEachChild(node, visit);
  };
  visit(file);
  return found;
}

const files = [...sources('src'), ...sources('executors')].map((path) => ({ path, text: readFileSync(join(root, path), 'utf8') }));

describe('imports point one way', () => {
  test('every source file lies in an area of the table, and every area exists', () => {
    expect(files.filter(({ path }) => areaOf(path) === undefined).map(({ path }) => path)).toEqual([]);
    for (const folder of Object.values(edges.areas)) {
      expect(statSync(join(root, folder), { throwIfNoEntry: false }), folder).toBeDefined();
    }
    expect(Object.keys(edges.allowed).sort()).toEqual(Object.keys(edges.areas).sort());
  });

  test('no file imports what its area may not', () => {
    expect(files.flatMap(({ path, text }) => forbidden(path, text))).toEqual([]);
  });

  test('the table has no cycle, nothing imports cli or index, and only those two import executors/', () => {
    const reaches = (from: string, seen: readonly string[] = []): readonly string[] =>
      (edges.allowed[from] ?? []).flatMap((to) => (seen.includes(to) ? [] : [to, ...reaches(to, [...seen, to])]));
    for (const area of Object.keys(edges.areas)) {
      expect(reaches(area), area).not.toContain(area);
    }
    for (const [area, targets] of Object.entries(edges.allowed)) {
      expect(targets, area).not.toContain('cli');
      expect(targets, area).not.toContain('index');
      const toBackends = targets.filter((target) => edges.areas[target]?.startsWith('executors/') === true);
      const mayReach = area === 'cli' || area === 'index' || edges.areas[area]?.startsWith('executors/') === true;
      expect(mayReach ? [] : toBackends, area).toEqual([]);
    }
  });

  test.each([
    ['static', "import { x } from '../policy/x.ts';"],
    ['type only', "import type { X } from '../policy/x.ts';"],
    ['export from', "export { x } from '../policy/x.ts';"],
    ['dynamic', "const x = await import('../policy/x.ts');"],
    ['an executor', "import '../../executors/native/x.ts';"],
    ['outside the sources', "import '../../test/support/x.ts';"],
  ])('a forbidden import is seen: %s', (_kind, text) => {
    expect(forbidden('src/core/a.ts', text)).toHaveLength(1);
  });
});

describe('restricted names', () => {
  test.each(edges.restrictedNames)('$name is named by its importers only', (row) => {
    const others = takers(row, files).filter((path) => !row.importers.includes(path));
    expect(others).toEqual([]);
  });

  test('a new importer would be seen', () => {
    const [row] = edges.restrictedNames;
    if (row === undefined) throw new Error('scripts/import-edges.json restricts no name');
    const text = [`import { ${row.name} as m } from '../core/receipt.ts';`, "const { x } = await import('../core/receipt.ts');", `// ${row.name}`];
    expect(
      takers(
        row,
        text.map((line, index) => ({ path: `src/runner/${index}.ts`, text: line })),
      ),
    ).toEqual(['src/runner/0.ts', 'src/runner/1.ts']);
  });
});

describe('executor ids', () => {
  test('nothing outside executors/ compares one', () => {
    expect(files.filter(({ path }) => !path.startsWith(`${edges.executorIds.only}/`)).flatMap(({ path, text }) => comparedIds(path, text))).toEqual([]);
  });

  test.each([
    ["if (plan.executor === 'host') {}", 1],
    ["if ('docker' !== id) {}", 1],
    ["switch (id) { case 'native': break; case 'auto': break; }", 1],
    ["if (fileRead.root === 'host') {}", 0],
    ["const ids = ['native', 'docker'];", 0],
  ])('%s', (text, count) => {
    expect(comparedIds('src/runner/a.ts', text)).toHaveLength(count);
  });
});

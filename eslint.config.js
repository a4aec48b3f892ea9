import { readFileSync } from 'node:fs';
import tseslint from 'typescript-eslint';
import { executorIdRule } from './scripts/lint-executor-id.mjs';

/** The table of allowed imports; test/unit/import-edges.test.ts checks the same one, dynamic imports included. */
const edges = JSON.parse(readFileSync(new URL('./scripts/import-edges.json', import.meta.url), 'utf8'));

const areas = Object.entries(edges.areas).map(([name, path]) => ({ name, path, files: path.endsWith('.ts') ? [path] : [`${path}/**/*.ts`] }));

/** A relative import leads into an area when its text ends in the area's folder and something in it. Single files are left to the test. */
const into = ({ name, path }) => {
  const [top, folder] = path.split('/');
  const before = top === 'executors' ? '(?:executors|^\\.\\.)' : '\\.\\.';
  return { regex: `${before}/${folder}/`, message: `see scripts/import-edges.json: ${name}` };
};

const restricted = (area) => {
  const others = areas.filter((other) => !other.path.endsWith('.ts') && other.name !== area.name && !edges.allowed[area.name].includes(other.name));
  const names = edges.restrictedNames.map(({ module, name, why }) => ({
    regex: `(?:^|/)${module.split('/').at(-1).replaceAll('.', '\\.')}$`,
    importNames: [name],
    message: why,
  }));
  return [...others.map(into), ...names];
};

const importers = edges.restrictedNames.flatMap((row) => row.importers);

export default tseslint.config(
  { ignores: ['dist/', 'build/', 'prebuilt/', 'coverage/', 'node_modules/', 'examples/**/*.js', 'examples/**/*.cjs', 'test/fixtures/**/*.js'] },
  {
    files: ['**/*.ts'],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    rules: {
      eqeqeq: 'error',
      curly: ['error', 'multi-line'],
      'no-case-declarations': 'error',
      'no-console': 'error',
      'no-constant-condition': 'error',
      'no-control-regex': 'error',
      'no-empty': 'error',
      'no-fallthrough': 'error',
      'no-loss-of-precision': 'error',
      'no-misleading-character-class': 'error',
      'no-self-assign': 'error',
      'no-unsafe-finally': 'error',
      'no-useless-escape': 'error',
      'prefer-const': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
      // Numbers, booleans and errors' names read well in messages; objects still don't pass.
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowBoolean: true }],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true, ignoreVoidReturningFunctions: true }],
      // A test's callback may return a promise where a void one is expected, and executors implement async contracts without awaiting.
      '@typescript-eslint/require-await': 'off',
      '@typescript-eslint/consistent-type-definitions': 'off',
      '@typescript-eslint/dot-notation': 'off',
      // Contracts are objects of closures: nothing here has a `this` to lose.
      '@typescript-eslint/unbound-method': 'off',
      // Slow, and about what isn't here: enums (erasableSyntaxOnly), classes as values, and Node's own deprecations, which tsc strikes out.
      '@typescript-eslint/no-unsafe-enum-assignment': 'off',
      '@typescript-eslint/no-unsafe-enum-comparison': 'off',
      '@typescript-eslint/no-unsafe-class-instance-assignment': 'off',
      '@typescript-eslint/no-deprecated': 'off',
    },
  },
  {
    files: ['src/**/*.ts', 'executors/**/*.ts'],
    rules: {
      'no-restricted-syntax': [
        'error',
        { selector: 'TSAsExpression > TSAnyKeyword', message: 'no any' },
        { selector: "CallExpression[callee.name='setTimeout'][arguments.length<2]", message: 'a delay has a length' },
      ],
    },
  },
  ...areas.map((area) => ({
    files: area.files,
    ignores: importers,
    rules: { 'no-restricted-imports': ['error', { patterns: restricted(area) }] },
  })),
  {
    files: ['src/**/*.ts'],
    plugins: { proofrun: { rules: { 'no-executor-id': executorIdRule(edges.executorIds.values) } } },
    rules: { 'proofrun/no-executor-id': 'error' },
  },
  {
    files: ['test/**/*.ts', 'bench/**/*.ts', 'examples/**/*.ts'],
    rules: {
      '@typescript-eslint/no-non-null-assertion': 'off',
      'no-console': 'off',
    },
  },
  {
    files: ['**/*.{js,mjs,cjs}'],
    rules: { eqeqeq: 'error', curly: ['error', 'multi-line'], 'prefer-const': 'error', 'no-var': 'error', 'no-undef': 'off' },
  },
);

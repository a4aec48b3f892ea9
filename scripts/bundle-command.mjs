// The command as one CommonJS script with a launcher, for the time of a start: ES modules cost Node a resolution, a read and a
// compilation each, and can't be compiled ahead on Node 20 (docs/decisions/0040).
//   dist/job.js                     the launcher: compiles the script, with the code cache when there is one that fits this Node
//   dist/chunks/job-HASH.cjs        the program; HASH is of its content, so that a cache can't belong to other code
//   dist/chunks/job-HASH.cjs.V8.cache   made by scripts/warm-cache.mjs
//   dist/chunks/LIBRARY-HASH.cjs    large libraries that a plain `job run` doesn't need, loaded when they are
import { createHash } from 'node:crypto';

/** Loaded on demand, by what the sources import. Nothing of ours is among them: it would exist twice. */
const LAZY = { 'ajv/dist/2020.js': 'ajv', yaml: 'yaml', diff: 'diff', 'cli-progress': 'cli-progress', dockerode: 'dockerode' };
const SCHEMA = /\/schemas\/([a-z-]+\.schema\.json)$/;

/**
 * better-sqlite3 is bundled but for its compiled part, which is required by its place in the package: its own search
 * (the package `bindings`, a dozen paths) costs a third of the time of opening the store.
 */
export const sqliteBinding = {
  name: 'sqlite-binding',
  setup(plugin) {
    const file = 'better-sqlite3/build/Release/better_sqlite3.node';
    plugin.onResolve({ filter: /^bindings$/ }, () => ({ path: 'bindings', namespace: 'sqlite-binding' }));
    plugin.onResolve({ filter: /\.node$/ }, () => ({ path: file, external: true }));
    plugin.onLoad({ filter: /.*/, namespace: 'sqlite-binding' }, () => ({ contents: `module.exports = () => require('${file}');` }));
  },
};

/**
 * Parts of dockerode that are never used here: sessions of BuildKit (gRPC), its own ssh client (the system's is taken), and building from a
 * directory. They are four fifths of the time that it takes to load.
 */
export const dockerodeParts = {
  name: 'dockerode-parts',
  setup(plugin) {
    plugin.onResolve({ filter: /^(@grpc\/grpc-js|@grpc\/proto-loader|ssh2|tar-fs|@balena\/dockerignore|protobufjs)$/ }, ({ path, importer }) =>
      /node_modules\/(dockerode|docker-modem)\//.test(importer) ? { path, namespace: 'dockerode-parts' } : undefined,
    );
    plugin.onLoad({ filter: /.*/, namespace: 'dockerode-parts' }, () => ({ contents: 'module.exports = {};' }));
  },
};

/** Bundles the command. Returns [{ path, text, mode }], paths relative to dist/, the launcher last, and the inputs of all bundles. */
export async function bundleCommand(esbuild, shared) {
  const cjs = { ...shared, bundle: true, format: 'cjs', supported: { 'dynamic-import': false }, write: false, metafile: true };
  const libraries = new Map();
  const inputs = [];
  for (const [specifier, name] of Object.entries(LAZY)) {
    const built = await esbuild.build({
      ...cjs,
      plugins: [dockerodeParts],
      stdin: { contents: `module.exports = require('${specifier}');`, resolveDir: shared.absWorkingDir },
    });
    const [{ text }] = built.outputFiles;
    libraries.set(specifier, { path: `chunks/${name}-${hashOf(text)}.cjs`, text, mode: 0o644 });
    inputs.push(...Object.keys(built.metafile.inputs));
  }
  const lazy = {
    name: 'lazy',
    setup(plugin) {
      plugin.onResolve({ filter: /./ }, ({ path, kind }) => {
        if (kind !== 'dynamic-import') {
          return undefined;
        }
        const schema = SCHEMA.exec(path)?.[1];
        const library = libraries.get(path)?.path.replace('chunks/', './');
        const target = schema === undefined ? library : `../../schemas/${schema}`;
        return target === undefined ? undefined : { path: target, external: true };
      });
    },
  };
  const program = await esbuild.build({
    ...cjs,
    entryPoints: ['src/cli/job.ts'],
    plugins: [lazy, sqliteBinding],
    define: { 'import.meta.url': '__moduleUrl' },
  });
  inputs.push(...Object.keys(program.metafile.inputs));
  // The wrapper is part of the file: the launcher compiles its text as it is.
  const text = `(function(exports,require,module,__filename,__moduleUrl){${program.outputFiles[0].text}\n})`;
  const name = `job-${hashOf(text)}.cjs`;
  return {
    files: [...libraries.values(), { path: `chunks/${name}`, text, mode: 0o644 }, { path: 'job.js', text: launcher(name), mode: 0o755 }],
    inputs,
  };
}

function hashOf(text) {
  return createHash('sha256').update(text).digest('hex').slice(0, 12);
}

function launcher(name) {
  return `#!/usr/bin/env node
'use strict';
const { readFileSync } = require('node:fs');
const { createRequire } = require('node:module');
const { pathToFileURL } = require('node:url');
const { Script } = require('node:vm');

const file = __dirname + '/chunks/${name}';

/** Code that V8 compiled from this very text, for this very V8; it refuses any other. */
function codeCache() {
  try {
    return readFileSync(file + '.' + process.versions.v8 + '-' + process.arch + '.cache');
  } catch {
    return undefined;
  }
}

const script = new Script(readFileSync(file, 'latin1'), { filename: file, cachedData: codeCache() });
const module_ = { exports: {} };
script.runInThisContext()(module_.exports, createRequire(file), module_, file, pathToFileURL(file).href);
`;
}

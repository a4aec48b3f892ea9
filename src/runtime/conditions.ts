import { canonicalJson } from '../core/canonical-json.ts';
import { ProofrunError } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { compileGlob } from '../policy/glob.ts';

/** A test of the arguments of a call. Total: what isn't of the kind that is asked about doesn't match. */
export type Condition = (args: JsonValue) => boolean;

const ABSENT = Symbol('absent');

/** Compiles one condition whose form the schema has checked. Everything that it states must hold. ERR_POLICY_FILE for a glob that is none. */
export function compileCondition(value: JsonObject, where: string): Condition {
  const steps = pointerSteps(typeof value['at'] === 'string' ? value['at'] : '');
  const tests: ((found: JsonValue) => boolean)[] = [];
  const text = (key: string, test: (found: string, wanted: string) => boolean): void => {
    const wanted = value[key];
    if (typeof wanted === 'string') tests.push((found) => typeof found === 'string' && test(found, wanted));
  };
  const number = (key: string, test: (found: number, wanted: number) => boolean): void => {
    const wanted = value[key];
    if (typeof wanted === 'number') tests.push((found) => typeof found === 'number' && test(found, wanted));
  };
  if (value['equals'] !== undefined) {
    const wanted = canonicalJson(value['equals']);
    tests.push((found) => canonicalJson(found) === wanted);
  }
  if (Array.isArray(value['one_of'])) {
    const wanted = new Set((value['one_of'] as readonly JsonValue[]).map((one) => canonicalJson(one)));
    tests.push((found) => wanted.has(canonicalJson(found)));
  }
  text('starts_with', (found, wanted) => found.startsWith(wanted));
  text('ends_with', (found, wanted) => found.endsWith(wanted));
  text('contains', (found, wanted) => found.includes(wanted));
  text('within', isWithinPath);
  number('at_least', (found, wanted) => found >= wanted);
  number('at_most', (found, wanted) => found <= wanted);
  const longest = value['longest'];
  if (typeof longest === 'number') tests.push((found) => (typeof found === 'string' || Array.isArray(found)) && found.length <= longest);
  const glob = value['matches'];
  if (typeof glob === 'string') {
    const compiled = compileGlob(glob);
    if (compiled.kind === 'error') throw new ProofrunError('ERR_POLICY_FILE', { message: `${where}: the glob ${JSON.stringify(glob)}: ${compiled.message}` });
    tests.push((found) => typeof found === 'string' && compiled.regex.test(found));
  }
  const exists = value['exists'];
  return (args) => {
    const found = valueAt(args, steps);
    if (typeof exists === 'boolean' && exists !== (found !== ABSENT)) return false;
    if (found === ABSENT) return tests.length === 0;
    return tests.every((test) => test(found));
  };
}

function pointerSteps(pointer: string): readonly string[] {
  return pointer === ''
    ? []
    : pointer
        .slice(1)
        .split('/')
        .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));
}

function valueAt(value: JsonValue, steps: readonly string[]): JsonValue | typeof ABSENT {
  let at: JsonValue = value;
  for (const step of steps) {
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, step) || (Array.isArray(at) && !/^(0|[1-9][0-9]*)$/.test(step))) return ABSENT;
    at = (at as JsonObject)[step] as JsonValue;
  }
  return at;
}

/** Both relative or both absolute, and below once `.` and `..` are taken out. A path that leaves its start, or holds NUL, is within nothing. */
function isWithinPath(path: string, directory: string): boolean {
  const inner = plainPath(path);
  const outer = plainPath(directory);
  if (inner === undefined || inner.absolute !== outer?.absolute) return false;
  return outer.names.every((name, index) => inner.names[index] === name);
}

function plainPath(path: string): { readonly absolute: boolean; readonly names: readonly string[] } | undefined {
  if (path === '' || path.includes('\0')) return undefined;
  const names: string[] = [];
  for (const name of path.split('/')) {
    if (name === '' || name === '.') continue;
    if (name !== '..') names.push(name);
    else if (names.pop() === undefined) return undefined;
  }
  return { absolute: path.startsWith('/'), names };
}

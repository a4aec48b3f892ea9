import { MOUNT, type OuterOperation } from '../../executors/shim/protocol.ts';
import { REMOVALS, type AlterContext, type Install } from './native-removals.ts';

export type Alteration = (install: Install, context: AlterContext) => Install;

function started(install: Install, change: (argv: readonly string[]) => readonly string[]): Install {
  return { ...install, operations: install.operations.map((one): OuterOperation => (one.op === 'start' ? { ...one, argv: change(one.argv) } : one)) };
}

/** Defences of the launch and of the root that no single control stands for. */
const OTHERS: ReadonlyMap<string, Alteration> = new Map<string, Alteration>([
  ['bubblewrap gets LD_PRELOAD', (install, { parameters }) => started(install, (argv) => ['/usr/bin/env', `LD_PRELOAD=${parameters['preload'] ?? ''}`, ...argv])],
  ['bubblewrap is searched on PATH', (install, { parameters }) => started(install, (argv) => ['/usr/bin/env', `PATH=${parameters['path'] ?? ''}`, 'bwrap', ...argv.slice(1)])],
  [
    'the host is shown by read-only binds',
    (install) => ({
      ...install,
      operations: install.operations.map((one): OuterOperation => {
        if (one.op !== 'overlay' || one.upper !== '') return one;
        const source = one.lowers.findLast((lower) => !lower.endsWith('/empty'));
        return source === undefined ? one : { op: 'bind', source, target: one.target, flags: MOUNT.readonly };
      }),
    }),
  ],
]);

/** Everything that a test may ask test/fixtures/native-driver.ts to change, by name. */
export const ALTERATIONS: ReadonlyMap<string, Alteration> = new Map<string, Alteration>([
  ...REMOVALS.map(({ control, how, alter }) => [`${control}: ${how}`, alter] as const),
  ...OTHERS,
]);

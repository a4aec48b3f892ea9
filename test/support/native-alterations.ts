import { MOUNT, PROBE, type OuterOperation } from '../../executors/shim/protocol.ts';
import { SYSCALLS } from '../../executors/shim/seccomp/index.ts';
import { REMOVALS, rootOf, type AlterContext, type Install } from './native-removals.ts';

export type Alteration = (install: Install, context: AlterContext) => Install;

function started(install: Install, change: (argv: readonly string[]) => readonly string[]): Install {
  return { ...install, operations: install.operations.map((one): OuterOperation => (one.op === 'start' ? { ...one, argv: change(one.argv) } : one)) };
}

/** Defences of the launch and of the root that no single control stands for. */
const OTHERS: ReadonlyMap<string, Alteration> = new Map<string, Alteration>([
  [
    'bubblewrap gets LD_PRELOAD',
    (install, { parameters }) => started(install, (argv) => ['/usr/bin/env', `LD_PRELOAD=${parameters['preload'] ?? ''}`, ...argv]),
  ],
  [
    'bubblewrap is searched on PATH',
    (install, { parameters }) => started(install, (argv) => ['/usr/bin/env', `PATH=${parameters['path'] ?? ''}`, 'bwrap', ...argv.slice(1)]),
  ],
  [
    'outer reads a named pipe on its way',
    (install, { parameters }) => ({
      ...install,
      operations: install.operations.flatMap((one): readonly OuterOperation[] =>
        one.op === 'start'
          ? [{ op: 'copy', source: parameters['pipe'] ?? '', path: `${rootOf(install)}/tmp/copied`, mode: 0o644, uid: -1, gid: -1 }, one]
          : [one],
      ),
    }),
  ],
  [
    'the command dials a port among its probes and waits there',
    (install, { parameters }) => ({
      ...install,
      settings: [
        ...install.settings,
        { set: 'probe', probe: { id: 'test.dial', kind: PROBE.tcp, subject: '127.0.0.1', args: [Number(parameters['port'])] } },
        // Without descriptors and without a time limit poll waits for ever.
        {
          set: 'probe',
          probe: { id: 'test.wait', kind: PROBE.syscall, subject: '', args: [SYSCALLS[process.arch === 'arm64' ? 'arm64' : 'x64']['ppoll'] ?? -1, 0, 0, 0, 0] },
        },
      ],
    }),
  ],
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

import { statSync } from 'node:fs';
import { locateShim } from '../../../executors/shim/locate.host.ts';
import { toSnake } from '../../core/case.ts';
import { CONTAINMENT_DIMENSIONS } from '../../core/dimension.ts';
import { EXIT_CODES, messageOf, ProofrunError } from '../../core/errors.ts';
import type { ExecutorCapabilities } from '../../core/plan.ts';
import { VERSION } from '../../core/version.ts';
import { openStore } from '../../store/index.ts';
import { callerFacts } from '../caller.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { executorRegistry } from '../executors.ts';
import { doctorText, type DoctorCheck } from '../report/doctor.ts';
import { jsonLine } from '../report/json.ts';
import { paletteFor } from '../report/palette.ts';

/** Looks at the machine and the installation. 0 when an executor passes --safe here, else 200. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const executors = await executorRegistry().all();
  const checks = [systemCheck(), shimCheck(), storeCheck(context)];
  const passSafe = executors.filter(canContain).map(({ executor }) => executor);
  if (args.flags.json === true) context.stdout.write(jsonLine(toSnake({ version: VERSION, passSafe, checks, executors })));
  else context.stdout.write(doctorText({ version: VERSION, checks, executors, passSafe, width: context.columns, palette: paletteFor(context, 'stdout') }));
  return passSafe.length > 0 && checks.every(({ ok }) => ok) ? 0 : EXIT_CODES.refused;
}

/** Whether everything that --safe always needs can be planned: reads, writes, no network, a contained tree. */
function canContain(executor: ExecutorCapabilities): boolean {
  const installs = ['mount_namespace', 'projected_root', 'staged_workspace', 'read_only_host', 'pid_namespace', 'no_new_privs', 'seccomp'] as const;
  return executor.available && executor.network.deny && executor.subprocess.contained && installs.every((control) => executor.controls.includes(control)) && !CONTAINMENT_DIMENSIONS.some((dimension) => executor.cooperative.includes(dimension));
}

function systemCheck(): DoctorCheck {
  const found = `${process.platform}-${process.arch}, Node ${process.versions.node}`;
  return process.platform === 'linux' ? { name: 'system', ok: true, found } : { name: 'system', ok: false, found, remedy: 'isolation needs Linux in this version' };
}

function shimCheck(): DoctorCheck {
  return checked('shim', () => {
    const path = locateShim();
    return `${path}, ${statSync(path).size} bytes`;
  });
}

function storeCheck(context: CliContext): DoctorCheck {
  return checked('store', () => {
    const store = openStore(callerFacts(context).stateDirectory, context.clock);
    const text = [store.file, ...store.warnings].join('; ');
    store.close();
    return text;
  });
}

function checked(name: string, look: () => string): DoctorCheck {
  try {
    return { name, ok: true, found: look() };
  } catch (error) {
    const remedy = error instanceof ProofrunError ? error.hint : undefined;
    return { name, ok: false, found: messageOf(error), ...(remedy === undefined ? {} : { remedy }) };
  }
}

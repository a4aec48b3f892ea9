import { statSync } from 'node:fs';
import { locateShim } from '../../../executors/shim/locate.host.ts';
import { admit } from '../../admission/admit.ts';
import { toSnake } from '../../core/case.ts';
import { EXIT_CODES, messageOf, ProofrunError } from '../../core/errors.ts';
import type { ExecutorCapabilities } from '../../core/plan.ts';
import { VERSION } from '../../core/version.ts';
import { openStore } from '../../store/index.ts';
import { callerFacts } from '../caller.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { executorRegistry } from '../executors.host.ts';
import { SAMPLE_SAFE_JOB } from '../sample-job.ts';
import { doctorText, type DoctorCheck } from '../report/doctor.ts';
import { jsonLine } from '../report/json.ts';
import { paletteFor } from '../report/palette.ts';

/** Looks at the machine and the installation. 0 when an executor passes --safe here, else 200. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const executors = await executorRegistry().all();
  const checks = [systemCheck(), shimCheck(), storeCheck(context)];
  const passSafe = executors.filter(passesSafe).map(({ executor }) => executor);
  if (args.flags.json === true) context.stdout.write(jsonLine(toSnake({ version: VERSION, passSafe, checks, executors })));
  else context.stdout.write(doctorText({ version: VERSION, checks, executors, passSafe, width: context.columns, palette: paletteFor(context, 'stdout') }));
  return passSafe.length > 0 && checks.every(({ ok }) => ok) ? 0 : EXIT_CODES.refused;
}

/** Whether admission lets the plainest job of --safe run on this executor. */
function passesSafe(executor: ExecutorCapabilities): boolean {
  return admit({ ...SAMPLE_SAFE_JOB, executor: executor.executor }, [executor]).kind === 'admitted';
}

function systemCheck(): DoctorCheck {
  const found = `${process.platform}-${process.arch}, Node ${process.versions.node}`;
  return process.platform === 'linux'
    ? { name: 'system', ok: true, found }
    : { name: 'system', ok: false, found, remedy: 'isolation needs Linux in this version' };
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

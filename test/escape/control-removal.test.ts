import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { existsSync } from 'node:fs';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { DIMENSIONS, type Dimension } from '../../src/core/dimension.ts';
import type { ResourceLimits } from '../../src/core/job.ts';
import type { ControlId, ExecutorCapabilities } from '../../src/core/plan.ts';
import { OWED } from '../../src/evidence/index.ts';
import type { NativeReport } from '../fixtures/native-driver.ts';
import type { SelectiveNetwork } from '../support/native-job.ts';
import { users } from '../support/accounts.ts';
import { apart, NativeDriver, NativeLab, type LabRun } from '../support/native-lab.host.ts';
import { compileText } from '../support/native-programs.host.ts';
import { REMOVALS, type Removal } from '../support/native-removals.ts';
import { describeUsers } from '../support/users.host.ts';

/** Keeps bubblewrap from setting no_new_privs, and nothing else. */
const PRELOAD = `
#define _GNU_SOURCE
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int prctl(int option, ...) {
  va_list list;
  va_start(list, option);
  unsigned long a = va_arg(list, unsigned long), b = va_arg(list, unsigned long), c = va_arg(list, unsigned long), d = va_arg(list, unsigned long);
  va_end(list);
  return option == PR_SET_NO_NEW_PRIVS ? 0 : (int)syscall(SYS_prctl, option, a, b, c, d);
}`;

const ASKED = DIMENSIONS.filter((dimension) => dimension !== 'models' && dimension !== 'tools');

function limitsFor(capabilities: ExecutorCapabilities): ResourceLimits {
  return {
    processes: 128,
    openFiles: 512,
    wallTimeMs: 60_000,
    tmpSizeBytes: 16 << 20,
    stageSizeBytes: 64 << 20,
    ...(capabilities.limits.memory ? { memoryBytes: 512 << 20 } : {}),
    ...(capabilities.limits.cpus ? { cpus: 2 } : {}),
  };
}

function levelsOf(report: NativeReport): Readonly<Record<string, string | undefined>> {
  return Object.fromEntries(ASKED.map((dimension) => [dimension, report.levels?.[dimension]]));
}

const without = (lost: readonly Dimension[]): Readonly<Record<string, string>> =>
  Object.fromEntries(ASKED.map((dimension) => [dimension, lost.includes(dimension) ? 'unenforced' : 'enforced']));

let preload = '';
beforeAll(() => {
  preload = compileText('no-new-privs-ignored.so', PRELOAD, ['-shared', '-fPIC']);
});

describeUsers('a control that is left out is noticed', (user) => {
  const own = new NativeLab(user);
  const { user: ordinary } = users();
  const other = user.kind === 'root' && typeof ordinary !== 'string' ? new NativeLab(user, ordinary) : own;
  let alone: NativeDriver | undefined;
  let capabilities: ExecutorCapabilities | undefined;
  beforeAll(async () => {
    for (const lab of new Set([own, other])) lab.write('.env', 'TOKEN=hidden\n');
    capabilities = await own.shared.capabilities();
    const through = apart(user);
    if (through !== undefined) alone = new NativeDriver(user, { through });
  });
  afterAll(async () => {
    await alone?.end();
    await Promise.all([own.dispose(), other.dispose()]);
  });

  const attempt = async (removal: Removal | undefined, mode: 'safe' | 'default', more: LabRun = {}) => {
    if (capabilities === undefined) throw new Error('no capabilities');
    const lab = removal?.ownedByUser === true ? other : own;
    const base = lab.nextBase();
    const driver = removal?.apart === true && alone !== undefined ? alone : lab.shared;
    const options: LabRun = {
      mode,
      limits: limitsFor(capabilities),
      hidden: [join(lab.workspace, '.env')],
      ...(removal?.network === undefined ? {} : { network: removal.network === 'public' ? 'public' : await selective() }),
      ...(removal?.secret === undefined ? {} : { secret: removal.secret }),
      ...(removal?.programs === undefined ? {} : { programs: removal.programs }),
      ...(removal === undefined ? {} : { alterations: [`${removal.control}: ${removal.how}`] }),
      parameters: { preload, target: join(base, 'target') },
      ...more,
    };
    const marker = `marker-${basename(base)}`;
    const report = await lab.run(['/bin/sh', '-c', `echo started; echo x > ${marker}`], options, driver, base);
    const marked = [join(base, 'upper'), join(base, 'scratch/elsewhere'), lab.workspace].some((place) => existsSync(join(place, marker)));
    return { report, marked, base };
  };

  test.each(['public', 'deny', 'selective'] as const)('nothing left out, network %s: every level is enforced, and the command runs', async (network) => {
    for (const mode of ['safe', 'default'] as const) {
      const { report, marked } = await attempt(undefined, mode, { network: network === 'selective' ? await selective() : network });
      expect(report.error).toBeUndefined();
      expect(report.unmet).toEqual([]);
      // A public network restricts nothing: there is nothing to enforce.
      expect(levelsOf(report)).toEqual(without(network === 'public' ? ['network'] : []));
      expect([report.decision, report.ending, report.stdout, marked]).toEqual([{ kind: 'release' }, { kind: 'exit', code: 0 }, 'started\n', true]);
    }
  });

  test.each(['none', ['sh']] as const)('nothing left out, programs: %s: every level is enforced, and the command runs', async (programs) => {
    const { report, marked } = await attempt(undefined, 'safe', { programs });
    expect([report.error, report.unmet, levelsOf(report)]).toEqual([undefined, [], without([])]);
    expect([report.ending, report.stdout, marked]).toEqual([{ kind: 'exit', code: 0 }, 'started\n', true]);
  });

  for (const removal of REMOVALS) {
    if (removal.only !== undefined && removal.only !== user.kind) continue;
    const lost = removal.lostAs?.[user.kind] ?? removal.lost;
    test(`${removal.control}: ${removal.how}`, async ({ skip }) => {
      if (removal.cgroup !== undefined && capabilities?.limits[removal.cgroup] !== true) skip(`no control group limits ${removal.cgroup} here`);
      if (removal.apart === true && alone === undefined) skip('only root can keep the altered shim from signalling processes of this user');
      const safe = await attempt(removal, 'safe');
      expect(safe.report.error).toBeUndefined();
      expect(safe.report.unmet.map((line) => line.split(' ')[0])).toEqual(expect.arrayContaining([...lost]));
      if (removal.atEnd === true || removal.network === 'public') expect(safe.report.decision).toEqual({ kind: 'release' });
      else {
        expect(safe.report.decision?.kind).toBe('refuse');
        expect([safe.report.stdout, safe.marked]).toEqual(['', false]);
      }
      const open = await attempt(removal, 'default');
      expect(open.report.error).toBeUndefined();
      expect([open.report.unmet, levelsOf(open.report)]).toEqual([open.report.unmet, without(lost)]);
      expect(open.report.stdout).toBe('started\n');
      const noticing =
        user.kind === 'user' && removal.noticedForUserBy !== undefined
          ? open.report.unmet.filter((line) => line.includes(` ${String(removal.noticedForUserBy)} `))
          : owedBy(removal.control, open.report);
      expect(noticing).not.toEqual([]);
      expect(existsSync(join(open.base, 'target'))).toBe(false);
    });
  }
});

/** One name, and one published port that nobody uses. */
async function selective(): Promise<SelectiveNetwork> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port: hostPort } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return { allow: [{ host: 'allowed.test' }], publish: [{ hostPort, jobPort: 3000 }] };
}

/** Unmet receipts that the table owes for a control, or that the lowering added to it. */
function owedBy(control: ControlId, report: NativeReport): readonly string[] {
  const owed = OWED[control].map(({ id }) => id);
  return report.unmet.filter((line) => {
    const id = line.split(' ')[1] ?? '';
    return (
      owed.some((one) => id === one || id.startsWith(`${one}:`)) ||
      (control === 'seccomp' && id.startsWith('probe.seccomp.')) ||
      (control === 'hidden_paths' && id.startsWith('probe.hidden:'))
    );
  });
}

describe('the table of removals', () => {
  /** Controls that the native executor doesn't list. */
  const NOWHERE: readonly ControlId[] = ['proxy_offered'];

  test('every control that owes a receipt is left out in at least one way', () => {
    const tried = new Set<ControlId>(REMOVALS.map(({ control }) => control));
    expect(Object.keys(OWED).filter((control) => !tried.has(control as ControlId))).toEqual(NOWHERE);
  });

  test('a control that is not left out anywhere is planned nowhere', async () => {
    for (const user of Object.values(users())) {
      if (typeof user === 'string') continue;
      const driver = new NativeDriver(user);
      const { controls } = await driver.capabilities();
      await driver.end();
      expect(controls.filter((control) => NOWHERE.includes(control))).toEqual([]);
    }
  });

  test('each way has a name of its own', () => {
    const names = REMOVALS.map(({ control, how }) => `${control}: ${how}`);
    expect(new Set(names).size).toBe(names.length);
  });
});

import { existsSync } from 'node:fs';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { DIMENSIONS, type Dimension } from '../../src/core/dimension.ts';
import type { ExecutorCapabilities } from '../../src/core/plan.ts';
import { users } from '../support/accounts.ts';
import { apart, NativeDriver, NativeLab } from '../support/native-lab.host.ts';
import { buildVariant } from '../support/native-shims.host.ts';
import { HARMLESS_VARIANT, SHIM_VARIANTS, type ShimVariant } from '../support/native-variants.ts';
import { describeUsers } from '../support/users.host.ts';

const ASKED = DIMENSIONS.filter((dimension) => dimension !== 'models' && dimension !== 'tools');
const without = (lost: readonly Dimension[]): Readonly<Record<string, string>> =>
  Object.fromEntries(ASKED.map((dimension) => [dimension, lost.includes(dimension) ? 'unenforced' : 'enforced']));

const built = new Map<string, string>();
const shimOf = (variant: Pick<ShimVariant, 'how' | 'file' | 'edits'>): string => {
  const path = built.get(variant.how) ?? buildVariant(variant);
  built.set(variant.how, path);
  return path;
};

/** A process is left behind for the end. */
const COMMAND = (marker: string): readonly [string, ...string[]] => ['/bin/sh', '-c', `echo x > ${marker}; sleep 300 > /dev/null 2>&1 & echo started`];

describeUsers('a shim that was built to install something else', (user) => {
  const own = new NativeLab(user);
  const { user: ordinary } = users();
  const other = user.kind === 'root' && typeof ordinary !== 'string' ? new NativeLab(user, ordinary) : own;
  let shared: NativeDriver | undefined;
  let capabilities: ExecutorCapabilities | undefined;
  beforeAll(async () => {
    for (const lab of new Set([own, other])) lab.write('.env', 'TOKEN=hidden\n');
    capabilities = await own.shared.capabilities();
    const through = apart(user, '/bin/sh', '-c', 'mount --make-rshared / && exec "$@"', 'sh');
    if (through !== undefined) shared = new NativeDriver(user, { through });
  });
  afterAll(async () => {
    await shared?.end();
    await Promise.all([own.dispose(), other.dispose()]);
  });

  const attempt = async (
    variant: Pick<ShimVariant, 'how' | 'file' | 'edits' | 'ownedByUser' | 'sharedMounts' | 'programs'> | undefined,
    mode: 'safe' | 'default',
  ) => {
    const lab = variant?.ownedByUser === true ? other : own;
    const base = lab.nextBase();
    const marker = `marker-${basename(base)}`;
    const report = await lab.run(
      COMMAND(marker),
      {
        mode,
        limits: { processes: 128, openFiles: 2048, wallTimeMs: 60_000, tmpSizeBytes: 16 << 20 },
        hidden: [join(lab.workspace, '.env')],
        ...(variant?.programs === undefined ? {} : { programs: variant.programs }),
        shim: variant === undefined ? undefined : shimOf(variant),
      },
      variant?.sharedMounts === true && shared !== undefined ? shared : lab.shared,
      base,
    );
    const levels = Object.fromEntries(ASKED.map((dimension) => [dimension, report.levels?.[dimension]]));
    return { report, levels, marked: existsSync(join(base, 'upper', marker)) };
  };

  test('the shim as it is: everything is enforced', async () => {
    const { report, levels, marked } = await attempt(undefined, 'safe');
    expect([report.error, report.unmet, levels, marked]).toEqual([undefined, [], without([]), true]);
    expect(report.killed).toHaveLength(1);
  });

  test('no_new_privs is left to bubblewrap', async () => {
    const { report, levels } = await attempt(HARMLESS_VARIANT, 'safe');
    expect([report.error, report.unmet, levels]).toEqual([undefined, [], without([])]);
  });

  for (const variant of SHIM_VARIANTS) {
    if (variant.only !== undefined && variant.only !== user.kind) continue;
    test(`${variant.control}: ${variant.how}`, async ({ skip }) => {
      if (variant.cgroup !== undefined && capabilities?.limits[variant.cgroup] !== true) skip(`no control group limits ${variant.cgroup} here`);
      if (variant.sharedMounts === true && shared === undefined) skip('only root can share mounts in a namespace apart');
      const safe = await attempt(variant, 'safe');
      expect(safe.report.error).toBeUndefined();
      expect(safe.report.decision?.kind).toBe(variant.atEnd === true ? 'release' : 'refuse');
      expect([safe.marked, safe.report.stdout]).toEqual(variant.atEnd === true ? [true, 'started\n'] : [false, '']);
      const open = await attempt(variant, 'default');
      expect([open.report.unmet, open.levels]).toEqual([open.report.unmet, without(variant.lost)]);
      expect(open.marked).toBe(true);
    });
  }
});

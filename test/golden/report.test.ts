import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { ProofrunError } from '../../src/core/errors.ts';
import { perDimension } from '../../src/core/dimension.ts';
import type { RunBundle } from '../../src/core/bundle.ts';
import type { Refusal } from '../../src/core/plan.ts';
import { applyRefusalText } from '../../src/cli/report/apply-refusal.ts';
import { columnsOf } from '../../src/cli/report/layout.ts';
import { reviewMarkdown } from '../../src/cli/report/markdown.ts';
import { PLAIN } from '../../src/cli/report/palette.ts';
import { refusalText } from '../../src/cli/report/refusal.ts';
import { reviewText, type ReviewInput } from '../../src/cli/report/review.ts';
import { summaryText, type SummaryInput } from '../../src/cli/report/summary.ts';
import { change, changeSet, facts, HOME, shopBundle, SHOP_CHANGES, WORKSPACE } from '../support/bundle-fixture.ts';

// The texts show times of day. `npx vitest run test/golden/report.test.ts -u` writes the files again.
beforeAll(() => {
  process.env['TZ'] = 'UTC';
});

function golden(name: string): string {
  return join(import.meta.dirname, 'report', name);
}

function summaryOf(bundle: RunBundle, more: Partial<SummaryInput> = {}): string {
  return summaryText({
    bundle,
    argv: ['run', '--safe', '--', 'npm', 'test'],
    words: ['npm', 'test'],
    cwd: WORKSPACE,
    home: HOME,
    selector: 'last',
    width: 80,
    palette: PLAIN,
    ...more,
  });
}

/** Of a run in which nothing was launched. */
function nothingObserved(): Pick<RunBundle, 'executorObservations' | 'safety'> {
  const base = shopBundle();
  const none = { matched: 0, owed: 0 };
  return {
    executorObservations: {
      ...base.executorObservations,
      executor: 'none',
      dimensions: perDimension(() => ({ level: 'unenforced', scope: 'nothing was observed', outcomes: [] })),
    },
    safety: {
      ...base.safety,
      dimensions: perDimension((dimension) => ({
        ...base.safety.dimensions[dimension],
        needed: dimension === 'network',
        planned: 'unsupported',
        observed: 'unenforced',
        installed: none,
        probes: none,
      })),
      enforced: [],
      unenforced: base.safety.enforced,
      missing: ['network'],
      promise: 'refused',
    },
  };
}

function reviewInput(bundle: RunBundle, more: Partial<ReviewInput> = {}): ReviewInput {
  return {
    bundle,
    verification: { ok: true, problems: [] },
    changes: bundle.changes,
    stage: 'staged',
    selector: 'last',
    cwd: WORKSPACE,
    home: HOME,
    width: 80,
    palette: PLAIN,
    ...more,
  };
}

/** No line is wider than the terminal, and nothing that a terminal would act on or hide is in it. */
function expectFits(text: string, width: number): void {
  for (const line of text.split('\n')) expect(columnsOf(line), line).toBeLessThanOrEqual(width);
  expect(text.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u);
}

describe('the example of the design', () => {
  test('the lines after a run', async () => {
    const text = summaryOf(shopBundle());
    expectFits(text, 80);
    await expect(text).toMatchFileSnapshot(golden('summary.txt'));
  });

  test('the review', async () => {
    const text = reviewText(reviewInput(shopBundle()));
    expectFits(text, 80);
    await expect(text).toMatchFileSnapshot(golden('review.txt'));
  });

  test('the review on a narrow terminal', async () => {
    const text = reviewText(reviewInput(shopBundle(), { width: 48 }));
    expectFits(text, 48);
    await expect(text).toMatchFileSnapshot(golden('review-48.txt'));
  });

  test('the review for a pull request', async () => {
    await expect(reviewMarkdown(reviewInput(shopBundle()))).toMatchFileSnapshot(golden('review.md'));
  });

  test('a conflict, and the same apply with what it lacks', async () => {
    const facts_ = {
      stagedSha256: `4e1f${'0'.repeat(60)}`,
      hereSha256: `77b0${'0'.repeat(60)}`,
      stagedTimeMs: Date.UTC(2026, 11, 1, 9, 41, 12),
      hereTimeMs: Date.UTC(2026, 11, 1, 9, 44, 50),
    };
    const conflict = new ProofrunError('ERR_STAGE_CONFLICT', {
      message: 'm',
      data: { paths: [{ path: 'src/cart.ts', encoding: 'utf8', reason: 'changed after the run began', ...facts_ }, 'odd', { path: 7 }] },
    });
    const look = { argv: ['apply', 'last', '--path', 'a b'], selector: 'last', width: 110, palette: PLAIN };
    await expect(applyRefusalText({ ...look, error: conflict })).toMatchFileSnapshot(golden('conflict.txt'));
    const executes = new ProofrunError('ERR_STAGE_EXECUTES', {
      message: '.husky/pre-commit would run by itself on your machine: git\nnothing was applied',
      hint: '--allow-exec .husky/pre-commit',
    });
    expect(applyRefusalText({ ...look, error: executes })).toBe(
      "job: .husky/pre-commit would run by itself on your machine: git\nnothing was applied\n     job apply last --path 'a b' --allow-exec .husky/pre-commit\n",
    );
    expect(applyRefusalText({ ...look, error: new ProofrunError('ERR_RUN_STATE', { message: 'm' }) })).toBeUndefined();
  });

  const refusal: Refusal = {
    reason: 'no executor here can enforce what --safe needs',
    rows: [
      {
        dimension: 'network',
        needed: '2 hosts, else deny',
        planned: 'unsupported',
        missing: 'selective networks; only public and deny exist',
        couldEnforce: [],
        change: { command: 'job run --safe --no-net -- npm ci', givesUp: 'all network access of the command' },
      },
    ],
  };

  test('a refusal', async () => {
    const text = refusalText({
      refusal,
      argv: ['npm', 'ci'],
      mode: 'safe',
      runId: shopBundle().run.id,
      width: 80,
      palette: PLAIN,
    });
    expectFits(text, 80);
    await expect(text).toMatchFileSnapshot(golden('refusal.txt'));
  });

  test('the review of a refused job', async () => {
    const base = shopBundle();
    const bundle = shopBundle({
      run: { ...base.run, state: 'refused', ending: { kind: 'refused', detail: refusal.reason }, executor: null, attempt: null, startedMs: null },
      plan: null,
      refusal,
      changes: null,
      ...nothingObserved(),
    });
    const text = reviewText(reviewInput(bundle, { stage: 'none' }));
    expectFits(text, 80);
    await expect(text).toMatchFileSnapshot(golden('review-refused.txt'));
    await expect(reviewMarkdown(reviewInput(bundle, { stage: 'none' }))).toMatchFileSnapshot(golden('review-refused.md'));
  });
});

test('colour changes nothing but colour', () => {
  const mark = (text: string): string => `\x1b[1m${text}\x1b[22m`;
  const palette = { bold: mark, dim: mark, good: mark, bad: mark, warn: mark };
  const bundle = shopBundle({ warnings: ['a warning'] });
  for (const width of [46, 80]) {
    // eslint-disable-next-line no-control-regex -- taking the colour out again
    const plain = (text: string): string => text.replace(/\x1b\[\d+m/g, '');
    expect(plain(reviewText(reviewInput(bundle, { width, palette })))).toBe(reviewText(reviewInput(bundle, { width })));
    expect(plain(summaryOf(bundle, { width, palette }))).toBe(summaryOf(bundle, { width }));
  }
});

describe('runs that went otherwise', () => {
  test('default mode with nothing enforced names it', async () => {
    const base = shopBundle();
    const bundle: RunBundle = {
      ...base,
      run: { ...base.run, mode: 'default', executor: 'host', ending: { kind: 'signal', signal: 'SIGTERM', number: 15 } },
      safety: {
        ...base.safety,
        enforced: [],
        unenforced: ['file_read', 'file_write', 'subprocess'],
        cooperative: ['network'],
        notAsked: ['models', 'tools', 'credentials', 'resources'],
        promise: 'none',
      },
      warnings: ['file reads are not enforced: the host executor has no isolation', 'two', 'three', 'four'],
      discarded: null,
      network: { ...base.network, destinations: null, denied: null, allowed: null, failed: null, bytesOut: null },
    };
    const text = summaryOf(bundle, { argv: ['run', '--', 'npm', 'test'] });
    expectFits(text, 80);
    await expect(text).toMatchFileSnapshot(golden('summary-host.txt'));
  });

  test('a receipt that differs is named, with what was expected and received', async () => {
    const base = shopBundle();
    const outcome = { id: 'probe.file_write.etc', control: 'read_only_host', phase: 'gate', kind: 'probe', status: 'differs' } as const;
    const bundle: RunBundle = {
      ...base,
      run: { ...base.run, state: 'failed', ending: { kind: 'evidence_missing', detail: 'file writes: probe.file_write.etc' }, startedMs: null },
      changes: null,
      executorObservations: {
        ...base.executorObservations,
        dimensions: perDimension((dimension) =>
          dimension === 'file_write' ? { level: 'unenforced', scope: '', outcomes: [outcome] } : base.executorObservations.dimensions[dimension],
        ),
        requirements: [
          { id: outcome.id, dimension: 'file_write', control: outcome.control, phase: 'gate', expect: { kind: 'refused', errnos: ['EROFS', 'EACCES'] } },
        ],
        receipts: [{ id: outcome.id, kind: 'probe', source: 'shim', phase: 'gate', readFrom: 'open(/etc/.proofrun-probe, O_CREAT)', value: 'ok' }],
      },
      safety: {
        ...base.safety,
        enforced: base.safety.enforced.filter((dimension) => dimension !== 'file_write'),
        missing: ['file_write'],
        unenforced: ['file_write'],
        promise: 'broken',
        dimensions: {
          ...base.safety.dimensions,
          file_write: { ...base.safety.dimensions.file_write, observed: 'unenforced', installed: { matched: 8, owed: 9 } },
        },
      },
    };
    const text = reviewText(reviewInput(bundle, { stage: 'none', verification: { ok: false, problems: ['safety.promise: recorded kept, derived broken'] } }));
    expectFits(text, 80);
    await expect(text).toMatchFileSnapshot(golden('review-evidence-missing.txt'));
  });

  test('null is a dash and 0 is a 0', () => {
    const base = shopBundle();
    const text = reviewText(
      reviewInput(shopBundle({ discarded: null, network: { ...base.network, allowed: null, denied: 0, failed: null, bytesOut: null, destinations: null } })),
    );
    expect(text).toContain('NETWORK    allowed -   denied 0   failed -   bytes out -');
    expect(text).toContain('DISCARDED  -\n');
  });
});

describe('what a job chose', () => {
  const hostile = [
    change('added', 'new\nline\x1b[2J', 1, 0),
    change('added', 'src/\u202egnp.exe', 1, 0),
    change('added', `${'n'.repeat(255)}.txt`, 1, 0, { executes: 'git runs it' }),
    change('added', Buffer.from([0x61, 0xff, 0x62]).toString('base64'), 1, 0, { encoding: 'base64' }),
    change('added', 'link', null, null, { leavesRoot: true, after: { ...facts(9, '', 'symlink'), target: '/etc/\x1b]0;owned\x07' } }),
    change('added', 'a|b`c`<script>@everyone', 1, 0),
  ];
  const base = shopBundle();
  const bundle = shopBundle({
    run: { ...base.run, argv: ['sh', '-c', 'printf "\x1b[31m\n\u202e"'], ending: { kind: 'control_lost', detail: 'x\x1b[2Jy\nz' } },
    changes: changeSet(hostile),
    warnings: ['bad\rwarning\x9b31m'],
    killed: [{ pid: 7, name: '\x1b[8mhidden' }],
    credentials: { visible: ['A\nB'], agentSockets: [], injected: [] },
    hostPaths: { readable: [{ path: '/a\nb', access: 'read_only' }], hidden: [{ path: `${WORKSPACE}/\x07`, rule: 'x' }], possiblyRead: ['/p\x08'] },
    directShares: [{ path: '/d\x1b', origin: '--write-direct \x1b' }],
  });

  test('never reaches the terminal as it is', async () => {
    for (const width of [46, 80]) {
      expectFits(reviewText(reviewInput(bundle, { width })), width);
      expectFits(summaryOf(bundle, { width }), width);
    }
    await expect(reviewText(reviewInput(bundle))).toMatchFileSnapshot(golden('review-hostile.txt'));
  });

  test('shows every character of a long path', () => {
    const text = reviewText(reviewInput(bundle));
    expect(text.replace(/[^n]/g, '').length).toBeGreaterThanOrEqual(255);
  });

  test('stays inside its code span in Markdown', async () => {
    const text = reviewMarkdown(reviewInput(bundle));
    // eslint-disable-next-line no-control-regex -- that none is there is the point
    expect(text).not.toMatch(/\x1b|\u202e|\x07/);
    expect(text).toContain('`` a\\|b`c`<script>@everyone ``');
    await expect(text).toMatchFileSnapshot(golden('review-hostile.md'));
  });
});

describe('many changes', () => {
  test('directories collapse from 21 rows on, and not before', () => {
    const twenty = Array.from({ length: 20 }, (_, index) => change('added', `lib/f${String(index).padStart(2, '0')}`, 1, 0));
    const rest = [change('modified', 'a', 1, 1)];
    const shown = reviewText(reviewInput(shopBundle({ changes: changeSet([...twenty, ...rest]) })));
    expect(shown).toContain('lib/f19');
    const one = reviewText(reviewInput(shopBundle({ changes: changeSet([...twenty, change('added', 'lib/f20', 1, 0), ...rest]) })));
    expect(one).not.toContain('lib/f19');
    expect(one).toMatch(/^ {2}A lib\/ +\+21 +21 entries$/m);
  });

  test('ten thousand stay readable, and what the host would run is still first', async () => {
    const many = Array.from({ length: 10_000 }, (_, index) => change('added', `node_modules/p${String(index % 400)}/lib/f${String(index)}.js`, 3, 0));
    const loose = Array.from({ length: 300 }, (_, index) => change('added', `f${String(index).padStart(3, '0')}`, 1, 0));
    const started = performance.now();
    const text = reviewText(reviewInput(shopBundle({ changes: changeSet([...many, ...loose, ...SHOP_CHANGES]) })));
    expect(performance.now() - started).toBeLessThan(2000);
    expect(text.split('\n').length).toBeLessThan(260);
    await expect(text.slice(text.indexOf('CHANGES')).split('\n').slice(0, 4).join('\n')).toMatchFileSnapshot(golden('review-10000.txt'));
    expect(text).toMatch(/node_modules\/ +\+30000 +10,000 entries/);
    expect(text).toMatch(/and 105 more: job diff last --stat/);
  });
});

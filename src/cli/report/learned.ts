import type { DestinationCounters, RunBundle } from '../../core/bundle.ts';
import type { EffectiveJob } from '../../core/job.ts';
import { safeLine } from '../../core/text-safety.ts';
import { formatHostRule, parseHostRule } from '../../policy/host-rule.ts';

/**
 * The job with a network that is recorded: what the rules allow is allowed, everything else is refused and counted. A network that
 * nobody restricted, or that is closed, has no rules: all of it is refused.
 */
export function recordedNetwork(job: EffectiveJob): EffectiveJob {
  const { network } = job.permissions;
  if (network.kind === 'selective') return job;
  return { ...job, permissions: { ...job.permissions, network: { ...network, requested: true, kind: 'selective', defaultAllow: false } } };
}

export interface Learned {
  /** A profile, as `--use FILE` takes it. */
  readonly text: string;
  readonly hosts: number;
}

/** A profile of the hosts that a run asked for and did not get. What can't be written as a rule is a comment. */
export function learnedProfile(bundle: Pick<RunBundle, 'run' | 'network'>): Learned {
  const denied = (bundle.network.destinations ?? []).filter((one) => (one.denied ?? 0) > 0);
  const rules = new Map<string, { readonly ports: Set<number>; times: number }>();
  const left: DestinationCounters[] = [];
  for (const one of denied) {
    const parsed = parseHostRule({ host: one.host, ...(one.port === null ? {} : { ports: [one.port] }) }, 'allow', { layer: 'profile', name: 'learned' });
    if (parsed.kind === 'error') {
      left.push(one);
      continue;
    }
    const { rule } = parsed;
    const known = rules.get(rule.host) ?? { ports: new Set<number>(), times: 0 };
    for (const port of rule.ports ?? []) known.ports.add(port);
    known.times += one.denied ?? 0;
    rules.set(rule.host, known);
  }
  const lines = [...rules]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([host, { ports, times }]) => {
      const kind = /[/]/.test(host) ? 'cidr' : 'name';
      const text = formatHostRule({ kind, host, ports: [...ports].sort((a, b) => a - b) }, 'allow');
      return `      - ${JSON.stringify(text)} # ${times === 1 ? 'once' : `${String(times)} times`}`;
    });
  const command = safeLine(bundle.run.argv.join(' '), 200);
  return {
    hosts: rules.size,
    text: [
      `# What ${JSON.stringify(command)} asked of the network in ${bundle.run.id} and did not get. Read it, take out what isn't wanted, then:`,
      '#   job run --use THIS-FILE -- ...',
      '# Of a name that was refused no port is known: it stands for 80 and 443. Connections to ports that no rule names are counted only in',
      `# total: ${bundle.network.kernelRefused === null ? 'not observed' : String(bundle.network.kernelRefused)}. What comes after a refused connection shows when it is allowed: learn again with this file in use.`,
      '# Files and programs: not observed, so nothing is said of them here.',
      'version: 1',
      'name: learned',
      'permissions:',
      '  network:',
      lines.length === 0 ? '    allow: []' : '    allow:',
      ...lines,
      ...left.map((one) => `      # no rule can name ${JSON.stringify(safeLine(one.host, 100))}`),
      '',
    ].join('\n'),
  };
}

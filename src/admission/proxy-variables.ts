import type { EffectiveJob } from '../core/job.ts';

/** What is never asked of a proxy: the job's own loopback. */
const DIRECT = 'localhost,127.0.0.1,::1';

/**
 * The variables of clients that use a proxy by configuration, for a network that is open for chosen hosts; the network itself needs none of
 * them. Names differ in case from program to program, so each is set twice. A proxy of the caller's own can't be reached from inside.
 */
export function proxyVariables(url: string): Readonly<Record<string, string>> {
  const values = { http_proxy: url, https_proxy: url, all_proxy: url, no_proxy: DIRECT };
  return Object.fromEntries(
    Object.entries(values).flatMap(([name, value]) => [
      [name, value],
      [name.toUpperCase(), value],
    ]),
  );
}

/** The job with those variables in its environment, sorted by name as before. */
export function withProxyVariables(job: EffectiveJob, url: string): EffectiveJob {
  const { credentials } = job.permissions;
  const environment = Object.fromEntries(
    Object.entries({ ...credentials.environment, ...proxyVariables(url) }).sort(([a], [b]) => (a < b ? -1 : Number(a > b))),
  );
  return { ...job, permissions: { ...job.permissions, credentials: { ...credentials, environment } } };
}

import { errnoOf, messageOf } from '../../src/core/errors.ts';
import { formatEndpoint, type ChosenEndpoint } from './endpoint.ts';

/** Why an engine can't be used, and what would help. */
export interface Obstacle {
  readonly reason: string;
  readonly remedy: string;
}

/** The oldest API that has everything that is used here: Docker 20.10, from December 2020. */
export const OLDEST_API = '1.41';
/** The newest one that this code was written for; an engine that knows more speaks this. */
export const NEWEST_API = '1.47';

/** Compares `1.41` and `1.9` as numbers, part by part. Undefined: one of them is no version. */
export function compareVersions(a: string, b: string): number | undefined {
  const parts = [a, b].map((text) => /^(\d+)\.(\d+)$/.exec(text));
  const [left, right] = parts;
  if (left === null || left === undefined || right === null || right === undefined) return undefined;
  return Number(left[1]) - Number(right[1]) || Number(left[2]) - Number(right[2]);
}

/** The API version to speak with an engine that offers `engine` (and no lower than `oldest` of its own); or why there is none. */
export function negotiate(engine: string, oldest: string | undefined): { readonly version: string } | Obstacle {
  const order = compareVersions(engine, OLDEST_API);
  if (order === undefined) return { reason: `the engine names no API version: ${JSON.stringify(engine)}`, remedy: 'see what answers there: docker version' };
  if (order < 0) {
    return { reason: `the engine speaks API ${engine}, and ${OLDEST_API} is needed`, remedy: 'install Docker 20.10 or later' };
  }
  if (oldest !== undefined && (compareVersions(oldest, NEWEST_API) ?? 0) > 0) {
    return { reason: `the engine speaks no API older than ${oldest}, and this version of Proofrun ${NEWEST_API} at most`, remedy: 'install a later Proofrun' };
  }
  return { version: (compareVersions(engine, NEWEST_API) ?? 0) > 0 ? NEWEST_API : engine };
}

/** What a connection that failed means, by the errno of connect(2) or the words of TLS. */
export function explainFailure(error: unknown, chosen: ChosenEndpoint): Obstacle {
  const where = `${formatEndpoint(chosen.endpoint)} (${chosen.from})`;
  const errno = errnoOf(error);
  const said = messageOf(error);
  if (chosen.endpoint.kind === 'unix') {
    if (errno === 'ENOENT') {
      return { reason: `no engine listens at ${where}: there is no such socket`, remedy: 'start the engine (systemctl start docker), or set DOCKER_HOST' };
    }
    if (errno === 'ECONNREFUSED') {
      return { reason: `no engine listens at ${where}: the socket is there, and nobody answers`, remedy: 'systemctl restart docker' };
    }
    if (errno === 'EACCES' || errno === 'EPERM') {
      return {
        reason: `this user may not use ${where}`,
        remedy: 'sudo usermod -aG docker $USER and log in again (members of that group can become root), or run a rootless engine',
      };
    }
  }
  if (errno === 'ENOTFOUND' || errno === 'EAI_AGAIN') {
    return { reason: `${where}: the host's name is not known`, remedy: 'check DOCKER_HOST, or docker context ls' };
  }
  if (/certificate|self.signed|TLS|SSL|alert/i.test(said)) {
    return { reason: `${where}: TLS failed: ${said}`, remedy: 'check DOCKER_CERT_PATH: ca.pem, cert.pem and key.pem of this engine' };
  }
  if (/HTTP.*HTTPS|Client sent an HTTP request/i.test(said)) {
    return { reason: `${where}: the engine wants TLS`, remedy: 'set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH' };
  }
  if (chosen.endpoint.kind === 'ssh') return { reason: `${where}: ${said}`, remedy: `try by hand: ssh ${chosen.endpoint.destination} docker version` };
  return { reason: `no engine answers at ${where}: ${said}`, remedy: 'start the engine, or set DOCKER_HOST' };
}

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

export interface RegistryAuth {
  readonly username: string;
  readonly password: string;
  readonly serveraddress: string;
}

/** A registry's name in an image reference: the first part when it looks like a host, else Docker Hub's. */
export function registryOf(reference: string): string {
  const [first, ...rest] = reference.split('/');
  return rest.length > 0 && first !== undefined && (/[.:]/.test(first) || first === 'localhost') ? first : 'https://index.docker.io/v1/';
}

function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name) ? (value as Record<string, unknown>)[name] : undefined;
}

/**
 * What `docker login` kept for the registry of an image: in config.json, or with the helper that it names. Undefined: nothing, and the engine
 * asks without a name. A helper's name is part of a program's name, so only plain words are taken.
 */
export function registryAuth(reference: string, environment: NodeJS.ProcessEnv, home: string): RegistryAuth | undefined {
  const registry = registryOf(reference);
  let config: unknown;
  try {
    config = JSON.parse(readFileSync(join(environment['DOCKER_CONFIG'] ?? join(home, '.docker'), 'config.json'), 'utf8'));
  } catch {
    return undefined;
  }
  const helper = member(member(config, 'credHelpers'), registry) ?? member(config, 'credsStore');
  if (typeof helper === 'string' && /^[A-Za-z0-9_-]+$/.test(helper)) {
    const answer = spawnSync(`docker-credential-${helper}`, ['get'], { input: registry, encoding: 'utf8', timeout: 10_000 });
    try {
      const value: unknown = JSON.parse(answer.stdout);
      const username = member(value, 'Username');
      const password = member(value, 'Secret');
      if (typeof username === 'string' && typeof password === 'string') return { username, password, serveraddress: registry };
    } catch {
      // No answer of its own: what config.json holds, if anything.
    }
  }
  const auth = member(member(member(config, 'auths'), registry), 'auth');
  if (typeof auth !== 'string') return undefined;
  const decoded = Buffer.from(auth, 'base64').toString('utf8');
  const colon = decoded.indexOf(':');
  return colon <= 0 ? undefined : { username: decoded.slice(0, colon), password: decoded.slice(colon + 1), serveraddress: registry };
}

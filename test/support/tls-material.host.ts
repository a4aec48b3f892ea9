import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A key and a certificate of its own for any number of names, made once a test file. */
export function selfSigned(names: readonly string[]): { readonly key: string; readonly cert: string } {
  const directory = mkdtempSync(join(tmpdir(), 'proofrun-tls-'));
  try {
    const [key, cert] = [join(directory, 'key'), join(directory, 'cert')];
    execFileSync(
      'openssl',
      [
        ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-keyout', key, '-out', cert],
        ...['-subj', `/CN=${names[0] ?? 'test'}`, '-addext', `subjectAltName=${names.map((name) => `DNS:${name}`).join(',')}`],
      ],
      { stdio: 'pipe' },
    );
    return { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') };
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

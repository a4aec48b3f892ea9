import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { errnoOf, messageOf, ProofrunError } from '../../../src/core/errors.ts';
import { parseProgram } from '../../shim/elf.ts';

/** Where distributions install it. */
const PLACES: readonly string[] = ['/bin/busybox', '/usr/bin/busybox', '/sbin/busybox', '/usr/sbin/busybox'];

export interface FoundBusybox {
  readonly path: string;
  readonly program: Buffer;
  readonly applets: readonly string[];
  /** `1.35.0`; empty when it doesn't say. */
  readonly version: string;
  readonly architecture: string | undefined;
  readonly sha256: string;
}

const INSTALL = 'apt-get install -y busybox-static    or    job image build --rootfs FILE.tar';

/** The static busybox of this machine. Throws ERR_IMAGE_SOURCE. `places` are looked at in order. */
export async function findBusybox(places: readonly string[] = PLACES): Promise<FoundBusybox> {
  let unsuitable: string | undefined;
  for (const path of places) {
    let program: Buffer;
    try {
      program = readFileSync(path);
    } catch (error) {
      if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENOTDIR') continue;
      unsuitable ??= `${path} can't be read: ${messageOf(error)}`;
      continue;
    }
    const facts = parseProgram(program.subarray(0, 64 << 10));
    if (facts?.isStatic !== true) {
      unsuitable ??= `${path} is ${facts === undefined ? 'no program' : 'not a static program, so it would not run in an image of its own'}`;
      continue;
    }
    return { path, program, ...(await ask(path)), architecture: facts.architecture, sha256: createHash('sha256').update(program).digest('hex') };
  }
  throw new ProofrunError('ERR_IMAGE_SOURCE', {
    message: unsuitable ?? `no busybox is installed (looked for ${places.join(', ')})`,
    hint: INSTALL,
  });
}

async function ask(path: string): Promise<{ readonly applets: readonly string[]; readonly version: string }> {
  const run = promisify(execFile);
  try {
    const [list, help] = await Promise.all([
      run(path, ['--list-full'], { env: {}, cwd: '/', timeout: 10_000 }),
      run(path, ['--help'], { env: {}, cwd: '/', timeout: 10_000 }),
    ]);
    return { applets: list.stdout.split('\n').filter((line) => line !== ''), version: /BusyBox v([0-9.]+)/.exec(help.stdout)?.[1] ?? '' };
  } catch (cause) {
    throw new ProofrunError('ERR_IMAGE_SOURCE', { message: `${path} does not run: ${messageOf(cause)}`, hint: INSTALL, cause });
  }
}

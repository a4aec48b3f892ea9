import { linkSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { extract } from 'tar-stream';

/** What a download must not be: names are joined to the target and links are followed. The control arm of the hostile archives. */
export async function naiveUntar(bytes: Buffer, target: string): Promise<void> {
  const reader = extract();
  reader.on('entry', (header, stream, next) => {
    const chunks: Buffer[] = [];
    stream.on('data', (chunk) => {
      if (Buffer.isBuffer(chunk)) chunks.push(chunk);
    });
    stream.on('end', () => {
      const path = header.name.startsWith('/') ? header.name : join(target, header.name);
      try {
        mkdirSync(dirname(path), { recursive: true });
        if (header.type === 'directory') mkdirSync(path, { recursive: true });
        else if (header.type === 'symlink') symlinkSync(header.linkname, path);
        else if (header.type === 'link') linkSync(header.linkname.startsWith('/') ? header.linkname : join(target, header.linkname), path);
        else writeFileSync(path, Buffer.concat(chunks));
      } catch {
        // A careless program goes on.
      }
      next();
    });
  });
  await pipeline(Readable.from([bytes]), reader);
}

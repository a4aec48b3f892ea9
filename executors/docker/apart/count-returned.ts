import type { SessionClosing } from '../../../src/executor/executor.ts';
import { DEFAULT_LIMITS, type Manifest } from '../transfer/index.ts';
import { createTarReader } from '../transfer/tar-reader.ts';
import { createTreeCheck } from '../transfer/tree-check.ts';

const TRAILING_BYTES = 1 << 20;
/** Entries of the account; the rest are in the totals. */
const MOST_NAMED = 5;

/**
 * Counts the regular files of a tree that came back, less those that were sent and kept their size and time. Contents are read past. What
 * comes is hostile: throws what a tree check throws.
 */
export async function countReturned(stream: AsyncIterable<unknown> & { destroy(): unknown }, sent: Manifest | undefined): Promise<SessionClosing['discarded']> {
  const reader = createTarReader({ paxBytes: DEFAULT_LIMITS.paxBytes, trailingBytes: TRAILING_BYTES });
  const check = createTreeCheck(DEFAULT_LIMITS);
  const tops = new Map<string, number>();
  let files = 0;
  let bytes = 0;
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      for (const event of reader.take(chunk)) {
        if (event.kind !== 'entry') continue;
        const { path, entry } = check.place(event.entry);
        if (entry.type !== 'file') continue;
        const before = sent?.entries.get(path);
        if (before?.type === 'file' && before.size === entry.size && before.mtime.seconds === entry.mtime.seconds) continue;
        files += 1;
        bytes += entry.linkOf === undefined ? entry.size : 0;
        const top = Buffer.from(path.split('/')[0] ?? '', 'latin1').toString();
        tops.set(top, (tops.get(top) ?? 0) + 1);
      }
    }
    reader.end();
  } finally {
    stream.destroy();
  }
  const top = [...tops]
    .sort((a, b) => b[1] - a[1])
    .slice(0, MOST_NAMED)
    .map(([name, count]) => ({ path: `~/${name}`, files: count }));
  return { files, bytes, top };
}

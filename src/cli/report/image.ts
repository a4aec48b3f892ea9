import type { EngineImage } from '../../../executors/docker/engine-client.ts';
import type { BuiltImage } from '../../../executors/docker/image/index.ts';
import type { JsonObject } from '../../core/json.ts';
import { safeLine } from '../../core/text-safety.ts';
import { columnsOf, pad } from './layout.ts';
import { ageWords } from './list.ts';
import { plural, sizeWords } from './words.ts';

/** One image for --json. */
export function imageJson(image: EngineImage): JsonObject {
  return { id: image.id, tags: image.tags, size_bytes: image.sizeBytes, created_ms: image.createdMs, labels: image.labels, platform: image.platform };
}

/** `job image build`. */
export function builtImageText({ name, image, source, entries, replaced }: BuiltImage): string {
  const rows: readonly (readonly [string, string])[] = [
    ['digest', image.id],
    ['size', `${sizeWords(image.sizeBytes)}${entries === null ? '' : `, ${plural(entries, 'entry', 'entries')}`}`],
    ['from', safeLine(source, 200)],
    ['for', image.platform],
    ...(replaced === undefined ? [] : [['before', `${replaced.slice(0, 19)} had the name; it stays until you remove it`] as const]),
  ];
  return `${name}\n${rows.map(([title, text]) => `  ${title.padEnd(8)}${text}\n`).join('')}`;
}

/** `job image ls`. */
export function imageListText(images: readonly EngineImage[], nowMs: number): string {
  if (images.length === 0) return 'no images; job image build makes one\n';
  const header = ['NAME', 'DIGEST', 'SIZE', 'AGE'];
  const rows = images.map((image) => [
    safeLine(image.tags.join(' ') || '-', 120),
    image.id.slice(0, 19),
    sizeWords(image.sizeBytes),
    ageWords(Math.max(0, nowMs - image.createdMs)),
  ]);
  const widths = header.map((title, column) => Math.max(...[header, ...rows].map((row) => columnsOf(row[column] ?? title))));
  return [header, ...rows]
    .map(
      (row) =>
        `${row
          .map((cell, column) => pad(cell, (widths[column] ?? 0) + 2))
          .join('')
          .trimEnd()}\n`,
    )
    .join('');
}

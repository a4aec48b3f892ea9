import { createReadStream } from 'node:fs';
import { ProofrunError } from '../../../src/core/errors.ts';
import { VERSION } from '../../../src/core/version.ts';
import type { EngineClient, EngineImage } from '../engine-client.ts';
import { appletPaths, baseRootfs } from './base-rootfs.ts';
import { findBusybox } from './busybox.host.ts';
import { formatImageName, IMAGE_LABEL, labelInstruction, type ImageName } from './image-name.ts';
import { checkRootfs } from './rootfs-file.host.ts';

export interface BuildImageInput {
  readonly client: EngineClient;
  readonly name: ImageName;
  readonly labels: readonly (readonly [string, string])[];
  readonly source: { readonly kind: 'busybox'; readonly places?: readonly string[] } | { readonly kind: 'rootfs'; readonly file: string };
}

export interface BuiltImage {
  readonly name: string;
  readonly image: EngineImage;
  /** What it was made from, in words. */
  readonly source: string;
  /** Entries of the root filesystem; null: not counted. */
  readonly entries: number | null;
  /** Id of the image that had the name before; undefined: none, or this very one. */
  readonly replaced: string | undefined;
}

const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * Makes an image on the engine with no registry: a root filesystem is packed here, or taken from an archive, and imported. Throws
 * ERR_IMAGE_SOURCE before the engine was asked for anything, ERR_ENGINE after.
 */
export async function buildImage({ client, name, labels, source }: BuildImageInput): Promise<BuiltImage> {
  const made = source.kind === 'busybox' ? await fromBusybox(source.places) : await fromFile(source.file);
  const text = formatImageName(name);
  const before = await client.inspectImage(text);
  const all: readonly (readonly [string, string])[] = [
    [IMAGE_LABEL, source.kind],
    [`${IMAGE_LABEL}.version`, VERSION],
    [`${IMAGE_LABEL}.source`, made.digest],
    ...labels,
  ];
  const id = await client.importImage(made.open(), {
    repository: name.repository,
    tag: name.tag,
    changes: [`ENV PATH=${PATH}`, 'CMD ["/bin/sh"]', ...all.map(([key, value]) => labelInstruction(key, value))],
    message: `proofrun ${VERSION}: ${source.kind}`,
    platform: made.platform,
  });
  const image = await client.inspectImage(id);
  if (image === undefined) throw new ProofrunError('ERR_ENGINE', { message: `the container engine imported ${id} and no longer has it` });
  return { name: text, image, source: made.words, entries: made.entries, replaced: before === undefined || before.id === image.id ? undefined : before.id };
}

interface Source {
  readonly open: () => ReturnType<typeof baseRootfs>;
  readonly words: string;
  readonly entries: number | null;
  /** What the label says of where it came from. */
  readonly digest: string;
  readonly platform: string | undefined;
}

async function fromBusybox(places: readonly string[] | undefined): Promise<Source> {
  const busybox = await findBusybox(places);
  return {
    open: () => baseRootfs(busybox),
    words: `busybox ${busybox.version} (${busybox.path})`,
    entries: appletPaths(busybox.applets).length + 1,
    digest: `busybox ${busybox.version} sha256:${busybox.sha256}`,
    platform: busybox.architecture === undefined ? undefined : `linux/${busybox.architecture}`,
  };
}

async function fromFile(file: string): Promise<Source> {
  const facts = await checkRootfs(file);
  return {
    open: () => createReadStream(file),
    words: facts.compressed === undefined ? file : `${file} (${facts.compressed})`,
    entries: facts.entries,
    digest: 'a root filesystem archive',
    platform: undefined,
  };
}

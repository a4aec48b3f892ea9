import { ProofrunError } from '../../../src/core/errors.ts';

export interface ImageName {
  readonly repository: string;
  readonly tag: string;
}

const PART = '[a-z0-9]+(?:(?:\\.|_|__|-+)[a-z0-9]+)*';
const HOST = '(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::[0-9]{1,5})?/)?';
const NAME = new RegExp(`^(${HOST}${PART}(?:/${PART})*)(?::([A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?$`);

/** `NAME[:TAG]` as engines take it (the distribution reference grammar); the tag is `latest` when none is given. Throws ERR_USAGE. */
export function parseImageName(text: string): ImageName {
  const parts = text.length > 255 ? null : NAME.exec(text);
  const repository = parts?.[1];
  if (repository === undefined) {
    throw new ProofrunError('ERR_USAGE', {
      message: `--tag: expected a name in lower case with an optional tag, such as base:1 or team/base:1; received ${JSON.stringify(text.slice(0, 300))}`,
      hint: 'job help image build',
    });
  }
  return { repository, tag: parts?.[2] ?? 'latest' };
}

export function formatImageName({ repository, tag }: ImageName): string {
  return `${repository}:${tag}`;
}

/** `KEY=VALUE` of --label. Throws ERR_USAGE. */
export function parseLabel(text: string): readonly [string, string] {
  const parts = /^([a-z0-9][a-z0-9._-]{0,127})=([\x20-\x7e]{0,1024})$/.exec(text);
  const [, key, value] = parts ?? [];
  if (key === undefined || value === undefined) {
    throw new ProofrunError('ERR_USAGE', {
      message: `--label: expected KEY=VALUE, the key of lower-case letters, digits, dots, dashes; received ${JSON.stringify(text.slice(0, 300))}`,
      hint: 'job help image build',
    });
  }
  if (key === IMAGE_LABEL || key.startsWith(`${IMAGE_LABEL}.`)) {
    throw new ProofrunError('ERR_USAGE', { message: `--label: ${key} is set by the build itself`, hint: 'choose another key' });
  }
  return [key, value];
}

/** The label that every image built here has; its value is the kind of source. */
export const IMAGE_LABEL = 'proofrun.image';

/** A Dockerfile instruction for one label. Quotes, backslashes and dollars of the value stand for themselves. */
export function labelInstruction(key: string, value: string): string {
  return `LABEL ${key}="${value.replaceAll(/["\\$]/g, '\\$&')}"`;
}

import type { BundleLogin } from '../core/bundle.ts';

/** A login that was changed and not written back, as a sentence without a dot. Names no value of the file. */
export function failedLogin({ path, detail, kept }: BundleLogin): string {
  const where = kept === null ? 'no copy was kept' : `what the job left is kept in ${kept}`;
  return `the login file ${path} was not written back: ${detail ?? 'the reason is not known'}; ${where}`;
}

import type { StagedRoot } from '../../../src/core/change.ts';
import type { Sent } from './carrier.host.ts';

/** In the scratch directory of an attempt whose workspace was sent: from where its changes can be fetched when its owner died. */
export const SENT_RECORD = 'sent.json';

export function formatSent({ container, markers, roots }: Sent): string {
  const kept = roots.map(({ path, root: { root, upper, work, preimage } }) => ({ path, root, upper, work, preimage }));
  return `${JSON.stringify({ version: 1, container, markers, roots: kept })}\n`;
}

/** Undefined: not such a record. */
export function parseSent(text: string): Sent | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof value !== 'object' || value === null || !('version' in value) || value.version !== 1) return undefined;
  if (!('container' in value) || typeof value.container !== 'string' || !/^[0-9a-f]{64}$/.test(value.container)) return undefined;
  if (!('markers' in value) || (value.markers !== 'user' && value.markers !== 'trusted')) return undefined;
  if (!('roots' in value) || !Array.isArray(value.roots)) return undefined;
  const roots = (value.roots as readonly unknown[]).map(parseRoot);
  return roots.includes(undefined)
    ? undefined
    : { container: value.container, markers: value.markers, roots: roots.filter((one): one is Sent['roots'][number] => one !== undefined) };
}

function parseRoot(value: unknown): { readonly root: StagedRoot; readonly path: string } | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const text = (name: string): string => {
    const one: unknown = Object.hasOwn(value, name) ? (value as Readonly<Record<string, unknown>>)[name] : undefined;
    return typeof one === 'string' && one.startsWith('/') ? one : '';
  };
  const root: StagedRoot = { root: text('root'), upper: text('upper'), work: text('work'), preimage: text('preimage') };
  const path = text('path');
  return path === '' || Object.values(root).includes('') ? undefined : { root, path };
}

import { bytePathOfText, parentOf, type BytePath } from './byte-path.ts';

const MAX_HOPS = 40;

/**
 * True when a symlink at `path` leads out of the root, or can't be followed to an end. `linkAt` gives the target of a
 * path that is a symlink in the result, so that a link through another link is judged by where it ends. `root` is the
 * absolute path of the root: an absolute target beneath it stays inside.
 */
export function leavesRoot(path: BytePath, target: BytePath, root: string, linkAt: (path: BytePath) => BytePath | undefined): boolean {
  const rootBytes = bytePathOfText(root.endsWith('/') ? root : `${root}/`);
  let hops = 0;
  let pending: string[] = [];
  let at: string[] = [];

  // Returns false when the target can only lead out.
  const take = (from: string[], link: string): boolean => {
    if (link.startsWith('/')) {
      const inside = `${link}/`;
      if (!inside.startsWith(rootBytes)) {
        return false;
      }
      at = [];
      pending = [...inside.slice(rootBytes.length).split('/'), ...pending];
    } else {
      at = from;
      pending = [...link.split('/'), ...pending];
    }
    return true;
  };
  const parent = parentOf(path);
  if (!take(parent === '' ? [] : parent.split('/'), target)) {
    return true;
  }
  for (let name = pending.shift(); name !== undefined; name = pending.shift()) {
    if (name === '' || name === '.') {
      continue;
    }
    if (name === '..') {
      if (at.length === 0) {
        return true;
      }
      at.pop();
      continue;
    }
    const next = [...at, name];
    const link = linkAt(next.join('/') as BytePath);
    if (link === undefined) {
      at = next;
    } else if (++hops > MAX_HOPS || !take(at, link)) {
      return true;
    }
  }
  return false;
}

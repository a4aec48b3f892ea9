/** Names that a misspelt one probably meant, nearest first, at most three. */
export function nearNames(name: string, known: readonly string[]): readonly string[] {
  const wanted = name.toLowerCase();
  return known
    .map((candidate) => ({ candidate, distance: distance(wanted, candidate.toLowerCase()) }))
    .filter(({ candidate, distance: steps }) => steps <= Math.max(1, Math.floor(Math.max(candidate.length, wanted.length) / 3)))
    .sort((a, b) => a.distance - b.distance || (a.candidate < b.candidate ? -1 : 1))
    .slice(0, 3)
    .map(({ candidate }) => candidate);
}

/** `; did you mean a or b?`, or nothing. */
export function didYouMean(name: string, known: readonly string[]): string {
  const near = nearNames(name, known);
  return near.length === 0 ? '' : `; did you mean ${near.map((candidate) => `\`${candidate}\``).join(' or ')}?`;
}

/** Insertions, deletions, replacements and swaps of neighbours (optimal string alignment). */
function distance(a: string, b: string): number {
  let before: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const same = a.charAt(i - 1) === b.charAt(j - 1);
      let best = Math.min((last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, (last[j - 1] ?? 0) + (same ? 0 : 1));
      if (i > 1 && j > 1 && a.charAt(i - 1) === b.charAt(j - 2) && a.charAt(i - 2) === b.charAt(j - 1)) best = Math.min(best, (before[j - 2] ?? 0) + 1);
      row.push(best);
    }
    before = last;
    last = row;
  }
  return last[b.length] ?? 0;
}

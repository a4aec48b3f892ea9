import { spawnSync } from 'node:child_process';

/**
 * Times the arms in turn (A B C A B C ...), so that whatever slows the machine for a while slows them all. An arm is
 * `{ name, argv, cwd?, env? }` or `{ name, run }` with an async function. The first round warms caches and isn't counted.
 * Returns name -> milliseconds, one number a round.
 */
export async function interleave(arms, rounds) {
  const times = new Map(arms.map((arm) => [arm.name, []]));
  for (let round = 0; round <= rounds; round += 1) {
    for (const arm of arms) {
      const began = process.hrtime.bigint();
      await (arm.run === undefined ? runToEnd(arm) : arm.run());
      const ms = Number(process.hrtime.bigint() - began) / 1e6;
      if (round > 0) {
        times.get(arm.name).push(ms);
      }
    }
  }
  return times;
}

function runToEnd({ name, argv, cwd, env }) {
  const result = spawnSync(argv[0], argv.slice(1), { cwd, env, stdio: ['ignore', 'ignore', 'pipe'], encoding: 'utf8' });
  if (result.status !== 0) {
    throw new Error(`${name} ended with ${result.status ?? result.error?.message ?? result.signal}: ${result.stderr ?? ''}`);
  }
}

export function median(numbers) {
  const sorted = numbers.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Rows of name, median, quartiles and the ratio to the arm called `base`. */
export function rows(times, base) {
  const reference = median(times.get(base));
  return [...times].map(([name, all]) => {
    const sorted = all.toSorted((a, b) => a - b);
    const quartile = (part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))];
    return { name, median_ms: round(median(all)), quartiles_ms: [round(quartile(0.25)), round(quartile(0.75))], ratio: round(median(all) / reference), base };
  });
}

export function table(title, list) {
  const lines = list.map(
    (row) =>
      `  ${row.name.padEnd(34)} ${row.median_ms.toFixed(1).padStart(9)} ms   ${row.quartiles_ms
        .map((ms) => ms.toFixed(1))
        .join(' to ')
        .padStart(16)}   ${row.ratio.toFixed(2).padStart(6)} x ${row.base}`,
  );
  return `${title}\n${lines.join('\n')}\n`;
}

function round(ms) {
  return Math.round(ms * 100) / 100;
}

import colours from 'picocolors';
import type { CliContext } from '../context.ts';

/** The few colours that reports use. Each is the identity where colour is off. */
export interface Palette {
  readonly bold: (text: string) => string;
  readonly dim: (text: string) => string;
  readonly good: (text: string) => string;
  readonly bad: (text: string) => string;
  readonly warn: (text: string) => string;
}

const plain = (text: string): string => text;
export const PLAIN: Palette = { bold: plain, dim: plain, good: plain, bad: plain, warn: plain };

/** Colour only on a terminal that isn't `dumb`, and not when NO_COLOR is set to anything (https://no-color.org). */
export function paletteFor(context: CliContext, stream: 'stdout' | 'stderr'): Palette {
  const { NO_COLOR, TERM } = context.env;
  if (!context.isTerminal[stream] || (NO_COLOR !== undefined && NO_COLOR !== '') || TERM === 'dumb') return PLAIN;
  const { bold, dim, green, red, yellow } = colours.createColors(true);
  return { bold, dim, good: green, bad: red, warn: yellow };
}

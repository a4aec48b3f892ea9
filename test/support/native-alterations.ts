import { REMOVALS, type AlterContext, type Install } from './native-removals.ts';

export type Alteration = (install: Install, context: AlterContext) => Install;

/** Everything that a test may ask test/fixtures/native-driver.ts to change, by name. */
export const ALTERATIONS: ReadonlyMap<string, Alteration> = new Map<string, Alteration>([
  ...REMOVALS.map(({ control, how, alter }) => [`${control}: ${how}`, alter] as const),
]);

import { CONTAINMENT_DIMENSIONS } from '../core/dimension.ts';
import { ProofrunError } from '../core/errors.ts';
import { DURATION_FORM, parseDuration, parseSize, SIZE_FORM, type UnitResult } from '../core/units.ts';
import { nearNames } from '../policy/near-names.ts';
import { choicesOf, type ValueKind } from './flags.ts';

/**
 * Reads the text after a flag: sizes to bytes, durations to milliseconds, counts and decimals to numbers; other kinds stay
 * text. Throws ERR_USAGE with what was expected, what came, and what to type.
 */
export function readValue(flag: string, value: ValueKind, text: string): string | number {
  switch (value.kind) {
    case 'size':
      return inUnits(flag, text, parseSize(text), SIZE_FORM, '512MiB');
    case 'duration':
      return inUnits(flag, text, parseDuration(text), DURATION_FORM, '5m');
    case 'count': {
      const count = /^\d+$/.test(text) ? Number(text) : Number.NaN;
      if (!Number.isSafeInteger(count) || count < 1) throw wrong(flag, 'a whole number from 1', text, '64');
      return count;
    }
    case 'decimal': {
      const number = /^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN;
      if (!Number.isFinite(number) || number <= 0) throw wrong(flag, 'a number above 0', text, '1.5');
      return number;
    }
    case 'dimension':
      if (CONTAINMENT_DIMENSIONS.some((dimension) => dimension === text)) {
        throw new ProofrunError('ERR_USAGE', {
          message: `${flag} cannot waive ${text}: containment is what --safe stands for`,
          hint: 'leave --safe out to run without it; the missing control is then recorded as a warning',
        });
      }
      return oneOf(flag, text, choicesOf(value) ?? []);
    case 'choice':
      return oneOf(flag, text, value.of);
    case 'string':
    case 'path':
    case 'host':
      if (text === '' || text.includes('\0')) throw wrong(flag, value.name, text, value.name);
      return text;
    case 'none':
      return text;
  }
}

/** What comes after the semicolon of `expected` is the spelling that was probably meant. */
function inUnits(flag: string, text: string, result: UnitResult, form: string, example: string): number {
  if (result.kind === 'ok') {
    if (result.value < 1) throw wrong(flag, `${form}, above 0`, text, example);
    return result.value;
  }
  const [expected = form, meant] = result.expected.split('; write ');
  throw wrong(flag, expected, text, meant ?? example);
}

function oneOf(flag: string, text: string, choices: readonly string[]): string {
  if (choices.includes(text)) return text;
  throw wrong(flag, `one of ${choices.join(', ')}`, text, nearNames(text, choices)[0] ?? choices[0] ?? '');
}

function wrong(flag: string, expected: string, received: string, example: string): ProofrunError {
  return new ProofrunError('ERR_USAGE', { message: `${flag} expects ${expected}; received ${JSON.stringify(received)}`, hint: `write ${flag} ${example}` });
}

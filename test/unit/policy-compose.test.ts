import { describe, expect, it } from 'vitest';
import { admit } from '../../src/admission/admit.ts';
import { NATIVE, compose } from './policy-fixture.ts';

describe('smoke', () => {
  it('composes', async () => {
    const job = await compose({ request: { mode: 'safe' } });
    console.log(JSON.stringify(job, null, 1));
    console.log(JSON.stringify(admit(job, [NATIVE]), null, 1).slice(0, 4000));
    expect(job.mode).toBe('safe');
  });
});

import type { EffectivePermissions, Origin, ResourceLimits } from '../core/job.ts';
import type { Joined } from './joined.ts';

/**
 * The smallest of what anybody asks for. The limits of a mode are defaults: they hold where nobody asks for one.
 */
export function composeLimits(joined: Joined): EffectivePermissions['resources'] {
  const limits: { -readonly [K in keyof ResourceLimits]: number } = {};
  const origins: Partial<Record<keyof ResourceLimits, Origin>> = {};
  const layers = [...joined.grants, ...joined.ceilings];
  const stated = layers.filter((layer) => layer.layer !== 'mode').flatMap((layer) => layer.limits);
  const defaults = layers.filter((layer) => layer.layer === 'mode').flatMap((layer) => layer.limits);
  for (const { field, value, origin } of [...stated, ...defaults.filter((one) => !stated.some((other) => other.field === one.field))]) {
    const known = limits[field];
    if (known !== undefined && known <= value) continue;
    limits[field] = value;
    origins[field] = origin;
  }
  return { requested: Object.keys(limits).length > 0, limits, origins };
}

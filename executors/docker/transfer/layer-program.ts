import { bytesOf } from '../../../src/stage/byte-path.ts';
import type { LayerAttributes, LayerStep } from './layer-plan.ts';

/** What `proofrun-shim upper` reads (executors/shim/upper.c): this, then steps, then `Z` and how many there were. */
export const LAYER_MAGIC = Buffer.from('PRLAYR1\0', 'latin1');

const KNOWN = 1;
const OPAQUE = 1;

function u64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

function named(tag: string, name: string): Buffer[] {
  const head = Buffer.alloc(3);
  head.write(tag, 'latin1');
  head.writeUInt16LE(name.length, 1);
  return [head, Buffer.from(name, 'latin1')];
}

function attributesOf(attributes: LayerAttributes): Buffer {
  const bytes = Buffer.alloc(25);
  bytes.writeUInt32LE(attributes.mode, 0);
  bytes.writeUInt32LE(attributes.uid, 4);
  bytes.writeUInt32LE(attributes.gid, 8);
  bytes.writeBigInt64LE(BigInt(attributes.mtime.seconds), 12);
  bytes.writeUInt32LE(attributes.mtime.nanoseconds, 20);
  bytes.writeUInt8(attributes.known ? KNOWN : 0, 24);
  return bytes;
}

/** One step as the shim reads it. Pure. */
export function encodeStep(step: LayerStep): Buffer {
  switch (step.kind) {
    case 'enter':
      return Buffer.concat([...named('D', step.name), attributesOf(step.attributes), Buffer.from([step.opaque ? OPAQUE : 0])]);
    case 'leave':
      return Buffer.from('U');
    case 'part':
      // 0: no further name. Numbers begin with 1.
      return Buffer.concat([...named('F', step.name), attributesOf(step.attributes), u64(step.offset), u64(step.size), u64(step.keepAs ?? 0)]);
    case 'move':
      return Buffer.concat([...named('M', step.name), attributesOf(step.attributes), u64(step.number)]);
    case 'link':
      return Buffer.concat([...named('K', step.name), attributesOf(step.attributes), u64(step.number)]);
    case 'symlink': {
      const target = bytesOf(step.target);
      const length = Buffer.alloc(2);
      length.writeUInt16LE(target.length);
      return Buffer.concat([...named('L', step.name), attributesOf(step.attributes), length, target]);
    }
    case 'fifo':
      return Buffer.concat([...named('P', step.name), attributesOf(step.attributes)]);
    case 'whiteout':
      return Buffer.concat(named('W', step.name));
    case 'root':
      return Buffer.concat([Buffer.from('A'), attributesOf(step.attributes)]);
  }
}

export function encodeEnd(steps: number): Buffer {
  return Buffer.concat([Buffer.from('Z'), u64(steps)]);
}

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseMountinfo, summariseTable, summariseUppers, tmpfsBytes } from '../../executors/native/mountinfo.ts';
import { encodeOperation, encodeSetting, FrameSplitter, parseFrame } from '../../executors/shim/protocol.ts';
import { parseStatus, receiptsAtEnd, receiptsAtGate } from '../../executors/shim/receipts.ts';
import { ProofrunError } from '../../src/core/errors.ts';
import { isReceipt } from '../../src/core/receipt.ts';

const FACTS = [
  'status',
  'init.status',
  'init.pid',
  'init.dumpable',
  'mountinfo',
  'net.dev',
  'net.route',
  'net.ipv6_route',
  'proc.pids',
  'fds',
  'rlimits',
  'environment',
  'keyring.before',
  'keyring.after',
  'ns.net',
  'wall.armed_ms',
  'end.mountinfo',
  'end.processes',
];
const anyBytes = fc.oneof(
  fc.uint8Array({ maxLength: 300 }),
  fc.string({ maxLength: 300 }).map((text) => Buffer.from(text)),
  fc
    .array(fc.constantFrom('Uid:', 'Seccomp:\t', '2', '\n', ' - ', '0', '-', ':', '=', ' ', 'lo', '\t', '!', 'upperdir='), { maxLength: 60 })
    .map((parts) => Buffer.from(parts.join(''))),
);

describe('parsers of what the sandbox says', () => {
  it('a frame is the same however the stream is cut', () => {
    const frame = fc.oneof(
      fc
        .string({ maxLength: 50 })
        .filter((text) => !text.includes('\0'))
        .map((path) => encodeOperation({ op: 'whiteout', path })),
      fc
        .array(
          fc.string().filter((text) => !text.includes('\0')),
          { maxLength: 5 },
        )
        .map((argv) => encodeSetting({ set: 'argv', argv })),
    );
    fc.assert(
      fc.property(fc.array(frame, { maxLength: 10 }), fc.array(fc.nat(400), { maxLength: 30 }), (frames, cuts) => {
        const stream = Buffer.concat(frames);
        const places = [0, ...cuts.map((cut) => cut % (stream.byteLength + 1)).sort((a, b) => a - b), stream.byteLength];
        const splitter = new FrameSplitter();
        const got = places.slice(1).flatMap((end, index) => splitter.push(stream.subarray(places[index], end)).map((one) => Buffer.from(one)));
        expect(got).toEqual(frames.map((one) => one.subarray(4)));
      }),
    );
  });

  it('bytes that are no frame are refused by name, and nothing else is thrown', () => {
    fc.assert(
      fc.property(anyBytes, (bytes) => {
        try {
          for (const frame of new FrameSplitter().push(Buffer.from(bytes))) parseFrame(frame);
          parseFrame(Buffer.from(bytes));
        } catch (error) {
          expect(error).toBeInstanceOf(ProofrunError);
          expect((error as ProofrunError).code).toBe('ERR_SHIM_PROTOCOL');
        }
      }),
    );
  });

  it('receipts come from any bytes without a throw, and each is a receipt with a place', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.constantFrom(...FACTS), anyBytes), { maxLength: 12 }), (reports) => {
        const facts = new Map(reports.map(([id, bytes]) => [id, { say: 'fact', id, from: `read ${id}`, bytes: Buffer.from(bytes) } as const]));
        const mounts = (text: string) => {
          const lines = parseMountinfo(text);
          return {
            table: summariseTable(lines),
            propagation: [],
            writable: [],
            executable: [],
            stage: summariseUppers(lines),
            tmp_size: lines.map(tmpfsBytes)[0] ?? null,
          };
        };
        const receipts = [
          ...receiptsAtGate({ facts, probes: [], digest: (bytes) => bytes.byteLength, processLimitByRlimit: true, mounts }),
          ...receiptsAtEnd(facts, (text) => summariseTable(parseMountinfo(text))),
        ];
        for (const one of receipts) {
          expect(isReceipt(one)).toBe(true);
          expect(one.readFrom).not.toBe('');
        }
      }),
    );
  });

  it('a status never shows empty capabilities where a set is missing or holds one', () => {
    const set = fc.bigInt({ min: 0n, max: (1n << 41n) - 1n });
    fc.assert(
      fc.property(
        fc.record({ CapInh: set, CapPrm: set, CapEff: set, CapBnd: set, CapAmb: set }),
        fc.subarray(['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb']),
        (sets, shown) => {
          const text = Object.entries(sets)
            .filter(([name]) => shown.includes(name))
            .map(([name, value]) => `${name}:\t${value.toString(16).padStart(16, '0')}\n`)
            .join('');
          const empty = shown.length === 5 && Object.values(sets).every((value) => value === 0n);
          expect(parseStatus(text).capabilities === 'none').toBe(empty);
        },
      ),
    );
  });
});

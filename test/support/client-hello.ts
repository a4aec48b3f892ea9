/** Parts of a ClientHello, built by hand so that a test can build wrong ones. */
export interface HelloParts {
  /** SNI extensions, each a list of names. */
  readonly serverNames?: readonly (readonly (string | Buffer)[])[];
  readonly extensions?: readonly { readonly type: number; readonly data: Buffer }[];
}

function sized(bytes: number, data: Buffer): Buffer {
  const size = Buffer.alloc(bytes);
  size.writeUIntBE(data.length, 0, bytes);
  return Buffer.concat([size, data]);
}

function extension(type: number, data: Buffer): Buffer {
  const head = Buffer.alloc(2);
  head.writeUInt16BE(type);
  return Buffer.concat([head, sized(2, data)]);
}

/** The handshake message, without records. */
export function helloMessage({ serverNames = [], extensions = [] }: HelloParts): Buffer {
  const sni = serverNames.map((names) => {
    const list = Buffer.concat(names.map((name) => Buffer.concat([Buffer.from([0]), sized(2, Buffer.from(name))])));
    return extension(0, sized(2, list));
  });
  const all = Buffer.concat([...sni, ...extensions.map(({ type, data }) => extension(type, data))]);
  const body = Buffer.concat([
    Buffer.from([3, 3]),
    Buffer.alloc(32, 7),
    sized(1, Buffer.alloc(32, 1)),
    sized(2, Buffer.from([0x13, 0x01, 0x13, 0x02])),
    sized(1, Buffer.from([0])),
    ...(all.length === 0 ? [] : [sized(2, all)]),
  ]);
  return Buffer.concat([Buffer.from([1]), sized(3, body)]);
}

/** A message in records of at most `size` bytes. */
export function records(message: Buffer, size = 16_384, type = 22): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; at < message.length; at += size) {
    parts.push(Buffer.concat([Buffer.from([type, 3, 1]), sized(2, message.subarray(at, at + size))]));
  }
  return Buffer.concat(parts);
}

export function hello(name: string | Buffer): Buffer {
  return records(helloMessage({ serverNames: [[name]] }));
}

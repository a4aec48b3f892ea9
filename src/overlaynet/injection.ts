import type { Visit } from './engine.ts';

/** A secret that is added to requests to one host. */
export interface InjectedSecret {
  readonly name: string;
  /** Canonical; no wildcard. */
  readonly host: string;
  /** Header name, lower case. */
  readonly header: string;
  /** Text with one `{}`. */
  readonly format: string;
  /** What the job holds instead. */
  readonly placeholder: string;
  /** The real value: visible ASCII, no line breaks. Stays in this process. */
  readonly value: string;
}

/** What became of one secret. Times are ms since the epoch, null: never. `refused`: requests that carried the placeholder elsewhere. */
export interface SecretUse {
  readonly uses: number;
  readonly refused: number;
  readonly firstMs: number | null;
  readonly lastMs: number | null;
}

export type Injection =
  | { readonly kind: 'none' }
  | { readonly kind: 'inject'; readonly header: string; readonly value: string }
  | { readonly kind: 'refused'; readonly rule: string };

/** Judges requests of one job by the placeholders that they carry, and counts. Pure but for its counts. */
export interface SecretInjector {
  /** For a request that the rules allow already. Replaces nothing itself. */
  judge(head: { readonly method: string; readonly url: string; readonly rawHeaders: readonly string[] }, visit: Visit): Injection;
  /** Looks for placeholders in a body, chunk by chunk, within its first bytes (`BODY_PREFIX_BYTES`). Answers the rule that refuses it. */
  watchBody(): (chunk: Buffer) => string | undefined;
  /** By name of the secret and host. */
  use(name: string, host: string): SecretUse;
}

/** How much of a body is looked at. */
export const BODY_PREFIX_BYTES = 65_536;

/** Headers that frame or route a message, or that end at the next hop: a value in them would be lost or would change what is sent. */
export const HEADERS_THAT_CARRY_NOTHING: ReadonlySet<string> = new Set(
  'host content-length transfer-encoding connection keep-alive proxy-connection proxy-authorization te trailer upgrade http2-settings expect'.split(' '),
);

export function createSecretInjector(secrets: readonly InjectedSecret[], clock: () => number): SecretInjector {
  const counts = new Map(secrets.map((secret) => [keyOf(secret.name, secret.host), { uses: 0, refused: 0, first: 0, last: 0 }]));
  const refuse = (secret: InjectedSecret, where: string): string => {
    const count = counts.get(keyOf(secret.name, secret.host));
    if (count !== undefined) count.refused += 1;
    return `the placeholder of the secret ${secret.name} ${where}`;
  };
  const within = (text: string): InjectedSecret | undefined => secrets.find((secret) => text.includes(secret.placeholder));

  return {
    judge: ({ method, url, rawHeaders }, visit) => {
      const inTarget = within(url) ?? within(decoded(url));
      if (inTarget !== undefined) return { kind: 'refused', rule: refuse(inTarget, 'in the target of a request') };
      let found: { readonly secret: InjectedSecret; readonly value: string } | undefined;
      for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
        const name = rawHeaders[index]?.toLowerCase() ?? '';
        const text = rawHeaders[index + 1] ?? '';
        const carried = within(text) ?? within(name);
        if (carried === undefined) continue;
        const secret = secrets.find((one) => one.placeholder === carried.placeholder && one.host === visit.destination.host && one.header === name);
        if (secret === undefined) {
          return { kind: 'refused', rule: refuse(carried, `in the header ${name.slice(0, 64)} of a request to another place than its own`) };
        }
        if (text !== secret.placeholder && text !== fill(secret.format, secret.placeholder)) {
          return { kind: 'refused', rule: refuse(secret, `in another form than "${secret.format}"`) };
        }
        if (found !== undefined) return { kind: 'refused', rule: refuse(secret, 'twice in one request') };
        found = { secret, value: fill(secret.format, secret.value) };
      }
      if (found === undefined) return { kind: 'none' };
      const { secret, value } = found;
      // Which of two headers a server believes is its own affair.
      if (rawHeaders.filter((name, index) => index % 2 === 0 && name.toLowerCase() === secret.header).length > 1) {
        return { kind: 'refused', rule: refuse(secret, `beside another ${secret.header}`) };
      }
      // RFC 9110 9.3.8: the answer would hold the request.
      if (method === 'TRACE') return { kind: 'refused', rule: refuse(secret, 'in a TRACE') };
      const count = counts.get(keyOf(secret.name, secret.host));
      if (count !== undefined) {
        const now = clock();
        if (count.uses === 0) count.first = now;
        count.last = now;
        count.uses += 1;
      }
      return { kind: 'inject', header: secret.header, value };
    },
    watchBody: () => {
      const longest = Math.max(0, ...secrets.map((secret) => secret.placeholder.length));
      let seen = 0;
      let tail = '';
      return (chunk) => {
        if (seen >= BODY_PREFIX_BYTES) return undefined;
        const text = tail + chunk.subarray(0, BODY_PREFIX_BYTES - seen).toString('latin1');
        seen += chunk.length;
        tail = text.slice(-longest);
        const secret = within(text);
        return secret === undefined ? undefined : refuse(secret, 'in the body of a request');
      };
    },
    use: (name, host) => {
      const { uses, refused, first, last } = counts.get(keyOf(name, host)) ?? { uses: 0, refused: 0, first: 0, last: 0 };
      return { uses, refused, firstMs: uses === 0 ? null : first, lastMs: uses === 0 ? null : last };
    },
  };
}

function fill(format: string, value: string): string {
  return format.split('{}').join(value);
}

function keyOf(name: string, host: string): string {
  return `${name} ${host}`;
}

function decoded(url: string): string {
  return url.replace(/%([0-9a-fA-F]{2})/g, (_all, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}

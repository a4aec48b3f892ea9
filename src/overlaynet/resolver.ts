import { addressBytes, formatAddress, type Block } from '../policy/cidr.ts';
import { canonicalHostName } from '../policy/host-rule.ts';
import { nameCanBeAllowed, nameDenial, type OverlayRules } from './decide.ts';
import { RCODES, RECORD_TYPES, type DnsAnswer, type DnsQuestion } from './dns-message.ts';
import type { SyntheticAddresses } from './synthetic.ts';

/** What came of one question. `refused`: no rule can allow the name; `rule` says which one denies it. */
export type Lookup =
  | { readonly kind: 'answered'; readonly answer: DnsAnswer }
  | { readonly kind: 'refused'; readonly answer: DnsAnswer; readonly name: string | undefined; readonly rule: string }
  | { readonly kind: 'full'; readonly answer: DnsAnswer; readonly name: string };

/** Long enough for one connection, short enough for a cache that outlives the job. */
const TTL_SECONDS = 60;
const IN = 1;
const ANY_CLASS = 255;

/**
 * Answers from the rules alone: nothing is asked upstream here, so a name carries nothing out of the job. A name that some rule may allow has an
 * address of its own, every other name doesn't exist. Pure but for the addresses that it gives out.
 */
export function answerQuestion(
  rules: OverlayRules,
  synthetic: SyntheticAddresses,
  families: { readonly v4: boolean; readonly v6: boolean },
  question: DnsQuestion,
): Lookup {
  const nothing: DnsAnswer = { rcode: RCODES.NOERROR, records: [] };
  const missing: DnsAnswer = { rcode: RCODES.NXDOMAIN, records: [] };
  if (question.recordClass !== IN && question.recordClass !== ANY_CLASS) {
    return { kind: 'answered', answer: { rcode: RCODES.REFUSED, records: [] } };
  }
  const text = question.name;
  // The root, and zones of the resolver's own: they exist, and have nothing.
  if (text === '') return { kind: 'answered', answer: nothing };
  const reverse = text === undefined ? undefined : reverseAddress(text.toLowerCase());
  if (reverse !== undefined) {
    const name = synthetic.nameOf(reverse);
    if (name === undefined) return { kind: 'answered', answer: missing };
    const records = question.type === RECORD_TYPES.PTR ? [{ type: RECORD_TYPES.PTR, name, ttlSeconds: TTL_SECONDS }] : [];
    return { kind: 'answered', answer: { rcode: RCODES.NOERROR, records } };
  }
  const name = text === undefined ? undefined : canonicalHostName(text);
  if (name === undefined) {
    return { kind: 'refused', answer: missing, name: undefined, rule: 'not a host name' };
  }
  if (name === 'localhost' || name.endsWith('.localhost')) {
    return { kind: 'answered', answer: { rcode: RCODES.NOERROR, records: addressRecords(question.type, '127.0.0.1', '::1', { v4: true, v6: true }) } };
  }
  if (!nameCanBeAllowed(rules, name)) return { kind: 'refused', answer: missing, name, rule: nameDenial(rules, name).rule };
  const addresses = synthetic.addressesOf(name);
  if (addresses === undefined) return { kind: 'full', answer: { rcode: RCODES.REFUSED, records: [] }, name };
  return { kind: 'answered', answer: { rcode: RCODES.NOERROR, records: addressRecords(question.type, addresses.v4, addresses.v6, families) } };
}

function addressRecords(type: number, v4: string, v6: string, families: { readonly v4: boolean; readonly v6: boolean }): DnsAnswer['records'] {
  const wanted = type === RECORD_TYPES.A && families.v4 ? v4 : type === RECORD_TYPES.AAAA && families.v6 ? v6 : undefined;
  const address = wanted === undefined ? undefined : addressBytes(wanted);
  if (address === undefined) return [];
  return [{ type: address.length === 4 ? RECORD_TYPES.A : RECORD_TYPES.AAAA, address, ttlSeconds: TTL_SECONDS }];
}

/** The address that a name of in-addr.arpa or ip6.arpa stands for (RFC 1035 3.5, RFC 3596 2.5). Undefined for every other name. */
export function reverseAddress(name: string): string | undefined {
  const v4 = /^((?:[0-9]{1,3}\.){4})in-addr\.arpa\.?$/.exec(name)?.[1];
  if (v4 !== undefined) {
    const parts = v4.slice(0, -1).split('.').reverse();
    return parts.every((part) => String(Number(part)) === part && Number(part) <= 255) ? parts.join('.') : undefined;
  }
  const v6 = /^((?:[0-9a-f]\.){32})ip6\.arpa\.?$/.exec(name)?.[1];
  if (v6 === undefined) return undefined;
  const block: Block = { bits: 128, prefix: 128, address: BigInt(`0x${v6.slice(0, -1).split('.').reverse().join('')}`) };
  return formatAddress(block);
}

import { HTTP_VERSION, MAX_REQUEST_LINE, REQUEST_START, sniff } from './sniff.ts';

/** Longest part of a request line that tells a version: white space, `HTTP/`, a digit. */
const TAIL = 6;
/** As much of the line as tells that it begins as a request. */
const LEAD = 40;

/**
 * Follows a first line that went on before it ended, and gives the reason to end the connection once it turns out to be a request of HTTP/1: its head
 * is still on its way, so that no server has answered a request that nobody judged. `head` is what went on already; memory is constant.
 * Undefined when `head` shows that no request can come of it.
 */
export function createFirstLineWatch(head: Buffer, port: number): ((chunk: Buffer) => string | undefined) | undefined {
  const over = head.length <= MAX_REQUEST_LINE || head.includes(0x0a, startOf(head));
  if (over && sniff(head, port) === 'tcp') return undefined;
  let open = true;
  let begun = false;
  let tail = '';
  let lead = '';
  const watch = (chunk: Buffer): string | undefined => {
    if (!open) return undefined;
    const start = begun ? 0 : startOf(chunk);
    if (start === chunk.length) return undefined;
    begun = true;
    const end = chunk.indexOf(0x0a, start);
    const line = tail + chunk.toString('latin1', start, end < 0 ? chunk.length : end);
    if (lead.length < LEAD) lead += chunk.toString('latin1', start, Math.min(end < 0 ? chunk.length : end, start + LEAD));
    if (HTTP_VERSION.test(line) || REQUEST_START.test(lead)) return 'a request of HTTP whose first line came in pieces';
    open = end < 0 && !line.includes('\0');
    tail = line.slice(-TAIL);
    return undefined;
  };
  watch(head);
  return watch;
}

/** Where the first line begins: lenient servers skip empty ones. */
function startOf(bytes: Buffer): number {
  let start = 0;
  while (bytes[start] === 0x0a || bytes[start] === 0x0d) start += 1;
  return start;
}

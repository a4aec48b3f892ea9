import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { nodeFor } from '../support/job-command.host.ts';
import { NativeLab, type LabRun } from '../support/native-lab.host.ts';
import { compileText, publicDirectory } from '../support/native-programs.host.ts';
import { standInInternet, type StandIn } from '../support/stand-in-internet.host.ts';
import { describeUsers } from '../support/users.host.ts';

/** Resolves a name, connects, says what it got. Linked statically: what it asks for goes through no library of the system but its own. */
const STATIC_CLIENT = `
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
/* One A query to the first nameserver of resolv.conf: what resolvers of other languages do. */
static int resolve(const char *name, struct in_addr *found) {
  char line[256], server[64] = "";
  FILE *file = fopen("/etc/resolv.conf", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) if (sscanf(line, "nameserver %63s", server) == 1) break;
  unsigned char packet[512] = {7, 7, 1, 0, 0, 1};
  size_t at = 12;
  for (const char *label = name; *label != 0;) {
    size_t size = strcspn(label, ".");
    packet[at++] = (unsigned char)size;
    memcpy(packet + at, label, size);
    at += size;
    label += size + (label[size] == '.');
  }
  at++;
  packet[at + 1] = 1, packet[at + 3] = 1;
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(53)};
  if (inet_pton(AF_INET, server, &to.sin_addr) != 1) return -1;
  int fd = socket(AF_INET, SOCK_DGRAM, 0);
  if (sendto(fd, packet, at + 4, 0, (void *)&to, sizeof to) < 0) return -1;
  ssize_t got = recv(fd, packet, sizeof packet, 0);
  close(fd);
  if (got < 16 || (packet[3] & 15) != 0 || packet[7] == 0) return -1;
  memcpy(found, packet + got - 4, 4);
  return 0;
}
int main(int argc, char **argv) {
  if (argc < 3) return 2;
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[2]))};
  if (resolve(argv[1], &to.sin_addr) != 0) { printf("no such name\\n"); return 1; }
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  char text[4096];
  if (connect(fd, (void *)&to, sizeof to) != 0) { printf("%s\\n", strerror(errno)); return 1; }
  int length = snprintf(text, sizeof text, "GET / HTTP/1.0\\r\\nHost: %s:%s\\r\\n\\r\\n", argv[1], argv[2]);
  if (write(fd, text, (size_t)length) < 0) return 1;
  for (ssize_t got; (got = read(fd, text, sizeof text)) > 0;) if (write(1, text, (size_t)got) < 0) return 1;
  return 0;
}`;

const JAVA = `
public class Fetch { public static void main(String[] a) throws Exception {
  System.out.print(new String(new java.net.URL(a[0]).openStream().readAllBytes())); } }`;

interface Client {
  readonly name: string;
  readonly needs?: string;
  readonly argv: (host: string, ports: StandIn['ports'], authority: string) => readonly [string, ...string[]];
  /** Of standard output and standard error together. */
  readonly reached: string | RegExp;
}

const PROXY_NAMES = ['http_proxy', 'https_proxy', 'all_proxy', 'no_proxy'].flatMap((name) => ['-u', name, '-u', name.toUpperCase()]);

describeUsers('real clients in a network that is open for chosen hosts', (user) => {
  const lab = new NativeLab(user);
  const node = nodeFor(user);
  let internet: StandIn;
  beforeAll(async () => {
    internet = await standInInternet();
  });
  afterAll(async () => {
    await lab.dispose();
    await internet.close();
  });

  const CLIENTS: readonly Client[] = [
    {
      name: 'curl, https',
      argv: (host, { https }, ca) => ['/usr/bin/curl', '-sS', '--max-time', '10', '--cacert', ca, `https://${host}:${https}/`],
      reached: /^hello \w+/,
    },
    { name: 'curl, http', argv: (host, { http }) => ['/usr/bin/curl', '-fsS', '--max-time', '10', `http://${host}:${http}/`], reached: /^hello \w+/ },
    {
      name: 'wget, https',
      needs: '/usr/bin/wget',
      argv: (host, { https }, ca) => ['/usr/bin/wget', '-qO-', '-t1', '-T10', `--ca-certificate=${ca}`, `https://${host}:${https}/`],
      reached: /^hello \w+/,
    },
    {
      name: 'busybox wget, static',
      needs: '/bin/busybox',
      argv: (host, { http }) => ['/bin/busybox', 'wget', '-qO-', `http://${host}:${http}/`],
      reached: /^hello \w+/,
    },
    {
      name: 'git, https',
      argv: (host, { https }, ca) => [
        '/bin/sh',
        '-c',
        `git -c http.sslCAInfo=${ca} clone -q https://${host}:${https}/repo.git /tmp/clone && cat /tmp/clone/README`,
      ],
      reached: /^from the stand-in\n/,
    },
    {
      name: 'git, ssh',
      argv: (host, { ssh }) => [
        '/bin/sh',
        '-c',
        `GIT_SSH_COMMAND='ssh -v -o StrictHostKeyChecking=no -o ConnectTimeout=10' git ls-remote ssh://git@${host}:${ssh}/repo.git`,
      ],
      reached: /remote software version StandIn_1\.0/,
    },
    {
      name: 'node fetch',
      argv: (host, { http }) => [
        node,
        '-e',
        `fetch('http://${host}:${http}/').then((r) => r.text()).then(console.log, (e) => console.log(e.cause?.code ?? e))`,
      ],
      reached: /^hello \w+/,
    },
    {
      name: 'node https and lookup of both families',
      argv: (host, { https }, ca) => [
        node,
        '-e',
        `require('node:https').get('https://${host}:${https}/', { ca: require('node:fs').readFileSync('${ca}'), autoSelectFamily: true }, (r) => r.pipe(process.stdout)).on('error', (e) => console.log(e.code))`,
      ],
      reached: /^hello \w+/,
    },
    {
      name: 'python urllib',
      needs: '/usr/bin/python3',
      argv: (host, { https }, ca) => [
        '/usr/bin/python3',
        '-c',
        `import ssl,urllib.request as u; print(u.urlopen("https://${host}:${https}/", timeout=10, context=ssl.create_default_context(cafile="${ca}")).read().decode())`,
      ],
      reached: /^hello \w+/,
    },
    { name: 'a static C client', argv: (host, { http }) => [join(publicDirectory(), 'static-client'), host, String(http)], reached: /hello \w+/ },
    {
      name: 'openssl s_client',
      argv: (host, { https }, ca) => [
        '/bin/sh',
        '-c',
        `printf 'GET / HTTP/1.0\\r\\nHost: ${host}:${https}\\r\\n\\r\\n' | openssl s_client -quiet -verify_return_error -CAfile ${ca} -servername ${host} -connect ${host}:${https}`,
      ],
      reached: /hello \w+/,
    },
    {
      name: 'psql',
      needs: '/usr/bin/psql',
      argv: (host, { postgres }) => ['/usr/bin/psql', `host=${host} port=${postgres} user=a dbname=a connect_timeout=10`, '-c', 'select 1'],
      reached: /hello from the database/,
    },
    {
      name: 'java',
      needs: '/usr/bin/java',
      argv: (host, { http }) => ['/usr/bin/java', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', 'Fetch.java', `http://${host}:${http}/`],
      reached: /^hello \w+/,
    },
  ];

  const run = async (argv: readonly string[], options: LabRun = {}) => {
    const { ports, nameserver } = internet;
    const all = Object.values(ports).filter((port) => port !== ports.bytes);
    const report = await lab.run(['/usr/bin/env', ...PROXY_NAMES, ...argv], {
      network: { allow: [{ host: 'allowed.test', ports: all, private: true }] },
      nameserver,
      allowRead: [node, publicDirectory()],
      ...options,
    });
    expect(report.error).toBeUndefined();
    expect(report.unmet).toEqual([]);
    return report;
  };

  describe.each(CLIENTS)('$name, without proxy variables', ({ needs, argv, reached }) => {
    beforeAll(() => {
      compileText('static-client', STATIC_CLIENT, ['-static']);
      lab.write('Fetch.java', JAVA);
    });

    test('reaches a host that a rule names', async ({ skip }) => {
      if (needs !== undefined && !existsSync(needs)) skip(`${needs} isn't here`);
      const report = await run(argv('allowed.test', internet.ports, internet.authority));
      expect(`${report.stdout}${report.stderr}`).toMatch(reached);
      expect(report.network?.counters.destinations.map(({ host, denied, failed }) => [host, denied, failed])).toEqual([['allowed.test', 0, 0]]);
    });

    test('does not reach another one, which is counted', async ({ skip }) => {
      if (needs !== undefined && !existsSync(needs)) skip(`${needs} isn't here`);
      const before = internet.asked.length;
      const report = await run(argv('other.test', internet.ports, internet.authority));
      expect(`${report.stdout}${report.stderr}`).not.toMatch(reached);
      const [only, ...rest] = report.network?.counters.destinations ?? [];
      expect([only?.host, only?.allowed, rest]).toEqual(['other.test', 0, []]);
      expect(only?.denied).toBeGreaterThan(0);
      // A name that no rule can allow is never asked for.
      expect(internet.asked.slice(before)).toEqual([]);
    });
  });

  test('a literal address and a port that no rule names are refused', async () => {
    const { ports } = internet;
    const script = `for (const [host, port] of [['127.0.0.1', ${ports.http}], ['192.0.2.77', ${ports.http}], ['allowed.test', ${ports.bytes}]]) require('node:net').connect(port, host).on('error', (e) => console.log(host, e.code)).on('data', () => console.log('answered')).on('connect', function () { this.write('GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n'); });`;
    const report = await run([node, '-e', script]);
    expect(report.stdout.trim().split('\n').sort()).toEqual(['127.0.0.1 ECONNRESET', '192.0.2.77 ECONNRESET', 'allowed.test ECONNREFUSED']);
  });

  test('a thousand connections at once, none of them lost', async () => {
    const { ports } = internet;
    const script = `
let open = 0, right = 0, wrong = 0;
const all = Array.from({ length: 1000 }, (_, n) => require('node:net').connect(${ports.bytes}, 'allowed.test').on('error', () => end(false)).on('connect', function () {
  // Each is open before any is used.
  if (++open === 1000) all.forEach((socket, k) => socket.write('number ' + k + '\\n'));
}).on('data', function (part) { this.text = (this.text ?? '') + part; if (this.text.endsWith('\\n')) end(this.text === 'number ' + n + '\\n'); }));
function end(ok) { ok ? right++ : wrong++; if (right + wrong === 1000) { console.log(right, wrong); process.exit(); } }`;
    const report = await run([node, '-e', script], { network: { allow: [{ host: 'allowed.test', ports: [ports.bytes], private: true }] } });
    expect([report.stdout, report.stderr]).toEqual(['1000 0\n', '']);
    expect(report.network?.counters.mostOpen).toBeGreaterThanOrEqual(1000);
  });

  describe('clients that are configured by the proxy variables', () => {
    const withVariables = async (argv: readonly [string, ...string[]]) => {
      const { ports, nameserver } = internet;
      const report = await lab.run(argv, {
        network: { allow: [{ host: 'allowed.test', ports: Object.values(ports), private: true }] },
        nameserver,
        allowRead: [node, publicDirectory()],
      });
      expect([report.error, report.unmet]).toEqual([undefined, []]);
      return report.stdout + report.stderr;
    };

    test('curl over HTTP, CONNECT and SOCKS; refused ones are told why', async () => {
      const { ports, authority } = internet;
      expect(await withVariables(['/usr/bin/curl', '-sS', `http://allowed.test:${ports.http}/`])).toBe('hello allowed\n'.replace('allowed', 'allowed.test'));
      expect(await withVariables(['/usr/bin/curl', '-sS', '--cacert', authority, `https://allowed.test:${ports.https}/`])).toBe('hello allowed.test\n');
      const socks = `socks5h://198.18.0.2:17817`;
      expect(await withVariables(['/usr/bin/curl', '-sS', '-x', socks, `http://allowed.test:${ports.http}/`])).toBe('hello allowed.test\n');
      expect(await withVariables(['/usr/bin/curl', '-sS', `http://other.test:${ports.http}/`])).toMatch(/^proofrun: denied: /);
      expect(await withVariables(['/usr/bin/curl', '-sS', '--cacert', authority, `https://other.test:${ports.https}/`])).toMatch(
        /CONNECT tunnel failed, response 403|Received HTTP code 403/,
      );
      expect(await withVariables(['/usr/bin/curl', '-sS', '-x', socks, `http://other.test:${ports.http}/`])).toMatch(/SOCKS5|connect/);
    });

    test('the job’s own loopback is not asked of the proxy', async () => {
      const serve = `require('node:http').createServer((q, r) => r.end('mine')).listen(3000, () => require('node:child_process').execFile('/usr/bin/curl', ['-sS', 'http://localhost:3000/'], (e, out) => { console.log(out); process.exit(); }))`;
      expect(await withVariables([node, '-e', serve])).toBe('mine\n');
    });
  });
});

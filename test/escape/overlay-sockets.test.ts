import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { chownSync, readFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { nodeFor } from '../support/job-command.host.ts';
import { AttackLab, outcomes } from '../support/native-attack.host.ts';
import { compileC, compileText } from '../support/native-programs.host.ts';
import { asUser, describeUsers } from '../support/users.host.ts';

/** TCP, UDP and unix sockets that answer whoever reaches them; says where, then waits. */
const TARGETS = `
const { createServer } = require('node:net');
const { createSocket } = require('node:dgram');
const { spawn } = require('node:child_process');
const [directory, name, program] = process.argv.slice(1);
const hi = (socket) => socket.on('error', () => {}).end('x');
const tcp = createServer(hi).listen({ host: '::', port: 0 });
const udp = ['udp4', 'udp6'].map((type) => createSocket({ type, ipv6Only: type === 'udp6', reuseAddr: true }).on('message', (_, from) => udp.find((one) => one.type === type)?.send('x', from.port, from.address)));
for (const one of udp) one.type = one.type ?? (one === udp[0] ? 'udp4' : 'udp6');
createServer(hi).listen(directory + '/stream');
tcp.once('listening', () => udp[0].bind(0, () => udp[1].bind(udp[0].address().port, () => {
  const dns = ['192.0.2.1', '8.8.8.8', '127.0.0.53'];
  const ports = [53, 443, 123].map((port) => { const one = createSocket('udp4').on('message', (_, from) => one.send('x', from.port, from.address)); one.on('error', () => {}); one.bind(port); return one; });
  const child = spawn(program, [String(tcp.address().port), String(udp[0].address().port), name, directory + '/stream', directory + '/datagram', '8081'], { stdio: ['inherit', 'inherit', 'inherit', 'pipe'] });
  child.once('exit', (code) => process.exit(code ?? 1));
})));`;

/** In a namespace of its own: lo up and every address local, so that the targets answer at all of them. */
const OPEN_NETWORK = `
#define _GNU_SOURCE
#include <sys/socket.h>
#include <sys/un.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
  (void)argc;
  if (system("ip link set lo up && ip route add local 0.0.0.0/0 dev lo && ip -6 route add local ::/0 dev lo") != 0) return 9;
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  strncpy(at.sun_path, argv[1], sizeof at.sun_path - 1);
  int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
  if (bind(fd, (void *)&at, sizeof at) != 0) return 8;
  struct sockaddr_un abstract = {.sun_family = AF_UNIX};
  strncpy(abstract.sun_path + 1, argv[2], sizeof abstract.sun_path - 2);
  fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (bind(fd, (void *)&abstract, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(argv[2]))) != 0 || listen(fd, 8) != 0) return 8;
  execv(argv[3], argv + 3);
  return 7;
}`;

/** Attempts that fail in the control arm as well: families that aren't built in, addresses that aren't unicast, ports that the targets hold. */
const REFUSED_ANYWHERE = [
  ...['tcp fe80::1', 'tcp 224.0.0.1', 'tcp 255.255.255.255', 'udp 224.0.0.251', 'udp 255.255.255.255', 'udp ff02::fb', 'udp 2001:4860:4860::8888 dns'],
  ...[
    'unix docker',
    'unix docker scm_rights',
    'vsock stream',
    'vsock datagram',
    'ping',
    'ping ipv6',
    'sctp',
    'mptcp',
    'udplite',
    'alg',
    'xdp',
    'tipc',
    'bluetooth',
  ],
  ...[
    'udp 127.0.0.53 dns',
    'bind resolver everywhere',
    'route delete',
    'bind resolver',
    'bind proxy',
    'bind listened one address',
    'debug',
    'mark',
    'netlink audit',
  ],
  ...[
    'sysctl port start',
    'sysctl nonlocal bind',
    'sysctl forward',
    'net of init',
    'descriptors of init',
    'resolver of the host',
    'join init',
    'take a descriptor',
  ],
];
describeUsers('sockets of a job whose network is open for chosen hosts', (user) => {
  const lab = new AttackLab(user);
  const program = compileC('net-attack', [resolve(import.meta.dirname, '../fixtures/escape/net-attack.c')], ['-static']);
  let met: Readonly<Record<string, string>> = {};
  let reached = 0;
  beforeAll(async () => {
    const tcp = createServer((socket) => {
      reached++;
      socket.on('error', () => undefined).end('x');
    }).listen(0, '::');
    const udp = createSocket('udp4').on('message', () => reached++);
    const name = `proofrun-target-${process.pid}-${user.kind}`;
    const path = join(lab.base, 'stream');
    chownSync(lab.base, user.uid, user.gid);
    udp.bind(0);
    await Promise.all([tcp, udp].map((one) => once(one, 'listening')));
    const victim = await lab.victim([`@${name}`, path]);
    lab.write('net-attack', readFileSync(program), 0o755);
    const words = [String((tcp.address() as AddressInfo).port), String(udp.address().port), name, path, path, '8081'];
    const report = await lab.run([join(lab.workspace, 'net-attack'), ...words], { network: { allow: [{ host: 'allowed.test', ports: [8081] }] }, names: {} });
    expect([report.error, report.unmet, report.stderr]).toEqual([undefined, [], '']);
    met = outcomes(report.stdout);
    expect(victim.alive()).toBe(true);
    victim.end();
    tcp.close();
    udp.close();
  });
  afterAll(async () => {
    await lab.dispose();
  });

  test('nothing of the host, and nothing else, is reached; the network can’t be changed, its listeners not taken over', () => {
    expect(Object.keys(met).length).toBeGreaterThanOrEqual(80);
    for (const [name, outcome] of Object.entries(met)) {
      if (name === 'descriptors left open') expect(outcome).toBe('none');
      else expect([name, outcome]).not.toEqual([name, 'ok']);
    }
    expect(reached).toBe(0);
  });

  test('control arm: the same program in an open network reaches its targets and changes its network', async () => {
    const own = compileText('open-network', OPEN_NETWORK);
    const place = join(lab.base, 'control');
    lab.directory(place);
    const name = `proofrun-control-${process.pid}`;
    const ended = await asUser(user, [
      '/usr/bin/unshare',
      ...['--user', '--map-root-user', '--net', '--', own, join(place, 'datagram'), name],
      ...[nodeFor(user), '-e', TARGETS, place, name, program],
    ]);
    expect([ended.code, ended.stderr]).toEqual([0, '']);
    const open = outcomes(ended.stdout);
    expect(Object.keys(open)).toEqual(Object.keys(met));
    const refused = Object.entries(open).flatMap(([name, outcome]) => (outcome === 'ok' || outcome === 'some' ? [] : [name]));
    expect(REFUSED_ANYWHERE).toEqual(expect.arrayContaining(refused));
    expect(Object.keys(open).length - refused.length).toBeGreaterThanOrEqual(45);
  });
});

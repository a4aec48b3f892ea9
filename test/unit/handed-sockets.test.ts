import { spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect, type AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { HandedSockets } from '../../executors/shim/handles.host.ts';
import { compileText } from '../support/native-programs.host.ts';

/** Opens sockets and hands them over as the shim does, without being Node. Each answer is waited for. */
const GIVER = `
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static FILE *in;
static void give(const char *line, int fd) {
  char room[CMSG_SPACE(sizeof fd)] = {0};
  struct iovec vector = {(void *)(size_t)line, strlen(line)};
  struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(head), &fd, sizeof fd);
  if (sendmsg(3, &message, MSG_NOSIGNAL) < 0) exit(2);
  close(fd);
}
int main(void) {
  struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  char line[256], asked[256];
  in = fdopen(dup(3), "r");
  for (int i = 0; i < 3; i++) {
    int fd = socket(AF_INET, i < 2 ? SOCK_STREAM : SOCK_DGRAM, 0);
    if (bind(fd, (struct sockaddr *)&any, sizeof any) != 0 || (i < 2 && listen(fd, 8) != 0)) exit(1);
    snprintf(line, sizeof line, "{\\"cmd\\":\\"NODE_HANDLE\\",\\"type\\":\\"%s\\",\\"msg\\":{\\"listener\\":\\"%s\\",\\"address\\":\\"%s\\",\\"port\\":%d}}\\n",
      i < 2 ? "net.Native" : "dgram.Native", i < 2 ? "tcp" : "udp", i == 0 ? "0.0.0.0" : "198.18.0.2", i == 0 ? 443 : 53);
    give(line, fd);
    if (fgets(asked, sizeof asked, in) == NULL || strstr(asked, "NODE_HANDLE_ACK") == NULL) exit(3);
  }
  while (fgets(asked, sizeof asked, in) != NULL) {
    int id, port;
    if (sscanf(asked, "{\\"dial\\":[%d,%d]}", &id, &port) != 2) continue;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0) {
      snprintf(line, sizeof line, "{\\"cmd\\":\\"NODE_HANDLE\\",\\"type\\":\\"net.Native\\",\\"msg\\":{\\"dialled\\":%d}}\\n", id);
      give(line, fd);
    } else {
      close(fd);
      int length = snprintf(line, sizeof line, "{\\"dialled\\":%d,\\"errno\\":111}\\n", id);
      if (write(3, line, (size_t)length) < 0) return 4;
    }
  }
}`;

describe('sockets that a process which is not Node hands over', () => {
  const cleanup: (() => unknown)[] = [];
  afterEach(async () => {
    for (const one of cleanup.splice(0).reverse()) await one();
  });

  test('listening TCP, UDP and connected sockets arrive and work', async () => {
    const child = spawn(compileText('giver', GIVER), [], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'], env: {} });
    const handed = new HandedSockets(child, 3);
    const ended = once(child, 'exit');
    cleanup.push(async () => {
      handed.close();
      expect((await ended)[0]).toBe(0);
    });
    await handed.complete;
    expect(handed.listeners.map(({ kind }) => kind)).toEqual(['tcp', 'dns-tcp', 'dns-udp']);
    for (const listener of handed.listeners) {
      if (listener.kind === 'dns-udp') {
        cleanup.push(() => listener.socket.close());
        listener.socket.on('message', (bytes, from) => listener.socket.send(`heard ${bytes.toString()}`, from.port, from.address));
        const client = createSocket('udp4');
        cleanup.push(() => client.close());
        client.send('you', listener.socket.address().port, '127.0.0.1');
        const [answer] = (await once(client, 'message')) as [Buffer];
        expect(answer.toString()).toBe('heard you');
        continue;
      }
      const { server } = listener;
      cleanup.push(() => server.close());
      // Half-closed by the client, it still answers.
      server.on('connection', (socket) => socket.on('data', () => undefined).on('end', () => socket.end(`at ${String(socket.localPort)}`)));
      const { port } = server.address() as AddressInfo;
      const client = connect(port, '127.0.0.1').end('x');
      const [answer] = (await once(client, 'data')) as [Buffer];
      expect(answer.toString()).toBe(`at ${String(port)}`);
    }
    const web = handed.listeners.find((one) => one.kind === 'tcp');
    if (web?.kind !== 'tcp') throw new Error('no listener');
    const { port } = web.server.address() as AddressInfo;
    const dialled = await Promise.all(Array.from({ length: 8 }, () => handed.dial(port)));
    for (const socket of dialled) {
      socket?.end('y');
      const [answer] = (await once(socket ?? web.server, 'data')) as [Buffer];
      expect(answer.toString()).toBe(`at ${String(port)}`);
    }
    expect(await handed.dial(1)).toBeUndefined();
  });

  test('when the process is gone, a dial ends without a connection', async () => {
    const child = spawn(compileText('giver', GIVER), [], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'], env: {} });
    const handed = new HandedSockets(child, 3);
    await handed.complete;
    for (const listener of handed.listeners) cleanup.push(() => (listener.kind === 'dns-udp' ? listener.socket.close() : listener.server.close()));
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
    expect(await handed.dial(80)).toBeUndefined();
    handed.close();
  });
});

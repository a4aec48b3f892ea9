/* Attempts to break a rule, made under exactly the rights of the command. 0 means that the attempt succeeded. */
#define _GNU_SOURCE
#include "shim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int probe_open(const char *path, int flags) {
  int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return errno;
  /* Opening a directory is reading its names. */
  close(fd);
  return 0;
}

static int probe_create(const char *path, int keep) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return errno;
  close(fd);
  if (!keep) unlink(path);
  return 0;
}

static int address_of(const char *text, uint64_t port, struct sockaddr_storage *address, socklen_t *length) {
  struct sockaddr_in *four = (struct sockaddr_in *)address;
  struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
  memset(address, 0, sizeof *address);
  if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons((uint16_t)port);
    *length = sizeof *four;
    return 0;
  }
  if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons((uint16_t)port);
    *length = sizeof *six;
    return 0;
  }
  return EINVAL;
}

/* A connection that has begun (EINPROGRESS after a moment) counts as let through. */
static int probe_inet(const char *text, uint64_t port, int type) {
  struct sockaddr_storage address;
  socklen_t length;
  int error = address_of(text, port, &address, &length);
  if (error != 0) return error;
  int fd = socket(address.ss_family, type | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  struct timeval moment = {0, 200000};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &moment, sizeof moment);
  error = connect(fd, (struct sockaddr *)&address, length) == 0 ? 0 : errno;
  if (error == EINPROGRESS || error == EAGAIN) error = 0;
  if (error == 0 && type == SOCK_DGRAM) {
    error = send(fd, "", 1, MSG_NOSIGNAL) >= 0 ? 0 : errno;
    /* Where nobody listens, the kernel says so to the next call (udp(7)). */
    struct pollfd answer = {fd, POLLIN, 0};
    char byte;
    if (error == 0 && poll(&answer, 1, 200) > 0 && recv(fd, &byte, 1, MSG_DONTWAIT) < 0) error = errno;
  }
  close(fd);
  return error;
}

/* How long whoever owns the listeners may take to judge a request, in milliseconds. */
#define JUDGED_MS 3000

/*
 * Connects and sends a request. Refused is: the connection itself, a reset, an end without an answer (ENODATA), or the
 * refusal that the host's own process writes (EACCES). Silence is ETIMEDOUT, which no rule expects; any other answer is 0.
 */
static int probe_answer(const char *text, uint64_t port) {
  struct sockaddr_storage address;
  socklen_t length;
  int error = address_of(text, port, &address, &length);
  if (error != 0) return error;
  int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  struct timeval patience = {JUDGED_MS / 1000, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  char said[2048];
  int wrote = snprintf(said, sizeof said, strchr(text, ':') != NULL ? "GET / HTTP/1.1\r\nHost: [%s]:%u\r\n\r\n" : "GET / HTTP/1.1\r\nHost: %s:%u\r\n\r\n", text,
                       (unsigned)port);
  size_t used = 0;
  if (connect(fd, (struct sockaddr *)&address, length) != 0) error = errno;
  if (error == 0 && send(fd, said, (size_t)wrote, MSG_NOSIGNAL) < 0) error = errno;
  while (error == 0 && used + 1 < sizeof said) {
    ssize_t got = recv(fd, said + used, sizeof said - 1 - used, 0);
    if (got < 0) error = errno == EAGAIN ? (used > 0 ? 0 : ETIMEDOUT) : errno;
    if (got <= 0) {
      if (got == 0 && used == 0) error = ENODATA;
      break;
    }
    used += (size_t)got;
  }
  if (used > 0) {
    said[used] = 0;
    error = strncmp(said, "HTTP/1.1 403", 12) == 0 && strstr(said, "\r\n\r\nproofrun: denied: ") != NULL ? EACCES : 0;
  }
  if (error == EINPROGRESS || error == EAGAIN) error = ETIMEDOUT;
  close(fd);
  return error;
}

/* One DNS query (RFC 1035) for an A record. NXDOMAIN is ENOENT; another refusal EACCES; an address 0; silence ETIMEDOUT. */
static int probe_name(const char *subject) {
  char server[64];
  const char *name = strchr(subject, ' ');
  if (name == NULL || (size_t)(name - subject) >= sizeof server) return EINVAL;
  memcpy(server, subject, (size_t)(name - subject));
  server[name - subject] = 0;
  struct sockaddr_storage address;
  socklen_t length;
  int error = address_of(server, 53, &address, &length);
  if (error != 0) return error;
  unsigned char packet[512] = {0x50, 0x52, 1, 0, 0, 1};
  size_t at = 12;
  for (const char *label = name + 1; *label != 0;) {
    size_t size = strcspn(label, ".");
    if (size == 0 || size > 63 || at + size + 6 > sizeof packet) return EINVAL;
    packet[at++] = (unsigned char)size;
    memcpy(packet + at, label, size);
    at += size;
    label += size + (label[size] == '.');
  }
  at++;
  packet[at + 1] = 1; /* A */
  packet[at + 3] = 1; /* IN */
  int fd = socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  struct timeval patience = {JUDGED_MS / 1000, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ssize_t got = -1;
  if (connect(fd, (struct sockaddr *)&address, length) != 0 || send(fd, packet, at + 4, MSG_NOSIGNAL) < 0 || (got = recv(fd, packet, sizeof packet, 0)) < 0) {
    error = errno == EAGAIN ? ETIMEDOUT : errno;
  } else if (got < 12) error = EPROTO;
  else error = (packet[3] & 15) == 3 ? ENOENT : (packet[3] & 15) != 0 ? EACCES : 0;
  close(fd);
  return error;
}

static int probe_unix(const char *name) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  size_t length = strlen(name);
  if (length >= sizeof address.sun_path) return ENAMETOOLONG;
  memcpy(address.sun_path, name, length);
  if (name[0] == '@') address.sun_path[0] = 0;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (name[0] == '@' ? 0 : 1));
  int error = connect(fd, (struct sockaddr *)&address, size) == 0 ? 0 : errno;
  if (error == EAGAIN || error == EPROTOTYPE) error = 0; /* somebody listens there */
  close(fd);
  return error;
}

/* The host sends only calls that do nothing lasting when they aren't refused. */
static int probe_syscall(const uint64_t args[6]) {
  errno = 0;
  return syscall((long)args[0], args[1], args[2], args[3], args[4], args[5], 0UL) < 0 ? errno : 0;
}

static int probe_fork(void) {
  pid_t pid = fork();
  if (pid < 0) return errno;
  if (pid == 0) _exit(0);
  while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
  return 0;
}

/* With an environment of nothing; what it would print goes nowhere. The pipe ends with a successful execve. */
static int probe_exec(const char *path) {
  int answer[2];
  if (pipe2(answer, O_CLOEXEC) != 0) return errno;
  pid_t pid = fork();
  if (pid == 0) {
    char *argv[] = {(char *)(uintptr_t)path, NULL}, *env[] = {NULL};
    for (int fd = 0; fd < 3; fd++) close(fd);
    execve(path, argv, env);
    int error = errno;
    (void)!write(answer[1], &error, sizeof error);
    _exit(127);
  }
  int error = pid < 0 ? errno : 0;
  close(answer[1]);
  if (pid > 0) {
    while (read(answer[0], &error, sizeof error) < 0 && errno == EINTR) continue;
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
  }
  close(answer[0]);
  return error;
}

int run_probe(const struct probe_entry *probe, char *attempt, size_t room) {
  const char *subject = probe->subject;
  unsigned long long a0 = probe->args[0];
  switch (probe->kind) {
    case PROBE_OPEN: snprintf(attempt, room, "open(2) flags %#llx of %s", a0, subject); return probe_open(subject, (int)a0);
    case PROBE_CREATE: snprintf(attempt, room, "open(2) O_CREAT of %s", subject); return probe_create(subject, 0);
    case PROBE_STAGE: snprintf(attempt, room, "open(2) O_CREAT of %s", subject); return probe_create(subject, 1);
    case PROBE_TCP: snprintf(attempt, room, "connect(2) tcp %s port %llu", subject, a0); return probe_inet(subject, a0, SOCK_STREAM);
    case PROBE_UDP: snprintf(attempt, room, "connect(2), send(2) udp %s port %llu", subject, a0); return probe_inet(subject, a0, SOCK_DGRAM);
    case PROBE_UNIX: snprintf(attempt, room, "connect(2) unix %s", subject); return probe_unix(subject);
    case PROBE_SYSCALL:
      snprintf(attempt, room, "syscall(2) %llu (%#llx, %#llx, %#llx)", a0, (unsigned long long)probe->args[1], (unsigned long long)probe->args[2],
               (unsigned long long)probe->args[3]);
      return probe_syscall(probe->args);
    case PROBE_KILL: snprintf(attempt, room, "kill(2) %llu, 0", a0); return kill((pid_t)a0, 0) == 0 ? 0 : errno;
    case PROBE_ANSWER: snprintf(attempt, room, "connect(2), a request and its answer: tcp %s port %llu", subject, a0); return probe_answer(subject, a0);
    case PROBE_NAME: snprintf(attempt, room, "a DNS query: %s", subject); return probe_name(subject);
    case PROBE_EXEC: snprintf(attempt, room, "execve(2) of %s", subject); return probe_exec(subject);
    case PROBE_FORK: snprintf(attempt, room, "fork(2)"); return probe_fork();
    default: fail_with("probe", "unknown kind", EPROTO);
  }
}

void remove_stage_probes(const struct command *command) {
  for (size_t i = 0; i < command->probe_count; i++) {
    if (command->probes[i].kind == PROBE_STAGE) unlink(command->probes[i].subject);
  }
}

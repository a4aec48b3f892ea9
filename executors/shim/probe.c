/* Attempts to break a rule, made under exactly the rights of the command. 0 means that the attempt succeeded. */
#define _GNU_SOURCE
#include "shim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
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
  if (error == 0 && type == SOCK_DGRAM) error = send(fd, "", 1, MSG_NOSIGNAL) >= 0 ? 0 : errno;
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
    case PROBE_FORK: snprintf(attempt, room, "fork(2)"); return probe_fork();
    default: fail_with("probe", "unknown kind", EPROTO);
  }
}

void remove_stage_probes(const struct command *command) {
  for (size_t i = 0; i < command->probe_count; i++) {
    if (command->probes[i].kind == PROBE_STAGE) unlink(command->probes[i].subject);
  }
}

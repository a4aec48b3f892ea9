/*
 * AgentCtl, the shim's part. Outer makes two listening sockets: one in the job's own /tmp, one in a directory of the host
 * that only the owner can enter. The first connection starts a process of its own (the guard), which takes both descriptors
 * and carries bytes between the connections and the host process, over descriptor 5; a run in which nobody connects has no
 * such process. The guard reads nothing of what the guest says: it only bounds how much and how fast, so that a guest that
 * floods or stalls holds up itself. Peers of the host socket have to be of the owner's uid (SO_PEERCRED, unix(7)).
 *
 * Frames as on the control channel (shim.h). To the host:
 *   'o' u64 connection, u64 side (0 guest, 1 host)     'd' u64 connection, bytes     'c' u64 connection: it is over
 *   'r' u64 uid: a peer of another uid was refused
 * From the host: 'b' first, before which nobody is answered
 *   'd' u64 connection, bytes                          'c' u64 connection: close when everything is sent
 */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FD_AGENT 5
#define GUEST_SOCKET "agentctl.sock"
#define HOST_SOCKET "host.sock"
#define CLIENT "agentctl"

#define MOST_GUESTS 8
#define MOST_HOSTS 8
#define MOST (MOST_GUESTS + MOST_HOSTS)
#define CHUNK 4096
/* Bytes to one peer that doesn't read; more closes it. */
#define WAITING_BYTES 65536
/* What all connections of the guest together may say: a second's worth at once, then so much a second. */
#define GUEST_RATE 16384
#define GUEST_BURST 65536
/* A connection costs as much as this many bytes. */
#define CONNECTION_COST 512

static int agent_guest = -1, agent_host = -1;

struct peer {
  int fd, host, closing;
  uint64_t number;
  char *out;
  size_t used, sent;
};

static struct peer peers[MOST];
static uint64_t last_number;
static int64_t budget = GUEST_BURST, budget_at;

static int listen_in(const char *directory, const char *name, mode_t mode, uid_t uid, gid_t gid) {
  int place = open(directory, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (place < 0) fail("open", directory);
  struct sockaddr_un local = {.sun_family = AF_UNIX};
  snprintf(local.sun_path, sizeof local.sun_path, "/proc/self/fd/%d/%s", place, name);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) fail("socket", "AF_UNIX");
  if (bind(fd, (struct sockaddr *)&local, sizeof local) != 0) fail("bind", directory);
  if ((uid != geteuid() || gid != getegid()) && fchownat(place, name, uid, gid, AT_SYMLINK_NOFOLLOW) != 0) fail("fchownat", name);
  if (fchmodat(place, name, mode, 0) != 0) fail("fchmodat", name);
  if (listen(fd, 16) != 0) fail("listen", directory);
  close(place);
  return fd;
}

void agent_listen(const char *guest_directory, const char *host_directory, const char *client, uid_t uid, gid_t gid) {
  if (mkdir(guest_directory, 0755) != 0) fail("mkdir", guest_directory);
  agent_guest = listen_in(guest_directory, GUEST_SOCKET, 0600, uid, gid);
  agent_host = listen_in(host_directory, HOST_SOCKET, 0600, geteuid(), getegid());
  char path[4096];
  if (snprintf(path, sizeof path, "%s/" CLIENT, guest_directory) >= (int)sizeof path) fail_with("symlink", guest_directory, ENAMETOOLONG);
  if (symlink(client, path) != 0) fail("symlink", path);
  if ((uid != geteuid() || gid != getegid()) && chown(guest_directory, uid, gid) != 0) fail("chown", guest_directory);
  if (chmod(guest_directory, 0755) != 0) fail("chmod", guest_directory);
}

static void say(uint8_t type, uint64_t a, const void *bytes, size_t length) {
  const void *parts[] = {&a, bytes};
  size_t lengths[] = {sizeof a, length};
  frame_say(FD_AGENT, type, parts, lengths, bytes == NULL ? 1 : 2);
}

static void drop(struct peer *peer, int tell) {
  if (tell) say('c', peer->number, NULL, 0);
  close(peer->fd);
  free(peer->out);
  *peer = (struct peer){.fd = -1};
}

static void admit(int listener, int host) {
  int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  if (!host) budget -= CONNECTION_COST;
  if (host) {
    struct ucred peer = {0, (uid_t)-1, (gid_t)-1};
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid()) {
      say('r', peer.uid, NULL, 0);
      close(fd);
      return;
    }
  }
  int from = host ? MOST_GUESTS : 0, to = host ? MOST : MOST_GUESTS;
  for (int i = from; i < to; i++) {
    if (peers[i].fd >= 0) continue;
    peers[i] = (struct peer){.fd = fd, .host = host, .number = ++last_number};
    const uint64_t side = (uint64_t)host;
    say('o', peers[i].number, &side, sizeof side);
    return;
  }
  close(fd); /* too many at one time */
}

static void hear(struct peer *peer) {
  char bytes[CHUNK];
  ssize_t got = recv(peer->fd, bytes, sizeof bytes, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    drop(peer, 1);
    return;
  }
  if (!peer->host) budget -= got;
  say('d', peer->number, bytes, (size_t)got);
}

static void push(struct peer *peer) {
  while (peer->sent < peer->used) {
    ssize_t n = send(peer->fd, peer->out + peer->sent, peer->used - peer->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      drop(peer, 1);
      return;
    }
    peer->sent += (size_t)n;
  }
  peer->used = peer->sent = 0;
  if (peer->closing) drop(peer, 0);
}

static void obey(const struct frame *frame) {
  struct cursor cursor = cursor_of(frame);
  uint64_t number = take_number(&cursor);
  for (int i = 0; i < MOST; i++) {
    struct peer *peer = &peers[i];
    if (peer->fd < 0 || peer->number != number) continue;
    if (frame->type == 'c') {
      peer->closing = 1;
      push(peer);
      return;
    }
    size_t length = (size_t)(cursor.end - cursor.at);
    if (peer->used - peer->sent + length > WAITING_BYTES && !peer->host) {
      drop(peer, 1); /* it doesn't read */
      return;
    }
    char *more = realloc(peer->out, peer->used + length + 1);
    if (more == NULL) fail("realloc", "agent");
    peer->out = more;
    memcpy(peer->out + peer->used, cursor.at, length);
    peer->used += length;
    push(peer);
    return;
  }
}

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

__attribute__((noreturn)) static void guard(void) {
  fail_control = -1;
  for (int i = 0; i < MOST; i++) peers[i].fd = -1;
  signal(SIGPIPE, SIG_IGN);
  budget_at = now_ms();
  for (;;) {
    int64_t now = now_ms();
    budget += (now - budget_at) * GUEST_RATE / 1000;
    if (budget > GUEST_BURST) budget = GUEST_BURST;
    budget_at = now;
    int listening = budget > 0;
    struct pollfd polled[3 + MOST] = {{FD_AGENT, POLLIN, 0}, {agent_host, POLLIN, 0}, {listening ? agent_guest : -1, POLLIN, 0}};
    for (int i = 0; i < MOST; i++) {
      short events = peers[i].sent < peers[i].used ? POLLOUT : 0;
      if (!peers[i].closing && (peers[i].host || listening)) events |= POLLIN;
      polled[3 + i] = (struct pollfd){events == 0 ? -1 : peers[i].fd, events, 0};
    }
    if (poll(polled, 3 + MOST, listening ? -1 : 1 + (int)(-budget * 1000 / GUEST_RATE)) < 0) {
      if (errno == EINTR) continue;
      _exit(1);
    }
    if (polled[0].revents != 0) {
      struct frame frame;
      if (!frame_read(FD_AGENT, &frame)) _exit(0); /* the host is gone, or has had enough */
      obey(&frame);
    }
    for (int i = 0; i < MOST; i++) {
      if (peers[i].fd < 0 || peers[i].fd != polled[3 + i].fd || polled[3 + i].revents == 0) continue;
      if (polled[3 + i].revents & POLLOUT) push(&peers[i]);
      if (peers[i].fd >= 0 && (polled[3 + i].revents & (POLLIN | POLLHUP | POLLERR))) hear(&peers[i]);
    }
    if (polled[1].revents != 0) admit(agent_host, 1);
    if (polled[2].revents != 0) admit(agent_guest, 0);
  }
}

static pid_t agent_guard;
static int agent_begun;

static void forget(void) {
  if (agent_guest < 0) return;
  close(agent_guest);
  close(agent_host);
  close(FD_AGENT);
  agent_guest = agent_host = -1;
}

/* Without a process for it the connections that wait are turned away; the next one tries again. */
static void turn_away(void) {
  const int listeners[] = {agent_guest, agent_host};
  for (int i = 0; i < 2; i++) {
    for (int fd; (fd = accept4(listeners[i], NULL, NULL, SOCK_CLOEXEC)) >= 0;) close(fd);
  }
}

/* The guard ends with descriptor 5, which the kernel closes when the host process dies, however it dies. */
static void start_guard(void) {
  pid_t pid = fork();
  if (pid < 0) {
    turn_away(); /* the job has used up its processes, this one's group among them */
    return;
  }
  if (pid == 0) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || setsid() < 0) _exit(1);
    int channel = fcntl(FD_AGENT, F_DUPFD_CLOEXEC, 64), guest = fcntl(agent_guest, F_DUPFD_CLOEXEC, 64), host = fcntl(agent_host, F_DUPFD_CLOEXEC, 64);
    if (channel < 0 || guest < 0 || host < 0 || dup2(channel, FD_AGENT) < 0 || dup2(guest, 6) < 0 || dup2(host, 7) < 0) _exit(1);
    for (int fd = 0; fd < FD_AGENT; fd++) close(fd);
    if (syscall(SYS_close_range, 8u, ~0u, 0u) != 0) _exit(1);
    agent_guest = 6;
    agent_host = 7;
    guard();
  }
  agent_guard = pid;
  forget();
}

void agent_poll(struct pollfd polled[3]) {
  polled[0] = (struct pollfd){agent_guest < 0 ? -1 : FD_AGENT, POLLIN, 0};
  polled[1] = (struct pollfd){agent_begun ? agent_guest : -1, POLLIN, 0};
  polled[2] = (struct pollfd){agent_begun ? agent_host : -1, POLLIN, 0};
}

void agent_move(const struct pollfd polled[3]) {
  if (agent_guest < 0) return;
  if (polled[0].fd >= 0 && polled[0].revents != 0) {
    struct frame frame;
    if (!frame_read(FD_AGENT, &frame)) {
      forget(); /* the host is gone, or has had enough */
      return;
    }
    agent_begun = 1;
  }
  if ((polled[1].fd >= 0 && polled[1].revents != 0) || (polled[2].fd >= 0 && polled[2].revents != 0)) start_guard();
}

/* The host lets the guard go when it has answered everybody. Nobody else would reap it. */
void agent_wait(void) {
  struct pollfd polled[3];
  agent_poll(polled);
  /* What the command said last may wait still. */
  if (agent_begun && poll(polled + 1, 2, 0) > 0) agent_move(polled);
  forget();
  int status;
  while (agent_guard > 0 && waitpid(agent_guard, &status, 0) < 0 && errno == EINTR) continue;
}

/* ---- the client: `agentctl` inside the sandbox ---- */

static const char *const client_usage =
    "agentctl: tells the host what this program does (PROOFRUN_AGENTCTL)\n"
    "  agentctl state active|idle|quiesced   say what you do now\n"
    "  agentctl wait                         print the next directive (continue, quiesce, shutdown) when there is one\n";

static int client_connect(void) {
  const char *path = getenv("PROOFRUN_AGENTCTL");
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (path == NULL || strlen(path) >= sizeof address.sun_path) {
    fprintf(stderr, "agentctl: PROOFRUN_AGENTCTL names no socket: this is no job of Proofrun's, or its executor has no AgentCtl\n");
    return -1;
  }
  memcpy(address.sun_path, path, strlen(path));
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
    fprintf(stderr, "agentctl: %s: %s\n", path, strerror(errno));
    return -1;
  }
  return fd;
}

static int client_send(int fd, const char *line) {
  size_t length = strlen(line);
  return send(fd, line, length, MSG_NOSIGNAL) == (ssize_t)length ? 0 : -1;
}

/* One line without its newline; -1 at the end. */
static int client_line(int fd, char *line, size_t room) {
  for (size_t used = 0; used + 1 < room;) {
    ssize_t got = read(fd, line + used, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return -1;
    if (line[used] == '\n') {
      line[used] = 0;
      return 0;
    }
    used++;
  }
  return -1;
}

int cmd_agentctl(int argc, char **argv) {
  static const char *const states[] = {"active", "idle", "quiesced"};
  char line[4096], text[128];
  if (argc == 3 && strcmp(argv[1], "state") == 0) {
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
      if (strcmp(argv[2], states[i]) != 0) continue;
      int fd = client_connect();
      if (fd < 0) return 1;
      snprintf(text, sizeof text, "{\"type\":\"state\",\"state\":\"%s\"}\n", states[i]);
      if (client_send(fd, "{\"type\":\"hello\",\"protocol\":1}\n") != 0 || client_send(fd, text) != 0) return 1;
      while (client_line(fd, line, sizeof line) == 0) {
        if (strstr(line, "\"type\":\"noted\"") != NULL) return 0;
        if (strstr(line, "\"type\":\"refused\"") != NULL) break;
      }
      fprintf(stderr, "agentctl: the host did not take it\n");
      return 1;
    }
  }
  if (argc == 2 && strcmp(argv[1], "wait") == 0) {
    int fd = client_connect();
    if (fd < 0) return 1;
    if (client_send(fd, "{\"type\":\"hello\",\"protocol\":1,\"waits\":true}\n") != 0) return 1;
    while (client_line(fd, line, sizeof line) == 0) {
      char *at = strstr(line, "\"directive\":\"");
      char *end = at == NULL ? NULL : strchr(at + 13, '"');
      if (end == NULL) continue;
      *end = 0;
      printf("%s\n", at + 13);
      return 0;
    }
    return 1;
  }
  fputs(client_usage, stderr);
  return 2;
}

/* The outer half: everything that has to happen before bubblewrap, in the order in which the host sends it. */
#define _GNU_SOURCE
#include "shim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

/* Descriptors of bubblewrap and of inner. The host names FD_SHIM in the argv of bubblewrap (/proc/self/fd/10). */
#define FD_HANDOVER 4
#define FD_SHIM 10

static void write_whole(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) fail("open", path);
  if (write(fd, text, strlen(text)) != (ssize_t)strlen(text)) fail("write", path);
  close(fd);
}

/*
 * Targets for the probes, in the caller's own network: an abstract unix socket, one with a path, and TCP on 127.0.0.1.
 * They live as long as this process, so a refused probe can't be explained by nobody listening.
 */
static void listen_path(const char *path) {
  struct sockaddr_un local = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof local.sun_path) return; /* the host probes such a path with open(2) alone */
  memcpy(local.sun_path, path, strlen(path));
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket", "AF_UNIX");
  if (bind(fd, (struct sockaddr *)&local, sizeof local) != 0) fail("bind", path);
  if (listen(fd, 8) != 0) fail("listen", path);
}

static void open_listeners(const char *abstract) {
  struct sockaddr_un local = {.sun_family = AF_UNIX};
  size_t length = strlen(abstract);
  if (length + 1 > sizeof local.sun_path) fail_with("bind", abstract, ENAMETOOLONG);
  memcpy(local.sun_path + 1, abstract, length);
  int unix_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (unix_fd < 0) fail("socket", "AF_UNIX");
  if (bind(unix_fd, (struct sockaddr *)&local, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) != 0) fail("bind", abstract);
  if (listen(unix_fd, 8) != 0) fail("listen", abstract);
  struct sockaddr_in inet = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof inet;
  int tcp_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  char text[32] = "0"; /* a host without IPv4 loopback has no TCP target; the probe then has no requirement */
  if (tcp_fd >= 0 && bind(tcp_fd, (struct sockaddr *)&inet, sizeof inet) == 0 && listen(tcp_fd, 8) == 0 &&
      getsockname(tcp_fd, (struct sockaddr *)&inet, &size) == 0) {
    snprintf(text, sizeof text, "%u", (unsigned)ntohs(inet.sin_port));
  }
  say_fact_text(FD_CONTROL, "target.tcp", "getsockname(2) in the caller's network", text);
}

/* Nothing below may ever change the network of the caller. */
static int own_network;

static void need_own_network(const char *what) {
  if (!own_network) fail_with(what, "the caller's own network", EPERM);
}

static void unshare_namespaces(struct cursor *cursor) {
  int flags = (int)take_number(cursor);
  int map = (int)take_number(cursor);
  unsigned uid = (unsigned)take_number(cursor), gid = (unsigned)take_number(cursor);
  if (unshare(flags) != 0) fail("unshare", map ? "user, mount" : "mount");
  if (flags & CLONE_NEWNET) own_network = 1;
  if (map) {
    char text[64];
    write_whole("/proc/self/setgroups", "deny");
    snprintf(text, sizeof text, "%u %u 1", uid, uid);
    write_whole("/proc/self/uid_map", text);
    snprintf(text, sizeof text, "%u %u 1", gid, gid);
    write_whole("/proc/self/gid_map", text);
  }
  if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) fail("mount private", "/");
}

static void own(const char *path, uint64_t uid, uint64_t gid) {
  if (uid == geteuid() && gid == getegid()) return;
  if (lchown(path, (uid_t)uid, (gid_t)gid) != 0) fail("chown", path);
}

static void make_directory(struct cursor *cursor) {
  const char *path = take_string(cursor);
  mode_t mode = (mode_t)take_number(cursor);
  uint64_t uid = take_number(cursor), gid = take_number(cursor);
  if (mkdir(path, mode) != 0 && errno != EEXIST) fail("mkdir", path);
  own(path, uid, gid);
  if (chmod(path, mode) != 0) fail("chmod", path);
}

static void make_like(struct cursor *cursor) {
  const char *path = take_string(cursor);
  const char *model = take_string(cursor);
  struct stat facts;
  if (stat(model, &facts) != 0) fail("stat", model);
  if (lchown(path, facts.st_uid, facts.st_gid) != 0 && errno != EINVAL && errno != EPERM) fail("chown", path);
  if (chmod(path, facts.st_mode & 07777) != 0) fail("chmod", path);
  struct timespec times[2] = {facts.st_atim, facts.st_mtim};
  if (utimensat(AT_FDCWD, path, times, 0) != 0) fail("utimensat", path);
}

static void put_file(const char *path, mode_t mode, const void *bytes, size_t length) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0) fail("open", path);
  for (size_t at = 0; at < length;) {
    ssize_t wrote = write(fd, (const char *)bytes + at, length - at);
    if (wrote < 0) fail("write", path);
    at += (size_t)wrote;
  }
  if (fchmod(fd, mode) != 0) fail("fchmod", path);
  close(fd);
}

static void make_file(struct cursor *cursor) {
  const char *path = take_string(cursor);
  mode_t mode = (mode_t)take_number(cursor);
  put_file(path, mode, cursor->at, (size_t)(cursor->end - cursor->at));
}

static void copy_file(struct cursor *cursor) {
  const char *source = take_string(cursor);
  const char *path = take_string(cursor);
  mode_t mode = (mode_t)take_number(cursor);
  char *text;
  ssize_t length = read_file(source, &text);
  if (length < 0) fail("read", source);
  put_file(path, mode, text, (size_t)length);
  uint64_t uid = take_number(cursor), gid = take_number(cursor);
  own(path, uid, gid);
  struct stat facts;
  if (stat(source, &facts) != 0) fail("stat", source);
  struct timespec times[2] = {facts.st_atim, facts.st_mtim};
  if (utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) != 0) fail("utimensat", path);
  free(text);
}

static void operate(const struct frame *frame) {
  struct cursor cursor = cursor_of(frame);
  switch (frame->type) {
    case OP_LISTEN:
      open_listeners(take_string(&cursor));
      listen_path(take_string(&cursor));
      break;
    case OP_UNSHARE: unshare_namespaces(&cursor); break;
    case OP_BASE: make_tmpfs(take_string(&cursor), 0755, 0, geteuid(), getegid(), 0); break;
    case OP_DIR: make_directory(&cursor); break;
    case OP_LIKE: make_like(&cursor); break;
    case OP_SYMLINK: {
      const char *target = take_string(&cursor), *path = take_string(&cursor);
      if (symlink(target, path) != 0) fail("symlink", path);
      break;
    }
    case OP_FILE: make_file(&cursor); break;
    case OP_COPY: copy_file(&cursor); break;
    case OP_WHITEOUT: {
      const char *path = take_string(&cursor);
      if (mknod(path, S_IFCHR, makedev(0, 0)) != 0 && errno != EEXIST) fail("mknod whiteout", path);
      break;
    }
    case OP_OVERLAY: {
      const char *target = take_string(&cursor);
      unsigned flags = (unsigned)take_number(&cursor);
      const char *upper = take_string(&cursor), *work = take_string(&cursor);
      char **lowers = take_strings(&cursor);
      if (lowers[0] == NULL) fail_with("parse", "overlay without a lower layer", EPROTO);
      make_overlay(target, flags, upper, work, lowers);
      break;
    }
    case OP_BIND: {
      const char *source = take_string(&cursor), *target = take_string(&cursor);
      make_bind(source, target, (unsigned)take_number(&cursor));
      break;
    }
    case OP_TMPFS: {
      const char *target = take_string(&cursor);
      unsigned mode = (unsigned)take_number(&cursor);
      uint64_t bytes = take_number(&cursor);
      uid_t uid = (uid_t)take_number(&cursor);
      gid_t gid = (gid_t)take_number(&cursor);
      make_tmpfs(target, mode, bytes, uid, gid, (unsigned)take_number(&cursor));
      break;
    }
    case OP_AGENT: {
      const char *guest = take_string(&cursor), *host = take_string(&cursor), *client = take_string(&cursor);
      uid_t uid = (uid_t)take_number(&cursor);
      agent_listen(guest, host, client, uid, (gid_t)take_number(&cursor));
      break;
    }
    case OP_LOOPBACK: loopback_up(); break;
    case OP_ADDRESS: {
      need_own_network("RTM_NEWADDR");
      const char *address = take_string(&cursor);
      add_address(address, (unsigned)take_number(&cursor));
      break;
    }
    case OP_ALL_LOCAL:
      need_own_network("RTM_NEWROUTE");
      all_addresses_local(take_string(&cursor));
      break;
    case OP_LISTENER: {
      need_own_network("bind");
      uint64_t kind = take_number(&cursor);
      const char *address = take_string(&cursor);
      open_listener(kind, address, take_number(&cursor));
      break;
    }
    case OP_DIALER: start_dialer(); break;
    default: fail_with("parse", "unknown operation", EPROTO);
  }
}

/*
 * A sealed copy of this program in memory, without read permission. Inner is executed from it: no path of the sandbox
 * leads to the shim, the file on the host can't be rewritten through /proc/1/exe (as in CVE-2019-5736), and for an
 * ordinary user an unreadable program is non-dumpable from its first instruction (execve(2), prctl(2) PR_SET_DUMPABLE).
 */
static int sealed_self(void) {
  enum { ALLOW_SEALING = 2, EXECUTABLE = 0x10 };
  int fd = (int)syscall(SYS_memfd_create, "proofrun-shim", (unsigned)(ALLOW_SEALING | EXECUTABLE));
  if (fd < 0 && errno == EINVAL) fd = (int)syscall(SYS_memfd_create, "proofrun-shim", (unsigned)ALLOW_SEALING);
  if (fd < 0) fail("memfd_create", "");
  int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  if (self < 0) fail("open", "/proc/self/exe");
  struct stat facts;
  if (fstat(self, &facts) != 0) fail("fstat", "/proc/self/exe");
  for (off_t at = 0; at < facts.st_size;) {
    static char buffer[1 << 16];
    ssize_t got = read(self, buffer, sizeof buffer);
    if (got <= 0) fail("read", "/proc/self/exe");
    if (write(fd, buffer, (size_t)got) != got) fail("write", "memfd");
    at += got;
  }
  close(self);
  if (fchmod(fd, 0111) != 0) fail("fchmod", "memfd");
  enum { ADD_SEALS = 1033, ALL_SEALS = 0xf };
  if (fcntl(fd, ADD_SEALS, ALL_SEALS) != 0) fail("fcntl F_ADD_SEALS", "memfd");
  return fd;
}

static void place(int fd, int number) {
  if (fd != number && dup2(fd, number) < 0) fail("dup2", "descriptor");
  if (fcntl(number, F_SETFD, 0) != 0) fail("fcntl F_SETFD", "descriptor");
}

static int start(struct cursor *cursor) {
  int terminal = (int)take_number(cursor);
  char **argv = take_strings(cursor);
  if (argv[0] == NULL || argv[0][0] != '/') fail_with("execve", "bubblewrap needs an absolute path", EINVAL);
  struct relay_pipes pipes;
  int shim = sealed_self();
  relay_open(&pipes, terminal);
  pid_t child = fork();
  if (child < 0) fail("fork", "bubblewrap");
  if (child == 0) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail("prctl", "PR_SET_PDEATHSIG");
    if (setsid() < 0) fail("setsid", "");
    int high = fcntl(shim, F_DUPFD, 64);
    if (high < 0) fail("fcntl F_DUPFD", "shim");
    int hand = terminal ? fcntl(pipes.child_handover, F_DUPFD, 64) : -1;
    for (int i = 0; i < 3; i++) place(pipes.child[i], i);
    place(FD_CONTROL, FD_CONTROL);
    place(high, FD_SHIM);
    if (terminal) place(hand, FD_HANDOVER);
    for (unsigned fd = terminal ? 5 : 4; fd < FD_SHIM; fd++) close((int)fd);
    if (syscall(SYS_close_range, (unsigned)FD_SHIM + 1, ~0u, 0u) != 0) fail("close_range", "");
    char *const none[] = {NULL};
    execve(argv[0], argv, none);
    fail("execve", argv[0]);
  }
  for (int i = 0; i < 3; i++) {
    if (pipes.child[i] > 2 && (i < 2 || pipes.child[2] != pipes.child[1])) close(pipes.child[i]);
  }
  if (terminal) close(pipes.child_handover);
  close(shim);
  close(FD_CONTROL);
  close_handles();
  fail_control = -1;
  int code = relay_run(&pipes, child);
  links_settle();
  agent_wait();
  return code;
}

int cmd_outer(int argc, char **argv) {
  (void)argc;
  (void)argv;
  fail_control = FD_CONTROL;
  reset_process();
  say_hello(FD_CONTROL, "outer");
  struct frame frame;
  while (frame_read(FD_CONTROL, &frame)) {
    if (frame.type == OP_START) {
      struct cursor cursor = cursor_of(&frame);
      return start(&cursor);
    }
    operate(&frame);
  }
  return 0; /* the host went away before the start: the namespaces go with us */
}

#define _GNU_SOURCE
#include "tree.h"

#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Which sub-command speaks; set first. */
const char *tree_command = "";

/* What has to be put right before the process ends, whichever way it ends by itself. */
void (*tree_at_exit)(void) = NULL;

/* The line that the host parses: `proofrun-shim COMMAND: CALL SUBJECT: TEXT [ERRNO]`. */
void tree_fail(const char *call, const char *subject) {
  int error = errno;
  void (*last)(void) = tree_at_exit;
  tree_at_exit = NULL;
  if (last != NULL) last();
  fprintf(stderr, "proofrun-shim %s: %s %s: %s [%d]\n", tree_command, call, subject, strerror(error), error);
  _exit(TREE_EXIT_FAILED);
}

void tree_stop(int code, const char *format, ...) {
  va_list list;
  void (*last)(void) = tree_at_exit;
  tree_at_exit = NULL;
  if (last != NULL) last();
  fprintf(stderr, "proofrun-shim %s: ", tree_command);
  va_start(list, format);
  vfprintf(stderr, format, list);
  va_end(list);
  fputc('\n', stderr);
  _exit(code);
}

/* ---- growable bytes ---- */

void bytes_need(struct bytes *b, size_t more) {
  if (b->room - b->used >= more) return;
  size_t room = b->room ? b->room : 4096;
  while (room - b->used < more) room *= 2;
  char *at = realloc(b->at, room);
  if (at == NULL) tree_fail("realloc", "");
  b->at = at;
  b->room = room;
}

void bytes_add(struct bytes *b, const void *from, size_t length) {
  bytes_need(b, length + 1);
  memcpy(b->at + b->used, from, length);
  b->used += length;
}

/* A relative path that grows and shrinks by components; always ends with NUL. */
size_t path_push(struct bytes *path, const char *name, size_t length) {
  size_t before = path->used;
  bytes_need(path, length + 2);
  if (path->used > 0) path->at[path->used++] = '/';
  memcpy(path->at + path->used, name, length);
  path->used += length;
  path->at[path->used] = 0;
  return before;
}

void path_pop(struct bytes *path, size_t before) {
  path->used = before;
  path->at[before] = 0;
}

/* ---- buffered output ---- */

void sink_flush(struct sink *s) {
  size_t done = 0;
  while (done < s->used) {
    ssize_t n = write(s->fd, s->buffer + done, s->used - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) tree_fail("write", s->fd == STDOUT_FILENO ? "stdout" : "output");
    done += (size_t)n;
  }
  s->written += s->used;
  s->used = 0;
}

void sink_put(struct sink *s, const void *from, size_t length) {
  const unsigned char *at = from;
  while (length > 0) {
    if (s->used == sizeof s->buffer) sink_flush(s);
    size_t part = sizeof s->buffer - s->used;
    if (part > length) part = length;
    memcpy(s->buffer + s->used, at, part);
    s->used += part;
    at += part;
    length -= part;
  }
}

/* ---- directories ---- */

ssize_t read_entries(int fd, void *buffer, size_t room) {
  for (;;) {
    long n = syscall(SYS_getdents64, fd, buffer, room);
    if (n < 0 && errno == EINTR) continue;
    return (ssize_t)n;
  }
}

int is_dot(const char *name) {
  return name[0] == '.' && (name[1] == 0 || (name[1] == '.' && name[2] == 0));
}

/* Opens a directory by one name; the last component is never followed. */
int open_directory(int parent, const char *name) {
  return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY);
}

/* Opens a relative path of any number of components beneath `root`: no link, no mount, no way out. "" is root itself. */
int open_beneath(int root, const char *path, int flags) {
  struct open_how how;
  memset(&how, 0, sizeof how);
  how.flags = (unsigned)(flags | O_CLOEXEC);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  const char *rest = path[0] == 0 ? "." : path;
  size_t left = strlen(rest);
  int from = root;
  /* A path longer than PATH_MAX is taken in pieces, each of them beneath the one before. */
  while (left >= 4000) {
    size_t cut = 3900;
    while (cut > 0 && rest[cut] != '/') cut--;
    if (cut == 0) {
      if (from != root) close(from);
      errno = ENAMETOOLONG;
      return -1;
    }
    char piece[4096];
    memcpy(piece, rest, cut);
    piece[cut] = 0;
    struct open_how step = how;
    step.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    int next = (int)syscall(SYS_openat2, from, piece, &step, sizeof step);
    int error = errno;
    if (from != root) close(from);
    if (next < 0) {
      errno = error;
      return -1;
    }
    from = next;
    rest += cut + 1;
    left -= cut + 1;
  }
  int fd;
  do fd = (int)syscall(SYS_openat2, from, rest, &how, sizeof how);
  while (fd < 0 && (errno == EINTR || errno == EAGAIN)); /* EAGAIN: a rename raced with the look-up */
  int error = errno;
  if (from != root) close(from);
  errno = error;
  return fd;
}

/* A name for calls that take only a path: the directory is reached through its descriptor, the last name isn't followed. */
void proc_name(char *out, size_t room, int fd, const char *name) {
  snprintf(out, room, "/proc/self/fd/%d/%s", fd, name);
}

/* As many descriptors as the hard limit allows; returns how many. */
uint64_t raise_descriptor_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) tree_fail("getrlimit", "RLIMIT_NOFILE");
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) tree_fail("setrlimit", "RLIMIT_NOFILE");
  return limit.rlim_max == RLIM_INFINITY ? 1u << 20 : (uint64_t)limit.rlim_max;
}

/* ---- clocks ---- */

int64_t clock_ns(clockid_t clock) {
  struct timespec t;
  if (clock_gettime(clock, &t) != 0) tree_fail("clock_gettime", "");
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The tightest of a few samples: the difference changes only when somebody sets the clock. */
int64_t real_minus_boot(void) {
  int64_t best = 0, width = INT64_MAX;
  for (int i = 0; i < 4; i++) {
    int64_t before = clock_ns(CLOCK_BOOTTIME), real = clock_ns(CLOCK_REALTIME), after = clock_ns(CLOCK_BOOTTIME);
    if (after - before < width) {
      width = after - before;
      best = real - (before + after) / 2;
    }
  }
  return best;
}

void read_boot_id(char out[40]) {
  memset(out, 0, 40);
  int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return; /* without an id every later look is one after a reboot */
  ssize_t n = read(fd, out, 36);
  if (n < 36) memset(out, 0, 40);
  close(fd);
}

uint64_t parse_count(const char *flag, const char *text) {
  char *end = NULL;
  errno = 0;
  unsigned long long n = text == NULL ? 0 : strtoull(text, &end, 10);
  if (text == NULL || text[0] < '0' || text[0] > '9' || errno != 0 || *end != 0)
    tree_stop(TREE_EXIT_USAGE, "%s: expected a whole number, got %s", flag, text == NULL ? "nothing" : text);
  return n;
}

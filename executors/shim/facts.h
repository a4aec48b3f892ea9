/*
 * What scan and apply both read about one entry: content hash with line facts, and the extended attributes that a
 * change may carry. Header only.
 */
#ifndef PROOFRUN_FACTS_H
#define PROOFRUN_FACTS_H

#include "sha256.h"
#include "tree.h"

#include <signal.h>

#define CONTENT_CHUNK (1u << 18)
#define NUL_WITHIN 8000 /* a NUL this early makes a file binary, as git judges it */
#define XATTR_ROOM 65536

struct content {
  unsigned char sha256[32];
  uint64_t lines; /* newline bytes */
  int has_nul, ends_open; /* ends_open: not empty and the last byte isn't a newline */
};

/* Hashes an open regular file from its start. 0, or -1 with errno. */
__attribute__((unused)) static int hash_content(int fd, struct content *out) {
  static unsigned char chunk[CONTENT_CHUNK];
  struct sha256 s;
  uint64_t seen = 0;
  unsigned char last = '\n';
  memset(out, 0, sizeof *out);
  sha256_start(&s);
  for (;;) {
    ssize_t n = pread(fd, chunk, sizeof chunk, (off_t)seen);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    size_t length = (size_t)n;
    if (seen < NUL_WITHIN) {
      size_t early = NUL_WITHIN - seen < length ? (size_t)(NUL_WITHIN - seen) : length;
      if (memchr(chunk, 0, early) != NULL) out->has_nul = 1;
    }
    for (const unsigned char *at = chunk; (at = memchr(at, '\n', (size_t)(chunk + length - at))) != NULL; at++) out->lines++;
    sha256_add(&s, chunk, length);
    last = chunk[length - 1];
    seen += length;
  }
  out->ends_open = seen > 0 && last != '\n';
  sha256_end(&s, out->sha256);
  return 0;
}

/* Attributes that take part in a change: user.*, access control lists, file capabilities. */
__attribute__((unused)) static int xattr_matters(const char *name) {
  return strncmp(name, "user.", 5) == 0 || strcmp(name, "system.posix_acl_access") == 0 || strcmp(name, "system.posix_acl_default") == 0 ||
         strcmp(name, "security.capability") == 0;
}

/*
 * Entries of the layer that its owner closed with a mode such as 0000. The layer is ours: a file is opened up for the
 * moment of its opening, a directory (whose search right is asked for at every look-up) until close_again(). Signals from
 * the terminal wait meanwhile; a failure of ours closes them first. Only a SIGKILL in between leaves a mode changed, in the
 * layer, never in the tree.
 */
struct opened_up {
  int fd; /* O_PATH */
  mode_t mode;
};

static struct opened_up *opened_up;
static size_t opened_up_count, opened_up_room;

__attribute__((unused)) static void hold_signals(int how) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGHUP);
  sigaddset(&set, SIGQUIT);
  sigaddset(&set, SIGPIPE);
  if (sigprocmask(how, &set, NULL) != 0) tree_fail("sigprocmask", "");
}

static int chmod_handle(int handle, mode_t mode) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", handle);
  return chmod(path, mode);
}

/* Closes again what was opened up after the first `keep`. */
__attribute__((unused)) static void close_again(size_t keep) {
  while (opened_up_count > keep) {
    struct opened_up *last = &opened_up[--opened_up_count];
    (void)!chmod_handle(last->fd, last->mode);
    close(last->fd);
  }
}

__attribute__((unused)) static void close_all_again(void) { close_again(0); }

__attribute__((unused)) static int open_closed(int parent, const char *name, int flags, const struct stat *st) {
  if (st->st_uid != geteuid()) {
    errno = EACCES;
    return -1;
  }
  int handle = openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (handle < 0) return -1;
  struct stat now;
  int directory = S_ISDIR(st->st_mode);
  if (fstat(handle, &now) != 0 || now.st_ino != st->st_ino || now.st_dev != st->st_dev || (!S_ISREG(now.st_mode) && !S_ISDIR(now.st_mode))) {
    close(handle);
    errno = EACCES;
    return -1;
  }
  if (opened_up_count == opened_up_room) {
    size_t room = opened_up_room ? opened_up_room * 2 : 16;
    struct opened_up *more = realloc(opened_up, room * sizeof *more);
    if (more == NULL) tree_fail("realloc", name);
    opened_up = more;
    opened_up_room = room;
  }
  hold_signals(SIG_BLOCK);
  tree_at_exit = close_all_again;
  size_t before = opened_up_count;
  opened_up[opened_up_count++] = (struct opened_up){.fd = handle, .mode = now.st_mode & 07777};
  int fd = -1;
  if (chmod_handle(handle, (now.st_mode & 07777) | (directory ? 0700 : 0400)) == 0) fd = openat(parent, name, flags);
  int error = errno;
  if (fd < 0 || !directory) close_again(before);
  errno = error;
  return fd;
}

#endif

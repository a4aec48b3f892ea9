#define _GNU_SOURCE
#include "closed.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "tree.h"

struct opened_up {
  int fd; /* O_PATH */
  mode_t mode;
};

static struct opened_up *opened_up;
static size_t opened_up_count, opened_up_room;

size_t opened_up_now(void) { return opened_up_count; }

static void hold_signals(int how) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGHUP);
  sigaddset(&set, SIGQUIT);
  sigaddset(&set, SIGPIPE);
  if (sigprocmask(how, &set, NULL) != 0) tree_fail("sigprocmask", "");
}

int chmod_handle(int handle, mode_t mode) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", handle);
  return chmod(path, mode);
}

void close_again(size_t keep) {
  while (opened_up_count > keep) {
    struct opened_up *last = &opened_up[--opened_up_count];
    (void)!chmod_handle(last->fd, last->mode);
    close(last->fd);
  }
}

static void close_all_again(void) { close_again(0); }

int open_closed(int parent, const char *name, int flags, const struct stat *st) {
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

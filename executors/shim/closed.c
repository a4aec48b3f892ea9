#define _GNU_SOURCE
#include "closed.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>

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

static int write_text(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t wrote = write(fd, text, strlen(text));
  close(fd);
  return wrote == (ssize_t)strlen(text) ? 0 : -1;
}

/* In a process of its own: a user namespace in which the caller's files are those of somebody whom no mode keeps out. */
__attribute__((noreturn)) static void open_and_send(int channel, int parent, const char *name, int flags) {
  char map[64];
  uid_t uid = geteuid();
  gid_t gid = getegid();
  if (unshare(CLONE_NEWUSER) != 0 || write_text("/proc/self/setgroups", "deny") != 0) _exit(1);
  snprintf(map, sizeof map, "%u %u 1", uid, uid);
  if (write_text("/proc/self/uid_map", map) != 0) _exit(1);
  snprintf(map, sizeof map, "%u %u 1", gid, gid);
  if (write_text("/proc/self/gid_map", map) != 0) _exit(1);
  int fd = openat(parent, name, flags);
  if (fd < 0) _exit(1);
  char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec vector = {&byte, 1};
  struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(head), &fd, sizeof fd);
  _exit(sendmsg(channel, &message, MSG_NOSIGNAL) == 1 ? 0 : 1);
}

int open_untouched(int parent, const char *name, int flags, const struct stat *st) {
  errno = EACCES;
  if (st->st_uid != geteuid() || geteuid() == 0 || st->st_gid != getegid()) return -1;
  int pair[2], fd = -1, status;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return -1;
  pid_t pid = fork();
  if (pid == 0) open_and_send(pair[1], parent, name, flags);
  close(pair[1]);
  if (pid > 0) {
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    ssize_t got;
    do got = recvmsg(pair[0], &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    struct cmsghdr *head = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (head != NULL && head->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(head), sizeof fd);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  }
  close(pair[0]);
  errno = EACCES;
  return fd;
}

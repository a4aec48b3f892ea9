#define _GNU_SOURCE
#include "removal.h"

#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "closed.h"
#include "tree.h"

#define REMOVE_DEPTH 256

struct removal {
  int top;       /* directories that lie too deep are moved here and removed from here */
  dev_t dev;
  uint64_t moved;
  const char *failed;
  int error;
};

static void note_failure(struct removal *r, const char *call) {
  if (r->failed != NULL) return;
  r->failed = call;
  r->error = errno;
}

static int open_for_removal(struct removal *r, int parent, const char *name) {
  int fd = open_directory(parent, name);
  struct stat st;
  if (fd < 0 && errno == EACCES && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid()) {
    /* It is going to be removed: its mode needn't come back. */
    int handle = openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (handle >= 0 && chmod_handle(handle, 0700) == 0) fd = open_directory(parent, name);
    if (handle >= 0) close(handle);
  }
  if (fd < 0) {
    note_failure(r, "openat");
    return -1;
  }
  if (fstat(fd, &st) != 0 || st.st_dev != r->dev) {
    errno = EXDEV;
    note_failure(r, "a mount is in the way");
    close(fd);
    return -1;
  }
  /* Entries can be taken out only of a directory that its owner may write. */
  if ((st.st_mode & 0700) != 0700 && fchmod(fd, (st.st_mode & 07777) | 0700) != 0) note_failure(r, "fchmod");
  return fd;
}

static void remove_contents(struct removal *r, int fd, int depth) {
  struct bytes names = {0};
  char buffer[1 << 13] __attribute__((aligned(8)));
  for (ssize_t n; (n = read_entries(fd, buffer, sizeof buffer)) != 0;) {
    if (n < 0) {
      note_failure(r, "getdents64");
      break;
    }
    for (ssize_t at = 0; at < n;) {
      struct dirent64_raw *e = (struct dirent64_raw *)(buffer + at);
      at += e->d_reclen;
      if (!is_dot(e->d_name)) bytes_add(&names, e->d_name, strlen(e->d_name) + 1);
    }
  }
  for (size_t at = 0; at < names.used; at += strlen(names.at + at) + 1) {
    const char *name = names.at + at;
    if (unlinkat(fd, name, 0) == 0 || errno == ENOENT) continue;
    if (errno != EISDIR && errno != EPERM) {
      note_failure(r, "unlinkat");
      continue;
    }
    if (depth >= REMOVE_DEPTH) {
      char moved[40];
      snprintf(moved, sizeof moved, ".deep-%llu", (unsigned long long)r->moved++);
      if (syscall(SYS_renameat2, fd, name, r->top, moved, RENAME_NOREPLACE) != 0) note_failure(r, "renameat2");
      continue;
    }
    /* An empty one of somebody else's (a mount by root leaves one) goes with the right on its parent alone. */
    if (unlinkat(fd, name, AT_REMOVEDIR) == 0) continue;
    int child = open_for_removal(r, fd, name);
    if (child < 0) continue;
    remove_contents(r, child, depth + 1);
    close(child);
    if (unlinkat(fd, name, AT_REMOVEDIR) != 0 && errno != ENOENT) note_failure(r, "unlinkat");
  }
  free(names.at);
}

const char *remove_tree(int parent, const char *name) {
  struct stat st;
  if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? NULL : "fstatat";
  if (!S_ISDIR(st.st_mode)) return unlinkat(parent, name, 0) == 0 || errno == ENOENT ? NULL : "unlinkat";
  struct removal r = {.dev = st.st_dev};
  int fd = open_for_removal(&r, parent, name);
  if (fd >= 0) {
    r.top = fd;
    uint64_t before;
    do {
      before = r.moved;
      if (lseek(fd, 0, SEEK_SET) < 0) note_failure(&r, "lseek");
      remove_contents(&r, fd, 0);
    } while (r.failed == NULL && r.moved != before);
    close(fd);
    if (r.failed == NULL && unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT) note_failure(&r, "unlinkat");
  }
  errno = r.error;
  return r.failed;
}

int remove_directory(const char *path) {
  const char *slash = strrchr(path, '/');
  if (path[0] != '/' || slash == NULL || slash[1] == 0 || is_dot(slash + 1)) tree_stop(TREE_EXIT_USAGE, "--remove: expected an absolute path, got %s", path);
  char *parent_path = strndup(path, slash == path ? 1 : (size_t)(slash - path));
  if (parent_path == NULL) tree_fail("strndup", "");
  int parent = open(parent_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  free(parent_path);
  if (parent < 0 && errno == ENOENT) return 0;
  if (parent < 0) tree_fail("open", path);
  const char *call = remove_tree(parent, slash + 1);
  if (call != NULL) tree_fail(call, path);
  close(parent);
  return 0;
}

#define _GNU_SOURCE
#include "apply.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "removal.h"

/* What of the staging directory was in the tree before: the old side of a deletion or a replacement. */
static bool holds_old(const struct operation *o, uint32_t index, char name[16]) {
  if (o->kind != OP_DELETE && o->kind != OP_REPLACE) return false;
  staged_name(name, o->kind == OP_DELETE ? 'd' : 'n', index);
  return o->before.type == DT_REG || o->before.type == DT_LNK || o->before.type == DT_FIFO;
}

static bool copy_file(uint32_t index, int from_dir, int to_dir, const char *name, const struct state *s) {
  int from = openat(from_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (from < 0) return failed_call(index, "openat");
  int to = openat(to_dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  bool good = to >= 0 || failed_call(index, "openat");
  if (good) good = copy_content(index, from, to, s);
  close(from);
  if (to >= 0 && close(to) != 0 && good) good = failed_call(index, "close");
  return good;
}

/* Copies one old entry with all that is known of it. */
static bool copy_old(struct plan *plan, uint32_t index, const char *name, int to_dir) {
  struct operation *o = &plan->operations[index];
  int from_dir = plan->roots[o->root].staging_fd;
  const struct state *s = &o->before;
  struct stat st;
  if (fstatat(from_dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT || failed_call(index, "fstatat");
  if (st.st_nlink > 1) {
    for (uint32_t j = 0; j < index; j++) {
      char other[16];
      if (holds_old(&plan->operations[j], j, other) && plan->operations[j].root == o->root && plan->operations[j].before.ino == s->ino && linkat(to_dir, other, to_dir, name, 0) == 0) return true;
    }
  }
  bool made = s->type == DT_REG ? copy_file(index, from_dir, to_dir, name, s)
              : s->type == DT_LNK ? symlinkat(s->target.at, to_dir, name) == 0 || failed_call(index, "symlinkat")
                                  : mkfifoat(to_dir, name, 0600) == 0 || failed_call(index, "mkfifoat");
  if (!made) return false;
  int fd = openat(to_dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return failed_call(index, "openat");
  const char *call = set_attributes(fd, NULL, s, geteuid() == 0, s->mode);
  close(fd);
  if (call != NULL) return failed_call(index, call);
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, s->mtime};
  return utimensat(to_dir, name, times, AT_SYMLINK_NOFOLLOW) == 0 || failed_call(index, "utimensat");
}

static bool copy_root(struct plan *plan, uint32_t root, int parent, const char *name) {
  const char *call = remove_tree(parent, name); /* what an interrupted copy left */
  if (call != NULL) return failed_call(NO_OPERATION, call);
  if (mkdirat(parent, name, 0700) != 0) return failed_call(NO_OPERATION, "mkdirat");
  int to = open_directory(parent, name);
  if (to < 0) return failed_call(NO_OPERATION, "openat");
  bool good = true;
  for (uint32_t i = 0; good && i < plan->operation_count; i++) {
    char entry[16];
    if (plan->operations[i].root == root && holds_old(&plan->operations[i], i, entry)) good = copy_old(plan, i, entry, to);
  }
  if (good && syncfs(to) != 0) good = failed_call(NO_OPERATION, "syncfs");
  close(to);
  return good;
}

/*
 * Beside the state the staging directory itself moves, and with it the very files. In the root it has to go: there the files are
 * copied. Repeating it is fine.
 */
static bool keep_root(struct plan *plan, uint32_t index, int to) {
  struct root *root = &plan->roots[index];
  char name[96];
  outside_name(plan, index, name);
  if (root->staging_parent.length > 0) {
    int parent = open(root->staging_parent.at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (parent < 0) return failed_call(NO_OPERATION, "open");
    int moved = rename_two(parent, name, to, name, 1 /* RENAME_NOREPLACE */);
    int error = errno;
    close(parent);
    errno = error;
    if (moved == 0) return true;
    if (errno != ENOENT) return failed_call(NO_OPERATION, "renameat2");
  }
  root->fd = open(root->path.at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (root->fd < 0) return failed_call(NO_OPERATION, "open");
  inside_name(plan, name);
  root->staging_fd = open_directory(root->fd, name);
  if (root->staging_fd < 0) return errno == ENOENT || failed_call(NO_OPERATION, "openat");
  outside_name(plan, index, name);
  return copy_root(plan, index, to, name);
}

void keep_plan(struct plan *plan, const char *directory) {
  int to = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  bool good = to >= 0 || failed_call(NO_OPERATION, "open");
  for (uint32_t i = 0; good && i < plan->root_count; i++) good = keep_root(plan, i, to);
  if (good && fsync(to) != 0) good = failed_call(NO_OPERATION, "fsync");
  if (to >= 0) close(to);
  answer(plan, good ? "kept" : "failed", 0, !good, false);
}

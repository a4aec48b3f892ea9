#define _GNU_SOURCE
#include "apply.h"

#include <linux/fs.h>
#include <stdio.h>

#include "closed.h"

/* `moved`: our own renames may have touched the ctime (another name of the same file). */
bool check_before(struct plan *plan, uint32_t index, bool moved) {
  struct operation *o = &plan->operations[index];
  /* Beneath a directory that this batch makes nothing can be yet. */
  if (o->parent_operation != NO_OPERATION) return true;
  int parent = open_parent(plan, index);
  if (parent < 0) return false;
  struct stat st;
  if (fstatat(parent, last_name(o->path), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno != ENOENT) return failed_call(index, "fstatat");
    return o->kind == OP_ADD ? true : conflicts(index, "it is no longer there");
  }
  if (o->kind == OP_ADD) return conflicts(index, "something is there now");
  if (o->flags & FLAG_BY_CONTENT) {
    /* A directory still has its entries here; whether it is empty is looked at when its turn comes. */
    bool same = o->before.type == DT_DIR ? same_facts(&o->before, &st, true) : moved || is_preimage(parent, last_name(o->path), &o->before);
    return same ? true : conflicts(index, "it is no longer as it was applied");
  }
  return same_facts(&o->before, &st, moved) ? true : conflicts(index, "it was changed or replaced");
}

/* Opens what an attribute change is about, verified by identity. */
int open_target(struct plan *plan, uint32_t index, uint64_t dev, uint64_t ino) {
  struct operation *o = &plan->operations[index];
  int parent = open_parent(plan, index);
  if (parent < 0) return -1;
  int fd = openat(parent, last_name(o->path), O_PATH | O_NOFOLLOW | O_CLOEXEC);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0) {
    if (errno == ENOENT) conflicts(index, "it is no longer there");
    else failed_call(index, "openat");
  } else if (st.st_ino != ino || (dev != 0 && dev_of(&st) != dev)) {
    conflicts(index, "it was changed or replaced");
  } else {
    return fd;
  }
  if (fd >= 0) close(fd);
  return -1;
}

bool change_attributes(struct plan *plan, uint32_t index, const struct state *from, const struct state *to) {
  struct operation *o = &plan->operations[index];
  int fd = open_target(plan, index, o->before.dev, o->before.ino);
  if (fd < 0) return false;
  const char *call = set_attributes(fd, from, to, (o->flags & FLAG_OWNER) != 0, to->mode);
  /* A directory's time moves with its entries; a file's comes along. */
  if (call == NULL && to->type == DT_REG && !same_time(from->mtime, to->mtime)) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, to->mtime};
    if (utimensat(AT_FDCWD, path, times, 0) != 0) call = "utimensat";
  }
  if (call != NULL) failed_call(index, call);
  close(fd);
  return call == NULL;
}

/* Carries out one operation. When it fails, this operation itself has already been put back. */
bool swap_operation(struct plan *plan, uint32_t index) {
  struct operation *o = &plan->operations[index];
  int staging = plan->roots[o->root].staging_fd;
  char fresh[16], old[16];
  staged_name(fresh, 'n', index);
  staged_name(old, 'd', index);
  const char *name = last_name(o->path);
  step("before", index);
  if (o->kind == OP_ATTRIBUTES) {
    if (open_parent(plan, index) >= 0) keep_parent(o);
    if (!change_attributes(plan, index, &o->before, &o->after)) {
      struct trouble first = trouble;
      if (!first.conflict && !change_attributes(plan, index, &o->after, &o->before)) o->done = true; /* the roll-back tries again and reports */
      trouble = first;
      return false;
    }
    o->done = true;
    step("swapped", index);
    return true;
  }
  int parent = open_parent(plan, index);
  if (parent < 0) return false;
  keep_parent(o);
  if (o->kind == OP_ADD) {
    if (rename_two(staging, fresh, parent, name, RENAME_NOREPLACE) != 0) return errno == EEXIST ? conflicts(index, "something is there now") : failed_call(index, "renameat2");
    o->done = true;
    step("swapped", index);
    return true;
  }
  if (!check_before(plan, index, true)) return false;
  if (o->kind == OP_DELETE) {
    if (rename_two(parent, name, staging, old, RENAME_NOREPLACE) != 0) return errno == ENOENT ? conflicts(index, "it is no longer there") : failed_call(index, "renameat2");
    o->done = true;
    step("swapped", index);
    if (is_preimage(staging, old, &o->before)) return true;
  } else {
    if (rename_two(staging, fresh, parent, name, RENAME_EXCHANGE) != 0) return errno == ENOENT ? conflicts(index, "it is no longer there") : failed_call(index, "renameat2");
    o->done = true;
    step("swapped", index);
    if (is_preimage(staging, fresh, &o->before)) return true;
  }
  return conflicts(index, "it was changed at the moment of the swap");
}

/* Whether what comes back from the tree is still what was brought there. */
static bool as_staged(int fd, const char *name, const struct operation *o) {
  struct stat st;
  if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || st.st_ino != o->new_ino) return false;
  if (S_ISDIR(st.st_mode)) return directory_empty(fd, name);
  return (uint64_t)st.st_size == o->after.size && same_time(st.st_mtim, o->after.mtime);
}

/* A directory that its owner may not write can't be moved; its mode is of no importance any more. */
static bool open_again(int parent, const char *name) {
  int fd = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  bool opened = chmod_handle(fd, 0700) == 0;
  close(fd);
  return opened;
}

/* Puts one done operation back. False: something else is there now, and what was there before stays in the staging directory. */
static bool put_back(struct plan *plan, uint32_t index) {
  struct operation *o = &plan->operations[index];
  int staging = plan->roots[o->root].staging_fd;
  char fresh[16], old[16];
  staged_name(fresh, 'n', index);
  staged_name(old, 'd', index);
  const char *name = last_name(o->path);
  step("put-back", index);
  if (o->kind == OP_ATTRIBUTES) return change_attributes(plan, index, &o->after, &o->before);
  int parent = open_parent(plan, index);
  if (parent < 0) return false;
  switch (o->kind) {
    case OP_ADD:
      /* Gone or replaced by somebody: there is nothing of ours to take back, and nothing was there before. */
      if (inode_at(parent, name) != o->new_ino) return true;
      if (rename_two(parent, name, staging, fresh, RENAME_NOREPLACE) != 0 && (errno != EACCES || !open_again(parent, name) || rename_two(parent, name, staging, fresh, RENAME_NOREPLACE) != 0))
        return errno == ENOENT;
      if (as_staged(staging, fresh, o)) return true;
      /* Somebody has worked on it already: it is theirs now. */
      return rename_two(staging, fresh, parent, name, RENAME_NOREPLACE) == 0 && o->after.type == DT_DIR;
    case OP_DELETE:
      return rename_two(staging, old, parent, name, RENAME_NOREPLACE) == 0;
    default:
      if (inode_at(parent, name) != o->new_ino) return false;
      if (rename_two(staging, fresh, parent, name, RENAME_EXCHANGE) != 0) return false;
      if (as_staged(staging, fresh, o)) return true;
      (void)!rename_two(staging, fresh, parent, name, RENAME_EXCHANGE);
      return false;
  }
}

/* Puts back all that is done, last first; the count of operations that couldn't be. Their `done` stays set. */
uint32_t roll_back(struct plan *plan) {
  uint32_t stuck = 0;
  struct trouble first = trouble;
  forget_parent();
  for (uint32_t i = plan->operation_count; i-- > 0;) {
    if (!plan->operations[i].done) continue;
    if (put_back(plan, i)) plan->operations[i].done = false;
    else stuck++;
  }
  forget_parent();
  for (uint32_t i = 0; i < plan->root_count; i++)
    if (plan->roots[i].fd >= 0) (void)!syncfs(plan->roots[i].fd);
  trouble = first;
  return stuck;
}

/* New directories get their own mode and time once everything lies in them; the deepest first. */
bool finish_directories(struct plan *plan) {
  if (plan->finished) return true;
  forget_parent();
  for (uint32_t i = plan->operation_count; i-- > 0;) {
    struct operation *o = &plan->operations[i];
    if ((o->kind != OP_ADD && o->kind != OP_REPLACE) || o->after.type != DT_DIR) continue;
    int fd = open_target(plan, i, 0, o->new_ino);
    if (fd < 0) return false;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, o->after.mtime};
    const char *call = utimensat(AT_FDCWD, path, times, 0) != 0 ? "utimensat" : chmod(path, o->after.mode) != 0 ? "chmod" : NULL;
    if (call != NULL) failed_call(i, call);
    close(fd);
    if (call != NULL) return false;
  }
  forget_parent();
  plan->finished = true;
  return true;
}

bool commit_plan(struct plan *plan) {
  if (!finish_directories(plan)) return false;
  step("finished", NO_OPERATION);
  if (!sync_roots(plan)) return false;
  step("final-synced", NO_OPERATION);
  int staging = plan->roots[0].staging_fd;
  if (rename_two(staging, "manifest", staging, "committed", RENAME_NOREPLACE) != 0) return failed_call(NO_OPERATION, "renameat2");
  (void)!fsync(staging); /* the rename holds; only its moment on disk is in question */
  step("committed", NO_OPERATION);
  return true;
}

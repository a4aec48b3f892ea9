#define _GNU_SOURCE
#include "apply.h"

#include <stdlib.h>
#include <sys/stat.h>

/*
 * The parent directory of an operation's path, verified. It stays open while operations stay in the same directory, and
 * (up to a bound) until the run ends: what has to be put back goes to the directory that it came from, wherever that is then.
 */
#define MAX_KEPT_PARENTS 8192
static struct {
  int fd;
  uint16_t root;
  char *path;
  size_t length;
} cached = {.fd = -1};
static int kept_parents[MAX_KEPT_PARENTS];
static size_t kept_parent_count, kept_parent_limit = MAX_KEPT_PARENTS;

static bool cached_is_kept(void) { return kept_parent_count > 0 && kept_parents[kept_parent_count - 1] == cached.fd; }

void forget_parent(void) {
  if (cached.fd >= 0 && !cached_is_kept()) close(cached.fd);
  cached.fd = -1;
}

/* Notes where an operation is about to be done. */
void keep_parent(struct operation *o) {
  if (cached.fd < 0) return;
  if (!cached_is_kept()) {
    if (kept_parent_count >= kept_parent_limit) return;
    kept_parents[kept_parent_count++] = cached.fd;
  }
  o->parent_fd = cached.fd;
}

void close_parents(struct plan *plan) {
  forget_parent();
  while (kept_parent_count > 0) close(kept_parents[--kept_parent_count]);
  for (uint32_t i = 0; i < plan->operation_count; i++) plan->operations[i].parent_fd = -1;
}

int open_parent(struct plan *plan, uint32_t index) {
  struct operation *o = &plan->operations[index];
  if (o->parent_fd >= 0) return o->parent_fd;
  const char *slash = strrchr(o->path.at, '/');
  size_t length = slash == NULL ? 0 : (size_t)(slash - o->path.at);
  if (cached.fd >= 0 && cached.root == o->root && cached.length == length && memcmp(cached.path, o->path.at, length) == 0) return cached.fd;
  forget_parent();
  char *path = realloc(cached.path, length + 1);
  if (path == NULL) tree_fail("realloc", "");
  cached.path = path;
  memcpy(path, o->path.at, length);
  path[length] = 0;
  cached.length = length;
  cached.root = o->root;
  int fd = open_beneath(plan->roots[o->root].fd, path, O_PATH | O_DIRECTORY | O_NOFOLLOW);
  if (fd < 0) {
    if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EXDEV) conflicts(index, "a directory above it was replaced");
    else failed_call(index, "openat2");
    return -1;
  }
  struct stat st;
  if (fstat(fd, &st) != 0) {
    failed_call(index, "fstat");
    close(fd);
    return -1;
  }
  bool known = o->parent_operation != NO_OPERATION ? st.st_ino == plan->operations[o->parent_operation].new_ino
                                                   : st.st_ino == o->parent_ino && dev_of(&st) == o->parent_dev;
  if (!known) {
    conflicts(index, "a directory above it was replaced");
    close(fd);
    return -1;
  }
  cached.fd = fd;
  return fd;
}

/* Leaves enough descriptors for everything else. */
void limit_kept_parents(uint64_t descriptors) {
  if (descriptors < MAX_KEPT_PARENTS + 128) kept_parent_limit = descriptors > 256 ? (size_t)descriptors - 128 : 0;
}

#define _GNU_SOURCE
#include "apply.h"

#include <limits.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "content.h"

uint64_t dev_of(const struct stat *st) { return (uint64_t)major(st->st_dev) << 32 | minor(st->st_dev); }

int rename_two(int from_fd, const char *from, int to_fd, const char *to, unsigned flags) {
  return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

const char *last_name(struct text path) {
  const char *slash = strrchr(path.at, '/');
  return slash == NULL ? path.at : slash + 1;
}

uint64_t inode_at(int fd, const char *name) {
  struct stat st;
  return fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_ino : 0;
}

bool same_time(struct timespec a, struct timespec b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

bool same_facts(const struct state *s, const struct stat *st, bool moved) {
  if (IFTODT(st->st_mode) != s->type || st->st_ino != s->ino || dev_of(st) != s->dev) return false;
  if (s->type == DT_DIR) return true; /* times of a directory move with its entries */
  return (st->st_mode & 07777) == s->mode && (uint64_t)st->st_size == s->size && same_time(st->st_mtim, s->mtime) && (moved || same_time(st->st_ctim, s->ctime));
}

bool directory_empty(int parent, const char *name) {
  char buffer[4096] __attribute__((aligned(8)));
  int fd = open_directory(parent, name);
  if (fd < 0) return false;
  ssize_t n;
  bool empty = true;
  while (empty && (n = read_entries(fd, buffer, sizeof buffer)) > 0) {
    for (ssize_t at = 0; at < n;) {
      struct dirent64_raw *e = (struct dirent64_raw *)(buffer + at);
      at += e->d_reclen;
      if (!is_dot(e->d_name)) empty = false;
    }
  }
  close(fd);
  return empty;
}

bool is_preimage(int fd, const char *name, const struct state *s) {
  struct stat st;
  if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !same_facts(s, &st, true)) return false;
  if (s->type == DT_DIR) return directory_empty(fd, name);
  if (s->type == DT_LNK) {
    char target[PATH_MAX + 1];
    ssize_t n = readlinkat(fd, name, target, sizeof target);
    return n >= 0 && (size_t)n == s->target.length && memcmp(target, s->target.at, (size_t)n) == 0;
  }
  if (s->type != DT_REG || !s->hash_known) return true;
  int file = openat(fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  /* A file that is closed to its owner is told by its facts alone: opening it up would leave another mode behind when we are killed. */
  if (file < 0) return errno == EACCES && st.st_uid == geteuid();
  struct content content;
  bool same = hash_content(file, &content) == 0 && memcmp(content.sha256, s->sha256, 32) == 0;
  close(file);
  return same;
}

static void next_xattr(struct reader *r, struct text *name, struct text *value) {
  *name = take_text(r);
  *value = take_text(r);
}

static bool find_xattr(const struct state *s, struct text wanted, struct text *value) {
  struct reader r = {s->xattrs, (const unsigned char *)UINTPTR_MAX};
  for (uint16_t i = 0; i < s->xattr_count; i++) {
    struct text name;
    next_xattr(&r, &name, value);
    if (name.length == wanted.length && memcmp(name.at, wanted.at, name.length) == 0) return true;
  }
  return false;
}

static bool ours_to_set(struct text name) { return strncmp(name.at, "security.", 9) != 0; }

uint32_t writable_mode(const struct state *s, uint32_t mode) { return mode | (s->type == DT_DIR ? 0700u : 0600u); }

const char *set_attributes(int fd, const struct state *from, const struct state *to, bool owner, uint32_t mode) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (owner && fchownat(fd, "", to->uid, to->gid, AT_EMPTY_PATH) != 0) return "chown";
  if (to->type == DT_LNK) return NULL;
  /* Attributes of the user's own can be set only on what the user may write. */
  bool xattrs = to->xattr_count > 0 || (from != NULL && from->xattr_count > 0);
  if (chmod(path, xattrs ? writable_mode(to, mode) : mode) != 0) return "chmod";
  struct text name, value, other;
  if (from != NULL) {
    struct reader r = {from->xattrs, (const unsigned char *)UINTPTR_MAX};
    for (uint16_t i = 0; i < from->xattr_count; i++) {
      next_xattr(&r, &name, &value);
      if (ours_to_set(name) && !find_xattr(to, name, &other) && removexattr(path, name.at) != 0 && errno != ENODATA) return "removexattr";
    }
  }
  struct reader r = {to->xattrs, (const unsigned char *)UINTPTR_MAX};
  for (uint16_t i = 0; i < to->xattr_count; i++) {
    next_xattr(&r, &name, &value);
    if (ours_to_set(name) && setxattr(path, name.at, value.at, value.length, 0) != 0) return "setxattr";
  }
  if (xattrs && chmod(path, mode) != 0) return "chmod";
  return NULL;
}

#define _GNU_SOURCE
#include "apply.h"

#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "closed.h"
#include "content.h"
#include "sha256.h"

static uint64_t mount_of(int fd) {
  struct statx s;
  if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &s) != 0) return 0;
  return s.stx_mnt_id;
}

bool open_roots(struct plan *plan) {
  for (uint32_t i = 0; i < plan->root_count; i++) {
    struct root *root = &plan->roots[i];
    root->fd = open(root->path.at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (root->fd < 0) return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? conflicts(NO_OPERATION, "the root is no longer there") : failed_call(NO_OPERATION, "open");
    struct stat st;
    if (fstat(root->fd, &st) != 0) return failed_call(NO_OPERATION, "fstat");
    if (st.st_ino != root->ino || dev_of(&st) != root->dev) return conflicts(NO_OPERATION, "the root is another directory now");
    root->mount = mount_of(root->fd);
  }
  return true;
}

void inside_name(const struct plan *plan, char out[96]) { snprintf(out, 96, ".proofrun-apply-%s", plan->id.at); }
void outside_name(const struct plan *plan, uint32_t root, char out[96]) { snprintf(out, 96, "%s.%u", plan->id.at, root); }

/* Makes the staging directory of a root: beside the state when that is the same mount, else inside the root. */
bool make_staging(struct plan *plan, uint32_t index) {
  struct root *root = &plan->roots[index];
  char name[96];
  if (root->staging_parent.length > 0) {
    int parent = open(root->staging_parent.at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (parent < 0) return failed_call(NO_OPERATION, "open");
    struct stat st;
    if (fstat(parent, &st) != 0) {
      close(parent);
      return failed_call(NO_OPERATION, "fstat");
    }
    if (dev_of(&st) == root->dev && root->mount != 0 && mount_of(parent) == root->mount) {
      outside_name(plan, index, name);
      bool made = mkdirat(parent, name, 0700) == 0;
      if (made) root->staging_fd = open_directory(parent, name);
      if (!made || root->staging_fd < 0) failed_call(NO_OPERATION, made ? "openat" : "mkdirat");
      close(parent);
      return root->staging_fd >= 0;
    }
    close(parent);
  }
  inside_name(plan, name);
  if (mkdirat(root->fd, name, 0700) != 0) return failed_call(NO_OPERATION, "mkdirat");
  root->staging_inside = true;
  root->staging_fd = open_directory(root->fd, name);
  return root->staging_fd >= 0 ? true : failed_call(NO_OPERATION, "openat");
}

/* Finds a staging directory that an earlier process made; staging_fd stays -1 when there is none. */
bool find_staging(struct plan *plan, uint32_t index) {
  struct root *root = &plan->roots[index];
  char name[96];
  if (root->staging_parent.length > 0) {
    int parent = open(root->staging_parent.at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (parent >= 0) {
      outside_name(plan, index, name);
      root->staging_fd = open_directory(parent, name);
      int error = errno;
      close(parent);
      errno = error;
    }
    if (root->staging_fd >= 0) return true;
    if (errno != ENOENT) return failed_call(NO_OPERATION, "openat");
  }
  inside_name(plan, name);
  root->staging_fd = open_directory(root->fd, name);
  root->staging_inside = root->staging_fd >= 0;
  return root->staging_fd >= 0 || errno == ENOENT ? true : failed_call(NO_OPERATION, "openat");
}

void staged_name(char out[16], char kind, uint32_t operation) { snprintf(out, 16, "%c%u", kind, operation); }

/* The layer's directory that holds `path`, opened name by name, also through directories that their owner closed. */
static int open_layer_parent(int upper, const char *path) {
  int fd = dup(upper);
  if (fd < 0) return -1;
  for (const char *slash; (slash = strchr(path, '/')) != NULL; path = slash + 1) {
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)(slash - path), path);
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    struct stat st;
    int next = openat(fd, name, flags);
    if (geteuid() != 0 && fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 0500) != 0500) {
      if (next >= 0) close(next);
      next = open_closed(fd, name, flags, &st);
    }
    int error = errno;
    close(fd);
    errno = error;
    if (next < 0) return -1;
    fd = next;
  }
  return fd;
}

bool write_all(int fd, const unsigned char *bytes, size_t length, off_t at) {
  while (length > 0) {
    ssize_t n = pwrite(fd, bytes, length, at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes += n;
    at += n;
    length -= (size_t)n;
  }
  return true;
}

/* Copies content, keeping holes, and checks that it is what was reviewed. */
bool copy_content(uint32_t index, int from, int to, const struct state *after) {
  static unsigned char chunk[CONTENT_CHUNK];
  struct stat st;
  if (fstat(from, &st) != 0) return failed_call(index, "fstat");
  if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != after->size) return conflicts(index, "the stage is no longer what was reviewed");
  if (st.st_size >= 1 << 20 && ioctl(to, FICLONE, from) == 0) {
    struct content content;
    if (hash_content(to, &content) != 0) return failed_call(index, "read");
    return memcmp(content.sha256, after->sha256, 32) == 0 ? true : conflicts(index, "the stage is no longer what was reviewed");
  }
  struct sha256 s;
  sha256_start(&s);
  bool sparse = st.st_blocks * 512 < st.st_size;
  for (off_t at = 0; at < st.st_size;) {
    off_t data = sparse ? lseek(from, at, SEEK_DATA) : at;
    if (data < 0) {
      if (errno != ENXIO && errno != EINVAL) return failed_call(index, "lseek");
      data = errno == ENXIO ? st.st_size : at;
    }
    if (data > at) {
      memset(chunk, 0, sizeof chunk);
      for (off_t hole = data - at; hole > 0;) {
        size_t part = hole > (off_t)sizeof chunk ? sizeof chunk : (size_t)hole;
        sha256_add(&s, chunk, part);
        hole -= (off_t)part;
      }
      at = data;
      continue;
    }
    off_t end = sparse ? lseek(from, at, SEEK_HOLE) : st.st_size;
    if (end <= at) end = st.st_size;
    size_t want = end - at > (off_t)sizeof chunk ? sizeof chunk : (size_t)(end - at);
    ssize_t n = pread(from, chunk, want, at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed_call(index, "read");
    if (n == 0) return conflicts(index, "the stage is no longer what was reviewed");
    sha256_add(&s, chunk, (size_t)n);
    if (!write_all(to, chunk, (size_t)n, at)) return failed_call(index, "write");
    at += n;
  }
  if (sparse && ftruncate(to, st.st_size) != 0) return failed_call(index, "ftruncate");
  unsigned char hash[32];
  sha256_end(&s, hash);
  return memcmp(hash, after->sha256, 32) == 0 ? true : conflicts(index, "the stage is no longer what was reviewed");
}

/* Directories of ours stay open to us until the end; their own mode comes last. */
static uint32_t staged_mode(const struct state *after) { return after->type == DT_DIR ? (after->mode & 01777) | 0700 : after->mode; }

/* Opens the directory of the tree that holds the operation's source. */
static int open_tree_parent(struct root *root, struct text source) {
  char *path = strdup(source.at);
  if (path == NULL) tree_fail("strdup", "");
  char *slash = strrchr(path, '/');
  if (slash != NULL) *slash = 0;
  int parent = open_beneath(root->fd, slash == NULL ? "" : path, O_PATH | O_DIRECTORY | O_NOFOLLOW);
  free(path);
  return parent;
}

/* Another name of a file that the tree has and that this apply leaves as it is. */
static bool stage_tree_link(struct root *root, struct operation *o, uint32_t index, const char *name) {
  int parent = open_tree_parent(root, o->source_path);
  if (parent < 0) return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? conflicts(index, "what it is another name of is no longer there") : failed_call(index, "openat2");
  bool linked = linkat(parent, last_name(o->source_path), root->staging_fd, name, 0) == 0;
  int error = errno;
  close(parent);
  errno = error;
  if (!linked) return errno == ENOENT ? conflicts(index, "what it is another name of is no longer there") : failed_call(index, "linkat");
  o->new_ino = inode_at(root->staging_fd, name);
  return o->new_ino == o->after.ino ? true : conflicts(index, "what it is another name of was replaced");
}

/* The very file that an earlier apply kept. False without trouble: it can't be linked here, and has to be copied. */
static bool stage_kept(struct root *root, struct operation *o, uint32_t index, const char *name, bool *copied) {
  *copied = false;
  if (linkat(root->kept_fd, o->source_path.at, root->staging_fd, name, 0) != 0) {
    if (errno == ENOENT) return conflicts(index, "what was there before is no longer kept");
    if (errno == EXDEV || errno == EPERM || errno == EMLINK || errno == EACCES) {
      *copied = true;
      return true;
    }
    return failed_call(index, "linkat");
  }
  if (!is_preimage(root->staging_fd, name, &o->after)) return conflicts(index, "what was kept of it was changed");
  o->new_ino = inode_at(root->staging_fd, name);
  return o->new_ino != 0 ? true : failed_call(index, "fstatat");
}

bool stage_operation(struct plan *plan, uint32_t index) {
  struct operation *o = &plan->operations[index];
  struct root *root = &plan->roots[o->root];
  if (o->kind != OP_ADD && o->kind != OP_REPLACE) return true;
  char name[16];
  staged_name(name, 'n', index);
  if (o->source == FROM_TREE_LINK) return stage_tree_link(root, o, index, name);
  if (o->source == FROM_KEPT) {
    bool copied;
    if (!stage_kept(root, o, index, name, &copied)) return false;
    if (!copied) return true;
  }
  if (o->source == FROM_LINK) {
    char first[16];
    staged_name(first, 'n', o->link);
    if (linkat(root->staging_fd, first, root->staging_fd, name, 0) != 0) return failed_call(index, "linkat");
    o->new_ino = plan->operations[o->link].new_ino;
    return true;
  }
  if (o->after.type == DT_REG) {
    size_t opened = opened_up_now();
    int parent = o->source == FROM_LAYER ? open_layer_parent(root->upper_fd, o->source_path.at) : -1;
    if (o->source == FROM_TREE) parent = open_tree_parent(root, o->source_path);
    if (o->source == FROM_KEPT || o->source == FROM_GIVEN) parent = dup(root->kept_fd);
    if (parent < 0) {
      failed_call(index, "open of the staged directory");
      close_again(opened);
      return false;
    }
    int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    const char *leaf = last_name(o->source_path);
    int from = openat(parent, leaf, flags);
    struct stat st;
    if (from < 0 && errno == EACCES && o->source == FROM_LAYER && fstatat(parent, leaf, &st, AT_SYMLINK_NOFOLLOW) == 0) from = open_closed(parent, leaf, flags, &st);
    int error = errno;
    close(parent);
    close_again(opened);
    errno = error;
    if (from < 0) return failed_call(index, "open of the staged file");
    int to = openat(root->staging_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0) {
      failed_call(index, "openat");
      close(from);
      return false;
    }
    bool copied = copy_content(index, from, to, &o->after);
    close(from);
    if (close(to) != 0 && copied) return failed_call(index, "close");
    if (!copied) return false;
  } else if (o->after.type == DT_LNK) {
    if (symlinkat(o->after.target.at, root->staging_fd, name) != 0) return failed_call(index, "symlinkat");
  } else if (o->after.type == DT_FIFO) {
    if (mkfifoat(root->staging_fd, name, 0600) != 0) return failed_call(index, "mkfifoat");
  } else {
    if (mkdirat(root->staging_fd, name, 0700) != 0) return failed_call(index, "mkdirat");
  }
  int made = openat(root->staging_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (made < 0) return failed_call(index, "openat");
  const char *call = set_attributes(made, NULL, &o->after, (o->flags & FLAG_OWNER) != 0, staged_mode(&o->after));
  if (call != NULL) failed_call(index, call);
  close(made);
  if (call != NULL) return false;
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, o->after.mtime};
  if (utimensat(root->staging_fd, name, times, AT_SYMLINK_NOFOLLOW) != 0) return failed_call(index, "utimensat");
  o->new_ino = inode_at(root->staging_fd, name);
  return o->new_ino != 0 ? true : failed_call(index, "fstatat");
}

/*
 * shim upper UPPER SPOOL [--tree ROOT] [--markers user|trusted]
 *
 * Builds an overlay's upper directory from steps on stdin: what a tree that came back from an engine changed
 * (executors/docker/transfer). UPPER exists and is empty; SPOOL holds contents, in `parts` and in files called by number.
 * Nothing is looked up by a path: each step names one entry of the directory that was entered last, by one component, and is
 * made there without following anything. ROOT gives the extended attributes of what was there before; it is only read.
 *
 * stdin, little endian: "PRLAYR1\0", then steps; name: u16 length, bytes
 *   attributes: u32 mode, u32 uid, u32 gid, i64 mtime s, u32 ns, u8 bits (1 there before: take its extended attributes)
 *   'D' name attributes u8 bits (1 opaque)   a directory, and enter it      'U'   back to its parent
 *   'F' name attributes u64 offset u64 size u64 keep   a file from SPOOL/parts; keep: also SPOOL/<keep>, unless 0
 *   'M' name attributes u64 number   the file SPOOL/<number>, moved         'K'   the same, and it stays in SPOOL
 *   'L' name attributes u16 length, target    a symlink                     'P' name attributes   a FIFO
 *   'W' name   a whiteout
 *   'A' attributes   of UPPER itself
 *   'Z' u64 steps    the end
 * Exits with 0 only when all of it was read and done.
 */
#define _GNU_SOURCE
#include "shim.h"
#include "closed.h"
#include "content.h"
#include "tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define MAX_DEPTH 2600
#define BIT_KNOWN 1u
#define BIT_OPAQUE 1u
#define XATTR_ROOM 65536
#define TARGET_ROOM 4096

struct attributes {
  uint32_t mode, uid, gid;
  int64_t seconds;
  uint32_t nanoseconds;
  uint8_t bits;
};

struct layer_level {
  int fd, tree; /* tree: the directory at the same place of ROOT, or -1 */
  struct attributes attributes;
  int opaque, whiteout_attributes;
};

static unsigned char layer_input[1 << 17];
static size_t layer_at, layer_end;
static uint64_t layer_steps;
static struct layer_level *layer_levels;
static size_t layer_depth;
static int layer_spool = -1, layer_parts = -1, layer_owner_kept;
static const char *layer_prefix = "user.overlay.";

static void take(void *into, size_t length) {
  unsigned char *to = into;
  while (length > 0) {
    if (layer_at == layer_end) {
      ssize_t n;
      do n = read(STDIN_FILENO, layer_input, sizeof layer_input);
      while (n < 0 && errno == EINTR);
      if (n < 0) tree_fail("read", "the steps");
      if (n == 0) tree_stop(TREE_EXIT_FAILED, "the steps end too early");
      layer_at = 0;
      layer_end = (size_t)n;
    }
    size_t step = layer_end - layer_at < length ? layer_end - layer_at : length;
    memcpy(to, layer_input + layer_at, step);
    layer_at += step;
    to += step;
    length -= step;
  }
}

static uint64_t take_u64(void) {
  uint64_t value;
  take(&value, sizeof value);
  return value;
}

/* One component: anything else is a fault of the sender, and ends the program. */
static void take_name(char name[256]) {
  uint16_t length;
  take(&length, sizeof length);
  if (length == 0 || length > 255) tree_stop(TREE_EXIT_USAGE, "step %llu: a name of %u bytes", (unsigned long long)layer_steps, length);
  take(name, length);
  name[length] = 0;
  if (strlen(name) != length || strchr(name, '/') != NULL || is_dot(name)) tree_stop(TREE_EXIT_USAGE, "step %llu: a name that is no component", (unsigned long long)layer_steps);
}

static struct attributes take_attributes(void) {
  struct attributes a;
  take(&a.mode, 4);
  take(&a.uid, 4);
  take(&a.gid, 4);
  take(&a.seconds, 8);
  take(&a.nanoseconds, 4);
  take(&a.bits, 1);
  if (a.mode > 07777 || a.nanoseconds > 999999999) tree_stop(TREE_EXIT_USAGE, "step %llu: attributes out of range", (unsigned long long)layer_steps);
  return a;
}

/* What doesn't travel: user.* and access lists of what was there before. */
static void copy_xattrs(int from, int to) {
  static char names[XATTR_ROOM], value[XATTR_ROOM];
  ssize_t length = flistxattr(from, names, sizeof names);
  if (length < 0) {
    if (errno == ENOTSUP || errno == E2BIG) return;
    tree_fail("flistxattr", "the tree");
  }
  for (char *at = names; at < names + length; at += strlen(at) + 1) {
    if (!xattr_matters(at) || strncmp(at, "security.", 9) == 0 || strncmp(at, "user.overlay.", 13) == 0) continue;
    ssize_t got = fgetxattr(from, at, value, sizeof value);
    if (got < 0 && (errno == ENODATA || errno == EACCES || errno == EPERM)) continue;
    if (got < 0) tree_fail("fgetxattr", at);
    if (fsetxattr(to, at, value, (size_t)got, 0) != 0 && errno != ENOTSUP) tree_fail("fsetxattr", at);
  }
}

/* `fd` is a file or directory of ours. The mode comes last but for the times: chown clears bits, an access list sets them. */
static void put_attributes(int fd, const struct attributes *a, int tree, const char *name) {
  if (layer_owner_kept && fchown(fd, a->uid, a->gid) != 0) tree_fail("fchown", name);
  if ((a->bits & BIT_KNOWN) != 0 && tree >= 0) copy_xattrs(tree, fd);
  if (fchmod(fd, a->mode) != 0) tree_fail("fchmod", name);
  struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = a->seconds, .tv_nsec = a->nanoseconds}};
  if (futimens(fd, times) != 0) tree_fail("futimens", name);
}

/* Of something that isn't opened: a symlink or a FIFO. */
static void put_attributes_at(int parent, const char *name, const struct attributes *a, int mode) {
  if (layer_owner_kept && fchownat(parent, name, a->uid, a->gid, AT_SYMLINK_NOFOLLOW) != 0) tree_fail("fchownat", name);
  if (mode) {
    int handle = openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (handle < 0 || chmod_handle(handle, a->mode) != 0) tree_fail("chmod", name);
    close(handle);
  }
  struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = a->seconds, .tv_nsec = a->nanoseconds}};
  if (utimensat(parent, name, times, AT_SYMLINK_NOFOLLOW) != 0) tree_fail("utimensat", name);
}

static int in_tree(const struct layer_level *at, const char *name, int flags) {
  return at->tree < 0 ? -1 : openat(at->tree, name, flags | O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

static void put_mark(int fd, const char *which, const char *value) {
  char attribute[64];
  snprintf(attribute, sizeof attribute, "%s%s", layer_prefix, which);
  if (fsetxattr(fd, attribute, value, strlen(value), 0) != 0) tree_fail("fsetxattr", attribute);
}

static void finish_file(const struct layer_level *at, const char *name, int fd, const struct attributes *a) {
  int tree = -1;
  struct stat st;
  /* Opening a device has effects of its own. */
  if ((a->bits & BIT_KNOWN) != 0 && at->tree >= 0 && fstatat(at->tree, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) tree = in_tree(at, name, 0);
  put_attributes(fd, a, tree, name);
  if (tree >= 0) close(tree);
  if (close(fd) != 0) tree_fail("close", name);
}

static void number_name(char out[24], uint64_t number) {
  if (number == 0) tree_stop(TREE_EXIT_USAGE, "step %llu: the number 0", (unsigned long long)layer_steps);
  snprintf(out, 24, "%llu", (unsigned long long)number);
}

static void copy_part(int to, uint64_t offset, uint64_t size, const char *name) {
  static unsigned char chunk[1 << 16];
  while (size > 0) {
    ssize_t n = pread(layer_parts, chunk, size < sizeof chunk ? (size_t)size : sizeof chunk, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) tree_fail("pread", name);
    if (n == 0) tree_stop(TREE_EXIT_FAILED, "the parts end before %s does", name);
    for (ssize_t done = 0; done < n;) {
      ssize_t put = write(to, chunk + done, (size_t)(n - done));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) tree_fail("write", name);
      done += put;
    }
    offset += (uint64_t)n;
    size -= (uint64_t)n;
  }
}

static void file_from_parts(struct layer_level *at, const char *name) {
  struct attributes a = take_attributes();
  uint64_t offset = take_u64(), size = take_u64(), keep = take_u64();
  int fd = openat(at->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) tree_fail("openat", name);
  copy_part(fd, offset, size, name);
  finish_file(at, name, fd, &a);
  if (keep != 0) {
    char number[24];
    number_name(number, keep);
    if (linkat(at->fd, name, layer_spool, number, 0) != 0) tree_fail("linkat", name);
  }
}

static void file_from_spool(struct layer_level *at, const char *name, int stays) {
  struct attributes a = take_attributes();
  char number[24];
  number_name(number, take_u64());
  if (linkat(layer_spool, number, at->fd, name, 0) != 0) tree_fail("linkat", name);
  if (!stays && unlinkat(layer_spool, number, 0) != 0) tree_fail("unlinkat", number);
  int fd = openat(at->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat st;
  if (fd < 0 && errno == EACCES && fstatat(at->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) fd = open_closed(at->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, &st);
  if (fd < 0) tree_fail("openat", name);
  finish_file(at, name, fd, &a);
}

static void enter(const char *name) {
  struct layer_level *above = &layer_levels[layer_depth - 1];
  if (layer_depth == MAX_DEPTH) tree_stop(TREE_EXIT_LIMIT, "more than %d directories one in another", MAX_DEPTH);
  struct layer_level *level = &layer_levels[layer_depth];
  memset(level, 0, sizeof *level);
  level->attributes = take_attributes();
  uint8_t bits;
  take(&bits, 1);
  level->opaque = (bits & BIT_OPAQUE) != 0;
  if (mkdirat(above->fd, name, 0700) != 0) tree_fail("mkdirat", name);
  level->fd = open_directory(above->fd, name);
  if (level->fd < 0) tree_fail("openat", name);
  level->tree = (level->attributes.bits & BIT_KNOWN) != 0 ? in_tree(above, name, O_DIRECTORY) : -1;
  if (level->opaque) put_mark(level->fd, "opaque", "y");
  layer_depth++;
}

static void leave(void) {
  if (layer_depth < 2) tree_stop(TREE_EXIT_USAGE, "step %llu: there is no directory above", (unsigned long long)layer_steps);
  struct layer_level *level = &layer_levels[--layer_depth];
  if (level->whiteout_attributes && !level->opaque) put_mark(level->fd, "opaque", "x");
  put_attributes(level->fd, &level->attributes, level->tree, "a directory");
  if (level->tree >= 0) close(level->tree);
  close(level->fd);
}

/* A device 0:0, which any user may make since Linux 5.8; else the form with an attribute, of Linux 6.7. */
static void whiteout(struct layer_level *at, const char *name) {
  if (mknodat(at->fd, name, S_IFCHR, makedev(0, 0)) == 0) return;
  if (errno != EPERM && errno != EACCES && errno != ENOTSUP && errno != EINVAL) tree_fail("mknodat", name);
  int fd = openat(at->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) tree_fail("openat", name);
  put_mark(fd, "whiteout", "y");
  close(fd);
  at->whiteout_attributes = 1;
}

int cmd_upper(int argc, char **argv) {
  tree_command = "upper";
  const char *usage = "expected UPPER SPOOL [--tree ROOT] [--markers user|trusted]", *tree = NULL;
  if (argc < 3) tree_stop(TREE_EXIT_USAGE, "%s", usage);
  for (int i = 3; i < argc; i += 2) {
    const char *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (value == NULL) tree_stop(TREE_EXIT_USAGE, "%s", usage);
    if (strcmp(argv[i], "--tree") == 0) tree = value;
    else if (strcmp(argv[i], "--markers") == 0 && strcmp(value, "trusted") == 0) layer_prefix = "trusted.overlay.";
    else if (strcmp(argv[i], "--markers") != 0 || strcmp(value, "user") != 0) tree_stop(TREE_EXIT_USAGE, "%s", usage);
  }
  umask(0077);
  raise_descriptor_limit();
  layer_owner_kept = geteuid() == 0;
  layer_levels = calloc(MAX_DEPTH, sizeof *layer_levels);
  if (layer_levels == NULL) tree_fail("calloc", "");
  struct layer_level *root = &layer_levels[layer_depth++];
  root->fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (root->fd < 0) tree_fail("open", argv[1]);
  root->tree = tree == NULL ? -1 : open(tree, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  layer_spool = open(argv[2], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (layer_spool < 0) tree_fail("open", argv[2]);
  layer_parts = openat(layer_spool, "parts", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (layer_parts < 0) tree_fail("openat", "parts");

  char magic[8], name[256];
  take(magic, sizeof magic);
  if (memcmp(magic, "PRLAYR1", 8) != 0) tree_stop(TREE_EXIT_USAGE, "the steps don't begin as such");
  for (;; layer_steps++) {
    struct layer_level *at = &layer_levels[layer_depth - 1];
    char tag;
    take(&tag, 1);
    if (tag == 'Z') break;
    if (tag == 'U') {
      leave();
      continue;
    }
    if (tag == 'A') {
      if (layer_depth != 1) tree_stop(TREE_EXIT_USAGE, "step %llu: a directory was not left", (unsigned long long)layer_steps);
      struct attributes a = take_attributes();
      if (at->whiteout_attributes) put_mark(at->fd, "opaque", "x");
      put_attributes(at->fd, &a, at->tree, argv[1]);
      continue;
    }
    if (strchr("DFMKLPW", tag) == NULL || tag == 0) tree_stop(TREE_EXIT_USAGE, "step %llu: an unknown one", (unsigned long long)layer_steps);
    take_name(name);
    if (tag == 'D') enter(name);
    else if (tag == 'F') file_from_parts(at, name);
    else if (tag == 'W') whiteout(at, name);
    else if (tag == 'M' || tag == 'K') file_from_spool(at, name, tag == 'K');
    else if (tag == 'P') {
      struct attributes a = take_attributes();
      if (mkfifoat(at->fd, name, 0600) != 0) tree_fail("mkfifoat", name);
      put_attributes_at(at->fd, name, &a, 1);
    } else {
      struct attributes a = take_attributes();
      uint16_t length;
      char target[TARGET_ROOM];
      take(&length, sizeof length);
      if (length == 0 || length >= sizeof target) tree_stop(TREE_EXIT_USAGE, "step %llu: a target of %u bytes", (unsigned long long)layer_steps, length);
      take(target, length);
      target[length] = 0;
      if (symlinkat(target, at->fd, name) != 0) tree_fail("symlinkat", name);
      put_attributes_at(at->fd, name, &a, 0);
    }
  }
  if (layer_depth != 1 || take_u64() != layer_steps) tree_stop(TREE_EXIT_FAILED, "the steps don't add up");
  return 0;
}

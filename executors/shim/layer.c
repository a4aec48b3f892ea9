/*
 * shim layer merge TO BASE [--over TOP] [--copy] [--index FILE] [--tree ROOT] [--sync]
 *     TO must not exist
 * shim layer list LAYER [--facts]
 *
 * merge makes TO a layer of its own that shows, over the same tree, what TOP over BASE showed (without --over: what BASE
 * showed). Files are linked, so that layers share their content and each can go without the other; --copy, for a layer
 * that a job still writes: reflinks where the filesystem has them, else copies. Nothing outside TO is changed.
 *   top        base              result
 *   anything   -                 top's
 *   no dir     anything          top's (a whiteout is a name like any other)
 *   opaque dir anything          top's
 *   dir        opaque dir        both, opaque
 *   dir        dir               both; a redirect of base's stays
 *   dir        no dir, whiteout  top's, made opaque
 * --index FILE: what the topmost layer touches: "d" path NUL for a directory that shows what lies below it, "c" path NUL
 * for everything that covers whatever lies at and below its path.
 *
 * --tree ROOT: the tree that TO will lie over. A whiteout with nothing below it is left out: a directory that merges with
 * nothing would list it (overlayfs filters whiteouts of merged directories only).
 * --sync: all of it is on disk at the end.
 *
 * list writes what a layer holds, sorted by name within each directory, each record ended by NUL:
 *   type (octal) ' ' mode (octal) ' ' uid ' ' gid ' ' size ' ' mtime s '.' ns ' ' rdev ' ' content ' ' attributes ' ' path
 * content: SHA-256 of a file's bytes or a link's target, else "-"; attributes: SHA-256 over sorted names and values, or "-".
 * --facts: nothing is hashed; content is inode ',' ctime: to see whether something was written between two looks.
 */
#define _GNU_SOURCE
#include "shim.h"
#include "closed.h"
#include "content.h"
#include "sha256.h"
#include "tree.h"

#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define XATTR_ROOM 65536
#define MAX_DEPTH 2600

/* A file of several names that was copied once. */
struct copied {
  dev_t dev;
  ino_t ino;
  char *path; /* beneath TO */
};

struct marks {
  int opaque, redirect;
};

/* What lies below a directory of the result. */
struct under {
  enum { KNOWN, UNKNOWN, SEALED } what;
  int fd; /* KNOWN: the tree's directory, or -1 when it has none */
};

static struct sink layer_out;
static struct bytes layer_path;
static int layer_copies, layer_index = -1, layer_to = -1, layer_max_depth = MAX_DEPTH;
static struct sink layer_index_out;
static struct copied *copied_files;
static size_t copied_count, copied_room;

static const char *here(void) { return layer_path.used > 0 ? layer_path.at : "."; }

static void stat_at(int parent, const char *name, struct stat *st) {
  if (fstatat(parent, name, st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) != 0) tree_fail("fstatat", here());
}

static int open_for_reading(int parent, const char *name, int flags, const struct stat *st) {
  int fd = openat(parent, name, flags);
  int directory = S_ISDIR(st->st_mode);
  int closed = geteuid() != 0 && st->st_uid == geteuid() && (directory ? (st->st_mode & 0500) != 0500 : fd < 0 && errno == EACCES);
  if (closed) {
    if (fd >= 0) close(fd);
    fd = open_closed(parent, name, flags, st);
  }
  if (fd < 0) tree_fail("openat", here());
  struct stat now;
  if (fstat(fd, &now) != 0) tree_fail("fstat", here());
  if (now.st_ino != st->st_ino || now.st_dev != st->st_dev) tree_stop(TREE_EXIT_FAILED, "%s was replaced while it was read", here());
  return fd;
}

static int open_entry_directory(int parent, const char *name, const struct stat *st) {
  return open_for_reading(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, st);
}

/* ---- attributes ---- */

/* What overlayfs notes for itself about where an entry was copied up from. */
static int is_private(const char *name) {
  const char *rest = strncmp(name, "user.overlay.", 13) == 0 ? name + 13 : strncmp(name, "trusted.overlay.", 16) == 0 ? name + 16 : NULL;
  if (rest == NULL) return 0;
  static const char *const notes[] = {"origin", "impure", "nlink", "upper", "uuid", "protattr"};
  for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
    if (strcmp(rest, notes[i]) == 0) return 1;
  }
  return 0;
}

static int is_kept(const char *name) {
  return !is_private(name) && (xattr_matters(name) || strncmp(name, "trusted.overlay.", 16) == 0);
}

/* `fd`, or `name` beneath `parent` when it is -1. Length, or -1: none that could be listed. */
static ssize_t list_attributes(int fd, int parent, const char *name, char *names, char path[320]) {
  if (fd < 0) proc_name(path, 320, parent, name);
  ssize_t length = fd >= 0 ? flistxattr(fd, names, XATTR_ROOM) : llistxattr(path, names, XATTR_ROOM);
  if (length < 0 && errno != ENOTSUP && errno != EACCES && errno != ENOENT) tree_fail("listxattr", here());
  return length;
}

static struct marks marks_of(int fd) {
  struct marks m = {0, 0};
  char value[8];
  for (int i = 0; i < 2; i++) {
    ssize_t got = fgetxattr(fd, i == 0 ? "user.overlay.opaque" : "trusted.overlay.opaque", value, sizeof value);
    if (got > 0 && value[0] != 'x') m.opaque = 1;
    if (fgetxattr(fd, i == 0 ? "user.overlay.redirect" : "trusted.overlay.redirect", NULL, 0) >= 0) m.redirect = 1;
  }
  return m;
}

static void copy_attributes(int from, int to) {
  static char names[XATTR_ROOM], value[XATTR_ROOM];
  ssize_t length = flistxattr(from, names, sizeof names);
  if (length < 0 && errno != ENOTSUP) tree_fail("flistxattr", here());
  for (char *at = names; length > 0 && at < names + length; at += strlen(at) + 1) {
    if (!is_kept(at)) continue;
    ssize_t got = fgetxattr(from, at, value, sizeof value);
    if (got < 0 || fsetxattr(to, at, value, (size_t)got, 0) != 0) tree_fail("xattr", here());
  }
}

/* Owner, mode, times, last: each of them is changed by what comes before. */
static void finish_like(int to, const struct stat *st) {
  if (geteuid() == 0 && fchown(to, st->st_uid, st->st_gid) != 0) tree_fail("fchown", here());
  if (fchmod(to, st->st_mode & 07777) != 0) tree_fail("fchmod", here());
  struct timespec times[2] = {st->st_atim, st->st_mtim};
  if (futimens(to, times) != 0) tree_fail("futimens", here());
}

/* ---- single entries ---- */

/* 1: another name of what was copied before has been made. */
static int link_to_copied(const struct stat *st, int to, const char *name) {
  for (size_t i = 0; i < copied_count; i++) {
    if (copied_files[i].ino != st->st_ino || copied_files[i].dev != st->st_dev) continue;
    return linkat(layer_to, copied_files[i].path, to, name, 0) == 0;
  }
  if (copied_count == copied_room) {
    copied_room = copied_room > 0 ? copied_room * 2 : 64;
    copied_files = realloc(copied_files, copied_room * sizeof *copied_files);
    if (copied_files == NULL) tree_fail("realloc", "");
  }
  char *path = strdup(here());
  if (path == NULL) tree_fail("strdup", "");
  copied_files[copied_count++] = (struct copied){st->st_dev, st->st_ino, path};
  return 0;
}

static void copy_range(int from, int to, off_t at, off_t end) {
  static char chunk[1 << 18];
  while (at < end) {
    size_t want = (size_t)(end - at) < sizeof chunk ? (size_t)(end - at) : sizeof chunk;
    ssize_t got = pread(from, chunk, want, at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) tree_fail("pread", here());
    if (got == 0) return; /* cut off meanwhile: two looks differ, and that is noticed */
    for (ssize_t done = 0; done < got;) {
      ssize_t put = pwrite(to, chunk + done, (size_t)(got - done), at + done);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) tree_fail("pwrite", here());
      done += put;
    }
    at += got;
  }
}

static void copy_file(int parent, int to_parent, const char *name, const struct stat *st) {
  if (st->st_nlink > 1 && link_to_copied(st, to_parent, name)) return;
  size_t opened = opened_up_now();
  int from = open_for_reading(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, st);
  int to = openat(to_parent, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (to < 0) tree_fail("openat", here());
  if (ioctl(to, FICLONE, from) != 0) {
    if (ftruncate(to, st->st_size) != 0) tree_fail("ftruncate", here());
    for (off_t at = 0; at < st->st_size;) {
      off_t data = lseek(from, at, SEEK_DATA);
      if (data < 0 && errno == ENXIO) break;
      if (data < 0) data = at;
      off_t hole = lseek(from, data, SEEK_HOLE);
      if (hole < 0 || hole > st->st_size) hole = st->st_size;
      copy_range(from, to, data, hole);
      at = hole > data ? hole : st->st_size;
    }
  }
  copy_attributes(from, to);
  finish_like(to, st);
  close(from);
  close(to);
  close_again(opened);
}

/* Anything but a file and a directory: links, whiteouts, fifos, sockets, devices. */
static void copy_special(int parent, int to, const char *name, const struct stat *st) {
  if (S_ISLNK(st->st_mode)) {
    char *target = malloc((size_t)st->st_size + 2);
    if (target == NULL) tree_fail("malloc", "");
    ssize_t length = readlinkat(parent, name, target, (size_t)st->st_size + 1);
    if (length < 0) tree_fail("readlinkat", here());
    target[length] = 0;
    if (symlinkat(target, to, name) != 0) tree_fail("symlinkat", here());
    free(target);
  } else if (mknodat(to, name, st->st_mode & (S_IFMT | 07777), st->st_rdev) != 0) {
    tree_fail("mknodat", here());
  }
  if (geteuid() == 0 && fchownat(to, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) != 0) tree_fail("fchownat", here());
  if (!S_ISLNK(st->st_mode) && fchmodat(to, name, st->st_mode & 07777, 0) != 0) tree_fail("fchmodat", here());
  struct timespec times[2] = {st->st_atim, st->st_mtim};
  if (utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) != 0) tree_fail("utimensat", here());
}

static int is_whiteout(const struct stat *st) { return S_ISCHR(st->st_mode) && st->st_rdev == 0; }

static int hides_nothing(struct under under, const char *name) {
  struct stat st;
  if (under.what != KNOWN) return under.what == SEALED;
  return under.fd < 0 || (fstatat(under.fd, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) != 0 && errno == ENOENT);
}

static void carry(int parent, int to, const char *name, const struct stat *st, struct under under) {
  if (is_whiteout(st) && hides_nothing(under, name)) return;
  if (!layer_copies) {
    if (linkat(parent, name, to, name, 0) == 0) return;
    if (errno != EXDEV && errno != EMLINK && errno != EPERM && errno != ENOTSUP) tree_fail("linkat", here());
  }
  if (S_ISREG(st->st_mode)) copy_file(parent, to, name, st);
  else copy_special(parent, to, name, st);
}

/* ---- directories ---- */

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The names of a directory, sorted; the caller frees the list and its first member's block, which is list[count]. */
static char **names_of(int fd, size_t *count) {
  static char buffer[1 << 16] __attribute__((aligned(8)));
  struct bytes block = {0};
  size_t found = 0;
  if (lseek(fd, 0, SEEK_SET) < 0) tree_fail("lseek", here());
  for (;;) {
    ssize_t n = read_entries(fd, buffer, sizeof buffer);
    if (n < 0) tree_fail("getdents64", here());
    if (n == 0) break;
    for (ssize_t at = 0; at < n;) {
      struct dirent64_raw *e = (struct dirent64_raw *)(buffer + at);
      at += e->d_reclen;
      if (is_dot(e->d_name)) continue;
      bytes_add(&block, e->d_name, strlen(e->d_name) + 1);
      found++;
    }
  }
  char **list = malloc((found + 1) * sizeof *list);
  if (list == NULL) tree_fail("malloc", "");
  for (size_t i = 0, at = 0; i < found; i++) {
    list[i] = block.at + at;
    at += strlen(block.at + at) + 1;
  }
  list[found] = block.at;
  qsort(list, found, sizeof *list, compare_names);
  *count = found;
  return list;
}

static void free_names(char **list, size_t count) {
  free(list[count]);
  free(list);
}

static void index_entry(char tag) {
  if (layer_index < 0) return;
  sink_u8(&layer_index_out, (uint8_t)tag);
  sink_put(&layer_index_out, layer_path.at, layer_path.used + 1);
}

static void refuse_depth(int depth) {
  if (depth >= layer_max_depth) tree_stop(TREE_EXIT_LIMIT, "the layer has directories below more than %d others", layer_max_depth);
}

static int make_directory_in(int to, const char *name) {
  if (mkdirat(to, name, 0700) != 0) tree_fail("mkdirat", here());
  int fd = open_directory(to, name);
  if (fd < 0) tree_fail("openat", here());
  return fd;
}

/* `indexed`: this is (part of) the topmost layer. */
static void merge_into(int top, int base, int to, int depth, int indexed, struct under under);

static struct under under_child(struct under under, const char *name, int sealed, int redirected) {
  if (sealed) return (struct under){SEALED, -1};
  if (redirected) return (struct under){UNKNOWN, -1};
  if (under.what != KNOWN) return under;
  int fd = under.fd < 0 ? -1 : open_directory(under.fd, name);
  if (fd < 0 && under.fd >= 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP) return (struct under){UNKNOWN, -1};
  return (struct under){KNOWN, fd};
}

/* A directory of one layer alone, or of both when `base` is given; `opaque`: nothing of the tree may show through. */
static void merge_directory(int parent, const char *name, const struct stat *st, int base, int opaque, int to, int depth, int indexed, struct under under) {
  size_t opened = opened_up_now();
  int from = open_entry_directory(parent, name, st);
  int made = make_directory_in(to, name);
  struct marks mine = marks_of(from), theirs = base < 0 ? (struct marks){0, 0} : marks_of(base);
  struct under child = under_child(under, name, opaque || mine.opaque || theirs.opaque, mine.redirect || theirs.redirect);
  merge_into(from, base, made, depth + 1, indexed, child);
  if (child.what == KNOWN && child.fd >= 0) close(child.fd);
  copy_attributes(from, made);
  if (opaque) {
    const char *mark = geteuid() == 0 ? "trusted.overlay.opaque" : "user.overlay.opaque";
    if (fsetxattr(made, mark, "y", 1, 0) != 0) tree_fail("fsetxattr", here());
  }
  if (base >= 0) {
    /* Where base's directory was moved from: what shows through comes from there. */
    static char value[XATTR_ROOM];
    ssize_t got = fgetxattr(base, "trusted.overlay.redirect", value, sizeof value);
    if (got > 0 && fsetxattr(made, "trusted.overlay.redirect", value, (size_t)got, 0) != 0) tree_fail("fsetxattr", here());
  }
  finish_like(made, st);
  close(made);
  close(from);
  close_again(opened);
}

static void top_entry(int top, int base, int to, const char *name, int depth, int indexed, struct under under) {
  struct stat st, below;
  stat_at(top, name, &st);
  if (!S_ISDIR(st.st_mode)) {
    if (indexed) index_entry('c');
    carry(top, to, name, &st, under);
    return;
  }
  size_t opened = opened_up_now();
  int fd = open_entry_directory(top, name, &st);
  struct marks mine = marks_of(fd);
  close(fd);
  close_again(opened);
  if (indexed) index_entry(mine.opaque || mine.redirect ? 'c' : 'd');
  int covered = mine.opaque || mine.redirect;
  int found = base >= 0 && fstatat(base, name, &below, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0;
  if (found && mine.redirect) tree_stop(TREE_EXIT_FAILED, "%s was moved over a directory of the layer below", here());
  if (!found || mine.opaque || !S_ISDIR(below.st_mode)) {
    merge_directory(top, name, &st, -1, found && !mine.opaque, to, depth, indexed && !covered, under);
    return;
  }
  opened = opened_up_now();
  int lower = open_entry_directory(base, name, &below);
  merge_directory(top, name, &st, lower, marks_of(lower).opaque, to, depth, indexed && !covered, under);
  close(lower);
  close_again(opened);
}

static void merge_into(int top, int base, int to, int depth, int indexed, struct under under) {
  refuse_depth(depth);
  size_t count;
  char **names = names_of(top, &count);
  for (size_t i = 0; i < count; i++) {
    size_t before = path_push(&layer_path, names[i], strlen(names[i]));
    top_entry(top, base, to, names[i], depth, indexed, under);
    path_pop(&layer_path, before);
  }
  free_names(names, count);
  if (base < 0) return;
  names = names_of(base, &count);
  int copies = layer_copies;
  layer_copies = 0; /* nobody writes the layer below another */
  for (size_t i = 0; i < count; i++) {
    struct stat st;
    size_t before = path_push(&layer_path, names[i], strlen(names[i]));
    if (fstatat(top, names[i], &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) != 0) {
      if (errno != ENOENT) tree_fail("fstatat", here());
      top_entry(base, -1, to, names[i], depth, 0, under);
    }
    path_pop(&layer_path, before);
  }
  layer_copies = copies;
  free_names(names, count);
}

static int open_layer(const char *path, struct stat *st) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 && errno == EACCES && lstat(path, st) == 0) fd = open_closed(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, st);
  if (fd < 0) tree_fail("open", path);
  if (fstat(fd, st) != 0) tree_fail("fstat", path);
  return fd;
}

static void merge_layers(const char *to, const char *base_path, const char *top_path, const char *tree) {
  struct stat base_facts, top_facts;
  int base = open_layer(base_path, &base_facts);
  int top = top_path == NULL ? -1 : open_layer(top_path, &top_facts);
  if (mkdir(to, 0700) != 0) tree_fail("mkdir", to);
  layer_to = open(to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (layer_to < 0) tree_fail("open", to);
  struct under under = {UNKNOWN, -1};
  if (tree != NULL) {
    under = (struct under){KNOWN, open(tree, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (under.fd < 0) tree_fail("open", tree);
  }
  if (top >= 0) merge_into(top, base, layer_to, 0, 1, under);
  else merge_into(base, -1, layer_to, 0, 1, under);
  copy_attributes(top >= 0 ? top : base, layer_to);
  finish_like(layer_to, top >= 0 ? &top_facts : &base_facts);
}

/* ---- listing ---- */

static void put_hex(const unsigned char *bytes) {
  char text[65];
  for (int i = 0; i < 32; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
  sink_put(&layer_out, text, 64);
}

static void put_attributes(int fd, int parent, const char *name) {
  static char names[XATTR_ROOM], value[XATTR_ROOM];
  char path[320];
  ssize_t length = list_attributes(fd, parent, name, names, path);
  size_t count = 0;
  for (char *at = names; length > 0 && at < names + length; at += strlen(at) + 1) count += (size_t)is_kept(at);
  if (count == 0) {
    sink_u8(&layer_out, '-');
    return;
  }
  char **sorted = malloc(count * sizeof *sorted);
  if (sorted == NULL) tree_fail("malloc", "");
  size_t used = 0;
  for (char *at = names; at < names + length; at += strlen(at) + 1) {
    if (is_kept(at)) sorted[used++] = at;
  }
  qsort(sorted, count, sizeof *sorted, compare_names);
  struct sha256 s;
  sha256_start(&s);
  for (size_t i = 0; i < count; i++) {
    ssize_t got = fd >= 0 ? fgetxattr(fd, sorted[i], value, sizeof value) : lgetxattr(path, sorted[i], value, sizeof value);
    if (got < 0) tree_fail("getxattr", here());
    uint64_t size = (uint64_t)got;
    sha256_add(&s, (const unsigned char *)sorted[i], strlen(sorted[i]) + 1);
    sha256_add(&s, (const unsigned char *)&size, sizeof size);
    sha256_add(&s, (const unsigned char *)value, (size_t)got);
  }
  free(sorted);
  unsigned char digest[32];
  sha256_end(&s, digest);
  put_hex(digest);
}

static void put_content(int fd, int parent, const char *name, const struct stat *st, int facts) {
  if (facts) {
    char text[96];
    int length = snprintf(text, sizeof text, "%llu,%lld.%09ld", (unsigned long long)st->st_ino, (long long)st->st_ctim.tv_sec, st->st_ctim.tv_nsec);
    sink_put(&layer_out, text, (size_t)length);
  } else if (S_ISREG(st->st_mode)) {
    struct content content;
    if (hash_content(fd, &content) != 0) tree_fail("read", here());
    put_hex(content.sha256);
  } else if (S_ISLNK(st->st_mode)) {
    static char target[65536];
    ssize_t length = readlinkat(parent, name, target, sizeof target);
    if (length < 0) tree_fail("readlinkat", here());
    struct sha256 s;
    unsigned char digest[32];
    sha256_start(&s);
    sha256_add(&s, (const unsigned char *)target, (size_t)length);
    sha256_end(&s, digest);
    put_hex(digest);
  } else {
    sink_u8(&layer_out, '-');
  }
}

static void put_record(int fd, int parent, const char *name, const struct stat *st, int facts) {
  char text[256];
  long long size = S_ISREG(st->st_mode) || S_ISLNK(st->st_mode) ? (long long)st->st_size : 0;
  int length = snprintf(text, sizeof text, "%o %o %u %u %lld %lld.%09ld %u:%u ", (st->st_mode & S_IFMT) >> 12, st->st_mode & 07777, st->st_uid,
                        st->st_gid, size, (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec, major(st->st_rdev), minor(st->st_rdev));
  sink_put(&layer_out, text, (size_t)length);
  put_content(fd, parent, name, st, facts);
  sink_u8(&layer_out, ' ');
  put_attributes(fd, parent, name);
  sink_u8(&layer_out, ' ');
  if (layer_path.used > 0) sink_put(&layer_out, layer_path.at, layer_path.used);
  sink_u8(&layer_out, 0);
}

static void list_directory(int fd, int depth, int facts) {
  refuse_depth(depth);
  size_t count;
  char **names = names_of(fd, &count);
  for (size_t i = 0; i < count; i++) {
    struct stat st;
    size_t before = path_push(&layer_path, names[i], strlen(names[i])), opened = opened_up_now();
    stat_at(fd, names[i], &st);
    int child = S_ISDIR(st.st_mode)            ? open_entry_directory(fd, names[i], &st)
                : S_ISREG(st.st_mode) && !facts ? open_for_reading(fd, names[i], O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, &st)
                                                : -1;
    put_record(child, fd, names[i], &st, facts);
    if (S_ISDIR(st.st_mode)) list_directory(child, depth + 1, facts);
    if (child >= 0) close(child);
    close_again(opened);
    path_pop(&layer_path, before);
  }
  free_names(names, count);
}

int cmd_layer(int argc, char **argv) {
  tree_command = "layer";
  const char *usage = "expected merge TO BASE [--over TOP] [--copy] [--index FILE] [--tree ROOT] [--sync], or list LAYER [--facts]";
  bytes_need(&layer_path, 1);
  layer_path.at[0] = 0;
  uint64_t descriptors = raise_descriptor_limit();
  if (descriptors / 4 < (uint64_t)layer_max_depth + 32) layer_max_depth = descriptors / 4 > 64 ? (int)(descriptors / 4) - 32 : 32;
  if (argc >= 3 && strcmp(argv[1], "list") == 0) {
    int facts = argc == 4 && strcmp(argv[3], "--facts") == 0;
    if (argc > 3 && !facts) tree_stop(TREE_EXIT_USAGE, "%s", usage);
    struct stat st;
    int fd = open_layer(argv[2], &st);
    layer_out.fd = STDOUT_FILENO;
    put_record(fd, -1, "", &st, facts);
    list_directory(fd, 0, facts);
    sink_flush(&layer_out);
    close_again(0);
    return 0;
  }
  if (argc < 4 || strcmp(argv[1], "merge") != 0) tree_stop(TREE_EXIT_USAGE, "%s", usage);
  const char *top = NULL, *index = NULL, *tree = NULL;
  int sync_after = 0;
  for (int i = 4; i < argc; i++) {
    if (strcmp(argv[i], "--copy") == 0) layer_copies = 1;
    else if (strcmp(argv[i], "--sync") == 0) sync_after = 1;
    else if (strcmp(argv[i], "--over") == 0 && i + 1 < argc) top = argv[++i];
    else if (strcmp(argv[i], "--tree") == 0 && i + 1 < argc) tree = argv[++i];
    else if (strcmp(argv[i], "--index") == 0 && i + 1 < argc) index = argv[++i];
    else tree_stop(TREE_EXIT_USAGE, "%s", usage);
  }
  if (index != NULL) {
    layer_index = layer_index_out.fd = open(index, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (layer_index < 0) tree_fail("open", index);
    sink_put(&layer_index_out, "PRINDEX1", 8);
  }
  merge_layers(argv[2], argv[3], top, tree);
  if (index != NULL) {
    sink_put(&layer_index_out, "z", 2); /* "z" NUL: the end */
    sink_flush(&layer_index_out);
    if (close(layer_index) != 0) tree_fail("close", index);
  }
  if (sync_after && syncfs(layer_to) != 0) tree_fail("syncfs", argv[2]);
  close_again(0);
  return 0;
}

/*
 * shim walk ROOT OUT [--match PATTERN]... [--max-entries N] [--max-ms N] [--like DIR]
 *
 * OUT - records nothing: only the matches are wanted.
 * --like DIR gives DIR (an upper layer's new root) the mode, owner, attributes and times of ROOT.
 *
 * Records the preimage of a tree: what lies where, by identity, before a job may change anything. The conflict check
 * compares with it later. Per directory its dev:ino, mode and owner; per entry the d_ino and type that the directory
 * itself names, so that no entry is looked up. T0 is the ctime of a file that is made on that filesystem first: a change
 * after T0 leaves a ctime that isn't smaller.
 *
 * OUT, little endian:
 *   header (128 bytes)   magic "PRWALK1\0" (written last), i64 T0 seconds, u32 T0 nanoseconds, u32 flags,
 *                        i64 realtime minus boottime (ns), char boot_id[40], u64 directories, u64 entries, zeros
 *   directory            u8 'D', u8 flags (1 not readable, 2 mount point, not entered), u16 mode, u32 uid, u32 gid,
 *                        u64 dev, u64 ino, entries, u8 0
 *   entry                u8 length of name (1..255), u8 d_type, u64 d_ino, name
 * Directories follow in pre-order: each entry of type DT_DIR is answered by one directory record after its parent's.
 *
 * stdout, each ended by NUL: "m" path for a name that matches, "x" path for a mount point that was not entered,
 * "u" path for a directory that couldn't be read, "f" path for a directory whose owner or group isn't the caller's (not
 * for root): in a user namespace with one id the kernel refuses changes in it (EOVERFLOW); "h" when a file has several names
 * in the tree, or may have.
 */
#define _GNU_SOURCE
#include "shim.h"
#include "tree.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define WALK_INODES_DIFFER 1u /* d_ino isn't st_ino on this filesystem: only presence and ctime can be compared */
#define WALK_T0_FROM_CLOCK 2u /* no file could be made: T0 is the coarse clock */
#define KEPT_DESCRIPTORS 256  /* deeper levels give their parent's descriptor back and find it again through ".." */
#define MAX_PATTERNS 256

struct walk_header {
  char magic[8];
  int64_t t0_seconds;
  uint32_t t0_nanoseconds;
  uint32_t flags;
  int64_t real_minus_boot;
  char boot_id[40];
  uint64_t directories;
  uint64_t entries;
  char unused[40];
};
_Static_assert(sizeof(struct walk_header) == 128, "the header has 128 bytes");

struct pattern {
  const char *text;
  size_t length;
  enum { WHOLE, PREFIX, SUFFIX, GLOB, PATH_GLOB } kind;
};

struct level {
  int fd;
  uint64_t dev, ino;
  size_t names_start, names_at, names_end; /* names of directories still to visit, in `pending` */
  size_t path_before;
};

static struct sink walk_out, walk_found;
static struct pattern walk_patterns[MAX_PATTERNS];
static size_t walk_pattern_count;

static void add_pattern(const char *text) {
  if (text == NULL) tree_stop(TREE_EXIT_USAGE, "--match: expected a pattern");
  if (walk_pattern_count == MAX_PATTERNS) tree_stop(TREE_EXIT_USAGE, "--match: more than %d patterns", MAX_PATTERNS);
  struct pattern *p = &walk_patterns[walk_pattern_count++];
  size_t length = strlen(text);
  p->text = text;
  p->length = length;
  if (strchr(text, '/') != NULL) {
    p->kind = PATH_GLOB;
  } else if (strpbrk(text, "*?[\\") == NULL) {
    p->kind = WHOLE;
  } else if (length > 1 && text[0] == '*' && strpbrk(text + 1, "*?[\\") == NULL) {
    p->kind = SUFFIX;
    p->text = text + 1;
    p->length = length - 1;
  } else if (length > 1 && strcspn(text, "*?[\\") == length - 1 && text[length - 1] == '*') {
    p->kind = PREFIX;
    p->length = length - 1;
  } else {
    p->kind = GLOB;
  }
}

/* `path` is the directory's; a pattern with a slash sees the whole path, and its * crosses slashes (a superset). */
static int name_matches(struct bytes *path, const char *name, size_t length) {
  for (size_t i = 0; i < walk_pattern_count; i++) {
    const struct pattern *p = &walk_patterns[i];
    int hit = 0;
    if (p->kind == WHOLE) {
      hit = length == p->length && memcmp(name, p->text, length) == 0;
    } else if (p->kind == PREFIX) {
      hit = length >= p->length && memcmp(name, p->text, p->length) == 0;
    } else if (p->kind == SUFFIX) {
      hit = length >= p->length && memcmp(name + length - p->length, p->text, p->length) == 0;
    } else if (p->kind == GLOB) {
      hit = fnmatch(p->text, name, 0) == 0;
    } else {
      size_t before = path_push(path, name, length);
      hit = fnmatch(p->text, path->at, 0) == 0;
      path_pop(path, before);
    }
    if (hit) return 1;
  }
  return 0;
}

static void found(char tag, const struct bytes *path, const char *name, size_t length) {
  sink_u8(&walk_found, (uint8_t)tag);
  sink_put(&walk_found, path->at, path->used);
  if (length > 0 && path->used > 0) sink_u8(&walk_found, '/');
  sink_put(&walk_found, name, length);
  sink_u8(&walk_found, 0);
}

/* Inodes of everything but directories, until one comes a second time. */
static uint64_t *walk_inodes;
static size_t walk_inode_room, walk_inode_count;
static int walk_several;

static void place_inode(uint64_t inode) {
  size_t at = (size_t)(inode * 0x9e3779b97f4a7c15u >> 20) & (walk_inode_room - 1);
  while (walk_inodes[at] != 0 && walk_inodes[at] != inode) at = (at + 1) & (walk_inode_room - 1);
  if (walk_inodes[at] == inode) walk_several = 1;
  else walk_inode_count++;
  walk_inodes[at] = inode;
}

static void note_inode(uint64_t inode) {
  if (walk_several || inode == 0) return;
  if (walk_inode_count * 2 >= walk_inode_room) {
    uint64_t *old = walk_inodes;
    size_t old_room = walk_inode_room;
    walk_inode_room = old_room > 0 ? old_room * 4 : 1 << 12;
    walk_inodes = calloc(walk_inode_room, sizeof *walk_inodes);
    if (walk_inodes == NULL) tree_fail("calloc", "");
    walk_inode_count = 0;
    for (size_t i = 0; i < old_room; i++) {
      if (old[i] != 0) place_inode(old[i]);
    }
    free(old);
  }
  place_inode(inode);
}

static void take_t0(int root, const char *root_path, struct walk_header *header) {
  int fd = openat(root, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  char name[64] = "";
  struct stat directory;
  if (fd < 0 && errno != EROFS && errno != EACCES) {
    /* No nameless files here: one with a name, gone at once, and the directory's times put back. */
    if (fstat(root, &directory) != 0) tree_fail("fstat", root_path);
    snprintf(name, sizeof name, ".proofrun-time-%d", (int)getpid());
    fd = openat(root, name, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
  }
  struct stat facts;
  if (fd >= 0) {
    /* Kernels with fine-grained timestamps give the finer one to a change that follows a look. */
    if (fstat(fd, &facts) != 0) tree_fail("fstat", "the time file");
    if (fchmod(fd, 0600) != 0) tree_fail("fchmod", "the time file");
    if (fstat(fd, &facts) != 0) tree_fail("fstat", "the time file");
    header->t0_seconds = facts.st_ctim.tv_sec;
    header->t0_nanoseconds = (uint32_t)facts.st_ctim.tv_nsec;
    close(fd);
    if (name[0] != 0) {
      if (unlinkat(root, name, 0) != 0) tree_fail("unlinkat", name);
      struct timespec times[2] = {directory.st_atim, directory.st_mtim};
      if (futimens(root, times) != 0) tree_fail("futimens", root_path);
    }
  } else {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME_COARSE, &now) != 0) tree_fail("clock_gettime", "CLOCK_REALTIME_COARSE");
    header->t0_seconds = now.tv_sec;
    header->t0_nanoseconds = (uint32_t)now.tv_nsec;
    header->flags |= WALK_T0_FROM_CLOCK;
  }
}

static void directory_record(uint8_t flags, const struct statx *facts) {
  sink_u8(&walk_out, 'D');
  sink_u8(&walk_out, flags);
  sink_u16(&walk_out, facts->stx_mode & 07777);
  sink_u32(&walk_out, facts->stx_uid);
  sink_u32(&walk_out, facts->stx_gid);
  sink_u64(&walk_out, (uint64_t)facts->stx_dev_major << 32 | facts->stx_dev_minor);
  sink_u64(&walk_out, facts->stx_ino);
}

static int look(int fd, const char *name, int flags, struct statx *facts) {
  unsigned want = STATX_TYPE | STATX_MODE | STATX_UID | STATX_GID | STATX_INO | STATX_MNT_ID;
  return statx(fd, name, flags | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, want, facts);
}

/* Makes `path` look like the directory that `root` is open on. */
static void make_like(int root, const char *path) {
  static char names[65536], value[65536];
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) tree_fail("open", path);
  struct stat st;
  if (fstat(root, &st) != 0) tree_fail("fstat", path);
  if (geteuid() == 0 && fchown(fd, st.st_uid, st.st_gid) != 0) tree_fail("fchown", path);
  if (fchmod(fd, st.st_mode & 07777) != 0) tree_fail("fchmod", path);
  ssize_t length = flistxattr(root, names, sizeof names);
  if (length < 0 && errno != ENOTSUP) tree_fail("flistxattr", path);
  for (char *at = names; length > 0 && at < names + length; at += strlen(at) + 1) {
    if ((strncmp(at, "user.", 5) != 0 && strncmp(at, "system.posix_acl_", 17) != 0) || strncmp(at, "user.overlay.", 13) == 0) continue;
    ssize_t got = fgetxattr(root, at, value, sizeof value);
    if (got < 0 || fsetxattr(fd, at, value, (size_t)got, 0) != 0) tree_fail("xattr", at);
  }
  struct timespec times[2] = {st.st_atim, st.st_mtim};
  if (futimens(fd, times) != 0) tree_fail("futimens", path);
  close(fd);
}

int cmd_walk(int argc, char **argv) {
  tree_command = "walk";
  if (argc < 3) tree_stop(TREE_EXIT_USAGE, "expected ROOT OUT [--match PATTERN]... [--max-entries N] [--max-ms N] [--like DIR]");
  const char *like = NULL;
  uint64_t max_entries = 20000000, max_ms = 60000;
  for (int i = 3; i < argc; i += 2) {
    const char *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (strcmp(argv[i], "--match") == 0) add_pattern(value);
    else if (strcmp(argv[i], "--like") == 0) like = value;
    else if (strcmp(argv[i], "--max-entries") == 0) max_entries = parse_count(argv[i], value);
    else if (strcmp(argv[i], "--max-ms") == 0) max_ms = parse_count(argv[i], value);
    else tree_stop(TREE_EXIT_USAGE, "unknown argument %s", argv[i]);
  }
  uint64_t descriptors = raise_descriptor_limit();
  size_t kept = descriptors < KEPT_DESCRIPTORS + 64 ? 16 : KEPT_DESCRIPTORS;
  int root = open(argv[1], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (root < 0) tree_fail("open", argv[1]);
  if (like != NULL) make_like(root, like);
  int record = strcmp(argv[2], "-") != 0;
  walk_out.fd = record ? open(argv[2], O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600) : open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (walk_out.fd < 0) tree_fail("open", argv[2]);
  walk_found.fd = STDOUT_FILENO;

  struct walk_header header;
  memset(&header, 0, sizeof header);
  take_t0(root, argv[1], &header);
  header.real_minus_boot = real_minus_boot();
  read_boot_id(header.boot_id);
  sink_put(&walk_out, &header, sizeof header);

  struct statx facts;
  if (look(root, "", AT_EMPTY_PATH, &facts) != 0) tree_fail("statx", argv[1]);
  uint64_t mount = facts.stx_mnt_id;
  uid_t caller = geteuid();
  gid_t group = getegid();
  int64_t start = clock_ns(CLOCK_MONOTONIC);
  int samples = 4; /* how many more directories lend a file to compare d_ino with st_ino */

  static char entries[1 << 18] __attribute__((aligned(8)));
  struct bytes pending = {0}, path = {0};
  bytes_need(&path, 1);
  path.at[0] = 0;
  size_t room = 64, depth = 1;
  struct level *levels = malloc(room * sizeof *levels);
  if (levels == NULL) tree_fail("malloc", "");
  levels[0] = (struct level){.fd = root, .dev = (uint64_t)facts.stx_dev_major << 32 | facts.stx_dev_minor, .ino = facts.stx_ino};
  int fresh = 1; /* the top level was just entered and is still to be read */

  while (depth > 0) {
    struct level *top = &levels[depth - 1];
    if (fresh) {
      fresh = 0;
      header.directories++;
      directory_record(0, &facts);
      top->names_start = top->names_at = pending.used;
      int sampled = samples == 0;
      for (;;) {
        ssize_t n = read_entries(top->fd, entries, sizeof entries);
        if (n < 0) tree_fail("getdents64", path.used ? path.at : argv[1]);
        if (n == 0) break;
        if ((uint64_t)(clock_ns(CLOCK_MONOTONIC) - start) / 1000000 > max_ms)
          tree_stop(TREE_EXIT_LIMIT, "the walk of %s took more than %llu ms (%llu entries so far)", argv[1], (unsigned long long)max_ms, (unsigned long long)header.entries);
        for (ssize_t at = 0; at < n;) {
          struct dirent64_raw *e = (struct dirent64_raw *)(entries + at);
          at += e->d_reclen;
          if (is_dot(e->d_name)) continue;
          size_t length = strlen(e->d_name);
          uint8_t type = e->d_type;
          if (type == DT_UNKNOWN) {
            struct statx s;
            if (look(top->fd, e->d_name, AT_SYMLINK_NOFOLLOW, &s) != 0) {
              if (errno == ENOENT) continue;
              tree_fail("statx", e->d_name);
            }
            type = (uint8_t)IFTODT(s.stx_mode);
          }
          if (!sampled && type == DT_REG) {
            struct statx s;
            sampled = 1;
            samples--;
            if (look(top->fd, e->d_name, AT_SYMLINK_NOFOLLOW, &s) == 0 && s.stx_ino != e->d_ino && s.stx_mnt_id == mount) header.flags |= WALK_INODES_DIFFER;
          }
          if (++header.entries > max_entries)
            tree_stop(TREE_EXIT_LIMIT, "more than %llu entries beneath %s", (unsigned long long)max_entries, argv[1]);
          sink_u8(&walk_out, (uint8_t)length);
          sink_u8(&walk_out, type);
          sink_u64(&walk_out, e->d_ino);
          sink_put(&walk_out, e->d_name, length);
          if (walk_pattern_count > 0 && name_matches(&path, e->d_name, length)) found('m', &path, e->d_name, length);
          if (type == DT_DIR) bytes_add(&pending, e->d_name, length + 1);
          else note_inode(e->d_ino);
        }
      }
      sink_u8(&walk_out, 0);
      top->names_end = pending.used;
    }
    if (top->names_at == top->names_end) {
      /* Done here: back to the parent, whose descriptor may have been given back. */
      pending.used = top->names_start;
      int fd = top->fd;
      size_t before = top->path_before;
      depth--;
      if (depth > 0 && levels[depth - 1].fd < 0) {
        struct level *parent = &levels[depth - 1];
        struct statx s;
        parent->fd = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (parent->fd < 0) tree_fail("openat ..", path.at);
        if (look(parent->fd, "", AT_EMPTY_PATH, &s) != 0) tree_fail("statx ..", path.at);
        if (s.stx_ino != parent->ino || ((uint64_t)s.stx_dev_major << 32 | s.stx_dev_minor) != parent->dev)
          tree_stop(TREE_EXIT_FAILED, "%s was moved while it was walked", path.at);
      }
      close(fd);
      path_pop(&path, before);
      continue;
    }
    const char *name = pending.at + top->names_at;
    size_t length = strlen(name);
    top->names_at += length + 1;
    int fd = open_directory(top->fd, name);
    if (fd < 0) {
      /* Gone or replaced since it was listed: an empty record says that it isn't a directory that we saw. */
      int error = errno;
      if (error != EACCES && error != EPERM && error != ENOENT && error != ENOTDIR && error != ELOOP) tree_fail("openat", name);
      memset(&facts, 0, sizeof facts);
      if (error == EACCES || error == EPERM) {
        if (look(top->fd, name, AT_SYMLINK_NOFOLLOW, &facts) != 0) memset(&facts, 0, sizeof facts);
        found('u', &path, name, length);
      }
      header.directories++;
      directory_record(1, &facts);
      sink_u8(&walk_out, 0);
      continue;
    }
    if (look(fd, "", AT_EMPTY_PATH, &facts) != 0) tree_fail("statx", name);
    if (facts.stx_mnt_id != mount) {
      header.directories++;
      directory_record(2, &facts);
      sink_u8(&walk_out, 0);
      found('x', &path, name, length);
      close(fd);
      continue;
    }
    if (depth == room) {
      room *= 2;
      struct level *more = realloc(levels, room * sizeof *levels);
      if (more == NULL) tree_fail("realloc", "");
      levels = more;
      top = &levels[depth - 1];
    }
    if (caller != 0 && (facts.stx_uid != caller || facts.stx_gid != group)) found('f', &path, name, length);
    size_t before = path_push(&path, name, length);
    if (depth > kept) {
      close(top->fd);
      top->fd = -1;
    }
    levels[depth++] = (struct level){.fd = fd, .dev = (uint64_t)facts.stx_dev_major << 32 | facts.stx_dev_minor, .ino = facts.stx_ino, .path_before = before};
    fresh = 1;
  }
  free(levels);
  free(pending.at);
  free(walk_inodes);
  if (walk_several || (header.flags & WALK_INODES_DIFFER)) found('h', &path, "", 0);
  free(path.at);
  sink_flush(&walk_out);
  sink_flush(&walk_found);
  /* The magic makes the file valid: a walk that ended early leaves one that no parser takes. */
  memcpy(header.magic, "PRWALK1", 8);
  if (record && pwrite(walk_out.fd, &header, sizeof header, 0) != (ssize_t)sizeof header) tree_fail("pwrite", argv[2]);
  if (close(walk_out.fd) != 0) tree_fail("close", argv[2]);
  return 0;
}

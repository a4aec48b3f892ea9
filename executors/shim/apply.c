/*
 * shim apply LOCKFILE...       carries out, recovers and cleans apply plans, one at a time; a lock file for each root
 * shim apply --remove DIR      removes a directory of ours and all beneath it, whatever its modes; absent is fine
 *
 * The kernel's lock on each LOCKFILE is held until the process ends; {"event":"busy"} and exit 3 when another one holds it.
 * Then lines on stdin, each answered by one line of JSON on stdout:
 *   run PLAN       everything or nothing          recover PLAN   finishes or rolls back what a crash left
 *   clean PLAN     removes the staging directories
 *   pause STEP     before a run: announces STEP when it is reached and waits for a line (for tests of crashes)
 *
 * How a run works: all new content is written to a staging directory on the same mount, then a manifest of the new
 * inodes, then one syncfs. Only then paths change, each by one renameat2: NOREPLACE brings what is new and takes away
 * what goes, EXCHANGE replaces. What was there lands in the staging directory, where it is compared with the plan (identity,
 * attributes, content); if it isn't what the plan knew, it and everything before is put back. A second syncfs and the
 * rename of the manifest to "committed" end the run. Parents are opened beneath the root without following any link and
 * must be the directories that the plan names.
 *
 * PLAN, little endian; a string is u32 length, bytes, NUL:
 *   "PRPLAN1\0", string id, u32 roots, {string path, string upper, string staging parent (may be empty), u64 dev, u64 ino},
 *   u32 operations, {u8 kind, u8 flags, u16 root, string path, u32 operation that makes the parent (~0: none),
 *     u64 parent dev, u64 parent ino, state before, state after, u8 source, u32 link, string source path}, "END!"
 *   state: u8 d_type (0: absent), u8 hash known, u32 mode, u32 uid, u32 gid, u64 dev, u64 ino, u64 size, i64 mtime s,
 *     u32 ns, i64 ctime s, u32 ns, 32 bytes sha256, string symlink target, u16 count, {string name, string value}
 */
#define _GNU_SOURCE
#include "shim.h"
#include "facts.h"

#include <limits.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

#define EXIT_BUSY 3
#define NO_OPERATION UINT32_MAX
#define MAX_ROOTS 16
#define MAX_PAUSES 8

enum { OP_ADD = 1, OP_REPLACE = 2, OP_DELETE = 3, OP_ATTRIBUTES = 4 };
enum { FLAG_OWNER = 1 };
enum { FROM_NOWHERE = 0, FROM_LAYER = 1, FROM_TREE = 2, FROM_LINK = 3 };

struct text {
  const char *at;
  uint32_t length;
};

struct state {
  uint8_t type, hash_known;
  uint32_t mode, uid, gid;
  uint64_t dev, ino, size;
  struct timespec mtime, ctime;
  const unsigned char *sha256;
  struct text target;
  uint16_t xattr_count;
  const unsigned char *xattrs; /* first of xattr_count pairs of strings */
};

struct operation {
  uint8_t kind, flags, source;
  uint16_t root;
  struct text path, source_path;
  uint32_t parent_operation, link;
  uint64_t parent_dev, parent_ino;
  struct state before, after;
  uint64_t new_ino; /* of what was staged */
  int parent_fd;    /* of the directory in which it was done, while it is kept open; else -1 */
  bool done;
};

struct root {
  struct text path, upper, staging_parent;
  uint64_t dev, ino, mount;
  int fd, upper_fd, staging_fd;
  bool staging_inside; /* in the root itself, else in staging_parent */
};

struct plan {
  unsigned char *bytes;
  size_t length;
  struct text id;
  uint32_t root_count, operation_count;
  struct root roots[MAX_ROOTS];
  struct operation *operations;
};

/* Why a run stopped: set by the function that returns false. */
struct trouble {
  bool conflict;
  uint32_t operation; /* NO_OPERATION: none in particular */
  const char *what;   /* the call, or what differs */
  int error;
};

static struct trouble trouble;
static char pauses[MAX_PAUSES][64];
static size_t pause_count;

static bool failed_call(uint32_t operation, const char *call) {
  trouble = (struct trouble){.conflict = false, .operation = operation, .what = call, .error = errno};
  return false;
}

static bool conflicts(uint32_t operation, const char *what) {
  trouble = (struct trouble){.conflict = true, .operation = operation, .what = what, .error = 0};
  return false;
}

/* ---- talking ---- */

static bool read_line(char *line, size_t room) {
  size_t length = 0;
  for (;;) {
    char c;
    ssize_t n = read(STDIN_FILENO, &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    if (c == '\n') break;
    if (length + 1 >= room) tree_stop(TREE_EXIT_USAGE, "a line is too long");
    line[length++] = c;
  }
  line[length] = 0;
  return true;
}

/* A host that is gone must not stop a run half way: what can't be said is left unsaid. */
static void say(const char *bytes, size_t length) {
  while (length > 0) {
    ssize_t n = write(STDOUT_FILENO, bytes, length);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    bytes += n;
    length -= (size_t)n;
  }
}

static void step(const char *name, uint32_t operation) {
  if (pause_count == 0) return;
  char full[96];
  if (operation == NO_OPERATION) snprintf(full, sizeof full, "%s", name);
  else snprintf(full, sizeof full, "%s:%u", name, operation);
  for (size_t i = 0; i < pause_count; i++) {
    if (strcmp(pauses[i], full) != 0) continue;
    char line[160];
    int n = snprintf(line, sizeof line, "{\"event\":\"pause\",\"step\":\"%s\"}\n", full);
    say(line, (size_t)n);
    (void)!read_line(line, sizeof line);
  }
}

/* ---- the plan ---- */

struct reader {
  const unsigned char *at, *end;
};

static const unsigned char *take(struct reader *r, size_t length) {
  if ((size_t)(r->end - r->at) < length) tree_stop(TREE_EXIT_USAGE, "the plan ends too early");
  const unsigned char *at = r->at;
  r->at += length;
  return at;
}

#define DEFINE_TAKE(name, type)                    \
  static type name(struct reader *r) {             \
    type value;                                    \
    memcpy(&value, take(r, sizeof value), sizeof value); \
    return value;                                  \
  }
DEFINE_TAKE(take_u8, uint8_t)
DEFINE_TAKE(take_u16, uint16_t)
DEFINE_TAKE(take_u32, uint32_t)
DEFINE_TAKE(take_u64, uint64_t)

static struct text take_text(struct reader *r) {
  struct text t;
  t.length = take_u32(r);
  if (t.length == UINT32_MAX) tree_stop(TREE_EXIT_USAGE, "the plan has a string that is too long");
  t.at = (const char *)take(r, (size_t)t.length + 1);
  if (t.at[t.length] != 0) tree_stop(TREE_EXIT_USAGE, "the plan has a string without its end");
  return t;
}

static struct timespec take_time(struct reader *r) {
  struct timespec t;
  t.tv_sec = (time_t)take_u64(r);
  t.tv_nsec = (long)take_u32(r);
  return t;
}

static void take_state(struct reader *r, struct state *s) {
  s->type = take_u8(r);
  s->hash_known = take_u8(r);
  s->mode = take_u32(r);
  s->uid = take_u32(r);
  s->gid = take_u32(r);
  s->dev = take_u64(r);
  s->ino = take_u64(r);
  s->size = take_u64(r);
  s->mtime = take_time(r);
  s->ctime = take_time(r);
  s->sha256 = take(r, 32);
  s->target = take_text(r);
  s->xattr_count = take_u16(r);
  s->xattrs = r->at;
  for (uint16_t i = 0; i < s->xattr_count; i++) {
    take_text(r);
    take_text(r);
  }
}

/* A relative path of plain names: no empty one, no dot, no dot-dot. */
static bool plain_path(struct text path) {
  if (path.length == 0 || strlen(path.at) != path.length) return false;
  for (const char *at = path.at;;) {
    size_t length = strcspn(at, "/");
    if (length == 0 || (at[0] == '.' && (length == 1 || (length == 2 && at[1] == '.')))) return false;
    if (at[length] == 0) return true;
    at += length + 1;
  }
}

static void read_plan(const char *path, struct plan *plan) {
  int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) tree_fail("open", path);
  struct stat st;
  if (fstat(fd, &st) != 0) tree_fail("fstat", path);
  if (!S_ISREG(st.st_mode)) tree_stop(TREE_EXIT_USAGE, "%s is no regular file", path);
  memset(plan, 0, sizeof *plan);
  plan->length = (size_t)st.st_size;
  plan->bytes = malloc(plan->length + 1);
  if (plan->bytes == NULL) tree_fail("malloc", path);
  for (size_t done = 0; done < plan->length;) {
    ssize_t n = read(fd, plan->bytes + done, plan->length - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) tree_fail("read", path);
    done += (size_t)n;
  }
  close(fd);
  struct reader r = {plan->bytes, plan->bytes + plan->length};
  if (memcmp(take(&r, 8), "PRPLAN1", 8) != 0) tree_stop(TREE_EXIT_USAGE, "%s is no plan", path);
  plan->id = take_text(&r);
  if (!plain_path(plan->id) || strchr(plan->id.at, '/') != NULL || plan->id.length > 64) tree_stop(TREE_EXIT_USAGE, "the plan's id is no name");
  plan->root_count = take_u32(&r);
  if (plan->root_count == 0 || plan->root_count > MAX_ROOTS) tree_stop(TREE_EXIT_USAGE, "the plan has %u roots", plan->root_count);
  for (uint32_t i = 0; i < plan->root_count; i++) {
    struct root *root = &plan->roots[i];
    root->path = take_text(&r);
    root->upper = take_text(&r);
    root->staging_parent = take_text(&r);
    root->dev = take_u64(&r);
    root->ino = take_u64(&r);
    root->fd = root->upper_fd = root->staging_fd = -1;
  }
  plan->operation_count = take_u32(&r);
  if (plan->operation_count > plan->length / 64) tree_stop(TREE_EXIT_USAGE, "the plan's count of operations can't be true");
  plan->operations = calloc(plan->operation_count ? plan->operation_count : 1, sizeof *plan->operations);
  if (plan->operations == NULL) tree_fail("calloc", path);
  for (uint32_t i = 0; i < plan->operation_count; i++) {
    struct operation *o = &plan->operations[i];
    o->parent_fd = -1;
    o->kind = take_u8(&r);
    o->flags = take_u8(&r);
    o->root = take_u16(&r);
    o->path = take_text(&r);
    o->parent_operation = take_u32(&r);
    o->parent_dev = take_u64(&r);
    o->parent_ino = take_u64(&r);
    take_state(&r, &o->before);
    take_state(&r, &o->after);
    o->source = take_u8(&r);
    o->link = take_u32(&r);
    o->source_path = take_text(&r);
    bool itself = o->kind == OP_ATTRIBUTES && strcmp(o->path.at, ".") == 0; /* the root's own attributes */
    bool good = o->kind >= OP_ADD && o->kind <= OP_ATTRIBUTES && o->root < plan->root_count && (itself || plain_path(o->path)) &&
                (o->parent_operation == NO_OPERATION || o->parent_operation < plan->operation_count) && o->source <= FROM_LINK &&
                (o->source != FROM_LINK || o->link < i) && ((o->source != FROM_LAYER && o->source != FROM_TREE) || plain_path(o->source_path));
    bool wants_before = o->kind != OP_ADD, wants_after = o->kind != OP_DELETE;
    if (!good || (o->before.type != 0) != wants_before || (o->after.type != 0) != wants_after) tree_stop(TREE_EXIT_USAGE, "operation %u of the plan makes no sense", i);
    /* What must never be made, whatever the plan says. */
    if (wants_after && (o->after.type == DT_CHR || o->after.type == DT_BLK || o->after.type == DT_SOCK || (o->after.type == DT_REG && (o->after.mode & 06000) != 0)))
      tree_stop(TREE_EXIT_USAGE, "operation %u would make a device, a socket or a setuid file", i);
  }
  if (memcmp(take(&r, 4), "END!", 4) != 0 || r.at != r.end) tree_stop(TREE_EXIT_USAGE, "the plan doesn't end where it should");
}

static void free_plan(struct plan *plan) {
  for (uint32_t i = 0; i < plan->root_count; i++) {
    if (plan->roots[i].fd >= 0) close(plan->roots[i].fd);
    if (plan->roots[i].upper_fd >= 0) close(plan->roots[i].upper_fd);
    if (plan->roots[i].staging_fd >= 0) close(plan->roots[i].staging_fd);
  }
  free(plan->operations);
  free(plan->bytes);
}

/* ---- small pieces ---- */

static uint64_t dev_of(const struct stat *st) { return (uint64_t)major(st->st_dev) << 32 | minor(st->st_dev); }

static uint64_t mount_of(int fd) {
  struct statx s;
  if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &s) != 0) return 0;
  return s.stx_mnt_id;
}

static void staged_name(char out[16], char kind, uint32_t operation) { snprintf(out, 16, "%c%u", kind, operation); }

static int rename_two(int from_fd, const char *from, int to_fd, const char *to, unsigned flags) {
  return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

static const char *last_name(struct text path) {
  const char *slash = strrchr(path.at, '/');
  return slash == NULL ? path.at : slash + 1;
}

/* ino of `name` in `fd`, 0 when nothing is there. */
static uint64_t inode_at(int fd, const char *name) {
  struct stat st;
  return fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_ino : 0;
}

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

static void forget_parent(void) {
  if (cached.fd >= 0 && !cached_is_kept()) close(cached.fd);
  cached.fd = -1;
}

/* Notes where an operation is about to be done. */
static void keep_parent(struct operation *o) {
  if (cached.fd < 0) return;
  if (!cached_is_kept()) {
    if (kept_parent_count >= kept_parent_limit) return;
    kept_parents[kept_parent_count++] = cached.fd;
  }
  o->parent_fd = cached.fd;
}

static void close_parents(struct plan *plan) {
  forget_parent();
  while (kept_parent_count > 0) close(kept_parents[--kept_parent_count]);
  for (uint32_t i = 0; i < plan->operation_count; i++) plan->operations[i].parent_fd = -1;
}

static int open_parent(struct plan *plan, uint32_t index) {
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

static bool same_time(struct timespec a, struct timespec b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

/* Compares what lies at `name` with the state before. `moved`: its ctime has changed by our own rename. */
static bool same_facts(const struct state *s, const struct stat *st, bool moved) {
  if (IFTODT(st->st_mode) != s->type || st->st_ino != s->ino || dev_of(st) != s->dev) return false;
  if (s->type == DT_DIR) return true; /* times of a directory move with its entries */
  return (st->st_mode & 07777) == s->mode && (uint64_t)st->st_size == s->size && same_time(st->st_mtim, s->mtime) && (moved || same_time(st->st_ctim, s->ctime));
}

static bool directory_empty(int parent, const char *name) {
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

/* Whether what was swapped out is what the plan knew. */
static bool is_preimage(int fd, const char *name, const struct state *s) {
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
  if (file < 0) return false;
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

/* Gives the entry that `fd` (O_PATH) names the attributes of `to`; `from` (or NULL) is what it has. NULL, or the call that failed. */
static const char *set_attributes(int fd, const struct state *from, const struct state *to, bool owner, uint32_t mode) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (owner && fchownat(fd, "", to->uid, to->gid, AT_EMPTY_PATH) != 0) return "chown";
  if (to->type == DT_LNK) return NULL;
  if (chmod(path, mode) != 0) return "chmod";
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
  return NULL;
}

/* ---- staging ---- */

static bool open_roots(struct plan *plan) {
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

static void inside_name(const struct plan *plan, char out[96]) { snprintf(out, 96, ".proofrun-apply-%s", plan->id.at); }
static void outside_name(const struct plan *plan, uint32_t root, char out[96]) { snprintf(out, 96, "%s.%u", plan->id.at, root); }

/* Makes the staging directory of a root: beside the state when that is the same mount, else inside the root. */
static bool make_staging(struct plan *plan, uint32_t index) {
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
static bool find_staging(struct plan *plan, uint32_t index) {
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

static bool write_all(int fd, const unsigned char *bytes, size_t length, off_t at) {
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
static bool copy_content(uint32_t index, int from, int to, const struct state *after) {
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

static bool stage_operation(struct plan *plan, uint32_t index) {
  struct operation *o = &plan->operations[index];
  struct root *root = &plan->roots[o->root];
  if (o->kind != OP_ADD && o->kind != OP_REPLACE) return true;
  char name[16];
  staged_name(name, 'n', index);
  if (o->source == FROM_LINK) {
    char first[16];
    staged_name(first, 'n', o->link);
    if (linkat(root->staging_fd, first, root->staging_fd, name, 0) != 0) return failed_call(index, "linkat");
    o->new_ino = plan->operations[o->link].new_ino;
    return true;
  }
  if (o->after.type == DT_REG) {
    size_t opened = opened_up_count;
    int parent = o->source == FROM_LAYER ? open_layer_parent(root->upper_fd, o->source_path.at) : -1;
    if (o->source == FROM_TREE) {
      char *path = strdup(o->source_path.at);
      if (path == NULL) tree_fail("strdup", "");
      char *slash = strrchr(path, '/');
      if (slash != NULL) *slash = 0;
      parent = open_beneath(root->fd, slash == NULL ? "" : path, O_PATH | O_DIRECTORY | O_NOFOLLOW);
      free(path);
    }
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

/* The manifest: the inode of every staged entry, then a hash. With it, any state after a crash can be told apart. */
static bool write_manifest(struct plan *plan) {
  size_t length = 12 + (size_t)plan->operation_count * 8;
  unsigned char *bytes = malloc(length + 32);
  if (bytes == NULL) tree_fail("malloc", "");
  memcpy(bytes, "PRMANIF1", 8);
  memcpy(bytes + 8, &plan->operation_count, 4);
  for (uint32_t i = 0; i < plan->operation_count; i++) memcpy(bytes + 12 + (size_t)i * 8, &plan->operations[i].new_ino, 8);
  struct sha256 s;
  sha256_start(&s);
  sha256_add(&s, bytes, length);
  sha256_end(&s, bytes + length);
  int fd = openat(plan->roots[0].staging_fd, "manifest", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  bool written = fd >= 0 && write_all(fd, bytes, length + 32, 0) && fsync(fd) == 0;
  if (!written) failed_call(NO_OPERATION, fd < 0 ? "openat" : "write");
  if (fd >= 0) close(fd);
  free(bytes);
  return written;
}

/* 1: read; 0: there is none, or it is torn. */
static int read_manifest(struct plan *plan, const char *name) {
  int fd = openat(plan->roots[0].staging_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return 0;
  size_t length = 12 + (size_t)plan->operation_count * 8;
  unsigned char *bytes = malloc(length + 33);
  if (bytes == NULL) tree_fail("malloc", "");
  size_t done = 0;
  for (ssize_t n; done < length + 33 && (n = pread(fd, bytes + done, length + 33 - done, (off_t)done)) > 0;) done += (size_t)n;
  close(fd);
  unsigned char hash[32];
  struct sha256 s;
  sha256_start(&s);
  sha256_add(&s, bytes, length);
  sha256_end(&s, hash);
  int good = done == length + 32 && memcmp(bytes, "PRMANIF1", 8) == 0 && memcmp(bytes + 8, &plan->operation_count, 4) == 0 && memcmp(hash, bytes + length, 32) == 0;
  for (uint32_t i = 0; good && i < plan->operation_count; i++) memcpy(&plan->operations[i].new_ino, bytes + 12 + (size_t)i * 8, 8);
  free(bytes);
  return good;
}

static bool sync_roots(struct plan *plan) {
  for (uint32_t i = 0; i < plan->root_count; i++) {
    bool again = false;
    for (uint32_t j = 0; j < i; j++) again = again || plan->roots[j].dev == plan->roots[i].dev;
    if (!again && syncfs(plan->roots[i].fd) != 0) return failed_call(NO_OPERATION, "syncfs");
  }
  return true;
}

/* ---- the swap ---- */

/* `moved`: our own renames may have touched the ctime (another name of the same file). */
static bool check_before(struct plan *plan, uint32_t index, bool moved) {
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
  return same_facts(&o->before, &st, moved) ? true : conflicts(index, "it was changed or replaced");
}

/* Opens what an attribute change is about, verified by identity. */
static int open_target(struct plan *plan, uint32_t index, uint64_t dev, uint64_t ino) {
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

static bool change_attributes(struct plan *plan, uint32_t index, const struct state *from, const struct state *to) {
  struct operation *o = &plan->operations[index];
  int fd = open_target(plan, index, o->before.dev, o->before.ino);
  if (fd < 0) return false;
  const char *call = set_attributes(fd, from, to, (o->flags & FLAG_OWNER) != 0, to->mode);
  if (call != NULL) failed_call(index, call);
  close(fd);
  return call == NULL;
}

/* Carries out one operation. When it fails, this operation itself has already been put back. */
static bool swap(struct plan *plan, uint32_t index) {
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
      if (rename_two(parent, name, staging, fresh, RENAME_NOREPLACE) != 0) return errno == ENOENT;
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
static uint32_t roll_back(struct plan *plan) {
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
static bool finish_directories(struct plan *plan) {
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
  return true;
}

static bool commit(struct plan *plan) {
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

/* ---- answers ---- */

/*
 * Our own renames moved the ctime of what was put back. Told to the host, so that it isn't taken for somebody's change:
 * [operation, seconds, nanoseconds] of everything that is the preimage in all but its ctime.
 */
static void add_restored(struct plan *plan, struct bytes *out) {
  struct trouble first = trouble;
  char part[96];
  const char *comma = "";
  bytes_add(out, ",\"restored\":[", 13);
  forget_parent();
  for (uint32_t i = 0; i < plan->operation_count; i++) {
    struct operation *o = &plan->operations[i];
    struct stat st, after;
    if (o->kind == OP_ADD || o->before.type == DT_DIR) continue;
    int parent = open_parent(plan, i);
    const char *name = last_name(o->path);
    if (parent < 0 || fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (same_time(st.st_ctim, o->before.ctime) || !same_facts(&o->before, &st, true) || !is_preimage(parent, name, &o->before)) continue;
    if (fstatat(parent, name, &after, AT_SYMLINK_NOFOLLOW) != 0 || !same_time(st.st_ctim, after.st_ctim)) continue;
    int n = snprintf(part, sizeof part, "%s[%u,%lld,%ld]", comma, i, (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
    bytes_add(out, part, (size_t)n);
    comma = ",";
  }
  forget_parent();
  bytes_add(out, "]", 1);
  trouble = first;
}

/* `settled_back`: the tree is as before. */
static void answer(struct plan *plan, const char *result, uint32_t stuck, bool with_trouble, bool settled_back) {
  struct bytes out = {0};
  char part[256];
  int n = snprintf(part, sizeof part, "{\"result\":\"%s\"", result);
  bytes_add(&out, part, (size_t)n);
  if (with_trouble) {
    n = snprintf(part, sizeof part, ",\"what\":\"%s\",\"errno\":%d", trouble.what, trouble.error);
    bytes_add(&out, part, (size_t)n);
    if (trouble.operation != NO_OPERATION) {
      n = snprintf(part, sizeof part, ",\"operation\":%u", trouble.operation);
      bytes_add(&out, part, (size_t)n);
    }
  }
  if (stuck > 0) {
    bytes_add(&out, ",\"stuck\":[", 10);
    const char *comma = "";
    for (uint32_t i = 0; i < plan->operation_count; i++) {
      if (!plan->operations[i].done) continue;
      n = snprintf(part, sizeof part, "%s%u", comma, i);
      bytes_add(&out, part, (size_t)n);
      comma = ",";
    }
    bytes_add(&out, "]", 1);
  }
  if (settled_back) add_restored(plan, &out);
  bytes_add(&out, ",\"inside\":[", 11);
  for (uint32_t i = 0; i < plan->root_count; i++) bytes_add(&out, plan->roots[i].staging_inside ? (i ? ",1" : "1") : (i ? ",0" : "0"), i ? 2 : 1);
  bytes_add(&out, "],\"inodes\":[", 12);
  for (uint32_t i = 0; i < plan->operation_count; i++) {
    struct operation *o = &plan->operations[i];
    uint64_t ino = o->kind == OP_ATTRIBUTES ? o->before.ino : o->new_ino;
    n = snprintf(part, sizeof part, "%s\"%llu\"", i ? "," : "", (unsigned long long)ino);
    bytes_add(&out, part, (size_t)n);
  }
  bytes_add(&out, "]}\n", 3);
  say(out.at, out.used);
  free(out.at);
}

static void answer_failure(struct plan *plan) {
  uint32_t stuck = roll_back(plan);
  answer(plan, stuck > 0 ? "stuck" : trouble.conflict ? "conflict" : "failed", stuck, true, stuck == 0 && plan->roots[plan->root_count - 1].fd >= 0);
}

static void run_plan(struct plan *plan) {
  bool good = open_roots(plan);
  for (uint32_t i = 0; good && i < plan->root_count; i++) {
    plan->roots[i].upper_fd = open(plan->roots[i].upper.at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (plan->roots[i].upper_fd < 0) good = failed_call(NO_OPERATION, "open");
  }
  step("opened", NO_OPERATION);
  for (uint32_t i = 0; good && i < plan->root_count; i++) good = make_staging(plan, i);
  step("staging", NO_OPERATION);
  for (uint32_t i = 0; good && i < plan->operation_count; i++) good = stage_operation(plan, i);
  step("staged", NO_OPERATION);
  good = good && write_manifest(plan);
  step("manifest", NO_OPERATION);
  good = good && sync_roots(plan);
  step("synced", NO_OPERATION);
  for (uint32_t i = 0; good && i < plan->operation_count; i++) {
    /* What an earlier operation of the batch makes way for can't be checked before. */
    if (plan->operations[i].kind == OP_ADD) continue;
    good = check_before(plan, i, false);
  }
  step("checked", NO_OPERATION);
  for (uint32_t i = 0; good && i < plan->operation_count; i++) good = swap(plan, i);
  step("swapped", NO_OPERATION);
  forget_parent();
  good = good && commit(plan);
  if (good) answer(plan, "applied", 0, false, false);
  else answer_failure(plan);
}

/* ---- after a crash ---- */

/* Reads from the two places of each operation whether it was done. */
static bool inspect(struct plan *plan, uint32_t *undone) {
  *undone = 0;
  for (uint32_t i = 0; i < plan->operation_count; i++) {
    struct operation *o = &plan->operations[i];
    int staging = plan->roots[o->root].staging_fd;
    char name[16];
    staged_name(name, o->kind == OP_DELETE ? 'd' : 'n', i);
    uint64_t ino = inode_at(staging, name);
    switch (o->kind) {
      case OP_DELETE:
        o->done = ino != 0;
        break;
      case OP_ADD:
        o->done = ino == 0;
        break;
      case OP_REPLACE:
        o->done = ino != 0 && ino != o->new_ino; /* 0: somebody has taken what was kept here */
        break;
      default: {
        /* Attributes may be half set: they count as done, and are set again or put back whole, unless somebody else set them. */
        int fd = open_target(plan, i, o->before.dev, o->before.ino);
        struct stat st;
        uint32_t mode = fd >= 0 && fstat(fd, &st) == 0 ? st.st_mode & 07777 : UINT32_MAX;
        o->done = mode == o->before.mode || mode == o->after.mode;
        if (fd >= 0) close(fd);
        break;
      }
    }
    if (!o->done && o->kind != OP_ATTRIBUTES) (*undone)++;
  }
  forget_parent();
  return true;
}

static void recover_plan(struct plan *plan) {
  if (!open_roots(plan)) {
    answer(plan, trouble.conflict ? "conflict" : "failed", 0, true, false);
    return;
  }
  bool any = false;
  for (uint32_t i = 0; i < plan->root_count; i++) {
    if (!find_staging(plan, i)) {
      answer(plan, "failed", 0, true, false);
      return;
    }
    any = any || plan->roots[i].staging_fd >= 0;
  }
  if (plan->roots[0].staging_fd >= 0 && read_manifest(plan, "committed")) {
    answer(plan, "committed", 0, false, false);
    return;
  }
  bool whole = any;
  for (uint32_t i = 0; i < plan->root_count; i++) whole = whole && plan->roots[i].staging_fd >= 0;
  if (!whole || !read_manifest(plan, "manifest")) {
    answer(plan, any ? "rolled_back" : "nothing", 0, false, any);
    return;
  }
  uint32_t undone;
  inspect(plan, &undone);
  if (undone == 0) {
    /* Every path was swapped; what an interrupted verification hadn't looked at yet is looked at now. */
    bool good = true;
    for (uint32_t i = 0; good && i < plan->operation_count; i++) {
      struct operation *o = &plan->operations[i];
      char name[16];
      staged_name(name, o->kind == OP_DELETE ? 'd' : 'n', i);
      if (o->kind == OP_DELETE || o->kind == OP_REPLACE) good = is_preimage(plan->roots[o->root].staging_fd, name, &o->before) || conflicts(i, "it was changed at the moment of the swap");
      else if (o->kind == OP_ATTRIBUTES && o->done) good = change_attributes(plan, i, &o->before, &o->after);
    }
    forget_parent();
    if (good && commit(plan)) {
      answer(plan, "finished", 0, false, false);
      return;
    }
  }
  uint32_t stuck = roll_back(plan);
  answer(plan, stuck > 0 ? "stuck" : "rolled_back", stuck, false, stuck == 0);
}

/* ---- removing ---- */

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
      if (rename_two(fd, name, r->top, moved, RENAME_NOREPLACE) != 0) note_failure(r, "renameat2");
      continue;
    }
    int child = open_for_removal(r, fd, name);
    if (child < 0) continue;
    remove_contents(r, child, depth + 1);
    close(child);
    if (unlinkat(fd, name, AT_REMOVEDIR) != 0 && errno != ENOENT) note_failure(r, "unlinkat");
  }
  free(names.at);
}

/* Removes `name` beneath `parent` whole. 0, or -1 with trouble set. Absent is fine. */
static bool remove_tree(int parent, const char *name) {
  struct stat st;
  if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? true : failed_call(NO_OPERATION, "fstatat");
  if (!S_ISDIR(st.st_mode)) return unlinkat(parent, name, 0) == 0 || errno == ENOENT ? true : failed_call(NO_OPERATION, "unlinkat");
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
  return r.failed == NULL ? true : failed_call(NO_OPERATION, r.failed);
}

static void clean_plan(struct plan *plan) {
  char name[96];
  for (uint32_t i = 0; i < plan->root_count; i++) {
    struct root *root = &plan->roots[i];
    bool good = true;
    if (root->staging_parent.length > 0) {
      int parent = open(root->staging_parent.at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      outside_name(plan, i, name);
      good = parent < 0 ? errno == ENOENT || failed_call(NO_OPERATION, "open") : remove_tree(parent, name);
      if (parent >= 0) close(parent);
    }
    int fd = open(root->path.at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    inside_name(plan, name);
    if (good) good = fd < 0 ? errno == ENOENT || failed_call(NO_OPERATION, "open") : remove_tree(fd, name);
    if (fd >= 0) close(fd);
    if (!good) {
      answer(plan, "failed", 0, true, false);
      return;
    }
  }
  answer(plan, "cleaned", 0, false, false);
}

static int remove_directory(const char *path) {
  const char *slash = strrchr(path, '/');
  if (path[0] != '/' || slash == NULL || slash[1] == 0 || is_dot(slash + 1)) tree_stop(TREE_EXIT_USAGE, "--remove: expected an absolute path, got %s", path);
  char *parent_path = strndup(path, slash == path ? 1 : (size_t)(slash - path));
  if (parent_path == NULL) tree_fail("strndup", "");
  int parent = open(parent_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  free(parent_path);
  if (parent < 0 && errno == ENOENT) return 0;
  if (parent < 0) tree_fail("open", path);
  if (!remove_tree(parent, slash + 1)) {
    errno = trouble.error;
    tree_fail(trouble.what, path);
  }
  close(parent);
  return 0;
}

/* ---- the conversation ---- */

static void take_lock(const char *path, long holder) {
  int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) tree_fail("open", path);
  char text[64];
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) tree_fail("flock", path);
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    char line[128];
    int length = snprintf(line, sizeof line, "{\"event\":\"busy\",\"holder\":%ld}\n", strtol(text, NULL, 10));
    say(line, (size_t)length);
    exit(EXIT_BUSY);
  }
  int length = snprintf(text, sizeof text, "%ld\n", holder);
  if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)length, 0) != length) tree_fail("write", path);
  /* The descriptor stays open: the lock ends with the process. */
}

int cmd_apply(int argc, char **argv) {
  tree_command = "apply";
  if (argc == 3 && strcmp(argv[1], "--remove") == 0) return remove_directory(argv[2]);
  if (argc < 2 || argv[1][0] != '/') tree_stop(TREE_EXIT_USAGE, "expected LOCKFILE..., or --remove DIR");
  umask(0);
  uint64_t descriptors = raise_descriptor_limit();
  if (descriptors < MAX_KEPT_PARENTS + 128) kept_parent_limit = descriptors > 256 ? (size_t)descriptors - 128 : 0;
  /* A key pressed on the terminal must not stop a run half way. */
  sigset_t ignored;
  sigemptyset(&ignored);
  const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) sigaddset(&ignored, numbers[i]);
  if (sigprocmask(SIG_BLOCK, &ignored, NULL) != 0) tree_fail("sigprocmask", "");
  for (int i = 1; i < argc; i++) take_lock(argv[i], (long)getppid());
  say("{\"event\":\"locked\"}\n", 19);
  static char line[PATH_MAX + 16];
  while (read_line(line, sizeof line)) {
    if (strncmp(line, "pause ", 6) == 0) {
      if (pause_count == MAX_PAUSES) tree_stop(TREE_EXIT_USAGE, "more than %d pauses", MAX_PAUSES);
      snprintf(pauses[pause_count++], sizeof pauses[0], "%.63s", line + 6);
      continue;
    }
    void (*action)(struct plan *) = NULL;
    const char *path = NULL;
    if (strncmp(line, "run ", 4) == 0) action = run_plan, path = line + 4;
    else if (strncmp(line, "recover ", 8) == 0) action = recover_plan, path = line + 8;
    else if (strncmp(line, "clean ", 6) == 0) action = clean_plan, path = line + 6;
    else tree_stop(TREE_EXIT_USAGE, "unknown request");
    struct plan plan;
    read_plan(path, &plan);
    action(&plan);
    close_parents(&plan);
    free_plan(&plan);
  }
  return 0;
}

/*
 * shim scan UPPER [--lower ROOT] [--markers user|trusted] [--hash-limit BYTES] [--max-entries N]
 *
 * Walks an overlay's upper layer beside the tree that it was laid over, and writes what the merged view would change:
 * for each path the facts of the tree as it is (before) and of the layer (after). Whiteouts are absences, an opaque or
 * new directory hides what the tree has there, a redirected directory brings entries from elsewhere in the tree.
 * Nothing is decided here: equal pairs are written as well, wherever the layer has an entry.
 *
 * stdout, little endian:
 *   "PRSCAN2\0", then records
 *   'D' u16 length, name     the following entries lie in this directory       'U'   back to its parent
 *   'E' u16 length, name, u8 bits (1 before, 2 after, 4 content comes from `source`), [u32 length, source path]
 *       [before facts] [after facts]
 *   'Z' u64 entries, u64 bytes hashed, i64 realtime minus boottime (ns), char boot_id[40]: the end, read last; a stream
 *       without it is incomplete
 *   facts: u8 type (d_type), u8 flags, u32 mode, u32 uid, u32 gid, u32 nlink, u32 rdev major, u32 rdev minor, u64 dev,
 *          u64 ino, u64 size, u64 blocks (512 bytes), i64 mtime s, u32 ns, i64 ctime s, u32 ns, u64 lines, 32 bytes
 *          sha256 (zeros unless flag 1), u32 length, symlink target, u16 count, {u16 length, name, u32 length, value},
 *          u8 length, identity: the file handle (name_to_handle_at(2)) of a file of the tree that goes away or came with a moved
 *          directory, and for an entry of the layer that of the file that it was copied up from; only with trusted markers,
 *          since an overlay of an ordinary user's records none
 *   flags: 1 hashed, 2 NUL in the first 8000 bytes, 4 last line has no newline, 8 changed while it was read,
 *          16 larger than the hash limit, 32 not readable, 64 too deep: what lies below was not read,
 *          128 another filesystem is mounted here: not entered
 * The first record is an 'E' with the empty name: the two roots themselves.
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

#define XATTR_ROOM 65536

#define BIT_BEFORE 1u
#define BIT_AFTER 2u
#define BIT_SOURCE 4u

#define FACT_HASHED 1u
#define FACT_NUL 2u
#define FACT_OPEN_END 4u
#define FACT_UNSTABLE 8u
#define FACT_TOO_LARGE 16u
#define FACT_UNREADABLE 32u
#define FACT_TOO_DEEP 64u
#define FACT_MOUNT 128u

#define MAX_DEPTH 2600
#define MAX_PATH_BYTES 32768

/* MAX_HANDLE_SZ of the kernel, and the type of the handle. */
#define IDENTITY_ROOM (1 + 128)

struct facts {
  struct stat st;
  unsigned flags;
  struct content content;
  char *target; /* owned */
  size_t target_length;
  char *xattrs; /* encoded, owned */
  size_t xattrs_length;
  uint16_t xattr_count;
  unsigned char identity[IDENTITY_ROOM];
  uint8_t identity_length;
};

/* What an overlay wrote about an entry of its upper layer. */
struct marks {
  char opaque; /* 0, 'y', or 'x' (may hold xattr whiteouts) */
  int whiteout, metacopy;
  char *redirect; /* owned */
};

struct side {
  int upper; /* the layer's directory, or -1 */
  int lower; /* the directory of the tree whose entries show through, or -1 */
  int here;  /* the directory of the tree at the same path, or -1; the same descriptor as `lower` when nothing moved */
};

static struct sink scan_out;
static struct bytes scan_path, scan_source, scan_names;
static const char *scan_prefix = "user.overlay.";
static size_t scan_prefix_length = 13;
static int scan_trusted;
static int scan_root = -1;
static uint64_t scan_root_dev;
static uint64_t scan_hash_limit = (uint64_t)16 << 30, scan_hashed, scan_entries, scan_max_entries = 20000000;
static int scan_max_depth = MAX_DEPTH;

static int merge(struct side at, int depth, int plain, char opaque);

static void marks_free(struct marks *m) { free(m->redirect); }

static void facts_free(struct facts *f) {
  free(f->target);
  free(f->xattrs);
}

/* Adds one attribute to the encoded list. */
static void encode_xattr(struct bytes *list, const char *name, const char *value, size_t length) {
  uint16_t name_length = (uint16_t)strlen(name);
  uint32_t value_length = (uint32_t)length;
  bytes_add(list, &name_length, sizeof name_length);
  bytes_add(list, name, name_length);
  bytes_add(list, &value_length, sizeof value_length);
  bytes_add(list, value, length);
}

static void identify(int parent, const char *name, struct facts *f) {
  union {
    struct file_handle head;
    char room[sizeof(struct file_handle) + IDENTITY_ROOM - 1];
  } handle;
  int mount;
  handle.head.handle_bytes = IDENTITY_ROOM - 1;
  if (!scan_trusted || parent < 0 || !S_ISREG(f->st.st_mode)) return;
  if (name_to_handle_at(parent, name, &handle.head, &mount, 0) != 0 || handle.head.handle_type < 0 || handle.head.handle_type > 255) return;
  f->identity[0] = (unsigned char)handle.head.handle_type;
  memcpy(f->identity + 1, handle.head.f_handle, handle.head.handle_bytes);
  f->identity_length = (uint8_t)(1 + handle.head.handle_bytes);
}

/* The kernel's struct ovl_fb: version, magic, length, flags, type, uuid of the filesystem, handle. Empty: it could make no handle. */
static void take_origin(struct facts *f, const unsigned char *value, size_t length) {
  enum { MAGIC = 0xfb, TYPE = 4, HANDLE = 21 };
  if (length <= HANDLE || value[1] != MAGIC || length - HANDLE > IDENTITY_ROOM - 1) return;
  f->identity[0] = value[TYPE];
  memcpy(f->identity + 1, value + HANDLE, length - HANDLE);
  f->identity_length = (uint8_t)(1 + length - HANDLE);
}

/* `fd` is open on the entry itself, or -1: then it is reached as `name` beneath `parent`. */
static void read_xattrs(int fd, int parent, const char *name, struct facts *f, struct marks *m) {
  static char names[XATTR_ROOM], value[XATTR_ROOM + 1];
  char path[320];
  if (fd < 0) proc_name(path, sizeof path, parent, name);
  ssize_t length = fd >= 0 ? flistxattr(fd, names, sizeof names) : llistxattr(path, names, sizeof names);
  if (length < 0) {
    if (errno == ENOTSUP || errno == ENOENT || errno == EACCES) return;
    tree_fail("listxattr", scan_path.at);
  }
  struct bytes list = {0};
  for (char *at = names; at < names + length; at += strlen(at) + 1) {
    const char *kept = at;
    int mark = m != NULL && strncmp(at, scan_prefix, scan_prefix_length) == 0;
    char plain_name[256 + 16];
    if (mark && strncmp(at + scan_prefix_length, "overlay.", 8) == 0) {
      /* The kernel's escape for an attribute of the job's own under the overlay's prefix. */
      snprintf(plain_name, sizeof plain_name, "%s%s", scan_prefix, at + scan_prefix_length + 8);
      kept = plain_name;
      mark = 0;
    }
    /* Marks of the tree itself: the overlay showed them to nobody, so they are no part of a change. */
    if (m == NULL && strncmp(at, scan_prefix, scan_prefix_length) == 0) continue;
    if (!mark && !xattr_matters(kept)) continue;
    ssize_t got = fd >= 0 ? fgetxattr(fd, at, value, XATTR_ROOM) : lgetxattr(path, at, value, XATTR_ROOM);
    if (got < 0) {
      if (errno == ENODATA || errno == EACCES || errno == EPERM) continue;
      tree_fail("getxattr", scan_path.at);
    }
    if (!mark) {
      encode_xattr(&list, kept, value, (size_t)got);
      f->xattr_count++;
      continue;
    }
    const char *which = at + scan_prefix_length;
    value[got] = 0;
    if (strcmp(which, "opaque") == 0) m->opaque = got > 0 && value[0] == 'x' ? 'x' : 'y';
    else if (strcmp(which, "whiteout") == 0) m->whiteout = 1;
    else if (strcmp(which, "metacopy") == 0) m->metacopy = 1;
    else if (strcmp(which, "origin") == 0 && scan_trusted) take_origin(f, (const unsigned char *)value, (size_t)got);
    else if (strcmp(which, "redirect") == 0) {
      free(m->redirect);
      m->redirect = strdup(value);
      if (m->redirect == NULL) tree_fail("strdup", "");
    }
  }
  f->xattrs = list.at;
  f->xattrs_length = list.used;
}

static int same_moment(const struct stat *a, const struct stat *b) {
  return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size && a->st_mode == b->st_mode &&
         a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void read_link(int parent, const char *name, struct facts *f) {
  size_t room = (size_t)f->st.st_size + 1;
  if (room < 256) room = 256;
  for (;;) {
    f->target = malloc(room);
    if (f->target == NULL) tree_fail("malloc", "");
    ssize_t n = readlinkat(parent, name, f->target, room);
    if (n < 0) {
      f->flags |= FACT_UNSTABLE;
      return;
    }
    if ((size_t)n < room) {
      f->target_length = (size_t)n;
      return;
    }
    free(f->target);
    room *= 2;
  }
}

/*
 * Facts of `name` beneath `parent`; 0 when nothing is there. `marks` is given for entries of the layer. A directory's
 * descriptor is handed over in `*directory` when the caller wants it (-1 when it can't be opened or mustn't be entered).
 */
static int look(int parent, const char *name, int hash, struct facts *f, struct marks *m, int *directory) {
  memset(f, 0, sizeof *f);
  if (m != NULL) memset(m, 0, sizeof *m);
  if (directory != NULL) *directory = -1;
  if (parent < 0) return 0;
  if (fstatat(parent, name, &f->st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return 0;
    tree_fail("fstatat", scan_path.at);
  }
  if (m != NULL && S_ISCHR(f->st.st_mode) && f->st.st_rdev == 0) {
    m->whiteout = 1;
    return 1;
  }
  if (S_ISLNK(f->st.st_mode)) {
    read_link(parent, name, f);
  } else if (S_ISDIR(f->st.st_mode)) {
    int fd = open_directory(parent, name);
    int closed = m != NULL && (f->st.st_mode & 0500) != 0500 && f->st.st_uid == geteuid() && geteuid() != 0;
    if ((fd < 0 && errno == EACCES && m != NULL) || (fd >= 0 && closed)) {
      if (fd >= 0) close(fd);
      fd = open_closed(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, &f->st);
    }
    struct stat opened;
    if (fd < 0) {
      f->flags |= errno == EACCES || errno == EPERM ? FACT_UNREADABLE : errno == EMFILE || errno == ENFILE ? FACT_TOO_DEEP : FACT_UNSTABLE;
      read_xattrs(-1, parent, name, f, m);
    } else if (fstat(fd, &opened) != 0) {
      tree_fail("fstat", scan_path.at);
    } else if (opened.st_ino != f->st.st_ino || opened.st_dev != f->st.st_dev) {
      f->flags |= m == NULL && opened.st_dev != f->st.st_dev ? FACT_MOUNT : FACT_UNSTABLE;
      close(fd);
    } else if (m == NULL && scan_root_dev != (uint64_t)opened.st_dev) {
      f->flags |= FACT_MOUNT;
      close(fd);
    } else {
      read_xattrs(fd, parent, name, f, m);
      if (directory != NULL) *directory = fd;
      else close(fd);
    }
  } else if (S_ISREG(f->st.st_mode) && hash) {
    int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    int fd = openat(parent, name, flags);
    if (fd < 0 && errno == EACCES) fd = m != NULL ? open_closed(parent, name, flags, &f->st) : open_untouched(parent, name, flags, &f->st);
    if (fd < 0) {
      f->flags |= errno == EACCES || errno == EPERM ? FACT_UNREADABLE : FACT_UNSTABLE;
      read_xattrs(-1, parent, name, f, m);
      return 1;
    }
    struct stat opened;
    if (fstat(fd, &opened) != 0) tree_fail("fstat", scan_path.at);
    if (!S_ISREG(opened.st_mode) || opened.st_ino != f->st.st_ino || opened.st_dev != f->st.st_dev) {
      f->flags |= FACT_UNSTABLE;
    } else {
      f->st = opened;
      read_xattrs(fd, parent, name, f, m);
      if (m != NULL && (m->metacopy || m->whiteout)) {
        /* No content of its own. */
      } else if ((uint64_t)opened.st_size > scan_hash_limit) {
        f->flags |= FACT_TOO_LARGE;
      } else if (hash_content(fd, &f->content) != 0) {
        f->flags |= FACT_UNREADABLE;
      } else {
        f->flags |= FACT_HASHED | (f->content.has_nul ? FACT_NUL : 0u) | (f->content.ends_open ? FACT_OPEN_END : 0u);
        scan_hashed += (uint64_t)opened.st_size;
        struct stat after;
        if (fstat(fd, &after) != 0) tree_fail("fstat", scan_path.at);
        if (!same_moment(&opened, &after)) f->flags |= FACT_UNSTABLE;
      }
    }
    close(fd);
  } else {
    read_xattrs(-1, parent, name, f, m);
  }
  return 1;
}

static void put_facts(const struct facts *f) {
  const struct stat *s = &f->st;
  sink_u8(&scan_out, (uint8_t)IFTODT(s->st_mode));
  sink_u8(&scan_out, (uint8_t)f->flags);
  sink_u32(&scan_out, s->st_mode & 07777);
  sink_u32(&scan_out, s->st_uid);
  sink_u32(&scan_out, s->st_gid);
  sink_u32(&scan_out, (uint32_t)s->st_nlink);
  sink_u32(&scan_out, major(s->st_rdev));
  sink_u32(&scan_out, minor(s->st_rdev));
  sink_u64(&scan_out, (uint64_t)major(s->st_dev) << 32 | minor(s->st_dev));
  sink_u64(&scan_out, s->st_ino);
  sink_u64(&scan_out, (uint64_t)s->st_size);
  sink_u64(&scan_out, (uint64_t)s->st_blocks);
  sink_u64(&scan_out, (uint64_t)s->st_mtim.tv_sec);
  sink_u32(&scan_out, (uint32_t)s->st_mtim.tv_nsec);
  sink_u64(&scan_out, (uint64_t)s->st_ctim.tv_sec);
  sink_u32(&scan_out, (uint32_t)s->st_ctim.tv_nsec);
  sink_u64(&scan_out, f->content.lines);
  sink_put(&scan_out, f->content.sha256, 32);
  sink_u32(&scan_out, (uint32_t)f->target_length);
  sink_put(&scan_out, f->target, f->target_length);
  sink_u16(&scan_out, f->xattr_count);
  sink_put(&scan_out, f->xattrs, f->xattrs_length);
  sink_u8(&scan_out, f->identity_length);
  sink_put(&scan_out, f->identity, f->identity_length);
}

static void put_name(char tag, const char *name) {
  size_t length = strlen(name);
  sink_u8(&scan_out, (uint8_t)tag);
  sink_u16(&scan_out, (uint16_t)length);
  sink_put(&scan_out, name, length);
}

/* `source`: relative path in the tree that the content of `after` comes from, or NULL. */
static void put_entry(const char *name, const struct facts *before, const struct facts *after, const char *source) {
  if (++scan_entries > scan_max_entries) tree_stop(TREE_EXIT_LIMIT, "more than %llu entries in the layer", (unsigned long long)scan_max_entries);
  put_name('E', name);
  sink_u8(&scan_out, (uint8_t)((before != NULL ? BIT_BEFORE : 0u) | (after != NULL ? BIT_AFTER : 0u) | (source != NULL ? BIT_SOURCE : 0u)));
  if (source != NULL) {
    sink_u32(&scan_out, (uint32_t)strlen(source));
    sink_put(&scan_out, source, strlen(source));
  }
  if (before != NULL) put_facts(before);
  if (after != NULL) put_facts(after);
}

static int exists(int parent, const char *name) {
  struct stat s;
  if (parent < 0) return 0;
  if (fstatat(parent, name, &s, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0) return 1;
  if (errno != ENOENT && errno != ENOTDIR) tree_fail("fstatat", scan_path.at);
  return 0;
}

/* Adds the names of a directory to scan_names; returns where they start. */
static size_t list_names(int fd) {
  static char buffer[1 << 16] __attribute__((aligned(8)));
  size_t start = scan_names.used;
  for (;;) {
    ssize_t n = read_entries(fd, buffer, sizeof buffer);
    if (n < 0) tree_fail("getdents64", scan_path.at);
    if (n == 0) return start;
    for (ssize_t at = 0; at < n;) {
      struct dirent64_raw *e = (struct dirent64_raw *)(buffer + at);
      at += e->d_reclen;
      if (!is_dot(e->d_name)) bytes_add(&scan_names, e->d_name, strlen(e->d_name) + 1);
    }
  }
}

static void close_unless(int fd, int other) {
  if (fd >= 0 && fd != other) close(fd);
}

/* Enters `name` when any of the sides is a directory; closes the sides. Returns 0 when it was too deep. */
static int descend(const char *name, struct side child, int depth, int plain, char opaque) {
  int entered = 1;
  if (child.upper >= 0 || child.lower >= 0 || child.here >= 0) {
    size_t length = strlen(name);
    if (depth + 1 >= scan_max_depth || scan_path.used + length + 1 > MAX_PATH_BYTES) {
      entered = 0;
    } else {
      size_t before = path_push(&scan_path, name, length);
      put_name('D', name);
      merge(child, depth + 1, plain, opaque);
      sink_u8(&scan_out, 'U');
      path_pop(&scan_path, before);
    }
  }
  close_unless(child.lower, child.here);
  close_unless(child.upper, -1);
  close_unless(child.here, -1);
  return entered;
}

/* Whether descending would be refused: known before the entry is written, so that the flag can be in it. */
static int too_deep(const char *name, int depth) {
  return depth + 1 >= scan_max_depth || scan_path.used + strlen(name) + 1 > MAX_PATH_BYTES;
}

/* The source path of `name` in the directory that is being merged. */
static const char *source_of(const char *name, size_t *before) {
  *before = path_push(&scan_source, name, strlen(name));
  return scan_source.at;
}

/* A redirect is absolute (from the root of the overlay) or one name beside the old place. */
static void resolve_redirect(const char *redirect, struct bytes *into) {
  if (redirect[0] == '/') {
    path_pop(into, 0);
    while (*redirect == '/') redirect++;
    if (*redirect != 0) path_push(into, redirect, strlen(redirect));
  } else {
    path_push(into, redirect, strlen(redirect));
  }
}

static void upper_entry(struct side at, const char *name, int depth, int plain, char opaque) {
  struct facts before, after;
  struct marks m;
  struct side child = {-1, -1, -1};
  size_t opened = opened_up_now();
  int has_after = look(at.upper, name, 1, &after, &m, &child.upper);
  if (!has_after) return; /* gone since it was listed: the layer is being changed, or was never ours */
  int absent = m.whiteout && (S_ISCHR(after.st.st_mode) || (opaque == 'x' && S_ISREG(after.st.st_mode) && after.st.st_size == 0));
  int has_before = look(at.here, name, 1, &before, NULL, &child.here);
  size_t saved_length = scan_source.used;
  char *saved = NULL;
  const char *source = NULL;
  int child_plain = plain;

  if (absent) {
    if (has_before) {
      if (child.here >= 0 && too_deep(name, depth)) before.flags |= FACT_TOO_DEEP;
      identify(at.here, name, &before);
      put_entry(name, &before, NULL, NULL);
      descend(name, child, depth, 0, 0);
    }
    goto done;
  }
  if (m.redirect != NULL && scan_trusted) {
    saved = strndup(scan_source.at, saved_length);
    if (saved == NULL) tree_fail("strndup", "");
    resolve_redirect(m.redirect, &scan_source);
    child_plain = 0;
  } else {
    path_push(&scan_source, name, strlen(name));
  }
  if (S_ISDIR(after.st.st_mode)) {
    if (m.opaque == 'y') {
      child_plain = 0;
    } else if (child_plain) {
      child.lower = child.here;
    } else if (m.redirect != NULL && scan_trusted) {
      if (scan_root >= 0) child.lower = open_beneath(scan_root, scan_source.at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
      if (child.lower < 0 && scan_root >= 0) after.flags |= FACT_UNSTABLE; /* what was moved is no longer there */
    } else if (at.lower >= 0) {
      child.lower = open_directory(at.lower, name);
    }
    if ((child.upper >= 0 || child.here >= 0) && too_deep(name, depth)) after.flags |= FACT_TOO_DEEP;
  } else if (m.metacopy && S_ISREG(after.st.st_mode)) {
    /* Only attributes were copied up: the content is the lower file's. */
    struct facts content;
    int parent = -1;
    char *slash = strrchr(scan_source.at, '/');
    if (scan_root >= 0) {
      if (slash != NULL) *slash = 0;
      parent = open_beneath(scan_root, slash != NULL ? scan_source.at : "", O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
      if (slash != NULL) *slash = '/';
    }
    if (parent >= 0 && look(parent, slash != NULL ? slash + 1 : scan_source.at, 1, &content, NULL, NULL)) {
      after.content = content.content;
      after.flags |= content.flags;
      facts_free(&content);
    } else {
      after.flags |= FACT_UNSTABLE;
    }
    if (parent >= 0) close(parent);
    source = scan_source.at;
  }
  put_entry(name, has_before ? &before : NULL, &after, source);
  /* Where the layer has no directory, everything that the tree has below is hidden. */
  descend(name, child, depth, child_plain && S_ISDIR(after.st.st_mode), m.opaque);
  if (saved != NULL) {
    path_pop(&scan_source, 0);
    bytes_add(&scan_source, saved, saved_length);
  }
done:
  close_again(opened);
  free(saved);
  path_pop(&scan_source, saved_length);
  if (has_before) facts_free(&before);
  facts_free(&after);
  marks_free(&m);
}

/* An entry that shows through from where a redirected directory was. */
static void moved_entry(struct side at, const char *name, int depth) {
  struct facts before, after;
  struct side child = {-1, -1, -1};
  if (!look(at.lower, name, 1, &after, NULL, &child.lower)) return;
  identify(at.lower, name, &after);
  int has_before = look(at.here, name, 1, &before, NULL, &child.here);
  size_t saved;
  const char *source = source_of(name, &saved);
  if (child.lower >= 0 && too_deep(name, depth)) after.flags |= FACT_TOO_DEEP;
  put_entry(name, has_before ? &before : NULL, &after, source);
  descend(name, child, depth, 0, 0);
  path_pop(&scan_source, saved);
  if (has_before) facts_free(&before);
  facts_free(&after);
}

/* An entry of the tree that the layer hides. */
static void hidden_entry(struct side at, const char *name, int depth) {
  struct facts before;
  struct side child = {-1, -1, -1};
  if (!look(at.here, name, 1, &before, NULL, &child.here)) return;
  identify(at.here, name, &before);
  if (child.here >= 0 && too_deep(name, depth)) before.flags |= FACT_TOO_DEEP;
  put_entry(name, &before, NULL, NULL);
  descend(name, child, depth, 0, 0);
  facts_free(&before);
}

/* `plain`: what shows through is what lies here, so entries that only the tree has don't change. */
static int merge(struct side at, int depth, int plain, char opaque) {
  if (at.upper >= 0) {
    size_t start = list_names(at.upper), end = scan_names.used;
    for (size_t i = start; i < end; i += strlen(scan_names.at + i) + 1) {
      char name[256];
      snprintf(name, sizeof name, "%s", scan_names.at + i);
      upper_entry(at, name, depth, plain, opaque);
    }
    scan_names.used = start;
  }
  if (plain) return 0;
  if (at.lower >= 0) {
    size_t start = list_names(at.lower), end = scan_names.used;
    for (size_t i = start; i < end; i += strlen(scan_names.at + i) + 1) {
      char name[256];
      snprintf(name, sizeof name, "%s", scan_names.at + i);
      if (!exists(at.upper, name)) moved_entry(at, name, depth);
    }
    scan_names.used = start;
  }
  if (at.here >= 0 && at.here != at.lower) {
    size_t start = list_names(at.here), end = scan_names.used;
    for (size_t i = start; i < end; i += strlen(scan_names.at + i) + 1) {
      char name[256];
      snprintf(name, sizeof name, "%s", scan_names.at + i);
      if (!exists(at.upper, name) && !exists(at.lower, name)) hidden_entry(at, name, depth);
    }
    scan_names.used = start;
  }
  return 0;
}

static void add_root_facts(int fd, struct facts *f, struct marks *m) {
  memset(f, 0, sizeof *f);
  if (fstat(fd, &f->st) != 0) tree_fail("fstat", "the root");
  if (m != NULL) memset(m, 0, sizeof *m);
  read_xattrs(fd, -1, "", f, m);
}

int cmd_scan(int argc, char **argv) {
  tree_command = "scan";
  const char *usage = "expected UPPER [--lower ROOT] [--markers user|trusted] [--hash-limit BYTES] [--max-entries N]";
  if (argc < 2) tree_stop(TREE_EXIT_USAGE, "%s", usage);
  const char *lower = NULL;
  for (int i = 2; i < argc; i += 2) {
    const char *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (value == NULL) tree_stop(TREE_EXIT_USAGE, "%s", usage);
    if (strcmp(argv[i], "--lower") == 0) lower = value;
    else if (strcmp(argv[i], "--hash-limit") == 0) scan_hash_limit = parse_count(argv[i], value);
    else if (strcmp(argv[i], "--max-entries") == 0) scan_max_entries = parse_count(argv[i], value);
    else if (strcmp(argv[i], "--markers") == 0 && strcmp(value, "trusted") == 0) {
      scan_trusted = 1;
      scan_prefix = "trusted.overlay.";
      scan_prefix_length = 16;
    } else if (strcmp(argv[i], "--markers") != 0 || strcmp(value, "user") != 0) {
      tree_stop(TREE_EXIT_USAGE, "%s", usage);
    }
  }
  /* Three descriptors a level, and some for the rest. */
  uint64_t descriptors = raise_descriptor_limit();
  if (descriptors / 3 < (uint64_t)scan_max_depth + 32) scan_max_depth = descriptors / 3 > 64 ? (int)(descriptors / 3) - 32 : 32;
  scan_out.fd = STDOUT_FILENO;
  bytes_need(&scan_path, 1);
  bytes_need(&scan_source, 1);
  scan_path.at[0] = scan_source.at[0] = 0;
  sink_put(&scan_out, "PRSCAN2", 8);

  struct facts before, after;
  struct marks m;
  int upper = open(argv[1], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (upper < 0) tree_fail("open", argv[1]);
  add_root_facts(upper, &after, &m);
  struct side at = {.upper = upper, .lower = -1, .here = -1};
  if (lower != NULL) {
    scan_root = open(lower, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (scan_root < 0) tree_fail("open", lower);
    add_root_facts(scan_root, &before, NULL);
    scan_root_dev = (uint64_t)before.st.st_dev;
    at.here = scan_root;
    if (m.opaque != 'y') at.lower = scan_root;
  }
  put_entry("", lower != NULL ? &before : NULL, &after, NULL);
  merge(at, 0, lower == NULL || m.opaque != 'y', m.opaque);
  sink_u8(&scan_out, 'Z');
  sink_u64(&scan_out, scan_entries);
  sink_u64(&scan_out, scan_hashed);
  char boot_id[40];
  read_boot_id(boot_id);
  sink_u64(&scan_out, (uint64_t)real_minus_boot());
  sink_put(&scan_out, boot_id, sizeof boot_id);
  sink_flush(&scan_out);
  return 0;
}

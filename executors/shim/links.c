/*
 * Files with several names, in an overlay with an index (Linux: Documentation/filesystems/overlayfs.rst, "Index"). When the
 * job changes one name of such a file, the index keeps the names one file: all of them show the change, but the upper
 * directory holds only those that were written themselves. When the job has ended, outer lets the kernel put the others
 * there too, through the mount that the job had: from then on the upper directory alone says what changed, and nobody has
 * to know of the index.
 */
#define _GNU_SOURCE
#include "shim.h"
#include "tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* More stages than a run has. */
#define MOST_INDEXED 64

struct indexed {
  char *target, *upper, *work;
};

static struct indexed indexed[MOST_INDEXED];
static size_t indexed_count;

struct inodes {
  uint64_t *at;
  size_t used, room;
};

void links_of(const char *target, const char *upper, const char *work) {
  if (indexed_count == MOST_INDEXED) fail_with("mount overlay", target, E2BIG);
  indexed[indexed_count++] = (struct indexed){copy_string(target), copy_string(upper), copy_string(work)};
}

/* The directory of the index, or -1 when it can't be read. `*empty`: nothing is in it. */
static int open_index(const struct indexed *one, int *empty) {
  char path[4096 + 8];
  if (snprintf(path, sizeof path, "%s/index", one->work) >= (int)sizeof path) return -1;
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  char buffer[4096] __attribute__((aligned(8)));
  *empty = 1;
  for (ssize_t n; *empty && (n = read_entries(fd, buffer, sizeof buffer)) != 0;) {
    if (n < 0) {
      *empty = 0;
      break;
    }
    for (ssize_t at = 0; at < n;) {
      struct dirent64_raw *e = (struct dirent64_raw *)(buffer + at);
      at += e->d_reclen;
      if (!is_dot(e->d_name)) *empty = 0;
    }
  }
  return fd;
}

static int add_inode(struct inodes *list, uint64_t inode) {
  if (list->used == list->room) {
    size_t room = list->room ? list->room * 2 : 256;
    uint64_t *more = realloc(list->at, room * sizeof *more);
    if (more == NULL) return -1;
    list->at = more;
    list->room = room;
  }
  list->at[list->used++] = inode;
  return 0;
}

static int by_number(const void *a, const void *b) {
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

static int in_upper(int upper, const char *name) {
  struct stat st;
  return upper >= 0 && fstatat(upper, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Names of the file go into the upper directory when any change of it does. */
static int copy_up(int directory, const char *name, const struct stat *st) {
  if (!S_ISREG(st->st_mode)) return fchownat(directory, name, (uid_t)-1, (gid_t)-1, AT_SYMLINK_NOFOLLOW);
  /* A chown would take bits off the mode. */
  int fd = openat(directory, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return -1;
  close(fd);
  return 0;
}

/*
 * First pass (`settle` 0): notes the inodes of files with several names, one of which the upper directory has. Second:
 * puts the other names there. Returns -1 for anything that it could not look at. Nothing is followed; other mounts aren't entered.
 */
static int visit(int directory, int upper, dev_t device, struct inodes *list, int settle, int depth) {
  if (depth > 2600) return -1;
  struct bytes names = {0};
  static char buffer[1 << 16] __attribute__((aligned(8)));
  for (ssize_t n; (n = read_entries(directory, buffer, sizeof buffer)) != 0;) {
    if (n < 0) goto failed;
    for (ssize_t at = 0; at < n;) {
      struct dirent64_raw *e = (struct dirent64_raw *)(buffer + at);
      at += e->d_reclen;
      if (!is_dot(e->d_name)) bytes_add(&names, e->d_name, strlen(e->d_name) + 1);
    }
  }
  for (size_t i = 0; i < names.used; i += strlen(names.at + i) + 1) {
    const char *name = names.at + i;
    struct stat st;
    if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) != 0) goto failed;
    if (S_ISDIR(st.st_mode)) {
      if (st.st_dev != device) continue;
      int child = open_directory(directory, name);
      if (child < 0) goto failed;
      int child_upper = upper < 0 ? -1 : open_directory(upper, name);
      int done = visit(child, child_upper, device, list, settle, depth + 1);
      close(child);
      if (child_upper >= 0) close(child_upper);
      if (done != 0) goto failed;
    } else if (st.st_nlink > 1 && in_upper(upper, name) != settle) {
      const uint64_t inode = st.st_ino;
      if (!settle) {
        if (add_inode(list, inode) != 0) goto failed;
      } else if (bsearch(&inode, list->at, list->used, sizeof inode, by_number) != NULL && copy_up(directory, name, &st) != 0) {
        goto failed;
      }
    }
  }
  free(names.at);
  return 0;
failed:
  free(names.at);
  return -1;
}

static int settle_one(const struct indexed *one) {
  int target = open(one->target, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), upper = open(one->upper, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat st;
  struct inodes list = {0};
  int done = target < 0 || upper < 0 ? -1 : fstat(target, &st);
  if (done == 0) done = visit(target, upper, st.st_dev, &list, 0, 0);
  if (done == 0 && list.used > 0) {
    qsort(list.at, list.used, sizeof *list.at, by_number);
    done = lseek(target, 0, SEEK_SET) < 0 ? -1 : visit(target, upper, st.st_dev, &list, 1, 0);
  }
  free(list.at);
  if (target >= 0) close(target);
  if (upper >= 0) close(upper);
  return done;
}

/* An index that has nothing more to say is emptied: what is left in one tells the host that names may be missing. */
static void empty_index(int index) {
  char buffer[4096] __attribute__((aligned(8)));
  if (lseek(index, 0, SEEK_SET) < 0) return;
  for (ssize_t n; (n = read_entries(index, buffer, sizeof buffer)) > 0;) {
    for (ssize_t at = 0; at < n;) {
      struct dirent64_raw *e = (struct dirent64_raw *)(buffer + at);
      at += e->d_reclen;
      if (!is_dot(e->d_name)) (void)unlinkat(index, e->d_name, 0);
    }
  }
}

void links_settle(void) {
  struct rlimit limit;
  for (size_t i = 0; i < indexed_count; i++) {
    int empty = 0, index = open_index(&indexed[i], &empty);
    if (index < 0) continue; /* a kernel or filesystem without an index */
    if (!empty && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
      limit.rlim_cur = limit.rlim_max;
      setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (!empty && settle_one(&indexed[i]) == 0) empty_index(index);
    close(index);
  }
}

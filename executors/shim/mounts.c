#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The new mount API has no wrappers in glibc before 2.36: call it by number (the same on every architecture). */
enum { NR_OPEN_TREE = 428, NR_MOVE_MOUNT = 429, NR_FSOPEN = 430, NR_FSCONFIG = 431, NR_FSMOUNT = 432 };
enum { SET_FLAG = 0, SET_STRING = 1, CMD_CREATE = 6 };
#define MOVE_FROM_EMPTY 4u
/* fsconfig(2) takes at most 255 bytes in a string value. */
#define LONGEST_VALUE 255

static int set_string(int fs, const char *key, const char *value) { return (int)syscall(NR_FSCONFIG, fs, SET_STRING, key, value, 0); }

/*
 * Overlayfs reads its layers as paths. A long path goes through a short one: /proc/self/fd of an O_PATH descriptor, which
 * the kernel resolves while the mount is made. Short paths stay as they are, so that mountinfo names the layer.
 */
static const char *short_path(const char *path, char room[64]) {
  if (strlen(path) <= LONGEST_VALUE) return path;
  int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC); /* kept open until the program ends */
  if (fd < 0) fail("open", path);
  snprintf(room, 64, "/proc/self/fd/%d", fd);
  return room;
}

/* Kernels before 6.8 know only one string for all lower layers; it goes through descriptors, so nothing needs escaping. */
static void lower_as_one_string(int fs, const char *target, char **lowers) {
  char value[LONGEST_VALUE + 1];
  size_t used = 0;
  for (size_t i = 0; lowers[i] != NULL; i++) {
    int fd = open(lowers[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) fail("open", lowers[i]);
    int wrote = snprintf(value + used, sizeof value - used, "%s/proc/self/fd/%d", i > 0 ? ":" : "", fd);
    if (wrote < 0 || (size_t)wrote >= sizeof value - used) fail_with("fsconfig", target, ENAMETOOLONG);
    used += (size_t)wrote;
  }
  if (set_string(fs, "lowerdir", value) != 0) fail("fsconfig lowerdir", target);
}

void make_overlay(const char *target, unsigned flags, const char *upper, const char *work, char **lowers) {
  char room[64];
  int fs = (int)syscall(NR_FSOPEN, "overlay", 1u);
  if (fs < 0) fail("fsopen", "overlay");
  if (set_string(fs, "source", "proofrun") != 0) fail("fsconfig source", target);
  int appends = set_string(fs, "lowerdir+", short_path(lowers[0], room)) == 0;
  if (!appends && errno != EINVAL) fail("fsconfig lowerdir+", lowers[0]);
  if (!appends) lower_as_one_string(fs, target, lowers);
  for (size_t i = 1; appends && lowers[i] != NULL; i++) {
    if (set_string(fs, "lowerdir+", short_path(lowers[i], room)) != 0) fail("fsconfig lowerdir+", lowers[i]);
  }
  if (upper[0] != 0) {
    if (set_string(fs, "upperdir", short_path(upper, room)) != 0) fail("fsconfig upperdir", upper);
    if (set_string(fs, "workdir", short_path(work, room)) != 0) fail("fsconfig workdir", work);
  }
  /* As root a directory of the lower layer can be renamed: the layer says where it was. A kernel that can't do so says EXDEV then. */
  if (upper[0] != 0 && !(flags & MOUNT_USERXATTR)) (void)set_string(fs, "redirect_dir", "on");
  /* A filesystem without file handles does without: then a written name is a file of its own. */
  if ((flags & MOUNT_INDEX) && set_string(fs, "index", "on") == 0) links_of(target, upper, work);
  if ((flags & MOUNT_USERXATTR) && syscall(NR_FSCONFIG, fs, SET_FLAG, "userxattr", NULL, 0) != 0) fail("fsconfig userxattr", target);
  if ((flags & MOUNT_FOLLOW) && set_string(fs, "redirect_dir", "follow") != 0) fail("fsconfig redirect_dir", target);
  if (syscall(NR_FSCONFIG, fs, CMD_CREATE, NULL, NULL, 0) != 0) fail("mount overlay", target);
  unsigned attributes = 0x2u /* nosuid */ | 0x4u /* nodev */ | ((flags & MOUNT_READONLY) ? 0x1u : 0) | ((flags & MOUNT_NOEXEC) ? 0x8u : 0);
  int mount_fd = (int)syscall(NR_FSMOUNT, fs, 1u, attributes);
  if (mount_fd < 0) fail("fsmount overlay", target);
  if (syscall(NR_MOVE_MOUNT, mount_fd, "", AT_FDCWD, target, MOVE_FROM_EMPTY) != 0) fail("move_mount overlay", target);
  close(mount_fd);
  close(fs);
}

void make_bind(const char *source, const char *target, unsigned flags) {
  unsigned long recursive = (flags & MOUNT_RECURSIVE) ? MS_REC : 0;
  if (mount(source, target, NULL, MS_BIND | recursive, NULL) != 0) {
    if (flags & MOUNT_OPTIONAL) return;
    fail("mount bind", source);
  }
  unsigned long wanted = MS_NOSUID | MS_NODEV | ((flags & MOUNT_READONLY) ? MS_RDONLY : 0) | ((flags & MOUNT_NOEXEC) ? MS_NOEXEC : 0);
  if (mount(NULL, target, NULL, MS_BIND | MS_REMOUNT | wanted, NULL) == 0) return;
  /* In a user namespace flags that are locked on the source must be kept: add what may be locked, then try again. */
  for (int extra = 0; extra < 4; extra++) {
    unsigned long more = ((extra & 1) ? MS_NOEXEC : 0) | ((extra & 2) ? MS_RDONLY : 0);
    if (mount(NULL, target, NULL, MS_BIND | MS_REMOUNT | wanted | more | MS_RELATIME, NULL) == 0) return;
    if (mount(NULL, target, NULL, MS_BIND | MS_REMOUNT | wanted | more | MS_NOATIME, NULL) == 0) return;
  }
  fail("mount remount", target);
}

void make_tmpfs(const char *target, unsigned mode, uint64_t bytes, uid_t uid, gid_t gid, unsigned flags) {
  char options[128];
  int used = snprintf(options, sizeof options, "mode=%04o,uid=%u,gid=%u", mode, (unsigned)uid, (unsigned)gid);
  if (bytes > 0) snprintf(options + used, sizeof options - (size_t)used, ",size=%llu", (unsigned long long)bytes);
  if (mount("proofrun", target, "tmpfs", MS_NOSUID | MS_NODEV | ((flags & MOUNT_NOEXEC) ? MS_NOEXEC : 0), options) != 0) fail("mount tmpfs", target);
}

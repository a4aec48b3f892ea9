#define _GNU_SOURCE
#include "apply.h"

#include <linux/fs.h>
#include <stdlib.h>

#include "sha256.h"

/* The manifest: the inode of every staged entry, then a hash. With it, any state after a crash can be told apart. */
bool write_manifest(struct plan *plan) {
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
int read_manifest(struct plan *plan, const char *name) {
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

bool sync_roots(struct plan *plan) {
  for (uint32_t i = 0; i < plan->root_count; i++) {
    bool again = false;
    for (uint32_t j = 0; j < i; j++) again = again || plan->roots[j].dev == plan->roots[i].dev;
    if (!again && syncfs(plan->roots[i].fd) != 0) return failed_call(NO_OPERATION, "syncfs");
  }
  return true;
}

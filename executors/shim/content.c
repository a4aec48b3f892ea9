#define _GNU_SOURCE
#include "content.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "sha256.h"

#define NUL_WITHIN 8000 /* a NUL this early makes a file binary, as git judges it */

int hash_content(int fd, struct content *out) {
  static unsigned char chunk[CONTENT_CHUNK];
  struct sha256 s;
  uint64_t seen = 0;
  unsigned char last = '\n';
  memset(out, 0, sizeof *out);
  sha256_start(&s);
  for (;;) {
    ssize_t n = pread(fd, chunk, sizeof chunk, (off_t)seen);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    size_t length = (size_t)n;
    if (seen < NUL_WITHIN) {
      size_t early = NUL_WITHIN - seen < length ? (size_t)(NUL_WITHIN - seen) : length;
      if (memchr(chunk, 0, early) != NULL) out->has_nul = 1;
    }
    for (const unsigned char *at = chunk; (at = memchr(at, '\n', (size_t)(chunk + length - at))) != NULL; at++) out->lines++;
    sha256_add(&s, chunk, length);
    last = chunk[length - 1];
    seen += length;
  }
  out->ends_open = seen > 0 && last != '\n';
  sha256_end(&s, out->sha256);
  return 0;
}

int xattr_matters(const char *name) {
  return strncmp(name, "user.", 5) == 0 || strcmp(name, "system.posix_acl_access") == 0 || strcmp(name, "system.posix_acl_default") == 0 ||
         strcmp(name, "security.capability") == 0;
}

/* Content of a regular file: its hash, and what a review wants to know of its lines. */
#ifndef PROOFRUN_CONTENT_H
#define PROOFRUN_CONTENT_H

#include <stdint.h>

#define CONTENT_CHUNK (1u << 18)

struct content {
  unsigned char sha256[32];
  uint64_t lines;         /* newline bytes */
  int has_nul, ends_open; /* ends_open: not empty and the last byte isn't a newline */
};

/* Hashes an open regular file from its start. 0, or -1 with errno. */
int hash_content(int fd, struct content *out);

/* Attributes that take part in a change: user.*, access control lists, file capabilities. */
int xattr_matters(const char *name);

#endif

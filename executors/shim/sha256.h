/* SHA-256 (FIPS 180-4). */
#ifndef PROOFRUN_SHA256_H
#define PROOFRUN_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct sha256 {
  uint32_t state[8];
  uint64_t length;
  unsigned char block[64];
  size_t used;
};

void sha256_start(struct sha256 *s);
void sha256_add(struct sha256 *s, const unsigned char *data, size_t length);
void sha256_end(struct sha256 *s, unsigned char out[32]);

#endif

/* SHA-256: the processor's SHA extensions where they exist, plain C elsewhere. */
#include "sha256.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

static const uint32_t sha256_k[64] __attribute__((aligned(16))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static inline uint32_t sha256_rotate(uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

static void sha256_blocks_plain(uint32_t state[8], const unsigned char *data, size_t blocks) {
  uint32_t w[64];
  while (blocks-- > 0) {
    for (int i = 0; i < 16; i++, data += 4)
      w[i] = (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | (uint32_t)data[3];
    for (int i = 16; i < 64; i++) {
      uint32_t a = sha256_rotate(w[i - 15], 7) ^ sha256_rotate(w[i - 15], 18) ^ (w[i - 15] >> 3);
      uint32_t b = sha256_rotate(w[i - 2], 17) ^ sha256_rotate(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    uint32_t v[8];
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
      uint32_t s1 = sha256_rotate(v[4], 6) ^ sha256_rotate(v[4], 11) ^ sha256_rotate(v[4], 25);
      uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + sha256_k[i] + w[i];
      uint32_t s0 = sha256_rotate(v[0], 2) ^ sha256_rotate(v[0], 13) ^ sha256_rotate(v[0], 22);
      uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
      v[7] = v[6], v[6] = v[5], v[5] = v[4], v[4] = v[3] + t1;
      v[3] = v[2], v[2] = v[1], v[1] = v[0], v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) state[i] += v[i];
  }
}

#if defined(__x86_64__)
__attribute__((target("sha,sse4.1"))) static void sha256_blocks_ni(uint32_t state[8], const unsigned char *data, size_t blocks) {
  const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0bll, 0x0405060700010203ll);
  /* The instructions want the state as ABEF and CDGH. */
  __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)&state[0]), 0xB1);
  __m128i high = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)&state[4]), 0x1B);
  __m128i abef = _mm_alignr_epi8(low, high, 8);
  __m128i cdgh = _mm_blend_epi16(high, low, 0xF0);
  while (blocks-- > 0) {
    __m128i abef_before = abef, cdgh_before = cdgh, w[4];
    for (int i = 0; i < 4; i++) w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * i)), order);
    for (int i = 0; i < 16; i++) {
      __m128i x;
      if (i < 4) {
        x = w[i];
      } else {
        __m128i t = _mm_add_epi32(_mm_sha256msg1_epu32(w[i & 3], w[(i + 1) & 3]), _mm_alignr_epi8(w[(i + 3) & 3], w[(i + 2) & 3], 4));
        x = w[i & 3] = _mm_sha256msg2_epu32(t, w[(i + 3) & 3]);
      }
      x = _mm_add_epi32(x, _mm_load_si128((const __m128i *)&sha256_k[4 * i]));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, x);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(x, 0x0E));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
    data += 64;
  }
  low = _mm_shuffle_epi32(abef, 0x1B);
  high = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128((__m128i *)&state[0], _mm_blend_epi16(low, high, 0xF0));
  _mm_storeu_si128((__m128i *)&state[4], _mm_alignr_epi8(high, low, 8));
}

static int sha256_have_ni(void) {
  static int known = -1;
  if (known < 0) {
    unsigned a = 0, b = 0, c = 0, d = 0, sse = 0;
    if (__get_cpuid(1, &a, &b, &c, &d)) sse = (c >> 19) & 1;
    known = sse && __get_cpuid_count(7, 0, &a, &b, &c, &d) && ((b >> 29) & 1);
  }
  return known;
}
#endif

static void sha256_blocks(uint32_t state[8], const unsigned char *data, size_t blocks) {
#if defined(__x86_64__)
  if (sha256_have_ni()) {
    sha256_blocks_ni(state, data, blocks);
    return;
  }
#endif
  sha256_blocks_plain(state, data, blocks);
}

void sha256_start(struct sha256 *s) {
  static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(s->state, first, sizeof first);
  s->length = 0;
  s->used = 0;
}

void sha256_add(struct sha256 *s, const unsigned char *data, size_t length) {
  s->length += length;
  if (s->used > 0) {
    size_t part = sizeof s->block - s->used;
    if (part > length) part = length;
    memcpy(s->block + s->used, data, part);
    s->used += part;
    data += part;
    length -= part;
    if (s->used < sizeof s->block) return;
    sha256_blocks(s->state, s->block, 1);
    s->used = 0;
  }
  sha256_blocks(s->state, data, length / 64);
  data += length / 64 * 64;
  s->used = length % 64;
  memcpy(s->block, data, s->used);
}

void sha256_end(struct sha256 *s, unsigned char out[32]) {
  uint64_t bits = s->length * 8;
  unsigned char tail[72] = {0x80};
  size_t pad = (s->used < 56 ? 56 : 120) - s->used;
  for (int i = 0; i < 8; i++) tail[pad + (size_t)i] = (unsigned char)(bits >> (56 - 8 * i));
  sha256_add(s, tail, pad + 8);
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 4; j++) out[4 * i + j] = (unsigned char)(s->state[i] >> (24 - 8 * j));
}

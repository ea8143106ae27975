/* digest.h - SHA-256, which identifies session blocks, prefixes and models.  The only user of the crypto library. */
#pragma once
#include "base/base.h"
#include <nettle/sha2.h>

#define DIGEST_BYTES 32u

struct digest {
    struct sha256_ctx ctx;
};
void digest_begin(struct digest *d);
void digest_add(struct digest *d, const void *data, size_t n);
void digest_u64(struct digest *d, uint64_t v);     /* little-endian */
void digest_text(struct digest *d, const char *s); /* adds the length of s, then its bytes */
void digest_end(struct digest *d, uint8_t out[DIGEST_BYTES]);
void digest_of(const void *data, size_t n, uint8_t out[DIGEST_BYTES]);
void digest_hex(const uint8_t d[DIGEST_BYTES], char out[2 * DIGEST_BYTES + 1]);

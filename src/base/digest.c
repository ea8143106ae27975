/* digest.c - SHA-256 by nettle, which uses the processor's instructions for it where there are any. */
#include "base/digest.h"

#include <string.h>

void digest_begin(struct digest *d)
{
    sha256_init(&d->ctx);
}

void digest_add(struct digest *d, const void *data, size_t n)
{
    if (n) sha256_update(&d->ctx, n, data);
}

void digest_u64(struct digest *d, uint64_t v)
{
    uint8_t b[8];
    for (unsigned i = 0; i < 8; i++)
        b[i] = (uint8_t)(v >> 8 * i);
    digest_add(d, b, sizeof b);
}

void digest_text(struct digest *d, const char *s)
{
    size_t n = strlen(s);
    digest_u64(d, n);
    digest_add(d, s, n);
}

void digest_end(struct digest *d, uint8_t out[DIGEST_BYTES])
{
    sha256_digest(&d->ctx, DIGEST_BYTES, out);
}

void digest_of(const void *data, size_t n, uint8_t out[DIGEST_BYTES])
{
    struct digest d;
    digest_begin(&d);
    digest_add(&d, data, n);
    digest_end(&d, out);
}

void digest_hex(const uint8_t d[DIGEST_BYTES], char out[2 * DIGEST_BYTES + 1])
{
    static const char digit[] = "0123456789abcdef";
    for (unsigned i = 0; i < DIGEST_BYTES; i++) {
        out[2 * i] = digit[d[i] >> 4];
        out[2 * i + 1] = digit[d[i] & 15];
    }
    out[2 * DIGEST_BYTES] = '\0';
}

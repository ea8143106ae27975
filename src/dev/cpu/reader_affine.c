/* reader_affine.c - the reader of tiles as affine.h says.  A thread holds at most four decoded strips of a head while
 * decoding, and one atom in prefill: scores are faster for two strips at once, and four stay in the first cache.  The
 * kernels of instruction sets are in strip_*.c. */
#include "dev/cpu/strip.h"

void strip_decode_ref(const struct kv_affine *f, const struct kv_shape *s, uint32_t tile,
                      uint32_t head, const unsigned char *const *src, uint32_t at, uint32_t r0,
                      uint32_t r1, void *dst)
{
    if (tile >= KV_STRIP) { /* rows at + r of one tile are rows r of the strip */
        affine_decode(f, s, tile, head, src[0], at + r0, at + r1, dst, 0 - at);
        return;
    }
    for (uint32_t r = r0; r < r1;) {
        uint32_t in = r % tile, n = MIN(tile - in, r1 - r);
        affine_decode(f, s, tile, head, src[r / tile], in, in + n, dst, r - in);
        r += n;
    }
}

static const void *strips(const struct kv_reading *r, const struct kv_piece *at, void *room)
{
    return strips_by(strip_decode_ref, r, at, room);
}
static const struct kv_reader ref = {.rows = 4 * KV_STRIP, .strips = strips};

const struct kv_reader *const kv_read_affine[DEV_ISAS] = {
    [DEV_REF] = &ref,
#if defined(__x86_64__)
    [DEV_AVX2] = &strip_reader_avx2,
    [DEV_AVX512] = &strip_reader_avx512,
#elif defined(__aarch64__)
    [DEV_NEON] = &strip_reader_neon,
#endif
};

/* reader_float8.c - the reader of tiles as dev/float8.h says: it makes a strip at a time, as that of groups does.  The kernels
 * of instruction sets are in float8_*.c. */
#include "dev/cpu/float8_strip.h"

static const void *strips(const struct kv_reading *r, const struct kv_piece *at, void *room)
{
    return float8_strips(float8_decode, r, at, room);
}
static const struct kv_reader ref = {.rows = 4 * KV_STRIP, .strips = strips};

const struct kv_reader *const kv_read_float8[DEV_ISAS] = {
    [DEV_REF] = &ref,
#if defined(__x86_64__)
    [DEV_AVX2] = &float8_reader_avx2,
    [DEV_AVX512] = &float8_reader_avx512,
#elif defined(__aarch64__)
    [DEV_NEON] = &float8_reader_neon,
#endif
};

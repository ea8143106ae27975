/* float8_vec.h - floats of 8 bits to strips on vectors of 16 lanes, stated once for AVX2, AVX-512 and NEON:
 * float8_*.c include it after the vec_*.h and after vec_float8 and vec_put.
 *
 * A code shifted up by 7 bits, with its sign moved to bit 15, is a float of 16 bits with 2^-8 of the code's value;
 * this holds for subnormals, too.  So the processor's own conversion of such floats does the work, whatever its mode
 * for subnormals of 32 bits.  Only the NaN has another pattern. */
#include "dev/cpu/float8_strip.h"

INLINE void float8_run(enum dtype t, float scale, const unsigned char *code, uint32_t n, char *out)
{
    const size_t size = t == DT_F32 ? 4 : 2;
    vf by = vf_set1(scale), up = vf_set1(HALF_SCALE);
    for (uint32_t i = 0; i < n; i += 16)
        vec_put(t, out + i * size, vf_mul(vf_mul(vec_float8(v16_load(code + i)), up), by));
}

static void decode(enum dtype t, float scale, const unsigned char *code, uint32_t n, void *out)
{
    if (t == DT_F32)
        float8_run(DT_F32, scale, code, n, out);
    else if (t == DT_F16)
        float8_run(DT_F16, scale, code, n, out);
    else
        float8_run(DT_BF16, scale, code, n, out);
}

static const void *strips(const struct kv_reading *r, const struct kv_piece *at, void *room)
{
    return float8_strips(decode, r, at, room);
}
const struct kv_reader FLOAT8_READER = {.rows = 4 * KV_STRIP, .strips = strips};

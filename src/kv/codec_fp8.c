/* codec_fp8.c - the arithmetic of the "fp8" backend of Transformers: floats of 8 bits (e4m3fn) and one scale.
 *
 *   scale = max |x| / 448, at least the smallest normal number of 32 bits
 *   code  = x / scale, in f32, rounded to 8 bits: nearest, halves to even, at most 448 in size
 *   value = code * scale, in f32, rounded to the type of the rows
 *
 * Transformers takes the maximum over the whole tensor of a layer's first update and keeps it.  So other sequences of the
 * batch decide how a row is stored, and a later, larger row is cut off.  Here every 16 rows of a head have a scale of their
 * own, computed from these 16 rows alone, so no value is cut off.  A NaN or an infinity makes the 16 rows of its head NaN and
 * no others.
 *
 * The codec has no options.  All rows of an update are stored when the update ends, and each row is stored once. */
#include "dev/dev.h"
#include "dev/float8.h"
#include "dev/reader.h"
#include "dev/row.h"
#include "kv/codec.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { CHUNK = 512 }; /* values converted at a time, a multiple of 16 */

static size_t fp8_bytes(const struct kv_codec *c, const struct kv_shape *s)
{
    return float8_tile_bytes(s, c->tile);
}

/* Reads values [at, at + n) of a strip as floats, in raw order.  Values of the first `lead` rows count as 0. */
static void load(const struct kv_shape *s, const char *strip, uint32_t at, uint32_t n,
                 uint32_t lead, float *x)
{
    dev_to_f32(s->dtype, strip + (size_t)at * dtype_size(s->dtype), x, n);
    for (uint32_t i = 0; lead && i < n; i++) {
        uint32_t row = s->layout == KV_STRIPS ? (at + i) % KV_STRIP : (at + i) / s->dim;
        if (row < lead) x[i] = 0;
    }
}

/* Returns the scale of a unit, or NaN if a value is not finite. */
static float scale_of(const struct kv_shape *s, const char *strip, uint32_t lead)
{
    float x[CHUNK], top = 0;
    bool finite = true;
    uint32_t all = KV_STRIP * s->dim;
    for (uint32_t at = 0; at < all; at += CHUNK) {
        uint32_t n = MIN(CHUNK, all - at);
        load(s, strip, at, n, lead, x);
        for (uint32_t i = 0; i < n; i++) {
            top = MAX(top, fabsf(x[i]));
            finite &= fabsf(x[i]) <= FLT_MAX;
        }
    }
    return finite ? MAX(top / FLOAT8_TOP, FLT_MIN) : NAN;
}

/* Writes the codes of a unit. */
static void put_codes(const struct kv_shape *s, const char *strip, uint32_t lead, float scale,
                      unsigned char *code)
{
    float x[CHUNK];
    uint32_t all = KV_STRIP * s->dim;
    for (uint32_t at = 0; at < all; at += CHUNK) {
        uint32_t n = MIN(CHUNK, all - at);
        load(s, strip, at, n, lead, x);
        for (uint32_t i = 0; i < n; i++)
            code[at + i] = float8_code(x[i] / scale);
    }
}

static void fp8_encode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head, void *dst,
                       const void *const *raw, uint32_t block_rows, uint32_t first, uint32_t lead)
{
    size_t row_bytes = s->dim * dtype_size(s->dtype);
    for (uint32_t u = 0; u < c->tile / KV_STRIP; u++) {
        uint32_t row = u * KV_STRIP, from = first + row, skip = lead > row ? lead - row : 0;
        if (skip >= KV_STRIP) continue; /* the strip has leading rows only, whose codes are zeros */
        const char *strip = (const char *)raw[from / block_rows] + from % block_rows * row_bytes;
        unsigned char *tile = dst;
        float scale = scale_of(s, strip, skip);
        memcpy(tile + float8_scale_at(c->tile, head, u), &scale, sizeof scale);
        if (!isnan(scale))
            put_codes(s, strip, skip, scale, tile + float8_codes_at(s, c->tile, head, u));
    }
}

static void fp8_decode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head, void *dst,
                       uint32_t first, const void *src)
{
    const unsigned char *tile = src;
    for (uint32_t r = 0; r < c->tile; r++) {
        const unsigned char *code = tile + float8_codes_at(s, c->tile, head, r / KV_STRIP);
        float scale;
        memcpy(&scale, tile + float8_scale_at(c->tile, head, r / KV_STRIP), sizeof scale);
        for (uint32_t d = 0; d < s->dim; d++)
            kv_row_put(s->dtype, dst, kv_row_place(s, first + r, d),
                       float8_value(code[kv_row_place(s, r % KV_STRIP, d)]) * scale);
    }
}

static int fp8_open(const struct kv_codec_options *o, const struct kv_shape *s, bool key,
                    uint32_t tile, struct kv_codec **out)
{
    (void)o;
    (void)s;
    (void)key;
    if (tile % KV_STRIP)
        return ERR(ARG, "backend \"fp8\": units of %u rows do not make a tile of %u", KV_STRIP,
                   tile);
    struct kv_codec *c = mem_alloc(sizeof *c);
    if (!c) return ERR_NOMEM;
    *c = (struct kv_codec){.name = "fp8",
                           .tile = tile ? tile : KV_STRIP,
                           .describe = kv_codec_no_parameters,
                           .bytes = fp8_bytes,
                           .encode = fp8_encode,
                           .decode = fp8_decode,
                           .reader = kv_read_float8,
                           .encoder = KV_BY_FLOAT8};
    *out = c;
    return 0;
}

static const struct kv_codec_kind fp8 = {
    .name = "fp8",
    .turns = true,
    .at_once = true,
    .open = fp8_open,
};
KV_CODEC(fp8, &fp8);

/* codec_pairs.c - a codec of the tests with a reader that sums, and the example of docs/ADDING-A-CODEC.md: signed codes
 * of 8 bits, one scale for each KV row of a head, and attention over the codes.
 *
 * THE ORDER OF SUMS, which the scalar functions and their vector siblings share.  A query becomes codes qc and a scale qs.
 *   score  the integer sum over d of qc[d] * code[r][d]; as a float * (qs * a[r]) * scale.
 *   add    w[r] = p[r] * a[r].  Two rows at a time, from an even row of the tile on: o[d] += fma(w[r+1], code[r+1][d],
 *          w[r] * code[r][d]).  A row without its partner in the piece: o[d] += w[r] * code[r][d].
 *
 * A tile of a head: the scales a[tile], f32; then the codes [tile][dim]. */
#include "dev/reader.h"
#include "dev/row.h"
#include "kv/codec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { DIM_MOST = 1024 };
enum { STRIPS, OPTIONS };
static const struct kv_codec_option options[OPTIONS] = {
    [STRIPS] = {"pair_strips", 1, 4, 1},
};

static size_t head_bytes(const struct kv_codec *c, const struct kv_shape *s)
{
    return ((size_t)c->tile * (s->dim + sizeof(float)) + 63) & ~(size_t)63;
}

static const float *scales(const struct kv_codec *c, const struct kv_shape *s, const void *tile,
                           uint32_t head)
{
    return (const float *)(const void *)((const char *)tile + head * head_bytes(c, s));
}

static const int8_t *codes(const struct kv_codec *c, const struct kv_shape *s, const void *tile,
                           uint32_t head, uint32_t r)
{
    return (const int8_t *)(scales(c, s, tile, head) + c->tile) + (size_t)r * s->dim;
}

/* The same of a piece. */
static const float *piece_scales(const struct kv_reading *r, const struct kv_piece *at)
{
    return scales(r->codec, r->shape, at->tile[0], at->head);
}
static const int8_t *piece_codes(const struct kv_reading *r, const struct kv_piece *at,
                                 uint32_t row)
{
    return codes(r->codec, r->shape, at->tile[0], at->head, row);
}

/* Turns n values into codes and returns their scale; a NaN or an infinity makes the scale a NaN. */
static float code_values(const float *x, uint32_t n, int8_t *code)
{
    float top = 0;
    for (uint32_t i = 0; i < n && !isnan(top); i++)
        if (!(fabsf(x[i]) <= top)) top = fabsf(x[i]);
    float a = isfinite(top) ? top / 127 : NAN;
    for (uint32_t i = 0; i < n; i++)
        code[i] = a > 0 ? (int8_t)rintf(fmaxf(fminf(x[i] / a, 127), -127)) : 0;
    return a;
}

static void pairs_query(const struct kv_reading *r, const float *q, float *out)
{
    out[0] = code_values(q, r->shape->dim, (int8_t *)(out + 1));
}

static void score_ref(const struct kv_reading *r, const struct kv_piece *at, const float *q,
                      uint32_t n, float scale, float *p, size_t ldp)
{
    const float *a = piece_scales(r, at);
    uint32_t dim = r->shape->dim;
    for (uint32_t i = 0; i < n; i++, q += dim, p += ldp) {
        const int8_t *qc = (const int8_t *)(q + 1);
        for (uint32_t j = at->r0; j < at->r1; j++) {
            const int8_t *code = piece_codes(r, at, j);
            int32_t sum = 0;
            for (uint32_t d = 0; d < dim; d++)
                sum += qc[d] * code[d];
            p[j - at->r0] = (float)sum * (q[0] * a[j]) * scale;
        }
    }
}

static void add_ref(const struct kv_reading *r, const struct kv_piece *at, const float *p,
                    size_t ldp, uint32_t n, float *o, size_t ldo)
{
    const float *a = piece_scales(r, at);
    uint32_t dim = r->shape->dim;
    for (uint32_t i = 0; i < n; i++, p += ldp, o += ldo)
        for (uint32_t j = at->r0, two; j < at->r1; j += 1 + two) {
            const int8_t *x = piece_codes(r, at, j), *y = x + dim;
            two = j % 2 == 0 && j + 1 < at->r1;
            float w0 = p[j - at->r0] * a[j], w1 = two ? p[j + 1 - at->r0] * a[j + 1] : 0;
            for (uint32_t d = 0; d < dim; d++)
                o[d] += two ? fmaf(w1, y[d], w0 * x[d]) : w0 * x[d];
        }
}

static const struct kv_reader ref = {.query = pairs_query, .score = score_ref, .add = add_ref};

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,fma")))

AVX2 static int32_t dot_avx2(const int8_t *x, const int8_t *y, uint32_t n)
{
    __m256i sum = _mm256_setzero_si256();
    uint32_t d = 0;
    for (; d + 16 <= n; d += 16) {
        __m256i a = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(x + d)));
        __m256i b = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(y + d)));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
    }
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    int32_t total = _mm_cvtsi128_si32(half);
    for (; d < n; d++)
        total += x[d] * y[d];
    return total;
}

AVX2 static void score_avx2(const struct kv_reading *r, const struct kv_piece *at, const float *q,
                            uint32_t n, float scale, float *p, size_t ldp)
{
    const float *a = piece_scales(r, at);
    uint32_t dim = r->shape->dim;
    for (uint32_t j = at->r0; j < at->r1; j++) {
        const int8_t *code = piece_codes(r, at, j);
        for (uint32_t i = 0; i < n; i++) {
            const float *qi = q + (size_t)i * dim;
            int32_t sum = dot_avx2((const int8_t *)(qi + 1), code, dim);
            p[i * ldp + j - at->r0] = (float)sum * (qi[0] * a[j]) * scale;
        }
    }
}

AVX2 static __m256 eight(const int8_t *x)
{
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)x)));
}

AVX2 static void add_avx2(const struct kv_reading *r, const struct kv_piece *at, const float *p,
                          size_t ldp, uint32_t n, float *o, size_t ldo)
{
    const float *a = piece_scales(r, at);
    uint32_t dim = r->shape->dim;
    if (dim % 8) {
        add_ref(r, at, p, ldp, n, o, ldo);
        return;
    }
    for (uint32_t i = 0; i < n; i++, p += ldp, o += ldo)
        for (uint32_t j = at->r0, two; j < at->r1; j += 1 + two) {
            const int8_t *x = piece_codes(r, at, j), *y = x + dim;
            two = j % 2 == 0 && j + 1 < at->r1;
            __m256 w0 = _mm256_set1_ps(p[j - at->r0] * a[j]);
            __m256 w1 = _mm256_set1_ps(two ? p[j + 1 - at->r0] * a[j + 1] : 0);
            for (uint32_t d = 0; d < dim; d += 8) {
                __m256 t = _mm256_mul_ps(w0, eight(x + d));
                if (two) t = _mm256_fmadd_ps(w1, eight(y + d), t);
                _mm256_storeu_ps(o + d, _mm256_add_ps(_mm256_loadu_ps(o + d), t));
            }
        }
}

static const struct kv_reader avx2 = {.query = pairs_query, .score = score_avx2, .add = add_avx2};
#endif

static const struct kv_reader *const reader[DEV_ISAS] = {
    [DEV_REF] = &ref,
#if defined(__x86_64__)
    [DEV_AVX2] = &avx2, /* serves AVX-512, too */
#endif
};

static size_t pairs_bytes(const struct kv_codec *c, const struct kv_shape *s)
{
    return s->heads * head_bytes(c, s);
}

static void pairs_encode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                         void *dst, const void *const *raw, uint32_t block_rows, uint32_t first,
                         uint32_t lead)
{
    float x[DIM_MOST], *a = (float *)(uintptr_t)scales(c, s, dst, head);
    for (uint32_t r = lead; r < c->tile; r++) {
        uint32_t row = first + r;
        kv_row_load(s, raw[row / block_rows], row % block_rows, x);
        a[r] = code_values(x, s->dim, (int8_t *)(uintptr_t)codes(c, s, dst, head, r));
    }
}

static void pairs_decode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                         void *dst, uint32_t first, const void *src)
{
    const float *a = scales(c, s, src, head);
    float x[DIM_MOST];
    for (uint32_t r = 0; r < c->tile; r++) {
        const int8_t *code = codes(c, s, src, head, r);
        for (uint32_t d = 0; d < s->dim; d++)
            x[d] = (float)code[d] * a[r];
        kv_row_store(s, dst, first + r, x);
    }
}

static int pairs_open(const struct kv_codec_options *o, const struct kv_shape *s, bool key,
                      uint32_t tile, struct kv_codec **out)
{
    (void)key;
    if (s->dim < 2 || s->dim > DIM_MOST)
        return ERR(ARG, "pairs: heads have 2 to %d values, not %u", DIM_MOST, s->dim);
    struct kv_codec *c = mem_alloc(sizeof *c);
    if (!c) return ERR_NOMEM;
    *c = (struct kv_codec){.name = "pairs",
                           .tile = tile ? tile : KV_STRIP * (uint32_t)o->value[STRIPS],
                           .describe = kv_codec_no_parameters,
                           .bytes = pairs_bytes,
                           .encode = pairs_encode,
                           .decode = pairs_decode,
                           .reader = reader};
    *out = c;
    return 0;
}

static const struct kv_codec_kind pairs = {
    .name = "pairs",
    .option = options,
    .n_options = OPTIONS,
    .open = pairs_open,
};
KV_CODEC(pairs, &pairs);

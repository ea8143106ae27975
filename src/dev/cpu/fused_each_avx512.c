/* fused_each_avx512.c - fused_avx512.c for affine tiles of which not every row has a table of 16 values: groups of channels, and codes
 * of 8 bits in groups of one row.  Each value is computed from its code, but for keys of 2 and 4 bits in groups of channels: the
 * values of a channel are computed once for the rows of a unit, and 16 rows pick from them. */
#if defined(__x86_64__)
#include "dev/cpu/fused_avx512.h"
#include "dev/cpu/fused_strips.h"

/* Returns how many strips from i on lie in the unit of strip i. */
static uint32_t same_unit(const struct strips *s, uint32_t i)
{
    uint32_t n = 1;
    while (i + n < s->n && s->unit[i + n] == s->unit[i])
        n++;
    return n;
}

/* Computes the values of n channels from d on, [channel][code]. */
static __attribute__((noinline)) void tables(const struct kv_reading *r, const unsigned char *unit,
                                             uint32_t d, uint32_t n, float (*table)[16])
{
    const struct kv_affine *f = r->codec->param;
    const size_t dim = r->shape->dim;
#define CASE(t, zero)                                                                              \
    if (r->shape->dtype == t && f->zero_first == zero)                                             \
        for (uint32_t i = 0; i < n; i += 16)                                                       \
            tables_of(t, zero, false, f->bits, vec_get(t, unit, d + i),                            \
                      vec_get(t, unit, dim + d + i), table + i);
    FUSED_KINDS(CASE)
#undef CASE
}

/* Keys of 2 and 4 bits in groups of channels. */
INLINE void picked(const uint32_t nq, const struct kv_reading *r, const struct strips *s,
                   const float *q, float *p, size_t ldp)
{
    const struct kv_affine *f = r->codec->param;
    const uint32_t dim = r->shape->dim, bits = f->bits, chunk = 128 / bits;
    float table[64][16];
    for (uint32_t i0 = 0, n; i0 < s->n; i0 += n) {
        n = same_unit(s, i0);
        for (uint32_t d = 0; d < dim; d += chunk) {
            tables(r, s->unit[i0], d, chunk, table);
            for (uint32_t i = i0; i < i0 + n; i++) {
                const unsigned char *codes = s->codes[i] + (size_t)d * bits / 8 * KV_STRIP;
                const float *qd = q + (size_t)d * nq;
                vf acc[FUSED_MOST];
                UNROLL for (uint32_t k = 0; k < nq; k++) acc[k] =
                    d ? vf_load(p + k * ldp + i * KV_STRIP) : vf_zero();
                for (uint32_t c = 0; c < chunk; c++, qd += nq) {
                    /* byte c % 16 of 16 rows; the instruction reads four bits of a lane */
                    __m512i x = _mm512_cvtepu8_epi32(v16_load(codes + c % 16 * KV_STRIP));
                    x = _mm512_srl_epi32(x, _mm_cvtsi32_si128((int)(c / 16 * bits)));
                    const vf v = _mm512_permutexvar_ps(x, vf_load(table[c]));
                    UNROLL for (uint32_t k = 0; k < nq; k++) acc[k] =
                        vf_fma(vf_set1(qd[k]), v, acc[k]);
                }
                UNROLL for (uint32_t k = 0; k < nq; k++)
                    vf_store(p + k * ldp + i * KV_STRIP, acc[k]);
            }
        }
    }
}

/* Keys of 8 bits, which only (q - b) * a has. */
INLINE void computed(enum dtype t, const uint32_t nq, const struct kv_reading *r,
                     const struct strips *s, struct kv_next *next, const float *q, float *p,
                     size_t ldp)
{
    const struct kv_affine *f = r->codec->param;
    const uint32_t dim = r->shape->dim, pairs = affine_pairs(f, dim),
                   group = f->group ? MIN(f->group, dim) : dim;
    for (uint32_t i = 0; i < s->n; i++) {
        vf acc[FUSED_MOST], a = vf_zero(), b = a;
        UNROLL for (uint32_t k = 0; k < nq; k++) acc[k] = vf_zero();
        for (uint32_t d = 0; d < dim; d += 16) {
            const float *qd = q + (size_t)d * nq;
            float xa[16] = {0}, xb[16] = {0};
            v16 x[16];
            prefetch_tiles(next, 1);
            if (s->row[i]) {
                if (d % group == 0) {
                    const size_t g = s->numbers + 2 * (size_t)(d / group);
                    a = row_numbers(t, s->row[i], g);
                    b = row_numbers(t, s->row[i], g + (size_t)2 * pairs);
                }
                transpose_bytes(s->row[i], s->at + d, x);
            } else {
                UNROLL for (uint32_t c = 0; c < 16; c++) x[c] =
                    v16_load(s->codes[i] + (size_t)(d + c) * KV_STRIP);
                vf_store(xa, vec_get(t, s->unit[i], d));
                vf_store(xb, vec_get(t, s->unit[i], (size_t)dim + d));
            }
            UNROLL for (uint32_t c = 0; c < 16; c++, qd += nq)
            {
                if (!s->row[i]) {
                    a = vf_set1(xa[c]);
                    b = vf_set1(xb[c]);
                }
                const vf v = vec_round(t, affine_value(t, true, vf_from_bytes(x[c]), a, b));
                UNROLL for (uint32_t k = 0; k < nq; k++) acc[k] = vf_fma(vf_set1(qd[k]), v, acc[k]);
            }
        }
        UNROLL for (uint32_t k = 0; k < nq; k++) vf_store(p + k * ldp + i * KV_STRIP, acc[k]);
    }
}

/* Values.  Of groups of channels, the numbers a and b have channels in the lanes. */
INLINE void sums(enum dtype t, bool zero_first, const bool rows, const uint32_t nq,
                 const struct kv_reading *r, const struct strips *s, struct kv_next *next,
                 uint32_t r0, uint32_t r1, const float *p, size_t ldp, bool fresh, float *o,
                 size_t ldo)
{
    const struct kv_affine *f = r->codec->param;
    const uint32_t dim = r->shape->dim, bits = f->bits, per = 8 / bits,
                   bytes = affine_row_bytes(f, dim);
    const __m512i mask = _mm512_set1_epi32((1 << bits) - 1);
    size_t at[4];     /* of the codes of 16 channels */
    __m128i shift[4]; /* their place in bytes */
    for (uint32_t c = 0; c < 4; c++) {
        at[c] = c / per * 16;
        shift[c] = _mm_cvtsi32_si128((int)(c % per * bits));
    }
    for (uint32_t d = 0; d < dim; d += 64) {
        vf acc[FUSED_MOST][4];
        float a[64] = {0}, b[64] = {0}; /* of 64 channels, or of 16 rows */
        const unsigned char *unit = NULL;
        UNROLL for (uint32_t i = 0; i < nq; i++) UNROLL for (uint32_t c = 0; c < 4; c++) acc[i][c] =
            fresh ? vf_zero() : vf_load(o + i * ldo + d + 16 * c);
        for (uint32_t j = r0; j < r1; j++) {
            const uint32_t i = j / KV_STRIP, in = j % KV_STRIP;
            if (rows && (in == 0 || j == r0)) {
                const size_t g = s->numbers + 2 * (size_t)(d / MIN(f->group, dim));
                vf_store(a, row_numbers(t, s->row[i], g));
                vf_store(b, row_numbers(t, s->row[i], g + (size_t)2 * affine_pairs(f, dim)));
            } else if (!rows && s->unit[i] != unit) {
                unit = s->unit[i];
                UNROLL for (uint32_t c = 0; c < 64; c += 16)
                {
                    vf_store(a + c, vec_get(t, unit, d + c));
                    vf_store(b + c, vec_get(t, unit, (size_t)dim + d + c));
                }
            }
            const unsigned char *codes =
                (rows ? s->row[i][in] + s->at : s->codes[i] + (size_t)in * bytes) +
                (size_t)d * bits / 8;
            prefetch_tiles(next, 1);
            UNROLL for (uint32_t c = 0; c < 4; c++)
            {
                const __m512i x = _mm512_and_si512(
                    _mm512_srl_epi32(_mm512_cvtepu8_epi32(v16_load(codes + at[c])), shift[c]),
                    mask);
                const vf v =
                    vec_round(t, affine_value(t, zero_first, _mm512_cvtepi32_ps(x),
                                              rows ? vf_set1(a[in]) : vf_load(a + 16 * c),
                                              rows ? vf_set1(b[in]) : vf_load(b + 16 * c)));
                UNROLL for (uint32_t k = 0; k < nq; k++) acc[k][c] =
                    vf_fma(vf_set1(p[k * ldp + j]), v, acc[k][c]);
            }
        }
        UNROLL for (uint32_t i = 0; i < nq; i++) UNROLL for (uint32_t c = 0; c < 4; c++)
            vf_store(o + i * ldo + d + 16 * c, acc[i][c]);
    }
}

#define KINDS(X)                                                                                   \
    FUSED_QUERIES(X, DT_F16, false, false)                                                         \
    FUSED_QUERIES(X, DT_F16, true, false)                                                          \
    FUSED_QUERIES(X, DT_F16, true, true)                                                           \
    FUSED_QUERIES(X, DT_BF16, false, false)                                                        \
    FUSED_QUERIES(X, DT_BF16, true, false)                                                         \
    FUSED_QUERIES(X, DT_BF16, true, true)
#define ADD(t, zero, rows, nq)                                                                     \
    static void add_##t##_##zero##_##rows##_##nq(                                                  \
        const struct kv_reading *r, const struct strips *s, struct kv_next *next, uint32_t r0,     \
        uint32_t r1, const float *p, size_t ldp, bool fresh, float *o, size_t ldo)                 \
    {                                                                                              \
        sums(t, zero, rows, nq, r, s, next, r0, r1, p, ldp, fresh, o, ldo);                        \
    }
#define ADD_NAME(t, zero, rows, nq) add_##t##_##zero##_##rows##_##nq,
KINDS(ADD)
typedef void add_fn(const struct kv_reading *r, const struct strips *s, struct kv_next *next,
                    uint32_t r0, uint32_t r1, const float *p, size_t ldp, bool fresh, float *o,
                    size_t ldo);
static add_fn *const add_of[] = {KINDS(ADD_NAME)};

#define COMPUTED(t, nq)                                                                            \
    static void computed_##t##_##nq(const struct kv_reading *r, const struct strips *s,            \
                                    struct kv_next *next, const float *q, float *p, size_t ldp)    \
    {                                                                                              \
        computed(t, nq, r, s, next, q, p, ldp);                                                    \
    }
#define COMPUTED_NAME(t, nq) computed_##t##_##nq,
#define PICKED(none, nq)                                                                           \
    static void picked_##nq(const struct kv_reading *r, const struct strips *s,                    \
                            struct kv_next *next, const float *q, float *p, size_t ldp)            \
    {                                                                                              \
        (void)next; /* tiles of many rows are long enough for the processor's own prefetcher */    \
        picked(nq, r, s, q, p, ldp);                                                               \
    }
#define PICKED_NAME(none, nq) picked_##nq,
typedef void score_fn(const struct kv_reading *r, const struct strips *s, struct kv_next *next,
                      const float *q, float *p, size_t ldp);
FUSED_QUERIES(COMPUTED, DT_F16)
FUSED_QUERIES(COMPUTED, DT_BF16)
FUSED_QUERIES(PICKED, )
static score_fn *const computed_of[2][FUSED_MOST] = {{FUSED_QUERIES(COMPUTED_NAME, DT_F16)},
                                                     {FUSED_QUERIES(COMPUTED_NAME, DT_BF16)}};
static score_fn *const picked_of[FUSED_MOST] = {FUSED_QUERIES(PICKED_NAME, )};

bool fused_score_each_avx512(const struct kv_reading *r, const struct kv_piece *at, uint32_t n,
                             struct kv_next *next, const float *q, uint32_t nq, float scale,
                             float *p, size_t ldp)
{
    const struct kv_affine *f = r->codec->param;
    struct strips s;
    if (!find_strips(r, at, n, nq, &s)) return false;
    score_fn *by =
        f->bits == 8 ? computed_of[r->shape->dtype != DT_F16][nq - 1] : picked_of[nq - 1];
    by(r, &s, next, q, p, ldp);
    const vf times = vf_set1(scale);
    for (uint32_t k = 0; k < nq; k++)
        for (uint32_t i = 0; i < s.n; i++)
            vf_store(p + k * ldp + i * KV_STRIP,
                     vf_mul(vf_load(p + k * ldp + i * KV_STRIP), times));
    return true;
}

bool fused_add_each_avx512(const struct kv_reading *r, const struct kv_piece *at, uint32_t n,
                           struct kv_next *next, const float *p, size_t ldp, uint32_t nq,
                           bool fresh, float *o, size_t ldo)
{
    const struct kv_affine *f = r->codec->param;
    struct strips s;
    if (!find_strips(r, at, n, nq, &s)) return false;
    const uint32_t form = s.row[0]        ? 2
                          : f->zero_first ? 1
                                          : 0,
                   kind = form + (r->shape->dtype != DT_F16 ? 3 : 0),
                   last = (s.n - 1) * KV_STRIP + (at[n - 1].r1 - 1) % KV_STRIP;
    add_of[kind * FUSED_MOST + nq - 1](r, &s, next, at->r0 % KV_STRIP, last + 1, p, ldp, fresh, o,
                                       ldo);
    return true;
}
#else
typedef int fused_each_avx512_unused;
#endif

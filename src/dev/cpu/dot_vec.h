/* dot_vec.h - the products of dot_ref.c on vectors of 16 lanes, stated once for AVX2 and AVX-512:
 * dot_avx2.c and dot_avx512.c include it after the vec_*.h that gives the vectors.
 *
 * One token or a few (decode): the weights stream from memory, decoded in registers, several rows at once so that
 * the chains of fma overlap.  More tokens (prefill): four rows are decoded into a panel that stays in the
 * first cache, and tiles of rows x tokens run over it; long K goes in pieces, the lanes of every
 * (token, row) waiting in the thread's scratch.  Both walk K in the same order, so both give the same bits. */
#include "dev/cpu/blocks.h"
#include "dev/cpu/cpu.h"

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif
#define PANEL_CHUNKS 32u   /* chunks of 64 codes in a panel: 4 rows take 24 KiB */
#define PANEL_VALUES 1024u /* f32: 4 rows take 16 KiB */
#define PANEL_STRIDE (PANEL_VALUES + 16u)
#define PANEL_BYTES  (4u * PANEL_CHUNKS * sizeof(struct cpu_wchunk)) /* the larger of both */
_Static_assert(PANEL_BYTES + CPU_TILE * 4 * 16 * sizeof(float) <= CPU_THREAD_BYTES, "scratch");
_Static_assert(PANEL_BYTES >= 4 * PANEL_STRIDE * sizeof(float), "panel");

INLINE uint32_t load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

/* Decoding.  The functions switch on a type that is constant where they are inlined. */

struct scales { /* the expanded scales of a block of 256, and lane groups of d and m */
    float d[16], m[16];
};

/* In registers throughout: bytes stored one by one and loaded as a vector would stall. */
INLINE void scales_load(enum dtype t, const unsigned char *b, struct scales *s)
{
    if (t == DT_Q2_K) {
        v16 v = v16_load(b);
        vf d = vf_from_bytes(v16_and1(v, 15));
        vf m = vf_from_bytes(v16_and1(v16_shr(v, 4), 15));
        vf_store(s->d, vf_mul(d, vf_set1(f16_load(b + 80))));
        vf_store(s->m, vf_mul(m, vf_set1(-f16_load(b + 82))));
    } else if (t == DT_Q3_K) {
        uint32_t a = load_u32(b + 96), c = load_u32(b + 100), h = load_u32(b + 104);
        v16 lo = v16_and1(v16_from_u32(a, c, a >> 4, c >> 4), 15);
        v16 hi = v16_and1(v16_from_u32(h, h >> 2, h >> 4, h >> 6), 3);
        vf v = vf_from_bytes(v16_or(lo, v16_shl(hi, 4)));
        v = vf_add(v, vf_set1(-32.0f));
        vf_store(s->d, vf_mul(v, vf_set1(f16_load(b + 108))));
    } else if (t == DT_Q6_K) {
        vf f = vf_from_bytes(v16_xor1(v16_load(b + 192), 0x80));
        f = vf_add(f, vf_set1(-128.0f));
        vf_store(s->d, vf_mul(f, vf_set1(f16_load(b + 208))));
    } else if (t == DT_Q4_K || t == DT_Q5_K) { /* d of eight sub-blocks, then their m */
        uint32_t a = load_u32(b + 4), c = load_u32(b + 8), h = load_u32(b + 12);
        const uint32_t low = 0x0f0f0f0fu, six = 0x3f3f3f3fu, two = 0x30303030u;
        v16 v = v16_from_u32(a & six, (h & low) | (a >> 2 & two), c & six,
                             (h >> 4 & low) | (c >> 2 & two));
        vf k = vf_pair(f16_load(b), -f16_load(b + 2));
        vf_store(s->d, vf_mul(vf_from_bytes(v), k));
    }
}

/* Returns the codes of chunk c of a block of 256. */
INLINE vb codes_k(enum dtype t, const unsigned char *b, uint32_t c)
{
    int s = 4 * (int)(c % 2), g = 2 * (int)c;
    if (t == DT_Q2_K) return vb_and1(vb_split(b + 16 + 32 * (c / 2), s, s + 2), 3);
    if (t == DT_Q3_K) {
        vb q = vb_and1(vb_split(b + 32 + 32 * (c / 2), s, s + 2), 3);
        return vb_or(q, vb_shl(vb_and1(vb_split(b, g, g + 1), 1), 2));
    }
    if (t == DT_Q6_K) {
        vb q = vb_load(b + 64 * (c / 2));
        vb h = vb_and1(vb_split(b + 128 + 32 * (c / 2), s, s + 2), 3);
        return vb_or(vb_and1(s ? vb_shr(q, 4) : q, 15), vb_shl(h, 4));
    }
    vb q = vb_and1(vb_split(b + (t == DT_Q4_K ? 16 : 48) + 32 * c, 0, 4), 15);
    if (t == DT_Q5_K) q = vb_or(q, vb_shl(vb_and1(vb_split(b + 16, g, g + 1), 1), 4));
    return q;
}

/* Returns the codes of two blocks of 32. */
INLINE vb codes_32(enum dtype t, const unsigned char *a, const unsigned char *b)
{
    if (t == DT_Q8_0) return vb_xor1(vb_load2(a + 2, b + 2), 0x80);
    if (t == DT_MXFP4) return vb_lookup(block_e2m1_plus12, vb_nibbles(a + 1, b + 1));
    uint32_t at = t == DT_Q4_0 ? 2 : t == DT_Q4_1 ? 4 : t == DT_Q5_0 ? 6 : 8;
    vb q = vb_nibbles(a + at, b + at);
    if (t == DT_Q5_0 || t == DT_Q5_1) q = vb_or_bits(q, load_u32(a + at - 4), load_u32(b + at - 4));
    return q;
}

INLINE void scales_32(enum dtype t, const unsigned char *a, const unsigned char *b, vf *d, vf *m)
{
    if (block_has_min(t))
        vf_pair2_f16(a, b, d, m);
    else if (t == DT_MXFP4)
        *d = vf_pair(block_e8m0_half(a[0]), block_e8m0_half(b[0]));
    else
        *d = vf_pair_f16(a, b);
}
INLINE void scales_k(enum dtype t, const struct scales *s, uint32_t c, vf *d, vf *m)
{
    if (t == DT_Q4_K || t == DT_Q5_K) {
        *d = vf_octets(s->d + 2 * c);
        *m = vf_octets(s->d + 8 + 2 * c);
    } else {
        *d = vf_quads(s->d + 4 * c);
        if (t == DT_Q2_K) *m = vf_quads(s->m + 4 * c);
    }
}

/* Weights are prefetched in one ascending stream ahead of the decoding: rows follow one another, so the bytes behind
 * this group of rows are read next.  (Measured: without this the hardware reaches a third of the rate, and with four
 * streams, one for each row, half.)  The first cache is filled a bit more than a page ahead, so that address
 * translations come early, too.  Then a group must be shorter than that distance, so long rows are decoded one at a
 * time.  Types with little to compute per byte are faster from the second cache, which is filled further ahead. */
INLINE bool is_dense(enum dtype t)
{
    return t == DT_Q8_0 || (t == DT_Q6_K && VEC_GEMV == 4); /* enough registers to be quick */
}
INLINE bool rows_short(enum dtype t, const struct cpu_mm *j, uint32_t rows)
{
    return is_dense(t) || rows * j->row_bytes <= 6144;
}
INLINE void fetch(enum dtype t, const unsigned char *p, uint32_t n)
{
    UNROLL for (uint32_t i = 0; i < n; i += 64)
    {
        if (is_dense(t))
            __builtin_prefetch(p + 16384 + i, 0, 2);
        else
            __builtin_prefetch(p + 4608 + i);
    }
}

INLINE void put_chunk(enum dtype t, struct cpu_wchunk *o, vb q, vf d, vf m)
{
    vb_store(o->q, q);
    vf_store(o->d, d);
    if (block_has_min(t)) vf_store(o->m, m);
}
INLINE void unpack_type(enum dtype t, const unsigned char *row, uint32_t k0, uint32_t k,
                        struct cpu_wchunk *o)
{
    uint32_t bytes = block_bytes(t);
    vf d, m = vf_zero();
    if (block_is_k(t)) {
        const unsigned char *b = row + (size_t)(k0 / 256) * bytes;
        for (uint32_t i = 0; i < k / 256; i++, b += bytes) {
            struct scales s;
            scales_load(t, b, &s);
            fetch(t, b, bytes);
            UNROLL for (uint32_t c = 0; c < 4; c++)
            {
                scales_k(t, &s, c, &d, &m);
                put_chunk(t, o++, codes_k(t, b, c), d, m);
            }
        }
        return;
    }
    const unsigned char *b = row + (size_t)(k0 / 32) * bytes;
    for (uint32_t i = 0; i < k / 64; i++, b += 2 * bytes) {
        fetch(t, b, 2 * bytes);
        scales_32(t, b, b + bytes, &d, &m);
        put_chunk(t, o++, codes_32(t, b, b + bytes), d, m);
    }
    if (k % 64) { /* the second half repeats the first and is never used */
        scales_32(t, b, b, &d, &m);
        put_chunk(t, o, codes_32(t, b, b), d, m);
    }
}

/* To f32: product, then sum, each rounded. */

INLINE void to_f32_type(enum dtype t, int zero, const unsigned char *src, float *dst, size_t n)
{
    struct cpu_wchunk c[4];
    for (; n; src += (block_is_k(t) ? 1 : 8) * block_bytes(t)) {
        uint32_t m = (uint32_t)MIN(n, 256);
        unpack_type(t, src, 0, m, c);
        for (uint32_t i = 0; i < m / 16; i++) {
            const struct cpu_wchunk *w = c + i / 4;
            vf v = vf_add(vf_from_u8(w->q + 16 * (i % 4)), vf_set1((float)-zero));
            v = vf_mul(v, vf_set1(w->d[4 * (i % 4)]));
            if (block_has_min(t)) v = vf_add(v, vf_set1(w->m[4 * (i % 4)]));
            vf_store(dst + 16 * i, v);
        }
        dst += m;
        n -= m;
    }
}

/* Loads 16 weights of a float type, or the last n < 16 of a row followed by zeros. */
INLINE vf weights(enum dtype t, const unsigned char *p)
{
    return t == DT_F32   ? vf_load((const float *)(const void *)p)
           : t == DT_F16 ? vf_from_f16(p)
                         : vf_from_bf16(p);
}
INLINE vf weights_n(enum dtype t, const unsigned char *p, uint32_t n)
{
    unsigned char b[64] = {0};
    memcpy(b, p, n * (t == DT_F32 ? 4 : 2));
    return weights(t, b);
}
INLINE void float_to_f32(enum dtype t, const unsigned char *src, float *dst, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        vf_store(dst + i, weights(t, src + 2 * i));
    if (i < n) vf_store_n(dst + i, weights_n(t, src + 2 * i, (uint32_t)(n - i)), (uint32_t)(n - i));
}

/* One token, or a few: beams and small batches read the weights once. */

INLINE void gemv_store(const struct cpu_mm *j, uint32_t r, uint32_t token, vf acc)
{
    float y = vf_tree(acc);
    j->y[token * j->ldy + r] = j->bias ? y + j->bias[r] : y;
}

struct few { /* the addresses of a group of rows */
    const struct cpu_mm *j;
    int rows, tokens;
    const unsigned char *b[VEC_GEMV]; /* [row] current block */
    struct scales s[VEC_GEMV];
};

/* The same for f32 x: codes become weights in registers, product, then sum, each rounded, as to_f32_type has
 * it.  A scale serves 16 codes at least. */
INLINE void exact_chunk(enum dtype t, int zero, const struct few *f, uint32_t second, uint32_t c,
                        uint32_t i, uint32_t lanes, vf (*acc)[CPU_FEW])
{
    const float *x[CPU_FEW];
    UNROLL for (int k = 0; k < f->tokens; k++)
    {
        uint32_t token = MIN((uint32_t)k, f->j->n - 1);
        x[k] = (const float *)(const void *)(f->j->x + token * f->j->ldx) + (size_t)i * 64;
    }
    UNROLL for (int r = 0; r < f->rows; r++)
    {
        const unsigned char *b = f->b[r];
        vf d, m = vf_zero();
        vb q = block_is_k(t) ? codes_k(t, b, c) : codes_32(t, b, b + second);
        if (block_is_k(t))
            scales_k(t, f->s + r, c, &d, &m);
        else
            scales_32(t, b, b + second, &d, &m);
        UNROLL for (uint32_t g = 0; g < lanes / 4; g++)
        {
            vf v = vf_from_bytes(vb_quarter(q, g));
            if (zero) v = vf_add(v, vf_set1((float)-zero));
            v = vf_mul(v, vf_spread(d, g));
            if (block_has_min(t)) v = vf_add(v, vf_spread(m, g));
            UNROLL for (int k = 0; k < f->tokens; k++) acc[r][k] =
                vf_fma(vf_load(x[k] + 16 * g), v, acc[r][k]);
        }
    }
}

typedef void (*chunk_fn)(enum dtype t, int zero, const struct few *f, uint32_t second, uint32_t c,
                         uint32_t i, uint32_t lanes, vf (*acc)[CPU_FEW]);

INLINE void few_rows(enum dtype t, int zero, chunk_fn chunk, int rows, int tokens,
                     const struct cpu_mm *j, uint32_t r0)
{
    uint32_t bytes = block_bytes(t),
             step = (uint32_t)rows * (block_is_k(t) ? bytes / 4 : 2 * bytes);
    const unsigned char *next = j->w + r0 * j->row_bytes;
    struct few f = {.j = j, .rows = rows, .tokens = tokens};
    vf acc[VEC_GEMV][CPU_FEW];
    UNROLL for (int r = 0; r < rows; r++)
    {
        f.b[r] = next + (uint32_t)r * j->row_bytes;
        UNROLL for (int k = 0; k < tokens; k++) acc[r][k] = vf_zero();
    }
    for (uint32_t i = 0; block_is_k(t) && i < j->k / 256; i++) {
        UNROLL for (int r = 0; r < rows; r++) scales_load(t, f.b[r], f.s + r);
        UNROLL for (uint32_t c = 0; c < 4; c++, next += step)
        {
            fetch(t, next, step);
            chunk(t, zero, &f, 0, c, 4 * i + c, 16, acc);
        }
        UNROLL for (int r = 0; r < rows; r++) f.b[r] += bytes;
    }
    for (uint32_t i = 0; !block_is_k(t) && i < j->k / 64; i++, next += step) {
        fetch(t, next, step);
        chunk(t, zero, &f, bytes, 0, i, 16, acc);
        UNROLL for (int r = 0; r < rows; r++) f.b[r] += 2 * bytes;
    }
    if (!block_is_k(t) && j->k % 64) chunk(t, zero, &f, 0, 0, j->k / 64, 8, acc);
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int k = 0; k < tokens; k++) if ((uint32_t)k < j->n)
            gemv_store(j, r0 + (uint32_t)r, (uint32_t)k, acc[r][k]);
}

INLINE void few_all(enum dtype t, int zero, chunk_fn chunk, uint32_t rows, int tokens,
                    const struct cpu_mm *j)
{
    uint32_t r = 0;
    if (rows_short(t, j, rows))
        for (; r + rows <= j->rows; r += rows)
            few_rows(t, zero, chunk, (int)rows, tokens, j, r);
    for (; r < j->rows; r++)
        few_rows(t, zero, chunk, 1, tokens, j, r);
}

INLINE void few_exact(enum dtype t, int zero, const struct cpu_mm *j)
{
    if (j->n == 1)
        few_all(t, zero, exact_chunk, VEC_GEMV, 1, j);
    else
        few_all(t, zero, exact_chunk, 2, 4, j); /* decoding is most of the work */
}

/* The hardware prefetches float weights fast enough, if it sees one stream, or long ones. */
INLINE void gemv_float_rows(enum dtype t, int rows, const struct cpu_mm *j, uint32_t r0)
{
    const float *x = (const float *)j->x;
    uint32_t size = t == DT_F32 ? 4 : 2, k = j->k & ~15u;
    const unsigned char *b[VEC_GEMV_F];
    vf acc[VEC_GEMV_F];
    UNROLL for (int r = 0; r < rows; r++)
    {
        b[r] = j->w + (r0 + (uint32_t)r) * j->row_bytes;
        acc[r] = vf_zero();
    }
    for (uint32_t i = 0; i < k; i += 16) {
        vf xv = vf_load(x + i);
        UNROLL for (int r = 0; r < rows; r++) acc[r] =
            vf_fma(xv, weights(t, b[r] + (size_t)i * size), acc[r]);
    }
    if (k < j->k) {
        vf xv = vf_load_n(x + k, j->k - k);
        UNROLL for (int r = 0; r < rows; r++) acc[r] =
            vf_fma_n(xv, weights_n(t, b[r] + (size_t)k * size, j->k - k), acc[r], j->k - k);
    }
    UNROLL for (int r = 0; r < rows; r++) gemv_store(j, r0 + (uint32_t)r, 0, acc[r]);
}

INLINE void gemv_float(enum dtype t, const struct cpu_mm *j)
{
    uint32_t r = 0;
    if (j->row_bytes >= 6144)
        for (; r + VEC_GEMV_F <= j->rows; r += VEC_GEMV_F)
            gemv_float_rows(t, VEC_GEMV_F, j, r);
    for (; r < j->rows; r++)
        gemv_float_rows(t, 1, j, r);
}

/* Many tokens. */

struct tile { /* one piece of K of four decoded rows */
    const struct cpu_mm *j;
    uint32_t row, k0, k; /* first row; the piece */
    bool first, last;    /* of K */
    const float *w[4];   /* f32 rows */
    const struct cpu_wchunk *panel;
    float (*lanes)[4][16]; /* [token], between pieces */
};

INLINE void tile_begin(const struct tile *p, uint32_t t, int tokens, vf (*acc)[VEC_TOKENS])
{
    UNROLL for (int r = 0; r < 4; r++) UNROLL for (int i = 0; i < tokens; i++) acc[r][i] =
        p->first ? vf_zero() : vf_load(p->lanes[t + (uint32_t)i][r]);
}

INLINE void tile_end(const struct tile *p, uint32_t t, int tokens, vf (*acc)[VEC_TOKENS])
{
    const struct cpu_mm *j = p->j;
    if (!p->last) {
        UNROLL for (int r = 0; r < 4; r++) UNROLL for (int i = 0; i < tokens; i++)
            vf_store(p->lanes[t + (uint32_t)i][r], acc[r][i]);
        return;
    }
    float y[VEC_TOKENS][4];
    uint32_t rows = MIN(j->rows - p->row, 4);
    vf_trees(acc, tokens, y);
    for (int i = 0; i < tokens; i++) {
        float *out = j->y + (t + (uint32_t)i) * j->ldy + p->row;
        for (uint32_t r = 0; r < rows; r++)
            out[r] = j->bias ? y[i][r] + j->bias[p->row + r] : y[i][r];
    }
}

INLINE void f32_step(const struct tile *p, uint32_t k, uint32_t n, uint32_t t, int tokens, int r0,
                     int rows, vf (*acc)[VEC_TOKENS])
{
    vf x[VEC_TOKENS];
    UNROLL for (int i = 0; i < tokens; i++)
    {
        const float *src = (const float *)(p->j->x + (t + (uint32_t)i) * p->j->ldx) + p->k0 + k;
        x[i] = n == 16 ? vf_load(src) : vf_load_n(src, n);
    }
    UNROLL for (int r = r0; r < r0 + rows; r++)
    {
        vf w = n == 16 ? vf_load(p->w[r] + k) : vf_load_n(p->w[r] + k, n);
        UNROLL for (int i = 0; i < tokens; i++) acc[r][i] =
            n == 16 ? vf_fma(x[i], w, acc[r][i]) : vf_fma_n(x[i], w, acc[r][i], n);
    }
}

INLINE void f32_tile(const struct tile *p, uint32_t t, int tokens)
{
    vf acc[4][VEC_TOKENS];
    uint32_t k = p->k & ~15u;
    tile_begin(p, t, tokens, acc);
    UNROLL for (int r0 = 0; r0 < 4; r0 += VEC_ROWS)
    {
        for (uint32_t i = 0; i < k; i += 16)
            f32_step(p, i, 16, t, tokens, r0, VEC_ROWS, acc);
        if (k < p->k) f32_step(p, k, p->k - k, t, tokens, r0, VEC_ROWS, acc);
    }
    tile_end(p, t, tokens, acc);
}

static void f32_panel(struct tile *p)
{
    const struct cpu_mm *j = p->j;
    float *panel = (float *)j->scratch;
    size_t at = (size_t)(p->k0 / dtype_block(j->dtype)) * dtype_size(j->dtype);
    for (uint32_t r = 0; r < 4; r++) {
        const unsigned char *row = j->w + MIN(p->row + r, j->rows - 1) * j->row_bytes + at;
        p->w[r] = panel + r * PANEL_STRIDE;
        if (j->dtype == DT_F32)
            p->w[r] = (const float *)(const void *)row; /* read in place, whatever its alignment */
        else
            j->to_f32(row, panel + r * PANEL_STRIDE, p->k);
    }
}

static void VEC(mm_f32)(const struct cpu_mm *j)
{
    struct tile p = {.j = j, .lanes = (float(*)[4][16])(j->scratch + PANEL_BYTES)};
    for (p.row = 0; p.row < j->rows; p.row += 4)
        for (p.k0 = 0; p.k0 < j->k; p.k0 += p.k) {
            p.k = MIN(j->k - p.k0, PANEL_VALUES);
            p.first = p.k0 == 0;
            p.last = p.k0 + p.k == j->k;
            f32_panel(&p);
            uint32_t t = 0;
            for (; t + VEC_TOKENS <= j->n; t += VEC_TOKENS)
                f32_tile(&p, t, VEC_TOKENS);
            for (; t < j->n; t++)
                f32_tile(&p, t, 1);
        }
}
CPU_KERNEL(VEC_ISA, CPU_MM_F32, CPU_ANY, VEC(mm_f32));

#define QUANTIZED(type, zero)                                                                      \
    static void VEC(exact_##type)(const struct cpu_mm *j)                                          \
    {                                                                                              \
        few_exact(DT_##type, zero, j);                                                             \
    }                                                                                              \
    static void VEC(unpack_##type)(const unsigned char *row, uint32_t k0, uint32_t k,              \
                                   struct cpu_wchunk *dst)                                         \
    {                                                                                              \
        unpack_type(DT_##type, row, k0, k, dst);                                                   \
    }                                                                                              \
    static void VEC(to_f32_##type)(const void *src, float *dst, size_t n)                          \
    {                                                                                              \
        to_f32_type(DT_##type, zero, src, dst, n);                                                 \
    }                                                                                              \
    CPU_KERNEL(VEC_ISA, CPU_GEMV_F32, DT_##type, VEC(exact_##type));                               \
    CPU_KERNEL(VEC_ISA, CPU_UNPACK, DT_##type, VEC(unpack_##type));                                \
    CPU_KERNEL(VEC_ISA, CPU_TO_F32, DT_##type, VEC(to_f32_##type))
QUANTIZED(Q4_0, 8);
QUANTIZED(Q4_1, 0);
QUANTIZED(Q5_0, 16);
QUANTIZED(Q5_1, 0);
QUANTIZED(Q8_0, 128);
QUANTIZED(Q2_K, 0);
QUANTIZED(Q3_K, 4);
QUANTIZED(Q4_K, 0);
QUANTIZED(Q5_K, 0);
QUANTIZED(Q6_K, 32);
QUANTIZED(MXFP4, 12);

#define FLOATING(type)                                                                             \
    static void VEC(gemv_##type)(const struct cpu_mm *j)                                           \
    {                                                                                              \
        gemv_float(DT_##type, j);                                                                  \
    }                                                                                              \
    CPU_KERNEL(VEC_ISA, CPU_GEMV_F32, DT_##type, VEC(gemv_##type))
FLOATING(F32);
FLOATING(F16);
FLOATING(BF16);
static void VEC(to_f32_F16)(const void *src, float *dst, size_t n)
{
    float_to_f32(DT_F16, src, dst, n);
}
static void VEC(to_f32_BF16)(const void *src, float *dst, size_t n)
{
    float_to_f32(DT_BF16, src, dst, n);
}
CPU_KERNEL(VEC_ISA, CPU_TO_F32, DT_F16, VEC(to_f32_F16));
CPU_KERNEL(VEC_ISA, CPU_TO_F32, DT_BF16, VEC(to_f32_BF16));

/* Activations. */

static void VEC(round_bf16)(const float *x, uint32_t k, void *out)
{
    float *o = out;
    uint32_t i = 0;
    for (; i + 16 <= k; i += 16)
        vf_store(o + i, vf_round_bf16(vf_load(x + i)));
    if (i < k) vf_store_n(o + i, vf_round_bf16(vf_load_n(x + i, k - i)), k - i);
}
CPU_KERNEL(VEC_ISA, CPU_ROUND_BF16, CPU_ANY, VEC(round_bf16));

/* dot_q_vec.h - products of quantized weights with quantized activations, stated once for AVX2 and AVX-512:
 * dot_q_avx2.c and dot_q_avx512.c include it after the vec_*.h that gives the vectors.
 *
 * The 16 lanes of a vector are 16 rows of the weights.  The rows stay in memory as the file has them; 16 bytes of
 * each are loaded and transposed in registers, so that a lane has four neighbouring codes of its row.  Codes become
 * words, two in a lane, and the activation of the two columns is broadcast to all lanes.  A block of 32 columns is
 * summed in int32: one conversion to float, and never a sum across lanes.
 *
 * One token (decode): codes go from the transposition straight into the products.  More tokens: the words of two
 * groups of 16 rows and of 256 columns are written to a panel that stays in the first cache, and tiles of panels x
 * tokens run over it.  Both make the sums of dev.h, so both give the same bits. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/half.h"

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { ROWS = 16, GROUP = CPU_GROUP };
_Static_assert(GROUP == 256, "a panel has one block of the K formats");

struct panel {
    int16_t w[GROUP / 32][16][2 * ROWS];            /* [block][pair of columns][row] */
    float d[GROUP / 16][ROWS], m[GROUP / 16][ROWS]; /* of each block of 32, or each half of one */
};
_Static_assert(VEC_PANELS * sizeof(struct panel) <= CPU_THREAD_BYTES, "scratch");

INLINE bool q_halves(enum dtype t) /* a scale serves 16 codes */
{
    return t == DT_Q2_K || t == DT_Q3_K || t == DT_Q6_K;
}
INLINE bool q_has_min(enum dtype t)
{
    return t == DT_Q4_1 || t == DT_Q5_1 || t == DT_Q2_K || t == DT_Q4_K || t == DT_Q5_K;
}
INLINE uint32_t q_bytes(enum dtype t)
{
    return t == DT_Q4_0    ? 18
           : t == DT_Q4_1  ? 20
           : t == DT_Q5_0  ? 22
           : t == DT_Q5_1  ? 24
           : t == DT_Q8_0  ? 34
           : t == DT_MXFP4 ? 17
           : t == DT_Q2_K  ? 84
           : t == DT_Q3_K  ? 110
           : t == DT_Q4_K  ? 144
           : t == DT_Q5_K  ? 176
                           : 210;
}
INLINE bool q_is_k(enum dtype t)
{
    return q_bytes(t) > 40;
}

/* Where words go: into a panel, or into the products of one token. */
struct sink {
    struct panel *out; /* NULL: products */
    const struct cpu_xgroup *x;
    int zero;
    vi acc[2];
    vf s;
};

INLINE vi x_pair(const struct cpu_xgroup *x, uint32_t block, uint32_t pair)
{
    int32_t v;
    memcpy(&v, x->q + 32 * block + 2 * pair, 4);
    return vi_set1(v);
}

/* Sum `sub` of the group begins: a block of 32, or half a block. */
INLINE void sum_begin(enum dtype t, struct sink *k, uint32_t sub)
{
    if (k->out) return;
    int32_t sum = q_halves(t) ? k->x->sum[sub] : k->x->sum32[sub];
    k->acc[0] = k->zero ? vi_set1(-k->zero * sum) : vi_zero();
    k->acc[1] = vi_zero();
}
INLINE void put(struct sink *k, uint32_t block, uint32_t pair, vi words)
{
    if (k->out)
        vi_store(k->out->w[block][pair], words);
    else
        k->acc[pair % 2] = vi_dot16(k->acc[pair % 2], words, x_pair(k->x, block, pair));
}
INLINE void sum_end(enum dtype t, struct sink *k, uint32_t sub, vf d, vf m)
{
    if (k->out) {
        vf_store(k->out->d[sub], d);
        if (q_has_min(t)) vf_store(k->out->m[sub], m);
        return;
    }
    k->s = vf_fma(d, vf_from_int(vi_add(k->acc[0], k->acc[1])), k->s);
    if (!q_has_min(t)) return;
    int32_t sum = q_halves(t) ? k->x->sum[sub] : k->x->sum32[sub];
    k->s = vf_fma(m, vf_from_int(vi_set1(sum)), k->s);
}

/* Codes 4i..4i+3 of a block, a byte each. */
INLINE void put_bytes(struct sink *k, uint32_t block, uint32_t i, vi bytes)
{
    put(k, block, 2 * i, vi_and(bytes, 0x00ff00ff));
    put(k, block, 2 * i + 1, vb_shr(bytes, 8));
}

static const uint8_t q_e2m1_plus12[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                          12, 11, 10, 9,  8,  6,  4,  0};

INLINE vf e8m0_halves(const unsigned char *p, size_t stride)
{
    float d[ROWS];
    for (uint32_t r = 0; r < ROWS; r++) {
        uint32_t e = p[r * stride];
        d[r] = half_from_bits(e < 2 ? 0x200000u << e : (e - 1) << 23);
    }
    return vf_load(d);
}

/* Bits 0..3 of each lane to bit 4 of its bytes. */
INLINE vi fifth_bits(vi h)
{
    vi low = vi_and(h, 3), high = vi_and(h, 12);
    low = vb_or(vi_and(low, 1), vi_shl(vi_and(low, 2), 7));
    high = vb_or(vi_shl(vi_and(high, 4), 14), vi_shl(vi_and(high, 8), 21));
    return vi_shl(vb_or(low, high), 4);
}

/* A block of 32 of 16 rows. */
INLINE void block_32(enum dtype t, const unsigned char *p, size_t stride, uint32_t block,
                     struct sink *k)
{
    vi v[8], bits = vi_zero(), head = vi_zero();
    vf d, m = vf_zero();
    uint32_t at = t == DT_Q4_0 || t == DT_Q8_0 ? 2
                  : t == DT_Q4_1               ? 4
                  : t == DT_MXFP4              ? 1
                  : t == DT_Q5_0               ? 6
                                               : 8;
    if (t != DT_MXFP4) head = vi_rows1(p, stride);
    d = t == DT_MXFP4 ? e8m0_halves(p, stride) : vf_low_f16(head);
    if (q_has_min(t)) m = vf_high_f16(head);
    if (t == DT_Q5_0) bits = vi_rows1(p + 2, stride);
    if (t == DT_Q5_1) bits = vi_rows1(p + 4, stride);
    sum_begin(t, k, block);
    vi_rows4(p + at, stride, v);
    if (t == DT_Q8_0) {
        vi_rows4(p + at + 16, stride, v + 4);
        UNROLL for (uint32_t i = 0; i < 8; i++) put_bytes(k, block, i, vb_xor1(v[i], 0x80));
    } else if (t == DT_Q4_0 || t == DT_Q4_1) {
        UNROLL for (uint32_t i = 0; i < 4; i++)
        {
            put(k, block, 2 * i, vi_and(v[i], 0x000f000f));
            put(k, block, 2 * i + 1, vi_and(vb_shr(v[i], 8), 0x000f000f));
            put(k, block, 2 * i + 8, vi_and(vb_shr(v[i], 4), 0x000f000f));
            put(k, block, 2 * i + 9, vb_shr(v[i], 12));
        }
    } else {
        UNROLL for (uint32_t i = 0; i < 8; i++)
        {
            vi q = vb_and1(i < 4 ? v[i] : vb_shr(v[i - 4], 4), 15);
            if (t == DT_MXFP4)
                q = vb_lookup(q_e2m1_plus12, q);
            else
                q = vb_or(q, fifth_bits(vi_shr(bits, (int)(4 * i))));
            put_bytes(k, block, i, q);
        }
    }
    sum_end(t, k, block, d, m);
}

/* Byte i of 16 that lie in four vectors. */
INLINE vi byte_of(const vi *v, uint32_t i)
{
    return vi_and(vi_shr(v[i / 4], (int)(8 * (i % 4))), 0xff);
}

/* Scales and offsets of a block of 256. */
INLINE void scales_of(enum dtype t, const unsigned char *p, size_t stride, vf *d, vf *m)
{
    vi v[4];
    if (t == DT_Q4_K || t == DT_Q5_K) {
        vi_rows4(p, stride, v);
        vf k = vf_low_f16(v[0]), kmin = vf_neg(vf_high_f16(v[0]));
        UNROLL for (uint32_t i = 0; i < 8; i++)
        {
            vi a = byte_of(v + 1, i), b = byte_of(v + 1, i < 4 ? i + 4 : i), c = b;
            if (i < 4) {
                a = vi_and(a, 63), b = vi_and(b, 63);
            } else {
                a = byte_of(v + 1, i - 4), c = byte_of(v + 1, i + 4);
                a = vb_or(vi_and(c, 15), vi_and(vi_shr(a, 2), 48));
                b = vb_or(vi_shr(c, 4), vi_and(vi_shr(b, 2), 48));
            }
            d[i] = vf_mul(k, vf_from_int(a));
            m[i] = vf_mul(kmin, vf_from_int(b));
        }
    } else if (t == DT_Q2_K) {
        vi_rows4(p, stride, v);
        vi head = vi_rows1(p + 80, stride);
        vf k = vf_low_f16(head), kmin = vf_neg(vf_high_f16(head));
        UNROLL for (uint32_t i = 0; i < 16; i++)
        {
            vi a = byte_of(v, i);
            d[i] = vf_mul(k, vf_from_int(vi_and(a, 15)));
            m[i] = vf_mul(kmin, vf_from_int(vi_shr(a, 4)));
        }
    } else if (t == DT_Q3_K) {
        UNROLL for (uint32_t i = 0; i < 3; i++) v[i] = vi_rows1(p + 96 + 4 * i, stride);
        vf k = vf_high_f16(vi_rows1(p + 106, stride));
        UNROLL for (uint32_t i = 0; i < 16; i++)
        {
            vi a = vi_and(vi_shr(v[i % 8 / 4], (int)(8 * (i % 4) + 4 * (i / 8))), 15);
            vi b = vi_and(vi_shr(v[2], (int)(8 * (i % 4) + 2 * (i / 4))), 3);
            a = vi_add(vb_or(a, vi_shl(b, 4)), vi_set1(-32));
            d[i] = vf_mul(k, vf_from_int(a));
        }
    } else {
        vi_rows4(p + 192, stride, v);
        vf k = vf_high_f16(vi_rows1(p + 206, stride));
        UNROLL for (uint32_t i = 0; i < 16; i++) d[i] =
            vf_mul(k, vf_from_int(vi_sar(vi_shl(v[i / 4], (int)(24 - 8 * (i % 4))), 24)));
    }
}

/* Codes 4i..4i+3 of block b (of 8) from the bytes of the low and of the high bits. */
INLINE vi k_codes(enum dtype t, uint32_t b, vi low, vi high)
{
    int chunk = (int)(b / 2), half = (int)(b % 2);
    if (t == DT_Q4_K || t == DT_Q5_K) {
        vi q = vb_and1(vb_shr(low, 4 * half), 15);
        if (t == DT_Q4_K) return q;
        return vb_or(q, vi_shl(vb_and1(vb_shr(high, (int)b), 1), 4));
    }
    int s = 4 * (chunk % 2) + 2 * half;
    if (t == DT_Q6_K) {
        vi q = vb_and1(vb_shr(low, 4 * (chunk % 2)), 15);
        return vb_or(q, vi_shl(vb_and1(vb_shr(high, s), 3), 4));
    }
    vi q = vb_and1(vb_shr(low, s), 3);
    if (t == DT_Q2_K) return q;
    return vb_or(q, vi_shl(vb_and1(vb_shr(high, (int)b), 1), 2));
}

/* A block of 256 of 16 rows. */
INLINE void block_256(enum dtype t, const unsigned char *p, size_t stride, struct sink *k)
{
    vf d[16], m[16];
    scales_of(t, p, stride, d, m);
    const uint32_t low_at = t == DT_Q2_K || t == DT_Q4_K ? 16
                            : t == DT_Q3_K               ? 32
                            : t == DT_Q5_K               ? 48
                                                         : 0;
    const uint32_t high_at = t == DT_Q3_K ? 0 : t == DT_Q5_K ? 16 : 128;
    /* Q4_K and Q5_K: block b has nibbles of 32 bytes b/2.  Q6_K: of 32 bytes b/4 * 2 + b%2.  Q2_K, Q3_K: pairs of bits of
     * 32 bytes b/4. */
    UNROLL for (uint32_t b = 0; b < 8; b++)
    {
        uint32_t low = t == DT_Q4_K || t == DT_Q5_K ? b / 2
                       : t == DT_Q6_K               ? b / 4 * 2 + b % 2
                                                    : b / 4;
        uint32_t high = t == DT_Q6_K ? b / 4 : 0;
        vi l[8], h[8];
        vi_rows4(p + low_at + 32 * low, stride, l);
        vi_rows4(p + low_at + 32 * low + 16, stride, l + 4);
        if (t == DT_Q3_K || t == DT_Q5_K || t == DT_Q6_K) {
            vi_rows4(p + high_at + 32 * high, stride, h);
            vi_rows4(p + high_at + 32 * high + 16, stride, h + 4);
        }
        UNROLL for (uint32_t i = 0; i < 8; i++)
        {
            uint32_t sub = q_halves(t) ? 2 * b + i / 4 : b;
            if (i == 0 || (i == 4 && q_halves(t))) sum_begin(t, k, sub);
            bool two = t == DT_Q3_K || t == DT_Q5_K || t == DT_Q6_K;
            put_bytes(k, b, i, k_codes(t, b, l[i], two ? h[i] : l[i]));
            if (i == 7 || (i == 3 && q_halves(t))) sum_end(t, k, sub, d[sub], m[sub]);
        }
    }
}

/* Memory is asked for in one ascending stream: while a group of 16 rows is read, the bytes of the next group go to the
 * second cache.  Left to itself the hardware would see 16 short streams. */
INLINE void ask(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i += 64)
        __builtin_prefetch(p + i, 0, 2);
}

/* Columns [k0, k0 + k) of 16 rows, k at most GROUP. */
INLINE void group_of(enum dtype t, const unsigned char *w, size_t stride, uint32_t k0, uint32_t k,
                     struct sink *s)
{
    uint32_t bytes = q_bytes(t);
    size_t at = (size_t)k0 / (q_is_k(t) ? 256 : 32) * bytes;
    const unsigned char *p = w + at, *next = w + ROWS * stride + ROWS * at;
    if (q_is_k(t)) {
        ask(next, ROWS * bytes);
        block_256(t, p, stride, s);
        return;
    }
    for (uint32_t b = 0; b < k / 32; b++, p += bytes, next += ROWS * bytes) {
        ask(next, ROWS * bytes);
        block_32(t, p, stride, b, s);
    }
}

/* The last rows of a weight are fewer than 16: they are computed with rows before them, and lanes below `skip` are not
 * stored. */
INLINE vf y_load(const float *y, uint32_t skip)
{
    float v[ROWS] = {0};
    if (!skip) return vf_load(y);
    memcpy(v + skip, y + skip, (ROWS - skip) * sizeof *v);
    return vf_load(v);
}
INLINE void y_store(float *y, uint32_t skip, vf x)
{
    float v[ROWS];
    if (!skip) {
        vf_store(y, x);
        return;
    }
    vf_store(v, x);
    memcpy(y + skip, v + skip, (ROWS - skip) * sizeof *v);
}

/* First row of the group at r, and its lanes to skip. */
INLINE int64_t group_first(const struct cpu_mm *j, uint32_t r, uint32_t *skip)
{
    *skip = r + ROWS > j->rows ? r + ROWS - j->rows : 0;
    return (int64_t)r - *skip;
}

INLINE void one_token(enum dtype t, int zero, const struct cpu_mm *j)
{
    const struct cpu_xgroup *x = (const struct cpu_xgroup *)(const void *)j->x;
    if (j->before + j->rows < ROWS) {
        cpu_mm_q_ref(j);
        return;
    }
    ask(j->w, ROWS * j->row_bytes);
    for (uint32_t r = 0; r < j->rows; r += ROWS) {
        uint32_t skip;
        int64_t first = group_first(j, r, &skip);
        const unsigned char *w = j->w + first * (int64_t)j->row_bytes;
        vf acc = vf_zero();
        struct sink s = {.zero = zero};
        for (uint32_t k = 0; k < j->k; k += GROUP) {
            s.x = x + k / GROUP;
            s.s = vf_zero();
            group_of(t, w, j->row_bytes, k, MIN(j->k - k, GROUP), &s);
            acc = vf_fma(vf_set1(s.x->d), s.s, acc);
        }
        if (j->bias) acc = vf_add(acc, y_load(j->bias + first, skip));
        y_store(j->y + first, skip, acc);
    }
}

/* More tokens. */

struct tile {
    const struct cpu_mm *j;
    const struct panel *panel;
    uint32_t blocks, group; /* blocks of 32 in the panel; its place in K */
    int64_t first[VEC_PANELS];
    uint32_t skip[VEC_PANELS]; /* ROWS: nothing is stored */
    int zero;
    bool start, end;
};

INLINE void tile_sums(bool halves, bool min, const struct tile *p, int tokens,
                      const struct cpu_xgroup *const *x, uint32_t block, uint32_t sub,
                      vf (*s)[VEC_MANY])
{
    vi acc[VEC_PANELS][VEC_MANY];
    UNROLL for (int t = 0; t < tokens; t++)
    {
        int32_t sum = halves ? x[t]->sum[sub] : x[t]->sum32[sub];
        vi init = vi_set1(-p->zero * sum);
        UNROLL for (int r = 0; r < VEC_PANELS; r++) acc[r][t] = init;
    }
    uint32_t end = halves ? sub % 2 * 8 + 8 : 16;
    for (uint32_t i = end - (halves ? 8 : 16); i < end; i++) {
        vi w[VEC_PANELS];
        UNROLL for (int r = 0; r < VEC_PANELS; r++) w[r] =
            vi_load((const void *)p->panel[r].w[block][i]);
        UNROLL for (int t = 0; t < tokens; t++)
        {
            vi v = x_pair(x[t], block, i);
            UNROLL for (int r = 0; r < VEC_PANELS; r++) acc[r][t] = vi_dot16(acc[r][t], w[r], v);
        }
    }
    UNROLL for (int r = 0; r < VEC_PANELS; r++)
    {
        vf d = vf_load(p->panel[r].d[sub]), m = min ? vf_load(p->panel[r].m[sub]) : vf_zero();
        UNROLL for (int t = 0; t < tokens; t++)
        {
            s[r][t] = vf_fma(d, vf_from_int(acc[r][t]), s[r][t]);
            if (!min) continue;
            int32_t sum = halves ? x[t]->sum[sub] : x[t]->sum32[sub];
            s[r][t] = vf_fma(m, vf_from_int(vi_set1(sum)), s[r][t]);
        }
    }
}

INLINE void tile_run(bool halves, bool min, const struct tile *p, uint32_t t0, int tokens)
{
    const struct cpu_mm *j = p->j;
    const struct cpu_xgroup *x[VEC_MANY];
    vf s[VEC_PANELS][VEC_MANY];
    UNROLL for (int t = 0; t < tokens; t++)
    {
        x[t] = (const struct cpu_xgroup *)(const void *)(j->x + (t0 + (uint32_t)t) * j->ldx) +
               p->group;
        UNROLL for (int r = 0; r < VEC_PANELS; r++) s[r][t] = vf_zero();
    }
    for (uint32_t b = 0; b < p->blocks; b++) {
        if (halves) {
            tile_sums(true, min, p, tokens, x, b, 2 * b, s);
            tile_sums(true, min, p, tokens, x, b, 2 * b + 1, s);
        } else {
            tile_sums(false, min, p, tokens, x, b, b, s);
        }
    }
    UNROLL for (int r = 0; r < VEC_PANELS; r++)
    {
        if (p->skip[r] == ROWS) continue;
        UNROLL for (int t = 0; t < tokens; t++)
        {
            float *y = j->y + (t0 + (uint32_t)t) * j->ldy + p->first[r];
            vf acc = p->start ? vf_zero() : y_load(y, p->skip[r]);
            acc = vf_fma(vf_set1(x[t]->d), s[r][t], acc);
            if (p->end && j->bias) acc = vf_add(acc, y_load(j->bias + p->first[r], p->skip[r]));
            y_store(y, p->skip[r], acc);
        }
    }
}

INLINE void tile_all(bool halves, bool min, const struct tile *p)
{
    uint32_t t = 0, n = p->j->n;
    for (; t + VEC_MANY <= n; t += VEC_MANY)
        tile_run(halves, min, p, t, VEC_MANY);
    if (VEC_MANY > 4 && t + 4 <= n) {
        tile_run(halves, min, p, t, 4);
        t += 4;
    }
    if (t + 2 <= n) {
        tile_run(halves, min, p, t, 2);
        t += 2;
    }
    if (t < n) tile_run(halves, min, p, t, 1);
}
static void all_whole(const struct tile *p)
{
    tile_all(false, false, p);
}
static void all_whole_min(const struct tile *p)
{
    tile_all(false, true, p);
}
static void all_halves(const struct tile *p)
{
    tile_all(true, false, p);
}
static void all_halves_min(const struct tile *p)
{
    tile_all(true, true, p);
}

typedef void (*panel_fn)(const unsigned char *w, size_t stride, uint32_t k0, uint32_t k,
                         struct panel *out);

INLINE void more_tokens(enum dtype t, int zero, panel_fn fill, const struct cpu_mm *j)
{
    struct panel *panel = (struct panel *)(void *)j->scratch;
    struct tile p = {.j = j, .panel = panel, .zero = zero};
    if (j->before + j->rows < ROWS) {
        cpu_mm_q_ref(j);
        return;
    }
    for (uint32_t r = 0; r < j->rows; r += VEC_PANELS * ROWS)
        for (uint32_t k = 0; k < j->k; k += GROUP) {
            uint32_t n = MIN(j->k - k, GROUP);
            p.blocks = n / 32;
            p.group = k / GROUP;
            p.start = k == 0;
            p.end = k + n == j->k;
            for (uint32_t i = 0; i < VEC_PANELS; i++) {
                uint32_t at = r + i * ROWS;
                p.first[i] = 0;
                p.skip[i] = ROWS;
                if (at >= j->rows) continue; /* the panel has old words, and its sums go nowhere */
                p.first[i] = group_first(j, at, &p.skip[i]);
                fill(j->w + p.first[i] * (int64_t)j->row_bytes, j->row_bytes, k, n, panel + i);
            }
            if (q_halves(t))
                (q_has_min(t) ? all_halves_min : all_halves)(&p);
            else
                (q_has_min(t) ? all_whole_min : all_whole)(&p);
        }
}

#define QUANTIZED(type, zero)                                                                      \
    static void one_##type(const struct cpu_mm *j)                                                 \
    {                                                                                              \
        one_token(DT_##type, zero, j);                                                             \
    }                                                                                              \
    static void panel_##type(const unsigned char *w, size_t stride, uint32_t k0, uint32_t k,       \
                             struct panel *out)                                                    \
    {                                                                                              \
        struct sink s = {.out = out};                                                              \
        group_of(DT_##type, w, stride, k0, k, &s);                                                 \
    }                                                                                              \
    static void more_##type(const struct cpu_mm *j)                                                \
    {                                                                                              \
        more_tokens(DT_##type, zero, panel_##type, j);                                             \
    }                                                                                              \
    CPU_KERNEL(VEC_ISA, CPU_ONE_Q, DT_##type, one_##type);                                         \
    CPU_KERNEL(VEC_ISA, CPU_MM_Q, DT_##type, more_##type)
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

/* Activations; quantize.c has the rule. */
static void VEC(quantize)(const float *x, uint32_t k, struct cpu_xgroup *out)
{
    for (; k; x += GROUP, out++) {
        uint32_t n = MIN(k, GROUP);
        int32_t lanes[16], bits = 0;
        vi top = vi_zero();
        for (uint32_t i = 0; i < n; i += 16)
            top = vi_max(top, vi_and(vi_bits(vf_load(x + i)), 0x7fffffffu));
        vi_store(lanes, top);
        for (int i = 0; i < 16; i++)
            bits = MAX(bits, lanes[i]);
        vf inv = vf_set1(cpu_group_scale((uint32_t)bits, &out->d));
        for (uint32_t i = 0; i < n; i += 16) {
            /* an infinity times 0 is a NaN: its code is masked, whatever it became */
            vi q = vi_and(vi_round(vf_mul(vf_load(x + i), inv)), out->d > 0 ? UINT32_MAX : 0);
            vi_put_words(out->q + i, q);
            out->sum[i / 16] = vi_total(q);
        }
        for (uint32_t i = 0; i < n / 32; i++)
            out->sum32[i] = out->sum[2 * i] + out->sum[2 * i + 1];
        k -= n;
    }
}
CPU_KERNEL(VEC_ISA, CPU_QUANTIZE, CPU_ANY, VEC(quantize));

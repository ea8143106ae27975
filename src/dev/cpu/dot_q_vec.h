/* dot_q_vec.h - products of quantized weights with quantized activations, stated once for AVX2, AVX-512
 * and NEON: dot_q_avx2.c and its siblings include it after the vec_*.h that gives the vectors.
 *
 * The lanes of a vector, 16 or 8, are rows of the weights.  The rows stay in memory as the file has them; 16 bytes of
 * each are loaded and transposed in registers, so that a lane has four neighbouring codes of its row.  Codes stay
 * bytes or become words, two in a lane, and the activation of the columns is broadcast to all lanes.  A block of 32 columns
 * is summed in int32: one conversion to float, and never a sum across lanes.
 *
 * One loop serves one token and many: the codes of a block of 16 rows are 8 vectors of bytes, which AVX-512 keeps in
 * registers, or 16 of words, and the tokens pass them, VEC_MANY at once.  What a token has summed waits in the
 * thread's scratch, 64 bytes for each token, until the next block.  So a block is decoded once for all tokens of the job,
 * and few tokens pay no more for decoding than one.
 *
 * AVX2 has too few registers for that: its codes wait in the first cache.  So it has kernels of its own for up to four tokens,
 * one for each number (FEW, dot_q_few_avx2.c): four columns are decoded, multiplied and forgotten. */
#include "dev/cpu/blocks.h"
#include "dev/cpu/cpu.h"

#ifndef QUADS
#define QUADS 0
#endif
#ifndef SIGNED_CODES /* the instruction takes codes of weights as signed bytes */
#define SIGNED_CODES QUADS
#endif
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#ifndef FEW /* kernels for a known number of tokens, at most VEC_MANY, which decode codes just before their products */
#define FEW 0
#endif
enum { ROWS = LANES, GROUP = CPU_GROUP };
_Static_assert(GROUP == 256, "a group has one block of the K formats");

/* If registers hold the codes of a block, the loop over them is unrolled.  Each token then has two chains of sums,
 * because a processor can start four products while one is computed.  AVX2 has too few registers for this and a
 * shorter latency, so its loop is not unrolled: gcc would compute all products first and write them to memory. */
#ifndef IN_REGISTERS
#define IN_REGISTERS 0
#endif
enum { CHAINS = IN_REGISTERS || QUADS ? 2 : 1 };
#ifndef PIN /* keeps the order of sums in the program, where a compiler that reorders them runs out of registers */
#define PIN(v) (void)0
#endif
#if IN_REGISTERS || FEW
#define PAIRS UNROLL
#elif defined(__clang__)
#define PAIRS _Pragma("clang loop unroll(disable)")
#else
#define PAIRS _Pragma("GCC unroll 1")
#endif

struct sums {
    float s[ROWS], y[ROWS]; /* sums of this group, and of the groups before it */
};
_Static_assert(CPU_TILE * sizeof(struct sums) <= CPU_THREAD_BYTES, "scratch");

struct dot_pass { /* 16 (or 8) rows and the tokens of a job */
    struct sums *sums;
    const unsigned char *x; /* struct cpu_xgroup of the first token */
    size_t ldx;
    uint32_t n;
    int zero;
    uintptr_t ask; /* while the rows are read, as many bytes from this address on are prefetched */
};

/* How four neighbouring codes of a row, a byte each in one lane, are kept and multiplied.  Here: as two words in each of
 * two vectors.  A file that defines QUADS has its own way, with bytes and two chains for each token:
 * dot_q_avx512.c, dot_q_neondot.c. */
#if !QUADS
enum { CODES = 16, PIECES = 16 }; /* vectors of a block of 32, and steps of its products */

INLINE void put_bytes(vi *w, uint32_t i, vi bytes)
{
    w[2 * i] = vi_and(bytes, 0x00ff00ff);
    w[2 * i + 1] = vb_shr(bytes, 8);
}
/* Adds the products of piece k of a block to the chains of a token, whose codes of the block are x. */
INLINE void piece_dot(vi *acc, const vi *w, const int16_t *x, uint32_t k)
{
    int32_t v;
    memcpy(&v, x + 2 * k, 4);
    acc[k % CHAINS] = vi_dot16(acc[k % CHAINS], w[k], vi_set1(v));
    PIN(acc[k % CHAINS]);
}
INLINE vi chains_sum(const vi *acc)
{
    return CHAINS == 2 ? vi_add(acc[0], acc[CHAINS - 1]) : acc[0];
}
#endif

/* Weights are prefetched in one ascending stream.  While a block of 16 rows is read, as many bytes that lie further
 * on go to the second cache.  Without this the hardware would see 16 short streams.  The distance is more than 16
 * rows, since a group begins with the first block of each of its rows.  At the end of a job the stream continues
 * with what the thread reads next.  Addresses are integers and not pointers, because the last ones lie behind the
 * weights. */
INLINE size_t lead_of(size_t row_bytes)
{
    return MAX(ROWS * row_bytes + 4096, 16384);
}
INLINE void ask(uintptr_t p, size_t n)
{
    for (size_t i = 0; i < n; i += 64)
        __builtin_prefetch((const void *)(p + i), 0, 2);
}
struct request { /* what is prefetched during a block: at once, or between its products */
    uintptr_t from;
    uint32_t bytes;
};
INLINE void ask_some(struct request r, uint32_t k)
{
    uint32_t lines = (r.bytes + 63) / 64;
    UNROLL for (uint32_t i = k * lines / PIECES; i < (k + 1) * lines / PIECES; i++)
        __builtin_prefetch((const void *)(r.from + 64 * i), 0, 2);
}

/* Moves bits 0 to 3 of each lane to bit 4 of its four bytes. */
INLINE vi fifth_bits(vi h)
{
    vi low = vi_and(h, 3), high = vi_and(h, 12);
    low = vb_or(vi_and(low, 1), vi_shl(vi_and(low, 2), 7));
    high = vb_or(vi_shl(vi_and(high, 4), 14), vi_shl(vi_and(high, 8), 21));
    return vi_shl(vb_or(low, high), 4);
}

/* The codes of a block of 32, for all rows, as they lie in memory. */
struct codes {
    const vi *low, *high; /* lanes of four bytes; high: K formats with bits of their own */
    vi bits;              /* fifth bits of Q5_0 and Q5_1 */
    uint32_t u;           /* K formats: which block of a half */
};

/* Returns codes 4i to 4i + 3 of block b (of 8), from the bytes of their low and of their high bits.  In the second
 * half of Q3_K and Q5_K the high bits were moved down by 4 before. */
INLINE vi k_codes(enum dtype t, uint32_t b, vi low, vi high)
{
    int chunk = (int)(b / 2), half = (int)(b % 2), s = 4 * (chunk % 2) + 2 * half;
    if (t == DT_Q4_K || t == DT_Q5_K) {
        vi q = vb_and1(vb_shr(low, 4 * half), 15);
        if (t == DT_Q4_K) return q;
        return vb_or(q, vi_shl(vb_and1(vb_shr(high, (int)b), 1), 4));
    }
    if (t == DT_Q6_K) {
        vi q = vb_and1(vb_shr(low, 4 * (chunk % 2)), 15);
        return vb_or(q, vi_shl(vb_and1(vb_shr(high, s), 3), 4));
    }
    vi q = vb_and1(vb_shr(low, s), 3);
    if (t == DT_Q2_K) return q;
    return vb_or(q, vi_shl(vb_and1(vb_shr(high, (int)b), 1), 2));
}

/* Puts columns 4i to 4i + 3 where a product takes them.  Called in ascending order, since put_bytes may join
 * neighbours. */
INLINE void codes_at(enum dtype t, const struct codes *c, uint32_t i, vi *w)
{
    const vi *v = c->low;
    if (block_is_k(t)) {
        put_bytes(w, i, k_codes(t, c->u, v[i], c->high[i]));
    } else if (t == DT_Q8_0) {
        put_bytes(w, i, SIGNED_CODES ? v[i] : vb_xor1(v[i], 0x80)); /* signed, or plus 128 */
    } else if ((t == DT_Q4_0 || t == DT_Q4_1) && !QUADS) {
        w[2 * i] = vi_and(i < 4 ? v[i] : vb_shr(v[i - 4], 4), 0x000f000f);
        w[2 * i + 1] = i < 4 ? vi_and(vb_shr(v[i], 8), 0x000f000f) : vb_shr(v[i - 4], 12);
    } else {
        vi q = vb_and1(i < 4 ? v[i] : vb_shr(v[i - 4], 4), 15);
        if (t == DT_MXFP4)
            q = vb_lookup(block_e2m1_plus12, q);
        else if (t == DT_Q5_0 || t == DT_Q5_1)
            q = vb_or(q, fifth_bits(vi_shr(c->bits, (int)(4 * i))));
        put_bytes(w, i, q);
    }
}

/* Multiplies a block with `tokens` tokens.  w: its decoded codes; with FEW they are decoded here, from c.  d, m:
 * scale and offset of the block, or of each half of it. */
INLINE void block_some(enum dtype t, const struct dot_pass *p, uint32_t first, int tokens,
                       uint32_t b, const struct codes *c, vi *w, const vf *d, const vf *m,
                       struct request r)
{
    const struct cpu_xgroup *x[VEC_MANY];
    struct sums *sums = p->sums + first;
    vf s[VEC_MANY];
    const int16_t *q[VEC_MANY];
    const uint32_t subs = block_halves(t) ? 2 : 1, pieces = PIECES / subs;
    if (!IN_REGISTERS) ask(r.from, r.bytes);
    UNROLL for (int i = 0; i < tokens; i++)
    {
        x[i] = (const struct cpu_xgroup *)(const void *)(p->x + (first + (uint32_t)i) * p->ldx);
        s[i] = vf_load(sums[i].s);
        q[i] = x[i]->q + 32 * b;
        __asm__(
            ""
            : "+r"(
                q
                [i])); /* one pointer for each token, where gcc would keep an offset for each load */
    }
    UNROLL for (uint32_t h = 0; h < subs; h++)
    {
        vi acc[VEC_MANY][CHAINS];
        int32_t sum[VEC_MANY];
        UNROLL for (int i = 0; i < tokens; i++)
        {
            sum[i] = subs == 2 ? x[i]->sum[2 * b + h] : x[i]->sum32[b];
            acc[i][0] = p->zero && !QUADS ? vi_set1(-p->zero * sum[i]) : vi_zero();
            if (CHAINS == 2) acc[i][CHAINS - 1] = vi_zero();
        }
        PAIRS for (uint32_t k = h * pieces; k < (h + 1) * pieces; k++)
        {
            if (FEW && k % 2 == 0) codes_at(t, c, k / 2, w); /* four columns are two pieces */
            UNROLL for (int i = 0; i < tokens; i++) piece_dot(acc[i], w, q[i], k);
            if (IN_REGISTERS) ask_some(r, k);
        }
        UNROLL for (int i = 0; i < tokens; i++)
        {
            vi all = chains_sum(acc[i]);
            if (p->zero && QUADS) all = vi_add(all, vi_set1(-p->zero * sum[i]));
            s[i] = vf_fma(d[h], vf_from_int(all), s[i]);
            if (block_has_min(t)) s[i] = vf_fma(m[h], vf_from_int(vi_set1(sum[i])), s[i]);
        }
    }
    UNROLL for (int i = 0; i < tokens; i++) vf_store(sums[i].s, s[i]);
}
INLINE void block_tokens(enum dtype t, const struct dot_pass *p, uint32_t b, const struct codes *c,
                         const vf *d, const vf *m, struct request r)
{
    uint32_t i = 0;
    vi w[CODES];
    if (FEW) {
        block_some(t, p, 0, (int)p->n, b, c, w, d, m, r);
        return;
    }
    UNROLL for (uint32_t k = 0; k < 8; k++) codes_at(t, c, k, w);
    if (p->n >= VEC_MANY) block_some(t, p, i, VEC_MANY, b, c, w, d, m, r);
    for (i = p->n < VEC_MANY ? 0 : VEC_MANY; i + VEC_MANY <= p->n; i += VEC_MANY)
        block_some(t, p, i, VEC_MANY, b, c, w, d, m, (struct request){0, 0});
    if (VEC_MANY > 2 && i + 2 <= p->n) {
        block_some(t, p, i, 2, b, c, w, d, m, r);
        i += 2;
    }
    if (i < p->n) block_some(t, p, i, 1, b, c, w, d, m, r);
}

INLINE vf e8m0_halves(const unsigned char *p, size_t stride)
{
    float d[ROWS];
    for (uint32_t r = 0; r < ROWS; r++)
        d[r] = block_e8m0_half(p[r * stride]);
    return vf_load(d);
}

INLINE void block_32(enum dtype t, const unsigned char *p, size_t stride, uint32_t b,
                     const struct dot_pass *k, uintptr_t next)
{
    vi v[8], head = vi_zero();
    struct codes c = {.low = v, .bits = vi_zero()};
    vf d, m = vf_zero();
    uint32_t at = t == DT_Q4_0 || t == DT_Q8_0 ? 2
                  : t == DT_Q4_1               ? 4
                  : t == DT_MXFP4              ? 1
                  : t == DT_Q5_0               ? 6
                                               : 8;
    if (t != DT_MXFP4) head = vi_rows1(p, stride);
    d = t == DT_MXFP4 ? e8m0_halves(p, stride) : vf_low_f16(head);
    if (block_has_min(t)) m = vf_high_f16(head);
    if (t == DT_Q5_0) c.bits = vi_rows1(p + 2, stride);
    if (t == DT_Q5_1) c.bits = vi_rows1(p + 4, stride);
    vi_rows4(p + at, stride, v);
    if (t == DT_Q8_0) vi_rows4(p + at + 16, stride, v + 4);
    block_tokens(t, k, b, &c, &d, &m, (struct request){next, ROWS * block_bytes(t)});
}

/* Returns how many blocks are loaded together, headers and codes, in whole pieces of 16 bytes: four of Q4_1 (5
 * pieces), two of Q5_1 (3 pieces), else 0: headers are loaded alone. */
INLINE uint32_t run_blocks(enum dtype t)
{
    return t == DT_Q4_1 ? 4 : t == DT_Q5_1 ? 2 : 0;
}
INLINE void run_32(enum dtype t, const unsigned char *p, size_t stride, uint32_t b,
                   const struct dot_pass *k, uintptr_t next)
{
    const uint32_t lanes = block_bytes(t) / 4, n = run_blocks(t), size = ROWS * block_bytes(t);
    vi v[20];
    UNROLL for (uint32_t i = 0; i < n; i++)
    {
        UNROLL for (uint32_t j = (lanes * i + 3) / 4; j < (lanes * (i + 1) + 3) / 4; j++)
            vi_rows4(p + 16 * j, stride, v + 4 * j);
        const vi *q = v + lanes * i;
        struct codes c = {.low = q + lanes - 4, .bits = q[1]};
        vf d = vf_low_f16(q[0]), m = vf_high_f16(q[0]);
        block_tokens(t, k, b + i, &c, &d, &m, (struct request){next + i * size, size});
    }
}

/* Returns byte i of 16 bytes that lie in four vectors. */
INLINE vi byte_of(const vi *v, uint32_t i)
{
    return vi_and(vi_shr(v[i / 4], (int)(8 * (i % 4))), 0xff);
}

/* Reads the scales and offsets of a block of 256. */
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

INLINE void rows_32(const unsigned char *p, size_t stride, vi *v)
{
    vi_rows4(p, stride, v);
    vi_rows4(p + 16, stride, v + 4);
}

/* Computes a block of 256 of 16 rows, in two halves of four blocks of 32. */
INLINE void block_256(enum dtype t, const unsigned char *p, size_t stride, const struct dot_pass *k,
                      uintptr_t next)
{
    const uint32_t size = ROWS * block_bytes(t) / 8;
    vf d[16], m[16];
    scales_of(t, p, stride, d, m);
    const uint32_t subs = block_halves(t) ? 2 : 1;
    const bool nibbles = t == DT_Q4_K || t == DT_Q5_K, two = t == DT_Q3_K || t == DT_Q5_K;
    const unsigned char *low = p + (t == DT_Q2_K || t == DT_Q4_K ? 16
                                    : t == DT_Q3_K               ? 32
                                    : t == DT_Q5_K               ? 48
                                                                 : 0);
    const unsigned char *high = p + (t == DT_Q3_K ? 0 : t == DT_Q5_K ? 16 : 128);
    vi l[2][8], h[8];
    if (two) rows_32(high, stride, h);
    for (uint32_t half = 0; half < 2; half++) {
        /* Q4_K, Q5_K: a block has nibbles of 32 bytes, and so has its neighbour.  Q6_K: block u has nibbles of 32 bytes
         * u % 2.  Q2_K, Q3_K: all four have pairs of bits of 32 bytes. */
        rows_32(low, stride, l[0]);
        if (t == DT_Q6_K) rows_32(low + 32, stride, l[1]);
        if (t == DT_Q6_K) rows_32(high, stride, h);
        UNROLL for (uint32_t u = 0; u < 4; u++)
        {
            const vi *from = l[t == DT_Q6_K ? u % 2 : 0];
            struct codes c = {.low = from, .high = two || t == DT_Q6_K ? h : from, .u = u};
            if (nibbles && u == 2) rows_32(low + 32, stride, l[0]);
            uint32_t b = 4 * half + u;
            block_tokens(t, k, b, &c, d + subs * b, m + subs * b,
                         (struct request){next + b * size, size});
        }
        if (two) UNROLL for (uint32_t i = 0; i < 8; i++) h[i] = vb_shr(h[i], 4);
        low += nibbles || t == DT_Q6_K ? 64 : 32;
        high += 32;
    }
}

/* Computes columns [k0, k0 + k) of 16 rows; k is at most GROUP. */
INLINE void group_of(enum dtype t, const unsigned char *w, size_t stride, uint32_t k0, uint32_t k,
                     const struct dot_pass *s)
{
    const uint32_t bytes = block_bytes(t), run = run_blocks(t);
    size_t at = (size_t)k0 / (block_is_k(t) ? 256 : 32) * bytes;
    const unsigned char *p = w + at;
    uintptr_t next = s->ask + ROWS * at;
    if (block_is_k(t)) {
        block_256(t, p, stride, s, next);
        return;
    }
    uint32_t b = 0;
    for (; run && b + run <= k / 32; b += run, p += run * bytes, next += ROWS * run * bytes) {
        run_32(t, p, stride, b, s, next);
    }
    for (; b < k / 32; b++, p += bytes, next += ROWS * bytes) {
        block_32(t, p, stride, b, s, next);
    }
}

/* A weight can end with fewer rows than lanes.  They are computed together with rows before them, and lanes below
 * `skip` are not stored.  y: the place of lane `skip`. */
INLINE vf y_load(const float *y, uint32_t skip)
{
    float v[ROWS] = {0};
    if (!skip) return vf_load(y);
    memcpy(v + skip, y, (ROWS - skip) * sizeof *v);
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
    memcpy(y, v + skip, (ROWS - skip) * sizeof *v);
}

INLINE void products(enum dtype t, int zero, uint32_t n, const struct cpu_mm *j)
{
    struct dot_pass p = {
        .sums = (struct sums *)(void *)j->scratch, .ldx = j->ldx, .n = n, .zero = zero};
    /* The weight has fewer rows than lanes.  The reference cannot read the activations of QUADS, so there all lanes
     * get one row. */
    const bool few = j->before + j->rows < ROWS, tiny = QUADS && few;
    if (few && !QUADS) {
        cpu_mm_q_ref(j);
        return;
    }
    const size_t size = j->rows * j->row_bytes, lead = lead_of(j->row_bytes);
    if (!j->asked) ask((uintptr_t)j->w, MIN(lead, size));
    for (uint32_t r = 0; r < j->rows; r += tiny ? 1 : ROWS) {
        const uint32_t skip = tiny ? ROWS - 1 : r + ROWS > j->rows ? r + ROWS - j->rows : 0;
        const int64_t first = tiny ? r : (int64_t)r - skip;
        const unsigned char *w = j->w + first * (int64_t)j->row_bytes;
        size_t to = (size_t)(w - j->w) + lead;
        p.ask = to < size                              ? (uintptr_t)j->w + to
                : j->then && to - size < j->then_bytes ? (uintptr_t)j->then + (to - size)
                                                       : (uintptr_t)w;
        for (uint32_t i = 0; i < n; i++) {
            vf_store(p.sums[i].s, vf_zero());
            vf_store(p.sums[i].y, vf_zero());
            /* each token's y lies in another page */
            __builtin_prefetch(j->y + i * j->ldy + r, 1, 2);
        }
        for (uint32_t k = 0; k < j->k; k += GROUP) {
            p.x = j->x + k / GROUP * sizeof(struct cpu_xgroup);
            group_of(t, w, tiny ? 0 : j->row_bytes, k, MIN(j->k - k, GROUP), &p);
            for (uint32_t i = 0; i < n; i++) {
                const struct cpu_xgroup *x =
                    (const struct cpu_xgroup *)(const void *)(p.x + i * p.ldx);
                struct sums *s = p.sums + i;
                vf_store(s->y, vf_fma(vf_set1(x->d), vf_load(s->s), vf_load(s->y)));
                vf_store(s->s, vf_zero());
            }
        }
        for (uint32_t i = 0; i < n; i++) {
            vf y = vf_load(p.sums[i].y);
            if (j->bias) y = vf_add(y, y_load(j->bias + r, skip));
            y_store(j->y + i * j->ldy + r, skip, y);
        }
    }
}

#if FEW
_Static_assert(PIECES == 16 && VEC_MANY == 4 && CPU_FEW == 4, "a kernel for each number of tokens");
#define QUANTIZED_N(type, zero, n)                                                                 \
    static void products_##type##_##n(const struct cpu_mm *j)                                      \
    {                                                                                              \
        products(DT_##type, zero, n, j);                                                           \
    }
#define QUANTIZED(type, zero)                                                                      \
    QUANTIZED_N(type, zero, 1)                                                                     \
    QUANTIZED_N(type, zero, 2)                                                                     \
    QUANTIZED_N(type, zero, 3)                                                                     \
    QUANTIZED_N(type, zero, 4)                                                                     \
    static void products_##type(const struct cpu_mm *j)                                            \
    {                                                                                              \
        static const cpu_mm_fn of[] = {products_##type##_1, products_##type##_2,                   \
                                       products_##type##_3, products_##type##_4};                  \
        of[j->n - 1](j);                                                                           \
    }                                                                                              \
    CPU_KERNEL(VEC_ISA, CPU_FEW_Q, DT_##type, products_##type)
#else
#define QUANTIZED(type, zero)                                                                      \
    static void products_##type(const struct cpu_mm *j)                                            \
    {                                                                                              \
        products(DT_##type, zero, j->n, j);                                                        \
    }                                                                                              \
    QUANTIZED_FEW(type)                                                                            \
    CPU_KERNEL(VEC_ISA, CPU_MM_Q, DT_##type, products_##type)
#if QUADS /* kernels for few tokens of a lower instruction set would not know these activations */
#define QUANTIZED_FEW(type) CPU_KERNEL(VEC_ISA, CPU_FEW_Q, DT_##type, products_##type);
#else
#define QUANTIZED_FEW(type)
#endif
#endif
QUANTIZED(Q4_0, 8);
QUANTIZED(Q4_1, 0);
QUANTIZED(Q5_0, 16);
QUANTIZED(Q5_1, 0);
QUANTIZED(Q8_0, SIGNED_CODES ? 0 : 128);
QUANTIZED(Q2_K, 0);
QUANTIZED(Q3_K, 4);
QUANTIZED(Q4_K, 0);
QUANTIZED(Q5_K, 0);
QUANTIZED(Q6_K, 32);
QUANTIZED(MXFP4, 12);

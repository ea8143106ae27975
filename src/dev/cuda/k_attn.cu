/* k_attn.cu - attention over views of the cache, and writing the rows of a step.
 *
 * A block computes one atom of a few queries.  The queries are of heads that share a kv head, and of adjacent tokens
 * where a step has many tokens of a sequence.  So a row is read once for all of them.  First each thread has a row,
 * whose scores are chains over the values of the head.  Then each thread has a value of the head for some of the
 * queries, which is a chain over the rows.  So both sums have the order of dev.h, and a query gets the same bits as
 * alone.  Atoms are independent of each other.  A second kernel merges the atoms of a token and head in ascending
 * order. */
#include "dev/cuda/k_attn.h"

enum { QUERY_ROOM = 256 * K_QUERIES, WIDTH = 128 };

/* --- scores */
/* Computes the dot products of a row with q queries, [value][q].  `value` reads value d of the row. */
#define DOTS(value)                                                                                \
    for (uint32_t d = 0; d < dim; d++) {                                                           \
        float k_v = (value);                                                                       \
        for (uint32_t i = 0; i < q; i++)                                                           \
            s[i] = k_fma(query[d * q + i], k_v, s[i]);                                             \
    }
K_FN void row_scores(const struct k_plane *p, const struct k_row *at, uint32_t head,
                     const float *query, uint32_t q, float *s)
{
    uint32_t dim = p->dim, step = p->strips ? 16 : 1;
    size_t first = (size_t)head * at->rows * dim +
                   (p->strips ? (size_t)(at->r / 16) * dim * 16 + at->r % 16 : (size_t)at->r * dim);
    const unsigned char *x = at->at + first * (p->type == 0 ? 4 : 2);
    for (uint32_t i = 0; i < q; i++)
        s[i] = 0;
    if (at->form != ROW_VALUES) {
        DOTS(row_value(p, at, head, d))
    } else if (p->type == 0) {
        K_UNROLL_16 DOTS(k_load(0, x, (size_t)d * step))
    } else if (p->type == 1) {
        K_UNROLL_16 DOTS(k_load(1, x, (size_t)d * step))
    } else {
        K_UNROLL_16 DOTS(k_load(2, x, (size_t)d * step))
    }
}

/* --- values */
/* Adds the adjacent rows [row, end) to the sums of n queries, all of which see these rows.  p: [row][q], from `row`
 * on. */
#define VALUES(value)                                                                              \
    for (uint32_t r = 0; r < end - row; r++) {                                                     \
        float k_v = (value);                                                                       \
        for (uint32_t i = 0; i < n; i++)                                                           \
            o[i] = k_fma(p[r * q + i], k_v, o[i]);                                                 \
    }
K_FN void run_values(const struct k_plane *v, const struct k_row *at, uint32_t head, const float *p,
                     uint32_t q, uint32_t n, uint32_t row, uint32_t end, uint32_t d, float *o)
{
    const unsigned char *x = at->at + (((size_t)head * at->rows + at->r) * v->dim + d) *
                                          (v->type == 0 ? 4 : 2);
    if (v->type == 0) {
        VALUES(k_load(0, x, (size_t)r * v->dim))
    } else if (v->type == 1) {
        K_UNROLL_16 VALUES(k_load(1, x, (size_t)r * v->dim))
    } else {
        K_UNROLL_16 VALUES(k_load(2, x, (size_t)r * v->dim))
    }
}

/* Computes value d of n queries.  Rows [lo, hi) are seen by at least one query of the block, and rows [from[i],
 * to[i]) by query i. */
K_FN void query_values(const struct k_plane *v, const struct k_walk *w, uint32_t token,
                       uint32_t phase, uint32_t head, const float *p, uint32_t q, uint32_t n,
                       const uint32_t *from, const uint32_t *to, uint32_t lo, uint32_t hi,
                       uint32_t d, float *o)
{
    uint32_t row0 = lo / WALK_SPAN * WALK_SPAN, most = 0, least = hi;
    for (uint32_t i = 0; i < n; i++) {
        o[i] = 0;
        most = walk_max(most, from[i]);
        least = walk_min(least, to[i]);
    }
    for (uint32_t row = lo, end; row < hi; row = end) { /* pages end at multiples of 16 */
        struct k_row at = row_of(v, w, token, phase, row);
        end = walk_min(hi, walk_min((row / 16 + 1) * 16, row + at.rows - at.r));
        const float *x = p + (row - row0) * q;
        if (at.form == ROW_VALUES && !v->strips && row >= most && end <= least) {
            run_values(v, &at, head, x, q, n, row, end, d, o);
            continue;
        }
        end = row + 1;
        float y = row_value(v, &at, head, d);
        for (uint32_t i = 0; i < n; i++)
            if (row >= from[i] && row < to[i]) o[i] = k_fma(x[i], y, o[i]);
    }
}

/* --- an atom of q queries, of which the first `count` exist.  Query i is that of token TOKEN(i) and head HEAD(i). */
#define TOKEN(i) (token + (i) / heads)
#define HEAD(i)  (head0 + (i) % heads)
#define PART(i)  (a.part + (((size_t)TOKEN(i) * a.query.n_heads + HEAD(i)) * a.wave + BLOCK_Y) * a.state)
#define ATOMS(q)                                                                                   \
    do {                                                                                           \
        EACH_THREAD                                                                                \
        {                                                                                          \
            for (uint32_t k_x = t; k_x < (q)*a.k.dim; k_x += K_THREADS) {                          \
                uint32_t i = k_x / a.k.dim, d = k_x % a.k.dim;                                     \
                query[d * (q) + i] =                                                               \
                    i < count ? query_of(&a.query, TOKEN(i), HEAD(i), phase, a.k.dim)[d] : 0;      \
            }                                                                                      \
        }                                                                                          \
        EACH_THREAD                                                                                \
        {                                                                                          \
            uint32_t row = row0 + t;                                                               \
            float k_s[q];                                                                          \
            if (row >= lo && row < hi) {                                                           \
                struct k_row at = row_of(&a.k, &a.walk, token, phase, row);                        \
                row_scores(&a.k, &at, kv, query, q, k_s);                                          \
                for (uint32_t i = 0; i < (q); i++)                                                 \
                    if (row >= from[i] && row < to[i])                                             \
                        p[t * (q) + i] = capped(&a.query, biased(&a.walk, &a.query, TOKEN(i),      \
                                                                 HEAD(i), row,                     \
                                                                 k_s[i] * a.query.scale));         \
            }                                                                                      \
        }                                                                                          \
        EACH_THREAD /* 32 threads have a query; a NaN is no candidate */                           \
        {                                                                                          \
            float k_m = -INFINITY;                                                                 \
            for (uint32_t j = t % 32; t / 32 < count && j < WALK_SPAN; j += 32)                    \
                if (row0 + j >= from[t / 32] && row0 + j < to[t / 32])                             \
                    k_m = p[j * (q) + t / 32] > k_m ? p[j * (q) + t / 32] : k_m;                   \
            top[t] = k_m;                                                                          \
        }                                                                                          \
        for (uint32_t step = 16; step; step /= 2)                                                  \
            EACH_THREAD if (t % 32 < step) top[t] = top[t + step] > top[t] ? top[t + step] : top[t]; \
        EACH_THREAD                                                                                \
        {                                                                                          \
            for (uint32_t i = 0; i < (q); i++)                                                     \
                if (row0 + t >= from[i] && row0 + t < to[i])                                       \
                    p[t * (q) + i] = math_exp(p[t * (q) + i] - top[i * 32]);                       \
        }                                                                                          \
        EACH_THREAD                                                                                \
        {                                                                                          \
            float k_l = 0;                                                                         \
            for (uint32_t j = t % 32; t / 32 < count && t % 32 < 16 && j < WALK_SPAN; j += 16)     \
                if (row0 + j >= from[t / 32] && row0 + j < to[t / 32]) k_l += p[j * (q) + t / 32]; \
            sum[t] = k_l;                                                                          \
        }                                                                                          \
        for (uint32_t step = 8; step; step /= 2)                                                   \
            EACH_THREAD if (t % 32 < step) sum[t] += sum[t + step];                                \
        EACH_THREAD                                                                                \
        {                                                                                          \
            if (t < count) PART(t)[0] = top[t * 32], PART(t)[1] = sum[t * 32];                     \
            /* a thread has some values of half of the queries */                                  \
            enum { k_n = (q) > 1 ? (q) / 2 : 1 };                                                  \
            uint32_t k_first = t / WIDTH * k_n, k_from[k_n], k_to[k_n];                            \
            float k_o[k_n];                                                                        \
            for (uint32_t i = 0; i < k_n && k_first < (q); i++)                                    \
                k_from[i] = from[k_first + i], k_to[i] = to[k_first + i];                          \
            for (uint32_t d = t % WIDTH; k_first < count && d < a.v.dim; d += WIDTH) {             \
                query_values(&a.v, &a.walk, token, phase, kv, p + k_first, q,                      \
                             k_n, k_from, k_to, lo, hi, d, k_o);                                  \
                for (uint32_t i = 0; i < k_n; i++)                                                 \
                    if (k_first + i < count) PART(k_first + i)[K_STATE + d] = k_o[i];              \
            }                                                                                      \
        }                                                                                          \
    } while (0)

KERNEL_OF(k_atom, 4)
{
    SHARED(float, query, QUERY_ROOM);
    SHARED(float, p, WALK_SPAN *K_QUERIES);
    SHARED(float, top, K_THREADS);
    SHARED(float, sum, K_THREADS);
    SHARED(uint32_t, from, K_QUERIES);
    SHARED(uint32_t, to, K_QUERIES);
    uint32_t parts = (a.query.group + a.heads - 1) / a.heads, kvs = a.query.n_heads / a.query.group;
    uint32_t kv = BLOCK_X / parts % kvs, h0 = BLOCK_X % parts * a.heads;
    uint32_t heads = walk_min(a.heads, a.query.group - h0), head0 = kv * a.query.group + h0;
    uint32_t token = BLOCK_X / parts / kvs * a.tokens, last = walk_min(token + a.tokens, a.n);
    for (uint32_t n; token < last; token += n) {
        uint32_t phase, lo, hi, other, x, y;
        n = 1;
        if (!walk_atom(&a.walk, token, a.first + BLOCK_Y, &phase, &lo, &hi)) continue;
        uint32_t row0 = lo / WALK_SPAN * WALK_SPAN;
        /* joins the next tokens that have the same span of the same sequence */
        while (token + n < last && a.walk.lane[token + n] == a.walk.lane[token] &&
               walk_atom(&a.walk, token + n, a.first + BLOCK_Y, &other, &x, &y) && other == phase &&
               x / WALK_SPAN * WALK_SPAN == row0) {
            lo = walk_min(lo, x);
            hi = walk_max(hi, y);
            n++;
        }
        uint32_t count = n * heads;
        EACH_THREAD
        {
            bool has = t < count &&
                       walk_atom(&a.walk, TOKEN(t), a.first + BLOCK_Y, &other, &x, &y);
            if (t < K_QUERIES) from[t] = has ? x : 1, to[t] = has ? y : 0;
        }
        if (count == 1)
            ATOMS(1);
        else if (count <= 4)
            ATOMS(4);
        else
            ATOMS(8);
    }
}

/* Merges the atoms of a wave, up to K_THREADS at a time.  The factors of a merge depend only on the largest score up
 * to its atom, and maxima have no order.  So all threads first find the factors of many atoms, and then each thread
 * goes through its own sum. */
KERNEL(k_merge)
{
    SHARED(float, most, 2 * K_THREADS); /* the largest score of all atoms up to this one */
    SHARED(float, before, K_THREADS);   /* factor of the sum so far */
    SHARED(float, by, K_THREADS);       /* factor of this atom */
    uint32_t token = BLOCK_X / a.n_heads, head = BLOCK_X % a.n_heads;
    uint32_t atoms = walk_atoms(&a.walk, token), n = atoms > a.first ? atoms - a.first : 0;
    const float *part = a.part + (size_t)BLOCK_X * a.wave * a.state;
    float *run = a.run + (size_t)BLOCK_X * a.state;
    MINE_ARRAY(float, o, K_DIM / K_THREADS);
    n = walk_min(n, a.wave);
    float m = a.begins ? 0 : run[0], l = a.begins ? 0 : run[1];
    EACH_THREAD
    {
        for (uint32_t i = 0; i < K_DIM / K_THREADS; i++)
            MY(o)[i] = l == 0 || t + i * K_THREADS >= a.dim ? 0 : run[K_STATE + t + i * K_THREADS];
    }
    for (uint32_t i0 = 0; i0 < n; i0 += K_THREADS) {
        uint32_t k = walk_min(n - i0, K_THREADS), at = 0;
        bool first = l == 0; /* the first atom is taken as it is */
        EACH_THREAD
        {
            float x = t < k ? part[(size_t)(i0 + t) * a.state] : -INFINITY;
            most[t] = first || x > m ? x : m;
        }
        for (uint32_t step = 1; step < K_THREADS; step *= 2, at ^= K_THREADS)
            EACH_THREAD
            {
                float x = most[at + t], y = t < step ? x : most[at + t - step];
                most[(at ^ K_THREADS) + t] = y > x ? y : x;
            }
        EACH_THREAD
        {
            float x = t < k ? part[(size_t)(i0 + t) * a.state] : 0, top = most[at + t];
            before[t] = math_exp((t ? most[at + t - 1] : m) - top);
            by[t] = math_exp(x - top);
        }
        EACH_LANE
        {
            K_UNROLL for (uint32_t i = 0; i < K_DIM / K_THREADS; i++)
            {
                uint32_t d = t + i * K_THREADS;
                if (d >= a.dim) continue;
                const float *x = part + (size_t)i0 * a.state + K_STATE + d;
                float sum = first ? x[0] : MY(o)[i];
                K_UNROLL_16 for (uint32_t j = first; j < k; j++)
                {
                    sum = k_fma(sum, before[j], x[(size_t)j * a.state] * by[j]);
                }
                MY(o)[i] = sum;
            }
        }
        for (uint32_t j = 0; j < k; j++) {
            float x = part[(size_t)(i0 + j) * a.state + 1];
            l = first && j == 0 ? x : k_fma(l, before[j], x * by[j]);
        }
        m = most[at + k - 1];
        EACH_THREAD
        {
        } /* all threads have read the factors */
    }
    if (a.out && a.sink_logit) {
        float s = a.sink_logit[head], top = l == 0 || s > m ? s : m;
        float e = l == 0 ? 0 : math_exp(m - top), f = math_exp(s - top);
        EACH_LANE
        {
            for (uint32_t i = 0; i < K_DIM / K_THREADS; i++)
                MY(o)[i] = l == 0 ? 0 : k_fma(MY(o)[i], e, 0.0f * f);
        }
        l = l == 0 ? 1 : k_fma(l, e, f);
    }
    float inv = l == 0 ? 0 : 1.0f / l;
    EACH_LANE
    {
        for (uint32_t i = 0; i < K_DIM / K_THREADS; i++) {
            uint32_t d = t + i * K_THREADS;
            if (d >= a.dim) continue;
            if (a.out)
                a.out[token * a.ldo + (size_t)head * a.dim + d] = l == 0 ? 0 : MY(o)[i] * inv;
            else
                run[K_STATE + d] = MY(o)[i];
        }
        if (t == 0 && !a.out) run[0] = m, run[1] = l;
    }
}

KERNEL(k_scores)
{
    uint32_t token = BLOCK_X / a.query.n_heads, head = BLOCK_X % a.query.n_heads, phase, from, to;
    if (!walk_atom(&a.walk, token, BLOCK_Y, &phase, &from, &to)) return;
    const float *q = query_of(&a.query, token, head, phase, a.k.dim);
    float *out = a.out + (size_t)BLOCK_X * a.columns;
    EACH_THREAD
    {
        uint32_t row = from / WALK_SPAN * WALK_SPAN + t;
        if (row >= from && row < to)
            out[row] = score_of(&a.k, &a.walk, &a.query, q, token, head, phase, row);
    }
}

KERNEL(k_write)
{
    EACH_VALUE(i, a.n)
    {
        uint32_t d = (uint32_t)(i % a.p.dim), head = (uint32_t)(i / a.p.dim % a.p.heads);
        size_t token = i / a.p.dim / a.p.heads;
        const struct k_form *f = &a.p.raw;
        uint32_t page = a.dst[token] / f->rows, r = a.dst[token] % f->rows;
        float x = a.x[token * a.ldx + (size_t)head * a.p.dim + d];
        size_t place =
            a.p.strips ? ((size_t)(r / 16) * a.p.dim + d) * 16 + r % 16 : (size_t)r * a.p.dim + d;
        unsigned char *to = f->base + page * f->grain + f->offset;
        place += (size_t)head * f->rows * a.p.dim;
        uint16_t h;
        if (a.p.type == 0) {
            memcpy(to + 4 * place, &x, 4);
            continue;
        }
        if (a.p.type == 1) { /* saturates; a NaN passes */
            x = 65504.0f < x ? 65504.0f : x;
            h = half_f32_to_f16(-65504.0f > x ? -65504.0f : x);
        } else {
            h = half_f32_to_bf16(x);
        }
        memcpy(to + 2 * place, &h, 2);
    }
}

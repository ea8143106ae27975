/* k_attn.cu - attention over views of the cache, and the rows that a step writes.
 *
 * A block makes one atom of one token and head: a thread has a row, and its score is a chain over the values of the
 * head; then a thread has a value of the head, which is a chain over the rows.  So both sums have the order of dev.h,
 * and atoms are independent of each other.  A second kernel merges the atoms of a token and head, ascending. */
#include "dev/cuda/k_cache.h"

/* The query of a token and head, in the rotation that rows of a phase meet. */
K_FN const float *query_of(const struct k_query *q, uint32_t token, uint32_t head, uint32_t phase,
                           uint32_t dim)
{
    const float *at = phase == WALK_SINKS && q->q_sink ? q->q_sink : q->q;
    return at + token * q->ldq + (size_t)head * dim;
}

/* The score of a row before the softcap. */
K_FN float score_of(const struct k_plane *k, const struct k_walk *w, const struct k_query *q,
                    const float *query, uint32_t token, uint32_t head, uint32_t phase, uint32_t row)
{
    struct k_row at = row_of(k, w, token, phase, row);
    float s = 0;
    for (uint32_t d = 0; d < k->dim; d++)
        s = k_fma(query[d], row_value(k, &at, head / q->group, d), s);
    s *= q->scale;
    if (!q->bias) return s;
    int64_t apart = (int64_t)row - w->pos[token], back = q->back, ahead = q->ahead;
    apart = apart < -back ? -back : apart > ahead ? ahead : apart;
    return s + q->bias[head * (back + 1 + ahead) + back + apart];
}

KERNEL(k_atom)
{
    SHARED(float, query, K_DIM);
    SHARED(float, p, K_THREADS);
    SHARED(float, s, K_THREADS);
    uint32_t token = BLOCK_X / a.query.n_heads, head = BLOCK_X % a.query.n_heads, phase, from, to;
    if (!walk_atom(&a.walk, token, a.first + BLOCK_Y, &phase, &from, &to)) return;
    const float *q = query_of(&a.query, token, head, phase, a.k.dim);
    float *part = a.part + ((size_t)BLOCK_X * a.wave + BLOCK_Y) * a.state;
    uint32_t row0 = from / WALK_SPAN * WALK_SPAN;
    EACH_THREAD
    {
        for (uint32_t d = t; d < a.k.dim; d += K_THREADS)
            query[d] = q[d];
    }
    EACH_THREAD
    {
        uint32_t row = row0 + t;
        s[t] = -INFINITY;
        if (row >= from && row < to) {
            float x = score_of(&a.k, &a.walk, &a.query, query, token, head, phase, row);
            if (a.query.softcap != 0) x = a.query.softcap * math_tanh(x / a.query.softcap);
            p[t] = x;
            s[t] = x > -INFINITY ? x : -INFINITY; /* a NaN is no maximum */
        }
    }
    for (uint32_t step = K_THREADS / 2; step; step /= 2)
        EACH_THREAD if (t < step) s[t] = s[t + step] > s[t] ? s[t + step] : s[t];
    float m = s[0];
    EACH_THREAD
    {
        uint32_t row = row0 + t;
        if (row >= from && row < to) p[t] = math_exp(p[t] - m);
    }
    EACH_THREAD
    {
        float sum = 0;
        for (uint32_t j = t; t < 16 && j < K_THREADS; j += 16)
            if (row0 + j >= from && row0 + j < to) sum += p[j];
        if (t < 16) s[t] = sum;
    }
    for (uint32_t step = 8; step; step /= 2)
        EACH_THREAD if (t < step) s[t] += s[t + step];
    EACH_THREAD
    {
        if (t == 0) {
            part[0] = m;
            part[1] = s[0];
        }
        for (uint32_t d = t; d < a.v.dim; d += K_THREADS) {
            float o = 0;
            for (uint32_t row = from; row < to; row++) {
                struct k_row at = row_of(&a.v, &a.walk, token, phase, row);
                o = k_fma(p[row - row0], row_value(&a.v, &at, head / a.query.group, d), o);
            }
            part[2 + d] = o;
        }
    }
}

/* Merges a partial result into a running one, as every thread knows both; d: the values of this thread. */
#define MERGE(m, l, o, pm, pl, value)                                                              \
    do {                                                                                           \
        if (l == 0) {                                                                              \
            m = pm, l = pl, o = value;                                                             \
        } else {                                                                                   \
            float k_top = pm > m ? pm : m, k_a = math_exp(m - k_top), k_b = math_exp(pm - k_top);  \
            m = k_top;                                                                             \
            l = k_fma(l, k_a, (pl)*k_b);                                                           \
            o = k_fma(o, k_a, (value)*k_b);                                                        \
        }                                                                                          \
    } while (0)

KERNEL(k_merge)
{
    uint32_t token = BLOCK_X / a.n_heads, head = BLOCK_X % a.n_heads;
    uint32_t n = walk_atoms(&a.walk, token);
    const float *part = a.part + (size_t)BLOCK_X * a.wave * a.state;
    float *run = a.run + (size_t)BLOCK_X * a.state;
    for (uint32_t d0 = 0; d0 < a.dim; d0 += K_THREADS) {
        MINE(float, rm);
        MINE(float, rl);
        EACH_THREAD /* reads before another thread writes M and L */
        {
            uint32_t d = d0 + t;
            float m = a.begins ? 0 : run[0], l = a.begins ? 0 : run[1];
            float o = a.begins || d >= a.dim ? 0 : run[2 + d];
            for (uint32_t i = 0; i < a.wave && a.first + i < n; i++) {
                const float *x = part + (size_t)i * a.state;
                MERGE(m, l, o, x[0], x[1], d < a.dim ? x[2 + d] : 0);
            }
            if (a.out) {
                if (a.sink_logit) MERGE(m, l, o, a.sink_logit[head], 1.0f, 0.0f);
                float inv = l == 0 ? 0 : 1.0f / l;
                if (d < a.dim)
                    a.out[token * a.ldo + (size_t)head * a.dim + d] = l == 0 ? 0 : o * inv;
            } else if (d < a.dim) {
                run[2 + d] = o;
            }
            MY(rm) = m;
            MY(rl) = l;
        }
        EACH_THREAD
        {
            if (t == 0 && !a.out && d0 + K_THREADS >= a.dim) {
                run[0] = MY(rm);
                run[1] = MY(rl);
            }
        }
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

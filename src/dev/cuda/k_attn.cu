/* k_attn.cu - attention over views of the cache, and the rows that a step writes.
 *
 * A block makes one atom of one token and head: a thread has a row, and its score is a chain over the values of the
 * head; then a thread has a value of the head, which is a chain over the rows.  So both sums have the order of dev.h,
 * and atoms are independent of each other.  A second kernel merges the atoms of a token and head, ascending. */
#include "dev/cuda/k_attn.h"

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
        if (row >= from && row < to)
            ATOM_SCORE(&a.query, score_of(&a.k, &a.walk, &a.query, query, token, head, phase, row));
    }
    ATOM_SOFT(part, row0, from, to);
    EACH_THREAD
    {
        for (uint32_t d = t; d < a.v.dim; d += K_THREADS)
            part[K_STATE + d] =
                values_of(&a.v, &a.walk, &a.query, p, token, head, phase, from, to, d);
    }
}

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
            float o = a.begins || d >= a.dim ? 0 : run[K_STATE + d];
            for (uint32_t i = 0; i < a.wave && a.first + i < n; i++) {
                const float *x = part + (size_t)i * a.state;
                MERGE(m, l, o, x[0], x[1], d < a.dim ? x[K_STATE + d] : 0);
            }
            if (a.out) {
                if (a.sink_logit) MERGE(m, l, o, a.sink_logit[head], 1.0f, 0.0f);
                float inv = l == 0 ? 0 : 1.0f / l;
                if (d < a.dim)
                    a.out[token * a.ldo + (size_t)head * a.dim + d] = l == 0 ? 0 : o * inv;
            } else if (d < a.dim) {
                run[K_STATE + d] = o;
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

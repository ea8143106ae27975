/* k_attn.h - what the kernels of attention share for all forms of rows: queries, scores of rows of values, and the
 * softmax of an atom. */
#pragma once
#include "dev/cuda/k_cache.h"

/* Returns the query of a token and head, in the rotation for the rows of a phase. */
K_FN const float *query_of(const struct k_query *q, uint32_t token, uint32_t head, uint32_t phase,
                           uint32_t dim)
{
    const float *at = phase == WALK_SINKS && q->q_sink ? q->q_sink : q->q;
    return at + token * q->ldq + (size_t)head * dim;
}

/* Returns a score plus the bias of its distance. */
K_FN float biased(const struct k_walk *w, const struct k_query *q, uint32_t token, uint32_t head,
                  uint32_t row, float s)
{
    if (!q->bias) return s;
    int64_t apart = (int64_t)row - w->pos[token], back = q->back, ahead = q->ahead;
    apart = apart < -back ? -back : apart > ahead ? ahead : apart;
    return s + q->bias[head * (back + 1 + ahead) + back + apart];
}

/* Returns the score of a row before the softcap. */
K_FN float score_of(const struct k_plane *k, const struct k_walk *w, const struct k_query *q,
                    const float *query, uint32_t token, uint32_t head, uint32_t phase, uint32_t row)
{
    struct k_row at = row_of(k, w, token, phase, row);
    float s = 0;
    for (uint32_t d = 0; d < k->dim; d++)
        s = k_fma(query[d], row_value(k, &at, head / q->group, d), s);
    return biased(w, q, token, head, row, s * q->scale);
}

K_FN float capped(const struct k_query *q, float x)
{
    return q->softcap != 0 ? q->softcap * math_tanh(x / q->softcap) : x;
}

/* Stores the score x of a thread's row in p, and in s as a candidate for the largest; a NaN is no candidate. */
#define ATOM_SCORE(q, x)                                                                           \
    do {                                                                                           \
        float k_x = capped(q, x);                                                                  \
        p[t] = k_x;                                                                                \
        s[t] = k_x > -INFINITY ? k_x : -INFINITY;                                                  \
    } while (0)
/* Softmax of rows [from, to) of the span of row0: p becomes exp(p - M), part[0] becomes M, part[1] L. */
#define ATOM_SOFT(part, row0, from, to)                                                            \
    do {                                                                                           \
        for (uint32_t k_step = K_THREADS / 2; k_step; k_step /= 2)                                 \
            EACH_THREAD if (t < k_step) s[t] = s[t + k_step] > s[t] ? s[t + k_step] : s[t];        \
        float k_m = s[0];                                                                          \
        EACH_THREAD                                                                                \
        {                                                                                          \
            uint32_t k_row = row0 + t;                                                             \
            if (k_row >= from && k_row < to) p[t] = math_exp(p[t] - k_m);                          \
        }                                                                                          \
        EACH_THREAD                                                                                \
        {                                                                                          \
            float k_sum = 0;                                                                       \
            for (uint32_t k_j = t; t < 16 && k_j < K_THREADS; k_j += 16)                           \
                if (row0 + k_j >= from && row0 + k_j < to) k_sum += p[k_j];                        \
            if (t < 16) s[t] = k_sum;                                                              \
        }                                                                                          \
        for (uint32_t k_step = 8; k_step; k_step /= 2)                                             \
            EACH_THREAD if (t < k_step) s[t] += s[t + k_step];                                     \
        EACH_THREAD                                                                                \
        {                                                                                          \
            if (t == 0) part[0] = k_m;                                                             \
            if (t == 0) part[1] = s[0];                                                            \
        }                                                                                          \
    } while (0)
/* Returns the sum of p times value d over rows [from, to). */
K_FN float values_of(const struct k_plane *v, const struct k_walk *w, const struct k_query *q,
                     const float *p, uint32_t token, uint32_t head, uint32_t phase, uint32_t from,
                     uint32_t to, uint32_t d)
{
    float o = 0;
    for (uint32_t row = from, row0 = from / WALK_SPAN * WALK_SPAN; row < to; row++) {
        struct k_row at = row_of(v, w, token, phase, row);
        o = k_fma(p[row - row0], row_value(v, &at, head / q->group, d), o);
    }
    return o;
}

/* Merges a partial result into the running one.  All threads have m and l; d: the values of this thread. */
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

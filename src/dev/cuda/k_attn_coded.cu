/* k_attn_coded.cu - attention over coded tiles (dev/coded.h): the kernels of k_attn.cu for planes that are coded.
 *
 * Dot products of codes are sums of integers, so any order gives the CPU's bits.  The order of all other sums is
 * stated in dev/cpu/coded_read.h.  Scores: a block codes its query, and each thread has a row.  Values: a block
 * takes the units of its atom one after another, codes the probabilities by the scales of the unit, and each thread
 * has a value of the head.  Sums of rotated values stay rotated until the last sealed atom of a token is merged; the
 * atoms of raw rows follow (dev/cpu/attn.c: end_sealed).  Keys and values may have different codecs, so one of them
 * may be read in another way. */
#include "dev/cuda/k_attn.h"
#include "dev/cuda/k_coded.h"

/* Rotates the query x[dim] if keys are rotated, and makes codes of it.  one: the value of code 1. */
#define CODE_QUERY(k, x, code, top, one)                                                           \
    do {                                                                                           \
        if ((k)->levels.run) {                                                                     \
            EACH_THREAD                                                                            \
            {                                                                                      \
                for (uint32_t k_d = t; k_d < (k)->dim; k_d += K_THREADS)                           \
                    (x)[k_d] *= hadamard_sign((k)->levels.seed, k_d);                              \
            }                                                                                      \
            TRANSFORM(x, (k)->dim, (k)->levels.run);                                               \
            EACH_THREAD                                                                            \
            {                                                                                      \
                for (uint32_t k_d = t; k_d < (k)->dim; k_d += K_THREADS)                           \
                    (x)[k_d] *= (k)->levels.turn;                                                  \
            }                                                                                      \
        }                                                                                          \
        EACH_THREAD                                                                                \
        {                                                                                          \
            (top)[t] = 0;                                                                          \
            for (uint32_t k_d = t; k_d < (k)->dim; k_d += K_THREADS) {                             \
                uint32_t k_bits = half_bits((x)[k_d]) & 0x7fffffffu;                               \
                if (k_bits > (top)[t]) (top)[t] = k_bits;                                          \
            }                                                                                      \
        }                                                                                          \
        LARGEST(top);                                                                              \
        float k_by = coded_group_scale((top)[0], &(one)) * 0x1p-8f;                                \
        (one) *= 256;                                                                              \
        EACH_THREAD                                                                                \
        {                                                                                          \
            for (uint32_t k_d = t; k_d < (k)->dim; k_d += K_THREADS)                               \
                (code)[k_d] = k_by > 0 ? coded_nearest((x)[k_d] * k_by) : 0;                       \
        }                                                                                          \
    } while (0)

/* Returns the unit of a row in its tile. */
K_FN const unsigned char *unit_of(const struct k_plane *p, const struct k_walk *w, uint32_t token,
                                  uint32_t head, uint32_t row)
{
    struct k_row at = row_of(p, w, token, WALK_SEALED, row);
    return coded_unit(p, at.at, head, at.r);
}

/* Returns lane `l` of the dot product of the query's codes and the means of a row's unit. */
K_FN float mean_lane(const struct k_plane *k, const unsigned char *unit, const int32_t *code,
                     uint32_t l)
{
    float s = 0;
    for (uint32_t d = l; d < k->dim; d += 16)
        s = k_fma((float)code[d], coded_mean(unit, d), s);
    return s;
}

/* Computes the dot products with the means of the two units of a span: m[0] and m[16]. */
#define MEANS(k, walk, token, head, code, m, row0, from, to)                                       \
    do {                                                                                           \
        EACH_THREAD                                                                                \
        {                                                                                          \
            uint32_t k_row = walk_max(from, row0 + t / 16 * CODED_ROWS);                           \
            if (t < 32)                                                                            \
                (m)[t] = (k)->levels.mean && k_row < to &&                                         \
                                 k_row < row0 + (t / 16 + 1) * CODED_ROWS                          \
                             ? mean_lane(k, unit_of(k, walk, token, head, k_row), code, t % 16)    \
                             : 0;                                                                  \
        }                                                                                          \
        for (uint32_t k_step = 8; k_step; k_step /= 2)                                             \
            EACH_THREAD if (t < 32 && t % 16 < k_step)(m)[t] += (m)[t + k_step];                   \
    } while (0)

/* Returns the score of a coded row before the softcap.  one: the value of the query's code 1. */
K_FN float coded_score(const struct k_plane *k, const struct k_walk *w, const struct k_query *q,
                       const int32_t *code, float one, const float *m, uint32_t token,
                       uint32_t head, uint32_t row)
{
    const unsigned char *unit = unit_of(k, w, token, head / q->group, row);
    float t = one * q->scale, mean = k->levels.mean ? t * m[row / CODED_ROWS % 2 * 16] : 0;
    int32_t sum = 0;
    for (uint32_t d = 0; d < k->dim; d++)
        sum += code[d] * coded_level(k, unit, row % CODED_ROWS, d);
    float scale = half_bf16_to_f32((uint16_t)coded_scale(unit, row % CODED_ROWS));
    return biased(w, q, token, head, row, k_fma((float)sum, t * scale, mean));
}

/* Returns the code of a row's probability: p * scale * by if the row's scale is in [least, limit), else 0. */
K_FN int32_t weight_of(float p, uint32_t bits, float by, float least, float limit)
{
    float scale = half_bf16_to_f32((uint16_t)bits);
    float w = bits < 0x7f80 && scale >= least && scale < limit ? p * (scale * by) : 0;
    if (!(w > 0)) return 0; /* a NaN, too; the result of its query is NaN anyway */
    return coded_nearest(w < (float)CODED_CODE ? w : (float)CODED_CODE);
}

KERNEL(k_atom_coded)
{
    const struct k_atom_args *in = &a.a;
    const struct k_query *qu = &in->query;
    SHARED(float, query, K_DIM);
    SHARED(int32_t, code, CODED_DIM);
    SHARED(uint32_t, top, K_THREADS);
    SHARED(float, mean, 32);
    SHARED(float, p, K_THREADS);
    SHARED(float, s, K_THREADS);
    MINE_ARRAY(float, o, CODED_DIM / K_THREADS);
    uint32_t token = BLOCK_X / qu->n_heads, head = BLOCK_X % qu->n_heads, phase, from, to;
    if (!walk_atom(&in->walk, token, in->first + BLOCK_Y, &phase, &from, &to)) return;
    const float *q = query_of(qu, token, head, phase, in->k.dim);
    float *part = in->part + ((size_t)BLOCK_X * in->wave + BLOCK_Y) * in->state, one = 0;
    uint32_t row0 = from / WALK_SPAN * WALK_SPAN, kv = head / qu->group;
    bool sealed = phase == WALK_SEALED, keys = sealed && in->k.levels.bits;
    EACH_THREAD
    {
        for (uint32_t d = t; d < in->k.dim; d += K_THREADS)
            query[d] = q[d];
    }
    if (keys) {
        CODE_QUERY(&in->k, query, code, top, one);
        MEANS(&in->k, &in->walk, token, kv, code, mean, row0, from, to);
    }
    EACH_THREAD
    {
        uint32_t row = row0 + t;
        s[t] = -INFINITY;
        if (row >= from && row < to)
            ATOM_SCORE(
                qu, keys ? coded_score(&in->k, &in->walk, qu, code, one, mean, token, head, row)
                         : score_of(&in->k, &in->walk, qu, query, token, head, phase, row));
    }
    ATOM_SOFT(part, row0, from, to);
    EACH_THREAD
    {
        if (t == 0) part[2] = sealed && in->v.levels.bits && in->v.levels.run ? 1 : 0;
        for (uint32_t i = 0; i < CODED_DIM / K_THREADS; i++)
            MY(o)[i] = 0;
    }
    if (!sealed || !in->v.levels.bits) {
        EACH_THREAD
        {
            for (uint32_t d = t; d < in->v.dim; d += K_THREADS)
                part[K_STATE + d] =
                    values_of(&in->v, &in->walk, qu, p, token, head, phase, from, to, d);
        }
        return;
    }
    for (uint32_t u0 = from / CODED_ROWS * CODED_ROWS; u0 < to; u0 += CODED_ROWS) {
        const unsigned char *unit =
            unit_of(&in->v, &in->walk, token, kv, u0 < from ? from : u0);
        float limit = INFINITY, by;
        do { /* a band of scales (dev/cpu/coded_read.h) */
            EACH_THREAD /* the largest scale; above it whether a row that is seen is not finite */
            {
                uint32_t scale = t < CODED_ROWS ? coded_scale(unit, t) : 0;
                bool seen = u0 + t >= from && u0 + t < to;
                top[t] = scale >= 0x7f80                                ? (uint32_t)seen << 16
                         : half_bf16_to_f32((uint16_t)scale) < limit ? scale
                                                                        : 0;
            }
            LARGEST(top);
            bool nan = top[0] >> 16;
            float step, least = half_from_bits(top[0] << 16) * CODED_BAND;
            by = coded_group_scale(top[0] << 16, &step);
            EACH_THREAD
            {
                bool seen = t < CODED_ROWS && u0 + t >= from && u0 + t < to;
                if (t < CODED_ROWS)
                    code[t] =
                        seen ? weight_of(p[u0 - row0 + t], coded_scale(unit, t), by, least, limit)
                             : 0;
            }
            EACH_THREAD
            {
                for (uint32_t d = t, i = 0; (by > 0 || nan) && d < in->v.dim; d += K_THREADS, i++) {
                    int32_t sum = 0;
                    for (uint32_t r = 0; r < CODED_ROWS; r++)
                        if (code[r]) sum += code[r] * coded_level(&in->v, unit, r, d);
                    MY(o)[i] = nan ? half_from_bits(0x7fc00000u) : k_fma((float)sum, step, MY(o)[i]);
                }
            }
            limit = least;
        } while (by > 0);
    }
    EACH_THREAD
    {
        for (uint32_t d = t, i = 0; d < in->v.dim; d += K_THREADS, i++)
            part[K_STATE + d] = MY(o)[i];
    }
}

KERNEL(k_merge_coded)
{
    const struct k_merge_args *in = &a.a;
    SHARED(float, o, K_DIM);
    uint32_t token = BLOCK_X / in->n_heads, head = BLOCK_X % in->n_heads;
    uint32_t n = walk_atoms(&in->walk, token), dim = in->dim;
    float *run = in->run + (size_t)BLOCK_X * in->state;
    float m = in->begins ? 0 : run[0], l = in->begins ? 0 : run[1];
    bool turned = !in->begins && l != 0 && run[2] != 0;
    EACH_THREAD
    {
        for (uint32_t d = t; d < dim; d += K_THREADS)
            o[d] = l == 0 ? 0 : run[K_STATE + d];
    }
    for (uint32_t i = 0; i < in->wave && in->first + i < n; i++) {
        const float *x = in->part + ((size_t)BLOCK_X * in->wave + i) * in->state;
        if (turned && x[2] == 0) {
            TURN_BACK(o, &a.v);
            turned = false;
        }
        bool first = l == 0;
        float above = first || x[0] > m ? x[0] : m, e = first ? 0 : math_exp(m - above),
              f = math_exp(x[0] - above);
        EACH_THREAD
        {
            for (uint32_t d = t; d < dim; d += K_THREADS)
                o[d] = first ? x[K_STATE + d] : k_fma(o[d], e, x[K_STATE + d] * f);
        }
        l = first ? x[1] : k_fma(l, e, x[1] * f);
        m = above;
        if (first) turned = x[2] != 0;
    }
    if (!in->out) {
        EACH_THREAD
        {
            if (t == 0) {
                run[0] = m;
                run[1] = l;
                run[2] = turned;
            }
            for (uint32_t d = t; d < dim; d += K_THREADS)
                run[K_STATE + d] = o[d];
        }
        return;
    }
    if (turned) TURN_BACK(o, &a.v);
    EACH_THREAD
    {
        for (uint32_t d = t; d < dim; d += K_THREADS) {
            float rm = m, rl = l, ro = o[d];
            if (in->sink_logit) MERGE(rm, rl, ro, in->sink_logit[head], 1.0f, 0.0f);
            float inv = rl == 0 ? 0 : 1.0f / rl;
            in->out[token * in->ldo + (size_t)head * dim + d] = rl == 0 ? 0 : ro * inv;
        }
    }
}

KERNEL(k_scores_coded)
{
    const struct k_scores_args *in = &a.a;
    const struct k_query *qu = &in->query;
    SHARED(float, query, K_DIM);
    SHARED(int32_t, code, CODED_DIM);
    SHARED(uint32_t, top, K_THREADS);
    SHARED(float, mean, 32);
    uint32_t token = BLOCK_X / qu->n_heads, head = BLOCK_X % qu->n_heads, phase, from, to;
    if (!walk_atom(&in->walk, token, BLOCK_Y, &phase, &from, &to)) return;
    const float *q = query_of(qu, token, head, phase, in->k.dim);
    float *out = in->out + (size_t)BLOCK_X * in->columns, one = 0;
    uint32_t row0 = from / WALK_SPAN * WALK_SPAN, kv = head / qu->group;
    bool coded = phase == WALK_SEALED && in->k.levels.bits;
    EACH_THREAD
    {
        for (uint32_t d = t; d < in->k.dim; d += K_THREADS)
            query[d] = q[d];
    }
    if (coded) {
        CODE_QUERY(&in->k, query, code, top, one);
        MEANS(&in->k, &in->walk, token, kv, code, mean, row0, from, to);
    }
    EACH_THREAD
    {
        uint32_t row = row0 + t;
        if (row >= from && row < to)
            out[row] = coded ? coded_score(&in->k, &in->walk, qu, code, one, mean, token, head, row)
                             : score_of(&in->k, &in->walk, qu, query, token, head, phase, row);
    }
}

/* codec_hqq.c - the arithmetic of the "hqq" backend of Transformers (with its optimizer on): the range of quanto, then
 * rounds that move the zero of each group so that large errors weigh less.
 *
 *   step = 1 / (max - min) * (2^nbits - 1), 1 if the range is at most 1e-4, at most 2e4; zero = -min * step
 *   up to 20 rounds:
 *     code = round(x * step + zero) in [0, 2^nbits - 1];  d = x - (code - zero) / step
 *     e    = sign(d) * max(|d| - 0.1 * |d|^-0.3, 0)
 *     zero = mean over the group of (code - (x - e) * step)
 *   code = round(x * step + zero), all in f32; value = (code - zero) * (1 / step), in the type of the rows
 *
 * Sums are taken in the order of the hqq package, so zeros have the same bits.  The two differ in when rounds end.  The
 * package stops all groups of a tensor together, once their common error no longer shrinks; so rows of other sequences and
 * later tokens decide how a row is stored.  Here each group takes the zero of the round with its least squared error,
 * which is at most the error of the round at which the package stops. */
#include "dev/four.h"
#include "kv/codec_affine.h"

#include <math.h>
#include <string.h>

#define ROUNDS 20
#define SHRINK 0.17f /* below 0.1701, 0.1 * |d|^-0.3 >= |d|, so e is 0 */

/* Rounds half to even, for 0 <= x < 2^22. */
static float nearest(float x)
{
    float big = x + 0x1.8p23f;
    return big - 0x1.8p23f;
}

static float code_of(float x, float step, float zero, float top)
{
    float q = x * step + zero;
    q = q > top ? top : q;
    return q > 0 ? nearest(q) : 0;
}

static float shrink(float d)
{
    float size = fabsf(d);
    if (size < SHRINK) return 0;
    float e = size - 0.1f * powf(size, 0.7f - 1.0f);
    if (!(e > 0)) return 0;
    return d < 0 ? -e : e;
}

/* Returns the mean of a group, summed in the order of the hqq package.  The values of a row are summed in 8 lanes
 * with four chains each; those of a channel in chains of sixteen. */
static float mean_row(const float *x, uint32_t n)
{
    float p[4][8] = {{0}}, sum = 0;
    uint32_t lanes = n / 8, quads = lanes / 4 * 4;
    for (uint32_t i = 0; i < lanes; i++)
        for (uint32_t l = 0; l < 8; l++)
            p[i < quads ? i % 4 : 0][l] += x[8 * i + l];
    for (uint32_t k = 1; k < 4; k++)
        for (uint32_t l = 0; l < 8; l++)
            p[0][l] += p[k][l];
    for (uint32_t i = lanes * 8; i < n; i++)
        sum += x[i];
    for (uint32_t l = 0; l < 8; l++)
        sum += p[0][l];
    return sum / (float)n;
}

static float mean_channel(const float *x, uint32_t n)
{
    float sum = 0, rest = 0;
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        float part = 0;
        for (uint32_t k = 0; k < 16; k++)
            part += x[i + k];
        sum += part;
    }
    for (; i < n; i++)
        rest += x[i];
    return (rest + sum) / (float)n;
}

/* Returns the difference of x from the value that will be read, with the zero and scale as stored.  The last
 * rounding of the value, to f16, is left out, because it is much finer than the error. */
static float missed(enum dtype t, float x, float q, float zero, float scale)
{
    if (t != DT_BF16) return x - (q - zero) * scale;
    return x - kv_row_round(t, kv_row_round(t, q - zero) * scale);
}

/* The numbers of one round that are the same for all values of the group. */
struct round {
    enum dtype dtype;
    float step, zero, top, stored, scale; /* stored: the zero after rounding for storage */
};

/* Returns the error with which value x will be read.  *z: what x adds to the mean that becomes the next zero. */
static float error_of(const struct round *r, float x, float *z)
{
    float q = code_of(x, r->step, r->zero, r->top);
    *z = q - (x - shrink(x - (q - r->zero) / r->step)) * r->step;
    return missed(r->dtype, x, q, r->stored, r->scale);
}

/* error_of for four values, by the same operations. */
static four four_errors(const struct round *r, const float *x, float *z)
{
    const four big = {0x1.8p23f, 0x1.8p23f, 0x1.8p23f, 0x1.8p23f}, none = {0};
    four v = four_load(x), q = v * r->step + r->zero;
    q = four_pick(q > r->top, none + r->top, q);
    q = four_pick(q > none, (q + big) - big, none);
    four d = v - (q - r->zero) / r->step;
    four_ints small = (d < SHRINK) & (d > -SHRINK);
    four_store(z, q - v * r->step); /* a small d shrinks to 0 */
    for (int l = 0; l < 4 && !four_all(small); l++)
        z[l] = q[l] - (x[l] - shrink(d[l])) * r->step;
    return v - (q - r->stored) * r->scale;
}

/* Returns the squared error of the group with a given zero.  z: what each value adds to the mean that becomes the
 * next zero. */
static double error_of_group(const struct affine_group *g, float step, float zero, float *z)
{
    const struct round r = {g->dtype,
                            step,
                            zero,
                            (float)g->max_q,
                            kv_row_round(g->dtype, zero),
                            kv_row_round(g->dtype, 1 / step)};
    four square = {0};
    for (uint32_t i = 0; i < g->n; i += 4) {
        four e = {0};
        if (g->dtype != DT_BF16 && g->n - i >= 4)
            e = four_errors(&r, g->x + i, z + i);
        else
            for (uint32_t l = 0; l < MIN(g->n - i, 4); l++)
                e[l] = error_of(&r, g->x[i + l], z + i + l);
        square += e * e;
    }
    return ((double)square[0] + (double)square[1]) + ((double)square[2] + (double)square[3]);
}

static void quantize(struct affine_group *g)
{
    float lo = g->x[0], hi = g->x[0], top = (float)g->max_q, *z = g->work;
    for (uint32_t i = 1; i < g->n && !isnan(lo); i++) {
        /* a comparison with NaN is false, so this keeps a NaN */
        if (!(g->x[i] >= lo)) lo = g->x[i];
        if (!(g->x[i] <= hi)) hi = g->x[i];
    }
    float step = hi - lo <= 1e-4f ? 1.0f : 1 / (hi - lo) * top;
    step = step > 2e4f ? 2e4f : step;
    if (isinf(kv_row_round(g->dtype, -lo * step))) step = 1; /* the zero could not be stored */
    float zero = -lo * step, best = zero;
    double least = (double)INFINITY;
    error_of_group(g, step, zero, z);
    for (int round = 0; round < ROUNDS; round++) {
        float next = g->channel ? mean_channel(z, g->n) : mean_row(z, g->n);
        if (round && next == zero) break; /* further rounds would change nothing */
        zero = next;
        double left = error_of_group(g, step, zero, z);
        if (!round || left < least) {
            best = zero;
            least = left;
        }
    }
    for (uint32_t i = 0; i < g->n; i++)
        g->q[i] = (uint8_t)code_of(g->x[i], step, best, top);
    g->a = 1 / step;
    g->b = best;
}

static int check(const struct kv_codec_options *o, bool key)
{
    int32_t nbits = o->value[AFFINE_NBITS], axis = o->value[AFFINE_AXIS];
    if (nbits < 1 || !affine_bits((uint32_t)nbits))
        return ERR(ARG, "nbits %d: backend \"hqq\" has 1, 2, 3, 4 and 8 bits", nbits);
    if (axis != 0 && axis != 1)
        return ERR(ARG, "%s %d: backend \"hqq\" has axes 0 and 1", key ? "axis_key" : "axis_value",
                   axis);
    return affine_check_group(o->value[AFFINE_GROUP]);
}

static int open_plane(const struct kv_codec_options *o, const struct kv_shape *s, bool key,
                      uint32_t tile, struct kv_codec **out)
{
    bool channel = o->value[AFFINE_AXIS] == 0;
    struct affine_spec spec = {
        .name = "hqq",
        .bits = (uint32_t)o->value[AFFINE_NBITS],
        .group = (uint32_t)o->value[AFFINE_GROUP],
        .channel = channel,
        .zero_first = true,
        .axis = key       ? channel ? "axis_key 0" : "axis_key 1"
                : channel ? "axis_value 0"
                          : "axis_value 1",
        .quantize = quantize,
    };
    return affine_open(&spec, s, tile, out);
}

static const struct kv_codec_kind hqq = {
    .name = "hqq",
    .turns = true,
    .option = affine_options,
    .n_options = AFFINE_OPTIONS,
    .check = check,
    .open = open_plane,
    .close = affine_close,
};
KV_CODEC(hqq, &hqq);

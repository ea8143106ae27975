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
 * Sums are taken in the order of the hqq package, so zeros differ by no more than the last bits of the power (dev/group.h has
 * the rounds, with the same bits on every processor).  The two differ in when rounds end.  The
 * package stops all groups of a tensor together, once their common error no longer shrinks; so rows of other sequences and
 * later tokens decide how a row is stored.  Here each group takes the zero of the round with its least squared error,
 * which is at most the error of the round at which the package stops. */
#include "dev/group.h"
#include "kv/codec_affine.h"

#include <math.h>

#define ROUNDS 20

/* Returns the mean of a group, summed in the order of the hqq package.  The values of a row are summed in 8 lanes
 * with four chains each; those of a channel in chains of sixteen. */
static float mean_row(const float *x, uint32_t n)
{
    float p[32] = {0}, sum = 0;
    uint32_t lanes = n / 8 * 8, quads = n / 32 * 32;
    for (uint32_t i = 0; i < quads; i += 32)
        for (uint32_t l = 0; l < 32; l++)
            p[l] += x[i + l];
    for (uint32_t i = quads; i < lanes; i += 8)
        for (uint32_t l = 0; l < 8; l++)
            p[l] += x[i + l];
    for (uint32_t k = 8; k < 32; k += 8)
        for (uint32_t l = 0; l < 8; l++)
            p[l] += p[k + l];
    for (uint32_t i = lanes; i < n; i++)
        sum += x[i];
    for (uint32_t l = 0; l < 8; l++)
        sum += p[l];
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

static void quantize(struct affine_group *g)
{
    const struct group_kernels *k = group_here();
    float lo, hi, *z = g->work, *d = g->work + AFFINE_MOST;
    struct group_round r = {.dtype = g->dtype, .top = (float)g->max_q};
    k->span(g->x, g->n, &lo, &hi);
    r.step = hi - lo <= 1e-4f ? 1.0f : 1 / (hi - lo) * r.top;
    r.step = r.step > 2e4f ? 2e4f : r.step;
    if (isinf(kv_row_round(g->dtype, -lo * r.step))) r.step = 1; /* the zero could not be stored */
    r.scale = kv_row_round(g->dtype, 1 / r.step);
    r.zero = -lo * r.step;
    r.stored = kv_row_round(g->dtype, r.zero);
    float best = r.zero, least = INFINITY;
    k->round(&r, g->x, g->n, z, d);
    for (int round = 0; round < ROUNDS; round++) {
        float next = g->channel ? mean_channel(z, g->n) : mean_row(z, g->n);
        if (round && next == r.zero) break; /* further rounds would change nothing */
        r.zero = next;
        r.stored = kv_row_round(g->dtype, next);
        /* `left` is the squared error of the values as readers compute them.  It leaves out only their last rounding
         * to the type of the rows, which is too fine to matter. */
        float left = k->round(&r, g->x, g->n, z, d);
        if (!round || left < least) {
            best = next;
            least = left;
        }
    }
    k->steps(g->x, g->n, r.step, best, r.top, g->q);
    g->a = 1 / r.step;
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
};
KV_CODEC(hqq, &hqq);

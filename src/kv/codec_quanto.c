/* codec_quanto.c - the arithmetic of the "quanto" backend of Transformers: the range of a group, from its least to its
 * largest value, in 2^nbits - 1 steps.
 *
 *   scale = (max - min) / (2^nbits - 1), shift = -min
 *   code  = round((x + shift) / scale), halves to even, kept in [0, 2^nbits - 1]
 *   value = scale * code - shift
 *
 * Every operation is rounded to the type of the rows, in which quanto computes.  A constant group has scale 0 and codes 0,
 * and is stored exactly.  A group with a NaN or an infinity becomes NaN as a whole and affects no other group.  (If a
 * tensor is one single group, quanto makes every value a group of its own; kvik does not copy this.) */
#include "dev/four.h"
#include "kv/codec_affine.h"

#include <math.h>
#include <string.h>

/* Rounds half to even, for |x| < 2^22. */
static float nearest(float x)
{
    float big = x + 0x1.8p23f;
    return big - 0x1.8p23f;
}

static uint8_t code_of(enum dtype t, float x, float shift, float scale, float top)
{
    float q = kv_row_round(t, kv_row_round(t, x + shift) / scale);
    q = q > top ? top : q;
    /* a NaN (from 0 / 0, or from a group with a NaN) gives code 0 */
    return q > 0 ? (uint8_t)nearest(q) : 0;
}

/* Rounds four values to f16 as kv_row_round does.  Returns false if one is subnormal, too large or not finite; *x is
 * then undefined. */
static bool round_four(four *x)
{
    four_words u = (four_words)*x, size = u & 0x7fffffff;
    *x = (four)((u + 0xfff + (u >> 13 & 1)) & ~0x1fff);
    return four_all((size == 0) | ((size >= 0x38800000) & (size < 0x477ff000)));
}

/* Computes four codes by the operations of code_of.  Returns false if round_four returns false. */
static bool code_four(const float *x, float shift, float scale, float top, uint8_t *q)
{
    four v = four_load(x) + shift;
    if (!round_four(&v)) return false;
    v = v / scale;
    if (!round_four(&v)) return false;
    v = four_pick(v > top, v * 0 + top, v);
    for (int l = 0; l < 4; l++)
        q[l] = v[l] > 0 ? (uint8_t)nearest(v[l]) : 0;
    return true;
}

static void quantize(struct affine_group *g)
{
    enum dtype t = g->dtype;
    float lo = g->x[0], hi = g->x[0], top = (float)g->max_q;
    for (uint32_t i = 1; i < g->n && !isnan(lo); i++) {
        /* a comparison with NaN is false, so this keeps a NaN */
        if (!(g->x[i] >= lo)) lo = g->x[i];
        if (!(g->x[i] <= hi)) hi = g->x[i];
    }
    float scale = kv_row_round(t, kv_row_round(t, hi - lo) / top), shift = -lo;
    g->a = scale;
    g->b = shift;
    memset(g->q, 0, g->n);
    if (!(scale > 0) && hi == lo) return;
    for (uint32_t i = 0; i < g->n; i += 4) {
        uint32_t n = MIN(g->n - i, 4);
        if (t == DT_F16 && n == 4 && code_four(g->x + i, shift, scale, top, g->q + i)) continue;
        for (uint32_t l = 0; l < n; l++)
            g->q[i + l] = code_of(t, g->x[i + l], shift, scale, top);
    }
}

static int check(const struct kv_codec_options *o, bool key)
{
    int32_t nbits = o->value[AFFINE_NBITS], axis = o->value[AFFINE_AXIS];
    if (nbits != 2 && nbits != 4)
        return ERR(ARG, "nbits %d: backend \"quanto\" has 2 and 4 bits; hqq has 1, 2, 3, 4 and 8",
                   nbits);
    if (axis != 0 && axis != -1)
        return ERR(ARG, "%s %d: backend \"quanto\" has axes 0 and -1",
                   key ? "axis_key" : "axis_value", axis);
    return affine_check_group(o->value[AFFINE_GROUP]);
}

static int open_plane(const struct kv_codec_options *o, const struct kv_shape *s, bool key,
                      uint32_t tile, struct kv_codec **out)
{
    bool channel = o->value[AFFINE_AXIS] == -1;
    struct affine_spec spec = {
        .name = "quanto",
        .bits = (uint32_t)o->value[AFFINE_NBITS],
        .group = (uint32_t)o->value[AFFINE_GROUP],
        .channel = channel,
        .axis = key       ? channel ? "axis_key -1" : "axis_key 0"
                : channel ? "axis_value -1"
                          : "axis_value 0",
        .quantize = quantize,
        .encoder = KV_BY_RANGE,
    };
    return affine_open(&spec, s, tile, out);
}

static const struct kv_codec_kind quanto = {
    .name = "quanto",
    .turns = true,
    .option = affine_options,
    .n_options = AFFINE_OPTIONS,
    .check = check,
    .open = open_plane,
    .close = affine_close,
};
KV_CODEC(quanto, &quanto);

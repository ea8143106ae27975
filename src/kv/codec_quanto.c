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
#include "dev/group.h"
#include "kv/codec_affine.h"

#include <string.h>

static void quantize(struct affine_group *g)
{
    const struct group_kernels *k = group_here();
    enum dtype t = g->dtype;
    float lo, hi, top = (float)g->max_q;
    k->span(g->x, g->n, &lo, &hi);
    float scale = kv_row_round(t, kv_row_round(t, hi - lo) / top), shift = -lo;
    g->a = scale;
    g->b = shift;
    if (!(scale > 0) && hi == lo)
        memset(g->q, 0, g->n);
    else
        k->ranges(t, g->x, g->n, shift, scale, top, g->q);
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
};
KV_CODEC(quanto, &quanto);

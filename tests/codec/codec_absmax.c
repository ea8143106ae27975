/* codec_absmax.c - a codec of the tests, and the example of docs/ADDING-A-CODEC.md: 8 bits in signed steps around
 * zero, in groups along a KV row.  codec_affine.c divides tiles into groups, packs and unpacks. */
#include "kv/codec_affine.h"

#include <math.h>

enum { GROUP, OPTIONS };
static const struct kv_codec_option options[OPTIONS] = {
    [GROUP] = {"q_group_size", 1, AFFINE_MOST, 64},
};

/* Turns n values x into codes q, and a, b: value = a * code - b. */
static void quantize(struct affine_group *g)
{
    float top = 0;
    for (uint32_t i = 0; i < g->n && !isnan(top); i++) /* a NaN stays, and shows in the result */
        if (!(fabsf(g->x[i]) <= top)) top = fabsf(g->x[i]);
    g->a = kv_row_round(g->dtype, top / 127);
    g->b = g->a * 128;
    for (uint32_t i = 0; i < g->n; i++) {
        float q = g->a > 0 && isfinite(g->a) ? rintf(g->x[i] / g->a) : 0;
        g->q[i] = (uint8_t)(128 + (int)fminf(fmaxf(q, -127), 127));
    }
}

static int check(const struct kv_codec_options *o, bool key)
{
    (void)key;
    return affine_check_group(o->value[GROUP]);
}

static int open_plane(const struct kv_codec_options *o, const struct kv_shape *s, bool key,
                      uint32_t tile, struct kv_codec **out)
{
    struct affine_spec spec = {.name = "absmax",
                               .bits = 8,
                               .group = (uint32_t)o->value[GROUP],
                               .axis = key ? "keys" : "values",
                               .quantize = quantize};
    return affine_open(&spec, s, tile, out);
}

static const struct kv_codec_kind absmax = {
    .name = "absmax",
    .option = options,
    .n_options = OPTIONS,
    .check = check,
    .open = open_plane,
};
KV_CODEC(absmax, &absmax);

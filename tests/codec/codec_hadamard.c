/* codec_hadamard.c - a codec of the tests, and the example of docs/ADDING-A-CODEC.md for a rotation: rows are turned, and
 * stored in groups along a KV row, from the least to the largest value.  codec_rotated.c turns, codec_affine.c stores. */
#include "kv/codec_affine.h"
#include "kv/codec_rotated.h"

#include <math.h>

enum { NBITS, GROUP, SEED, OPTIONS };
static const struct kv_codec_option options[OPTIONS] = {
    [NBITS] = {"nbits", 1, 8, 4},
    [GROUP] = {"q_group_size", 1, AFFINE_MOST, 32},
    [SEED] = {"rotation_seed", 0, 15, 1},
};

static void quantize(struct affine_group *g)
{
    float lo = g->x[0], hi = g->x[0];
    for (uint32_t i = 1; i < g->n && !isnan(lo); i++) {
        if (!(g->x[i] >= lo)) lo = g->x[i]; /* keeps a NaN */
        if (!(g->x[i] <= hi)) hi = g->x[i];
    }
    g->a = kv_row_round(g->dtype, (hi - lo) / (float)g->max_q);
    g->b = -lo;
    for (uint32_t i = 0; i < g->n; i++) {
        float q = g->a > 0 && isfinite(g->a) ? rintf((g->x[i] - lo) / g->a) : 0;
        g->q[i] = (uint8_t)fminf(fmaxf(q, 0), (float)g->max_q);
    }
}

static int check(const struct kv_codec_options *o, bool key)
{
    (void)key;
    if (!affine_bits((uint32_t)o->value[NBITS]))
        return ERR(ARG, "nbits %d: codes have 1, 2, 3, 4 or 8 bits", o->value[NBITS]);
    return affine_check_group(o->value[GROUP]);
}

static int open_plane(const struct kv_codec_options *o, const struct kv_shape *s, bool key,
                      uint32_t tile, struct kv_codec **out)
{
    struct affine_spec spec = {.name = "hadamard",
                               .bits = (uint32_t)o->value[NBITS],
                               .group = (uint32_t)o->value[GROUP],
                               .axis = key ? "keys" : "values",
                               .quantize = quantize};
    struct kv_codec *stored;
    TRY(affine_open(&spec, s, tile, &stored));
    return rotated_open(stored, affine_close, (uint32_t)o->value[SEED], s, out);
}

static const struct kv_codec_kind hadamard_kind = {
    .name = "hadamard",
    .option = options,
    .n_options = OPTIONS,
    .check = check,
    .open = open_plane,
    .close = rotated_close,
};
KV_CODEC(hadamard, &hadamard_kind);

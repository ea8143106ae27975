/* codec_hadamard.c - a codec of the tests, and the example of docs/ADDING-A-CODEC.md for a rotation: rows are turned, and
 * stored in groups along a KV row, from the least to the largest value.  codec_rotated.c turns, codec_affine.c stores. */
#include "kv/codec_affine.h"
#include "kv/codec_rotated.h"

#include <math.h>

enum { NBITS, GROUP, SEED, ZERO, OPTIONS };
static const struct kv_codec_option options[OPTIONS] = {
    [NBITS] = {"nbits", 1, 8, 4},
    [GROUP] = {"q_group_size", 1, AFFINE_MOST, 32},
    [SEED] = {"rotation_seed", 0, 15, 1},
    [ZERO] = {"around_zero", 0, 1, 0}, /* steps around zero, as ggml's q4_0 has them */
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

/* The value largest in size is a code of its own: with 4 bits d = x / -8, code = trunc(x / d + 8.5). */
static void quantize_around_zero(struct affine_group *g)
{
    float top = 0, half = (float)(g->max_q / 2 + 1);
    for (uint32_t i = 0; i < g->n && !isnan(top); i++)
        if (!(fabsf(g->x[i]) <= fabsf(top))) top = g->x[i]; /* a NaN stays */
    g->a = kv_row_round(g->dtype, top / -half);
    g->b = g->a * half;
    for (uint32_t i = 0; i < g->n; i++) {
        float q = g->a != 0 && isfinite(g->a) ? truncf(g->x[i] / g->a + half + 0.5f) : half;
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
                               .setting = o->value[ZERO],
                               .quantize = o->value[ZERO] ? quantize_around_zero : quantize};
    struct kv_codec *stored;
    TRY(affine_open(&spec, s, tile, &stored));
    return rotated_open(stored, (uint32_t)o->value[SEED], s, out);
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

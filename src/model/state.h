/* state.h - the words of recurrent layers: a causal convolution, a selective scan, a gated delta rule, and maps
 * around them.  The first three keep their state in the planes of a site of kind KV_STATE.  So a fork shares the
 * state, and a snapshot is a page that stays. */
#pragma once
#include "model/model.h"

struct mod_conv {
    uint32_t site, plane;
    struct dev_conv conv; /* with the shapes that dev_conv takes */
};
void mod_conv(struct graph *g, const struct mod_conv *a);
struct mod_scan {
    uint32_t site, plane;
    struct dev_scan scan;
};
void mod_scan(struct graph *g, const struct mod_scan *a);
struct mod_delta {
    uint32_t site, plane;
    struct dev_delta delta;
};
void mod_delta(struct graph *g, const struct mod_delta *a);
/* Copies columns: out[i * width + c] = x[i * stride + at + c] for i < parts, c < width.  ldx, ldo: values per token. */
struct mod_cut {
    const float *x;
    size_t ldx;
    uint32_t parts, stride, at, width;
    float *out;
    size_t ldo;
};
void mod_cut(struct graph *g, const struct mod_cut *a);
/* x = 1 / (1 + exp(-x)) */
void mod_sigmoid(struct graph *g, float *x, uint32_t width);
/* x *= by, [width] of one value per token. */
void mod_scale_rows(struct graph *g, float *x, const float *by, uint32_t width);
/* x = min(max(softplus(x + bias), lo), hi): the time steps of a scan. */
void mod_softplus(struct graph *g, float *x, const float *bias, float lo, float hi, uint32_t width);
/* out = x beside y, [2 * width] of [width] each. */
void mod_join(struct graph *g, const float *x, const float *y, uint32_t width, float *out);
/* out = x, [width]. */
void mod_copy(struct graph *g, const float *x, uint32_t width, float *out);
/* gate = gelu(gate) * up, with the erf form of GELU. */
void mod_gelu_erf_mul(struct graph *g, float *gate, const float *up, uint32_t width);
/* x *= w, [width], for each token. */
void mod_mul_row(struct graph *g, float *x, const float *w, uint32_t width);

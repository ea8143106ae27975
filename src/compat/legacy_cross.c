/* legacy_cross.c - the rows of an encoder in the legacy form: for each layer a cross key and a cross value
 * [batch][heads][rows][dim], and a mask that says which columns are rows.  Exported rows are in the first columns. */
#include "compat/padded.h"

#include <string.h>

uint32_t legacy_layers(const struct exec *x)
{
    return x->encode ? x->m->n_layers : x->m->n_sites;
}

/* Returns the group with the encoder's rows that a layer reads. */
static const struct kv_group *group_of(const struct exec *x, uint32_t layer)
{
    uint32_t i = 0;
    while (i + 1 < x->m->n_sites &&
           (x->m->site[i].kind != KV_FROZEN || x->m->site[i].layer != layer))
        i++;
    return exec_group(x, i);
}

int legacy_cross_new(const struct exec *x, const kv_seq *seq, kvik_legacy *l)
{
    size_t cells;
    for (uint32_t b = 0; b < l->batch; b++)
        l->encoder_length = MAX(l->encoder_length, kv_cross(x->kv, seq[b]));
    if (!ck_mul(l->batch, MAX(l->encoder_length, 1), &cells))
        return ERR(LIMIT, "%u rows of an encoder are too many", (uint32_t)l->encoder_length);
    l->cross = mem_array(MAX(l->n_layers, 1), sizeof *l->cross);
    l->encoder_mask = mem_alloc(MAX(cells, 1));
    if (!l->cross || !l->encoder_mask) return ERR_NOMEM;
    for (uint32_t b = 0; b < l->batch; b++)
        memset(l->encoder_mask + b * l->encoder_length, 1, kv_cross(x->kv, seq[b]));
    for (uint32_t i = 0; i < l->n_layers; i++) {
        const struct kv_group *g = group_of(x, i);
        l->cross[i] = (kvik_legacy_layer){.heads = g->plane[0].shape.heads,
                                          .tokens = (uint32_t)l->encoder_length,
                                          .dim_k = g->plane[0].shape.dim,
                                          .dim_v = g->plane[1].shape.dim};
        TRY(legacy_layer_new(l, &l->cross[i]));
    }
    return 0;
}

void legacy_cross_pass(const kvik_legacy *l, uint32_t b, const kvik_legacy_layer *y,
                       const kvik_layer_rows *r, bool out)
{
    const uint8_t *mask = l->encoder_mask + b * l->encoder_length;
    for (int v = 0; v < 2; v++) {
        const kvik_plane *p = kvik_layer_plane(r, v ? "cross_values" : "cross_keys");
        uint32_t dim = v ? y->dim_v : y->dim_k;
        for (uint32_t h = 0; h < y->heads; h++)
            for (uint32_t c = 0, k = 0; c < y->tokens; c++) {
                if (!mask[c]) continue;
                float *row = (float *)p->data + ((size_t)h * p->dim[1] + k++) * dim;
                float *cell =
                    (v ? y->values : y->keys) + (((size_t)b * y->heads + h) * y->tokens + c) * dim;
                memcpy(out ? cell : row, out ? row : cell, dim * sizeof *row);
            }
    }
}

int legacy_cross_check(const struct exec *x, const kvik_legacy *in)
{
    if (!in->cross || !in->encoder_length)
        return ERR(ARG, "the model has an encoder, and its keys and values are missing (cross)");
    if (in->encoder_length > x->encoder_rows)
        return ERR(LIMIT, "%llu rows of an encoder, the cache was opened for %u",
                   (unsigned long long)in->encoder_length, x->encoder_rows);
    for (uint32_t i = 0; i < in->n_layers; i++) {
        const kvik_legacy_layer *y = &in->cross[i];
        const struct kv_group *g = group_of(x, i);
        const struct kv_shape *k = &g->plane[0].shape, *v = &g->plane[1].shape;
        if (y->heads != k->heads || y->dim_k != k->dim || y->dim_v != v->dim ||
            y->tokens != in->encoder_length || !y->keys || !y->values)
            return ERR(ARG,
                       "cross layer %u has %u columns of %u heads of %u and %u; %llu of %u of %u "
                       "and %u are needed",
                       i, y->tokens, y->heads, y->dim_k, y->dim_v,
                       (unsigned long long)in->encoder_length, k->heads, k->dim, v->dim);
    }
    return 0;
}

int legacy_cross_in(const kvik_legacy *l, uint32_t b, const kvik_legacy_layer *y,
                    kvik_layer_rows *r)
{
    uint32_t n = padded_ones(l->encoder_mask + b * l->encoder_length, (uint32_t)l->encoder_length);
    kvik_plane *all = mem_grow(r->plane, r->n_planes + 2u, sizeof *all);
    if (!all) return ERR_NOMEM;
    r->plane = all;
    for (int v = 0; v < 2; v++) {
        uint32_t dim = v ? y->dim_v : y->dim_k;
        kvik_plane *p = &r->plane[r->n_planes];
        *p = (kvik_plane){.name = v ? "cross_values" : "cross_keys",
                          .n_dims = 3,
                          .dim = {y->heads, n, dim},
                          .data = mem_array(MAX(n, 1), (size_t)y->heads * dim * sizeof(float))};
        if (!p->data) return ERR_NOMEM;
        r->n_planes++;
    }
    legacy_cross_pass(l, b, y, r, false);
    return 0;
}

/* plan_few.c - a few computed tokens in a dynamic cache, the reference, which a plan uses twice.
 *
 * Their KV rows are exported, repeated up to any length, and imported into a cache that is planned.  The cache quantizes
 * them or moves them to disk as it does with a prompt, so steps can be measured at the end of a long text that nobody
 * computed.  Attention to such rows has no meaning, but it reads as many bytes and takes as long as attention to a text.
 *
 * And the reference decodes in turn with each planned cache.  The speed of a machine changes from second to second, by more
 * than most strategies differ; the ratio of steps in turn does not. */
#include "cli/plan.h"

#include "kvik_compat.h"

#include <string.h>

/* The most bytes of rows in f32 that an import has: a longer text takes too long to import. */
#define MOST_BYTES ((size_t)2 << 30)

struct repeated {
    kvik_export in;
    kvik_layer_rows *layer; /* [n_layers] */
    kvik_plane *plane;      /* of all layers */
    int32_t *position;      /* [length] */
    float *rows;            /* of every plane that has rows */
};

static bool is_of_rows(const kvik_plane *p)
{
    return !strcmp(p->name, "keys") || !strcmp(p->name, "values");
}

/* Returns the plane with the most values of a token, and counts all planes.  NULL: no layer has rows. */
static const kvik_plane *widest_plane(const kvik_export *few, size_t *n_planes)
{
    const kvik_plane *widest = NULL;
    *n_planes = 0;
    for (uint32_t i = 0; i < few->n_layers; i++)
        for (uint32_t k = 0; k < few->layer[i].n_planes; k++, ++*n_planes) {
            const kvik_plane *p = &few->layer[i].plane[k];
            if (is_of_rows(p) && p->dim[1] &&
                (!widest ||
                 (size_t)p->dim[0] * p->dim[2] > (size_t)widest->dim[0] * widest->dim[2]))
                widest = p;
        }
    return widest;
}

static void repeated_close(struct repeated *r)
{
    mem_free(r->layer);
    mem_free(r->plane);
    mem_free(r->position);
    mem_free(r->rows);
}

/* Repeats the rows of each head up to n. */
static void repeat(const kvik_plane *p, uint32_t n, float *out)
{
    size_t dim = p->dim[2];
    for (size_t h = 0; h < p->dim[0]; h++)
        for (size_t i = 0; i < n; i++)
            memcpy(out + (h * n + i) * dim,
                   (const float *)p->data + (h * p->dim[1] + i % p->dim[1]) * dim,
                   dim * sizeof *out);
}

/* Makes an export of n tokens.  A layer with a window is given all rows, of which an import takes those that it needs. */
static int repeated_open(const kvik_export *few, uint32_t n, struct repeated *r)
{
    size_t n_planes;
    const kvik_plane *widest = widest_plane(few, &n_planes);
    size_t values = widest ? (size_t)widest->dim[0] * widest->dim[2] * n : 0;
    if (values > MOST_BYTES / sizeof(float) / MAX(n_planes, 1))
        return ERR(FULL, "the rows of %u tokens are more than are repeated", n);
    *r = (struct repeated){.in = *few,
                           .layer = mem_array(few->n_layers, sizeof *r->layer),
                           .plane = mem_array(MAX(n_planes, 1), sizeof *r->plane),
                           .position = mem_array(n, sizeof *r->position),
                           .rows = mem_array(MAX(values, 1), sizeof *r->rows)};
    if (!r->layer || !r->plane || !r->position || !r->rows) {
        repeated_close(r);
        return ERR_NOMEM;
    }
    if (widest) repeat(widest, n, r->rows);
    for (uint32_t i = 0; i < n; i++)
        r->position[i] = (int32_t)i;
    kvik_plane *next = r->plane;
    for (uint32_t i = 0; i < few->n_layers; i++) {
        kvik_layer_rows *l = &r->layer[i];
        *l = few->layer[i];
        l->plane = next;
        for (uint32_t k = 0; k < l->n_planes; k++, next++) {
            *next = few->layer[i].plane[k];
            if (!is_of_rows(next)) continue;
            next->dim[1] = l->rows = n;
            next->data = r->rows;
            l->position = r->position;
        }
    }
    r->in.layer = r->layer;
    r->in.length = n;
    r->in.ids = NULL; /* not known */
    r->in.regime = 0;
    return 0;
}

int plan_few_open(struct plan_few *f, kvik_model *m, const kvik_cache_config *config)
{
    int32_t ids[PLAN_FEW];
    uint32_t vocab = kvik_model_vocab(m);
    kvik_span span = {
        .size = sizeof span, .ids = ids, .n = MIN(PLAN_FEW, config->max_cache_len / 2)};
    *f = (struct plan_few){0};
    for (uint32_t i = 0; i < PLAN_FEW; i++)
        ids[i] = (int32_t)((i * 2654435761u >> 8) % vocab);
    int e = kvik_cache_open(m, config, &f->cache);
    if (e >= 0) e = kvik_cache_new(f->cache, &f->seq);
    span.seq = f->seq;
    if (e >= 0) e = kvik_forward(f->cache, &span, 1, false, NULL);
    if (e < 0) plan_few_close(f);
    return e;
}

void plan_few_close(struct plan_few *f)
{
    kvik_export_free(f->rows);
    kvik_cache_close(f->cache);
    *f = (struct plan_few){0};
}

int plan_few_steps(const struct plan_few *f, uint32_t n, float *logits, double *seconds)
{
    const int32_t id = 1;
    kvik_span span = {.size = sizeof span, .ids = &id, .n = 1};
    TRY(kvik_cache_fork(f->cache, f->seq, &span.seq));
    int e = 0;
    for (uint32_t i = 0; e >= 0 && i < n; i++) {
        double begun = now_seconds();
        e = kvik_forward(f->cache, &span, 1, false, logits);
        seconds[i] = now_seconds() - begun;
    }
    (void)kvik_cache_drop(f->cache, span.seq);
    return e;
}

int plan_few_repeat(struct plan_few *f, kvik_cache *c, uint32_t n, kvik_seq *out)
{
    struct repeated r;
    if (!f->rows) TRY(kvik_cache_export(f->cache, f->seq, &f->rows));
    TRY(repeated_open(f->rows, n, &r));
    int e = kvik_cache_import(c, &r.in, out);
    repeated_close(&r);
    return e;
}

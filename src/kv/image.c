/* image.c - which chunks a sequence has, their sizes, and how their bytes move out of and into a
 * page.
 *
 * Saving and loading walk the same list of chunks (image_next).  So the saved chunks are exactly
 * those that a load asks for, whatever a file says. */
#include "dev/dev.h"
#include "kv/codec.h"
#include "kv/image_int.h"

#include <stdio.h>
#include <string.h>

bool kv_foreign(const struct kv *kv, kv_seq handle)
{
    struct seq *s;
    return seq_find(kv, handle, &s) >= 0 && (s->foreign || s->n_borrows);
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "chunks are the bytes of pages");

uint32_t kv_n_groups(const struct kv *kv)
{
    return kv->n_groups;
}

static void put(char *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(char *out, const char *fmt, ...)
{
    size_t n = strlen(out);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(out + n, KV_GROUP_TEXT - n, fmt, ap);
    va_end(ap);
}

static void group_text(const struct kv_group *g, char out[KV_GROUP_TEXT])
{
    static const char *const kind[] = {"rows", "state", "frozen rows"};
    static const char *const layout[] = {"", " by rows", " flat"};
    const struct kv_policy *p = &g->policy;
    out[0] = '\0';
    put(out, "%u layers of %s", g->n_sites, kind[p->kind]);
    if (g->layers[0]) put(out, " (%s)", g->layers);
    if (p->window) put(out, ", window %u", p->window);
    if (p->chunk) put(out, ", chunk %u", p->chunk);
    if (p->sinks) put(out, ", sinks %u", p->sinks);
    if (g->seal.tile)
        put(out, ", tiles of %u after %u, residual %u", g->seal.tile, g->seal.lead, g->seal.resid);
    for (uint32_t i = 0; i < g->n_planes; i++) {
        const struct kv_plane *pl = &g->plane[i];
        put(out, "; %s %ux%u %s%s", pl->name ? pl->name : "?", pl->shape.heads, pl->shape.dim,
            dtype_name(pl->shape.dtype), layout[pl->shape.layout]);
        if (!pl->codec) continue;
        char codec[KV_CODEC_TEXT];
        int n = kv_codec_describe(pl->codec, codec); /* kv_open has checked that this works */
        put(out, " %s%s%s", pl->codec->name, n > 0 ? " " : "", codec);
    }
}

void kv_group_text(const struct kv *kv, uint32_t gi, char out[KV_GROUP_TEXT])
{
    group_text(&kv->group[gi].c, out);
}

void kv_group_text_at(const struct kv *kv, uint32_t gi, uint32_t rung, char out[KV_GROUP_TEXT])
{
    struct kv_group g = kv->group[gi].c;
    uint32_t at = MIN(rung, g.n_rungs);
    for (uint32_t i = 0; at && i < g.n_planes; i++)
        g.plane[i].codec = g.rung[at - 1].codec[i];
    if (at) g.seal = g.rung[at - 1].seal;
    group_text(&g, out);
}

static uint32_t unit_rows(const struct group *g, uint32_t form)
{
    return form == RAW ? KV_STRIP : MAX(g->rows[SEALED], KV_STRIP);
}

static uint32_t most_rows(const struct group *g, uint32_t form)
{
    return g->c.policy.kind == KV_STATE ? 1 : unit_rows(g, form);
}

uint32_t kv_chunk_most(const struct kv *kv, uint32_t group, uint32_t form)
{
    return most_rows(&kv->group[group], form);
}

/* Returns the first row of the strip or tile that has row `from`, or the first row behind the leading rows if that
 * comes later. */
static uint32_t chunk_start(const struct image_walk *w, uint32_t from)
{
    uint32_t unit = w->form == RAW ? KV_STRIP : w->g->rows[SEALED];
    return MAX(from, w->form == RAW ? w->lead : w->g->c.seal.lead) / unit * unit;
}

void image_first(struct image_walk *w, const struct group *g, const struct seq *s, uint32_t gi,
                 uint32_t form)
{
    *w = (struct image_walk){.g = g, .sg = &s->g[gi], .gi = gi, .form = form};
    if (!has_form(g, form)) return;
    if (g->c.policy.kind == KV_STATE) { /* the chunk at row n is the state after n rows */
        w->from = s->len;
        w->end = form == RAW && s->len ? s->len + 1 : 0;
        return;
    }
    uint32_t rows = seq_rows(g, s);
    struct need n = need_at(g, s, rows, 0, s->turn_open);
    w->end = form == RAW ? rows : rows - rows % g->rows[SEALED];
    w->lead = form == RAW ? MIN((g->keep_rows + KV_STRIP - 1) / KV_STRIP * KV_STRIP, rows) : 0;
    w->from = chunk_start(w, n.from[form]);
}

/* Computes the rows [*a, *b) of the k-th range: the leading rows, the newest rows, or the rows of a snapshot.  Raw
 * ranges begin and end at the bounds of strips. */
static void range(const struct image_walk *w, uint32_t k, uint32_t *a, uint32_t *b)
{
    const struct group *g = w->g;
    *a = k ? w->from : 0;
    *b = k ? w->end : w->lead;
    if (k < 2) return;
    const struct keep *keep = &w->sg->keep[k - 2];
    if (g->c.policy.kind == KV_STATE) {
        *a = keep->pos;
        *b = keep->pos + 1;
    } else {
        uint32_t tile = g->rows[SEALED];
        *a = chunk_start(w, keep->from[w->form]);
        *b = w->form == RAW ? (keep->pos + KV_STRIP - 1) / KV_STRIP * KV_STRIP
                            : keep->pos - keep->pos % tile;
    }
    *b = MIN(*b, w->end);
}

/* Computes the first adjacent rows [*from, *to) at or after w->at that ranges have.  Rows from `stop` on may be
 * missing. */
static void run_of(const struct image_walk *w, uint32_t stop, uint32_t *from, uint32_t *to)
{
    uint32_t n = 2 + w->sg->n_keeps, a, b;
    *from = UINT32_MAX;
    for (uint32_t k = 0; k < n; k++) {
        range(w, k, &a, &b);
        if (b > w->at && a < b) *from = MIN(*from, MAX(a, w->at));
    }
    *to = *from;
    for (uint32_t before = *to + 1; before != *to && *to < stop;) {
        before = *to;
        for (uint32_t k = 0; k < n; k++) {
            range(w, k, &a, &b);
            if (a <= *to && *to < b) *to = b;
        }
    }
}

bool image_next(struct image_walk *w, struct kv_chunk *c)
{
    bool state = w->g->c.policy.kind == KV_STATE;
    uint32_t unit = state ? 1 : unit_rows(w->g, w->form), from, to;
    run_of(w, 0, &from, &to);
    if (from >= w->end) return false;
    uint32_t stop = (from / unit + 1) * unit;
    w->at = from;
    run_of(w, stop, &from, &to);
    *c = (struct kv_chunk){w->gi, w->form, from, MIN(stop, to) - from};
    w->at = from + c->n;
    return true;
}

size_t image_bytes(const struct group *g, const struct kv_chunk *c)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < g->c.n_planes; i++) {
        const struct kv_plane *p = &g->c.plane[i];
        size_t row = (size_t)p->shape.heads * p->shape.dim * dtype_size(p->shape.dtype);
        sum += c->form == RAW ? row * c->n
                              : p->codec->bytes(p->codec, &p->shape) * (c->n / g->rows[SEALED]);
    }
    return sum * g->c.n_sites;
}

size_t image_most(const struct group *g, uint32_t form)
{
    const struct kv_chunk c = {.form = form, .n = most_rows(g, form)};
    return has_form(g, form) ? image_bytes(g, &c) : 0;
}

static void copy(struct dev_queue *work, unsigned char *page, unsigned char *chunk, size_t n,
                 bool in)
{
    if (in)
        dev_put(work, page, chunk, n);
    else
        dev_get(work, chunk, page, n);
}

/* Moves rows [first, first + n) of one plane of a raw block; returns the bytes moved. */
static size_t move_raw(struct dev_queue *work, const struct group *g, const struct kv_shape *s,
                       uint32_t first, uint32_t n, unsigned char *page, unsigned char *chunk,
                       bool in)
{
    size_t size = dtype_size(s->dtype), row = s->dim * size, head = row * g->rows[RAW];
    unsigned char *from = chunk;
    for (uint32_t h = 0; h < s->heads; h++, page += head) {
        /* the same offset for strips, because `first` is a multiple of 16 */
        unsigned char *at = page + first * row;
        if (s->layout != KV_STRIPS || n == KV_STRIP) {
            copy(work, at, chunk, n * row, in);
            chunk += n * row;
            continue;
        }
        for (uint32_t d = 0; d < s->dim; d++, at += KV_STRIP * size, chunk += n * size)
            copy(work, at, chunk, n * size, in);
    }
    return (size_t)(chunk - from);
}

size_t image_move(struct dev_queue *work, const struct group *g, const struct kv_chunk *c,
                  unsigned char *page, size_t span, unsigned char *chunk, bool in)
{
    unsigned char *from = chunk;
    for (uint32_t site = 0; site < g->c.n_sites; site++)
        for (uint32_t i = 0; i < g->c.n_planes; i++) {
            const struct kv_plane *p = &g->c.plane[i];
            unsigned char *at = page + site * span + g->offset[c->form][i];
            size_t n;
            if (c->form == SEALED) {
                copy(work, at, chunk, n = p->codec->bytes(p->codec, &p->shape), in);
            } else if (g->c.policy.kind == KV_STATE) {
                n = (size_t)p->shape.heads * p->shape.dim * dtype_size(p->shape.dtype);
                copy(work, at, chunk, n, in);
            } else {
                n = move_raw(work, g, &p->shape, c->row % g->rows[RAW], c->n, at, chunk, in);
            }
            chunk += n;
        }
    return (size_t)(chunk - from);
}

void kv_chunk_cut(const struct kv *kv, const struct kv_chunk *whole, const struct kv_chunk *part,
                  const void *data, void *out)
{
    const struct group *g = &kv->group[whole->group];
    const unsigned char *from = data;
    unsigned char *to = out;
    uint32_t n = part->n;
    if (whole->form == SEALED) { /* tile by tile */
        struct kv_chunk before = {.form = SEALED, .n = part->row - whole->row};
        memcpy(out, from + image_bytes(g, &before), image_bytes(g, part));
        return;
    }
    for (uint32_t i = 0; i < g->c.n_sites * g->c.n_planes; i++) {
        const struct kv_shape *s = &g->c.plane[i % g->c.n_planes].shape;
        size_t size = dtype_size(s->dtype), outer = s->heads, inner = s->dim * size;
        if (s->layout == KV_STRIPS) {
            outer *= s->dim;
            inner = size;
        }
        for (size_t k = 0; k < outer; k++, from += whole->n * inner, to += n * inner)
            memcpy(to, from, n * inner);
    }
}

/* save.c - saving: a sequence leaves the store chunk by chunk.
 *
 * Pages in memory are packed in place.  Pages in the tier are read into a buffer outside the
 * budget, so saving moves no page and changes nothing. */
#include "dev/dev.h"
#include "kv/image_int.h"

struct saving {
    struct kv *kv;
    const struct seq *s;
    struct kv_sink *sink;
    unsigned char *chunk, *page; /* page: NULL if all pages are in memory */
};

/* Packs the part of a chunk that lies in the page of `cell`, in memory or in the tier. */
static int save_page(const struct saving *v, struct group *g, const struct kv_chunk *c,
                     uint32_t cell, unsigned char *out, size_t *n)
{
    struct pages *p = &g->form[c->form];
    bool state = g->c.policy.kind == KV_STATE;
    uint32_t id =
        state ? state_after(v->kv, g, v->s, c->row) : seq_table(v->kv, g, c->form, v->s)[cell];
    unsigned char *at = page_at(p, 0, id);
    size_t span = p->span;
    struct dev_queue *work = v->kv->work;
    if (p->page[id].spilled) {
        TRY(spill_read(v->kv, p, id, v->page));
        at = v->page;
        span = p->grain;
        work = &dev_host_queue;
    }
    *n = image_move(work, g, c, at, span, out, false);
    return dev_finish(work);
}

/* Asks the sink: 1 if it already has this chunk, which fills one page; else 0, or an error. */
static int save_shared(const struct saving *v, const struct group *g, const struct kv_chunk *c)
{
    uint32_t rows = g->rows[c->form];
    if (!v->sink->shared || g->c.policy.kind == KV_STATE || rows < KV_STRIP) return 0;
    return v->sink->shared(v->sink, c, seq_table(v->kv, g, c->form, v->s)[c->row / rows]);
}

static int save_chunk(const struct saving *v, struct group *g, const struct kv_chunk *c)
{
    size_t at = 0, n = 0;
    int e = save_shared(v, g, c);
    if (e) return MIN(e, 0);
    if (c->form == SEALED)
        for (uint32_t row = c->row; row < c->row + c->n; row += g->rows[SEALED], at += n)
            TRY(save_page(v, g, c, row / g->rows[SEALED], v->chunk + at, &n));
    else
        TRY(save_page(v, g, c, g->c.policy.kind == KV_STATE ? 0 : c->row / g->rows[RAW], v->chunk,
                      &at));
    return v->sink->chunk(v->sink, c, v->chunk, at);
}

static int save_all(const struct saving *v)
{
    struct kv_chunk c;
    for (uint32_t gi = 0; gi < v->kv->n_groups; gi++)
        for (uint32_t f = 0; f < FORMS; f++) {
            struct image_walk w;
            image_first(&w, &v->kv->group[gi], v->s, gi, f);
            while (image_next(&w, &c))
                TRY(save_chunk(v, &v->kv->group[gi], &c));
        }
    return 0;
}

static int buffers(struct saving *v)
{
    size_t chunk = 1, page = 0;
    for (uint32_t gi = 0; gi < v->kv->n_groups; gi++)
        for (uint32_t f = 0; f < FORMS; f++) {
            const struct group *g = &v->kv->group[gi];
            chunk = MAX(chunk, image_most(g, f));
            if (g->form[f].n_spilled) page = MAX(page, g->form[f].bytes);
        }
    v->chunk = mem_alloc(chunk);
    v->page = page && v->chunk ? mem_alloc(page) : NULL;
    return v->chunk && (v->page || !page) ? 0 : ERR_NOMEM;
}

int kv_save(struct kv *kv, kv_seq handle, struct kv_sink *sink)
{
    struct seq *s;
    TRY(seq_idle(kv, handle, &s));
    if (s->n_borrows)
        return ERR(
            UNSUPPORTED,
            "cache: the sequence reads %u rows of other sequences (chunks at other positions), which a "
            "file cannot hold; compute the text, or crop it to the %u tokens before them",
            s->away, s->borrow[0].at);
    /* for each group two numbers, the number of its snapshots, and their lengths */
    uint32_t *unseen = mem_array(kv->n_groups, (3 + KV_KEEPS) * sizeof *unseen);
    struct saving v = {.kv = kv, .s = s, .sink = sink};
    int e = unseen ? buffers(&v) : ERR_NOMEM;
    uint32_t *n_keeps = unseen + 2 * kv->n_groups, *keep = n_keeps + kv->n_groups, n = 0;
    for (uint32_t gi = 0; e >= 0 && gi < kv->n_groups; gi++) {
        unseen[2 * gi] = s->g[gi].unseen;
        unseen[2 * gi + 1] = s->g[gi].raw_unseen;
        n_keeps[gi] = s->g[gi].n_keeps;
        for (uint32_t i = 0; i < n_keeps[gi]; i++)
            keep[n++] = s->g[gi].keep[i].pos;
    }
    struct kv_image im = {.len = s->len,
                          .cross = s->cross,
                          .n_turns = s->n_turns,
                          .turn_open = s->turn_open,
                          .foreign = s->foreign,
                          .salt = s->salt,
                          .tok = s->tok,
                          .turn = s->turn,
                          .unseen = unseen,
                          .n_keeps = n_keeps,
                          .keep = keep};
    if (e >= 0) e = sink->image(sink, &im);
    if (e >= 0) e = save_all(&v);
    mem_free(unseen);
    mem_free(v.chunk);
    mem_free(v.page);
    return MIN(e, 0);
}

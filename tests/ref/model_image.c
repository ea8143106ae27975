/* model_image.c - saving and loading in the model checker: a sequence is saved as an image and
 * loaded as another sequence with the same rows. Sources fail in the middle, and the store must
 * then be unchanged. */
#include "model_int.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNKS = 4096, ROOM = 1 << 21 };

static struct box { /* an image in memory */
    struct kv_sink sink;
    struct kv_source source;
    struct kv_image im;
    int32_t tok[LEN];
    struct kv_turn turn[LEN];
    uint32_t unseen[2 * GROUPS], n_keeps[GROUPS], keep[GROUPS * KV_KEEPS];
    struct kv_chunk chunk[CHUNKS];
    size_t at[CHUNKS], bytes[CHUNKS];
    uint32_t n, fail_at, asked;
    unsigned char data[ROOM];
    size_t used;
    kv_seq same;
    uint32_t n_groups;
    const struct kv *kv;
} box;

static int put_image(struct kv_sink *s, const struct kv_image *im)
{
    struct box *b = &box;
    (void)s;
    b->im = *im;
    memcpy(b->tok, im->tok, im->len * sizeof *b->tok);
    memcpy(b->turn, im->turn, im->n_turns * sizeof *b->turn);
    memcpy(b->unseen, im->unseen, 2 * b->n_groups * sizeof *b->unseen);
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_groups; i++)
        n += b->n_keeps[i] = im->n_keeps[i];
    memcpy(b->keep, im->keep, n * sizeof *b->keep);
    b->im.n_keeps = b->n_keeps;
    b->im.keep = b->keep;
    b->im.tok = b->tok;
    b->im.turn = b->turn;
    b->im.unseen = b->unseen;
    return 0;
}

static int put_chunk(struct kv_sink *s, const struct kv_chunk *c, const void *data, size_t bytes)
{
    struct box *b = &box;
    (void)s;
    if (b->n == CHUNKS || bytes > ROOM - b->used) return ERR(LIMIT, "the test's box is full");
    b->chunk[b->n] = *c;
    b->at[b->n] = b->used;
    b->bytes[b->n++] = bytes;
    memcpy(b->data + b->used, data, bytes);
    b->used += bytes;
    return 0;
}

static int give_chunk(struct kv_source *s, const struct kv_chunk *c, void *data, size_t bytes)
{
    struct box *b = &box;
    (void)s;
    if (++b->asked == b->fail_at) return ERR(CANCELLED, "the source fails");
    for (uint32_t i = 0; i < b->n; i++) {
        if (memcmp(&b->chunk[i], c, sizeof *c) != 0) continue;
        if (b->bytes[i] != bytes) return ERR(FORMAT, "%zu bytes, not %zu", b->bytes[i], bytes);
        memcpy(data, b->data + b->at[i], bytes);
        return 0;
    }
    for (uint32_t i = 0; i < b->n; i++) { /* with fewer snapshots some chunks are shorter */
        const struct kv_chunk *w = &b->chunk[i];
        bool starts = c->form ? w->row <= c->row : w->row == c->row;
        if (w->group != c->group || w->form != c->form || !starts || w->row + w->n < c->row + c->n)
            continue;
        kv_chunk_cut(b->kv, w, c, b->data + b->at[i], data);
        return 0;
    }
    return ERR(FORMAT, "group %u form %u rows %u+%u are not there", c->group, c->form, c->row,
               c->n);
}

/* The copy has the newest snapshots of the original: all of them, unless there was no room. */
static void want_keeps(struct model *m, const struct mseq *s, bool full)
{
    const struct seq *q = model_inside(m, s);
    const uint32_t *keep = box.keep;
    for (uint32_t gi = 0; gi < m->kv->n_groups; gi++) {
        uint32_t n = box.n_keeps[gi], has = q->g[gi].n_keeps;
        WANT(has <= n && (has == n || full), "snapshots of a loaded sequence", has, n);
        for (uint32_t i = 0; i < has; i++)
            WANT(q->g[gi].keep[i].pos == keep[n - has + i], "snapshot", q->g[gi].keep[i].pos, i);
        keep += n;
    }
}

static int give_same(struct kv_source *s, const struct kv_chunk *c, kv_seq *of)
{
    (void)c;
    (void)s;
    *of = box.same;
    return 1;
}

static bool tier_failed(const struct model *m, int e)
{
    return e == ERR_IO && m->tier && m->tier->failed;
}

/* The copy has fewer rows than the original: rows kept for trims are not saved. */
void model_op_image(struct model *m, struct mseq *a, struct mseq *b)
{
    kv_seq h = 0;
    if (m->tier) m->tier->failed = false;
    box.sink = (struct kv_sink){.image = put_image, .chunk = put_chunk};
    box.source = (struct kv_source){give_chunk, model_chance(m, 30) ? give_same : NULL};
    box.n = box.asked = 0;
    box.used = 0;
    box.same = a->handle;
    box.n_groups = m->kv->n_groups;
    box.kv = m->kv;
    if (!m->step->open) model_snapshot(m, m->shot[0]);
    int e = kv_save(m->kv, a->handle, &box.sink);
    if (e == ERR_LIMIT || tier_failed(m, e)) return;
    WANT(e == 0, "save", (uint64_t)-e, 0);
    if (!m->step->open) model_want_same(m, "a save changed something");
    box.fail_at = model_chance(m, 20) ? 1 + model_rnd(m, MAX(box.n, 1)) : 0;
    uint64_t evicted = m->kv->evictions;
    e = kv_load(m->kv, &box.im, &box.source, &h);
    if (e < 0) {
        WANT(h == 0, "a load that failed set its result", h, 0);
        WANT((e == ERR_BUSY && m->step->open) || (e == ERR_LIMIT && !b) || e == ERR_FULL ||
                 (e == ERR_CANCELLED && box.fail_at) || tier_failed(m, e),
             "load", (uint64_t)-e, 0);
        if (!m->step->open && m->kv->evictions == evicted)
            model_want_same(m, "a load that failed changed something");
        return;
    }
    WANT(b && !m->step->open, "a load into no room", 0, 0);
    *b = *a;
    b->handle = h;
    b->reserve = 0;
    b->trimmed = true;
    m->t->loads++;
    struct kv_usage u;
    kv_usage(m->kv, &u);
    want_keeps(m, b, m->kv->stream.active || u.pool - pool_held(m->kv) < u.pool / 2);
    model_verify(m, b);
}

/* load.c - loads a sequence into the store.
 *
 * The image describes the sequence.  The store works out which pages such a sequence holds, takes
 * these pages one by one, and asks the source for their rows.  So a file cannot make a table wrong,
 * and early pages may leave for the tier while later ones are read.
 *
 * Other sequences do not change, though snapshots may be evicted.  On an error the new sequence
 * is dropped.
 *
 * Snapshots of the image are loaded as far as there is room, the newest first.  Without room for any
 * of them the sequence is loaded all the same.
 *
 * A page whose chunks an earlier sequence of the file already has is shared with that sequence.  If
 * the store has an index, full pages are also shared with the sequence that has most of the tokens
 * in common.  Equal keys mean equal rows, so these chunks are not read. */
#include "dev/dev.h"
#include "kv/image_int.h"

#include <assert.h>
#include <string.h>

struct loading {
    struct kv *kv;
    const struct kv_image *im;
    struct seq *s;
    struct kv_source *src;
    unsigned char *chunk;
    /* [n_groups][FORMS] number of leading cells of the image that are shared with another sequence */
    uint32_t *shared;
    uint32_t keeps; /* most snapshots of each group to load, the newest ones */
};

static int turns_check(const struct kv_image *im)
{
    uint32_t end = 0;
    for (uint32_t i = 0; i < im->n_turns; i++) {
        const struct kv_turn *t = &im->turn[i];
        bool open = im->turn_open && i + 1 == im->n_turns;
        if (t->pos < end || t->n < 2u - open || t->pos > im->len || t->n > im->len - t->pos)
            return ERR(FORMAT, "cache: turn %u of %u rows at %u is wrong in a sequence of %u", i,
                       t->n, t->pos, im->len);
        end = t->pos + t->n;
    }
    if (im->turn_open && (!im->n_turns || end != im->len))
        return ERR(FORMAT, "cache: the open turn does not end at row %u", im->len);
    return 0;
}

static int keeps_check(const struct kv *kv, uint32_t gi, uint32_t len, const uint32_t *keep,
                       uint32_t n)
{
    if (n > KV_KEEPS || (n && !kv->group[gi].forgets))
        return ERR(FORMAT, "cache: %u snapshots of group %u", n, gi);
    for (uint32_t i = 0; i < n; i++)
        if (!keep[i] || keep[i] > len || (i && keep[i] <= keep[i - 1]))
            return ERR(FORMAT, "cache: a snapshot of group %u at row %u of %u", gi, keep[i], len);
    return 0;
}

static int image_check(const struct kv *kv, const struct kv_image *im)
{
    if (im->len > kv->max_len || im->cross > kv->max_len)
        return ERR(
            LIMIT,
            "cache: the sequence has %u rows, and max_cache_len is %u; open the cache with more",
            MAX(im->len, im->cross), kv->max_len);
    if (im->cross && !kv->has_frozen)
        return ERR(FORMAT, "cache: %u frozen rows, but this cache has no frozen groups", im->cross);
    for (uint32_t i = 0; i < im->len; i++)
        if (im->tok[i] < -1)
            return ERR(FORMAT, "cache: %d at row %u is no token id", im->tok[i], i);
    for (uint32_t i = 0; i < 2 * kv->n_groups; i++)
        if (im->unseen[i] > im->len)
            return ERR(FORMAT, "cache: rows below %u of %u are said to be missing", im->unseen[i],
                       im->len);
    const uint32_t *keep = im->keep;
    for (uint32_t gi = 0; gi < kv->n_groups; keep += im->n_keeps[gi++])
        TRY(keeps_check(kv, gi, im->len, keep, im->n_keeps[gi]));
    return turns_check(im);
}

static void set_cursors(struct kv *kv, struct seq *s)
{
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct group *g = &kv->group[gi];
        if (g->c.policy.kind == KV_STATE) continue;
        struct need n = need_at(g, s, seq_rows(g, s), 0, s->turn_open);
        for (uint32_t f = 0; f < FORMS; f++) {
            if (!has_form(g, f)) continue;
            s->g[gi].cut[f] = MAX(need_cell(g, f, &n, seq_rows(g, s)), table_first(g, f));
        }
        /* A block may have several chunks.  Rows of chunks before the first needed one are not loaded. */
        if (g->c.policy.kind == KV_ROWS && g->rows[RAW] > KV_STRIP)
            s->g[gi].raw_unseen =
                MAX(s->g[gi].raw_unseen, MIN(n.from[RAW] / KV_STRIP * KV_STRIP, s->len));
    }
}

/* Gives the sequence the newest snapshots of the image, at most `most` in each group.  States have no
 * page yet. */
static void keeps_take(struct kv *kv, const struct kv_image *im, struct seq *s, uint32_t most)
{
    const uint32_t *end = im->keep;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct group *g = &kv->group[gi];
        end += im->n_keeps[gi];
        if (!s->g[gi].keep) continue;
        for (uint32_t n = MIN(im->n_keeps[gi], most); n > 0; n--)
            keep_add(kv, s, gi, end[-(ptrdiff_t)n], 0);
        for (uint32_t i = 0; i < s->g[gi].n_keeps && g->c.policy.kind == KV_STATE; i++)
            assert(!s->g[gi].keep[i].page);
    }
    age_pin(kv, s, true);
}

static void image_take(struct kv *kv, const struct kv_image *im, struct seq *s)
{
    s->salt = im->salt;
    s->len = im->len;
    s->cross = im->cross;
    s->n_turns = im->n_turns;
    s->turn_open = im->turn_open;
    s->foreign = im->foreign;
    if (im->len) memcpy(s->tok, im->tok, im->len * sizeof *s->tok);
    if (im->n_turns) memcpy(s->turn, im->turn, im->n_turns * sizeof *s->turn);
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        s->g[gi].unseen = im->unseen[2 * gi];
        s->g[gi].raw_unseen = im->unseen[2 * gi + 1];
    }
    set_cursors(kv, s);
}

/* Takes a page for one cell, preferably the page after `after`. */
static int take_page(struct kv *kv, struct pages *p, uint32_t after, uint32_t index, uint32_t *out)
{
    TRY(make_room(kv, p->bytes, 0, "loading a sequence"));
    uint32_t id = pages_take(kv, p, after, index);
    if (!id) return no_page(p);
    *out = id;
    kv->peak = MAX(kv->peak, pool_rows(kv));
    if (pool_held(kv) + kv->backed > kv->pool) pool_trim(kv);
    return 0;
}

static int take_cell(const struct loading *v, struct group *g, uint32_t form, uint32_t i)
{
    uint32_t *table = seq_table(v->kv, g, form, v->s);
    if (table[i]) return 0;
    return take_page(v->kv, &g->form[form], i ? table[i - 1] : 0, i, &table[i]);
}

/* Computes the cells [*a, *b) that the chunk of rows lies in. */
static void cells_of(const struct group *g, const struct kv_chunk *c, uint32_t *a, uint32_t *b)
{
    *a = c->row / g->rows[c->form];
    *b = (c->row + c->n - 1) / g->rows[c->form] + 1;
}

/* Shares the pages that the chunk fills with an earlier sequence of the same file.  Returns 1 if they are shared,
 * else 0. */
static int share(const struct loading *v, struct group *g, const struct kv_chunk *c)
{
    kv_seq of;
    struct seq *other;
    uint32_t a, b, *table = seq_table(v->kv, g, c->form, v->s);
    cells_of(g, c, &a, &b);
    bool whole = c->form == SEALED || c->n == g->rows[RAW];
    if (!whole || !v->src->same) return 0;
    int e = v->src->same(v->src, c, &of);
    if (e <= 0) return e;
    TRY(seq_find(v->kv, of, &other));
    const uint32_t *from = seq_table(v->kv, g, c->form, other);
    for (uint32_t i = a; i < b; i++)
        if (!from[i]) return 0;
    for (uint32_t i = a; i < b; i++) {
        page_ref(v->kv, &g->form[c->form], from[i]);
        table[i] = from[i];
    }
    return 1;
}

/* True if the donor has the cell, and all of its contents are rows of the first m tokens. */
static bool has_cell(const struct kv *kv, const struct group *g, uint32_t form, const struct seq *d,
                     uint32_t i, uint32_t m)
{
    const struct seq_group *x = &d->g[g - kv->group];
    uint32_t rows = g->rows[form], from = form == RAW ? MAX(x->unseen, x->raw_unseen) : x->unseen;
    return i * rows >= from && (i + 1) * rows <= m && i < table_used(g, form, seq_rows(g, d)) &&
           seq_table(kv, g, form, d)[i];
}

/* Shares the leading cells that one group of the image has in one form, as far as the donor has
 * them with rows of the first m tokens. */
static void share_form(const struct loading *v, uint32_t gi, uint32_t form, const struct seq *d,
                       uint32_t m)
{
    struct kv *kv = v->kv;
    struct group *g = &kv->group[gi];
    uint32_t a, b, *end = &v->shared[FORMS * gi + form], *table = seq_table(kv, g, form, v->s);
    struct image_walk w;
    struct kv_chunk c;
    image_first(&w, g, v->s, gi, form);
    while (image_next(&w, &c)) {
        cells_of(g, &c, &a, &b);
        for (uint32_t i = a; i < b; i++) /* a chunk is either shared or read, never both */
            if (!has_cell(kv, g, form, d, i, m)) return;
        for (uint32_t i = MAX(a, *end); i < b; i++) {
            table[i] = seq_table(kv, g, form, d)[i];
            page_ref(kv, &g->form[form], table[i]);
            *end = i + 1;
        }
    }
}

static void share_twin(const struct loading *v, const struct seq *d, uint32_t m)
{
    for (uint32_t gi = 0; gi < v->kv->n_groups; gi++)
        for (uint32_t f = 0; f < FORMS; f++)
            if (v->kv->group[gi].c.policy.kind == KV_ROWS && has_form(&v->kv->group[gi], f))
                share_form(v, gi, f, d, MIN(m, v->s->len));
}

/* Returns the page with the state of a chunk that an earlier sequence of the file has, or 0. */
static int state_shared(const struct loading *v, const struct kv_chunk *c, uint32_t *page)
{
    kv_seq of;
    struct seq *other;
    *page = 0;
    int e = v->src->same ? v->src->same(v->src, c, &of) : 0;
    if (e <= 0) return e;
    TRY(seq_find(v->kv, of, &other));
    *page = state_after(v->kv, &v->kv->group[c->group], other, c->row);
    return 0;
}

/* Loads the newest state or that of a snapshot, or both. */
static int load_state(const struct loading *v, struct group *g, const struct kv_chunk *c)
{
    struct pages *p = &g->form[RAW];
    struct keep *k = keep_at(&v->s->g[c->group], c->row);
    uint32_t page;
    TRY(state_shared(v, c, &page));
    if (page) {
        page_ref(v->kv, p, page);
    } else {
        TRY(v->src->chunk(v->src, c, v->chunk, image_bytes(g, c)));
        TRY(take_page(v->kv, p, 0, 0, &page));
        (void)image_move(v->kv->work, g, c, page_at(p, 0, page), p->span, v->chunk, true);
    }
    if (k) k->page = page;
    if (c->row != v->s->len) return 0;
    *seq_table(v->kv, g, RAW, v->s) = page;
    if (k) page_ref(v->kv, p, page);
    return 0;
}

static int load_chunk(const struct loading *v, struct group *g, const struct kv_chunk *c)
{
    if (g->c.policy.kind == KV_STATE) return load_state(v, g, c);
    struct pages *p = &g->form[c->form];
    uint32_t a, b, *table = seq_table(v->kv, g, c->form, v->s);
    size_t at = 0;
    cells_of(g, c, &a, &b);
    if (b <= v->shared[FORMS * c->group + c->form]) return 0;
    int e = share(v, g, c);
    if (e) return MIN(e, 0);
    TRY(v->src->chunk(v->src, c, v->chunk, image_bytes(g, c)));
    for (uint32_t i = a; i < b; i++) {
        TRY(take_cell(v, g, c->form, i));
        at += image_move(v->kv->work, g, c, page_at(p, 0, table[i]), p->span, v->chunk + at, true);
    }
    return 0;
}

static int load_all(const struct loading *v)
{
    struct kv_chunk c;
    for (uint32_t gi = 0; gi < v->kv->n_groups; gi++)
        for (uint32_t f = 0; f < FORMS; f++) {
            struct image_walk w;
            image_first(&w, &v->kv->group[gi], v->s, gi, f);
            while (image_next(&w, &c))
                TRY(load_chunk(v, &v->kv->group[gi], &c));
        }
    /* gives open blocks a page although no row of theirs is loaded */
    for (uint32_t gi = 0; gi < v->kv->n_groups; gi++) {
        struct group *g = &v->kv->group[gi];
        if (g->c.policy.kind == KV_STATE) continue;
        for (uint32_t i = 0; i < table_used(g, RAW, seq_rows(g, v->s)); i++)
            if (cell_held(g, &v->s->g[gi], RAW, i)) TRY(take_cell(v, g, RAW, i));
    }
    return 0;
}

/* Returns the bytes of all pages of the sequence that are not shared yet. */
static size_t pages_bytes(const struct loading *v)
{
    const struct kv *kv = v->kv;
    const struct seq *s = v->s;
    size_t sum = 0;
    for (uint32_t i = 0; i < FORMS * kv->n_groups; i++) {
        const struct group *g = &kv->group[i / FORMS];
        const struct seq_group *sg = &s->g[i / FORMS];
        uint32_t f = i % FORMS, n = 0, last = sg->n_keeps;
        bool state = g->c.policy.kind == KV_STATE;
        for (uint32_t k = 0; !state && k < table_used(g, f, seq_rows(g, s)); k++)
            n += !seq_table(kv, g, f, s)[k] && cell_held(g, sg, f, k);
        if (state && f == RAW && s->len) /* the snapshot at the end has the newest state, too */
            n = last + !(last && sg->keep[last - 1].pos == s->len);
        sum += n * g->form[f].bytes;
    }
    return sum;
}

/* Makes room and loads.  Without a tier there must be room for all pages before anything moves.  With a tier each
 * page makes its own room. */
static int load_with(const struct loading *v)
{
    struct kv *kv = v->kv;
    uint32_t common = 0;
    TRY(reserve_settle(kv));
    seq_clear(kv, v->s); /* gives back the pages of a first attempt */
    memset(v->shared, 0, kv->n_groups * FORMS * sizeof *v->shared);
    const struct seq *twin = index_twin(kv, v->im, &common);
    image_take(kv, v->im, v->s);
    keeps_take(kv, v->im, v->s, v->keeps);
    if (twin) share_twin(v, twin, common);
    size_t pages = kv->stream.active ? 0 : pages_bytes(v);
    TRY(make_room(kv, pages, meta_lacks(kv, v->s->slot), "loading a sequence"));
    meta_settle(kv, v->s->slot);
    int e = load_all(v), failed = dev_finish(v->kv->work);
    if (e < 0 || failed < 0) return MIN(e, failed);
    /* sequences that share pages with this one may have reserves, which then lack pages */
    return reserve_fill_all(kv, "loading a sequence");
}

/* Tries with all snapshots, then with half as many each time, until the sequence fits. */
static int load_attempt(struct loading *v)
{
    uint32_t most = 0;
    for (uint32_t gi = 0; gi < v->kv->n_groups; gi++)
        most = MAX(most, v->im->n_keeps[gi]);
    int e = ERR_FULL;
    for (v->keeps = most; e == ERR_FULL; v->keeps /= 2) {
        e = load_with(v);
        if (!v->keeps) break;
    }
    return e;
}

int kv_load(struct kv *kv, const struct kv_image *im, struct kv_source *src, kv_seq *out)
{
    kv_seq handle;
    size_t most = 1;
    TRY(image_check(kv, im));
    if (kv->step.open) return ERR(BUSY, "cache: a step is open; commit or abort it first");
    TRY(kv_new(kv, &im->salt, &handle));
    struct loading v = {.kv = kv, .im = im, .src = src};
    for (uint32_t i = 0; i < FORMS * kv->n_groups; i++)
        most = MAX(most, image_most(&kv->group[i / FORMS], i % FORMS));
    v.shared = mem_array(MAX(kv->n_groups, 1), FORMS * sizeof *v.shared);
    v.chunk = v.shared ? mem_alloc(most) : NULL;
    int e = v.chunk ? 0 : ERR_NOMEM;
    v.s = edit(kv, slot_index(kv, handle));
    bool began = kv->stream.began;
    for (uint32_t tries = 0; v.chunk && room_try(kv, &tries, e);)
        e = load_attempt(&v);
    if (!began && kv->stream.began) kv->stream.since = MAX(kv->stream.since, im->len);
    edited_contents(kv, v.s);
    mem_free(v.chunk);
    mem_free(v.shared);
    if (e < 0) {
        (void)kv_drop(kv, handle);
        (void)reserve_fill_all(kv, "a reserve");
        return e;
    }
    kv->need = 0;
    *out = handle;
    return 0;
}

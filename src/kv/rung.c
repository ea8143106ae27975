/* rung.c - encodes rows when the budget is short: native rows to 8 bits, and later these to 4, before any page moves
 * to disk.
 *
 * A group has a ladder of codecs (kv_group.rung).  On rung 0 it has no tiles, but their arrays and address ranges
 * exist from the opening on.  The whole store moves to a rung at once, between two operations: every full tile of
 * every sequence is encoded.  From then on the group is the same as a group that was opened with that codec.  So the
 * rest of the store needs no code for rungs: the usual rules decide which rows are sealed and which raw blocks a
 * sequence keeps.
 *
 *   From rung 0:    a tile is encoded from its raw blocks, once for all sequences that share them.  Then the
 *                   blocks are released.
 *   Between rungs:  tiles are decoded and encoded with fewer bits in place.  Page p moves from p * (old grain)
 *                   to p * (new grain), which is smaller.  In ascending order, each write covers only bytes
 *                   that were read before.  No table changes, and no memory is taken.
 *
 * Encoding cannot fail half way, because all pages are taken before the first tile is encoded.  While a tile is
 * encoded, its page and its raw rows hold memory together.  The budget counts that page from the opening on
 * (fixed_rest).
 *
 * When.  An operation that did not fit has changed nothing.  Then the store moves to the lowest rung that frees
 * enough for it, if there is one.  A short sequence can take more room encoded than raw, since its incomplete tile
 * stays raw.  So the freed bytes are computed first.  Kept sequences are evicted, as before any failure.  A reserve
 * was sized for rows in their present form, so no rung is taken while any sequence has a reserve. */
#include "dev/dev.h"
#include "dev/row.h"
#include "kv/codec.h"
#include "kv/kv_int.h"

#include <string.h>

/* --- The configuration ------------------------------------------------------------------------- */

static int plane_check(const struct kv_group *g, uint32_t gi, uint32_t r, uint32_t i)
{
    const struct kv_codec *c = g->rung[r].codec[i], *before = r ? g->rung[r - 1].codec[i] : NULL;
    char text[KV_CODEC_TEXT];
    if (!c || c->tile != g->rung[0].seal.tile || !c->bytes || !c->encode || !c->decode)
        return ERR(ARG, "cache: group %u rung %u: a codec with tiles of %u rows is needed", gi,
                   r + 1, g->rung[0].seal.tile);
    size_t most = before ? before->bytes(before, &g->plane[i].shape) : SIZE_MAX;
    if (c->bytes(c, &g->plane[i].shape) > most)
        return ERR(
            ARG,
            "cache: group %u rung %u: a tile has %zu bytes, more than the %zu of the rung before; order the rungs from many bits to few",
            gi, r + 1, c->bytes(c, &g->plane[i].shape), most);
    return MIN(kv_codec_describe(c, text), 0);
}

int rung_check(const struct kv_config *c, uint32_t gi)
{
    const struct kv_group *g = &c->group[gi];
    const struct kv_policy *p = &g->policy;
    const struct kv_seal *s = &g->rung[0].seal;
    if (g->n_rungs > KV_RUNGS || g->seal.tile || p->kind != KV_ROWS || p->window || p->chunk ||
        p->sinks)
        return ERR(ARG, "cache: group %u: rungs are for groups without a codec that keep all rows",
                   gi);
    if (c->streaming != KV_RESIDENT || c->borrows || (c->dev && !c->dev->kind->is_host))
        return ERR(UNSUPPORTED,
                   "cache: group %u: rows are encoded later only where all rows stay in memory of "
                   "the host, and nobody borrows them",
                   gi);
    if (!s->tile || s->tile % KV_STRIP || (s->tile % g->rows && g->rows % s->tile))
        return ERR(
            ARG,
            "cache: group %u: tiles of %u rows and blocks of %u: tiles are a multiple of %u, and one of the two divides the other",
            gi, s->tile, g->rows, KV_STRIP);
    for (uint32_t r = 0; r < g->n_rungs; r++) {
        const struct kv_seal *t = &g->rung[r].seal;
        if (t->tile != s->tile || t->lead != s->lead || t->resid)
            return ERR(ARG,
                       "cache: group %u rung %u: all rungs have one tile and lead, and no residual",
                       gi, r + 1);
        for (uint32_t i = 0; i < g->n_planes; i++)
            TRY(plane_check(g, gi, r, i));
    }
    return 0;
}

static size_t aligned(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

/* Returns the bytes of one decoded tile of a plane. */
static size_t plane_bytes(const struct group *g, uint32_t i)
{
    const struct kv_shape *s = &g->c.plane[i].shape;
    return aligned((size_t)s->heads * s->dim * dtype_size(s->dtype) * g->rows[SEALED]);
}

int rung_arrays(struct kv *kv)
{
    size_t rows = 0, page = 0;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct group *g = &kv->group[gi];
        for (uint32_t i = 0; g->c.n_rungs && i < g->c.n_planes; i++)
            rows = MAX(rows, plane_bytes(g, i));
        if (g->c.n_rungs) page = MAX(page, g->form[SEALED].grain);
        kv->n_rungs = MAX(kv->n_rungs, g->c.n_rungs);
    }
    kv->rung_rows = rows;
    return kv->n_rungs ? kv_array(kv, &kv->rung_room, 64 + rows + page, 1) : 0;
}

const struct kv_group *kv_group_now(const struct kv *kv, uint32_t group)
{
    return &kv->group[group].c;
}

uint32_t kv_rung(const struct kv *kv)
{
    return kv->rung;
}

/* Returns the group's own rung when the store is on `rung`; groups can have ladders of different lengths. */
static uint32_t rung_of(const struct group *g, uint32_t rung)
{
    return MIN(rung, g->c.n_rungs);
}

/* Computes the offsets of planes in a tile's page on a rung, and its bytes at one site. */
static size_t rung_grain(const struct group *g, uint32_t rung, size_t offset[KV_MAX_PLANES])
{
    struct group at = {.c = g->c};
    size_t grain = 0;
    (void)form_grain(&at, SEALED, rung, &grain); /* cannot fail: kv_open has computed it before */
    if (offset) memcpy(offset, at.offset[SEALED], sizeof at.offset[SEALED]);
    return grain;
}

/* --- What a rung frees ------------------------------------------------------------------------- */

/* The contents have tiles [first_tile, end_tile).  Tiles of leading rows alone do not exist. */
static uint32_t first_tile(const struct group *g)
{
    return g->c.rung[0].seal.lead / g->rows[SEALED];
}

static uint32_t end_tile(const struct group *g, const struct seq *s)
{
    return MAX(s->len / g->rows[SEALED], first_tile(g));
}

/* Returns how many rows of the tile are leading rows, which stay raw. */
static uint32_t tile_lead(const struct group *g, uint32_t tile)
{
    return tile == first_tile(g) ? g->c.rung[0].seal.lead % g->rows[SEALED] : 0;
}

/* Computes the raw cells [*a, *b) that a tile covers; a block may be larger than a tile. */
static void cells_of(const struct group *g, uint32_t tile, uint32_t *a, uint32_t *b)
{
    *a = tile * g->rows[SEALED] / g->rows[RAW];
    *b = *a + MAX(1, g->rows[SEALED] / g->rows[RAW]);
}

static bool same_rows(const struct kv *kv, const struct group *g, const struct seq *x,
                      const struct seq *y, uint32_t tile)
{
    uint32_t a, b;
    if (tile >= end_tile(g, x) || tile >= end_tile(g, y)) return false;
    cells_of(g, tile, &a, &b);
    return !memcmp(seq_table(kv, g, RAW, x) + a, seq_table(kv, g, RAW, y) + a, (b - a) * sizeof a);
}

/* True if s is the first of the contents that share the rows of a tile. */
static bool leads(const struct kv *kv, const struct group *g, const struct seq *s, uint32_t tile)
{
    const struct seq *o = kv->seq;
    while (o < s && !same_rows(kv, g, o, s, tile))
        o++;
    return o == s;
}

/* Counts the raw blocks that become free once all tiles are encoded and kept contents are evicted. */
static size_t blocks_freed(const struct kv *kv, const struct group *g)
{
    const struct pages *p = &g->form[RAW];
    uint32_t first = (g->c.rung[0].seal.lead + g->rows[RAW] - 1) / g->rows[RAW];
    size_t freed = 0;
    for (const struct seq *s = kv->index.oldest; s; s = s->newer)
        for (uint32_t i = 0; i < table_used(g, RAW, s->len); i++)
            p->seen[seq_table(kv, g, RAW, s)[i]]++;
    for (const struct seq *s = kv->seq; s < kv->seq + kv->n_contents; s++) {
        const uint32_t *table = seq_table(kv, g, RAW, s);
        uint32_t end = end_tile(g, s) * g->rows[SEALED] / g->rows[RAW];
        for (uint32_t i = first; i < end; i++)
            freed += ++p->seen[table[i]] == p->page[table[i]].refs;
    }
    memset(p->seen, 0, p->n_ids * sizeof *p->seen);
    return freed;
}

static size_t tiles_made(const struct kv *kv, const struct group *g)
{
    size_t n = 0;
    for (const struct seq *s = kv->seq; s < kv->seq + kv->n_contents; s++)
        for (uint32_t t = first_tile(g); t < end_tile(g, s); t++)
            n += leads(kv, g, s, t);
    return n;
}

/* Counts the tiles of all contents except kept ones; shared tiles count once. */
static size_t tiles_held(const struct kv *kv, const struct group *g)
{
    const struct pages *p = &g->form[SEALED];
    size_t n = 0;
    for (const struct seq *s = kv->seq; s < kv->seq + kv->n_contents; s++)
        for (uint32_t t = first_tile(g); t < end_tile(g, s); t++)
            n += !p->seen[seq_table(kv, g, SEALED, s)[t]]++;
    memset(p->seen, 0, p->n_ids * sizeof *p->seen);
    return n;
}

/* Returns how many bytes moving to a rung frees (negative: takes), without those of kept contents. */
static ptrdiff_t rung_frees(const struct kv *kv, uint32_t rung)
{
    size_t freed = 0, taken = 0;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct group *g = &kv->group[gi];
        uint32_t from = rung_of(g, kv->rung), to = rung_of(g, rung);
        if (from == to) continue;
        size_t tiles = from ? tiles_held(kv, g) : tiles_made(kv, g);
        freed += from ? tiles * g->form[SEALED].bytes : blocks_freed(kv, g) * g->form[RAW].bytes;
        taken += tiles * rung_grain(g, to, NULL) * g->c.n_sites;
    }
    return (ptrdiff_t)freed - (ptrdiff_t)taken;
}

/* --- From raw rows ----------------------------------------------------------------------------- */

/* Takes a page for a tile that s leads, for all contents that share the rows of the tile.  Returns -1 if there is no
 * memory for a page. */
static int tile_take(struct kv *kv, struct group *g, struct seq *s, uint32_t tile)
{
    struct pages *p = &g->form[SEALED];
    uint32_t *table = seq_table(kv, g, SEALED, s);
    uint32_t id = pages_take(kv, p, tile ? table[tile - 1] : 0, tile);
    if (!id) return -1;
    table[tile] = id;
    for (struct seq *o = s + 1; o < kv->seq + kv->n_contents; o++) {
        if (!same_rows(kv, g, s, o, tile)) continue;
        seq_table(kv, g, SEALED, o)[tile] = id;
        page_ref(kv, p, id);
    }
    return 0;
}

static void tiles_drop(struct kv *kv, uint32_t gi)
{
    for (struct seq *s = kv->seq; s < kv->seq + kv->n_contents; s++)
        cells_drop(kv, s, gi, SEALED, 0, end_tile(&kv->group[gi], s));
}

/* Takes pages, of the size on a rung, for the tiles of all groups.  After an error none is taken. */
static int tiles_take(struct kv *kv, uint32_t rung)
{
    int e = 0;
    for (uint32_t gi = 0; e >= 0 && gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        if (!g->c.n_rungs) continue;
        pages_regrain(kv, &g->form[SEALED], rung_grain(g, rung_of(g, rung), NULL));
        for (struct seq *s = kv->seq; e >= 0 && s < kv->seq + kv->n_contents; s++)
            for (uint32_t t = first_tile(g); e >= 0 && t < end_tile(g, s); t++)
                if (leads(kv, g, s, t)) e = tile_take(kv, g, s, t);
        if (e < 0) e = no_page(&g->form[SEALED]);
    }
    for (uint32_t gi = 0; e < 0 && gi < kv->n_groups; gi++)
        if (kv->group[gi].c.n_rungs) tiles_drop(kv, gi);
    return e;
}

/* Encodes one tile at every site, as the step that completes a tile does. */
static void tile_encode(struct kv *kv, const struct group *g, const struct seq *s, uint32_t tile)
{
    uint32_t counts[3] = {1, 0, 1}, slot = (uint32_t)(s - kv->seq), enc[2] = {0, tile};
    struct kv_view v = {.queue = kv->work,
                        .n_planes = g->c.n_planes,
                        .first = true,
                        .lead = g->c.seal.lead,
                        .counts = counts,
                        .slot = &slot,
                        .enc = enc};
    for (uint32_t i = 0; i < g->c.n_planes; i++) {
        v.shape[i] = g->c.plane[i].shape;
        v.codec[i] = g->c.plane[i].codec;
    }
    for (uint32_t site = g->c.site0; site < g->c.site0 + g->c.n_sites; site++) {
        view_form(g, RAW, site, &v.raw);
        view_form(g, SEALED, site, &v.sealed);
        dev_kv_seal(kv->work, &v);
    }
    (void)dev_finish(kv->work); /* the device is the host, where operations do not fail */
}

/* Drops the raw blocks that end inside an encoded tile, from all contents that have the tile. */
static void blocks_drop(struct kv *kv, const struct group *g, uint32_t tile, uint32_t id)
{
    uint32_t a, b, end = (tile + 1) * g->rows[SEALED] / g->rows[RAW];
    cells_of(g, tile, &a, &b);
    for (struct seq *s = kv->seq; s < kv->seq + kv->n_contents; s++)
        if (tile < end_tile(g, s) && seq_table(kv, g, SEALED, s)[tile] == id)
            cells_drop(kv, s, (uint32_t)(g - kv->group), RAW, MAX(a, table_first(g, RAW)), end);
}

/* Encodes all tiles of a group; their pages were taken before.  Returns how many rows the tiles have. */
static uint64_t tiles_encode(struct kv *kv, const struct group *g)
{
    const struct pages *p = &g->form[SEALED];
    uint64_t rows = 0;
    for (const struct seq *s = kv->seq; s < kv->seq + kv->n_contents; s++)
        for (uint32_t t = first_tile(g); t < end_tile(g, s); t++) {
            uint32_t id = seq_table(kv, g, SEALED, s)[t];
            if (p->seen[id]) continue; /* encoded already for other contents that share it */
            p->seen[id] = 1;
            tile_encode(kv, g, s, t);
            blocks_drop(kv, g, t, id);
            if (pool_held(kv) + kv->backed > kv->pool) pool_trim(kv);
            rows += g->rows[SEALED] - tile_lead(g, t);
            kv->seals++;
        }
    memset(p->seen, 0, p->n_ids * sizeof *p->seen);
    return rows;
}

/* --- From fewer bits to still fewer ------------------------------------------------------------ */

/* Returns room for the decoded rows of a tile, with room for one page behind it. */
static unsigned char *decoded_room(const struct kv *kv)
{
    return kv->rung_room + -(uintptr_t)kv->rung_room % 64;
}

/* Encodes one tile of one site with the codecs of the next rung, from the page at `from` into other memory at `to`. */
static void page_encode(const struct kv *kv, const struct group *g, const struct kv_rung *next,
                        const size_t *offset, const unsigned char *from, unsigned char *to,
                        uint32_t lead)
{
    unsigned char *rows = decoded_room(kv);
    const void *const raw[] = {rows};
    for (uint32_t i = 0; i < g->c.n_planes; i++) {
        const struct kv_shape *s = &g->c.plane[i].shape;
        const struct kv_codec *now = g->c.plane[i].codec;
        size_t head = (size_t)now->tile * s->dim * dtype_size(s->dtype);
        for (uint32_t h = 0; h < s->heads; h++)
            now->decode(now, s, h, rows + h * head, 0, from + g->offset[SEALED][i]);
        kv_tile_encode(next->codec[i], s, to + offset[i], raw, now->tile, 0, lead);
    }
}

/* Encodes all tiles of a group with fewer bits, in place.  Returns how many rows the tiles have. */
static uint64_t tiles_shrink(struct kv *kv, struct group *g, uint32_t rung)
{
    struct pages *p = &g->form[SEALED];
    size_t offset[KV_MAX_PLANES], grain = rung_grain(g, rung, offset);
    unsigned char *page = decoded_room(kv) + kv->rung_rows;
    uint64_t rows = 0;
    /* marks the first tiles, which may have leading rows */
    for (const struct seq *s = kv->seq; s < kv->seq + kv->n_contents; s++)
        if (end_tile(g, s) > first_tile(g)) p->seen[seq_table(kv, g, SEALED, s)[first_tile(g)]] = 1;
    for (uint32_t id = 1; id < p->fresh * KV_RUN; id++) {
        uint32_t lead = p->seen[id] ? tile_lead(g, first_tile(g)) : 0;
        p->seen[id] = 0;
        if (!p->page[id].refs) continue;
        rows += g->rows[SEALED] - lead;
        kv->seals++;
        for (uint32_t site = 0; site < p->n_sites; site++) {
            unsigned char *base = p->base + site * p->span;
            page_encode(kv, g, &g->c.rung[rung - 1], offset, base + id * p->grain, page, lead);
            memcpy(base + id * grain, page, grain);
        }
    }
    pages_regrain(kv, p, grain);
    return rows;
}

/* --- Moving to a rung -------------------------------------------------------------------------- */

/* Gives the group the codecs of a rung. */
static void group_turn(struct group *g, uint32_t rung)
{
    g->c.seal = g->c.rung[rung - 1].seal;
    for (uint32_t i = 0; i < g->c.n_planes; i++)
        g->c.plane[i].codec = g->c.rung[rung - 1].codec[i];
    (void)group_measure(g); /* cannot fail: kv_open has checked every rung */
}

/* Derives again what depends on the form of rows: the cursors of the drop rule, and the keys of the prefix index. */
static void contents_turn(struct kv *kv, struct seq *s)
{
    edit_contents(kv, s);
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        if (!kv->group[gi].c.n_rungs) continue;
        for (uint32_t f = 0; f < FORMS; f++)
            s->g[gi].cut[f] = table_first(&kv->group[gi], f);
        drop_unreachable(kv, s, gi);
    }
    index_hide(kv, s, 0);
    s->n_keys = 0;
    edited_contents(kv, s);
}

static int climb(struct kv *kv, uint32_t rung)
{
    uint64_t rows = 0;
    if (!kv->rung) TRY(tiles_take(kv, rung));
    kv_forget(kv);
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        uint32_t from = rung_of(g, kv->rung), to = rung_of(g, rung);
        if (from == to) continue;
        uint64_t n = from ? tiles_shrink(kv, g, to) : 0;
        group_turn(g, to);
        if (!from) n = tiles_encode(kv, g);
        rows = MAX(rows, n);
    }
    kv->rung = rung;
    kv->encoded[rung - 1] += rows;
    kv->rung_since = 0;
    for (uint32_t i = 0; i < kv->n_contents; i++) {
        kv->rung_since = MAX(kv->rung_since, kv->seq[i].len);
        contents_turn(kv, &kv->seq[i]);
    }
    kv->peak = MAX(kv->peak, pool_rows(kv));
    if (pool_held(kv) + kv->backed > kv->pool) pool_trim(kv);
    return 0;
}

static bool reserves(const struct kv *kv)
{
    for (uint32_t i = 0; i < kv->max_seqs; i++)
        if (kv->slot[i].used && kv->slot[i].reserve) return true;
    return false;
}

int kv_encode(struct kv *kv, uint32_t rung)
{
    if (rung > kv->n_rungs)
        return ERR(UNSUPPORTED, "cache: there is no rung %u; the cache was opened with %u", rung,
                   kv->n_rungs);
    if (rung <= kv->rung) return 0;
    if (kv->step.open) return ERR(BUSY, "cache: a step is open; commit or abort it first");
    if (reserves(kv))
        return ERR(
            BUSY,
            "cache: no row is encoded while a sequence has a reserve; set reserves to 0 or drop their sequences first");
    ptrdiff_t frees = rung_frees(kv, rung);
    if (frees < 0) TRY(make_room(kv, (size_t)-frees, 0, "encoding short sequences"));
    return climb(kv, rung);
}

/* Moves to the lowest rung that frees the bytes that the last operation lacked.  False if there is no such rung. */
static bool encode(struct kv *kv)
{
    ptrdiff_t need = (ptrdiff_t)MAX(kv->need, 1);
    uint32_t rung = kv->rung + 1;
    if (rung > kv->n_rungs || kv->step.open || reserves(kv)) return false;
    ptrdiff_t frees = rung_frees(kv, rung);
    while (frees < need && rung < kv->n_rungs)
        frees = rung_frees(kv, ++rung);
    return frees >= need && climb(kv, rung) >= 0;
}

bool room_try_encode(struct kv *kv, uint32_t *tries, int e)
{
    return (e == ERR_FULL && *tries && encode(kv)) || room_try(kv, tries, e);
}

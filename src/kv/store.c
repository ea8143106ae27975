/* store.c - opens and closes a store, and sizes every array.  Nothing allocates after that.  config_check.c checks the
 * configuration, forms.c sizes the pages and reserves their addresses. */
#include "base/bytes.h"
#include "dev/dev.h"
#include "kv/codec.h"
#include "kv/kv_int.h"

#include <string.h>

/* Stands before each array, so that kv_close finds all of them. */
struct own {
    _Alignas(16) struct own *next;
};
void *kv_own(struct kv *kv, size_t n, size_t size)
{
    size_t bytes;
    if (!ck_mul(n, size, &bytes) || !ck_add(bytes, sizeof(struct own), &bytes)) bytes = SIZE_MAX;
    struct own *o = mem_alloc(bytes);
    if (!o) return NULL;
    o->next = kv->own;
    kv->own = o;
    return o + 1;
}

int kv_array(struct kv *kv, void *at, size_t n, size_t size)
{
    void *p = kv->measured ? NULL : kv_own(kv, n, size);
    size_t bytes;
    if (!ck_mul(n, size, &bytes) || !ck_add(kv->fixed, bytes, &kv->fixed))
        return ERR(
            LIMIT,
            "cache: its tables, one of them with %zu entries of %zu bytes, take more than %zu "
            "bytes; open it for fewer or shorter sequences",
            n, size, (size_t)SIZE_MAX);
    if (kv->measured) return 0;
    memcpy(at, &p, sizeof p);
    return p ? 0 : ERR_NOMEM;
}

/* Counts the arrays whose sizes are known only after all pages are sized: those of the index's room and of pages.
 * The records of pages that may leave memory are part of each sequence's charge (metadata.c). */
static void fixed_rest(struct kv *kv)
{
    kv->fixed += sizeof *kv + kv->n_groups * sizeof *kv->group;
    if (kv->index.room.unit || kv->measured)
        kv->fixed += kv->index.room.n_units * sizeof *kv->index.room.unit;
    for (uint32_t i = 0; i < FORMS * kv->n_groups; i++) {
        const struct group *g = &kv->group[i / FORMS];
        const struct pages *p = &g->form[i % FORMS];
        bool moves = g->moves[i % FORMS];
        if (i % FORMS == SEALED && g->c.n_rungs)
            kv->fixed += p->bytes; /* room for one tile beside its raw rows (rung.c) */
        kv->fixed += (moves ? p->n_ids - p->n_own : p->n_ids) * meta_record(moves);
    }
}

/* Computes the bytes with which every sequence of a step can have its first rows. */
static int first_rows(const struct kv *kv, size_t *first)
{
    size_t each;
    if (!ck_mul(meta_unit(kv, 1), 2, &each))
        return ERR(
            LIMIT,
            "cache: tables of %zu bytes for each sequence and as much for its mark take more "
            "than %zu bytes",
            meta_unit(kv, 1), (size_t)SIZE_MAX);
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct group *g = &kv->group[gi];
        size_t raw, sum;
        if (!ck_mul(g->form[RAW].grain, g->c.policy.kind == KV_STATE ? 2 : 1, &raw) ||
            !ck_add(raw, g->form[SEALED].grain, &sum) || !ck_mul(sum, g->c.n_sites, &sum) ||
            !ck_add(each, sum, &each))
            return ERR(LIMIT,
                       "cache: pages of %zu and %zu bytes at %u sites take more than %zu bytes",
                       g->form[RAW].grain, g->form[SEALED].grain, g->c.n_sites, (size_t)SIZE_MAX);
    }
    if (!ck_mul(each, kv->lanes, first))
        return ERR(
            LIMIT,
            "cache: the first rows of %u sequences take %zu bytes each, together more than %zu; "
            "open it for fewer sequences",
            kv->lanes, each, (size_t)SIZE_MAX);
    return 0;
}

int group_measure(struct group *g)
{
    const struct kv_group *c = &g->c;
    bool state = c->policy.kind == KV_STATE;
    g->rows[RAW] = state ? 1 : c->rows;
    g->rows[SEALED] = MAX(c->n_rungs ? c->rung[0].seal.tile : c->seal.tile, 1);
    g->keep_rows = c->seal.tile ? MAX(c->seal.lead, c->policy.sinks) : c->policy.sinks;
    g->forgets = state || (c->policy.kind == KV_ROWS && (c->policy.window || c->policy.chunk));
    for (uint32_t i = 0; i < c->n_planes; i++)
        g->lossy |= c->plane[i].codec && !c->plane[i].codec->lossless;
    for (uint32_t f = 0; f < (may_seal(g) ? FORMS : 1u); f++)
        TRY(form_grain(g, f, !c->seal.tile && c->n_rungs, &g->form[f].grain));
    return 0;
}

/* Declares arrays that lie side by side in a block. */
struct part {
    uint32_t **at;
    size_t n;
};
static int block_arrays(struct kv *kv, const struct part *part, size_t n, struct kv_block *b)
{
    uint32_t *all = NULL;
    b->n = 0;
    for (size_t i = 0; i < n; i++)
        b->n += part[i].n;
    TRY(kv_array(kv, &all, b->n, sizeof *all));
    b->host = all;
    for (size_t i = 0; all && i < n; all += part[i++].n)
        *part[i].at = all;
    return 0;
}

/* Finds out where the device of the store sees a block of the host. */
static int block_open(struct kv *kv, struct kv_block *b)
{
    b->at = dev_mirror(kv->work, b->host, b->n * sizeof *b->at);
    return b->at ? 0 : ERR_NOMEM;
}

static void block_close(struct kv *kv, struct kv_block *b)
{
    dev_mirror_close(kv->work, b->at, b->n * sizeof *b->at);
    *b = (struct kv_block){0};
}

static int group_arrays(struct kv *kv, struct group *g)
{
    const struct kv_group *c = &g->c;
    uint32_t seqs = kv->max_seqs, tokens = kv->max_tokens;
    bool state = c->policy.kind == KV_STATE;
    TRY(group_measure(g));
    g->stride[RAW] = state ? 1 : (kv->max_len + c->rows - 1) / c->rows;
    g->stride[SEALED] = may_seal(g) ? kv->max_len / g->rows[SEALED] : 0;
    kv->has_frozen |= c->policy.kind == KV_FROZEN;
    size_t encodes = (size_t)tokens / g->rows[SEALED] + seqs;
    struct part part[] = {{&g->counts, 3},   {&g->len, seqs},
                          {&g->from, seqs},  {&g->lo, tokens},
                          {&g->hi, tokens},  {&g->edge, tokens},
                          {&g->dst, tokens}, {&g->enc, 2 * (may_seal(g) ? encodes : 1)}};
    TRY(block_arrays(kv, part, countof(part), &g->arrays));
    /* changes of one step: new blocks, one copied block per sequence, and tiles; state pages are in dst */
    if (!state) kv->n_change_max += tokens / c->rows + 3 * seqs;
    if (may_seal(g)) kv->n_change_max += tokens / g->rows[SEALED];
    return 0;
}

int table_open(struct kv *kv, const struct group *g, uint32_t form, struct kv_block *b)
{
    b->n = (size_t)kv->n_contents * MAX(g->stride[form], 1);
    b->host = kv_own(kv, b->n, sizeof *b->host); /* metadata.c counts it with the sequences */
    return b->host ? block_open(kv, b) : ERR_NOMEM;
}

static int group_open(struct kv *kv, struct group *g)
{
    for (uint32_t f = 0; f < FORMS; f++)
        TRY(table_open(kv, g, f, &g->tables[f]));
    TRY(block_open(kv, &g->arrays));
    for (uint32_t i = 0; i < g->c.n_sites; i++)
        kv->site_group[g->c.site0 + i] = (uint32_t)(g - kv->group);
    return 0;
}

static int seq_open(struct kv *kv, struct seq *s, uint32_t i)
{
    s->slot = KV_NONE;
    kv->spare[kv->n_contents - 1 - i] = i; /* contents 0 are handed out first */
    /* metadata.c counts the arrays that grow with the rows */
    s->tok = kv_own(kv, kv->max_len, sizeof *s->tok);
    s->turn = kv_own(kv, (size_t)kv->max_len / 2 + 2, sizeof *s->turn);
    s->g = kv->seq_group + (size_t)i * kv->n_groups;
    if (kv->borrows) s->borrow = kv->borrow + (size_t)i * kv->borrows;
    if (!s->tok || !s->turn) return ERR_NOMEM;
    size_t blocks = kv->max_len / KV_STRIP + 1;
    s->id = i;
    if (kv->index.on && (!(s->key = kv_own(kv, blocks, KV_KEY)) ||
                         !(s->node = kv_own(kv, blocks, sizeof *s->node))))
        return ERR_NOMEM;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        for (uint32_t f = 0; f < FORMS; f++)
            s->g[gi].table[f] = block_row(g, f, &g->tables[f], i);
        if (!kv->group[gi].forgets || !kv->group[gi].c.policy.every) continue;
        s->g[gi].keep = kv_own(kv, KV_KEEPS, sizeof(struct keep));
        if (!s->g[gi].keep) return ERR_NOMEM;
    }
    seq_reset(kv, s);
    return 0;
}

static int step_arrays(struct kv *kv)
{
    struct kv_step *st = &kv->step;
    TRY(kv_array(kv, &st->span, kv->max_seqs, sizeof *st->span));
    TRY(kv_array(kv, &st->change, MAX(kv->n_change_max, 1u), sizeof *st->change));
    struct part part[] = {
        {&st->slot, kv->max_seqs}, {&st->lane, kv->max_tokens}, {&st->pos, kv->max_tokens}};
    TRY(block_arrays(kv, part, countof(part), &st->arrays));
    return kv_array(kv, &st->given, kv->n_sites, sizeof *st->given);
}

/* Copies the configuration, sizes the groups, and declares the arrays that do not depend on the pages. */
static int store_arrays(struct kv *kv, const struct kv_config *c)
{
    kv->step.kv = kv;
    kv->dev = c->dev ? c->dev : &dev_host;
    kv->work = c->queue ? c->queue : &dev_host_queue;
    kv->max_seqs = c->max_seqs;
    kv->lanes = c->lanes ? MIN(c->lanes, c->max_seqs) : c->max_seqs;
    kv->max_tokens = c->max_tokens;
    kv->max_len = c->max_len;
    kv->redo = c->redo;
    kv->borrows = c->borrows;
    kv->index.on = c->index;
    kv->max_marks = c->marks;
    kv->lenders = kv->borrows ? kv->lanes + kv->borrows : 0;
    kv->n_contents = c->max_seqs + c->marks + kv->lenders;
    kv->pool = kv->pool_most = c->pool_bytes;
    while (1u << kv->slot_bits < kv->max_seqs)
        kv->slot_bits++;
    for (uint32_t i = 0; i < c->n_groups; i++)
        kv->n_sites += c->group[i].n_sites;
    if (!(kv->group = mem_array(MAX(c->n_groups, 1u), sizeof *kv->group))) return ERR_NOMEM;
    kv->n_groups = c->n_groups;
    size_t stashes = (size_t)FORMS * kv->n_groups;
    TRY(kv_array(kv, &kv->site_group, kv->n_sites, sizeof *kv->site_group));
    TRY(kv_array(kv, &kv->slot, kv->max_seqs, sizeof *kv->slot));
    TRY(kv_array(kv, &kv->stash, kv->max_seqs * stashes, sizeof *kv->stash));
    TRY(kv_array(kv, &kv->seq, kv->n_contents, sizeof *kv->seq));
    TRY(kv_array(kv, &kv->seq_group, (size_t)kv->n_contents * kv->n_groups, sizeof *kv->seq_group));
    TRY(kv_array(kv, &kv->idle, kv->max_seqs, sizeof *kv->idle));
    TRY(kv_array(kv, &kv->spare, kv->n_contents, sizeof *kv->spare));
    TRY(kv_array(kv, &kv->mark, MAX(kv->max_marks, 1u), sizeof *kv->mark));
    TRY(kv_array(kv, &kv->member, kv->max_marks + 1, sizeof *kv->member));
    TRY(kv_array(kv, &kv->scratch, kv->max_seqs, sizeof *kv->scratch));
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        kv->group[i].c = c->group[i];
        TRY(group_arrays(kv, &kv->group[i]));
    }
    TRY(borrow_arrays(kv));
    TRY(rung_arrays(kv));
    TRY(age_arrays(kv));
    TRY(spill_arrays(kv, c));
    TRY(stage_room(kv, c));
    TRY(index_arrays(kv, c));
    return step_arrays(kv);
}

static int store_open(struct kv *kv, const struct kv_config *c)
{
    TRY(store_arrays(kv, c));
    kv->n_idle = kv->max_seqs;
    kv->n_spare = kv->n_contents;
    age_open(kv);
    for (uint32_t i = 0; i < kv->n_groups; i++)
        TRY(group_open(kv, &kv->group[i]));
    TRY(block_open(kv, &kv->step.arrays));
    for (uint32_t i = 0; i < kv->max_seqs; i++) {
        kv->slot[i].seq = KV_NONE;
        kv->slot[i].stash = kv->stash + (size_t)i * FORMS * kv->n_groups;
        kv->idle[kv->max_seqs - 1 - i] = i; /* slot 0 is handed out first */
    }
    for (uint32_t i = 0; i < kv->n_contents; i++)
        TRY(seq_open(kv, &kv->seq[i], i));
    TRY(index_open(kv));
    int e = ERR_LIMIT;
    for (unsigned halvings = 0; halvings < 16 && e == ERR_LIMIT; halvings++) {
        e = forms_open(kv, halvings, c->tier);
        if (e < 0) forms_close(kv);
        kv->narrow = halvings > 0;
    }
    if (e >= 0) e = stage_arrays(kv);
    if (e >= 0) e = stage_open(kv, c);
    if (e >= 0) kv->peak = pool_rows(kv);
    fixed_rest(kv);
    return e;
}

/* Declares the arrays of a store with this pool, and allocates only kv->group, which the caller frees.  pages: sizes
 * the pages, too, so that kv->fixed counts everything.  kv_open makes the same declarations, so its arrays are those
 * that were measured. */
static int measure_store(const struct kv_config *c, size_t pool, bool pages, struct kv *kv)
{
    struct kv_config k = *c;
    *kv = (struct kv){.measured = true};
    k.pool_bytes = pool;
    TRY(store_arrays(kv, &k));
    if (!pages) return 0;
    TRY(forms_size(kv, 0));
    TRY(stage_arrays(kv));
    fixed_rest(kv);
    return 0;
}

size_t kv_metadata_bytes(const struct kv_config *c, uint32_t rows)
{
    struct kv kv;
    size_t bytes =
        measure_store(c, c->pool_bytes, false, &kv) < 0 ? SIZE_MAX : meta_unit(&kv, rows);
    mem_free(kv.group);
    return bytes;
}

size_t kv_staging_bytes(const struct kv_config *c)
{
    struct kv kv;
    size_t bytes = measure_store(c, SIZE_MAX, false, &kv) < 0 ? SIZE_MAX : staging_bytes(&kv);
    mem_free(kv.group);
    return bytes;
}

size_t kv_fixed_bytes(const struct kv_config *c)
{
    struct kv kv;
    size_t bytes = measure_store(c, c->pool_bytes, true, &kv) < 0 ? SIZE_MAX : kv.fixed;
    mem_free(kv.group);
    return bytes;
}

size_t kv_pool_bytes(const struct kv_config *c, size_t bytes)
{
    size_t pool = bytes;
    /* a larger pool has more pages, whose records need a larger pool: repeated until both fit */
    for (uint32_t i = 0; i < 64; i++) {
        struct kv kv;
        size_t wants;
        int e = measure_store(c, pool, true, &kv);
        mem_free(kv.group);
        if (e < 0 || !ck_add(bytes, kv.fixed + staging_bytes(&kv), &wants)) return SIZE_MAX;
        if (wants <= pool) return pool;
        pool = wants;
    }
    return SIZE_MAX;
}

size_t kv_open_bytes(const struct kv_config *c)
{
    struct kv kv;
    size_t first = SIZE_MAX;
    int e = measure_store(c, 0, false, &kv);
    if (e >= 0) e = first_rows(&kv, &first);
    mem_free(kv.group);
    return e < 0 ? SIZE_MAX : kv_pool_bytes(c, first);
}

static int pool_check(const struct kv *kv, const struct kv_config *c)
{
    size_t first;
    char limit[16], least[16], tables[16];
    TRY(first_rows(kv, &first));
    if (kv->pool >= first + kv->fixed + staging_bytes(kv)) return 0;
    return ERR(
        LIMIT,
        "cache: the limit of %s is too small. %s are needed: one block for each of %u sequence%s, two "
        "for each of max_sequences,%s and %s of metadata; raise cache_memory, or lower the number of "
        "sequences",
        bytes_text(kv->pool, limit), bytes_text(kv_open_bytes(c), least), kv->lanes,
        kv->lanes == 1 ? "" : "s", kv->stream.half ? " the staging area" : "",
        bytes_text(kv->fixed + kv->lanes * 2 * meta_unit(kv, 1), tables));
}

int kv_open(struct kv **out, const struct kv_config *cfg)
{
    TRY(config_check(cfg));
    struct kv *kv = mem_alloc(sizeof *kv);
    if (!kv) return ERR_NOMEM;
    int e = store_open(kv, cfg);
    if (e >= 0) e = pool_check(kv, cfg);
    if (e < 0) {
        kv_close(kv);
        return e;
    }
    kv->stream.tier = cfg->tier;
    *out = kv;
    return 0;
}

void kv_close(struct kv *kv)
{
    if (!kv) return;
    if (kv->stream.tier) stage_end(kv);
    if (kv->stream.tier) kv->stream.tier->close(kv->stream.tier);
    forms_close(kv);
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        struct group *g = &kv->group[i];
        for (uint32_t f = 0; f < FORMS; f++) {
            block_close(kv, &g->tables[f]);
            block_close(kv, &g->shown[f]);
        }
        block_close(kv, &g->arrays);
    }
    block_close(kv, &kv->step.arrays);
    room_close(&kv->index.room);
    for (struct own *o = kv->own, *next; o; o = next) {
        next = o->next;
        mem_free(o);
    }
    mem_free(kv->group);
    mem_free(kv);
}

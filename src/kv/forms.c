/* forms.c - how many pages each form has, and their ranges of addresses.
 *
 * A form has as many ids as the budget could ever pay for, or as the tables could ever name,
 * whichever is less.  So the byte budget is the only limit.  Where the address space is limited
 * (RLIMIT_AS) the ranges shrink together until they fit. */
#include "dev/dev.h"
#include "kv/kv_int.h"

#define KEPT_SHARE 16u /* part of the budget for the records of pages of kept contents */

/* Advances *at by n and rounds it up to 64 bytes; false if that overflows. */
static bool advance(size_t n, size_t *at)
{
    if (!ck_add(*at, n, at) || !ck_add(*at, 63, at)) return false;
    *at &= ~(size_t)63;
    return true;
}

int form_grain(struct group *g, uint32_t form, uint32_t rung, size_t *grain)
{
    *grain = 0;
    for (uint32_t i = 0; i < g->c.n_planes; i++) {
        const struct kv_plane *p = &g->c.plane[i];
        size_t n;
        g->offset[form][i] = *grain;
        if (form == SEALED) {
            const struct kv_codec *c = rung ? g->c.rung[rung - 1].codec[i] : p->codec;
            n = c->bytes(c, &p->shape);
        } else if (!ck_mul((size_t)p->shape.heads * p->shape.dim, g->rows[RAW], &n) ||
                   !ck_mul(n, dtype_size(p->shape.dtype), &n)) {
            n = SIZE_MAX;
        }
        if (!n || !advance(n, grain))
            return ERR(
                LIMIT,
                "cache: plane %u of a page has %u rows of %u heads of %u values, which take more "
                "than %zu bytes",
                i, g->rows[form], p->shape.heads, p->shape.dim, (size_t)SIZE_MAX);
    }
    return 0;
}

/* Returns the largest number of ids that sequences can use at once; those of kept contents do not count. */
static uint64_t ids_wanted(const struct kv *kv, const struct group *g, uint32_t form)
{
    uint64_t each = (uint64_t)g->stride[form] + KV_SPARE_IDS;
    if (g->c.policy.kind == KV_STATE)
        each = 6 + KV_KEEPS + kv->max_tokens / MAX(g->c.policy.every, 1u);
    uint64_t step = g->c.policy.kind == KV_STATE ? kv->max_tokens : 0;
    return kv->n_contents * each + step;
}

/* Sizes the pages of a form.  The budget limits the number of ids, except where pages may leave memory: a page in
 * the tier keeps its id. */
static int form_size(struct kv *kv, struct group *g, uint32_t form, unsigned halvings,
                     size_t *total)
{
    size_t grain, page;
    /* the number of ids follows from the smallest page of all rungs, addresses from the largest */
    TRY(form_grain(g, form, g->c.n_rungs, &page));
    TRY(form_grain(g, form, g->c.n_rungs > 0, &grain));
    if (!ck_mul(page, g->c.n_sites, &page) || !ck_mul(grain, g->c.n_sites, &(size_t){0}))
        return ERR(LIMIT, "cache: pages of %zu bytes at %u sites take more than %zu bytes", grain,
                   g->c.n_sites, (size_t)SIZE_MAX);
    struct pages *p = &g->form[form];
    bool moves = g->moves[form];
    uint64_t own = ids_wanted(kv, g, form) + 1 + KV_RUN, kept = 0;
    if (kv->index.on) /* records of pages of kept contents have a small part of the budget */
        kept = MIN((moves ? kv->index.tier_most : kv->pool) / page,
                   kv->pool / (KEPT_SHARE * FORMS * kv->n_groups * meta_record(moves)));
    uint64_t n = moves ? own + kept : MIN(own + kept, kv->pool / page + 1 + KV_RUN);
    n = MIN(n >> halvings, (uint64_t)(UINT32_MAX / g->rows[form]) - KV_RUN); /* dst has 32 bits */
    p->index = (uint32_t)(g - kv->group) * FORMS + form;
    p->state = g->c.policy.kind == KV_STATE;
    p->dev = kv->dev;
    TRY(pages_size(p, (uint32_t)MAX(n, KV_RUN), grain, g->c.n_sites, total));
    p->n_own = (uint32_t)MIN(own, p->n_ids);
    return 0;
}

void forms_close(struct kv *kv)
{
    for (uint32_t gi = 0; gi < kv->n_groups; gi++)
        for (uint32_t f = 0; f < FORMS; f++)
            pages_close(&kv->group[gi].form[f]);
    if (kv->stream.arena) dev_range_close(kv->dev, kv->stream.arena, kv->stream.arena_all);
    kv->stream.arena = NULL;
}

int forms_size(struct kv *kv, unsigned halvings)
{
    size_t bytes, sum = staging_bytes(kv);
    for (uint32_t gi = 0; gi < kv->n_groups; gi++)
        for (uint32_t f = 0; f < FORMS; f++) {
            if (f == SEALED && !may_seal(&kv->group[gi])) continue;
            TRY(form_size(kv, &kv->group[gi], f, halvings, &bytes));
            size_t before = sum;
            if (!ck_add(sum, bytes, &sum))
                return ERR(LIMIT,
                           "cache: pages of %zu and of %zu bytes need more than %zu bytes of "
                           "addresses; lower cache_memory",
                           before, bytes, (size_t)SIZE_MAX);
        }
    kv->stream.arena_bytes = sum;
    return 0;
}

/* Reserves the arena, and behind it address space for a mapping of the tier, if there is enough. */
static int arena_reserve(struct kv *kv, size_t window)
{
    struct stream *st = &kv->stream;
    st->window = 0;
    st->arena = NULL;
    if (window && ck_add(window, st->arena_bytes - 2 * st->half, &st->arena_all))
        st->arena = pool_reserve(kv->dev, st->arena_all);
    if (st->arena) {
        st->window = window;
        return 0;
    }
    st->arena_all = st->arena_bytes;
    st->arena = pool_reserve(kv->dev, st->arena_bytes);
    return st->arena ? 0 : ERR_LIMIT;
}

/* Opens all forms.  Where pages may leave memory, one mapping holds all ranges and the staging area
 * behind them. */
int forms_open(struct kv *kv, unsigned halvings, const struct kv_tier *tier)
{
    TRY(forms_size(kv, halvings));
    if (kv->stream.half) TRY(arena_reserve(kv, window_distance(kv, tier)));
    unsigned char *at = kv->stream.arena;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++)
        for (uint32_t f = 0; f < FORMS; f++) {
            struct pages *p = &kv->group[gi].form[f];
            if (f == SEALED && !may_seal(&kv->group[gi])) continue;
            TRY(pages_open(p, at));
            if (at) at += p->n_sites * p->span;
        }
    return 0;
}

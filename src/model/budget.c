/* budget.c - estimates behind a default budget: the bytes of a cache's rows, states and streamed pages. */
#include "model/budget.h"

#include <unistd.h>

enum { SNAPSHOTS = 5 }; /* snapshots of turn ends that a sequence keeps at once */

size_t budget_row(const struct kv_site *site, uint32_t n_sites, enum dtype rows)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < n_sites; i++)
        if (site[i].kind == KV_ROWS) sum += kv_site_bytes(&site[i], rows);
    return sum;
}

size_t budget_half(void)
{
    return (size_t)sysconf(_SC_PHYS_PAGES) / 2 * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t row_bytes(const struct budget *b)
{
    return budget_row(b->site, b->n_sites, b->preset->dtype);
}

/* Returns the bytes of the snapshots of windows that one sequence keeps. */
static size_t snapshots_of(const struct kv_group *g, uint32_t n, uint32_t max_len)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        size_t row = 0, seen = g[i].policy.window ? g[i].policy.window : g[i].policy.chunk;
        for (uint32_t p = 0; p < g[i].n_planes; p++)
            row += (size_t)g[i].plane[p].shape.heads * g[i].plane[p].shape.dim *
                   dtype_size(g[i].plane[p].shape.dtype) * g[i].n_sites;
        if (g[i].policy.every) sum += SNAPSHOTS * row * (seen ? MIN(seen, max_len) : 1);
    }
    return sum;
}

/* Returns the tokens and tables of the longest sequences that one call can have.  Each sequence has two marks: its
 * own, and that of the generation. */
static size_t metadata_of(const struct kv_config *c)
{
    size_t one = kv_metadata_bytes(c, c->max_len), all;
    uint64_t seqs = c->lanes ? MIN(c->lanes, c->max_seqs) : c->max_seqs;
    return ck_mul(one, 2 * (size_t)seqs + c->marks, &all) ? all : SIZE_MAX;
}

/* Returns the bytes for the caller's sequences and one more in steps of `step` tokens, with their snapshots.
 * SIZE_MAX: no store can be so large. */
static size_t sequences_of(const struct budget *b, const struct kv_config *c, uint32_t step)
{
    const struct kv_config k = {.group = c->group,
                                .n_groups = c->n_groups,
                                .max_tokens = step,
                                .redo = c->redo,
                                .streaming = c->streaming == KV_STREAM ? KV_STREAM : KV_RESIDENT};
    size_t one = kv_reserve_bytes(&k, c->max_len), all, frozen = 0;
    for (uint32_t i = 0; i < b->n_sites; i++)
        if (b->site[i].kind == KV_FROZEN) frozen += kv_site_bytes(&b->site[i], b->preset->dtype);
    if (!ck_mul(frozen, b->frozen_rows + KV_STRIP, &frozen) || !ck_add(one, frozen, &one))
        return SIZE_MAX;
    bool fits = ck_add(one, snapshots_of(c->group, c->n_groups, c->max_len), &one) &&
                ck_mul(one, (size_t)b->max_seqs + 1, &all) && ck_add(all, metadata_of(c), &all);
    return fits ? all : SIZE_MAX;
}

/* Makes the groups of the store; the caller closes them with groups_close, also after a failure. */
static bool groups_open(const struct budget *b, struct kv_config *c)
{
    struct kv_group *group = mem_array(MAX(b->n_sites, 1), sizeof *group);
    uint32_t *number = mem_array(MAX(b->n_sites, 1), sizeof *number);
    int n =
        group && number ? preset_groups(b->site, b->n_sites, b->preset, group, number) : ERR_NOMEM;
    mem_free(number);
    *c = b->store;
    c->group = group;
    c->n_groups = n < 0 ? 0 : (uint32_t)n;
    return n >= 0;
}

static void groups_close(struct kv_config *c)
{
    struct kv_group *group = (struct kv_group *)c->group;
    preset_close(group, c->n_groups);
    mem_free(group);
}

/* Returns the bytes of a cache.  A resident cache has room for every sequence at its longest, for what its undo
 * keeps, and for two spare blocks of each, which beams, candidates and negative prompts fork from.  A streaming
 * cache is meant to be small: it has room for steps of two strips of every sequence, the rows of one longer step,
 * and staging.  If sequences have reserves, each reserve holds the pages of a whole step, whose length the caller
 * may have chosen. */
static size_t bytes_of_cache(const struct budget *b, const struct kv_config *c, size_t *staging)
{
    bool small = c->streaming == KV_STREAM, whole = b->reserve && b->step_given;
    uint32_t step = small && !whole ? MIN(c->max_tokens, 2 * KV_STRIP) : c->max_tokens;
    struct kv_config k = *c;
    size_t want = sequences_of(b, c, step), rows = 0;
    k.lanes = b->max_seqs;
    *staging = kv_staging_bytes(&k);
    size_t spare = small ? c->max_tokens : 2 * KV_STRIP * ((size_t)b->max_seqs + 1);
    if (!ck_mul(spare, row_bytes(b) * (small && preset_encodes(b->preset) ? 2 : 1), &rows))
        return SIZE_MAX;
    if (!ck_add(want, rows, &want)) return SIZE_MAX;
    k = *c;
    k.stage_bytes = *staging;
    size_t least = kv_open_bytes(&k);
    return MAX(kv_pool_bytes(&k, want), least);
}

size_t budget_bytes(const struct budget *b, size_t most, size_t *staging)
{
    struct kv_config c;
    size_t want = groups_open(b, &c) ? bytes_of_cache(b, &c, staging) : SIZE_MAX;
    groups_close(&c);
    if (want <= most) return want;
    *staging = 0;
    return most;
}

/* The new rows of a step stay in memory until their pages are full.  They may take a quarter of the budget.  Every
 * reserve holds the pages of one step, so a step must not be longer than the reserves in the budget allow. */
uint32_t budget_step(const struct budget *b, size_t bytes, size_t staging, uint32_t wish)
{
    size_t row = MAX(row_bytes(b), 1), fit = bytes / 4 / row / KV_STRIP * KV_STRIP;
    size_t most = bytes - (staging ? staging : bytes / 4);
    uint32_t step = (uint32_t)MIN((size_t)wish, MAX(fit, KV_STRIP));
    struct kv_config c;
    if (!b->reserve) return step;
    bool open = groups_open(b, &c);
    c.pool_bytes = bytes;
    size_t fixed = open ? kv_fixed_bytes(&c) : 0;
    most -= MIN(most, fixed);
    while (open && step > KV_STRIP && sequences_of(b, &c, step) > most)
        step = (step - 1) / KV_STRIP * KV_STRIP;
    groups_close(&c);
    return step;
}

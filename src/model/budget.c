/* budget.c - the estimates behind a default budget: what the rows, states and streamed pages of a cache take. */
#include "model/budget.h"

#include <unistd.h>

enum { CHECKPOINTS = 5 }; /* snapshots of turn ends that a sequence keeps at once */

size_t budget_row(const struct kv_site *site, uint32_t n_sites, enum dtype rows)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < n_sites; i++)
        if (site[i].kind != KV_STATE) sum += kv_site_bytes(&site[i], rows);
    return sum;
}

/* Bytes of the states of one sequence. */
static size_t states_of(const struct kv_site *site, uint32_t n_sites)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < n_sites; i++)
        if (site[i].kind == KV_STATE) sum += kv_site_bytes(&site[i], DT_F32);
    return sum;
}

size_t budget_half(void)
{
    return (size_t)sysconf(_SC_PHYS_PAGES) / 2 * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t row_of(const struct budget *b)
{
    return budget_row(b->site, b->n_sites, b->preset->dtype);
}

/* Two pieces of an atom of the widest site for every sequence, at least 1 MiB each: what the store sets aside.  One atom
 * more covers the page that aligning the first one may cost. */
static size_t staging_of(const struct budget *b)
{
    size_t widest = 0, piece;
    for (uint32_t i = 0; i < b->n_sites; i++)
        if (b->site[i].kind == KV_ROWS)
            widest = MAX(widest, kv_site_bytes(&b->site[i], b->preset->dtype));
    if (!ck_mul(widest * KV_ATOM, (size_t)b->max_seqs + 1, &piece)) return SIZE_MAX / 4;
    return 2 * MAX(piece, (size_t)1 << 20);
}

/* Most rows that a sequence of any length and its undo hold, if every site forgets; else SIZE_MAX. */
static size_t held_most(const struct budget *b)
{
    const struct kv_preset_options *o = b->preset;
    size_t most = 0;
    for (uint32_t i = 0; i < b->n_sites; i++) {
        const struct kv_site *s = &b->site[i];
        if (s->kind == KV_STATE) continue;
        size_t seen = s->window ? s->window : s->chunk ? s->chunk : o->window;
        if (o->sinks) seen = (size_t)o->window + o->sinks;
        if (!seen) return SIZE_MAX;
        most = MAX(most, seen);
    }
    return 2 * (most + b->step_tokens) + (o->every ? CHECKPOINTS * most : 0);
}

/* Lowers *step, down to one strip, until the reserves of all sequences and of one more fit `most`
 * bytes.  Returns the bytes that they take with such steps; SIZE_MAX: no store can be so large. */
static size_t reserves_of(const struct budget *b, size_t most, uint32_t *step)
{
    struct kv_group *group = mem_array(MAX(b->n_sites, 1), sizeof *group);
    uint32_t *number = mem_array(MAX(b->n_sites, 1), sizeof *number);
    int n = group && number ? kv_preset_groups(b->site, b->n_sites, b->preset, group, number)
                            : ERR_NOMEM;
    size_t all = SIZE_MAX;
    for (bool more = n >= 0; more;) {
        const struct kv_config c = {.group = group,
                                    .n_groups = (uint32_t)n,
                                    .max_tokens = *step,
                                    .redo = b->redo,
                                    .streaming = b->streaming};
        if (!ck_mul(kv_reserve_bytes(&c, b->max_len), (size_t)b->max_seqs + 1, &all))
            all = SIZE_MAX;
        more = all > most && *step > KV_STRIP;
        if (more) *step = (*step - 1) / KV_STRIP * KV_STRIP;
    }
    if (n >= 0) kv_preset_close(group, (uint32_t)n);
    mem_free(group);
    mem_free(number);
    return all;
}

/* Returns the bytes that the rows of a cache with reserves must have at least: those of every
 * sequence and of one more.  A streaming cache may take short steps for it. */
static size_t reserves_least(const struct budget *b)
{
    uint32_t step = b->streaming == KV_STREAM ? MIN(b->step_tokens, 2 * KV_STRIP) : b->step_tokens;
    return b->reserve ? reserves_of(b, SIZE_MAX, &step) : 0;
}

/* A resident cache has room for every sequence at its longest, for the rows that a change of frequencies computes again,
 * and spare blocks for undo.  A streaming cache is meant to be small: staging, 512 rows for steps to grow in, and four
 * blocks a sequence.  With a codec, the raw rows of a tile and the tile itself are in memory when a step completes it. */
size_t budget_bytes(const struct budget *b, size_t most, size_t *staging)
{
    bool codec = kv_preset_encodes(b->preset), small = b->streaming == KV_STREAM;
    size_t rows =
        (MIN((size_t)b->max_len, held_most(b)) + 3 * (size_t)KV_ATOM) * ((size_t)b->max_seqs + 1);
    rows += b->redo * (size_t)b->max_seqs;
    size_t row = row_of(b) * (codec ? 2 : 1), want;
    size_t states = 4 * ((size_t)b->max_seqs + 1) * states_of(b->site, b->n_sites);
    size_t stage = small ? staging_of(b) : 0;
    *staging = 0;
    if (small) rows = MIN(rows, 512 + (codec ? 6 : 4) * (size_t)KV_STRIP * b->max_seqs);
    if (!ck_mul(rows, row, &want) || !ck_add(want, states, &want)) return most;
    want = MAX(want, reserves_least(b));
    if (!ck_add(want, stage, &want) || want > most) return most;
    *staging = stage;
    return want;
}

/* The new rows of a step stay in memory until their pages are full: a quarter of the budget at most.
 * Every reserve holds the pages of one step, so a step is no longer than the budget has reserves
 * for. */
uint32_t budget_step(const struct budget *b, size_t bytes, size_t staging, uint32_t wish)
{
    size_t row = MAX(row_of(b), 1), fit = bytes / 4 / row / KV_STRIP * KV_STRIP;
    uint32_t step = (uint32_t)MIN((size_t)wish, MAX(fit, KV_STRIP));
    if (b->reserve) (void)reserves_of(b, bytes - (staging ? staging : bytes / 4), &step);
    return step;
}

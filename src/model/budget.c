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

/* A resident cache has room for every sequence at its longest, and spare blocks for undo.  A streaming cache is meant to
 * be small: staging, 512 rows for steps to grow in, and four blocks a sequence.  With a codec, the raw rows of a tile and
 * the tile itself are in memory when a step completes it. */
size_t budget_bytes(const struct budget *b, size_t most, size_t *staging)
{
    bool codec = kv_preset_encodes(b->preset), small = b->streaming == KV_STREAM;
    size_t rows =
        (MIN((size_t)b->max_len, held_most(b)) + 3 * (size_t)KV_ATOM) * ((size_t)b->max_seqs + 1);
    size_t row = row_of(b) * (codec ? 2 : 1), want;
    size_t states = 4 * ((size_t)b->max_seqs + 1) * states_of(b->site, b->n_sites);
    size_t stage = small ? staging_of(b) : 0;
    *staging = 0;
    if (small) rows = MIN(rows, 512 + (codec ? 6 : 4) * (size_t)KV_STRIP * b->max_seqs);
    if (!ck_mul(rows, row, &want) || !ck_add(want, states, &want) || !ck_add(want, stage, &want) ||
        want > most)
        return most;
    *staging = stage;
    return want;
}

/* The new rows of a step stay in memory until their pages are full: a quarter of the budget at most.  A reserve sets
 * aside one step of its own and an open block, so a step is then a sequence's share of the budget. */
uint32_t budget_step(const struct budget *b, size_t bytes, size_t staging, uint32_t wish)
{
    size_t row = MAX(row_of(b), 1), fit = bytes / 4 / row / KV_STRIP * KV_STRIP;
    if (b->reserve) {
        size_t rest = bytes - (staging ? staging : bytes / 4);
        size_t share = rest / row / b->max_seqs / KV_STRIP * KV_STRIP;
        fit = MIN(fit, share - MIN(share, 2 * (size_t)KV_STRIP));
    }
    return (uint32_t)MIN((size_t)wish, MAX(fit, KV_STRIP));
}

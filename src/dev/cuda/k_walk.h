/* k_walk.h - which rows make an atom, for kernels and for the host, which counts atoms.  The rule is that of
 * attn_phase_rows (dev/cpu/attn.c): a token meets its rows in four phases.  First the sealed rows of a codec that
 * loses something, then raw rows: sinks, rows below `lead`, the tail.  Each phase is an interval, cut at multiples
 * of 256. */
#pragma once
#include "dev/cuda/kernels.h"

#ifndef K_FN /* compiled for the host */
#define K_FN static inline
#endif
enum { WALK_SEALED, WALK_SINKS, WALK_LEAD, WALK_TAIL, WALK_PHASES, WALK_SPAN = 256 };

K_FN uint32_t walk_min(uint32_t x, uint32_t y)
{
    return x < y ? x : y;
}
K_FN uint32_t walk_max(uint32_t x, uint32_t y)
{
    return x > y ? x : y;
}

/* Computes the rows [*from, *to) of a phase of a token inside the piece. */
K_FN void walk_rows(const struct k_walk *w, uint32_t token, uint32_t phase, uint32_t *from,
                    uint32_t *to)
{
    uint32_t hi = w->hi[token], lo = walk_min(w->lo[token], hi), sinks = walk_min(w->sinks, hi);
    uint32_t lead = w->lead, edge = w->lossy ? walk_min(w->edge[token], hi) : 0, x = 0, y = 0;
    if (lo <= sinks) lo = sinks = 0;
    if (edge <= walk_max(lead, lo)) edge = 0;
    if (phase == WALK_SEALED) {
        if (edge) x = walk_max(lo, lead), y = edge;
    } else if (phase == WALK_SINKS) {
        y = sinks;
    } else if (phase == WALK_LEAD) {
        if (edge) x = lo, y = walk_max(lo, lead);
    } else {
        x = walk_max(lo, edge), y = hi;
    }
    bool raw = w->lossy && phase != WALK_SEALED;
    *from = walk_max(x, raw ? w->raw0 : w->row0);
    *to = walk_max(*from, walk_min(y, raw ? w->raw1 : w->row1));
}

/* Returns the number of atoms of a token in the piece. */
K_FN uint32_t walk_atoms(const struct k_walk *w, uint32_t token)
{
    uint32_t n = 0, x, y;
    for (uint32_t phase = 0; phase < WALK_PHASES; phase++) {
        walk_rows(w, token, phase, &x, &y);
        if (x < y) n += (y - 1) / WALK_SPAN - x / WALK_SPAN + 1;
    }
    return n;
}

/* Finds atom `i` of a token: its phase and its rows [*from, *to).  False if the token has fewer atoms. */
K_FN bool walk_atom(const struct k_walk *w, uint32_t token, uint32_t i, uint32_t *phase,
                    uint32_t *from, uint32_t *to)
{
    uint32_t x, y;
    for (*phase = 0; *phase < WALK_PHASES; ++*phase) {
        walk_rows(w, token, *phase, &x, &y);
        uint32_t n = x < y ? (y - 1) / WALK_SPAN - x / WALK_SPAN + 1 : 0;
        if (i >= n) {
            i -= n;
            continue;
        }
        *from = i ? (x / WALK_SPAN + i) * WALK_SPAN : x;
        *to = walk_min(y, (x / WALK_SPAN + i + 1) * WALK_SPAN);
        return true;
    }
    return false;
}

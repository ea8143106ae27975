/* state_pages.h - steps over the pages of recurrent states, for the tests of their kernels: LANES sequences of TOKENS tokens,
 * with a page for the state after each token. */
#pragma once
#include "dev/cpu/cpu.h"
#include "testing.h"

enum { TOKENS = 23, LANES = 3, PAGES = 1 + LANES * (TOKENS + 1) };

static uint64_t seed = 88172645463325252ull;
static inline float rnd(float lo, float hi)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return lo + (hi - lo) * ((float)(seed >> 40) / (float)(1 << 24));
}

static inline float *draw(size_t n, float lo, float hi)
{
    float *p = malloc(n * sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = rnd(lo, hi);
    return p;
}

/* A step of `n` tokens of every lane from token `at` on. */
struct step {
    unsigned char *pages;
    struct kv_view v;
    uint32_t counts[3], lane[LANES * TOKENS], pos[LANES * TOKENS], dst[LANES * TOKENS], from[LANES];
};

/* plane: bytes of each of two planes */
static inline void step_new(struct step *t, size_t plane0, size_t plane1)
{
    memset(t, 0, sizeof *t);
    t->v.raw.grain = (plane0 + plane1 + 63) & ~(size_t)63;
    t->v.raw.offset[1] = plane0;
    t->pages = malloc(PAGES * t->v.raw.grain);
    memset(t->pages, 0xff, PAGES * t->v.raw.grain); /* NaN */
    t->v.raw.base = t->pages;
    t->v.counts = t->counts;
    t->v.lane = t->lane;
    t->v.pos = t->pos;
    t->v.dst = t->dst;
    t->v.from = t->from;
}

/* Page of the state of a lane after `len` tokens. */
static inline uint32_t page_of(uint32_t lane, uint32_t len)
{
    return len ? 1 + lane * (TOKENS + 1) + len : 0;
}

/* Describes the step; all: every token has a page, as drafts have. */
static inline void step_set(struct step *t, uint32_t at, uint32_t n, bool all)
{
    t->counts[0] = LANES;
    t->counts[1] = LANES * n;
    for (uint32_t l = 0; l < LANES; l++) {
        t->from[l] = page_of(l, at);
        for (uint32_t i = 0; i < n; i++) {
            t->lane[l * n + i] = l;
            t->pos[l * n + i] = at + i;
            /* snapshots in the middle of a step, too */
            bool keeps = all || i + 1 == n || (at + i) % 5 == 2;
            t->dst[l * n + i] = keeps ? page_of(l, at + i + 1) : 0;
        }
    }
}

/* Checks that every page which a step over all tokens writes equals the state of a sequence that ends there.  run:
 * the operations over the view of t; used: bytes of a state. */
static inline void check_pages(struct step *t, size_t used, void (*run)(void *arg), void *arg)
{
    step_set(t, 0, TOKENS, true);
    run(arg);
    unsigned char *all = malloc(PAGES * t->v.raw.grain);
    memcpy(all, t->pages, PAGES * t->v.raw.grain);
    for (uint32_t len = 1; len <= TOKENS; len++) { /* lane 0 alone, with this length */
        t->counts[0] = 1;
        t->counts[1] = len;
        memset(t->dst, 0, sizeof t->dst);
        t->dst[len - 1] = page_of(1, 1);
        run(arg);
        assert_memory_equal(all + page_of(0, len) * t->v.raw.grain,
                            t->pages + page_of(1, 1) * t->v.raw.grain, used);
    }
    free(all);
}

/* Copies rows [at, at + n) of every lane from x [lane][TOKENS][width] to rows of `ld` values, or back. */
static inline void rows(float *x, size_t width, float *part, size_t ld, uint32_t at, uint32_t n,
                        bool back)
{
    for (uint32_t l = 0; l < LANES; l++)
        for (uint32_t i = 0; i < n; i++) {
            float *whole = x + ((size_t)l * TOKENS + at + i) * width,
                  *own = part + (l * n + i) * ld;
            memcpy(back ? whole : own, back ? own : whole, width * sizeof *x);
        }
}

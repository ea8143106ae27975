/* walk.h - walks: lists of steps over caches, each an operation by its name and a number.  A walk is drawn from a seed, or
 * written as a text such as "open:17 new:4 feed:901", and either is run the same way: all that a step decides comes from its
 * number.  So a step can be left out, and the others stay what they are; walk_shorten finds the few steps that fail. */
#pragma once
#include "stop.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { WALK_MOST = 256, WALK_NAME = 64 };

struct walk_op {
    const char *name;
    uint32_t weight; /* how often it is drawn; 0: only in texts */
};
struct walk_step {
    uint32_t op;
    uint64_t x;
};
struct walk {
    const struct walk_op *op;
    uint32_t n_ops, n;
    struct walk_step step[WALK_MOST];
};

/* --- The one generator. */

static uint64_t walk_state;

static inline uint32_t dice(uint32_t n)
{
    walk_state ^= walk_state << 13;
    walk_state ^= walk_state >> 7;
    walk_state ^= walk_state << 17;
    return (uint32_t)((walk_state >> 16) % n);
}
static inline uint32_t between(uint32_t a, uint32_t b)
{
    return a + dice(b - a + 1);
}
static inline bool chance(uint32_t percent)
{
    return dice(100) < percent;
}
/* Above 32 bits, a seed is the generator's state. */
static inline void walk_seed(uint64_t seed)
{
    if (seed >> 32) {
        walk_state = seed;
        return;
    }
    walk_state = seed * 0x9e3779b97f4a7c15u + 0x1234567;
    for (int i = 0; i < 8; i++)
        (void)dice(2);
}

/* --- Walks. */

/* Appends n steps, by the weights of the operations. */
static inline void walk_draw(struct walk *w, uint32_t n)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < w->n_ops; i++)
        total += w->op[i].weight;
    for (; n-- && w->n < WALK_MOST; w->n++) {
        struct walk_step *s = &w->step[w->n];
        uint32_t k = dice(total);
        for (s->op = 0; k >= w->op[s->op].weight; s->op++)
            k -= w->op[s->op].weight;
        s->x = dice(100000);
    }
}

/* Reads the steps of a text.  Ends the test at a word that is no step. */
static inline void walk_read(struct walk *w, const char *text)
{
    char name[WALK_NAME];
    int used;
    for (w->n = 0; *(text += strspn(text, " ")); text += used, w->n++) {
        struct walk_step *s = &w->step[w->n];
        if (w->n == WALK_MOST || sscanf(text, "%63[^: ]:%" SCNu64 "%n", name, &s->x, &used) != 2)
            test_stop("no step of a walk, or more than %d: %s", WALK_MOST, text);
        for (s->op = 0; s->op < w->n_ops && strcmp(w->op[s->op].name, name) != 0;)
            s->op++;
        if (s->op == w->n_ops) test_stop("no operation %s", name);
    }
}

static inline void walk_print(const struct walk *w)
{
    for (uint32_t i = 0; i < w->n; i++)
        printf("%s%s:%" PRIu64, i ? " " : "", w->op[w->step[i].op].name, w->step[i].x);
    printf("\n");
}

/* Leaves out steps behind the first without which the walk still fails. */
static inline void walk_shorten(struct walk *w, bool (*fails)(const struct walk *w))
{
    for (uint32_t part = w->n / 2; part; part = part > 1 ? (part + 1) / 2 : 0)
        for (uint32_t at = 1; at < w->n;) {
            struct walk less = *w;
            uint32_t cut = at + part < w->n ? part : w->n - at;
            less.n -= cut;
            memmove(less.step + at, less.step + at + cut, (less.n - at) * sizeof *less.step);
            if (fails(&less))
                *w = less;
            else
                at += cut;
        }
}

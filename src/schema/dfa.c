/* dfa.c - deterministic automata: trimming, products, complements and counting. */
#include "schema/dfa.h"

#include <stdlib.h>
#include <string.h>

#define BUDGET ((uint64_t)1 << 27) /* steps; about half a second */
static _Thread_local uint64_t left = BUDGET;

void dfa_budget(void)
{
    left = BUDGET;
}

int dfa_pay(uint64_t steps)
{
    if (steps > left)
        return ERR(
            LIMIT,
            "the schema or the pattern takes too much work to compile; make repetitions and alternatives fewer");
    left -= steps;
    return 0;
}

void dfa_drop(struct dfa *d)
{
    if (!d) return;
    mem_free(d->from);
    mem_free(d->of);
    mem_free(d->next);
    mem_free(d->accept);
    mem_free(d);
}

uint32_t dfa_span(const struct dfa *d, uint32_t cp)
{
    uint32_t lo = 0, hi = d->n_span;
    while (hi - lo > 1) {
        uint32_t m = lo + (hi - lo) / 2;
        if (d->from[m] <= cp)
            lo = m;
        else
            hi = m;
    }
    return lo;
}

uint32_t dfa_class(const struct dfa *d, uint32_t cp)
{
    return d->of[dfa_span(d, cp)];
}

int dfa_new(uint32_t n_state, const uint32_t *from, uint32_t n_span, struct dfa **out)
{
    if (n_state > DFA_MOST || (uint64_t)n_state * n_span > DFA_CELLS)
        return ERR(LIMIT,
                   "the automaton of this part of the schema would have %u states and %u classes "
                   "of characters; at most %u states and %u transitions are possible",
                   n_state, n_span, DFA_MOST, DFA_CELLS);
    struct dfa *d = mem_alloc(sizeof *d);
    if (!d) return ERR_NOMEM;
    d->n_state = n_state;
    d->n_class = d->n_span = n_span;
    d->start = n_state ? 0 : DFA_DEAD;
    d->from = mem_array(n_span, sizeof *d->from);
    d->of = mem_array(n_span, sizeof *d->of);
    d->next = mem_array((size_t)MAX(n_state, 1u) * n_span, sizeof *d->next);
    d->accept = mem_array(MAX(n_state, 1u), sizeof *d->accept);
    if (!d->from || !d->of || !d->next || !d->accept) {
        dfa_drop(d);
        return ERR_NOMEM;
    }
    memcpy(d->from, from, n_span * sizeof *from);
    for (uint32_t i = 0; i < n_span; i++)
        d->of[i] = i;
    memset(d->next, 0xFF, (size_t)MAX(n_state, 1u) * n_span * sizeof *d->next);
    *out = d;
    return 0;
}

/* Marks the states from which a text can be accepted, going backwards.  The transitions into state q are in[at[q]]
 * ... in[at[q + 1]). */
static int mark_live(const struct dfa *d, uint8_t *live)
{
    size_t cells = (size_t)d->n_state * d->n_class;
    uint32_t *at = mem_array((size_t)d->n_state + 1, sizeof *at), n = 0;
    uint32_t *in = mem_array(MAX(cells, 1), sizeof *in);
    uint32_t *todo = mem_array(MAX(d->n_state, 1u), sizeof *todo);
    bool all = at && in && todo;
    for (size_t i = 0; all && i < cells; i++)
        if (d->next[i] != DFA_DEAD) at[d->next[i]]++;
    for (uint32_t q = 0; all && q < d->n_state; q++)
        at[q + 1] += at[q];
    for (size_t i = cells; all && i-- > 0;)
        if (d->next[i] != DFA_DEAD) in[--at[d->next[i]]] = (uint32_t)(i / d->n_class);
    for (uint32_t q = 0; all && q < d->n_state; q++)
        if (d->accept[q]) {
            live[q] = 1;
            todo[n++] = q;
        }
    while (all && n > 0) {
        uint32_t q = todo[--n];
        for (uint32_t i = at[q]; i < at[q + 1]; i++)
            if (!live[in[i]]) {
                live[in[i]] = 1;
                todo[n++] = in[i];
            }
    }
    mem_free(at);
    mem_free(in);
    mem_free(todo);
    return all ? 0 : ERR_NOMEM;
}

/* Removes the transitions of spans that are all surrogates, since no text contains one. */
static void drop_surrogates(struct dfa *d)
{
    for (uint32_t i = 0; i < d->n_span; i++) {
        uint32_t last = i + 1 < d->n_span ? d->from[i + 1] - 1 : CP_LAST;
        for (uint32_t q = 0; d->from[i] >= 0xD800 && last <= 0xDFFF && q < d->n_state; q++)
            d->next[(size_t)q * d->n_class + d->of[i]] = DFA_DEAD;
    }
}

int dfa_trim(struct dfa *d)
{
    drop_surrogates(d);
    uint8_t *live = mem_alloc(MAX(d->n_state, 1u));
    if (!live) return ERR_NOMEM;
    int e = mark_live(d, live);
    size_t cells = (size_t)d->n_state * d->n_class;
    for (size_t i = 0; e >= 0 && i < cells; i++)
        if (d->next[i] != DFA_DEAD && !live[d->next[i]]) d->next[i] = DFA_DEAD;
    if (e >= 0 && d->start != DFA_DEAD && !live[d->start]) d->start = DFA_DEAD;
    d->quick = d->n_class <= 256;
    for (uint32_t c = 0; d->quick && c < 128; c++)
        d->ascii[c] = (uint8_t)dfa_class(d, c);
    mem_free(live);
    return e;
}

/* Merges the spans of two automata. */
static int merge_spans(const struct dfa *a, const struct dfa *b, uint32_t **out, uint32_t *n)
{
    uint32_t *v = mem_array((size_t)a->n_span + b->n_span, sizeof *v), i = 0, j = 0, k = 0;
    if (!v) return ERR_NOMEM;
    while (i < a->n_span || j < b->n_span) {
        uint32_t x = i < a->n_span ? a->from[i] : UINT32_MAX;
        uint32_t y = j < b->n_span ? b->from[j] : UINT32_MAX;
        v[k++] = MIN(x, y);
        i += x <= y;
        j += y <= x;
    }
    *out = v;
    *n = k;
    return 0;
}

void dfa_states_done(struct dfa_states *s)
{
    mem_free(s->key);
    mem_free(s->places.entry);
}

static uint64_t mix(uint64_t x)
{
    x *= 0x9E3779B97F4A7C15u;
    return x ^ x >> 29;
}

static int states_grow(struct dfa_states *s)
{
    uint32_t cap = s->cap ? s->cap * 2 : 64;
    if (s->n >= DFA_MOST)
        return ERR(LIMIT, "the automaton of this part of the schema would have more than %u states",
                   DFA_MOST);
    uint64_t *key = mem_grow(s->key, cap, sizeof *key);
    if (!key) return ERR_NOMEM;
    s->key = key;
    s->cap = cap;
    TRY(places_clear(&s->places, cap));
    for (uint32_t i = 0; i < s->n; i++)
        places_add(&s->places, (uint32_t)mix(s->key[i]), i);
    return 0;
}

int dfa_state(struct dfa_states *s, uint64_t key, uint32_t *out)
{
    if (s->n == s->cap) TRY(states_grow(s));
    const struct places *p = &s->places;
    uint32_t at = (uint32_t)mix(key) & p->mask;
    for (; p->entry[at]; at = (at + 1) & p->mask)
        if (s->key[p->entry[at] - 1] == key) {
            *out = p->entry[at] - 1;
            return 0;
        }
    s->key[s->n] = key;
    p->entry[at] = s->n + 1;
    *out = s->n++;
    return 0;
}

/* A product in progress: its states are pairs of states, a << 32 | b. */
struct product {
    const struct dfa *a, *b;
    struct dfa_states pair;
};

static int product_put(struct product *p, uint32_t a, uint32_t b, uint32_t *out)
{
    return dfa_state(&p->pair, (uint64_t)a << 32 | b, out);
}

/* Finds all pairs that can be reached; edge[pair][span] is the pair that follows. */
static int product_walk(struct product *p, const uint32_t *from, uint32_t n_span, uint32_t **edge)
{
    uint32_t first, cap = 0;
    if (p->a->start == DFA_DEAD || p->b->start == DFA_DEAD) return 0;
    TRY(product_put(p, p->a->start, p->b->start, &first));
    for (uint32_t i = 0; i < p->pair.n; i++) {
        if (i == cap) {
            cap = cap ? cap * 2 : 16;
            if ((uint64_t)cap * n_span > 2 * (uint64_t)DFA_CELLS)
                return ERR(LIMIT,
                           "the automaton of this part of the schema would have more than %u "
                           "transitions",
                           DFA_CELLS);
            uint32_t *more = mem_grow(*edge, (size_t)cap * n_span, sizeof *more);
            if (!more) return ERR_NOMEM;
            *edge = more;
        }
        TRY(dfa_pay(4 * (uint64_t)n_span));
        for (uint32_t s = 0; s < n_span; s++) {
            uint32_t *to = &(*edge)[(size_t)i * n_span + s];
            uint32_t x = dfa_next(p->a, (uint32_t)(p->pair.key[i] >> 32), from[s]);
            uint32_t y = dfa_next(p->b, (uint32_t)p->pair.key[i], from[s]);
            *to = DFA_DEAD;
            if (x != DFA_DEAD && y != DFA_DEAD) TRY(product_put(p, x, y, to));
        }
    }
    return 0;
}

int dfa_both(const struct dfa *a, const struct dfa *b, bool tag, struct dfa **out)
{
    struct product p = {.a = a, .b = b};
    uint32_t *from = NULL, *edge = NULL, n_span = 0;
    struct dfa *d = NULL;
    int e = merge_spans(a, b, &from, &n_span);
    if (e >= 0) e = product_walk(&p, from, n_span, &edge);
    if (e >= 0) e = dfa_new(p.pair.n, from, n_span, &d);
    for (uint32_t i = 0; e >= 0 && i < p.pair.n; i++) {
        uint32_t x = a->accept[p.pair.key[i] >> 32], y = b->accept[(uint32_t)p.pair.key[i]];
        d->accept[i] = x && y ? (tag ? y : x) : 0;
    }
    if (e >= 0 && p.pair.n) memcpy(d->next, edge, (size_t)p.pair.n * n_span * sizeof *edge);
    if (e >= 0) e = dfa_trim(d);
    dfa_states_done(&p.pair);
    mem_free(from);
    mem_free(edge);
    if (e < 0)
        dfa_drop(d);
    else
        *out = d;
    return e;
}

int dfa_not(const struct dfa *d, struct dfa **out)
{
    struct dfa *n;
    uint32_t sink = d->n_state;
    TRY(dfa_new(d->n_state + 1, d->from, d->n_span, &n));
    n->start = d->start == DFA_DEAD ? sink : d->start;
    for (uint32_t q = 0; q <= sink; q++) {
        n->accept[q] = q == sink || !d->accept[q];
        for (uint32_t s = 0; s < d->n_span; s++) {
            uint32_t to = q == sink ? DFA_DEAD : d->next[(size_t)q * d->n_class + d->of[s]];
            n->next[(size_t)q * n->n_class + s] = to == DFA_DEAD ? sink : to;
        }
    }
    int e = dfa_trim(n);
    if (e < 0)
        dfa_drop(n);
    else
        *out = n;
    return e;
}

int dfa_any(struct dfa **out)
{
    return dfa_length(0, UINT64_MAX, out);
}

int dfa_length(uint64_t min, uint64_t max, struct dfa **out)
{
    static const uint32_t all = 0;
    struct dfa *d;
    uint64_t n = (max == UINT64_MAX ? min : max) + 1;
    if (min > max) n = 0;
    if (n > DFA_MOST)
        return ERR(LIMIT,
                   "a length of %llu beside other keywords for strings is more than the %u that an "
                   "automaton can count",
                   (unsigned long long)n - 1, DFA_MOST - 1);
    TRY(dfa_new((uint32_t)n, &all, 1, &d));
    for (uint32_t q = 0; q < n; q++) {
        d->accept[q] = q >= min;
        d->next[q] = q + 1 < n ? q + 1 : max == UINT64_MAX ? q : DFA_DEAD;
    }
    int e = dfa_trim(d);
    if (e < 0)
        dfa_drop(d);
    else
        *out = d;
    return e;
}

/* nfa.c - automata with empty edges, and the deterministic automaton of one.  It is made by the subset
 * construction over spans of code points that no edge distinguishes. */
#include "base/utf8.h"
#include "schema/dfa.h"

#include <stdlib.h>
#include <string.h>

void nfa_done(struct nfa *a)
{
    mem_free(a->edge);
    mem_free(a->first);
    mem_free(a->accept);
    *a = (struct nfa){0};
}

int nfa_state(struct nfa *a, uint32_t *out)
{
    if (a->n == NFA_MOST)
        return ERR(LIMIT,
                   "the pattern or the names of this part of the schema need more than %u states",
                   NFA_MOST);
    if (a->n == a->cap) {
        uint32_t cap = a->cap ? a->cap * 2 : 64;
        uint32_t *first = mem_grow(a->first, cap, sizeof *first);
        if (!first) return ERR_NOMEM;
        a->first = first;
        uint32_t *accept = mem_grow(a->accept, cap, sizeof *accept);
        if (!accept) return ERR_NOMEM;
        a->accept = accept;
        a->cap = cap;
    }
    a->first[a->n] = NFA_NONE;
    a->accept[a->n] = 0;
    *out = a->n++;
    return 0;
}

int nfa_edge(struct nfa *a, uint32_t from, enum nfa_kind kind, uint32_t lo, uint32_t hi,
             uint32_t to)
{
    if (a->n_edge == 16 * NFA_MOST)
        return ERR(LIMIT, "the pattern needs more than %u edges", 16 * NFA_MOST);
    if (a->n_edge == a->cap_edge) {
        uint32_t cap = a->cap_edge ? a->cap_edge * 2 : 64;
        struct nfa_edge *edge = mem_grow(a->edge, cap, sizeof *edge);
        if (!edge) return ERR_NOMEM;
        a->edge = edge;
        a->cap_edge = cap;
    }
    a->edge[a->n_edge] =
        (struct nfa_edge){.kind = kind, .lo = lo, .hi = hi, .to = to, .next = a->first[from]};
    a->first[from] = a->n_edge++;
    return 0;
}

/* Returns the target of an edge for exactly cp, or NFA_NONE. */
static uint32_t follow_edge(const struct nfa *a, uint32_t q, uint32_t cp)
{
    for (uint32_t i = a->first[q]; i != NFA_NONE; i = a->edge[i].next)
        if (a->edge[i].kind == NFA_RANGE && a->edge[i].lo == cp && a->edge[i].hi == cp)
            return a->edge[i].to;
    return NFA_NONE;
}

int nfa_text(struct nfa *a, const char *s, size_t n, uint32_t mark)
{
    uint32_t q = a->start, to;
    if (!a->n) {
        TRY(nfa_state(a, &a->start));
        q = a->start;
    }
    for (size_t at = 0, k; at < n; at += k) {
        uint32_t cp = utf8_decode(s + at, n - at, &k);
        if ((to = follow_edge(a, q, cp)) == NFA_NONE) {
            TRY(nfa_state(a, &to));
            TRY(nfa_edge(a, q, NFA_RANGE, cp, cp, to));
        }
        q = to;
    }
    if (!a->accept[q]) {
        a->accept[q] = mark + 1;
        return 0;
    }
    /* The text has a mark already: the second mark gets a state behind an empty edge. */
    TRY(nfa_state(a, &to));
    a->accept[to] = mark + 1;
    return nfa_edge(a, q, NFA_EMPTY, 0, 0, to);
}

void mark_sets_done(struct mark_sets *m)
{
    mem_free(m->mark);
    mem_free(m->at);
    *m = (struct mark_sets){0};
}

/* A subset construction in progress.  Set i is member[at[i]] ... member[at[i + 1]), ascending states. */
struct subset {
    const struct nfa *a;
    uint32_t *member, *at; /* owned */
    uint32_t n, cap;
    size_t n_member, cap_member;
    struct places places; /* of sets */
    uint64_t *in;         /* owned, bits: states of the set that is being made */
    uint32_t *stack;      /* owned, [a->n] */
    uint32_t *list;       /* owned, [a->n]: the same states as a list */
    uint32_t n_list;
    /* owned: first code point of each span, whose code points no edge distinguishes */
    uint32_t *span;
    uint32_t n_span;
    uint64_t steps; /* steps that are not paid for yet */
    uint32_t *next; /* owned, [cap_next][n_span] */
    uint32_t cap_next;
};

static void subset_done(struct subset *s)
{
    void *own[] = {s->member, s->at, s->places.entry, s->in, s->stack, s->list, s->span, s->next};
    for (size_t i = 0; i < countof(own); i++)
        mem_free(own[i]);
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t unique(uint32_t *v, uint32_t n)
{
    uint32_t k = 0;
    qsort(v, n, sizeof *v, by_number);
    for (uint32_t i = 0; i < n; i++)
        if (!k || v[k - 1] != v[i]) v[k++] = v[i];
    return k;
}

static int subset_begin(struct subset *s)
{
    const struct nfa *a = s->a;
    s->in = mem_array((size_t)a->n / 64 + 1, sizeof *s->in);
    s->stack = mem_array((size_t)a->n + 1, sizeof *s->stack);
    s->list = mem_array((size_t)a->n + 1, sizeof *s->list);
    s->span = mem_array((size_t)a->n_edge * 2 + 1, sizeof *s->span);
    s->at = mem_array(1, sizeof *s->at);
    if (!s->in || !s->stack || !s->list || !s->span || !s->at) return ERR_NOMEM;
    uint32_t n = 1;
    for (uint32_t i = 0; i < a->n_edge; i++) {
        if (a->edge[i].kind != NFA_RANGE) continue;
        s->span[n++] = a->edge[i].lo;
        if (a->edge[i].hi < CP_LAST) s->span[n++] = a->edge[i].hi + 1;
    }
    s->n_span = unique(s->span, n);
    return 0;
}

static bool mark_in(struct subset *s, uint32_t q)
{
    uint64_t bit = (uint64_t)1 << (q & 63);
    if (s->in[q >> 6] & bit) return false;
    s->in[q >> 6] |= bit;
    s->list[s->n_list++] = q;
    return true;
}

/* Adds a state, and the states that empty edges reach from it, to the set that is being made. */
static void reach(struct subset *s, uint32_t q, bool begin, bool end)
{
    uint32_t n = 0;
    if (mark_in(s, q)) s->stack[n++] = q;
    while (n > 0) {
        q = s->stack[--n];
        for (uint32_t i = s->a->first[q]; i != NFA_NONE; i = s->a->edge[i].next) {
            const struct nfa_edge *e = &s->a->edge[i];
            s->steps++;
            bool open = e->kind == NFA_EMPTY || (e->kind == NFA_BEGIN && begin) ||
                        (e->kind == NFA_END && end);
            if (open && mark_in(s, e->to)) s->stack[n++] = e->to;
        }
    }
}

static void clear_list(struct subset *s)
{
    for (uint32_t i = 0; i < s->n_list; i++)
        s->in[s->list[i] >> 6] = 0;
    s->n_list = 0;
}

static uint32_t hash_list(const uint32_t *v, uint32_t n)
{
    uint64_t h = n;
    for (uint32_t i = 0; i < n; i++)
        h = (h ^ v[i]) * 0x9E3779B97F4A7C15u ^ h >> 31;
    return (uint32_t)(h ^ h >> 32);
}

static int subset_grow(struct subset *s)
{
    uint32_t cap = s->cap ? s->cap * 2 : 64;
    if (s->n >= DFA_MOST)
        return ERR(LIMIT,
                   "the automaton of the pattern or the names would have more than %u states",
                   DFA_MOST);
    uint32_t *at = mem_grow(s->at, (size_t)cap + 1, sizeof *at);
    if (!at) return ERR_NOMEM;
    s->at = at;
    s->cap = cap;
    TRY(places_clear(&s->places, cap));
    for (uint32_t i = 0; i < s->n; i++)
        places_add(&s->places, hash_list(s->member + s->at[i], s->at[i + 1] - s->at[i]), i);
    return 0;
}

/* Finds the set that is being made, or adds it; then empties it. */
static int subset_put(struct subset *s, uint32_t *out)
{
    if (s->n == s->cap) TRY(subset_grow(s));
    qsort(s->list, s->n_list, sizeof *s->list, by_number);
    const struct places *p = &s->places;
    uint32_t n = s->n_list, h = hash_list(s->list, n) & p->mask;
    for (; p->entry[h]; h = (h + 1) & p->mask) {
        /* set 0 belongs to the beginning of the text and is never found again */
        uint32_t i = p->entry[h] - 1;
        if (i && s->at[i + 1] - s->at[i] == n &&
            !memcmp(s->member + s->at[i], s->list, n * sizeof *s->list)) {
            clear_list(s);
            *out = i;
            return 0;
        }
    }
    if (s->n_member + n > s->cap_member) {
        size_t cap = MAX(s->cap_member * 2, s->n_member + n);
        if (cap > (size_t)DFA_CELLS * 4)
            return ERR(LIMIT,
                       "the pattern needs sets of %zu states together, the limit is %zu; make its "
                       "repetitions and alternatives fewer",
                       cap, (size_t)DFA_CELLS * 4);
        uint32_t *more = mem_grow(s->member, cap, sizeof *more);
        if (!more) return ERR_NOMEM;
        s->member = more;
        s->cap_member = cap;
    }
    memcpy(s->member + s->n_member, s->list, n * sizeof *s->list);
    s->n_member += n;
    p->entry[h] = s->n + 1;
    *out = s->n++;
    s->at[s->n] = (uint32_t)s->n_member;
    clear_list(s);
    return 0;
}

/* Adds the states that follow the members of set i on code point cp to the set that is being made. */
static void move(struct subset *s, uint32_t i, uint32_t cp)
{
    for (uint32_t k = s->at[i]; k < s->at[i + 1]; k++)
        for (uint32_t x = s->a->first[s->member[k]]; x != NFA_NONE; x = s->a->edge[x].next) {
            const struct nfa_edge *e = &s->a->edge[x];
            s->steps++;
            if (e->kind == NFA_RANGE && e->lo <= cp && cp <= e->hi) reach(s, e->to, false, false);
        }
}

static int subset_walk(struct subset *s)
{
    uint32_t first;
    reach(s, s->a->start, true, false);
    TRY(subset_put(s, &first));
    for (uint32_t i = 0; i < s->n; i++) {
        if (i == s->cap_next) {
            s->cap_next = s->cap_next ? s->cap_next * 2 : 16;
            if ((uint64_t)s->cap_next * s->n_span > 2 * (uint64_t)DFA_CELLS)
                return ERR(LIMIT,
                           "the automaton of the pattern or the names would have more than %u "
                           "transitions",
                           DFA_CELLS);
            uint32_t *more = mem_grow(s->next, (size_t)s->cap_next * s->n_span, sizeof *more);
            if (!more) return ERR_NOMEM;
            s->next = more;
        }
        for (uint32_t k = 0; k < s->n_span; k++) {
            uint32_t to = DFA_DEAD;
            move(s, i, s->span[k]);
            TRY(dfa_pay(s->steps + 8 * (uint64_t)s->n_list));
            s->steps = 0;
            if (s->n_list) TRY(subset_put(s, &to));
            s->next[(size_t)i * s->n_span + k] = to;
        }
    }
    return 0;
}

/* Finds a set of marks, or adds it. */
static int marks_put(struct mark_sets *m, const uint32_t *mark, uint32_t n, uint32_t *out)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (m->at[i + 1] - m->at[i] == n && !memcmp(m->mark + m->at[i], mark, n * sizeof *mark)) {
            *out = i;
            return 0;
        }
    uint32_t *at = mem_grow(m->at, (size_t)m->n + 2, sizeof *at);
    if (!at) return ERR_NOMEM;
    m->at = at;
    if (!m->n) at[0] = 0;
    uint32_t *more = mem_grow(m->mark, (size_t)m->n_mark + n, sizeof *more);
    if (!more) return ERR_NOMEM;
    m->mark = more;
    memcpy(m->mark + m->n_mark, mark, n * sizeof *mark);
    m->n_mark += n;
    *out = m->n++;
    at[m->n] = m->n_mark;
    return 0;
}

/* Sets the value that set i accepts, including what lies behind edges for the end of the text. */
static int subset_accept(struct subset *s, uint32_t i, struct mark_sets *sets, uint32_t *out)
{
    uint32_t n = 0, set = 0;
    for (uint32_t k = s->at[i]; k < s->at[i + 1]; k++)
        reach(s, s->member[k], i == 0, true);
    for (uint32_t k = 0; k < s->n_list; k++)
        if (s->a->accept[s->list[k]]) s->stack[n++] = s->a->accept[s->list[k]] - 1;
    clear_list(s);
    *out = 0;
    TRY(dfa_pay(s->steps));
    s->steps = 0;
    if (!n) return 0;
    n = unique(s->stack, n);
    if (sets) TRY(marks_put(sets, s->stack, n, &set));
    *out = set + 1;
    return 0;
}

int nfa_determine(const struct nfa *a, struct mark_sets *sets, struct dfa **out)
{
    struct subset s = {.a = a};
    struct dfa *d = NULL;
    int e = subset_begin(&s);
    if (e >= 0) e = subset_walk(&s);
    if (e >= 0) e = dfa_new(s.n, s.span, s.n_span, &d);
    if (e >= 0) memcpy(d->next, s.next, (size_t)s.n * s.n_span * sizeof *s.next);
    for (uint32_t i = 0; e >= 0 && i < s.n; i++)
        e = subset_accept(&s, i, sets, &d->accept[i]);
    if (e >= 0) e = dfa_trim(d);
    subset_done(&s);
    if (e < 0)
        dfa_drop(d);
    else
        *out = d;
    return e;
}

/* dfa.h - deterministic automata over code points: the allowed texts of a string, a name or a number.  An
 * automaton is trimmed: from every state some text can still be accepted, so a walk that does not die can always
 * be completed. */
#pragma once
#include "base/base.h"
#include "schema/places.h"

#define DFA_DEAD  UINT32_MAX
#define DFA_MOST  (1u << 16) /* states of one automaton */
#define DFA_CELLS (1u << 22) /* transitions of one automaton */
#define CP_LAST   0x10FFFFu

struct dfa {
    uint32_t n_state, n_class, n_span;
    uint32_t start; /* DFA_DEAD: accepts nothing */
    uint32_t *from; /* [n_span] owned: the first code point of each span, ascending; from[0] is 0 */
    uint32_t *of;   /* [n_span] owned: the class of a span */
    uint32_t *next; /* [n_state][n_class] owned: a state, or DFA_DEAD */
    uint32_t *accept;   /* [n_state] owned: 0 no, else 1 + what is accepted */
    uint8_t ascii[128]; /* the class of an ASCII character, if n_class <= 256 */
    bool quick;         /* ascii is valid */
};
/* A schema comes from a stranger, so the work of a compilation is limited.  A compilation begins with dfa_budget,
 * which sets the budget of the thread; every long loop pays for its steps.  ERR_LIMIT: the budget is used up. */
void dfa_budget(void);
int dfa_pay(uint64_t steps);
void dfa_drop(struct dfa *d);
/* Returns the class of a code point. */
uint32_t dfa_class(const struct dfa *d, uint32_t cp);
/* Returns the index of the span that contains cp. */
uint32_t dfa_span(const struct dfa *d, uint32_t cp);
static inline uint32_t dfa_next(const struct dfa *d, uint32_t q, uint32_t cp)
{
    uint32_t c = cp < 128 && d->quick ? d->ascii[cp] : dfa_class(d, cp);
    return d->next[(size_t)q * d->n_class + c];
}
/* Numbers the states of an automaton under construction, in the order in which they are first met.  Zeroed: none. */
struct dfa_states {
    uint64_t *key; /* owned, [cap]: what a state stands for */
    uint32_t n, cap;
    struct places places;
};
/* Finds the number of a state, or adds it; ERR_LIMIT beyond DFA_MOST states. */
int dfa_state(struct dfa_states *s, uint64_t key, uint32_t *out);
void dfa_states_done(struct dfa_states *s);
/* Makes an automaton of n states and the given spans (from[0] is 0, ascending), each of its own class.  All
 * transitions are dead. */
int dfa_new(uint32_t n_state, const uint32_t *from, uint32_t n_span, struct dfa **out);
/* Completes an automaton whose tables are filled.  Removes transitions into states from which nothing is accepted. */
int dfa_trim(struct dfa *d);
/* Makes the automaton of the texts that both accept.  The value of an accepting state is that of b if `tag`, else
 * that of a. */
int dfa_both(const struct dfa *a, const struct dfa *b, bool tag, struct dfa **out);
/* Makes the automaton of the texts that `d` does not accept. */
int dfa_not(const struct dfa *d, struct dfa **out);
/* Makes the automaton that accepts every text. */
int dfa_any(struct dfa **out);
/* Makes the automaton of texts of min to max code points; max UINT64_MAX: no limit. */
int dfa_length(uint64_t min, uint64_t max, struct dfa **out);

/* --- nfa.c: automata with empty edges, from which dfas are made.  States are numbers from 0. */
#define NFA_NONE UINT32_MAX
#define NFA_MOST (1u << 16)
enum nfa_kind { NFA_RANGE, NFA_EMPTY, NFA_BEGIN, NFA_END };
struct nfa_edge {
    enum nfa_kind kind; /* NFA_BEGIN and NFA_END: only at the beginning or the end of the text */
    uint32_t lo, hi;    /* NFA_RANGE: code points */
    uint32_t to;
    uint32_t next; /* the next edge of the state, or NFA_NONE */
};
struct nfa {
    struct nfa_edge *edge; /* owned */
    uint32_t n_edge, cap_edge;
    uint32_t *first;  /* owned, [n]: the first edge of a state, or NFA_NONE */
    uint32_t *accept; /* owned, [n]: 0 no, else 1 + a mark */
    uint32_t n, cap;
    uint32_t start;
};
void nfa_done(struct nfa *a);
int nfa_state(struct nfa *a, uint32_t *out);
int nfa_edge(struct nfa *a, uint32_t from, enum nfa_kind kind, uint32_t lo, uint32_t hi,
             uint32_t to);
/* Adds the UTF-8 text s[0..n), from the start state, with its mark. */
int nfa_text(struct nfa *a, const char *s, size_t n, uint32_t mark);
/* Sets of marks, which accepting states point to: set i is mark[at[i]] ... mark[at[i + 1]), ascending. */
struct mark_sets {
    uint32_t *mark, *at; /* owned */
    uint32_t n, cap, n_mark, cap_mark;
};
void mark_sets_done(struct mark_sets *m);
/* Makes the deterministic automaton.  With `sets`, the accepted values are numbers of sets of marks; else they are
 * 0. */
int nfa_determine(const struct nfa *a, struct mark_sets *sets, struct dfa **out);
/* regex.c: adds a regular expression of ECMA 262 that may match anywhere in a text.  where: the path for errors. */
int nfa_regex(struct nfa *a, const char *s, size_t n, uint32_t mark, const char *where);

/* model_int.h - internals of the model checker: the reference's sequences and the functions its
 * files share. */
#pragma once
#include "flat.h"
#include "kv/image.h"
#include "kv_model.h"
#include "model_tier.h"

#include <setjmp.h>

#define SEQS   8u
#define LEN    900u
#define GROUPS 3u
#define SPANS  SEQS

struct mseq {
    kv_seq handle;
    bool used, busy, open, trimmed;
    uint32_t len, cross, reserve;
    struct kv_salt salt;
    uint64_t row[LEN], xrow[LEN];
    uint32_t start[LEN]; /* start[i]: the first row of the update that row i belongs to */
    int32_t tok[LEN];
};
/* The number of kept sequences that are remembered; at this number the index is emptied. */
#define KEPT 24u
struct mkept { /* a kept sequence, valid while the store has contents `at` */
    bool used;
    const struct seq *at;
    uint64_t kept; /* at->kept, by which contents at one address differ */
    struct mseq s;
};
struct mspan {
    uint32_t seq, n, undo, tok0;
    bool turn, last;
};
#define MARKS 3u
struct mmark { /* a mark, and the state of its sequence */
    struct kv_mark mark;
    uint32_t seq;
    struct mseq s;
};
struct model {
    struct kv *kv;
    struct kv_group group[GROUPS];
    struct kv_config cfg;
    struct mseq seq[SEQS];
    struct mkept kept[KEPT];
    struct mmark mark[MARKS];
    bool owed;   /* a reserve lacked pages when `shot` was taken */
    bool rolled; /* after a rollback in a store with a tier, a reserve may lack pages */
    uint64_t rng, names, op;
    const struct model_options *opt;
    struct model_totals *t;
    const char *config, *doing;
    struct kv_step *step;
    struct kv_span span[SPANS];
    struct mspan ms[SPANS];
    uint32_t n_spans, n_tokens;
    bool cross;
    int32_t tok[LEN * SPANS];
    unsigned char *shot[2]; /* tables and pages before a step */
    size_t shot_cap;
    /* The memory tier of a store that streams, otherwise NULL; the store owns it. */
    struct tier_mem *tier;
    uint32_t order[32]; /* the order in which sites are visited */
    bool unreserved;    /* nobody asks for a reserve, which keeps rows from being encoded */
    bool peeking;       /* rows are read without a step, spilled ones from the tier */
    jmp_buf out;
};

uint64_t model_mix(uint64_t x);
uint32_t model_rnd(struct model *m, uint32_t n); /* a random number in [0, n) */
bool model_chance(struct model *m, uint32_t percent);
/* Prints what differs and where, and ends the run. */
_Noreturn void model_differ(struct model *m, const char *what, uint64_t a, uint64_t b);
#define WANT(cond, what, a, b)                                                                     \
    do {                                                                                           \
        if (!(cond)) model_differ(m, what, a, b);                                                  \
    } while (0)

/* kv_model.c */
struct mseq *model_pick(struct model *m); /* a sequence in use and idle, or NULL */
/* The sequence that the next kv_new or fork makes, or NULL. */
struct mseq *model_vacant(struct model *m);
/* True if every group can continue from row r: it holds all rows that r reads in the right form,
 * and holds the tile of r raw. */
bool model_resumable(struct model *m, const struct mseq *s, const struct seq *q, uint32_t r);

/* Runs an operation that is allowed while a step on other sequences is open. */
void model_op_small(struct model *m);

/* Takes over how the groups keep their rows now, which a rung may have changed. */
void model_rungs(struct model *m);

/* model_step.c */
void model_op_step(struct model *m);

/* model_index.c: kv_keep and kv_match */
struct kv_salt
model_salt(struct model *m); /* usually the same salt, sometimes one that differs in one field */
void model_keep(struct model *m);
void model_match(struct model *m);

/* model_config.c: m->cfg and m->group of the next store */
void model_config(struct model *m);

/* model_view.c: acts as a kernel at one site of the open step and compares everything it reads */
/* Returns the store's (negative) error if the tier failed. */
int model_kernel(struct model *m, uint32_t site);

/* model_metadata.c */
/* Returns the bytes of metadata that the budget holds for s with so many rows. */
size_t model_charge(const struct model *m, const struct mseq *s, uint32_t rows);
/* Compares the metadata that the store counts, and the budget with it. No step may be open. */
void model_metadata(struct model *m);

/* model_image.c: saves sequence a and loads it as b (NULL: there is no room) */
void model_op_image(struct model *m, struct mseq *a, struct mseq *b);

/* model_books.c: comparing without a step */
void model_want_rows(struct model *m, const struct kv_view *v, uint32_t site, uint32_t slot,
                     const uint64_t *name, uint32_t a, uint32_t b, uint32_t edge);
void model_want_state(struct model *m, const struct kv_view *v, uint32_t site, uint32_t page,
                      uint64_t name);
/* Compares the rows below `written` that a query at pos reads, in an update starting at `start`. */
void model_want_query(struct model *m, const struct kv_view *v, const struct kv_group *g,
                      uint32_t site, uint32_t slot, const struct mseq *s, uint32_t pos,
                      uint32_t start, uint32_t written);
struct seq *model_inside(struct model *m, const struct mseq *s);
void model_verify(struct model *m, const struct mseq *s);
void model_verify_all(struct model *m);
/* Writes tables, references and books as bytes, to check that nothing changed. */
size_t model_snapshot(struct model *m, unsigned char *out);
size_t model_snapshot_bytes(const struct kv *kv);
void model_want_same(struct model *m, const char *what); /* compares with m->shot[0] */

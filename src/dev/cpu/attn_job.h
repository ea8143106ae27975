/* attn_job.h - private to attention: one call of dev_attention as its three files share it.
 *   attn.c          the walk of a query, the scratch, who decodes, and what both ways do alike (below);
 *   attn_decode.c   tokens that decode: units of (atom, kv heads) in waves;
 *   attn_prefill.c  longer runs of tokens: units of (block of tokens, kv head).
 * Kernels see none of this: their contract is attn.h. */
#pragma once
#include "dev/cpu/attn.h"
#include "dev/cpu/cpu.h"

struct attn_iter { /* where a decoding token stands in its walk */
    uint32_t token, phase, next;
};
struct attn_atom {
    uint32_t token, phase, a, b; /* rows [a, b), absolute */
};
struct attn_block { /* tokens [t0, t0 + n) of one lane */
    uint32_t t0, n;
};
struct attn_span { /* strips of one 256-row span and kv head; only those the atom needs are set */
    const void *k[ATTN_STRIPS], *v[ATTN_STRIPS];
};
struct attn_layout {
    size_t run, wave, iter, few, block, thread;             /* offsets */
    size_t per_thread, ready, p, qt, one, span, part, tile; /* inside one thread's part */
    size_t total;
};
struct attn_job {
    const struct kv_view *v;
    const struct dev_attn *a;
    const struct attn_kernels *k;
    kv_strip_fn strip;
    struct pool *pool;
    unsigned char *scratch;
    struct attn_layout lay;
    uint32_t n_tokens, n_kv, group, dk, dv;
    size_t state;                    /* floats of one state */
    bool lossy, tiled;               /* a plane has a lossy codec; any codec */
    bool whole;                      /* a plane has a codec that decodes whole tiles only */
    const struct kv_kernels *own[2]; /* of the planes' codecs, or NULL */
    struct attn_atom *wave;          /* [ATTN_WAVE] */
    struct attn_unit *unit;          /* [ATTN_WAVE], of attn_decode.c */
    uint32_t n_units;
    uint32_t split; /* head ranges a decode unit is split into: 1 or n_kv */
    uint32_t *few;  /* the tokens that decode */
    uint32_t n_few;
    bool begins, ends;        /* the wave is the first of a site's, or the last */
    bool alone;               /* it has the only atom of every token */
    struct attn_block *block; /* prefill blocks */
    uint32_t n_blocks;
};

/* The running state of a token and query head, which survives from piece to piece. */
static inline float *attn_run_state(const struct attn_job *j, uint32_t token, uint32_t head)
{
    float *run = (float *)(j->scratch + j->lay.run);
    return run + ((size_t)token * j->a->n_heads + head) * j->state;
}

/* A place in the scratch of one thread; offset: of struct attn_layout. */
static inline void *attn_part(const struct attn_job *j, uint32_t thread, size_t offset)
{
    return j->scratch + j->lay.thread + thread * j->lay.per_thread + offset;
}

/* True if the plane's codec computes over its own tiles. */
static inline bool attn_by_tile(const struct attn_job *j, uint32_t phase, uint32_t plane)
{
    return phase == ATTN_SEALED && j->own[plane];
}

static inline struct tiles_from attn_tiles_of(const struct attn_job *j, uint32_t token,
                                              uint32_t plane)
{
    return (struct tiles_from){j->v, plane, j->v->lane[token], j->own[plane]};
}

/* True if strips of the plane are decoded one by one, as they are needed. */
static inline bool attn_by_strip(const struct attn_job *j, const struct attn_atom *m,
                                 uint32_t plane)
{
    const struct kv_codec *c = j->v->codec[plane];
    return m->phase == ATTN_SEALED && c && c->affine && !j->own[plane];
}

/* Finds the strips of an atom for one head.  `edge`: of the token, or the least of a block: a codec that is not lossy may
 * be read in either form, and raw rows from the first token's edge on are held throughout a step.
 * lazy: strips decoded one by one are left to the caller.  A plane whose codec computes over tiles has no strips. */
void attn_gather(const struct attn_job *j, const struct attn_atom *m, uint32_t edge, uint32_t head,
                 uint32_t thread, bool lazy, struct attn_span *out);

/* Writes the queries of `head`'s group for n tokens, token-major, to qt in the form that the kernels of a phase read. */
void attn_form_queries(const struct attn_job *j, uint32_t phase, const uint32_t *token, uint32_t n,
                       uint32_t head, float *qt);
/* Does so for `per` kv heads from h0 on, into the thread's part, unless the queries lie there from its last unit or phase. */
void attn_ready_queries(const struct attn_job *j, uint32_t phase, const uint32_t *token, uint32_t n,
                        uint32_t h0, uint32_t per, uint32_t thread);

/* Scores of nq queries with strips [s0, s1), as the kernels store them.  next: as the kernels want it, or NULL. */
void attn_score_strips(const struct attn_job *j, const float *qt, uint32_t nq,
                       const struct attn_span *sp, const void *const *next, uint32_t s0,
                       uint32_t s1, float *p);
/* Adds the weighted values of rows [r0, r1) to nq states.  fresh: they are the first; O need not be 0. */
void attn_add_rows(const struct attn_job *j, const float *p, uint32_t nq,
                   const struct attn_span *sp, const void *const *next, uint32_t r0, uint32_t r1,
                   bool fresh, float *state);

/* Begin the running states of query heads [h0, h1) of tokens [t0, t1) before their first atom, and end them after their last. */
void attn_begin_states(const struct attn_job *j, uint32_t t0, uint32_t t1, uint32_t h0,
                       uint32_t h1);
void attn_end_states(const struct attn_job *j, uint32_t t0, uint32_t t1, uint32_t h0, uint32_t h1,
                     uint32_t thread);

/* Ends one state of a token and head.  room: for one more, of the thread. */
void attn_end_state(const struct attn_job *j, uint32_t token, uint32_t head, float *state,
                    float *room);

/* Computes the attention of n decoding tokens, from where their walks stand. */
void attn_decode(struct attn_job *j, struct attn_iter *it, uint32_t n);
/* One prefill unit of n_blocks * n_kv, for pool_run; ctx: the job. */
void attn_prefill_unit(void *ctx, uint32_t task, uint32_t thread);

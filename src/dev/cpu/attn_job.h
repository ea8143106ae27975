/* attn_job.h - private to attention: one call of dev_attention, as the files of attention share it.
 *   attn.c          the walk of a query, the scratch, which tokens decode, queries and states;
 *   attn_read.c     the loop over the rows of an atom;
 *   attn_decode.c   tokens that decode: units of (atom, kv heads) in waves;
 *   attn_prefill.c  longer runs of tokens: units of (block of tokens, kv head);
 *   attn_probe.c    probabilities: units of (token, kv head).
 * Kernels see none of this: their contract is attn.h. */
#pragma once
#include "dev/cpu/attn.h"
#include "dev/cpu/cpu.h"

struct attn_iter { /* how far the walk of a decoding token has come */
    uint32_t token, stage, next;
};
struct attn_atom {
    uint32_t token, phase, a, b; /* rows [a, b), absolute */
    /* 0: rows of the token's own lane; else 1 + the index in view.borrowed */
    uint32_t borrowed;
};
struct attn_block { /* tokens [t0, t0 + n) of one lane */
    uint32_t t0, n;
};
/* The opened tiles of one atom and kv head, for all queries of a unit.  The index is the plane, and the strip of the
 * atom at which the tile begins. */
struct attn_opened {
    uint32_t step[2]; /* strips from tile to tile; 0: none was asked for */
    bool asked[2][ATTN_STRIPS];
    const unsigned char *at[2][ATTN_STRIPS];
    /* The opened form, or this head's part of the tile if the reader did not open it.  Later queries read it again. */
    const unsigned char *from[2][ATTN_STRIPS];
    uint32_t lines[2][ATTN_STRIPS]; /* cache lines, of 64 bytes */
};
/* Prefetches the i-th of ATTN_AT_ONCE parts of a plane into the first cache. */
void attn_ask(const struct attn_opened *o, uint32_t plane, uint32_t i);
/* An atom of some queries with some kv heads.  p, qt and out lie [kv head][query]; heads are counted from h0. */
struct attn_task {
    const struct attn_atom *m; /* the rows that at least one of the queries sees */
    /* Only for a block: the rows that each token sees; a == b: none.  NULL: all queries see all rows. */
    const struct attn_atom *row;
    /* The edge of the token, or the least edge of a block.  Under a lossless codec rows may be read in either form,
     * and raw rows from the first token's edge on are held throughout a step. */
    uint32_t edge;
    uint32_t h0, heads, nq, thread;
    bool fresh;                 /* out has no values yet; false: adds to the sums there */
    struct attn_opened *opened; /* NULL: tiles are read as they lie */
    float *p, *qt, *out;
    /* The atom that the thread will probably read next with the same heads: its first rows are prefetched.  NULL: not
     * known. */
    const struct attn_atom *after;
};
struct attn_layout {
    size_t run, wave, iter, few, block, thread;              /* offsets */
    size_t per_thread, ready, p, qt, one, query, part, tile; /* inside one thread's part */
    size_t total;
};
struct attn_job {
    const struct kv_view *v;
    const struct dev_attn *a;
    const struct attn_kernels *k;
    struct pool *pool;
    unsigned char *scratch;
    struct attn_layout lay;
    uint32_t n_tokens, n_kv, group, dk, dv;
    size_t state;                        /* floats of one state */
    bool lossy, tiled;                   /* a plane has a lossy codec; any codec */
    bool sums;                           /* the readers of both planes sum over sealed rows */
    struct kv_reading raw[2], sealed[2]; /* the readers of the planes' rows */
    struct attn_atom *wave;              /* [ATTN_WAVE] */
    struct attn_unit *unit;              /* [ATTN_WAVE], of attn_decode.c */
    uint32_t n_units;
    uint32_t split; /* head ranges a decode unit is split into: 1 or n_kv */
    uint32_t *few;  /* the tokens that decode */
    uint32_t n_few;
    bool begins, ends;        /* the wave is the first of a site's, or the last */
    bool alone;               /* the wave has the only atom of every token */
    struct attn_block *block; /* prefill blocks */
    uint32_t n_blocks;
};

/* The running state of a token and query head, which survives from piece to piece. */
static inline float *attn_run_state(const struct attn_job *j, uint32_t token, uint32_t head)
{
    float *run = (float *)(j->scratch + j->lay.run);
    return run + ((size_t)token * j->a->n_heads + head) * j->state;
}

/* Returns a place in the scratch of one thread; offset: of struct attn_layout. */
static inline void *attn_part(const struct attn_job *j, uint32_t thread, size_t offset)
{
    return j->scratch + j->lay.thread + thread * j->lay.per_thread + offset;
}

/* Makes a job of a call. */
void attn_open(struct dev_queue *d, const struct kv_view *v, const struct dev_attn *a,
               struct attn_job *j);

/* A token's walk has attn_stages stages.  attn_stage finds the rows [out->a, out->b) of one stage, which have one
 * phase and one table row; a == b: the stage has no rows.  The stages of a lane that borrows nothing are the phases. */
uint32_t attn_stages(const struct attn_job *j, uint32_t token);
void attn_stage(const struct attn_job *j, uint32_t token, uint32_t stage, struct attn_atom *out);

/* attn_slot returns the table row with an atom's rows, and attn_edge the row before which they may be read sealed. */
static inline uint32_t attn_slot(const struct attn_job *j, const struct attn_atom *m)
{
    return m->borrowed ? j->v->borrowed[m->borrowed - 1].slot : j->v->slot[j->v->lane[m->token]];
}
static inline uint32_t attn_edge(const struct attn_job *j, const struct attn_atom *m, uint32_t own)
{
    return m->borrowed ? j->v->borrowed_edge[m->borrowed - 1] : own;
}

/* Writes the queries of `head`'s group for n tokens, token by token, to qt, in the form in which they meet the
 * atom's rows. */
void attn_form_queries(const struct attn_job *j, const struct attn_atom *m, const uint32_t *token,
                       uint32_t n, uint32_t head, uint32_t thread, float *qt);
/* Does the same for `per` kv heads from h0 on, in the thread's part, unless these queries are there from its last
 * unit or stage. */
void attn_ready_queries(const struct attn_job *j, const struct attn_atom *m, const uint32_t *token,
                        uint32_t n, uint32_t h0, uint32_t per, uint32_t thread);

/* attn_read.c.  attn_scores computes the scores of a task as the kernels store them: p in rows of KV_ATOM.
 * attn_values adds the weighted values to each state of out. */
void attn_scores(const struct attn_job *j, const struct attn_task *t);
void attn_values(const struct attn_job *j, const struct attn_task *t);

/* Begin the running states of query heads [h0, h1) of tokens [t0, t1) before their first atom, and end them after their last. */
void attn_begin_states(const struct attn_job *j, uint32_t t0, uint32_t t1, uint32_t h0,
                       uint32_t h1);
void attn_end_states(const struct attn_job *j, uint32_t t0, uint32_t t1, uint32_t h0, uint32_t h1,
                     uint32_t thread);

/* Merges the partial state of one token and head into the running state: run <- run + part. */
void attn_merge(const struct attn_job *j, float *run, const float *part);
/* Tells the reader that the thread works on results and will soon read rows again. */
static inline void attn_awake(const struct attn_job *j)
{
    if (j->sealed[1].reader->awake) j->sealed[1].reader->awake(&j->sealed[1]);
}
/* Tells the reader that the thread leaves attention for now. */
static inline void attn_rest(const struct attn_job *j)
{
    for (int i = 0; i < 2; i++)
        if (j->sealed[i].reader->rest) j->sealed[i].reader->rest(&j->sealed[i]);
}

/* Ends one state of a token and head.  room: memory of the thread for one more state. */
void attn_end_state(const struct attn_job *j, uint32_t token, uint32_t head, float *state,
                    float *room);

/* Computes the attention of n decoding tokens, from where their walks stand. */
void attn_decode(struct attn_job *j, struct attn_iter *it, uint32_t n);
/* One prefill unit of n_blocks * n_kv, for pool_run; ctx: the job. */
void attn_prefill_unit(void *ctx, uint32_t task, uint32_t thread);

/* contrastive.c - contrastive search as in Transformers 4.47.  Of the top_k most likely next tokens it takes the
 * one with the best balance of probability and difference from the text so far:
 *
 *     (1 - penalty_alpha) * probability - penalty_alpha * the largest cosine to a hidden state of the text
 *
 * Each candidate is a fork of the row's sequence to which the candidate's token is fed: k forks, and one step for
 * all candidates of all rows.  The row's sequence then becomes that of the winner, by reference.  When a row ends
 * its forks are dropped, so its last token is not in the cache, as in other ways of decoding.
 *
 * The hidden states of the text (after the last norm, scaled to length 1) are kept here.  The cache has only keys
 * and values.  So a row computes its whole prompt even if a prefix is cached. */
#include "generate/chain.h"
#include "generate/guidance.h"
#include "generate/run.h"

#include <math.h>
#include <string.h>

struct contrast {   /* state of one row */
    float *context; /* [n_prompt + limit][hidden] of length 1; owned */
    uint32_t n;
    /* [vocab] logits of the row's last token, owned; uncond: of its negative text, NULL without guidance */
    float *logits, *uncond;
    uint32_t lane; /* number of the row's first candidate in this step */
    uint32_t n_candidates;
    kv_seq *seq;    /* [k] owned: the sequences of the candidates; 0: none */
    int32_t *token; /* [k] owned */
    float *p;       /* [k] owned */
    uint32_t best;
    bool broken; /* its logits are not finite */
};
struct contrasting {
    struct run *r;
    struct contrast *row; /* [r->n] */
    uint32_t k;
    enum {
        PROMPTS,
        CANDIDATES,
        NEGATIVES
    } phase;                  /* what the next job feeds, or what the last one has fed */
    float *hidden;            /* [r->n * k][hidden] of the candidates */
    struct exec_probe *probe; /* [r->n * k] */
    float *value;             /* [vocab] */
};

static void contrast_end(struct run *r)
{
    struct contrasting *c = r->own;
    for (uint32_t i = 0; c->row && i < r->n; i++) {
        struct contrast *w = &c->row[i];
        for (uint32_t j = 0; w->seq && j < c->k; j++)
            if (w->seq[j]) kv_drop(r->x->kv, w->seq[j]);
        void *own[] = {w->context, w->logits, w->uncond, w->seq, w->token, w->p};
        for (size_t j = 0; j < countof(own); j++)
            mem_free(own[j]);
    }
    mem_free(c->row);
    mem_free(c->hidden);
    mem_free(c->probe);
    mem_free(c->value);
    mem_free(c);
}

/* Empties the sequence of a row, because cached rows have no hidden states. */
static int begin_again(struct run *r, struct row *w)
{
    kvik_sync *s = w->sync.report;
    TRY(kv_trim(r->x->kv, w->seq, 0, &w->have));
    w->reused = 0;
    if (!s) return 0;
    s->offset = 0; /* rows before the ids are dropped as well */
    s->computed += s->reused;
    s->recomputed += s->reused;
    s->reused = 0;
    if (s->reason) return 0;
    s->reason = mem_strdup("contrastive search needs hidden states, which are not cached");
    return s->reason ? 0 : ERR_NOMEM;
}

static int row_begin(struct contrasting *c, uint32_t i)
{
    struct run *r = c->r;
    struct row *w = &r->row[i];
    struct contrast *o = &c->row[i];
    size_t vocab = r->x->m->vocab, hidden = r->x->m->hidden;
    o->context = mem_array((size_t)w->n_prompt + w->limit, hidden * sizeof *o->context);
    o->logits = mem_array(vocab, sizeof *o->logits);
    o->uncond = r->guide ? mem_array(vocab, sizeof *o->uncond) : NULL;
    o->seq = mem_array(c->k, sizeof *o->seq);
    o->token = mem_array(c->k, sizeof *o->token);
    o->p = mem_array(c->k, sizeof *o->p);
    if (!o->context || !o->logits || (r->guide && !o->uncond) || !o->seq || !o->token || !o->p)
        return ERR_NOMEM;
    return kv_len(r->x->kv, w->seq) ? begin_again(r, w) : 0;
}

static uint64_t width(const struct run *r)
{
    return MIN(r->g->top_k, r->x->m->vocab);
}

static int contrast_begin(struct run *r)
{
    struct contrasting *c = mem_alloc(sizeof *c);
    if (!(r->own = c)) return ERR_NOMEM;
    *c = (struct contrasting){.r = r, .k = (uint32_t)width(r)};
    size_t lanes = (size_t)r->n * c->k, hidden = r->x->m->hidden;
    c->row = mem_array(r->n, sizeof *c->row);
    c->hidden = mem_array(lanes, hidden * sizeof *c->hidden);
    c->probe = mem_array(lanes, sizeof *c->probe);
    c->value = mem_array(r->x->m->vocab, sizeof *c->value);
    if (!c->row || !c->hidden || !c->probe || !c->value) return ERR_NOMEM;
    for (uint32_t i = 0; i < r->n; i++)
        TRY(row_begin(c, i));
    return 0;
}

/* Returns a dot product.  Eight partial sums, so that every compiler vectorizes it in the same order. */
static float dot(const float *a, const float *b, uint32_t n)
{
    float lane[8] = {0};
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (uint32_t k = 0; k < 8; k++)
            lane[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        lane[i % 8] += a[i] * b[i];
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) +
           ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

static void to_length_one(float *x, uint32_t n)
{
    float norm = sqrtf(dot(x, x, n));
    for (uint32_t i = 0; norm > 0 && i < n; i++)
        x[i] /= norm;
}

/* Copies the logits of the running rows, from row `first` of the last job on. */
static void take_logits(struct contrasting *c, uint32_t first, bool uncond)
{
    size_t vocab = c->r->x->m->vocab;
    for (uint32_t i = 0; i < c->r->n; i++)
        if (!c->r->row[i].done)
            memcpy(uncond ? c->row[i].uncond : c->row[i].logits, c->r->logits + first++ * vocab,
                   vocab * sizeof(float));
}

static int gather_prompts(struct contrasting *c)
{
    struct run *r = c->r;
    uint32_t n = r->n;
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        c->probe[i] = (struct exec_probe){.last = c->row[i].context};
        r->feed[i] = (struct exec_feed){.seq = w->seq,
                                        .tok = w->ids,
                                        .n = w->n_prompt,
                                        .pad = w->pad,
                                        .loose = true,
                                        .probe = &c->probe[i]};
        if (r->guide) TRY(guide_feed(r, w, i, NULL, 0, &r->feed[n++]));
    }
    r->job.n = n;
    return 0;
}

static void prompts_fed(struct contrasting *c)
{
    struct run *r = c->r;
    uint32_t hidden = r->x->m->hidden;
    for (uint32_t i = 0; i < r->n; i++) {
        struct contrast *o = &c->row[i];
        o->n = r->row[i].have = r->row[i].n_prompt;
        for (uint32_t t = 0; t < o->n; t++)
            to_length_one(o->context + (size_t)t * hidden, hidden);
    }
    take_logits(c, 0, false);
    if (r->guide) take_logits(c, r->n, true);
}

/* Finds the k most likely tokens and their probabilities, best first; of equal ones the lowest id.  Tokens of
 * probability 0 are no candidates. */
static void recall(struct contrasting *c, struct contrast *o, const float *scores)
{
    uint32_t vocab = c->r->x->m->vocab, n = 0;
    double total = gen_weights(scores, vocab, c->value);
    for (uint32_t v = 0; v < vocab; v++) {
        float p = total > 0 ? (float)(c->value[v] / total) : 0;
        if (!(p > 0) || (n == c->k && !(p > o->p[n - 1]))) continue;
        uint32_t at = n < c->k ? n++ : n - 1;
        for (; at > 0 && p > o->p[at - 1]; at--) {
            o->p[at] = o->p[at - 1];
            o->token[at] = o->token[at - 1];
        }
        o->p[at] = p;
        o->token[at] = (int32_t)v;
    }
    if (!n) {
        o->p[0] = 1;
        o->token[0] = gen_argmax(scores, vocab);
        n = 1;
    }
    o->n_candidates = n;
}

/* Sets the feeds of the candidates of every running row. */
static int gather_candidates(struct contrasting *c)
{
    struct run *r = c->r;
    size_t vocab = r->x->m->vocab, hidden = r->x->m->hidden;
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        struct contrast *o = &c->row[i];
        float *kept, *kept_scores;
        if (w->done) continue;
        TRY(run_keep(r, &r->kept, r->steps, &kept));
        TRY(run_keep(r, &r->kept_scores, r->steps, &kept_scores));
        memcpy(r->scores, o->logits, vocab * sizeof *r->scores);
        if (kept) memcpy(kept + i * vocab, r->scores, vocab * sizeof *kept);
        o->broken = !run_sound(r, o->logits);
        /* the row ends in this step, so any candidates will do */
        if (o->broken) memset(r->scores, 0, vocab * sizeof *r->scores);
        struct gen_row view = run_text(r, i);
        TRY(run_process(r, &view, o->uncond, r->scores));
        if (kept_scores) memcpy(kept_scores + i * vocab, r->scores, vocab * sizeof *kept);
        recall(c, o, r->scores);
        o->lane = lanes;
        for (uint32_t j = 0; j < o->n_candidates; j++, lanes++) {
            TRY(kv_fork(r->x->kv, w->seq, &o->seq[j]));
            c->probe[lanes] = (struct exec_probe){.last = c->hidden + lanes * hidden};
            r->feed[lanes] = (struct exec_feed){.seq = o->seq[j],
                                                .tok = &o->token[j],
                                                .n = 1,
                                                .loose = true,
                                                .probe = &c->probe[lanes]};
        }
    }
    r->job.n = lanes;
    return 0;
}

/* Finds the candidate with the best balance of probability and difference, and adds its hidden state to those of the text. */
static void rank(struct contrasting *c, struct contrast *o)
{
    uint32_t hidden = c->r->x->m->hidden;
    float alpha = (float)c->r->g->penalty_alpha, best = -INFINITY;
    o->best = 0;
    for (uint32_t j = 0; j < o->n_candidates; j++) {
        float *h = c->hidden + (size_t)(o->lane + j) * hidden, most = -INFINITY;
        to_length_one(h, hidden);
        for (uint32_t t = 0; t < o->n; t++)
            most = fmaxf(most, dot(o->context + (size_t)t * hidden, h, hidden));
        float score = (1 - alpha) * o->p[j] - alpha * most;
        if (!(score > best)) continue;
        best = score;
        o->best = j;
    }
    memcpy(o->context + (size_t)o->n++ * hidden, c->hidden + (size_t)(o->lane + o->best) * hidden,
           hidden * sizeof *o->context);
}

/* Gives each running row the sequence of its winner, and drops the other candidates. */
static int take_winners(struct contrasting *c)
{
    struct run *r = c->r;
    size_t vocab = r->x->m->vocab;
    int e = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        struct contrast *o = &c->row[i];
        if (!w->done && e >= 0) {
            kv_seq pair[] = {w->seq, o->seq[o->best]};
            memcpy(o->logits, r->logits + (o->lane + o->best) * vocab, vocab * sizeof *o->logits);
            e = kv_reorder(r->x->kv, pair, (uint32_t[]){1, 0}, 2);
            w->have = w->n;
        }
        for (uint32_t j = 0; j < c->k; j++) {
            if (o->seq[j]) kv_drop(r->x->kv, o->seq[j]);
            o->seq[j] = 0;
        }
    }
    return e;
}

static int gather_negatives(struct contrasting *c)
{
    struct run *r = c->r;
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        if (w->done) continue;
        TRY(guide_feed(r, w, i, w->ids + w->n_prompt, w->n - w->n_prompt, &r->feed[n++]));
    }
    r->job.n = n;
    return 0;
}

static int contrast_gather(struct run *r)
{
    struct contrasting *c = r->own;
    return c->phase == PROMPTS      ? gather_prompts(c)
           : c->phase == CANDIDATES ? gather_candidates(c)
                                    : gather_negatives(c);
}

static int contrast_choose(struct run *r, bool *running)
{
    struct contrasting *c = r->own;
    bool cancel = false;
    if (c->phase != CANDIDATES) {
        if (c->phase == PROMPTS)
            prompts_fed(c);
        else
            take_logits(c, 0, true);
        c->phase = CANDIDATES;
        return 0;
    }
    for (uint32_t i = 0; i < r->n; i++) {
        struct contrast *o = &c->row[i];
        if (r->row[i].done) continue;
        rank(c, o);
        TRY(o->broken ? run_break(r, i, &cancel) : run_append(r, i, o->token[o->best], &cancel));
    }
    TRY(run_step_end(r, cancel, running));
    r->steps++;
    if (r->guide) c->phase = NEGATIVES;
    return take_winners(c);
}

/* Removes the last tokens of running rows from the cache, so that they end like other rows. */
static int cancel(struct run *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        uint32_t len = kv_len(r->x->kv, w->seq);
        if (!w->done && w->n > w->n_prompt) TRY(exec_crop(r->x, w->seq, len - 1));
    }
    return run_cancel(r);
}

static int contrast_check(const struct run *r)
{
    if (r->g->use_cache) return 0;
    return ERR(
        ARG,
        "penalty_alpha=%g (contrastive search) forks the cache for its candidates; set use_cache",
        r->g->penalty_alpha);
}

const struct run_mode contrastive_mode = {.sequences = "candidates (top_k)",
                                          .anew = true,
                                          .width = width,
                                          .check = contrast_check,
                                          .begin = contrast_begin,
                                          .gather = contrast_gather,
                                          .choose = contrast_choose,
                                          .cancel = cancel,
                                          .finish = run_rows,
                                          .end = contrast_end};

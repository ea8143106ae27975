/* test_beam_plain.h - beam search as Transformers computes it, written slowly and literally: whole
 * arrays, full sorts, -1e9 added to candidates that must not win, all prompts of a batch until the
 * last one is done. beam.c is compared with it. Of equal scores the lower index comes first,
 * everywhere. */
#pragma once
#include "generate/beam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PLAIN_BEAMS = 8, PLAIN_NEW = 24, PLAIN_KEEP = PLAIN_BEAMS * 5 };

struct plain_line { /* one sequence: its generated tokens, and the beams they came from */
    float score;
    bool finished;
    uint32_t n;
    int32_t token[PLAIN_NEW], beam[PLAIN_NEW];
};
struct plain {
    struct plain_line running[PLAIN_BEAMS], done[PLAIN_BEAMS];
    bool improvable;
};
struct plain_rules {
    struct beam_rules r;
    /* Returns the log-probabilities of the tokens that may follow `token`, after processors. */
    void (*score)(void *ctx, uint32_t item, const int32_t *token, uint32_t n, float *out);
    /* True if the sequence, its last token included, has ended. */
    bool (*ends)(void *ctx, uint32_t item, const int32_t *token, uint32_t n);
    void *ctx;
};

/* Writes the indices of v in descending order of value; the sort is stable. */
static inline void plain_sort(const float *v, uint32_t n, uint32_t *index)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = i;
        for (; k > 0 && v[index[k - 1]] < v[i]; k--)
            index[k] = index[k - 1];
        index[k] = i;
    }
}

static inline void plain_begin(struct plain *p, uint32_t beams)
{
    memset(p, 0, sizeof *p);
    p->improvable = true;
    for (uint32_t i = 0; i < beams; i++) {
        p->running[i].score = i ? -1e9f : 0;
        p->done[i].score = -1e9f;
    }
}

/* Runs one step of one prompt. all_hit: no candidate continues. */
static inline void plain_step(const struct plain_rules *rules, struct plain *p, uint32_t item,
                              bool *all_hit)
{
    const struct beam_rules *r = &rules->r;
    uint32_t nb = r->beams, v = r->vocab, keep = MAX(2, 1 + r->n_eos) * nb, n = p->running[0].n;
    float *total = malloc(sizeof *total * nb * v);
    uint32_t *order = malloc(sizeof *order * MAX(nb * v, nb + keep));
    static struct plain_line top[PLAIN_KEEP], merged[PLAIN_KEEP + PLAIN_BEAMS];
    float score[PLAIN_KEEP + PLAIN_BEAMS];
    bool hit[PLAIN_KEEP];
    keep = MIN(keep, nb * v);
    for (uint32_t i = 0; i < nb; i++) {
        rules->score(rules->ctx, item, p->running[i].token, n, total + i * v);
        for (uint32_t t = 0; t < v; t++) {
            total[i * v + t] += p->running[i].score;
            if (isnan(total[i * v + t])) total[i * v + t] = -INFINITY;
        }
    }
    plain_sort(total, nb * v, order);
    *all_hit = true;
    for (uint32_t k = 0; k < keep; k++) {
        top[k] = p->running[order[k] / v];
        top[k].score = total[order[k]];
        top[k].token[n] = (int32_t)(order[k] % v);
        top[k].beam[n] = (int32_t)(order[k] / v);
        top[k].n = n + 1;
        hit[k] = rules->ends(rules->ctx, item, top[k].token, n + 1);
        *all_hit &= hit[k];
    }
    /* running beams */
    for (uint32_t k = 0; k < keep; k++)
        score[k] = top[k].score + (hit[k] ? -1e9f : 0);
    plain_sort(score, keep, order);
    for (uint32_t i = 0; i < nb; i++) {
        p->running[i] = top[order[i]];
        p->running[i].score = score[order[i]];
    }
    /* finished sequences */
    bool full = true;
    for (uint32_t i = 0; i < nb; i++)
        full &= p->done[i].finished;
    for (uint32_t i = 0; i < nb; i++)
        merged[i] = p->done[i];
    for (uint32_t k = 0; k < keep; k++) {
        struct plain_line *m = &merged[nb + k];
        *m = top[k];
        m->score /= (float)pow(n + 1, r->length_penalty);
        if (full && r->early == KVIK_EARLY_TRUE) m->score += -1e9f;
        if (!p->improvable) m->score += -1e9f;
        m->finished = hit[k] && k < nb;
        if (!m->finished) m->score += -1e9f;
    }
    for (uint32_t i = 0; i < nb + keep; i++)
        score[i] = merged[i].score;
    plain_sort(score, nb + keep, order);
    for (uint32_t i = 0; i < nb; i++)
        p->done[i] = merged[order[i]];
    free(total);
    free(order);
}

/* Decides after a step whether the prompt's result can still improve; once it cannot, the flag
 * stays. */
static inline void plain_heuristic(const struct plain_rules *rules, struct plain *p)
{
    const struct beam_rules *r = &rules->r;
    bool never = r->early == KVIK_EARLY_NEVER && r->length_penalty > 0;
    uint32_t len = never ? r->limit : p->running[0].n;
    float best = p->running[0].score / (float)pow(len, r->length_penalty), worst = INFINITY;
    bool any = false;
    for (uint32_t i = 0; i < r->beams; i++)
        worst = fminf(worst, p->done[i].score);
    for (uint32_t i = 0; i < r->beams; i++)
        any |= best > (p->done[i].finished ? worst : -1e9f);
    p->improvable = p->improvable && any;
}

/* Runs all prompts together, as Transformers does. Returns the number of steps. */
static inline uint32_t plain_search(const struct plain_rules *rules, struct plain *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        plain_begin(&p[i], rules->r.beams);
    for (uint32_t steps = 1;; steps++) {
        bool improvable = false, finished = true, all_hit = true, hit;
        for (uint32_t i = 0; i < n; i++) {
            plain_step(rules, &p[i], i, &hit);
            plain_heuristic(rules, &p[i]);
            all_hit &= hit;
            improvable |= p[i].improvable;
            for (uint32_t k = 0; k < rules->r.beams; k++)
                finished &= p[i].done[k].finished;
        }
        if (!improvable || all_hit || (finished && rules->r.early == KVIK_EARLY_TRUE)) return steps;
    }
}

/* beams.c - decodes a window with beams: finds the best text, and the probability that the model gives it.  The
 * search is that of generate/beam.h.  Every beam is a fork of the sequence that has the prompt, so beams share its
 * rows and those of the encoder.  A step decodes one token of every beam at once; then the sequences are permuted
 * by reference.
 *
 * Beams are ranked by their scores.  But the probability of a text is computed from the probabilities of its
 * tokens among those that the processors left, as without beams and as in Transformers. */
#include "generate/beam.h"
#include "generate/chain.h"
#include "speech/speech.h"

#include <math.h>
#include <string.h>

struct beaming {
    struct listener *l;
    struct gen_chain *chain;
    struct beam_search *search;
    uint32_t n, limit;      /* number of beams; most new tokens */
    kv_seq *seq;            /* [n] owned array; seq[0] is the caller's; 0: none */
    struct exec_feed *feed; /* [n] */
    uint32_t *from;         /* [n] scratch of reordering */
    float *scores;          /* [n][vocab] of the step */
    double *norm;           /* [n] for the step: logarithm of the sum of a beam's probabilities */
    /* [limit][n] logarithms of probabilities: of the token of beam i in step t, and of the end token after beam i
     * in step t */
    double *token, *end;
};

static int beaming_begin(struct listener *l, kv_seq seq, uint32_t i, struct beaming *b)
{
    const kvik_generation *g = &l->g[i];
    uint32_t n = g->num_beams, limit = (uint32_t)(l->most - l->n_prompt);
    struct beam_rules rules = {.beams = n,
                               .vocab = l->vocab,
                               .n_eos = 1,
                               .limit = limit,
                               .length_penalty = g->length_penalty,
                               .early = g->early_stopping};
    *b = (struct beaming){.l = l, .chain = l->chain[i], .n = n, .limit = limit};
    b->seq = mem_array(n, sizeof *b->seq);
    b->feed = mem_array(n, sizeof *b->feed);
    b->from = mem_array(n, sizeof *b->from);
    b->scores = mem_array((size_t)n * l->vocab, sizeof *b->scores);
    b->norm = mem_array(n, sizeof *b->norm);
    b->token = mem_array((size_t)n * limit, sizeof *b->token);
    b->end = mem_array((size_t)n * limit, sizeof *b->end);
    if (!b->seq || !b->feed || !b->from || !b->scores || !b->norm || !b->token || !b->end)
        return ERR_NOMEM;
    b->seq[0] = seq;
    return beam_new(&rules, l->ids, (uint32_t)l->n_prompt, &b->search);
}

static void done(struct beaming *b)
{
    for (uint32_t i = 1; b->seq && i < b->n; i++)
        if (b->seq[i]) (void)kv_drop(b->l->x->kv, b->seq[i]);
    beam_drop(b->search);
    void *own[] = {b->seq, b->feed, b->from, b->scores, b->norm, b->token, b->end};
    for (size_t i = 0; i < countof(own); i++)
        mem_free(own[i]);
}

/* Returns the scores of the tokens after beam j in step `at`.  In step 0, after the prompt, all beams have the
 * same scores. */
static float *scores_of(const struct beaming *b, uint32_t at, uint32_t j)
{
    return b->scores + (size_t)(at ? j : 0) * b->l->vocab;
}

/* Returns the logarithm of the probability of a token after beam j in step `at`, whose scores are known. */
static double likely(const struct beaming *b, uint32_t at, uint32_t j, int32_t token)
{
    return isfinite(b->norm[j]) ? (double)scores_of(b, at, j)[token] - b->norm[j] : -INFINITY;
}

/* Turns the logits after beam j into scores of the search. */
static int score(struct beaming *b, uint32_t at, uint32_t j)
{
    const struct listener *l = b->l;
    float *scores = scores_of(b, at, j);
    struct gen_row row = {.ids = beam_ids(b->search, j),
                          .n = l->n_prompt + at,
                          .n_prompt = l->n_prompt,
                          .row = j,
                          .max_length = l->most};
    if (!gen_finite(scores, l->vocab)) return ERR(FORMAT, "the logits of the model are not finite");
    beam_log_softmax(scores, l->vocab);
    TRY(gen_chain_apply(b->chain, &row, scores));
    b->norm[j] = judge_norm(scores, l->vocab, 1);
    return 0;
}

/* Chooses the tokens of a step.  *more is false when the search is over. */
static int choose_beams(struct beaming *b, bool *more)
{
    uint32_t at = beam_length(b->search), held;
    double *token = b->token + (size_t)at * b->n, *end = b->end + (size_t)at * b->n;
    for (uint32_t j = 0; j < b->n; j++) {
        if (at || !j)
            TRY(score(b, at, j));
        else
            b->norm[j] = b->norm[0];
        end[j] = likely(b, at, j, b->l->marks.eos);
        beam_offer(b->search, j, scores_of(b, at, j));
    }
    struct beam_candidate *c = beam_rank(b->search, &held);
    for (uint32_t i = 0; i < held; i++) {
        if (c[i].token == b->l->marks.eos)
            c[i].ends = KVIK_FINISH_EOS;
        else if (at + 1 == b->limit)
            c[i].ends = KVIK_FINISH_LENGTH;
    }
    *more = beam_advance(b->search);
    for (uint32_t i = 0; i < b->n; i++) {
        const struct beam_candidate *r = beam_running(b->search, i);
        token[i] = likely(b, at, r->beam, r->token);
    }
    return 0;
}

/* Makes the sequences those of the chosen beams, and computes the logits after their last tokens. */
static int follow_beams(struct beaming *b)
{
    struct kv *kv = b->l->x->kv;
    size_t last = b->l->n_prompt + beam_length(b->search) - 1;
    bool forked = b->seq[b->n - 1] != 0;
    for (uint32_t i = 0; i < b->n; i++) {
        if (!b->seq[i]) TRY(kv_fork(kv, b->seq[0], &b->seq[i]));
        b->from[i] = beam_running(b->search, i)->beam;
    }
    if (forked) TRY(kv_reorder(kv, b->seq, b->from, b->n));
    for (uint32_t i = 0; i < b->n; i++)
        b->feed[i] = (struct exec_feed){
            .seq = b->seq[i], .tok = beam_ids(b->search, i) + last, .n = 1, .loose = true};
    return exec_feed(b->l->x, b->feed, b->n, 0, b->scores, NULL, NULL);
}

/* Returns the sum of the logarithms of the probabilities of a text's tokens.  The probability of each token but
 * the last is stored with the beam that the next token extends.  The last token is the end token, or one of the
 * last step, whose scores are still there. */
static double sum_of(const struct beaming *b, const struct beam_done *d)
{
    double sum = 0;
    for (uint32_t t = 0; t + 1 < d->n; t++)
        sum += b->token[(size_t)t * b->n + (uint32_t)d->beam[t + 1]];
    uint32_t at = d->n - 1, beam = (uint32_t)d->beam[at];
    return sum + (d->token[at] == b->l->marks.eos ? b->end[(size_t)at * b->n + beam]
                                                  : likely(b, at, beam, d->token[at]));
}

static int search_beams(struct beaming *b, struct speech_said *out, double *sum)
{
    struct listener *l = b->l;
    bool more = true;
    memcpy(b->scores, l->logits, l->vocab * sizeof *b->scores);
    TRY(choose_beams(b, &more));
    while (more) {
        TRY(follow_beams(b));
        TRY(choose_beams(b, &more));
    }
    const struct beam_done *d = beam_best(b->search, 0);
    /* The scores of all texts are out of range: worse than any text of another temperature. */
    if (!d->real) {
        *sum = BEAM_DEAD;
        return 0;
    }
    memcpy(l->ids + l->n_prompt, d->token, d->n * sizeof *d->token);
    out->n = l->n_prompt + d->n;
    *sum = sum_of(b, d);
    return 0;
}

int beams_decode(struct listener *l, kv_seq seq, uint32_t i, struct speech_said *out, double *sum)
{
    struct beaming b;
    int e = beaming_begin(l, seq, i, &b);
    if (e >= 0) e = search_beams(&b, out, sum);
    done(&b);
    return e;
}

/* idle.c - raw logits of rows that end before others, for a caller that keeps the raw logits of every step.
 * Transformers feeds such a row its last token and then padding.  This file does the same after the run, in forks
 * that it drops afterwards.  No text depends on these logits.  If there is no room for the forks, the logits stay
 * zeros. */
#include "generate/run.h"

#include <string.h>

/* Appends padding to the text of row i up to step `at` of decoding.  False: the text has no room. */
static bool pad_text(const struct run *r, struct row *w, uint32_t at)
{
    int32_t pad = r->g->pad_token_id >= 0 ? r->g->pad_token_id : r->g->eos_token_id[0];
    if (at > w->limit || (uint32_t)pad >= r->x->m->vocab) return false;
    for (uint32_t n = w->n; n < w->n_prompt + at; n++)
        w->ids[n] = pad;
    return true;
}

static int feed_ended(struct run *r, const kv_seq *seq, uint32_t at)
{
    size_t vocab = r->x->m->vocab;
    float *kept = r->kept.data + (size_t)at * r->width * vocab;
    bool cached = r->g->use_cache;
    uint32_t k = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        uint32_t len = w->n_prompt + at;
        if (!seq[i] || w->n > len) continue;
        if (!pad_text(r, w, at))
            return ERR(LIMIT, "the padding of a finished row exceeds the limit of its tokens");
        r->feed[k++] = (struct exec_feed){.seq = seq[i],
                                          .tok = cached ? w->ids + len - 1 : w->ids,
                                          .n = cached ? 1 : len,
                                          .pad = w->pad,
                                          .loose = true,
                                          .ends = w->ends,
                                          .source = run_hears(r, w)};
    }
    if (!k) return 0;
    TRY(exec_feed(r->x, r->feed, k, 0, r->logits, NULL, NULL));
    k = 0;
    for (uint32_t i = 0; i < r->n; i++)
        if (seq[i] && r->row[i].n <= r->row[i].n_prompt + at)
            memcpy(kept + i * vocab, r->logits + k++ * vocab, vocab * sizeof *kept);
    return 0;
}

/* Makes the forks of the rows that end before step `last`. */
static int seqs_begin(struct run *r, uint32_t last, kv_seq *seq)
{
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        if (w->n - w->n_prompt > last) continue;
        TRY(r->g->use_cache ? kv_fork(r->x->kv, w->seq, &seq[i])
                            : kv_new(r->x->kv, &r->salt, &seq[i]));
    }
    return 0;
}

static void seqs_end(struct run *r, kv_seq *seq)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (seq[i]) kv_drop(r->x->kv, seq[i]);
    memset(seq, 0, r->n * sizeof *seq);
}

void idle_run(struct run *r)
{
    uint32_t last = r->kept_steps - 1, first = last + 1;
    bool cached = r->g->use_cache;
    if (!r->kept.data || !r->g->n_eos || r->n < 2) return;
    for (uint32_t i = 0; i < r->n; i++)
        /* the last token of this row was fed */
        if (r->row[i].finish == KVIK_FINISH_NOT_FINITE) return;
    kv_seq *seq = mem_array(r->n, sizeof *seq);
    for (uint32_t i = 0; i < r->n; i++)
        first = MIN(first, r->row[i].n - r->row[i].n_prompt);
    int e = seq ? 0 : ERR_NOMEM;
    if (e >= 0 && cached && first <= last) e = seqs_begin(r, last, seq);
    for (uint32_t at = first; e >= 0 && at <= last; at++) {
        if (!cached) e = seqs_begin(r, at, seq);
        if (e >= 0) e = feed_ended(r, seq, at);
        if (!cached) seqs_end(r, seq);
    }
    if (seq) seqs_end(r, seq);
    mem_free(seq);
}

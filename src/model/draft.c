/* draft.c - one step that checks guesses.
 *
 * A sequence is fed the token it would be fed next and guesses of what follows, and the caller judges their logits
 * before the step ends: rows of refuted guesses are never part of the sequence (kv_span.undo), so nothing has to be trimmed
 * and no group has to keep more than it does.  A step never crosses into another regime of a rope, since the rows
 * before it would have to be computed again for a guess. */
#include "model/model.h"

uint32_t exec_draft_fits(const struct exec *x, kv_seq seq, uint32_t n)
{
    uint32_t len = kv_len(x->kv, seq);
    n = MIN(MIN(n, x->step_tokens), x->max_len - MIN(len, x->max_len));
    while (n && regime_changes(x, seq, n))
        n--;
    return n;
}

int exec_draft(struct exec *x, const struct exec_draft *draft, uint32_t n, float *logits,
               exec_judge judge, void *ctx)
{
    TRY(checkpoint_recheck(x->m->ck));
    if (n > 2 * x->max_seqs)
        return ERR(LIMIT, "%u rows, the cache was opened for %u", n, x->max_seqs);
    for (uint32_t i = 0; i < n; i++) {
        const struct exec_draft *d = &draft[i];
        if (!d->n || exec_draft_fits(x, d->seq, d->n) < d->n)
            return ERR(LIMIT, "row %u: %u tokens cannot be checked in one step after %u", i, d->n,
                       kv_len(x->kv, d->seq));
        x->span[i] = (struct exec_span){
            .seq = d->seq, .tok = d->tok, .n = d->n, .n_logits = d->n, .undo = d->n - 1};
    }
    return exec_step_judged(x, x->span, n, logits, judge, ctx);
}

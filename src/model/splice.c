/* splice.c - appends a text that is made of chunks whose rows may be cached behind other texts: retrieved documents,
 * files in another order, the rest of a text after an edit.
 *
 * The rows of a token depend on all tokens before it.  So the rows of a chunk that was computed behind another text
 * are an approximation.  The first tokens of the chunk deviate most, because they see few tokens of the chunk
 * itself.  So the caller says how many of them to recompute.  If that is the whole chunk, nothing is borrowed, and
 * all bits are those of plain computing. */
#include "model/model.h"

#include <string.h>

struct splicing {
    struct exec *x;
    kv_seq seq;
    int32_t *tok; /* the whole text; tokens before `fed` are in the sequence */
    uint32_t fed, at;
    struct exec_spliced sum;
};

/* Computes the tokens up to `end`. */
static int compute(struct splicing *s, uint32_t end)
{
    if (s->fed >= end) return 0;
    struct exec_feed f = {.seq = s->seq, .tok = s->tok + s->fed, .n = end - s->fed, .loose = true};
    TRY(exec_feed(s->x, &f, 1, 0, NULL, NULL, NULL));
    s->sum.computed += end - s->fed;
    s->fed = end;
    return 0;
}

/* Appends one chunk, which begins at s->at: borrows its rows, or leaves its tokens to the next compute. */
static int put_chunk(struct splicing *s, const struct exec_chunk *c)
{
    struct kv *kv = s->x->kv;
    struct kv_loan loan;
    uint32_t again = MIN(c->again, c->n), rows = 0;
    /* the prefix index has covered no more of the chunk than its recomputed tokens */
    bool whole = s->fed <= s->at + again;
    int e = whole && again < c->n ? kv_lend(kv, s->seq, c->tok, c->n, &loan) : 0;
    if (e > 0) {
        e = compute(s, s->at + again);
        if (e >= 0) e = kv_borrow(kv, s->seq, &loan, again, &rows);
        kv_loan_end(kv, &loan);
        /* computing the tokens before the chunk may have filled the budget; then the chunk is not borrowed */
        if (e == ERR_FULL) e = 0;
        s->sum.moved += rows;
        s->sum.chunks += rows > 0;
        s->fed += rows;
    }
    s->at += c->n;
    return e;
}

static int splice(struct splicing *s, const struct exec_chunk *chunk, uint32_t n, uint32_t total)
{
    if (!kv_len(s->x->kv, s->seq)) {
        TRY(exec_match(s->x, s->seq, s->tok, total, 0, &s->fed));
        s->sum.reused = s->fed;
    }
    for (uint32_t i = 0; i < n; i++)
        TRY(put_chunk(s, &chunk[i]));
    return compute(s, total);
}

int exec_splice(struct exec *x, kv_seq seq, const struct exec_chunk *chunk, uint32_t n,
                struct exec_spliced *out)
{
    struct splicing s = {.x = x, .seq = seq};
    struct kv_mark mark;
    uint64_t total = 0;
    if (!x->borrows)
        return ERR(UNSUPPORTED,
                   "the cache was opened without moved_chunks, so no chunk can move to "
                   "another position; set cache_config {\"moved_chunks\": N}");
    TRY(exec_idle(x));
    for (uint32_t i = 0; i < n; i++) {
        total += chunk[i].n;
        if (!chunk[i].n || !chunk[i].tok) return ERR(ARG, "chunk %u has no tokens", i);
        for (uint32_t k = 0; k < chunk[i].n; k++)
            if (chunk[i].tok[k] < 0 || (uint32_t)chunk[i].tok[k] >= x->m->vocab)
                return ERR(ARG, "chunk %u: token id %d is outside the vocabulary of %u", i,
                           chunk[i].tok[k], x->m->vocab);
    }
    if (total > x->max_len - MIN(kv_len(x->kv, seq), x->max_len))
        return ERR(LIMIT, "%llu tokens of chunks after %u do not fit in max_cache_len %u",
                   (unsigned long long)total, kv_len(x->kv, seq), x->max_len);
    if (!(s.tok = mem_array((size_t)total + !total, sizeof *s.tok))) return ERR_NOMEM;
    for (uint32_t i = 0, at = 0; i < n; at += chunk[i++].n)
        memcpy(s.tok + at, chunk[i].tok, chunk[i].n * sizeof *s.tok);
    int e = kv_mark(x->kv, seq, &mark);
    if (e >= 0) {
        e = splice(&s, chunk, n, (uint32_t)total);
        kv_settle(x->kv, &mark, e < 0);
    }
    mem_free(s.tok);
    if (e >= 0) *out = s.sum;
    return e;
}

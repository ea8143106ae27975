/* splice.c - appends a text that is made of chunks whose rows may be cached behind other texts: retrieved documents,
 * files in another order, the rest of a text after an edit.
 *
 * The rows of a token depend on all tokens before it.  So the rows of a chunk that was computed behind another text
 * are an approximation.  The first tokens of the chunk deviate most, because they see few tokens of the chunk
 * itself.  So the caller says how many of them to recompute.  If that is the whole chunk, nothing is borrowed, and
 * all bits are those of plain computing. */
#include "model/model.h"

#include <string.h>

struct splice_work {
    struct exec *x;
    kv_seq seq;
    int32_t *tok;           /* the whole text; tokens before `fed` are in the sequence */
    uint32_t fed, at, left; /* left: tokens that may be computed */
    struct exec_spliced sum;
};

/* Computes the tokens up to `end`, or as many as are left. */
static int compute(struct splice_work *s, uint32_t end)
{
    const uint32_t n = end > s->fed ? MIN(end - s->fed, s->left) : 0;
    if (!n) return 0;
    struct exec_feed f = {.seq = s->seq, .tok = s->tok + s->fed, .n = n, .loose = true};
    TRY(exec_feed(s->x, &f, 1, 0, NULL, NULL, NULL));
    s->sum.computed += n;
    s->fed += n;
    s->left -= n;
    return 0;
}

/* Appends one chunk, which begins at s->at: borrows its rows, or leaves its tokens to the next compute. */
static int put_chunk(struct splice_work *s, const struct exec_chunk *c)
{
    struct kv *kv = s->x->kv;
    struct kv_loan loan;
    /* tokens of the chunk that the prefix index gave, or that an earlier call computed */
    const uint32_t have = s->fed > s->at ? MIN(s->fed - s->at, c->n) : 0;
    uint32_t again = MAX(MIN(c->again, c->n), have), rows = 0;
    /* If the prefix index gave at least half of a chunk, the rest is computed: the texts probably continue alike, and then
     * all rows are exact.  If it gave less, another document probably has the same first lines, and the chunk moves. */
    const bool moves = again < c->n && (have <= c->again || have < c->n / 2);
    int e = moves ? kv_lend(kv, s->seq, c->tok, c->n, &loan) : 0;
    if (e > 0) {
        e = compute(s, s->at + again);
        if (e >= 0 && s->fed == s->at + again) e = kv_borrow(kv, s->seq, &loan, again, &rows);
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

static int splice(struct splice_work *s, const struct exec_chunk *chunk, uint32_t n, uint32_t total)
{
    if (!kv_len(s->x->kv, s->seq)) {
        TRY(exec_match(s->x, s->seq, s->tok, total, 0, &s->fed));
        s->sum.reused = s->fed;
    }
    for (uint32_t i = 0; i < n && (s->left || s->fed >= s->at); i++)
        TRY(put_chunk(s, &chunk[i]));
    return compute(s, total);
}

/* Refuses chunks with tokens that the model does not have.  Returns their number. */
static int64_t count_tokens(const struct exec *x, const struct exec_chunk *chunk, uint32_t n)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        total += chunk[i].n;
        if (!chunk[i].n || !chunk[i].tok) return ERR(ARG, "chunk %u has no tokens", i);
        for (uint32_t k = 0; k < chunk[i].n; k++)
            if (chunk[i].tok[k] < 0 || (uint32_t)chunk[i].tok[k] >= x->m->vocab)
                return ERR(ARG, "chunk %u: token id %d is outside the vocabulary of %u", i,
                           chunk[i].tok[k], x->m->vocab);
    }
    return (int64_t)total;
}

/* True if the sequence ends with the first tokens of the text. */
static bool sequence_ends_with(const struct splice_work *s, uint64_t taken)
{
    const uint32_t len = kv_len(s->x->kv, s->seq);
    return taken <= len && (!taken || !memcmp(kv_tokens(s->x->kv, s->seq) + len - taken, s->tok,
                                              (size_t)taken * sizeof *s->tok));
}

int exec_splice(struct exec *x, kv_seq seq, const struct exec_chunk *chunk, uint32_t n,
                uint64_t taken, uint64_t most, struct exec_spliced *out)
{
    struct splice_work s = {
        .x = x, .seq = seq, .left = (uint32_t)MIN(most - 1, UINT32_MAX - 1) + 1};
    struct kv_mark mark;
    if (!x->borrows)
        return ERR(UNSUPPORTED,
                   "the cache was opened without moved_chunks, so no chunk can move to "
                   "another position; set cache_config {\"moved_chunks\": N}");
    TRY(exec_idle(x));
    const int64_t total = count_tokens(x, chunk, n);
    if (total < 0) return (int)total;
    if (taken > (uint64_t)total)
        return ERR(ARG, "%llu tokens are taken of chunks that have %lld", (unsigned long long)taken,
                   (long long)total);
    if ((uint64_t)total - taken > x->max_len - MIN(kv_len(x->kv, seq), x->max_len))
        return ERR(
            LIMIT,
            "%lld tokens of chunks after %u do not fit in max_cache_len %u; open the cache with more",
            (long long)total - (long long)taken, kv_len(x->kv, seq), x->max_len);
    if (!(s.tok = mem_array((size_t)total + !total, sizeof *s.tok))) return ERR_NOMEM;
    for (uint32_t i = 0, at = 0; i < n; at += chunk[i++].n)
        memcpy(s.tok + at, chunk[i].tok, chunk[i].n * sizeof *s.tok);
    int e = sequence_ends_with(&s, taken)
                ? kv_mark(x->kv, seq, &mark)
                : ERR(ARG,
                      "the sequence does not end with the %llu tokens that "
                      "are taken of the chunks",
                      (unsigned long long)taken);
    if (e >= 0) {
        s.fed = (uint32_t)taken;
        e = splice(&s, chunk, n, (uint32_t)total);
        kv_settle(x->kv, &mark, e < 0);
    }
    mem_free(s.tok);
    s.sum.taken = s.fed;
    if (e >= 0) *out = s.sum;
    return e;
}

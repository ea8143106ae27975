/* regime.c - sequences whose rotary frequencies depend on their length (longrope).
 *
 * All rows of a sequence have the frequencies of one regime.  The salt says which, and forks,
 * reorders and trims carry it.  Entering another regime drops the rows and hands their tokens to
 * the feed, which recomputes them.
 *
 * No copy of the dropped rows is kept, because a budget that holds the sequence need not hold it
 * twice (return_lacks_room in feed.c has the exceptions).  A feed that fails recomputes the old rows
 * turn by turn, to the same bits.  A sequence that changes its regime has at most as many rows as
 * the widest short regime.  So the buffers are small and allocated at open. */
#include "model/model.h"

#include <assert.h>
#include <string.h>

/* The tokens and turns that one feed dropped. */
struct regime_past {
    int32_t *tok;         /* [regime_rows] */
    struct kv_turn *turn; /* [regime_rows / 2 + 1] */
    uint32_t n, n_turns;
    struct kv_salt salt;
};

uint32_t regime_of(const struct model *m, uint32_t len)
{
    uint32_t least = 0;
    for (uint32_t i = 0; i < m->n_ropes; i++)
        if (m->rope[i].type == ROPE_LONG && len > m->rope[i].original)
            least = MAX(least, m->rope[i].original + 1);
    return least;
}

int regime_open(struct exec *x)
{
    const struct model *m = x->m;
    for (uint32_t i = 0; i < m->n_ropes; i++)
        if (m->rope[i].type == ROPE_LONG && m->rope[i].original < x->max_len)
            x->regime_rows = MAX(x->regime_rows, m->rope[i].original);
    if (!x->regime_rows) return 0;
    x->past = mem_array(2 * (size_t)x->max_seqs, sizeof *x->past);
    for (uint32_t i = 0; x->past && i < 2 * x->max_seqs; i++) {
        x->past[i].tok = mem_array(x->regime_rows, sizeof *x->past[i].tok);
        x->past[i].turn = mem_array(x->regime_rows / 2 + 1, sizeof *x->past[i].turn);
        if (!x->past[i].tok || !x->past[i].turn) return ERR_NOMEM;
    }
    return x->past ? 0 : ERR_NOMEM;
}

void regime_close(struct exec *x)
{
    for (uint32_t i = 0; x->past && i < 2 * x->max_seqs; i++) {
        mem_free(x->past[i].tok);
        mem_free(x->past[i].turn);
    }
    mem_free(x->past);
}

const int32_t *regime_rows(const struct exec *x, uint32_t i)
{
    return x->past[i].tok;
}

bool regime_changes(const struct exec *x, kv_seq seq, uint32_t n)
{
    uint32_t len = kv_len(x->kv, seq);
    return x->regime_rows && len && regime_of(x->m, len + n) != kv_salt(x->kv, seq).regime;
}

int regime_enter(struct exec *x, uint32_t i, kv_seq seq, uint32_t n, uint32_t *again)
{
    uint32_t len = kv_len(x->kv, seq), regime = regime_of(x->m, len + n), have;
    const int32_t *tok = kv_tokens(x->kv, seq);
    struct kv_salt salt = kv_salt(x->kv, seq);
    if (!x->regime_rows || regime == salt.regime) return 0;
    salt.regime = regime;
    if (len == 0) return kv_resalt(x->kv, seq, &salt);
    struct regime_past *p = &x->past[i];
    assert(len <= x->regime_rows);
    for (uint32_t t = 0; t < len; t++)
        if (tok[t] < 0)
            return ERR(LOST,
                       "with %u tokens the model's rotary frequencies change, so all rows must be "
                       "recomputed, and row %u has no token",
                       len + n, t);
    memcpy(p->tok, tok, len * sizeof *tok);
    const struct kv_turn *turn = kv_turns(x->kv, seq, &p->n_turns);
    memcpy(p->turn, turn, p->n_turns * sizeof *turn);
    p->n = len;
    p->salt = kv_salt(x->kv, seq);
    TRY(kv_trim(x->kv, seq, 0, &have));
    *again = len;
    return kv_resalt(x->kv, seq, &salt);
}

int regime_back(struct exec *x, uint32_t i, kv_seq seq)
{
    const struct regime_past *p = &x->past[i];
    uint32_t have;
    TRY(kv_trim(x->kv, seq, 0, &have));
    int e = kv_resalt(x->kv, seq, &p->salt);
    if (e >= 0) e = exec_replay(x, seq, p->tok, p->turn, p->n_turns, 0, p->n);
    if (e < 0) (void)kv_trim(x->kv, seq, 0, &have);
    return e;
}

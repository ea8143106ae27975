/* regime.c - sequences whose rotary frequencies depend on their length (longrope).  All rows of a sequence have
 * the frequencies of one regime.  The salt of the sequence says which, so forks, reorders and trims keep it.  A
 * feed that brings a sequence into another regime marks the sequence, trims it to nothing, and recomputes its
 * tokens, which the mark still has.  If the feed fails or is ended early, the sequence is rolled back to the mark.
 * The old rows count towards the budget until the feed has ended.  There are at most regime_rows of them, because
 * a crop below the threshold recomputes only the rows that remain. */
#include "model/model.h"

uint32_t regime_of(const struct model *m, uint32_t len)
{
    uint32_t least = 0;
    for (uint32_t i = 0; i < m->n_ropes; i++)
        if (m->rope[i].type == ROPE_LONG && len > m->rope[i].original)
            least = MAX(least, m->rope[i].original + 1);
    return least;
}

uint32_t regime_rows(const struct model *m, uint32_t max_len)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < m->n_ropes; i++)
        if (m->rope[i].type == ROPE_LONG && m->rope[i].original < max_len)
            most = MAX(most, m->rope[i].original);
    return most;
}

bool regime_changes(const struct exec *x, kv_seq seq, uint32_t n)
{
    uint32_t len = kv_len(x->kv, seq);
    return x->regime_rows && len && regime_of(x->m, len + n) != kv_salt(x->kv, seq).regime;
}

int regime_enter(struct exec *x, kv_seq seq, uint32_t n, struct exec_fed *g)
{
    uint32_t len = kv_len(x->kv, seq), regime = regime_of(x->m, len + n), have;
    const int32_t *tok = kv_tokens(x->kv, seq);
    struct kv_salt salt = kv_salt(x->kv, seq);
    if (!x->regime_rows || regime == salt.regime) return 0;
    salt.regime = regime;
    if (len == 0) return kv_resalt(x->kv, seq, &salt);
    for (uint32_t t = 0; t < len; t++)
        if (tok[t] < 0)
            return ERR(LOST,
                       "with %u tokens the model's rotary frequencies change, so all rows must be "
                       "recomputed, and row %u has no token",
                       len + n, t);
    TRY(kv_mark(x->kv, seq, &g->mark));
    TRY(kv_rely(x->kv, seq, len + n));
    TRY(kv_trim(x->kv, seq, 0, &have));
    g->again = len;
    g->past = kv_marked(x->kv, &g->mark).tok;
    return kv_resalt(x->kv, seq, &salt);
}

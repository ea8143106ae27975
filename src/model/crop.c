/* crop.c - shortens a sequence: trims it to a length that every group can resume from, then
 * recomputes up to the length wanted.
 *
 * Rows of a window that moved on, and raw rows under a tile, are no longer cached.  Such rows are
 * recomputed from their tokens, update by update as they were appended.  The schedule of the
 * quantized caches of Transformers and the frequencies of dynamic NTK depend on the turns.  The bits
 * are then those of a sequence that never was longer. */
#include "model/model.h"

#include <string.h>

/* Computes rows [from, to) of one update: a turn that ended at row `end`, or single tokens. */
static int replay_update(struct exec *x, kv_seq seq, const int32_t *tok, uint32_t from, uint32_t to,
                         uint32_t end, bool turn)
{
    while (from < to) {
        uint32_t n = MIN(to - from, x->step_tokens);
        struct exec_span span = {
            .rows = {.seq = seq, .tok = tok + from, .n = n, .turn = turn, .last = from + n == to},
            .turn_end = turn ? end - 1 : from};
        TRY(exec_step(x, &span, 1, NULL));
        from += n;
    }
    return 0;
}

int exec_replay(struct exec *x, kv_seq seq, const int32_t *tok, const struct kv_turn *turn,
                uint32_t n_turns, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < n_turns && from < to; i++) {
        uint32_t at = MIN(turn[i].pos, to), end = turn[i].pos + turn[i].n;
        if (end <= from) continue;
        if (from < at) TRY(replay_update(x, seq, tok, from, at, at, false));
        from = MAX(from, at);
        TRY(replay_update(x, seq, tok, from, MIN(end, to), end, true));
        from = MIN(end, to);
    }
    return replay_update(x, seq, tok, from, to, to, false);
}

/* Finds the row to resume from.  This row does not lie inside a turn whose rows are one update. */
static int start_of(const struct exec *x, kv_seq s, uint32_t want, uint32_t *have)
{
    uint32_t n;
    TRY(kv_resume(x->kv, s, want, have));
    const struct kv_turn *turn = kv_turns(x->kv, s, &n);
    if (*have == want || !kv_by_turns(x->kv)) return 0;
    for (uint32_t i = n; i-- > 0;)
        if (turn[i].pos < *have && *have < turn[i].pos + turn[i].n)
            TRY(kv_resume(x->kv, s, turn[i].pos, have));
    return 0;
}

static int refill(struct exec *x, kv_seq s, const int32_t *tok, const struct kv_turn *turn,
                  uint32_t n_turns, uint32_t from, uint32_t to)
{
    uint32_t have;
    struct kv_mark mark;
    for (uint32_t i = from; i < to; i++)
        if (tok[i] < 0) return ERR(LOST, "row %u must be recomputed and has no token id", i);
    TRY(kv_mark(x->kv, s, &mark));
    int e = kv_trim(x->kv, s, from, &have);
    if (e >= 0) e = exec_replay(x, s, tok, turn, n_turns, have, to);
    kv_settle(x->kv, &mark, e < 0);
    return e;
}

/* Copies the first `len` tokens and all turns; the caller frees both copies, also after a
 * failure. */
static int remember(const struct exec *x, kv_seq s, uint32_t len, int32_t **tok,
                    struct kv_turn **turn, uint32_t *n_turns)
{
    const struct kv_turn *turns = kv_turns(x->kv, s, n_turns);
    *tok = mem_array(MAX(len, 1), sizeof **tok);
    *turn = mem_array(MAX(*n_turns, 1), sizeof **turn);
    if (!*tok || !*turn) return ERR_NOMEM;
    memcpy(*tok, kv_tokens(x->kv, s), len * sizeof **tok);
    memcpy(*turn, turns, *n_turns * sizeof **turn);
    return 0;
}

int exec_crop(struct exec *x, kv_seq s, uint32_t want)
{
    uint32_t have, n_turns;
    TRY(start_of(x, s, want, &have));
    if (have == want) return kv_trim(x->kv, s, want, &have);
    int32_t *tok;
    struct kv_turn *turn;
    int e = remember(x, s, want, &tok, &turn, &n_turns);
    if (e >= 0) e = refill(x, s, tok, turn, n_turns, have, want);
    mem_free(tok);
    mem_free(turn);
    return e;
}

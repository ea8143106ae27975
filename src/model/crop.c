/* crop.c - shortens a sequence.  It is trimmed to a length that every group can resume from.  The rows from there
 * to the wanted length are recomputed from their tokens, update by update as they were appended.  Two kinds of
 * rows may need this: rows that a window has left behind, and raw rows whose tile is quantized.  Updates matter
 * because dynamic NTK and the quantized caches of Transformers depend on turns.  The bits are then those of a
 * sequence that never was longer. */
#include "model/model.h"

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

int exec_replay(struct exec *x, kv_seq seq, const struct kv_past *p, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < p->n_turns && from < to; i++) {
        struct kv_turn turn = kv_past_turn(p, i);
        uint32_t at = MIN(turn.pos, to), end = turn.pos + turn.n;
        if (end <= from) continue;
        if (from < at) TRY(replay_update(x, seq, p->tok, from, at, at, false));
        from = MAX(from, at);
        TRY(replay_update(x, seq, p->tok, from, MIN(end, to), end, true));
        from = MIN(end, to);
    }
    return replay_update(x, seq, p->tok, from, to, to, false);
}

/* Returns the first row of the turn that has `row` inside it, if rows depend on turns; else `row`. */
static uint32_t update_of(const struct exec *x, const struct kv_past *p, uint32_t row)
{
    for (uint32_t i = p->n_turns; kv_by_turns(x->kv) && i-- > 0;) {
        struct kv_turn turn = kv_past_turn(p, i);
        if (turn.pos < row && row < turn.pos + turn.n) return turn.pos;
    }
    return row;
}

/* Trims s to at most `to` rows, all of whole updates, and recomputes the rows from *from on.  past: the sequence as
 * it was before.  A trim can leave fewer rows than kv_resume promised, because making room for it can evict a
 * snapshot. */
static int refill(struct exec *x, kv_seq s, const struct kv_past *past, uint32_t to, uint32_t *from)
{
    TRY(kv_rely(x->kv, s, to));
    for (uint32_t row = update_of(x, past, *from);; row = update_of(x, past, *from)) {
        TRY(kv_trim(x->kv, s, row, from));
        if (update_of(x, past, *from) == *from) break;
    }
    for (uint32_t i = *from; i < to; i++)
        if (past->tok[i] < 0) return ERR(LOST, "row %u must be recomputed and has no token id", i);
    return exec_replay(x, s, past, *from, to);
}

int exec_crop_from(struct exec *x, kv_seq s, uint32_t want, uint32_t *from)
{
    struct kv_mark mark;
    TRY(kv_resume(x->kv, s, want, from));
    if (*from == want) return kv_trim(x->kv, s, want, from);
    TRY(checkpoint_recheck(x->m->ck)); /* reading a mapped file that shrank would raise SIGBUS */
    TRY(kv_mark(x->kv, s, &mark));
    struct kv_past past = kv_marked(x->kv, &mark);
    int e = refill(x, s, &past, want, from);
    kv_settle(x->kv, &mark, e < 0);
    return e;
}

int exec_crop(struct exec *x, kv_seq s, uint32_t want)
{
    uint32_t from;
    return exec_crop_from(x, s, want, &from);
}

/* sync.c - finds how many cached tokens of a sequence a conversation can reuse; see sync.h.  Tokens are compared,
 * never assumed, because templates rewrite old turns, and a growing text is split into other tokens.  The agreeing
 * tokens stay cached as far as every group of layers can resume from them exactly.  Rows between that length and
 * the divergence are recomputed with the rest, as part of the new turn.
 *
 * A sequence is marked first, so a failure leaves it unchanged.  The rows that the conversation drops count
 * towards the budget until the call has ended.  If a sequence has a reserve and the dropped rows leave no room in
 * it for the new rows, the call is refused. */
#include "generate/sync.h"

#include <stdio.h>

/* tokens that an excerpt shows before and after the divergence */
enum { BEFORE = 6, AFTER = 10 };

/* --- How many tokens agree. */

/* Returns how many rows a sink cache shows, including sinks; 0 without sinks. */
static uint32_t sink_window(const struct exec *x)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < x->n_groups; i++) {
        const struct kv_policy *p = &x->group[i].policy;
        if (p->sinks) most = MAX(most, p->sinks + p->window);
    }
    return most;
}

uint32_t sync_common(const int32_t *a, const int32_t *b, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* Returns how many tokens agree.  A row without a token agrees with any id, because only the caller knows its
 * contents. */
static uint32_t count_agreeing(const int32_t *known, const int32_t *id, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && (known[i] == id[i] || known[i] < 0))
        i++;
    return i;
}

static struct exec_said *said_slot(struct exec *x, kv_seq s)
{
    return &x->said[kv_slot(x->kv, s)];
}

void sync_said(struct exec *x, kv_seq s, int32_t token)
{
    *said_slot(x, s) = (struct exec_said){s, kv_len(x->kv, s), token};
}

/* Detects a conversation that was cropped to the last rows that a sink cache shows.  Returns the row of its first
 * token, or 0.  The ids must begin with all known tokens from that row on, and these must be more than the tokens
 * that agree from the start.  If a text repeats itself, the last generated token, which is not yet appended,
 * decides. */
static uint32_t crop_offset(struct exec *x, const struct sync *s, const struct sync_ids *ids,
                            uint32_t same)
{
    const int32_t *known = kv_tokens(x->kv, s->seq);
    const struct exec_said *said = said_slot(x, s->seq);
    uint32_t len = s->len, found = 0;
    bool pending = said->seq == s->seq && said->len == len;
    if (ids->n != sink_window(x)) return 0;
    for (uint32_t o = len > ids->n ? len - ids->n : 1; o + same < len; o++) {
        uint32_t n = len - o;
        if (known[o] != ids->id[0] || sync_common(known + o, ids->id, n) < n) continue;
        if (!pending || (n < ids->n && ids->id[n] == said->token)) return o;
        if (!found) found = o;
    }
    return found;
}

/* --- The result in words. */

static char *excerpt(const struct tok *tok, const int32_t *id, uint32_t n, uint32_t at)
{
    struct buf b;
    uint32_t from = at > BEFORE ? at - BEFORE : 0, to = MIN(n, at + AFTER);
    buf_init(&b, 1u << 20);
    while (from < at && id[from] < 0)
        from++;
    for (uint32_t i = from; i < to; i++)
        if (id[i] < 0) to = i; /* a row without a token */
    int e = buf_append(&b, "", 0);
    if (e >= 0 && from < to) e = tok_decode(tok, id + from, to - from, false, &b);
    char *s = e < 0 ? NULL : buf_take(&b);
    if (!s) buf_done(&b);
    return s;
}

static char *words(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *words(const char *fmt, ...)
{
    char line[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    return mem_strndup(line, (size_t)MIN(n, (int)sizeof line - 1));
}

/* Returns why fewer rows were kept than agree.  hinders: the group that allowed no more. */
static char *reason(const struct exec *x, uint32_t hinders, uint32_t same, uint32_t have,
                    bool regime)
{
    if (regime)
        return words("the model's rotary frequencies change with the length, so all rows are "
                     "recomputed");
    if (hinders >= x->n_groups)
        return words("the frequencies of rows %u to %u depend on the turn they were computed in",
                     have, same - 1);
    const struct kv_group *g = kv_group_now(x->kv, hinders);
    const struct kv_policy *p = &g->policy;
    if (p->kind == KV_STATE)
        return words("recurrent layers can resume at %u tokens at most, where a snapshot was taken",
                     have);
    if (p->window && have < same - same % MAX(g->seal.tile, 1))
        return words("layers with a window of %u rows no longer hold the rows before token %u",
                     p->window + p->sinks, same);
    if (p->chunk && have < same - same % MAX(g->seal.tile, 1))
        return words("layers with chunks of %u rows no longer hold the rows before token %u",
                     p->chunk, same);
    return words("row %u lies in a tile of %u rows that is already quantized", same, g->seal.tile);
}

/* --- Cutting the sequence. */

/* Lowers *have to a length that the sequence can resume from.  Under dynamic NTK that length must not lie inside a
 * turn: all rows of a turn have the frequencies of its end, so a turn is kept as a whole or not at all.  past: the
 * sequence with all its turns. */
static int whole_turns(const struct exec *x, kv_seq s, const struct kv_past *past, uint32_t *have,
                       bool *cut)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < x->m->n_ropes; i++)
        if (x->m->rope[i].type == ROPE_DYNAMIC) least = MIN(least, x->m->rope[i].original);
    for (uint32_t i = past->n_turns; i-- > 0;) {
        struct kv_turn turn = kv_past_turn(past, i);
        uint32_t end = turn.pos + turn.n;
        if (turn.pos >= *have || *have >= end || end <= least) continue;
        TRY(kv_resume(x->kv, s, turn.pos, have));
        *cut = true;
    }
    return 0;
}

/* Keeps either all or none of the rows without tokens, because they may have had positions of their own. */
static int unknown_whole(const struct exec *x, kv_seq s, uint32_t same, uint32_t *have)
{
    const int32_t *known = kv_tokens(x->kv, s);
    uint32_t first = 0, last = same;
    while (first < same && known[first] >= 0)
        first++;
    while (last > first && known[last - 1] >= 0)
        last--;
    return first < *have && *have < last ? kv_resume(x->kv, s, first, have) : 0;
}

/* Finds how many rows the sequence can keep of the `same` rows that agree.  *hinders: see reason(). */
static int longest_resumable(const struct exec *x, const struct sync *s, uint32_t same,
                             uint32_t *have, uint32_t *hinders)
{
    bool cut = false;
    struct kv_past past = kv_marked(x->kv, &s->mark);
    *hinders = UINT32_MAX;
    TRY(kv_resume(x->kv, s->seq, same, have));
    if (*have < same) *hinders = kv_hinders(x->kv, s->seq, same);
    TRY(whole_turns(x, s->seq, &past, have, &cut));
    if (cut) *hinders = UINT32_MAX;
    return unknown_whole(x, s->seq, same, have);
}

static void drop_sync(struct sync *s)
{
    sync_report_free(s->report);
    *s = (struct sync){0};
}

/* True if some codec quantizes by turns, so that rows must be recomputed in their original turns. */
static bool by_turns(const struct exec *x)
{
    for (uint32_t i = 0; i < x->n_groups; i++)
        if (x->group[i].seal.resid) return true;
    return false;
}

/* Cuts the sequence to *have rows, or to `rows` rows of which those from *have on are recomputed.  Making room for
 * the recomputed rows can evict a snapshot; then *have becomes smaller. */
static int cut_sequence(struct exec *x, struct sync *s, uint32_t rows, uint32_t *have)
{
    struct kv_past past = kv_marked(x->kv, &s->mark);
    /* only the sequence knows the tokens of rows before the ids */
    if (*have < rows && (s->report->offset || by_turns(x)))
        return exec_crop_from(x, s->seq, s->kept = rows, have);
    for (bool cut = true; cut;) {
        TRY(kv_trim(x->kv, s->seq, *have, &s->kept));
        *have = s->kept;
        cut = false;
        TRY(whole_turns(x, s->seq, &past, have, &cut));
    }
    return 0;
}

/* Cuts the sequence for a call that makes it `until` rows long.  The dropped rows stay until the call ends, for
 * the undo.  If the budget has room for only one reserve, it may lack room for both the dropped and the new rows. */
static int keep_rows(struct exec *x, struct sync *s, uint32_t rows, uint32_t *have, uint32_t until)
{
    char why[512];
    TRY(kv_rely(x->kv, s->seq, until));
    int e = cut_sequence(x, s, rows, have);
    if (e >= 0) e = kv_rely(x->kv, s->seq, until); /* a crop may have used the room */
    if (e != ERR_FULL || *have == s->len) return e;
    snprintf(why, sizeof why, "%s", err_last());
    return ERR(FULL,
               "%s; %u cached tokens are replaced and stay until the call has ended, unless the "
               "sequence is cropped to %u tokens before",
               why, s->len - *have, *have);
}

/* Fills in how many of n tokens are kept, and computed, if the sequence keeps `have` of its rows. */
static void count_tokens(const struct sync *s, uint32_t n, uint32_t same, uint32_t have)
{
    kvik_sync *r = s->report;
    uint32_t offset = (uint32_t)r->offset;
    r->reused = s->regime || have < offset ? 0 : have - offset;
    r->recomputed = s->regime ? same : offset + same - have;
    r->computed = n - same + r->recomputed;
}

/* Finds how many of the `same` agreeing rows can be kept (*have).  Fills in the counts of the
 * report and the reason. */
static int choose_kept(struct exec *x, struct sync *s, const struct sync_ids *ids, uint32_t same,
                       uint32_t *have)
{
    kvik_sync *r = s->report;
    uint32_t offset = (uint32_t)r->offset, hinders;
    bool padding = x->m->counts_padding && !ids->append && kv_salt(x->kv, s->seq).pad != ids->pad;
    TRY(longest_resumable(x, s, padding ? 0 : offset + same, have, &hinders));
    s->regime = *have && offset + ids->n > *have &&
                /* the difference may be negative, which is fine modulo 2^32 */
                regime_changes(x, s->seq, offset + ids->n - s->len);
    count_tokens(s, ids->n, same, *have);
    if (!r->recomputed) return 0;
    if (padding)
        r->reason = words("the number of masked columns before the prompt has changed");
    else
        r->reason = reason(x, hinders, offset + same, *have, s->regime);
    return 0;
}

/* Finds where the ids differ from the cached tokens.  Returns how many rows agree. */
static uint32_t compare_ids(struct exec *x, const struct tok *tok, const struct sync_ids *ids,
                            struct sync *s)
{
    const int32_t *known = kv_tokens(x->kv, s->seq);
    uint32_t len = s->len,
             same = ids->append ? 0 : count_agreeing(known, ids->id, MIN(len, ids->n));
    uint32_t offset = ids->append ? len : ids->n ? crop_offset(x, s, ids, same) : 0;
    s->report->offset = offset;
    s->report->divergence = -1;
    if (offset) {
        same = len - offset;
    } else if (same < MIN(len, ids->n)) {
        s->report->divergence = same;
        if (tok) {
            s->report->cached = excerpt(tok, known, len, same);
            s->report->given = excerpt(tok, ids->id, ids->n, same);
        }
    }
    return ids->whole ? same : MIN(same, ids->n - 1);
}

void sync_match(struct sync *s, uint32_t n, uint32_t have)
{
    s->have = s->kept = have;
    s->report->reused = have;
    s->report->computed = n - have;
}

/* Gives an empty sequence the longest prefix of the ids that another sequence has cached. */
static int begin_with(struct exec *x, struct sync *s, const struct sync_ids *ids)
{
    if (s->len || ids->append) return 0;
    uint32_t have;
    TRY(exec_match(x, s->seq, ids->id, ids->n, ids->pad, &have));
    sync_match(s, ids->n, have);
    return 0;
}

int sync_begin(struct exec *x, const struct tok *tok, kv_seq seq, const struct sync_ids *ids,
               struct sync *out)
{
    struct sync s = {.seq = seq, .len = kv_len(x->kv, seq)};
    uint32_t have;
    if (!kv_tokens(x->kv, seq)) return ERR(STALE, "the sequence was dropped");
    if (!(s.report = mem_alloc(sizeof *s.report))) return ERR_NOMEM;
    s.report->size = sizeof *s.report;
    uint32_t same = compare_ids(x, tok, ids, &s);
    int e = kv_mark(x->kv, seq, &s.mark);
    if (e >= 0) e = choose_kept(x, &s, ids, same, &have);
    uint64_t until = (uint64_t)s.report->offset + ids->n + ids->more;
    if (e >= 0)
        e = keep_rows(x, &s, (uint32_t)s.report->offset + same, &have,
                      (uint32_t)MIN(until, (uint64_t)x->max_len));
    if (e >= 0) count_tokens(&s, ids->n, same, have);
    if (e >= 0) e = begin_with(x, &s, ids);
    if (e < 0) {
        kv_rollback(x->kv, &s.mark);
        drop_sync(&s);
        return e;
    }
    s.have = s.kept - (uint32_t)s.report->offset;
    *out = s;
    return 0;
}

void sync_end(struct exec *x, struct sync *s, bool failed)
{
    kv_settle(x->kv, &s->mark, failed);
    drop_sync(s);
}

void sync_report_done(kvik_sync *r)
{
    mem_free(r->cached);
    mem_free(r->given);
    mem_free(r->reason);
    *r = (kvik_sync){0};
}

void sync_report_free(kvik_sync *r)
{
    if (r) sync_report_done(r);
    mem_free(r);
}

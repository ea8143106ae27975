/* conversation.c - makes a sequence hold a conversation (kvik_cache_sync). */
#include "generate/handle.h"
#include "generate/sync.h"

#include <string.h>

/* Moves the report to the caller, as many fields as the caller's struct has.  The others stay with `report` and
 * are freed. */
static void report_out(kvik_sync *report, kvik_sync *out)
{
    size_t taken = MIN(out->size, sizeof *report);
    (void)SIZED_OUT(out, report, kvik_sync);
    memset((char *)report + sizeof report->size, 0, taken - sizeof report->size);
}

KVIK_API int kvik_cache_sync(kvik_cache *c, kvik_seq s, const int32_t *ids, size_t n, float *logits,
                             kvik_sync *report)
{
    struct sync y;
    USE_CACHE(c);
    TRY(cache_free(c, &s, 1));
    struct exec *x = c->x;
    if (report) TRY(SIZED_CHECK(report, kvik_sync));
    if ((n && !ids) || (!n && logits)) return ERR(ARG, "a conversation needs tokens");
    if (n > x->max_len)
        return ERR(
            LIMIT,
            "the conversation has %zu tokens, max_cache_len is %u; give fewer, or open the cache with more",
            n, x->max_len);
    struct sync_ids in = {.id = ids, .n = (uint32_t)n, .whole = !logits};
    const struct tok *tok = c->model->tok ? c->model->tok->tok : NULL;
    TRY(cache_full(c, sync_begin(x, tok, s, &in, &y)));
    struct exec_feed feed = {
        .seq = s, .tok = n ? ids + y.have : NULL, .n = in.n - y.have, .loose = true};
    int e = feed.n ? exec_feed(x, &feed, 1, 0, logits, NULL, NULL) : 0;
    if (e >= 0 && report) report_out(y.report, report);
    e = cache_full(c, e);
    sync_end(x, &y, e < 0);
    return e;
}

KVIK_API void kvik_sync_done(kvik_sync *report)
{
    kvik_sync full = {0};
    if (!report || !report->size || SIZED_IN(&full, report, kvik_sync) < 0) return;
    sync_report_done(&full);
    (void)SIZED_OUT(report, &full, kvik_sync);
}

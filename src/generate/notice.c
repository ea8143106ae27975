/* notice.c - the notice that the budget has been reached and pages stream from now on, with the same tokens.  A cache that
 * was opened as offloaded streams from the start and causes no notice. */
#include "generate/notice.h"
#include "base/bytes.h"
#include "model/model.h"

#include <stdio.h>

bool gen_notice_full(const struct exec *x, const kvik_hooks *hooks, bool *told)
{
    struct kv_usage u;
    char line[128], size[16];
    if (*told || x->streaming != KV_STREAM_ON_FULL || !kv_streams(x->kv)) return false;
    kv_usage(x->kv, &u);
    *told = true;
    snprintf(line, sizeof line,
             "cache memory %s full at token %u; continuing with cache_implementation='offloaded'",
             bytes_text(u.pool, size), u.streaming_since);
    if (hooks && hooks->on_notice) hooks->on_notice(hooks->ctx, line);
    return true;
}

/* notice.c - the notices of a run.  The first: the budget is full, and pages are streamed from now on, with the
 * same tokens.  A cache that was opened as offloaded streams from the start and causes no notice.  The second:
 * logits are not finite, so a text ends. */
#include "generate/notice.h"
#include "base/bytes.h"
#include "generate/cache_usage.h"
#include "model/model.h"
#include "model/preset.h"

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

void gen_notice_encoded(const struct exec *x, const kvik_hooks *hooks, uint32_t *told)
{
    struct kv_usage u;
    char line[256], size[16];
    if (kv_rung(x->kv) <= *told) return;
    kv_usage(x->kv, &u);
    *told = u.rung;
    snprintf(
        line, sizeof line,
        "cache memory %s full at token %u; %llu rows are encoded with %u bits now, and later ones too "
        "(on_full=encode): expect a mean KLD of %g",
        bytes_text(u.pool, size), u.rung_since, (unsigned long long)u.encoded[u.rung - 1],
        (unsigned)preset_rung_bits[u.rung - 1], usage_kld(u.rung));
    if (hooks && hooks->on_notice) hooks->on_notice(hooks->ctx, line);
}

void gen_notice_broken(const kvik_hooks *hooks, uint32_t row, uint32_t tokens, bool *told)
{
    char line[256];
    if (*told || !hooks || !hooks->on_notice) return;
    *told = true;
    snprintf(
        line, sizeof line,
        "row %u ends after %u new token%s: the model's logits are not finite (NaN or infinity). Its "
        "weights are damaged, or its numbers overflow; compute \"exact\" (--compute exact) has the widest range",
        row, tokens, tokens == 1 ? "" : "s");
    hooks->on_notice(hooks->ctx, line);
}

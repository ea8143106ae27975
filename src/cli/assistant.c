/* assistant.c - opens a second model that drafts tokens for the engine's model (speculative decoding).  Its cache
 * is always dynamic: a strategy would change no token of the text, only how many drafts are accepted. */
#include "cli/cli.h"

int engine_assist(struct engine *s, const char *path, uint32_t sequences, uint64_t need)
{
    int e = offer_pull(path, &s->common);
    if (e >= 0)
        e = engine_model("loading the assistant", path, NULL, s->common.device, &s->assistant);
    if (e < 0) return say_error(e);
    uint32_t context = kvik_model_context(s->assistant);
    kvik_cache_config c = {
        .size = sizeof c,
        .max_cache_len = (uint32_t)MIN(need, context),
        .max_sequences = sequences * engine_width(s),
        .threads = s->common.threads,
        .compute = s->common.compute,
        .isa = s->common.isa,
    };
    e = kvik_cache_open(s->assistant, &c, &s->assistant_cache);
    return e < 0 ? say_error(e) : 0;
}

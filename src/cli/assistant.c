/* assistant.c - a second model beside a session's own, which guesses ahead (speculative decoding).  It gets a plain cache:
 * how it remembers changes no token, only how often it is right. */
#include "cli/cli.h"

struct load {
    struct session *s;
    const char *path;
    int e;
};

static void load(void *ctx)
{
    struct load *l = ctx;
    l->e = kvik_model_open(l->path, &l->s->assistant);
}

int session_assist(struct session *s, const char *path, uint32_t sequences, uint64_t need)
{
    char found[HUB_PATH];
    struct load l = {.s = s, .path = hub_find(path, found)};
    progress_during("loading the assistant", load, &l);
    if (l.e < 0) return say_error(l.e);
    uint32_t context = kvik_model_context(s->assistant);
    kvik_cache_config c = {
        .max_cache_len = (uint32_t)MIN(need, context),
        .max_sequences = sequences * session_width(s),
        .threads = s->common.threads,
        .compute = s->common.compute,
        .isa = s->common.isa,
    };
    int e = kvik_cache_open(s->assistant, &c, &s->assistant_cache);
    return e < 0 ? say_error(e) : 0;
}

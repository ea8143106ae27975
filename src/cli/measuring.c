/* measuring.c - what the commands that measure a model share: opening and closing the engine, opening a cache, and
 * the warning about a busy machine. */
#include "base/json.h"
#include "base/near.h"
#include "cli/bench.h"

#include <string.h>

const json_t *config_value(json_t *config, const char *name)
{
    const char *key;
    json_t *v;
    json_object_foreach(config, key, v) if (strlen(key) == strlen(name) &&
                                            near_distance(key, name) == 0 &&
                                            !json_is_null(v)) return v;
    return NULL;
}

kvik_cache_config cache_config(const struct common *o, const struct cache_options *c)
{
    json_t *config = NULL; /* text that is not JSON is refused later, when the cache is opened */
    if (c->config) (void)json_parse(c->config, strlen(c->config), "cache_config", &config);
    bool own = config_value(config, "max_cache_len") != NULL;
    json_decref(config);
    return (kvik_cache_config){.size = sizeof(kvik_cache_config),
                               .cache_implementation = c->implementation,
                               .cache_config = c->config,
                               .cache_memory = c->memory,
                               .max_sequences = c->sequences,
                               .max_cache_len = own ? 0 : c->tokens,
                               .threads = o->threads,
                               .compute = o->compute,
                               .isa = o->isa,
                               .on_full = o->on_full,
                               .spill_dir = o->spill_dir,
                               .no_prefix_cache = true,
                               .snapshots = KVIK_TURN_ENDS};
}

bool say_busy(double others)
{
    if (others <= BENCH_BUSY) return false;
    say_line("The machine was busy: other programs took %.0f %% of the processors. Speeds are "
             "those of a busy machine; end the other programs and measure again.",
             100 * others);
    return true;
}

/* Measures with an open engine. */
static int measure_engine(const struct command *self, const struct measuring *m, struct engine *s,
                          const char *word, const void *options)
{
    kvik_encoder encoder = {.size = sizeof encoder};
    if (kvik_model_encoder(s->model, &encoder) > 0)
        return say_failed("%s: kvik %s does not measure models with an encoder", word, self->name);
    struct measured *v = mem_alloc(m->bytes);
    if (!v) return say_error(ERR(NOMEM, "out of memory"));
    v->engine = s;
    bench_machine_name(s, word, &v->machine);
    int status = m->measure(v, options);
    m->close(v);
    mem_free(v);
    return status;
}

int measuring_run(const struct command *self, const struct measuring *m, int argc, char **argv,
                  void *options)
{
    struct args a;
    struct engine engine = {0};
    json_t *none = json_object();
    int status = args_parse(self, argc, argv, options, &a);
    if (status == 0 && a.n != 1)
        status = a.n ? say_usage("kvik %s takes one MODEL", self->name)
                     : say_usage("kvik %s needs a MODEL", self->name);
    if (status == 0) status = m->check(options);
    interrupt_catch();
    if (status == 0) status = engine_open(&engine, a.word[0], options, none, none);
    if (status == 0)
        status = engine_close(&engine, measure_engine(self, m, &engine, a.word[0], options));
    json_decref(none);
    args_done(&a);
    return MAX(status, 0);
}

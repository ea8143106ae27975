/* engine.c - opens the model and a cache of the right size, and settles the generation options.  Options come from the
 * model's generation_config.json, then from --generation-config, then from single options; later ones win. */
#include "base/file.h"
#include "base/near.h"
#include "cli/cli.h"
#include "kvik_shared.h"

#include <string.h>

/* Sets options from JSON.  If a key belongs to another program, the error names kvik's own key. */
static int set(kvik_generation *g, const char *text)
{
    int e = kvik_generation_set(g, text);
    json_t *o = NULL, *v;
    const char *key;
    if (e != ERR_ARG || json_parse(text, strlen(text), "options", &o) < 0) return e;
    json_object_foreach(o, key, v)
    {
        const char *instead = alias_find(NULL, key);
        if (instead) e = ERR(ARG, "unknown option %s; %s", key, instead);
    }
    json_decref(o);
    return e;
}

/* Checks the options of a file or of the command line without a model. */
static int check_config(const json_t *options, const char *what)
{
    kvik_generation g;
    char *text;
    if (!json_is_object(options)) return ERR(ARG, "%s: the options must be a JSON object", what);
    TRY(json_text(options, &text));
    int e = kvik_generation_init(&g, NULL);
    if (e >= 0 && (e = set(&g, text)) < 0) err_prefix(e, "%s", what);
    kvik_generation_done(&g);
    mem_free(text);
    return e;
}

int engine_config_file(const char *path, json_t **out)
{
    TRY(json_read(path, 16u << 20, out));
    int e = check_config(*out, path);
    if (e >= 0) return 0;
    json_decref(*out);
    *out = NULL;
    return e;
}

/* Reads --generation-config, a JSON object or the name of a file with one, and checks it. */
static int read_config_option(const char *config, json_t **out)
{
    static const char what[] = "--generation-config";
    if (config[strspn(config, " \t\r\n")] != '{') return engine_config_file(config, out);
    TRY(json_parse(config, strlen(config), what, out));
    return check_config(*out, what);
}

/* Copies options, with '_' in their names. */
static int merge(const json_t *from, json_t *to)
{
    json_t *v;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)from, key, v)
    {
        char name[64];
        snprintf(name, sizeof name, "%s", key);
        for (char *c = name; *c; c++)
            if (*c == '-') *c = '_';
        if (json_object_set(to, name, v) < 0) return ERR(NOMEM, "out of memory");
    }
    return 0;
}

/* Checks options without a model. */
static int check_options(const json_t *options)
{
    kvik_generation g;
    char *text;
    TRY(json_text(options, &text));
    int e = kvik_generation_init(&g, NULL);
    if (e >= 0) e = kvik_generation_set(&g, text);
    kvik_generation_done(&g);
    mem_free(text);
    return e;
}

int engine_options(const char *config, const json_t *options, json_t **out)
{
    json_t *from = NULL, *to = json_object();
    int e = to ? 0 : ERR(NOMEM, "out of memory");
    if (e >= 0 && config) e = read_config_option(config, &from);
    if (e >= 0) e = merge(from, to);
    if (e >= 0) e = merge(options, to);
    json_decref(from);
    if (e >= 0) e = check_options(to);
    if (e >= 0) {
        *out = to;
        return 0;
    }
    json_decref(to);
    say_error(e);
    return e == ERR_NOMEM || e == ERR_IO || e == ERR_NOTFOUND ? EXIT_FAILED : EXIT_USAGE;
}

struct model_load {
    kvik_model **out;
    const char *path, *quantize, *device;
    char *notice; /* owned */
    int e;
};

static void on_notice(void *ctx, const char *text)
{
    struct model_load *l = ctx;
    mem_free(l->notice);
    l->notice = mem_strdup(text);
}

static void load_model(void *ctx)
{
    struct model_load *l = ctx;
    const kvik_model_options o = {.size = sizeof o,
                                  .quantize = l->quantize,
                                  .on_notice = on_notice,
                                  .ctx = l,
                                  .device = l->device};
    l->e = kvik_model_open_with(l->path, &o, l->out);
}

int engine_model(const char *what, const char *path, const char *quantize, const char *device,
                 kvik_model **out)
{
    char found[HUB_PATH];
    struct model_load l = {.out = out, .path = found, .quantize = quantize, .device = device};
    TRY(model_locate(path, found));
    progress_during(what, load_model, &l);
    if (l.notice) say_line("%s", l.notice);
    mem_free(l.notice);
    return l.e;
}

struct verify {
    kvik_model *model;
    uint32_t threads;
    int e;
};

static void verify(void *ctx)
{
    struct verify *v = ctx;
    v->e = kvik_model_verify(v->model, v->threads);
}

int engine_verify(kvik_model *m, const struct common *common)
{
    struct verify v = {.model = m, .threads = common->threads};
    if (!common->verify) return 0;
    progress_during("hashing the weights", verify, &v);
    if (v.e >= 0 && common->verbose)
        say_line("all weights are hashed; %s", v.e ? "they are those that an earlier run has hashed"
                                                   : "no earlier digest is remembered");
    return v.e;
}

int engine_settle(struct engine *s, const json_t *options)
{
    kvik_generation g;
    char *text;
    TRY(json_text(options, &text));
    int e = kvik_generation_init(&g, s->model);
    if (e >= 0 && (e = kvik_generation_set(&g, text)) < 0) kvik_generation_done(&g);
    mem_free(text);
    if (e < 0) return e;
    if (s->has_g) kvik_generation_done(&s->g);
    s->g = g;
    s->has_g = true;
    return 0;
}

bool engine_hears(const kvik_model *m)
{
    kvik_encoder encoder = {.size = sizeof encoder};
    return kvik_model_encoder(m, &encoder) >= 0 && encoder.bins;
}

/* Refuses a model that reads recordings, before it is asked for a chat template. */
static int check_chats(const kvik_model *m, const char *path)
{
    kvik_encoder encoder = {.size = sizeof encoder};
    TRY(kvik_model_encoder(m, &encoder));
    if (!encoder.bins) return 0;
    return ERR(
        ARG,
        "%s hears recordings and holds no chat; write down what is said: kvik transcribe %s FILE",
        path, path);
}

int engine_open_model(struct engine *s, const char *path, const struct common *common)
{
    char what[128];
    const char *name = strrchr(path, '/');
    double begun = now_seconds();
    *s = (struct engine){.common = *common};
    snprintf(what, sizeof what, "loading %.80s", name && name[1] ? name + 1 : path);
    int e = common->trace ? file_writable(common->trace) : 0;
    if (e >= 0 && common->trace) e = kvik_trace_begin();
    s->traces = e >= 0 && common->trace;
    if (e >= 0) e = offer_pull(path, common);
    if (e == ERR_CANCELLED && interrupt_seen()) {
        say_error(e);
        return engine_close(s, EXIT_INTERRUPTED);
    }
    if (e >= 0) e = engine_model(what, path, common->quantize, common->device, &s->model);
    if (e >= 0) e = engine_verify(s->model, common);
    bool chats = e >= 0 && common->chats && !(common->hears && engine_hears(s->model));
    if (chats) e = check_chats(s->model, path);
    if (e >= 0 && chats) e = template_open(s->model, path, common->template);
    if (e < 0) return engine_close(s, say_error(e));
    s->load_seconds = now_seconds() - begun;
    if (common->verbose)
        say_line("%s: vocabulary %u, context %u, loaded in %.2f s", path,
                 kvik_model_vocab(s->model), kvik_model_context(s->model), s->load_seconds);
    return 0;
}

int engine_open(struct engine *s, const char *path, const struct common *common,
                const json_t *given, const json_t *options)
{
    int status = engine_open_model(s, path, common);
    if (status) return status;
    int e = engine_settle(s, given);
    if (e < 0) return engine_close(s, say_error(e));
    advice_tell(&s->g, options, ADVICE_COMMAND);
    return 0;
}

int64_t engine_configured(const kvik_generation *g, const char *name)
{
    json_t *o = NULL, *v;
    const char *key;
    int64_t value = -1;
    if (!g->cache_config ||
        json_parse(g->cache_config, strlen(g->cache_config), "cache_config", &o) < 0)
        return -1;
    json_object_foreach(o, key, v)
    {
        if (near_distance(key, name) == 0) value = MAX(json_integer_value(v), 0);
    }
    json_decref(o);
    return value;
}

uint32_t engine_context(const struct engine *s)
{
    enum { ENDLESS = 1 << 24 };
    uint32_t context = kvik_model_context(s->model);
    return engine_configured(&s->g, "window_length") >= 0 ? MAX(context, ENDLESS) : context;
}

/* Every beam, further answer, candidate of contrastive search and negative text needs a sequence of its own. */
uint32_t engine_width(const struct engine *s)
{
    const kvik_generation *g = &s->g;
    uint64_t rows = g->num_beams > 1 ? g->num_beams : g->num_return_sequences, width = rows;
    if (g->num_beams <= 1 && !g->do_sample && g->penalty_alpha > 0)
        width = MAX(rows, MIN(g->top_k, kvik_model_vocab(s->model)));
    if (g->guidance_scale != 1) width += rows;
    return (uint32_t)MIN(MAX(width, 1), UINT32_MAX);
}

int engine_cache(struct engine *s, uint32_t sequences, uint64_t need)
{
    uint32_t width = engine_width(s);
    if (sequences > UINT32_MAX / width)
        return say_error(ERR(
            LIMIT,
            "%u prompts with %u sequences each are too many for one cache; give fewer prompts or beams",
            sequences, width));
    kvik_cache_config c = {
        .size = sizeof c,
        .options = &s->g,
        .cache_memory = s->common.cache_memory,
        .max_sequences = sequences * width,
        .threads = s->common.threads,
        .compute = s->common.compute,
        .isa = s->common.isa,
        .on_full = s->common.on_full,
        .spill_dir = s->common.spill_dir,
        .on_notice = say_notice,
    };
    uint32_t context = engine_context(s);
    /* In cache_config max_cache_len is a hard limit.  As an option of its own it is raised to what the text needs. */
    if (engine_configured(&s->g, "max_cache_len") < 0)
        c.max_cache_len = MAX((uint32_t)MIN(need, context), s->g.max_cache_len);
    int e = kvik_cache_open(s->model, &c, &s->cache);
    for (; e < 0 && s->fewer && sequences > 2; e = kvik_cache_open(s->model, &c, &s->cache)) {
        sequences /= 2; /* the limit is too small for so many sequences */
        c.max_sequences = sequences * width;
    }
    s->sequences = c.max_sequences;
    return e < 0 ? say_error(e) : 0;
}

int engine_prefix(const struct engine *s, const char *dir)
{
    int e = dir ? kvik_prefix_check(s->cache, dir) : 1;
    if (e < 0) return err_prefix(e, "--prefix-cache"), say_error(e);
    if (!e)
        say_line(
            "--prefix-cache has no effect with this cache: its rows depend on the turns in which the "
            "text was computed, as with quanto and hqq");
    else if (dir && s->has_g && !s->g.use_cache)
        say_line("--prefix-cache has no effect without a cache (--use-cache false)");
    return 0;
}

int engine_close(struct engine *s, int status)
{
    if (s->has_g) kvik_generation_done(&s->g);
    engine_unshare(s);
    kvik_cache_close(s->assistant_cache);
    kvik_model_close(s->assistant);
    kvik_cache_close(s->cache);
    kvik_model_close(s->model);
    int e = s->traces ? kvik_trace_end(s->common.trace) : 0, lost = e < 0 ? say_error(e) : 0;
    *s = (struct engine){0};
    return MAX(status, lost);
}

/* generation.c - the public calls of generation: options, prompts, results, and texts while they are generated. */
#include "compat/padded.h"
#include "generate/generate.h"
#include "generate/prompts.h"

#include <string.h>

/* Adds the token that ends a turn of the model's template. */
static int add_turn_end(kvik_generation *g, int32_t id)
{
    JSON_SCOPE(scope);
    json_t *list = json_array(), *o = json_pack("{s:o}", "eos_token_id", list);
    for (uint32_t i = 0; i < g->n_eos; i++) {
        if (g->eos_token_id[i] == id) id = -1;
        json_array_append_new(list, json_integer(g->eos_token_id[i]));
    }
    if (id >= 0) json_array_append_new(list, json_integer(id));
    int e = o ? json_whole(&scope) : ERR(NOMEM, "out of memory");
    if (e >= 0) e = gen_apply(g, o, "the end of a turn", true);
    json_decref(o);
    return e;
}

KVIK_API int kvik_generation_init_sized(kvik_generation *g, size_t size, const kvik_model *m)
{
    kvik_generation fresh;
    if (m) TRY(model_check(m));
    if (!g) return ERR(ARG, "kvik_generation_init: NULL argument");
    TRY(SIZED_CHECK(&size, kvik_generation));
    gen_defaults(&fresh);
    fresh.size = MIN(size, sizeof fresh);
    if (m) {
        const json_t *o = checkpoint_generation_config(m->m->ck);
        const struct tok *t = m->tok ? m->tok->tok : NULL;
        int e = o ? gen_apply(&fresh, o, "generation_config.json", false) : 0;
        if (e < 0) {
            gen_done(&fresh);
            return e;
        }
        int32_t eos = t ? tok_special_id(t, "eos_token") : -1,
                pad = t ? tok_special_id(t, "pad_token") : -1;
        if (fresh.n_eos == 0 && !o && eos >= 0) fresh.eos_token_id[fresh.n_eos++] = eos;
        if (fresh.pad_token_id < 0 && !o) fresh.pad_token_id = pad;
        if (m->turn_end >= 0 && (e = add_turn_end(&fresh, m->turn_end)) < 0) {
            gen_done(&fresh);
            return e;
        }
    }
    g->size = size;
    return SIZED_OUT(g, &fresh, kvik_generation);
}

KVIK_API int kvik_generation_set(kvik_generation *g, const char *json)
{
    kvik_generation full;
    json_t *o;
    if (!g || !json) return ERR(ARG, "kvik_generation_set: NULL argument");
    TRY(generation_in(g, &full));
    /* an option for which the caller's struct has no field is refused by name */
    full.size = MIN(g->size, sizeof full);
    TRY(json_parse(json, strlen(json), "generation options", &o));
    int e = gen_apply(&full, o, "generation options", true);
    json_decref(o);
    return e < 0 ? e : SIZED_OUT(g, &full, kvik_generation);
}

KVIK_API int kvik_generation_number(const kvik_generation *g, const char *name, double *value)
{
    kvik_generation full;
    if (!g || !name || !value) return ERR(ARG, "kvik_generation_number: NULL argument");
    TRY(generation_in(g, &full));
    return gen_number(&full, name, value);
}

KVIK_API void kvik_generation_done(kvik_generation *g)
{
    kvik_generation full;
    if (!g || !g->size || generation_in(g, &full) < 0) return;
    gen_done(&full);
    (void)SIZED_OUT(g, &full, kvik_generation);
}

KVIK_API const char *kvik_finish_name(enum kvik_finish f)
{
    static const char *const names[] = {"length",    "eos",           "stop",
                                        "cancelled", "criteria",      "time",
                                        "context",   "max_cache_len", "not_finite"};
    return (unsigned)f < countof(names) ? names[f] : "?";
}

KVIK_API int kvik_generate(kvik_cache *c, const kvik_generation *g, const kvik_prompt *prompt,
                           uint32_t n, const kvik_hooks *hooks, kvik_result **out)
{
    kvik_generation full;
    kvik_hooks room;
    USE_CACHE(c);
    if (!g || !out || (n && !prompt))
        return ERR(
            ARG,
            "options, prompts and a pointer for the result are needed, and one of them is NULL");
    TRY(generation_in(g, &full));
    TRY(hooks_in(hooks, &room, &hooks));
    struct prompts p;
    int e = prompts_begin(&p, c, prompt, n, false);
    if (e >= 0) e = legacy_generate(c, &full, p.p, n, hooks, out);
    prompts_end(&p);
    return e;
}

/* Makes the prompt of one text.  For a model with an encoder the text is the encoder's input. */
static kvik_prompt text_prompt(const kvik_cache *c, const char *text, const kvik_source *source)
{
    bool hears = c->x->encode != NULL;
    return (kvik_prompt){
        .size = sizeof(kvik_prompt), .text = hears ? NULL : text, .source = hears ? source : NULL};
}

KVIK_API int kvik_generate_text(kvik_cache *c, const kvik_generation *g, const char *text,
                                kvik_result **out)
{
    if (!c || !text) return ERR(ARG, "kvik_generate_text: the cache or the text is NULL");
    USE_CACHE(c);
    const kvik_source source = {.size = sizeof source, .text = text};
    const kvik_prompt p = text_prompt(c, text, &source);
    return kvik_generate(c, g, &p, 1, NULL, out);
}

/* The receiver of the text of kvik_generate_stream. */
struct receiver {
    kvik_on_text on_text;
    void *ctx;
};

static bool receive(void *ctx, uint32_t row, int32_t id, const char *text)
{
    const struct receiver *to = ctx;
    (void)row, (void)id;
    return !*text || to->on_text(to->ctx, text);
}

static int stream(kvik_cache *c, const kvik_generation *g, const char *text,
                  const struct receiver *to, kvik_result **out)
{
    const kvik_source source = {.size = sizeof source, .text = text};
    const kvik_prompt p = text_prompt(c, text, &source);
    kvik_hooks hooks = {.size = sizeof hooks, .ctx = (void *)(uintptr_t)to};
    /* the best beam is not known before the end */
    hooks.on_token = g->num_beams > 1 ? NULL : receive;
    TRY(kvik_generate(c, g, &p, 1, &hooks, out));
    const char *best = (*out)->row[0]->text;
    if (g->num_beams > 1 && best && *best && !to->on_text(to->ctx, best))
        (*out)->row[0]->finish = KVIK_FINISH_CANCELLED;
    return 0;
}

KVIK_API int kvik_generate_stream(kvik_cache *c, const kvik_generation *g, const char *text,
                                  kvik_on_text on_text, void *ctx, kvik_result **out)
{
    kvik_generation full;
    kvik_result *r;
    struct receiver to = {on_text, ctx};
    if (!c || !g || !text || !on_text)
        return ERR(ARG, "a cache, options, a text and a function for the new text are needed");
    USE_CACHE(c);
    TRY(generation_in(g, &full));
    if (full.num_beams < 2 && full.num_return_sequences > 1)
        return ERR(ARG,
                   "num_return_sequences is %u, and kvik_generate_stream gives one text; use "
                   "kvik_generate with on_token, which tells the rows apart",
                   full.num_return_sequences);
    TRY(stream(c, &full, text, &to, &r));
    if (out)
        *out = r;
    else
        kvik_result_free(r);
    return 0;
}

KVIK_API void kvik_result_free(kvik_result *r)
{
    if (r) kvik_legacy_free(r->past_key_values);
    gen_result_free(r);
}

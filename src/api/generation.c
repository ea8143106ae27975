/* generation.c - the public calls of generation: options, prompts, results. */
#include "compat/padded.h"
#include "generate/generate.h"

#include <string.h>

KVIK_API int kvik_generation_init_sized(kvik_generation *g, size_t size, const kvik_model *m)
{
    kvik_generation fresh;
    if (!g) return ERR(ARG, "kvik_generation_init: NULL argument");
    TRY(sized_check(&size, "kvik_generation"));
    if (size < GEN_SIZE_LEAST)
        return ERR(ARG, "kvik_generation_init_sized: no kvik_generation has %zu bytes", size);
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
    full.size = MIN(g->size, sizeof full); /* options beyond are refused by name */
    TRY(json_parse(json, strlen(json), "generation options", &o));
    int e = gen_apply(&full, o, "generation options", true);
    json_decref(o);
    return e < 0 ? e : SIZED_OUT(g, &full, kvik_generation);
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
    static const char *const names[] = {"length",   "eos",  "stop",    "cancelled",
                                        "criteria", "time", "context", "max_cache_len"};
    return (unsigned)f < countof(names) ? names[f] : "?";
}

KVIK_API int kvik_generate(kvik_cache *c, const kvik_generation *g, const kvik_prompt *prompt,
                           uint32_t n, const kvik_hooks *hooks, kvik_result **out)
{
    kvik_generation full;
    kvik_hooks room;
    if (!c || !g || !prompt || !out)
        return ERR(ARG, "a cache, a configuration and prompts are needed");
    TRY(cache_bound(c));
    TRY(generation_in(g, &full));
    TRY(hooks_in(hooks, &room, &hooks));
    kvik_prompt *p = mem_array(MAX(n, 1), sizeof *p);
    if (!p) return ERR_NOMEM;
    int e = 0;
    for (uint32_t i = 0; e >= 0 && i < n; i++)
        e = SIZED_NTH(&p[i], prompt, i, kvik_prompt);
    if (e >= 0) e = legacy_generate(c, &full, p, n, hooks, out);
    mem_free(p);
    return e;
}

KVIK_API int kvik_generate_text(kvik_cache *c, const kvik_generation *g, const char *text,
                                kvik_result **out)
{
    struct ids ids = {0};
    if (!c || !text) return ERR(ARG, "a cache and a text are needed");
    TRY(cache_bound(c));
    if (!c->model->tok) return ERR(ARG, "the model has no tokenizer; give token ids");
    int e = tok_encode(c->model->tok->tok, text, strlen(text), TOK_SPECIAL, NULL, 0, &ids);
    kvik_prompt p = {.size = sizeof p, .ids = ids.id, .n = ids.n};
    if (e >= 0) e = kvik_generate(c, g, &p, 1, NULL, out);
    ids_done(&ids);
    return e;
}

KVIK_API void kvik_result_free(kvik_result *r)
{
    if (r) kvik_legacy_free(r->past_key_values);
    gen_result_free(r);
}

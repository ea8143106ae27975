/* generation.c - generate: the model's defaults, text in, rows out. */
#include "api/api.h"
#include "api/padded.h"
#include "generate/generate.h"
#include "generate/loop.h"

#include <string.h>

KVIK_API int kvik_generation_init(kvik_generation *g, const kvik_model *m)
{
    kvik_generation fresh;
    gen_defaults(&fresh);
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
    *g = fresh;
    return 0;
}

KVIK_API const char *kvik_finish_name(enum kvik_finish f)
{
    static const char *const names[] = {"length", "eos", "stop", "cancelled", "criteria", "time"};
    return (unsigned)f < countof(names) ? names[f] : "?";
}

struct legacy_call {
    kvik_cache *c;
    const kvik_prompt *prompt;
    uint32_t n;
};

static int legacy_result(void *ctx, kvik_result *r)
{
    const struct legacy_call *l = ctx;
    return legacy_rows(l->c, l->prompt, l->n, r);
}

/* Sequences that were needed for the rows' arrays alone. */
static void legacy_end(const struct legacy_call *l, kvik_result *r)
{
    uint32_t per = r->n_rows / l->n;
    for (uint32_t i = 0; i < r->n_rows; i++) {
        if (i % per)
            kv_drop(l->c->x->kv, r->row[i].seq);
        else if (!l->prompt[i / per].seq)
            kv_keep(l->c->x->kv, r->row[i].seq); /* for the next call, as run_end does */
        r->row[i].seq = 0;
    }
}

KVIK_API int kvik_generate(kvik_cache *c, const kvik_generation *g, const kvik_prompt *prompt,
                           uint32_t n, const kvik_hooks *hooks, kvik_result **out)
{
    if (!c || !g || !prompt || !out)
        return ERR(ARG, "a cache, a configuration and prompts are needed");
    TRY(cache_bound(c));
    kvik_result *r;
    const struct tok *tok = c->model->tok ? c->model->tok->tok : NULL;
    struct gen_assist assist = {0};
    if (hooks && hooks->assistant_model) {
        TRY(cache_bound(hooks->assistant_model));
        assist.assistant = &hooks->assistant_model->assistant;
        assist.assistant->x = hooks->assistant_model->x;
    }
    struct legacy_call legacy = {c, prompt, n};
    const struct gen_finish finish = {legacy_result, &legacy};
    kvik_generation run = *g; /* borrows */
    run.return_dict_in_generate |= g->return_legacy_cache;
    TRY(legacy_rows_check(c, g));
    TRY(cache_full(c, gen_run_with(c->x, tok, &run, prompt, n, hooks,
                                   assist.assistant ? &assist : NULL,
                                   g->return_legacy_cache ? &finish : NULL, &r)));
    if (g->return_legacy_cache && !g->return_dict_in_generate) legacy_end(&legacy, r);
    c->reused = 0;
    for (uint32_t i = 0; i < r->n_rows; i++)
        c->reused += r->row[i].reused;
    *out = r;
    return 0;
}

KVIK_API int kvik_generate_text(kvik_cache *c, const kvik_generation *g, const char *text,
                                kvik_result **out)
{
    struct ids ids = {0};
    if (!c || !text) return ERR(ARG, "a cache and a text are needed");
    TRY(cache_bound(c));
    if (!c->model->tok) return ERR(ARG, "the model has no tokenizer; give token ids");
    int e = tok_encode(c->model->tok->tok, text, strlen(text), TOK_SPECIAL, NULL, 0, &ids);
    kvik_prompt p = {.ids = ids.id, .n = ids.n};
    if (e >= 0) e = kvik_generate(c, g, &p, 1, NULL, out);
    ids_done(&ids);
    return e;
}

KVIK_API void kvik_result_free(kvik_result *r)
{
    if (r) kvik_legacy_free(r->past_key_values);
    gen_result_free(r);
}

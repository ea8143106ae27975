/* model.c - opening and describing models. */
#include "base/digest.h"
#include "generate/handle.h"

#include <string.h>

KVIK_API const char *kvik_version(void)
{
    return KVIK_VERSION;
}

KVIK_API const char *kvik_last_error(void)
{
    return err_last();
}

KVIK_API const char *kvik_error_name(int code)
{
    return err_name(code);
}

KVIK_API void kvik_free(void *p)
{
    mem_free(p);
}

static int open_tokenizer(kvik_model *k, const char *path)
{
    struct tok *tok = NULL;
    if (model_is_gguf(k->m)) {
        if (!gguf_get(checkpoint_gguf(k->m->ck), "tokenizer.ggml.model")) return 0;
        TRY(tok_open_gguf(checkpoint_gguf(k->m->ck), &tok));
    } else {
        int e = tok_open_dir(path, &tok);
        if (e == ERR_NOTFOUND) return 0; /* a model without a tokenizer works with ids */
        if (e < 0) return e;
    }
    k->tok = mem_alloc(sizeof *k->tok);
    if (!k->tok) {
        tok_close(tok);
        return ERR_NOMEM;
    }
    k->tok->tok = tok;
    refs_init(&k->tok->refs);
    return 0;
}

static int quantize_of(const kvik_model_options *o, struct quantize *out)
{
    static const enum dtype known[] = {DT_Q8_0, DT_Q4_0, DT_Q4_K};
    *out = (struct quantize){.to = DT_F32, .on_notice = o->on_notice, .ctx = o->ctx};
    for (size_t i = 0; o->quantize && i < countof(known); i++)
        if (strcmp(o->quantize, dtype_name(known[i])) == 0) out->to = known[i];
    return o->quantize && out->to == DT_F32
               ? ERR(ARG, "quantize is \"%.40s\"; it can be q8_0, q4_0 or q4_k", o->quantize)
               : 0;
}

KVIK_API int kvik_model_open(const char *path, kvik_model **out)
{
    return kvik_model_open_with(path, NULL, out);
}

KVIK_API int kvik_model_open_with(const char *path, const kvik_model_options *options,
                                  kvik_model **out)
{
    kvik_model_options o = {.size = sizeof o};
    struct quantize q;
    if (!path || !out)
        return ERR(ARG,
                   "a model path and a pointer for the model are needed, and one of them is NULL");
    if (options) TRY(SIZED_IN(&o, options, kvik_model_options));
    TRY(quantize_of(&o, &q));
    kvik_model *k = mem_alloc(sizeof *k);
    if (!k) return ERR_NOMEM;
    refs_init(&k->refs);
    guard_init(&k->guard);
    k->turn_end = -1;
    int e = model_open_quantized(path, &q, o.device, &k->m);
    if (e >= 0) e = open_tokenizer(k, path);
    if (e < 0) {
        model_drop(k);
        return e;
    }
    *out = k;
    return 0;
}

KVIK_API int kvik_model_verify(kvik_model *k, uint32_t threads)
{
    TRY(model_check(k));
    return model_weights_again(k->m, threads);
}

void model_drop(kvik_model *k)
{
    if (!k || guard_foreign(&k->guard) || !refs_drop(&k->refs)) return;
    tokenizer_drop(k->tok);
    model_close(k->m);
    mem_free(k);
}

KVIK_API void kvik_model_close(kvik_model *k)
{
    if (k && !guard_foreign(&k->guard) && refs_close(&k->refs)) model_drop(k);
}

/* Returns the model for a call that reads its numbers or its tokenizer; NULL, with the error set, if it is NULL or closed.
 * These are read-only memory, which a forked process has as well, so no guard is taken. */
static const kvik_model *given(const kvik_model *k)
{
    int e = k ? refs_check(&k->refs, "model") : ERR(ARG, "the model is NULL");
    return e < 0 ? NULL : k;
}

KVIK_API uint32_t kvik_model_vocab(const kvik_model *k)
{
    return given(k) ? k->m->vocab : 0;
}

KVIK_API uint32_t kvik_model_context(const kvik_model *k)
{
    return given(k) ? k->m->context : 0;
}

KVIK_API uint32_t kvik_model_layers(const kvik_model *k)
{
    return given(k) ? k->m->n_layers : 0;
}

KVIK_API int kvik_model_embed(const kvik_model *k, const int32_t *ids, size_t n, float *out)
{
    TRY(model_check(k));
    if (n && (!ids || !out))
        return ERR(ARG, "embeddings need token ids and a place for the values");
    return model_embed(k->m, ids, n, out);
}

KVIK_API uint32_t kvik_model_hidden(const kvik_model *k)
{
    return given(k) ? k->m->hidden : 0;
}

KVIK_API uint32_t kvik_model_heads(const kvik_model *k)
{
    return given(k) ? k->m->n_heads : 0;
}

KVIK_API const kvik_tokenizer *kvik_model_tokenizer(const kvik_model *k)
{
    return given(k) ? k->tok : NULL;
}

KVIK_API int kvik_model_encoder(const kvik_model *m, kvik_encoder *out)
{
    TRY(model_check(m));
    if (!out) return ERR(ARG, "a kvik_encoder to fill is needed");
    const struct model_encoder *e = &m->m->encoder;
    const kvik_encoder full = {.layers = e->n_layers,
                               .rows = e->rows,
                               .bins = e->bins,
                               .stride = e->stride,
                               .whole = e->whole,
                               .decoder_start_token_id = e->n_layers ? e->start : -1};
    TRY(SIZED_OUT(out, &full, kvik_encoder));
    return e->n_layers > 0;
}

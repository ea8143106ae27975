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
    k->tok->refs = 1;
    return 0;
}

KVIK_API int kvik_model_open(const char *path, kvik_model **out)
{
    if (!path || !out) return ERR(ARG, "a model path is needed");
    kvik_model *k = mem_alloc(sizeof *k);
    if (!k) return ERR_NOMEM;
    k->refs = 1;
    k->turn_end = -1;
    int e = model_open(path, &k->m);
    if (e >= 0) e = open_tokenizer(k, path);
    if (e < 0) {
        kvik_model_close(k);
        return e;
    }
    *out = k;
    return 0;
}

KVIK_API int kvik_model_verify(kvik_model *k, uint32_t threads)
{
    uint8_t digest[DIGEST_BYTES];
    if (!k) return ERR(ARG, "a model is needed");
    return model_weights(k->m, threads, true, digest);
}

KVIK_API void kvik_model_close(kvik_model *k)
{
    if (!k || !refs_drop(&k->refs)) return;
    kvik_tokenizer_close(k->tok);
    model_close(k->m);
    mem_free(k);
}

KVIK_API uint32_t kvik_model_vocab(const kvik_model *k)
{
    return k->m->vocab;
}

KVIK_API uint32_t kvik_model_context(const kvik_model *k)
{
    return k->m->context;
}

KVIK_API uint32_t kvik_model_layers(const kvik_model *k)
{
    return k->m->n_layers;
}

KVIK_API uint32_t kvik_model_hidden(const kvik_model *k)
{
    return k->m->hidden;
}

KVIK_API uint32_t kvik_model_heads(const kvik_model *k)
{
    return k->m->n_heads;
}

KVIK_API const kvik_tokenizer *kvik_model_tokenizer(const kvik_model *k)
{
    return k->tok;
}

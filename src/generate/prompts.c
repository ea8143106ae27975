/* prompts.c - reads the prompts of a call: token ids, or texts that the model's tokenizer encodes. */
#include "generate/prompts.h"
#include "base/digest.h"

#include <string.h>

/* Checks a prompt that is a text: it may have no ids, because the text becomes them. */
static int check_text(const kvik_cache *c, uint32_t i, const char *more)
{
    if (more)
        return ERR(
            ARG,
            "prompt %u has a text as well as %s; give the text alone, or token ids and their "
            "mask",
            i, more);
    if (!c->model->tok)
        return ERR(ARG, "prompt %u is a text, but the model has no tokenizer; give token ids", i);
    return 0;
}

static int encode_prompt(const kvik_cache *c, const char *text, bool special, const int32_t **ids,
                         size_t *n)
{
    struct ids v = {0};
    int e =
        tok_encode(c->model->tok->tok, text, strlen(text), special ? TOK_SPECIAL : 0, NULL, 0, &v);
    if (e < 0) {
        ids_done(&v);
        return e;
    }
    *ids = v.id;
    *n = v.n;
    return 0;
}

/* Returns a copy of n elements.  NULL if `from` is NULL, or after an error, which *e keeps. */
static void *own_copy(const void *from, size_t n, size_t size, int *e)
{
    if (!from || *e < 0) return NULL;
    void *to = mem_array(MAX(n, 1), MAX(size, 1));
    if (!to) *e = ERR_NOMEM;
    if (to && n) memcpy(to, from, n * size);
    return to;
}

/* Replaces the arrays that p points to by copies, also after an error.  The run refuses lengths without a pointer. */
static int copy_prompt(const kvik_cache *c, kvik_prompt *p)
{
    size_t masked = p->embeds ? p->n_embeds : p->ids ? p->n : 0;
    int e = 0;
    p->attention_mask = own_copy(p->attention_mask, masked, sizeof *p->attention_mask, &e);
    p->ids = own_copy(p->ids, p->n, sizeof *p->ids, &e);
    p->embeds = own_copy(p->embeds, p->n_embeds, c->model->m->hidden * sizeof *p->embeds, &e);
    return e;
}

static int copy_source(const kvik_cache *c, kvik_source *p)
{
    size_t masked = p->ids ? p->n : 0;
    int e = 0;
    p->attention_mask = own_copy(p->attention_mask, masked, sizeof *p->attention_mask, &e);
    p->ids = own_copy(p->ids, p->n, sizeof *p->ids, &e);
    p->features =
        own_copy(p->features, p->n_frames, c->model->m->encoder.bins * sizeof *p->features, &e);
    return e;
}

int source_read(const kvik_cache *c, uint32_t i, const kvik_source *given, bool copy,
                kvik_source *out)
{
    kvik_source s = {0};
    TRY(SIZED_IN(&s, given, kvik_source));
    if (s.text)
        TRY(check_text(c, i,
                       s.ids || s.n       ? "ids"
                       : s.features       ? "features"
                       : s.attention_mask ? "an attention_mask"
                                          : NULL));
    int e = copy ? copy_source(c, &s) : 0;
    if (e >= 0 && s.text) e = encode_prompt(c, s.text, true, &s.ids, &s.n);
    *out = s; /* also an incomplete copy, which is freed with the rest */
    return e;
}

void source_done(const kvik_source *in, bool copied)
{
    if (in->text || copied) mem_free((void *)(uintptr_t)in->ids);
    if (!copied) return;
    mem_free((void *)(uintptr_t)in->attention_mask);
    mem_free((void *)(uintptr_t)in->features);
}

static int read_prompt(struct prompts *s, const kvik_cache *c, const kvik_prompt *given, uint32_t i)
{
    kvik_prompt p = {0};
    TRY(SIZED_NTH(&p, given, i, kvik_prompt));
    if (p.text)
        TRY(check_text(c, i,
                       p.ids || p.n       ? "ids"
                       : p.embeds         ? "embeddings"
                       : p.attention_mask ? "an attention_mask"
                                          : NULL));
    const kvik_source *source = p.source;
    if (source) p.source = &s->source[i];
    int e = s->copied ? copy_prompt(c, &p) : 0;
    if (e >= 0 && p.text) e = encode_prompt(c, p.text, !p.append && !c->x->encode, &p.ids, &p.n);
    s->p[s->n++] = p; /* also an incomplete copy, which is freed with the rest */
    if (e >= 0 && source) e = source_read(c, i, source, s->copied, &s->source[i]);
    return e;
}

void gen_owner(const char *cache_salt, uint8_t out[KV_DIGEST])
{
    memset(out, 0, KV_DIGEST);
    if (cache_salt && *cache_salt) digest_of(cache_salt, strlen(cache_salt), out);
}

int prompts_begin(struct prompts *s, const kvik_cache *c, const kvik_prompt *given, uint32_t n,
                  bool copy)
{
    *s = (struct prompts){.copied = copy};
    s->p = mem_array(MAX(n, 1), sizeof *s->p);
    s->source = mem_array(MAX(n, 1), sizeof *s->source);
    if (!s->p || !s->source) return ERR_NOMEM;
    for (uint32_t i = 0; i < n; i++)
        TRY(read_prompt(s, c, given, i));
    return 0;
}

void prompts_end(struct prompts *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const kvik_prompt *p = &s->p[i];
        source_done(&s->source[i], s->copied);
        if (p->text || s->copied) mem_free((void *)(uintptr_t)p->ids);
        if (!s->copied) continue;
        mem_free((void *)(uintptr_t)p->attention_mask);
        mem_free((void *)(uintptr_t)p->embeds);
    }
    mem_free(s->p);
    mem_free(s->source);
    *s = (struct prompts){0};
}

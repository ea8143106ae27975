/* prompts.c - reads the prompts of a call: token ids, or texts that the model's tokenizer encodes. */
#include "generate/prompts.h"

#include <string.h>

/* A text is given alone: it becomes the ids. */
static int check_text(const kvik_cache *c, uint32_t i, const kvik_prompt *p)
{
    const char *more = p->ids || p->n      ? "ids"
                       : p->embeds         ? "embeddings"
                       : p->attention_mask ? "an attention_mask"
                                           : NULL;
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

/* Sets the ids of a text. */
static int encode(const kvik_cache *c, kvik_prompt *p)
{
    struct ids v = {0};
    /* an encoder hears a whole text, whatever the decoder appends */
    unsigned flags = p->append && !c->x->encode ? 0 : TOK_SPECIAL;
    int e = tok_encode(c->model->tok->tok, p->text, strlen(p->text), flags, NULL, 0, &v);
    if (e < 0) {
        ids_done(&v);
        return e;
    }
    p->ids = v.id;
    p->n = v.n;
    return 0;
}

/* Returns a copy of n elements.  NULL if `from` is, and after an error, which *e keeps. */
static void *own(const void *from, size_t n, size_t size, int *e)
{
    if (!from || *e < 0) return NULL;
    void *to = mem_array(MAX(n, 1), MAX(size, 1));
    if (!to) *e = ERR_NOMEM;
    if (to && n) memcpy(to, from, n * size);
    return to;
}

/* Puts copies in place of what p points to, also after an error.  The run refuses lengths without a pointer. */
static int copy_prompt(const kvik_cache *c, kvik_prompt *p)
{
    const struct model *m = c->model->m;
    size_t masked = p->embeds ? p->n_embeds : p->ids ? p->n : 0;
    int e = 0;
    p->attention_mask = own(p->attention_mask, masked, sizeof *p->attention_mask, &e);
    p->ids = own(p->ids, p->n, sizeof *p->ids, &e);
    p->embeds = own(p->embeds, p->n_embeds, m->hidden * sizeof *p->embeds, &e);
    p->decoder_ids = own(p->decoder_ids, p->n_decoder, sizeof *p->decoder_ids, &e);
    p->features = own(p->features, p->n_frames, m->encoder.bins * sizeof *p->features, &e);
    return e;
}

int prompts_begin(struct prompts *s, const kvik_cache *c, const kvik_prompt *given, uint32_t n,
                  bool copy)
{
    *s = (struct prompts){.copied = copy};
    s->p = mem_array(MAX(n, 1), sizeof *s->p);
    if (!s->p) return ERR_NOMEM;
    for (uint32_t i = 0; i < n; i++) {
        kvik_prompt p = {0};
        TRY(SIZED_NTH(&p, given, i, kvik_prompt));
        if (p.text) TRY(check_text(c, i, &p));
        int e = copy ? copy_prompt(c, &p) : 0;
        if (e >= 0 && p.text) e = encode(c, &p);
        s->p[s->n++] = p; /* also half a copy, which is freed with the rest */
        if (e < 0) return e;
    }
    return 0;
}

void prompts_end(struct prompts *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const kvik_prompt *p = &s->p[i];
        if (p->text || s->copied) mem_free((void *)(uintptr_t)p->ids);
        if (!s->copied) continue;
        mem_free((void *)(uintptr_t)p->attention_mask);
        mem_free((void *)(uintptr_t)p->decoder_ids);
        mem_free((void *)(uintptr_t)p->features);
        mem_free((void *)(uintptr_t)p->embeds);
    }
    mem_free(s->p);
    *s = (struct prompts){0};
}

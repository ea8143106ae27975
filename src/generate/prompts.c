/* prompts.c - reads the prompts of a call: token ids, or texts that the model's tokenizer encodes. */
#include "generate/prompts.h"

#include <string.h>

/* Sets the ids of a text.  After an error p points to nothing of the program's. */
static int encode(const kvik_cache *c, uint32_t i, kvik_prompt *p)
{
    struct ids v = {0};
    bool ids = p->ids || p->n, mask = p->attention_mask != NULL, embeds = p->embeds != NULL;
    p->ids = NULL;
    p->attention_mask = NULL;
    p->embeds = NULL;
    if (ids || mask || embeds)
        return ERR(
            ARG,
            "prompt %u has a text as well as %s; give the text alone, or token ids and their "
            "mask",
            i,
            ids      ? "ids"
            : embeds ? "embeddings"
                     : "an attention_mask");
    if (!c->model->tok)
        return ERR(ARG, "prompt %u is a text, but the model has no tokenizer; give token ids", i);
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

static size_t features_of(const kvik_cache *c, const kvik_prompt *p)
{
    return p->n_frames * c->model->m->encoder.bins;
}

/* Copies the embeddings of a prompt and their mask.  After an error p points to nothing of the program's. */
static int copy_embeds(const kvik_cache *c, kvik_prompt *p)
{
    const float *embeds = p->embeds;
    const uint8_t *mask = p->attention_mask;
    size_t n;
    p->embeds = NULL;
    p->attention_mask = NULL;
    if (!ck_mul(p->n_embeds, c->model->m->hidden, &n)) return ERR(NOMEM, "too many embeddings");
    float *own = mem_array(MAX(n, 1), sizeof *own);
    if (!own) return ERR_NOMEM;
    if (n) memcpy(own, embeds, n * sizeof *own);
    p->embeds = own;
    if (!mask) return 0;
    uint8_t *own_mask = mem_array(MAX(p->n_embeds, 1), 1);
    if (!own_mask) return ERR_NOMEM;
    if (p->n_embeds) memcpy(own_mask, mask, p->n_embeds);
    p->attention_mask = own_mask;
    return 0;
}

/* Copies what the decoder and the features of an encoder's prompt are.  After an error p points to nothing of the
 * program's. */
static int copy_others(const kvik_cache *c, kvik_prompt *p)
{
    const int32_t *ids = p->decoder_ids;
    const float *features = p->features;
    size_t n = features_of(c, p);
    p->decoder_ids = NULL;
    p->features = NULL;
    if (ids) {
        int32_t *own = mem_array(MAX(p->n_decoder, 1), sizeof *own);
        if (!own) return ERR_NOMEM;
        if (p->n_decoder) memcpy(own, ids, p->n_decoder * sizeof *own);
        p->decoder_ids = own;
    }
    if (features) {
        float *own =
            mem_array(MAX(n, 1), sizeof *own); /* the run refuses frames without features */
        if (!own) return ERR_NOMEM;
        if (n) memcpy(own, features, n * sizeof *own);
        p->features = own;
    }
    return 0;
}

/* Copies what p points to.  The run refuses prompts without ids. */
static int copy_ids(kvik_prompt *p)
{
    const int32_t *ids = p->ids;
    const uint8_t *mask = p->embeds ? NULL : p->attention_mask; /* copy_embeds has copied theirs */
    p->ids = NULL;
    if (!p->embeds) p->attention_mask = NULL;
    if (!ids || !p->n) return 0;
    int32_t *own = mem_array(p->n, sizeof *own);
    if (!own) return ERR_NOMEM;
    p->ids = memcpy(own, ids, p->n * sizeof *own);
    if (!mask) return 0;
    uint8_t *own_mask = mem_array(p->n, 1);
    if (!own_mask) return ERR_NOMEM;
    p->attention_mask = memcpy(own_mask, mask, p->n);
    return 0;
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
        bool embeds = copy && p.embeds && !p.text;
        int e = copy ? copy_others(c, &p) : 0;
        int more = embeds ? copy_embeds(c, &p)
                          : 0; /* each leaves nothing of the program's, also after an error */
        int text = p.text ? encode(c, i, &p) : copy ? copy_ids(&p) : 0;
        e = e < 0 ? e : more < 0 ? more : text;
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

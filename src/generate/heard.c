/* heard.c - see heard.h. */
#include "generate/heard.h"

#include <string.h>

/* Points the input to the ids that the mask leaves.  Padding behind a text changes nothing; padding before it at
 * most changes its positions (BART).  A masked column between two tokens is refused: dropping it would bring the
 * tokens closer together than in Transformers. */
static int take_ids(const struct model *m, struct gen_source *s, const kvik_source *p, uint32_t i)
{
    uint32_t k = 0, first = 0;
    size_t hidden = 0; /* masked columns behind the last token so far */
    if (p->n > INT32_MAX)
        return ERR(LIMIT, "row %u: %zu tokens for the encoder, the limit is %d", i, p->n,
                   INT32_MAX);
    s->columns = p->ids;
    s->n_columns = p->n;
    s->in = (struct exec_source){.ids = p->ids, .n = (uint32_t)p->n};
    if (!p->attention_mask) return 0;
    s->kept = mem_array(p->n, sizeof *s->kept);
    if (!s->kept) return ERR_NOMEM;
    for (size_t c = 0; c < p->n; c++) {
        if (!p->attention_mask[c]) {
            hidden++;
            continue;
        }
        if (k && hidden)
            return ERR(UNSUPPORTED,
                       "row %u: the attention mask hides column %zu, which lies between tokens of "
                       "the encoder; only columns before and behind them can be hidden",
                       i, c - 1);
        if (!k) first = (uint32_t)hidden;
        s->kept[k++] = p->ids[c];
        hidden = 0;
    }
    if (!k) return ERR(ARG, "row %u: the attention mask hides every token", i);
    if (!m->encoder.counts_padding) first = 0;
    s->in = (struct exec_source){.ids = s->kept, .n = k, .first = first};
    return 0;
}

/* Finds the token that begins the decoder's text. */
static int start_of(const struct exec *x, const kvik_generation *g, int32_t *out)
{
    int32_t own = x->m->encoder.start;
    *out = g->decoder_start_token_id >= 0 ? g->decoder_start_token_id
           : own >= 0                     ? own
                                          : g->bos_token_id;
    if (*out >= 0) return 0;
    return ERR(ARG,
               "%s: neither decoder_start_token_id nor bos_token_id is set, so it is not known "
               "how the decoder's text begins",
               x->m->what);
}

/* Sets the decoder's tokens.  If the model reads text, its start token comes first.  If it reads features, the
 * prompt is complete. */
static int take_prompt_text(const struct exec *x, const kvik_generation *g, const kvik_prompt *p,
                            struct gen_source *s)
{
    int32_t start = -1;
    bool appends = p->ids && (p->append || (p->seq && kv_len(x->kv, p->seq)));
    s->text = (kvik_prompt){
        .size = sizeof s->text, .seq = p->seq, .append = p->append, .n_new = p->n_new};
    if (!p->ids || !x->m->encoder.bins) TRY(start_of(x, g, &start));
    bool before = !p->ids || (!appends && start >= 0 && p->n && p->ids[0] != start);
    size_t n = p->n + before;
    if (p->ids && !p->n)
        return ERR(ARG, "the prompt has no tokens; leave ids out to begin with the start token");
    s->ids = mem_array(n, sizeof *s->ids);
    if (!s->ids) return ERR_NOMEM;
    if (before) s->ids[0] = start;
    if (p->n) memcpy(s->ids + before, p->ids, p->n * sizeof *s->ids);
    s->text.ids = s->ids;
    s->text.n = n;
    return 0;
}

static int take_input(const struct exec *x, const kvik_source *in, uint32_t i, struct gen_source *s)
{
    bool ids = in->ids && in->n;
    if (in->n_frames && !in->features)
        return ERR(ARG, "row %u: n_frames is %zu and features is NULL", i, in->n_frames);
    if (in->n_frames > INT32_MAX)
        return ERR(LIMIT, "row %u: %zu frames for the encoder, the limit is %d", i, in->n_frames,
                   INT32_MAX);
    if (ids && in->features)
        return ERR(ARG, "row %u: the encoder takes token ids or features, and both are given", i);
    if (!ids && !in->features)
        return ERR(ARG, "row %u: the encoder has no input; give token ids%s", i,
                   x->m->encoder.bins ? " or features" : "");
    if (in->features)
        s->in = (struct exec_source){.features = in->features, .frames = (uint32_t)in->n_frames};
    else
        TRY(take_ids(x->m, s, in, i));
    s->given = true;
    int rows = exec_source_rows(x, &s->in);
    return MIN(rows, 0);
}

static int source_begin(const struct exec *x, const kvik_generation *g, const kvik_prompt *p,
                        uint32_t i, struct gen_source *s)
{
    if (p->n && !p->ids) return ERR(ARG, "row %u: n is %zu and ids is NULL", i, p->n);
    if (p->attention_mask)
        return ERR(ARG,
                   "row %u: tokens of a decoder cannot be masked; the mask of the encoder's input "
                   "is kvik_source.attention_mask",
                   i);
    if (p->source)
        TRY(take_input(x, p->source, i, s));
    else if (!p->seq || !kv_cross(x->kv, p->seq))
        return ERR(ARG, "row %u: the encoder has no input; give kvik_prompt.source", i);
    return take_prompt_text(x, g, p, s);
}

int source_alone(const struct exec *x, const kvik_source *in, struct gen_source **out)
{
    if (!x->encode) return ERR(ARG, "%s: %s has no encoder", x->m->what, x->m->arch_name);
    struct gen_source *s = mem_array(1, sizeof *s);
    if (!s) return ERR_NOMEM;
    int e = take_input(x, in, 0, s);
    if (e < 0)
        sources_end(s, 1);
    else
        *out = s;
    return e;
}

int sources_begin(const struct exec *x, const kvik_generation *g, const kvik_prompt *prompt,
                  uint32_t n, struct gen_source **out)
{
    *out = NULL;
    if (!x->encode) {
        for (uint32_t i = 0; i < n; i++)
            if (prompt[i].source)
                return ERR(ARG, "row %u: a source is for models with an encoder, and %s has none",
                           i, x->m->arch_name);
        return 0;
    }
    struct gen_source *s = mem_array(n, sizeof *s);
    if (!s) return ERR_NOMEM;
    int e = 0;
    for (uint32_t i = 0; e >= 0 && i < n; i++)
        e = source_begin(x, g, &prompt[i], i, &s[i]);
    if (e < 0) {
        sources_end(s, n);
        return e;
    }
    *out = s;
    return 0;
}

void sources_end(struct gen_source *s, uint32_t n)
{
    for (uint32_t i = 0; s && i < n; i++) {
        mem_free(s[i].ids);
        mem_free(s[i].kept);
    }
    mem_free(s);
}

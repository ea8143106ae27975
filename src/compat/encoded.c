/* encoded.c - hidden states and attentions of an encoder, which the store does not keep. */
#include "compat/compat_sizes.h"
#include "generate/handle.h"
#include "generate/heard.h"
#include "generate/prompts.h"

static int encoded(const kvik_cache *c, const struct exec_source *in, kvik_encoded *out)
{
    const struct model *m = c->x->m;
    int rows = exec_source_rows(c->x, in);
    if (rows < 0) return rows;
    out->rows = (uint32_t)rows;
    out->layers = m->encoder.n_layers;
    out->heads = m->encoder.heads;
    out->hidden = m->hidden;
    if (!out->hidden_states && !out->attentions) return 0;
    struct exec_probe probe = {
        .hidden = out->hidden_states, .attention = out->attentions, .columns = out->rows};
    struct exec_source shown = *in;
    shown.probe = &probe;
    return exec_show_encoder(c->x, &shown);
}

KVIK_API int kvik_encoder_forward(kvik_cache *c, const kvik_source *in, kvik_encoded *out)
{
    kvik_source full = {0};
    kvik_encoded of = {0};
    struct gen_source *source = NULL;
    USE_CACHE(c);
    if (!in || !out)
        return ERR(ARG, "an input of the encoder and a kvik_encoded to fill are needed");
    TRY(SIZED_IN(&of, out, kvik_encoded));
    int e = source_read(c, 0, in, false, &full);
    if (e >= 0) e = source_alone(c->x, &full, &source);
    if (e >= 0) e = encoded(c, &source->in, &of);
    sources_end(source, 1);
    source_done(&full, false);
    if (e >= 0) e = SIZED_OUT(out, &of, kvik_encoded);
    return cache_full(c, e);
}

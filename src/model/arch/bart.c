/* bart.c - BART and mBART (Lewis et al. 2019; Liu et al. 2020): an encoder and a decoder with LayerNorm and biases
 * everywhere.  BART norms after each half of a layer, mBART before it and once more at the end of each stack; both norm
 * the embeddings.  Positions of both stacks are tables whose first two rows are not used; masked columns before an
 * input count in the encoder's.  The cross sites follow the decoder's own. */
#include "model/seq2seq.h"

#include <stdio.h>
#include <string.h>

#define FIRST 2u /* row of position 0 in the tables */

struct front { /* positions and norm, which come before the layers of a stack */
    struct dev_weight positions;
    struct mod_norm norm;
};
struct bart {
    struct front encoder_front, decoder_front;
    struct s2s_stack encoder, decoder;
};

static int read_act(const struct model *m, enum s2s_act *act)
{
    static const struct {
        const char *name;
        enum s2s_act act;
    } acts[] = {{"gelu", S2S_GELU_ERF}, {"gelu_new", S2S_GELU_TANH}, {"relu", S2S_RELU}};
    const char *name = "gelu";
    TRY(json_get_str(m->config, m->config_file, "activation_function", &name));
    for (size_t i = 0; i < countof(acts); i++) {
        if (strcmp(acts[i].name, name) != 0) continue;
        *act = acts[i].act;
        return 0;
    }
    return ERR(UNSUPPORTED, "%s: activation_function \"%s\" is not supported by %s", m->config_file,
               name, m->arch_name);
}

static int bart_read_config(struct model *m, struct bart *w)
{
    TRY(s2s_config(m, &w->encoder, &w->decoder));
    TRY(model_need_u32(m, "max_position_embeddings", NULL, 1, 1u << 20, &m->context));
    TRY(read_act(m, &w->encoder.act));
    w->decoder.act = w->encoder.act;
    w->encoder.after = w->decoder.after = strcmp(m->arch_name, "mbart") != 0;
    m->encoder.rows = m->context;
    m->encoder.counts_padding = true;
    m->encoder.stride = 1;
    return 0;
}

/* --- the weights */
static int bind_stack(struct model *m, struct s2s_stack *s, struct front *f, bool cross)
{
    char name[80];
    struct dev_weight table;
    snprintf(name, sizeof name, "model.%s.embed_positions.weight", s->name);
    TRY(model_plain(m, name, NULL, 0, m->context + FIRST, m->hidden, &table));
    f->positions = model_rows(&table, FIRST, m->context);
    snprintf(name, sizeof name, "model.%s.layernorm_embedding", s->name);
    TRY(model_norm(m, NORM_LAYER, name, NULL, 0, m->hidden, false, &f->norm));
    snprintf(name, sizeof name, "model.%s.layer_norm", s->name);
    if (!s->after) TRY(model_norm(m, NORM_LAYER, name, NULL, 0, m->hidden, false, &s->last_norm));
    return s2s_bind(m, s, cross);
}

static int bart_bind_ends(struct model *m)
{
    static const char *const embed[] = {"model.shared.weight", "model.decoder.embed_tokens.weight",
                                        "model.encoder.embed_tokens.weight", "lm_head.weight"};
    uint32_t d = m->hidden, i = 0;
    TRY(model_need_u32(m, "vocab_size", NULL, 1, 1u << 24, &m->vocab));
    while (i + 1 < countof(embed) && !model_find(m, embed[i], NULL, 0))
        i++;
    TRY(model_matrix(m, embed[i], NULL, 0, m->vocab, d, &m->embed));
    m->tied = true;
    TRY(json_get_bool(m->config, m->config_file, "tie_word_embeddings", &m->tied));
    m->head = m->embed;
    if (!m->tied) TRY(model_matrix(m, "lm_head.weight", NULL, 0, m->vocab, d, &m->head));
    if (!model_find(m, "final_logits_bias", NULL, 0)) return 0;
    return model_array(m, "final_logits_bias", NULL, 0, (uint32_t[]){1, m->vocab}, 2,
                       &m->head_bias);
}

static int bart_open(struct model *m)
{
    if (model_is_gguf(m))
        return ERR(UNSUPPORTED, "%s: %s is read from Hugging Face directories only", m->what,
                   m->arch_name);
    struct bart *w = model_own(m, 1, sizeof *w);
    if (!w) return ERR_NOMEM;
    m->arch_weights = w;
    TRY(bart_read_config(m, w));
    TRY(bart_bind_ends(m));
    TRY(bind_stack(m, &w->encoder, &w->encoder_front, false));
    TRY(bind_stack(m, &w->decoder, &w->decoder_front, true));
    m->final_norm = w->decoder.last_norm;
    return 0;
}

/* --- the graphs */
static void embed(const struct model *m, struct graph *g, const struct front *f)
{
    mod_embed(g);
    mod_embed_positions(g, &f->positions, graph_h(g));
    mod_norm(g, &f->norm, graph_h(g), 1, m->hidden, graph_h(g));
}

static int bart_encode(const struct model *m, struct graph *g)
{
    const struct bart *w = m->arch_weights;
    embed(m, g, &w->encoder_front);
    s2s_encode(m, g, &w->encoder, &w->decoder);
    return 0;
}

static int bart_graph(const struct model *m, struct graph *g)
{
    const struct bart *w = m->arch_weights;
    embed(m, g, &w->decoder_front);
    s2s_decode(m, g, &w->decoder);
    return 0;
}

static const char *const names[] = {"bart", "mbart", NULL};
static const struct arch bart = {
    .names = names, .open = bart_open, .graph = bart_graph, .encode = bart_encode};
MODEL_ARCH(bart, &bart);

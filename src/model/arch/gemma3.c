/* gemma3.c - Gemma 3, text (Gemma Team 2025): five layers with a window, then one without; each of the two kinds has a
 * rotary base of its own.  Query and key heads have RMS norms, and scores have no cap.  "gemma3" is the model of text
 * and images; its text part runs here.  The rest is in gemma.h. */
#include "model/gemma.h"

/* Reads rope[0], of full layers, which most models stretch, and rope[1], of sliding layers.  Older configurations have
 * rope_theta, rope_scaling and rope_local_base_freq; newer ones have rope_parameters by kind of layer.  GGUF files do
 * not have the local base. */
static int read_ropes(struct model *m)
{
    const json_t *by_kind = json_object_get(m->config, "rope_parameters");
    float local = 10000;
    m->rope[0].theta = 1e6;
    if (json_is_object(by_kind) && !json_object_get(by_kind, "full_attention"))
        return ERR(UNSUPPORTED, "%s: rope_parameters has no \"full_attention\"", m->config_file);
    TRY(model_read_rope(m, 0, "full_attention"));
    TRY(model_f32(m, "rope_local_base_freq", "rope.freq_base_swa", &local));
    m->rope[1].theta = local;
    if (json_object_get(by_kind, "sliding_attention")) {
        TRY(model_read_rope(m, 1, "sliding_attention"));
    } else {
        json_t *plain = json_pack("{s:f}", "rope_theta", (double)local);
        if (!plain) return ERR(NOMEM, "out of memory");
        int e = rope_read(&m->rope[1], plain, m->config_file, m->context);
        json_decref(plain);
        if (e < 0) return e;
        m->rope[1].rot = m->rope[0].rot;
        m->n_ropes = 2;
    }
    TRY(rope_prepare(&m->rope[0]));
    return rope_prepare(&m->rope[1]);
}

static int gemma3_open(struct model *m)
{
    uint32_t window = model_is_gguf(m) ? 0 : 4096, period = 6;
    TRY(model_enter_text(m));
    m->context = 131072;
    TRY(gemma_read(m, 62, 0, 0));
    struct gemma *w = m->arch_weights;
    w->softcap = 0; /* the key exists, but Transformers never applies it */
    TRY(model_read_window(m, &window));
    TRY(model_u32(m, "_sliding_window_pattern", NULL, 1, 512, &period));
    TRY(model_u32(m, "sliding_window_pattern", NULL, 1, 512, &period));
    TRY(model_slide(m, window, 0, period));
    TRY(read_ropes(m));
    TRY(gemma_bind(m));
    for (uint32_t i = 0; i < m->n_layers; i++)
        if (!w->layer[i].attn.q_norm.kind || !w->layer[i].attn.k_norm.kind)
            return ERR(FORMAT, "%s: layer %u has no norms of its queries and keys", m->what, i);
    return 0;
}

static const char *const names[] = {"gemma3_text", "gemma3", NULL};
static const struct arch gemma3_arch = {.names = names, .open = gemma3_open, .graph = gemma_graph};
MODEL_ARCH(gemma3, &gemma3_arch);

/* moe_bind.c - the tensors of a mixture's experts, in the forms that checkpoints have; see moe.h. */
#include "model/moe.h"

#include <stdio.h>

/* Binds experts of older Hugging Face checkpoints, which have a tensor for each expert and matrix. */
static int bind_single(struct model *m, uint32_t layer, const struct moe_names *n, struct moe *moe)
{
    uint32_t h = m->hidden, f = moe->ffn;
    for (uint32_t e = 0; e < moe->n; e++) {
        const struct {
            const char *name;
            uint32_t rows, cols;
            struct dev_weight *w;
        } part[] = {{n->gate, f, h, &moe->expert[e].gate},
                    {n->up, f, h, &moe->expert[e].up},
                    {n->down, h, f, &moe->expert[e].down}};
        for (size_t i = 0; i < countof(part); i++) {
            char hf[128];
            snprintf(hf, sizeof hf, "%s.%u.%s.weight", n->single, e, part[i].name);
            TRY(model_matrix(m, hf, NULL, layer, part[i].rows, part[i].cols, part[i].w));
        }
    }
    return 0;
}

/* Binds experts of GGUF files, where gate, up and down are each stacked over the experts. */
static int bind_gguf(struct model *m, uint32_t layer, struct moe *moe, struct dev_weight *all)
{
    uint32_t h = m->hidden, f = moe->ffn, n = moe->n;
    TRY(model_experts(m, NULL, "blk.%u.ffn_gate_exps.weight", layer, n, f, h, false, all));
    for (uint32_t e = 0; e < n; e++)
        moe->expert[e].gate = all[e];
    TRY(model_experts(m, NULL, "blk.%u.ffn_up_exps.weight", layer, n, f, h, false, all));
    for (uint32_t e = 0; e < n; e++)
        moe->expert[e].up = all[e];
    TRY(model_experts(m, NULL, "blk.%u.ffn_down_exps.weight", layer, n, h, f, false, all));
    for (uint32_t e = 0; e < n; e++)
        moe->expert[e].down = all[e];
    return 0;
}

/* Binds experts of newer Hugging Face checkpoints, where they are stacked, with gate and up in one tensor. */
static int bind_stacked(struct model *m, uint32_t layer, const char *gate_up, const char *down,
                        struct moe *moe, struct dev_weight *all)
{
    uint32_t h = m->hidden, f = moe->ffn;
    TRY(model_experts(m, gate_up, NULL, layer, moe->n, 2 * f, h, false, all));
    for (uint32_t e = 0; e < moe->n; e++) {
        moe->expert[e].gate = model_rows(&all[e], 0, f);
        moe->expert[e].up = model_rows(&all[e], f, f);
    }
    TRY(model_experts(m, down, NULL, layer, moe->n, h, f, false, all));
    for (uint32_t e = 0; e < moe->n; e++)
        moe->expert[e].down = all[e];
    return 0;
}

int moe_bind(struct model *m, uint32_t layer, const struct moe_names *n, struct moe *moe)
{
    char gate_up[128], down[128];
    snprintf(gate_up, sizeof gate_up, "%s.gate_up_proj", n->stacked);
    snprintf(down, sizeof down, "%s.down_proj", n->stacked);
    bool stacked = !model_is_gguf(m) && model_find(m, gate_up, NULL, layer);
    if (!stacked && !model_is_gguf(m)) return bind_single(m, layer, n, moe);
    struct dev_weight *all = mem_array(moe->n, sizeof *all);
    if (!all) return ERR_NOMEM;
    int e =
        stacked ? bind_stacked(m, layer, gate_up, down, moe, all) : bind_gguf(m, layer, moe, all);
    mem_free(all);
    return e;
}

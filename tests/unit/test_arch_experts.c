/* test_arch_experts.c - the questions of test_arch_config.c for other families: learned positions,
 * fused projections, two rotary regimes, mixtures of experts. Each case says what a layer sees,
 * what is refused under which name, or which spellings mean the same. */
#include "fmt/fmt.h"
#include "test_arch.h"

static const struct {
    const char *model, *change, *drop, *sees; /* sees, per layer: w window, c chunk, - everything */
} layers[] = {
    {"phi3", "", "", "w24 w24 w24"},
    {"phi3", "{\"sliding_window\": null}", "", "- - -"},
    {"phi3", "", "sliding_window", "- - -"},
    {"mixtral", "", "", "- -"},
    {"mixtral", "{\"sliding_window\": 9}", "", "w9 w9"},
    {"gpt2", "", "", "- - -"},
    {"llama4", "", "", "c16 c16 c16 -"},
    {"llama4", "", "layer_types", "c16 c16 c16 -"},
    {"llama4", "", "layer_types no_rope_layers", "c16 c16 c16 -"},
    {"llama4", "{\"no_rope_layers\": []}", "layer_types", "c16 c16 c16 -"},
    {"llama4", "{\"no_rope_layer_interval\": 2}", "layer_types no_rope_layers", "c16 - c16 -"},
    {"llama4", "{\"no_rope_layers\": [0, 1, 0, 1]}", "layer_types", "- c16 - c16"},
    {"llama4", "", "attention_chunk_size", "c8192 c8192 c8192 -"},
    {"gpt-oss", "", "", "w9 - w9 -"},
    {"gpt-oss", "", "layer_types", "w9 - w9 -"},
    {"gpt-oss", "", "sliding_window", "w128 - w128 -"},
};

static void layers_see(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(layers); i++) {
        struct model *m;
        char got[128] = "";
        make(changed(layers[i].model, layers[i].change, layers[i].drop));
        if (model_open(dir, &m) < 0)
            fail_msg("%s %s: %s", layers[i].model, layers[i].change, err_last());
        for (uint32_t k = 0, n = 0; k < m->n_layers; k++) {
            const struct kv_site *l = &m->site[k];
            n += (uint32_t)sprintf(got + n, k ? " " : "");
            n += (uint32_t)(l->window  ? sprintf(got + n, "w%u", l->window)
                            : l->chunk ? sprintf(got + n, "c%u", l->chunk)
                                       : sprintf(got + n, "-"));
        }
        if (strcmp(got, layers[i].sees) != 0)
            fail_msg("%s %s without \"%s\": layers see %s, should see %s", layers[i].model,
                     layers[i].change, layers[i].drop, got, layers[i].sees);
        model_close(m);
    }
}

#define SHORT "\"short_factor\": [1, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.35]"
#define LONG  "\"long_factor\": [1.287, 2.223, 3.139, 4.083, 4.922, 5.877, 6.509, 7.54]"
static const struct {
    const char *model, *change, *drop, *word;
} refused[] = {
    {"gpt2", "{\"activation_function\": \"relu\"}", "", "activation_function"},
    {"gpt2", "{\"add_cross_attention\": true}", "", "add_cross_attention"},
    {"gpt2", "{\"n_head\": 5}", "", "n_head"},
    {"gpt2", "{\"n_head\": 0}", "", "n_head"},
    {"gpt2", "{\"n_layer\": 4}", "", "h.3."},
    {"gpt2", "{\"n_layer\": 513}", "", "n_layer"},
    {"gpt2", "{\"n_embd\": 44}", "", "wte"},
    {"gpt2", "{\"n_positions\": 129}", "", "wpe"},
    {"gpt2", "{\"n_positions\": 0}", "", "n_positions"},
    {"gpt2", "{\"n_inner\": 100}", "", "c_fc"},
    {"gpt2", "{\"vocab_size\": 385}", "", "wte"},
    {"gpt2", "{\"layer_norm_epsilon\": -1}", "", "layer_norm_epsilon"},
    {"gpt2", "{\"tie_word_embeddings\": false}", "", "lm_head"},
    {"gpt2", "", "n_embd", "n_embd"},
    {"phi3", "{\"hidden_act\": \"gelu\"}", "", "hidden_act"},
    {"phi3", "{\"num_key_value_heads\": 4}", "", "qkv_proj"},
    {"phi3", "{\"intermediate_size\": 63}", "", "gate_up_proj"},
    {"phi3", "{\"rope_scaling\": {\"type\": \"longrope\"}}", "", "short_factor"},
    {"phi3", "{\"rope_scaling\": {\"type\": \"longrope\", " SHORT "}}", "", "long_factor"},
    {"phi3", "{\"rope_scaling\": {\"type\": \"longrope\", " SHORT ", \"long_factor\": [1, 2]}}", "",
     "long_factor"},
    {"phi3", "{\"rope_scaling\": {\"type\": \"longrope\", " LONG ", \"short_factor\": []}}", "",
     "short_factor"},
    {"phi3", "{\"rope_scaling\": {\"type\": \"longrope\", " LONG ", \"short_factor\": [0]}}", "",
     "short_factor"},
    {"phi3", "{\"rope_scaling\": {\"type\": \"longrope\", " LONG ", \"short_factor\": [\"1\"]}}",
     "", "short_factor"},
    {"phi3", "{\"rope_scaling\": {\"type\": \"longrope\", " SHORT ", \"long_factor\": [1e39]}}", "",
     "long_factor"},
    {"phi3", "{\"partial_rotary_factor\": 0.5}", "", "short_factor"},
    {"phi3", "{\"original_max_position_embeddings\": 1}", "", "attention_factor"},
    {"phi3", "{\"original_max_position_embeddings\": 0}", "", "original_max"},
    {"mixtral", "{\"hidden_act\": \"gelu\"}", "", "hidden_act"},
    {"mixtral", "{\"num_local_experts\": 5}", "", "gate"},
    {"mixtral", "{\"num_local_experts\": 0}", "", "num_local_experts"},
    {"mixtral", "{\"num_local_experts\": 5000}", "", "num_local_experts"},
    {"mixtral", "", "num_local_experts", "num_local_experts"},
    {"mixtral", "{\"num_experts_per_tok\": 5}", "", "num_experts_per_tok"},
    {"mixtral", "{\"num_experts_per_tok\": 0}", "", "num_experts_per_tok"},
    {"mixtral", "", "num_experts_per_tok", "num_experts_per_tok"},
    {"mixtral", "{\"intermediate_size\": 41}", "", "experts.0.w1"},
    {"mixtral", "{\"sliding_window\": 0}", "", "sliding_window"},
    /* the default is 8 kv heads, and for some a head dimension of its own */
    {"mixtral", "{\"num_attention_heads\": 24, \"head_dim\": 2}", "num_key_value_heads",
     "needs [16, 48]"},
    {"llama4", "{\"num_attention_heads\": 32, \"head_dim\": 2}", "num_key_value_heads",
     "needs [16, 48]"},
    {"gpt-oss", "{\"num_attention_heads\": 32, \"head_dim\": 2}", "num_key_value_heads",
     "needs [16, 48]"},
    {"llama4", "", "head_dim", "needs [512, 48]"},
    {"llama4", "{\"head_dim\": null}", "", "needs [48, 48]"},
    {"gpt-oss", "", "head_dim", "needs [256, 48]"},
    {"gpt-oss", "{\"head_dim\": null}", "", "needs [48, 48]"},
    {"llama4", "{\"attn_temperature_tuning\": \"yes\"}", "", "attn_temperature_tuning"},
    {"llama4", "{\"hidden_act\": \"gelu\"}", "", "hidden_act"},
    {"llama4", "{\"no_rope_layers\": [1, 1]}", "", "no_rope_layers"},
    {"llama4", "{\"no_rope_layers\": 1}", "", "no_rope_layers"},
    {"llama4", "{\"no_rope_layers\": [1, 1, 1, \"0\"]}", "", "no_rope_layers[3]"},
    {"llama4", "{\"no_rope_layer_interval\": 0}", "", "no_rope_layer_interval"},
    {"llama4", "{\"layer_types\": [\"chunked_attention\"]}", "", "layer_types"},
    {"llama4", "{\"layer_types\": [1, 1, 1, 1]}", "", "layer_types[0]"},
    {"llama4", "{\"attention_chunk_size\": null}", "", "attention_chunk_size"},
    {"llama4", "{\"attention_chunk_size\": 0}", "", "attention_chunk_size"},
    {"llama4", "{\"moe_layers\": [4]}", "", "moe_layers"},
    {"llama4", "{\"moe_layers\": [-1]}", "", "moe_layers"},
    {"llama4", "{\"moe_layers\": [0]}", "", "layers.0.feed_forward"},
    {"llama4", "{\"moe_layers\": {}}", "", "moe_layers"},
    {"llama4", "{\"interleave_moe_layer_step\": 0}", "", "interleave_moe_layer_step"},
    {"llama4", "{\"floor_scale\": 0}", "", "floor_scale"},
    {"llama4", "{\"intermediate_size_mlp\": 63}", "", "gate_proj"},
    {"llama4", "{\"intermediate_size\": 31}", "", "shared_expert"},
    {"llama4", "{\"num_experts_per_tok\": 5}", "", "num_experts_per_tok"},
    {"gpt-oss", "{\"hidden_act\": \"gelu\"}", "", "hidden_act"},
    {"gpt-oss", "", "rope_parameters", "rope_parameters"},
    {"gpt-oss", "{\"swiglu_limit\": 0}", "", "swiglu_limit"},
    {"gpt-oss", "{\"num_experts_per_tok\": 9}", "", "num_experts_per_tok"},
    {"gpt-oss", "{\"num_local_experts\": 3}", "", "router"},
    {"gpt-oss", "{\"intermediate_size\": 16}", "", "gate_up_proj"},
    {"gpt-oss", "{\"layer_types\": [\"full_attention\"]}", "", "layer_types"},
    {"gpt-oss", "{\"sliding_window\": null}", "", "layer_types[0]"},
    {"gpt-oss-mxfp4", "{\"intermediate_size\": 16}", "", "gate_up_proj_blocks"},
    {"gpt-oss-mxfp4", "{\"hidden_size\": 48}", "", "embed"},
};

static void refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(refused); i++)
        must_refuse(refused[i].model, refused[i].change, refused[i].drop, refused[i].word);
}

#define V5_ROPE                                                                                    \
    "\"rope_theta\": 10000, " SHORT ", " LONG ", \"original_max_position_embeddings\": 32"
static const struct {
    const char *model, *change, *drop;
    bool same;
} spellings[] = {
    {"phi3", "{\"rope_scaling\": {\"type\": \"su\", " SHORT ", " LONG "}}", "", true},
    {"phi3", "{\"rope_scaling\": {\"type\": \"yarn\", " SHORT ", " LONG "}}", "", true},
    {"phi3", "{\"rope_parameters\": {\"rope_type\": \"longrope\", " V5_ROPE "}}",
     "rope_theta rope_scaling original_max_position_embeddings", true},
    {"phi3", "{\"rope_parameters\": {\"rope_type\": \"longrope\", \"factor\": 8, " V5_ROPE "}}",
     "rope_theta rope_scaling", true},
    {"phi3", "{\"rope_parameters\": {\"rope_type\": \"longrope\", \"factor\": 4, " V5_ROPE "}}",
     "rope_theta rope_scaling", false},
    {"phi3", "{\"original_max_position_embeddings\": 96}", "", false},
    {"phi3", "{\"rope_scaling\": null}", "", false},
    {"mixtral", "{\"num_experts\": 4}", "num_local_experts", true},
    {"mixtral", "{\"num_experts_per_tok\": 1}", "", false},
    {"mixtral", "{\"sliding_window\": 8}", "", false},
    {"llama4", "{\"rope_theta\": 500000.0}", "rope_parameters moe_layers layer_types", true},
    {"llama4", "{\"attn_temperature_tuning\": false}", "", false},
    {"llama4", "{\"attn_temperature_tuning\": 4}", "", true},
    {"llama4", "{\"attn_temperature_tuning\": 0}", "", false},
    {"llama4", "{\"attn_scale\": 0.2}", "", false},
    {"llama4", "{\"use_qk_norm\": false}", "", false},
    {"llama4", "{\"attention_chunk_size\": 15}", "", false},
    {"gpt-oss", "{\"swiglu_alpha\": 1.702}", "layer_types swiglu_limit", true},
    {"gpt-oss", "{\"swiglu_alpha\": 1}", "", false},
    {"gpt-oss", "{\"num_experts_per_tok\": 3}", "", false},
    {"gpt2", "{\"activation_function\": \"gelu_pytorch_tanh\"}", "scale_attn_weights", true},
    {"gpt2", "{\"scale_attn_weights\": false}", "", false},
    {"gpt2", "{\"scale_attn_by_inverse_layer_idx\": true}", "", false},
};

static void other_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(spellings); i++) {
        make(changed(spellings[i].model, spellings[i].change, spellings[i].drop));
        compare(spellings[i].model, spellings[i].change, spellings[i].same);
    }
}

/* --- The same weights under other names and in other tensors. */
enum { MOST = 80 };
static struct tensor out[MOST];
static char name[MOST][96];
static uint32_t n_out;

static struct tensor *put(const struct tensor *t, const char *as)
{
    assert_true(n_out < MOST && strlen(as) < sizeof name[0]);
    strcpy(name[n_out], as);
    out[n_out] = *t;
    out[n_out].name = name[n_out];
    return &out[n_out++];
}

/* Writes the golden model's own configuration and the tensors that `convert` makes of the model's
 * tensors. */
static void rewritten(const char *model, void (*convert)(const struct safetensors *s))
{
    struct safetensors *s;
    char path[600];
    make(changed(model, "", ""));
    snprintf(path, sizeof path, "tests/golden/models/%s/model.safetensors", model);
    assert_int_equal(safetensors_open(path, &s), 0);
    n_out = 0;
    convert(s);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path); /* this is a link to the golden file */
    assert_int_equal(safetensors_write(path, out, n_out), 0);
    safetensors_close(s);
    compare(model, "rewritten", true);
}

static void without_prefix(const struct safetensors *s)
{
    for (uint32_t i = 0; i < safetensors_count(s); i++) {
        const struct tensor *t = safetensors_at(s, i);
        put(t, strncmp(t->name, "transformer.", 12) == 0 ? t->name + 12 : t->name);
    }
}

/* Writes experts 0 to 3 of one matrix, or of w1 and w3 alternately, one after another. */
static void stack(const struct safetensors *s, int layer, const char *const *w, int n_w,
                  const char *as)
{
    static unsigned char room[4][1 << 17];
    static int used;
    char path[160];
    const struct tensor *t = NULL;
    unsigned char *to = room[used++ % 4];
    size_t n = 0;
    for (int e = 0; e < 4; e++)
        for (int k = 0; k < n_w; k++) {
            snprintf(path, sizeof path, "model.layers.%d.block_sparse_moe.experts.%d.%s.weight",
                     layer, e, w[k]);
            t = safetensors_find(s, path);
            assert_non_null(t);
            assert_true(n + t->bytes <= sizeof room[0]);
            memcpy(to + n, t->data, t->bytes);
            n += t->bytes;
        }
    snprintf(path, sizeof path, "model.layers.%d.mlp.%s", layer, as);
    struct tensor *o = put(t, path);
    o->n_dims = 3;
    o->dim[2] = t->dim[1];
    o->dim[1] = t->dim[0] * (uint64_t)n_w;
    o->dim[0] = 4;
    o->data = to;
    o->bytes = n;
}

static void stacked(const struct safetensors *s)
{
    static const char *const in[] = {"w1", "w3"}, *const back[] = {"w2"};
    for (uint32_t i = 0; i < safetensors_count(s); i++) {
        const struct tensor *t = safetensors_at(s, i);
        int layer;
        char as[96];
        if (strstr(t->name, ".experts.")) continue;
        if (sscanf(t->name, "model.layers.%d.block_sparse_moe.gate", &layer) == 1 &&
            strstr(t->name, "gate")) {
            snprintf(as, sizeof as, "model.layers.%d.mlp.gate.weight", layer);
            put(t, as);
        } else {
            put(t, t->name);
        }
    }
    for (int layer = 0; layer < 2; layer++) {
        stack(s, layer, in, 2, "experts.gate_up_proj");
        stack(s, layer, back, 1, "experts.down_proj");
    }
}

static void other_tensors(void **state)
{
    (void)state;
    rewritten("gpt2", without_prefix);
    rewritten("mixtral", stacked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_see),
        cmocka_unit_test(refusals),
        cmocka_unit_test(other_words),
        cmocka_unit_test(other_tensors),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

/* test_arch_states.c - what configurations of recurrent and hybrid models mean: old and new
 * spellings give the same logits; a value that an architecture cannot honour is an error that names
 * the key. And infinities in a configuration that Python wrote. */
#include "base/json.h"
#include "test_arch.h"

static const struct {
    const char *model, *change, *drop, *word;
} refused[] = {
    {"mamba", "{\"hidden_act\": \"gelu\"}", "", "hidden_act"},
    {"mamba", "", "num_hidden_layers", "num_hidden_layers"},
    {"mamba", "{\"num_hidden_layers\": 4}", "", "layers.3"},
    {"mamba", "{\"hidden_size\": 0}", "", "hidden_size"},
    {"mamba", "{\"expand\": 0}", "", "expand"},
    {"mamba", "{\"expand\": 1e9}", "", "expand"},
    {"mamba", "{\"expand\": -2}", "", "expand"},
    {"mamba", "{\"expand\": 3}", "", "in_proj"},
    {"mamba", "{\"state_size\": 0}", "", "state_size"},
    {"mamba", "{\"state_size\": 257}", "", "state_size"},
    {"mamba", "{\"state_size\": 9}", "", "x_proj"},
    {"mamba", "{\"conv_kernel\": 17}", "", "conv_kernel"},
    {"mamba", "{\"conv_kernel\": 3}", "", "conv1d"},
    {"mamba", "{\"time_step_rank\": \"most\"}", "", "time_step_rank"},
    {"mamba", "{\"time_step_rank\": \"auto\"}", "", "x_proj"}, /* a sixteenth of 40 is 3 */
    {"mamba", "{\"layer_norm_epsilon\": -1}", "", "layer_norm_epsilon"},
    {"mamba", "{\"tie_word_embeddings\": false}", "", "lm_head"},
    {"falcon-mamba", "{\"mixer_rms_eps\": -1}", "", "mixer_rms_eps"},
    {"mamba2", "{\"num_heads\": 7}", "", "num_heads"},
    {"mamba2", "{\"n_groups\": 3}", "", "groups"},
    {"mamba2", "{\"n_groups\": 4}", "", "in_proj"},
    {"mamba2", "{\"state_size\": 257}", "", "state_size"},
    {"mamba2", "{\"time_step_limit\": [0.5, 0.1]}", "", "time step"},
    {"mamba2", "{\"time_step_limit\": 7}", "", "time_step_limit"},
    {"mamba2", "{\"time_step_limit\": [0, \"much\"]}", "", "time_step_limit"},
    {"mamba2", "{\"tie_word_embeddings\": 1}", "", "tie_word_embeddings"},
    {"jamba", "{\"hidden_act\": \"gelu\"}", "", "hidden_act"},
    {"jamba", "{\"attn_layer_period\": 0}", "", "attn_layer_period"},
    {"jamba", "{\"attn_layer_period\": 2, \"attn_layer_offset\": 0}", "", "q_proj"},
    {"jamba", "{\"num_experts_per_tok\": 3}", "", "experts"},
    {"jamba", "{\"num_experts\": 0}", "", "num_experts"},
    {"jamba", "{\"num_experts\": 3}", "", "router"},
    {"jamba", "{\"num_key_value_heads\": 3}", "", "heads"},
    {"jamba", "{\"num_attention_heads\": 1000}", "", "heads"},
    {"jamba", "{\"mamba_d_state\": 0}", "", "mamba_d_state"},
    {"jamba", "{\"rms_norm_eps\": -1}", "", "rms_norm_eps"},
    {"zamba2", "{\"hidden_act\": \"silu\"}", "", "hidden_act"},
    {"zamba2", "{\"layers_block_type\": 5}", "", "layers_block_type"},
    {"zamba2", "{\"layers_block_type\": [\"hybrid\"]}", "", "layers_block_type"},
    {"zamba2",
     "{\"layers_block_type\": [\"mamba\", \"hybrid\", \"mamba\", \"full_attention\", \"mamba\"]}",
     "", "layers_block_type[3]"},
    {"zamba2", "{\"num_mem_blocks\": 2}", "", "shared_transformer"},
    {"zamba2", "{\"num_mem_blocks\": 65}", "", "num_mem_blocks"},
    {"zamba2", "{\"n_mamba_heads\": 5}", "", "n_mamba_heads"},
    {"zamba2", "{\"use_shared_attention_adapter\": true}", "", "linear_q"},
    {"zamba2", "{\"time_step_min\": -1}", "", "time step"},
    {"zamba2", "{\"num_attention_heads\": 0}", "", "num_attention_heads"},
    {"qwen3-next", "{\"hidden_act\": \"gelu\"}", "", "hidden_act"},
    {"qwen3-next", "{\"layer_types\": 5}", "", "layer_types"},
    {"qwen3-next", "{\"layer_types\": [\"full_attention\"]}", "", "layer_types"},
    {"qwen3-next", "{\"layer_types\": [\"linear_attention\", \"mamba\", 1, 1, 1]}", "",
     "layer_types[1]"},
    {"qwen3-next", "", "layer_types", "layers.2.linear_attn"}, /* every fourth attends */
    {"qwen3-next", "{\"full_attention_interval\": 0}", "layer_types", "full_attention_interval"},
    {"qwen3-next", "{\"linear_num_value_heads\": 3}", "", "linear_num_key_heads 2"},
    {"qwen3-next", "{\"linear_num_key_heads\": 0}", "", "linear_num_key_heads"},
    {"qwen3-next", "{\"linear_num_key_heads\": 1}", "", "in_proj_qkvz"},
    {"qwen3-next", "{\"linear_key_head_dim\": 257}", "", "linear_key_head_dim"},
    {"qwen3-next", "{\"linear_value_head_dim\": 19}", "", "in_proj_qkvz"},
    {"qwen3-next", "{\"linear_conv_kernel_dim\": 17}", "", "linear_conv_kernel_dim"},
    {"qwen3-next", "{\"linear_conv_kernel_dim\": 3}", "", "conv1d"},
    {"qwen3-next", "{\"num_experts\": 5}", "", "mlp.gate"},
    {"qwen3-next", "{\"num_experts\": 0}", "", "mlp.gate_proj"},
    {"qwen3-next", "{\"num_experts_per_tok\": 7}", "", "7 of 6 experts"},
    {"qwen3-next", "{\"mlp_only_layers\": 1}", "", "mlp_only_layers"},
    {"qwen3-next", "{\"mlp_only_layers\": [\"1\"]}", "", "mlp_only_layers[0]"},
    {"qwen3-next", "{\"mlp_only_layers\": []}", "", "layers.1.mlp.gate"},
    {"qwen3-next", "{\"decoder_sparse_step\": 2}", "", "mlp.gate_proj"},
    {"qwen3-next", "{\"attention_bias\": true}", "", "attention_bias"},
    {"qwen3-next", "{\"rms_norm_eps\": -1}", "", "rms_norm_eps"},
    {"qwen3-next", "{\"head_dim\": 8}", "", "q_proj"},
    {"qwen3-5", "", "num_key_value_heads", "k_proj"}, /* 4 is the default */
    {"qwen3-5", "{\"num_experts\": 4, \"num_experts_per_tok\": 2}", "", "mlp.gate"},
    {"qwen3-5", "{\"full_attention_interval\": 2}", "layer_types", "layers.1.self_attn"},
};

static const struct {
    const char *model, *change, *drop;
    bool same;
} spellings[] = {
    {"mamba", "{\"expand\": 2.0}", "conv_kernel hidden_act", true},
    {"mamba", "{\"layer_norm_epsilon\": 0.1}", "", false},
    {"falcon-mamba", "", "mixer_rms_eps", true},
    {"falcon-mamba", "{\"mixer_rms_eps\": 0.1}", "", false},
    {"falcon-mamba", "{\"model_type\": \"mamba\"}", "", false},
    {"mamba2", "", "time_step_limit", true},
    {"mamba2", "{\"time_step_limit\": [0.0, {\"__float__\": \"Infinity\"}]}", "", true},
    {"mamba2", "{\"time_step_limit\": [0.0, 1.7976931348623157e308]}", "", true},
    {"mamba2", "{\"time_step_limit\": [0.0, 0.001]}", "", false},
    {"jamba", "", "mamba_d_conv mamba_expand rms_norm_eps", true},
    {"jamba", "{\"num_experts_per_tok\": 1}", "", false},
    {"zamba2",
     "{\"layers_block_type\": [\"mamba\", \"hybrid\", \"mamba\", \"linear_attention\", \"hybrid\"]}",
     "mamba_d_conv mamba_expand num_mem_blocks mamba_ngroups", true},
    {"zamba2", "{\"use_mem_rope\": false}", "", false},
    {"zamba2", "{\"time_step_min\": 0.3}", "", false},
    {"qwen3-next", "{\"mlp_only_layers\": [1, 77]}", "decoder_sparse_step linear_conv_kernel_dim",
     true},
    {"qwen3-next", "{\"partial_rotary_factor\": 0.5, \"rope_theta\": 10000}", "rope_parameters",
     true},
    {"qwen3-next", "{\"rope_parameters\": {\"rope_theta\": 10000}}", "",
     false}, /* a quarter rotates */
    {"qwen3-next", "{\"norm_topk_prob\": false}", "", false},
    {"qwen3-next", "{\"num_experts_per_tok\": 1}", "", false},
    {"qwen3-next", "{\"rms_norm_eps\": 0.1}", "", false},
    {"qwen3-5", "", "layer_types linear_conv_kernel_dim", true},
    {"qwen3-5", "{\"attention_bias\": false}", "", false},
    {"qwen3-5", "{\"model_type\": \"qwen3_next\", \"num_experts\": 0}", "", true},
};

static void refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(refused); i++)
        must_refuse(refused[i].model, refused[i].change, refused[i].drop, refused[i].word);
}

static void other_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(spellings); i++) {
        make(changed(spellings[i].model, spellings[i].change, spellings[i].drop));
        compare(spellings[i].model, spellings[i].change, spellings[i].same);
    }
}

/* Only a model's configuration may have Python's words for numbers that JSON lacks; words inside strings are words. */
static void no_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text, *means; /* NULL: refused */
    } cases[] = {
        {"{\"NaN\": \"Infinity \\\" NaN\"}", "{\"NaN\":\"Infinity \\\" NaN\"}"},
        {"[0.0, Infinity]", NULL},
        {"[-Infinity,NaN]", NULL},
        {"{\"a\": NaN}", NULL},
        {"[Infinit]", NULL},
        {"[--Infinity]", NULL},
        {"[InfinityInfinity]", NULL},
        {"{NaN: 1}", NULL},
        {"[NaN", NULL},
        {"\"NaN\\", NULL},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        json_t *j = NULL;
        char *text = NULL;
        int e = json_parse(cases[i].text, strlen(cases[i].text), "x", &j);
        if ((e < 0) != !cases[i].means) fail_msg("%s: %d", cases[i].text, e);
        if (e < 0) continue;
        assert_int_equal(json_text(j, &text), 0);
        assert_string_equal(text, cases[i].means);
        mem_free(text);
        json_decref(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refusals), cmocka_unit_test(other_words),
                                       cmocka_unit_test(no_numbers)};
    return cmocka_run_group_tests(tests, start, stop);
}

/* test_arch_config.c - what configurations of the model families mean: windows per layer in the
 * keys of every release; old and new spellings of one meaning give the same logits; a value that an
 * architecture cannot honour is an error that names the key. The models are tiny golden models with
 * a changed config.json. */
#include "test_arch.h"

static const struct {
    const char *model, *change, *drop, *windows;
} windows[] = {
    {"mistral", "", "", "12 12 12"},
    {"mistral", "{\"sliding_window\": null}", "", "0 0 0"},
    {"mistral", "", "sliding_window", "4096 4096 4096"},
    {"mistral", "{\"sliding_window\": 1}", "", "1 1 1"},
    {"qwen2", "", "", "0 0 0"},
    {"qwen2", "{\"sliding_window\": 5, \"max_window_layers\": 1}", "", "0 0 0"},
    {"qwen2", "{\"use_sliding_window\": true, \"sliding_window\": 5, \"max_window_layers\": 1}", "",
     "0 5 5"},
    {"qwen2", "{\"use_sliding_window\": true, \"max_window_layers\": 2}", "sliding_window",
     "0 0 4096"},
    {"qwen2", "{\"use_sliding_window\": true, \"sliding_window\": 5}", "max_window_layers",
     "0 0 0"},
    {"qwen2", "{\"use_sliding_window\": true, \"sliding_window\": null}", "", "0 0 0"},
    {"qwen3",
     "{\"use_sliding_window\": true, \"sliding_window\": 7, \"layer_types\": "
     "[\"sliding_attention\", \"full_attention\", \"sliding_attention\"]}",
     "", "7 0 7"},
    {"qwen3",
     "{\"use_sliding_window\": true, \"sliding_window\": 7, \"max_window_layers\": 0, "
     "\"layer_types\": null}",
     "", "7 7 7"},
    {"gemma2", "", "", "10 0 10 0"},
    {"gemma2", "", "sliding_window", "4096 0 4096 0"},
    {"gemma2", "{\"sliding_window\": null}", "", "0 0 0 0"},
    {"gemma2",
     "{\"layer_types\": [\"full_attention\", \"full_attention\", \"full_attention\", "
     "\"sliding_attention\"]}",
     "", "0 0 0 10"},
    {"gemma3", "", "", "8 8 8 8 8 0"},
    {"gemma3", "", "layer_types _sliding_window_pattern", "8 8 8 8 8 0"},
    {"gemma3", "{\"sliding_window_pattern\": 2}", "layer_types", "8 0 8 0 8 0"},
    {"gemma3", "{\"sliding_window_pattern\": 1}", "layer_types", "0 0 0 0 0 0"},
    {"gemma3", "{\"_sliding_window_pattern\": 4}", "layer_types", "8 8 8 0 8 8"},
    {"olmo2", "{\"sliding_window\": 5}", "", "0 0 0 0"},
    {"olmo3", "", "", "5 5 5 0"},
    {"olmo3", "", "layer_types", "5 5 5 0"},
    {"olmo3", "", "layer_types sliding_window", "4096 4096 4096 0"},
};

static void layer_windows(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(windows); i++) {
        struct model *m;
        char got[128] = "";
        make(changed(windows[i].model, windows[i].change, windows[i].drop));
        if (model_open(dir, &m) < 0)
            fail_msg("%s %s: %s", windows[i].model, windows[i].change, err_last());
        for (uint32_t k = 0, n = 0; k < m->n_layers; k++)
            n += (uint32_t)sprintf(got + n, k ? " %u" : "%u", m->site[k].window);
        if (strcmp(got, windows[i].windows) != 0)
            fail_msg("%s %s without \"%s\": windows are %s, should be %s", windows[i].model,
                     windows[i].change, windows[i].drop, got, windows[i].windows);
        model_close(m);
    }
}

static const struct {
    const char *model, *change, *drop, *word;
} refused[] = {
    {"mistral", "{\"sliding_window\": 0}", "", "sliding_window"},
    {"mistral", "{\"sliding_window\": -1}", "", "sliding_window"},
    {"mistral", "{\"sliding_window\": 4294967308}", "", "sliding_window"},
    {"mistral", "{\"sliding_window\": \"12\"}", "", "sliding_window"},
    {"mistral", "{\"hidden_act\": \"gelu\"}", "", "hidden_act"},
    {"mistral", "{\"hidden_act\": 1}", "", "hidden_act"},
    {"mistral",
     "{\"layer_types\": [\"full_attention\", \"full_attention\", \"sliding_attention\"]}", "",
     "layer_types"},
    {"mistral", "{\"rope_scaling\": {\"type\": \"mrope\"}}", "", "mrope"},
    {"mistral", "{\"rope_theta\": 0}", "", "rope_theta"},
    {"mistral", "{\"rope_theta\": -1}", "", "rope_theta"},
    {"mistral", "{\"rope_theta\": 1e39}", "", "rope_theta"},
    {"mistral", "{\"rope_theta\": 1e-60}", "", "rope_theta"},
    {"mistral", "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 1e308}}", "", "factor"},
    {"mistral", "", "num_attention_heads", "num_attention_heads"},
    {"qwen2", "{\"hidden_act\": \"relu\"}", "", "hidden_act"},
    {"qwen2", "{\"max_window_layers\": -1}", "", "max_window_layers"},
    {"qwen2", "{\"use_sliding_window\": 1}", "", "use_sliding_window"},
    {"qwen2", "{\"layer_types\": 5}", "", "layer_types"},
    {"qwen2", "{\"layer_types\": []}", "", "layer_types"},
    {"qwen2", "{\"layer_types\": [\"full_attention\", 7, \"full_attention\"]}", "",
     "layer_types[1]"},
    {"qwen2", "{\"layer_types\": [\"full_attention\", \"full_attention\", \"chunked_attention\"]}",
     "", "chunked_attention"},
    {"qwen2", "{\"layer_types\": [\"full_attention\", \"full_attention\", \"sliding_attention\"]}",
     "", "sliding_window"},
    {"qwen3", "{\"attention_bias\": true}", "", "attention_bias"},
    {"qwen3", "{\"attention_bias\": 0}", "", "attention_bias"},
    {"qwen2", "{\"num_attention_heads\": 48}", "num_key_value_heads", "multiple of 32"},
    {"qwen3", "{\"num_attention_heads\": 48}", "num_key_value_heads", "multiple of 32"},
    {"qwen3", "{\"head_dim\": null}", "", "q_proj"}, /* then the default is 128 */
    {"gemma2", "{\"hidden_activation\": \"gelu\"}", "", "hidden_activation"},
    {"gemma2", "{\"query_pre_attn_scalar\": 0}", "", "query_pre_attn_scalar"},
    {"gemma2", "{\"query_pre_attn_scalar\": -4}", "", "query_pre_attn_scalar"},
    {"gemma2", "{\"query_pre_attn_scalar\": []}", "", "query_pre_attn_scalar"},
    {"gemma2", "{\"attn_logit_softcapping\": 0}", "", "attn_logit_softcapping"},
    {"gemma2", "{\"attn_logit_softcapping\": -50}", "", "attn_logit_softcapping"},
    {"gemma2", "{\"final_logit_softcapping\": 0.0}", "", "final_logit_softcapping"},
    {"gemma2", "{\"final_logit_softcapping\": \"30\"}", "", "final_logit_softcapping"},
    {"gemma2", "{\"attention_bias\": true}", "", "attention_bias"},
    {"gemma2", "{\"use_bidirectional_attention\": true}", "", "use_bidirectional_attention"},
    {"gemma2", "{\"tie_word_embeddings\": false}", "", "lm_head"},
    {"granite", "{\"hidden_act\": \"gelu\"}", "", "hidden_act"},
    {"granite", "{\"embedding_multiplier\": 0}", "", "embedding_multiplier must be above 0, not 0"},
    {"granite", "{\"attention_multiplier\": -1}", "", "attention_multiplier must be above 0"},
    {"granite", "{\"residual_multiplier\": \"1\"}", "", "residual_multiplier"},
    {"granite", "{\"logits_scaling\": 0}", "", "logits_scaling must be above 0"},
    {"granite", "{\"logits_scaling\": 1e39}", "", "logits_scaling"},
    {"olmo2", "{\"hidden_act\": \"gelu\"}", "", "hidden_act"},
    {"olmo2", "{\"attention_bias\": true}", "", "attention_bias"},
    {"olmo2", "", "num_key_value_heads", "k_proj"}, /* as many as query heads are the default */
    {"olmo3", "{\"sliding_window\": null}", "", "sliding_window"},
    {"olmo3", "{\"layer_types\": [\"full_attention\"]}", "", "layer_types"},
    {"olmo3", "{\"rope_parameters\": {\"sliding_attention\": {}}}", "", "full_attention"},
    {"olmo3",
     "{\"rope_parameters\": {\"full_attention\": {}, \"sliding_attention\": {\"rope_theta\": -1}}}",
     "", "rope_theta"},
    {"gemma3", "{\"use_bidirectional_attention\": true}", "", "use_bidirectional_attention"},
    {"gemma3", "{\"sliding_window_pattern\": 0}", "layer_types", "sliding_window_pattern"},
    {"gemma3", "{\"sliding_window_pattern\": -6}", "layer_types", "sliding_window_pattern"},
    {"gemma3", "{\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 8}}", "",
     "full_attention"},
    {"gemma3", "{\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"linear\"}}}", "",
     "factor"},
    {"gemma3", "{\"rope_parameters\": {\"full_attention\": 5}}", "", "rope"},
    {"gemma3",
     "{\"rope_parameters\": {\"full_attention\": {}, \"sliding_attention\": {\"rope_theta\": -1}}}",
     "", "rope_theta"},
    {"gemma3", "{\"rope_local_base_freq\": 0}", "rope_parameters", "rope"},
    {"gemma3", "{\"model_type\": \"gemma3\", \"text_config\": []}", "", "text_config"},
    {"t5", "{\"num_layers\": 0}", "", "num_layers"},
    {"t5", "{\"num_layers\": 5}", "", "encoder.block.2"},
    {"t5", "{\"num_decoder_layers\": 3}", "", "decoder.block.2"},
    {"t5", "{\"num_decoder_layers\": 100000}", "", "num_decoder_layers"},
    {"t5", "{\"d_model\": 0}", "", "d_model"},
    {"t5", "{\"d_kv\": 0}", "", "d_kv"},
    {"t5", "{\"d_kv\": 1024}", "", "needs [4096, 48]"},
    {"t5", "{\"d_ff\": -1}", "", "d_ff"},
    {"t5", "{\"num_heads\": 0}", "", "num_heads"},
    {"t5", "{\"relative_attention_num_buckets\": 0}", "", "relative_attention_num_buckets"},
    {"t5", "{\"relative_attention_num_buckets\": 17}", "", "relative_attention_bias"},
    {"t5", "{\"relative_attention_num_buckets\": 2000000000}", "",
     "relative_attention_num_buckets"},
    {"t5", "{\"relative_attention_max_distance\": 0}", "", "relative_attention_max_distance"},
    {"t5", "{\"relative_attention_max_distance\": 4}", "", "relative_attention_max_distance"},
    {"t5", "{\"relative_attention_max_distance\": 4000000000}", "",
     "relative_attention_max_distance"},
    {"t5", "{\"decoder_start_token_id\": -7}", "", "decoder_start_token_id"},
    {"t5", "{\"layer_norm_epsilon\": -1}", "", "layer_norm_epsilon"},
    {"t5", "{\"feed_forward_proj\": \"gated-swish\"}", "", "feed_forward_proj"},
    {"t5", "{\"feed_forward_proj\": \"gated-gelu\"}", "", "wi_1"},
    {"t5", "{\"vocab_size\": 100}", "", "shared"},
    {"t5", "{\"n_positions\": 0}", "", "n_positions"},
};
/* Cases for every family. */
static const struct {
    const char *change, *word;
} hostile[] = {
    {"{\"num_hidden_layers\": 0}", "num_hidden_layers"},
    {"{\"num_hidden_layers\": 513}", "num_hidden_layers"},
    {"{\"num_hidden_layers\": 1000000000000}", "num_hidden_layers"},
    {"{\"num_hidden_layers\": 500, \"layer_types\": null}", "layers."},
    {"{\"num_attention_heads\": 0}", "num_attention_heads"},
    {"{\"num_attention_heads\": 5}", ""},
    {"{\"num_key_value_heads\": 0}", "num_key_value_heads"},
    {"{\"num_key_value_heads\": 1024}", "multiple"},
    {"{\"head_dim\": 0}", "head_dim"},
    {"{\"head_dim\": 6}", "proj"},
    {"{\"head_dim\": 1048576}", "head_dim"},
    {"{\"hidden_size\": 0}", "hidden_size"},
    {"{\"hidden_size\": 131073}", "hidden_size"},
    {"{\"hidden_size\": 47, \"head_dim\": 8}", "embed"},
    {"{\"intermediate_size\": 1}", "proj"},
    {"{\"vocab_size\": 1}", "embed"},
    {"{\"rms_norm_eps\": -1e-6}", "rms_norm_eps"},
    {"{\"rms_norm_eps\": 1e39}", "rms_norm_eps"},
    {"{\"max_position_embeddings\": -1}", "max_position_embeddings"},
    {"{\"partial_rotary_factor\": 0.01}", "rot"},
    {"{\"partial_rotary_factor\": 2}", "partial_rotary_factor"},
};

static void refusals(void **state)
{
    static const char *const all[] = {"mistral", "qwen2",   "qwen3", "gemma2",
                                      "gemma3",  "granite", "olmo2", "olmo3"};
    (void)state;
    for (size_t i = 0; i < countof(refused); i++)
        must_refuse(refused[i].model, refused[i].change, refused[i].drop, refused[i].word);
    for (size_t i = 0; i < countof(all); i++)
        for (size_t k = 0; k < countof(hostile); k++)
            must_refuse(all[i], hostile[k].change, "", hostile[k].word);
}

/* An error names the file, the key, what is expected and what was found. */
static const struct {
    const char *model, *change, *sentence;
} sentences[] = {
    {"mistral", "{\"sliding_window\": 0}",
     "\"sliding_window\" must be an integer from 1 to 1073741824, not 0"},
    {"mistral", "{\"num_hidden_layers\": \"2\"}",
     "\"num_hidden_layers\" must be an integer from 1 to 512, not the string \"2\""},
    {"mistral", "{\"hidden_size\": 48.5}",
     "\"hidden_size\" must be an integer from 1 to 131072, not 48.5"},
    {"mistral", "{\"rope_theta\": true}", "\"rope_theta\" must be a number, not true"},
    {"mistral", "{\"rope_theta\": -1}", "\"rope_theta\" must be a positive number, not -1"},
    {"mistral", "{\"rms_norm_eps\": [1, 2]}", "\"rms_norm_eps\" must be a number, not a list of 2"},
    {"mistral", "{\"rms_norm_eps\": -0.5}", "rms_norm_eps must not be negative, but is -0.5"},
    {"mistral", "{\"hidden_act\": 1}", "\"hidden_act\" must be a string (without NUL), not 1"},
    {"mistral", "{\"hidden_act\": \"gelu\"}",
     "hidden_act is \"gelu\", but mistral supports only \"silu\""},
    {"mistral", "{\"tie_word_embeddings\": {\"a\": 1}}",
     "\"tie_word_embeddings\" must be true or false, not an object with 1 keys"},
    {"mistral", "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": \"8\"}}",
     "\"factor\" must be a number, not the string \"8\""},
    {"mistral", "{\"partial_rotary_factor\": 2}",
     "partial_rotary_factor must be above 0 and at most 1, not 2"},
    {"qwen2", "{\"use_sliding_window\": 1}", "\"use_sliding_window\" must be true or false, not 1"},
    {"qwen2", "{\"layer_types\": 5}",
     "layer_types must be a list of 3 strings, one for each layer, not 5"},
    {"qwen3", "{\"attention_bias\": null, \"num_attention_heads\": -4}",
     "\"num_attention_heads\" must be an integer from 1 to 1024, not -4"},
    {"gemma2", "{\"query_pre_attn_scalar\": 0}", "query_pre_attn_scalar must be above 0, not 0"},
    {"gemma2", "{\"final_logit_softcapping\": -3}",
     "final_logit_softcapping must be above 0, or null, not -3"},
    {"gemma3", "{\"text_config\": []}", "text_config must be an object, not a list of 0"},
};

static void whole_sentences(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(sentences); i++) {
        struct model *m;
        char want[400];
        make(changed(sentences[i].model, sentences[i].change, ""));
        if (model_open(dir, &m) >= 0) fail_msg("%s: opened", sentences[i].change);
        snprintf(want, sizeof want, "%s/config.json: %s", dir, sentences[i].sentence);
        assert_string_equal(err_last(), want);
    }
}

#define OLD_ROPE                                                                                   \
    "\"rope_theta\": 1000000, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 8.0}"
#define YARN "{\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 32}"
static const struct {
    const char *model, *change, *drop;
    bool same;
} spellings[] = {
    /* defaults of the configuration classes */
    {"phi3", "", "rms_norm_eps", true},
    {"mixtral", "", "rms_norm_eps", true},
    {"gpt-oss", "", "rms_norm_eps", true},
    {"llama4", "", "rms_norm_eps", true},
    {"llama-bf16", "", "rms_norm_eps", true},
    {"llama-mha", "", "rms_norm_eps", false},
    {"jamba", "", "rms_norm_eps", true},
    {"zamba2", "", "rms_norm_eps", true},
    {"gpt2", "", "layer_norm_epsilon", true},
    {"mamba", "", "layer_norm_epsilon", true},
    {"mistral", "{\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000}}",
     "rope_theta", true},
    {"mistral", "", "rope_theta hidden_act", true},
    {"mistral", "{\"rope_theta\": 20000}", "", false},
    {"mistral", "{\"sliding_window\": null}", "", false},
    {"qwen2", "{\"rope_parameters\": {\"rope_theta\": 1000000}}", "rope_theta rope_scaling", true},
    {"qwen2-f16", "{\"rope_theta\": 1e6, \"rope_scaling\": null}", "rope_parameters layer_types",
     true},
    {"qwen3", "{\"rope_theta\": 1e6}", "rope_parameters layer_types attention_bias", true},
    {"gemma2", "{\"query_pre_attn_scalar\": 16.0}", "hidden_activation rope_theta", true},
    {"gemma2", "{\"tie_word_embeddings\": true, \"layer_types\": null}", "", true},
    {"gemma2", "{\"query_pre_attn_scalar\": 20}", "", false},
    {"gemma2", "{\"attn_logit_softcapping\": null}", "", false},
    {"gemma2", "{\"final_logit_softcapping\": null}", "", false},
    {"gemma2", "", "attn_logit_softcapping", false},
    {"gemma2", "", "final_logit_softcapping", false},
    {"granite", "{\"rope_theta\": 10000}", "rope_parameters rms_norm_eps hidden_act", true},
    {"granite", "", "embedding_multiplier", false},
    {"granite", "", "attention_multiplier", false},
    {"granite", "", "residual_multiplier", false},
    {"granite", "", "logits_scaling", false},
    {"olmo2", "{\"rope_theta\": 10000}", "rope_parameters rms_norm_eps hidden_act", true},
    {"olmo2", "{\"layer_types\": 5}", "tie_word_embeddings attention_bias", true}, /* not read */
    {"olmo3", "{\"rope_theta\": 5e5, \"rope_scaling\": " YARN "}", "rope_parameters layer_types",
     true},
    {"olmo3", "{\"rope_scaling\": " YARN "}", "rope_parameters rms_norm_eps", true},
    {"olmo3", "{\"rope_theta\": 2e4, \"rope_scaling\": " YARN "}", "rope_parameters", false},
    {"olmo3", "{\"rope_parameters\": {\"full_attention\": " YARN "}}", "", true},
    {"olmo3", "{\"rope_theta\": 5e5}", "rope_parameters", false}, /* without the stretch */
    {"olmo3", "", "attention_bias", false},
    {"gemma3", "{" OLD_ROPE ", \"sliding_window_pattern\": 6}",
     "rope_parameters layer_types _sliding_window_pattern", true},
    {"gemma3", "{" OLD_ROPE ", \"rope_local_base_freq\": 10000.0}", "rope_parameters", true},
    {"gemma3", "{" OLD_ROPE ", \"rope_local_base_freq\": 20000.0}", "rope_parameters", false},
    {"gemma3",
     "{\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"linear\", \"factor\": 8}}}", "",
     true},
    {"gemma3", "{\"rope_parameters\": {\"full_attention\": {}}}", "", false},
    {"gemma3", "{\"attn_logit_softcapping\": 2.0}", "", true}, /* Transformers ignores the key */
    {"gemma3", "{\"final_logit_softcapping\": 2.0}", "", false},
};

static void other_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(spellings); i++) {
        make(changed(spellings[i].model, spellings[i].change, spellings[i].drop));
        compare(spellings[i].model, spellings[i].change, spellings[i].same);
    }
}

/* With a window of one token a token sees only itself, so the tokens before it cannot matter. */
static void window_of_one(void **state)
{
    (void)state;
    make(changed("mistral", "{\"sliding_window\": 1}", ""));
    float *all = logits(dir, "window 1", 0), *last = logits(dir, "window 1, one token", 59);
    assert_memory_equal(all, last, 384 * sizeof *all);
    free(all);
    free(last);
}

/* The text part of a model of text and images has its keys in text_config and its tensors under
 * another name. */
static void text_of_images(void **state)
{
    static const char *const prefix[] = {"language_model.model.", "model.language_model."};
    (void)state;
    for (size_t i = 0; i < countof(prefix); i++) {
        make(
            json_pack("{s:s, s:o, s:i}", "model_type", "gemma3", "text_config",
                      changed("gemma3", "{\"model_type\": \"gemma3_text\"}", "num_key_value_heads"),
                      "num_hidden_layers", 0));
        struct model *m = NULL;
        assert_true(model_open(dir, &m) < 0); /* the default is 4 kv heads */
        assert_non_null(strstr(err_last(), "k_proj"));

        json_t *text = changed("gemma3", "", "");
        make(json_pack("{s:s, s:o}", "model_type", "gemma3", "text_config", text));
        char path[512], *data, *out, *at;
        size_t n, k = 8;
        snprintf(path, sizeof path, "%s/model.safetensors", source);
        assert_int_equal(file_read(path, 1 << 24, &data, &n), 0);
        uint64_t head;
        memcpy(&head, data, 8);
        out = calloc(2, n);
        for (at = data + 8; at < data + 8 + head;) {
            if (strncmp(at, "\"model.", 7) == 0) {
                k += (size_t)sprintf(out + k, "\"%s", prefix[i]);
                at += 7;
            } else {
                out[k++] = *at++;
            }
        }
        for (; k % 8; k++)
            out[k] = ' ';
        uint64_t now = k - 8;
        memcpy(out, &now, 8);
        memcpy(out + k, data + 8 + head, n - 8 - head);
        snprintf(path, sizeof path, "%s/model.safetensors", dir);
        unlink(path);
        assert_int_equal(file_write(path, out, k + n - 8 - head), 0);
        free(out);
        mem_free(data);
        compare("gemma3", prefix[i], true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layer_windows),  cmocka_unit_test(refusals),
        cmocka_unit_test(other_words),    cmocka_unit_test(window_of_one),
        cmocka_unit_test(text_of_images), cmocka_unit_test(whole_sentences),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

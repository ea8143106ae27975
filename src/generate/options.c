/* options.c - the one option table.  kvik_generation_set, the command's options and --help, and the bindings
 * all read it; names, types, ranges and defaults are those of the reference (v5).  Below it stand the names of the
 * reference that this version knows but does not do: they are accepted at the value that changes nothing and
 * refused by name otherwise, never silently ignored. */
#include "generate/options.h"
#include "base/near.h"

#include <string.h>

#define U32 4294967295.0
#define OPTION_MAP(X)                                                                              \
    X(max_new_tokens, "uint", OPT_UINT, "", 1, U32, NULL,                                          \
      "tokens to generate, without the prompt; wins over max_length (neither set: 20)")            \
    X(max_length, "uint", OPT_UINT, "", 1, U32, NULL, "tokens of prompt and answer together")      \
    X(min_new_tokens, "uint", OPT_UINT, "0", 0, U32, NULL,                                         \
      "no end-of-sequence token before this many new tokens")                                      \
    X(min_length, "uint", OPT_UINT, "0", 0, U32, NULL,                                             \
      "no end-of-sequence token before this many tokens, prompt included")                         \
    X(do_sample, "bool", OPT_BOOL, "false", 0, 1, NULL,                                            \
      "draw the next token; false: always the most likely one")                                    \
    X(temperature, "float", OPT_FLOAT, "1", 0, 1e6, NULL,                                          \
      "divides the logits when sampling; below 1 sharper, above 1 flatter")                        \
    X(top_k, "uint", OPT_UINT, "50", 0, U32, NULL,                                                 \
      "draw from the k most likely tokens; 0: from all")                                           \
    X(top_p, "float", OPT_FLOAT, "1", 0, 1, NULL,                                                  \
      "draw from the smallest set of tokens that reaches this probability")                        \
    X(min_p, "float", OPT_FLOAT, "0", 0, 1, NULL,                                                  \
      "leave out tokens below this share of the most likely one's probability")                    \
    X(repetition_penalty, "float", OPT_FLOAT, "1", 1e-6, 1e6, NULL,                                \
      "above 1 makes tokens already in the text less likely")                                      \
    X(num_beams, "uint", OPT_UINT, "1", 1, 65536, NULL,                                            \
      "above 1: search with this many beams; the cache holds what they share once")                \
    X(num_return_sequences, "uint", OPT_UINT, "1", 1, 65536, NULL,                                 \
      "answers for each prompt: the best beams, or so many samples")                               \
    X(length_penalty, "float", OPT_FLOAT, "1", -1e3, 1e3, NULL,                                    \
      "beams: divide scores by length to this power; above 0 favours longer answers")              \
    X(early_stopping, "choice", OPT_EARLY, "false", 0, 0, "false|true|never",                      \
      "beams: end when num_beams answers are complete (true), when none better is likely "         \
      "(false), when none better is possible (never)")                                             \
    X(seed, "uint", OPT_SEED, "0", 0, 9223372036854775807.0, NULL,                                 \
      "seed of sampling; the same seed gives the same text")                                       \
    X(eos_token_id, "ids", OPT_IDS, "", 0, 2147483647.0, NULL,                                     \
      "token or tokens that end a text; an empty list: none")                                      \
    X(pad_token_id, "int", OPT_INT, "", -1, 2147483647.0, NULL,                                    \
      "fills rows that have ended, in the output; -1: none")                                       \
    X(bos_token_id, "int", OPT_INT, "", -1, 2147483647.0, NULL,                                    \
      "token that begins a text; -1: none")                                                        \
    X(stop_strings, "strings", OPT_STRINGS, "", 0, 0, NULL,                                        \
      "text or texts that end the answer; kept at its end")                                        \
    X(prefill_chunk_size, "uint", OPT_UINT, "", 1, U32, NULL,                                      \
      "feed the prompt in pieces of this many tokens; the result is the same")                     \
    X(use_cache, "bool", OPT_BOOL, "true", 0, 1, NULL,                                             \
      "false: compute the whole text again for every token")                                       \
    X(output_logits, "bool", OPT_BOOL, "false", 0, 1, NULL,                                        \
      "keep the raw logits of every step in the result")                                           \
    X(cache_implementation, "string", OPT_STRING, "dynamic", 0, 0,                                 \
      "dynamic|static|offloaded|offloaded_static|quantized|sliding_window|hybrid|hybrid_chunked|"  \
      "offloaded_hybrid|offloaded_hybrid_chunked|sink",                                            \
      "how the past is kept: dynamic grows as needed, static reserves max_cache_len first, "       \
      "offloaded streams from disk, quantized keeps few bits, sink only the first and the last")   \
    X(cache_config, "json", OPT_JSON, "", 0, 0, NULL,                                              \
      "settings of any cache as a JSON object: max_cache_len (strict), sliding_window, "           \
      "window_length with num_sink_tokens, backend, nbits, axis_key, axis_value, q_group_size, "   \
      "residual_length, offloading, offload_only_non_sliding")                                     \
    X(max_cache_len, "uint", OPT_UINT, "", 1, U32, NULL,                                           \
      "tokens a static cache reserves; raised to what the text needs")

static const kvik_option table[] = {
#define OPTION_ROW(n, type, kind, def, lo, hi, choices, help)                                      \
    {#n, type, def, lo, hi, choices, help},
    OPTION_MAP(OPTION_ROW)
#undef OPTION_ROW
};
static const struct option_slot slots[] = {
#define OPTION_SLOT(n, type, kind, def, lo, hi, choices, help) {kind, offsetof(kvik_generation, n)},
    OPTION_MAP(OPTION_SLOT)
#undef OPTION_SLOT
};

static const struct option_neutral neutrals[] = {
    {"num_beam_groups", "1"},
    {"diversity_penalty", "0"},
    {"penalty_alpha", "0"},
    {"typical_p", "1"},
    {"top_h", "null"},
    {"epsilon_cutoff", "0"},
    {"eta_cutoff", "0"},
    {"no_repeat_ngram_size", "0"},
    {"encoder_no_repeat_ngram_size", "0"},
    {"encoder_repetition_penalty", "1"},
    {"bad_words_ids", "[]"},
    {"force_words_ids", "[]"},
    {"constraints", "[]"},
    {"sequence_bias", "[]"},
    {"suppress_tokens", "[]"},
    {"begin_suppress_tokens", "[]"},
    {"forced_bos_token_id", "null"},
    {"forced_eos_token_id", "null"},
    {"exponential_decay_length_penalty", "null"},
    {"guidance_scale", "1"},
    {"watermarking_config", "null"},
    {"renormalize_logits", "false"},
    {"remove_invalid_values", "false"},
    {"token_healing", "false"},
    {"max_time", "null"},
    {"output_attentions", "false"},
    {"output_hidden_states", "false"},
    {"output_scores", "false"},
    {"prompt_lookup_num_tokens", "null"},
    {"assistant_early_exit", "null"},
    {"dola_layers", "null"},
    {"use_mtp", "false"},
    {"custom_generate", "null"},
    {"continuous_batching_config", "null"},
    /* Of features refused above, of the file, or of how the reference compiles and returns. */
    {"low_memory", NULL},
    {"is_assistant", NULL},
    {"num_assistant_tokens", NULL},
    {"num_assistant_tokens_schedule", NULL},
    {"assistant_confidence_threshold", NULL},
    {"assistant_ensemble_weight", NULL},
    {"assistant_lookbehind", NULL},
    {"target_lookbehind", NULL},
    {"max_matching_ngram_size", NULL},
    {"decoder_start_token_id", NULL},
    {"return_dict_in_generate", NULL},
    {"return_legacy_cache", NULL},
    {"disable_compile", NULL},
    {"compile_config", NULL},
    {"trust_remote_code", NULL},
    {"transformers_version", NULL},
    {"_from_model_config", NULL},
    {"_commit_hash", NULL},
    {"generation_kwargs", NULL},
};

const char *const option_cache_others[] = {"mamba",           "jamba", "zamba",
                                           "encoder_decoder", "paged", NULL};

const kvik_option *kvik_options(uint32_t *n)
{
    if (n) *n = countof(table);
    return table;
}

static bool same(const char *a, const char *b)
{
    for (; *a || *b; a++, b++)
        if ((*a == '-' ? '_' : *a) != (*b == '-' ? '_' : *b)) return false;
    return true;
}

int option_find(const char *name)
{
    for (size_t i = 0; i < countof(table); i++)
        if (same(name, table[i].name)) return (int)i;
    return -1;
}

const struct option_slot *option_slot_at(int i)
{
    return &slots[i];
}

const struct option_neutral *option_neutral_find(const char *name)
{
    for (size_t i = 0; i < countof(neutrals); i++)
        if (same(name, neutrals[i].name)) return &neutrals[i];
    return NULL;
}

const char *kvik_option_nearest(const char *name)
{
    struct near n;
    near_begin(&n, name);
    for (size_t i = 0; i < countof(table); i++)
        near_try(&n, table[i].name);
    return n.best;
}

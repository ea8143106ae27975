/* options.c - the one table of options.  kvik_generation_set, the command's options and --help, the pages of
 * options and the defaults of kvik_generation all read it.  Names, types, ranges and defaults are those of
 * Transformers v5.
 *
 * Below the table stand names of Transformers that this version knows but does not implement.  Each is accepted at
 * the value that has no effect and refused by name otherwise.  None is silently ignored. */
#include "generate/options.h"
#include "base/near.h"

#include <string.h>

#define U32    4294967295.0
#define ID_MAX 2147483647.0

/* X(group, name, field, kind, default, min, max, choices, help).  An empty default means 0, or no owned memory. */
#define OPTIONS_LENGTH(X)                                                                          \
    X("length", max_new_tokens, max_new_tokens, UINT, , 1, U32, NULL,                              \
      "tokens to generate, without the prompt; wins over max_length; with neither "                \
      "set: 20")                                                                                   \
    X("length", max_length, max_length, UINT, , 1, U32, NULL,                                      \
      "tokens of the prompt and the answer together")                                              \
    X("length", min_new_tokens, min_new_tokens, UINT, 0, 0, U32, NULL,                             \
      "ban end-of-sequence tokens before this many new tokens")                                    \
    X("length", min_length, min_length, UINT, 0, 0, U32, NULL,                                     \
      "ban end-of-sequence tokens before this many tokens, prompt included")                       \
    X("length", max_time, max_time, FLOAT, 0, 0, 1e9, NULL,                                        \
      "seconds after which generation stops with the current token; 0: no limit")                  \
    X("length", eos_token_id, eos_token_id, IDS, , 0, ID_MAX, NULL,                                \
      "end-of-sequence token, or several; an empty list: none")                                    \
    X("length", stop_strings, stop_strings, STRINGS, , 0, 0, NULL,                                 \
      "one text or several that end the answer")                                                   \
    X("length", include_stop_str_in_output, include_stop_str_in_output, BOOL, true, 0, 1, NULL,    \
      "false: the text ends before the stop string, and a stream holds back what may begin one")   \
    X("length", pad_token_id, pad_token_id, INT, -1, -1, ID_MAX, NULL,                             \
      "token that fills finished rows in the output; -1: none")                                    \
    X("length", bos_token_id, bos_token_id, INT, -1, -1, ID_MAX, NULL,                             \
      "token that begins a text; -1: none")                                                        \
    X("length", decoder_start_token_id, decoder_start_token_id, INT, -1, -1, ID_MAX, NULL,         \
      "token that begins the decoder's text, in models with an encoder; -1: the model's own")

#define OPTIONS_SAMPLING(X)                                                                        \
    X("sampling", do_sample, do_sample, BOOL, false, 0, 1, NULL,                                   \
      "draw the next token at random; false: always take the most likely token")                   \
    X("sampling", seed, seed, SEED, 0, 0, 9223372036854775807.0, NULL,                             \
      "seed of sampling; the same seed gives the same text")                                       \
    X("sampling", temperature, temperature, FLOAT, 1, 0, 1e6, NULL,                                \
      "divides the logits when sampling; below 1: sharper, above 1: flatter")                      \
    X("sampling", top_h, top_h, FLOAT, 0, 0, 1, NULL,                                              \
      "draw from the likeliest of the 100 most likely tokens, as many as hold this "               \
      "share of the entropy of the 100; 0: off")                                                   \
    X("sampling", top_k, top_k, UINT, 50, 0, U32, NULL,                                            \
      "draw from the k most likely tokens; 0: from all")                                           \
    X("sampling", top_p, top_p, FLOAT, 1, 0, 1, NULL,                                              \
      "draw from the smallest set of tokens that reaches this probability")                        \
    X("sampling", min_p, min_p, FLOAT, 0, 0, 1, NULL,                                              \
      "remove tokens below this share of the probability of the most likely token")                \
    X("sampling", top_n_sigma, top_n_sigma, FLOAT, 0, 0, 1e6, NULL,                                \
      "remove tokens whose logit is more than so many standard deviations of all logits below "    \
      "the best; 0: off")                                                                          \
    X("sampling", xtc_probability, xtc_probability, FLOAT, 0, 0, 1, NULL,                          \
      "how often all likely tokens but the least likely of them are removed; 0: off")              \
    X("sampling", xtc_threshold, xtc_threshold, FLOAT, 0.1, 0, 1, NULL,                            \
      "the probability from which on xtc_probability takes a token for likely; above 0.5: off")    \
    X("sampling", typical_p, typical_p, FLOAT, 1, 1e-6, 1, NULL,                                   \
      "draw from the tokens whose surprise is nearest to the expected one, as many as "            \
      "have this probability together; 1: off")                                                    \
    X("sampling", epsilon_cutoff, epsilon_cutoff, FLOAT, 0, 0, 1, NULL,                            \
      "remove tokens below this probability; 0: off")                                              \
    X("sampling", eta_cutoff, eta_cutoff, FLOAT, 0, 0, 1, NULL,                                    \
      "like epsilon_cutoff, but less strict where many tokens are plausible; 0: off")

#define OPTIONS_SCORES(X)                                                                          \
    X("scores", repetition_penalty, repetition_penalty, FLOAT, 1, 1e-6, 1e6, NULL,                 \
      "above 1: tokens that are already in the text become less likely")                           \
    X("scores", encoder_repetition_penalty, encoder_repetition_penalty, FLOAT, 1, 1e-6, 1e6, NULL, \
      "above 1: tokens of the prompt, or of the encoder's input, become more likely")              \
    X("scores", no_repeat_ngram_size, no_repeat_ngram_size, UINT, 0, 0, U32, NULL,                 \
      "ban every sequence of this many tokens that the text already has; 0: off")                  \
    X("scores", encoder_no_repeat_ngram_size, encoder_no_repeat_ngram_size, UINT, 0, 0, U32, NULL, \
      "ban every sequence of this many tokens that the prompt, or the encoder's input, has; "      \
      "0: off")                                                                                    \
    X("scores", sequence_bias, sequence_bias, BIASES, , 0, 0, NULL,                                \
      "adds to the score of token sequences: [[[5], -2.0], [[7, 8], 1.5]]")                        \
    X("scores", bad_words_ids, bad_words_ids, LISTS, , 0, 0, NULL,                                 \
      "token sequences to ban: [[5], [7, 8]]")                                                     \
    X("scores", suppress_tokens, suppress_tokens, ID_LIST, , 0, ID_MAX, NULL, "tokens to ban")     \
    X("scores", begin_suppress_tokens, begin_suppress_tokens, ID_LIST, , 0, ID_MAX, NULL,          \
      "tokens to ban as the first generated token")                                                \
    X("scores", forced_bos_token_id, forced_bos_token_id, INT, -1, -1, ID_MAX, NULL,               \
      "the token to put after a prompt of one token; -1: none")                                    \
    X("scores", forced_eos_token_id, forced_eos_token_id, IDS, , 0, ID_MAX, NULL,                  \
      "the last token of a text that reaches its maximum length; with several, any "               \
      "of them")                                                                                   \
    X("scores", exponential_decay_length_penalty, decay_start, DECAY, , 0, U32, NULL,              \
      "[START, FACTOR]: after START new tokens the end becomes likelier by FACTOR "                \
      "with every token")                                                                          \
    X("scores", guidance_scale, guidance_scale, FLOAT, 1, -1e6, 1e6, NULL,                         \
      "above 1: follow the prompt more closely than negative_prompt_ids; 1: off")                  \
    X("scores", negative_prompt_ids, negative_prompt_ids, ID_LIST, , 0, ID_MAX, NULL,              \
      "the prompt that guidance_scale leads away from; none: the last token of the "               \
      "prompt")                                                                                    \
    X("scores", negative_prompt_attention_mask, negative_prompt_ids, MASK, , 0, 1, NULL,           \
      "zeros hide tokens of negative_prompt_ids")                                                  \
    X("scores", remove_invalid_values, remove_invalid_values, BOOL, false, 0, 1, NULL,             \
      "replace scores that are NaN by 0, and infinite scores by finite ones")                      \
    X("scores", json_schema, json_schema, SCHEMA, , 0, 0, NULL,                                    \
      "JSON Schema that the answer is valid under; \"json_object\": any JSON object")              \
    X("scores", renormalize_logits, renormalize_logits, BOOL, false, 0, 1, NULL,                   \
      "make the scores log-probabilities again after all other changes")

#define OPTIONS_SEARCH(X)                                                                          \
    X("search", num_beams, num_beams, UINT, 1, 1, 65536, NULL,                                     \
      "above 1: beam search with this many beams; the cache holds their common rows "              \
      "once")                                                                                      \
    X("search", num_return_sequences, num_return_sequences, UINT, 1, 1, 65536, NULL,               \
      "answers for each prompt: the best beams, or this many samples")                             \
    X("search", length_penalty, length_penalty, FLOAT, 1, -1e3, 1e3, NULL,                         \
      "beams: divide scores by length to this power; above 0 favours longer answers")              \
    X("search", early_stopping, early_stopping, EARLY, false, 0, 0, "false|true|never",            \
      "when a beam search ends. true: when num_beams answers are complete; false: when a "         \
      "better one is unlikely; never: when a better one is impossible")                            \
    X("search", num_beam_groups, num_beam_groups, UINT, 1, 1, 65536, NULL,                         \
      "divide the beams into this many groups, which diversity_penalty keeps apart")               \
    X("search", diversity_penalty, diversity_penalty, FLOAT, 0, 0, 1e6, NULL,                      \
      "groups of beams: subtracted from the score of a token, once for each beam of an "           \
      "earlier group that has chosen this token in the same step")                                 \
    X("search", penalty_alpha, penalty_alpha, FLOAT, 0, 0, 1, NULL,                                \
      "above 0: contrastive search among the top_k tokens, with this weight on being "             \
      "unlike the text so far")

#define OPTIONS_SPECULATION(X)                                                                     \
    X("speculation", prompt_lookup_num_tokens, prompt_lookup_num_tokens, UINT, 0, 0, 65536, NULL,  \
      "draft up to this many tokens at once from matching earlier text, and keep the "             \
      "accepted ones; 0: off")                                                                     \
    X("speculation", max_matching_ngram_size, max_matching_ngram_size, UINT, 2, 1, 65536, NULL,    \
      "the longest match that prompt_lookup_num_tokens searches for")                              \
    X("speculation", num_assistant_tokens, num_assistant_tokens, UINT, 20, 1, 65536, NULL,         \
      "tokens that an assistant model drafts at once")                                             \
    X("speculation", num_assistant_tokens_schedule, num_assistant_tokens_schedule, NAME, constant, \
      0, 0, "constant|heuristic|heuristic_transient",                                              \
      "how num_assistant_tokens changes. constant: never; heuristic: it grows when all "           \
      "drafts are accepted and shrinks otherwise; heuristic_transient: the same, and "             \
      "each call begins with the given value")                                                     \
    X("speculation", assistant_confidence_threshold, assistant_confidence_threshold, FLOAT, 0.4,   \
      0, 1, NULL, "the assistant stops drafting when its token is less probable than this")

#define OPTIONS_CACHE(X)                                                                           \
    X("cache", use_cache, use_cache, BOOL, true, 0, 1, NULL,                                       \
      "false: recompute the whole text for every token")                                           \
    X("cache", cache_implementation, cache_implementation, CACHE, dynamic, 0, 0,                   \
      "dynamic|static|offloaded|offloaded_static|quantized|sliding_window|hybrid|h"                \
      "ybrid_chunked|offloaded_hybrid|offloaded_hybrid_chunked|sink",                              \
      "how the cache stores the past. dynamic: grows as needed; static: reserves "                 \
      "memory for max_cache_len tokens; offloaded: streams from disk; quantized: stores "          \
      "few bits; sink: keeps the first and the last tokens alone")                                 \
    X("cache", cache_config, cache_config, CACHE_CONFIG, , 0, 0, NULL,                             \
      "settings of any cache as a JSON object: max_cache_len (strict), "                           \
      "sliding_window, window_length with num_sink_tokens, backend, nbits, k_bits, "               \
      "v_bits, max_kld, layers, axis_key, axis_value, q_group_size, residual_length, "             \
      "offloading, offload_only_non_sliding, moved_chunks")                                        \
    X("cache", cross_cache_implementation, cross_cache_implementation, CACHE, , 0, 0,              \
      "dynamic|static|offloaded|quantized",                                                        \
      "how the rows of an encoder are stored, in models with one; none: as they were computed")    \
    X("cache", cross_cache_config, cross_cache_config, CACHE_CONFIG, , 0, 0, NULL,                 \
      "settings of the encoder's rows as a JSON object: backend, nbits, axis_key, axis_value, "    \
      "q_group_size, residual_length, offloading")                                                 \
    X("cache", max_encoder_len, max_encoder_len, UINT, , 0, 1048576, NULL,                         \
      "rows that an encoder's input may have; none: as many as the model was made for")            \
    X("cache", max_cache_len, max_cache_len, UINT, , 1, U32, NULL,                                 \
      "tokens that a static cache reserves; raised to what the text needs")                        \
    X("cache", prefill_chunk_size, prefill_chunk_size, UINT, , 1, U32, NULL,                       \
      "prefill the prompt in chunks of this many tokens; the result is the same")                  \
    X("cache", disable_compile, disable_compile, BOOL, false, 0, 1, NULL,                          \
      "accepted without effect: kvik compiles nothing")                                            \
    X("cache", compile_config, compile_config, OBJECT, , 0, 0, NULL,                               \
      "accepted without effect, like disable_compile")

#define OPTIONS_RESULTS(X)                                                                         \
    X("results", output_logits, output_logits, BOOL, false, 0, 1, NULL,                            \
      "return the raw logits of every step")                                                       \
    X("results", output_scores, output_scores, BOOL, false, 0, 1, NULL,                            \
      "return the processed scores of every step")                                                 \
    X("results", return_dict_in_generate, return_dict_in_generate, BOOL, false, 0, 1, NULL,        \
      "return the cache along with the tokens")                                                    \
    X("results", return_legacy_cache, return_legacy_cache, BOOL, false, 0, 1, NULL,                \
      "return the rows of the cache as arrays")

#define OPTION_MAP(X)                                                                              \
    OPTIONS_LENGTH(X)                                                                              \
    OPTIONS_SAMPLING(X)                                                                            \
    OPTIONS_SCORES(X) OPTIONS_SEARCH(X) OPTIONS_SPECULATION(X) OPTIONS_CACHE(X) OPTIONS_RESULTS(X)

/* The type of each kind, as kvik_option names it. */
#define TYPE_BOOL         "bool"
#define TYPE_UINT         "uint"
#define TYPE_SEED         "uint"
#define TYPE_INT          "int"
#define TYPE_FLOAT        "float"
#define TYPE_NAME         "string"
#define TYPE_CACHE        "string"
#define TYPE_STRINGS      "strings"
#define TYPE_IDS          "ids"
#define TYPE_ID_LIST      "ids"
#define TYPE_MASK         "ids"
#define TYPE_LISTS        "lists"
#define TYPE_BIASES       "biases"
#define TYPE_DECAY        "pair"
#define TYPE_EARLY        "choice"
#define TYPE_CACHE_CONFIG "json"
#define TYPE_OBJECT       "json"
#define TYPE_SCHEMA       "schema"

/* The default of each kind as a number.  Kinds that own memory have no number. */
#define VALUE_BOOL(v)         (v + 0)
#define VALUE_UINT(v)         (v + 0)
#define VALUE_SEED(v)         (v + 0)
#define VALUE_INT(v)          (v + 0)
#define VALUE_FLOAT(v)        (v + 0)
#define VALUE_NAME(v)         0
#define VALUE_CACHE(v)        0
#define VALUE_STRINGS(v)      0
#define VALUE_IDS(v)          0
#define VALUE_ID_LIST(v)      0
#define VALUE_MASK(v)         0
#define VALUE_LISTS(v)        0
#define VALUE_BIASES(v)       0
#define VALUE_DECAY(v)        0
#define VALUE_EARLY(v)        (v + 0)
#define VALUE_CACHE_CONFIG(v) 0
#define VALUE_OBJECT(v)       0
#define VALUE_SCHEMA(v)       0

static const kvik_option table[] = {
#define OPTION_ROW(group, n, field, kind, def, lo, hi, choices, help)                              \
    {#n, TYPE_##kind, #def, lo, hi, choices, help, group},
    OPTION_MAP(OPTION_ROW)
#undef OPTION_ROW
};
static const struct option_slot slots[] = {
#define OPTION_SLOT(group, n, field, kind, def, lo, hi, choices, help)                             \
    {OPT_##kind, offsetof(kvik_generation, field), VALUE_##kind(def)},
    OPTION_MAP(OPTION_SLOT)
#undef OPTION_SLOT
};

static const struct option_neutral neutrals[] = {
    {"force_words_ids", "[]"},
    {"constraints", "[]"},
    {"watermarking_config", "null"},
    {"token_healing", "false"},
    {"output_attentions", "false"},
    {"output_hidden_states", "false"},
    {"assistant_early_exit", "null"},
    {"assistant_ensemble_weight", "null"},
    {"dola_layers", "null"},
    {"use_mtp", "false"},
    {"custom_generate", "null"},
    {"continuous_batching_config", "null"},
    /* Names that only matter with a refused feature, that describe the file itself, or that choose how
     * Transformers saves memory. */
    {"low_memory", NULL},
    {"is_assistant", NULL},
    {"assistant_lookbehind", NULL},
    {"target_lookbehind", NULL},
    {"trust_remote_code", NULL},
    {"transformers_version", NULL},
    {"_from_model_config", NULL},
    {"_commit_hash", NULL},
    {"generation_kwargs", NULL},
};

const char *const option_cache_others[] = {"encoder_decoder", "paged", NULL};

const kvik_option *kvik_option_at(uint32_t i)
{
    return i < countof(table) ? &table[i] : NULL;
}

static bool same_name(const char *a, const char *b)
{
    for (; *a || *b; a++, b++)
        if ((*a == '-' ? '_' : *a) != (*b == '-' ? '_' : *b)) return false;
    return true;
}

int option_find(const char *name)
{
    for (size_t i = 0; i < countof(table); i++)
        if (same_name(name, table[i].name)) return (int)i;
    return -1;
}

const struct option_slot *option_slot_at(int i)
{
    return &slots[i];
}

const char *option_default(const char *name)
{
    return table[option_find(name)].fallback;
}

const struct option_neutral *option_neutral_find(const char *name)
{
    for (size_t i = 0; i < countof(neutrals); i++)
        if (same_name(name, neutrals[i].name)) return &neutrals[i];
    return NULL;
}

const char *kvik_option_nearest(const char *name)
{
    struct near n;
    if (!name) {
        (void)ERR(ARG, "the name of an option is NULL");
        return NULL;
    }
    near_begin(&n, name);
    for (size_t i = 0; i < countof(table); i++)
        near_try(&n, table[i].name);
    return n.best;
}

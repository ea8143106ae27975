/* kvik.h - generate with language models; the KV cache is the product.
 *
 * The model in your head: a MODEL is weights, tokenizer and chat template, read-only and shared.  A CACHE
 * is a budgeted block store that holds SEQUENCES; what a sequence has seen is kept as blocks that forks share.
 * FORWARD feeds tokens to sequences and gives logits; GENERATE is the loop over it.  No batch mate, thread
 * count, chunking or place where rows are kept changes a bit of the logits; codecs, windows and sinks do what they say.
 *
 *     kvik_model *m;  kvik_cache *c;  kvik_result *r;
 *     kvik_generation g;
 *     if (kvik_model_open("SmolLM2-135M-Instruct.Q4_1.gguf", &m) < 0) die(kvik_last_error());
 *     if (kvik_cache_open(m, NULL, &c) < 0) die(kvik_last_error());
 *     kvik_generation_init(&g, m);                  // the model's own defaults
 *     g.max_new_tokens = 40;
 *     if (kvik_generate_text(c, &g, "The sea is", &r) < 0) die(kvik_last_error());
 *     puts(r->row[0]->text);
 *     kvik_result_free(r);  kvik_generation_done(&g);  kvik_cache_close(c);  kvik_model_close(m);
 *
 * Conventions.  Functions return 0 (or a count) or a negative code; kvik_last_error() then has a sentence that names
 * the cause and the fix.  Results go through the last pointers, untouched on failure; a failed call leaves every cache as
 * it was.  The library never prints, exits or aborts.  A cache is used by one thread at a time; models and tokenizers
 * may be shared.  Strings are UTF-8.  Option names are those of Hugging Face Transformers.
 *
 * Structs that you allocate begin with `size`, their size as your program was compiled:
 *     kvik_cache_config config = {.size = sizeof config, .threads = 2};
 * (kvik_generation_init sets the size of a kvik_generation.)  Later versions append fields; a program that was compiled
 * before sets a smaller size, so the library takes the defaults of new fields, and writes none of them.  All elements
 * of an array have the same size.  A size of 0 is KVIK_ARG; a field that this library does not know yet is
 * KVIK_UNSUPPORTED unless all its bytes are 0.  Structs that the library allocates may grow as well: it hands out
 * pointers to them.  kvik_bias, kvik_layer_rows and kvik_legacy_layer never change. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#define KVIK_API __attribute__((visibility("default")))

/* ---- Version and errors ------------------------------------------------------------------------------------ */
#define KVIK_VERSION "0.1.0"
KVIK_API const char *kvik_version(void);

enum kvik_error {
    KVIK_NOMEM = -1,
    KVIK_ARG = -2, /* a bad argument or option value */
    KVIK_IO = -3,
    KVIK_FORMAT = -4,      /* a malformed file, template or text */
    KVIK_UNSUPPORTED = -5, /* well-formed, but not something this build does */
    KVIK_FULL = -6,        /* the cache budget (cache_memory) is exhausted */
    KVIK_LIMIT = -7,       /* a limit of the model, of the library, or max_cache_len */
    KVIK_BUSY = -8,
    KVIK_LOST = -9, /* rows needed again are no longer held and have no token ids */
    KVIK_NOTFOUND = -10,
    KVIK_CANCELLED = -11,
    KVIK_STALE = -12 /* a sequence that was dropped */
};
KVIK_API const char *kvik_last_error(void); /* this thread's sentence; valid until its next error */
KVIK_API const char *kvik_error_name(int code);
KVIK_API void kvik_free(void *p); /* strings and arrays the library hands out */

/* ---- Models ------------------------------------------------------------------------------------------------- */
typedef struct kvik_model kvik_model;
/* path: a Hugging Face directory or a .gguf file.  Weights stay memory-mapped; do not change the files. */
KVIK_API int kvik_model_open(const char *path, kvik_model **out);
KVIK_API void kvik_model_close(kvik_model *m); /* after its caches */
KVIK_API uint32_t kvik_model_vocab(const kvik_model *m);
KVIK_API uint32_t kvik_model_context(const kvik_model *m); /* max_position_embeddings */
KVIK_API uint32_t kvik_model_layers(const kvik_model *m);
KVIK_API uint32_t kvik_model_hidden(const kvik_model *m); /* values of an embedding */
KVIK_API uint32_t kvik_model_heads(const kvik_model *m);  /* of attention, not of keys */
/* A JSON description: architecture, layers with their cache kind, tensors, tokenizer, template, cache bytes per token per
 * codec.  *json is freed with kvik_free. */
KVIK_API int kvik_model_describe(const kvik_model *m, char **json);
/* What every cache strategy means for this model: the properties the guide compares, bytes a token, most bytes at the
 * whole context.  JSON, as above. */
KVIK_API int kvik_model_describe_caches(const kvik_model *m, char **json);
/* The architectures this build knows: a JSON array of arrays of names (model_type, GGUF's general.architecture). */
KVIK_API int kvik_architectures(char **json);

/* ---- Tokenizers and chat templates -------------------------------------------------------------------------- */
typedef struct kvik_tokenizer kvik_tokenizer;
/* A model path, or a directory with only tokenizer files.  kvik_model_tokenizer borrows the model's. */
KVIK_API int kvik_tokenizer_open(const char *path, kvik_tokenizer **out);
KVIK_API void kvik_tokenizer_close(kvik_tokenizer *t);
KVIK_API const kvik_tokenizer *
kvik_model_tokenizer(const kvik_model *m); /* NULL: the model has none */
/* Text to ids (kvik_free).  add_special_tokens: bos/eos as the tokenizer does by default. */
KVIK_API int kvik_tokenizer_encode(const kvik_tokenizer *t, const char *text, size_t n_bytes,
                                   bool add_special_tokens, int32_t **ids, size_t *n);
/* Ids to text (kvik_free; NUL-terminated, *n_bytes without the NUL; may be NULL). */
KVIK_API int kvik_tokenizer_decode(const kvik_tokenizer *t, const int32_t *ids, size_t n,
                                   bool skip_special_tokens, char **text, size_t *n_bytes);
KVIK_API int32_t kvik_tokenizer_find(const kvik_tokenizer *t, const char *token); /* id or -1 */
/* The text of a named special token ("bos_token", "eos_token", "pad_token", "unk_token", ...), or NULL; borrowed. */
KVIK_API const char *kvik_tokenizer_special(const kvik_tokenizer *t, const char *name);
KVIK_API const char *
kvik_tokenizer_template(const kvik_tokenizer *t); /* chat template or NULL; borrowed */
/* messages: JSON array of {"role", "content"}.  kwargs: JSON object or NULL; add_generation_prompt, tools, documents,
 * continue_final_message and any variable of the template. */
KVIK_API int kvik_chat_render(const kvik_tokenizer *t, const char *messages, const char *kwargs,
                              char **text);
/* Rendering and encoding in one; control tokens spelled inside contents stay plain text unless
 * kwargs has "allow_special_tokens": true. */
KVIK_API int kvik_chat_encode(const kvik_tokenizer *t, const char *messages, const char *kwargs,
                              int32_t **ids, size_t *n);
/* A template given as text.  request: {"messages", "kwargs", "special_tokens", "now": ISO time}. */
KVIK_API int kvik_template_render(const char *template_text, const char *request, char **text);

/* ---- Caches ------------------------------------------------------------------------------------------------- */
typedef struct kvik_cache kvik_cache;
typedef uint32_t kvik_seq; /* 0 is no sequence */
#define KVIK_TURN_ENDS (1u << 28)
typedef struct kvik_cache_config {
    size_t size;
    /* "dynamic" (default), "static", "offloaded", "offloaded_static", "quantized", "sliding_window", "hybrid",
     * "hybrid_chunked", "offloaded_hybrid", "offloaded_hybrid_chunked", "sink" */
    const char *cache_implementation;
    /* JSON object or NULL, the same keys for every implementation: "max_cache_len"; which rows are seen:
     * "sliding_window", or "window_length" with "num_sink_tokens"; how old rows are kept: "backend" ("quanto",
     * "hqq"), "nbits", "axis_key", "axis_value", "q_group_size", "residual_length"; where: "offloading",
     * "offload_only_non_sliding". */
    const char *cache_config;
    uint32_t max_cache_len; /* tokens per sequence; 0: the model's context */
    uint64_t
        cache_memory; /* bytes, hard; 0: what max_sequences of max_cache_len need, at most half of RAM; offloaded:
                         what streaming needs */
    uint32_t max_sequences; /* at once; 0: 64 */
    uint32_t step_tokens;   /* most tokens of one forward step; 0: 512, fewer where pages stream */
    uint32_t
        checkpoints; /* for chats: layers that forget also keep what they had where a prompt ended (the newest four and the
                             first), and every so many tokens, so that a history that is rewritten there costs only what is
                             new; given up first when memory is short.  0: none; KVIK_TURN_ENDS: nowhere else */
    uint32_t threads;    /* 0: all CPUs of this process */
    const char *compute; /* "exact", "fast", NULL: exact for f32 weights, else fast */
    const char *isa; /* "ref", "avx2", "avx512", "avx512bf16"; NULL: $KVIK_ISA or the best here */
    const char *on_full; /* at cache_memory: "error" (default), or "offload": go on from disk */
    const char
        *spill_dir; /* of the file for offloaded pages; NULL: $KVIK_SPILL_DIR, $TMPDIR, /var/tmp */
    /* Off: a fresh sequence of kvik_generate begins with the rows of any other, live or dropped, that has the same
     * first tokens (kvik_row.reused); what is kept of dropped ones lies within cache_memory and goes first.  No bit of a
     * result depends on it. */
    bool no_prefix_cache;
    void (*on_notice)(void *ctx,
                      const char *text); /* hints about this configuration, one line; may be NULL */
    void *notice_ctx;
} kvik_cache_config;
typedef struct kvik_usage {
    size_t size;
    bool streaming;                         /* pages have left memory */
    uint64_t bytes;                         /* pages in use now, shared ones once */
    uint64_t peak_bytes;                    /* since the cache was opened */
    uint64_t live, shared, staging, states; /* parts of it: rows; rows with several owners; ... */
    uint64_t index; /* besides: what is kept only to be reused (dropped sequences, checkpoints) */
    uint64_t budget, need; /* need: bytes the last refused call was short of */
    uint64_t tokens;       /* rows held, over all sequences */
    uint64_t reused;       /* tokens not computed again by the last generate */
    uint64_t forks, rows_copied, seals, evictions;
    uint64_t reserved;                /* bytes promised to sequences and not yet in use */
    uint64_t spilled;                 /* bytes of pages that are on disk only */
    uint64_t tier_read, tier_written; /* bytes moved from and to it since open */
} kvik_usage;
/* config NULL: defaults.  The cache owns its threads and scratch; after open, a step allocates nothing. */
KVIK_API int kvik_cache_open(kvik_model *m, const kvik_cache_config *config, kvik_cache **out);
KVIK_API void kvik_cache_close(kvik_cache *c);
KVIK_API int kvik_cache_usage(const kvik_cache *c, kvik_usage *out);
KVIK_API int kvik_cache_new(kvik_cache *c, kvik_seq *out);
KVIK_API int kvik_cache_fork(kvik_cache *c, kvik_seq src, kvik_seq *out); /* shares every block */
/* Its rows stay, as long as nothing needs their room, for prompts that begin as it does (no_prefix_cache). */
KVIK_API int kvik_cache_drop(kvik_cache *c, kvik_seq s);
/* Keeps the first `len` tokens (len < 0: removes the last -len).  Groups that forget may have to keep fewer rows; crop
 * then computes those again itself, or fails and changes nothing. */
KVIK_API int kvik_cache_crop(kvik_cache *c, kvik_seq s, int64_t len);
/* s[i] becomes what s[from[i]] was, all at once. */
KVIK_API int kvik_cache_reorder(kvik_cache *c, const kvik_seq *s, const uint32_t *from, uint32_t n);
KVIK_API int kvik_cache_reserve(kvik_cache *c, kvik_seq s, uint32_t len);
KVIK_API int64_t kvik_cache_length(const kvik_cache *c,
                                   kvik_seq s); /* tokens, or a negative code */

KVIK_API int kvik_cache_reset(kvik_cache *c, kvik_seq s); /* empty again */

/* Rows of a sequence as f32: what its next token would see, layer by layer (all rows; the window's; sinks and window). */
typedef struct kvik_layer_rows {
    uint32_t rows, heads, dim_k, dim_v;
    float *keys, *values; /* [heads][rows][dim], keys rotated as the model keeps them */
    int32_t *position;    /* [rows] ascending */
} kvik_layer_rows;
typedef struct kvik_snapshot {
    size_t size;
    uint32_t n_layers, length;
    int32_t *ids; /* [length]; -1: not known.  NULL (import only): none is */
    uint32_t
        regime; /* of rotary frequencies that depend on the length (longrope), as exported; 0: the length's */
    uint32_t pad; /* masked columns before the first row, of the models that count them (Llama 4) */
    kvik_layer_rows *layer;
} kvik_snapshot;
KVIK_API int kvik_cache_export(kvik_cache *c, kvik_seq s, kvik_snapshot **out);
/* A new sequence that holds the rows, fed as one turn.  What was exported from a cache of the same model that does not
 * encode goes on with the same bits.  Without ids, rows that a crop would compute again are lost. */
KVIK_API int kvik_cache_import(kvik_cache *c, const kvik_snapshot *in, kvik_seq *out);
KVIK_API void kvik_snapshot_free(kvik_snapshot *s); /* of export */

/* The legacy form: per layer a key and a value [batch][heads][tokens][dim], f32, as `past_key_values` once was.  Its
 * columns are those of a padded batch: `length` of them, of which a layer holds the last `tokens` (all; with a
 * window those a next token can see, window - 1 as the reference keeps).  Columns without a row are zeros. */
typedef struct kvik_legacy_layer {
    uint32_t heads, tokens, dim_k, dim_v;
    float *keys, *values;
} kvik_legacy_layer;
typedef struct kvik_legacy {
    size_t size;
    uint32_t n_layers, batch;
    uint32_t length;         /* columns; 0 (given in): the most tokens of a layer */
    uint8_t *attention_mask; /* [batch][length] 1: a row; NULL (given in): all */
    int32_t *ids;            /* [batch][length]; -1: not known; NULL (given in): none is */
    kvik_legacy_layer *layer;
} kvik_legacy;
KVIK_API void kvik_legacy_free(kvik_legacy *l); /* of to_legacy, load and results */
/* A safetensors file: layers.N.keys, layers.N.values f32, attention_mask u8, input_ids i32; the metadata has the
 * length and what the model is.  Written whole or not at all.  m: whose cache it is, NULL: not said, not checked. */
KVIK_API int kvik_legacy_save(const kvik_legacy *l, const kvik_model *m, const char *path);
KVIK_API int kvik_legacy_load(const char *path, const kvik_model *m, kvik_legacy **out);

/* ---- Sessions: sequences on disk ---- */
/* Saves n sequences (branches of a chat, say; what they share is stored once) and a note of the caller's, any text or
 * NULL, in the file `path`.  At every instant the file holds either what it held before or all of this.  A file
 * that has a session of this model and configuration is added to: only blocks that it has not are written. */
KVIK_API int kvik_cache_save(kvik_cache *c, const char *path, const kvik_seq *s, uint32_t n,
                             const char *note);
/* As many new sequences as were saved, at most max: they go on with the bits they would have had.  The same model,
 * compute, rows seen and codec are needed; cache_implementation, cache_memory and where rows live may differ.
 * *note (kvik_free; may be NULL) is "" if there is none.  Returns their number; on an error there are none. */
KVIK_API int kvik_cache_load(kvik_cache *c, const char *path, uint32_t max, kvik_seq *s,
                             char **note);
/* A directory of sessions as a cache of prompts.  load: the longest beginning of ids that one of them holds and this
 * cache can go on from, as a new sequence; the number of tokens, or 0 and no sequence.  save: keeps the sequence
 * there (where it goes on from one that is there, its new blocks are added); above max_bytes, 0: 1 GiB, the least
 * recently used files go.  Files of other models, damaged ones and what another process is writing are passed over;
 * files under names that were not given here are read only.  Nothing is kept or found where rows depend on turns. */
KVIK_API int64_t kvik_prefix_load(kvik_cache *c, const char *dir, const int32_t *ids, size_t n,
                                  kvik_seq *s);
KVIK_API int kvik_prefix_save(kvik_cache *c, const char *dir, kvik_seq s, uint64_t max_bytes);
/* Reads and checks a whole session file; JSON, as of kvik_model_describe. */
KVIK_API int kvik_session_describe(const char *path, char **json);

/* Feeds n tokens to each sequence (a sequence once per call; any n, chunked inside) and writes logits.
 * logits: [n_spans][vocab] f32 of the last token of each span, or, with all, [sum of n][vocab]; NULL: none. */
typedef struct kvik_span {
    size_t size;
    kvik_seq seq;
    uint32_t n;
    const int32_t *ids;
} kvik_span;
KVIK_API int kvik_forward(kvik_cache *c, const kvik_span *span, uint32_t n_spans, bool all,
                          float *logits);

/* A cache knows its tokens: makes `s` hold exactly ids[n], the full conversation.  What it holds of them is kept as far as
 * every layer can go on from it, and only the rest is computed; a failure leaves it as it was.  logits: [vocab] after the
 * last token, which is then always computed; NULL: all of the ids may be reused.  With sinks, ids that are exactly the last
 * window_length tokens of a text whose known end they begin with continue it.  report may be NULL; else free it with
 * kvik_sync_done.  kvik_generate does the same with kvik_prompt.seq and reports in kvik_row.sync. */
typedef struct kvik_sync {
    size_t size;
    uint64_t reused;     /* of the ids: rows taken from the cache */
    uint64_t recomputed; /* rows computed again although their tokens agree */
    uint64_t computed;   /* tokens fed in all */
    uint64_t offset;     /* row of ids[0]: above 0 where ids continue a text they are the end of */
    int64_t
        divergence; /* first position where ids and cache differ; -1: one begins with the other */
    char *cached,
        *given; /* the text around it, as it was and as it is now; NULL: see divergence, or no tokenizer */
    char *reason; /* why rows were computed again; NULL: none were */
} kvik_sync;
KVIK_API int kvik_cache_sync(kvik_cache *c, kvik_seq s, const int32_t *ids, size_t n, float *logits,
                             kvik_sync *report);
KVIK_API void kvik_sync_done(kvik_sync *report);

/* What one sequence holds and where, as JSON (kvik_free): {"tokens", "groups": [..]}, a group for the layers that
 * keep the same rows: "layers", "kind", "window", "sinks", "codec", "rows", "block_rows", "tile_rows", "checkpoints",
 * "blocks" and "tiles" ({"count", "shared", "spilled", "bytes", "shared_bytes", "spilled_bytes"}), and "map", a letter for
 * every block of rows: '.' not held, 'o' the open one, 'r' full, 'e' encoded, 'd' on disk, 'z' encoded and on
 * disk; a capital where it is shared with other sequences. */
KVIK_API int kvik_cache_map(const kvik_cache *c, kvik_seq s, char **json);

/* ---- Caches without a model: keys and values are the caller's ------------------------------------------------
 * One batch, `kind` a layer ("full_attention", "sliding_attention", "chunked_attention"; NULL: all full, and a window of
 * the configuration applies to all).  Geometry comes from a layer's first update.  kvik_cache_crop, _reorder, _reset and
 * _length work on the whole batch (seq 0, s NULL); max_sequences bounds its rows (0: 16), max_cache_len its length (0:
 * 65536; a static one needs it).  The budget is shared out evenly among the layers. */
typedef struct kvik_shape {
    size_t size;
    uint32_t batch, heads, n, dim_k, dim_v;
    const char *dtype; /* kept as "f32" (NULL), "f16" or "bf16"; a layer keeps its first */
} kvik_shape;
typedef struct kvik_rows {
    size_t size;
    uint32_t batch, heads, rows, dim_k, dim_v;
    const float *keys, *values; /* [batch][heads][rows][dim]; the cache's, until its next call */
    const int32_t *position; /* [rows] ascending; -1: padding of a static cache, zeros: mask it */
} kvik_rows;
KVIK_API int kvik_cache_open_unbound(const kvik_cache_config *config, uint32_t n_layers,
                                     const char *const *kind, kvik_cache **out);
/* Appends n rows and gives what attention must see in this step, as the reference's update does: all rows (dynamic), the
 * window's and the new ones (sliding), max_cache_len of them (static), decoded ones where they are encoded
 * (quantized; an update sees its own rows as they came, the first one all), sinks and window (sink).  Keys are kept
 * as given: a caller who wants in-cache distances for sinks rotates queries, kvik never rotates keys again.
 * keys, values: [batch][heads][n][dim]. */
KVIK_API int kvik_cache_update(kvik_cache *c, uint32_t layer, const float *keys,
                               const float *values, const kvik_shape *shape, kvik_rows *out);
KVIK_API int64_t kvik_cache_layer_length(const kvik_cache *c, uint32_t layer);
/* Columns that an update of n rows would return, and the position of the first (of the first after the sinks, less
 * their number). */
KVIK_API int kvik_cache_mask_sizes(const kvik_cache *c, uint32_t layer, uint32_t n,
                                   uint32_t *kv_length, uint32_t *kv_offset);
KVIK_API int kvik_cache_select(kvik_cache *c, const uint32_t *index, uint32_t n);
KVIK_API int kvik_cache_repeat(kvik_cache *c, uint32_t times); /* rows 0,0,..,1,1,.. */

/* ---- Generation --------------------------------------------------------------------------------------------- */
#define KVIK_MAX_EOS 32
/* When a beam search ends: false: once no running beam promises more at its present length; true: as soon as
 * num_beams sequences have finished; "never": only when none can improve even at the longest length. */
enum kvik_early { KVIK_EARLY_FALSE, KVIK_EARLY_TRUE, KVIK_EARLY_NEVER };
typedef struct kvik_bias { /* added to the score of the last id where the others come before it */
    int32_t *ids;
    uint32_t n;
    double bias;
} kvik_bias;
typedef struct kvik_generation {
    size_t size;
    uint32_t max_new_tokens; /* 0: not set */
    uint32_t max_length; /* prompt included; 0: not set (then 20 new tokens, as the reference) */
    uint32_t min_new_tokens,
        min_length; /* no end-of-sequence token before; min_length counts the prompt */
    bool do_sample;
    double temperature;
    uint32_t top_k;
    double top_p, min_p, repetition_penalty;
    uint64_t seed;
    uint32_t num_beams;            /* above 1: beam search */
    uint32_t num_return_sequences; /* rows per prompt: the best beams, or so many samples */
    double length_penalty; /* beams: scores are divided by length^this; above 0 favours longer */
    enum kvik_early early_stopping;
    int32_t eos_token_id[KVIK_MAX_EOS];
    uint32_t n_eos;
    int32_t pad_token_id, bos_token_id; /* -1: none */
    char **stop_strings;                /* owned; use kvik_generation_set */
    uint32_t n_stop_strings;
    uint32_t prefill_chunk_size; /* 0: the cache's step_tokens */
    bool use_cache;              /* false: full recompute of every step, the oracle */
    bool output_logits;          /* keep raw logits of every step in the result */
    /* Filters of sampling, in the reference's formulas. */
    double typical_p;                  /* 1: off */
    double top_h;                      /* 0: off */
    double epsilon_cutoff, eta_cutoff; /* 0: off */
    /* Processors. */
    double encoder_repetition_penalty; /* of tokens of the prompt; 1: off */
    uint32_t no_repeat_ngram_size, encoder_no_repeat_ngram_size; /* 0: off */
    kvik_bias *sequence_bias; /* owned, with their ids; bad_words_ids: the bias is not read */
    kvik_bias *bad_words_ids;
    uint32_t n_sequence_bias, n_bad_words_ids;
    int32_t *suppress_tokens, *begin_suppress_tokens; /* owned */
    uint32_t n_suppress_tokens, n_begin_suppress_tokens;
    int32_t forced_bos_token_id; /* -1: none */
    int32_t forced_eos_token_id[KVIK_MAX_EOS];
    uint32_t n_forced_eos;
    uint32_t decay_start;  /* exponential_decay_length_penalty: (decay_start, decay_factor) */
    double decay_factor;   /* 0: off */
    double guidance_scale; /* 1: off; one more sequence for every row or beam */
    int32_t *negative_prompt_ids; /* owned; NULL: the last token of the prompt */
    uint32_t n_negative_prompt_ids;
    bool renormalize_logits, remove_invalid_values;
    double max_time; /* seconds; 0: none */
    /* Beams in groups, contrastive search, speculative decoding. */
    uint32_t num_beam_groups;
    double diversity_penalty;
    double penalty_alpha;              /* 0: off; contrastive search takes top_k sequences a row */
    uint32_t prompt_lookup_num_tokens; /* 0: off */
    uint32_t max_matching_ngram_size;  /* 2 */
    uint32_t num_assistant_tokens;     /* 20 */
    char *num_assistant_tokens_schedule;   /* owned; NULL: "constant" */
    double assistant_confidence_threshold; /* 0.4 */
    char *compile_config;       /* owned JSON; accepted: every step is a recorded plan here */
    char *cache_implementation; /* owned; for callers that open the cache from this config */
    char *cache_config;         /* owned JSON */
    /* Owned JSON: settings of the model's own file that this version cannot do ({"num_beam_groups": 4}); generating fails
     * and names them until each is set to its neutral value. */
    char *unmet;
    /* Results. */
    bool output_scores;           /* keep processed scores of every step */
    bool return_dict_in_generate; /* hand the sequences of the rows over (kvik_row.seq) */
    bool return_legacy_cache;     /* and their rows as arrays (kvik_result.past_key_values) */
    bool disable_compile;         /* accepted, as compile_config */
    uint32_t max_cache_len;
} kvik_generation;
/* Library defaults, then the model's generation_config.json (m may be NULL).  kvik_generation_done frees. */
KVIK_API int kvik_generation_init_sized(kvik_generation *g, size_t size, const kvik_model *m);
#define kvik_generation_init(g, m) kvik_generation_init_sized((g), sizeof *(g), (m))
KVIK_API void kvik_generation_done(kvik_generation *g);
/* A JSON object of reference names ({"max_new_tokens": 20, "stop_strings": ["\n"]}); unknown keys and values out of range are
 * errors that suggest the nearest; nothing changes then. */
KVIK_API int kvik_generation_set(kvik_generation *g, const char *json);

/* The table behind kvik_generation_set, --help and the bindings. */
typedef struct kvik_option {
    const char *name; /* reference name, with underscores */
    /* "bool", "uint", "int", "float", "string", "strings", "json"; "choice": true, false or a name, as choices say;
     * "ids": a token or several; "lists": [[id, ...], ...]; "biases": [[[id, ...], number], ...];
     * "pair": [integer, number] */
    const char *type;
    const char *fallback; /* default, as text */
    double min, max;      /* of numbers */
    const char *choices;  /* "a|b|c" or NULL */
    const char *help;
    const char *group; /* rows of one group are neighbours: "length", "sampling", "scores", ... */
} kvik_option;
/* Option i of the table, NULL beyond its end. */
KVIK_API const kvik_option *kvik_option_at(uint32_t i);
/* The nearest name in the table (for "did you mean"), or NULL when none is near. */
KVIK_API const char *kvik_option_nearest(const char *name);

enum kvik_finish {
    KVIK_FINISH_LENGTH,
    KVIK_FINISH_EOS,
    KVIK_FINISH_STOP,
    KVIK_FINISH_CANCELLED,
    KVIK_FINISH_CRITERIA, /* kvik_hooks.stopping_criteria */
    KVIK_FINISH_TIME      /* max_time */
};
/* "length", "eos", "stop", "cancelled", "criteria", "time" */
KVIK_API const char *kvik_finish_name(enum kvik_finish f);
typedef struct kvik_prompt {
    size_t size;
    const int32_t *ids;
    size_t n;
    /* 0: a fresh sequence, dropped at the end.  Else: ids are the whole text so far; what the sequence holds of it is
     * reused, and the sequence keeps what was generated (beams: as much of the best row as still exists) */
    kvik_seq seq;
    /* ids follow what seq holds instead of repeating it; processors and results see them alone.  Not with beams,
     * contrastive search or drafts */
    bool append;
    const uint8_t *attention_mask; /* [n] or NULL; masked columns are dropped at this boundary */
} kvik_prompt;
typedef struct kvik_row {
    int32_t *ids; /* prompt as given, then what was generated; not padded */
    size_t n, n_prompt;
    char *text; /* the generated part, special tokens skipped; NULL without a tokenizer */
    enum kvik_finish finish;
    size_t reused;           /* prompt tokens taken from the cache */
    const char *prefix_miss; /* of a fresh sequence that reused none: why; static text, or NULL */
    kvik_sync *sync;         /* of a prompt with a sequence, on its first row; else NULL */
    double score;            /* beams: sum of log-probabilities / length^length_penalty; else 0 */
    int32_t *
        beam_indices; /* beams: [n - n_prompt] the row of logits each new token came from (in groups: counted within
                         its group, prompt after prompt, as the reference counts); else NULL */
    kvik_seq
        seq; /* return_dict_in_generate: the row's sequence, all but its last token, which the caller
                         continues or drops; else 0 */
} kvik_row;
typedef struct kvik_result {
    kvik_row **row; /* [n_rows] num_return_sequences for every prompt in turn, beams best first */
    uint32_t n_rows, vocab;
    uint32_t steps;       /* of the model: one a new token, fewer where guesses came true */
    uint32_t logit_steps; /* new tokens of the longest row */
    uint32_t logit_rows;  /* n_rows, or with beams the number of prompts times num_beams */
    /* [logit_steps][logit_rows][vocab] raw, if output_logits.  Rows that have ended: as if padding followed, where there
     * is room for it; beams and contrastive search: zeros */
    float *logits;
    float *
        scores; /* the same after the processors, if output_scores; beams: log-probabilities of the step */
    double prefill_seconds, decode_seconds;
    uint64_t prompt_tokens, new_tokens, computed_tokens;
    kvik_legacy *past_key_values; /* the rows' sequences, if return_legacy_cache */
    uint64_t drafted,
        accepted; /* guesses checked (prompt lookup, assistant_model); that came true */
} kvik_result;
KVIK_API void kvik_result_free(kvik_result *r);
/* Writes what is kept as a safetensors file, tensors "logits" and "scores" [logit_steps][rows][vocab] f32; whole or not at
 * all. */
KVIK_API int kvik_logits_save(const kvik_result *r, const char *path);

/* Called from the thread in kvik_generate; not with beams, whose text is not known before the end.  text: new complete characters of this row ("" possible), id: the token, or -1 with
 * the final flush.  Return false to cancel: every row ends after this step with KVIK_FINISH_CANCELLED. */
typedef bool (*kvik_on_token)(void *ctx, uint32_t row, int32_t id, const char *text);
/* Prefill progress: tokens fed of the total; with beams, steps of decoding count as well.  The cache
 * is being fed: a call that would feed it is KVIK_BUSY.  Return false to cancel. */
typedef bool (*kvik_on_progress)(void *ctx, uint64_t done, uint64_t total);
/* What happened that is no error, one line for people: "cache memory 64.0 MiB full at token 912; continuing ...". */
typedef void (*kvik_on_notice)(void *ctx, const char *text);
/* Changes scores[vocab] of the token after ids[0..n) in place, after all other processors and before temperature and the
 * filters of sampling; beams: log-probabilities.  row: of the result, or with beams prompt * num_beams + beam.
 * Return false to fail with KVIK_CANCELLED. */
typedef bool (*kvik_logits_processor)(void *ctx, uint32_t row, const int32_t *ids, size_t n,
                                      float *scores, uint32_t vocab);
/* After every token: true ends the row (KVIK_FINISH_CRITERIA); with beams, asked of every candidate of a step, it ends that
 * beam, as an end-of-sequence token does. */
typedef bool (*kvik_stopping_criteria)(void *ctx, uint32_t row, const int32_t *ids, size_t n);
typedef struct kvik_hooks {
    size_t size;
    kvik_on_token on_token;
    kvik_on_progress on_progress;
    void *ctx;
    kvik_on_notice on_notice;
    kvik_logits_processor logits_processor;
    kvik_stopping_criteria stopping_criteria;
    /* A cache on a smaller model with the same vocabulary, which guesses ahead; the guesses are checked in one step, so the
     * result is the one without, sooner.  Greedy decoding and sampling; NULL: none.  With guesses (also of prompt lookup)
     * callbacks come before a step ends: they may look at the cache, not feed or change it (KVIK_BUSY). */
    kvik_cache *assistant_model;
} kvik_hooks;
/* Ragged batch: each row its own length, nothing is padded inside.  hooks may be NULL. */
KVIK_API int kvik_generate(kvik_cache *c, const kvik_generation *g, const kvik_prompt *prompt,
                           uint32_t n, const kvik_hooks *hooks, kvik_result **out);
KVIK_API int kvik_generate_text(kvik_cache *c, const kvik_generation *g, const char *text,
                                kvik_result **out);

/* ---- Padded batches, as the reference's forward sees them --------------------------------------------------
 * For loops of one's own.  A batch is `rows` sequences of a cache, fed together as a rectangle of columns.  Lengths,
 * cache_position and the width of masks count columns, padding included; inside a row holds its real tokens only, so a
 * row has the bits it has alone.  A call that fails changes nothing. */
typedef struct kvik_batch kvik_batch;
typedef struct kvik_inputs { /* zeros: not given */
    size_t size;
    const int32_t *ids;  /* [rows][n] */
    const float *embeds; /* [rows][n][hidden] instead */
    uint32_t n;          /* columns */
    uint32_t width;      /* of attention_mask: length + n */
    const uint8_t *
        attention_mask; /* [rows][width], 0: hidden.  Columns of earlier calls as they were; NULL: all ones */
    const uint32_t *cache_position; /* [n]: length, length + 1, ...; anything else is an error */
    const int32_t
        *position_ids; /* [position_rows][n]; NULL: the columns' own numbers, padding counted */
    uint32_t position_rows;  /* 1 or rows; 0: rows */
    uint32_t logits_to_keep; /* logits of so many last columns; 0: of all */
    uint32_t n_columns;
    const uint32_t *columns; /* [n_columns] or of these of the n, ascending */
} kvik_inputs;
/* The caller's arrays, NULL: not wanted.  Masked columns (where the reference computes what nobody may use) and rows
 * without a token are zeros. */
typedef struct kvik_outputs {
    size_t size;
    float *logits; /* [rows][kept columns][vocab] */
    float *
        hidden_states; /* [layers + 1][rows][n][hidden]: after the embedding and each layer, the last one normed */
    float *attentions; /* [layers][rows][heads][n][length + n] */
} kvik_outputs;
KVIK_API int kvik_batch_open(kvik_cache *c, uint32_t rows, kvik_batch **out);
KVIK_API void kvik_batch_close(kvik_batch *b); /* before its cache; drops the rows */
KVIK_API uint32_t kvik_batch_rows(const kvik_batch *b);
KVIK_API uint32_t kvik_batch_length(const kvik_batch *b);         /* columns: get_seq_length */
KVIK_API int kvik_batch_mask(const kvik_batch *b, uint8_t *mask); /* [rows][length] */
KVIK_API kvik_seq kvik_batch_seq(const kvik_batch *b,
                                 uint32_t row); /* to look at; 0: no such row */
KVIK_API int kvik_batch_forward(kvik_batch *b, const kvik_inputs *in, const kvik_outputs *out);
/* n > 0: keeps the first n columns (past the end: all); n <= 0: removes the last -n. */
KVIK_API int kvik_batch_crop(kvik_batch *b, int64_t n);
KVIK_API int kvik_batch_reset(kvik_batch *b);
KVIK_API int kvik_batch_reorder(kvik_batch *b, const uint32_t *beam_idx); /* [rows] */
KVIK_API int kvik_batch_select(kvik_batch *b, const uint32_t *index,
                               uint32_t n);                    /* batch_select_indices */
KVIK_API int kvik_batch_repeat(kvik_batch *b, uint32_t times); /* batch_repeat_interleave */
KVIK_API int kvik_batch_copy(const kvik_batch *b,
                             kvik_batch **out); /* deepcopy; shares every block */
/* generate() with past_key_values.  ids are the whole text (their mask as wide as they are, or NULL), of which what the
 * rows hold is reused, all but the last token; or, with a mask of length + n, what follows.  New ids without such a mask
 * are an error.  The batch keeps what was generated but for each row's last token; columns after a row's end are masked.
 * Rows of the result have the ids given here, then what was generated; the batch keeps their sequences (row.seq is 0). */
KVIK_API int kvik_batch_generate(kvik_batch *b, const kvik_generation *g, const kvik_inputs *in,
                                 const kvik_hooks *hooks, kvik_result **out);
KVIK_API int kvik_batch_to_legacy(const kvik_batch *b, kvik_legacy **out);
KVIK_API int kvik_batch_from_legacy(kvik_cache *c, const kvik_legacy *in, kvik_batch **out);

#ifdef __cplusplus
}
#endif

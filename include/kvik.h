/* kvik.h - generate text with language models; the KV cache is the product.
 *
 * A MODEL is weights, tokenizer and chat template; it is read-only and can be shared.  A CACHE is a store with a
 * budget.  It holds SEQUENCES: the tokens a sequence has seen, and for each of them the keys and values of every
 * layer (a KV row per layer).  Forks of a sequence share the rows they have in common.  FORWARD computes tokens of
 * sequences and gives logits; GENERATE is the loop over it.  The logits are bit-identical whatever the batch, the
 * number of threads, the prefill chunk size, or where the cache lives.
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
 * The name of a model is a path; die() is yours.  In a built source tree a program is compiled with
 *     cc program.c -Iinclude -L. -lkvik -Wl,-rpath,$PWD
 * and after make install with
 *     cc program.c $(pkg-config --cflags --libs kvik)
 *
 * Conventions.
 * - A function returns 0, or a count, or a negative error code.  kvik_last_error() then has a sentence with the
 *   cause and what to do.
 * - Results are written through the last pointers.  A call that fails writes none of them and leaves every cache as
 *   it was.
 * - The library never prints, exits or aborts.  It writes no file whose path you did not give it, except the spill
 *   file of an offloaded cache, and what it keeps in $XDG_CACHE_HOME/kvik (or ~/.cache/kvik) for later runs: digests
 *   of weights (see kvik_model_verify), compiled vocabularies and quantized weights.  You can remove these at any
 *   time.  kvik does not make a home directory: where there is none, nothing is kept.
 * - Close and free in any order.  A model or cache that a cache, a batch, a request or a running call still uses lives
 *   until its user is closed or returns.  Functions that close or free take NULL and do nothing.
 * - A call with a closed handle is KVIK_ARG and closing it again does nothing, as long as no other memory has taken its
 *   place; a later handle can have the address of a closed one, and AddressSanitizer reports the look at it.  Set
 *   your pointer to NULL.
 * - NULL for any other pointer is KVIK_ARG, unless the comment of the function allows it.  A function that returns no
 *   error code gives 0, NULL, -1 or KVIK_FAILED instead, also when busy; kvik_last_error() then has the sentence.
 * - Strings are UTF-8.  Shapes are in brackets, the last dimension is contiguous.
 * - Names of options are those of Hugging Face Transformers (below: Transformers).
 *
 * Threads, processes and callbacks.
 * - One thread at a time uses a cache, with its batches and requests.  During a call, calls of other threads are
 *   KVIK_BUSY, and what they close lives until the call returns.  The same holds for a sampler and a decoder.  Threads
 *   can share models and tokenizers, and use different caches of one model at the same time.
 * - Models, caches, batches and requests belong to the process that opened them.  After fork() calls of the child
 *   with them are KVIK_BUSY, and closing them does nothing.  Tokenizers, decoders, samplers, results and the numbers
 *   of a model work in the child.  To compute there, open the model again; parent and child share the weights.
 * - A callback may read the cache and use other sequences.  A call that would change a sequence of the running call
 *   is KVIK_BUSY and changes nothing.
 * - Model files, and the spill file of an offloaded cache, are mapped.  A read of a page that a truncated file has no
 *   longer, or that a failing disk does not give, is the signal SIGBUS in the program.  Put a new model in the place
 *   of an old one with rename().  With KVIK_SPILL_MAP=0 in the environment the spill file is read through copies, and
 *   such a disk is KVIK_IO.
 *
 * Versions.  A struct that you allocate begins with `size`; set it to the size of the struct:
 *     kvik_cache_config config = {.size = sizeof config, .threads = 2};
 * kvik_generation_init sets the size of a kvik_generation.  Elements of an array have one size.  Later versions
 * append fields.  A program that was compiled before keeps working: the library uses the defaults of fields that
 * the struct does not reach, and does not write them.  A struct that is larger than the library knows is accepted
 * if the bytes beyond are 0, else KVIK_UNSUPPORTED.  An impossible size, such as 0, is KVIK_ARG.  Structs that the
 * library allocates can grow as well, so arrays of them hold pointers.  kvik_bias, kvik_plane, kvik_layer_rows and
 * kvik_legacy_layer never change.
 *
 * The process.  kvik reads JSON with jansson, whose allocation functions are one pair for the process.  kvik puts its
 * own in front of that pair only while a call of this library works with JSON, and calls the pair through them.  So a
 * program may give jansson functions of its own: before its first call of this library, as jansson demands. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#define KVIK_API __attribute__((visibility("default")))

/* ---- Basics: the twenty functions that most programs need ---------------------------------------
 *
 * A program opens a model and a cache, sets options, generates, and frees the result.  The sections after this one
 * are for programs that do more. */

typedef struct kvik_model kvik_model;
typedef struct kvik_tokenizer kvik_tokenizer;
typedef struct kvik_cache kvik_cache;
/* A sequence of a cache; 0 is no sequence. */
typedef uint32_t kvik_seq;
/* These have many fields, each explained in its section below. */
typedef struct kvik_cache_config kvik_cache_config;
typedef struct kvik_generation kvik_generation;
typedef struct kvik_prompt kvik_prompt;
typedef struct kvik_hooks kvik_hooks;
typedef struct kvik_result kvik_result;
/* Of kvik_compat.h: padded batches, rows as arrays, tuples, caches without a model. */
typedef struct kvik_legacy kvik_legacy;

/* Returns the sentence of this thread's last error.  It is valid until the thread's next error. */
KVIK_API const char *kvik_last_error(void);
/* Frees a string or array that the library has returned. */
KVIK_API void kvik_free(void *p);

/* Opens a Hugging Face directory or a .gguf file.  Weights are used from the mapped files, so the files must not
 * change while the model is open. */
KVIK_API int kvik_model_open(const char *path, kvik_model **out);
/* Closes a model; see "Conventions" for the order of closing. */
KVIK_API void kvik_model_close(kvik_model *m);
/* Returns the tokenizer of a model, which the model owns, or NULL if the model has none. */
KVIK_API const kvik_tokenizer *kvik_model_tokenizer(const kvik_model *m);
/* Encodes n_bytes of text as *n ids; free *ids with kvik_free.  add_special_tokens: adds the tokens that this
 * tokenizer adds by default (bos, eos). */
KVIK_API int kvik_tokenizer_encode(const kvik_tokenizer *t, const char *text, size_t n_bytes,
                                   bool add_special_tokens, int32_t **ids, size_t *n);
/* Decodes n ids as text that ends with a NUL; free *text with kvik_free.  An id that the tokenizer lacks has no text;
 * a negative id is KVIK_ARG.  *n_bytes does not count the NUL; n_bytes may be NULL. */
KVIK_API int kvik_tokenizer_decode(const kvik_tokenizer *t, const int32_t *ids, size_t n,
                                   bool skip_special_tokens, char **text, size_t *n_bytes);

/* A message of a conversation. */
typedef struct kvik_message {
    size_t size;
    /* "system", "user", "assistant", or another that the chat template knows. */
    const char *role;
    /* NULL: none, as of a message that only calls tools. */
    const char *content;
    /* NULL, or a JSON object of further keys: {"name": "Ann", "tool_calls": [..]}. */
    const char *more;
} kvik_message;
/* A conversation, and how it is rendered.  NULL: not given. */
typedef struct kvik_chat {
    size_t size;
    /* [n] the messages; */
    const kvik_message *message;
    size_t n;
    /* or, in their place, a JSON array of {"role", "content"}. */
    const char *json;
    /* A JSON object with add_generation_prompt, continue_final_message, tools, documents, allow_special_tokens and
     * any variable of the template. */
    const char *kwargs;
    /* The template.  NULL: that of the tokenizer. */
    const char *template_text;
    /* A JSON object of texts of special tokens, {"bos_token": "<s>"}, in place of those of the tokenizer. */
    const char *special_tokens;
    /* The time of strftime_now, in ISO 8601.  NULL: the clock. */
    const char *now;
} kvik_chat;
/* Renders a conversation and encodes it as *n ids; free *ids with kvik_free.  Special tokens that are spelled
 * inside a content are encoded as plain text.  assistant: NULL, or *assistant gets *n flags, true for an id with
 * text in a {% generation %} block, where the words of the model are; free *assistant with kvik_free. */
KVIK_API int kvik_chat_encode(const kvik_tokenizer *t, const kvik_chat *chat, int32_t **ids,
                              size_t *n, bool **assistant);

/* Opens a cache.  config NULL: defaults.  It owns its threads and scratch memory; a forward step allocates nothing. */
KVIK_API int kvik_cache_open(kvik_model *m, const kvik_cache_config *config, kvik_cache **out);
/* Closes a cache with its sequences; NULL is allowed, as in all functions that close or free. */
KVIK_API void kvik_cache_close(kvik_cache *c);
/* Makes an empty sequence. */
KVIK_API int kvik_cache_new(kvik_cache *c, kvik_seq *out);
/* Makes a sequence with the contents of src.  The two share every block; nothing is copied until one of them
 * appends.  The new sequence has no reserve, even if src has one: kvik_cache_reserve gives it its own.  If src has a
 * reserve, the pages that src may then have to copy are set aside too, or the call is KVIK_FULL. */
KVIK_API int kvik_cache_fork(kvik_cache *c, kvik_seq src, kvik_seq *out);
/* Drops a sequence.  Until memory is short, its rows stay for prompts that begin with them (see no_prefix_cache). */
KVIK_API int kvik_cache_drop(kvik_cache *c, kvik_seq s);

/* kvik_generation_init(g, m) sets the library's defaults, then those of the model's generation_config.json (m may
 * be NULL).  size: the size of *g where the caller was compiled. */
KVIK_API int kvik_generation_init_sized(kvik_generation *g, size_t size, const kvik_model *m);
#define kvik_generation_init(g, m) kvik_generation_init_sized((g), sizeof *(g), (m))
/* Sets options from a JSON object: {"max_new_tokens": 20, "stop_strings": ["\n"]}.  An unknown name or a value out
 * of range is an error that suggests the nearest, and then nothing is set. */
KVIK_API int kvik_generation_set(kvik_generation *g, const char *json);
/* Frees what the options own. */
KVIK_API void kvik_generation_done(kvik_generation *g);

/* Generates for one text; free *out with kvik_result_free. */
KVIK_API int kvik_generate_text(kvik_cache *c, const kvik_generation *g, const char *text,
                                kvik_result **out);
/* Receives text as it is generated: one or more whole characters.  Return false to stop. */
typedef bool (*kvik_on_text)(void *ctx, const char *text);
/* Generates for one text and gives the new text to on_text as it comes; with beams in one piece at the end.  out: NULL,
 * or *out is the result, also of a generation that on_text has stopped. */
KVIK_API int kvik_generate_stream(kvik_cache *c, const kvik_generation *g, const char *text,
                                  kvik_on_text on_text, void *ctx, kvik_result **out);
/* Generates for n prompts of any lengths; nothing is padded inside.  hooks may be NULL. */
KVIK_API int kvik_generate(kvik_cache *c, const kvik_generation *g, const kvik_prompt *prompt,
                           uint32_t n, const kvik_hooks *hooks, kvik_result **out);
/* Frees a result.  Sequences in its rows stay the caller's. */
KVIK_API void kvik_result_free(kvik_result *r);

/* ---- Errors: version and error codes ------------------------------------------------------------ */

#define KVIK_VERSION "0.1.0"
/* Returns the version of the library that is loaded. */
KVIK_API const char *kvik_version(void);

/* What functions return instead of 0 or a count. */
enum kvik_error {
    KVIK_NOMEM = -1,
    /* An argument or the value of an option is wrong. */
    KVIK_ARG = -2,
    KVIK_IO = -3,
    /* A file, a template or a text is malformed. */
    KVIK_FORMAT = -4,
    /* The request is well-formed, but this build cannot do it. */
    KVIK_UNSUPPORTED = -5,
    /* The cache would exceed its budget (cache_memory). */
    KVIK_FULL = -6,
    /* The call exceeds a limit of the model or of the library, or max_cache_len. */
    KVIK_LIMIT = -7,
    /* Another call that has not returned uses the object, or this process is a fork of the one that opened it. */
    KVIK_BUSY = -8,
    /* Rows must be recomputed, but their token ids are not known. */
    KVIK_LOST = -9,
    KVIK_NOTFOUND = -10,
    /* A callback asked to stop. */
    KVIK_CANCELLED = -11,
    /* The sequence was dropped. */
    KVIK_STALE = -12
};
/* Returns the name of a code without its prefix: "ARG" for KVIK_ARG. */
KVIK_API const char *kvik_error_name(int code);

/* ---- Models: what a model is --------------------------------------------------------------------- */

/* Return how many there are: token ids, positions, layers, values in a hidden state, query heads. */
KVIK_API uint32_t kvik_model_vocab(const kvik_model *m);
KVIK_API uint32_t kvik_model_context(const kvik_model *m);
KVIK_API uint32_t kvik_model_layers(const kvik_model *m);
KVIK_API uint32_t kvik_model_hidden(const kvik_model *m);
KVIK_API uint32_t kvik_model_heads(const kvik_model *m);
/* Writes the embeddings of n ids, [n][kvik_model_hidden], as `embeds` of a prompt or a forward takes them: a model that
 * scales its embeddings has scaled these, unless it scales given ones as well (Granite).  KVIK_UNSUPPORTED for a model
 * with an encoder. */
KVIK_API int kvik_model_embed(const kvik_model *m, const int32_t *ids, size_t n, float *out);
/* How to open a model. */
typedef struct kvik_model_options {
    size_t size;
    /* NULL, or "q8_0", "q4_0" or "q4_k": matrices of f32, f16 and bf16 are quantized to this type.  The first open of a
     * model writes them to $XDG_CACHE_HOME/kvik/weights (or ~/.cache/kvik/weights) as a GGUF file, which later ones
     * map; at most 16 such files are kept.  Where nothing can be written they are quantized in memory.  The matrix of
     * the head is q8_0 in any case; norms, biases, positions and routers stay.  Rows that are no multiple of 256
     * values are q8_0 instead of q4_k; those that are no multiple of 32 stay. */
    const char *quantize;
    /* NULL, or receives a sentence about what was quantized and where it is kept. */
    void (*on_notice)(void *ctx, const char *text);
    void *ctx;
    /* "cpu", or "cuda" (libkvik-cuda.so of make cuda; not yet run on a GPU).  NULL: $KVIK_DEVICE, else "cpu". */
    const char *device;
} kvik_model_options;
/* Opens a model as kvik_model_open does, with options; NULL: none. */
KVIK_API int kvik_model_open_with(const char *path, const kvik_model_options *options,
                                  kvik_model **out);
/* Describes a model as JSON: architecture, layers with the kind of their cache, tensors, tokenizer, template, bytes
 * of cache per token and codec, and the sampling values that a GGUF file recommends.  Free *json with kvik_free. */
KVIK_API int kvik_model_describe(const kvik_model *m, char **json);
/* Describes the files of a model as JSON, without loading it: format, name, architecture and whether this build runs
 * it, bytes of the weights and of the files, types of the weights.  Free *json with kvik_free. */
KVIK_API int kvik_model_peek(const char *path, char **json);
/* Describes every cache strategy for this model as JSON: its properties, bytes per token, and bytes at the full
 * context; and lists the codecs of this build as cache_config.  Free *json with kvik_free. */
KVIK_API int kvik_model_describe_caches(const kvik_model *m, char **json);
/* Hashes all weights and compares the digest with the one that an earlier run kept for these files.  Returns 1 if they
 * are equal, 0 if none was kept, KVIK_IO if they differ.  Sessions and directories of prompts need this digest, which
 * is kept in $XDG_CACHE_HOME/kvik/digests; opening a model does not hash the weights.  threads 0: all CPUs. */
KVIK_API int kvik_model_verify(kvik_model *m, uint32_t threads);
/* Lists the architectures of this build as JSON: an array of arrays of names (model_type, GGUF's
 * general.architecture).  Free *json with kvik_free. */
KVIK_API int kvik_architectures(char **json);

/* What the encoder of an encoder-decoder model takes. */
typedef struct kvik_encoder {
    size_t size;
    /* 0: the model has no encoder. */
    uint32_t layers;
    /* Rows that it writes at most. */
    uint32_t rows;
    /* Values of each frame of features; 0: the input is token ids. */
    uint32_t bins;
    /* Frames that make one row; 1 for ids. */
    uint32_t stride;
    /* True if every input has exactly rows * stride frames. */
    bool whole;
    /* The token that begins the decoder's text; -1: the model names none. */
    int32_t decoder_start_token_id;
} kvik_encoder;
/* Describes the encoder of a model.  Returns 1, or 0 if it has none. */
KVIK_API int kvik_model_encoder(const kvik_model *m, kvik_encoder *out);

/* ---- Tokenizers: tokenizers and chat templates ---------------------------------------------------- */

/* Opens the tokenizer of a model's path, or of a directory with tokenizer files alone. */
KVIK_API int kvik_tokenizer_open(const char *path, kvik_tokenizer **out);
/* Closes a tokenizer that kvik_tokenizer_open has opened. */
KVIK_API void kvik_tokenizer_close(kvik_tokenizer *t);
/* Returns the id of a token, or -1. */
KVIK_API int32_t kvik_tokenizer_find(const kvik_tokenizer *t, const char *token);
/* Returns the number of token ids, with added tokens.  The width of the logits (kvik_model_vocab) may be higher. */
KVIK_API uint32_t kvik_tokenizer_vocab(const kvik_tokenizer *t);
/* What a token of the tokenizer is. */
enum kvik_piece {
    /* The token is of the model's own vocabulary. */
    KVIK_PIECE_MODEL = 1,
    /* It is an added token, which is found in a text before anything else; some are in the vocabulary as well. */
    KVIK_PIECE_ADDED = 2,
    /* It is special: decoding can skip it. */
    KVIK_PIECE_SPECIAL = 4
};
/* Returns a token as the vocabulary spells it, of *n_bytes bytes that end with no NUL; a space is often another
 * character there.  NULL: there is no such token.  *kind has bits of enum kvik_piece; kind may be NULL.  The tokenizer
 * owns the text. */
KVIK_API const char *kvik_tokenizer_piece(const kvik_tokenizer *t, int32_t id, size_t *n_bytes,
                                          uint32_t *kind);
/* Gives the bytes that a token adds within a text, which may be a part of a character; a special one adds none.  Free
 * *bytes with kvik_free.  KVIK_UNSUPPORTED: the decoder changes text across tokens. */
KVIK_API int kvik_tokenizer_bytes(const kvik_tokenizer *t, int32_t id, char **bytes,
                                  size_t *n_bytes);
/* Encodes a text without special tokens: where it spells one, such as "<|im_end|>" in the words of a user, it
 * becomes tokens of plain text.  Adds no tokens.  Returns the number of ids; *ids and *places as of
 * kvik_tokenizer_encode_placed (kvik_compat.h), and places may be NULL. */
KVIK_API int64_t kvik_tokenizer_encode_plain(const kvik_tokenizer *t, const char *text,
                                             size_t n_bytes, int32_t **ids, uint32_t **places);
/* Returns the text of a special token by its role ("bos_token", "eos_token", "pad_token", "unk_token", ...), or
 * NULL.  The tokenizer owns the text. */
KVIK_API const char *kvik_tokenizer_special(const kvik_tokenizer *t, const char *name);
/* Returns the chat template, or NULL.  The tokenizer owns the text, until kvik_model_set_template replaces it. */
KVIK_API const char *kvik_tokenizer_template(const kvik_tokenizer *t);
/* Replaces the chat template of a model.  Do it before other threads use the model.  end: a token that ends a turn,
 * which kvik_generation_init then adds to eos_token_id; NULL, or a token that the vocabulary lacks: none. */
KVIK_API int kvik_model_set_template(kvik_model *m, const char *template_text, const char *end);
/* Returns the name of built-in chat format i, or NULL after the last.  They serve models whose files have no template:
 * "chatml", "gemma", "llama2", "llama3", "llama4", "mistral", "phi3", "alpaca", "zephyr", "vicuna", "deepseek". */
KVIK_API const char *kvik_format_name(uint32_t i);
/* Returns the template of a format, or NULL if there is no such format. */
KVIK_API const char *kvik_format_template(const char *name);
/* Returns the token that ends a turn in a format; NULL: the model's end-of-sequence token. */
KVIK_API const char *kvik_format_end(const char *name);
/* Returns the name of the format whose special tokens the vocabulary has, or NULL. */
KVIK_API const char *kvik_format_guess(const kvik_tokenizer *t);
/* Renders a conversation as text; free *text with kvik_free.  t may be NULL if the conversation has a template; special
 * tokens are then those of the conversation alone. */
KVIK_API int kvik_chat_render(const kvik_tokenizer *t, const kvik_chat *chat, char **text);

/* ---- Caches: configuration and use of memory ------------------------------------------------------ */

/* A strategy is three choices: which rows a query sees, how exactly rows are stored, and where they live.  Every
 * name and JSON text of a kvik_cache_config stands for such choices.  0 and NULL: not given. */

/* The rows that a query sees: those of a window; or the first num_sink_tokens and the last ones, window_length. */
typedef struct kvik_policy {
    size_t size;
    uint64_t sliding_window;
    uint32_t window_length, num_sink_tokens;
} kvik_policy;
/* Bits of one layer's rows; 0: as in the other layers.  layer below 0: counted from the end, so -1 is the last. */
typedef struct kvik_layer_bits {
    int32_t layer;
    uint32_t k_bits, v_bits;
} kvik_layer_bits;
/* kvik_codec.nbits, backend "kvik": the fewest bits within max_kld are found by measuring, and kept for later runs. */
#define KVIK_AUTO UINT32_MAX
/* How rows are quantized. */
typedef struct kvik_codec {
    size_t size;
    /* "quanto", "hqq", "fp8" or "kvik", of keys and values, or of only one of them; "none": not quantized. */
    const char *backend, *backend_key, *backend_value;
    /* 0: 4 bits, groups of 64 values. */
    uint32_t nbits, q_group_size;
    /* 0, 1 or -1 (the last). */
    int32_t axis_key, axis_value;
    /* Rows that gather before they are quantized.  0: 128. */
    uint64_t residual_length;
    /* Bits of keys and of values (backend "kvik"), 0: nbits; and n_layers layers that differ. */
    uint32_t k_bits, v_bits;
    const kvik_layer_bits *layers;
    size_t n_layers;
    /* Mean divergence (KLD) from rows that are not quantized, at most, for KVIK_AUTO.  0: 0.005. */
    double max_kld;
} kvik_codec;
/* Where full pages live. */
enum kvik_tier {
    /* As the strategy's name says. */
    KVIK_TIER_NAMED,
    KVIK_TIER_MEMORY,
    KVIK_TIER_DISK,
    /* Only those of layers without a window are on disk. */
    KVIK_TIER_DISK_FULL
};

/* kvik_cache_config.snapshots: only at the ends of prompts. */
#define KVIK_TURN_ENDS (1u << 28)

/* How a cache is kept.  0, false and NULL are the defaults.  A value given as a field and as JSON must be the same. */
struct kvik_cache_config {
    size_t size;
    /* The strategy: "dynamic" (default), "static", "offloaded", "offloaded_static", "quantized", "sliding_window",
     * "hybrid", "hybrid_chunked", "offloaded_hybrid", "offloaded_hybrid_chunked", "sink". */
    const char *cache_implementation;
    /* NULL, or a JSON object; every strategy takes the same keys:
     *   length             "max_cache_len"
     *   rows seen          "sliding_window"; or "window_length" with "num_sink_tokens"
     *   precision of rows  "backend", "nbits", "layers", "axis_key", "axis_value", "q_group_size", "residual_length"
     *   where rows live    "offloading", "offload_only_non_sliding" */
    const char *cache_config;
    /* The same as fields. */
    const kvik_policy *policy;
    const kvik_codec *codec;
    enum kvik_tier tier;
    /* Limit of a sequence, in tokens.  0: the model's context. */
    uint32_t max_cache_len;
    /* Memory limit of the cache, in bytes, its tokens and tables included; the cache never exceeds it.  0: enough for
     * max_sequences of max_cache_len tokens, at most half of the machine's memory; when offloaded, enough to stream. */
    uint64_t cache_memory;
    /* What to do at cache_memory.  "error" (default): fail, nothing is lost.  "encode": quantize rows to 8 bits, then
     * to 4, and continue; tokens can change.  "offload": move old rows to a file on disk and continue; the tokens do
     * not change. */
    const char *on_full;
    /* Directory of the spill file, which has no name once it is open.  NULL: $KVIK_SPILL_DIR, $TMPDIR, /var/tmp. */
    const char *spill_dir;
    /* Limit of sequences and batch rows that one call computes at once.  0: 64.  Three times as many can exist,
     * because a call makes sequences to compute with and sequences to return. */
    uint32_t max_sequences;
    /* Limit of tokens in one forward step; longer prompts take several.  0: 512, or fewer where rows are on disk. */
    uint32_t step_tokens;
    /* Turns the prefix index off.  With the index, a fresh sequence of kvik_generate reuses the rows of any other
     * sequence, live or dropped, that begins with the same tokens (kvik_row.reused).  Rows of dropped sequences
     * count in cache_memory and are evicted first.  The index changes no bit of a result. */
    bool no_prefix_cache;
    /* Snapshots of sliding-window and recurrent layers: a text that was rewritten, or that another sequence shares,
     * resumes from the nearest snapshot instead of recomputing everything.  A snapshot is taken before the last token
     * of each prompt and every `snapshots` tokens; of those passed, the newest four stay and one for each doubling
     * of the distance.  Snapshots are evicted before anything else.  0: every 256; KVIK_TURN_ENDS: only at the ends of
     * prompts. */
    uint32_t snapshots;
    /* 0: $KVIK_THREADS, else the CPUs this process may use, fewer if its container has a lower limit; 64 at most. */
    uint32_t threads;
    /* "exact": float32 throughout.  "fast": rounded activations, 16-bit rows.  NULL: exact for float32, else fast. */
    const char *compute;
    /* "ref", "avx2", "avx512", "avx512bf16"; on ARM "ref", "neon", "neondot", "neoni8mm".  NULL: $KVIK_ISA, or best. */
    const char *isa;
    /* NULL, or a function that gets hints and, later, the saved prompts that are not used, one line each. */
    void (*on_notice)(void *ctx, const char *text);
    void *notice_ctx;
    /* How the rows of an encoder are stored, which decoders of encoder-decoder models read (cross attention); the
     * strategy above is for the decoder's own rows.  "dynamic", "static", "offloaded" or "quantized", and a JSON
     * object with the keys for precision and offloading of cache_config, or fields.  NULL: as computed, in memory. */
    const char *cross_cache_implementation, *cross_cache_config;
    const kvik_codec *cross_codec;
    /* Limit of an encoder's input, in rows.  0: the model's, at most 16 384; 512 if it names none. */
    uint64_t max_encoder_len;
    /* NULL, or options whose settings of caches hold where these are not given; read while the cache is opened. */
    const kvik_generation *options;
};

/* What a cache holds, in bytes where nothing else is said.  These sums hold:
 *     bytes = live + states + staging
 *     budget = bytes + reserved + metadata + free */
typedef struct kvik_usage {
    size_t size;
    /* The limit (cache_memory). */
    uint64_t budget;
    /* Bytes in use.  Rows that sequences share count once. */
    uint64_t bytes;
    /* Parts of `bytes`: KV rows, recurrent states, and buffers for streaming. */
    uint64_t live, states, staging;
    /* Set aside for sequences and not yet in use. */
    uint64_t reserved;
    /* Tables, tokens and indices: arrays of fixed size, and arrays of the sequences. */
    uint64_t metadata;
    /* Bytes for more rows and tables, and of these what holds rows of dropped sequences and snapshots for reuse. */
    uint64_t free, index;
    /* The part of `live` that has several owners. */
    uint64_t shared;
    /* The greatest sum of `bytes` and `index` since the cache was opened. */
    uint64_t peak_bytes;
    /* Bytes that the last refused call lacked. */
    uint64_t need;
    /* On disk only; and moved from and to disk since the cache was opened. */
    uint64_t spilled, tier_read, tier_written;
    /* True if blocks have moved to disk. */
    bool streaming;
    /* KV rows of all sequences, in tokens. */
    uint64_t tokens;
    /* Prompt tokens that the last kvik_generate took from the cache. */
    uint64_t reused;
    /* Counts since the cache was opened: forks, rows copied on write, groups of rows quantized, snapshots evicted. */
    uint64_t forks, rows_copied, seals, evictions;
    /* Rows that on_full "encode" has given 8 bits, and 4; the mean KLD that was measured with such rows, else 0. */
    uint64_t encoded8, encoded4;
    double expected_kld;
} kvik_usage;
/* Fills *out. */
KVIK_API int kvik_cache_usage(const kvik_cache *c, kvik_usage *out);
/* Changes the limit of a cache to at most the one it was opened with, so that several caches can share one.  A lower
 * limit evicts rows of dropped sequences and snapshots; KVIK_FULL, with nothing changed, if what is left needs more. */
KVIK_API int kvik_cache_set_memory(kvik_cache *c, uint64_t bytes);
/* Records from now on what all caches of this process do, and when: steps and their layers, reads of the spill file,
 * waits for them, and evictions.  The newest 65 536 events are kept, in 2.5 MiB.  While nothing is recorded, no
 * clock is read.  KVIK_BUSY if this process records already, or was forked while its parent recorded. */
KVIK_API int kvik_trace_begin(void);
/* Ends the recording and writes it as JSON in Chrome's trace format, for chrome://tracing or ui.perfetto.dev.  Other
 * threads may go on computing meanwhile.  NULL: nothing is written.  KVIK_ARG if a path is given and nothing is
 * recorded; after any other error the recording is lost. */
KVIK_API int kvik_trace_end(const char *path);

/* ---- Sequences: operations on the tokens of a cache ----------------------------------------------- */

/* Keeps the first len tokens (0: none; beyond the end: all); len < 0 removes the last -len.  KVIK_ARG if the sequence
 * has fewer.  Layers recompute evicted rows that the shorter sequence needs, or the call fails and changes nothing. */
KVIK_API int kvik_cache_crop(kvik_cache *c, kvik_seq s, int64_t len);
/* Gives s[i] the contents that s[from[i]] had, for all i at once. */
KVIK_API int kvik_cache_reorder(kvik_cache *c, const kvik_seq *s, const uint32_t *from, uint32_t n);
/* Reserves memory for len tokens of s, so that appending up to there cannot be KVIK_FULL.  0 gives the reserve up.
 * Forks of s do not share it. */
KVIK_API int kvik_cache_reserve(kvik_cache *c, kvik_seq s, uint32_t len);
/* Returns the number of tokens, or a negative code. */
KVIK_API int64_t kvik_cache_length(const kvik_cache *c, kvik_seq s);
/* Removes all tokens of s, and the rows of an encoder; a crop to 0 keeps those. */
KVIK_API int kvik_cache_reset(kvik_cache *c, kvik_seq s);

/* Tokens to append to one sequence. */
typedef struct kvik_span {
    size_t size;
    kvik_seq seq;
    uint32_t n;
    /* [n] */
    const int32_t *ids;
} kvik_span;
/* Appends tokens to sequences, each of which occurs once, and computes logits.  Spans of any length are cut into
 * steps inside.  logits: NULL, or f32: with all false [n_spans][vocab], after the last token of each span; with all
 * true [sum of n][vocab], after every token. */
KVIK_API int kvik_forward(kvik_cache *c, const kvik_span *span, uint32_t n_spans, bool all,
                          float *logits);

/* The input of an encoder: token ids, text, or features, as input_features of Transformers.  0 and NULL: not given. */
typedef struct kvik_source {
    size_t size;
    /* [n] */
    const int32_t *ids;
    size_t n;
    /* [n] or NULL.  Ids where the mask is 0 are left out; it can hide ids before and behind the others, and none
     * between them. */
    const uint8_t *attention_mask;
    /* Encoded with the model's tokenizer, with the special tokens that it adds. */
    const char *text;
    /* [bins][n_frames] f32; see kvik_model_encoder. */
    const float *features;
    size_t n_frames;
} kvik_source;
/* Reads features [bins][frames] or [batch][bins][frames] from a safetensors file as f32.  dim: [3] batch, bins and
 * frames.  Free *data with kvik_free. */
KVIK_API int kvik_features_load(const char *path, const char *tensor, uint32_t *dim, float **data);
/* Gives an empty sequence of an encoder-decoder model the rows of its encoder; kvik_forward then appends the decoder's
 * tokens.  They are computed once for an input: other sequences share them, as forks and beams do (unless
 * no_prefix_cache is set).  Resetting a sequence drops them; a crop to 0 tokens keeps them. */
KVIK_API int kvik_cache_encode(kvik_cache *c, kvik_seq s, const kvik_source *in);
/* Returns how many encoder rows s has, 0 before kvik_cache_encode, or a negative code. */
KVIK_API int64_t kvik_cache_encoder_length(const kvik_cache *c, kvik_seq s);

/* How kvik_cache_sync or kvik_generate matched a conversation with a sequence. */
typedef struct kvik_sync {
    size_t size;
    /* Ids whose cached rows were reused. */
    uint64_t reused;
    /* Ids that were recomputed although the cached tokens agree. */
    uint64_t recomputed;
    /* Ids that were computed, in all. */
    uint64_t computed;
    /* Position of ids[0] in the text; above 0 only under a sink cache, where ids can be the end of a longer text. */
    uint64_t offset;
    /* First position at which ids and cached tokens differ; -1: one of the two is a prefix of the other. */
    int64_t divergence;
    /* The text around the divergence, as cached and as given.  NULL without a divergence or a tokenizer. */
    char *cached, *given;
    /* Why tokens were recomputed; NULL: none were. */
    char *reason;
} kvik_sync;
/* Makes s hold exactly ids[n], the full conversation: reuses the cached prefix as far as every layer can resume
 * from it, and computes the rest.  After an error s is as it was. logits: [vocab] after the last token, which is
 * then always computed; NULL: all of ids may be reused. report: NULL, or freed with kvik_sync_done.  Under a sink
 * cache, ids that are exactly the last window_length tokens of a text continue that text if the sequence ends as
 * they begin.  kvik_generate does the same for kvik_prompt.seq and reports in kvik_row.sync. */
KVIK_API int kvik_cache_sync(kvik_cache *c, kvik_seq s, const int32_t *ids, size_t n, float *logits,
                             kvik_sync *report);
/* Frees the texts of a report. */
KVIK_API void kvik_sync_done(kvik_sync *report);

/* Describes what one sequence holds and where, as JSON; free *json with kvik_free.  {"tokens", "groups": [..]}: a
 * group is the layers that keep the same rows, with "layers", "kind", "window", "sinks", "codec", "rows", "lead",
 * "residual_length", "block_rows", "block_bytes", "tile_rows", "tile_bytes", "tile_coded" (no padding), "snapshots",
 * "blocks" and "tiles" ({"count", "shared", "spilled", "bytes", "shared_bytes", "spilled_bytes"}), and "map": a letter
 * for each block: '.' not held, 'o' open, 'r' full, 'e' quantized, 'd' on disk, 'z' quantized and on disk; capitals
 * for blocks that other sequences share.
 *
 * s 0: the whole store, {"groups": [..]} with "layers", "kind", "codec", and a letter for each block ("blocks") and
 * each quantized tile ("tiles") that there was at once: '.' free, 'k' held for reuse alone ('K': on disk), the others
 * as above; nothing is 'o'. */
KVIK_API int kvik_cache_map(const kvik_cache *c, kvik_seq s, char **json);
/* Predicts what a sequence of n tokens, of which the first `prompt` are one call, will hold: JSON with "bytes" and its
 * kinds, "own" (what forks after the prompt do not share), "peak", "metadata".  Free *json with kvik_free. */
KVIK_API int kvik_cache_plan(const kvik_cache *c, uint32_t prompt, uint32_t n, char **json);

/* ---- Sessions: sequences on disk ------------------------------------------------------------------ */

/* Saves n sequences in the file `path`, with a note (any text, or NULL); at every instant the file has its old contents
 * or all new ones.  Blocks that sequences share, or that a session of this model has, are not written again.
 *
 * A session that this cache has not loaded, or that others have saved since, is not replaced: KVIK_BUSY.  To keep both,
 * take another name.  To replace it, save under another name in the same directory, and rename() that file to `path`:
 * a crash then leaves the old session or the new one.  unlink(path) before the save works too, but there is no
 * session until the save has ended.  This cache can save under `path` again afterwards. */
KVIK_API int kvik_cache_save(kvik_cache *c, const char *path, const kvik_seq *s, uint32_t n,
                             const char *note);
/* Loads a session as new sequences, at most max, and returns their number; after an error there are none.  They
 * continue with the bits they would have had without the file.  Model, compute, the rows seen and the codec must be
 * those of the session; cache_implementation, cache_memory and where rows live may differ.  note: NULL, or *note is
 * "" or the note; free it with kvik_free. */
KVIK_API int kvik_cache_load(kvik_cache *c, const char *path, uint32_t max, kvik_seq *s,
                             char **note);
/* A directory of sessions as a cache of prompts.  load: makes a sequence with the longest prefix of ids that a
 * session in the directory holds and this cache can resume from.  Returns its number of tokens, or 0 and no
 * sequence.  save: adds a sequence to the directory.  Above max_bytes (0: 1 GiB) the least recently used files that
 * kvik made are removed.  Files of other models, damaged files and files that another process writes are skipped.
 * With a notice, so are files and directories that users other than you and root own or can write.  Rows that sequences
 * have in common stand in one file, once.  Where rows depend on turns (quanto, hqq) nothing is found. */
KVIK_API int64_t kvik_prefix_load(kvik_cache *c, const char *dir, const int32_t *ids, size_t n,
                                  kvik_seq *s);
/* The same among sequences that were saved with this cache_salt; kvik_prefix_load finds those without one. */
KVIK_API int64_t kvik_prefix_load_salted(kvik_cache *c, const char *dir, const int32_t *ids,
                                         size_t n, const char *cache_salt, kvik_seq *s);
KVIK_API int kvik_prefix_save(kvik_cache *c, const char *dir, kvik_seq s, uint64_t max_bytes);
/* Checks a directory of prompts before a run, and makes it if it does not exist.  Returns 1, or 0 if this cache cannot
 * use one because its rows depend on turns.  c NULL: checks the directory alone. */
KVIK_API int kvik_prefix_check(kvik_cache *c, const char *dir);
/* Reads and checks a whole session file, and describes it as JSON; free *json with kvik_free. */
KVIK_API int kvik_session_describe(const char *path, char **json);

/* ---- Options: what kvik_generation sets ------------------------------------------------------------ */

#define KVIK_MAX_EOS 32
/* New tokens of a text where neither max_new_tokens nor max_length is set. */
#define KVIK_NEW_TOKENS 20u
/* When a beam search ends.  FALSE: when no running beam is likely to improve on the finished ones, by its score at
 * its present length.  TRUE: when num_beams sequences have finished.  NEVER: when no running beam can improve, even
 * at the longest length. */
enum kvik_early { KVIK_EARLY_FALSE, KVIK_EARLY_TRUE, KVIK_EARLY_NEVER };
/* A bias that is added to the score of the last id wherever the text ends with the other ids. */
typedef struct kvik_bias {
    int32_t *ids;
    uint32_t n;
    double bias;
} kvik_bias;

/* Options of generation.  docs/OPTIONS.md explains each; fields that are pointers belong to the struct, so set them
 * with kvik_generation_set. */
struct kvik_generation {
    size_t size;
    /* Length, in tokens.  0: not set.  max_length and min_length count the prompt; max_new_tokens wins over
     * max_length, and with neither the limit is KVIK_NEW_TOKENS. */
    uint32_t max_new_tokens, max_length;
    uint32_t min_new_tokens, min_length;
    /* Seconds; 0: no limit. */
    double max_time;
    int32_t eos_token_id[KVIK_MAX_EOS];
    uint32_t n_eos;
    char **stop_strings;
    uint32_t n_stop_strings;
    /* False: the stop string is left out of the text, and the stream holds back text that may begin one.  The ids
     * contain it in any case. */
    bool include_stop_str_in_output;
    /* -1: none. */
    int32_t pad_token_id, bos_token_id;
    /* The token that begins the decoder's text of a model with an encoder.  -1: the model's own. */
    int32_t decoder_start_token_id;
    /* Sampling; false: the most likely token. */
    bool do_sample;
    uint64_t seed;
    double temperature;
    /* Filters of sampling.  top_p and typical_p 1 are off; 0 is off for the others. */
    double top_h;
    uint32_t top_k;
    double top_p, min_p, typical_p, epsilon_cutoff, eta_cutoff;
    /* Processors of scores.  encoder_repetition_penalty is for tokens of the prompt; penalties of 1 are off.  0 is off
     * for the n-gram sizes. */
    double repetition_penalty, encoder_repetition_penalty;
    uint32_t no_repeat_ngram_size, encoder_no_repeat_ngram_size;
    /* The field `bias` of bad_words_ids is not used. */
    kvik_bias *sequence_bias, *bad_words_ids;
    uint32_t n_sequence_bias, n_bad_words_ids;
    int32_t *suppress_tokens, *begin_suppress_tokens;
    uint32_t n_suppress_tokens, n_begin_suppress_tokens;
    /* -1: none. */
    int32_t forced_bos_token_id, forced_eos_token_id[KVIK_MAX_EOS];
    uint32_t n_forced_eos;
    /* exponential_decay_length_penalty is the pair (decay_start, decay_factor); factor 0 is off. */
    uint32_t decay_start;
    double decay_factor;
    /* 1 is off.  Every row or beam needs one more sequence. */
    double guidance_scale;
    /* NULL: the last token of the prompt. */
    int32_t *negative_prompt_ids;
    uint32_t n_negative_prompt_ids;
    bool remove_invalid_values, renormalize_logits;
    /* Above 1: beam search. */
    uint32_t num_beams;
    /* Scores of beams are divided by length to this power; above 0 favours longer texts. */
    double length_penalty;
    enum kvik_early early_stopping;
    /* Beams in groups. */
    uint32_t num_beam_groups;
    double diversity_penalty;
    /* Contrastive search; 0 is off.  Every row needs top_k sequences. */
    double penalty_alpha;
    /* Speculative decoding: prompt lookup (0 is off), and an assistant model. */
    uint32_t prompt_lookup_num_tokens, max_matching_ngram_size;
    uint32_t num_assistant_tokens;
    char *num_assistant_tokens_schedule;
    double assistant_confidence_threshold;
    /* False: recompute the whole text for every token. */
    bool use_cache;
    /* Tokens of the prompt computed in one step, or of all prompts in a step of requests.  0: step_tokens. */
    uint32_t prefill_chunk_size;
    /* How the cache is kept that these options open (kvik_cache_config.options); kvik_generate uses the cache that it
     * is given.  The configurations are JSON. */
    char *cache_implementation, *cache_config;
    uint32_t max_cache_len;
    /* The same for the encoder's rows. */
    char *cross_cache_implementation, *cross_cache_config;
    uint32_t max_encoder_len;
    /* Accepted without effect, because every step is a recorded plan.  compile_config is JSON. */
    bool disable_compile;
    char *compile_config;
    /* JSON: settings of the model's own file that this version cannot do, such as {"num_beam_groups": 4}.
     * Generating fails and names them until each is set to a value without effect. */
    char *unmet;
    /* Rows of the result per prompt: the best beams, or samples. */
    uint32_t num_return_sequences;
    /* Keep the raw logits, and the processed scores, of every step in the result. */
    bool output_logits, output_scores;
    /* Give the sequences of the rows to the caller (kvik_row.seq). */
    bool return_dict_in_generate;
    /* Give the KV rows as arrays (kvik_result.past_key_values). */
    bool return_legacy_cache;
    /* JSON Schema that the generated text is valid under, or "json_object" for any object.  NULL: any text.  A text
     * that its length limit ends is a beginning of a valid one. */
    char *json_schema;
    /* Filters, too: far below the best, in standard deviations; likely tokens, now and then.  0 is off. */
    double top_n_sigma, xtc_probability, xtc_threshold;
};

/* A row of the table of options, from which kvik_generation_set, --help and bindings are made. */
typedef struct kvik_option {
    /* As in Transformers, with underscores. */
    const char *name;
    /* "bool", "uint", "int", "float", "string", "strings", "json"; "schema": a JSON schema or "json_object"; "choice":
     * true, false or one of `choices`; "ids": one token id or several; "lists": [[id, ...], ...]; "biases":
     * [[[id, ...], number], ...]; "pair": [integer, number]. */
    const char *type;
    /* The default, as text. */
    const char *fallback;
    /* The range of a number. */
    double min, max;
    /* "a|b|c", or NULL. */
    const char *choices;
    const char *help;
    /* "length", "sampling", "scores", ...; options of one group are neighbours. */
    const char *group;
} kvik_option;
/* Returns option i, or NULL beyond the last. */
KVIK_API const kvik_option *kvik_option_at(uint32_t i);
/* Returns the option whose name is nearest to a misspelled one, or NULL if none is near. */
KVIK_API const char *kvik_option_nearest(const char *name);
/* Reads an option of type "bool", "uint", "int" or "float" by its name.  KVIK_ARG for others. */
KVIK_API int kvik_generation_number(const kvik_generation *g, const char *name, double *value);

/* ---- Results: prompts and results of a generation -------------------------------------------------- */

/* A text to continue.  Zero and NULL: not given. */
struct kvik_prompt {
    size_t size;
    /* [n] the text as token ids, */
    const int32_t *ids;
    size_t n;
    /* or as text, which the model's tokenizer encodes with the special tokens that a text begins with; without them if
     * `append` is set or the model has an encoder. */
    const char *text;
    /* Embeddings of the prompt, [n_embeds][kvik_model_hidden], as inputs_embeds of Transformers.  Processors and the
     * result see only the ids, which the embeddings replace: there may be none.  For greedy decoding and sampling on a
     * fresh sequence with use_cache; the prefix index does not know embeddings.  Continue the sequence of the result
     * with `append`.  Its rows of embeddings cannot be recomputed: KVIK_LOST where a crop, or a model whose rotary
     * frequencies change with the length, needs that. */
    const float *embeds;
    size_t n_embeds;
    /* [n], or [n_embeds].  Tokens where the mask is 0 are left out.  Not for models with an encoder. */
    const uint8_t *attention_mask;
    /* The last n_new of ids are new tokens that an earlier generation chose: this one goes on where that one was ended,
     * with the same draws, lengths, processors and text.  The result has them among its new tokens; callbacks are not
     * told of them again.  KVIK_ARG if they end the text: it is complete.  Not with beams, contrastive search,
     * guidance, embeddings or `append`. */
    size_t n_new;
    /* 0: a fresh sequence, dropped at the end.  Else ids are the whole text: the cached prefix is reused, and the
     * sequence keeps what was generated (with beams: the rows of the best beam, as far as they are computed). */
    kvik_seq seq;
    /* True: ids follow what seq holds instead of repeating it; processors and the result see only ids.  Not with
     * beams, contrastive search or speculative decoding. */
    bool append;
    /* For models with an encoder (T5, BART, Whisper): its input.  The text is then the decoder's, which begins
     * with decoder_start_token_id; without a text it is only that token.  NULL: `seq` has the encoder's rows. */
    const kvik_source *source;
    /* Fresh sequences share rows only with those of the same text, so that nobody learns by timing what others have
     * asked.  All prompts of a call have the same.  NULL: "", which kvik_cache_new gives as well. */
    const char *cache_salt;
};

/* Why a row ended.  LENGTH: max_new_tokens or max_length.  EOS: an end-of-sequence token.  STOP: a stop string.
 * CANCELLED: a callback.  CRITERIA: kvik_hooks.stopping_criteria.  TIME: max_time.  CONTEXT, MAX_CACHE_LEN: the limit
 * of the model or the lower one of the cache came first.  NOT_FINITE: the model gave NaN or infinity, as damaged
 * weights do (a notice says so; a beam search fails with KVIK_FORMAT). */
enum kvik_finish {
    KVIK_FINISH_LENGTH,
    KVIK_FINISH_EOS,
    KVIK_FINISH_STOP,
    KVIK_FINISH_CANCELLED,
    KVIK_FINISH_CRITERIA,
    KVIK_FINISH_TIME,
    KVIK_FINISH_CONTEXT,
    KVIK_FINISH_MAX_CACHE_LEN,
    KVIK_FINISH_NOT_FINITE
};
/* Returns "length", "eos", "stop", "cancelled", "criteria", "time", "context", "max_cache_len" or "not_finite". */
KVIK_API const char *kvik_finish_name(enum kvik_finish f);

/* One text of a result. */
typedef struct kvik_row {
    /* The prompt as given, then the n - n_prompt new tokens; without padding. */
    int32_t *ids;
    size_t n, n_prompt;
    /* The new tokens as text, without special tokens; NULL without a tokenizer. */
    char *text;
    enum kvik_finish finish;
    /* Prompt tokens whose cached rows were reused. */
    size_t reused;
    /* Why a new sequence reused no cached tokens; NULL if it did.  Static text. */
    const char *prefix_miss;
    /* How the prompt matched kvik_prompt.seq, on the first row of the prompt; else NULL. */
    kvik_sync *sync;
    /* With beams: sum of log-probabilities / length^length_penalty.  Else 0. */
    double score;
    /* With beams: [n - n_prompt] the row of logits that each new token came from; in groups, counted within the
     * group, prompt after prompt, as Transformers counts.  Else NULL. */
    int32_t *beam_indices;
    /* With return_dict_in_generate: the sequence of this row, with all tokens but the last.  It is the caller's, to
     * continue or drop.  Else 0. */
    kvik_seq seq;
} kvik_row;

/* What a generation returns; free it with kvik_result_free. */
struct kvik_result {
    /* [n_rows]: num_return_sequences rows for each prompt in turn; beams best first. */
    kvik_row **row;
    uint32_t n_rows;
    /* Steps of the model: one per new token, fewer with accepted draft tokens. */
    uint32_t steps;
    uint64_t prompt_tokens, new_tokens, computed_tokens;
    /* Draft tokens that were checked, and those that were accepted. */
    uint64_t drafted, accepted;
    double prefill_seconds, decode_seconds;
    /* New tokens of the longest row. */
    uint32_t logit_steps;
    /* n_rows; with beams, prompts times num_beams. */
    uint32_t logit_rows;
    uint32_t vocab;
    /* With output_logits: [logit_steps][logit_rows][vocab] raw logits.  A row that has ended has the logits of
     * padding, where the cache has room to compute them; with beams and contrastive search, zeros. */
    float *logits;
    /* With output_scores: the same after the processors; with beams, log-probabilities. */
    float *scores;
    /* With return_legacy_cache: the KV rows of all rows' sequences. */
    kvik_legacy *past_key_values;
};
/* Writes the logits and scores of a result as a safetensors file, tensors "logits" and "scores"
 * [logit_steps][logit_rows][vocab] f32.  A failed call leaves no file. */
KVIK_API int kvik_logits_save(const kvik_result *r, const char *path);

/* ---- Callbacks: what a generation tells and asks ---------------------------------------------------- */

/* Callbacks run in the thread that called kvik_generate. */

/* A new token of a row, not with beams.  text: the characters that are complete now ("" is possible). id: the
 * token, or -1 with the last characters.  Return false to cancel: every row ends after this step with
 * KVIK_FINISH_CANCELLED. */
typedef bool (*kvik_on_token)(void *ctx, uint32_t row, int32_t id, const char *text);
/* The probability of a token that was chosen, or might have been: its natural logarithm, after the model's own logits,
 * before all processors and the temperature. */
typedef struct kvik_logprob {
    int32_t id;
    float logprob;
} kvik_logprob;
/* Called before on_token: token[0] is the chosen token, token[1..n) are the kvik_hooks.top_logprobs most likely ones,
 * the likeliest first.  Valid during the call.  Return false to cancel, as on_token does. */
typedef bool (*kvik_on_logprobs)(void *ctx, uint32_t row, const kvik_logprob *token, uint32_t n);
/* Progress of prefill, in tokens; with beams also of decoding.  Calls that append to the cache are KVIK_BUSY
 * meanwhile.  Return false to cancel. */
typedef bool (*kvik_on_progress)(void *ctx, uint64_t done, uint64_t total);
/* Called between tokens, at most once in 50 ms.  For programs that only want to be able to stop: it costs less than
 * on_token; during prefill there is on_progress.  Return false to cancel, as on_token does, with beams as
 * on_progress does. */
typedef bool (*kvik_on_pulse)(void *ctx);
/* Something that is no error, as one line: "cache memory 64.0 MiB full at token 912; continuing ...". */
typedef void (*kvik_on_notice)(void *ctx, const char *text);
/* Changes scores[vocab] of the token after ids[n] in place, after all other processors and before temperature and
 * the filters of sampling; with beams they are log-probabilities.  row: of the result, with beams prompt *
 * num_beams + beam.  Return false to fail with KVIK_CANCELLED. */
typedef bool (*kvik_logits_processor)(void *ctx, uint32_t row, const int32_t *ids, size_t n,
                                      float *scores, uint32_t vocab);
/* Called after every token: return true to end the row with KVIK_FINISH_CRITERIA.  With beams it is called for
 * every candidate and ends that beam as an end-of-sequence token does. */
typedef bool (*kvik_stopping_criteria)(void *ctx, uint32_t row, const int32_t *ids, size_t n);

/* Every member may be NULL. */
struct kvik_hooks {
    size_t size;
    /* The first argument of every callback. */
    void *ctx;
    kvik_on_token on_token;
    /* Special tokens that have a text all the same, [n_shown_tokens], in on_token, for stop strings and in
     * kvik_row.text: marks of tool calls, for example.  The array must stay valid until the generation is over. */
    const int32_t *shown_tokens;
    uint64_t n_shown_tokens;
    /* Not with beams and contrastive search: KVIK_UNSUPPORTED. */
    kvik_on_logprobs on_logprobs;
    /* Tokens that on_logprobs gets beside the chosen one, at most the vocabulary and 1024. */
    uint64_t top_logprobs;
    kvik_on_progress on_progress;
    kvik_on_pulse on_pulse;
    kvik_on_notice on_notice;
    kvik_logits_processor logits_processor;
    kvik_stopping_criteria stopping_criteria;
    /* A cache on a smaller model with the same vocabulary, which drafts tokens for greedy decoding and sampling.
     * Drafts are checked in one step: the same result comes sooner.  With drafts (of prompt lookup as well)
     * callbacks come before a step ends: appending to the cache is KVIK_BUSY, and so are kvik_cache_export, and a
     * fork or a save of a sequence that generates. */
    kvik_cache *assistant_model;
    /* Callbacks that see all rows at once (kvik_compat.h).  It must stay valid until the generation is over. */
    const struct kvik_together *together;
};

#ifdef __cplusplus
}
#endif

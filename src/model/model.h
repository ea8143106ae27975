/* model.h - floor 4: weights bound to an architecture, and the forward pass over a cache.  A model is read-only,
 * and several caches may share it, with its device and the weights there.  An exec runs it for one thread: it owns a
 * queue of the device, the activations and the store.  An architecture is one file in arch/: it reads its config
 * keys, binds its weights, and writes its forward in the words of graph.c.  No other file knows the architecture's
 * name. */
#pragma once
#include "base/base.h"
#include "base/json.h"
#include "dev/dev.h"
#include "fmt/fmt.h"
#include "kv/kv.h"
#include "model/preset.h"

#include <pthread.h>

/* --- rope.c: rotary frequencies, with the names and formulas of Transformers' modeling_rope_utils. */
enum rope_type {
    ROPE_DEFAULT,
    ROPE_LINEAR,
    ROPE_LLAMA3,
    ROPE_YARN,
    ROPE_DYNAMIC,
    ROPE_LONG,
    ROPE_TYPES
};
struct rope {
    enum rope_type type;
    uint32_t rot; /* rotated dims of a head */
    bool interleaved;
    double theta, factor, low_freq_factor, high_freq_factor, attention_factor, beta_fast, beta_slow;
    bool truncate;
    uint32_t original;  /* original_max_position_embeddings */
    float *inv_freq;    /* [rot/2] owned */
    float *freq_factor; /* [rot/2] owned, or NULL: divisors stored in a GGUF file */
    /* longrope: divisors of the frequencies, for sequences of at most `original` tokens, and for longer ones */
    float *short_factor, *long_factor; /* [n_factors] owned */
    uint32_t n_factors;
    float *long_inv_freq; /* [rot/2] owned */
};
const char *rope_type_name(enum rope_type t);
/* Reads the rope of config.json in both spellings: rope_theta with rope_scaling, and rope_parameters.  r->theta is the
 * default of rope_theta; 0 means 10000. */
int rope_read(struct rope *r, const json_t *config, const char *what, uint32_t context);
/* Computes inv_freq.  rot and freq_factor must be set. */
int rope_prepare(struct rope *r);
void rope_done(struct rope *r);
/* Fills cos and sin, [n][rot/2].  end[i]: last position of the turn of token i (dynamic NTK), or any position in
 * the regime of its sequence (longrope). */
void rope_fill(const struct rope *r, const uint32_t *pos, const uint32_t *end, uint32_t n,
               float *cos, float *sin);
/* Computes cos and sin [rot/2] that turn a row by `by` positions.  Only for fixed frequencies; without the attention
 * factor. */
void rope_turn(const struct rope *r, int64_t by, float *cos, float *sin);

/* --- a model */
struct model;
struct pass;
struct graph;
struct arch {
    const char *const *names;     /* model_type and general.architecture values, NULL-terminated */
    int (*open)(struct model *m); /* reads the configuration, binds weights, fills struct model */
    /* Records the forward of one step in the words below.  It is called once, when an exec is opened; every step
     * replays the record. */
    int (*graph)(const struct model *m, struct graph *g);
    /* Records the encoder's phase: steps whose spans have `cross`, which write the sites of kind KV_FROZEN.  NULL:
     * the model has no encoder. */
    int (*encode)(const struct model *m, struct graph *g);
};
/* Registers an architecture, by one line in its file. */
#define MODEL_ARCH(ident, ptr)                                                                     \
    const struct arch *const kvik_arch_##ident                                                     \
        __attribute__((section("kvik_arch"), used, visibility("hidden"))) = ptr
const struct arch *model_arch_at(uint32_t i); /* NULL past the end */

enum norm_kind { NORM_NONE, NORM_RMS, NORM_LAYER };
struct mod_norm {
    enum norm_kind kind; /* NORM_NONE: no norm */
    /* [width] or NULL; without w the factors are 1, without b (RMS norms have none) the biases 0 */
    float *w, *b;
    float eps;
};

/* A model's encoder, and the input that it takes. */
struct model_encoder {
    uint32_t n_layers; /* 0: the model has no encoder */
    uint32_t heads;    /* heads of the attention in the encoder */
    uint32_t rows;     /* most rows of an input, unless the cache is opened for a longer one */
    bool fixed;        /* no cache can be opened for more rows: the encoder has learned positions */
    uint32_t bins;     /* values of a frame of features; 0: the input is token ids */
    uint32_t stride;   /* frames that make one row; 1 for ids */
    bool whole;        /* every input has exactly rows * stride frames */
    bool counts_padding; /* masked columns before an input count in the positions of its tokens */
    int32_t start;       /* decoder_start_token_id of the configuration; -1: none */
};

#define MODEL_ROPES  2u
#define MODEL_LAYERS 512u /* at most */
struct model {
    struct checkpoint *ck; /* owned */
    struct dev *dev;       /* owned */
    struct placed *placed; /* owned: where weights are on the device (placed.c) */
    const json_t *config;  /* the object that holds the keys: config.json or its text_config */
    const struct arch *arch;
    char arch_name[64];
    const char *what;  /* path, for errors */
    char *config_file; /* owned; path of config.json, or of the GGUF file, for errors */
    uint32_t n_layers, hidden, n_heads, n_kv_heads, head_dim, ffn, vocab, context;
    float norm_eps;
    struct rope rope[MODEL_ROPES];
    uint32_t n_ropes;
    /* masked columns before a prompt count in the positions of its tokens (Llama 4) */
    bool counts_padding;
    /* positions are a table of `context` rows, so no sequence can be longer */
    bool learned_positions;
    const char *no_sinks; /* why a sink cache cannot be exact, or NULL */
    /* [n_sites] owned: where the model keeps the past; mostly site i belongs to layer i */
    struct kv_site *site;
    uint32_t n_sites;
    struct dev_weight embed, head;
    float embed_scale; /* factor of the embeddings before the first layer; 0: none */
    bool scales_given; /* the factor also applies to embeddings that a caller gives (Granite) */
    bool tied;
    struct mod_norm final_norm; /* of [hidden], or NORM_NONE */
    float head_scale;           /* factor of the head's input; 0: none */
    float *head_bias;           /* [vocab] or NULL */
    struct model_encoder encoder;
    float logit_softcap; /* 0: none */
    void *arch_weights;  /* the weights as the architecture binds them, in a block of own[] */
    void **own;          /* owned blocks, freed at close */
    uint32_t n_own;
    enum dtype weight_dtype; /* type of most of the matrix weights */
    uint64_t n_params;
    /* Digest of all weights, and the fingerprint in hex.  They are set when a session first needs them. */
    struct weights_digest {
        pthread_mutex_t lock; /* caches of several threads may need the digests at once */
        char fingerprint[65]; /* "": not known yet */
        bool known;
        uint8_t all[32], files[32]; /* identity and times of the files when the digest was made */
    } weights;
    /* Not NULL only while a plan of quantizing is made: collects the matrices that the architecture binds
     * (weights_quantize.c). */
    struct matrix_list *matrices;
};
int model_open(const char *path, struct model **out);
/* Opens a model whose matrices of f32, f16 and bf16 are quantized; see weights_quantize.c. */
struct quantize {
    enum dtype to; /* q8_0, q4_0 or q4_k; DT_F32: do not quantize */
    void (*on_notice)(void *ctx, const char *text);
    void *ctx;
};
/* Opens a model and quantizes its matrices.  device: as dev_open takes it. */
int model_open_quantized(const char *path, const struct quantize *q, const char *device,
                         struct model **out);
int weights_quantize(struct model *m, const struct quantize *q);
/* Opens the architecture of m->ck.  If m->matrices is set, also notes there which tensors are matrices. */
int model_bind(struct model *m);
/* Frees everything that model_bind has made, but not the checkpoint. */
void model_done(struct model *m);
void matrix_note(struct matrix_list *l, const struct tensor *t, bool turned);
void model_close(struct model *m);
/* fingerprint.c: writes a SHA-256 of the configuration and of samples of the weights, 4 KiB of every tensor. */
int model_fingerprint(const struct model *m, uint8_t out[32]);
/* Writes the SHA-256 of all weights.  The first call reads all weights, with that many threads (0: the CPUs of
 * this process), unless an earlier run has kept the digest.  Returns 1 if the digest agrees with an earlier one, 0
 * if there was none.  ERR_IO if it does not agree, or if a file was written to since the model was opened. */
int model_weights(struct model *m, uint32_t threads, uint8_t out[32]);
/* As model_weights, but reads all weights even if their digest is known. */
int model_weights_again(struct model *m, uint32_t threads);
/* Writes both digests in hex, as session files name their model; see model_weights for threads and errors. */
struct model_digests {
    char fingerprint[65], weights[65];
};
int model_digests(struct model *m, uint32_t threads, struct model_digests *out);
/* --- config.c: keys of config.json, or of GGUF metadata under "<arch>.".  A key that is NULL is absent. */
bool model_is_gguf(const struct model *m);
int model_u32(const struct model *m, const char *hf, const char *gguf, uint32_t min, uint32_t max,
              uint32_t *out); /* 1 found, 0 absent */
int model_need_u32(const struct model *m, const char *hf, const char *gguf, uint32_t min,
                   uint32_t max, uint32_t *out);
int model_f32(const struct model *m, const char *hf, const char *gguf, float *out);
/* True if the key is in config.json and its value is null. */
bool model_is_null(const struct model *m, const char *hf);
/* Refuses a configuration if the key has another value than `want`, or than false.  An absent key passes. */
int model_expect_str(const struct model *m, const char *hf, const char *want);
int model_expect_false(const struct model *m, const char *hf);
/* Enters config.json's text_config, if there is one.  Later calls then read keys of that object, and also find
 * tensors under the names in models of text and images. */
int model_enter_text(struct model *m);
/* --- weights.c.  Names are formats with one %u for the layer. */
/* Returns zeroed memory that lives as long as the model. */
void *model_own(struct model *m, size_t n, size_t size);
/* Returns a tensor, or NULL if it is absent. */
const struct tensor *model_find(const struct model *m, const char *hf, const char *gguf,
                                uint32_t layer);
/* Binds a matrix [rows][cols] by its Hugging Face or GGUF name, and checks its shape. */
int model_matrix(struct model *m, const char *hf, const char *gguf, uint32_t layer, uint32_t rows,
                 uint32_t cols, struct dev_weight *out);
/* Binds a matrix that --quantize leaves as it is: one that routes tokens to experts, or learned positions. */
int model_plain(struct model *m, const char *hf, const char *gguf, uint32_t layer, uint32_t rows,
                uint32_t cols, struct dev_weight *out);
/* Binds a vector of n values as f32.  *out is NULL if the tensor is absent and `optional`. */
int model_vector(struct model *m, const char *hf, const char *gguf, uint32_t layer, uint32_t n,
                 bool optional, float **out);
/* Binds an array of n_dims <= 4 dimensions as f32.  No dimension may be above 2^20. */
int model_array(struct model *m, const char *hf, const char *gguf, uint32_t layer,
                const uint32_t *dim, uint32_t n_dims, float **out);
/* Binds a norm of `width` values with the model's epsilon.  Names are given without ".weight" and ".bias".  The
 * bias of a LayerNorm may be absent.  An absent norm is an error unless `optional`; *out is then NORM_NONE. */
int model_norm(struct model *m, enum norm_kind kind, const char *hf, const char *gguf,
               uint32_t layer, uint32_t width, bool optional, struct mod_norm *out);
/* Adds 1 to the n weights of a norm, because Hugging Face files store w - 1.  GGUF files store w and are left
 * alone. */
void model_norm_plus_one(const struct model *m, struct mod_norm *norm, uint32_t n);
/* Returns rows [row0, row0 + rows) of a matrix.  Fused projections are bound as a whole and cut with it. */
struct dev_weight model_rows(const struct dev_weight *w, uint32_t row0, uint32_t rows);
/* Binds a matrix that a Hugging Face file holds as [cols][rows] (Conv1D), as an owned transposed copy of type f32, f16
 * or bf16.  GGUF files hold the matrix as [rows][cols], and it is bound without a copy. */
int model_transposed(struct model *m, const char *hf, const char *gguf, uint32_t layer,
                     uint32_t rows, uint32_t cols, struct dev_weight *out);
/* Binds out[n], the matrices [rows][cols] of a tensor [n][rows][cols].  `transposed`: a Hugging Face file holds the
 * tensor as [n][cols][rows]. */
int model_experts(struct model *m, const char *hf, const char *gguf, uint32_t layer, uint32_t n,
                  uint32_t rows, uint32_t cols, bool transposed, struct dev_weight *out);
/* --- placed.c */
int placed_open(struct model *m, const char *device);
/* Returns where operations see n bytes of weights: the same place for every cache of the model.  NULL with an error set. */
void *model_placed(const struct model *m, const void *host, size_t n);
void placed_close(struct model *m);
/* --- mxfp4.c */
/* Binds out[n], matrices [rows][cols] in the layout of GGUF, from a Hugging Face file's <hf>_blocks and <hf>_scales; the
 * model owns the copies.  Row r is row first + r * step of the file's rows * step, so two calls bind gate and up
 * projections whose rows alternate.  Returns 1; 0 if the tensors are absent, as in GGUF files. */
int model_mxfp4(struct model *m, const char *hf, uint32_t layer, uint32_t n, uint32_t rows,
                uint32_t cols, uint32_t first, uint32_t step, struct dev_weight *out);
/* Writes n_blocks * 17 bytes: each block's scale and its 16 bytes of codes, whose nibbles were neighbours. */
void mxfp4_repack(const unsigned char *codes, const unsigned char *scales, size_t n_blocks,
                  unsigned char *out);

/* --- site.c */
/* Replaces m->site by n new sites.  Site i is full attention of layer i, n_kv_heads heads of head_dim; the architecture
 * changes the sites that differ. */
int model_new_sites(struct model *m, uint32_t n);

/* --- decoder.c: what most decoder configurations have in common */
/* Reads layers, hidden, ffn, heads, kv heads, head_dim, context and norm_eps by their usual keys, and declares a
 * site of full attention for every layer.  A field that is not 0 before the call is the default of its absent key.
 * For n_kv_heads such a default holds in Hugging Face directories, up to n_heads; without it, and for null, the
 * default is n_heads. */
int model_read_decoder(struct model *m);
/* Reads norm_eps.  If norm_eps is 0 before the call, `usual` is the default of the absent key. */
int model_read_eps(struct model *m, const char *hf, const char *gguf, float usual);
/* Reads the window of sliding layers; 0: none.  *window holds the default before the call; null in the
 * configuration means none. */
int model_read_window(const struct model *m, uint32_t *window);
/* Reads layer_types: is[i] is true if layer i has the type `other`, false for full_attention.  Any third type is
 * an error.  Returns 1, or 0 if config.json has no such list. */
int model_layer_types(const struct model *m, const char *other, bool *is);
/* Sets m->site[i].window of every layer that slides, by config.json's layer_types.  Without layer_types, layer i slides if
 * i >= from and i + 1 is not a multiple of `period`; a period of 0 has no multiples. */
int model_slide(struct model *m, uint32_t window, uint32_t from, uint32_t period);
/* Reads m->rope[i] by the usual keys: rope_parameters (or its `section`) of config.json, rope.* of GGUF.  Also
 * sets rot, from partial_rotary_factor or rope.dimension_count.  If rope[i].theta is not 0 before the call, it is
 * the default of rope_theta.  Call rope_prepare after the last change. */
int model_read_rope(struct model *m, uint32_t i, const char *section);
/* Binds the embedding, the final norm and the head.  The embedding's shape gives the vocabulary.  m->tied is the
 * default of tie_word_embeddings. */
int model_bind_ends(struct model *m);
/* As model_bind_ends, with other Hugging Face names of the embedding and the final norm. */
int model_bind_named_ends(struct model *m, const char *embed, const char *norm);
/* Writes the embeddings of n ids, [n][hidden], in the form in which a caller gives embeddings: without learned
 * positions, and multiplied by the factor unless `scales_given`. */
int model_embed(const struct model *m, const int32_t *ids, size_t n, float *out);
struct model_proj {
    const char *hf, *gguf; /* names without ".weight" and ".bias"; %u stands for the layer */
    uint32_t rows, cols;
    struct dev_weight *w;
    float **bias; /* NULL: the projection has none */
};
/* Binds the matrices of one layer, and those biases that the file has.  The list ends with hf == NULL. */
int model_bind_projs(struct model *m, uint32_t layer, const struct model_proj *p);

/* --- exec.c: one forward over the store */
/* Sequences that the store has for each of max_sequences: one of the caller's, one that a call feeds, one that it
 * returns. */
#define EXEC_HANDLES 3u
struct exec_config {
    uint32_t threads;
    const char *isa;
    enum dev_compute compute;
    uint32_t step_tokens, max_seqs, max_len;
    uint32_t encoder_rows; /* most rows of an encoder's input; 0: the model has no encoder */
    size_t pool_bytes;
    bool reserve; /* static: every sequence reserves max_len rows when it begins */
    enum kv_streaming streaming;
    size_t stage_bytes;
    const char *spill_dir; /* NULL: see kv_tier_file_open */
    bool no_index;         /* the prefix index is off */
    uint32_t chunks;       /* most chunks of a sequence that are borrowed (splice.c); 0: none */
    struct preset_options preset;
};
struct exec {
    const struct model *m;
    struct dev_queue *queue; /* owned: of the model's device */
    struct kv *kv;
    enum dev_compute compute;
    uint32_t step_tokens, max_seqs, max_len, encoder_rows;
    uint32_t *site;         /* [n_sites] the store's number of each site of the model */
    struct kv_group *group; /* [n_groups] as at the opening; kv_group_now has the present codecs */
    uint32_t n_groups;
    struct graph *graph;  /* the recorded step */
    struct graph *encode; /* graph of the encoder's phase, or NULL */
    struct pass *pass;    /* inputs of the step; its addresses are fixed at open */
    struct exec_ends {    /* final norm and head as operations see them */
        struct mod_norm norm;
        struct dev_weight head;
        const float *bias;
    } ends;
    uint64_t computed; /* tokens that were fed since the exec was opened */
    /* most borrowed runs of all sequences of a step; 0: chunks are off */
    uint32_t borrows;
    bool encodes; /* rows are encoded when memory is short */
    bool reserve;
    bool telling;                /* a callback of the caller runs inside a feed or a step */
    enum kv_streaming streaming; /* as configured */
    struct exec_feed *call;      /* [max_seqs] scratch of the current public call */
    struct exec_fed *fed;        /* [2 * max_seqs] scratch of the current feed */
    struct exec_span *span;      /* [2 * max_seqs] scratch of the current step */
    uint32_t regime_rows; /* most rows that a change of regime drops; 0: the model has one regime */
    uint32_t n_handles;   /* sequences of the store */
    struct exec_said *said;           /* [n_handles] by kv_slot */
    const struct exec_lender *lender; /* of the current feed, or NULL */
    struct lent *lent;                /* NULL: not made yet */
};
/* --- lent.c: rows that a caller keeps.  In a feed with a lender, the attention of every layer reads what the lender
 * gives.  The rows that the step writes into the store are not read. */
struct exec_given {      /* what one span of the step sees */
    uint32_t n;          /* rows */
    const float *k, *v;  /* [n][heads][dim] */
    const uint32_t *pos; /* [n] columns of the text, ascending */
};
struct exec_lender {
    /* Gives what the n spans of a step see of a layer.  k and v: the rows of the step's tokens.  shape: of both. */
    int (*give)(void *ctx, uint32_t layer, const struct kv_shape *shape, const float *k,
                const float *v, struct exec_given *given);
    void *ctx;
    const uint32_t *column; /* [tokens of the step] their columns */
};
struct lent; /* memory for what was given */
void lent_close(struct lent *l);
/* Attends as a layer's word does, to what the lender gives.  own: a view of the layer's site. */
int lent_attend(struct pass *p, uint32_t layer, const struct kv_view *own,
                const struct kv_policy *policy, const float *k, const float *v,
                const struct dev_attn *a);

/* The token that ended a sequence: it was generated, but not appended.  It is only a hint, and is lost if another
 * handle uses the same place. */
struct exec_said {
    kv_seq seq;
    uint32_t len; /* length of the sequence at that time */
    int32_t token;
};
int exec_open(const struct model *m, const struct exec_config *c, struct exec **out);
void exec_close(struct exec *x);
/* Returns the configuration of the store, without its groups, order and tier. */
struct kv_config exec_store(const struct model *m, const struct exec_config *c);
/* Opens the tier for pages that leave the device's memory: a file, or memory of the host if the device has its own
 * memory. */
int exec_tier_open(struct dev_queue *queue, const char *dir, struct kv_tier **out);

/* Makes a sequence.  If the preset demands it, the sequence reserves its rows. */
int exec_new(struct exec *x, const struct kv_salt *salt, kv_seq *out);
int exec_fork(struct exec *x, kv_seq from, kv_seq *out); /* the same for a fork */
/* encoder.c: the input of an encoder: ids or features. */
struct exec_source {
    const int32_t *ids; /* [n] or NULL */
    uint32_t n;
    uint32_t first;        /* position of the first id; not 0 only if the encoder counts padding */
    const float *features; /* [bins][frames] in the layout of input_features, or NULL */
    uint32_t frames;
    struct exec_probe *probe; /* what the caller wants of the encoder, or NULL */
};
/* Returns how many rows the encoder makes of an input.  An error if the input does not fit the model or the cache. */
int exec_source_rows(const struct exec *x, const struct exec_source *s);
/* Gives a sequence without rows the frozen rows of an input: by reference if another sequence has them, else by
 * running the encoder.  A sequence that has the rows of this input already is not changed.  If it has the rows of
 * another input: ERR_ARG. */
int exec_encode(struct exec *x, kv_seq seq, const struct exec_source *s);
/* Runs the encoder for s->probe alone: no sequence gets the rows. */
int exec_show_encoder(struct exec *x, const struct exec_source *s);
/* True if decoding needs the rows of an encoder, and this sequence has none. */
bool exec_unheard(const struct exec *x, kv_seq seq);

/* Gives an empty sequence the longest cached prefix of n tokens that will be fed as one turn; *have < n rows.
 * `pad` is that of exec_feed.  kv_match_reason tells why there was no hit. */
int exec_match(struct exec *x, kv_seq seq, const int32_t *ids, uint32_t n, uint32_t pad,
               uint32_t *have);

/* --- splice.c: a text made of chunks whose rows may be cached behind other texts. */
struct exec_chunk {
    const int32_t *tok;
    uint32_t n;
    uint32_t again; /* number of its first tokens that are recomputed even if its rows are found */
};
struct exec_spliced { /* tokens, summed over the chunks; `chunks`: how many were moved */
    uint64_t reused, moved, computed;
    uint32_t chunks;
    uint32_t taken; /* tokens of the chunks that the sequence ends with now */
};
/* Appends the chunks.  An empty sequence first reuses the longest cached prefix of the whole text.  A chunk whose
 * rows any sequence has is then borrowed, except for its first `again` tokens.  All other tokens are computed.
 * After an error the sequence is unchanged.  most: the call ends after it has computed so many tokens; 0: no limit.
 * taken: how many tokens of the chunks the sequence already has from calls that ended early. */
int exec_splice(struct exec *x, kv_seq seq, const struct exec_chunk *chunk, uint32_t n,
                uint64_t taken, uint64_t most, struct exec_spliced *out);

/* Arrays that a caller wants filled for the n tokens of a feed, besides logits.  Each array is filled completely,
 * however the feed is cut into steps.  After a failure the contents are undefined.  Of an encoder's input n is its
 * rows, layers and heads are the encoder's, `columns` is n, and `last` and `cross` are NULL. */
struct exec_probe {
    /* [n_layers + 1][n][hidden] or NULL: the input of layer 0, 1, ..., and the last layer's result after the final norm,
     * as output_hidden_states has them. */
    float *hidden;
    float *last; /* [n][hidden] or NULL: the result after the final norm alone */
    /* [n_layers][n_heads][n][columns] or NULL: attention probabilities over the sequence's rows, as output_attentions has
     * them.  Layers without attention stay as they are; columns are the rows after the feed. */
    float *attention;
    uint32_t columns;
    /* [n_layers][n_heads][n][heard] or NULL: the same over the rows of the encoder, of which the sequence has `heard` */
    float *cross;
    uint32_t heard;
};

/* One sequence's part of a step: a piece of a feed.  The store gets `rows`; the arrays of the caller stay in the
 * feed. */
struct exec_feed;
struct exec_span {
    /* rows.tok is NULL if the tokens have no ids (embeddings, moved positions).  rows.cross: the tokens are an
     * encoder's; either every span of a step has it, or none. */
    struct kv_span rows;
    /* the feed that this is a piece of; NULL: the rows are recomputed, or are an encoder's */
    const struct exec_feed *feed;
    /* in an encoder's step: the input; NULL: the ids are rows.tok */
    const struct exec_source *source;
    uint32_t at;       /* the piece's first token in the feed */
    uint32_t turn_end; /* last position of the turn; each later token is a turn of its own */
    /* number of tokens whose logits are wanted: those marked in feed->want, else the last ones */
    uint32_t n_logits;
    uint32_t job, index; /* job.c: the span belongs to feed `index` of job `job` of the step */
};
/* Runs one step of at most step_tokens tokens, each sequence at most once.  logits: [sum of n_logits][vocab], in span
 * order.  A step that fails changes nothing. */
int exec_step(struct exec *x, const struct exec_span *span, uint32_t n, float *logits);
/* Lowers accepted[i] to the number of tokens of span i that stay.  On entry it is the length of the span; at most
 * `undo` tokens may go.  Called while the step is open; a negative result aborts the step. */
typedef int (*exec_judge)(void *ctx, const float *logits, uint32_t *accepted);
int exec_step_judged(struct exec *x, const struct exec_span *span, uint32_t n, float *logits,
                     exec_judge judge, void *ctx);

/* Tokens to append to one sequence, as many as the caller likes.  A feed is cut into steps, which several
 * sequences share.  After an error the sequences are as they were before. */
struct exec_feed {
    kv_seq seq;
    const int32_t *tok;
    uint32_t n;
    bool all; /* logits of every token are wanted, else of the last */
    /* masked columns before the first row of an empty sequence; few models count them */
    uint32_t pad;
    /* the last `singly` tokens are turns of one token each, as if they were decoded; the tokens before them are
     * one turn */
    uint32_t singly;
    /* after an error the sequence may have another length, since the caller restores or drops it */
    bool loose;
    /* [n] or NULL: last position of each token's turn, to recompute several turns at once */
    const uint32_t *ends;
    /* [n][hidden] or NULL: inputs of the first layer in place of tok, as inputs_embeds.  The factor of the
     * embedding does not apply to them; learned positions are added.  The store has no ids for these rows. */
    const float *embeds;
    /* [n] positions for rotations or for the table of learned positions; NULL: the indexes of the rows.  If one
     * differs from its row, the store has no ids for these rows: no prefix hit finds them and nothing recomputes
     * them.  Windows and chunks go by row. */
    const uint32_t *pos;
    /* [n] marks of tokens whose logits are wanted, in order; NULL: see `all` */
    const uint8_t *want;
    struct exec_probe *probe; /* what the caller wants besides logits, or NULL */
    /* the encoder's input or NULL; a sequence without rows gets it first (exec_encode) */
    const struct exec_source *source;
};
typedef bool (*exec_progress)(void *ctx, uint64_t done, uint64_t total);
/* Runs feeds to their end.  chunk: most tokens of one sequence in one step; 0: step_tokens.  logits may be NULL. */
int exec_feed(struct exec *x, const struct exec_feed *feed, uint32_t n, uint32_t chunk,
              float *logits, exec_progress progress, void *ctx);
/* Tells the callback how far a feed is; NULL: no callback.  ERR_CANCELLED if it returns false.  The callback must
 * not feed the cache. */
int exec_tell(struct exec *x, exec_progress progress, void *ctx, uint64_t done, uint64_t total);
/* Returns ERR_BUSY while a callback of the caller runs inside a feed or a step. */
int exec_idle(const struct exec *x);

/* --- job.c: the feeds of several callers, cut into steps that they share. */
/* Progress of one feed, from its first step to its last.  The feed itself is the caller's and does not change; a
 * span lives for one step. */
struct exec_fed {
    uint32_t done; /* tokens that are done, of `again` and of the feed together */
    /* tokens to recompute first, because their rows have another regime (regime.c) */
    uint32_t again;
    const int32_t *past; /* [again] tokens of the mark */
    uint32_t start;      /* rows before the feed */
    uint32_t rows;       /* rows of logits that the caller wants */
    uint32_t written;    /* rows of logits that are in the caller's array already */
    bool moved;          /* the tokens have other positions than their rows */
    struct kv_mark mark; /* the sequence as it was, for an undo */
};
struct exec_job {
    /* Borrowed from the caller until the job has ended: */
    const struct exec_feed *feed; /* [n] each for another sequence */
    struct exec_fed *fed;         /* [n] */
    uint32_t n;
    uint32_t chunk; /* most tokens of one sequence in one step, 0: step_tokens */
    float *logits;  /* the rows of all feeds in order, as exec_feed writes them; or NULL */
    bool draft;     /* feeds are drafts: `logits` has room for `room` rows, those of one step */
    uint32_t room;
    /* Lowers accepted[i], the number of tokens of feed first + i, to the number that stays, at least 1.  Called
     * while the step is open; `logits` then holds the logits of exactly these feeds. */
    void (*judge)(void *ctx, uint32_t first, uint32_t n, uint32_t *accepted);
    void *ctx;
    /* Set by exec_job_begin and the steps: */
    uint64_t done, total; /* tokens; the job is done when they are equal */
    uint64_t computed;    /* tokens that steps have computed for this job */
    uint32_t first;       /* all feeds before this one are done */
    bool single;          /* drafts do not fit, so only the certain token of each feed is fed */
    bool one_row;         /* every feed has one row of logits */
};
/* Checks the feeds and prepares their sequences.  All feeds must be `loose`: after an error the caller drops or
 * restores the sequences. */
int exec_job_begin(struct exec *x, struct exec_job *job);
void exec_job_end(struct exec *x, struct exec_job *job, bool failed);
/* Runs one step of jobs that have begun and are not done.  tmp: room for all rows of logits that the jobs want at
 * once; needed if there are several jobs or feeds.  After an error all jobs are unchanged.  JOB_FEWER: nothing was
 * done, because the cache began to stream; the next call feeds fewer sequences at once. */
int exec_step_jobs(struct exec *x, struct exec_job *const *job, uint32_t n, float *tmp);
#define JOB_FEWER 1
/* True if the job feeds one token or one draft to each sequence. */
bool exec_job_decodes(const struct exec_job *job);
/* Returns how many of n tokens a draft of `seq` can have.  0: the next token changes the regime of the sequence,
 * which a draft cannot do. */
uint32_t exec_draft_fits(const struct exec *x, kv_seq seq, uint32_t n);
/* Returns how many of the n tokens of a feed from `at` on have logits that are wanted. */
uint32_t job_wanted(const struct exec_feed *f, uint32_t at, uint32_t n);
/* Returns the store's group of one of the model's sites. */
const struct kv_group *exec_group(const struct exec *x, uint32_t site);
/* Returns the policy that a sink cache gives its sites, or NULL if the cache has no sinks. */
const struct kv_policy *exec_sinks(const struct exec *x);

/* --- feed.c */
int feed_open(struct exec *x);
void feed_close(struct exec *x);

/* --- crop.c: cuts a sequence to its first `want` rows, with the bits of a sequence that never was longer. */
int exec_crop(struct exec *x, kv_seq s, uint32_t want);
/* Does the same.  *from: the first recomputed row, or `want` if no row was recomputed. */
int exec_crop_from(struct exec *x, kv_seq s, uint32_t want, uint32_t *from);
/* Feeds rows [from, to) again, turn by turn.  past: the sequence as it was. */
int exec_replay(struct exec *x, kv_seq seq, const struct kv_past *past, uint32_t from, uint32_t to);

/* --- block_map.c: describes where the blocks of s are, as JSON. */
int exec_map(const struct exec *x, kv_seq s, json_t **out);
/* Describes all blocks of the store in the same way. */
int exec_store_map(const struct exec *x, json_t **out);
/* Predicts what a sequence of n rows will hold, whose first `prompt` rows were one turn. */
int exec_plan(const struct exec *x, uint32_t prompt, uint32_t n, json_t **out);

/* --- regime.c: ropes whose frequencies depend on the length of the whole sequence (longrope).  A regime is named
 * by the least length that has it; the shortest regime is 0.  The regime is part of a sequence's salt.  If a feed
 * brings a sequence into another regime, the rows of the sequence are dropped and recomputed, as one turn with the
 * feed's tokens. */
uint32_t regime_of(const struct model *m, uint32_t len);
/* Returns the most rows that a change of regime drops, in sequences of at most max_len rows; 0: the model has one
 * regime. */
uint32_t regime_rows(const struct model *m, uint32_t max_len);
/* True if a feed of n tokens drops the rows of `seq`. */
bool regime_changes(const struct exec *x, kv_seq seq, uint32_t n);
/* Prepares a feed of n tokens.  If it changes the regime: marks `seq` (g->mark), drops its rows, and sets g->again
 * and g->past.  The caller must end the mark, also after an error. */
int regime_enter(struct exec *x, kv_seq seq, uint32_t n, struct exec_fed *g);

/* --- probe.c: shows the inside of a step, besides logits */
/* Copies the last layer's result after the final norm.  Call it after the words of the step. */
void probe_last(struct pass *p);
/* Copies the attention probabilities of one piece of a layer.  cross: those over the rows of an encoder. */
void probe_attention(struct pass *p, uint32_t layer, bool cross, const struct kv_view *v,
                     const struct dev_attn *a);

/* --- graph.c: a step as a list of operations, recorded once and replayed.  A word appends an operation and
 * computes nothing.  A buffer has one row of activations for each token of a step.  Buffers and arguments live as
 * long as the exec.  So a step calls no code of an architecture, allocates nothing and works on fixed addresses.
 * The first error of recording stays in the graph, and exec_open returns it. */
/* An array that the host writes and operations read, after a dev_put. */
struct graph_table {
    void *host, *at; /* address for the host, and address for operations */
};
struct pass { /* inputs of the current step */
    struct exec *x;
    struct dev_queue *queue;
    struct kv_step *step;
    uint32_t n; /* tokens of this step; after mod_narrow only those whose logits are wanted */
    struct graph_table ids, pos; /* int32_t, uint32_t [n] */
    uint32_t *end;               /* [n] */
    uint32_t *column;            /* [n] the row, plus the masked columns before the prompt */
    struct graph_table wanted;   /* uint32_t [n_wanted] tokens whose logits are wanted */
    uint32_t n_wanted;
    const struct exec_span *fed; /* [n_fed] as given */
    uint32_t n_fed;
    bool embeds, probed; /* some span has embeddings; some feed has a probe */
    /* the caller wants logits; h was narrowed to the tokens whose logits are wanted */
    bool logits, narrow;
    struct dev_probe *shown; /* [2 * max_seqs] probes of the current layer */
    float *h;    /* [n][hidden] residual stream; the graph's last word leaves its result here */
    float *rows; /* [step_tokens][hidden] input of the head: tokens whose logits are wanted */
    struct kv_span *span; /* [max_seqs] */
    uint32_t *accepted;   /* [step_tokens] by spans */
};
typedef int (*graph_run)(struct pass *p, const void *arg);
float *graph_buffer(struct graph *g,
                    size_t width); /* [graph_step_tokens][width], 64-byte aligned */
void *graph_own(struct graph *g, size_t n, size_t size); /* zeroed, lives as long as the exec */
/* Return the address in memory of the device at which operations read an array of the host.  Words take weights as
 * the model has bound them and record this address.  NULL stays NULL. */
void *graph_weights(struct graph *g, const void *host, size_t n);
struct dev_weight graph_matrix(struct graph *g, const struct dev_weight *w);
/* Makes a table of n bytes that the host fills for each step. */
struct graph_table graph_table(struct graph *g, size_t n);
void graph_op(struct graph *g, graph_run run,
              const void *arg);                            /* a new word: any file may add one */
uint32_t graph_step_tokens(const struct graph *g);         /* most tokens of a step of this phase */
void graph_needs(struct graph *g, uint32_t k, uint32_t n); /* widest matmul input and output */
float *graph_h(struct graph *g);                           /* returns p->h */
/* Return a site as the model declares it, and the number of the site in the store, for kv_next. */
const struct kv_site *graph_site(const struct graph *g, uint32_t site);
uint32_t graph_number(struct graph *g, uint32_t site);

/* h = the token's row of the model's `embed` times `embed_scale`; or the embedding that the feed brings, which is
 * scaled only if `scales_given`. */
void mod_embed(struct graph *g);
/* Shows the residual stream to probes.  Use it once at the top of each layer, after the last addition to the
 * embedding. */
void mod_mark(struct graph *g, uint32_t layer);
/* Shows an encoder's result x, [hidden] per token, to probes, as what follows its last layer. */
void mod_mark_end(struct graph *g, uint32_t n_layers, const float *x);
/* Narrows the step to the tokens whose logits are wanted.  Use it after the attention of every layer; it acts in
 * the last one.  The words after it compute only these tokens.  Their rows of h, and of x, which has `width`
 * values for each token, move to the front.  A step with a probe is not narrowed, because a probe shows all
 * tokens.  A later word that has a site or rotates is refused. */
void mod_narrow(struct graph *g, uint32_t layer, float *x, uint32_t width);
/* Adds learned positions: x += row pos of w. */
void mod_embed_positions(struct graph *g, const struct dev_weight *w, float *x);
/* out = norm of x; out may be x.  per: rows of `width` values per token (heads, for norms of heads). */
void mod_norm(struct graph *g, const struct mod_norm *norm, const float *x, uint32_t per,
              uint32_t width, float *out);
struct mod_out {
    const struct dev_weight *w;
    const float *bias;
    float *y;
};
/* Multiplies the same x by at most 4 matrices; rows of y are dense. */
void mod_linear(struct graph *g, const float *x, const struct mod_out *out, uint32_t n_out);
/* Rotates x, [heads][dim] per token, in place by rope number `rope`. */
void mod_rope(struct graph *g, uint32_t rope, float *x, uint32_t heads, uint32_t dim);
/* Rotates queries for a site as mod_rope does.  Under a sink cache it also makes a copy that is rotated for the
 * sink rows, and returns the copy, which is q_sink of mod_attention; else it returns NULL.  The copy belongs to
 * the buffer q and is valid until the next use of this word on that buffer. */
const float *mod_rope_query(struct graph *g, uint32_t site, uint32_t rope, float *q, uint32_t heads,
                            uint32_t dim);
struct mod_attention {
    uint32_t layer; /* the layer under which a probe shows the probabilities */
    uint32_t site;  /* the site; its planes 0 and 1 have the shapes of keys and values */
    uint32_t heads; /* heads of the queries: a multiple of the heads of the site */
    const float *q; /* [heads][dim] per token; NULL: the rows are only written */
    /* [heads of the site][dim] per token; NULL: the rows are only read, because another word or the encoder has
     * written them */
    const float *k, *v;
    const float *q_sink; /* the queries for the sink rows; NULL: q is used for these, too */
    float *out;          /* [heads][dim of values] per token */
    float scale, softcap;
    const float *sink_logit;     /* [heads] or NULL */
    const struct dev_bias *bias; /* or NULL */
};
/* Writes k and v, quantizes the tiles that this step completes, then attends. */
void mod_attention(struct graph *g, const struct mod_attention *a);
/* attend.c: attention inside one step, for encoders: every token sees all tokens of its span, and no rows are
 * kept. */
struct mod_attend {
    uint32_t layer;                       /* under which a probe shows the probabilities */
    uint32_t heads, kv_heads, dim, dim_v; /* kv_heads 0: heads; dim_v 0: dim */
    const float *q, *k, *v; /* [heads][dim], [kv_heads][dim], [kv_heads][dim_v] per token */
    float *out;             /* [heads][dim_v] per token */
    float scale;
    const struct dev_bias *bias; /* or NULL */
};
void mod_attend(struct graph *g, const struct mod_attend *a);
void mod_add(struct graph *g, float *x, const float *y, uint32_t width);      /* x += y */
void mod_silu_mul(struct graph *g, float *x, const float *y, uint32_t width); /* x = silu(x) * y */
void mod_gelu_mul(struct graph *g, float *x, const float *y, uint32_t width); /* tanh form */
void mod_gelu(struct graph *g, float *x, uint32_t width);
void mod_gelu_erf(struct graph *g, float *x, uint32_t width);
void mod_relu(struct graph *g, float *x, uint32_t width);
void mod_mul(struct graph *g, float *x, const float *y, uint32_t width); /* x *= y */
void mod_scale(struct graph *g, float *x, float by, uint32_t width);     /* x *= by */

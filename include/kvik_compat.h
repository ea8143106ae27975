/* kvik_compat.h - the interfaces beside that of kvik.h, for programs that think in the words of Transformers.
 *
 * BATCHES are padded rectangles of columns, as forward() sees them; the sampler of kvik_loop.h chooses their tokens.
 * An EXPORT is the KV rows of a sequence as arrays, and LEGACY tuples are those of a batch.  LAYERS are a cache for a
 * model that kvik does not run.  All are in the same library, and the conventions are those of kvik.h, which this
 * header includes. */
#pragma once
#include "kvik.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Batches: padded batches for loops of your own -------------------------------------------------
 *
 * A batch is `rows` sequences of a cache in a rectangle of columns, as forward() of Transformers sees them.
 * Lengths, cache_position and widths of masks count columns, padding included.  Inside, a batch row has only its
 * real tokens, so its results are bit for bit those of the row alone. */

typedef struct kvik_batch kvik_batch;
/* What a layer attends to in a forward whose rows the caller keeps. */
typedef struct kvik_seen {
    size_t size;
    uint32_t layer;
    /* The rows that this forward has computed, [rows][heads][n][dim_k] and [rows][heads][n][dim_v]; zeros in masked
     * columns.  Valid during the call. */
    uint32_t rows, heads, n, dim_k, dim_v;
    const float *new_keys, *new_values;
    /* To be set: what attention sees, [rows][heads][columns][dim_k] and [rows][heads][columns][dim_v].  Valid until the
     * next call of the callback, or the end of the forward. */
    uint32_t columns;
    const float *keys, *values;
    /* [columns] ascending: the column of the text of each, before `past` + n; -1: seen by no token.  NULL: the last
     * `columns` of the text. */
    const int32_t *position;
} kvik_seen;
/* Sets what a layer sees.  Returns 0; below 0 ends the forward with KVIK_CANCELLED. */
typedef int (*kvik_on_layer)(void *ctx, kvik_seen *seen);
/* Zero and NULL: not given. */
typedef struct kvik_inputs {
    size_t size;
    /* [rows][n], or embeddings [rows][n][hidden] instead. */
    const int32_t *ids;
    const float *embeds;
    /* Columns to append. */
    uint32_t n;
    /* Columns of attention_mask: length + n. */
    uint32_t width;
    /* [rows][width], 0: hidden.  Earlier columns must be as they were.  NULL: all ones. */
    const uint8_t *attention_mask;
    /* [n]: length, length + 1, ...; anything else is an error. */
    const uint32_t *cache_position;
    /* [position_rows][n].  NULL: the numbers of the columns, padding counted. */
    const int32_t *position_ids;
    /* 1 or rows; 0: rows. */
    uint32_t position_rows;
    /* Logits of this many last columns; 0: of all. */
    uint32_t logits_to_keep;
    /* Or logits of these of the n columns, [n_columns] ascending. */
    uint32_t n_columns;
    const uint32_t *columns;
    /* The caller keeps the rows: for each layer the callback gets those of this forward, and sets what attention sees,
     * by its window if it has one.  The batch is empty before and after, but for rows of an encoder; of a model with
     * recurrent states it grows, since it keeps these.  `past` columns of the caller's come before those of this
     * forward; attention_mask has past + n.  One step must hold all tokens (step_tokens).  Rotary frequencies that
     * follow the length of the text go by the last position of each row.  The cache needs no_prefix_cache, or another
     * text could find rows that only this one should see.  KVIK_UNSUPPORTED for sinks and with outputs.attentions. */
    uint32_t past;
    kvik_on_layer on_layer;
    void *ctx;
} kvik_inputs;
/* Arrays to fill; NULL: not wanted.  Masked columns and batch rows without a token are zeros, where Transformers
 * computes values that must not be used. */
typedef struct kvik_outputs {
    size_t size;
    /* [rows][kept columns][vocab] */
    float *logits;
    /* [layers + 1][rows][n][hidden]: of the embedding and of each layer, the last one normalized. */
    float *hidden_states;
    /* [layers][rows][heads][n][length + n]; zeros for layers without attention. */
    float *attentions;
    /* [layers][rows][heads][n][encoder rows]: attention to the rows of the encoder, as many as the row of the batch
     * with the most has (kvik_cache_encoder_length); zeros behind those of the others. */
    float *cross_attentions;
} kvik_outputs;
/* Opens a batch of empty rows.  Closing it drops its sequences; those that a request continues are
 * dropped when the request ends. */
KVIK_API int kvik_batch_open(kvik_cache *c, uint32_t rows, kvik_batch **out);
/* Makes a batch of n sequences, such as those of kvik_row.seq or of kvik_cache_load.  The batch owns them from then on;
 * after an error they stay the caller's.  mask: [n][width], 1 for each of the first tokens of a sequence; its later
 * tokens follow in columns of their own.  width 0 (mask NULL): every row begins in the first column. */
KVIK_API int kvik_batch_of(kvik_cache *c, const kvik_seq *seq, uint32_t n, const uint8_t *mask,
                           uint32_t width, kvik_batch **out);
/* Closes a batch.  As after kvik_cache_drop, its rows stay cached for later prompts with the same beginning. */
KVIK_API void kvik_batch_close(kvik_batch *b);
/* Returns the number of rows. */
KVIK_API uint32_t kvik_batch_rows(const kvik_batch *b);
/* Returns the number of columns: get_seq_length of Transformers. */
KVIK_API uint32_t kvik_batch_length(const kvik_batch *b);
/* Writes the mask of all columns, [rows][length]. */
KVIK_API int kvik_batch_mask(const kvik_batch *b, uint8_t *mask);
/* Returns the sequence of a row, for reading; 0: no such row. */
KVIK_API kvik_seq kvik_batch_seq(const kvik_batch *b, uint32_t row);
/* Appends columns and computes outputs; out may be NULL. */
KVIK_API int kvik_batch_forward(kvik_batch *b, const kvik_inputs *in, const kvik_outputs *out);
/* Keeps the first n columns, as kvik_cache_crop the first tokens; n < 0 removes the last -n. */
KVIK_API int kvik_batch_crop(kvik_batch *b, int64_t n);
/* Removes all columns, and the rows of an encoder; kvik_batch_crop keeps those. */
KVIK_API int kvik_batch_reset(kvik_batch *b);
/* Gives row i the contents of row beam_idx[i], [rows]. */
KVIK_API int kvik_batch_reorder(kvik_batch *b, const uint32_t *beam_idx);
/* Replaces the rows of the batch by its rows index[n] (batch_select_indices). */
KVIK_API int kvik_batch_select(kvik_batch *b, const uint32_t *index, uint32_t n);
/* Repeats each row (batch_repeat_interleave). */
KVIK_API int kvik_batch_repeat(kvik_batch *b, uint32_t times);
/* Makes a batch with the same contents, which share every block (deepcopy). */
KVIK_API int kvik_batch_copy(const kvik_batch *b, kvik_batch **out);
/* Generates, as generate() with past_key_values.  in->ids are the whole text, with a mask as wide or none; then
 * cached columns are reused, except the last.  With a mask of length + n columns they are appended.  New ids
 * without such a mask are an error.  The batch keeps what was generated, except the last token of each row; columns
 * after the end of a row are masked.  Rows of the result have the ids that were given here and the new ones;
 * row->seq is 0, the batch keeps the sequences.
 * With an encoder that reads text the ids of an empty row must begin with the decoder's start token, or the call is
 * KVIK_ARG: kvik_generate puts it before each row that lacks it, but here it would have no column. */
KVIK_API int kvik_batch_generate(kvik_batch *b, const kvik_generation *g, const kvik_inputs *in,
                                 const kvik_hooks *hooks, kvik_result **out);

/* ---- Encoders: what the encoder of a model computes ---------------------------------------------------- */

/* What an encoder computes of one input.  The call sets the numbers: rows without those of masked ids, layers and
 * heads of the encoder, and values of a hidden state. */
typedef struct kvik_encoded {
    size_t size;
    uint32_t rows, layers, heads, hidden;
    /* Arrays to fill; NULL: not wanted.  [layers + 1][rows][hidden]: of the embedding and of each layer, the last one
     * as the decoder reads it. */
    float *hidden_states;
    /* [layers][heads][rows][rows] */
    float *attentions;
} kvik_encoded;
/* Runs the encoder for these arrays; kvik_cache_encode is what gives a sequence the rows that a decoder reads.
 * Nothing is kept, but the cache needs room for those rows, or it is KVIK_FULL.  Without arrays the call only sets the
 * numbers. */
KVIK_API int kvik_encoder_forward(kvik_cache *c, const kvik_source *in, kvik_encoded *out);

/* ---- Encodings: what else tokenizers of Transformers return -------------------------------------------- */

/* Encodes as kvik_tokenizer_encode does, and tells where the ids come from.  Returns their number; *places gets three
 * numbers for each: the byte of the text at which its characters begin, the byte behind them, and the number of its
 * word, as the pre-tokenizer cuts the text.  Tokens that the tokenizer adds at the ends have no characters, and
 * UINT32_MAX for a word.  Free *ids and *places with kvik_free.  KVIK_UNSUPPORTED: normalizing this text joins
 * characters so that they have no place. */
KVIK_API int64_t kvik_tokenizer_encode_placed(const kvik_tokenizer *t, const char *text,
                                              size_t n_bytes, bool add_special_tokens,
                                              int32_t **ids, uint32_t **places);
/* Tells what add_special_tokens makes of a text (pair false), or of two texts that a model reads as one (pair true).
 * Returns the number of parts in their order; *parts gets two numbers for each: the id of a token that the tokenizer
 * adds, -1 for the ids of the text, or -2 for those of the second text; and the type of this part's ids, which is
 * token_type_ids of Transformers.  Encode each text alone, without special tokens.  Free *parts with kvik_free.
 * KVIK_UNSUPPORTED: the tokenizer's files do not say how two texts are joined. */
KVIK_API int64_t kvik_tokenizer_layout(const kvik_tokenizer *t, bool pair, int32_t **parts);

/* ---- Together: callbacks that see all rows of a step, as those of Transformers do ------------------ */

/* Texts, the prompt included, without columns that a mask hides. */
typedef struct kvik_texts {
    size_t size;
    uint32_t rows;
    /* [rows] Of the result: with beams prompt * num_beams + beam. */
    const uint32_t *row;
    const int32_t *const *ids;
    const size_t *n;
    /* [rows] True if the row has ended: what a callback says of it is without effect. */
    const bool *over;
    /* For criteria, with output_scores: [steps][score_rows][vocab], the scores of the result so far.  Else NULL. */
    const float *scores;
    size_t steps, score_rows;
} kvik_texts;
/* As kvik_logits_processor, once in each step: scores [rows][vocab], zeros for rows that have ended.  Of diverse beams
 * the rows are a group of a prompt. */
typedef bool (*kvik_texts_processor)(void *ctx, const kvik_texts *texts, float *scores,
                                     uint32_t vocab);
/* As kvik_stopping_criteria, once in each step, the last one included, for ends [rows], which is false at first.  With
 * beams the texts are the candidates of all prompts that are not done, and row is that of the beam which a candidate
 * continues. */
typedef void (*kvik_texts_criteria)(void *ctx, const kvik_texts *texts, bool *ends);
/* kvik_hooks.together.  Its members stand in place of logits_processor and stopping_criteria of the hooks, which are
 * still called where rows do not choose together: for drafts, in contrastive search, and the criteria of diverse beams.
 * Both get ctx of the hooks. */
typedef struct kvik_together {
    size_t size;
    kvik_texts_processor logits_processor;
    kvik_texts_criteria stopping_criteria;
} kvik_together;

/* ---- Interchange: KV rows in and out of a cache --------------------------------------------------- */

/* Types of the values of a plane.  Later versions may add some. */
enum kvik_dtype { KVIK_F32 };
/* One array of what a layer keeps. */
typedef struct kvik_plane {
    /* Of the library; lives as long as the process. */
    const char *name;
    uint32_t dtype;
    /* n_dims sizes, the last dimension contiguous. */
    uint32_t n_dims, dim[4];
    void *data;
} kvik_plane;
/* What one layer keeps of a sequence.  Attention has the planes `keys` and `values` [heads][rows][dim], the KV rows
 * that the next token sees (all; a window; or sinks and window), keys rotated as the model caches them.  A recurrent
 * state has `conv` [channels][taps], the last inputs of the convolution, and `ssm` [channels][states] or, in heads,
 * [heads][channels][states], the states of the scan; with a gated delta rule `delta` [heads][key][value].  Rows of an
 * encoder are `cross_keys` and `cross_values` [heads][rows][dim], the same number in all layers.  These are the shapes
 * of Transformers without the batch. */
typedef struct kvik_layer_rows {
    /* Of keys and values; 0 and NULL if the layer has no attention.  position: [rows] ascending. */
    uint32_t rows;
    int32_t *position;
    /* [n_planes], in any order. */
    uint32_t n_planes;
    kvik_plane *plane;
} kvik_layer_rows;
/* The KV rows and states of one sequence, layer by layer. */
typedef struct kvik_export {
    size_t size;
    uint32_t n_layers, length;
    /* [length]; -1: not known.  NULL, in an import only: none is known. */
    int32_t *ids;
    /* For rotary frequencies that depend on the length (longrope): the length that chose them.  0: the frequencies
     * of `length`. */
    uint32_t regime;
    /* Masked columns before the first row, of models that count them (Llama 4). */
    uint32_t pad;
    /* [n_layers] */
    kvik_layer_rows *layer;
    /* SHA-256 of what the encoder was given; zeros: not known. */
    uint8_t source[32];
} kvik_export;
/* Exports the KV rows and states of a sequence as f32.  Free *out with kvik_export_free.  Rows are read as a step
 * reads them, so the cache needs room for one more token of s: KVIK_FULL if it has none, for instance for a block that
 * the token would begin.  Nothing is appended. */
KVIK_API int kvik_cache_export(kvik_cache *c, kvik_seq s, kvik_export **out);
/* Makes a sequence that holds the rows and states of an export, as one turn.  Rows from a cache of the same model
 * without quantization continue with the same bits.  Without ids, a crop that would have to recompute rows is
 * KVIK_LOST. */
KVIK_API int kvik_cache_import(kvik_cache *c, const kvik_export *in, kvik_seq *out);
/* Returns the plane of a layer with this name, or NULL. */
KVIK_API const kvik_plane *kvik_layer_plane(const kvik_layer_rows *l, const char *name);
/* Frees what kvik_cache_export has returned. */
KVIK_API void kvik_export_free(kvik_export *s);

/* ---- Legacy: caches as tuples of arrays ---------------------------------------------------------------
 *
 * A key and a value per layer [batch][heads][tokens][dim] f32, as `past_key_values` of Transformers once was.  The
 * columns are those of a padded batch.  A layer holds the last `tokens` of `length` columns: all; or with a window
 * those that a next token can see (window - 1, as Transformers keeps).  Columns without a KV row are zeros. */

/* Keys and values of one layer. */
typedef struct kvik_legacy_layer {
    uint32_t heads, tokens, dim_k, dim_v;
    float *keys, *values;
} kvik_legacy_layer;
/* All layers of a padded batch. */
struct kvik_legacy {
    size_t size;
    uint32_t n_layers, batch;
    /* Columns.  0, in an import only: the most tokens of a layer. */
    uint32_t length;
    /* [batch][length], 1: a KV row.  NULL, in an import only: all are. */
    uint8_t *attention_mask;
    /* [batch][length]; -1: not known.  NULL, in an import only: none is known. */
    int32_t *ids;
    /* [n_layers] */
    kvik_legacy_layer *layer;
    /* Of models with an encoder, else NULL: keys and values of its rows, [n_layers], each
     * [batch][heads][encoder_length][dim]; and [batch][encoder_length], 1: a row.  The mask may be NULL in an import
     * only: all are. */
    kvik_legacy_layer *cross;
    uint8_t *encoder_mask;
    uint64_t encoder_length;
};
/* Copies a batch into the legacy form, and makes one from it. */
KVIK_API int kvik_batch_to_legacy(const kvik_batch *b, kvik_legacy **out);
KVIK_API int kvik_batch_from_legacy(kvik_cache *c, const kvik_legacy *in, kvik_batch **out);
/* Frees what the library has returned. */
KVIK_API void kvik_legacy_free(kvik_legacy *l);
/* Saves and loads a safetensors file with layers.N.keys and layers.N.values f32, attention_mask u8, input_ids i32,
 * and the length and the model in its metadata.  A save that fails leaves the file as it was.  m: the model that a
 * load checks; NULL: not written, not checked. */
KVIK_API int kvik_legacy_save(const kvik_legacy *l, const kvik_model *m, const char *path);
KVIK_API int kvik_legacy_load(const char *path, const kvik_model *m, kvik_legacy **out);

/* ---- Layers: a cache without a model ----------------------------------------------------------------
 *
 * Your code computes keys and values; the cache keeps them and returns what attention must see, layer by layer and in
 * every strategy.  It holds one batch.  Calls that name no layer work on all of them: every layer changes, or none. */

typedef struct kvik_layers kvik_layers;
/* The rows of an update: keys [batch][heads][n][dim_k], values [batch][heads][n][dim_v]. */
typedef struct kvik_shape {
    size_t size;
    uint32_t batch, heads, n, dim_k, dim_v;
    /* How rows are kept: "f32" (NULL), "f16" or "bf16".  The first update of a layer decides for the layer. */
    const char *dtype;
} kvik_shape;
/* The cache owns the arrays; they are valid until the next call with it. */
typedef struct kvik_rows {
    size_t size;
    uint32_t batch, heads, rows, dim_k, dim_v;
    /* [batch][heads][rows][dim] */
    const float *keys, *values;
    /* [rows] ascending; -1: padding of a static cache, whose rows are zeros and must be masked. */
    const int32_t *position;
} kvik_rows;
/* Opens a cache of n_layers.  kind: [n_layers] "full_attention", "sliding_attention" or "chunked_attention"; NULL:
 * all full, or all with the window of the configuration.  max_sequences is the limit of batch rows (0: 16),
 * max_cache_len the limit of a row (0: 65536; static needs it).  The layers have equal shares of cache_memory. */
KVIK_API int kvik_layers_open(const kvik_cache_config *config, uint32_t n_layers,
                              const char *const *kind, kvik_layers **out);
/* Closes a cache of layers. */
KVIK_API void kvik_layers_close(kvik_layers *l);
/* Appends n rows to a layer, keys and values [batch][heads][n][dim], and returns what attention must see in this
 * step, as Cache.update does: all rows (dynamic); the window and the new rows (sliding); max_cache_len rows
 * (static); sinks and window (sink); dequantized rows (quantized, where an update sees its own rows as given, and
 * the first update sees all as given).  The first update sets the geometry of the layer.  Keys are kept as given:
 * for sinks with distances inside the cache, rotate the queries. */
KVIK_API int kvik_layers_update(kvik_layers *l, uint32_t layer, const float *keys,
                                const float *values, const kvik_shape *shape, kvik_rows *out);
/* Reads the rows of a layer that the next update will see, without the padding of a static cache.  A layer without an
 * update has none: everything in *out is then 0. */
KVIK_API int kvik_layers_rows(kvik_layers *l, uint32_t layer, kvik_rows *out);
/* Returns the number of tokens that a layer has seen. */
KVIK_API int64_t kvik_layers_length(const kvik_layers *l, uint32_t layer);
/* Computes the number of columns that an update of n rows would return, and the position of the first column (with
 * sinks: the position of the first column after the sinks, minus the number of sinks). */
KVIK_API int kvik_layers_mask_sizes(const kvik_layers *l, uint32_t layer, uint32_t n,
                                    uint32_t *kv_length, uint32_t *kv_offset);
/* Keeps the first len tokens, as kvik_cache_crop does; KVIK_LOST if that needs rows which a window has dropped. */
KVIK_API int kvik_layers_crop(kvik_layers *l, int64_t len);
/* Removes all rows.  The next update of a layer sets its geometry anew. */
KVIK_API int kvik_layers_reset(kvik_layers *l);
/* Gives row i of the batch the contents of row from[i]; n is the number of rows. */
KVIK_API int kvik_layers_reorder(kvik_layers *l, const uint32_t *from, uint32_t n);
/* Makes the batch the rows index[n]. */
KVIK_API int kvik_layers_select(kvik_layers *l, const uint32_t *index, uint32_t n);
/* Repeats each row of the batch: 0, 0, .., 1, 1, .. */
KVIK_API int kvik_layers_repeat(kvik_layers *l, uint32_t times);
/* Fills *out with what all layers use, in sum. */
KVIK_API int kvik_layers_usage(const kvik_layers *l, kvik_usage *out);

#ifdef __cplusplus
}
#endif

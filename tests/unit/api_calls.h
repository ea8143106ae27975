/* api_calls.h - every public function with arguments that work, so that tests can call all of them.
 *
 * A row of the table names a function, what it returns, what it does to the sequence of a running call, and what its
 * arguments are.  api_table_check compares the table with src/api/exports.txt and with the parameters in the public headers,
 * so a new function cannot be forgotten.
 *
 * A world holds what the arguments point to: a model with a tokenizer, a cache with a batch over the sequence `mine`, a
 * request, and structs.  All parameters of the public functions are integers or pointers, so one function type calls them
 * all. */
#pragma once
#include "base/base.h"
#include "kvik_compat.h"
#include "kvik_loop.h"
#include "kvik_shared.h"
#include "kvik_speech.h"
#include "testing.h"
#include "toy_tokenizer.h"

#include <ctype.h>

enum { VOCAB = 384, IDS = 10, ARGS = 6, ROOM = 1 << 18 };
static const int32_t api_ids[IDS] = {42, 43, 44, 45, 46, 47, 48, 85, 14, 62};

/* Kinds of arguments.  Kinds up to A_POINTERS are pointers. */
enum {
    A_END,
    A_MODEL,
    A_TOKENIZER,
    A_CACHE,
    A_LAYERS,
    A_BATCH,
    A_REQUEST,
    A_REQUESTS,
    A_DECODER,
    A_SAMPLER,
    A_SHARED,
    A_FETCH,
    A_CONFIG,
    A_GENERATION,
    A_GENERATION_OUT, /* options that the call changes or frees */
    A_PROMPT,
    A_HOOKS,
    A_ON_TEXT,
    A_ON_SOUND,
    A_ON_BLOCK,
    A_CTX,
    A_SEQS,
    A_IDS,
    A_INDEX,
    A_TEXT,
    A_TEMPLATE,
    A_CHAT,
    A_FORMAT,
    A_OPTION,
    A_JSON,
    A_MODEL_PATH,
    A_SESSION, /* a session file that exists */
    A_SAVED,   /* a session file to write */
    A_LEGACY_FILE,
    A_FEATURES_FILE,
    A_TENSOR,
    A_LOGITS_FILE,
    A_DIR,
    A_STORE, /* address of a store */
    A_LOGITS,
    A_FLOATS,
    A_MASK,
    A_SPAN,
    A_SOURCE,
    A_ENCODER,
    A_MODEL_OPTIONS,
    A_SPEECH,
    A_RECORDING, /* a file */
    A_TRANSCRIPT,
    A_INPUTS,
    A_OUTPUTS,
    A_USAGE,
    A_PROGRESS,
    A_SHARED_STATE,
    A_FETCHED,
    A_SYNC,
    A_EXPORT,
    A_LAYER,
    A_PLANE,
    A_LEGACY,
    A_RESULT,
    A_CHOICE,
    A_SHAPE,
    A_ROWS,
    A_DIM,
    A_OUT_ID, /* places for results of the call */
    A_OUT_N,
    A_OUT_BORROWED,
    A_OUT_MEMORY,
    A_OUT_SEQ,
    A_OUT_MODEL,
    A_OUT_TOKENIZER,
    A_OUT_CACHE,
    A_OUT_LAYERS,
    A_OUT_BATCH,
    A_OUT_REQUEST,
    A_OUT_RESULT,
    A_OUT_DECODER,
    A_OUT_SAMPLER,
    A_OUT_SHARED,
    A_OUT_FETCH,
    A_OUT_EXPORT,
    A_OUT_LEGACY,
    A_OUT_TRANSCRIPT,
    A_KINDS,
    A_POINTERS,
    A_SEQ,
    A_FALSE,
    A_0,
    A_1,
    A_2,
    A_N, /* number of IDS */
    A_BYTES,
    A_SIZE,   /* size of a kvik_generation */
    A_MEMORY, /* a memory limit that is enough for the world */
    A_SPEECH_SIZE,
    A_VOCAB,
    A_CODE,
    A_OPTIONAL = 256, /* NULL is allowed */
};
#define CAN(a) (a | A_OPTIONAL)

enum api_returns { R_VOID, R_INT, R_I64, R_U32, R_STATE, R_ID, R_POINTER };
enum api_does {
    D_NOTHING, /* uses no cache */
    D_READS,   /* reads the sequence or the cache: allowed in a callback that runs between steps */
    D_CHANGES, /* changes the sequence, or needs its batch to stay whole: KVIK_BUSY in a callback */
    D_ADDS,    /* uses the cache but not the sequence; allowed or KVIK_BUSY */
    D_CLOSES,  /* allows NULL and is never an error */
};
typedef uintptr_t api_function(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);
struct api_call {
    const char *name;
    api_function *f;
    enum api_returns returns;
    enum api_does does;
    int arg[ARGS];
};

#define CALL(f, returns, does, ...)                                                                \
    {                                                                                              \
#f, (api_function *)(void (*)(void))f, returns, does,                                      \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
static const struct api_call api_calls[] = {
    CALL(kvik_architectures, R_INT, D_NOTHING, A_OUT_MEMORY),
    CALL(kvik_batch_close, R_VOID, D_CLOSES, A_BATCH),
    CALL(kvik_batch_copy, R_INT, D_CHANGES, A_BATCH, A_OUT_BATCH),
    CALL(kvik_batch_crop, R_INT, D_CHANGES, A_BATCH, A_1),
    CALL(kvik_batch_forward, R_INT, D_CHANGES, A_BATCH, A_INPUTS, CAN(A_OUTPUTS)),
    CALL(kvik_batch_from_legacy, R_INT, D_ADDS, A_CACHE, A_LEGACY, A_OUT_BATCH),
    CALL(kvik_batch_generate, R_INT, D_CHANGES, A_BATCH, A_GENERATION, A_INPUTS, CAN(A_HOOKS),
         A_OUT_RESULT),
    CALL(kvik_batch_length, R_U32, D_READS, A_BATCH),
    CALL(kvik_batch_mask, R_INT, D_READS, A_BATCH, A_MASK),
    CALL(kvik_batch_of, R_INT, D_CHANGES, A_CACHE, A_SEQS, A_1, CAN(A_MASK), A_0, A_OUT_BATCH),
    CALL(kvik_batch_open, R_INT, D_ADDS, A_CACHE, A_1, A_OUT_BATCH),
    CALL(kvik_batch_reorder, R_INT, D_CHANGES, A_BATCH, A_INDEX),
    CALL(kvik_batch_repeat, R_INT, D_CHANGES, A_BATCH, A_2),
    CALL(kvik_batch_reset, R_INT, D_CHANGES, A_BATCH),
    CALL(kvik_batch_rows, R_U32, D_READS, A_BATCH),
    CALL(kvik_batch_select, R_INT, D_CHANGES, A_BATCH, A_INDEX, A_1),
    CALL(kvik_batch_seq, R_U32, D_READS, A_BATCH, A_0),
    CALL(kvik_batch_to_legacy, R_INT, D_CHANGES, A_BATCH, A_OUT_LEGACY),
    CALL(kvik_cache_close, R_VOID, D_CLOSES, A_CACHE),
    CALL(kvik_cache_crop, R_INT, D_CHANGES, A_CACHE, A_SEQ, A_1),
    CALL(kvik_cache_drop, R_INT, D_CHANGES, A_CACHE, A_SEQ),
    CALL(kvik_cache_encode, R_INT, D_CHANGES, A_CACHE, A_SEQ, A_SOURCE),
    CALL(kvik_cache_encoder_length, R_I64, D_READS, A_CACHE, A_SEQ),
    CALL(kvik_cache_export, R_INT, D_READS, A_CACHE, A_SEQ, A_OUT_EXPORT),
    CALL(kvik_cache_fork, R_INT, D_ADDS, A_CACHE, A_SEQ, A_OUT_SEQ),
    CALL(kvik_cache_import, R_INT, D_ADDS, A_CACHE, A_EXPORT, A_OUT_SEQ),
    CALL(kvik_cache_length, R_I64, D_READS, A_CACHE, A_SEQ),
    CALL(kvik_cache_load, R_INT, D_ADDS, A_CACHE, A_SESSION, A_1, A_OUT_SEQ, CAN(A_OUT_MEMORY)),
    CALL(kvik_cache_map, R_INT, D_READS, A_CACHE, A_SEQ, A_OUT_MEMORY),
    CALL(kvik_cache_new, R_INT, D_ADDS, A_CACHE, A_OUT_SEQ),
    CALL(kvik_cache_open, R_INT, D_NOTHING, A_MODEL, CAN(A_CONFIG), A_OUT_CACHE),
    CALL(kvik_cache_observe, R_INT, D_READS, A_CACHE, CAN(A_ON_BLOCK), CAN(A_CTX)),
    CALL(kvik_cache_plan, R_INT, D_READS, A_CACHE, A_0, A_1, A_OUT_MEMORY),
    CALL(kvik_cache_reorder, R_INT, D_CHANGES, A_CACHE, A_SEQS, A_INDEX, A_1),
    CALL(kvik_cache_reserve, R_INT, D_CHANGES, A_CACHE, A_SEQ, A_N),
    CALL(kvik_cache_reset, R_INT, D_CHANGES, A_CACHE, A_SEQ),
    CALL(kvik_cache_save, R_INT, D_READS, A_CACHE, A_SAVED, A_SEQS, A_1, CAN(A_TEXT)),
    CALL(kvik_cache_set_memory, R_INT, D_ADDS, A_CACHE, A_MEMORY),
    CALL(kvik_cache_sync, R_INT, D_CHANGES, A_CACHE, A_SEQ, A_IDS, A_N, CAN(A_LOGITS), CAN(A_SYNC)),
    CALL(kvik_cache_usage, R_INT, D_READS, A_CACHE, A_USAGE),
    CALL(kvik_chat_encode, R_INT, D_NOTHING, A_TOKENIZER, A_CHAT, A_OUT_MEMORY, A_OUT_N,
         CAN(A_OUT_MEMORY)),
    CALL(kvik_chat_render, R_INT, D_NOTHING, CAN(A_TOKENIZER), A_CHAT, A_OUT_MEMORY),
    CALL(kvik_decoder_close, R_VOID, D_CLOSES, A_DECODER),
    CALL(kvik_decoder_flush, R_I64, D_NOTHING, A_DECODER, A_OUT_BORROWED),
    CALL(kvik_decoder_open, R_INT, D_NOTHING, A_TOKENIZER, A_FALSE, A_OUT_DECODER),
    CALL(kvik_decoder_put, R_I64, D_NOTHING, A_DECODER, A_IDS, A_N, A_OUT_BORROWED),
    CALL(kvik_error_name, R_POINTER, D_NOTHING, A_CODE),
    CALL(kvik_features_load, R_INT, D_NOTHING, A_FEATURES_FILE, A_TENSOR, A_DIM, A_OUT_MEMORY),
    CALL(kvik_fetch_free, R_VOID, D_CLOSES, A_FETCH),
    CALL(kvik_fetch_look, R_INT, D_READS, A_FETCH, A_FETCHED),
    CALL(kvik_fetch_take, R_I64, D_ADDS, A_FETCH, A_OUT_SEQ),
    CALL(kvik_finish_name, R_POINTER, D_NOTHING, A_1),
    CALL(kvik_format_end, R_POINTER, D_NOTHING, A_FORMAT),
    CALL(kvik_format_guess, R_POINTER, D_NOTHING, A_TOKENIZER),
    CALL(kvik_format_name, R_POINTER, D_NOTHING, A_1),
    CALL(kvik_format_template, R_POINTER, D_NOTHING, A_FORMAT),
    CALL(kvik_forward, R_INT, D_CHANGES, A_CACHE, A_SPAN, A_1, A_FALSE, CAN(A_LOGITS)),
    CALL(kvik_free, R_VOID, D_CLOSES, A_CTX),
    CALL(kvik_generate, R_INT, D_CHANGES, A_CACHE, A_GENERATION, A_PROMPT, A_1, CAN(A_HOOKS),
         A_OUT_RESULT),
    CALL(kvik_generate_stream, R_INT, D_ADDS, A_CACHE, A_GENERATION, A_TEXT, A_ON_TEXT, CAN(A_CTX),
         CAN(A_OUT_RESULT)),
    CALL(kvik_generate_text, R_INT, D_ADDS, A_CACHE, A_GENERATION, A_TEXT, A_OUT_RESULT),
    CALL(kvik_generation_done, R_VOID, D_CLOSES, A_GENERATION_OUT),
    CALL(kvik_generation_init_sized, R_INT, D_NOTHING, A_GENERATION_OUT, A_SIZE, CAN(A_MODEL)),
    CALL(kvik_generation_number, R_INT, D_NOTHING, A_GENERATION, A_OPTION, A_OUT_N),
    CALL(kvik_generation_set, R_INT, D_NOTHING, A_GENERATION_OUT, A_JSON),
    CALL(kvik_last_error, R_POINTER, D_NOTHING, A_END),
    CALL(kvik_layer_plane, R_POINTER, D_NOTHING, A_LAYER, A_PLANE),
    CALL(kvik_layers_close, R_VOID, D_CLOSES, A_LAYERS),
    CALL(kvik_layers_crop, R_INT, D_ADDS, A_LAYERS, A_1),
    CALL(kvik_layers_length, R_I64, D_READS, A_LAYERS, A_0),
    CALL(kvik_layers_mask_sizes, R_INT, D_READS, A_LAYERS, A_0, A_1, CAN(A_OUT_N), CAN(A_OUT_N)),
    CALL(kvik_layers_open, R_INT, D_NOTHING, CAN(A_CONFIG), A_1, CAN(A_KINDS), A_OUT_LAYERS),
    CALL(kvik_layers_reorder, R_INT, D_ADDS, A_LAYERS, A_INDEX, A_1),
    CALL(kvik_layers_repeat, R_INT, D_ADDS, A_LAYERS, A_1),
    CALL(kvik_layers_reset, R_INT, D_ADDS, A_LAYERS),
    CALL(kvik_layers_rows, R_INT, D_ADDS, A_LAYERS, A_0, A_ROWS),
    CALL(kvik_layers_select, R_INT, D_ADDS, A_LAYERS, A_INDEX, A_1),
    CALL(kvik_layers_update, R_INT, D_ADDS, A_LAYERS, A_0, A_FLOATS, A_FLOATS, A_SHAPE, A_ROWS),
    CALL(kvik_layers_usage, R_INT, D_READS, A_LAYERS, A_USAGE),
    CALL(kvik_legacy_free, R_VOID, D_CLOSES, A_LEGACY),
    CALL(kvik_legacy_load, R_INT, D_NOTHING, A_LEGACY_FILE, CAN(A_MODEL), A_OUT_LEGACY),
    CALL(kvik_legacy_save, R_INT, D_NOTHING, A_LEGACY, CAN(A_MODEL), A_LEGACY_FILE),
    CALL(kvik_logits_save, R_INT, D_NOTHING, A_RESULT, A_LOGITS_FILE),
    CALL(kvik_model_close, R_VOID, D_CLOSES, A_MODEL),
    CALL(kvik_model_context, R_U32, D_NOTHING, A_MODEL),
    CALL(kvik_model_describe, R_INT, D_NOTHING, A_MODEL, A_OUT_MEMORY),
    CALL(kvik_model_describe_caches, R_INT, D_NOTHING, A_MODEL, A_OUT_MEMORY),
    CALL(kvik_model_embed, R_INT, D_NOTHING, A_MODEL, A_IDS, A_1, A_LOGITS),
    CALL(kvik_model_encoder, R_INT, D_NOTHING, A_MODEL, A_ENCODER),
    CALL(kvik_model_heads, R_U32, D_NOTHING, A_MODEL),
    CALL(kvik_model_hidden, R_U32, D_NOTHING, A_MODEL),
    CALL(kvik_model_layers, R_U32, D_NOTHING, A_MODEL),
    CALL(kvik_model_open, R_INT, D_NOTHING, A_MODEL_PATH, A_OUT_MODEL),
    CALL(kvik_model_open_with, R_INT, D_NOTHING, A_MODEL_PATH, CAN(A_MODEL_OPTIONS), A_OUT_MODEL),
    CALL(kvik_model_peek, R_INT, D_NOTHING, A_MODEL_PATH, A_OUT_MEMORY),
    CALL(kvik_model_set_template, R_INT, D_NOTHING, A_MODEL, A_TEMPLATE, CAN(A_TEXT)),
    CALL(kvik_model_tokenizer, R_POINTER, D_NOTHING, A_MODEL),
    CALL(kvik_model_verify, R_INT, D_NOTHING, A_MODEL, A_1),
    CALL(kvik_model_vocab, R_U32, D_NOTHING, A_MODEL),
    CALL(kvik_option_at, R_POINTER, D_NOTHING, A_1),
    CALL(kvik_option_nearest, R_POINTER, D_NOTHING, A_OPTION),
    CALL(kvik_prefix_check, R_INT, D_READS, CAN(A_CACHE), A_DIR),
    CALL(kvik_prefix_load, R_I64, D_ADDS, A_CACHE, A_DIR, A_IDS, A_N, A_OUT_SEQ),
    CALL(kvik_prefix_load_salted, R_I64, D_ADDS, A_CACHE, A_DIR, A_IDS, A_N, CAN(A_TEXT),
         A_OUT_SEQ),
    CALL(kvik_prefix_save, R_INT, D_READS, A_CACHE, A_DIR, A_SEQ, A_0),
    CALL(kvik_request_end, R_INT, D_ADDS, A_REQUEST, A_OUT_RESULT),
    CALL(kvik_request_error, R_INT, D_READS, A_REQUEST, CAN(A_OUT_BORROWED)),
    CALL(kvik_request_free, R_VOID, D_CLOSES, A_REQUEST),
    CALL(kvik_request_pause, R_VOID, D_ADDS, A_REQUEST),
    CALL(kvik_request_progress, R_INT, D_READS, A_REQUEST, A_PROGRESS),
    CALL(kvik_request_resume, R_VOID, D_ADDS, A_REQUEST),
    CALL(kvik_request_set_chunk, R_VOID, D_ADDS, A_REQUEST, A_N),
    CALL(kvik_request_start, R_INT, D_CHANGES, A_CACHE, A_GENERATION, A_PROMPT, A_1, CAN(A_HOOKS),
         A_OUT_REQUEST),
    CALL(kvik_request_state, R_STATE, D_READS, A_REQUEST),
    CALL(kvik_request_step, R_INT, D_ADDS, A_REQUESTS, A_1),
    CALL(kvik_result_free, R_VOID, D_CLOSES, A_RESULT),
    CALL(kvik_sample, R_INT, D_NOTHING, A_SAMPLER, A_CHOICE, A_OUT_ID),
    CALL(kvik_sampler_close, R_VOID, D_CLOSES, A_SAMPLER),
    CALL(kvik_sampler_open, R_INT, D_NOTHING, A_GENERATION, A_VOCAB, CAN(A_HOOKS), A_OUT_SAMPLER),
    CALL(kvik_session_describe, R_INT, D_NOTHING, A_SESSION, A_OUT_MEMORY),
    CALL(kvik_shared_close, R_VOID, D_CLOSES, A_SHARED),
    CALL(kvik_shared_flush, R_INT, D_READS, A_SHARED, A_1),
    CALL(kvik_shared_look, R_INT, D_READS, A_SHARED, A_SHARED_STATE),
    CALL(kvik_shared_open, R_INT, D_READS, A_CACHE, A_STORE, A_OUT_SHARED),
    CALL(kvik_shared_put, R_INT, D_READS, A_SHARED, A_SEQ),
    CALL(kvik_shared_seek, R_INT, D_READS, A_SHARED, A_IDS, A_N, CAN(A_TEXT), A_0, A_OUT_FETCH),
    CALL(kvik_export_free, R_VOID, D_CLOSES, A_EXPORT),
    CALL(kvik_speech_features, R_I64, D_NOTHING, A_FLOATS, A_N, A_N, CAN(A_LOGITS)),
    CALL(kvik_speech_init_sized, R_INT, D_NOTHING, A_SPEECH, A_SPEECH_SIZE),
    CALL(kvik_speech_language, R_POINTER, D_NOTHING, A_0, CAN(A_OUT_BORROWED)),
    CALL(kvik_sync_done, R_VOID, D_CLOSES, A_SYNC),
    CALL(kvik_tokenizer_bytes, R_INT, D_NOTHING, A_TOKENIZER, A_2, A_OUT_MEMORY, A_OUT_N),
    CALL(kvik_tokenizer_close, R_VOID, D_CLOSES, A_TOKENIZER),
    CALL(kvik_tokenizer_decode, R_INT, D_NOTHING, A_TOKENIZER, A_IDS, A_N, A_FALSE, A_OUT_MEMORY,
         CAN(A_OUT_N)),
    CALL(kvik_tokenizer_encode, R_INT, D_NOTHING, A_TOKENIZER, A_TEXT, A_BYTES, A_FALSE,
         A_OUT_MEMORY, A_OUT_N),
    CALL(kvik_tokenizer_encode_placed, R_I64, D_NOTHING, A_TOKENIZER, A_TEXT, A_BYTES, A_FALSE,
         A_OUT_MEMORY, A_OUT_MEMORY),
    CALL(kvik_tokenizer_encode_plain, R_I64, D_NOTHING, A_TOKENIZER, A_TEXT, A_BYTES, A_OUT_MEMORY,
         CAN(A_OUT_MEMORY)),
    CALL(kvik_tokenizer_find, R_ID, D_NOTHING, A_TOKENIZER, A_TEXT),
    CALL(kvik_tokenizer_layout, R_I64, D_NOTHING, A_TOKENIZER, A_FALSE, A_OUT_MEMORY),
    CALL(kvik_tokenizer_open, R_INT, D_NOTHING, A_MODEL_PATH, A_OUT_TOKENIZER),
    CALL(kvik_tokenizer_piece, R_POINTER, D_NOTHING, A_TOKENIZER, A_2, A_OUT_N, CAN(A_OUT_N)),
    CALL(kvik_tokenizer_special, R_POINTER, D_NOTHING, A_TOKENIZER, A_OPTION),
    CALL(kvik_tokenizer_template, R_POINTER, D_NOTHING, A_TOKENIZER),
    CALL(kvik_trace_begin, R_INT, D_NOTHING, A_END),
    CALL(kvik_trace_end, R_INT, D_NOTHING, CAN(A_LOGITS_FILE)),
    CALL(kvik_transcribe, R_INT, D_ADDS, A_CACHE, A_RECORDING, CAN(A_SPEECH), A_OUT_TRANSCRIPT),
    CALL(kvik_transcribe_features, R_INT, D_ADDS, A_CACHE, A_FLOATS, A_N, A_N, CAN(A_SPEECH),
         A_OUT_TRANSCRIPT),
    CALL(kvik_transcribe_samples, R_INT, D_ADDS, A_CACHE, A_FLOATS, A_N, CAN(A_SPEECH),
         A_OUT_TRANSCRIPT),
    CALL(kvik_transcribe_stream, R_INT, D_ADDS, A_CACHE, A_ON_SOUND, CAN(A_TEXT), CAN(A_SPEECH),
         A_OUT_TRANSCRIPT),
    CALL(kvik_transcript_free, R_VOID, D_CLOSES, A_TRANSCRIPT),
    CALL(kvik_tokenizer_vocab, R_U32, D_NOTHING, A_TOKENIZER),
    CALL(kvik_version, R_POINTER, D_NOTHING, A_END),
};

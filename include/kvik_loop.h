/* kvik_loop.h - loops of your own: many generations step by step, and what chooses and decodes one token.
 *
 * The functions are in the same library as those of kvik.h, whose conventions hold here. */
#pragma once
#include "kvik.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Requests: several generations in one batch -------------------------------------------------
 *
 * A request is a generation that you advance step by step, beside others on the same cache.  Requests
 * may have different options, seeds, processors and ways of decoding; they join, pause and leave
 * whenever you want.  Each gives the tokens, scores and logits that kvik_generate gives for it alone,
 * bit for bit.
 *
 *     kvik_request_start(cache, &greedy, &prompt_a, 1, NULL, &r[0]);
 *     kvik_request_start(cache, &beams, &prompt_b, 1, NULL, &r[1]);
 *     while (kvik_request_step(r, 2) > 0) {}       // here others may join, and these may leave
 *     for (int i = 0; i < 2; i++) {
 *         if (kvik_request_end(r[i], &result[i]) < 0) puts(kvik_last_error());
 *         kvik_request_free(r[i]);
 *     }
 */

typedef struct kvik_request kvik_request;
/* States of a request. */
enum kvik_state {
    KVIK_RUNNING,
    KVIK_PAUSED,
    /* The request has all its tokens, or you have ended it. */
    KVIK_OVER,
    /* kvik_request_error says why; the sequences are what they were before the request started. */
    KVIK_FAILED
};
/* Checks the call and takes sequences, as kvik_generate does, but computes nothing yet.  The request
 * copies `g`, the prompts and the struct of hooks.  All requests of a cache, and kvik_generate beside them,
 * share its max_sequences: KVIK_LIMIT if they do not suffice.  A sequence of yours (kvik_prompt.seq)
 * belongs to the request until the request has ended or failed.  Until then calls that change the
 * sequence are KVIK_BUSY and change nothing: forward, sync, crop, reset, reorder, reserve, drop, generate and a second
 * request.  Calls that read it are allowed: length, fork, export, save. */
KVIK_API int kvik_request_start(kvik_cache *c, const kvik_generation *g, const kvik_prompt *prompt,
                                uint32_t n, const kvik_hooks *hooks, kvik_request **out);
/* Advances n requests of one cache and returns how many of them still run.  A request that decodes
 * gets its next token (with draft tokens several; guided contrastive search: every second step).
 * Requests that are paused, over or failed take no part.
 *
 * A call is one forward step of at most step_tokens tokens.  Requests that decode come first; prompts that are not
 * computed yet share what is left, by turns.  So the time between two tokens of a request does not grow with
 * the number of prompts that wait.  prefill_chunk_size shortens it: prompts then take no more tokens of a
 * step than the smallest of their chunks.  If more sequences decode than step_tokens, they take turns too, and
 * prompts wait until fewer decode.
 *
 * A request that fails, because its callback refuses or its part of the step does not fit the memory,
 * ends with its error.  The others go on unaffected, and this call returns no error.  When memory runs
 * short, the requests take their part of the step one by one in the order given.  Those whose part
 * does not fit fail and give their memory to those after them.
 *
 * A callback cannot step or end requests that take part in the step (KVIK_BUSY). */
KVIK_API int kvik_request_step(kvik_request *const *request, uint32_t n);
/* Returns the state of a request. */
KVIK_API enum kvik_state kvik_request_state(const kvik_request *r);
/* Returns the error of a failed request, else 0.  *text (may be NULL) is its sentence, valid until the
 * request is freed. */
KVIK_API int kvik_request_error(const kvik_request *r, const char **text);
/* How far a request is, summed over its prompts. */
typedef struct kvik_progress {
    size_t size;
    /* Tokens of the prompts; those of them whose cached rows are reused; and all tokens that were computed so far. */
    uint64_t prompt_tokens, reused_tokens, computed_tokens;
    /* New tokens so far, those of kvik_prompt.n_new included; with beams, of the longest text. */
    uint64_t new_tokens;
    /* 1 while the prompts wait for their turn or are being computed; then 0. */
    uint64_t prefills;
} kvik_progress;
/* Fills *out, also of a request that is over or has failed. */
KVIK_API int kvik_request_progress(const kvik_request *r, kvik_progress *out);
/* Pause and resume a request.  A paused request takes no part in steps.  Its rows stay, and may move to disk
 * like all others.  The clock of max_time runs on. */
KVIK_API void kvik_request_pause(kvik_request *r);
KVIK_API void kvik_request_resume(kvik_request *r);
/* Replaces the prefill_chunk_size of a request from its next step on; 0: step_tokens of the cache.  For programs that
 * bound the time of a step: the result is the same. */
KVIK_API void kvik_request_set_chunk(kvik_request *r, uint32_t tokens);
/* Gives the result, once; free it with kvik_result_free.  Rows of a request that still runs end with
 * KVIK_FINISH_CANCELLED; a beam search gives its best beams so far.  If no token has been chosen yet,
 * the rows are the prompts and your sequences are what they were.  A failed request gives its error.
 * The end may compute, so a callback that cannot append to the cache (kvik_on_progress, drafts) cannot
 * end a request that has chosen a token: KVIK_BUSY, and it can be ended later. */
KVIK_API int kvik_request_end(kvik_request *r, kvik_result **out);
/* Frees a request in any state.  A request that was not ended leaves your sequences as they were before it
 * started.  A request that a call of any thread still uses is freed when that call returns: a callback may free its
 * own request, which ends with this step. */
KVIK_API void kvik_request_free(kvik_request *r);

/* ---- Schemas: compiled before they are needed -------------------------------------------------------
 *
 * A generation with a json_schema compiles it when it begins, which can take half a second.  A program whose steps must
 * not wait compiles it in another thread, and keeps it open as long as such generations wait or run:
 *
 *     kvik_schema_open(g.json_schema, kvik_model_tokenizer(model), &schema);    // in a thread that may wait
 *     kvik_request_start(cache, &g, &prompt, 1, NULL, &request);                // compiles nothing
 *     ...
 *     kvik_schema_close(schema);
 */

typedef struct kvik_schema kvik_schema;
/* Compiles a schema, and makes the tables of the tokenizer for schemas; t NULL: the schema alone.  Generations whose
 * kvik_generation.json_schema is the same text find it, on any thread.  KVIK_BUSY: all schemas that are open or used
 * would need more than 512 MiB. */
KVIK_API int kvik_schema_open(const char *json_schema, const kvik_tokenizer *t, kvik_schema **out);
/* Closes a schema.  Generations that use it go on. */
KVIK_API void kvik_schema_close(kvik_schema *s);

/* ---- Sampler: tokens for loops of your own ----------------------------------------------------------
 *
 * A sampler chooses tokens from logits as kvik_generate does, bit for bit: with the same processors, and draws
 * that depend on the seed, the row and the number of new tokens alone.
 *
 *     kvik_sampler_open(&g, kvik_model_vocab(model), NULL, &sampler);
 *     for (;; n++) {
 *         kvik_forward(cache, &span, 1, false, logits);     // the tokens since the last call
 *         kvik_choice choice = {.size = sizeof choice, .logits = logits, .ids = ids, .n = n, .n_prompt = n_prompt};
 *         if (kvik_sample(sampler, &choice, &ids[n]) != 0) break;
 *     } */

typedef struct kvik_sampler kvik_sampler;
/* What kvik_sample chooses from. */
typedef struct kvik_choice {
    size_t size;
    /* [vocab] after the last id; not changed. */
    const float *logits;
    /* [n] the text so far: the prompt, then the tokens that were chosen. */
    const int32_t *ids;
    size_t n, n_prompt;
    /* Columns of the prompt that a mask leaves out of ids; lengths count them. */
    size_t masked;
    /* Row of the result whose draws these are: rows of one seed draw different tokens. */
    uint32_t row;
    /* Tokens of the longest text, for forced_eos_token_id.  0: as the options say. */
    size_t max_length;
    /* NULL, or [vocab] to fill with the scores after the processors. */
    float *scores;
    /* Tokens that each filter (top_k, top_p, min_p, typical_p, epsilon_cutoff, eta_cutoff) leaves at least.  0: 1. */
    size_t min_tokens_to_keep;
} kvik_choice;
/* Opens a sampler for logits of vocab tokens.  Options and hooks are copied; of the hooks only logits_processor is
 * called.  Beams, contrastive search and guidance_scale are KVIK_UNSUPPORTED; drafts, stop_strings and max_time
 * are without effect. */
KVIK_API int kvik_sampler_open(const kvik_generation *g, uint32_t vocab, const kvik_hooks *hooks,
                               kvik_sampler **out);
/* Chooses the next token.  Returns 1 if *id is an end-of-sequence token, else 0.  Allocates nothing. */
KVIK_API int kvik_sample(kvik_sampler *s, const kvik_choice *choice, int32_t *id);
/* Closes a sampler. */
KVIK_API void kvik_sampler_close(kvik_sampler *s);

/* ---- Blocks: what later prompts can reuse ---------------------------------------------------------------- */

/* A block of tokens whose cached rows later prompts reuse, or that is gone.  The pointers are valid during the call. */
typedef struct kvik_block {
    size_t size;
    /* [32] a digest of what decides the rows: the tokens up to the end of this block, the salt and the strategy.  Equal
     * keys mean equal rows in caches of one model. */
    const uint8_t *key;
    /* [32] the key of the block before; NULL: this block is the first of its text. */
    const uint8_t *before;
    /* [n] the tokens of the block; n is 16. */
    const int32_t *ids;
    uint32_t n;
    /* The number of the block in its text, from 0. */
    uint32_t number;
    /* 1: the block is there from now on.  0: it is gone. */
    uint64_t stored;
} kvik_block;
/* A block follows the block before it, and is gone before that one.  Calls with the same cache are KVIK_BUSY
 * meanwhile. */
typedef void (*kvik_on_block)(void *ctx, const kvik_block *block);
/* Tells all blocks that prompts can reuse, and from then on each block that comes or goes: after a forward step at the
 * latest, in the thread that calls.  on_block NULL: tells nothing any more.  A cache has one observer; another one
 * replaces it.  Where layers forget rows (windows, states), a prompt resumes only at some of the blocks.
 * KVIK_UNSUPPORTED with no_prefix_cache. */
KVIK_API int kvik_cache_observe(kvik_cache *c, kvik_on_block on_block, void *ctx);

/* ---- Chunks: text that was computed elsewhere ---------------------------------------------------------
 *
 * Documents in another order, a file that moved, the text behind an edit: their rows are cached, but at other positions
 * and behind other text.  kvik_cache_splice reads them where they are, in whatever form they are kept: attention turns
 * the query, so no row is copied or computed.  They are an approximation, since each still holds what came before it
 * when it was computed.  So this is off unless the cache is opened with cache_config {"moved_chunks": N}, and a part of
 * each chunk is computed again: exactly as many of its first tokens as you say.
 *
 *     kvik_cache_new(cache, &seq);
 *     kvik_splice how = {.size = sizeof how, .recompute = 32};
 *     kvik_cache_splice(cache, seq, chunk, n, &how);          // how.moved rows were neither computed nor copied
 *     kvik_generate(cache, &g, &prompt, 1, NULL, &result);    // prompt: the ids of all chunks, with .seq = seq
 */

typedef struct kvik_chunk {
    size_t size;
    /* [n] its tokens. */
    const int32_t *ids;
    size_t n;
    /* 1: all of it is computed, wherever its rows are: text between documents. */
    uint64_t exact;
} kvik_chunk;
typedef struct kvik_splice {
    size_t size;
    /* So many tokens at the beginning of a chunk are computed again: the larger of the number and this part of the
     * chunk, rounded up.  fraction is from 0 to 1; 1 computes all, with the bits of computing. */
    uint64_t recompute;
    double fraction;
    /* Filled in.  Tokens of the longest cached prefix, whose rows are exact; of chunks that are read at another
     * position; and those that were computed: reused + moved + computed are all. */
    uint64_t reused, moved, computed;
    /* How many chunks are read at another position. */
    uint64_t chunks;
    /* The call ends after it has computed so many tokens, for programs that have other work; 0: no limit.  taken is
     * filled in: the tokens of the chunks that the sequence has.  While they are fewer than all, call again with the
     * same chunks and this number; the counts are those of one call. */
    uint64_t most, taken;
    /* For an empty sequence: it becomes one of this salt, as with kvik_prompt; with n 0 that is all the call does, and
     * then any cache can.  NULL: its salt stays. */
    const char *cache_salt;
} kvik_splice;
/* Appends n chunks to a sequence; `how` NULL: nothing is computed again.  A sequence without rows first reuses the
 * longest cached prefix of the whole text, as prompts do.  Then a chunk is read where a sequence without such chunks
 * has its tokens one after another (a live one, or a dropped one that is still cached); else it is computed.
 *
 * The sequence then is like any other: append, fork, crop, generate.  While it has such a chunk no other prompt reuses
 * its rows; once it is dropped, those before its first such chunk are reused.  In a quantized cache a crop may compute
 * chunks near the cut, which are then exact.  It cannot be saved or exported, nor show attention weights
 * (KVIK_UNSUPPORTED).  What a chunk was computed in stays in memory as long as a sequence reads it; of more such texts
 * than N + 2 * max_sequences at once, the others' chunks are computed.  KVIK_UNSUPPORTED for a cache without
 * moved_chunks; a cache of a model whose rows cannot move, or with windows, sinks or rows on disk, does not open with
 * it. */
KVIK_API int kvik_cache_splice(kvik_cache *c, kvik_seq s, const kvik_chunk *chunk, uint32_t n,
                               kvik_splice *how);

/* ---- Decoder: text of ids that come one by one -------------------------------------------------------- */

/* Decodes ids one by one.  Bytes are held back until they are a whole character. */
typedef struct kvik_decoder kvik_decoder;
/* Opens a decoder.  Memory for the usual token is taken here, so that decoding one allocates nothing. */
KVIK_API int kvik_decoder_open(const kvik_tokenizer *t, bool skip_special_tokens,
                               kvik_decoder **out);
/* Decodes n more ids.  *text has the characters that became whole, ends with a NUL and is valid until the next call;
 * returns its bytes, often 0.  A call that fails changes nothing. */
KVIK_API int64_t kvik_decoder_put(kvik_decoder *d, const int32_t *ids, size_t n, const char **text);
/* Gives the bytes that were held back, with U+FFFD for an incomplete character.  The decoder then begins a new
 * text.  All texts together are that of kvik_tokenizer_decode. */
KVIK_API int64_t kvik_decoder_flush(kvik_decoder *d, const char **text);
/* Closes a decoder. */
KVIK_API void kvik_decoder_close(kvik_decoder *d);

#ifdef __cplusplus
}
#endif

/* sizes.h - the least size of every struct of kvik.h that begins with its size: up to the last field of its first
 * version.  A smaller size is a mistake of the caller: fields behind it would be read from unrelated memory. */
#pragma once
#include "base/sized.h"
#include "kvik.h"
#include "kvik_loop.h"

/* For kvik_generation the least size includes everything that the struct owns. */
#define SIZED_LEAST(type, field)                                                                   \
    least_##type = (offsetof(type, field) + sizeof(((type *)0)->field) + sizeof(size_t) - 1) /     \
                   sizeof(size_t) * sizeof(size_t)
enum {
    SIZED_LEAST(kvik_cache_config, max_cache_len),
    SIZED_LEAST(kvik_chat, now),
    SIZED_LEAST(kvik_chunk, n),
    SIZED_LEAST(kvik_codec, residual_length),
    SIZED_LEAST(kvik_encoder, decoder_start_token_id),
    SIZED_LEAST(kvik_generation, unmet),
    SIZED_LEAST(kvik_hooks, ctx),
    SIZED_LEAST(kvik_message, content),
    SIZED_LEAST(kvik_model_options, ctx),
    SIZED_LEAST(kvik_policy, num_sink_tokens),
    SIZED_LEAST(kvik_progress, prefills),
    SIZED_LEAST(kvik_prompt, n),
    SIZED_LEAST(kvik_source, n_frames),
    SIZED_LEAST(kvik_span, ids),
    SIZED_LEAST(kvik_splice, chunks),
    SIZED_LEAST(kvik_sync, divergence),
    SIZED_LEAST(kvik_usage, states),
};

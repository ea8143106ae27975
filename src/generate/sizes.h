/* sizes.h - the least size of every public struct that begins with its size: up to the last field of its first version.
 * A smaller size is a mistake of the caller, and fields behind the size would be read from what follows the struct. */
#pragma once
#include "base/sized.h"
#include "kvik.h"

/* kvik_generation reaches behind all that the struct owns. */
#define LEAST(type, field)                                                                         \
    least_##type = (offsetof(type, field) + sizeof(((type *)0)->field) + sizeof(size_t) - 1) /     \
                   sizeof(size_t) * sizeof(size_t)
enum {
    LEAST(kvik_cache_config, max_cache_len),
    LEAST(kvik_choice, scores),
    LEAST(kvik_encoder, decoder_start_token_id),
    LEAST(kvik_generation, unmet),
    LEAST(kvik_hooks, ctx),
    LEAST(kvik_inputs, n),
    LEAST(kvik_legacy, layer),
    LEAST(kvik_message, content),
    LEAST(kvik_model_options, ctx),
    LEAST(kvik_outputs, logits),
    LEAST(kvik_progress, prefills),
    LEAST(kvik_prompt, n),
    LEAST(kvik_rows, position),
    LEAST(kvik_shape, dim_v),
    LEAST(kvik_snapshot, layer),
    LEAST(kvik_source, n_frames),
    LEAST(kvik_span, ids),
    LEAST(kvik_speech, ctx),
    LEAST(kvik_sync, divergence),
    LEAST(kvik_usage, states),
};
#undef LEAST

/* layout.c - checks at compile time the layout of every struct that programs allocate.  It adds no code to the
 * library. */
#include "base/base.h"
#include "kvik_compat.h"
#include "kvik_loop.h"
#include "kvik_speech.h"

/* A field that a later version appends must not lie in the padding of an older version, because padding may hold
 * anything. */
#define ENDS_WITH(type, field)                                                                     \
    _Static_assert(offsetof(type, field) + sizeof(((type *)0)->field) == sizeof(type),             \
                   #type " has padding behind its last field");                                    \
    _Static_assert(offsetof(type, size) == 0, #type " begins with its size")
ENDS_WITH(kvik_cache_config, options);
ENDS_WITH(kvik_policy, num_sink_tokens);
ENDS_WITH(kvik_codec, max_kld);
ENDS_WITH(kvik_usage, expected_kld);
ENDS_WITH(kvik_export, source);
ENDS_WITH(kvik_legacy, encoder_length);
ENDS_WITH(kvik_span, ids);
ENDS_WITH(kvik_sync, reason);
ENDS_WITH(kvik_shape, dtype);
ENDS_WITH(kvik_rows, position);
ENDS_WITH(kvik_generation, xtc_threshold);
ENDS_WITH(kvik_prompt, cache_salt);
ENDS_WITH(kvik_source, n_frames);
ENDS_WITH(kvik_encoder, decoder_start_token_id);
ENDS_WITH(kvik_message, more);
ENDS_WITH(kvik_chat, now);
ENDS_WITH(kvik_model_options, device);
ENDS_WITH(kvik_hooks, together);
ENDS_WITH(kvik_together, stopping_criteria);
ENDS_WITH(kvik_progress, prefills);
ENDS_WITH(kvik_choice, min_tokens_to_keep);
ENDS_WITH(kvik_block, stored);
ENDS_WITH(kvik_chunk, exact);
ENDS_WITH(kvik_splice, cache_salt);
ENDS_WITH(kvik_inputs, ctx);
ENDS_WITH(kvik_seen, position);
ENDS_WITH(kvik_outputs, cross_attentions);
ENDS_WITH(kvik_encoded, attentions);

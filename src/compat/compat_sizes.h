/* compat_sizes.h - the least sizes of the structs of kvik_compat.h; see generate/sizes.h. */
#pragma once
#include "generate/sizes.h"
#include "kvik_compat.h"

enum {
    SIZED_LEAST(kvik_choice, scores),
    SIZED_LEAST(kvik_encoded, attentions),
    SIZED_LEAST(kvik_inputs, n),
    SIZED_LEAST(kvik_legacy, layer),
    SIZED_LEAST(kvik_outputs, logits),
    SIZED_LEAST(kvik_rows, position),
    SIZED_LEAST(kvik_seen, position),
    SIZED_LEAST(kvik_shape, dim_v),
    SIZED_LEAST(kvik_export, layer),
};

/* codecs.h - the quantized codecs in one line each, as the tests' tables write them, and every codec of the registry
 * with values that reach all of its options. */
#pragma once
#include "kv/codec.h"

#include <stdio.h>
#include <string.h>

struct affine_choice { /* cache_config's names; backend NULL: no codec */
    const char *backend;
    int32_t nbits, axis_key, axis_value, q_group_size;
    uint32_t residual_length;
};

/* Values out of range are kept, for the codec to refuse. */
static inline int pair_of(const struct affine_choice *c, struct kv_codec_pair *o)
{
    const int32_t of[2][3] = {{c->nbits, c->axis_key, c->q_group_size},
                              {c->nbits, c->axis_value, c->q_group_size}};
    static const char *const name[] = {"nbits", "axis", "q_group_size"};
    *o = (struct kv_codec_pair){.residual_length = c->residual_length};
    for (int p = 0; c->backend && p < 2; p++) {
        TRY(kv_codec_usual(c->backend, &o->plane[p]));
        for (int i = 0; i < 3; i++) {
            int at = kv_codec_option_at(o->plane[p].kind, name[i]);
            if (at >= 0) o->plane[p].value[at] = of[p][i];
        }
    }
    return 0;
}

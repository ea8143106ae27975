/* preset.h - cache_implementation names as rows of fields: from a model's layers to kv groups. */
#pragma once
#include "kv/kv.h"

struct kv_layer {           /* what a model says of one attention layer */
    uint32_t heads, dim;    /* kv heads, head dim */
    uint32_t window, chunk; /* 0: full */
};
struct kv_preset {
    const char *name;  /* the reference's cache_implementation */
    bool reserve;      /* set aside max_cache_len rows when a sequence begins */
    const char *brief; /* one line for help and reports */
};
const struct kv_preset *kv_preset_find(const char *name); /* NULL: unknown */
const struct kv_preset *kv_preset_at(uint32_t i);         /* NULL past the end */

struct kv_preset_options {
    enum dtype dtype;             /* of raw rows */
    uint32_t window;              /* cache_config sliding_window: applies to full layers; 0: none */
    uint32_t block_rows;          /* 0: 16; or 32, 64, 128, 256, for tests */
    const struct kv_codec *codec; /* of k and v, or NULL */
};
/* Layers with the same policy and shape share a group.  group: room for n_layers; site[i]: the site of layer i.
 * Returns the number of groups. */
int kv_preset_groups(const struct kv_layer *layer, uint32_t n_layers,
                     const struct kv_preset_options *o, struct kv_group *group, uint32_t *site);

/* codec_affine.h - what quanto and hqq share.  Both store a group of values as two numbers and small codes (dev/affine.h);
 * they differ in how they choose the numbers and codes. */
#pragma once
#include "dev/affine.h"
#include "dev/row.h"
#include "kv/codec.h"

#define AFFINE_MOST 4096u /* values of a group, rows of a tile */

struct affine_group {
    enum dtype dtype; /* of the plane */
    uint32_t max_q;   /* largest code */
    bool channel;     /* the same as in affine_spec */
    int32_t setting;  /* the same as in affine_spec */
    uint32_t n;       /* values, at most AFFINE_MOST, at least 1 */
    const float *x;   /* [n], as group.h says */
    uint8_t *q;       /* [n] out: codes up to max_q */
    /* out.  value = a * code - b, or (code - b) * a with zero_first.  Both are stored rounded to the plane's dtype
     * (kv_row_round). */
    float a, b;
    float *work; /* [AFFINE_MOST] scratch of `quantize` */
};
struct affine_spec {
    const char *name;
    uint32_t bits, group; /* bits: 1, 2, 3, 4 or 8, else affine_open refuses; group: q_group_size */
    bool channel;         /* a group is one channel of one head over `group` rows */
    bool zero_first;      /* value = (code - b) * a, else a * code - b */
    /* an option whose meaning `quantize` defines; the description names it unless it is 0 */
    int32_t setting;
    const char *axis; /* the key of cache_config, for errors */
    void (*quantize)(struct affine_group *g);
    enum kv_encoder encoder; /* KV_BY_RANGE: `quantize` is that of quanto */
};
/* tile: 0, or a multiple of the tile that the kind would choose. */
int affine_open(const struct affine_spec *spec, const struct kv_shape *s, uint32_t tile,
                struct kv_codec **out);
/* The options that both kinds have, with the names and defaults of the quantized caches of Transformers. */
enum { AFFINE_NBITS, AFFINE_AXIS, AFFINE_GROUP, AFFINE_OPTIONS };
extern const struct kv_codec_option affine_options[AFFINE_OPTIONS];
/* Returns ERR_ARG if no shape allows groups of this many values. */
int affine_check_group(int32_t group);

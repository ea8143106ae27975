/* codec.h - codecs by name.  One file (codec_*.c) each, which registers a kind by one line; the presets make
 * instances of it for the planes of a group. */
#pragma once
#include "kv/kv.h"

struct kv_codec_options {     /* names and defaults of the reference's quantized caches */
    const char *backend;      /* "quanto", "hqq", "shuffle" (tests); NULL: no codec */
    uint32_t nbits;           /* 4 */
    int axis_key, axis_value; /* 0 */
    uint32_t q_group_size;    /* 64 */
    uint32_t residual_length; /* 128; rows that gather before a flush (kv_edge); 0 is 1 */
};
/* k: the plane holds keys, else values (axis_key or axis_value applies).  tile 0: the kind's own; else a
 * multiple of it, several units to a tile.  A shape or option it cannot do: ERR_ARG with the numbers. */
struct kv_codec_kind {
    const char *name, *brief;
    bool turns; /* seals by turns and residual_length, as the reference; else by position */
    int (*check)(const struct kv_codec_options *o); /* options alone, before any shape is known */
    int (*open)(const struct kv_codec_options *o, const struct kv_shape *s, bool k, uint32_t tile,
                struct kv_codec **out);
    void (*close)(struct kv_codec *c);
};
#define KV_CODEC(ident, ptr)                                                                       \
    const struct kv_codec_kind *const kvik_codec_##ident                                           \
        __attribute__((section("kvik_codec"), used, visibility("hidden"))) = ptr

const struct kv_codec_kind *kv_codec_find(const char *backend); /* NULL: unknown */
const struct kv_codec_kind *kv_codec_at(uint32_t i);            /* NULL past the end */
/* Instances for the k and v planes of a group with one common tile; *resid: for kv_seal. */
int kv_codec_pair_open(const struct kv_codec_options *o, const struct kv_shape *k,
                       const struct kv_shape *v, struct kv_codec **kc, struct kv_codec **vc,
                       uint32_t *resid);
void kv_codec_close(const struct kv_codec *c);
/* Writes the text of an instance and returns its length; ERR_ARG if the instance has none or it does not fit.
 * kv_open asks this of every codec it is given. */
int kv_codec_describe(const struct kv_codec *c, char out[KV_CODEC_TEXT]);
/* The describe function of a codec that has no parameter. */
int kv_codec_no_parameters(const struct kv_codec *c, char *out, size_t n);

/* codec.h - codecs by name.  A codec is one file (codec_*.c) that registers a kind with one line.  Presets make instances
 * of a kind for the planes of a group.  Keys and values may have different kinds, different options, or no codec. */
#pragma once
#include "kv/kv.h"

/* An option of a kind: a number that its instances are made with.  In cache_config, NAME sets the option for keys
 * and values; NAME_key and NAME_value set it for one of them.  `usual` is the default.  own: further names that only
 * this kind has, one for keys and one for values; NULL: there are none. */
struct kv_codec_option {
    const char *name;
    int32_t min, max, usual;
    const char *own[2];
};
enum { KV_CODEC_OPTIONS = 8 }; /* most options of a kind */

/* The kind and options for one plane. */
struct kv_codec_options {
    const struct kv_codec_kind *kind; /* NULL: rows stay raw */
    int32_t value[KV_CODEC_OPTIONS];  /* in the order of the kind's table */
};
/* The kinds and options for the two planes of a group. */
struct kv_codec_pair {
    struct kv_codec_options plane[2]; /* of keys, of values */
    /* For kinds that seal by turns: how many raw rows gather before a flush (kv_edge); 0 means 1. */
    uint32_t residual_length;
};
struct kv_codec_kind {
    const char *name;
    /* true: rows are sealed by turns and residual_length, as in Transformers; false: by position */
    bool turns;
    /* Only for kinds that seal by turns.  True: every update is sealed at its end, so there is no residual_length. */
    bool at_once;
    const struct kv_codec_option *option;
    uint32_t n_options;
    /* Refuses values that no shape allows (ERR_ARG).  key: the plane holds keys, else values.  NULL: all values are allowed. */
    int (*check)(const struct kv_codec_options *o, bool key);
    /* Makes an instance for one plane.  tile 0: the kind chooses the tile.  Else tile is a multiple of that choice,
     * and a tile has several of the kind's units.  ERR_ARG, with the numbers, for a shape that the kind cannot
     * store. */
    int (*open)(const struct kv_codec_options *o, const struct kv_shape *s, bool key, uint32_t tile,
                struct kv_codec **out);
    /* Frees what an instance holds beside its own memory, which begins with its struct kv_codec; NULL: nothing. */
    void (*close)(struct kv_codec *c);
};
#define KV_CODEC(ident, ptr)                                                                       \
    const struct kv_codec_kind *const kvik_codec_##ident                                           \
        __attribute__((section("kvik_codec"), used, visibility("hidden"))) = ptr

#define KV_CODEC_NONE "none" /* backend of a plane that stays raw */

const struct kv_codec_kind *kv_codec_find(const char *backend); /* NULL: unknown */
const struct kv_codec_kind *kv_codec_at(uint32_t i);            /* NULL past the end */

enum { KV_CODEC_LIST = 256 };
/* Writes the names of all kinds, separated by commas; a list that does not fit is cut. */
void kv_codec_names(char out[KV_CODEC_LIST]);

/* Finds a kind and sets its defaults; ERR_ARG if no kind has the name. */
int kv_codec_usual(const char *backend, struct kv_codec_options *out);
/* Returns the index of an option of the kind, or -1. */
int kv_codec_option_at(const struct kv_codec_kind *kind, const char *name);
/* Sets one value; ERR_ARG if the kind has no such option or the value is out of its range. */
int kv_codec_set(struct kv_codec_options *o, const char *name, int64_t value);

/* Makes one instance for one plane, as the kind's `open` says; kv_codec_close frees it. */
int kv_codec_open(const struct kv_codec_options *o, const struct kv_shape *s, bool key,
                  uint32_t tile, struct kv_codec **out);
void kv_codec_close(const struct kv_codec *c); /* frees an instance; c may be NULL */
/* Makes instances with equal tiles for the planes k and v of a group, and fills *seal except for the sinks.  If only one
 * plane has a kind, the other gets an instance that copies rows.  If neither has one, both stay NULL. */
int kv_codec_pair_open(const struct kv_codec_pair *o, const struct kv_shape *k,
                       const struct kv_shape *v, struct kv_codec **kc, struct kv_codec **vc,
                       struct kv_seal *seal);
/* Refuses options that no shape allows. */
int kv_codec_pair_check(const struct kv_codec_pair *o);
/* Writes the description of an instance and returns its length.  ERR_ARG if the instance has none or it does not
 * fit.  kv_open calls this for every codec of a store. */
int kv_codec_describe(const struct kv_codec *c, char out[KV_CODEC_TEXT]);
/* A describe function for codecs without parameters. */
int kv_codec_no_parameters(const struct kv_codec *c, char *out, size_t n);

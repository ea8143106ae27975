/* drawn_cache.h - draws the configuration of a cache (implementation, codec, window, blocks, tier, sizes) and of the plain
 * cache that must give the same bits. */
#pragma once
#include "codecs.h"
#include "kvik.h"
#include "walk.h"

#include <stdlib.h>

struct drawn_cache {
    /* members of cache_config, of the drawn cache and of the plain one */
    char keys[900], plain[900];
    char cross[900], plain_cross[900]; /* members of cross_cache_config */
    kvik_cache_config config;
    uint32_t most; /* max_cache_len */
    bool codec, cross_codec, reserves;
};

struct drawn_for {
    const kvik_model *model;
    bool hears;                  /* the model has an encoder */
    uint32_t context;            /* the greatest number of positions, or 0 */
    uint32_t longest, sequences; /* limits of max_cache_len and max_sequences */
};

/* Appends one of the registered codecs, for keys and values or one of them. */
static inline void drawn_variant(const struct drawn_for *w, char *out, size_t n)
{
    struct codec_variant v;
    char *says;
    if (kvik_model_describe(w->model, &says) < 0) abort();
    const char *at = strstr(says, "\"head_dim\":");
    uint32_t dim = at ? (uint32_t)strtoul(at + 11, NULL, 10) : 0;
    kvik_free(says);
    if (!dim) dim = 16; /* a model without attention has nothing to quantize */
    while (!codec_variant(between(1, codec_variants() - 1), dim, &v))
        ; /* some codecs refuse the model's heads */
    text_add(out, n, ",%s", v.config);
}

static inline void drawn_codec(const struct drawn_for *w, char *out, size_t n)
{
    if (dice(2)) {
        drawn_variant(w, out, n);
        return;
    }
    static const uint32_t groups[] = {4, 8, 16, 32, 64};
    bool hqq = dice(2);
    uint32_t nbits = hqq ? (uint32_t[]){1, 2, 3, 4, 8}[dice(5)] : dice(2) ? 2 : 4;
    text_add(
        out, n,
        ",\"backend\":\"%s\",\"nbits\":%u,\"axis_key\":%d,\"axis_value\":%d,\"q_group_size\":%u,"
        "\"residual_length\":%u",
        hqq ? "hqq" : "quanto", nbits,
        dice(2) ? 0
        : hqq   ? 1
                : -1,
        dice(2) ? 0
        : hqq   ? 1
                : -1,
        groups[dice(5)], between(1, 40));
}

/* Draws how the encoder's rows are stored. */
static inline void drawn_cross(const struct drawn_for *w, struct drawn_cache *d, uint32_t tier)
{
    char codec[700] = "";
    if (!w->hears) return;
    if ((d->cross_codec = dice(2))) drawn_codec(w, codec, sizeof codec);
    text_add(d->plain_cross, sizeof d->plain_cross, "{%s}", codec + (*codec == ','));
    bool moves = tier == 0 || dice(4) == 0;
    text_add(d->cross, sizeof d->cross, "{\"offloading\":%s%s}", moves ? "true" : "false", codec);
    d->config.cross_cache_config = d->cross;
}

/* Draws everything except the memory limit, which the test finds by trying. */
static inline void draw_cache(const struct drawn_for *w, struct drawn_cache *d)
{
    static const char *const names[] = {
        "dynamic",   "dynamic",        "dynamic",          "static",
        "sink",      "sliding_window", "hybrid",           "hybrid_chunked",
        "quantized", "offloaded",      "offloaded_static", "offloaded_hybrid"};
    uint32_t context = w->context;
    memset(d, 0, sizeof *d);
    d->most = between(60, context ? context : w->longest - 1);
    d->codec = dice(2);
    const char *name = names[dice(sizeof names / sizeof *names)];
    bool sink = strcmp(name, "sink") == 0;
    if (strcmp(name, "quantized") == 0) d->codec = true;
    d->reserves = strstr(name, "static") || strstr(name, "sliding") || strstr(name, "hybrid");
    text_add(d->plain, sizeof d->plain, "{\"max_cache_len\":%u", w->longest);
    if (context) snprintf(d->plain, sizeof d->plain, "{\"max_cache_len\":%u", context);
    text_add(d->keys, sizeof d->keys, "{\"max_cache_len\":%u", d->most);
    char policy[700] = "";
    if (sink || dice(4) == 0) {
        uint32_t sinks = between(0, 6);
        text_add(policy, sizeof policy, ",\"window_length\":%u,\"num_sink_tokens\":%u",
                 sinks + between(1, 30), sinks);
    } else if (dice(3) == 0) {
        text_add(policy, sizeof policy, ",\"sliding_window\":%u", between(1, 40));
    }
    if (d->codec) drawn_codec(w, policy, sizeof policy);
    text_add(d->keys, sizeof d->keys, "%s", policy);
    text_add(d->plain, sizeof d->plain, "%s}", policy);
    if (dice(3) == 0) text_add(d->keys, sizeof d->keys, ",\"test_block_rows\":%u", 16u << dice(5));
    uint32_t tier = dice(4);
    if (tier == 0) text_add(d->keys, sizeof d->keys, ",\"offloading\":true");
    if (tier == 0 && dice(2))
        text_add(d->keys, sizeof d->keys, ",\"offload_only_non_sliding\":%s",
                 dice(2) ? "true" : "false");
    text_add(d->keys, sizeof d->keys, "}");
    d->config = (kvik_cache_config){.size = sizeof(kvik_cache_config),
                                    .cache_implementation = name,
                                    .cache_config = d->keys,
                                    .max_sequences = between(2, w->sequences),
                                    .step_tokens = dice(4) ? between(8, 64) : between(1, 7),
                                    .threads = between(1, 2),
                                    .compute = "exact",
                                    .spill_dir = ".",
                                    .on_full = tier == 1 || tier == 2 ? "offload" : NULL};
    drawn_cross(w, d, tier);
}

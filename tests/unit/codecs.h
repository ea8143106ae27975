/* codecs.h - the codecs that tests go through.  Tables write the quantized ones in one line each.  Every codec of
 * the registry comes with values that reach all of its options.  Tests that go from variant 0 to codec_variants()
 * cover a new file in src/kv or tests/codec without naming it.  A codec may refuse some sizes of heads, so a test
 * takes the size from codec_dim, or counts the cases that do not fit. */
#pragma once
#include "kv/codec.h"
#include "stop.h"

#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct affine_choice { /* names of cache_config; backend NULL: no codec */
    const char *backend;
    int32_t nbits, axis_key, axis_value, q_group_size;
    uint32_t residual_length;
};

/* Makes the pair of codecs. Values out of range are kept, for the codec to refuse. */
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

/* True if an instance for plane p of heads of dim values can be opened. */
static inline bool codec_opens(const struct kv_codec_options *o, int p, uint32_t dim)
{
    struct kv_shape s = {2, dim, DT_F32, p ? KV_ROWMAJOR : KV_STRIPS};
    struct kv_codec *c = NULL;
    if (o->kind->check && o->kind->check(o, p == 0) < 0) return false;
    if (kv_codec_open(o, &s, p == 0, 0, &c) < 0) return false;
    kv_codec_close(c);
    return true;
}

/* Gives option i a value other than the default, if one can be opened. */
static inline bool codec_vary(struct kv_codec_options *o, uint32_t i, int p, uint32_t dim)
{
    const struct kv_codec_option *t = &o->kind->option[i];
    const int32_t first[] = {(int32_t)dim, t->usual / 2, t->usual * 2, t->min, t->max};
    int32_t before = o->value[i], all = t->max - t->min <= 64 ? t->max - t->min + 1 : 0;
    for (int32_t k = 0; k < (int32_t)countof(first) + all; k++) {
        int32_t v = k < (int32_t)countof(first) ? first[k] : t->min + k - (int32_t)countof(first);
        if (v == t->usual || v < t->min || v > t->max) continue;
        o->value[i] = v;
        if (codec_opens(o, p, dim)) return true;
    }
    o->value[i] = before;
    return false;
}

/* Makes the codec with its usual values, or with other values for all options.  Options change where heads of dim
 * values need it. */
static inline bool codec_fit(const struct kv_codec_kind *kind, bool others, int p, uint32_t dim,
                             struct kv_codec_options *o)
{
    if (kv_codec_usual(kind->name, o) < 0) return false;
    for (uint32_t i = kind->n_options; i-- > 0 && !codec_opens(o, p, dim);)
        codec_vary(o, i, p, dim);
    for (uint32_t i = 0; others && i < kind->n_options; i++)
        codec_vary(o, i, p, dim);
    return codec_opens(o, p, dim);
}

struct codec_variant {
    char name[96], config[600]; /* config: members of cache_config, or "" */
    struct kv_codec_pair pair;
    bool native;
};

/* Appends to a text in a buffer of n bytes. */
__attribute__((format(printf, 3, 4))) static inline void text_add(char *out, size_t n,
                                                                  const char *format, ...)
{
    va_list a;
    size_t at = strlen(out);
    va_start(a, format);
    vsnprintf(out + at, n - at, format, a);
    va_end(a);
}

/* Writes the pair in the form of cache_config, both planes, so that no strategy's own codec is
 * left; "" if neither plane has a codec. */
static inline void codec_config(const struct kv_codec_pair *o, char *out, size_t n)
{
    static const char *const suffix[] = {"_key", "_value"};
    out[0] = '\0';
    if (!o->plane[0].kind && !o->plane[1].kind) return;
    bool gathers = false, at_once = false;
    for (int p = 0; p < 2; p++) {
        const struct kv_codec_kind *k = o->plane[p].kind;
        gathers |= k && k->turns && !k->at_once;
        at_once |= k && k->at_once;
    }
    if (gathers || !at_once) text_add(out, n, "\"residual_length\":%u,", o->residual_length);
    for (int p = 0; p < 2; p++) {
        const struct kv_codec_kind *k = o->plane[p].kind;
        text_add(out, n, "%s\"backend%s\":\"%s\"", p ? "," : "", suffix[p],
                 k ? k->name : KV_CODEC_NONE);
        for (uint32_t i = 0; k && i < k->n_options; i++)
            text_add(out, n, ",\"%s%s\":%d", k->option[i].name, suffix[p], o->plane[p].value[i]);
    }
}

enum { CODEC_KINDS = 64 };

/* Lists the kinds that quantize and returns their number. Ends the test unless every file of tests/codec has
 * registered the codec of its name: the Makefile must link the program with them. */
static inline uint32_t codec_kinds(const struct kv_codec_kind *list[CODEC_KINDS])
{
    static bool linked;
    const struct kv_codec_kind *k;
    uint32_t n = 0;
    glob_t files;
    if (!linked && glob("tests/codec/codec_*.c", GLOB_ERR, NULL, &files) != 0)
        test_stop("tests/codec cannot be read; run the test from the root of the repository");
    for (size_t i = 0; !linked && i < files.gl_pathc; i++) {
        char name[64];
        if (sscanf(files.gl_pathv[i], "tests/codec/codec_%63[^.].c", name) != 1 ||
            !kv_codec_find(name))
            test_stop("%s is not linked; add this test to the list in the Makefile",
                      files.gl_pathv[i]);
    }
    if (!linked) globfree(&files);
    linked = true;
    for (uint32_t j = 0; (k = kv_codec_at(j)); j++) {
        if (strcmp(k->name, KV_CODEC_NONE) == 0) continue;
        if (n == CODEC_KINDS) test_stop("more than %d codecs; raise CODEC_KINDS", CODEC_KINDS);
        list[n++] = k;
    }
    return n;
}

/* Returns the number of ways to quantize: none, and five for each kind. */
static inline uint32_t codec_variants(void)
{
    const struct kv_codec_kind *list[CODEC_KINDS];
    return 1 + 5 * codec_kinds(list);
}

/* Makes way i < codec_variants() to quantize heads of dim values.  False: its codecs do not store such heads.  Way
 * 0 is none.  Then every codec comes with its usual values, with others, for keys only and for values only.  Then
 * every codec comes for keys with the next one for values, and the other way round. */
static inline bool codec_variant(uint32_t i, uint32_t dim, struct codec_variant *v)
{
    const struct kv_codec_kind *list[CODEC_KINDS], *of[2] = {NULL, NULL};
    uint32_t n = codec_kinds(list);
    *v = (struct codec_variant){.native = i == 0, .name = "native"};
    if (i == 0) return true;
    if (i > 5 * n) test_stop("variant %u of %u", i, 1 + 5 * n);
    bool two = i > 3 * n;
    uint32_t form = two ? (i - 1 - 3 * n) % 2 : (i - 1) % 3,
             at = two ? (i - 1 - 3 * n) / 2 : (i - 1) / 3;
    v->pair.residual_length = 5 + 3 * form;
    for (uint32_t p = 0; p < 2; p++)
        if (two || form < 2 || p == at % 2) of[p] = list[two && p != form ? (at + 1) % n : at];
    snprintf(v->name, sizeof v->name, "%s of keys, %s of values%s", of[0] ? of[0]->name : "none",
             of[1] ? of[1]->name : "none", !two && form == 1 ? ", other options" : "");
    for (int p = 0; p < 2; p++)
        if (of[p] && !codec_fit(of[p], !two && form, p, dim, &v->pair.plane[p])) return false;
    codec_config(&v->pair, v->config, sizeof v->config);
    return true;
}

enum { CODEC_DIM_MOST = 256 };

/* Makes way i to quantize for the smallest heads that its codecs store, of at least `least` values if possible.
 * Returns the number of values.  Ends the test if no size fits, because the codec would be tested nowhere. */
static inline uint32_t codec_dim(uint32_t i, uint32_t least, struct codec_variant *v)
{
    static const uint32_t dims[] = {16, 32, 64, 80, 96, 128, CODEC_DIM_MOST};
    for (int any = 0; any < 2; any++)
        for (size_t k = 0; k < countof(dims); k++)
            if ((any || dims[k] >= least) && codec_variant(i, dims[k], v)) return dims[k];
    test_stop("no size of heads from 16 to %d fits %s: %s", CODEC_DIM_MOST, v->name, err_last());
}

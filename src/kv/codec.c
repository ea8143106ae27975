/* codec.c - codecs by name, and pairs of them for the two planes of a group, whose tiles must agree. */
#include "kv/codec.h"

#include <stdio.h>
#include <string.h>

#define TILE_MOST 4096u

extern const struct kv_codec_kind *const __start_kvik_codec[] __attribute__((visibility("hidden")));
extern const struct kv_codec_kind *const __stop_kvik_codec[] __attribute__((visibility("hidden")));

const struct kv_codec_kind *kv_codec_at(uint32_t i)
{
    size_t n = (size_t)(__stop_kvik_codec - __start_kvik_codec);
    return i < n ? __start_kvik_codec[i] : NULL;
}

const struct kv_codec_kind *kv_codec_find(const char *backend)
{
    const struct kv_codec_kind *k;
    for (uint32_t i = 0; (k = kv_codec_at(i)); i++)
        if (strcmp(k->name, backend) == 0) return k;
    return NULL;
}

static int unknown(const char *backend)
{
    char list[256] = "";
    const struct kv_codec_kind *k;
    for (uint32_t i = 0; (k = kv_codec_at(i)); i++) {
        size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", k->name);
    }
    return ERR(ARG, "backend \"%s\" is not known; there are: %s", backend, list);
}

static uint32_t common_tile(uint32_t a, uint32_t b)
{
    uint32_t x = a, y = b;
    while (y) {
        uint32_t r = x % y;
        x = y;
        y = r;
    }
    return a / x * b; /* both are at most TILE_MOST */
}

/* One plane again, with the tile of both. */
static int reopen(const struct kv_codec_kind *kind, const struct kv_codec_options *o,
                  const struct kv_shape *s, bool k, uint32_t tile, struct kv_codec **c)
{
    struct kv_codec *wide = NULL;
    if ((*c)->tile == tile) return 0;
    TRY(kind->open(o, s, k, tile, &wide));
    kv_codec_close(*c);
    *c = wide;
    return 0;
}

int kv_codec_pair_open(const struct kv_codec_options *o, const struct kv_shape *k,
                       const struct kv_shape *v, struct kv_codec **kc, struct kv_codec **vc,
                       uint32_t *resid)
{
    const struct kv_codec_kind *kind = kv_codec_find(o->backend);
    struct kv_codec *a = NULL, *b = NULL;
    if (!kind) return unknown(o->backend);
    TRY(kind->check(o));
    int e = kind->open(o, k, true, 0, &a);
    if (e >= 0) e = kind->open(o, v, false, 0, &b);
    if (e >= 0) {
        uint32_t ta = a->tile, tb = b->tile, tile = common_tile(ta, tb);
        if (tile > TILE_MOST)
            e = ERR(ARG,
                    "q_group_size %u: keys want tiles of %u rows and values of %u, together %u, "
                    "more than %u; use a power of two",
                    o->q_group_size, ta, tb, tile, TILE_MOST);
        if (e >= 0) e = reopen(kind, o, k, true, tile, &a);
        if (e >= 0) e = reopen(kind, o, v, false, tile, &b);
    }
    if (e < 0) {
        kv_codec_close(a);
        kv_codec_close(b);
        return e;
    }
    *kc = a;
    *vc = b;
    *resid = kind->turns ? MAX(o->residual_length, 1) : 0; /* 0 and 1 both flush every update */
    return 0;
}

int kv_codec_no_parameters(const struct kv_codec *c, char *out, size_t n)
{
    (void)c;
    if (n) out[0] = '\0';
    return 0;
}

int kv_codec_describe(const struct kv_codec *c, char out[KV_CODEC_TEXT])
{
    out[0] = '\0';
    if (!c->name || !c->describe)
        return ERR(ARG,
                   "codec %s does not describe its parameters, so tiles saved with others could be "
                   "taken for its own; give struct kv_codec a describe function",
                   c->name ? c->name : "?");
    int n = c->describe(c, out, KV_CODEC_TEXT);
    if (n < 0 || n >= (int)KV_CODEC_TEXT || strlen(out) != (size_t)n)
        return ERR(ARG, "codec %s: its description is %d bytes long, at most %u", c->name, n,
                   KV_CODEC_TEXT - 1);
    return n;
}

void kv_codec_close(const struct kv_codec *c)
{
    if (!c) return;
    const struct kv_codec_kind *kind = kv_codec_find(c->name);
    if (kind && kind->close) kind->close((struct kv_codec *)c);
}

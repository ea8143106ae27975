/* index_key.c - the keys of the prefix index: a chain of SHA-256 over everything that decides the
 * contents of rows.
 *
 * The key of a block follows from the key of the block before and from its tokens.  Where rows
 * depend on turns, it also follows from the turns that reach into the block.  The chain begins with
 * the salt and with what the groups keep, and how.  So equal keys mean equal rows; a hit
 * nevertheless compares the tokens. Numbers are hashed little-endian, so keys are the same on every
 * machine. */
#include "kv/codec.h"
#include "kv/kv_int.h"

#include <nettle/sha2.h>
#include <string.h>

static void put32(struct sha256_ctx *h, uint32_t x)
{
    uint8_t b[4] = {(uint8_t)x, (uint8_t)(x >> 8), (uint8_t)(x >> 16), (uint8_t)(x >> 24)};
    sha256_update(h, sizeof b, b);
}

static void put_text(struct sha256_ctx *h, const char *s)
{
    put32(h, (uint32_t)strlen(s));
    sha256_update(h, strlen(s), (const uint8_t *)s);
}

static void end(struct sha256_ctx *h, unsigned char out[KV_KEY])
{
    sha256_digest(h, KV_KEY, out);
    if (!kv_fault.weak_keys) return;
    out[0] &= 15;
    memset(out + 1, 0, KV_KEY - 1);
}

void key_first(const struct kv *kv, const struct kv_salt *salt, unsigned char out[KV_KEY])
{
    struct sha256_ctx h;
    sha256_init(&h);
    put_text(&h, "kvik prefix 3");
    put32(&h, salt->regime);
    put32(&h, salt->pad);
    sha256_update(&h, KV_DIGEST, salt->adapter);
    sha256_update(&h, KV_DIGEST, salt->source);
    sha256_update(&h, KV_DIGEST, salt->owner);
    put32(&h, kv->index.turns);
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct kv_group *g = &kv->group[gi].c;
        const uint32_t n[] = {g->policy.kind,  g->policy.window, g->policy.chunk, g->policy.sinks,
                              g->policy.every, g->seal.tile,     g->seal.lead,    g->seal.resid,
                              g->n_sites,      g->rows,          g->n_planes};
        for (uint32_t i = 0; i < countof(n); i++)
            put32(&h, n[i]);
        for (uint32_t i = 0; i < g->n_planes; i++) {
            const struct kv_plane *p = &g->plane[i];
            const uint32_t shape[] = {p->shape.heads, p->shape.dim, p->shape.dtype,
                                      p->shape.layout};
            for (uint32_t k = 0; k < countof(shape); k++)
                put32(&h, shape[k]);
            char codec[KV_CODEC_TEXT] = "";
            put_text(&h, p->codec ? p->codec->name : "");
            if (p->codec && kv_codec_describe(p->codec, codec) >= 0) put_text(&h, codec);
        }
    }
    end(&h, out);
}

void key_tokens(const int32_t *tok, unsigned char out[KV_KEY])
{
    struct sha256_ctx h;
    sha256_init(&h);
    for (uint32_t t = 0; t < KV_STRIP; t++)
        put32(&h, (uint32_t)tok[t]);
    end(&h, out);
}

/* Returns the first turn that ends after row `from`.  Turns ascend and do not overlap. */
static uint32_t turn_after(const struct kv_turn *turn, uint32_t n, uint32_t from)
{
    uint32_t lo = 0, hi = n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (turn[mid].pos + turn[mid].n <= from)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void key_next(const struct kv *kv, const unsigned char *before, const int32_t *tok,
              const struct kv_turn *turn, uint32_t n_turns, uint32_t i, unsigned char out[KV_KEY])
{
    struct sha256_ctx h;
    uint32_t from = i * KV_STRIP, to = from + KV_STRIP;
    sha256_init(&h);
    sha256_update(&h, KV_KEY, before);
    for (uint32_t t = from; t < to; t++)
        put32(&h, (uint32_t)tok[t]);
    uint32_t k = kv->index.turns ? turn_after(turn, n_turns, from) : n_turns;
    for (; k < n_turns && turn[k].pos < to; k++) {
        put32(&h, turn[k].pos);
        put32(&h, turn[k].n);
    }
    end(&h, out);
}

/* charsmap.c - SentencePiece's table of replacements, which the Precompiled normalizer applies. The table is a
 * double-array trie of texts, and a list of replacements, each ending in a NUL byte. Every step in the trie checks
 * its bounds.  A search takes at most as many steps as its text has bytes, so no table can make it loop. */
#include "base/utf8.h"
#include "tok/tok_int.h"

#include <nettle/base64.h>
#include <string.h>

/* The reference looks up whole grapheme clusters below this size, and longer ones character by character. */
#define CLUSTER_MAX 6

struct charsmap {
    uint32_t *unit; /* owned, [n_unit] */
    char *text;     /* owned, [n_text]: the replacements, and a NUL behind them */
    size_t n_unit, n_text;
};

static uint32_t le32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

void charsmap_drop(struct charsmap *c)
{
    if (!c) return;
    mem_free(c->unit);
    mem_free(c->text);
    mem_free(c);
}

static int read_map(struct charsmap *c, const uint8_t *p, size_t n)
{
    if (!(c->unit = mem_array(c->n_unit, sizeof *c->unit))) return ERR_NOMEM;
    for (size_t i = 0; i < c->n_unit; i++)
        c->unit[i] = le32(p + 4 + 4 * i);
    const char *text = (const char *)p + 4 + 4 * c->n_unit;
    c->n_text = n - 4 - 4 * c->n_unit;
    if (!utf8_valid(text, c->n_text))
        return ERR(FORMAT, "tokenizer: the replacements of precompiled_charsmap are not UTF-8");
    c->text = mem_strndup(text, c->n_text);
    return c->text ? 0 : ERR_NOMEM;
}

int charsmap_new(const uint8_t *p, size_t n, struct charsmap **out)
{
    size_t n_unit = n < 4 ? 0 : le32(p) / 4;
    if (n < 8 || n_unit == 0 || n_unit > (n - 4) / 4)
        return ERR(FORMAT,
                   "tokenizer: precompiled_charsmap has %zu bytes, fewer than its trie of %zu", n,
                   n_unit * 4);
    struct charsmap *c = mem_alloc(sizeof *c);
    if (!c) return ERR_NOMEM;
    c->n_unit = n_unit;
    int e = read_map(c, p, n);
    if (e < 0) {
        charsmap_drop(c);
        return e;
    }
    *out = c;
    return 0;
}

int charsmap_new_base64(const char *s, size_t n, struct charsmap **out)
{
    struct base64_decode_ctx ctx;
    size_t n_raw = BASE64_DECODE_LENGTH(n);
    uint8_t *raw = mem_array(n_raw + 1, 1);
    if (!raw) return ERR_NOMEM;
    base64_decode_init(&ctx);
    bool good = base64_decode_update(&ctx, &n_raw, raw, n, s) && base64_decode_final(&ctx);
    int e = good ? charsmap_new(raw, n_raw, out)
                 : ERR(FORMAT, "tokenizer: precompiled_charsmap is not base64");
    mem_free(raw);
    return e;
}

static bool has_leaf(uint32_t u)
{
    return u >> 8 & 1;
}

static uint32_t offset(uint32_t u)
{
    return u >> 10 << ((u & 1u << 9) >> 6);
}

/* Finds the shortest entry that begins s, as the reference does. 1: *at is the place of its replacement; 0: none. */
static int find_entry(const struct charsmap *c, const char *s, size_t n, size_t *at)
{
    uint32_t pos = offset(c->unit[0]);
    for (size_t i = 0; i < n && s[i]; i++) {
        pos ^= (uint8_t)s[i];
        if (pos >= c->n_unit) return 0;
        uint32_t u = c->unit[pos];
        if ((u & (1u << 31 | 0xFF)) != (uint8_t)s[i]) return 0;
        pos ^= offset(u);
        if (!has_leaf(u)) continue;
        *at = pos < c->n_unit ? c->unit[pos] & ((1u << 31) - 1) : SIZE_MAX;
        if (*at > c->n_text || ((uint8_t)c->text[*at] & 0xC0) == 0x80)
            return ERR(FORMAT, "tokenizer: an entry of precompiled_charsmap has no replacement; "
                               "the tokenizer file is broken or hostile");
        return 1;
    }
    return 0;
}

/* Appends the replacement of s; 0 if there is none. */
static int replace_cluster(const struct charsmap *c, const char *s, size_t n, struct buf *out)
{
    size_t at;
    int found = find_entry(c, s, n, &at);
    if (found > 0) TRY(buf_append(out, c->text + at, strlen(c->text + at)));
    return found;
}

static int put_cluster(const struct charsmap *c, const char *s, size_t n, struct buf *out)
{
    int found = 0;
    if (n < CLUSTER_MAX && (found = replace_cluster(c, s, n, out)) != 0) return found;
    for (size_t i = 0, len; i < n; i += len) {
        utf8_decode(s + i, n - i, &len);
        found = replace_cluster(c, s + i, len, out);
        if (found == 0) found = buf_append(out, s + i, len);
        if (found < 0) return found;
    }
    return 0;
}

int charsmap_apply(const struct charsmap *c, const char *s, size_t n, struct buf *out)
{
    uint32_t before = 0;
    int32_t state = 0;
    size_t from = 0;
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp = utf8_decode(s + i, n - i, &len);
        bool joins = i > 0 && uni_joins(before, cp, &state);
        before = cp;
        if (i == 0 || joins) continue;
        int e = put_cluster(c, s + from, i - from, out);
        if (e < 0) return e;
        from = i;
    }
    int e = n > 0 ? put_cluster(c, s + from, n - from, out) : 0;
    return MIN(e, 0);
}

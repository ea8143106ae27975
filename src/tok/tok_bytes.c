/* tok_bytes.c - the bytes that one token adds to a text.  These are the decoder's output for the token alone, as
 * in the middle of a text, before bytes that are not UTF-8 are replaced.  A decoder with steps that look at
 * several tokens has no such bytes. */
#include "base/utf8.h"
#include "tok/tok_int.h"

#include <string.h>

static int map_bytes(struct buf *b)
{
    size_t n = 0, k;
    for (size_t at = 0; at < b->len; at += k)
        if (char_to_byte(utf8_decode(b->data + at, b->len - at, &k)) < 0)
            return 0; /* the piece stands for its own bytes */
    for (size_t at = 0; at < b->len; at += k)
        b->data[n++] = (char)char_to_byte(utf8_decode(b->data + at, b->len - at, &k));
    buf_cut(b, n);
    return 0;
}

static void fallback(struct buf *b)
{
    const char *t = b->data;
    if (b->len != 6 || memcmp(t, "<0x", 3) != 0 || t[5] != '>' || hex_digit(t[3]) < 0 ||
        hex_digit(t[4]) < 0)
        return;
    b->data[0] = (char)(hex_digit(t[3]) << 4 | hex_digit(t[4]));
    buf_cut(b, 1);
}

/* Replaces every `from` by `to`. */
static int replace_all(struct buf *b, const char *from, size_t n_from, const char *to, size_t n_to)
{
    struct buf out;
    size_t done = 0;
    int e = 0;
    buf_init(&out, b->max);
    for (size_t at = 0; e >= 0 && at + n_from <= b->len;) {
        if (memcmp(b->data + at, from, n_from) != 0) {
            at++;
            continue;
        }
        e = buf_append(&out, b->data + done, at - done);
        if (e >= 0) e = buf_append(&out, to, n_to);
        done = at += n_from;
    }
    if (e >= 0) e = buf_append(&out, b->data + done, b->len - done);
    if (e >= 0) {
        buf_clear(b);
        e = buf_append(b, out.data, out.len);
    }
    buf_done(&out);
    return e;
}

static bool at_mark(const struct dec *d, const char *p, size_t n)
{
    return d->n_mark && n >= d->n_mark && memcmp(p, d->mark, d->n_mark) == 0;
}

static int strip(struct buf *b, const struct dec *d)
{
    size_t from = 0, to = b->len;
    for (uint32_t i = 0; i < d->start && at_mark(d, b->data + from, to - from); i++)
        from += d->n_mark;
    for (uint32_t i = 0;
         i < d->stop && to - from >= d->n_mark && at_mark(d, b->data + to - d->n_mark, d->n_mark);
         i++)
        to -= d->n_mark;
    memmove(b->data, b->data + from, to - from);
    buf_cut(b, to - from);
    return 0;
}

static int decode_step(const struct dec *d, bool *fused, struct buf *b)
{
    size_t n, k;
    const char *lit;
    switch (d->kind) {
    case DEC_BYTES:
        return map_bytes(b);
    case DEC_FALLBACK:
        fallback(b);
        return 0;
    case DEC_META:
        return replace_all(b, d->mark, d->n_mark, " ", 1);
    case DEC_FUSE:
        *fused = true;
        return 0;
    case DEC_STRIP:
        /* strips only at the beginning and the end of the whole text */
        return *fused ? 0 : strip(b, d);
    case DEC_REPLACE:
        lit = pattern_literal(d->pattern, &n);
        if (lit && utf8_decode(lit, n, &k) != UTF8_BAD && k == n)
            return replace_all(b, lit, n, d->text, d->n_text);
        break;
    case DEC_JOIN:
    case DEC_SUFFIX:
        break;
    }
    return ERR(UNSUPPORTED,
               "the tokenizer's decoder changes text across tokens, so its tokens have no bytes of "
               "their own");
}

int tok_bytes(const struct tok *t, int32_t id, struct buf *out)
{
    size_t n;
    bool special, fused = false;
    const char *p = tok_shown(t, id, &n, &special);
    buf_clear(out);
    if (!p || special || !n) return 0;
    TRY(buf_append(out, p, n));
    for (uint32_t i = 0; i < t->n_dec && out->len; i++)
        TRY(decode_step(&t->dec[i], &fused, out));
    return 0;
}

void *tok_side(const struct tok *t)
{
    return __atomic_load_n(&t->side, __ATOMIC_ACQUIRE);
}

void *tok_set_side(const struct tok *t, void *side, void (*drop)(void *side))
{
    struct tok *to = (struct tok *)(uintptr_t)t;
    void *none = NULL;
    __atomic_store_n(&to->drop_side, drop,
                     __ATOMIC_RELAXED); /* all callers would store the same value */
    if (__atomic_compare_exchange_n(&to->side, &none, side, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return side;
    drop(side);
    return none;
}

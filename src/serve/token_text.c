/* token_text.c - the bytes of one token; see token_text.h.
 *
 * Special tokens and other added ones are given as they are spelled; texts without special tokens lack them. */
#include "serve/token_text.h"
#include "base/utf8.h"

#include <string.h>

int token_text(const kvik_tokenizer *t, int32_t id, struct buf *out)
{
    size_t n = 0;
    uint32_t kind = 0;
    char *bytes = NULL;
    const char *spelling = kvik_tokenizer_piece(t, id, &n, &kind);
    if (!spelling) return 0;
    bool added = kind & (KVIK_PIECE_ADDED | KVIK_PIECE_SPECIAL);
    int e = added ? KVIK_UNSUPPORTED : kvik_tokenizer_bytes(t, id, &bytes, &n);
    if (e == KVIK_UNSUPPORTED) e = 0;
    if (e >= 0) e = buf_append(out, bytes ? bytes : spelling, n);
    kvik_free(bytes);
    return e;
}

json_t *token_bytes(const struct buf *b)
{
    json_t *list = json_array();
    for (size_t i = 0; i < b->len; i++)
        json_array_append_new(list, json_integer((unsigned char)b->data[i]));
    return list;
}

json_t *token_string(const struct buf *b)
{
    struct buf text;
    int e = 0;
    buf_init(&text, SIZE_MAX);
    for (size_t at = 0, len; e >= 0 && at < b->len; at += len) {
        uint32_t cp = utf8_decode(b->data + at, b->len - at, &len);
        e = buf_utf8(&text, cp == UTF8_BAD ? 0xFFFD : cp);
    }
    json_t *o = e >= 0 ? json_stringn(text.data ? text.data : "", text.len) : NULL;
    buf_done(&text);
    return o;
}

/* token_text.c - the bytes of one token; see token_text.h.
 *
 * Decoding a token alone is not enough: a decoder of SentencePiece drops the space at the front of a text, and bytes
 * that are a part of a character have no text.  So the spelling of the vocabulary is read. */
#include "serve/token_text.h"
#include "base/utf8.h"

#include <string.h>

/* A byte as vocabularies of byte-level BPE spell it: those that cannot be seen are characters from U+0100 on. */
static int byte_of(uint32_t cp)
{
    int hidden = 0;
    if (cp < 256) return (int)cp;
    for (int b = 0; b < 256; b++) {
        bool seen = (b > 32 && b < 127) || (b > 160 && b != 173);
        if (!seen && 256 + (uint32_t)hidden++ == cp) return b;
    }
    return -1;
}

static int append_byte_level(const char *s, size_t n, struct buf *out)
{
    for (size_t at = 0, len; at < n; at += len) {
        int byte = byte_of(utf8_decode(s + at, n - at, &len));
        if (byte < 0)
            TRY(buf_append(out, s + at, len));
        else
            TRY(buf_putc(out, (char)byte));
    }
    return 0;
}

/* "<0x0A>" is a byte, and U+2581 is a space. */
static int append_sentence_piece(const char *s, size_t n, struct buf *out)
{
    if (n == 6 && !memcmp(s, "<0x", 3) && s[5] == '>' && hex_digit(s[3]) >= 0 &&
        hex_digit(s[4]) >= 0)
        return buf_putc(out, (char)(hex_digit(s[3]) * 16 + hex_digit(s[4])));
    for (size_t at = 0, len; at < n; at += len) {
        if (utf8_decode(s + at, n - at, &len) == 0x2581)
            TRY(buf_putc(out, ' '));
        else
            TRY(buf_append(out, s + at, len));
    }
    return 0;
}

int token_text(const kvik_tokenizer *t, int32_t id, struct buf *out)
{
    size_t n = 0;
    uint32_t kind = 0;
    const char *s = kvik_tokenizer_piece(t, id, &n, &kind);
    if (!s) return 0;
    if (kind & (KVIK_PIECE_ADDED | KVIK_PIECE_SPECIAL)) return buf_append(out, s, n);
    /* A space of byte-level BPE. */
    if (kvik_tokenizer_find(t, "\xC4\xA0") >= 0) return append_byte_level(s, n, out);
    return append_sentence_piece(s, n, out);
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

/* letters.c - character classes and case conversion as Python's str has them, by libunistring. */
#include "base/utf8.h"
#include "chat/value.h"

#include <stdlib.h>
#include <string.h>
#include <unicase.h>
#include <unictype.h>

bool chr_space(uint32_t c)
{
    if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool chr_line_end(uint32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

bool chr_printable(uint32_t c)
{
    if (c < 0x7f) return c >= 0x20;
    return !uc_is_general_category_withtable(c, UC_CATEGORY_MASK_C | UC_CATEGORY_MASK_Z);
}

bool chr_is(uint32_t c, enum chr_class k)
{
    bool letter = uc_is_general_category_withtable(c, UC_CATEGORY_MASK_L);
    return k == IS_SPACE   ? chr_space(c)
           : k == IS_DIGIT ? uc_digit_value(c) >= 0
           : k == IS_ALPHA ? letter
                           : letter || c == '_' || uc_numeric_value(c).denominator != 0;
}

/* True if c belongs to a word.  Python's title() means letters; Jinja's filter title means anything between blanks
 * and opening brackets. */
static bool in_word(uint32_t c, enum str_case how)
{
    if (how == CASE_WORDS) return !chr_space(c) && !(c < 128 && c && strchr("-({[<", (int)c));
    return uc_is_property_cased(c);
}

/* Returns how to convert the part of s that begins at `at`, and finds the end of the part.  A word begins with a
 * capital. */
static enum str_case next_part(const struct str *s, size_t at, enum str_case how, bool inside,
                               size_t *end)
{
    size_t len;
    *end = s->n;
    if (how == CASE_UPPER || how == CASE_LOWER) return how;
    bool word = how == CASE_CAPITAL || in_word(utf8_decode(s->s + at, s->n - at, &len), how);
    if (word && !inside) {
        utf8_decode(s->s + at, s->n - at, &len);
        *end = at + len;
        return how == CASE_WORDS ? CASE_UPPER : CASE_TITLE;
    }
    for (*end = at; *end < s->n && how != CASE_CAPITAL; *end += len)
        if (in_word(utf8_decode(s->s + *end, s->n - *end, &len), how) != word) break;
    if (how == CASE_CAPITAL) *end = s->n;
    return word ? CASE_LOWER : CASE_NONE;
}

/* Appends the converted s[from..to).  No conversion takes more than three times the bytes of its source.  So
 * `room` (3n + 16 bytes) is enough, and libunistring never allocates. */
static int put_part(const struct str *s, size_t from, size_t to, enum str_case how,
                    casing_prefix_context_t before, uint8_t *room, struct buf *out)
{
    const uint8_t *p = (const uint8_t *)s->s;
    size_t n = to - from, len = 3 * n + 16;
    if (how == CASE_NONE) return buf_append(out, s->s + from, n);
    casing_suffix_context_t after = u8_casing_suffix_context(p + to, s->n - to);
    uint8_t *got =
        how == CASE_UPPER   ? u8_ct_toupper(p + from, n, before, after, NULL, NULL, room, &len)
        : how == CASE_TITLE ? u8_ct_totitle(p + from, n, before, after, NULL, NULL, room, &len)
                            : u8_ct_tolower(p + from, n, before, after, NULL, NULL, room, &len);
    if (!got) return ERR(NOMEM, "out of memory");
    int e = buf_append(out, got, len);
    if (got != room) free(got); /* check-ok: memory of libunistring */
    return e;
}

static int convert(const struct str *s, enum str_case how, uint8_t *room, struct buf *out)
{
    casing_prefix_context_t before = unicase_empty_prefix_context;
    bool inside = false; /* the part before belongs to the same word */
    for (size_t at = 0, end; at < s->n; at = end) {
        enum str_case part = next_part(s, at, how, inside, &end);
        TRY(put_part(s, at, end, part, before, room, out));
        inside = part != CASE_NONE;
        /* Jinja's filter title converts the rest of a word without looking at its context. */
        if (how != CASE_WORDS)
            before = u8_casing_prefixes_context((const uint8_t *)s->s + at, end - at, before);
    }
    return 0;
}

int str_convert(struct render_state *r, struct val s, enum str_case how, struct val *out)
{
    struct buf b;
    TRY(render_work_bytes(r, s.str->n * 16));
    uint8_t *room = mem_alloc(3 * s.str->n + 16);
    if (!room) return ERR_NOMEM;
    buf_init(&b, RENDER_MAX_MEMORY);
    int e = convert(s.str, how, room, &b);
    mem_free(room);
    TRY(str_take(r, e, &b, out));
    out->safe = s.safe;
    return 0;
}

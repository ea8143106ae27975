/* letters.c - character classes and case conversion as Python's str does them, over utf8proc.
 * utf8proc maps one character to one; the characters whose case has several are in special_case. */
#include <utf8proc.h>

#include "base/utf8.h"
#include "chat/special_case.h"
#include "chat/value.h"

#include <stdlib.h>

static utf8proc_category_t category(uint32_t c)
{
    return c <= 0x10FFFF ? utf8proc_category((utf8proc_int32_t)c) : UTF8PROC_CATEGORY_CN;
}

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
    switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

static bool is_letter(uint32_t c)
{
    utf8proc_category_t k = category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

/* Digits that are no decimal numbers: superscripts, circled digits and the like. */
static bool is_other_digit(uint32_t c)
{
    static const uint32_t range[][2] = {
        {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
        {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
        {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
        {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
        {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A},
    };
    for (size_t i = 0; i < countof(range); i++)
        if (c >= range[i][0] && c <= range[i][1]) return true;
    return false;
}

bool chr_is(uint32_t c, enum chr_class k)
{
    utf8proc_category_t cat = category(c);
    bool decimal = cat == UTF8PROC_CATEGORY_ND;
    bool numeric = decimal || cat == UTF8PROC_CATEGORY_NL || cat == UTF8PROC_CATEGORY_NO;
    switch (k) {
    case IS_ALPHA:
        return is_letter(c);
    case IS_ALNUM:
        return is_letter(c) || numeric;
    case IS_DIGIT:
        return decimal || is_other_digit(c);
    case IS_DECIMAL:
        return decimal;
    case IS_NUMERIC:
        return numeric;
    case IS_SPACE:
        return chr_space(c);
    case IS_WORD:
        return c == '_' || is_letter(c) || numeric;
    case IS_PRINT:
        return chr_printable(c);
    }
    return false;
}

bool chr_cased(uint32_t c, bool upper)
{
    utf8proc_category_t k = category(c);
    if (upper) return k == UTF8PROC_CATEGORY_LU;
    return k == UTF8PROC_CATEGORY_LL;
}

static bool cased(uint32_t c)
{
    utf8proc_category_t k = category(c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

/* Characters the final-sigma rule looks through. */
static bool case_ignorable(uint32_t c)
{
    utf8proc_category_t k = category(c);
    return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019 || c == '^' || c == '`' ||
           k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK;
}

static bool final_sigma(const struct str *s, size_t at, size_t len)
{
    size_t i = at, k;
    bool before = false;
    while (i > 0 && !before) {
        do
            i--;
        while (i > 0 && ((unsigned char)s->s[i] & 0xC0) == 0x80);
        uint32_t c = utf8_decode(s->s + i, s->n - i, &k);
        if (case_ignorable(c)) continue;
        if (!cased(c)) return false;
        before = true;
    }
    if (!before) return false;
    for (i = at + len; i < s->n; i += k) {
        uint32_t c = utf8_decode(s->s + i, s->n - i, &k);
        if (!case_ignorable(c)) return !cased(c);
    }
    return true;
}

static int by_code(const void *key, const void *row)
{
    uint32_t a = *(const uint32_t *)key, b = ((const struct special_case *)row)->c;
    return (a > b) - (a < b);
}

static int put_mapped(uint32_t c, enum str_case how, struct buf *out)
{
    const struct special_case *row =
        c < 0x80 ? NULL : bsearch(&c, special_cases, countof(special_cases), sizeof *row, by_code);
    if (row) {
        const uint16_t *to = how == CASE_UPPER   ? row->upper
                             : how == CASE_TITLE ? row->title
                             : how == CASE_FOLD  ? row->fold
                                                 : row->lower;
        for (int i = 0; i < 3 && to[i]; i++)
            TRY(buf_utf8(out, to[i]));
        return 0;
    }
    utf8proc_int32_t k = (utf8proc_int32_t)c;
    k = how == CASE_UPPER   ? utf8proc_toupper(k)
        : how == CASE_TITLE ? utf8proc_totitle(k)
                            : utf8proc_tolower(k);
    return buf_utf8(out, (uint32_t)k);
}

static int convert(const struct str *s, enum str_case how, struct buf *out)
{
    bool after = false; /* a cased character came before */
    for (size_t at = 0, len; at < s->n; at += len) {
        uint32_t c = utf8_decode(s->s + at, s->n - at, &len);
        enum str_case k = how;
        if (how == CASE_TITLE) k = after ? CASE_LOWER : CASE_TITLE;
        if (how == CASE_CAPITAL) k = at ? CASE_LOWER : CASE_TITLE;
        if (how == CASE_SWAP) k = chr_cased(c, true) ? CASE_LOWER : CASE_UPPER;
        after = cased(c);
        if (c == UTF8_BAD)
            TRY(buf_append(out, s->s + at, len));
        else if (how == CASE_SWAP && !after)
            TRY(buf_utf8(out, c));
        else if (c == 0x3A3 && k == CASE_LOWER)
            TRY(buf_utf8(out, final_sigma(s, at, len) ? 0x3C2 : 0x3C3));
        else
            TRY(put_mapped(c, k, out));
    }
    return 0;
}

int str_convert(struct run *r, struct val s, enum str_case how, struct val *out)
{
    struct buf b;
    buf_init(&b, RUN_MAX_MEMORY);
    int e = run_work_bytes(r, s.str->n * 16);
    if (e >= 0) e = convert(s.str, how, &b);
    if (e >= 0)
        e = str_take(r, &b, out);
    else
        buf_done(&b);
    if (e >= 0) out->safe = s.safe;
    return e < 0 ? e : 0;
}

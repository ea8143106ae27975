/* format_field.c - texts and numbers laid out by width, precision, sign, fill and alignment. */
#include "base/utf8.h"
#include "chat/format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PREC_MAX 300

static int put_repeat(struct run *r, struct buf *out, uint32_t fill, size_t n)
{
    TRY(run_work_bytes(r, n * 4));
    for (; n; n--)
        TRY(buf_utf8(out, fill));
    return 0;
}

/* Sign, padding and digits in the order the alignment asks for. */
static int put_padded(struct run *r, struct buf *out, const struct spec *s, const char *sign,
                      const char *body, size_t n, char align)
{
    size_t width = utf8_count(body, n) + strlen(sign);
    size_t fill = s->width > 0 && (size_t)s->width > width ? (size_t)s->width - width : 0;
    size_t before = align == '<' ? 0 : align == '^' ? fill / 2 : fill;
    uint32_t ch = s->fill ? s->fill : ' ';
    if (align == '=') TRY(buf_puts(out, sign));
    TRY(put_repeat(r, out, ch, before));
    if (align != '=') TRY(buf_puts(out, sign));
    TRY(buf_append(out, body, n));
    return put_repeat(r, out, ch, fill - before);
}

static const char *sign_of(const struct spec *s, bool negative)
{
    return negative ? "-" : s->plus ? "+" : s->space ? " " : "";
}

int put_text(struct run *r, struct buf *out, const struct spec *s, struct val v)
{
    size_t n = v.str->n;
    if (s->prec >= 0) n = str_offset(v.str, (size_t)s->prec);
    char align = s->align ? s->align : s->left ? '<' : '>';
    return put_padded(r, out, s, "", v.str->s, n, align);
}

/* Thousands separators into plain digits (before a point or exponent). */
static void put_commas(char *digits, size_t cap, char sep)
{
    size_t n = strspn(digits, "0123456789"), len = strlen(digits);
    for (size_t at = n; at > 3;) {
        at -= 3;
        if (len + 2 > cap) return;
        memmove(digits + at + 1, digits + at, len - at + 1);
        digits[at] = sep;
        len++;
    }
}

int put_int(struct run *r, struct buf *out, const struct spec *s, int64_t v, char conv)
{
    char digits[160];
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    unsigned base = conv == 'x' || conv == 'X' ? 16 : conv == 'o' ? 8 : conv == 'b' ? 2 : 10;
    char *p = digits + 80, *end = p;
    *end = 0;
    do
        *--p = (conv == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[u % base];
    while (u /= base);
    while (s->prec > end - p && end - p < 70)
        *--p = '0';
    memmove(digits, p, (size_t)(end - p) + 1);
    if (s->comma) put_commas(digits, sizeof digits, ',');
    char sign[8];
    if (s->alt && base != 10)
        snprintf(sign, sizeof sign, "%s0%c", sign_of(s, v < 0), conv);
    else
        snprintf(sign, sizeof sign, "%s", sign_of(s, v < 0));
    char align = s->align ? s->align : s->left ? '<' : s->zero ? '=' : '>';
    struct spec t = *s;
    if (s->zero && !s->fill && align == '=') t.fill = '0';
    return put_padded(r, out, &t, sign, digits, strlen(digits), align);
}

int put_float(struct run *r, struct buf *out, const struct spec *s, double f, char conv)
{
    char tmp[1024]; /* 309 digits, their separators, a point, PREC_MAX digits */
    int prec = s->prec < 0 ? 6 : s->prec;
    bool negative = signbit(f) && !isnan(f);
    if (prec > PREC_MAX)
        return ERR(LIMIT, "a precision of %d digits is more than %d", prec, PREC_MAX);
    if (isnan(f) || isinf(f))
        snprintf(tmp, sizeof tmp, "%s", isnan(f) ? "nan" : "inf");
    else if (conv == 'r')
        float_repr(fabs(f), tmp);
    else
        float_fixed(fabs(conv == '%' ? f * 100 : f), prec, conv == '%' ? 'f' : conv, s->alt, tmp,
                    sizeof tmp - 120);
    if (s->comma) put_commas(tmp, sizeof tmp, ',');
    size_t n = strlen(tmp);
    if (conv == '%') memcpy(tmp + n, "%", 2);
    char align = s->align ? s->align : s->left ? '<' : s->zero ? '=' : '>';
    struct spec t = *s;
    if (s->zero && !s->fill && align == '=') t.fill = '0';
    return put_padded(r, out, &t, sign_of(s, negative), tmp, strlen(tmp), align);
}

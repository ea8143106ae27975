/* literal.c - strings and numbers as they are written in templates (Python's rules). */
#include "base/utf8.h"
#include "chat/node.h"

#include <string.h>

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if ((c | 32) >= 'a' && (c | 32) <= 'f') return (c | 32) - 'a' + 10;
    return -1;
}

/* \xHH, \uHHHH, \UHHHHHHHH: digits begin at s. */
static int unescape_hex(const char *s, size_t n, size_t digits, int line, char **to)
{
    uint32_t cp = 0;
    for (size_t i = 0; i < digits; i++) {
        int h = i < n ? hex_value(s[i]) : -1;
        if (h < 0) return compile_fail(line, "truncated \\x, \\u or \\U escape in a string");
        cp = cp << 4 | (uint32_t)h;
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000))
        return compile_fail(line, "escape \\%x in a string is not a character", cp);
    *to += utf8_encode(cp, *to);
    return (int)digits;
}

/* The escape after a backslash; returns bytes of input used. */
static int unescape_one(const char *s, size_t n, int line, char **to)
{
    static const char from[] = "abfnrtv\\'\"", into[] = "\a\b\f\n\r\t\v\\'\"";
    char ch = s[0];
    const char *p = ch ? strchr(from, ch) : NULL;
    if (p) {
        *(*to)++ = into[p - from];
        return 1;
    }
    if (ch == '\n') return 1; /* continued line */
    if (ch >= '0' && ch <= '7') {
        uint32_t cp = 0;
        int k = 0;
        while (k < 3 && (size_t)k < n && s[k] >= '0' && s[k] <= '7')
            cp = cp * 8 + (uint32_t)(s[k++] - '0');
        *to += utf8_encode(cp, *to);
        return k;
    }
    size_t digits = ch == 'x' ? 2 : ch == 'u' ? 4 : ch == 'U' ? 8 : 0;
    if (digits) {
        int k = unescape_hex(s + 1, n - 1, digits, line, to);
        return k < 0 ? k : k + 1;
    }
    if (ch == 'N') return compile_fail(line, "\\N escapes are not supported; use \\u");
    *(*to)++ = '\\'; /* unknown escapes stand for themselves */
    return 0;
}

int lex_unescape(struct compile *c, const char *s, size_t n, int line, struct str **out)
{
    if (!memchr(s, '\\', n)) return compile_str(c, s, n, out);
    char *buf = mem_alloc(n + 4), *to = buf;
    if (!buf) return ERR_NOMEM;
    int e = 0;
    for (size_t i = 0; i < n && e >= 0;) {
        if (s[i] != '\\') {
            *to++ = s[i++];
        } else {
            e = i + 1 < n ? unescape_one(s + i + 1, n - i - 1, line, &to)
                          : compile_fail(line, "\\ at end of string");
            i += 1 + (size_t)MAX(e, 0);
        }
    }
    if (e >= 0) e = compile_str(c, buf, (size_t)(to - buf), out);
    mem_free(buf);
    return e < 0 ? e : 0;
}

static bool digit_of(char c, unsigned base)
{
    int h = hex_value(c);
    return h >= 0 && (unsigned)h < base;
}

/* Digits with single underscores between them; returns the end. */
static size_t digits_end(const char *s, size_t n, size_t at, unsigned base, bool lead_underscore)
{
    if (lead_underscore && at + 1 < n && s[at] == '_' && digit_of(s[at + 1], base)) at++;
    if (at >= n || !digit_of(s[at], base)) return at;
    while (at < n) {
        if (digit_of(s[at], base))
            at++;
        else if (s[at] == '_' && at + 1 < n && digit_of(s[at + 1], base))
            at++;
        else
            break;
    }
    return at;
}

static int int_value(const char *s, size_t n, unsigned base, struct token *t)
{
    int64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '_') continue;
        if (__builtin_mul_overflow(v, (int64_t)base, &v) ||
            __builtin_add_overflow(v, (int64_t)hex_value(s[i]), &v))
            return ERR(LIMIT, "line %d: the number %.*s is larger than 64 bits", t->line,
                       (int)MIN(n, (size_t)40), s);
    }
    t->type = T_INT;
    t->i = v;
    return 0;
}

/* A float at s: its end, or 0. */
static size_t float_end(const char *s, size_t n)
{
    size_t at = digits_end(s, n, 0, 10, false), frac = at, exp;
    if (at + 1 < n && s[at] == '.' && digit_of(s[at + 1], 10))
        frac = digits_end(s, n, at + 1, 10, false);
    exp = frac;
    if (exp < n && (s[exp] | 32) == 'e') {
        exp++;
        if (exp < n && (s[exp] == '+' || s[exp] == '-')) exp++;
        size_t end = digits_end(s, n, exp, 10, false);
        if (end > exp) return end;
    }
    return frac > at ? frac : 0;
}

int lex_number(const char *s, size_t n, struct token *t, size_t *used)
{
    size_t end = float_end(s, n);
    if (end) {
        char tmp[400];
        size_t k = 0;
        for (size_t i = 0; i < end && k + 1 < sizeof tmp; i++)
            if (s[i] != '_') tmp[k++] = s[i];
        if (k + 1 >= sizeof tmp || !float_parse(tmp, k, &t->f))
            return ERR(LIMIT, "line %d: number with too many digits", t->line);
        t->type = T_FLOAT;
        *used = end;
        return 0;
    }
    char kind = n > 1 && s[0] == '0' ? (char)(s[1] | 32) : 0;
    unsigned base = kind == 'b' ? 2 : kind == 'o' ? 8 : kind == 'x' ? 16 : 0;
    if (base && (end = digits_end(s, n, 2, base, true)) > 2) {
        *used = end;
        return int_value(s + 2, end - 2, base, t);
    }
    end = digits_end(s, n, 0, 10, false);
    if (s[0] == '0') /* only zeros may follow a leading zero */
        for (size_t i = 0; i < end; i++)
            if (s[i] != '0' && s[i] != '_') {
                end = i;
                while (end > 1 && s[end - 1] == '_')
                    end--;
                break;
            }
    *used = end;
    return int_value(s, end, 10, t);
}

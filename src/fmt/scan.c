/* scan.c - the JSON scanner of scan.h.  It is strict: whatever RFC 8259 does not allow is an error, so every
 * reader understands a file in the same way.  Objects that are skipped may repeat a key. */
#include "fmt/scan.h"
#include "base/utf8.h"

#include <string.h>

int scan_error(const struct scan *j, const char *why)
{
    size_t line = 1;
    for (size_t i = 0; i < MIN(j->pos, j->n); i++)
        line += j->s[i] == '\n';
    return ERR(FORMAT, "%s: line %zu: JSON byte %zu: %s", j->what, line, j->pos, why);
}

int scan_init(struct scan *j, const char *s, size_t n, const char *what)
{
    if (!utf8_valid(s, n)) return ERR(FORMAT, "%s: JSON text must be UTF-8", what);
    char *text = mem_alloc(n);
    if (!text) return ERR_NOMEM;
    *j = (struct scan){.s = s, .n = n, .what = what, .text = text};
    return 0;
}

void scan_done(struct scan *j)
{
    mem_free(j->text);
    *j = (struct scan){0};
}

/* Returns the character at pos, or 0 past the end.  JSON text holds no NUL, so no rule accepts the 0. */
static char at(const struct scan *j, size_t pos)
{
    return pos < j->n ? j->s[pos] : 0;
}

char scan_peek(struct scan *j)
{
    for (;; j->pos++) {
        char c = at(j, j->pos);
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return c;
    }
}

int scan_char(struct scan *j, char c)
{
    char why[] = "expected 'x'";
    why[10] = c;
    if (scan_peek(j) != c) return scan_error(j, why);
    j->pos++;
    return 0;
}

int scan_end(struct scan *j)
{
    scan_peek(j);
    return j->pos == j->n ? 0 : scan_error(j, "text after the end");
}

static int hex4(struct scan *j, uint32_t *out)
{
    uint32_t u = 0;
    for (int i = 0; i < 4; i++, j->pos++) {
        int d = hex_digit(at(j, j->pos));
        if (d < 0) return scan_error(j, "bad \\u escape");
        u = u << 4 | (uint32_t)d;
    }
    *out = u;
    return 0;
}

/* Reads the code point after "\u", which may take two escapes. */
static int code_point(struct scan *j, uint32_t *out)
{
    uint32_t u = 0, low = 0;
    TRY(hex4(j, &u));
    if (u >= 0xD800 && u < 0xDC00 && at(j, j->pos) == '\\' && at(j, j->pos + 1) == 'u') {
        j->pos += 2;
        TRY(hex4(j, &low));
        if (low < 0xDC00 || low > 0xDFFF) return scan_error(j, "lone surrogate");
        u = 0x10000 + ((u - 0xD800) << 10) + (low - 0xDC00);
    }
    if (u >= 0xD800 && u < 0xE000) return scan_error(j, "lone surrogate");
    if (u == 0 && !j->nul) return scan_error(j, "NUL in a string");
    *out = u;
    return 0;
}

static int escape(struct scan *j)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = at(j, j->pos++), utf8[4];
    const char *k = c ? strchr(from, c) : NULL;
    uint32_t u = 0;
    if (k) {
        j->text[j->used++] = to[k - from];
        return 0;
    }
    if (c != 'u') return scan_error(j, "bad escape");
    TRY(code_point(j, &u));
    size_t n = utf8_encode(u, utf8);
    memcpy(j->text + j->used, utf8, n);
    j->used += n;
    return 0;
}

/* Every literal is decoded once.  The decoded text and its NUL are shorter than the literal with its quotes, and
 * j->text is as long as the whole source.  So j->text cannot overflow. */
int scan_string(struct scan *j, const char **out)
{
    size_t start = j->used;
    TRY(scan_char(j, '"'));
    for (;;) {
        char c = at(j, j->pos);
        if ((unsigned char)c < 0x20) return scan_error(j, "string not closed");
        j->pos++;
        if (c == '"') break;
        if (c == '\\')
            TRY(escape(j));
        else
            j->text[j->used++] = c;
    }
    j->text[j->used++] = 0;
    *out = j->text + start;
    return 0;
}

size_t scan_length(const struct scan *j, const char *s)
{
    return (size_t)(j->text + j->used - s) - 1;
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

int scan_u64(struct scan *j, uint64_t *out)
{
    uint64_t u = 0;
    size_t n = 0;
    scan_peek(j);
    for (; digit(at(j, j->pos + n)); n++)
        if (__builtin_mul_overflow(u, 10u, &u) ||
            __builtin_add_overflow(u, (uint64_t)(at(j, j->pos + n) - '0'), &u))
            return scan_error(j, "integer beyond 64 bits");
    if (n == 0 || (n > 1 && at(j, j->pos) == '0'))
        return scan_error(j, "expected a non-negative integer");
    j->pos += n;
    *out = u;
    return 0;
}

static size_t digits(const struct scan *j, size_t pos)
{
    size_t n = 0;
    while (digit(at(j, pos + n)))
        n++;
    return n;
}

static int skip_number(struct scan *j)
{
    size_t p = j->pos + (at(j, j->pos) == '-'), n = digits(j, p);
    bool ok = n == 1 || (n > 1 && at(j, p) != '0');
    p += n;
    if (ok && at(j, p) == '.') {
        n = digits(j, p + 1);
        ok = n > 0;
        p += n + 1;
    }
    if (ok && (at(j, p) == 'e' || at(j, p) == 'E')) {
        p += 1 + (at(j, p + 1) == '+' || at(j, p + 1) == '-');
        n = digits(j, p);
        ok = n > 0;
        p += n;
    }
    if (!ok) return scan_error(j, "bad value");
    j->pos = p;
    return 0;
}

static int skip_word(struct scan *j)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < countof(words); i++) {
        size_t n = strlen(words[i]);
        if (j->n - j->pos < n || memcmp(j->s + j->pos, words[i], n) != 0) continue;
        j->pos += n;
        return 0;
    }
    return skip_number(j);
}

int scan_item(struct scan *j, bool *first)
{
    char c = scan_peek(j);
    if (c == ']') {
        j->pos++;
        return 0;
    }
    if (!*first) TRY(scan_char(j, ','));
    if (!*first && scan_peek(j) == ']') return scan_error(j, "a comma before ']'");
    *first = false;
    return 1;
}

int scan_key(struct scan *j, bool *first, const char **key)
{
    char c = scan_peek(j);
    if (c == '}') {
        j->pos++;
        return 0;
    }
    if (!*first) TRY(scan_char(j, ','));
    *first = false;
    TRY(scan_string(j, key));
    TRY(scan_char(j, ':'));
    return 1;
}

static int skip_nested(struct scan *j, uint32_t depth)
{
    const char *s;
    bool first = true;
    int e;
    char c = scan_peek(j);
    if (depth == SCAN_MAX_DEPTH) return scan_error(j, "nested too deeply");
    switch (c) {
    case '{':
        j->pos++;
        while ((e = scan_key(j, &first, &s)) == 1)
            TRY(skip_nested(j, depth + 1));
        break;
    case '[':
        j->pos++;
        while ((e = scan_item(j, &first)) == 1)
            TRY(skip_nested(j, depth + 1));
        break;
    case '"':
        e = scan_string(j, &s);
        break;
    default:
        e = skip_word(j);
    }
    return e;
}

int scan_skip(struct scan *j)
{
    return skip_nested(j, 1);
}

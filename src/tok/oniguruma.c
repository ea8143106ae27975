/* oniguruma.c - rewrites a pattern in the dialect of Oniguruma for PCRE2, with exactly the same matches.  The
 * dialects differ: \s has no U+180E; \w is the Unicode word class; \h is a hex digit and \v one character; (?m)
 * means that the dot matches newlines; {,n} counts from 0; {n,m}+ repeats instead of being possessive.  A
 * construct that is neither equal nor rewritten is refused by name, so a pattern never silently changes its
 * meaning. */
#include "tok/oniguruma.h"
#include "base/utf8.h"

#include <string.h>

#define SPACES                                                                                     \
    "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}"       \
    "\\x{3000}"
#define WORD_SET                                                                                   \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}"                    \
    "\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}"
#define WORDS                                                                                      \
    "\\xB2\\xB3\\xB9\\xBC-\\xBE" WORD_SET /* superscripts and fractions outside sets only */
#define MAX_GROUPS 64

struct rewrite {
    const char *s;
    size_t n, i;
    struct buf *out;
    size_t atom;              /* in and out: where the last repeatable item begins */
    size_t group[MAX_GROUPS]; /* in and out: the open groups */
    uint32_t n_group;
};

static int refuse_pattern(const struct rewrite *r, const char *what)
{
    return ERR(UNSUPPORTED,
               "tokenizer: regular expression \"%.*s\": %s at byte %zu is not supported",
               (int)MIN(r->n, 80), r->s, what, r->i);
}

/* Rewrites \xHH, \x{H...} and \uHHHH; r->i is behind the letter. */
static int put_code(struct rewrite *r, char letter)
{
    size_t from = r->i, to;
    bool braces = letter == 'x' && from < r->n && r->s[from] == '{';
    if (braces) from++;
    to = from;
    size_t most = braces ? 6 : letter == 'x' ? 2 : 4;
    while (to < r->n && to - from < most && hex_digit(r->s[to]) >= 0)
        to++;
    if (to == from || (letter == 'u' && to - from < 4))
        return refuse_pattern(r, "a bad code point");
    if (letter == 'x' && !braces && to - from == 2 && r->s[from] > '7')
        return refuse_pattern(r, "a raw byte");
    if (braces && (to == r->n || r->s[to] != '}')) return refuse_pattern(r, "a bad code point");
    TRY(buf_printf(r->out, "\\x{%.*s}", (int)(to - from), r->s + from));
    r->i = to + braces;
    return 0;
}

/* Rewrites \p{Name} and \p{^Name}.  A name is a general category, short or long, or else a script.  Script
 * extensions do not count, although PCRE2 would count them. */
static int put_property(struct rewrite *r, char letter)
{
    static const char *const names[][2] = {
        {"Letter", "L"}, {"Mark", "M"},   {"Number", "N"}, {"Punctuation", "P"}, {"Punct", "P"},
        {"Symbol", "S"}, {"Digit", "Nd"}, {"Other", "C"},  {"Separator", "Z"},   {"Any", "Any"},
    };
    if (r->i >= r->n || r->s[r->i] != '{') return refuse_pattern(r, "\\p without a name");
    size_t from = r->i + 1, to = from;
    while (to < r->n && r->s[to] != '}')
        to++;
    if (to == r->n || to - from > 40) return refuse_pattern(r, "a bad property name");
    const char *inverse = from < to && r->s[from] == '^' ? "^" : "";
    from += strlen(inverse);
    const char *name = r->s + from, *kind = "sc:";
    size_t n = to - from;
    if (n > 0 && strchr("LMNPSZC", name[0]) && (n == 1 || (n == 2 && name[1] >= 'a'))) kind = "";
    for (size_t k = 0; k < countof(names); k++) {
        if (strlen(names[k][0]) != n || memcmp(names[k][0], name, n) != 0) continue;
        name = names[k][1];
        n = strlen(name);
        kind = "";
        break;
    }
    TRY(buf_printf(r->out, "\\%c{%s%s%.*s}", letter, inverse, kind, (int)n, name));
    r->i = to + 1;
    return 0;
}

/* Rewrites an escape that means the same inside and outside a class.  Returns 0 if c is no such escape. */
static int put_common(struct rewrite *r, char c)
{
    size_t len;
    if (strchr("rntfaedD", c) && c) {
        TRY(buf_printf(r->out, "\\%c", c));
        return 1;
    }
    if (c == 'v') {
        TRY(buf_puts(r->out, "\\x0B"));
        return 1;
    }
    if (c == 'x' || c == 'u') {
        TRY(put_code(r, c));
        return 1;
    }
    if (c == 'p' || c == 'P') {
        TRY(put_property(r, c));
        return 1;
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || !c) return 0;
    if ((uint8_t)c < 0x80) {
        TRY(buf_printf(r->out, "\\%c", c));
        return 1;
    }
    utf8_decode(r->s + r->i - 1, r->n - (r->i - 1), &len);
    TRY(buf_append(r->out, r->s + r->i - 1, len));
    r->i += len - 1;
    return 1;
}

static int put_escape(struct rewrite *r)
{
    static const struct {
        char c;
        const char *as;
    } map[] = {
        {'s', "[" SPACES "]"},
        {'S', "[^" SPACES "]"},
        {'w', "[" WORDS "]"},
        {'W', "[^" WORDS "]"},
        {'h', "[0-9a-fA-F]"},
        {'H', "[^0-9a-fA-F]"},
        {'b', "(?:(?<=[" WORDS "])(?![" WORDS "])|(?<![" WORDS "])(?=[" WORDS "]))"},
        {'B', "(?:(?<=[" WORDS "])(?=[" WORDS "])|(?<![" WORDS "])(?![" WORDS "]))"},
        {'R', "\\R"},
        {'A', "\\A"},
        {'z', "\\z"},
        {'Z', "\\Z"},
    };
    r->i++;
    if (r->i >= r->n) return refuse_pattern(r, "a backslash at the end");
    char c = r->s[r->i++];
    for (size_t k = 0; k < countof(map); k++)
        if (map[k].c == c) return buf_puts(r->out, map[k].as);
    int done = put_common(r, c);
    if (done != 0) return done < 0 ? done : 0;
    char what[] = {'\\', c ? c : '0', 0};
    r->i -= 2;
    return refuse_pattern(r, what);
}

static int put_class_escape(struct rewrite *r, bool after_dash)
{
    r->i++;
    if (r->i >= r->n) return refuse_pattern(r, "a backslash at the end");
    char c = r->s[r->i++];
    const char *as = c == 's'   ? SPACES
                     : c == 'S' ? "\\S\\x{180E}"
                     : c == 'w' ? WORD_SET
                     : c == 'h' ? "0-9a-fA-F"
                     : c == 'b' ? "\\x08"
                                : NULL;
    bool set = as && c != 'b';
    if (c == 'd' || c == 'D' || c == 'p' || c == 'P') set = true;
    if (set && after_dash) return refuse_pattern(r, "a range that ends in a class");
    if (as) {
        TRY(buf_puts(r->out, as));
    } else {
        int done = put_common(r, c);
        if (done < 0) return done;
        if (!done) {
            char what[] = {'\\', c ? c : '0', 0};
            return refuse_pattern(r, what);
        }
    }
    /* Behind a set a dash stands for itself.  Behind the last member of an expanded set PCRE2 would read it as a
     * range. */
    if (set && r->i + 1 < r->n && r->s[r->i] == '-' && r->s[r->i + 1] != ']') {
        TRY(buf_puts(r->out, "\\-"));
        r->i++;
    }
    return 0;
}

/* Rewrites a class; r->i is at its bracket.  A set inside a set is a union, so its brackets are dropped. */
static int put_class(struct rewrite *r)
{
    uint32_t depth = 0;
    bool first = true, dash = false;
    TRY(buf_putc(r->out, '['));
    r->i++;
    if (r->i < r->n && r->s[r->i] == '^') {
        TRY(buf_putc(r->out, '^'));
        r->i++;
    }
    while (r->i < r->n) {
        char c = r->s[r->i];
        bool after_dash = dash;
        dash = c == '-' && !first;
        if (c == '\\') {
            TRY(put_class_escape(r, after_dash));
        } else if (c == '[') {
            if (r->i + 1 < r->n && strchr("^:.=", r->s[r->i + 1]))
                return refuse_pattern(r, "this kind of set in a set");
            if (++depth > 8) return refuse_pattern(r, "a deeply nested set");
            r->i++;
        } else if (c == ']' && !first) {
            r->i++;
            if (depth == 0) return buf_putc(r->out, ']');
            depth--;
        } else if (c == ']') {
            return refuse_pattern(r, "an empty set");
        } else if (c == '&' && r->i + 1 < r->n && r->s[r->i + 1] == '&') {
            return refuse_pattern(r, "&&");
        } else {
            TRY(buf_putc(r->out, c));
            r->i++;
        }
        first = false;
    }
    return refuse_pattern(r, "an open set");
}

static int put_group_open(struct rewrite *r)
{
    if (r->n_group == MAX_GROUPS) return refuse_pattern(r, "a group nested too deeply");
    r->group[r->n_group++] = r->out->len;
    TRY(buf_putc(r->out, '('));
    r->i++;
    if (r->i < r->n && r->s[r->i] == '*') return refuse_pattern(r, "(*");
    if (r->i >= r->n || r->s[r->i] != '?') return 0;
    TRY(buf_putc(r->out, '?'));
    r->i++;
    char c = r->i < r->n ? r->s[r->i] : 0, d = r->i + 1 < r->n ? r->s[r->i + 1] : 0;
    if (c == ':' || c == '=' || c == '!' || c == '>' || (c == '<' && (d == '=' || d == '!'))) {
        TRY(buf_putc(r->out, c));
        r->i++;
        if (c != '<') return 0;
        r->i++;
        return buf_putc(r->out, d);
    }
    for (; r->i < r->n && r->s[r->i] && strchr("im-", r->s[r->i]); r->i++)
        TRY(buf_putc(r->out, r->s[r->i] == 'm' ? 's' : r->s[r->i]));
    if (r->i < r->n && r->s[r->i] == ':') {
        r->i++;
        return buf_putc(r->out, ':');
    }
    /* Elsewhere than at the start, Oniguruma's (?i) also swallows the alternatives behind it. */
    if (r->i < r->n && r->s[r->i] == ')' && r->group[r->n_group - 1] == 0) return 0;
    return refuse_pattern(r, "this kind of group");
}

static int wrap_atom(struct rewrite *r, const char *tail)
{
    size_t n = r->out->len - r->atom;
    TRY(buf_append(r->out, "(?:", 3));
    memmove(r->out->data + r->atom + 3, r->out->data + r->atom, n);
    memcpy(r->out->data + r->atom, "(?:", 3);
    return buf_puts(r->out, tail);
}

/* Rewrites {n}, {n,}, {,m} and {n,m}.  Any other brace stands for itself. */
static int put_interval(struct rewrite *r)
{
    size_t i = r->i + 1, low = i, comma, high;
    while (i < r->n && r->s[i] >= '0' && r->s[i] <= '9')
        i++;
    comma = i;
    bool ranged = i < r->n && r->s[i] == ',';
    if (ranged) i++;
    high = i;
    while (i < r->n && r->s[i] >= '0' && r->s[i] <= '9')
        i++;
    if (i >= r->n || r->s[i] != '}' || (comma == low && high == i)) {
        r->atom = r->out->len;
        r->i++;
        return buf_puts(r->out, "\\{");
    }
    char next = i + 1 < r->n ? r->s[i + 1] : 0;
    if (comma - low > 5 || i - high > 5 || (!ranged && next == '?'))
        return refuse_pattern(r, "this repeat count");
    TRY(buf_printf(r->out, "{%.*s", (int)(comma - low), comma > low ? r->s + low : "0"));
    if (comma == low) TRY(buf_putc(r->out, '0'));
    if (ranged) TRY(buf_printf(r->out, ",%.*s", (int)(i - high), r->s + high));
    TRY(buf_putc(r->out, '}'));
    r->i = i + 1;
    if (next == '+') {
        r->i++;
        return wrap_atom(r, ")+");
    }
    return 0;
}

static int put_one(struct rewrite *r)
{
    char c = r->s[r->i];
    size_t atom = r->out->len, len;
    switch (c) {
    case '\\':
        TRY(put_escape(r));
        break;
    case '[':
        TRY(put_class(r));
        break;
    case '(':
        return put_group_open(r);
    case ')':
        if (r->n_group == 0) return refuse_pattern(r, "a lone )");
        r->atom = r->group[--r->n_group];
        r->i++;
        return buf_putc(r->out, ')');
    case '{':
        return put_interval(r);
    case '*':
    case '+':
    case '?':
    case '|':
        r->i++;
        return buf_putc(r->out, c);
    default:
        if (c == 0) return refuse_pattern(r, "a NUL byte");
        utf8_decode(r->s + r->i, r->n - r->i, &len);
        TRY(buf_append(r->out, r->s + r->i, len));
        r->i += len;
    }
    r->atom = atom;
    return 0;
}

int oniguruma_rewrite(const char *s, size_t n, struct buf *out)
{
    struct rewrite r = {.s = s, .n = n, .out = out};
    if (!utf8_valid(s, n)) return ERR(FORMAT, "tokenizer: a regular expression is not UTF-8");
    while (r.i < n)
        TRY(put_one(&r));
    return r.n_group ? refuse_pattern(&r, "an open group") : 0;
}

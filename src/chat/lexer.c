/* lexer.c - makes tokens from the text of a template, and reads them for the parser.  Outside tags everything is
 * data.  A newline directly after a block or comment tag is dropped (trim_blocks), and so are blanks between the
 * start of a line and such a tag (lstrip_blocks).  The sign - at an end of a tag drops all white space outside
 * that end; the sign + keeps it.  Inside a tag, end marks count only outside brackets. */
#include "base/utf8.h"
#include "chat/node.h"

#include <stdio.h>
#include <string.h>

struct lexer {
    struct compile *c;
    const char *s;
    size_t n, at;
    int line;
    bool line_starting; /* the last thing consumed ended with a newline */
    char bracket[JINJA_MAX_DEPTH * 2];
    unsigned n_bracket;
};

int compile_fail(int line, const char *fmt, ...)
{
    char text[768];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return ERR(FORMAT, "line %d: %s", line, text);
}

int compile_refuse(int line, const char *what)
{
    return ERR(UNSUPPORTED, "line %d: %s is not supported in chat templates", line, what);
}

int compile_str(struct compile *c, const char *s, size_t n, struct str **out)
{
    struct str *t;
    char *copy;
    COMPILE_NEW(c, t, 1);
    COMPILE_NEW(c, copy, n + 1);
    if (n) memcpy(copy, s, n);
    t->s = copy;
    t->n = n;
    str_chars(t); /* counted now: compiled templates are shared by threads */
    *out = t;
    return 0;
}

static int push_token(struct lexer *x, struct token t)
{
    struct compile *c = x->c;
    if (c->n_tok == c->cap_tok) {
        size_t cap = c->cap_tok ? c->cap_tok * 2 : 256;
        struct token *p = mem_grow(c->tok, cap, sizeof *p);
        if (!p) return ERR_NOMEM;
        c->tok = p;
        c->cap_tok = cap;
    }
    c->tok[c->n_tok++] = t;
    return 0;
}

static void advance_to(struct lexer *x, size_t to)
{
    if (to > x->at) x->line_starting = x->s[to - 1] == '\n';
    for (; x->at < to; x->at++)
        x->line += x->s[x->at] == '\n';
}

static size_t skip_space(const struct lexer *x, size_t at)
{
    while (at < x->n) {
        size_t len;
        if (!chr_space(utf8_decode(x->s + at, x->n - at, &len))) break;
        at += len;
    }
    return at;
}

static bool at_mark(const struct lexer *x, size_t at, const char *mark)
{
    return x->n - at >= 2 && x->s[at] == mark[0] && x->s[at + 1] == mark[1];
}

/* Returns where the text continues if a tag ends at `at`, otherwise 0.  The end of a block or comment may have the
 * sign +; without a sign it drops one newline. */
static size_t tag_end(const struct lexer *x, size_t at, const char *mark, bool block)
{
    if (at >= x->n) return 0;
    if (x->s[at] == '-' && at_mark(x, at + 1, mark)) return skip_space(x, at + 3);
    if (block && x->s[at] == '+' && at_mark(x, at + 1, mark)) return at + 3;
    if (!at_mark(x, at, mark)) return 0;
    at += 2;
    return block && at < x->n && x->s[at] == '\n' ? at + 1 : at;
}

/* Pushes the data up to `to`, where a tag with this sign begins. */
static int push_data(struct lexer *x, size_t to, char sign, bool lstrip)
{
    size_t from = x->at, end = to;
    if (sign == '-') {
        end = str_trim_end(x->s, from, to);
    } else if (sign != '+' && lstrip) {
        size_t bol = to;
        while (bol > from && x->s[bol - 1] != '\n')
            bol--;
        if ((bol > from || x->line_starting) && str_trim_end(x->s, bol, to) == bol) end = bol;
    }
    if (end == from) return 0;
    struct token t = {.type = T_DATA, .line = x->line};
    TRY(compile_str(x->c, x->s + from, end - from, &t.s));
    return push_token(x, t);
}

static char tag_sign(const struct lexer *x, size_t at)
{
    return at < x->n && (x->s[at] == '-' || x->s[at] == '+') ? x->s[at] : 0;
}

static int lex_comment(struct lexer *x)
{
    for (size_t at = x->at + 2 + (tag_sign(x, x->at + 2) != 0); at < x->n; at++) {
        size_t end = tag_end(x, at, "#}", true);
        if (!end) continue;
        advance_to(x, end);
        return 0;
    }
    return compile_fail(x->line, "Missing end of comment tag");
}

static bool name_char(const struct lexer *x, size_t at, size_t *len)
{
    unsigned char ch = (unsigned char)x->s[at];
    *len = 1;
    if (ch < 0x80)
        return ch == '_' || (ch >= '0' && ch <= '9') || ((ch | 32) >= 'a' && (ch | 32) <= 'z');
    return chr_is(utf8_decode(x->s + at, x->n - at, len), IS_WORD);
}

static int lex_name(struct lexer *x)
{
    size_t at = x->at, len;
    while (at < x->n && name_char(x, at, &len))
        at += len;
    struct token t = {.type = T_NAME, .line = x->line};
    TRY(compile_str(x->c, x->s + x->at, at - x->at, &t.s));
    advance_to(x, at);
    return push_token(x, t);
}

/* Writes the character of the escape after a backslash; returns the bytes of input used. */
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
    if (ch == 'N') return compile_refuse(line, "the escape \\N in a string");
    if (ch >= '0' && ch <= '7') return compile_refuse(line, "an octal escape in a string");
    size_t digits = ch == 'x' ? 2 : ch == 'u' ? 4 : ch == 'U' ? 8 : 0;
    uint32_t cp = 0;
    for (size_t i = 1; i <= digits; i++) {
        int h = i < n ? hex_digit(s[i]) : -1;
        if (h < 0) return compile_fail(line, "truncated \\x, \\u or \\U escape in a string");
        cp = cp << 4 | (uint32_t)h;
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000))
        return compile_fail(line, "escape \\%x in a string is not a character", cp);
    if (!digits) *(*to)++ = '\\'; /* an unknown escape stands for itself */
    if (digits) *to += utf8_encode(cp, *to);
    return (int)(digits + (digits > 0));
}

static int unescape(struct compile *c, const char *s, size_t n, int line, struct str **out)
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

static int lex_string(struct lexer *x)
{
    char quote = x->s[x->at];
    size_t at = x->at + 1;
    while (at < x->n && x->s[at] != quote)
        at += x->s[at] == '\\' ? 2 : 1;
    if (at >= x->n)
        return compile_fail(x->line, "unexpected char %s at %zu", quote == '"' ? "'\"'" : "\"'\"",
                            utf8_count(x->s, x->at));
    struct token t = {.type = T_STRING, .line = x->line};
    TRY(unescape(x->c, x->s + x->at + 1, at - x->at - 1, x->line, &t.s));
    advance_to(x, at + 1);
    return push_token(x, t);
}

/* Reads a decimal integer or float.  After a dot only digits count: a.0.5 is two subscripts. */
static int lex_number(struct lexer *x)
{
    const char *s = x->s + x->at, *all = x->s + x->n;
    struct token t = {.type = T_INT, .line = x->line};
    size_t n = digits_in(s, all), end = n;
    if (x->at == 0 || s[-1] != '.') {
        if (s[end] == '.' && digits_in(s + end + 1, all)) end += 1 + digits_in(s + end + 1, all);
        size_t sign = end + 1 + ((s[end] | 32) == 'e' && s[end + 1] && strchr("+-", s[end + 1]));
        if ((s[end] | 32) == 'e' && digits_in(s + sign, all)) end = sign + digits_in(s + sign, all);
    }
    if ((n > 1 && s[0] == '0' && end == n) || (s[end] == '_') ||
        (n == 1 && s[0] == '0' && s[1] && strchr("xXoObB", s[1])))
        return compile_refuse(x->line, "a number with a leading zero or an underscore");
    if (end > n) t.type = T_FLOAT;
    if (end > n && !float_parse(s, end, &t.f))
        return ERR(LIMIT, "line %d: a number with too many digits", x->line);
    for (size_t i = 0; i < end && t.type == T_INT; i++)
        if (__builtin_mul_overflow(t.i, (int64_t)10, &t.i) ||
            __builtin_add_overflow(t.i, (int64_t)(s[i] - '0'), &t.i))
            return ERR(LIMIT, "line %d: the number %.*s is larger than 64 bits", x->line,
                       (int)MIN(end, (size_t)40), s);
    advance_to(x, x->at + end);
    return push_token(x, t);
}

static int lex_bracket(struct lexer *x, char ch)
{
    if (ch == '(' || ch == '[' || ch == '{') {
        if (x->n_bracket == sizeof x->bracket)
            return ERR(LIMIT, "line %d: nested deeper than %u levels", x->line, JINJA_MAX_DEPTH);
        x->bracket[x->n_bracket++] = ch == '(' ? ')' : ch == '[' ? ']' : '}';
    } else if (ch == ')' || ch == ']' || ch == '}') {
        if (!x->n_bracket) return compile_fail(x->line, "unexpected '%c'", ch);
        char want = x->bracket[--x->n_bracket];
        if (want != ch) return compile_fail(x->line, "unexpected '%c', expected '%c'", ch, want);
    }
    return 0;
}

static int lex_operator(struct lexer *x)
{
    static const char ops[][3] = {"==", "!=", ">=", "<=", "//", "**", "+", "-", "/",
                                  "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                  ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const char *s = x->s + x->at;
    struct token t = {.type = T_OP, .line = x->line};
    for (size_t i = 0; i < countof(ops); i++) {
        size_t n = strlen(ops[i]);
        if (x->n - x->at < n || memcmp(s, ops[i], n) != 0) continue;
        memcpy(t.op, ops[i], n);
        if (n == 1) TRY(lex_bracket(x, *s));
        advance_to(x, x->at + n);
        return push_token(x, t);
    }
    size_t len;
    utf8_decode(s, x->n - x->at, &len);
    return compile_fail(x->line, "unexpected char '%.*s' at %zu", (int)len, s,
                        utf8_count(x->s, x->at));
}

/* Reads one token inside a tag. */
static int lex_inside(struct lexer *x)
{
    char ch = x->s[x->at];
    size_t len;
    if (ch >= '0' && ch <= '9') return lex_number(x);
    if (name_char(x, x->at, &len)) return lex_name(x);
    return ch == '"' || ch == '\'' ? lex_string(x) : lex_operator(x);
}

static int lex_tag(struct lexer *x, bool block)
{
    struct token t = {.type = block ? T_BLOCK_BEGIN : T_VAR_BEGIN, .line = x->line};
    TRY(push_token(x, t));
    advance_to(x, x->at + 2 + (tag_sign(x, x->at + 2) != 0));
    x->n_bracket = 0;
    while (x->at < x->n) {
        size_t end = x->n_bracket ? 0 : tag_end(x, x->at, block ? "%}" : "}}", block);
        if (end) {
            t = (struct token){.type = block ? T_BLOCK_END : T_VAR_END, .line = x->line};
            TRY(push_token(x, t));
            advance_to(x, end);
            return 0;
        }
        size_t p = skip_space(x, x->at);
        if (p > x->at) {
            advance_to(x, p);
            continue;
        }
        TRY(lex_inside(x));
    }
    return 0; /* the parser reports the missing end of the tag */
}

static int lex_root(struct lexer *x)
{
    size_t at = x->at;
    while (at < x->n &&
           !(x->s[at] == '{' && at + 1 < x->n && x->s[at + 1] && strchr("%{#", x->s[at + 1])))
        at++;
    if (at >= x->n) {
        TRY(push_data(x, x->n, '+', false));
        advance_to(x, x->n);
        return 0;
    }
    char kind = x->s[at + 1], sign = tag_sign(x, at + 2);
    TRY(push_data(x, at, sign, kind != '{'));
    advance_to(x, at);
    if (kind == '#') return lex_comment(x);
    return lex_tag(x, kind == '%');
}

int lex_all(struct compile *c, const char *src, size_t n)
{
    char *s;
    COMPILE_NEW(c, s, n + 1);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) { /* \r\n and \r are newlines */
        s[k++] = src[i] == '\r' ? '\n' : src[i];
        i += src[i] == '\r' && i + 1 < n && src[i + 1] == '\n';
    }
    if (k && s[k - 1] == '\n') k--;
    s[k] = 0;
    struct lexer x = {.c = c, .s = s, .n = k, .line = 1, .line_starting = true};
    while (x.at < x.n)
        TRY(lex_root(&x));
    return push_token(&x, (struct token){.type = T_EOF, .line = x.line});
}

struct token *tok_at(struct compile *c, unsigned ahead)
{
    size_t i = MIN(c->at + ahead, c->n_tok - 1);
    return &c->tok[i];
}

bool tok_is(struct compile *c, const char *text)
{
    const struct token *t = tok_at(c, 0);
    return t->type == T_OP ? strcmp(t->op, text) == 0 : t->type == T_NAME && str_is(t->s, text);
}

bool tok_skip(struct compile *c, const char *text)
{
    bool hit = tok_is(c, text);
    c->at += hit;
    return hit;
}

const char *tok_describe(const struct token *t, char buf[64])
{
    static const char *const text[] = {
        [T_EOF] = "end of template",
        [T_DATA] = "template data / text",
        [T_VAR_BEGIN] = "begin of print statement",
        [T_VAR_END] = "end of print statement",
        [T_BLOCK_BEGIN] = "begin of statement block",
        [T_BLOCK_END] = "end of statement block",
        [T_NAME] = "name",
        [T_STRING] = "string",
        [T_INT] = "integer",
        [T_FLOAT] = "float",
    };
    if (t->type == T_NAME && t->s)
        snprintf(buf, 64, "%.*s", (int)MIN(t->s->n, (size_t)60), t->s->s);
    else
        snprintf(buf, 64, "%s", t->type == T_OP ? t->op : text[t->type]);
    return buf;
}

int tok_unexpected(struct compile *c, const char *wanted)
{
    const struct token *t = tok_at(c, 0);
    char buf[64];
    if (t->type == T_EOF)
        return compile_fail(t->line, "unexpected end of template, expected '%s'.", wanted);
    return compile_fail(t->line, "expected token '%s', got '%s'", wanted, tok_describe(t, buf));
}

int tok_want(struct compile *c, const char *text)
{
    return tok_skip(c, text) ? 0 : tok_unexpected(c, text);
}

int tok_want_type(struct compile *c, enum token_type type, struct token **out)
{
    struct token *t = tok_at(c, 0), wanted = {.type = type};
    char buf[64];
    if (t->type != type) return tok_unexpected(c, tok_describe(&wanted, buf));
    c->at++;
    *out = t;
    return 0;
}

/* lexer.c - template text to tokens.  Outside tags everything is data, cut by the rules of
 * trim_blocks (a newline directly after a block or comment tag is dropped), lstrip_blocks (blanks
 * between the start of a line and a block or comment tag are dropped), and the signs - and + inside
 * tags, which force or forbid both.  Inside tags, end marks only count outside brackets. */
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

static int count_lines(const char *s, size_t n)
{
    int k = 0;
    for (size_t i = 0; i < n; i++)
        k += s[i] == '\n';
    return k;
}

static void advance(struct lexer *x, size_t to)
{
    x->line += count_lines(x->s + x->at, to - x->at);
    if (to > x->at) x->line_starting = x->s[to - 1] == '\n';
    x->at = to;
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

/* Start of the trailing white space of s[from..to). */
static size_t rstrip(const char *s, size_t from, size_t to)
{
    while (to > from) {
        size_t b = to - 1, len;
        while (b > from && ((unsigned char)s[b] & 0xC0) == 0x80)
            b--;
        if (!chr_space(utf8_decode(s + b, to - b, &len))) break;
        to = b;
    }
    return to;
}

static bool at_mark(const struct lexer *x, size_t at, const char *mark)
{
    return x->n - at >= 2 && x->s[at] == mark[0] && x->s[at + 1] == mark[1];
}

/* The end of a tag at `at`: sign and mark; returns where text goes on, 0 if it is no end.  Blocks and
 * comments also know + and, without a sign, swallow one newline. */
static size_t tag_end(const struct lexer *x, size_t at, const char *mark, bool block)
{
    if (at >= x->n) return 0;
    if (x->s[at] == '-' && at_mark(x, at + 1, mark)) return skip_space(x, at + 3);
    if (block && x->s[at] == '+' && at_mark(x, at + 1, mark)) return at + 3;
    if (!at_mark(x, at, mark)) return 0;
    at += 2;
    return block && at < x->n && x->s[at] == '\n' ? at + 1 : at;
}

/* Data up to `to`, where a tag with this sign begins. */
static int push_data(struct lexer *x, size_t to, char sign, bool lstrip)
{
    size_t from = x->at, end = to;
    if (sign == '-') {
        end = rstrip(x->s, from, to);
    } else if (sign != '+' && lstrip) {
        size_t bol = to;
        while (bol > from && x->s[bol - 1] != '\n')
            bol--;
        if ((bol > from || x->line_starting) && rstrip(x->s, bol, to) == bol) end = bol;
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

static bool word_at(const struct lexer *x, size_t at, const char *word, size_t *end)
{
    size_t k = strlen(word);
    if (x->n - at < k || memcmp(x->s + at, word, k) != 0) return false;
    *end = skip_space(x, at + k);
    return true;
}

/* {% raw %} at x->at: where the raw text begins, 0 if this is another tag. */
static size_t raw_begin(const struct lexer *x, size_t at)
{
    size_t p = at + 2;
    if (tag_sign(x, p)) p++;
    p = skip_space(x, p);
    if (!word_at(x, p, "raw", &p)) return 0;
    if (p < x->n && x->s[p] == '-' && at_mark(x, p + 1, "%}")) return skip_space(x, p + 3);
    return at_mark(x, p, "%}") ? p + 2 : 0;
}

static int lex_raw(struct lexer *x, size_t body)
{
    int line = x->line;
    advance(x, body);
    for (size_t at = body; at + 2 <= x->n; at++) {
        if (!at_mark(x, at, "{%")) continue;
        char sign = tag_sign(x, at + 2);
        size_t p = skip_space(x, at + 2 + (sign != 0));
        if (!word_at(x, p, "endraw", &p)) continue;
        size_t end = tag_end(x, p, "%}", true);
        if (!end) continue;
        TRY(push_data(x, at, sign, true));
        advance(x, end);
        return 0;
    }
    return compile_fail(line, "Missing end of raw directive");
}

static int lex_comment(struct lexer *x)
{
    for (size_t at = x->at + 2 + (tag_sign(x, x->at + 2) != 0); at < x->n; at++) {
        size_t end = tag_end(x, at, "#}", true);
        if (!end) continue;
        advance(x, end);
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

static int lex_name(struct lexer *x, bool *done)
{
    size_t at = x->at, len;
    while (at < x->n && name_char(x, at, &len))
        at += len;
    *done = at > x->at;
    if (!*done) return 0;
    struct token t = {.type = T_NAME, .line = x->line};
    TRY(compile_str(x->c, x->s + x->at, at - x->at, &t.s));
    advance(x, at);
    return push_token(x, t);
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
    TRY(lex_unescape(x->c, x->s + x->at + 1, at - x->at - 1, x->line, &t.s));
    advance(x, at + 1);
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
    static const char two[][3] = {"==", "!=", ">=", "<=", "//", "**"};
    char ch = x->s[x->at];
    struct token t = {.type = T_OP, .line = x->line};
    for (size_t i = 0; i < countof(two); i++)
        if (at_mark(x, x->at, two[i])) t.op = OP2(two[i][0], two[i][1]);
    if (!t.op && ch && strchr("+-/*%~[](){}><=.:|,;", ch)) t.op = (unsigned char)ch;
    if (!t.op) {
        size_t len;
        utf8_decode(x->s + x->at, x->n - x->at, &len);
        return compile_fail(x->line, "unexpected char '%.*s' at %zu", (int)len, x->s + x->at,
                            utf8_count(x->s, x->at));
    }
    if (t.op < 256) TRY(lex_bracket(x, ch));
    advance(x, x->at + (t.op < 256 ? 1 : 2));
    return push_token(x, t);
}

/* One token inside a tag. */
static int lex_inside(struct lexer *x)
{
    char ch = x->s[x->at];
    bool digit = ch >= '0' && ch <= '9', done;
    if (digit) {
        struct token t = {.line = x->line};
        size_t used;
        bool dotted = x->at > 0 && x->s[x->at - 1] == '.'; /* a.0.5 is two subscripts */
        TRY(lex_number(x->s + x->at, dotted ? strspn(x->s + x->at, "0123456789_") : x->n - x->at,
                       &t, &used));
        if (used) {
            advance(x, x->at + used);
            return push_token(x, t);
        }
    }
    TRY(lex_name(x, &done));
    if (done) {
        const struct token *t = &x->c->tok[x->c->n_tok - 1];
        if (t->s->s[0] >= '0' && t->s->s[0] <= '9')
            return compile_fail(t->line, "Invalid character in identifier");
        return 0;
    }
    if (ch == '"' || ch == '\'') return lex_string(x);
    return lex_operator(x);
}

static int lex_tag(struct lexer *x, bool block)
{
    struct token t = {.type = block ? T_BLOCK_BEGIN : T_VAR_BEGIN, .line = x->line};
    TRY(push_token(x, t));
    advance(x, x->at + 2 + (tag_sign(x, x->at + 2) != 0));
    x->n_bracket = 0;
    while (x->at < x->n) {
        size_t end = x->n_bracket ? 0 : tag_end(x, x->at, block ? "%}" : "}}", block);
        if (end) {
            t = (struct token){.type = block ? T_BLOCK_END : T_VAR_END, .line = x->line};
            TRY(push_token(x, t));
            advance(x, end);
            return 0;
        }
        size_t p = skip_space(x, x->at);
        if (p > x->at) {
            advance(x, p);
            continue;
        }
        TRY(lex_inside(x));
    }
    return 0; /* the parser reports the missing end */
}

static int lex_root(struct lexer *x)
{
    size_t at = x->at;
    while (at < x->n &&
           !(x->s[at] == '{' && at + 1 < x->n && x->s[at + 1] && strchr("%{#", x->s[at + 1])))
        at++;
    if (at >= x->n) {
        TRY(push_data(x, x->n, '+', false));
        advance(x, x->n);
        return 0;
    }
    char kind = x->s[at + 1], sign = tag_sign(x, at + 2);
    TRY(push_data(x, at, sign, kind != '{'));
    advance(x, at);
    if (kind == '#') return lex_comment(x);
    size_t raw = kind == '%' ? raw_begin(x, at) : 0;
    return raw ? lex_raw(x, raw) : lex_tag(x, kind == '%');
}

int lex_all(struct compile *c, const char *src, size_t n)
{
    char *s;
    COMPILE_NEW(c, s, n + 1);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) { /* \r\n and \r are newlines */
        if (src[i] == '\r') {
            s[k++] = '\n';
            i += i + 1 < n && src[i + 1] == '\n';
        } else {
            s[k++] = src[i];
        }
    }
    if (k && s[k - 1] == '\n') k--;
    s[k] = 0;
    struct lexer x = {.c = c, .s = s, .n = k, .line = 1, .line_starting = true};
    int e = 0;
    while (x.at < x.n && e >= 0)
        e = lex_root(&x);
    if (e < 0 && e != ERR_FORMAT) return e;
    if (e < 0) { /* told when the parser comes to it, after errors before it */
        c->lex_error = e;
        snprintf(c->lex_text, sizeof c->lex_text, "%s", err_last());
    }
    return push_token(&x, (struct token){.type = T_EOF, .line = x.line});
}

/* regex.c - makes automata of regular expressions of ECMA 262.  A repetition parses its atom again for each copy,
 * so no tree is kept.  Constructs that are not regular (backreferences, lookaround) or need the tables of Unicode
 * (\p) are refused by name. */
#include "base/utf8.h"
#include "schema/dfa.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RANGES = 1024, MOST_NEST = 200, MOST_REPEAT = 4096 };

struct range {
    uint32_t lo, hi;
};
struct set {
    struct range v[MOST_RANGES];
    uint32_t n;
};
struct regex_parser {
    struct nfa *a;
    const char *s;
    size_t n, at;
    const char *where;
    uint32_t nest;
    struct set *set; /* owned scratch: the character class that is being read */
};
struct fragment { /* a part of the automaton, between two states */
    uint32_t in, out;
};

static int refuse_pattern(const struct regex_parser *p, const char *what)
{
    return ERR(UNSUPPORTED, "%s: pattern: %s is not supported, at byte %zu of \"%.100s\"", p->where,
               what, p->at, p->s);
}

static int wrong(const struct regex_parser *p, const char *what)
{
    return ERR(FORMAT, "%s: pattern: %s, at byte %zu of \"%.100s\"", p->where, what, p->at, p->s);
}

static bool next_is(const struct regex_parser *p, const char *text)
{
    size_t n = strlen(text);
    return p->n - p->at >= n && !memcmp(p->s + p->at, text, n);
}

static bool take_literal(struct regex_parser *p, const char *text)
{
    if (!next_is(p, text)) return false;
    p->at += strlen(text);
    return true;
}

static uint32_t take_char(struct regex_parser *p)
{
    size_t k;
    uint32_t cp = utf8_decode(p->s + p->at, p->n - p->at, &k);
    p->at += k;
    return cp;
}

/* --- sets of characters */

static int put_range(struct regex_parser *p, uint32_t lo, uint32_t hi)
{
    if (p->set->n == MOST_RANGES) return wrong(p, "a class has too many ranges");
    p->set->v[p->set->n++] = (struct range){lo, hi};
    return 0;
}

static int by_lo(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Sorts the ranges from `first` on and joins those that touch.  invert: replaces them by their complement. */
static int merge_ranges(struct regex_parser *p, uint32_t first, bool invert)
{
    struct set *s = p->set;
    uint32_t n = first, at = 0;
    qsort(s->v + first, s->n - first, sizeof *s->v, by_lo);
    for (uint32_t i = first; i < s->n; i++) {
        if (n > first && s->v[i].lo <= s->v[n - 1].hi + 1)
            s->v[n - 1].hi = MAX(s->v[n - 1].hi, s->v[i].hi);
        else
            s->v[n++] = s->v[i];
    }
    s->n = n;
    if (!invert) return 0;
    n = first;
    for (uint32_t i = first; i < s->n; i++) {
        struct range r = s->v[i];
        if (r.lo > at)
            s->v[n++] = (struct range){at, r.lo - 1}; /* n <= i: one gap before each range */
        at = r.hi + 1;
    }
    s->n = n;
    return at <= CP_LAST ? put_range(p, at, CP_LAST) : 0;
}

/* Adds the class \d, \w or \s; a capital letter adds its complement. */
static int put_named(struct regex_parser *p, char name)
{
    static const struct range digit[] = {{'0', '9'}},
                              word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                              space[] = {{9, 13},          {32, 32},         {0xA0, 0xA0},
                                         {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                                         {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
                                         {0xFEFF, 0xFEFF}};
    char small = (char)(name | 0x20);
    const struct range *v = small == 'd' ? digit : small == 'w' ? word : space;
    uint32_t n = small == 'd' ? countof(digit) : small == 'w' ? countof(word) : countof(space);
    uint32_t first = p->set->n;
    for (uint32_t i = 0; i < n; i++)
        TRY(put_range(p, v[i].lo, v[i].hi));
    return name == small ? 0 : merge_ranges(p, first, true);
}

static int take_hex(struct regex_parser *p, uint32_t least, uint32_t most, uint32_t *out)
{
    uint32_t v = 0, n = 0;
    for (; n < most && p->at < p->n; n++, p->at++) {
        char c = p->s[p->at];
        uint32_t d = c >= '0' && c <= '9'                     ? (uint32_t)(c - '0')
                     : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (uint32_t)((c | 0x20) - 'a' + 10)
                                                              : 16;
        if (d == 16) break;
        v = v << 4 | d;
    }
    *out = v;
    return n >= least && v <= CP_LAST ? 0 : wrong(p, "hexadecimal digits are missing");
}

/* Reads the digits behind \u. */
static int take_unicode(struct regex_parser *p, uint32_t *out)
{
    uint32_t low;
    if (take_literal(p, "{")) {
        TRY(take_hex(p, 1, 6, out));
        return take_literal(p, "}") ? 0 : wrong(p, "} is missing");
    }
    TRY(take_hex(p, 4, 4, out));
    if (*out < 0xD800 || *out > 0xDBFF || !next_is(p, "\\u")) return 0;
    p->at += 2;
    TRY(take_hex(p, 4, 4, &low));
    if (low < 0xDC00 || low > 0xDFFF) return wrong(p, "a surrogate stands alone");
    *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
    return 0;
}

/* Reads an escape, behind the backslash.  Returns 1 with a character in *cp, or 0: a class was added to the set. */
static int take_escape(struct regex_parser *p, bool inside, uint32_t *cp)
{
    static const char letters[] = "tnvfr0", codes[] = "\t\n\v\f\r";
    if (p->at == p->n) return wrong(p, "nothing follows a backslash");
    char c = p->s[p->at];
    if (c && strchr("dDwWsS", c)) {
        p->at++;
        return put_named(p, c);
    }
    if (c == 'p' || c == 'P') return refuse_pattern(p, "\\p, a class of Unicode,");
    if ((c == 'b' && !inside) || c == 'B') return refuse_pattern(p, "\\b, the edge of a word,");
    if ((c >= '1' && c <= '9') || c == 'k') return refuse_pattern(p, "a backreference");
    *cp = take_char(p);
    const char *known = c ? strchr(letters, c) : NULL;
    if (c == 'b')
        *cp = 8;
    else if (known)
        *cp = (uint8_t)codes[known - letters];
    else if (c == 'x')
        TRY(take_hex(p, 2, 2, cp));
    else if (c == 'u')
        TRY(take_unicode(p, cp));
    else if (c == 'c' && p->at < p->n && (p->s[p->at] | 0x20) >= 'a' && (p->s[p->at] | 0x20) <= 'z')
        *cp = (uint32_t)p->s[p->at++] & 31;
    else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')
        return wrong(p, "no such escape");
    return 1;
}

/* Reads one end of a range, or a class.  Returns 1 for a character in *cp. */
static int class_atom(struct regex_parser *p, uint32_t *cp)
{
    if (take_literal(p, "\\")) return take_escape(p, true, cp);
    *cp = take_char(p);
    return 1;
}

static int take_class(struct regex_parser *p)
{
    bool invert = take_literal(p, "^");
    uint32_t first = p->set->n, lo, hi;
    while (!take_literal(p, "]")) {
        if (p->at == p->n) return wrong(p, "] is missing");
        int one = class_atom(p, &lo);
        if (one < 0) return one;
        bool ranged = one && p->n - p->at > 1 && p->s[p->at] == '-' && p->s[p->at + 1] != ']';
        if (!one) continue;
        hi = lo;
        if (ranged) {
            p->at++;
            one = class_atom(p, &hi);
            if (one < 0) return one;
            if (!one) { /* [a-\d]: the dash stands for itself */
                TRY(put_range(p, '-', '-'));
                hi = lo;
            }
        }
        if (hi < lo) return wrong(p, "a range ends before it begins");
        TRY(put_range(p, lo, hi));
    }
    return merge_ranges(p, first, invert);
}

/* --- pieces of the automaton */

static int new_part(struct regex_parser *p, struct fragment *out)
{
    TRY(nfa_state(p->a, &out->in));
    return nfa_state(p->a, &out->out);
}

/* Makes the piece for one character of the set, and clears the set. */
static int set_part(struct regex_parser *p, struct fragment *out)
{
    TRY(merge_ranges(p, 0, false));
    TRY(new_part(p, out));
    for (uint32_t i = 0; i < p->set->n; i++)
        TRY(nfa_edge(p->a, out->in, NFA_RANGE, p->set->v[i].lo, p->set->v[i].hi, out->out));
    p->set->n = 0;
    return 0;
}

static int take_alternatives(struct regex_parser *p, struct fragment *out);

static int take_group(struct regex_parser *p, struct fragment *out)
{
    if (next_is(p, "?=") || next_is(p, "?!")) return refuse_pattern(p, "lookahead");
    if (next_is(p, "?<=") || next_is(p, "?<!")) return refuse_pattern(p, "lookbehind");
    if (take_literal(p, "?<")) {
        while (p->at < p->n && p->s[p->at] != '>')
            p->at++;
        if (!take_literal(p, ">")) return wrong(p, "> is missing");
    } else if (next_is(p, "?") && !take_literal(p, "?:")) {
        return refuse_pattern(p, "this kind of group");
    }
    if (++p->nest > MOST_NEST) return wrong(p, "groups are nested too deeply");
    TRY(take_alternatives(p, out));
    p->nest--;
    return take_literal(p, ")") ? 0 : wrong(p, ") is missing");
}

static int edge_part(struct regex_parser *p, enum nfa_kind kind, struct fragment *out)
{
    TRY(new_part(p, out));
    return nfa_edge(p->a, out->in, kind, 0, 0, out->out);
}

static int take_atom(struct regex_parser *p, struct fragment *out)
{
    uint32_t cp;
    if (take_literal(p, "^")) return edge_part(p, NFA_BEGIN, out);
    if (take_literal(p, "$")) return edge_part(p, NFA_END, out);
    if (take_literal(p, "(")) return take_group(p, out);
    if (take_literal(p, "[")) {
        TRY(take_class(p));
    } else if (take_literal(p, ".")) {
        TRY(put_range(p, '\n', '\n'));
        TRY(put_range(p, '\r', '\r'));
        TRY(put_range(p, 0x2028, 0x2029));
        TRY(merge_ranges(p, 0, true));
    } else if (take_literal(p, "\\")) {
        int one = take_escape(p, false, &cp);
        if (one < 0) return one;
        if (one) TRY(put_range(p, cp, cp));
    } else if (strchr("*+?", p->s[p->at])) {
        return wrong(p, "nothing to repeat");
    } else {
        cp = take_char(p);
        TRY(put_range(p, cp, cp));
    }
    return set_part(p, out);
}

static bool take_number(struct regex_parser *p, uint32_t *out)
{
    size_t from = p->at;
    uint64_t v = 0;
    for (; p->at < p->n && p->s[p->at] >= '0' && p->s[p->at] <= '9'; p->at++)
        v = MIN(v * 10 + (uint64_t)(p->s[p->at] - '0'), (uint64_t)UINT32_MAX - 1);
    *out = (uint32_t)v;
    return p->at > from;
}

/* Reads a quantifier, if one follows; max UINT32_MAX: no limit. */
static bool take_times(struct regex_parser *p, uint32_t *min, uint32_t *max)
{
    size_t before = p->at;
    *min = *max = 1;
    if (take_literal(p, "*")) {
        *min = 0;
        *max = UINT32_MAX;
    } else if (take_literal(p, "+")) {
        *max = UINT32_MAX;
    } else if (take_literal(p, "?")) {
        *min = 0;
    } else {
        bool good = take_literal(p, "{") && take_number(p, min);
        *max = *min;
        if (good && take_literal(p, ",") && !take_number(p, max)) *max = UINT32_MAX;
        if (!good || !take_literal(p, "}")) {
            p->at = before; /* a brace that begins no quantifier stands for itself */
            *min = *max = 1;
            return false;
        }
    }
    (void)take_literal(p, "?"); /* a lazy quantifier matches the same texts */
    return true;
}

static int take_repeated(struct regex_parser *p, struct fragment *out)
{
    size_t from = p->at, end;
    uint32_t min, max, last;
    struct fragment one;
    TRY(take_atom(p, &one));
    if (!take_times(p, &min, &max)) {
        *out = one;
        return 0;
    }
    end = p->at;
    if (max < min) return wrong(p, "a repetition whose maximum is below its minimum");
    if (min > MOST_REPEAT || (max != UINT32_MAX && max > MOST_REPEAT))
        return refuse_pattern(p, "a repetition of more than 4096 times");
    TRY(new_part(p, out));
    last = out->in;
    uint32_t copies = max == UINT32_MAX ? min + 1 : max;
    for (uint32_t i = 0; i < copies; i++) {
        if (i >= min) TRY(nfa_edge(p->a, last, NFA_EMPTY, 0, 0, out->out));
        if (i > 0) {
            p->at = from;
            TRY(take_atom(p, &one));
        }
        TRY(nfa_edge(p->a, last, NFA_EMPTY, 0, 0, one.in));
        last = one.out;
        if (i == min && max == UINT32_MAX) TRY(nfa_edge(p->a, last, NFA_EMPTY, 0, 0, one.in));
    }
    p->at = end;
    return nfa_edge(p->a, last, NFA_EMPTY, 0, 0, out->out);
}

static int take_sequence(struct regex_parser *p, struct fragment *out)
{
    struct fragment one;
    TRY(nfa_state(p->a, &out->in));
    out->out = out->in;
    while (p->at < p->n && !next_is(p, "|") && !next_is(p, ")")) {
        TRY(take_repeated(p, &one));
        TRY(nfa_edge(p->a, out->out, NFA_EMPTY, 0, 0, one.in));
        out->out = one.out;
    }
    return 0;
}

static int take_alternatives(struct regex_parser *p, struct fragment *out)
{
    struct fragment one;
    TRY(new_part(p, out));
    do {
        TRY(take_sequence(p, &one));
        TRY(nfa_edge(p->a, out->in, NFA_EMPTY, 0, 0, one.in));
        TRY(nfa_edge(p->a, one.out, NFA_EMPTY, 0, 0, out->out));
    } while (take_literal(p, "|"));
    return 0;
}

static int parse_all(struct regex_parser *p, uint32_t mark)
{
    struct fragment all;
    uint32_t in, out;
    if (!p->a->n) TRY(nfa_state(p->a, &p->a->start));
    TRY(nfa_state(p->a, &in));
    TRY(nfa_edge(p->a, p->a->start, NFA_EMPTY, 0, 0, in));
    TRY(nfa_edge(p->a, in, NFA_RANGE, 0, CP_LAST, in));
    TRY(take_alternatives(p, &all));
    if (p->at < p->n) return wrong(p, "a ) that closes nothing");
    TRY(nfa_state(p->a, &out));
    TRY(nfa_edge(p->a, in, NFA_EMPTY, 0, 0, all.in));
    TRY(nfa_edge(p->a, all.out, NFA_EMPTY, 0, 0, out));
    TRY(nfa_edge(p->a, out, NFA_RANGE, 0, CP_LAST, out));
    p->a->accept[out] = mark + 1;
    return 0;
}

int nfa_regex(struct nfa *a, const char *s, size_t n, uint32_t mark, const char *where)
{
    struct regex_parser p = {.a = a, .s = s, .n = n, .where = where};
    if (!(p.set = mem_alloc(sizeof *p.set))) return ERR_NOMEM;
    int e = parse_all(&p, mark);
    mem_free(p.set);
    return e;
}

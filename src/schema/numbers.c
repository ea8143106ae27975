/* numbers.c - makes the automaton of a number's bytes.  An integer is digits only, without a fraction or an
 * exponent.  Any other number may have both.  If a keyword limits the value, an exponent is not allowed: the
 * digits are then compared with those of the limit, or counted modulo the divisor, exactly. */
#include "schema/compile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INTEGER  "^-?(0|[1-9][0-9]*)$"
#define DECIMAL  "^-?(0|[1-9][0-9]*)(\\.[0-9]+)?$"
#define FRACTION "^-?(0|[1-9][0-9]*)\\.[0-9]*[1-9][0-9]*$"
#define NUMBER   "^-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][-+]?[0-9]+)?$"

enum { DIGITS = 800, DIVISOR = 20000 };

/* A number as its significant digits, without leading and trailing zeros; both parts empty: zero. */
struct decimal {
    bool negative;
    char whole[DIGITS], part[DIGITS];
    uint32_t n_whole, n_part;
};

/* Splits significant digits at the point, which stands behind the first `before` of them (`before` may be
 * negative). */
static int split(const char *digit, int n, int before, struct decimal *out)
{
    while (n > 0 && digit[n - 1] == '0')
        n--;
    if (before > DIGITS - 20 || n - before > DIGITS - 20)
        return ERR(
            LIMIT,
            "a number has %d digits before the point and %d behind it, the limit of each is %d",
            MAX(before, 0), MAX(n - before, 0), DIGITS - 20);
    for (int i = 0; i < before; i++)
        out->whole[out->n_whole++] = i < n ? digit[i] : '0';
    for (int i = before; i < n; i++)
        out->part[out->n_part++] = i < 0 ? '0' : digit[i];
    return 0;
}

static int read_decimal(const json_t *v, struct decimal *out)
{
    char text[64], digit[32];
    int n = 0;
    *out = (struct decimal){0};
    if (json_is_integer(v)) {
        long long i = json_integer_value(v);
        out->negative = i < 0;
        n = snprintf(digit, sizeof digit, "%llu",
                     i < 0 ? 0ull - (unsigned long long)i : (unsigned long long)i);
        return i ? split(digit, n, n, out) : 0;
    }
    double d = json_real_value(v);
    if (d == 0) return 0;
    for (int k = 0; k < 17; k++) { /* finds the fewest digits that read back as this number */
        snprintf(text, sizeof text, "%.*e", k, d);
        if (strtod(text, NULL) == d) break;
    }
    out->negative = d < 0;
    const char *e = strchr(text, 'e');
    for (const char *p = text; p < e; p++) /* some locales write the point as another character */
        if (*p >= '0' && *p <= '9') digit[n++] = *p;
    return split(digit, n, (int)strtol(e + 1, NULL, 10) + 1, out);
}

/* --- automata that are computed: a function gives the state that follows a state */

struct build {
    uint64_t (*step)(const void *ctx, uint64_t state, char c); /* UINT64_MAX: dead */
    bool (*accept)(const void *ctx, uint64_t state);
    const void *ctx;
    struct dfa_states states;
};

/* The first characters of spans.  Each character that a decimal can have is a span of its own. */
static const uint32_t spans[] = {0,   '-', '.', '/', '0', '1', '2', '3',
                                 '4', '5', '6', '7', '8', '9', ':'};

static int build_dfa(struct build *b, struct dfa **out)
{
    uint32_t q, n = countof(spans), *next = NULL, cap = 0;
    struct dfa *d = NULL;
    int e = dfa_state(&b->states, 0, &q);
    for (uint32_t i = 0; e >= 0 && i < b->states.n; i++) {
        if (i == cap) {
            cap = cap ? cap * 2 : 64;
            uint32_t *more = mem_grow(next, (size_t)cap * n, sizeof *more);
            if (!more) e = ERR_NOMEM;
            if (more) next = more;
        }
        if (e >= 0) e = dfa_pay(4 * (uint64_t)n);
        for (uint32_t k = 0; e >= 0 && k < n; k++) {
            bool one = k > 0 && spans[k] != '/' && spans[k] != ':';
            uint64_t to = one ? b->step(b->ctx, b->states.key[i], (char)spans[k]) : UINT64_MAX;
            next[(size_t)i * n + k] = DFA_DEAD;
            if (to != UINT64_MAX) e = dfa_state(&b->states, to, &next[(size_t)i * n + k]);
        }
    }
    if (e >= 0) e = dfa_new(b->states.n, spans, n, &d);
    for (uint32_t i = 0; e >= 0 && i < b->states.n; i++)
        d->accept[i] = b->accept(b->ctx, b->states.key[i]);
    if (e >= 0) memcpy(d->next, next, (size_t)b->states.n * n * sizeof *next);
    if (e >= 0) e = dfa_trim(d);
    mem_free(next);
    dfa_states_done(&b->states);
    if (e < 0)
        dfa_drop(d);
    else
        *out = d;
    return e;
}

/* --- limits.  A state says how the digits so far compare with the limit. */

enum order { SAME, LESS, MORE }; /* 0 means that no digit has been read */
struct limit {
    struct decimal of;
    bool other; /* any value but the limit is allowed */
    /* below: values below the limit are allowed, else those above; equal: the limit itself is allowed */
    bool below, equal;
};
union at {
    struct {
        /* number of digits before the point, at most one more than the limit has; or of those behind the point */
        uint16_t digits;
        uint8_t order; /* how the digits so far compare with as many digits of the limit */
        uint8_t negative : 1, signed_ : 1, begun : 1, behind : 1, nonzero : 1;
        uint32_t unused;
    };
    uint64_t state;
};

/* Returns the order of the absolute values when the digits before the point are complete. */
static enum order whole_order(const struct limit *l, const union at *a)
{
    uint32_t n = a->nonzero ? a->digits : 0; /* a "0" before the point is not counted as a digit */
    if (n != l->of.n_whole) return n < l->of.n_whole ? LESS : MORE;
    return (enum order)a->order;
}

static uint64_t limit_step(const void *ctx, uint64_t state, char c)
{
    const struct limit *l = ctx;
    union at a = {.state = state};
    if (c == '-') {
        if (a.signed_ || a.begun) return UINT64_MAX;
        a.negative = a.signed_ = 1;
        return a.state;
    }
    if (c == '.') {
        if (!a.begun || a.behind) return UINT64_MAX;
        a.order = (uint8_t)whole_order(l, &a);
        a.behind = 1;
        a.digits = 0;
        return a.state;
    }
    const char *of = a.behind ? l->of.part : l->of.whole;
    uint32_t n = a.behind ? l->of.n_part : l->of.n_whole;
    bool leading = !a.behind && c == '0' && !a.nonzero;
    char other = a.digits < n ? of[a.digits] : '0';
    a.begun = 1;
    if (leading) return a.state;
    a.nonzero |= c != '0';
    if (a.order == SAME) a.order = c < other ? LESS : c > other ? MORE : SAME;
    if (a.digits <= n) a.digits++;
    return a.state;
}

static bool limit_accept(const void *ctx, uint64_t state)
{
    const struct limit *l = ctx;
    union at a = {.state = state};
    if (!a.begun) return false;
    enum order o = a.behind ? (enum order)a.order : whole_order(l, &a);
    if (o == SAME && (a.behind ? a.digits : 0) < l->of.n_part) o = LESS;
    bool negative = a.negative && a.nonzero;
    if (negative != l->of.negative)
        o = negative ? LESS : MORE;
    else if (negative && o != SAME)
        o = o == LESS ? MORE : LESS;
    if (l->other) return o != SAME;
    return o == SAME ? l->equal : (o == LESS) == l->below;
}

static int compare_dfa(const struct compiler *c, const struct item *it, const json_t *v,
                       const char *name, const struct limit *kind, struct dfa **d)
{
    struct dfa *more;
    struct limit *l = mem_alloc(sizeof *l);
    if (!l) return ERR_NOMEM;
    *l = *kind;
    struct build b = {.step = limit_step, .accept = limit_accept, .ctx = l};
    int e = read_decimal(v, &l->of);
    if (e >= 0) e = build_dfa(&b, &more);
    if (e < 0) err_prefix(e, "%s: %s: %s", c->what, it->path, name);
    mem_free(l);
    return e < 0 ? e : narrow(d, more);
}

static int limit_dfa(const struct compiler *c, const struct item *it, const char *name, bool below,
                     bool equal, struct dfa **d)
{
    const json_t *v = keyword(it, name), *no = against(it, name);
    const json_t *old = keyword(it, below ? "exclusiveMaximum" : "exclusiveMinimum");
    /* a boolean is draft 4: it stands beside minimum or maximum */
    if (json_is_boolean(v)) return 0;
    if (equal && json_is_true(old)) equal = false;
    struct limit *kind = v || no ? mem_alloc(sizeof *kind) : NULL;
    if (!v && !no) return 0;
    if (!kind) return ERR_NOMEM;
    kind->below = v ? below : !below;
    kind->equal = v ? equal : !equal;
    int e = compare_dfa(c, it, v ? v : no, name, kind, d);
    mem_free(kind);
    return e;
}

/* Narrows to numbers that are not in a list. */
static int forbid(const struct compiler *c, const struct item *it, struct dfa **d)
{
    struct item list;
    int e = 0;
    if (!forbidden(it, &list)) return 0;
    struct limit *kind = mem_alloc(sizeof *kind);
    if (!kind) return ERR_NOMEM;
    kind->other = true;
    for (size_t i = 0; e >= 0 && i < n_scalars(&list); i++)
        if (json_is_number(scalar(&list, i)))
            e = compare_dfa(c, it, scalar(&list, i), it->key, kind, d);
    mem_free(kind);
    return e;
}

/* --- multipleOf: the divisor is p / 10^d.  A state is the digits so far modulo p, and the number of digits behind
 * the point. */

struct divisor {
    uint64_t p;
    uint32_t d;
};
enum { BEHIND_SHIFT = 32, BEGUN = 1 << 30, SIGNED = 1 << 29, POINT = 1 << 28, REST = POINT - 1 };

static uint64_t divisor_step(const void *ctx, uint64_t state, char c)
{
    const struct divisor *v = ctx;
    uint64_t behind = state >> BEHIND_SHIFT;
    if (c == '-') return state & (BEGUN | SIGNED) ? UINT64_MAX : state | SIGNED;
    if (c == '.') return !(state & BEGUN) || state & POINT || !v->d ? UINT64_MAX : state | POINT;
    if (state & POINT && behind++ == v->d) return UINT64_MAX;
    uint64_t rest = ((state & REST) * 10 + (uint64_t)(c - '0')) % v->p;
    return behind << BEHIND_SHIFT | (state & (SIGNED | POINT)) | BEGUN | rest;
}

static bool divisor_accept(const void *ctx, uint64_t state)
{
    const struct divisor *v = ctx;
    uint64_t rest = state & REST;
    for (uint64_t i = state >> BEHIND_SHIFT; i < v->d; i++)
        rest = rest * 10 % v->p;
    return state & BEGUN && rest == 0;
}

static int divisor_dfa(const struct compiler *c, const struct item *it, struct dfa **d)
{
    const json_t *v = keyword(it, "multipleOf"), *no = against(it, "multipleOf");
    struct dfa *more, *other = NULL;
    if (no) v = no;
    if (!v) return 0;
    struct decimal *of = mem_alloc(sizeof *of);
    if (!of) return ERR_NOMEM;
    int e = read_decimal(v, of);
    struct divisor div = {.d = of->n_part};
    for (uint32_t i = 0; i < of->n_whole + of->n_part && div.p <= DIVISOR; i++)
        div.p = div.p * 10 +
                (uint64_t)((i < of->n_whole ? of->whole[i] : of->part[i - of->n_whole]) - '0');
    mem_free(of);
    if (e < 0 || div.p > DIVISOR || div.d > 9)
        return bad_keyword(c, ERR_UNSUPPORTED, it->path, "multipleOf",
                           "has more digits than is supported (20000, with a point anywhere)");
    struct build b = {.step = divisor_step, .accept = divisor_accept, .ctx = &div};
    TRY(build_dfa(&b, &more));
    if (no) {
        e = dfa_not(more, &other);
        dfa_drop(more);
        if (e < 0) return e;
        more = other;
    }
    return narrow(d, more);
}

/* --- numbers of an enum */

/* Adds the spellings of a number: as an integer digits only, and as a float what programming languages write. */
static int add_spellings(struct nfa *a, const json_t *v)
{
    struct decimal *of = mem_alloc(sizeof *of);
    struct buf text;
    if (!of) return ERR_NOMEM;
    buf_init(&text, 4 * DIGITS);
    int e = read_decimal(v, of);
    if (e >= 0 && of->negative) e = buf_putc(&text, '-');
    if (e >= 0) e = of->n_whole ? buf_append(&text, of->whole, of->n_whole) : buf_putc(&text, '0');
    if (e >= 0 && of->n_part) e = buf_putc(&text, '.');
    if (e >= 0) e = buf_append(&text, of->part, of->n_part);
    if (e >= 0) e = nfa_text(a, text.data, text.len, 0);
    if (e >= 0 && !of->n_part && json_is_real(v)) {
        e = buf_puts(&text, ".0");
        if (e >= 0) e = nfa_text(a, text.data, text.len, 0);
    }
    buf_done(&text);
    mem_free(of);
    return e;
}

static int listed(const struct item *it, struct dfa **out)
{
    struct nfa a = {0};
    int e = nfa_state(&a, &a.start);
    for (size_t i = 0; e >= 0 && i < n_scalars(it); i++)
        if (json_is_number(scalar(it, i))) e = add_spellings(&a, scalar(it, i));
    if (e >= 0) e = nfa_determine(&a, NULL, out);
    nfa_done(&a);
    return e;
}

static int narrow_by_atom(const struct compiler *c, const struct item *it, struct dfa **d)
{
    struct dfa *more;
    if (lists_values(it)) {
        TRY(listed(it, &more));
        TRY(narrow(d, more));
    }
    TRY(limit_dfa(c, it, "minimum", false, true, d));
    TRY(limit_dfa(c, it, "maximum", true, true, d));
    TRY(limit_dfa(c, it, "exclusiveMinimum", false, false, d));
    TRY(limit_dfa(c, it, "exclusiveMaximum", true, false, d));
    TRY(forbid(c, it, d));
    return divisor_dfa(c, it, d);
}

int make_number(struct compiler *c, const struct items *atoms, unsigned types, struct basic *b)
{
    struct dfa *shape;
    for (uint32_t i = 0; i < atoms->n; i++)
        TRY(narrow_by_atom(c, &atoms->v[i], &b->dfa));
    const char *text = !(types & T_FRACTION) ? INTEGER
                       : !(types & T_INT)    ? FRACTION
                       : b->dfa              ? DECIMAL
                                             : NUMBER;
    TRY(pattern_dfa(text, strlen(text), "number", &shape));
    return narrow(&b->dfa, shape);
}

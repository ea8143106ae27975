/* strings.c - makes the automaton of a string from pattern, format, minLength, maxLength and the strings of an
 * enum. */
#include "schema/compile.h"

#include <stdio.h>
#include <string.h>

int narrow(struct dfa **d, struct dfa *b)
{
    struct dfa *both = NULL;
    if (!*d) {
        *d = b;
        return 0;
    }
    int e = dfa_both(*d, b, false, &both);
    dfa_drop(b);
    if (e < 0) return e;
    dfa_drop(*d);
    *d = both;
    return 0;
}

int pattern_dfa(const char *pattern, size_t n, const char *where, struct dfa **out)
{
    struct nfa a = {0};
    int e = nfa_regex(&a, pattern, n, 0, where);
    if (e >= 0) e = nfa_determine(&a, NULL, out);
    nfa_done(&a);
    return e;
}

/* Makes the automaton of the strings that an atom lists. */
static int listed(const struct item *it, struct dfa **out)
{
    struct nfa a = {0};
    int e = nfa_state(&a, &a.start);
    for (size_t i = 0; e >= 0 && i < n_scalars(it); i++) {
        const json_t *v = scalar(it, i);
        if (json_is_string(v)) e = nfa_text(&a, json_string_value(v), json_string_length(v), 0);
    }
    if (e >= 0) e = nfa_determine(&a, NULL, out);
    nfa_done(&a);
    return e;
}

/* Formats are regular languages, even with the days of a month and leap years. */
#define LEAP "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[048]|[2468][048]|[13579][26])00)"
#define DATE                                                                                       \
    "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-("  \
    "0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define TIME                                                                                         \
    "(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?([Zz]|[-+]([01][0-9]|2[0-3]):[0-5][0-9])|" \
    "23:59:60(\\.[0-9]+)?[Zz])"
#define BYTE     "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define DURATION "([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
#define DAYS     "([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"
static const struct {
    const char *name, *pattern;
} formats[] = {
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "[Tt]" TIME "$"},
    {"duration", "^P(" DAYS "(T" DURATION ")?|T" DURATION "|[0-9]+W)$"},
    {"ipv4", "^" BYTE "(\\." BYTE "){3}$"},
};

static int format_dfa(const struct compiler *c, const struct item *it, const char *name,
                      struct dfa **out)
{
    char text[128];
    for (size_t i = 0; i < countof(formats); i++)
        if (!strcmp(formats[i].name, name))
            return pattern_dfa(formats[i].pattern, strlen(formats[i].pattern), it->path, out);
    snprintf(text, sizeof text, "format \"%.80s\"", name);
    return bad_keyword(c, ERR_UNSUPPORTED, it->path, text, "is not supported");
}

/* Narrows by the complement of an automaton, which is freed. */
static int narrow_not(struct dfa **d, struct dfa *b)
{
    struct dfa *other = NULL;
    int e = dfa_not(b, &other);
    dfa_drop(b);
    return e < 0 ? e : narrow(d, other);
}

static int narrow_by_opposite(const struct compiler *c, const struct item *it, struct dfa **d)
{
    const json_t *v;
    struct dfa *more;
    struct item list;
    if (forbidden(it, &list)) {
        TRY(listed(&list, &more));
        TRY(narrow_not(d, more));
    }
    if ((v = against(it, "pattern"))) {
        TRY(pattern_dfa(json_string_value(v), json_string_length(v), it->path, &more));
        TRY(narrow_not(d, more));
    }
    if ((v = against(it, "format"))) {
        TRY(format_dfa(c, it, json_string_value(v), &more));
        TRY(narrow_not(d, more));
    }
    return 0;
}

static int narrow_by_atom(const struct compiler *c, const struct item *it, struct dfa **d)
{
    const json_t *v;
    struct dfa *more;
    if (lists_values(it)) {
        TRY(listed(it, &more));
        TRY(narrow(d, more));
    }
    if ((v = keyword(it, "pattern"))) {
        TRY(pattern_dfa(json_string_value(v), json_string_length(v), it->path, &more));
        TRY(narrow(d, more));
    }
    if ((v = keyword(it, "format"))) {
        TRY(format_dfa(c, it, json_string_value(v), &more));
        TRY(narrow(d, more));
    }
    return 0;
}

int make_string(struct compiler *c, const struct items *atoms, struct basic *b)
{
    struct dfa *length;
    for (uint32_t i = 0; i < atoms->n; i++) {
        TRY(narrow_counts(c, &atoms->v[i], "minLength", "maxLength", &b->min, &b->max));
        TRY(narrow_by_atom(c, &atoms->v[i], &b->dfa));
        TRY(narrow_by_opposite(c, &atoms->v[i], &b->dfa));
    }
    b->any = !b->dfa;
    if (b->any) return dfa_any(&b->dfa);
    if (b->min > 0 || b->max != SCHEMA_MANY) {
        TRY(dfa_length(b->min, b->max == SCHEMA_MANY ? UINT64_MAX : b->max, &length));
        TRY(narrow(&b->dfa, length));
        b->min = 0;
        b->max = SCHEMA_MANY;
    }
    return 0;
}

/* builtin.c - the tests after `is`, and the one table of filters, tests, methods and functions.  A name
 * that only Jinja or Python has is refused where a template uses it. */
#include "chat/builtin.h"

#include <stdio.h>
#include <string.h>

enum modulo_test { MODULO_EVEN, MODULO_ODD, MODULO_ARGUMENT };

static int yes(struct val *out, bool b)
{
    *out = val_bool(b);
    return 0;
}

/* True if self has one of the types whose bits are set in `how`. */
static int t_type(struct builtin_call *c, struct val *out)
{
    return yes(out, (unsigned)c->row->how >> c->self.t & 1);
}

static int t_bool(struct builtin_call *c, struct val *out)
{
    return yes(out, c->self.t == V_BOOL && c->self.b == c->row->how);
}

static int t_sequence(struct builtin_call *c, struct val *out)
{
    struct val v = c->self;
    return yes(out, v.t == V_UNDEF || v.t == V_STR || v.t == V_DICT || val_is_indexed(v));
}

static int t_modulo(struct builtin_call *c, struct val *out)
{
    struct val rest;
    bool b;
    enum modulo_test how = (enum modulo_test)c->row->how;
    TRY(val_binary(c->r, OP_MOD, c->self, how == MODULO_ARGUMENT ? c->a[0] : val_int(2), &rest));
    TRY(val_equal(c->r, rest, val_int(how == MODULO_ODD), &b));
    return yes(out, b);
}

static int t_compare(struct builtin_call *c, struct val *out)
{
    bool b;
    TRY(val_compare(c->r, (enum compare_op)c->row->how, c->self, c->a[0], &b));
    return yes(out, b);
}

static int t_sameas(struct builtin_call *c, struct val *out)
{
    struct val a = c->self, b = c->a[0];
    bool same = a.t == b.t;
    if (same && (val_is_num(a) || a.t == V_STR))
        TRY(val_equal(c->r, a, b, &same));
    else if (same && a.t != V_NONE)
        same = a.dict == b.dict; /* `dict` reads whatever pointer the union holds */
    return yes(out, same);
}

#define BIT(type) (1 << (type))

static const struct fn_row rows[] = {
    {FN_FILTER, "abs", f_abs, "", 0, 0},
    {FN_FILTER | FN_STR | FN_TEXT, "capitalize", f_case, "", 0, CASE_CAPITAL},
    {FN_FILTER | FN_TEXT, "center", f_center, "width", 0, 0},
    {FN_FILTER, "count", f_length, "", 0, 0},
    {FN_FILTER, "d", f_default, "default_value boolean", 0, 0},
    {FN_FILTER, "default", f_default, "default_value boolean", 0, 0},
    {FN_FILTER, "dictsort", f_dictsort, "case_sensitive by reverse", 0, 0},
    {FN_FILTER | FN_TEXT, "e", f_string, "", 0, TEXT_ESCAPED},
    {FN_FILTER | FN_TEXT, "escape", f_string, "", 0, TEXT_ESCAPED},
    {FN_FILTER, "first", f_first, "", 0, 0},
    {FN_FILTER, "float", f_float, "default", 0, 0},
    {FN_FILTER | FN_TEXT, "format", f_percent, NULL, 0, 0},
    {FN_FILTER, "indent", f_indent, "width first blank", 0, 0},
    {FN_FILTER, "int", f_int, "default !base", 0, 0},
    {FN_FILTER, "items", f_items, "", 0, 0},
    {FN_FILTER, "join", f_join, "d attribute", 0, false},
    {FN_FILTER, "last", f_last, "", 0, 0},
    {FN_FILTER, "length", f_length, "", 0, 0},
    {FN_FILTER, "list", f_list, "", 0, 0},
    {FN_FILTER | FN_STR | FN_TEXT, "lower", f_case, "", 0, CASE_LOWER},
    {FN_FILTER, "map", f_map, NULL, 0, 0},
    {FN_FILTER, "max", f_extreme, "case_sensitive attribute", 0, CMP_GT},
    {FN_FILTER, "min", f_extreme, "case_sensitive attribute", 0, CMP_LT},
    {FN_FILTER, "reject", f_pick, NULL, 0, PICK_FAILING},
    {FN_FILTER, "rejectattr", f_pick, NULL, 0, PICK_ATTR | PICK_FAILING},
    {FN_FILTER | FN_TEXT, "replace", f_replace, "old new count", 2, false},
    {FN_FILTER, "reverse", f_reverse, "", 0, 0},
    {FN_FILTER, "round", f_round, "precision !method", 0, 0},
    {FN_FILTER | FN_TEXT, "safe", f_string, "", 0, TEXT_SAFE},
    {FN_FILTER, "select", f_pick, NULL, 0, 0},
    {FN_FILTER, "selectattr", f_pick, NULL, 0, PICK_ATTR},
    {FN_FILTER, "sort", f_sort, "reverse case_sensitive attribute", 0, 0},
    {FN_FILTER | FN_TEXT, "string", f_string, "", 0, TEXT_PLAIN},
    {FN_FILTER, "sum", f_sum, "attribute start", 0, 0},
    {FN_FILTER | FN_TEXT, "title", f_case, "", 0, CASE_WORDS},
    {FN_FILTER, "tojson", f_tojson, "ensure_ascii indent separators sort_keys", 0, 0},
    {FN_FILTER | FN_TEXT, "trim", f_strip, "chars", 0, STRIP_BOTH},
    {FN_FILTER, "truncate", f_truncate, "length killwords end leeway", 0, 0},
    {FN_FILTER, "unique", f_unique, "case_sensitive attribute", 0, 0},
    {FN_FILTER | FN_STR | FN_TEXT, "upper", f_case, "", 0, CASE_UPPER},
    {FN_FILTER | FN_TEXT, "wordcount", f_wordcount, "", 0, 0},

    {FN_TEST, "==", t_compare, "other", 1, CMP_EQ},
    {FN_TEST, "boolean", t_type, "", 0, BIT(V_BOOL)},
    {FN_TEST, "callable", t_type, "", 0,
     BIT(V_UNDEF) | BIT(V_MACRO) | BIT(V_FUNC) | BIT(V_METHOD) | BIT(V_LOOP)},
    {FN_TEST, "defined", t_type, "", 0, ~BIT(V_UNDEF)},
    {FN_TEST, "divisibleby", t_modulo, "num", 1, MODULO_ARGUMENT},
    {FN_TEST, "eq", t_compare, "other", 1, CMP_EQ},
    {FN_TEST, "equalto", t_compare, "other", 1, CMP_EQ},
    {FN_TEST, "even", t_modulo, "", 0, MODULO_EVEN},
    {FN_TEST, "false", t_bool, "", 0, false},
    {FN_TEST, "float", t_type, "", 0, BIT(V_FLOAT)},
    {FN_TEST, "ge", t_compare, "other", 1, CMP_GE},
    {FN_TEST, "gt", t_compare, "other", 1, CMP_GT},
    {FN_TEST, "in", t_compare, "seq", 1, CMP_IN},
    {FN_TEST, "integer", t_type, "", 0, BIT(V_INT)},
    {FN_TEST, "iterable", t_type, "", 0,
     BIT(V_UNDEF) | BIT(V_STR) | BIT(V_SEQ) | BIT(V_DICT) | BIT(V_LOOP)},
    {FN_TEST, "le", t_compare, "other", 1, CMP_LE},
    {FN_TEST, "lt", t_compare, "other", 1, CMP_LT},
    {FN_TEST, "mapping", t_type, "", 0, BIT(V_DICT)},
    {FN_TEST, "ne", t_compare, "other", 1, CMP_NE},
    {FN_TEST, "none", t_type, "", 0, BIT(V_NONE)},
    {FN_TEST, "number", t_type, "", 0, BIT(V_BOOL) | BIT(V_INT) | BIT(V_FLOAT)},
    {FN_TEST, "odd", t_modulo, "", 0, MODULO_ODD},
    {FN_TEST, "sameas", t_sameas, "other", 1, 0},
    {FN_TEST, "sequence", t_sequence, "", 0, 0},
    {FN_TEST, "string", t_type, "", 0, BIT(V_STR)},
    {FN_TEST, "true", t_bool, "", 0, true},
    {FN_TEST, "undefined", t_type, "", 0, BIT(V_UNDEF)},

    {FN_GLOBAL, "dict", g_dict, NULL, 0, V_DICT},
    {FN_GLOBAL, "namespace", g_dict, NULL, 0, V_SPACE},
    {FN_GLOBAL, "raise_exception", g_raise, "message", 1, 0},
    {FN_GLOBAL, "range", g_range, "start stop step", 1, 0},
    {FN_GLOBAL, "strftime_now", g_strftime, "format", 1, 0},

    {FN_STR, "endswith", m_affix, "suffix !start !end", 1, true},
    {FN_STR, "find", m_find, "sub !start !end", 1, false},
    {FN_STR, "format", m_format, NULL, 0, 0},
    {FN_STR, "isalpha", m_class, "", 0, IS_ALPHA},
    {FN_STR, "isdigit", m_class, "", 0, IS_DIGIT},
    {FN_STR, "isspace", m_class, "", 0, IS_SPACE},
    {FN_STR, "join", f_join, "iterable", 1, true},
    {FN_STR, "lstrip", f_strip, "chars", 0, STRIP_LEFT},
    {FN_STR, "removeprefix", m_remove_affix, "prefix", 1, false},
    {FN_STR, "removesuffix", m_remove_affix, "suffix", 1, true},
    {FN_STR, "replace", f_replace, "old new count", 2, true},
    {FN_STR, "rfind", m_find, "sub !start !end", 1, true},
    {FN_STR, "rsplit", m_split, "sep maxsplit", 0, true},
    {FN_STR, "rstrip", f_strip, "chars", 0, STRIP_RIGHT},
    {FN_STR, "split", m_split, "sep maxsplit", 0, false},
    {FN_STR, "splitlines", m_splitlines, "keepends", 0, 0},
    {FN_STR, "startswith", m_affix, "prefix !start !end", 1, false},
    {FN_STR, "strip", f_strip, "chars", 0, STRIP_BOTH},
    {FN_STR, "title", f_case, "", 0, CASE_TITLE},

    {FN_DICT, "get", m_get, "key default", 1, 0},
    {FN_DICT, "items", m_view, "", 0, SEQ_ITEMS},
    {FN_DICT, "keys", m_view, "", 0, SEQ_KEYS},
    {FN_DICT, "values", m_view, "", 0, SEQ_VALUES},
};

/* Names that Jinja or Python has and the table has not.  Names in double underscores are refused without a list. */
static const struct {
    unsigned kinds;
    const char *what, *names; /* each name between blanks */
} refused[] = {
    {FN_FILTER, "filter",
     " attr batch filesizeformat forceescape groupby pprint random slice striptags"
     " urlencode urlize wordwrap xmlattr "},
    {FN_TEST, "test", " != < <= > >= escaped filter greaterthan lessthan lower test upper "},
    {FN_GLOBAL, "function", " cycler joiner lipsum "},
    {FN_STR, "string method",
     " casefold center count encode expandtabs format_map index isalnum isascii isdecimal"
     " isidentifier islower isnumeric isprintable istitle isupper ljust maketrans partition"
     " rindex rjust rpartition swapcase translate zfill "},
    {FN_DICT, "dictionary method", " copy fromkeys "},
    {FN_LIST, "list method", " copy count index "},
};

static bool listed(const char *names, const struct str *name)
{
    for (const char *p = names + 1; *p;) {
        size_t n = strcspn(p, " ");
        if (n == name->n && memcmp(p, name->s, n) == 0) return true;
        p += n + 1;
    }
    return false;
}

const struct fn_row *builtin_find(enum fn_kind kind, const struct str *name)
{
    for (size_t i = 0; i < countof(rows); i++)
        if (rows[i].kinds & kind && str_is(name, rows[i].name)) return &rows[i];
    return NULL;
}

bool builtin_refused(enum fn_kind kind, const struct str *name)
{
    for (size_t i = 0; i < countof(refused); i++)
        if (refused[i].kinds & kind && listed(refused[i].names, name)) return true;
    return false;
}

int builtin_fail(enum fn_kind kind, const struct str *name)
{
    size_t i = 0;
    int n = (int)MIN(name->n, (size_t)60);
    while (refused[i].kinds != kind)
        i++;
    if (builtin_refused(kind, name))
        return ERR(UNSUPPORTED, "the %s '%.*s' is not supported in chat templates", refused[i].what,
                   n, name->s);
    return ERR(FORMAT, "unknown %s '%.*s'", refused[i].what, n, name->s);
}

const struct fn_row *method_find(struct val self, const struct str *name, bool *unsafe)
{
    static const char list_changes[] = " append clear extend insert pop remove reverse sort ";
    static const char dict_changes[] = " clear pop popitem setdefault update ";
    static const char inner[] =
        " __class__ __init__ __dict__ __doc__ __globals__ __subclasses__ __mro__ ";
    *unsafe = self.t != V_UNDEF && listed(inner, name);
    if (self.t == V_STR) return builtin_find(FN_STR, name);
    if (self.t == V_DICT) {
        *unsafe |= listed(dict_changes, name);
        return builtin_find(FN_DICT, name);
    }
    *unsafe |= val_is_list(self) && listed(list_changes, name);
    return NULL;
}

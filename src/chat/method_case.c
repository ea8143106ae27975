/* method_case.c - methods of strings about case and character classes, and the few methods of
 * lists, tuples, ranges and dictionaries that change nothing. */
#include "base/utf8.h"
#include "chat/filter.h"

#include <string.h>

static int m_upper(struct call *c, struct val *out)
{
    return str_convert(c->r, c->self, CASE_UPPER, out);
}

static int m_lower(struct call *c, struct val *out)
{
    return str_convert(c->r, c->self, CASE_LOWER, out);
}

static int m_title(struct call *c, struct val *out)
{
    return str_convert(c->r, c->self, CASE_TITLE, out);
}

static int m_capitalize(struct call *c, struct val *out)
{
    return str_convert(c->r, c->self, CASE_CAPITAL, out);
}

static int m_swapcase(struct call *c, struct val *out)
{
    return str_convert(c->r, c->self, CASE_SWAP, out);
}

static int m_casefold(struct call *c, struct val *out)
{
    return str_convert(c->r, c->self, CASE_FOLD, out);
}

/* Not empty and all of one class. */
static int all(struct call *c, enum chr_class k, bool empty, struct val *out)
{
    const struct str *s = c->self.str;
    bool hit = s->n > 0 || empty;
    TRY(run_work_bytes(c->r, s->n * 4));
    for (size_t at = 0, len; at < s->n && hit; at += len)
        hit = chr_is(utf8_decode(s->s + at, s->n - at, &len), k);
    *out = val_bool(hit);
    return 0;
}

static int m_isalpha(struct call *c, struct val *out)
{
    return all(c, IS_ALPHA, false, out);
}

static int m_isalnum(struct call *c, struct val *out)
{
    return all(c, IS_ALNUM, false, out);
}

static int m_isdigit(struct call *c, struct val *out)
{
    return all(c, IS_DIGIT, false, out);
}

static int m_isdecimal(struct call *c, struct val *out)
{
    return all(c, IS_DECIMAL, false, out);
}

static int m_isnumeric(struct call *c, struct val *out)
{
    return all(c, IS_NUMERIC, false, out);
}

static int m_isspace(struct call *c, struct val *out)
{
    return all(c, IS_SPACE, false, out);
}

static int m_isprintable(struct call *c, struct val *out)
{
    return all(c, IS_PRINT, true, out);
}

static int m_isidentifier(struct call *c, struct val *out)
{
    const struct str *s = c->self.str;
    size_t len;
    TRY(all(c, IS_WORD, false, out));
    if (out->b) out->b = !chr_is(utf8_decode(s->s, s->n, &len), IS_NUMERIC);
    return 0;
}

static int m_isascii(struct call *c, struct val *out)
{
    bool hit = true;
    for (size_t i = 0; i < c->self.str->n; i++)
        hit &= (unsigned char)c->self.str->s[i] < 0x80;
    *out = val_bool(hit);
    return run_work_bytes(c->r, c->self.str->n);
}

static int one_case(struct call *c, bool upper, struct val *out)
{
    const struct str *s = c->self.str;
    bool any = false, other = false;
    TRY(run_work_bytes(c->r, s->n * 4));
    for (size_t at = 0, len; at < s->n; at += len) {
        uint32_t ch = utf8_decode(s->s + at, s->n - at, &len);
        any |= chr_cased(ch, upper);
        other |= chr_cased(ch, !upper);
    }
    *out = val_bool(any && !other);
    return 0;
}

static int m_isupper(struct call *c, struct val *out)
{
    return one_case(c, true, out);
}

static int m_islower(struct call *c, struct val *out)
{
    return one_case(c, false, out);
}

static int m_istitle(struct call *c, struct val *out)
{
    const struct str *s = c->self.str;
    bool after = false, any = false, hit = true;
    TRY(run_work_bytes(c->r, s->n * 4));
    for (size_t at = 0, len; at < s->n && hit; at += len) {
        uint32_t ch = utf8_decode(s->s + at, s->n - at, &len);
        bool up = chr_cased(ch, true), low = chr_cased(ch, false);
        if ((up && after) || (low && !after)) hit = false;
        after = up || low;
        any |= after;
    }
    *out = val_bool(any && hit);
    return 0;
}

const struct fn_row methods_str_is[] = {
    {"capitalize", m_capitalize, "", 0},
    {"casefold", m_casefold, "", 0},
    {"isalnum", m_isalnum, "", 0},
    {"isalpha", m_isalpha, "", 0},
    {"isascii", m_isascii, "", 0},
    {"isdecimal", m_isdecimal, "", 0},
    {"isdigit", m_isdigit, "", 0},
    {"isidentifier", m_isidentifier, "", 0},
    {"islower", m_islower, "", 0},
    {"isnumeric", m_isnumeric, "", 0},
    {"isprintable", m_isprintable, "", 0},
    {"isspace", m_isspace, "", 0},
    {"istitle", m_istitle, "", 0},
    {"isupper", m_isupper, "", 0},
    {"lower", m_lower, "", 0},
    {"swapcase", m_swapcase, "", 0},
    {"title", m_title, "", 0},
    {"upper", m_upper, "", 0},
    {NULL, NULL, NULL, 0},
};

static int m_get(struct call *c, struct val *out)
{
    struct val *hit;
    TRY(dict_find(c->r, c->self.dict, c->a[0], &hit));
    *out = hit ? *hit : c->a[1].t == V_MISSING ? val_none() : c->a[1];
    return 0;
}

static int m_keys(struct call *c, struct val *out)
{
    return dict_view(c->r, c->self.dict, SEQ_KEYS, out);
}

static int m_values(struct call *c, struct val *out)
{
    return dict_view(c->r, c->self.dict, SEQ_VALUES, out);
}

static int m_items(struct call *c, struct val *out)
{
    return dict_view(c->r, c->self.dict, SEQ_ITEMS, out);
}

static int m_copy(struct call *c, struct val *out)
{
    *out = c->self; /* nothing can change it */
    return 0;
}

const struct fn_row methods_dict[] = {
    {"copy", m_copy, "", 0}, {"get", m_get, "key default", 1}, {"items", m_items, "", 0},
    {"keys", m_keys, "", 0}, {"values", m_values, "", 0},      {NULL, NULL, NULL, 0},
};

static int m_list_count(struct call *c, struct val *out)
{
    struct iter it;
    struct val item;
    int64_t n = 0;
    int e;
    TRY(iter_init(c->r, c->self, &it));
    while ((e = iter_next(c->r, &it, &item)) > 0) {
        bool same;
        TRY(val_equal(c->r, item, c->a[0], &same));
        n += same;
    }
    *out = val_int(n);
    return e;
}

static int m_list_index(struct call *c, struct val *out)
{
    struct iter it;
    struct val item;
    int64_t at = 0;
    int e;
    TRY(iter_init(c->r, c->self, &it));
    while ((e = iter_next(c->r, &it, &item)) > 0) {
        bool same;
        TRY(val_equal(c->r, item, c->a[0], &same));
        if (same) {
            *out = val_int(at);
            return 0;
        }
        at++;
    }
    if (e < 0) return e;
    struct buf b;
    buf_init(&b, 400);
    e = val_repr(c->r, c->a[0], &b);
    e = run_fail(c->r, "%s is not in %s", e < 0 ? "the value" : b.data, val_type_name(c->self));
    buf_done(&b);
    return e;
}

const struct fn_row methods_list[] = {
    {"copy", m_copy, "", 0},
    {"count", m_list_count, "value", 1},
    {"index", m_list_index, "value", 1},
    {NULL, NULL, NULL, 0},
};

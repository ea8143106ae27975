/* compare.c - ==, <, in, hashing and sorting as in Python.  A walk through a nested value counts against the
 * limits of depth and steps. */
#include "chat/value.h"

#include <math.h>
#include <string.h>

/* Returns -1, 0 or 1; 2 if one of them is NaN.  A long double holds every 64-bit integer and every double exactly. */
static int num_order(struct val a, struct val b)
{
    long double x = a.t == V_FLOAT ? (long double)a.f : (long double)val_as_int(a);
    long double y = b.t == V_FLOAT ? (long double)b.f : (long double)val_as_int(b);
    return isnan(x) || isnan(y) ? 2 : (x > y) - (x < y);
}

static int dict_equal(struct render_state *r, const struct dict *a, const struct dict *b, bool *out)
{
    *out = a == b;
    if (a == b || a->n != b->n) return 0;
    for (size_t i = 0; i < a->n; i++) {
        struct val *other;
        TRY(dict_find(r, b, a->v[i].k, &other));
        *out = false;
        if (!other) return 0;
        TRY(val_equal(r, a->v[i].v, *other, out));
        if (!*out) return 0;
    }
    *out = true;
    return 0;
}

static int seq_equal(struct render_state *r, struct val a, struct val b, bool *out)
{
    *out = a.seq == b.seq;
    bool same_kind = a.seq->kind == b.seq->kind && !val_is_gen(a) && a.seq->kind != SEQ_VALUES;
    if (*out || !same_kind || a.seq->n != b.seq->n) return 0;
    for (size_t i = 0; i < a.seq->n; i++) {
        TRY(val_equal(r, a.seq->v[i], b.seq->v[i], out));
        if (!*out) return 0;
    }
    *out = true;
    return 0;
}

static int equal_inner(struct render_state *r, struct val a, struct val b, bool *out)
{
    *out = false;
    if (val_is_num(a) && val_is_num(b)) {
        *out = num_order(a, b) == 0;
        return 0;
    }
    if (a.t != b.t) return 0;
    if (a.t == V_SEQ) return seq_equal(r, a, b, out);
    if (a.t == V_DICT) return dict_equal(r, a.dict, b.dict, out);
    if (a.t == V_STR) TRY(render_work_bytes(r, a.str->n == b.str->n ? a.str->n : 0));
    *out = a.t == V_STR ? str_same(a.str, b.str)
                        : a.t == V_NONE || a.t == V_UNDEF || a.dict == b.dict; /* same object */
    return 0;
}

int val_equal(struct render_state *r, struct val a, struct val b, bool *out)
{
    TRY(render_enter(r));
    int e = render_work(r, 1);
    if (e >= 0) e = equal_inner(r, a, b, out);
    render_leave(r);
    return e;
}

/* Compares two values as num_order does; an error if they have no order. */
static int val_order(struct render_state *r, enum compare_op op, struct val a, struct val b,
                     int *out)
{
    static const char *const text[] = {
        [CMP_LT] = "<", [CMP_LE] = "<=", [CMP_GT] = ">", [CMP_GE] = ">="};
    TRY(render_work(r, 1));
    if (a.t == V_UNDEF) return val_fail_undef(a);
    if (b.t == V_UNDEF) return val_fail_undef(b);
    if (val_is_num(a) && val_is_num(b)) {
        *out = num_order(a, b);
        return 0;
    }
    if (a.t == V_SEQ && b.t == V_SEQ && a.seq->kind == b.seq->kind)
        return ERR(UNSUPPORTED, "the order of two of type %s is not supported", val_type_name(a));
    if (a.t != V_STR || b.t != V_STR)
        return ERR(FORMAT, "'%s' not supported between instances of '%s' and '%s'", text[op],
                   val_type_name(a), val_type_name(b));
    size_t n = MIN(a.str->n, b.str->n);
    TRY(render_work_bytes(r, n));
    int k = memcmp(a.str->s, b.str->s, n); /* UTF-8 order is code point order */
    *out = k ? (k > 0) - (k < 0) : (a.str->n > b.str->n) - (a.str->n < b.str->n);
    return 0;
}

static int val_contains(struct render_state *r, struct val box, struct val x, bool *out)
{
    *out = false;
    if (box.t == V_STR) {
        if (x.t != V_STR)
            return ERR(FORMAT, "'in <string>' requires string as left operand, not %s",
                       val_type_name(x));
        TRY(render_work_bytes(r, box.str->n));
        *out = str_find(box.str->s, box.str->n, x.str->s, x.str->n) != SIZE_MAX;
        return 0;
    }
    if (box.t == V_DICT) {
        struct val *hit;
        TRY(dict_find(r, box.dict, x, &hit));
        *out = hit != NULL;
        return 0;
    }
    struct iter it;
    struct val v;
    if (iter_init(box, &it) < 0)
        return ERR(FORMAT, "argument of type '%s' is not iterable", val_type_name(box));
    int e;
    while ((e = iter_next(r, &it, &v)) > 0) {
        TRY(val_equal(r, v, x, out));
        if (*out) return 0;
    }
    return e;
}

int val_compare(struct render_state *r, enum compare_op op, struct val a, struct val b, bool *out)
{
    int k = 0, e;
    if (op == CMP_EQ || op == CMP_NE)
        e = val_equal(r, a, b, out);
    else if (op == CMP_IN || op == CMP_NOTIN)
        e = val_contains(r, b, a, out);
    else
        e = val_order(r, op, a, b, &k);
    if (op == CMP_NE || op == CMP_NOTIN) *out = !*out;
    if (op == CMP_LT || op == CMP_LE) *out = k < (op == CMP_LE);
    if (op == CMP_GT || op == CMP_GE) *out = k != 2 && k > -(op == CMP_GE);
    return e;
}

int val_hash(struct render_state *r, struct val v, uint32_t *out)
{
    double f = val_is_num(v) ? val_as_float(v) + 0.0 : 0; /* equal numbers have equal hashes */
    if (v.t == V_STR) TRY(render_work_bytes(r, v.str->n));
    if (val_is_tuple(v)) return ERR(UNSUPPORTED, "a tuple as a key is not supported");
    if (v.t != V_STR && v.t != V_NONE && !val_is_num(v))
        return ERR(FORMAT, "unhashable type: '%s'", val_type_name(v));
    *out = (uint32_t)(v.t == V_STR ? hash_text(&r->key, v.str->s, v.str->n)
                                   : hash_text(&r->key, &f, sizeof f));
    return 0;
}

/* Sorts by merging, which is stable.  Every comparison may fail. */
static int merge(struct render_state *r, struct val *v, struct val *key, size_t mid, size_t n,
                 bool reverse, struct val *tmp)
{
    size_t i = 0, j = mid, k = 0;
    memcpy(tmp, v, n * sizeof *v);
    memcpy(tmp + n, key, n * sizeof *key);
    while (i < mid && j < n) {
        bool second; /* equal items keep their order, also with reverse */
        size_t a = reverse ? i : j, b = reverse ? j : i;
        TRY(val_compare(r, CMP_LT, tmp[n + a], tmp[n + b], &second));
        size_t from = second ? j++ : i++;
        v[k] = tmp[from];
        key[k++] = tmp[n + from];
    }
    while (k < n) {
        size_t from = i < mid ? i++ : j++;
        v[k] = tmp[from];
        key[k++] = tmp[n + from];
    }
    return 0;
}

int val_sort(struct render_state *r, struct val *v, struct val *key, size_t n, bool reverse)
{
    struct val *tmp;
    RUN_NEW(r, tmp, n * 2);
    for (size_t width = 1; width < n; width *= 2) {
        TRY(render_work(r, n));
        for (size_t at = 0; at + width < n; at += 2 * width)
            TRY(merge(r, v + at, key + at, width, MIN(2 * width, n - at), reverse, tmp));
    }
    return 0;
}

/* value.c - values: their types, their conversion from the caller's JSON, sequences and iteration.  An undefined
 * value holds the sentence of the error that its use raises. */
#include "chat/value.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

const char *val_type_name(struct val v)
{
    static const char *const seqs[] = {
        [SEQ_LIST] = "list",       [SEQ_TUPLE] = "tuple",    [SEQ_GEN] = "generator",
        [SEQ_RANGE] = "range",     [SEQ_KEYS] = "dict_keys", [SEQ_VALUES] = "dict_values",
        [SEQ_ITEMS] = "dict_items"};
    static const char *const names[] = {
        [V_MISSING] = "missing",  [V_UNDEF] = "Undefined",
        [V_NONE] = "NoneType",    [V_BOOL] = "bool",
        [V_INT] = "int",          [V_FLOAT] = "float",
        [V_STR] = "str",          [V_SEQ] = NULL,
        [V_DICT] = "dict",        [V_SPACE] = "Namespace",
        [V_LOOP] = "LoopContext", [V_MACRO] = "Macro",
        [V_FUNC] = "function",    [V_METHOD] = "builtin_function_or_method"};
    if (v.t == V_SEQ) return seqs[v.seq->kind];
    if (v.t == V_STR && v.safe) return "Markup";
    return names[v.t];
}

bool val_true(struct val v)
{
    if (v.t == V_BOOL) return v.b;
    if (v.t == V_INT) return v.i != 0;
    if (v.t == V_FLOAT) return v.f != 0;
    if (v.t == V_STR) return v.str->n > 0;
    if (v.t == V_SEQ) return val_is_gen(v) || v.seq->n > 0;
    if (v.t == V_DICT) return v.dict->n > 0;
    return v.t > V_DICT; /* namespaces, functions and the like */
}

int seq_new(struct render_state *r, enum seq_kind kind, size_t cap, struct val_seq **out)
{
    struct val_seq *s;
    RUN_NEW(r, s, 1);
    s->kind = kind;
    if (cap) RUN_NEW(r, s->v, cap);
    s->cap = cap;
    *out = s;
    return 0;
}

int seq_push(struct render_state *r, struct val_seq *s, struct val v)
{
    ARENA_GROW(&r->mem, s);
    s->v[s->n++] = v;
    return 0;
}

int seq_copy(struct render_state *r, enum seq_kind kind, const struct val *v, size_t n,
             struct val *out)
{
    struct val_seq *s;
    TRY(seq_new(r, kind, n, &s));
    if (n) memcpy(s->v, v, n * sizeof *v);
    s->n = n;
    *out = val_seq(s);
    return 0;
}

void seq_reverse(struct val_seq *s)
{
    for (size_t i = 0; i < s->n / 2; i++) {
        struct val t = s->v[i];
        s->v[i] = s->v[s->n - 1 - i];
        s->v[s->n - 1 - i] = t;
    }
}

int iter_init(struct val v, struct iter *it)
{
    *it = (struct iter){.v = v};
    if (v.t == V_UNDEF) return v.undef->unsafe ? val_fail_undef(v) : 0;
    if (v.t == V_SEQ || v.t == V_DICT || v.t == V_STR) return 0;
    return ERR(FORMAT, "'%s' object is not iterable", val_type_name(v));
}

/* Gives the next character of a string, key of a dictionary, or item.  A generator is consumed. */
int iter_next(struct render_state *r, struct iter *it, struct val *out)
{
    struct val v = it->v;
    size_t *at = val_is_gen(v) ? &v.seq->pos : &it->at, len;
    size_t n = v.t == V_SEQ ? v.seq->n : v.t == V_DICT ? v.dict->n : v.t == V_STR ? v.str->n : 0;
    TRY(render_work(r, 1));
    if (*at >= n) return 0;
    if (v.t == V_STR) {
        utf8_decode(v.str->s + *at, n - *at, &len);
        TRY(str_sub(r, v, *at, *at + len, out));
        out->safe = false;
        *at += len;
        return 1;
    }
    *out = v.t == V_SEQ ? v.seq->v[*at] : v.dict->v[*at].k;
    ++*at;
    return 1;
}

int val_list(struct render_state *r, struct val v, struct val_seq **out)
{
    struct iter it;
    struct val item;
    struct val_seq *s;
    int e;
    TRY(iter_init(v, &it));
    TRY(seq_new(r, SEQ_LIST, v.t == V_SEQ ? v.seq->n : 0, &s));
    while ((e = iter_next(r, &it, &item)) > 0)
        TRY(seq_push(r, s, item));
    if (e < 0) return e;
    *out = s;
    return 0;
}

int val_len(struct render_state *r, struct val v, size_t *out)
{
    if (v.t == V_STR && v.str->chars == SIZE_MAX) TRY(render_work_bytes(r, v.str->n * 2));
    if ((v.t != V_SEQ || val_is_gen(v)) && v.t != V_STR && v.t != V_DICT && v.t != V_UNDEF)
        return ERR(FORMAT, "object of type '%s' has no len()", val_type_name(v));
    *out = v.t == V_STR    ? str_chars(v.str)
           : v.t == V_SEQ  ? v.seq->n
           : v.t == V_DICT ? v.dict->n
                           : 0;
    return 0;
}

static int list_from_json(struct render_state *r, const json_t *j, unsigned depth, struct val *out)
{
    struct val_seq *s;
    size_t n = json_array_size(j);
    TRY(seq_new(r, SEQ_LIST, n, &s));
    for (size_t i = 0; i < n; i++)
        TRY(val_from_json(r, json_array_get(j, i), depth + 1, &s->v[i]));
    s->n = n;
    *out = val_seq(s);
    return 0;
}

static int dict_from_json(struct render_state *r, const json_t *j, unsigned depth, struct val *out)
{
    struct dict *d;
    const char *key;
    json_t *item;
    TRY(dict_new(r, json_object_size(j), &d));
    json_object_foreach((json_t *)j, key, item)
    {
        struct val k, v;
        TRY(str_view(r, key, strlen(key), &k));
        TRY(val_from_json(r, item, depth + 1, &v));
        TRY(dict_put(r, d, k, v));
    }
    *out = (struct val){.t = V_DICT, .dict = d};
    return 0;
}

int val_from_json(struct render_state *r, const json_t *j, unsigned depth, struct val *out)
{
    if (depth > RENDER_MAX_DEPTH / 2)
        return ERR(LIMIT, "the template's variables are nested deeper than %u levels",
                   RENDER_MAX_DEPTH / 2);
    if (json_is_array(j)) return list_from_json(r, j, depth, out);
    if (json_is_object(j)) return dict_from_json(r, j, depth, out);
    if (json_is_string(j)) return str_view(r, json_string_value(j), json_string_length(j), out);
    *out = json_is_boolean(j)   ? val_bool(json_is_true(j))
           : json_is_integer(j) ? val_int(json_integer_value(j))
           : json_is_real(j)    ? val_float(json_real_value(j))
                                : val_none();
    return 0;
}

int val_undef(struct render_state *r, struct val *out, const char *fmt, ...)
{
    char text[512];
    struct undef *u;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t n = strlen(text) + 1;
    int e = 0;
    u = arena_alloc(&r->mem, sizeof *u + n, &e);
    if (!u) return e;
    memcpy(u->why, text, n);
    *out = (struct val){.t = V_UNDEF, .undef = u};
    return 0;
}

int val_fail_undef(struct val v)
{
    return ERR(FORMAT, "%s", v.undef->why);
}

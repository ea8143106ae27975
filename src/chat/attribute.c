/* attribute.c - obj.name, obj[key] and slices.  A name means a method of the table in builtin.c or a key of data,
 * and nothing else.  A member that Jinja's sandbox refuses is an undefined value. */
#include "base/utf8.h"
#include "chat/value.h"

#include <stdio.h>
#include <string.h>

static int seq_index(struct render_state *r, struct val v, struct val key, struct val *out,
                     bool *found)
{
    size_t n;
    int64_t i = val_as_int(key);
    TRY(val_len(r, v, &n));
    if (i < 0) i += (int64_t)n;
    *found = i >= 0 && (uint64_t)i < n;
    if (!*found) return 0;
    if (v.t == V_STR) {
        size_t at, len;
        TRY(render_work_bytes(r, v.str->chars == v.str->n ? 0 : v.str->n * 4));
        at = str_offset(v.str, (size_t)i);
        utf8_decode(v.str->s + at, v.str->n - at, &len);
        return str_sub(r, v, at, at + len, out);
    }
    *out = v.seq->v[i];
    return 0;
}

/* Finds obj[key] as data, without methods. */
static int lookup(struct render_state *r, struct val obj, struct val key, struct val *out,
                  bool *found)
{
    *found = false;
    if (obj.t == V_DICT) {
        struct val *hit;
        if (key.t == V_DICT || (key.t == V_SEQ && !val_is_tuple(key))) return 0; /* unhashable */
        TRY(dict_find(r, obj.dict, key, &hit));
        *found = hit != NULL;
        if (hit) *out = *hit;
        return 0;
    }
    return (obj.t == V_STR || val_is_indexed(obj)) && val_is_int(key)
               ? seq_index(r, obj, key, out, found)
               : 0;
}

/* Makes the undefined value that a missing name or index of obj gives. */
static int undef_member(struct render_state *r, struct val obj, struct val key, struct val *out)
{
    char owner[64];
    snprintf(owner, sizeof owner, "%s object", val_type_name(obj));
    if (obj.t == V_NONE) memcpy(owner, "None", 5);
    if (key.t == V_STR)
        return val_undef(r, out, "'%s' has no attribute '%.*s'", owner,
                         (int)MIN(key.str->n, (size_t)200), key.str->s);
    if (key.t == V_INT) return val_undef(r, out, "%s has no element %lld", owner, (long long)key.i);
    return val_undef(r, out, "%s has no element of type %s", owner, val_type_name(key));
}

/* Finds obj.name as a method or as a member of a namespace, loop or macro. */
static int member(struct render_state *r, struct val obj, struct str *name, struct val *out,
                  bool *found)
{
    struct val key = {.t = V_STR, .str = name};
    bool unsafe = false;
    *found = true;
    if (obj.t == V_LOOP) return loop_attr(r, obj.loop, name, out, found);
    if (obj.t == V_MACRO && str_is(name, "name")) {
        *out = (struct val){.t = V_STR, .str = (struct str *)obj.macro->name};
        return 0;
    }
    if (obj.t == V_SPACE) {
        struct val *hit;
        TRY(dict_find(r, obj.dict, key, &hit));
        if (hit) *out = *hit;
        *found = hit != NULL;
        return 0;
    }
    const struct fn_row *row = method_find(obj, name, &unsafe);
    if (unsafe) {
        TRY(val_undef(r, out, "access to attribute '%.*s' of '%s' object is unsafe.", (int)name->n,
                      name->s, val_type_name(obj)));
        out->undef->unsafe = true;
        return 0;
    }
    enum fn_kind kind = obj.t == V_STR ? FN_STR : obj.t == V_DICT ? FN_DICT : FN_LIST;
    if (!row && (kind != FN_LIST || val_is_indexed(obj)) && builtin_refused(kind, name))
        return builtin_fail(kind, name);
    *found = row != NULL;
    if (!row) return 0;
    struct method *m;
    RUN_NEW(r, m, 1);
    *m = (struct method){obj, row};
    *out = (struct val){.t = V_METHOD, .method = m};
    return 0;
}

int val_attr(struct render_state *r, struct val obj, struct val name, struct val *out)
{
    bool found;
    if (obj.t == V_UNDEF) return val_fail_undef(obj);
    TRY(member(r, obj, name.str, out, &found));
    if (!found) TRY(lookup(r, obj, name, out, &found));
    return found ? 0 : undef_member(r, obj, name, out);
}

int val_item(struct render_state *r, struct val obj, struct val key, struct val *out)
{
    bool found;
    if (obj.t == V_UNDEF) return val_fail_undef(obj);
    TRY(lookup(r, obj, key, out, &found));
    if (!found && key.t == V_STR) TRY(member(r, obj, key.str, out, &found));
    return found ? 0 : undef_member(r, obj, key, out);
}

int member_set(struct render_state *r, struct val box, struct val key, struct val v)
{
    if (box.t == V_SPACE && key.t == V_STR && key.str->n && key.str->s[0] == '_')
        return ERR(FORMAT,
                   "Chat templates cannot store underscore-prefixed attributes on a "
                   "namespace, but got '%.*s'. Please rename the attribute.",
                   (int)MIN(key.str->n, (size_t)60), key.str->s);
    return dict_put(r, box.dict, key, v);
}

int val_path(struct render_state *r, struct val obj, struct val path, struct val other,
             struct val *out)
{
    bool replace = other.t != V_MISSING && other.t != V_NONE, text = path.t == V_STR;
    const char *s = text ? path.str->s : "", *end = s + (text ? path.str->n : 0), *dot;
    *out = obj;
    do {
        struct val key = path;
        dot = memchr(s, '.', (size_t)(end - s));
        size_t n = (size_t)((dot ? dot : end) - s);
        if (n && digits_in(s, s + n) == n && n < 18)
            for (key = val_int(0); n; n--)
                key.i = key.i * 10 + (*s++ - '0');
        else if (text)
            TRY(str_view(r, s, n, &key));
        TRY(val_item(r, *out, key, out));
        if (replace && out->t == V_UNDEF) *out = other;
        s = dot ? dot + 1 : s;
    } while (dot);
    return 0;
}

static int slice_part(struct val p, int64_t fallback, int64_t *out)
{
    *out = fallback;
    if (p.t == V_NONE) return 0;
    if (p.t == V_UNDEF) return val_fail_undef(p);
    if (!val_is_int(p))
        return ERR(FORMAT, "slice indices must be integers or None or have an __index__ method");
    *out = val_as_int(p);
    return 0;
}

static int64_t slice_clamp(int64_t i, int64_t n, int64_t low, int64_t high)
{
    if (i < 0) i = i < -n ? low : i + n;
    return MAX(low, MIN(i, high));
}

/* Takes `count` characters, every step-th from character `from` on. */
static int slice_str(struct render_state *r, struct val v, int64_t from, int64_t step, size_t count,
                     struct val *out)
{
    struct str *s = v.str;
    size_t first = str_offset(s, (size_t)MAX(from, (int64_t)0));
    if (!count) return str_puts(r, "", out);
    if (step == 1) return str_sub(r, v, first, str_offset(s, (size_t)from + count), out);
    struct buf b;
    buf_init(&b, RENDER_MAX_MEMORY);
    int e = 0;
    for (size_t at = first, len; e >= 0; count--) {
        utf8_decode(s->s + at, s->n - at, &len);
        e = buf_append(&b, s->s + at, len);
        if (count == 1) break;
        for (int64_t k = step; k < 0; k++)
            at = utf8_back(s->s, at);
        for (int64_t k = step; k > 0; k--, at += len)
            utf8_decode(s->s + at, s->n - at, &len);
    }
    TRY(str_take(r, e, &b, out));
    str_taint(r, *out, v);
    out->safe = v.safe;
    return 0;
}

int val_slice(struct render_state *r, struct val v, const struct val part[3], struct val *out)
{
    size_t len;
    int64_t step, from, to;
    if (v.t == V_UNDEF) return val_fail_undef(v);
    if (v.t == V_DICT) return ERR(FORMAT, "unhashable type: 'slice'");
    if (v.t != V_STR && !val_is_indexed(v))
        return ERR(FORMAT, "'%s' object is not subscriptable", val_type_name(v));
    TRY(val_len(r, v, &len));
    TRY(render_work_bytes(r, v.t == V_STR ? v.str->n : 0));
    TRY(slice_part(part[2], 1, &step));
    if (step == 0) return ERR(FORMAT, "slice step cannot be zero");
    int64_t n = (int64_t)len, low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    step = MAX(-n - 1,
               MIN(step, n + 1)); /* a step of n + 1 leaves the sequence, as any larger one does */
    TRY(slice_part(part[0], step < 0 ? INT64_MAX : 0, &from));
    from = slice_clamp(from, n, low, high);
    to = step < 0 ? -1 : n;
    if (part[1].t != V_NONE) {
        TRY(slice_part(part[1], 0, &to));
        to = slice_clamp(to, n, low, high);
    }
    int64_t gap = step > 0 ? to - from : from - to, width = step > 0 ? step : -step;
    size_t count = gap > 0 ? (size_t)((gap + width - 1) / width) : 0;
    if (v.t == V_STR) return slice_str(r, v, from, step, count, out);
    bool share = step == 1; /* a sequence never changes */
    struct val_seq *s;
    TRY(seq_new(r, v.seq->kind, share ? 0 : count, &s));
    if (share && count) s->v = v.seq->v + from;
    if (!share) TRY(render_work(r, count));
    for (size_t i = 0; i < count && !share; i++, from += step)
        s->v[i] = v.seq->v[from];
    s->n = s->cap = count;
    *out = val_seq(s);
    return 0;
}

/* method.c - methods of strings and dictionaries.  Positions count code points, as in Python. */
#include "base/utf8.h"
#include "chat/builtin.h"

#include <string.h>

int m_find(struct builtin_call *c, struct val *out)
{
    struct str *s = c->self.str;
    struct val sub;
    size_t hit;
    TRY(args_str(c, 0, &sub));
    TRY(text_find(c->r, s->s, s->n, sub.str, c->row->how, &hit));
    *out = val_int(hit == SIZE_MAX ? -1 : (int64_t)utf8_count(s->s, hit));
    return render_work_bytes(c->r, hit == SIZE_MAX ? 0 : hit * 4);
}

static int affix(struct render_state *r, const struct str *s, const struct str *a, bool end,
                 bool *hit)
{
    *hit = false;
    if (a->n > s->n) return 0;
    *hit = memcmp(end ? s->s + s->n - a->n : s->s, a->s, a->n) == 0;
    return render_work_bytes(r, a->n);
}

/* The methods startswith and endswith: test for one text, or for any text of a tuple. */
int m_affix(struct builtin_call *c, struct val *out)
{
    struct val a = c->a[0];
    const struct val *v = val_is_tuple(a) ? a.seq->v : &a;
    size_t n = val_is_tuple(a) ? a.seq->n : 1;
    bool hit = false;
    if (a.t == V_UNDEF) return val_fail_undef(a);
    for (size_t i = 0; i < n && !hit; i++) {
        TRY(render_work(c->r, 1));
        if (v[i].t != V_STR)
            return ERR(FORMAT, "%s first arg must be str or a tuple of str, not %s", c->row->name,
                       val_type_name(v[i]));
        TRY(affix(c->r, c->self.str, v[i].str, c->row->how, &hit));
    }
    *out = val_bool(hit);
    return 0;
}

int m_remove_affix(struct builtin_call *c, struct val *out)
{
    struct val a;
    struct str *s = c->self.str;
    bool end = c->row->how, hit;
    TRY(args_str(c, 0, &a));
    TRY(affix(c->r, s, a.str, end, &hit));
    size_t cut = hit ? a.str->n : 0;
    return str_sub(c->r, c->self, end ? 0 : cut, end ? s->n - cut : s->n, out);
}

int m_split(struct builtin_call *c, struct val *out)
{
    int64_t most;
    TRY(args_int(c, 1, -1, &most));
    return text_split(c->r, c->self, c->a[0], most, c->row->how, out);
}

int m_splitlines(struct builtin_call *c, struct val *out)
{
    struct val_seq *list;
    struct str *s = c->self.str;
    bool keep = args_truth(c, 0, false);
    TRY(seq_new(c->r, SEQ_LIST, 0, &list));
    for (size_t at = 0, end, next; at < s->n; at = next) {
        struct val line;
        text_line(s, at, &end, &next);
        TRY(render_work_bytes(c->r, BYTES_PER_STEP + next - at));
        TRY(str_sub(c->r, c->self, at, keep ? next : end, &line));
        TRY(seq_push(c->r, list, line));
    }
    *out = val_seq(list);
    return 0;
}

/* True if the string is not empty and all its characters are of one class. */
int m_class(struct builtin_call *c, struct val *out)
{
    const struct str *s = c->self.str;
    bool hit = s->n > 0;
    TRY(render_work_bytes(c->r, s->n * 4));
    for (size_t at = 0, len; at < s->n && hit; at += len)
        hit = chr_is(utf8_decode(s->s + at, s->n - at, &len), (enum chr_class)c->row->how);
    *out = val_bool(hit);
    return 0;
}

int m_get(struct builtin_call *c, struct val *out)
{
    struct val *hit;
    TRY(dict_find(c->r, c->self.dict, c->a[0], &hit));
    *out = hit ? *hit : c->a[1].t == V_MISSING ? val_none() : c->a[1];
    return 0;
}

int m_view(struct builtin_call *c, struct val *out)
{
    return dict_view(c->r, c->self.dict, (enum seq_kind)c->row->how, out);
}

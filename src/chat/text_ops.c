/* text_ops.c - string operations that filters and methods share: strip, replace, split, lines. */
#include "base/utf8.h"
#include "chat/builtin.h"

#include <string.h>

static bool strippable(const struct str *set, uint32_t c, const char *s, size_t len)
{
    return set ? str_find(set->s, set->n, s, len) != SIZE_MAX : chr_space(c);
}

int text_strip(struct render_state *r, struct val s, struct val chars, enum strip_how how,
               struct val *out)
{
    const struct str *set = chars.t == V_STR ? chars.str : NULL;
    const char *p = s.str->s;
    size_t from = 0, to = s.str->n, len, cost = set ? set->n : 0;
    if (chars.t == V_UNDEF) return val_fail_undef(chars);
    if (!set && chars.t != V_MISSING && chars.t != V_NONE)
        return ERR(FORMAT, "strip arg must be None or str");
    while (how & STRIP_LEFT && from < to) {
        uint32_t c = utf8_decode(p + from, to - from, &len);
        if (!strippable(set, c, p + from, len)) break;
        TRY(render_work_bytes(r, cost));
        from += len;
    }
    while (how & STRIP_RIGHT && to > from) {
        size_t at = utf8_back(p, to);
        uint32_t c = utf8_decode(p + at, to - at, &len);
        if (!strippable(set, c, p + at, to - at)) break;
        TRY(render_work_bytes(r, cost));
        to = at;
    }
    TRY(render_work_bytes(r, from + s.str->n - to));
    return str_sub(r, s, from, to, out);
}

/* Replaces `from` in a text.  An empty `from` matches before every character and at the end. */
static int replace_into(struct render_state *r, const struct str *s, const struct str *from,
                        const struct str *to, int64_t count, struct text_build *t)
{
    size_t at = 0;
    while (count != 0) {
        size_t hit = str_find(s->s + at, s->n - at, from->s, from->n), len = 0;
        if (hit == SIZE_MAX) break;
        TRY(render_work_bytes(r, BYTES_PER_STEP / 4 + hit + to->n));
        TRY(text_put(r, t, s, at, hit));
        TRY(text_put(r, t, to, 0, to->n));
        at += hit + from->n;
        if (count > 0) count--;
        if (from->n) continue;
        if (at >= s->n) return 0;
        utf8_decode(s->s + at, s->n - at, &len);
        TRY(text_put(r, t, s, at, len));
        at += len;
    }
    return text_put(r, t, s, at, s->n - at);
}

int text_replace(struct render_state *r, struct val s, struct val from, struct val to,
                 int64_t count, struct val *out)
{
    struct text_build t;
    *out = s;
    TRY(render_work_bytes(r, s.str->n));
    if (from.str->n && str_find(s.str->s, s.str->n, from.str->s, from.str->n) == SIZE_MAX) return 0;
    text_init(&t, RENDER_MAX_MEMORY);
    int e = replace_into(r, s.str, from.str, to.str, count, &t);
    TRY(text_take(r, e, &t, out));
    out->safe = s.safe;
    return 0;
}

bool text_line(const struct str *s, size_t at, size_t *end, size_t *next)
{
    for (size_t len; at < s->n; at += len) {
        uint32_t c = utf8_decode(s->s + at, s->n - at, &len);
        if (!chr_line_end(c)) continue;
        *end = at;
        *next = at + len + (c == '\r' && at + 1 < s->n && s->s[at + 1] == '\n');
        return true;
    }
    *end = *next = s->n;
    return false;
}

int text_find(struct render_state *r, const char *s, size_t n, const struct str *needle, bool back,
              size_t *out)
{
    TRY(render_work_bytes(r, back ? 0 : n));
    /* str_rfind compares the needle at every place, so a long needle costs steps in advance. */
    if (back && needle->n > BYTES_PER_STEP)
        TRY(render_work_bytes(r, n * (needle->n / BYTES_PER_STEP)));
    *out = (back ? str_rfind : str_find)(s, n, needle->s, needle->n);
    return render_work_bytes(r, back ? n - MIN(*out, n) : 0);
}

/* Returns the end of the run of white space that begins at `at`.  With `space` false it is a run of other characters. */
static size_t space_run(const struct str *s, size_t at, bool space)
{
    for (size_t len; at < s->n; at += len)
        if (chr_space(utf8_decode(s->s + at, s->n - at, &len)) != space) break;
    return at;
}

static int push_part(struct render_state *r, struct val_seq *list, struct val s, size_t from,
                     size_t to)
{
    struct val v;
    TRY(render_work(r, 1));
    TRY(str_sub(r, s, from, to, &v));
    return seq_push(r, list, v);
}

static int split_space(struct render_state *r, struct val s, int64_t most, struct val_seq *list)
{
    size_t at = space_run(s.str, 0, true), end;
    for (; at < s.str->n && most-- != 0; at = space_run(s.str, end, true)) {
        end = space_run(s.str, at, false);
        TRY(push_part(r, list, s, at, end));
    }
    return at < s.str->n ? push_part(r, list, s, at, s.str->n) : 0;
}

static int split_sep(struct render_state *r, struct val s, const struct str *sep, int64_t most,
                     bool back, struct val_seq *list)
{
    size_t at = 0, to = s.str->n;
    while (most-- != 0) {
        size_t hit;
        if (back)
            TRY(text_find(r, s.str->s, to, sep, true, &hit));
        else
            hit = str_find(s.str->s + at, to - at, sep->s, sep->n);
        if (hit == SIZE_MAX) break;
        if (back) {
            TRY(push_part(r, list, s, hit + sep->n, to));
            to = hit;
        } else {
            TRY(push_part(r, list, s, at, at + hit));
            at += hit + sep->n;
        }
    }
    return push_part(r, list, s, at, to);
}

int text_split(struct render_state *r, struct val s, struct val sep, int64_t most, bool back,
               struct val *out)
{
    struct val_seq *list;
    TRY(render_work_bytes(r, s.str->n));
    TRY(seq_new(r, SEQ_LIST, 0, &list));
    if (sep.t == V_UNDEF) return val_fail_undef(sep);
    if (sep.t == V_MISSING || sep.t == V_NONE) {
        if (back) return ERR(UNSUPPORTED, "rsplit() without a separator is not supported");
        TRY(split_space(r, s, most, list));
    } else {
        if (sep.t != V_STR) return ERR(FORMAT, "must be str or None, not %s", val_type_name(sep));
        if (!sep.str->n) return ERR(FORMAT, "empty separator");
        TRY(split_sep(r, s, sep.str, most, back, list));
    }
    if (back) seq_reverse(list);
    *out = val_seq(list);
    return 0;
}

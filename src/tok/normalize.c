/* normalize.c - normalizers: each reads work.text and leaves its result there. */
#include "base/utf8.h"
#include "tok/tok_int.h"

#include <string.h>

static int replace_matches(const struct normalizer *m, struct encode_scratch *w)
{
    struct hit hit;
    bool changed = false;
    size_t done = 0;
    buf_clear(&w->shadow);
    if (!pattern_literal(m->pattern, &(size_t){0}))
        TRY(uni_shadow(w->text.data, w->text.len, &w->shadow, &changed));
    struct hits h = {.p = m->pattern,
                     .s = w->text.data,
                     .shadow = changed ? w->shadow.data : w->text.data,
                     .n = w->text.len};
    for (int found; (found = hits_next(&h, &w->matcher, &hit)) != 0; done = hit.to) {
        if (found < 0) return found;
        /* The replacement gets the place of the last character that it replaces. */
        size_t n = utf8_count(w->text.data + hit.from, hit.to - hit.from);
        if (hit.from == 0 && n > (m->n_text ? 1 : 0)) w->at_start = false;
        TRY(work_keep(w, done, hit.from));
        TRY(work_put(w, m->text, m->n_text, hit.from));
    }
    TRY(work_keep(w, done, w->text.len));
    work_swap(w);
    return 0;
}

static int lower(struct encode_scratch *w)
{
    for (size_t i = 0, len; i < w->text.len; i += len) {
        uint32_t two[2];
        size_t n = uni_lower(utf8_decode(w->text.data + i, w->text.len - i, &len), two);
        for (size_t k = 0; k < n; k++) {
            char c[4];
            TRY(work_put(w, c, utf8_encode(two[k], c), i));
        }
    }
    work_swap(w);
    return 0;
}

static int strip(const struct normalizer *m, struct encode_scratch *w)
{
    const char *s = w->text.data;
    size_t from = 0, to = w->text.len, len;
    while (m->left && from < to && uni_is_space(utf8_decode(s + from, to - from, &len)))
        from += len;
    while (m->right && to > from) {
        size_t k = to - 1;
        while (k > from && ((uint8_t)s[k] & 0xC0) == 0x80)
            k--;
        if (!uni_is_space(utf8_decode(s + k, to - k, &len))) break;
        to = k;
    }
    if (from > 0) w->at_start = false;
    TRY(work_keep(w, from, to));
    work_swap(w);
    return 0;
}

static int bytes(struct encode_scratch *w)
{
    for (size_t i = 0; i < w->text.len; i++) {
        char c[4];
        TRY(work_put(w, c, utf8_encode(byte_to_char((uint8_t)w->text.data[i]), c), i));
    }
    work_swap(w);
    return 0;
}

int work_made(struct encode_scratch *w, uint32_t step)
{
    w->made[step] += w->text.len;
    if (w->made[step] <= w->most) return 0;
    return ERR(
        LIMIT,
        "tokenizer: a step makes more than %zu bytes out of this text; the tokenizer file is "
        "broken or hostile",
        w->most);
}

static int form(const struct normalizer *m, const char *s, size_t n, struct buf *out)
{
    return uni_normalize(m->form, s, n, out);
}

static int map(const struct normalizer *m, const char *s, size_t n, struct buf *out)
{
    return charsmap_apply(m->map, s, n, out);
}

static int normalize_whole(const struct normalizer *m, struct encode_scratch *w,
                           int (*make)(const struct normalizer *m, const char *s, size_t n,
                                       struct buf *out))
{
    TRY(make(m, w->text.data, w->text.len, &w->next));
    TRY(work_place_clusters(w, m, make));
    work_swap(w);
    return 0;
}

static int normalize_step(const struct normalizer *m, struct encode_scratch *w)
{
    work_fresh(w);
    switch (m->kind) {
    case NORM_FORM:
        return normalize_whole(m, w, form);
    case NORM_PREPEND:
        TRY(work_put(w, m->text, m->n_text, 0));
        TRY(work_keep(w, 0, w->text.len));
        work_swap(w);
        return 0;
    case NORM_REPLACE:
        return replace_matches(m, w);
    case NORM_LOWER:
        return lower(w);
    case NORM_STRIP:
        return strip(m, w);
    case NORM_BYTES:
        return bytes(w);
    case NORM_MAP:
        return normalize_whole(m, w, map);
    }
    return 0;
}

int normalize_run(const struct normalizer *v, uint32_t n, struct encode_scratch *w)
{
    for (uint32_t i = 0; i < n && w->text.len > 0; i++) {
        TRY(normalize_step(&v[i], w));
        TRY(work_made(w, i));
    }
    return 0;
}

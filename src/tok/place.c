/* place.c - where tokens come from.  While places are wanted, work.from has an entry for each byte of work.text: the byte of
 * the user's text of which that byte was made.  A step that writes a new text writes it through these functions. */
#include "base/utf8.h"
#include "tok/tok_int.h"

#include <string.h>

static int reserve_places(struct tok_places *p, size_t more)
{
    if (more <= p->cap - p->n) return 0;
    size_t cap = MAX(p->cap * 2, p->n + more + 64);
    uint32_t *v = mem_grow(p->v, cap, sizeof *v);
    if (!v) return ERR_NOMEM;
    p->v = v;
    p->cap = cap;
    return 0;
}

void tok_places_done(struct tok_places *p)
{
    mem_free(p->v);
    *p = (struct tok_places){0};
}

/* Returns the place of byte `at` of work.text; behind the last byte, the place of the last byte. */
static uint32_t place_at(const struct encode_scratch *w, size_t at)
{
    if (!w->from.n) return w->section;
    return w->from.v[MIN(at, w->from.n - 1)];
}

void work_fresh(struct encode_scratch *w)
{
    buf_clear(&w->next);
    w->from_next.n = 0;
}

void work_swap(struct encode_scratch *w)
{
    struct buf t = w->text;
    w->text = w->next;
    w->next = t;
    struct tok_places p = w->from;
    w->from = w->from_next;
    w->from_next = p;
}

int work_load(struct encode_scratch *w, const char *s, size_t n, const uint32_t *from, size_t at)
{
    buf_clear(&w->text);
    TRY(buf_append(&w->text, s, n));
    if (!w->placed) return 0;
    w->from.n = 0;
    TRY(reserve_places(&w->from, n));
    for (size_t i = 0; i < n; i++)
        w->from.v[i] = from ? from[i] : (uint32_t)(at + i);
    w->from.n = n;
    return 0;
}

int work_put(struct encode_scratch *w, const char *s, size_t n, size_t at)
{
    TRY(buf_append(&w->next, s, n));
    if (!w->placed) return 0;
    TRY(reserve_places(&w->from_next, n));
    uint32_t p = place_at(w, at);
    for (size_t i = 0; i < n; i++)
        w->from_next.v[w->from_next.n++] = p;
    return 0;
}

int work_keep(struct encode_scratch *w, size_t from, size_t to)
{
    TRY(buf_append(&w->next, w->text.data + from, to - from));
    if (!w->placed) return 0;
    TRY(reserve_places(&w->from_next, to - from));
    for (size_t i = from; i < to; i++)
        w->from_next.v[w->from_next.n++] = w->from.v[i];
    return 0;
}

static int push_place(struct tok_places *p, uint32_t x)
{
    TRY(reserve_places(p, 1));
    p->v[p->n++] = x;
    return 0;
}

int work_id(struct encode_scratch *w, struct ids *out, int32_t id, size_t at)
{
    TRY(ids_push(out, id));
    if (w->ends) TRY(push_place(&w->begun, (uint32_t)at));
    return w->placed ? work_place(w, place_at(w, at)) : 0;
}

int work_end(struct encode_scratch *w, uint32_t end, uint32_t word)
{
    if (!w->ends) return 0;
    TRY(push_place(w->ends, end));
    return push_place(w->words, word);
}

uint32_t work_end_of(const struct encode_scratch *w, uint32_t last)
{
    size_t end = MIN((size_t)last + 1, w->n_user);
    while (end < w->n_user && ((uint8_t)w->user[end] & 0xC0) == 0x80)
        end++;
    return (uint32_t)end;
}

int work_ends(struct encode_scratch *w, size_t to)
{
    for (size_t i = 0; w->ends && i < w->begun.n; i++) {
        size_t end = i + 1 < w->begun.n ? w->begun.v[i + 1] : to;
        end = MAX(end, (size_t)w->begun.v[i] + 1);
        TRY(work_end(w, work_end_of(w, place_at(w, end - 1)), w->word));
    }
    w->begun.n = 0;
    w->word++;
    return 0;
}

int work_place(struct encode_scratch *w, uint32_t at)
{
    if (!w->placed) return 0;
    TRY(reserve_places(w->placed, 1));
    w->placed->v[w->placed->n++] = at;
    return 0;
}

/* True if a character begins at byte i of s[0..n), or the text ends there. */
static bool between(const char *s, size_t n, size_t i)
{
    return i == n || ((uint8_t)s[i] & 0xC0) != 0x80;
}

/* Finds the places of the text that a step has made of one grapheme cluster.  Characters at either end that are
 * unchanged keep their places.  All others get the place of the first changed character. */
static int place_cluster(struct encode_scratch *w, size_t at, size_t n, const struct buf *made)
{
    const char *old = w->text.data + at, *new = made->data;
    size_t to = made->len, least = MIN(n, to), head = 0, tail = 0;
    TRY(reserve_places(&w->from_next, to));
    while (head < least && old[head] == new[head])
        head++;
    while (head && ((head == n && n < to) || !(between(old, n, head) && between(new, to, head))))
        head--;
    while (tail < least - head && old[n - tail - 1] == new[to - tail - 1])
        tail++;
    while (tail && !(between(old, n, n - tail) && between(new, to, to - tail)))
        tail--;
    for (size_t i = 0; i < to; i++)
        w->from_next.v[w->from_next.n++] = place_at(w, at + (i < head        ? i
                                                             : i < to - tail ? head
                                                                             : i + n - to));
    return 0;
}

int work_place_clusters(struct encode_scratch *w, const struct normalizer *m,
                        int (*make)(const struct normalizer *m, const char *s, size_t n,
                                    struct buf *out))
{
    struct buf one;
    const char *s = w->text.data;
    size_t n = w->text.len, from = 0;
    uint32_t before = 0;
    int32_t state = 0;
    int e = 0;
    if (!w->placed) return 0;
    buf_init(&one, w->most);
    for (size_t i = 0, len; e >= 0 && i <= n; i += len) {
        len = 1;
        uint32_t cp = i < n ? utf8_decode(s + i, n - i, &len) : 0;
        bool joins = i > 0 && i < n && uni_joins(before, cp, &state);
        before = cp;
        if (i == from || joins) continue;
        buf_clear(&one);
        e = make(m, s + from, i - from, &one);
        if (e >= 0) e = place_cluster(w, from, i - from, &one);
        from = i;
    }
    buf_done(&one);
    if (e >= 0 && w->from_next.n != w->next.len)
        e = ERR(
            UNSUPPORTED,
            "tokenizer: normalizing joins characters of this text, so its tokens have no place");
    return MIN(e, 0);
}

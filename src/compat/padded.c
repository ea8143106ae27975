/* padded.c - batches of equal width over sequences of unequal length: open, close, and operations on all batch
 * rows.  A batch is a rectangle.  A batch row is one sequence, and a column is one place in every row: a token of
 * the sequence, or padding, as the mask says.  Padding (a masked column) was never computed.  Callers count in
 * columns; this file translates columns to tokens.  An operation on several sequences is one call that cannot fail
 * half way, or can be undone. */
#include "compat/padded.h"
#include "compat/layers.h"
#include "generate/run.h"

#include <string.h>

uint32_t padded_ones(const uint8_t *mask, uint32_t n)
{
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++)
        k += mask[i] != 0;
    return k;
}

int padded_room(struct kvik_batch *b, uint32_t columns)
{
    size_t bytes;
    if (columns <= b->cap) return 0;
    uint32_t cap = MAX(MAX(64, columns), b->cap > UINT32_MAX / 2 ? UINT32_MAX : 2 * b->cap);
    if (!ck_mul(cap, b->rows, &bytes))
        return ERR(LIMIT, "a batch of %u rows of %u columns takes more than %zu bytes", b->rows,
                   cap, (size_t)SIZE_MAX);
    uint8_t *mask = mem_alloc(bytes);
    if (!mask) return ERR_NOMEM;
    for (uint32_t i = 0; b->mask && i < b->rows; i++)
        memcpy(mask + (size_t)i * cap, b->mask + (size_t)i * b->cap, b->length);
    mem_free(b->mask);
    b->mask = mask;
    b->cap = cap;
    return 0;
}

/* Makes a batch without sequences. */
static int hull(kvik_cache *c, uint32_t rows, uint32_t columns, kvik_batch **out)
{
    if (!rows) return ERR(ARG, "a batch needs at least one row");
    if (rows > c->x->max_seqs)
        return ERR(LIMIT, "a batch of %u rows, the cache was opened for max_sequences %u", rows,
                   c->x->max_seqs);
    kvik_batch *b = mem_alloc(sizeof *b);
    if (!b) return ERR_NOMEM;
    b->c = cache_hold(c);
    refs_init(&b->refs);
    b->rows = rows;
    b->seq = mem_array(rows, sizeof *b->seq);
    int e = b->seq ? padded_room(b, columns) : ERR_NOMEM;
    if (e < 0) {
        batch_drop(b);
        return e;
    }
    *out = b;
    return 0;
}

KVIK_API int kvik_batch_open(kvik_cache *c, uint32_t rows, kvik_batch **out)
{
    kvik_batch *b;
    USE_CACHE(c);
    if (!out) return ERR(ARG, "opening a batch needs a pointer for its handle");
    TRY(hull(c, rows, 1, &b));
    for (uint32_t i = 0; i < rows; i++) {
        int e = exec_new(c->x, NULL, &b->seq[i]);
        if (e < 0) {
            e = cache_full(c, e);
            batch_drop(b);
            return e;
        }
    }
    *out = b;
    return 0;
}

/* Drops a batch.  As after kvik_cache_drop, the index keeps the rows for later prompts with the same beginning. */
static void close_batch(struct late_close *self)
{
    kvik_batch *b = (kvik_batch *)((char *)self - offsetof(struct kvik_batch, close));
    for (uint32_t i = 0; b->seq && i < b->rows; i++)
        if (b->seq[i] && !driver_inherit(b->c->driver, b->seq[i]))
            (void)kv_keep(b->c->x->kv, b->seq[i]);
    padded_scratch_free(b->scratch);
    mem_free(b->seq);
    mem_free(b->mask);
    cache_drop(b->c);
    mem_free(b);
}

void batch_drop(kvik_batch *b)
{
    if (!refs_drop(&b->refs)) return;
    b->close.run = close_batch;
    cache_close_late(b->c, &b->close);
}

KVIK_API void kvik_batch_close(kvik_batch *b)
{
    if (!b || !refs_is_open(&b->refs) || guard_foreign(&b->c->guard)) return;
    if (refs_close(&b->refs)) batch_drop(b);
}

int padded_of(kvik_cache *c, const kv_seq *seq, uint32_t n, const uint8_t *mask, uint32_t length,
              kvik_batch **out)
{
    kvik_batch *b;
    TRY(hull(c, n, MAX(length, 1), &b));
    memcpy(b->seq, seq, n * sizeof *seq);
    for (uint32_t i = 0; length && i < n; i++)
        memcpy(b->mask + (size_t)i * b->cap, mask + (size_t)i * length, length);
    b->length = length;
    *out = b;
    return 0;
}

int padded_settle(struct kvik_batch *b, const uint8_t *mask, uint32_t columns)
{
    uint32_t longest = 0;
    for (uint32_t i = 0; i < b->rows; i++) {
        uint32_t ones = padded_ones(mask + (size_t)i * columns, columns);
        uint32_t len = kv_len(b->c->x->kv, b->seq[i]);
        longest = MAX(longest, len - MIN(len, ones));
    }
    TRY(padded_room(b, columns + longest));
    b->length = columns + longest;
    for (uint32_t i = 0; i < b->rows; i++) {
        uint8_t *to = b->mask + (size_t)i * b->cap;
        uint32_t len = kv_len(b->c->x->kv, b->seq[i]);
        for (uint32_t j = 0; j < b->length; j++) {
            to[j] = (j >= columns || mask[(size_t)i * columns + j]) && len;
            len -= to[j];
        }
    }
    return 0;
}

KVIK_API int kvik_batch_of(kvik_cache *c, const kvik_seq *seq, uint32_t n, const uint8_t *mask,
                           uint32_t width, kvik_batch **out)
{
    kvik_batch *b;
    USE_CACHE(c);
    if (!seq || !out || (width && !mask))
        return ERR(ARG, "a batch is made of sequences, and of a mask that has `width` columns");
    if (width > UINT32_MAX / 4) return ERR(LIMIT, "a mask of %u columns is too wide", width);
    TRY(cache_free(c, seq, n));
    for (uint32_t i = 0; i < n; i++) {
        if (!kv_tokens(c->x->kv, seq[i])) return ERR(STALE, "sequence %u was dropped", i);
        for (uint32_t j = 0; j < i; j++)
            if (seq[j] == seq[i]) return ERR(ARG, "rows %u and %u are the same sequence", j, i);
    }
    TRY(hull(c, n, 1, &b));
    kv_seq *own = b->seq;
    memcpy(own, seq, n * sizeof *seq);
    int e = padded_settle(b, mask, width);
    if (e < 0) {
        memset(own, 0, n * sizeof *own); /* the sequences stay the caller's */
        batch_drop(b);
        return e;
    }
    *out = b;
    return 0;
}

KVIK_API uint32_t kvik_batch_rows(const kvik_batch *b)
{
    USE_BATCH_OR(b, 0);
    return b->rows;
}

KVIK_API uint32_t kvik_batch_length(const kvik_batch *b)
{
    USE_BATCH_OR(b, 0);
    return b->length;
}

KVIK_API int kvik_batch_mask(const kvik_batch *b, uint8_t *mask)
{
    USE_BATCH(b);
    if (!mask) return ERR(ARG, "reading a mask needs room for it");
    for (uint32_t i = 0; b->length && i < b->rows; i++)
        memcpy(mask + (size_t)i * b->length, b->mask + (size_t)i * b->cap, b->length);
    return 0;
}

KVIK_API kvik_seq kvik_batch_seq(const kvik_batch *b, uint32_t row)
{
    USE_BATCH_OR(b, 0);
    return row < b->rows ? b->seq[row] : 0;
}

/* Crops sequences to the lengths want[rows].  Sequences that must recompute rows go first, and are marked.  Then
 * the others have the room that they need, so cropping them cannot fail. */
static int crop_rows(struct kvik_batch *b, const uint32_t *want, struct kv_mark *mark)
{
    struct exec *x = b->c->x;
    uint32_t have, done = 0;
    int e = 0;
    for (uint32_t i = 0; e >= 0 && i < b->rows; i++) {
        e = kv_resume(x->kv, b->seq[i], want[i], &have);
        if (e >= 0 && have != want[i]) e = kv_mark(x->kv, b->seq[i], &mark[i]);
    }
    for (; e >= 0 && done < b->rows; done++)
        if (mark[done].seq) e = exec_crop(x, b->seq[done], want[done]);
    /* marked sequences have these lengths already */
    if (e >= 0) e = kv_trim_room(x->kv, b->seq, want, b->rows);
    for (uint32_t i = 0; i < b->rows; i++)
        if (e >= 0 && !mark[i].seq) e = exec_crop(x, b->seq[i], want[i]);
    for (uint32_t i = 0; i < b->rows; i++)
        kv_settle(x->kv, &mark[i], e < 0);
    return e;
}

KVIK_API int kvik_batch_crop(kvik_batch *b, int64_t n)
{
    USE_BATCH(b);
    TRY(cache_free(b->c, b->seq, b->rows));
    int64_t kept = crop_kept(n, b->length);
    if (kept < 0)
        return ERR(ARG, "crop by %llu columns, the batch has %u", (unsigned long long)-(uint64_t)n,
                   b->length);
    uint32_t keep = (uint32_t)kept;
    uint32_t *want = mem_array(b->rows, sizeof *want);
    struct kv_mark *mark = mem_array(b->rows, sizeof *mark);
    int e = want && mark ? 0 : ERR_NOMEM;
    for (uint32_t i = 0; e >= 0 && i < b->rows; i++)
        want[i] = padded_ones(b->mask + (size_t)i * b->cap, keep);
    if (e >= 0 && keep < b->length) e = cache_full(b->c, crop_rows(b, want, mark));
    if (e >= 0) b->length = keep;
    mem_free(want);
    mem_free(mark);
    return e;
}

KVIK_API int kvik_batch_reset(kvik_batch *b)
{
    USE_BATCH(b);
    TRY(cache_free(b->c, b->seq, b->rows));
    uint32_t *none = mem_array(b->rows, sizeof *none);
    int e = none ? kv_trim_room(b->c->x->kv, b->seq, none, b->rows) : ERR_NOMEM;
    mem_free(none);
    for (uint32_t i = 0; e >= 0 && i < b->rows; i++)
        e = cache_clear(b->c, b->seq[i]);
    if (e >= 0) b->length = 0;
    return cache_full(b->c, e);
}

KVIK_API int kvik_batch_select(kvik_batch *b, const uint32_t *index, uint32_t n)
{
    USE_BATCH(b);
    if (n && !index) return ERR(ARG, "selecting rows needs their indices");
    TRY(cache_free(b->c, b->seq, b->rows));
    struct exec *x = b->c->x;
    if (!n || n > x->max_seqs)
        return ERR(LIMIT, "a batch of %u rows, the cache was opened for max_sequences %u", n,
                   x->max_seqs);
    for (uint32_t i = 0; i < n; i++)
        if (index[i] >= b->rows) return ERR(ARG, "row %u of a batch of %u", index[i], b->rows);
    uint32_t most = MAX(n, b->rows), made = b->rows;
    kv_seq *seq = mem_array(most, sizeof *seq);
    uint32_t *from = mem_array(most, sizeof *from);
    uint8_t *mask = mem_array(n, b->cap);
    int e = seq && from && mask ? 0 : ERR_NOMEM;
    if (e >= 0) memcpy(seq, b->seq, b->rows * sizeof *seq);
    for (; e >= 0 && made < n; made += e >= 0)
        e = exec_new(x, NULL, &seq[made]);
    for (uint32_t i = 0; e >= 0 && i < most; i++)
        from[i] = i < n ? index[i] : i;
    if (e >= 0) e = kv_reorder(x->kv, seq, from, most);
    for (uint32_t i = e >= 0 ? n : b->rows; seq && i < made; i++)
        (void)kv_drop(x->kv, seq[i]); /* those not selected; after a failure the new ones */
    if (e >= 0) {
        for (uint32_t i = 0; i < n; i++)
            memcpy(mask + (size_t)i * b->cap, b->mask + (size_t)index[i] * b->cap, b->length);
        mem_free(b->seq);
        mem_free(b->mask);
        b->seq = seq;
        b->mask = mask;
        b->rows = n;
        padded_scratch_free(b->scratch);
        b->scratch = NULL;
    } else {
        mem_free(seq);
        mem_free(mask);
    }
    mem_free(from);
    return cache_full(b->c, e);
}

KVIK_API int kvik_batch_reorder(kvik_batch *b, const uint32_t *beam_idx)
{
    USE_BATCH(b);
    return kvik_batch_select(b, beam_idx, b->rows);
}

KVIK_API int kvik_batch_repeat(kvik_batch *b, uint32_t times)
{
    uint32_t n, *index;
    USE_BATCH(b);
    if (!times) return ERR(ARG, "repeating needs a number of times above 0");
    TRY(rows_repeated(b->rows, times, b->c->x->max_seqs, &index, &n));
    int e = kvik_batch_select(b, index, n);
    mem_free(index);
    return e;
}

KVIK_API int kvik_batch_copy(const kvik_batch *b, kvik_batch **out)
{
    kvik_batch *d;
    USE_BATCH(b);
    if (!out) return ERR(ARG, "copying needs a pointer for the copy");
    /* while a call is running the mask does not have its tokens yet */
    TRY(cache_free(b->c, b->seq, b->rows));
    TRY(hull(b->c, b->rows, MAX(b->length, 1), &d));
    for (uint32_t i = 0; i < b->rows; i++) {
        int e = exec_fork(b->c->x, b->seq[i], &d->seq[i]);
        if (e < 0) {
            e = cache_full(b->c, e);
            batch_drop(d);
            return e;
        }
        memcpy(d->mask + (size_t)i * d->cap, b->mask + (size_t)i * b->cap, b->length);
    }
    d->length = b->length;
    *out = d;
    return 0;
}

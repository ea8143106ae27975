/* padded_forward.c - one forward of a padded batch, with the arguments and errors of a forward in Transformers.
 * Each batch row of the rectangle becomes one feed without padding: masked columns are left out, and the others
 * are computed at the requested positions.  Results are spread to rectangles again, with zeros in masked columns.
 * The mask grows only when everything has succeeded. */
#include "compat/lender.h"

#include <string.h>

struct padded_scratch {
    size_t cells;  /* number of cells (rows * n) that the arrays have room for */
    int32_t *tok;  /* [cells] */
    uint32_t *pos; /* [cells] */
    uint8_t *real; /* [cells] 1: the cell is a token; 0: padding */
    uint8_t *want; /* [cells] tokens of the feeds whose logits are wanted */
    uint8_t *keep; /* [n] columns whose logits are wanted */
    size_t columns;
    float *embeds; /* [embedded] values */
    size_t embedded;
    uint32_t *count;          /* [rows] number of tokens */
    struct exec_probe *probe; /* [rows] */
};

void padded_scratch_free(struct padded_scratch *s)
{
    if (!s) return;
    void *own[] = {s->tok, s->pos, s->real, s->want, s->keep, s->embeds, s->count, s->probe, s};
    for (size_t i = 0; i < countof(own); i++)
        mem_free(own[i]);
}

/* Grows the scratch for this call.  A loop over single columns allocates only in its first call. */
static int scratch(struct kvik_batch *b, const kvik_inputs *in, struct padded_scratch **out)
{
    struct padded_scratch *s = b->scratch;
    size_t cells, embedded = 0, hidden = b->c->x->m->hidden;
    if (!ck_mul(b->rows, in->n, &cells) || (in->embeds && !ck_mul(cells, hidden, &embedded)))
        return ERR(LIMIT, "%u rows of %u columns are too many", b->rows, in->n);
    if (s && cells <= s->cells && in->n <= s->columns && embedded <= s->embedded) {
        *out = s;
        return 0;
    }
    s = mem_alloc(sizeof *s);
    if (!s) return ERR_NOMEM;
    s->cells = cells;
    s->columns = in->n;
    s->embedded = embedded;
    s->tok = mem_array(cells, sizeof *s->tok);
    s->pos = mem_array(cells, sizeof *s->pos);
    s->real = mem_alloc(cells);
    s->want = mem_alloc(cells);
    s->keep = mem_alloc(in->n);
    s->embeds = embedded ? mem_array(embedded, sizeof *s->embeds) : NULL;
    s->count = mem_array(b->rows, sizeof *s->count);
    s->probe = mem_array(b->rows, sizeof *s->probe);
    if (!s->tok || !s->pos || !s->real || !s->want || !s->keep || (embedded && !s->embeds) ||
        !s->count || !s->probe) {
        padded_scratch_free(s);
        return ERR_NOMEM;
    }
    padded_scratch_free(b->scratch);
    *out = b->scratch = s;
    return 0;
}

/* Returns the number of columns before those of a forward. */
static uint32_t past_of(const struct kvik_batch *b, const kvik_inputs *in)
{
    return in->on_layer ? in->past : b->length;
}

static int check_mask(const struct kvik_batch *b, const kvik_inputs *in)
{
    uint32_t past = past_of(b, in);
    if (in->attention_mask && in->width != past + in->n)
        return ERR(ARG,
                   "the attention mask has %u columns; %u are cached and %u come now, so it needs "
                   "%u",
                   in->width, past, in->n, past + in->n);
    for (uint32_t i = 0; i < b->rows && !in->on_layer; i++) {
        const uint8_t *was = b->mask + (size_t)i * b->cap;
        const uint8_t *is = in->attention_mask ? in->attention_mask + (size_t)i * in->width : NULL;
        uint32_t fed = padded_ones(was, past), rows = kv_len(b->c->x->kv, b->seq[i]);
        if (fed != rows)
            return ERR(
                ARG,
                "row %u: its sequence has %u tokens, the batch counts %u; change a batch only by "
                "kvik_batch_ calls",
                i, rows, fed);
        for (uint32_t j = 0; j < past; j++) {
            bool shows = is ? is[j] != 0 : true;
            if (shows == (was[j] != 0)) continue;
            return ERR(
                ARG,
                "row %u column %u was %s when it was computed, %s; a mask cannot change cached "
                "columns",
                i, j, was[j] ? "seen" : "masked",
                !is     ? "and no attention mask means that every column is seen"
                : shows ? "now it is seen"
                        : "now it is masked");
        }
    }
    return 0;
}

static int check_inputs(const struct kvik_batch *b, const kvik_inputs *in)
{
    uint32_t past = past_of(b, in);
    if (!in->n || !in->ids == !in->embeds)
        return ERR(ARG, "a forward needs columns of either ids or embeds");
    if (in->n > UINT32_MAX / 2 || past > UINT32_MAX / 2)
        return ERR(LIMIT, "%u columns after %u: each may be at most %u", in->n, past,
                   UINT32_MAX / 2);
    TRY(check_mask(b, in));
    for (uint32_t j = 0; in->cache_position && j < in->n; j++)
        if (in->cache_position[j] != past + j)
            return ERR(ARG, "cache_position[%u] is %u; %u columns are cached, so it must be %u", j,
                       in->cache_position[j], past, past + j);
    if (in->position_ids && in->position_rows > 1 && in->position_rows != b->rows)
        return ERR(ARG, "position_ids of %u rows for a batch of %u", in->position_rows, b->rows);
    if (in->logits_to_keep > in->n)
        return ERR(ARG, "logits_to_keep is %u, the call has %u columns", in->logits_to_keep, in->n);
    if (in->n_columns && !in->columns)
        return ERR(ARG, "n_columns is %u, and columns is NULL", in->n_columns);
    for (uint32_t k = 0; k < in->n_columns; k++)
        if (in->columns[k] >= in->n || (k && in->columns[k] <= in->columns[k - 1]))
            return ERR(ARG, "logits of column %u: columns must ascend and be below %u",
                       in->columns[k], in->n);
    return 0;
}

/* Marks the columns whose logits are wanted.  Returns their number. */
static uint32_t choose_columns(const kvik_inputs *in, uint8_t *keep)
{
    uint32_t last = in->logits_to_keep ? in->logits_to_keep : in->n;
    memset(keep, 0, in->n);
    for (uint32_t k = 0; in->columns && k < in->n_columns; k++)
        keep[in->columns[k]] = 1;
    if (in->columns) return in->n_columns;
    memset(keep + in->n - last, 1, last);
    return last;
}

static int position(const struct kvik_batch *b, const kvik_inputs *in, uint32_t i, uint32_t j,
                    uint32_t *out)
{
    *out = past_of(b, in) + j;
    if (!in->position_ids) return 0;
    int32_t p = in->position_ids[(in->position_rows == 1 ? 0 : (size_t)i * in->n) + j];
    if (p < 0) return ERR(ARG, "row %u column %u: position %d is negative", i, j, p);
    *out = (uint32_t)p;
    return 0;
}

/* Makes the feed of batch row i: its tokens, without padding. */
static int row_feed(struct kvik_batch *b, const kvik_inputs *in, struct padded_scratch *s,
                    uint32_t i, struct exec_feed *f)
{
    struct exec *x = b->c->x;
    size_t at = (size_t)i * in->n, hidden = x->m->hidden;
    uint32_t len = kv_len(x->kv, b->seq[i]), k = 0, lead = 0;
    const uint8_t *mask = in->attention_mask;
    bool own = true;
    if (mask) mask += (size_t)i * in->width + past_of(b, in);
    for (uint32_t j = 0; j < in->n; j++) {
        uint8_t real = !mask || mask[j];
        s->real[at + j] = real;
        if (!real) continue;
        if (!k) lead = j;
        TRY(position(b, in, i, j, &s->pos[at + k]));
        own &= s->pos[at + k] == len + k;
        if (in->ids) s->tok[at + k] = in->ids[at + j];
        if (in->embeds)
            memcpy(s->embeds + (at + k) * hidden, in->embeds + (at + j) * hidden,
                   hidden * sizeof(float));
        s->want[at + k++] = s->keep[j];
    }
    s->count[i] = k;
    *f = (struct exec_feed){.seq = b->seq[i],
                            .tok = in->ids ? s->tok + at : NULL,
                            .embeds = in->embeds ? s->embeds + at * hidden : NULL,
                            .n = k,
                            .pos = own ? NULL : s->pos + at,
                            .want = s->want + at,
                            .pad = past_of(b, in) + lead};
    return 0;
}

/* Allocates hidden states and attentions of every row, without padding. */
static int probe_new(const struct kvik_batch *b, const kvik_outputs *out, struct padded_scratch *s)
{
    const struct exec *x = b->c->x;
    const struct model *m = x->m;
    memset(s->probe, 0, b->rows * sizeof *s->probe);
    for (uint32_t i = 0; i < b->rows; i++) {
        struct exec_probe *p = &s->probe[i];
        size_t n = s->count[i], layers = m->n_layers;
        if (!n) continue;
        if (out->hidden_states) {
            p->hidden = mem_array((layers + 1) * n, m->hidden * sizeof(float));
            if (!p->hidden) return ERR_NOMEM;
        }
        if (out->attentions) {
            size_t bytes;
            p->columns = kv_len(x->kv, b->seq[i]) + s->count[i];
            if (!ck_mul(layers * m->n_heads * sizeof(float), n, &bytes))
                return ERR(LIMIT, "attentions of %zu columns are too many", n);
            p->attention = mem_array(bytes, p->columns);
            if (!p->attention) return ERR_NOMEM;
        }
        if (out->cross_attentions && (p->heard = kv_cross(x->kv, b->seq[i]))) {
            size_t bytes;
            if (!ck_mul(layers * m->n_heads * sizeof(float), n, &bytes))
                return ERR(LIMIT, "attentions of %zu columns are too many", n);
            p->cross = mem_array(bytes, p->heard);
            if (!p->cross) return ERR_NOMEM;
        }
    }
    return 0;
}

/* Spreads `have` adjacent rows of `width` floats to the marked cells of n cells, in place.  The other cells become
 * zeros. */
static void spread_cells(float *x, size_t width, const uint8_t *marked, size_t n, size_t have)
{
    for (size_t i = n; i-- > 0;) {
        if (!marked[i]) {
            memset(x + i * width, 0, width * sizeof *x);
        } else if (--have != i) {
            memmove(x + i * width, x + have * width, width * sizeof *x);
        }
    }
}

/* Spreads the logits: a wanted column gets zeros in the rows where it is padding. */
static void logits_out(const struct kvik_batch *b, const kvik_inputs *in, struct padded_scratch *s,
                       uint32_t kept, float *logits)
{
    size_t have = 0, cell = 0;
    for (uint32_t i = 0; i < b->rows; i++)
        for (uint32_t j = 0; j < in->n; j++) {
            if (!s->keep[j]) continue;
            uint8_t real = s->real[(size_t)i * in->n + j];
            have += real;
            /* the feed is over, so `want` can hold the mask of the wanted cells */
            s->want[cell++] = real;
        }
    if (have < cell) spread_cells(logits, b->c->x->m->vocab, s->want, (size_t)b->rows * kept, have);
}

static void hidden_out(const struct kvik_batch *b, const kvik_inputs *in,
                       const struct padded_scratch *s, float *out)
{
    size_t width = b->c->x->m->hidden, n = in->n;
    for (uint32_t i = 0; i < b->rows; i++)
        for (uint32_t l = 0; l <= b->c->x->m->n_layers; l++) {
            float *to = out + ((size_t)l * b->rows + i) * n * width;
            size_t have = s->count[i];
            if (have) memcpy(to, s->probe[i].hidden + l * have * width, have * width * sizeof *to);
            spread_cells(to, width, s->real + (size_t)i * n, n, have);
        }
}

/* Writes the attention of every row.  Each token that is seen goes into its column. */
static void attention_out(const struct kvik_batch *b, const kvik_inputs *in,
                          const struct padded_scratch *s, float *out)
{
    const struct model *m = b->c->x->m;
    size_t n = in->n, width = b->length + n;
    memset(out, 0, (size_t)m->n_layers * b->rows * m->n_heads * n * width * sizeof *out);
    for (uint32_t i = 0; i < b->rows; i++) {
        const struct exec_probe *p = &s->probe[i];
        const uint8_t *was = b->mask + (size_t)i * b->cap, *is = s->real + (size_t)i * n;
        for (size_t l = 0; p->attention && l < m->n_layers; l++)
            for (size_t h = 0; h < m->n_heads; h++)
                for (size_t j = 0, k = 0; j < n; j++) {
                    if (!is[j]) continue;
                    const float *from =
                        p->attention + ((l * m->n_heads + h) * s->count[i] + k++) * p->columns;
                    float *to = out + (((l * b->rows + i) * m->n_heads + h) * n + j) * width;
                    for (size_t c = 0; c < width; c++)
                        if (c < b->length ? was[c] : is[c - b->length]) to[c] = *from++;
                }
    }
}

/* Does the same for attention to the rows of the encoder. */
static void cross_out(const struct kvik_batch *b, const kvik_inputs *in,
                      const struct padded_scratch *s, float *out)
{
    const struct model *m = b->c->x->m;
    size_t n = in->n, width = 0;
    for (uint32_t i = 0; i < b->rows; i++)
        width = MAX(width, kv_cross(b->c->x->kv, b->seq[i]));
    memset(out, 0, (size_t)m->n_layers * b->rows * m->n_heads * n * width * sizeof *out);
    for (uint32_t i = 0; i < b->rows; i++) {
        const struct exec_probe *p = &s->probe[i];
        const uint8_t *is = s->real + (size_t)i * n;
        for (size_t l = 0; p->cross && l < m->n_layers; l++)
            for (size_t h = 0; h < m->n_heads; h++)
                for (size_t j = 0, k = 0; j < n; j++)
                    if (is[j])
                        memcpy(out + (((l * b->rows + i) * m->n_heads + h) * n + j) * width,
                               p->cross + ((l * m->n_heads + h) * s->count[i] + k++) * p->heard,
                               p->heard * sizeof *out);
    }
}

static void append_mask(struct kvik_batch *b, const kvik_inputs *in, const struct padded_scratch *s)
{
    for (uint32_t i = 0; i < b->rows; i++)
        memcpy(b->mask + (size_t)i * b->cap + b->length, s->real + (size_t)i * in->n, in->n);
    b->length += in->n;
}

/* Runs the first k feeds of the call. */
static int feed(struct kvik_batch *b, const kvik_inputs *in, struct padded_scratch *s, uint32_t k,
                float *logits)
{
    struct exec *x = b->c->x;
    struct lender lender;
    if (!in->on_layer) return cache_full(b->c, exec_feed(x, x->call, k, 0, logits, NULL, NULL));
    int e = lender_open(&lender, b, in, s->real, s->count, x->call, k);
    x->lender = &lender.to;
    if (e >= 0) e = cache_full(b->c, exec_feed(x, x->call, k, 0, logits, NULL, NULL));
    x->lender = NULL;
    lender_close(&lender);
    for (uint32_t i = 0, have; e >= 0 && i < b->rows && !lender_grows(b); i++)
        e = kv_trim(x->kv, b->seq[i], 0, &have); /* the rows of an encoder stay */
    return e;
}

static int feed_rows(struct kvik_batch *b, const kvik_inputs *in, const kvik_outputs *out,
                     struct padded_scratch *s)
{
    struct exec *x = b->c->x;
    uint32_t k = 0, kept = choose_columns(in, s->keep);
    bool probing = out && (out->hidden_states || out->attentions || out->cross_attentions);
    float *logits = out ? out->logits : NULL;
    for (uint32_t i = 0; i < b->rows; i++) {
        TRY(row_feed(b, in, s, i, &x->call[k]));
        if (x->call[k].pos && exec_sinks(x))
            return ERR(
                UNSUPPORTED,
                "row %u: a sink cache sets positions itself; give position_ids that count each "
                "row's tokens from 0",
                i);
        if (probing) x->call[k].probe = &s->probe[i];
        k += s->count[i] > 0;
    }
    if (probing) TRY(probe_new(b, out, s));
    if (k) TRY(feed(b, in, s, k, logits));
    if (logits) logits_out(b, in, s, kept, logits);
    if (out && out->hidden_states) hidden_out(b, in, s, out->hidden_states);
    if (out && out->attentions) attention_out(b, in, s, out->attentions);
    if (out && out->cross_attentions) cross_out(b, in, s, out->cross_attentions);
    if (!in->on_layer || lender_grows(b)) append_mask(b, in, s);
    return 0;
}

KVIK_API int kvik_batch_forward(kvik_batch *b, const kvik_inputs *given, const kvik_outputs *out)
{
    struct padded_scratch *s;
    kvik_inputs inputs = {0}, *in = &inputs;
    kvik_outputs outputs = {0};
    USE_BATCH(b);
    if (!given) return ERR(ARG, "a forward needs inputs");
    TRY(cache_free(b->c, b->seq, b->rows));
    TRY(SIZED_IN(&inputs, given, kvik_inputs));
    if (out) TRY(SIZED_IN(&outputs, out, kvik_outputs));
    if (out) out = &outputs;
    TRY(check_inputs(b, in));
    if (in->on_layer) TRY(lender_check(b, in, out));
    TRY(padded_room(b, b->length + in->n));
    TRY(scratch(b, in, &s));
    memset(s->probe, 0, b->rows * sizeof *s->probe);
    int e = feed_rows(b, in, out, s);
    for (uint32_t i = 0; i < b->rows; i++) {
        mem_free(s->probe[i].hidden);
        mem_free(s->probe[i].attention);
        mem_free(s->probe[i].cross);
        s->probe[i] = (struct exec_probe){0};
    }
    return e;
}

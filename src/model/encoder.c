/* encoder.c - gives a sequence the rows of an encoder.  If another sequence has the rows of the same input, they
 * are shared by reference; else the encoder's phase computes them in one step.  The SHA-256 of the input is part
 * of the sequence's salt.  So rows of a text that was decoded after one input are never found for another input,
 * and frozen rows are found by their input alone. */
#include "base/digest.h"
#include "model/model.h"

#include <math.h>
#include <string.h>

bool exec_unheard(const struct exec *x, kv_seq seq)
{
    bool needs = false;
    for (uint32_t i = 0; i < x->n_groups; i++)
        needs |= x->group[i].policy.kind == KV_FROZEN;
    return needs && !kv_cross(x->kv, seq);
}

/* Checks an input of frames and returns its rows. */
static int rows_of_features(const struct model *m, const struct exec_source *s)
{
    const struct model_encoder *e = &m->encoder;
    uint64_t rows = ((uint64_t)s->frames + e->stride - 1) / e->stride;
    if (!e->bins)
        return ERR(ARG, "%s: the encoder takes token ids, and features were given", m->what);
    if (e->whole && s->frames != (uint64_t)e->rows * e->stride)
        return ERR(ARG, "%s: the encoder takes exactly %u frames of features, not %u", m->what,
                   e->rows * e->stride, s->frames);
    for (size_t i = 0; i < (size_t)s->frames * e->bins; i++)
        if (!isfinite(s->features[i]))
            return ERR(ARG, "%s: feature %zu is not a finite number", m->what, i);
    return (int)MIN(rows, INT32_MAX);
}

static int rows_of_ids(const struct model *m, const struct exec_source *s)
{
    if (m->encoder.bins)
        return ERR(ARG,
                   "%s: the encoder takes features of %u values a frame, and token ids were given",
                   m->what, m->encoder.bins);
    for (uint32_t i = 0; i < s->n; i++)
        if (s->ids[i] < 0 || (uint32_t)s->ids[i] >= m->vocab)
            return ERR(ARG, "token id %d is outside the vocabulary of %u", s->ids[i], m->vocab);
    if (s->n && (uint64_t)s->first + s->n > m->encoder.rows && m->encoder.fixed)
        return ERR(LIMIT,
                   "the encoder's input has %u tokens behind %u masked columns, which count; the "
                   "model has %u positions",
                   s->n, s->first, m->encoder.rows);
    return (int)MIN(s->n, (uint32_t)INT32_MAX);
}

int exec_source_rows(const struct exec *x, const struct exec_source *s)
{
    const struct model *m = x->m;
    if (!x->encode) return ERR(ARG, "%s: %s has no encoder", m->what, m->arch_name);
    int rows = s->features ? rows_of_features(m, s) : rows_of_ids(m, s);
    if (rows < 0) return rows;
    if (!rows) return ERR(ARG, "the encoder's input is empty");
    if ((uint32_t)rows > x->encoder_rows)
        return ERR(LIMIT, "the encoder's input has %d rows, and the cache was opened for %u%s",
                   rows, x->encoder_rows, m->encoder.fixed ? "" : "; raise max_encoder_len");
    return rows;
}

/* Writes the SHA-256 of an input, never all zero. */
static void digest_source(const struct exec *x, const struct exec_source *s, uint8_t out[KV_DIGEST])
{
    struct digest d;
    size_t n = s->features ? (size_t)s->frames * x->m->encoder.bins : s->n;
    digest_begin(&d);
    digest_text(&d, s->features ? "features" : "ids");
    digest_u64(&d, n);
    if (s->first) digest_u64(&d, s->first); /* at other positions the same ids have other rows */
    digest_add(&d, s->features ? (const void *)s->features : s->ids, n * sizeof(float));
    digest_end(&d, out);
}

int exec_encode(struct exec *x, kv_seq seq, const struct exec_source *s)
{
    uint32_t have;
    struct kv_salt salt = kv_salt(x->kv, seq), was = salt;
    int rows = exec_source_rows(x, s);
    if (rows < 0) return rows;
    digest_source(x, s, salt.source);
    if (kv_cross(x->kv, seq)) {
        if (memcmp(salt.source, was.source, sizeof salt.source) == 0) return 0;
        return ERR(ARG, "the sequence has the rows of another encoder input; reset it, or use a "
                        "sequence of its own");
    }
    if (kv_len(x->kv, seq))
        return ERR(ARG, "the encoder's rows come before the text, and the sequence has %u tokens",
                   kv_len(x->kv, seq));
    TRY(exec_idle(x));
    TRY(checkpoint_recheck(x->m->ck));
    TRY(kv_resalt(x->kv, seq, &salt));
    int e = kv_adopt(x->kv, seq, &have);
    struct exec_span span = {.rows = {.seq = seq, .n = (uint32_t)rows, .cross = true}, .source = s};
    if (e >= 0 && !have) e = exec_step(x, &span, 1, NULL);
    if (e < 0) (void)kv_resalt(x->kv, seq, &was);
    return e;
}

/* Ends a step of an encoder that runs for its probe alone: no row is accepted. */
static int end_shown(void *ctx, const float *logits, uint32_t *accepted)
{
    (void)logits;
    (void)accepted;
    *(bool *)ctx = true;
    return ERR_CANCELLED;
}

int exec_show_encoder(struct exec *x, const struct exec_source *s)
{
    kv_seq seq;
    bool done = false;
    int rows = exec_source_rows(x, s);
    if (rows < 0) return rows;
    TRY(exec_idle(x));
    TRY(checkpoint_recheck(x->m->ck));
    TRY(kv_new(x->kv, NULL, &seq));
    struct exec_span span = {.rows = {.seq = seq, .n = (uint32_t)rows, .cross = true}, .source = s};
    int e = exec_step_judged(x, &span, 1, NULL, end_shown, &done);
    kv_drop(x->kv, seq);
    return done ? 0 : e;
}

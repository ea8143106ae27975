/* draft_model.c - draft tokens of a second, smaller model with the same vocabulary (assistant_model).  The
 * assistant has a cache of its own.  For every row this cache has a sequence of the certain tokens.  The assistant
 * decodes its draft greedily in a fork of that sequence.  The accepted part of the fork becomes the sequence of
 * certain tokens if every group of the cache can resume from there; otherwise these tokens are recomputed.  The
 * rows stay in the cache's prefix index for the next call.
 *
 * If the assistant's cache is full, has no sequence left, or is too short for a row, the row gets no more drafts.
 * This costs only speed. */
#include "generate/chain.h"
#include "generate/draft.h"
#include "generate/options.h"

#include <string.h>

struct helper { /* state of one row */
    /* sequences of the certain tokens, and of their fork with the draft; 0: not made yet */
    kv_seq sure, draft;
    uint32_t tokens;        /* longest draft that the schedule allows */
    bool resting, thinking; /* resting: gets no more drafts; thinking: gets a token in this call */
};
struct assistant {
    struct gen_assistant *a;
    struct assistant *next; /* list of open assistants on `a` */
    const kvik_generation *g;
    const struct tok *tok;
    struct gen_chain *chain; /* processors also apply to drafts */
    struct helper *helper;   /* [n] by rows */
    struct kv_salt salt;     /* salt of the assistant's sequences, which is that of the run */
    uint32_t n, vocab;
    struct exec_feed *feed; /* [n] */
    uint32_t *asked;        /* [n] the draft_row of each feed */
    float *logits, *scores; /* [n][vocab], [vocab] */
};

static void drop_seq(const struct assistant *s, kv_seq *seq)
{
    if (*seq) (void)kv_drop(s->a->x->kv, *seq);
    *seq = 0;
}

/* Gives a row no more drafts. */
static void rest_row(const struct assistant *s, struct helper *h)
{
    h->resting = true;
    h->thinking = false;
    drop_seq(s, &h->draft);
    drop_seq(s, &h->sure);
}

/* Makes `sure` a sequence of the certain tokens, without at least the last one.  If the cache has no sequence
 * left, the row rests. */
static int settle_sure(struct assistant *s, struct helper *h, const struct draft_row *w)
{
    struct kv *kv = s->a->x->kv;
    uint32_t have = 0;
    if (!h->sure) { /* an earlier call may have cached the beginning */
        int e = kv_new(kv, &s->salt, &h->sure);
        if (e == ERR_FULL || e == ERR_LIMIT) {
            rest_row(s, h);
            return 0;
        }
        if (e >= 0 && s->a->x->encode && w->source) e = exec_encode(s->a->x, h->sure, w->source);
        if (e == ERR_FULL || e == ERR_LIMIT || exec_unheard(s->a->x, h->sure)) {
            rest_row(s, h);
            return 0;
        }
        if (e < 0) return e;
        return exec_match(s->a->x, h->sure, w->ids, w->n, 0, &have);
    }
    if (!h->draft) return 0;
    const int32_t *known = kv_tokens(kv, h->draft);
    uint32_t same = sync_common(known, w->ids, MIN(kv_len(kv, h->draft), w->n - 1));
    if (same > kv_len(kv, h->sure) && kv_resume(kv, h->draft, same, &have) >= 0 && have == same &&
        kv_trim(kv, h->draft, same, &have) >= 0) {
        kv_seq read = h->draft;
        h->draft = h->sure;
        h->sure = read;
    }
    drop_seq(s, &h->draft);
    return 0;
}

/* Feeds feed[0, n).  If the cache is full or too short, these rows get no more drafts. */
static int read(struct assistant *s, const struct draft_row *row, uint32_t n)
{
    if (!n) return 0;
    int e = exec_feed(s->a->x, s->feed, n, 0, s->logits, NULL, NULL);
    if (e != ERR_FULL && e != ERR_LIMIT) return e;
    for (uint32_t k = 0; k < n; k++) {
        rest_row(s, &s->helper[row[s->asked[k]].row]);
    }
    return 0;
}

/* Computes the certain tokens of all rows in one feed. */
static int catch_up(struct assistant *s, struct draft_row *row, uint32_t n)
{
    struct exec *x = s->a->x;
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct draft_row *w = &row[i];
        struct helper *h = &s->helper[w->row];
        h->thinking = false;
        w->max = MIN(w->max, h->tokens);
        if (w->n > x->max_len) h->resting = true;
        if (h->resting || !w->max) continue;
        w->max = MIN(w->max, x->max_len - w->n + 1);
        TRY(settle_sure(s, h, w));
        if (h->resting) continue;
        uint32_t len = kv_len(x->kv, h->sure);
        s->feed[k] =
            (struct exec_feed){.seq = h->sure, .tok = w->ids + len, .n = w->n - len, .loose = true};
        s->asked[k++] = i;
        h->thinking = true;
    }
    return read(s, row, k);
}

/* Appends one draft token.  *more: another one follows. */
static int draft_token(struct assistant *s, struct draft_row *w, const float *logits, bool *more)
{
    struct gen_row view = w->text;
    view.n = w->n + w->got;
    memcpy(s->scores, logits, s->vocab * sizeof *s->scores);
    TRY(gen_chain_apply(s->chain, &view, s->scores));
    int32_t id = gen_argmax(s->scores, s->vocab);
    w->ids[w->n + w->got++] = id;
    *more = w->got < w->max && !run_ends(s->g, id);
    if (!*more || !(s->g->assistant_confidence_threshold > 0)) return 0;
    double sum = gen_weights(s->scores, s->vocab, s->chain->value); /* sum of exp(score - best) */
    *more = 1 >= s->g->assistant_confidence_threshold * sum;
    return 0;
}

/* Appends a draft token to each row of the last feed, and sets the feeds for the next one. */
static int think(struct assistant *s, struct draft_row *row, uint32_t *n)
{
    struct kv *kv = s->a->x->kv;
    uint32_t left = 0;
    for (uint32_t k = 0; k < *n; k++) {
        struct draft_row *w = &row[s->asked[k]];
        struct helper *h = &s->helper[w->row];
        bool more;
        if (!h->thinking) continue;
        TRY(draft_token(s, w, s->logits + (size_t)k * s->vocab, &more));
        if (more && !h->draft && kv_fork(kv, h->sure, &h->draft) < 0) h->draft = 0;
        if (!more || !h->draft) continue;
        s->feed[left] = (struct exec_feed){
            .seq = h->draft, .tok = w->ids + w->n + w->got - 1, .n = 1, .loose = true};
        s->asked[left++] = s->asked[k];
    }
    *n = left;
    return 0;
}

static int propose(void *ctx, struct draft_row *row, uint32_t n)
{
    struct assistant *s = ctx;
    uint32_t k = 0;
    TRY(catch_up(s, row, n));
    for (uint32_t i = 0; i < n; i++)
        k += s->helper[row[i].row].thinking;
    while (k) {
        TRY(think(s, row, &k));
        TRY(read(s, row, k));
    }
    return 0;
}

static bool schedule_is(const struct assistant *s, const char *name)
{
    const char *now = s->g->num_assistant_tokens_schedule;
    return strcmp(now ? now : option_default("num_assistant_tokens_schedule"), name) == 0;
}

static void told(void *ctx, uint32_t row, uint32_t drafted, uint32_t accepted)
{
    struct assistant *s = ctx;
    struct helper *h = &s->helper[row];
    bool keep = schedule_is(s, "heuristic");
    if (!drafted || (!keep && !schedule_is(s, "heuristic_transient"))) return;
    if (accepted < drafted)
        h->tokens = MAX(h->tokens, 2u) - 1;
    else if (h->tokens + 2 <= DRAFT_MOST)
        h->tokens += 2;
    if (keep && row == 0) s->a->learned = h->tokens;
}

static void close_assistant(void *ctx)
{
    struct assistant *s = ctx;
    if (!s) return;
    struct assistant **at = &s->a->first;
    while (*at && *at != s)
        at = &(*at)->next;
    if (*at) *at = s->next;
    for (uint32_t i = 0; s->helper && i < s->n; i++) {
        drop_seq(s, &s->helper[i].draft);
        if (s->helper[i].sure) (void)kv_keep(s->a->x->kv, s->helper[i].sure);
    }
    if (s->chain) gen_chain_drop(s->chain);
    mem_free(s->helper);
    mem_free(s->feed);
    mem_free(s->asked);
    mem_free(s->logits);
    mem_free(s->scores);
    mem_free(s);
}

static int buffers(struct assistant *s)
{
    size_t logits;
    if (!ck_mul(s->vocab * sizeof(float), s->n, &logits)) return ERR(NOMEM, "too many rows");
    s->helper = mem_array(s->n, sizeof *s->helper);
    s->feed = mem_array(s->n, sizeof *s->feed);
    s->asked = mem_array(s->n, sizeof *s->asked);
    s->logits = mem_aligned(logits);
    s->scores = mem_array(s->vocab, sizeof *s->scores);
    bool all = s->helper && s->feed && s->asked && s->logits && s->scores;
    return all ? gen_chain_new(s->g, s->vocab, s->tok, &s->chain) : ERR_NOMEM;
}

static int check_assistant(const struct run *r, const struct exec *x)
{
    if (x == r->x)
        return ERR(ARG, "assistant_model is the cache that generates; open another one for it");
    if (x->m->vocab != r->x->m->vocab)
        return ERR(ARG,
                   "the assistant %s has a vocabulary of %u tokens, the model %s one of %u; an "
                   "assistant needs the same tokens",
                   x->m->what, x->m->vocab, r->x->m->what, r->x->m->vocab);
    if (r->n > x->max_seqs)
        return ERR(LIMIT,
                   "%u rows, the assistant's cache was opened for %u sequences; raise its "
                   "max_sequences",
                   r->n, x->max_seqs);
    return 0;
}

int draft_model_open(const struct run *r, struct gen_assistant *a, struct drafter *out)
{
    uint32_t tokens = r->g->num_assistant_tokens;
    TRY(check_assistant(r, a->x));
    struct assistant *s = mem_alloc(sizeof *s);
    if (!s) return ERR_NOMEM;
    *s = (struct assistant){
        .a = a, .g = r->g, .tok = r->tok, .salt = r->salt, .n = r->n, .vocab = r->x->m->vocab};
    int e = buffers(s);
    if (e < 0) {
        close_assistant(s);
        return e;
    }
    if (!schedule_is(s, "heuristic") || a->asked != tokens) a->learned = tokens;
    a->asked = tokens;
    s->next = a->first;
    a->first = s;
    for (uint32_t i = 0; i < s->n; i++)
        s->helper[i].tokens = a->learned;
    *out = (struct drafter){.propose = propose,
                            .told = told,
                            .close = close_assistant,
                            .ctx = s,
                            .most = schedule_is(s, "constant") ? tokens : MAX(tokens, DRAFT_MOST)};
    return 0;
}

bool draft_model_owns(const struct gen_assistant *a, kvik_seq seq)
{
    for (const struct assistant *s = a->first; s && seq; s = s->next)
        for (uint32_t i = 0; i < s->n; i++)
            if (s->helper[i].sure == seq || s->helper[i].draft == seq) return true;
    return false;
}

/* padded_generate.c - generate() over a padded batch.  The given ids can continue the cached columns in four ways:
 *
 *     the whole text, with a mask of its width, or   the cached prefix is kept, without the last token
 *     with none
 *     ids equal to the cached columns               the same, so only the last token is computed
 *     new ids, with a mask of cached + new columns  the ids are appended
 *     new ids without such a mask                   an error: it is unclear which text they follow
 *
 * Without a mask, ids that differ from the cached columns count as new ids.  With a mask of their own width they
 * are the whole text, and the tokens from the first difference on are recomputed. */
#include "compat/padded.h"
#include "generate/generate.h"

#include <assert.h>
#include <string.h>

struct padded_call {
    struct kvik_batch *b;
    const kvik_inputs *in;
    bool append;
    kvik_prompt *prompt; /* [rows] */
    uint8_t *mask;       /* [rows][columns] of the prompts */
    int32_t *ids;        /* [rows][columns] for rows that need the cached ids as well; or NULL */
    uint32_t columns;    /* number of columns of the prompts, cached ones included */
};

static uint32_t known(const struct kvik_batch *b, uint32_t row, const int32_t **tok)
{
    *tok = kv_tokens(b->c->x->kv, b->seq[row]);
    return kv_len(b->c->x->kv, b->seq[row]);
}

/* Returns the first column in which ids differ from the cached tokens of a row; b->length if none does. */
static uint32_t departs(const struct kvik_batch *b, const kvik_inputs *in, uint32_t row)
{
    const int32_t *tok, *ids = in->ids + (size_t)row * in->n;
    const uint8_t *mask = b->mask + (size_t)row * b->cap;
    uint32_t n = known(b, row, &tok), k = 0;
    for (uint32_t j = 0; j < b->length; j++) {
        if (!mask[j]) continue; /* padding: its id does not matter */
        if (k < n && tok[k] >= 0 && tok[k] != ids[j]) return j;
        k++;
    }
    return b->length;
}

/* True if the ids are the end of a text that a loop has cropped to the size of a sink cache. */
static bool sink_crop(const struct kvik_batch *b, uint32_t n)
{
    const struct kv_policy *p = exec_sinks(b->c->x);
    return p && n == p->sinks + p->window;
}

/* Finds out which of the four cases this call is. */
static int judge_case(const struct kvik_batch *b, const kvik_inputs *in, bool *append)
{
    uint32_t past = b->length;
    bool mask = in->attention_mask != NULL;
    *append = false;
    if (mask && past && in->width == past + in->n) {
        *append = true;
        return 0;
    }
    if (mask && in->width != in->n)
        return ERR(ARG,
                   "the attention mask has %u columns for %u ids after %u cached; %u if the ids "
                   "are the whole text, %u if they are new",
                   in->width, in->n, past, in->n, past + in->n);
    if (sink_crop(b, in->n)) return 0;
    if (in->n < past)
        return ERR(
            ARG,
            "%u ids for a batch of %u cached columns are not the whole text; give all %u ids, "
            "the cached ones first, or the new ids with an attention mask of %u columns; to "
            "begin another text, reset the cache or crop it first",
            in->n, past, past + in->n, past + in->n);
    for (uint32_t i = 0; !mask && i < b->rows; i++) {
        uint32_t at = departs(b, in, i);
        if (at < past)
            return ERR(ARG,
                       "row %u: the %u ids differ from the %u cached columns at column %u; new ids "
                       "need an attention mask of %u columns, a changed text needs one of %u",
                       i, in->n, past, at, past + in->n, in->n);
    }
    return 0;
}

static int check_batch(const struct kvik_batch *b, const kvik_inputs *in, const kvik_generation *g)
{
    if (in->embeds)
        return ERR(
            UNSUPPORTED,
            "embeddings begin a text and cannot continue a batch; append them with a forward, and "
            "generate from the id of the next token");
    if (!in->ids || !in->n) return ERR(ARG, "generating needs ids");
    if (in->position_ids || in->cache_position || in->columns || in->logits_to_keep)
        return ERR(ARG, "generating takes ids and their attention mask; positions follow from it");
    if (in->n > UINT32_MAX / 4 || b->length > UINT32_MAX / 4)
        return ERR(LIMIT, "%u columns after %u: each may be at most %u", in->n, b->length,
                   UINT32_MAX / 4);
    if (g->num_return_sequences > 1)
        return ERR(ARG,
                   "num_return_sequences=%u needs that many rows of the batch for each prompt; "
                   "repeat the batch first (kvik_batch_repeat)",
                   g->num_return_sequences);
    return 0;
}

/* Fills the mask over all columns.  If ids are appended, cached columns keep their mask. */
static int masks(struct padded_call *c)
{
    const struct kvik_batch *b = c->b;
    const kvik_inputs *in = c->in;
    uint32_t past = c->append ? b->length : 0;
    for (uint32_t i = 0; i < b->rows; i++) {
        uint8_t *to = c->mask + (size_t)i * c->columns;
        const uint8_t *was = b->mask + (size_t)i * b->cap;
        for (uint32_t j = 0; j < c->columns; j++) {
            /* Without a mask cached columns keep theirs, but the end of a cropped text has other columns. */
            if (in->attention_mask)
                to[j] = in->attention_mask[(size_t)i * in->width + j] != 0;
            else
                to[j] = j < b->length && in->n >= b->length ? was[j] : 1;
            if (j < past && to[j] != was[j])
                return ERR(ARG, "row %u column %u was %s when it was computed, now it is %s", i, j,
                           was[j] ? "seen" : "masked", to[j] ? "seen" : "masked");
        }
    }
    return 0;
}

/* Gives row i the whole text: its mode of decoding cannot append, or it has no tokens yet. */
static int give_whole(struct padded_call *c, uint32_t i, int32_t *ids)
{
    const struct kvik_batch *b = c->b;
    const uint8_t *mask = c->mask + (size_t)i * c->columns;
    const int32_t *tok;
    uint32_t n = known(b, i, &tok), k = 0;
    for (uint32_t j = 0; j < b->length; j++) {
        ids[j] = mask[j] && k < n ? tok[k] : 0;
        k += mask[j];
        if (ids[j] < 0)
            return ERR(UNSUPPORTED,
                       "row %u column %u has no token id; only greedy decoding and sampling "
                       "continue such rows",
                       i, j);
    }
    memcpy(ids + b->length, c->in->ids + (size_t)i * c->in->n, c->in->n * sizeof *ids);
    c->prompt[i].ids = ids;
    c->prompt[i].n = c->columns;
    c->prompt[i].attention_mask = mask;
    return 0;
}

static int prompts(struct padded_call *c, const kvik_generation *g, const kvik_hooks *hooks)
{
    struct kvik_batch *b = c->b;
    const kvik_inputs *in = c->in;
    bool plain = gen_plain(g, hooks && hooks->assistant_model);
    for (uint32_t i = 0; i < b->rows; i++) {
        uint32_t at = c->append ? b->length : 0;
        c->prompt[i] =
            (kvik_prompt){.size = sizeof(kvik_prompt),
                          .ids = in->ids + (size_t)i * in->n,
                          .n = in->n,
                          .attention_mask = c->mask + (size_t)i * c->columns + at,
                          .seq = b->seq[i],
                          .append = c->append && plain && kv_len(b->c->x->kv, b->seq[i])};
        if (!c->append || c->prompt[i].append) continue;
        TRY(give_whole(c, i, c->ids + (size_t)i * c->columns));
    }
    return 0;
}

/* Checks the ids of a batch for a decoder: its sequences must have the rows of the encoder. */
static int decoders(struct padded_call *c, const kvik_generation *g)
{
    const struct exec *x = c->b->c->x;
    int32_t own = x->m->encoder.start;
    int32_t start = g->decoder_start_token_id >= 0 ? g->decoder_start_token_id
                    : own >= 0                     ? own
                                                   : g->bos_token_id;
    for (uint32_t i = 0; i < c->b->rows; i++) {
        kvik_prompt *p = &c->prompt[i];
        /* The start token would have to be put before the ids, where it has no column. */
        if (!x->m->encoder.bins && !p->append && !kv_len(x->kv, p->seq) && p->n && start >= 0 &&
            p->ids[0] != start)
            return ERR(ARG, "row %u: the text of a decoder begins with its start token, %d", i,
                       start);
        for (size_t k = 0; k < p->n; k++)
            if (!p->attention_mask[k])
                return ERR(UNSUPPORTED, "row %u column %zu: tokens of a decoder cannot be masked",
                           i, k);
        p->attention_mask = NULL;
    }
    return 0;
}

static int call_begin(struct padded_call *c, const kvik_generation *g, const kvik_hooks *hooks)
{
    struct kvik_batch *b = c->b;
    c->columns = c->in->n + (c->append ? b->length : 0);
    c->prompt = mem_array(b->rows, sizeof *c->prompt);
    c->mask = mem_array(b->rows, c->columns);
    if (c->append) c->ids = mem_array((size_t)b->rows * c->columns, sizeof *c->ids);
    if (!c->prompt || !c->mask || (c->append && !c->ids)) return ERR_NOMEM;
    TRY(masks(c));
    TRY(prompts(c, g, hooks));
    return b->c->x->encode ? decoders(c, g) : 0;
}

static void call_end(struct padded_call *c)
{
    mem_free(c->prompt);
    mem_free(c->mask);
    mem_free(c->ids);
}

/* Cuts each row of the result to begin with the ids of this call.  The batch keeps the sequences. */
static void results(const struct padded_call *c, kvik_result *r)
{
    for (uint32_t i = 0; i < r->n_rows; i++) {
        kvik_row *row = r->row[i];
        size_t extra = row->n_prompt - MIN(row->n_prompt, c->in->n);
        row->seq = 0;
        if (!extra) continue;
        memmove(row->ids, row->ids + extra, (row->n - extra) * sizeof *row->ids);
        row->n -= extra;
        row->n_prompt -= extra;
    }
}

/* Returns a bound for the number of columns: those of the prompts, of the cached text before a cropped end, and
 * new ones as the options allow within max_cache_len. */
static uint32_t room_for(const struct kvik_batch *b, const kvik_generation *g, uint32_t columns)
{
    uint32_t most = MAX(MAX(g->max_new_tokens, g->max_length), KVIK_NEW_TOKENS);
    return columns + b->length + MIN(most, b->c->x->max_len) + 1;
}

KVIK_API int kvik_batch_generate(kvik_batch *b, const kvik_generation *g, const kvik_inputs *given,
                                 const kvik_hooks *hooks, kvik_result **out)
{
    kvik_inputs inputs = {0}, *in = &inputs;
    struct padded_call c = {.b = b, .in = in};
    kvik_generation full, asked;
    kvik_hooks room;
    kvik_result *r = NULL;
    USE_BATCH(b);
    if (!g || !given || !out)
        return ERR(ARG,
                   "options, ids and a pointer for the result are needed, and one of them is NULL");
    TRY(cache_free(b->c, b->seq, b->rows));
    TRY(SIZED_IN(&inputs, given, kvik_inputs));
    TRY(generation_in(g, &full));
    TRY(hooks_in(hooks, &room, &hooks));
    g = &full;
    TRY(check_batch(b, in, g));
    TRY(judge_case(b, in, &c.append));
    refs_take(&b->refs); /* a callback may close the batch */
    int e = call_begin(&c, g, hooks);
    if (e >= 0) e = padded_room(b, room_for(b, g, c.columns));
    if (e >= 0) {
        asked = *g; /* max_length counts the ids of this call, but not cached ids before them */
        if (c.append && g->max_length > in->n && !g->max_new_tokens)
            asked.max_new_tokens = g->max_length - in->n;
        e = legacy_generate(b->c, &asked, c.prompt, b->rows, hooks, &r);
    }
    if (e >= 0) {
        /* room_for has made the room, so this cannot fail */
        e = padded_settle(b, c.mask, c.columns);
        assert(e >= 0);
        results(&c, r);
        *out = r;
    }
    call_end(&c);
    batch_drop(b);
    return e;
}

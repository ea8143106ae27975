/* eval_run.c - feeds windows of a text to caches side by side, so that their logits can be compared at once.
 *
 * The first half of a window is one prompt, in one call.  The tokens of the second half are fed in pieces, and the
 * logits after each of them are scored.  They have the bits that decoding token by token would give.  Under quanto
 * and hqq rows are quantized when `residual_length` of them have gathered, and tokens of one call read each other
 * raw.  So no piece crosses a multiple of that length.  Under other codecs pieces change no bit. */
#include "base/json.h"
#include "cli/eval.h"

#include <string.h>

enum {
    RESIDUAL = 128,          /* the default of residual_length */
    BYTES_AT_ONCE = 96 << 20 /* of probabilities */
};

static int out_of_memory(void)
{
    return say_error(ERR(NOMEM, "out of memory"));
}

/* Adds a row; name NULL: its configuration is its name.  own: a copy of the configuration is kept. */
static int add_row(struct eval *v, const char *name, const char *config, bool own)
{
    if (v->n_rows == EVAL_ROWS)
        return say_usage("--cache-config: more than %u; measure the others in another run",
                         EVAL_ROWS - 1);
    struct eval_row *r = &v->row[v->n_rows++];
    json_t *o = NULL;
    *r = (struct eval_row){.config = config, .residual = RESIDUAL};
    snprintf(r->name, sizeof r->name, "%s", name ? name : config);
    if (own && !(r->config = r->own = mem_strdup(config))) return out_of_memory();
    if (!config) return 0;
    int e = json_parse(config, strlen(config), "--cache-config", &o);
    if (e < 0) return say_error(e), EXIT_USAGE;
    const json_t *given = config_value(o, "residual_length");
    if (json_is_integer(given) && json_integer_value(given) < UINT32_MAX / 2)
        r->residual = (uint32_t)MAX(json_integer_value(given), 1);
    json_decref(o);
    return 0;
}

int eval_rows(struct eval *v, const struct arg_list *configs)
{
    char *text = NULL;
    json_t *o = NULL, *c;
    size_t i;
    int e = kvik_model_describe_caches(v->is.engine->model, &text);
    if (e >= 0) e = json_parse(text, strlen(text), "caches", &o);
    kvik_free(text);
    if (e < 0) return say_error(e);
    const char *rows = json_string_value(json_object_get(o, "rows"));
    snprintf(v->rows, sizeof v->rows, "%s", rows ? rows : "");
    char name[32];
    snprintf(name, sizeof name, "dynamic, %s", v->rows);
    int status = add_row(v, name, NULL, false);
    for (i = 0; !status && i < configs->n; i++)
        status = add_row(v, NULL, configs->item[i], false);
    if (!configs->n) json_array_foreach(json_object_get(o, "codecs"), i, c)
        {
            if (status) break;
            status = add_row(v, json_string_value(json_object_get(c, "name")),
                             json_string_value(json_object_get(c, "cache_config")), true);
        }
    json_decref(o);
    return status;
}

static int open_cache(const struct eval *v, struct eval_row *r)
{
    const struct common *o = &v->is.engine->common;
    kvik_cache_config c =
        cache_config(o, &(struct cache_options){NULL, r->config, 1, v->window, o->cache_memory});
    c.step_tokens = 2 * EVAL_BLOCK;
    c.on_notice = say_notice;
    TRY(kvik_cache_open(v->is.engine->model, &c, &r->cache));
    return kvik_cache_new(r->cache, &r->seq);
}

/* Notes why a row has no numbers.  The reference must have them. */
static int refuse_row(struct eval *v, struct eval_row *r, int e)
{
    if (r == v->row) return say_error(e);
    r->refused = mem_strdup(kvik_last_error());
    kvik_cache_close(r->cache);
    r->cache = NULL;
    return r->refused ? 0 : out_of_memory();
}

int eval_open(struct eval *v)
{
    uint32_t vocab = kvik_model_vocab(v->is.engine->model);
    uint32_t most = v->windows * eval_scored(v);
    v->block = (uint32_t)(BYTES_AT_ONCE / sizeof *v->p / vocab);
    v->block = MIN(MAX(v->block, 1), EVAL_BLOCK);
    size_t n = (size_t)v->block * vocab;
    v->logits = mem_array(n, sizeof *v->logits);
    v->other = mem_array(n, sizeof *v->other);
    v->p = mem_array(n, sizeof *v->p);
    if (!v->logits || !v->other || !v->p) return out_of_memory();
    int e = pool_open(&v->pool, v->is.engine->common.threads), status = 0;
    if (e < 0) return say_error(e);
    for (struct eval_row *r = v->row; !status && r < v->row + v->n_rows; r++) {
        r->at.identical = true;
        r->at.kld = mem_array(most, sizeof *r->at.kld);
        if (!r->at.kld) return out_of_memory();
        if ((e = open_cache(v, r)) < 0) status = refuse_row(v, r, e);
    }
    return status;
}

void eval_close(void *ctx)
{
    struct eval *v = ctx;
    for (struct eval_row *r = v->row; r < v->row + v->n_rows; r++) {
        kvik_cache_close(r->cache);
        mem_free(r->at.kld);
        mem_free(r->refused);
        mem_free(r->own);
    }
    pool_close(v->pool);
    mem_free(v->logits);
    mem_free(v->other);
    mem_free(v->p);
    mem_free(v->lead);
    mem_free(v->ids);
}

/* Feeds the next n tokens of a window in one call.  logits: NULL, or [n][vocab]. */
static int feed(const struct eval *v, struct eval_row *r, uint32_t w, uint32_t n, float *logits)
{
    int32_t *ids = mem_array(n, sizeof *ids);
    if (!ids) return ERR(NOMEM, "out of memory");
    eval_tokens(v, w, r->fed, n, ids);
    kvik_span span = {.size = sizeof span, .seq = r->seq, .ids = ids, .n = n};
    int e = kvik_forward(r->cache, &span, 1, logits != NULL, logits);
    mem_free(ids);
    if (e >= 0) r->fed += n;
    return e;
}

/* Feeds n tokens as decoding would: rows that gather are quantized only at the end of a call, so no call crosses
 * that point. */
static int feed_scored(const struct eval *v, struct eval_row *r, uint32_t w, uint32_t n,
                       float *logits)
{
    uint32_t vocab = kvik_model_vocab(v->is.engine->model);
    for (uint32_t done = 0, piece; done < n; done += piece) {
        uint32_t gathered = (r->fed - eval_prompt(v)) % r->residual;
        piece = MIN(n - done, r->residual - gathered);
        TRY(feed(v, r, w, piece, logits + (size_t)done * vocab));
    }
    return 0;
}

/* What one task of the pool compares: one position. */
struct compare {
    struct eval *v;
    double kld[EVAL_BLOCK], nll[EVAL_BLOCK];
    bool same[EVAL_BLOCK], finite[EVAL_BLOCK];
};

static void reference_task(void *ctx, uint32_t task, uint32_t thread)
{
    struct eval *v = ctx;
    (void)thread;
    divergence_reference(&v->at[task], kvik_model_vocab(v->is.engine->model));
}

static void compare_task(void *ctx, uint32_t task, uint32_t thread)
{
    struct compare *c = ctx;
    uint32_t vocab = kvik_model_vocab(c->v->is.engine->model);
    (void)thread;
    c->finite[task] = divergence_compare(&c->v->at[task], c->v->other + (size_t)task * vocab, vocab,
                                         &c->kld[task], &c->nll[task], &c->same[task]);
}

/* Scores n positions of a row; v->other has their logits. */
static int add_scores(struct eval *v, struct eval_row *r, uint32_t n)
{
    struct compare c = {.v = v};
    size_t bytes = (size_t)n * kvik_model_vocab(v->is.engine->model) * sizeof *v->other;
    pool_run(v->pool, n, compare_task, &c);
    for (uint32_t i = 0; i < n; i++) {
        if (!c.finite[i])
            return ERR(FORMAT, "the logits after token %u of a window are not finite",
                       r->fed - n + i);
        r->at.kld[r->at.n++] = c.kld[i];
        r->at.nll += c.nll[i];
        r->at.same += c.same[i];
    }
    r->at.identical &= memcmp(v->other, v->logits, bytes) == 0;
    return 0;
}

/* Feeds the next n tokens to the reference and prepares the comparison. */
static int reference_block(struct eval *v, uint32_t w, uint32_t n)
{
    uint32_t vocab = kvik_model_vocab(v->is.engine->model), from = v->row->fed;
    int32_t next[EVAL_BLOCK];
    TRY(feed_scored(v, v->row, w, n, v->logits));
    eval_tokens(v, w, from + 1, n, next);
    for (uint32_t i = 0; i < n; i++)
        v->at[i] = (struct divergence){.logits = v->logits + (size_t)i * vocab,
                                       .p = v->p + (size_t)i * vocab,
                                       .next = next[i]};
    pool_run(v->pool, n, reference_task, v);
    memcpy(v->other, v->logits, (size_t)n * vocab * sizeof *v->logits);
    return add_scores(v, v->row, n);
}

/* Computes the bits of a value in rows of their final form: in tiles if the cache has any, without the padding of
 * pages; else in blocks. */
static double bits_of(const struct eval_row *r, double values)
{
    char *text;
    json_t *o = NULL, *g;
    size_t i;
    double bytes = 0;
    if (kvik_cache_map(r->cache, r->seq, &text) < 0) return 0;
    (void)json_parse(text, strlen(text), "map", &o);
    kvik_free(text);
    json_array_foreach(json_object_get(o, "groups"), i, g)
    {
        const char *kind = json_string_value(json_object_get(g, "kind"));
        bool coded = json_integer_value(json_object_get(g, "tile_coded")) > 0;
        const json_t *page = json_object_get(g, coded ? "tile_coded" : "block_bytes");
        const json_t *rows = json_object_get(g, coded ? "tile_rows" : "block_rows");
        if (kind && strcmp(kind, "rows") == 0 && json_integer_value(rows) > 0)
            bytes += (double)json_integer_value(page) / (double)json_integer_value(rows);
    }
    json_decref(o);
    return values > 0 ? 8 * bytes / values : 0;
}

/* Returns how many numbers the rows of one token have, over all layers. */
static double values_of(const struct eval *v)
{
    json_t *o = bench_describe(v->is.engine->model);
    const json_t *bytes = json_object_get(o, "cache_bytes_per_token");
    double values = (double)json_integer_value(json_object_get(bytes, "f16")) / 2;
    json_decref(o);
    return values;
}

static void summarize(const struct eval *v, struct eval_row *r)
{
    kvik_usage u = {.size = sizeof u};
    r->sum = eval_summary(&r->at);
    if (kvik_cache_usage(r->cache, &u) < 0) return;
    r->bytes = u.live + u.states + u.spilled;
    r->bits = bits_of(r, values_of(v));
}

/* Says that divergences of 0 are no merit if no row was quantized. */
static void tell_unchanged(const struct eval *v)
{
    uint32_t n = 0;
    for (const struct eval_row *r = v->row + 1; r < v->row + v->n_rows; r++)
        n += !r->refused && r->at.identical && r->bits < v->row->bits;
    if (n)
        say_line(
            "%u cache%s predicted what the reference did, bit for bit: a window of %u tokens may be "
            "too short for rows to be quantized; give a longer --context",
            n, n == 1 ? "" : "s", v->window);
}

/* Feeds one window to all caches. */
static int run_window(struct eval *v, uint32_t w, struct progress *p)
{
    uint64_t all = (uint64_t)v->windows * v->window;
    int status = 0;
    for (struct eval_row *r = v->row; !status && r < v->row + v->n_rows; r++) {
        if (r->refused) continue;
        progress_show(p, (uint64_t)w * v->window, all);
        int e = kvik_cache_reset(r->cache, r->seq);
        r->fed = 0;
        if (e >= 0) e = feed(v, r, w, eval_prompt(v), NULL);
        if (e < 0) status = refuse_row(v, r, e);
        if (interrupt_seen()) return EXIT_INTERRUPTED;
    }
    for (uint32_t at = eval_prompt(v), n; !status && at < v->window; at += n) {
        n = MIN(v->block, v->window - at);
        int e = reference_block(v, w, n);
        if (e < 0) return say_error(e);
        for (struct eval_row *r = v->row + 1; !status && r < v->row + v->n_rows; r++) {
            if (r->refused) continue;
            e = feed_scored(v, r, w, n, v->other);
            if (e >= 0) e = add_scores(v, r, n);
            if (e < 0) status = refuse_row(v, r, e);
            if (interrupt_seen()) return EXIT_INTERRUPTED;
        }
        progress_show(p, (uint64_t)w * v->window + at + n, all);
    }
    return status;
}

int eval_run(struct eval *v)
{
    struct progress p;
    double begun = now_seconds();
    int status = 0;
    progress_begin(&p, "scoring");
    for (uint32_t w = 0; !status && w < v->windows; w++)
        status = run_window(v, w, &p);
    progress_end(&p);
    for (struct eval_row *r = v->row; !status && r < v->row + v->n_rows; r++)
        if (!r->refused) summarize(v, r);
    if (!status) tell_unchanged(v);
    v->seconds = now_seconds() - begun;
    return status;
}

/* plan_bytes.c - the bytes that caches would hold.  Each cache is opened as it would be used, and the library
 * predicts the bytes of a sequence of the planned length.  A cache takes no memory for rows before they are written. */
#include "base/json.h"
#include "cli/plan.h"

#include <stdlib.h>
#include <string.h>

static int add_strategy(struct plan *v, struct plan_row r, const char *name, bool own)
{
    if (v->n_rows == PLAN_ROWS)
        return say_usage("--cache-config: more than %u; plan the others in another run", PLAN_ROWS);
    struct plan_row *to = &v->row[v->n_rows++];
    *to = r;
    to->order = v->n_rows;
    snprintf(to->name, sizeof to->name, "%s", name);
    if (own) to->config = to->own = mem_strdup(r.config);
    return own && !to->own ? say_error(ERR(NOMEM, "out of memory")) : 0;
}

static bool encodes(json_t *o, const char *key)
{
    const char *backend = json_string_value(config_value(o, key));
    return backend && strcmp(backend, "none") != 0;
}

/* Finds the rank of a strategy that the user named, and whether its rows can leave memory. */
static void classify(struct plan_row *r)
{
    json_t *o = NULL;
    const char *config = r->config, *implementation = r->implementation;
    if (config) (void)json_parse(config, strlen(config), "--cache-config", &o);
    bool forgets = config_value(o, "sliding_window") || config_value(o, "window_length");
    bool quantized = encodes(o, "backend") || encodes(o, "backend_key") ||
                     encodes(o, "backend_value") || !strcmp(implementation, "quantized");
    r->on_disk =
        json_is_true(config_value(o, "offloading")) || !strncmp(implementation, "offloaded", 9);
    json_decref(o);
    r->rank = forgets      ? PLAN_FORGETS
              : quantized  ? PLAN_QUANTIZED
              : r->on_disk ? PLAN_DISK
                           : PLAN_EXACT;
}

/* Adds the strategies of this build: native rows, each codec with each number of bits, and rows on disk. */
static int add_all(struct plan *v)
{
    char *text = NULL;
    json_t *o = NULL, *c;
    size_t i;
    int status = add_strategy(v, (struct plan_row){.implementation = "dynamic"}, "dynamic", false);
    if (status) return status;
    int e = kvik_model_describe_caches(v->is.engine->model, &text);
    if (e >= 0) e = json_parse(text, strlen(text), "caches", &o);
    kvik_free(text);
    if (e < 0) return say_error(e);
    json_array_foreach(json_object_get(o, "codecs"), i, c)
    {
        struct plan_row r = {.implementation = "dynamic",
                             .config = json_string_value(json_object_get(c, "cache_config")),
                             .rank = PLAN_QUANTIZED};
        if (!status)
            status = add_strategy(v, r, json_string_value(json_object_get(c, "name")), true);
    }
    json_decref(o);
    if (status) return status;
    struct plan_row disk = {.implementation = "offloaded", .rank = PLAN_DISK, .on_disk = true};
    return add_strategy(v, disk, "offloaded", false);
}

int plan_rows(struct plan *v, const char *implementation, const struct arg_list *configs)
{
    int status = 0;
    if (!implementation && !configs->n) return add_all(v);
    for (size_t i = 0; !status && i < MAX(configs->n, 1); i++) {
        struct plan_row r = {.implementation = implementation ? implementation : "dynamic",
                             .config = configs->n ? configs->item[i] : NULL};
        char name[96];
        snprintf(name, sizeof name, "%s%s%s", implementation ? implementation : "",
                 implementation && r.config ? " " : "", r.config ? r.config : "");
        classify(&r);
        status = add_strategy(v, r, name, false);
    }
    return status;
}

static int open_cache(const struct plan *v, struct plan_row *r)
{
    kvik_cache_config c = cache_config(
        &v->is.engine->common,
        &(struct cache_options){r->implementation, r->config, v->beams, v->context,
                                /* a limit decides how much of a cache on disk stays in memory */
                                r->on_disk ? v->memory : 0});
    c.no_prefix_cache = false; /* the index is part of what a cache takes */
    c.on_full = NULL;
    c.on_notice = say_notice;
    return kvik_cache_open(v->is.engine->model, &c, &r->cache);
}

/* Asks for the plan of a sequence of n tokens.  Returns an error code. */
static int ask(const struct plan_row *r, uint32_t prompt, uint32_t n, json_t **out)
{
    char *text;
    TRY(kvik_cache_plan(r->cache, prompt, n, &text));
    int e = json_parse(text, strlen(text), "plan", out);
    kvik_free(text);
    return e;
}

static uint64_t number(const json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

/* Fills in the bytes for sequences of n tokens.  Returns an error code. */
static int fill(const struct plan *v, struct plan_row *r, uint32_t n)
{
    json_t *o;
    kvik_usage u = {.size = sizeof u};
    TRY(ask(r, n - MIN(n, v->decoded), n, &o));
    r->rows = number(o, "rows");
    r->quantized = number(o, "quantized");
    r->states = number(o, "states");
    r->further = number(o, "own");
    r->tables = number(o, "fixed") + v->beams * number(o, "metadata");
    r->seen = number(o, "seen");
    r->disk = number(o, "streamed");
    uint64_t all = number(o, "bytes") + (v->beams - 1) * r->further;
    r->peak = MAX(number(o, "peak"), all);
    json_decref(o);
    TRY(kvik_cache_usage(r->cache, &u));
    r->need = r->peak + r->tables;
    /* pages that can leave memory need no more than the budget with which the cache opens */
    if (r->disk) {
        r->disk += (v->beams - 1) * r->further;
        r->need = MIN(r->need, u.budget);
    }
    return 0;
}

/* Finds the most tokens that fit the memory. */
static int find_longest(const struct plan *v, struct plan_row *r)
{
    struct plan_row at = *r;
    uint32_t low = 0, high = v->context;
    while (low < high) {
        uint32_t n = low + (high - low + 1) / 2;
        TRY(fill(v, &at, n));
        if (at.need <= v->memory)
            low = n;
        else
            high = n - 1;
    }
    r->longest = low;
    return 0;
}

/* True if the cache also fits when the prompt comes in several calls.  A codec that quantizes at the end of a call
 * then has the raw rows of one call beside the quantized rows of the others. */
static bool fits_in_calls(const struct plan *v, const struct plan_row *r)
{
    struct plan *calls = mem_alloc(sizeof *calls);
    struct plan_row at = *r;
    json_t *o;
    bool fits = false;
    if (!calls) return false;
    *calls = *v;
    calls->decoded = v->context - MIN(PLAN_CALL, v->context);
    if (fill(calls, &at, v->context) >= 0 &&
        ask(r, MIN(PLAN_CALL, v->context), MIN(PLAN_CALL, v->context), &o) >= 0) {
        fits = at.need + number(o, "peak") <= v->memory;
        json_decref(o);
    }
    mem_free(calls);
    return fits;
}

int plan_bytes(struct plan *v, struct plan_row *r)
{
    int e = open_cache(v, r);
    if (e >= 0) e = fill(v, r, v->context);
    if (e >= 0 && v->memory) e = find_longest(v, r);
    if (e >= 0) {
        r->fits = !v->memory || r->need <= v->memory;
        r->fits_in_calls = r->fits || (v->beams == 1 && fits_in_calls(v, r));
        return 0;
    }
    r->refused = mem_strdup(kvik_last_error());
    return r->refused ? 0 : say_error(ERR(NOMEM, "out of memory"));
}

uint64_t plan_seen(const struct plan_row *r, uint32_t n)
{
    json_t *o;
    if (ask(r, n, n, &o) < 0) return 0;
    uint64_t seen = number(o, "seen");
    json_decref(o);
    return seen;
}

/* Compares rows for sorting: first come those that fit with the prompt in one call, then those that fit with it in several.
 * Among these exact rows come first, then quantized ones, then rows on disk, then caches that forget rows.  Among
 * equals the larger cache comes first, because it has more bits. */
static int better(const void *a, const void *b)
{
    const struct plan_row *x = a, *y = b;
    if (!x->refused != !y->refused) return x->refused ? 1 : -1;
    if (x->fits != y->fits) return x->fits ? -1 : 1;
    if (x->fits_in_calls != y->fits_in_calls) return x->fits_in_calls ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    uint64_t bx = x->rows + x->quantized, by = y->rows + y->quantized;
    return bx != by ? (bx > by ? -1 : 1) : (x->order > y->order) - (x->order < y->order);
}

void plan_sort(struct plan *v)
{
    if (v->memory) qsort(v->row, v->n_rows, sizeof *v->row, better);
}

void plan_close(void *ctx)
{
    struct plan *v = ctx;
    plan_few_close(&v->few);
    for (struct plan_row *r = v->row; r < v->row + v->n_rows; r++) {
        kvik_cache_close(r->cache);
        mem_free(r->refused);
        mem_free(r->own);
    }
}

/* caches.c - several caches over one budget; see caches.h. */
#include "serve/caches.h"
#include "base/base.h"
#include "base/buf.h"
#include "base/bytes.h"

#include <ctype.h>
#include <string.h>

enum { LEND_PART = 32 }; /* a part of 1/32 of the budget is lent at once, so that lending is rare */

/* Returns the bytes that hold no row.  A cache can give these without losing anything. */
static uint64_t unused(const kvik_usage *u)
{
    return u->free - MIN(u->index, u->free);
}

static kvik_usage usage_of(const struct cache_use *use)
{
    kvik_usage u = {.size = sizeof u};
    (void)kvik_cache_usage(use->o.cache, &u);
    return u;
}

/* Takes up to `most` bytes from a cache, out of `from` that the cache can give.  Returns how many it took. */
static uint64_t take_bytes(struct cache_use *use, const kvik_usage *u, uint64_t from, uint64_t most)
{
    uint64_t n = MIN(from, most);
    return n && kvik_cache_set_memory(use->o.cache, u->budget - n) >= 0 ? n : 0;
}

static void give(struct cache_use *use, uint64_t bytes)
{
    if (bytes) (void)kvik_cache_set_memory(use->o.cache, usage_of(use).budget + bytes);
}

bool caches_can_lend(const struct caches *c, uint32_t i, uint64_t need)
{
    uint64_t have = 0;
    for (uint32_t k = 0; k < c->n; k++)
        have += k == i ? 0 : usage_of(&c->use[k]).free;
    return have >= MAX(need, 1);
}

bool caches_lend(struct caches *c, uint32_t i, uint64_t need)
{
    uint64_t got = 0, wish = MAX(need, c->budget / LEND_PART);
    if (!caches_can_lend(c, i, need)) return false;
    need = MAX(need, 1);
    for (uint32_t k = 0; k < c->n; k++) {
        kvik_usage u = usage_of(&c->use[k]);
        if (k != i) got += take_bytes(&c->use[k], &u, unused(&u), wish - MIN(got, wish));
    }
    for (uint32_t k = 0; k < c->n && got < need; k++) {
        kvik_usage u = usage_of(&c->use[k]);
        if (k != i) got += take_bytes(&c->use[k], &u, u.free, need - got);
    }
    give(&c->use[i], got);
    return got >= need;
}

void caches_balance(struct caches *c, const uint32_t *jobs)
{
    uint64_t got = 0;
    uint32_t active = 0;
    for (uint32_t i = 0; i < c->n; i++)
        active += jobs[i] > 0;
    for (uint32_t i = 0; active && i < c->n; i++) {
        kvik_usage u = usage_of(&c->use[i]);
        if (!jobs[i]) got += take_bytes(&c->use[i], &u, unused(&u), UINT64_MAX);
    }
    for (uint32_t i = 0; got && i < c->n; i++) {
        if (!jobs[i]) continue;
        uint64_t part = got / active--;
        give(&c->use[i], part);
        got -= part;
    }
}

void caches_usage(const struct caches *c, kvik_usage *out, struct cache_bytes *each)
{
    *out = (kvik_usage){.size = sizeof *out};
    for (uint32_t i = 0; i < c->n; i++) {
        kvik_usage u = usage_of(&c->use[i]);
        out->budget += u.budget;
        out->bytes += u.bytes;
        out->live += u.live;
        out->states += u.states;
        out->staging += u.staging;
        out->reserved += u.reserved;
        out->metadata += u.metadata;
        out->free += u.free;
        out->index += u.index;
        out->shared += u.shared;
        out->spilled += u.spilled;
        each[i] = (struct cache_bytes){u.budget, u.budget - unused(&u), u.index};
    }
}

/* --- Shelves. */

bool caches_shelved(const struct caches *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (shelf_waits(c->use[i].shelf)) return true;
    return false;
}

bool caches_save(struct caches *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (shelf_save(c->use[i].shelf)) return true;
    return false;
}

bool caches_store(const struct caches *c, kvik_shared_state *out)
{
    bool any = false;
    *out = (kvik_shared_state){.size = sizeof *out};
    for (uint32_t i = 0; i < c->n; i++) {
        kvik_shared_state one;
        if (!shelf_state(c->use[i].shelf, &one)) continue;
        any = true;
        out->reads += one.reads;
        out->misses += one.misses;
        out->bytes_read += one.bytes_read;
        out->writes += one.writes;
        out->bytes_written += one.bytes_written;
        out->damaged += one.damaged;
        out->failures += one.failures;
        out->waiting += one.waiting;
        out->reads_fail |= one.reads_fail;
        out->writes_fail |= one.writes_fail;
        if (one.reads_fail || one.writes_fail || !*out->error)
            memcpy(out->error, one.error, sizeof out->error);
    }
    return any;
}

const char *caches_dir_error(const struct caches *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (*shelf_dir_error(c->use[i].shelf)) return shelf_dir_error(c->use[i].shelf);
    return "";
}

void caches_share(struct caches *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (shelf_share(c->use[i].shelf)) return;
}

void caches_unshelve(struct caches *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        shelf_drop(c->use[i].shelf);
}

/* --- What a request names. */

/* Copies an object, with its keys spelled as the library has them: "Num-Bits" becomes num_bits. */
static json_t *plain_keys(const json_t *given)
{
    json_t *o = json_object(), *v;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)given, key, v)
    {
        char name[64];
        snprintf(name, sizeof name, "%s", key);
        for (char *s = name; *s; s++)
            *s = *s == '-' ? '_' : (char)tolower((unsigned char)*s);
        json_object_set(o, name, v);
    }
    return o;
}

/* Lists the allowed strategies: "dynamic", "quantized" with {"nbits":4}. */
static void list_allowed(const struct caches *c, char *out, size_t size)
{
    size_t at = 0;
    for (uint32_t i = 0; i < c->n && at < size; i++) {
        char *text = NULL;
        bool plain = !json_object_size(c->use[i].config) || json_text(c->use[i].config, &text) < 0;
        at += (size_t)snprintf(out + at, size - at, "%s\"%s\"%s%s", i ? ", " : "", c->use[i].name,
                               plain ? "" : " with ", plain ? "" : text);
        mem_free(text);
    }
}

/* Reads the two fields as the library does, so that a wrong key is named.  *config: owned. */
static int read_fields(const json_t *name, const json_t *config, json_t **keys)
{
    kvik_generation g;
    char *text = NULL;
    json_t *options = json_object(), *own = NULL;
    if (name) json_object_set(options, "cache_implementation", (json_t *)(uintptr_t)name);
    if (config) json_object_set(options, "cache_config", (json_t *)(uintptr_t)config);
    int e = json_text(options, &text);
    json_decref(options);
    if (e < 0) return e;
    e = kvik_generation_init(&g, NULL);
    if (e >= 0) e = kvik_generation_set(&g, text);
    mem_free(text);
    if (e >= 0 && g.cache_config)
        e = json_parse(g.cache_config, strlen(g.cache_config), "cache_config", &own);
    kvik_generation_done(&g);
    *keys = e >= 0 && own ? plain_keys(own) : NULL;
    json_decref(own);
    return e;
}

int caches_find(const struct caches *c, const json_t *body, uint32_t *out)
{
    json_t *name = json_object_get(body, "cache_implementation"),
           *config = json_object_get(body, "cache_config"), *keys;
    char allowed[512];
    uint32_t i = 0;
    *out = 0;
    if (json_is_null(name)) name = NULL;
    if (json_is_null(config)) config = NULL;
    if (name && !json_is_string(name))
        return ERR(ARG, "field \"cache_implementation\" must be a string, not %s",
                   JSON_QUOTE(name));
    if (config && !json_is_object(config))
        return ERR(ARG, "field \"cache_config\" must be an object, not %s", JSON_QUOTE(config));
    if (!name && !config) return 0;
    TRY(read_fields(name, config, &keys));
    const char *wanted = name ? json_string_value(name) : c->use[0].name;
    while (i < c->n &&
           (strcmp(c->use[i].name, wanted) != 0 || (keys && !json_equal(c->use[i].config, keys))))
        i++;
    json_decref(keys);
    if (i < c->n) {
        *out = i;
        return 0;
    }
    list_allowed(c, allowed, sizeof allowed);
    return ERR(ARG,
               "field \"%s\": this server does not allow it, but %s (--allow-cache of kvik serve)",
               config ? "cache_config" : "cache_implementation", allowed);
}

/* --- Opening and closing. */

/* Measures how many tokens of one sequence the budget can hold, by halving; kvik_cache_reserve answers exactly.  From the
 * bytes of that sequence follows how many tokens of all sequences it can hold. */
static int measure_capacity(struct cache_use *use)
{
    kvik_seq seq;
    uint32_t low = 0, high = use->o.context + 1;
    const uint64_t room = usage_of(use).free;
    TRY(kvik_cache_new(use->o.cache, &seq));
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (kvik_cache_reserve(use->o.cache, seq, middle) >= 0)
            low = middle;
        else
            high = middle;
    }
    uint64_t bytes = room - MIN(room, usage_of(use).free);
    kvik_cache_drop(use->o.cache, seq);
    use->capacity = low;
    use->tokens = MAX(low, bytes ? (uint64_t)((double)room / (double)bytes * low) : 0);
    return low > 1
               ? 0
               : ERR(FULL,
                     "the memory of the cache does not hold two tokens; give more with --cache-memory");
}

/* Leaves each cache only its tables, and measures how much it holds with all the rest of the budget. */
static int divide(struct caches *c)
{
    char size[16];
    uint64_t tables = 0;
    c->budget = usage_of(&c->use[0]).budget;
    for (uint32_t i = 0; i < c->n; i++) {
        kvik_usage u = usage_of(&c->use[i]);
        tables += u.budget - u.free;
        TRY(kvik_cache_set_memory(c->use[i].o.cache, u.budget - u.free));
    }
    if (tables > c->budget)
        return ERR(FULL,
                   "the tables of %u caches need more than the %s of --cache-memory; give more, or "
                   "allow fewer strategies with --allow-cache",
                   c->n, bytes_text(c->budget, size));
    /* the first cache comes last, and keeps the rest of the budget after it was measured */
    for (uint32_t i = c->n; i-- > 0;) {
        uint64_t own = usage_of(&c->use[i]).budget;
        TRY(kvik_cache_set_memory(c->use[i].o.cache, own + c->budget - tables));
        TRY(measure_capacity(&c->use[i]));
        if (i) TRY(kvik_cache_set_memory(c->use[i].o.cache, own));
    }
    return 0;
}

static int open_use(const struct serve_options *o, uint32_t i, struct cache_use *use)
{
    json_t *config = NULL;
    use->o = o->cache[i];
    use->name = use->o.implementation ? use->o.implementation : "dynamic";
    if (use->o.config)
        TRY(json_parse(use->o.config, strlen(use->o.config), "cache_config", &config));
    use->config = plain_keys(config);
    json_decref(config);
    if (!use->config) return ERR_NOMEM;
    return shelf_open(use->o.cache, o->prefix_dir, o->prefix_store, i == 0, &use->shelf);
}

int caches_open(const struct serve_options *o, struct caches *out)
{
    if (!(out->use = mem_array(o->n_caches, sizeof *out->use))) return ERR_NOMEM;
    out->n = o->n_caches;
    for (uint32_t i = 0; i < out->n; i++)
        TRY(open_use(o, i, &out->use[i]));
    return divide(out);
}

void caches_close(struct caches *c)
{
    for (uint32_t i = 0; c->use && i < c->n; i++) {
        shelf_close(c->use[i].shelf);
        json_decref(c->use[i].config);
    }
    mem_free(c->use);
    *c = (struct caches){0};
}

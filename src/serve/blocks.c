/* blocks.c - GET /kvik/store: which blocks the cache holds, for the page and for people who debug. */
#include "serve/outage.h"
#include "serve/protocol.h"

#include <string.h>

struct look {
    struct server *server;
    uint32_t cache;
    char *map; /* owned by the library */
    int e;
    char why[256];
};

static void read_store(void *ctx)
{
    struct look *l = ctx;
    l->e = kvik_cache_map(l->server->caches.use[l->cache].o.cache, 0, &l->map);
    if (l->e < 0) snprintf(l->why, sizeof l->why, "%s", kvik_last_error());
}

static json_t *usage_json(const kvik_usage *u)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "budget", (json_int_t)u->budget, "bytes",
        (json_int_t)u->bytes, "live", (json_int_t)u->live, "shared", (json_int_t)u->shared, "index",
        (json_int_t)u->index, "states", (json_int_t)u->states, "staging", (json_int_t)u->staging,
        "metadata", (json_int_t)u->metadata, "spilled", (json_int_t)u->spilled);
}

/* Describes each cache, with its part of the budget. */
static json_t *caches_json(const struct server *s, const struct scheduler_state *t)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < s->caches.n; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:O, s:I, s:I, s:I, s:I}", "cache_implementation",
                            s->caches.use[i].name, "cache_config", s->caches.use[i].config,
                            "budget", (json_int_t)t->cache[i].budget, "used",
                            (json_int_t)t->cache[i].used, "index", (json_int_t)t->cache[i].index,
                            "context", (json_int_t)s->caches.use[i].capacity));
    return list;
}

/* Reads which cache is shown: ?cache=1 is the second one; without a number it is the first. */
static int which_cache(const struct server *s, const struct exchange *x, uint32_t *out)
{
    static const char key[] = "cache=";
    char *end = NULL;
    *out = 0;
    if (!x->query || strncmp(x->query, key, sizeof key - 1) != 0) return 0;
    unsigned long n = strtoul(x->query + sizeof key - 1, &end, 10);
    if (*end || n >= s->caches.n)
        return ERR(ARG, "?cache= must be the number of a cache, below %u, not %.20s", s->caches.n,
                   x->query + sizeof key - 1);
    *out = (uint32_t)n;
    return 0;
}

static int store(struct server *s, struct exchange *x)
{
    struct look l = {.server = s};
    struct scheduler_state t;
    json_t *map = NULL;
    TRY(which_cache(s, x, &l.cache));
    scheduler_call(s->scheduler, read_store, &l);
    if (l.e < 0) return err_set(l.e, "%s", l.why);
    int e = json_parse(l.map, strlen(l.map), "the map", &map);
    kvik_free(l.map);
    if (e < 0) return e;
    scheduler_look(s->scheduler, &t);
    json_object_set_new(map, "usage", usage_json(&t.usage));
    json_object_set_new(map, "caches", caches_json(s, &t));
    if (t.shares) json_object_set_new(map, "prefix_store", outage_json(&t.store));
    if (s->o.prefix_dir) json_object_set_new(map, "prefix_cache", outage_dir_json(t.dir_error));
    json_object_set_new(map, "running", json_integer(t.running));
    json_object_set_new(map, "waiting", json_integer(t.waiting));
    json_object_set_new(map, "prompt_tokens", json_integer((json_int_t)t.prompt_tokens));
    json_object_set_new(map, "reused_tokens", json_integer((json_int_t)t.reused_tokens));
    json_object_set_new(map, "new_tokens", json_integer((json_int_t)t.new_tokens));
    json_object_set_new(map, "writing", json_integer((json_int_t)t.writing));
    json_object_set_new(map, "context", json_integer((json_int_t)server_capacity(s)));
    json_object_set_new(map, "model", json_string(s->o.name));
    exchange_json(x, 200, map);
    return 0;
}

static const struct route store_routes[] = {
    {"/kvik/store", EXCHANGE_GET, .protocol = &protocol_openai, .answer = store},
};
ROUTES(store_routes);

/* server.c - opens the parts of a server in order, and closes them in reverse order; see serve.h. */
#include "serve/server.h"
#include "serve/cors.h"
#include "serve/crew.h"
#include "serve/desk.h"
#include "serve/events.h"
#include "serve/keys.h"
#include "serve/net.h"
#include "serve/replay.h"
#include "serve/route.h"
#include "serve/slots.h"

#include <string.h>
#include <time.h>

enum { GRACE_SECONDS = 30 };

static _Atomic(struct net *) serving; /* the loop that serve_stop ends */
static atomic_bool stop_asked;        /* true also if the signal came before the loop */

void serve_stop(void)
{
    atomic_store(&stop_asked, true);
    struct net *n = atomic_load(&serving);
    if (n) net_stop(n);
}

static int find_ends(struct server *s)
{
    kvik_generation g;
    TRY(kvik_generation_init(&g, s->o.model));
    s->n_eos = g.n_eos;
    for (uint32_t i = 0; i < g.n_eos; i++)
        s->eos[i] = g.eos_token_id[i];
    kvik_generation_done(&g);
    return 0;
}

/* True if the options of the command line have a seed; requests without a seed then use it. */
static bool has_seed(const char *defaults, uint64_t *seed)
{
    json_t *o = NULL;
    bool has = defaults && json_parse(defaults, strlen(defaults), "defaults", &o) >= 0 &&
               json_object_get(o, "seed") != NULL;
    *seed = (uint64_t)json_integer_value(json_object_get(o, "seed"));
    json_decref(o);
    return has;
}

static bool hears(const kvik_model *m)
{
    kvik_encoder encoder = {.size = sizeof encoder};
    return kvik_model_encoder(m, &encoder) >= 0 && encoder.bins;
}

static int open_parts(struct server *s)
{
    const struct serve_options *o = &s->o;
    s->tokenizer = kvik_model_tokenizer(o->model);
    s->created = (int64_t)time(NULL);
    s->seeded = has_seed(o->defaults, &s->seed);
    if (!s->tokenizer)
        return ERR(UNSUPPORTED, "the model has no tokenizer, so it cannot be served");
    dialect_find(s->tokenizer, &s->dialect);
    if (o->key_file) TRY(keys_read(o->key_file, &s->keys));
    TRY(find_ends(s));
    /* One thread: recordings are heard one after another, and no other request waits for them. */
    if (hears(o->model))
        TRY(crew_open(&(struct crew_options){.bytes = {SIZE_MAX},
                                             .waiting = o->max_waiting,
                                             .what = "recordings"},
                      &s->hearing));
    TRY(replay_open(&s->replay));
    TRY(slots_open(o->parallel, &s->slots));
    TRY(caches_open(o, &s->caches));
    TRY(events_open(o, &s->events));
    if (s->events) TRY(events_watch(s->events, s->caches.use[0].o.cache));
    events_flush(s->events);
    TRY(scheduler_open(&(struct scheduler_options){.caches = &s->caches,
                                                   .events = s->events,
                                                   .serve = o,
                                                   .parallel = o->parallel,
                                                   .waiting = o->max_waiting,
                                                   .delay = o->delay},
                       &s->scheduler));
    TRY(desk_open(&s->desk));
    return net_open(&(struct net_options){.host = o->host,
                                          .port = o->port,
                                          .max_body = o->max_body,
                                          .origins = o->origins,
                                          .keys = o->key_file != NULL,
                                          .names = !o->key_file && cors_is_here(o->host),
                                          .on_head = route_head,
                                          .on_request = route_request,
                                          .ctx = s},
                    &s->net);
}

int serve(const struct serve_options *o)
{
    struct server s = {.o = *o};
    int e = open_parts(&s);
    if (e >= 0) {
        atomic_store(&serving, s.net);
        if (o->on_ready) o->on_ready(o->ctx, net_port(s.net));
        if (atomic_load(&stop_asked))
            net_stop(s.net); /* the signal may have come before `serving` was set */
        net_run(s.net, GRACE_SECONDS);
        atomic_store(&serving, NULL);
        atomic_store(&stop_asked, false);
    }
    crew_stop(s.desk);
    crew_close(s.hearing);
    scheduler_close(s.scheduler);
    crew_close(s.desk); /* jobs that are over ask it to take their answers */
    events_close(s.events);
    caches_close(&s.caches);
    net_close(s.net);
    replay_close(s.replay);
    slots_close(s.slots);
    keys_free(s.keys);
    return e;
}

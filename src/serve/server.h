/* server.h - what the files of the server share. */
#pragma once
#include "serve/caches.h"
#include "serve/dialect.h"
#include "serve/exchange.h"
#include "serve/scheduler.h"
#include "serve/serve.h"

struct keys;
struct slots;
struct crew;
struct events;
struct server {
    struct serve_options o;
    const kvik_tokenizer *tokenizer;
    struct dialect_use dialect;
    struct net *net;
    struct crew *desk;
    struct caches caches;
    struct crew *hearing; /* transcribes, if the model hears; else NULL */
    struct scheduler *scheduler;
    struct events *events; /* NULL: no events are published */
    struct keys *keys;     /* NULL: requests need no key */
    struct replay *replay;
    struct slots *slots;
    uint64_t seed;
    bool seeded;               /* the options of the command line have a seed */
    int32_t eos[KVIK_MAX_EOS]; /* tokens that end a turn */
    uint32_t n_eos;
    int64_t created; /* Unix time of the start */
};
/* Returns how many tokens of one sequence the budget holds with the server's own strategy, at most the context. */
static inline uint64_t server_capacity(const struct server *s)
{
    return s->caches.use[0].capacity;
}

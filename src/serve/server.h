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
    struct crew *hearing; /* transcribes, where the model hears; else NULL */
    struct scheduler *scheduler;
    struct events *events; /* NULL: none are published */
    struct keys *keys;     /* NULL: none are needed */
    struct replay *replay;
    struct slots *slots;
    uint64_t seed;
    bool seeded;               /* the options of the command line have a seed */
    int32_t eos[KVIK_MAX_EOS]; /* tokens that end a turn */
    uint32_t n_eos;
    int64_t created; /* Unix time of the start */
};
/* Returns the tokens of one sequence that the budget holds, at most the context, with the server's own strategy. */
static inline uint64_t server_capacity(const struct server *s)
{
    return s->caches.use[0].capacity;
}

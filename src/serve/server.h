/* server.h - what the files of the server share. */
#pragma once
#include "serve/dialect.h"
#include "serve/exchange.h"
#include "serve/scheduler.h"
#include "serve/serve.h"
#include "serve/totals.h"

struct keys;
struct slots;
struct desk;
struct server {
    struct serve_options o;
    const kvik_tokenizer *tokenizer;
    struct dialect_use dialect;
    struct net *net;
    struct desk *desk;
    struct scheduler *scheduler;
    struct keys *keys; /* NULL: none are needed */
    struct replay *replay;
    struct slots *slots;
    struct totals totals;
    uint64_t seed;
    bool seeded;               /* the options of the command line have a seed */
    int32_t eos[KVIK_MAX_EOS]; /* tokens that end a turn */
    uint32_t n_eos;
    /* Tokens of one sequence that the budget of the cache holds, at most the context. */
    uint64_t capacity;
    int64_t created; /* Unix time of the start */
};

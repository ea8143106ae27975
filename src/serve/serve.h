/* serve.h - kvik serve: many conversations over one cache, for the clients that people already use.
 *
 * Three threads.  The network thread (net.c) owns sockets.  The desk (desk.c) reads requests: JSON, chat templates,
 * tokens.  The scheduler (scheduler.c) computes.  Each waits for none of the others, so a long prompt delays neither a
 * health check nor the reading of the next request.  This floor includes kvik.h and base only, so that a program which
 * embeds the library can do all that it does. */
#pragma once
#include "kvik.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct serve_options {
    const char *name;      /* what the answers call the model */
    kvik_model *model;
    kvik_cache *cache;
    const char *defaults;  /* NULL, or a JSON object of generation options, for requests that do not set them */
    const char *host;      /* an address or name to listen at */
    uint16_t port;         /* 0: any that is free */
    const char *key_file;  /* NULL, or a file with an API key in each line */
    uint32_t parallel;     /* generations at once */
    uint32_t max_waiting;  /* generations that wait; more are refused */
    uint32_t context;      /* tokens of a sequence at most */
    size_t max_body;       /* bytes of a request */
    bool log;              /* a line of JSON on standard error for each request, without its text */
    /* Called once the server listens. */
    void (*on_ready)(void *ctx, uint16_t port);
    void *ctx;
};
/* Serves until serve_stop, then lets running answers end for at most 30 seconds.  Returns 0 or an error code. */
int serve(const struct serve_options *o);
/* Ends serve(); a signal handler may call it. */
void serve_stop(void);

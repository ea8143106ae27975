/* serve.h - kvik serve: many conversations over one cache, for the clients that people already use.
 *
 * The network thread (net.c) owns sockets.  The desk (desk.c) has two threads that read requests: JSON, chat templates,
 * tokens.  The scheduler (scheduler.c) computes.  Each waits for none of the others, so a long prompt delays neither a
 * health check nor the reading of the next request.  This floor includes kvik.h and base only, so that a program which
 * embeds the library can do all that it does. */
#pragma once
#include "kvik.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The names under which GET /metrics shows its numbers. */
enum serve_metrics { SERVE_METRICS_VLLM, SERVE_METRICS_LLAMACPP, SERVE_METRICS_OFF };

enum { SERVE_CACHES = 16 };
/* A cache that requests can choose. */
struct serve_cache {
    /* Its strategy, as the request says it: a name (NULL: the library's default), and NULL or a JSON object. */
    const char *implementation, *config;
    kvik_cache *cache;
    /* Sequences of the cache: as many beams a generation may have; and tokens of a sequence at most. */
    uint32_t sequences, context;
};
struct serve_options {
    /* What the answers call the model. */
    const char *name;
    /* NULL, or all names of the model, and words that describe it, each with commas between them; they are shown. */
    const char *aliases, *tags;
    /* Where the model lies. */
    const char *path;
    kvik_model *model;
    /* [n_caches], at most SERVE_CACHES: the first is for requests that name none.  Each was opened with the memory that all have together. */
    const struct serve_cache *cache;
    uint32_t n_caches;
    /* NULL, or a JSON object of generation options, for requests that do not set them. */
    const char *defaults;
    /* An address or name to listen at, and a port; 0: any that is free. */
    const char *host;
    uint16_t port;
    /* NULL, or a file with an API key in each line. */
    const char *key_file;
    /* Pages that a browser lets use the server: "localhost", "*", or origins with commas between them. */
    const char *origins;
    /* NULL, or a directory in which prompts and answers are kept for the next server. */
    const char *prefix_dir;
    /* NULL, or the address of a store that several servers share (kvik_shared.h). */
    const char *prefix_store;
    /* NULL, or where changes of the cache are published, as a ZMQ endpoint or a port of this machine; where they can be had
     * again; and their topic, NULL: kv@HOST:PORT@NAME.  See events.h. */
    const char *events, *events_replay, *events_topic;
    /* NULL, or the directory of the files of slots. */
    const char *slot_dir;
    /* True: prompts are taken as they are; see rules.h. */
    bool no_rules;
    /* True: chats show their prompt and options in the field __verbose, as a request can ask for. */
    bool verbose;
    /* Where a request does not say it, models that reason: 1 do, -1 do not, 0 do as their template has it. */
    int reasoning;
    enum serve_metrics metrics;
    /* Generations at once, and those that wait; more are refused. */
    uint32_t parallel, max_waiting;
    /* Seconds that prompts may add to the time between two tokens of a text. */
    double delay;
    /* Bytes of a request at most. */
    size_t max_body;
    /* Called once the server listens. */
    void (*on_ready)(void *ctx, uint16_t port);
    /* NULL, or gets a line of JSON for each generation that is over, without its text.  Called by a thread of the
     * server. */
    void (*on_log)(void *ctx, const char *line);
    /* NULL, or gets a line of JSON when the shared store begins to fail, and when it works again; see outage.h. */
    void (*on_outage)(void *ctx, const char *line);
    void *ctx;
};
/* Serves until serve_stop, then lets running answers end for at most 30 seconds.  Returns 0 or an error code. */
int serve(const struct serve_options *o);
/* Ends serve(); a signal handler may call it. */
void serve_stop(void);

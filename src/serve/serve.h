/* serve.h - kvik serve: many conversations over one cache, for the clients that people already use.
 *
 * The network thread (net.c) owns sockets.  The desk (desk.c) has two threads that read requests: JSON, chat templates, tokens.  The scheduler
 * (scheduler.c) computes.  None of them waits for another, so a long prompt delays neither a health check nor the reading of the next request.
 *
 * This floor includes only kvik.h and base, so a program that embeds the library can do everything that the server does. */
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
    /* Its strategy, as requests name it: a name (NULL: the library's default), and a JSON object or NULL. */
    const char *implementation, *config;
    kvik_cache *cache;
    /* sequences: of the cache, which limits the beams of a generation; context: most tokens of a sequence */
    uint32_t sequences, context;
};
struct serve_options {
    /* The name of the model in answers. */
    const char *name;
    /* All names of the model, and words that describe it, each list with commas between them; or NULL.  Answers show
     * both. */
    const char *aliases, *tags;
    /* The file or directory of the model. */
    const char *path;
    kvik_model *model;
    /* [n_caches], at most SERVE_CACHES.  The first serves requests that name no cache.  Each was opened with the
     * memory of all caches together. */
    const struct serve_cache *cache;
    uint32_t n_caches;
    /* NULL, or a JSON object of generation options, for requests that do not set them. */
    const char *defaults;
    /* An address or name to listen at, and a port; 0: any free port. */
    const char *host;
    uint16_t port;
    /* NULL, or a file with an API key in each line. */
    const char *key_file;
    /* Pages that may use the server from a browser: "localhost", "*", or origins separated by commas. */
    const char *origins;
    /* NULL, or a directory in which prompts and answers are kept for the next server. */
    const char *prefix_dir;
    /* NULL, or the address of a store that several servers share (kvik_shared.h). */
    const char *prefix_store;
    /* ZMQ endpoints, or ports of this machine; NULL: none.  events: changes of the cache are published here.
     * events_replay: the newest of them can be asked for again here.  events_topic: their topic, NULL:
     * kv@HOST:PORT@NAME.  See events.h. */
    const char *events, *events_replay, *events_topic;
    /* NULL, or the directory of the files of slots. */
    const char *slot_dir;
    /* True: prompts are not changed; see rules.h. */
    bool no_rules;
    /* True: answers of chats have the field __verbose with prompt and options, as if every request asked for it. */
    bool verbose;
    /* Whether models reason if a request does not say it.  1: yes, -1: no, 0: the template decides. */
    int reasoning;
    enum serve_metrics metrics;
    /* parallel: generations that run at once; max_waiting: generations that may wait, so that further requests are
     * refused */
    uint32_t parallel, max_waiting;
    /* The highest priority that a request can have; a higher one counts as this one. */
    int32_t max_priority;
    /* Most seconds that the prompts in a step may add to the time between two tokens of a text. */
    double delay;
    /* Most bytes of a request. */
    size_t max_body;
    /* Called once the server listens. */
    void (*on_ready)(void *ctx, uint16_t port);
    /* NULL, or gets a line of JSON for each generation that is over, without its text.  A thread of the server calls
     * it. */
    void (*on_log)(void *ctx, const char *line);
    /* NULL, or gets a line of JSON when the shared store begins to fail and when it works again; see outage.h. */
    void (*on_outage)(void *ctx, const char *line);
    void *ctx;
};
/* Serves until serve_stop.  Then running answers may end within 30 seconds.  Returns 0 or an error code. */
int serve(const struct serve_options *o);
/* Ends serve(); a signal handler may call it. */
void serve_stop(void);

/* fuzz_request.c - a request as text: a line "POST /slots/0?action=save", then the body.  It goes through the whole server but its sockets:
 * routes, desk, protocols, templates, tokens, scheduler, answers.  This file stands in for the network thread, with one request
 * at a time.  Every request has one whole answer, of text that is UTF-8 and JSON, and none is an error of the server. */
#include "fuzz.h"

#ifdef KVIK_SERVE
#include "base/buf.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "serve/net.h"
#include "serve/serve.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) abort();                                                                         \
    } while (0)

enum { CONTEXT = 256, PARALLEL = 4, BYTES = 1 << 20 };

struct net {
    pthread_mutex_t lock;
    pthread_cond_t bell;
    struct net_options o;
    bool ready, held;
    /* Of the answer. */
    int status;
    bool json, begun, over;
    struct buf text;
};
static struct net net = {.lock = PTHREAD_MUTEX_INITIALIZER, .bell = PTHREAD_COND_INITIALIZER};

static void take(const char *text, size_t n)
{
    MUST(!net.over && (n == 0 || buf_append(&net.text, text, n) >= 0));
}

void exchange_answer(struct exchange *x, int status, const char *type, char *text, size_t n)
{
    (void)x;
    MUST(!net.begun && !net.over);
    net.status = status;
    net.json = type && !strncmp(type, "application/json", 16);
    take(text, n);
    net.over = true;
    mem_free(text);
}

void exchange_json(struct exchange *x, int status, json_t *o)
{
    char *text = NULL;
    MUST(o && json_text(o, &text) >= 0);
    json_decref(o);
    exchange_answer(x, status, "application/json", text, strlen(text));
}

void exchange_begin(struct exchange *x, const char *type, bool comments)
{
    (void)x, (void)type, (void)comments;
    MUST(!net.begun && !net.over);
    net.begun = true;
    net.status = 200;
}

void exchange_send(struct exchange *x, const char *text, size_t n)
{
    (void)x;
    MUST(net.begun);
    take(text, n);
}

void exchange_finish(struct exchange *x)
{
    (void)x;
    MUST(net.begun && !net.over);
    net.over = true;
}

struct exchange *exchange_hold(struct exchange *x)
{
    atomic_fetch_add(&x->refs, 1);
    return x;
}

void exchange_release(struct exchange *x)
{
    if (!x || atomic_fetch_sub(&x->refs, 1) != 1) return;
    mem_free(x->path);
    mem_free(x->query);
    mem_free(x->body);
    mem_free(x);
    pthread_mutex_lock(&net.lock);
    net.held = false;
    pthread_cond_signal(&net.bell);
    pthread_mutex_unlock(&net.lock);
}

int net_open(const struct net_options *o, struct net **out)
{
    net.o = *o;
    *out = &net;
    return 0;
}

uint16_t net_port(const struct net *n)
{
    (void)n;
    return 1;
}

/* Says that the server is ready, and leaves its thread waiting for good. */
void net_run(struct net *n, double seconds)
{
    (void)seconds;
    pthread_mutex_lock(&n->lock);
    n->ready = true;
    pthread_cond_signal(&n->bell);
    pthread_mutex_unlock(&n->lock);
    for (;;)
        pause();
}

void net_stop(struct net *n)
{
    (void)n;
}

void net_close(struct net *n)
{
    (void)n;
}

/* Makes a directory of a golden model and a tokenizer with a template, of links, and opens it. */
static kvik_model *open_model(void)
{
    static const char *const part[] = {"tests/golden/models/llama-mha/config.json",
                                       "tests/golden/models/llama-mha/model.safetensors",
                                       "tests/fixtures/request/tokenizer.json",
                                       "tests/fixtures/request/tokenizer_config.json"};
    char dir[] = "/tmp/fuzz-request-XXXXXX", at[96];
    kvik_model *m;
    MUST(mkdtemp(dir));
    for (int make = 1; make >= 0; make--) {
        for (size_t i = 0; i < countof(part); i++) {
            char *whole = realpath(part[i], NULL);
            snprintf(at, sizeof at, "%s%s", dir, strrchr(part[i], '/'));
            MUST(whole && (make ? symlink(whole, at) : unlink(at)) == 0);
            free(whole);
        }
        if (make) MUST(kvik_model_open(dir, &m) >= 0);
    }
    rmdir(dir);
    return m;
}

static void *run(void *arg)
{
    struct serve_options o = {.name = "m",
                              .path = "m",
                              .defaults = "{\"max_new_tokens\": 6, \"do_sample\": false}",
                              .host = "",
                              .origins = "*",
                              .parallel = PARALLEL,
                              .max_waiting = 512,
                              .delay = 0.1,
                              .max_body = BYTES};
    (void)arg;
    o.model = open_model();
    const kvik_cache_config c = {.size = sizeof c,
                                 .cache_config = "{\"moved_chunks\": 4}",
                                 .max_sequences = PARALLEL,
                                 .max_cache_len = CONTEXT,
                                 .threads = 1};
    struct serve_cache cache = {.sequences = PARALLEL, .context = CONTEXT};
    MUST(kvik_cache_open(o.model, &c, &cache.cache) >= 0);
    o.cache = &cache;
    o.n_caches = 1;
    serve(&o);
    abort();
}

static void start(void)
{
    pthread_t thread;
    MUST(thread_start(&thread, NULL, run, NULL) == 0);
    pthread_mutex_lock(&net.lock);
    while (!net.ready)
        pthread_cond_wait(&net.bell, &net.lock);
    pthread_mutex_unlock(&net.lock);
}

/* Reads the first line; false: it is none of a request. */
static bool read_head(const char *data, size_t n, struct exchange *x)
{
    if (n > 4 && !memcmp(data, "GET ", 4))
        x->method = EXCHANGE_GET;
    else if (n > 5 && !memcmp(data, "POST ", 5))
        x->method = EXCHANGE_POST;
    else
        return false;
    size_t skip = x->method == EXCHANGE_GET ? 4 : 5;
    x->path = mem_strndup(data + skip, n - skip);
    char *query = x->path ? strchr(x->path, '?') : NULL;
    if (query) x->query = mem_strdup(query + 1);
    if (query) *query = 0;
    return x->path && *x->path == '/' && (!query || x->query);
}

static void ask(struct exchange *x)
{
    static uint64_t ids;
    buf_init(&net.text, 256 << 20);
    net.json = net.begun = net.over = false;
    net.status = 0;
    net.held = true;
    atomic_init(&x->refs, 1);
    x->net = &net;
    x->id = ++ids;
    x->client = 1; /* 0 is nobody */
    x->begun = now_seconds();
    net.o.on_request(net.o.ctx, x);
    pthread_mutex_lock(&net.lock);
    while (net.held)
        pthread_cond_wait(&net.bell, &net.lock);
    pthread_mutex_unlock(&net.lock);
    MUST(net.over && net.status >= 200 && net.status < 500);
    MUST(net.text.len == 0 || utf8_valid(net.text.data, net.text.len));
    if (net.json) {
        json_t *o = NULL;
        MUST(json_parse(net.text.data, net.text.len, "the answer", &o) >= 0);
        json_decref(o);
    }
    buf_done(&net.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *line = size ? memchr(data, '\n', size) : NULL;
    size_t n = line ? (size_t)(line - data) : size;
    struct exchange *x = mem_alloc(sizeof *x);
    MUST(x);
    if (!net.ready) start();
    if (!read_head((const char *)data, n, x)) {
        mem_free(x->path);
        mem_free(x->query);
        mem_free(x);
        return 0;
    }
    x->n_body = line ? size - n - 1 : 0;
    x->body = mem_strndup(line ? (const char *)line + 1 : "", x->n_body);
    MUST(x->body);
    ask(x);
    return 0;
}
#else
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)data, (void)size; /* a build without libevent has no server */
    return 0;
}
#endif

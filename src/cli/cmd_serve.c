/* cmd_serve.c - kvik serve: a server for many conversations over one cache.  See serve/serve.h. */
#include "cli/cmd_chat.h"
#include "serve/serve.h"

#include <signal.h>
#include <string.h>

struct options {
    struct common common;
    const char *host, *alias, *keys, *config, *prefix_cache, *store, *origins, *reasoning, *tags,
        *metrics, *slots, *events, *events_replay, *events_topic;
    uint32_t port, parallel, waiting, delay, max_priority;
    uint64_t max_body;
    bool log, no_rules, verbose;
    struct arg_list allowed;
};

enum {
    PORT = 8080,
    PARALLEL = 16,
    WAITING = 512,
    DELAY = 100,
    SHELF = 9,
    BODY = 32 << 20,
    LEAST_TOKEN = 64,
    HEARD = 2 /* recordings are transcribed one after another, so few sequences are enough */
};

static const struct arg_option table[] = {
    {"host", ARG_TEXT, offsetof(struct options, host), "ADDRESS", NULL,
     "address to listen at, or several with commas between them (default: 127.0.0.1, this machine alone)"},
    {"port", ARG_UINT, offsetof(struct options, port), "N", NULL,
     "port to listen at; 0: any that is free (default: 8080)"},
    {"alias", ARG_TEXT, offsetof(struct options, alias), "NAME", NULL,
     "what the answers call the model; further names after commas (default: the name given, without directories and .gguf)"},
    {"tags", ARG_TEXT, offsetof(struct options, tags), "LIST", NULL,
     "words with commas between them that /v1/models shows with the model"},
    {"api-key-file", ARG_TEXT, offsetof(struct options, keys), "FILE", NULL,
     "file with an API key in each line; without it everybody who reaches the port is served"},
    {"cors-origins", ARG_TEXT, offsetof(struct options, origins), "LIST", NULL,
     "pages that a browser lets use the server: localhost (default: those of this machine), *, or origins with commas between them"},
    {"parallel", ARG_UINT, offsetof(struct options, parallel), "N", NULL,
     "texts that are generated at once; others wait (default: 16)"},
    {"max-waiting", ARG_UINT, offsetof(struct options, waiting), "N", NULL,
     "texts that may wait; more are refused with status 503 (default: 512)"},
    {"prefix-cache", ARG_TEXT, offsetof(struct options, prefix_cache), "DIR", NULL,
     "directory of saved prompts: they are reused, and texts are saved there when the server is idle and when it ends"},
    {"prefix-store", ARG_TEXT, offsetof(struct options, store), "ADDRESS", NULL,
     "store of prompts that several servers share: redis://HOST, rediss://HOST (TLS), unix:///SOCKET or file:///DIR; "
     "$REDISCLI_AUTH is its password"},
    {"slot-save-path", ARG_TEXT, offsetof(struct options, slots), "DIR", NULL,
     "directory in which POST /slots/N?action=save keeps the text of a slot as a file"},
    {"kv-events", ARG_TEXT, offsetof(struct options, events), "ENDPOINT", NULL,
     "publish which blocks the cache holds, for routers that know prefixes, in the form of vLLM: a ZMQ endpoint "
     "(tcp://127.0.0.1:5557), or a port of this machine. The events show the token ids of all prompts"},
    {"kv-events-replay", ARG_TEXT, offsetof(struct options, events_replay), "ENDPOINT", NULL,
     "where the newest 10000 messages of --kv-events can be had again"},
    {"kv-events-topic", ARG_TEXT, offsetof(struct options, events_topic), "TEXT", NULL,
     "what the messages begin with (default: kv@ADDRESS:PORT@NAME)"},
    {"allow-cache", ARG_LIST, offsetof(struct options, allowed), "NAME[:JSON]", NULL,
     "a further cache strategy that requests may choose, with its cache_config as JSON; repeat for more. All share --cache-memory"},
    {"max-priority", ARG_UINT, offsetof(struct options, max_priority), "N", NULL,
     "highest priority that a request can have with its field priority; higher ones count as this one (default: 0)"},
    {"max-delay", ARG_UINT, offsetof(struct options, delay), "MS", NULL,
     "milliseconds that new prompts may add to the time between two tokens of a text (default: 100)"},
    {"max-body", ARG_BYTES, offsetof(struct options, max_body), "BYTES", NULL,
     "size of a request; larger ones are refused with status 413 (default: 32M)"},
    {"template", ARG_TEXT, offsetof(struct options, common.template), "FILE|NAME", NULL,
     "the chat template, a Jinja file, or a built-in format: chatml, gemma, llama2, llama3, llama4, mistral, phi3, "
     "alpaca, zephyr, vicuna, deepseek (default: the model's own, else guessed)"},
    {"reasoning", ARG_TEXT, offsetof(struct options, reasoning), "on|off", NULL,
     "whether models that can reason do so, where a request does not say it (default: as the chat template has it)"},
    {"metrics-compat", ARG_TEXT, offsetof(struct options, metrics), "vllm|llamacpp|off", NULL,
     "the names of the numbers at /metrics; off: there are none (default: vllm)"},
    {"generation-config", ARG_TEXT, offsetof(struct options, config), "JSON|FILE", NULL,
     "generation options as a JSON object, for requests that do not set them; options on the command line win over it"},
    {"no-rules", ARG_FLAG, offsetof(struct options, no_rules), NULL, NULL,
     "keep what clients put before a prompt and change with every request, such as Claude Code's billing header"},
    {"verbose", ARG_FLAG, offsetof(struct options, verbose), NULL, NULL,
     "show the prompt and the options in the answers of chats, as the field __verbose"},
    {"log", ARG_FLAG, offsetof(struct options, log), NULL, NULL,
     "print a line of JSON on standard error for each request, without its text"},
};

/* Returns an enum serve_metrics, or -1 for another word. */
static int metrics_of(const char *word)
{
    if (!word || !strcmp(word, "vllm")) return SERVE_METRICS_VLLM;
    return !strcmp(word, "llamacpp") ? SERVE_METRICS_LLAMACPP
           : !strcmp(word, "off")    ? SERVE_METRICS_OFF
                                     : -1;
}

/* Returns 1 for "on", -1 for "off", 0 for no value, -2 for another word. */
static int reasoning_of(const char *word)
{
    if (!word) return 0;
    return !strcmp(word, "on") ? 1 : !strcmp(word, "off") ? -1 : -2;
}

#ifdef KVIK_SERVE
struct hello {
    const struct options *o;
    const char *name;
    double seconds;
};

static void on_ready(void *ctx, uint16_t port)
{
    const struct hello *h = ctx;
    char host[256]; /* the first address; an IPv6 address gets brackets in a URL */
    snprintf(host, sizeof host, "%.*s", (int)strcspn(h->o->host, ","), h->o->host);
    bool v6 = strchr(host, ':') != NULL;
    fprintf(stderr, "kvik: %s is served at http://%s%s%s:%u (ready after %.2f s); Ctrl-C ends\n",
            h->name, v6 ? "[" : "", host, v6 ? "]" : "", port, now_seconds() - h->seconds);
    fflush(stderr);
}

static void on_log(void *ctx, const char *line)
{
    (void)ctx;
    fprintf(stderr, "%s\n", line);
}

static void on_end(int sig)
{
    (void)sig;
    serve_stop();
}

static void catch_signals(void)
{
    struct sigaction a = {.sa_handler = on_end, .sa_flags = SA_RESTART};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* Writes the name of a model as clients see it, from its path: "SmolLM2-135M-Instruct.Q4_1". */
static void short_name(const char *path, char out[256])
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t from = n;
    while (from && path[from - 1] != '/')
        from--;
    if (n - from > 5 && !memcmp(path + n - 5, ".gguf", 5)) n -= 5;
    snprintf(out, 256, "%.*s", (int)MIN(n - from, 255), path + from);
}

/* Settles the default options of requests: a chat's defaults for this model, then the options of the command line.
 * Temperature 0 means greedy decoding.  *out is their JSON (mem_free). */
static int settle_defaults(struct engine *s, const json_t *given, char **out)
{
    kvik_generation own;
    json_t *all = NULL;
    const char *source;
    TRY(kvik_generation_init(&own, s->model));
    int e = chat_defaults(s->model, chat_samples(&own), &all, &source);
    kvik_generation_done(&own);
    if (e >= 0 && json_object_update(all, (json_t *)(uintptr_t)given) < 0)
        e = ERR(NOMEM, "out of memory");
    const json_t *t = json_object_get(all, "temperature");
    if (e >= 0 && t && json_number_value(t) == 0) {
        json_object_set_new(all, "do_sample", json_false());
        json_object_del(all, "temperature");
    }
    if (e >= 0) e = engine_settle(s, all);
    if (e >= 0) e = json_text(all, out);
    json_decref(all);
    return e;
}

/* True if each of these addresses, separated by commas, reaches this machine alone. */
static bool all_local(const char *hosts)
{
    while (*hosts) {
        size_t n = strcspn(hosts, ",");
        bool local = !strncmp(hosts, "127.", 4) || (n == 9 && !strncmp(hosts, "localhost", n)) ||
                     (n == 3 && !strncmp(hosts, "::1", n));
        if (n && !local) return false;
        hosts += n + (hosts[n] == ',');
    }
    return true;
}

/* True if an endpoint of ZMQ reaches this machine alone. */
static bool is_local(const char *endpoint)
{
    static const char *const local[] = {"tcp://127.", "tcp://localhost:", "tcp://[::1]:", "ipc://",
                                        "inproc://"};
    for (size_t i = 0; endpoint && i < countof(local); i++)
        if (!strncmp(endpoint, local[i], strlen(local[i]))) return true;
    return !endpoint || endpoint[strspn(endpoint, "0123456789")] == 0;
}

/* Warns if other machines can reach the events, or can reach the port without a key. */
static void warn_open(const struct options *o)
{
    if (!is_local(o->events) || !is_local(o->events_replay))
        say_line(
            "the events of --kv-events show the token ids of all prompts to everybody who reaches "
            "their port");
    if (o->keys || all_local(o->host)) return;
    say_line(
        "everybody who reaches %s is served, since there are no keys; --api-key-file gives some",
        o->host);
}

/* The caches of a server.  The first is the engine's. */
struct served {
    struct serve_cache cache[SERVE_CACHES];
    /* the options that cache i was opened with; owned, except for the first cache */
    kvik_generation g[SERVE_CACHES];
    uint32_t n;
};

static void served_done(struct served *c)
{
    for (uint32_t i = 1; i < c->n; i++) {
        kvik_cache_close(c->cache[i].cache);
        kvik_generation_done(&c->g[i]);
    }
}

/* Reads NAME or NAME:JSON into the options of a cache. */
static int read_allowed(const char *word, const json_t *given, json_t **out)
{
    const char *colon = strchr(word, ':');
    json_t *config = NULL;
    if (colon) TRY(json_parse(colon + 1, strlen(colon + 1), "its JSON", &config));
    if (!(*out = json_deep_copy(given))) {
        json_decref(config);
        return ERR(NOMEM, "out of memory");
    }
    json_object_set_new(*out, "cache_implementation",
                        json_stringn(word, colon ? (size_t)(colon - word) : strlen(word)));
    json_object_del(*out, "max_cache_len");
    json_object_del(*out, "cache_config");
    if (config) json_object_set_new(*out, "cache_config", config);
    return 0;
}

/* Opens the cache of s for the server, for sequences of at most `most` tokens. */
static int open_served(struct engine *s, const struct options *o, uint32_t most,
                       struct serve_cache *out)
{
    uint32_t context = MIN(engine_context(s), most), asked = s->g.max_cache_len;
    if (asked) context = MIN(context, asked);
    s->g.max_cache_len = 0;
    s->fewer = true;
    /* With a directory or a store there are more sequences: finished ones that wait to be saved, and one that is
     * read (serve/shelf.c). */
    uint32_t texts = engine_hears(s->model) ? HEARD : o->parallel;
    int status = engine_cache(s, texts + (o->prefix_cache || o->store ? SHELF : 0), context);
    *out = (struct serve_cache){.implementation = s->g.cache_implementation,
                                .config = s->g.cache_config,
                                .cache = s->cache,
                                .sequences = s->sequences,
                                .context = context};
    return status;
}

/* Opens a strategy of --allow-cache.  Each cache may use the memory of all caches together; the server divides it. */
static int open_allowed(const struct engine *s, const struct options *o, const char *word,
                        const json_t *given, struct served *c)
{
    kvik_usage u = {.size = sizeof u};
    struct engine own = *s;
    json_t *options = NULL;
    int e = kvik_cache_usage(s->cache, &u);
    own.has_g = false;
    own.common.cache_memory = u.budget;
    if (e >= 0) e = read_allowed(word, given, &options);
    if (e >= 0) e = engine_settle(&own, options);
    json_decref(options);
    if (e < 0) {
        err_prefix(e, "--allow-cache %s", word);
        return say_error(e);
    }
    /* With sinks, sequences have no end; tables of such a length would take all of the memory. */
    uint64_t most = MAX(u.budget / LEAST_TOKEN, kvik_model_context(s->model));
    int status = open_served(&own, o, (uint32_t)MIN(most, UINT32_MAX), &c->cache[c->n]);
    if (status) {
        say_line("this is of --allow-cache %s", word);
        kvik_generation_done(&own.g);
    } else
        c->g[c->n++] = own.g;
    return status;
}

/* Opens the default cache, and those that requests may choose. */
static int open_caches(struct engine *s, const struct options *o, const json_t *given,
                       struct served *c)
{
    if (o->allowed.n >= SERVE_CACHES)
        return say_usage("--allow-cache allows at most %d strategies", SERVE_CACHES - 1);
    int status = open_served(s, o, UINT32_MAX, &c->cache[0]);
    c->n = 1;
    for (size_t i = 0; !status && i < o->allowed.n; i++)
        status = open_allowed(s, o, o->allowed.item[i], given, c);
    return status;
}

static int serve_model(const struct options *o, const char *model, const json_t *given,
                       double begun)
{
    struct engine s;
    struct hello h = {.o = o, .seconds = begun};
    char name[256], *options = NULL;
    int status = engine_open_model(&s, model, &o->common);
    if (status) return status;
    int e = settle_defaults(&s, given, &options);
    if (e < 0) return engine_close(&s, say_error(e));
    warn_open(o);
    short_name(model, name);
    if (o->alias) snprintf(name, sizeof name, "%.*s", (int)strcspn(o->alias, ","), o->alias);
    h.name = name;
    struct served c = {0};
    status = open_caches(&s, o, given, &c);
    if (status) {
        served_done(&c);
        mem_free(options);
        return engine_close(&s, status);
    }
    struct serve_options so = {.name = h.name,
                               .aliases = o->alias,
                               .tags = o->tags,
                               .path = model,
                               .model = s.model,
                               .cache = c.cache,
                               .n_caches = c.n,
                               .host = o->host,
                               .port = (uint16_t)o->port,
                               .key_file = o->keys,
                               .origins = o->origins,
                               .slot_dir = o->slots,
                               .events = o->events,
                               .events_replay = o->events_replay,
                               .events_topic = o->events_topic,
                               .prefix_dir = o->prefix_cache,
                               .prefix_store = o->store,
                               .no_rules = o->no_rules,
                               .verbose = o->verbose,
                               .metrics = (enum serve_metrics)metrics_of(o->metrics),
                               .reasoning = reasoning_of(o->reasoning),
                               .parallel = MIN(o->parallel, s.sequences),
                               .max_waiting = o->waiting,
                               .max_priority = (int32_t)MIN(o->max_priority, INT32_MAX),
                               .delay = o->delay / 1000.0,
                               .max_body = (size_t)o->max_body,
                               .on_log = o->log ? on_log : NULL,
                               .on_outage = on_log,
                               .on_ready = on_ready,
                               .ctx = &h};
    catch_signals();
    so.defaults = options;
    e = serve(&so);
    served_done(&c);
    mem_free(options);
    return engine_close(&s, e < 0 ? say_error(e) : 0);
}
#else
static int serve_model(const struct options *o, const char *model, const json_t *given,
                       double begun)
{
    (void)o, (void)model, (void)given, (void)begun;
    return say_failed("this build has no server: install libevent-dev and build again");
}
#endif

static int run_serve(const struct command *self, int argc, char **argv)
{
    struct options o = {.host = "127.0.0.1",
                        .origins = "localhost",
                        .port = PORT,
                        .parallel = PARALLEL,
                        .waiting = WAITING,
                        .delay = DELAY,
                        .max_body = BODY,
                        .common.chats = true,
                        .common.hears = true};
    struct args a;
    json_t *given = NULL;
    double begun = now_seconds();
    int status = args_parse(self, argc, argv, &o, &a);
    if (status == 0 && a.n != 1)
        status = say_usage("kvik serve takes one MODEL; kvik models lists those that are here");
    if (status == 0 && o.port > 65535)
        status = say_usage("--port is %u and must be at most 65535", o.port);
    if (status == 0 && (!o.parallel || o.parallel > 64))
        status = say_usage("--parallel is %u and must be from 1 to 64", o.parallel);
    if (status == 0 && metrics_of(o.metrics) < 0)
        status = say_usage("--metrics-compat is vllm, llamacpp or off, not %s", o.metrics);
    if (status == 0 && reasoning_of(o.reasoning) == -2)
        status = say_usage("--reasoning is on or off, not %s", o.reasoning);
    if (status == 0 && !o.events && (o.events_replay || o.events_topic))
        status = say_usage("--kv-events-replay and --kv-events-topic need --kv-events");
    if (status == 0) status = template_check(o.common.template);
    if (status == 0) status = engine_options(o.config, a.generation, &given);
    if (status == 0 && json_object_get(given, "num_return_sequences"))
        status =
            say_usage("kvik serve: a request says with its field \"n\" how many texts it wants");
    if (status == 0) status = serve_model(&o, a.word[0], given, begun);
    json_decref(given);
    args_done(&a);
    args_list_done(&o.allowed);
    return MAX(status, 0);
}

/* Writes the default of an option in requests, if it differs from that of chat_fallback. */
static bool serve_fallback(const char *option, char out[32])
{
    if (!strcmp(option, "max_new_tokens")) return snprintf(out, 32, "what the context holds") > 0;
    return chat_fallback(option, out);
}

const struct command command_serve = {
    .name = "serve",
    .usage = "MODEL [OPTION...]",
    .summary = "serve a model to clients of OpenAI, Anthropic and Ollama, over HTTP",
    .about =
        "Serves a model over HTTP to clients of OpenAI, Anthropic and Ollama.  All requests share one cache:\n"
        "texts that begin alike share their rows, and a conversation's next turn computes only what is new.",
    .run = run_serve,
    .option = table,
    .n_options = countof(table),
    .generation = true,
    .runs_model = true,
    .environment = true,
    .fallback = serve_fallback,
};

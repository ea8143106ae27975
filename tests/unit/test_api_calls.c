/* test_api_calls.c - every public function, by the table of api_calls.h: with NULL for each pointer that it needs, inside
 * callbacks, in a second thread, and in a forked process.
 *
 * A new function fails the test until it has a row in the table. */
#include "api_world.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>

static const kvik_cache_config plain_config = {.size = sizeof plain_config,
                                               .cache_config = "{\"moved_chunks\": 4}",
                                               .max_sequences = 16,
                                               .max_cache_len = 64,
                                               .threads = 2};

/* --- The table is whole. */

static char *text_of(const char *path)
{
    char *s;
    size_t n;
    assert_int_equal(file_read(path, 1 << 20, &s, &n), 0);
    return s;
}

static const struct api_call *find(const char *name, size_t n)
{
    for (size_t i = 0; i < countof(api_calls); i++)
        if (strlen(api_calls[i].name) == n && !memcmp(api_calls[i].name, name, n))
            return &api_calls[i];
    return NULL;
}

/* Every exported function is in the table, and the table has no other. */
static void test_names(void **state)
{
    (void)state;
    char *list = text_of("src/api/exports.txt");
    size_t n = 0;
    for (char *line = strtok(list, "\n"); line; line = strtok(NULL, "\n")) {
        if (*line == '#') continue;
        if (!find(line, strlen(line))) fail_msg("%s is not in tests/unit/api_calls.h", line);
        n++;
    }
    assert_int_equal(n, countof(api_calls));
    mem_free(list);
}

static void strip_comments(char *s)
{
    for (char *end; (s = strstr(s, "/*")) && (end = strstr(s, "*/"));) {
        memset(s, ' ', (size_t)(end + 2 - s));
        s = end + 2;
    }
}

/* Compares the arguments of a row with the parameters "(...)" of its declaration. */
static void compare(const struct api_call *c, const char *p)
{
    int n = 0;
    const char *end = strchr(p, ')');
    for (p++; p < end; n++) {
        size_t len = strcspn(p, ",)");
        bool pointer = memchr(p, '*', len) || !strncmp(p + strspn(p, " \n"), "kvik_on_", 8);
        if (len == 4 && !memcmp(p, "void", 4)) break;
        if (n >= ARGS || !c->arg[n]) fail_msg("%s: the table has too few arguments", c->name);
        if (pointer != ((c->arg[n] & ~A_OPTIONAL) < A_POINTERS))
            fail_msg("%s: argument %d of the table is of another kind", c->name, n);
        p += len + 1;
    }
    if (n < ARGS && c->arg[n]) fail_msg("%s: the table has too many arguments", c->name);
}

static void test_parameters(void **state)
{
    (void)state;
    static const char *const headers[] = {"include/kvik.h", "include/kvik_compat.h",
                                          "include/kvik_loop.h", "include/kvik_shared.h",
                                          "include/kvik_speech.h"};
    size_t n = 0;
    for (size_t i = 0; i < countof(headers); i++) {
        char *header = text_of(headers[i]), *p = header;
        strip_comments(header);
        while ((p = strstr(p, "\nKVIK_API "))) {
            const char *open = strchr(++p, '('), *name = open;
            while (name[-1] == '_' || isalnum((unsigned char)name[-1]))
                name--;
            const struct api_call *c = find(name, (size_t)(open - name));
            if (!c) fail_msg("%.*s is not in tests/unit/api_calls.h", (int)(open - name), name);
            compare(c, open);
            n++;
        }
        mem_free(header);
    }
    assert_int_equal(n, countof(api_calls));
}

/* --- NULL. */

/* Each needed pointer in turn is NULL.  Then all arguments are right, so that nothing else was the reason. */
static void test_null(void **state)
{
    (void)state;
    for (size_t k = 0; k < countof(api_calls); k++) {
        const struct api_call *c = &api_calls[k];
        struct api_world w;
        uintptr_t v[ARGS];
        api_open(&w, &plain_config);
        for (int i = 0; i < api_args(c); i++) {
            if (c->arg[i] >= A_POINTERS) continue;
            api_values(&w, c, v);
            v[i] = 0;
            api_mark_error();
            uintptr_t r = api_invoke(c, v);
            int64_t code = api_code(c, r);
            if (c->does == D_CLOSES) {
                if (code || api_error_told()) fail_msg("%s(NULL) is an error", c->name);
                continue;
            }
            if (!api_error_told()) fail_msg("%s: argument %d NULL: no error text", c->name, i);
            bool coded = c->returns == R_INT || c->returns == R_I64;
            if (coded ? code != KVIK_ARG : !api_none(c, r))
                fail_msg("%s: argument %d NULL: %lld", c->name, i, (long long)code);
        }
        api_values(&w, c, v);
        for (int left = 0; left < 2 && c->does != D_CLOSES;
             left++) { /* then without the optional */
            int64_t code = api_code(c, api_invoke(c, v));
            /* the model of the test has no encoder */
            if (c->f == (api_function *)(void (*)(void))kvik_cache_encode ||
                c->f == (api_function *)(void (*)(void))kvik_encoder_forward)
                code -= KVIK_ARG;
            if (strncmp(c->name, "kvik_transcribe", 15) == 0) code -= KVIK_UNSUPPORTED;
            if (code < 0 && c->returns != R_ID) fail_msg("%s: %s", c->name, kvik_last_error());
            if (c->returns == R_U32) assert_false(api_none(c, api_invoke(c, v)));
            api_release(&w, c);
            if (c->does == D_CHANGES || c->f == (api_function *)(void (*)(void))kvik_request_end ||
                c->f == (api_function *)(void (*)(void))kvik_trace_begin)
                break;
            for (int i = 0; i < api_args(c); i++)
                if (c->arg[i] & A_OPTIONAL) v[i] = 0;
        }
        api_close(&w);
    }
}

/* --- Callbacks. */

enum way { W_GENERATE, W_BATCH, W_REQUEST, W_DRAFTS, W_BEAMS, WAYS };
enum hook { H_TOKEN, H_PROGRESS, H_NOTICE, H_PROCESSOR, H_CRITERIA, H_PULSE, HOOKS };
static const char *const way_name[] = {"generate", "batch", "request", "drafts", "beams"};
static const char *const hook_name[] = {"on_token",         "on_progress",       "on_notice",
                                        "logits_processor", "stopping_criteria", "on_pulse"};

/* What a callback does, the first time it is asked: all calls of the table but those that close, or one that closes. */
struct intruder {
    struct api_world *w;
    bool calls;
    const struct api_call *closes; /* or NULL */
    enum way way;
    enum hook hook;
    uint32_t asked;
    void (*instead)(struct intruder *); /* does something else than the call */
};

static bool takes(const struct api_call *c, int kind)
{
    for (int i = 0; i < api_args(c); i++)
        if ((c->arg[i] & ~A_OPTIONAL) == kind) return true;
    return false;
}

/* Closes a handle of the world in a callback. */
static void close_one(struct intruder *t, uintptr_t v[ARGS])
{
    struct api_world *w = t->w;
    const struct api_call *c = t->closes;
    void **at = takes(c, A_CACHE)     ? (void **)&w->cache
                : takes(c, A_BATCH)   ? (void **)&w->batch
                : takes(c, A_REQUEST) ? (void **)&w->request
                                      : (void **)&w->model;
    int64_t code = api_code(c, api_invoke(c, v));
    if (code)
        fail_msg("%s in %s of %s: %lld", c->name, hook_name[t->hook], way_name[t->way],
                 (long long)code);
    *at = NULL;
}

static void call_one(struct intruder *t, const struct api_call *c)
{
    uintptr_t v[ARGS];
    api_values(t->w, c, v);
    api_mark_error();
    int64_t code = api_code(c, api_invoke(c, v));
    bool told = api_error_told();
    if (c->does == D_CHANGES ? code != KVIK_BUSY || !told : c->does == D_READS && code < 0)
        fail_msg("%s in %s of %s: %lld, %s", c->name, hook_name[t->hook], way_name[t->way],
                 (long long)code, kvik_last_error());
    api_release(t->w, c);
}

static void intrude(struct intruder *t)
{
    uintptr_t v[ARGS];
    if (t->asked++) return;
    if (t->instead) t->instead(t);
    for (size_t k = 0; t->calls && k < countof(api_calls); k++)
        if (api_calls[k].does != D_CLOSES) call_one(t, &api_calls[k]);
    if (!t->closes) return;
    api_values(t->w, t->closes, v);
    close_one(t, v);
}

static bool on_token(void *ctx, uint32_t row, int32_t id, const char *text)
{
    (void)row, (void)id, (void)text;
    intrude(ctx);
    return true;
}
static bool on_progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    intrude(ctx);
    return true;
}
static void on_notice(void *ctx, const char *text)
{
    (void)text;
    intrude(ctx);
}
static bool on_scores(void *ctx, uint32_t row, const int32_t *ids, size_t n, float *scores,
                      uint32_t vocab)
{
    (void)row, (void)ids, (void)n, (void)scores, (void)vocab;
    intrude(ctx);
    return true;
}
static bool on_criteria(void *ctx, uint32_t row, const int32_t *ids, size_t n)
{
    (void)row, (void)ids, (void)n;
    intrude(ctx);
    return false;
}

static bool on_pulse(void *ctx)
{
    intrude(ctx);
    return true;
}

/* Returns NULL if the callback, or the second thread, has freed the request. */
static kvik_result *run_request(struct api_world *w, const kvik_hooks *hooks)
{
    kvik_result *r;
    kvik_request_free(w->request);
    api_need(kvik_request_start(w->cache, &w->g, &w->prompt, 1, hooks, &w->request));
    for (int left = 1; left > 0;) {
        left = kvik_request_step(&w->request, 1);
        api_need(left);
        if (!w->request) {
            assert_int_equal(left, 0);
            return NULL;
        }
        if (kvik_request_state(w->request) == KVIK_PAUSED) { /* by the callback */
            kvik_request_resume(w->request);
            left = 1;
        }
    }
    api_need(kvik_request_end(w->request, &r));
    return r;
}

/* Generates with a hook that makes the call; returns the result. */
static kvik_result *run(struct intruder *t)
{
    struct api_world *w = t->w;
    kvik_result *r;
    kvik_hooks hooks = {.size = sizeof hooks, .ctx = t};
    if (t->hook == H_TOKEN) hooks.on_token = on_token;
    if (t->hook == H_PROGRESS) hooks.on_progress = on_progress;
    if (t->hook == H_NOTICE) hooks.on_notice = on_notice;
    if (t->hook == H_PROCESSOR) hooks.logits_processor = on_scores;
    if (t->hook == H_PULSE) hooks.on_pulse = on_pulse;
    if (t->hook == H_CRITERIA) hooks.stopping_criteria = on_criteria;
    if (t->way == W_DRAFTS || t->way == W_BEAMS) w->g.prompt_lookup_num_tokens = 2;
    if (t->way == W_BEAMS) w->g.num_beams = 2;
    if (t->way == W_REQUEST) return run_request(w, &hooks);
    api_need(t->way == W_BATCH || t->way == W_BEAMS
                 ? kvik_batch_generate(w->batch, &w->g, &w->inputs, &hooks, &r)
                 : kvik_generate(w->cache, &w->g, &w->prompt, 1, &hooks, &r));
    return r;
}

/* Fills the cache with a long text, so that rows of the batch are in the spill file, too. */
static void spill(struct api_world *w)
{
    enum { LONG = 900 };
    int32_t ids[LONG];
    kvik_usage u = {.size = sizeof u};
    kvik_span span = {.size = sizeof span, .ids = ids, .n = LONG};
    for (int i = 0; i < LONG; i++)
        ids[i] = i % 300;
    api_need(kvik_cache_new(w->cache, &span.seq));
    api_need(kvik_forward(w->cache, &span, 1, false, NULL));
    api_need(kvik_cache_usage(w->cache, &u));
    assert_true(u.streaming && u.spilled);
}

/* Runs with and without the call: the tokens and the logits are the same. */
static void check_run(struct intruder *t, const kvik_cache_config *config)
{
    static kvik_result *want[WAYS];
    struct api_world w;
    t->w = &w;
    t->asked = 0;
    api_open(&w, config);
    if (config->cache_memory) spill(&w);
    kvik_result *r = run(t);
    if (!t->calls && !t->closes && !t->instead) {
        kvik_result_free(want[t->way]);
        want[t->way] = r;
    } else if (r) {
        const kvik_row *a = r->row[0], *b = want[t->way]->row[0];
        assert_int_equal(a->n, b->n);
        assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
        assert_int_equal(r->logit_steps, want[t->way]->logit_steps);
        assert_memory_equal(r->logits, want[t->way]->logits,
                            (size_t)r->logit_steps * r->logit_rows * VOCAB * sizeof(float));
        kvik_result_free(r);
    }
    if (w.cache && w.batch && t->way == W_GENERATE)
        assert_int_equal(api_need(kvik_cache_length(w.cache, w.mine)), IDS + 5);
    api_close(&w);
}

static void test_callbacks(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++)
        for (int hook = 0; hook < HOOKS; hook++) {
            struct intruder t = {.way = way, .hook = hook};
            if ((way == W_BEAMS) != (hook == H_NOTICE)) continue;
            check_run(&t, &plain_config);
            if (!t.asked) fail_msg("%s: no %s", way_name[way], hook_name[hook]);
            t.calls = true;
            check_run(&t, &plain_config);
            t.calls = false;
            for (size_t k = 0; k < countof(api_calls); k++) {
                t.closes = &api_calls[k];
                if (t.closes->does == D_CLOSES &&
                    (takes(t.closes, A_CACHE) || takes(t.closes, A_BATCH) ||
                     takes(t.closes, A_REQUEST) || takes(t.closes, A_MODEL)))
                    check_run(&t, &plain_config);
            }
        }
}

/* Tries to crop every sequence that there may be. */
static void guess(struct intruder *t)
{
    for (kvik_seq s = 1; s < 1 << 14; s++)
        if (s != t->w->mine) (void)kvik_cache_crop(t->w->cache, s, 1);
}

/* A callback cannot change the sequence that a generation has made for itself, by guessing its number. */
static void test_guessed(void **state)
{
    (void)state;
    struct api_world w;
    struct intruder t = {.w = &w, .instead = guess};
    kvik_hooks hooks = {.size = sizeof hooks, .on_token = on_token, .ctx = &t};
    kvik_result *r;
    api_open(&w, &plain_config);
    w.prompt.seq = 0;
    api_need(kvik_generate(w.cache, &w.g, &w.prompt, 1, &hooks, &r));
    const kvik_row *a = r->row[0], *b = w.result->row[0];
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
    kvik_result_free(r);
    api_close(&w);
}

/* --- Threads. */

static bool uses_cache(const struct api_call *c)
{
    return takes(c, A_CACHE) || takes(c, A_BATCH) || takes(c, A_REQUEST) || takes(c, A_REQUESTS) ||
           takes(c, A_SHARED) || takes(c, A_FETCH) || takes(c, A_READING);
}

/* Checks a call that another thread or another process may not make. */
static void check_refused(struct api_world *w, const struct api_call *c, const char *where)
{
    uintptr_t v[ARGS];
    api_values(w, c, v);
    api_mark_error();
    uintptr_t r = api_invoke(c, v);
    bool coded = c->returns == R_INT || c->returns == R_I64;
    if (coded ? api_code(c, r) != KVIK_BUSY : !api_none(c, r))
        fail_msg("%s %s: %lld", c->name, where, (long long)api_code(c, r));
    if (!api_error_told()) fail_msg("%s %s: no error text", c->name, where);
}

static void check_works(struct api_world *w, const struct api_call *c, const char *where)
{
    uintptr_t v[ARGS];
    api_values(w, c, v);
    uintptr_t r = api_invoke(c, v);
    if (api_code(c, r) < 0 && c->returns != R_ID)
        fail_msg("%s %s: %s", c->name, where, kvik_last_error());
    if (c->returns == R_U32) assert_false(api_none(c, r));
    api_release(w, c);
}

static void *second_thread(void *world)
{
    for (size_t k = 0; k < countof(api_calls); k++) {
        const struct api_call *c = &api_calls[k];
        if (c->does == D_CLOSES) continue;
        if (uses_cache(c))
            check_refused(world, c, "in a second thread");
        else
            check_works(world, c, "in a second thread");
    }
    struct api_world *w = world;
    kvik_request_free(w->request); /* these take effect when the call has returned */
    kvik_batch_close(w->batch);
    kvik_cache_close(w->cache);
    kvik_model_close(w->model);
    w->request = NULL;
    w->batch = NULL;
    w->cache = NULL;
    w->model = NULL;
    return NULL;
}

static void start_second(struct intruder *t)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, second_thread, t->w), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* While a generation runs, a second thread makes every call with its cache, and closes what it uses. */
static void test_second_thread(void **state)
{
    (void)state;
    for (int way = W_GENERATE; way <= W_DRAFTS; way++) {
        struct intruder t = {.way = way, .hook = H_TOKEN};
        check_run(&t, &plain_config);
        t.instead = start_second;
        check_run(&t, &plain_config);
        assert_true(t.asked > 1 || way == W_REQUEST); /* the request is freed by then */
    }
}

enum { THREADS = 4 };
struct crowd {
    kvik_cache *c;
    kvik_batch *batch;
    kvik_seq seq;
    uint32_t seed, done;
};

static void *hammer(void *crowd)
{
    struct crowd *t = crowd;
    float logits[VOCAB];
    while (t->done < 100) {
        kvik_span span = {.size = sizeof span, .seq = t->seq, .ids = api_ids, .n = 1};
        kvik_usage usage = {.size = sizeof usage};
        kvik_seq fork;
        int64_t e;
        t->seed = t->seed * 1664525 + 1013904223;
        switch (t->seed >> 16 & 7) {
        case 0:
            e = kvik_cache_crop(t->c, t->seq, 0);
            break;
        case 1:
            e = kvik_cache_usage(t->c, &usage);
            break;
        case 2:
            e = kvik_cache_fork(t->c, t->seq, &fork);
            while (e >= 0 && (e = kvik_cache_drop(t->c, fork)) == KVIK_BUSY)
                e = 0;
            break;
        case 3:
            e = kvik_cache_length(t->c, t->seq);
            break;
        case 4:
            (void)kvik_batch_length(t->batch);
            e = kvik_batch_reset(t->batch);
            break;
        default:
            e = kvik_forward(t->c, &span, 1, false, logits);
        }
        if (e == KVIK_LIMIT || e == KVIK_FULL) /* the sequence is full */
            e = 0;
        if (e == KVIK_BUSY)
            sched_yield();
        else
            t->done++;
        if (e < 0 && e != KVIK_BUSY) return (void *)(uintptr_t)-e;
    }
    return NULL;
}

/* Threads call one cache at the same time: each call is done or refused, and the cache is whole. */
static void test_one_cache(void **state)
{
    (void)state;
    struct api_world w;
    struct crowd t[THREADS];
    pthread_t thread[THREADS];
    float got[VOCAB], want[VOCAB];
    api_open(&w, &plain_config);
    kvik_span span = {.size = sizeof span, .ids = api_ids, .n = IDS};
    for (int round = 0; round < 2; round++) {
        api_need(kvik_cache_new(w.cache, &span.seq));
        api_need(kvik_forward(w.cache, &span, 1, false, round ? got : want));
        api_need(kvik_cache_drop(w.cache, span.seq));
        if (round) break;
        for (uint32_t i = 0; i < THREADS; i++) {
            t[i] = (struct crowd){w.cache, w.batch, 0, i + 1, 0};
            api_need(kvik_cache_new(w.cache, &t[i].seq));
        }
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&thread[i], NULL, hammer, &t[i]), 0);
        for (int i = 0; i < THREADS; i++) {
            void *e;
            assert_int_equal(pthread_join(thread[i], &e), 0);
            if (e) fail_msg("a call failed with %s", kvik_error_name(-(int)(uintptr_t)e));
        }
    }
    assert_memory_equal(got, want, sizeof got);
    api_close(&w);
}

/* Threads use caches of their own on one model: each gives the tokens that it gives alone. */
static void *own_cache(void *world)
{
    struct api_world *w = world;
    kvik_cache *c;
    kvik_prompt p = {.size = sizeof p, .ids = api_ids, .n = IDS};
    kvik_result *r = NULL;
    for (int i = 0; i < 5; i++) {
        kvik_result_free(r);
        if (kvik_cache_open(w->model, &plain_config, &c) < 0) return NULL;
        if (kvik_generate(c, &w->g, &p, 1, NULL, &r) < 0) return NULL;
        kvik_cache_close(c);
    }
    return r;
}

static void test_own_caches(void **state)
{
    (void)state;
    struct api_world w;
    pthread_t thread[THREADS];
    api_open(&w, &plain_config);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, own_cache, &w), 0);
    for (int i = 0; i < THREADS; i++) {
        void *got;
        assert_int_equal(pthread_join(thread[i], &got), 0);
        assert_non_null(got);
        kvik_result *r = got;
        assert_memory_equal(r->row[0]->ids, w.result->row[0]->ids,
                            w.result->row[0]->n * sizeof(int32_t));
        kvik_result_free(r);
    }
    api_close(&w);
}

/* --- Processes. */

/* True for a call that gives the numbers or the tokenizer of a model: read-only memory. */
static bool reads_model(const struct api_call *c)
{
    return c->returns == R_U32 || c->returns == R_POINTER;
}

/* What a forked process does with the handles of its parent.  A failure aborts. */
static void child(struct api_world *w)
{
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    alarm(120); /* a child that waits for threads it does not have */
    for (size_t k = 0; k < countof(api_calls); k++) {
        const struct api_call *c = &api_calls[k];
        if (c->does == D_CLOSES) continue;
        if (uses_cache(c) || takes(c, A_LAYERS) || (takes(c, A_MODEL) && !reads_model(c)))
            check_refused(w, c, "in a forked process");
        else
            check_works(w, c, "in a forked process");
    }
    struct api_world *own = calloc(1, sizeof *own);
    const kvik_row *a = w->result->row[0], *b;
    api_open(own, &w->config);
    b = own->result->row[0];
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
    api_close(own);
    free(own);
    api_close(w); /* releases memory alone */
}

/* True if every other thread of this process sleeps. */
static bool others_sleep(void)
{
    DIR *tasks = opendir("/proc/self/task");
    bool sleep = tasks;
    for (const struct dirent *d; sleep && (d = readdir(tasks));) {
        char path[300], line[300] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", d->d_name);
        FILE *f = atoi(d->d_name) && atoi(d->d_name) != gettid() ? fopen(path, "r") : NULL;
        if (!f) continue; /* no thread, this one, or one that has ended */
        const char *name_end = fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
        sleep = !name_end || strncmp(name_end, ") S", 3) == 0;
        fclose(f);
    }
    if (tasks) closedir(tasks);
    return sleep;
}

/* Forks while no thread of the library is at work, such as that of the reading.  The child has none of them, so the address
 * sanitizer would report memory that only the stack of one points to; and it waits for ever if one allocated just then,
 * since fork does not take the locks of the sanitizer's allocator. */
static void fork_child(struct intruder *t)
{
    int status;
    for (int ms = 0; !others_sleep(); ms++) {
        if (ms == 300 * 1000) fail_msg("the threads of the library do not come to rest");
        usleep(1000);
    }
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        child(t->w);
        exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status) fail_msg("the child ended with status %#x", (unsigned)status);
}

/* A process forks while it generates; the child uses, closes and exits.  The parent's tokens are those of a run without
 * a fork, also where its rows are in a spill file. */
static void test_fork(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__ /* the thread sanitizer ends a child that starts threads */
    skip();
#endif
    static const char *const mode[] = {"dynamic", "offloaded", "quantized"};
    for (size_t i = 0; i < countof(mode); i++) {
        kvik_cache_config config = plain_config;
        config.cache_implementation = mode[i];
        config.cache_config = NULL;
        if (i == 1) {
            config.max_cache_len = 1024;
            config.max_sequences = 6;
            config.cache_memory = 800 << 10;
        }
        for (int way = W_GENERATE; way <= W_DRAFTS; way++) {
            struct intruder t = {.way = way, .hook = H_TOKEN};
            check_run(&t, &config);
            t.instead = fork_child;
            check_run(&t, &config);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),     cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_null),      cmocka_unit_test(test_callbacks),
        cmocka_unit_test(test_guessed),   cmocka_unit_test(test_second_thread),
        cmocka_unit_test(test_one_cache), cmocka_unit_test(test_own_caches),
        cmocka_unit_test(test_fork),
    };
    api_files_make();
    int e = cmocka_run_group_tests(tests, NULL, NULL);
    api_files_remove();
    return e;
}

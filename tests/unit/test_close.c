/* test_close.c - models, caches, draft models, batches, requests, tokenizers and decoders are closed in any order.
 *
 * The test opens everything that can be open at once and closes it in one order after the other, until every order was
 * seen. What is still open after a close is used, and gives what it gave before. The address sanitizer finds memory that
 * is freed too early or never. */
#include "base/base.h"
#include "kvik_compat.h"
#include "kvik_loop.h"
#include "testing.h"

#include <pthread.h>

enum { VOCAB = 384, NEW = 6, COLUMNS = 3 };
static const char path[] = "tests/golden/models/llama-mha";
static const int32_t ids[] = {42, 43, 44, 45, 46, 47, 48, 85, 14, 62};

enum thing { MODEL, CACHE, BATCH, REQUEST, DRAFT_MODEL, DRAFT_CACHE, THINGS };
struct world {
    kvik_model *model, *draft_model;
    kvik_cache *cache, *draft_cache;
    kvik_batch *batch;
    kvik_request *request;
    bool open[THINGS];
};
/* What every world must give. */
static int32_t want_ids[countof(ids) + NEW];
static float want_logits[VOCAB];

static int need(int e)
{
    if (e < 0) fail_msg("%s", kvik_last_error());
    return e;
}

static kvik_cache *open_cache(kvik_model *m)
{
    kvik_cache *c;
    kvik_cache_config config = {
        .size = sizeof config, .max_sequences = 8, .max_cache_len = 64, .threads = 1};
    need(kvik_cache_open(m, &config, &c));
    return c;
}

static void open_world(struct world *w)
{
    kvik_generation g;
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = countof(ids)};
    kvik_inputs in = {.size = sizeof in, .ids = ids, .n = COLUMNS};
    need(kvik_model_open(path, &w->model));
    need(kvik_model_open(path, &w->draft_model));
    w->cache = open_cache(w->model);
    w->draft_cache = open_cache(w->draft_model);
    kvik_hooks hooks = {.size = sizeof hooks, .assistant_model = w->draft_cache};
    need(kvik_batch_open(w->cache, 1, &w->batch));
    need(kvik_batch_forward(w->batch, &in, NULL));
    need(kvik_generation_init(&g, w->model));
    g.max_new_tokens = NEW;
    g.n_eos = 0;
    g.num_assistant_tokens = 1;
    need(kvik_request_start(w->cache, &g, &p, 1, &hooks, &w->request));
    need(kvik_request_step(&w->request, 1));
    kvik_generation_done(&g);
    memset(w->open, 1, sizeof w->open);
}

static void use_cache(kvik_cache *c)
{
    float logits[VOCAB];
    kvik_span span = {.size = sizeof span, .ids = ids, .n = countof(ids)};
    need(kvik_cache_new(c, &span.seq));
    need(kvik_forward(c, &span, 1, false, logits));
    assert_memory_equal(logits, want_logits, sizeof logits);
    need(kvik_cache_drop(c, span.seq));
}

static void use_batch(kvik_batch *b)
{
    float logits[VOCAB];
    kvik_inputs in = {.size = sizeof in, .ids = ids + COLUMNS, .n = countof(ids) - COLUMNS};
    kvik_outputs out = {.size = sizeof out, .logits = logits};
    in.logits_to_keep = 1;
    need(kvik_batch_forward(b, &in, &out));
    assert_memory_equal(logits, want_logits, sizeof logits);
    need(kvik_batch_crop(b, COLUMNS));
}

static void finish_request(kvik_request *q)
{
    kvik_result *r;
    while (need(kvik_request_step(&q, 1)) > 0) {
    }
    need(kvik_request_end(q, &r));
    assert_int_equal(r->row[0]->n, countof(want_ids));
    assert_memory_equal(r->row[0]->ids, want_ids, sizeof want_ids);
    kvik_result_free(r);
}

static void use(struct world *w)
{
    if (w->open[MODEL]) assert_int_equal(kvik_model_vocab(w->model), VOCAB);
    if (w->open[DRAFT_MODEL]) assert_int_equal(kvik_model_vocab(w->draft_model), VOCAB);
    if (w->open[CACHE]) use_cache(w->cache);
    if (w->open[DRAFT_CACHE]) use_cache(w->draft_cache);
    if (w->open[BATCH]) use_batch(w->batch);
    if (w->open[REQUEST]) need(kvik_request_step(&w->request, 1));
}

/* finish: the request is run to its end before it is freed, instead of freed as it is. */
static void close_thing(struct world *w, enum thing t, bool finish)
{
    w->open[t] = false;
    switch (t) {
    case MODEL:
        kvik_model_close(w->model);
        break;
    case DRAFT_MODEL:
        kvik_model_close(w->draft_model);
        break;
    case CACHE:
        kvik_cache_close(w->cache);
        break;
    case DRAFT_CACHE:
        kvik_cache_close(w->draft_cache);
        break;
    case BATCH:
        kvik_batch_close(w->batch);
        break;
    default:
        if (finish) finish_request(w->request);
        kvik_request_free(w->request);
    }
}

static int setup(void **state)
{
    (void)state;
    kvik_model *m;
    kvik_generation g;
    kvik_result *r;
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = countof(ids)};
    kvik_span span = {.size = sizeof span, .ids = ids, .n = countof(ids)};
    need(kvik_model_open(path, &m));
    kvik_cache *c = open_cache(m);
    need(kvik_cache_new(c, &span.seq));
    need(kvik_forward(c, &span, 1, false, want_logits));
    need(kvik_generation_init(&g, m));
    g.max_new_tokens = NEW;
    g.n_eos = 0;
    need(kvik_generate(c, &g, &p, 1, NULL, &r));
    assert_int_equal(r->row[0]->n, countof(want_ids));
    memcpy(want_ids, r->row[0]->ids, sizeof want_ids);
    kvik_result_free(r);
    kvik_generation_done(&g);
    kvik_cache_close(c);
    kvik_model_close(m);
    return 0;
}

/* The k-th order of all things, of 720. */
static void order_of(uint32_t k, enum thing order[THINGS])
{
    for (int i = 0; i < THINGS; i++)
        order[i] = (enum thing)i;
    for (uint32_t i = THINGS; i > 1; k /= i, i--) {
        enum thing t = order[k % i];
        order[k % i] = order[i - 1];
        order[i - 1] = t;
    }
}

static void test_orders(void **state)
{
    (void)state;
    uint32_t step = getenv("KVIK_TEST_SHORT") ? 11 : 1;
    for (uint32_t k = 0; k < 720; k += step) {
        struct world w;
        enum thing order[THINGS];
        order_of(k, order);
        open_world(&w);
        for (int i = 0; i < THINGS; i++) {
            close_thing(&w, order[i], k % 2);
            use(&w);
        }
    }
}

/* A callback closes what the running call uses. */
struct closer {
    kvik_model *model;
    kvik_cache *cache, *draft;
    kvik_batch *batch;
    uint32_t calls;
};
static bool close_all(void *ctx, uint32_t row, int32_t id, const char *text)
{
    struct closer *c = ctx;
    (void)row, (void)id, (void)text;
    if (c->calls++) return true;
    kvik_cache_close(c->cache);
    kvik_cache_close(c->draft);
    kvik_batch_close(c->batch);
    kvik_model_close(c->model);
    return true;
}

/* Starts the request that a callback closes the cache of, and runs it. */
static int run_request(const struct closer *c, const kvik_generation *g, const kvik_prompt *p,
                       const kvik_hooks *hooks, kvik_result **out)
{
    kvik_request *q;
    need(kvik_request_start(c->cache, g, p, 1, hooks, &q));
    while (need(kvik_request_step(&q, 1)) > 0) {
    }
    int e = kvik_request_end(q, out);
    kvik_request_free(q);
    return e;
}

static void test_callback(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct closer c = {.model = NULL};
        kvik_generation g;
        kvik_result *r;
        kvik_prompt p = {.size = sizeof p, .ids = ids, .n = countof(ids)};
        kvik_inputs in = {.size = sizeof in, .ids = ids, .n = countof(ids)};
        need(kvik_model_open(path, &c.model));
        c.cache = open_cache(c.model);
        c.draft = i & 1 ? open_cache(c.model) : NULL;
        if (i == 2) need(kvik_batch_open(c.cache, 1, &c.batch));
        need(kvik_generation_init(&g, c.model));
        g.max_new_tokens = NEW;
        g.n_eos = 0;
        kvik_hooks hooks = {
            .size = sizeof hooks, .on_token = close_all, .ctx = &c, .assistant_model = c.draft};
        need(i == 3   ? run_request(&c, &g, &p, &hooks, &r)
             : i == 2 ? kvik_batch_generate(c.batch, &g, &in, &hooks, &r)
                      : kvik_generate(c.cache, &g, &p, 1, &hooks, &r));
        assert_true(c.calls > 1);
        assert_memory_equal(r->row[0]->ids, want_ids, sizeof want_ids);
        kvik_result_free(r);
        kvik_generation_done(&g);
    }
}

/* A request continues a sequence of a batch that is closed before the request, and drops the sequence when it ends. Bits of
 * i: the order, whether the request is run to its end, whether the cache is closed first, whether the result has the
 * sequence. */
static void test_batch_of_request(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++) {
        struct world w;
        kvik_batch *copy;
        kvik_generation g;
        kvik_request *q;
        kvik_usage usage = {.size = sizeof usage};
        kvik_prompt p = {.size = sizeof p, .ids = ids, .n = countof(ids)};
        open_world(&w);
        p.seq = kvik_batch_seq(w.batch, 0);
        need(kvik_generation_init(&g, w.model));
        g.max_new_tokens = NEW;
        g.n_eos = 0;
        g.return_dict_in_generate = i & 8;
        need(kvik_batch_copy(w.batch, &copy));
        need(kvik_request_start(w.cache, &g, &p, 1, NULL, &q));
        kvik_generation_done(&g);
        need(kvik_request_step(&q, 1));
        for (int t = 0; t < THINGS; t++) {
            enum thing next = (enum thing)(i & 1 ? t : THINGS - 1 - t);
            if (next != CACHE || i & 4) close_thing(&w, next, false);
        }
        use_batch(copy);
        if (i & 2) finish_request(q);
        kvik_request_free(q);
        if (!(i & 4)) {
            uint64_t left = COLUMNS + ((i & 10) == 10 ? countof(want_ids) - 1 : 0);
            need(kvik_cache_usage(w.cache, &usage));
            assert_int_equal(usage.tokens, left);
            kvik_cache_close(w.cache);
        }
        kvik_batch_close(copy);
    }
}

/* Sessions, prefix directories and exports of a cache whose model is closed, loaded into one whose model is closed. */
static void test_sessions(void **state)
{
    (void)state;
    char dir[] = "/tmp/kvik-close-XXXXXX", file[64];
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/a.session", dir);
    kvik_cache *c[2];
    kvik_export *rows;
    kvik_seq s, loaded[2], imported;
    for (int i = 0; i < 2; i++) {
        kvik_model *m;
        need(kvik_model_open(path, &m));
        c[i] = open_cache(m);
        kvik_model_close(m);
    }
    kvik_span span = {.size = sizeof span, .ids = ids, .n = countof(ids)};
    need(kvik_cache_new(c[0], &s));
    span.seq = s;
    need(kvik_forward(c[0], &span, 1, false, NULL));
    need(kvik_cache_save(c[0], file, &s, 1, "note"));
    need(kvik_cache_export(c[0], s, &rows));
    kvik_cache_close(c[0]);
    assert_int_equal(need(kvik_cache_load(c[1], file, 2, loaded, NULL)), 1);
    need(kvik_cache_import(c[1], rows, &imported));
    kvik_export_free(rows);
    for (int i = 0; i < 2; i++) {
        float got[VOCAB], want[VOCAB];
        static const int32_t more[] = {99};
        kvik_span next = {
            .size = sizeof next, .seq = i ? imported : loaded[0], .ids = more, .n = 1};
        need(kvik_forward(c[1], &next, 1, false, got));
        int32_t all[countof(ids) + 1];
        memcpy(all, ids, sizeof ids);
        all[countof(ids)] = more[0];
        kvik_span whole = {.size = sizeof whole, .ids = all, .n = countof(all)};
        need(kvik_cache_new(c[1], &whole.seq));
        need(kvik_forward(c[1], &whole, 1, false, want));
        assert_memory_equal(got, want, sizeof want);
        need(kvik_cache_drop(c[1], whole.seq));
    }
    kvik_cache_close(c[1]);
    unlink(file);
    assert_int_equal(rmdir(dir), 0);
}

enum { THREADS = 4 };
static void *in_thread(void *model)
{
    for (int i = 0; i < 5; i++) {
        kvik_cache *c = open_cache(model);
        use_cache(c);
        kvik_cache_close(c);
    }
    kvik_cache *last = open_cache(model);
    return last;
}

/* Threads open and close caches of one model, which is closed before the last of them. */
static void test_threads(void **state)
{
    (void)state;
    kvik_model *m;
    pthread_t thread[THREADS];
    need(kvik_model_open(path, &m));
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, in_thread, m), 0);
    void *c[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(thread[i], &c[i]), 0);
    kvik_model_close(m);
    for (int i = 0; i < THREADS; i++) {
        use_cache(c[i]);
        kvik_cache_close(c[i]);
    }
}

/* Several caches of one model, and closing nothing. */
static void test_shared_model(void **state)
{
    (void)state;
    kvik_model *m;
    kvik_cache *c[3];
    need(kvik_model_open(path, &m));
    for (int i = 0; i < 3; i++)
        c[i] = open_cache(m);
    kvik_model_close(m);
    for (int i = 0; i < 3; i++) {
        for (int j = i; j < 3; j++)
            use_cache(c[j]);
        kvik_cache_close(c[i]);
    }
    kvik_layers *layers;
    need(kvik_layers_open(NULL, 1, NULL, &layers));
    kvik_layers_close(layers);
    kvik_layers_close(NULL);
    kvik_cache_close(NULL);
    kvik_model_close(NULL);
    kvik_batch_close(NULL);
    kvik_request_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders),           cmocka_unit_test(test_callback),
        cmocka_unit_test(test_batch_of_request), cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_threads),          cmocka_unit_test(test_shared_model),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}

/* test_request_callbacks.c - callbacks of requests that free, end and pause requests, their own and others, or look at the cache. */
#include "kvik_compat.h"
#include "kvik_loop.h"
#include "requests.h"

#include <unistd.h>

static bool meddle(void *ctx, uint32_t row, int32_t id, const char *text)
{
    struct trap *t = ctx;
    kvik_result *r = NULL;
    (void)row, (void)id, (void)text;
    assert_int_equal(kvik_request_step(t->self, 1), KVIK_BUSY);
    assert_int_equal(kvik_request_end(*t->self, &r), KVIK_BUSY);
    assert_null(r);
    t->left++;
    return true;
}

static bool looks_on(void *ctx, uint64_t done, uint64_t total)
{
    struct trap *t = ctx;
    kvik_request *r = NULL;
    int32_t id = 5;
    kvik_generation g = options(t->c->model, "{\"max_new_tokens\": 2}");
    kvik_prompt p = {.size = sizeof p, .ids = &id, .n = 1};
    assert_true(done <= total);
    assert_int_equal(kvik_request_start(t->c, &g, &p, 1, NULL, &r), KVIK_BUSY);
    assert_int_equal(kvik_request_step(t->self, 1), KVIK_BUSY);
    assert_null(r);
    kvik_generation_done(&g);
    t->left++;
    return true;
}

/* The callback of a token runs between steps, so it may generate on the same cache. */
static bool nested(void *ctx, uint32_t row, int32_t id, const char *text)
{
    struct trap *t = ctx;
    kvik_result *r;
    (void)row, (void)text;
    if (id < 0) return true;
    kvik_generation g = options(t->c->model, "{\"max_new_tokens\": 3, \"num_beams\": 2}");
    kvik_prompt p = {.size = sizeof p, .ids = &id, .n = 1};
    if (kvik_generate(t->c, &g, &p, 1, NULL, &r) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(r->row[0]->n, 4);
    kvik_result_free(r);
    kvik_generation_done(&g);
    t->left++;
    return true;
}

/* The last text of a row comes while its request ends, which the callback cannot end or free. */
static bool ends_itself(void *ctx, uint32_t row, int32_t id, const char *text)
{
    struct trap *t = ctx;
    kvik_result *r = NULL;
    (void)row, (void)text;
    if (id >= 0) {
        t->left = 1;
        return true;
    }
    assert_int_equal(kvik_request_end(*t->self, &r), KVIK_BUSY);
    t->left = 2;
    return true;
}

static void ended_early(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, (kvik_cache_config){.max_sequences = 8});
    struct asked *a = ask(&s, 0, 8);
    struct trap t = {.self = &a->request, .c = s.c};
    kvik_result *r;
    a->hooks = (kvik_hooks){.size = sizeof(kvik_hooks), .on_token = ends_itself, .ctx = &t};
    start(a, s.c);
    while (t.left == 0) /* the prompt, in as many steps as it takes */
        assert_int_equal(kvik_request_step(&a->request, 1), 1);
    assert_int_equal(kvik_request_end(a->request, &r), 0);
    assert_int_equal(t.left, 2);
    kvik_result_free(r);
    kvik_request_free(a->request);
    a->request = NULL;
    stage_close(&s);
}

static bool frees_itself(struct trap *t)
{
    if (t->self && t->left++ == 1) {
        kvik_request_free(*t->self);
        *t->self = NULL;
        t->self = NULL;
    }
    return true;
}

static bool frees_by_token(void *ctx, uint32_t row, int32_t id, const char *text)
{
    (void)row, (void)id, (void)text;
    return frees_itself(ctx);
}

static bool frees_by_progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return frees_itself(ctx);
}

/* A callback frees its own request, by a token or where a step of the model is open.  The request is gone when the step
 * returns, and the other one goes on. */
static void freed_by_itself(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < countof(ways); way++) {
        struct stage s;
        stage_open(&s, (kvik_cache_config){.max_sequences = 24});
        struct asked *a = ask(&s, way, 8), *other = ask(&s, way == 11 ? 0 : 11, 16);
        kvik_request *both[] = {NULL, NULL};
        struct trap t = {.self = &both[0], .c = s.c};
        bool token = way % 2 && !strstr(ways[way].json, "num_beams");
        a->hooks.on_token = token ? frees_by_token : NULL;
        a->hooks.on_progress = token ? NULL : frees_by_progress;
        a->hooks.ctx = &t;
        start(a, s.c);
        start(other, s.c);
        both[0] = a->request;
        both[1] = other->request;
        for (int left = 2; both[0] && left;)
            assert_in_range(left = kvik_request_step(both, 2), 0, 2);
        assert_null(both[0]);
        kvik_usage u = {.size = sizeof u};
        finish(&other, 1);
        end(other);
        kvik_cache_usage(s.c, &u);
        assert_int_equal(u.tokens, 0);
        stage_close(&s);
    }
}

/* The callback of a last text frees the request that is being ended, which still gives its result. */
static bool frees_at_the_end(void *ctx, uint32_t row, int32_t id, const char *text)
{
    struct trap *t = ctx;
    (void)row, (void)text;
    t->left += id >= 0;
    if (id < 0 && t->self) kvik_request_free(*t->self);
    if (id < 0) t->self = NULL;
    return true;
}

static void freed_when_ended(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, (kvik_cache_config){.max_sequences = 8});
    struct asked *a = ask(&s, 0, 8);
    struct trap t = {.self = &a->request, .c = s.c};
    kvik_result *r;
    a->hooks = (kvik_hooks){.size = sizeof(kvik_hooks), .on_token = frees_at_the_end, .ctx = &t};
    start(a, s.c);
    while (t.left == 0)
        assert_int_equal(kvik_request_step(&a->request, 1), 1);
    assert_int_equal(kvik_request_end(a->request, &r), 0);
    assert_null(t.self);
    assert_true(r->row[0]->n > r->row[0]->n_prompt);
    kvik_result_free(r);
    stage_close(&s);
}

static void callbacks(void **state)
{
    (void)state;
    static const uint32_t way[] = {0, 11, 7};
    for (uint32_t i = 0; i < 2 * countof(way); i++) {
        struct stage s;
        stage_open(&s, (kvik_cache_config){.max_sequences = 24});
        uint32_t first = way[i % countof(way)];
        struct asked *a[] = {ask(&s, first, 8), ask(&s, 1, 8), ask(&s, 4, 8)};
        bool drafts = first == 11;
        struct trap t = {.self = &a[0]->request, .c = s.c};
        a[0]->hooks = (kvik_hooks){.size = sizeof(kvik_hooks),
                                   .on_token = i < countof(way) || drafts ? meddle : nested,
                                   .on_progress = looks_on,
                                   .ctx = &t};
        for (uint32_t k = 0; k < 3; k++)
            start(a[k], s.c);
        finish(a, 3);
        for (uint32_t k = 0; k < 3; k++)
            end(a[k]);
        assert_true(t.left > 8);
        stage_close(&s);
    }
}

/* Ends another request while a step of the model is open or has not been noted. */
static bool ends_another(void *ctx, uint64_t done, uint64_t total)
{
    struct trap *t = ctx;
    kvik_result *r = NULL;
    (void)done, (void)total;
    t->left++;
    int e = kvik_request_end(*t->self, &r);
    if (e != KVIK_BUSY) fail_msg("%d: %s", e, e < 0 ? kvik_last_error() : "ended");
    assert_null(r);
    return true;
}

/* The end of a request may compute: padding behind rows that ended early, and what the sequences of beams lack.  Where a
 * callback cannot compute, the end is refused and can be asked for again. */
static void ended_by_another(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < countof(ways); way++) {
        struct stage s;
        stage_open(&s, (kvik_cache_config){.max_sequences = 32});
        struct asked *a = ask(&s, way, 12), *other = ask(&s, way ? 0 : 1, 3);
        struct trap t = {.self = &a->request, .c = s.c};
        kvik_result *r;
        a->g.return_dict_in_generate = a->g.use_cache;
        a->g.eos_token_id[a->g.n_eos++] = a->want->row[0]->ids[a->want->row[0]->n_prompt + 2];
        kvik_result_free(a->want);
        alone(a, s.plain);
        other->hooks.on_progress = ends_another;
        other->hooks.ctx = &t;
        start(a, s.c);
        finish(&a, 1);
        start(other, s.c);
        finish(&other, 1);
        assert_true(t.left > 0);
        end(other);
        if (kvik_request_end(a->request, &r) < 0)
            fail_msg("%s: %s", a->way->name, kvik_last_error());
        same(a, r);
        for (uint32_t i = 0; i < r->n_rows && a->g.use_cache; i++) {
            assert_int_equal(kvik_cache_length(s.c, r->row[i]->seq), r->row[i]->n - 1);
            assert_int_equal(kvik_cache_drop(s.c, r->row[i]->seq), 0);
        }
        kvik_result_free(r);
        kvik_request_free(a->request);
        stage_close(&s);
    }
}

/* Pauses another request while the step that computes its token is not over. */
static bool pauses_another(void *ctx, uint64_t done, uint64_t total)
{
    struct trap *t = ctx;
    (void)total;
    if (done > 20) kvik_request_pause(*t->self);
    t->left += done > 20;
    return true;
}

/* A request that was paused when its tokens had been computed, and not chosen from, is ended: its sequences have all tokens
 * but the last, as always. */
static void paused_then_ended(void **state)
{
    (void)state;
    static const uint32_t way[] = {0, 2, 4, 7, 8, 11, 13};
    for (uint32_t i = 0; i < countof(way); i++) {
        struct stage s;
        stage_open(&s, (kvik_cache_config){.max_sequences = 32});
        struct asked *a = ask(&s, way[i], 30), *other = ask(&s, way[i] ? 0 : 1, 3);
        struct trap t = {.self = &a->request, .c = s.c};
        kvik_result *r;
        a->g.return_dict_in_generate = true;
        other->hooks.on_progress = pauses_another;
        other->hooks.ctx = &t;
        other->n = 1;
        other->prompt[0].n = TEXT;
        for (uint32_t k = 0; k < TEXT; k++)
            other->ids[0][k] = (int32_t)(5 + k * 6);
        start(a, s.c);
        for (int k = 0; k < 9; k++)
            assert_int_equal(kvik_request_step(&a->request, 1), 1);
        start(other, s.c);
        kvik_request *both[] = {a->request, other->request};
        while (kvik_request_state(a->request) == KVIK_RUNNING)
            assert_true(kvik_request_step(both, 2) > 0);
        assert_true(t.left > 0);
        assert_int_equal(kvik_request_state(a->request), KVIK_PAUSED);
        assert_int_equal(kvik_request_end(a->request, &r), 0);
        for (uint32_t k = 0; k < r->n_rows; k++) {
            if (kvik_cache_length(s.c, r->row[k]->seq) != (int64_t)r->row[k]->n - 1)
                fail_msg("%s: row %u of %zu tokens, sequence of %lld", a->way->name, k,
                         r->row[k]->n, (long long)kvik_cache_length(s.c, r->row[k]->seq));
            assert_int_equal(kvik_cache_drop(s.c, r->row[k]->seq), 0);
        }
        kvik_result_free(r);
        kvik_request_free(a->request);
        kvik_request_free(other->request);
        stage_close(&s);
    }
}

static bool pauses_other(void *ctx, uint32_t row, int32_t id, const char *text)
{
    struct trap *t = ctx;
    (void)row, (void)id, (void)text;
    if (++t->left == 5) kvik_request_pause(*t->self);
    return true;
}

/* A request that the token of another one pauses, whose own token was decided beside it: that token is no step of the result. */
static void paused_when_decided(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, (kvik_cache_config){.max_sequences = 8});
    struct asked *first = ask(&s, 0, 20), *a = ask(&s, 1, 20);
    struct trap t = {.self = &a->request, .c = s.c};
    kvik_result *r;
    first->n = a->n = 1;
    first->hooks.on_token = pauses_other;
    first->hooks.ctx = &t;
    start(first, s.c);
    start(a, s.c);
    kvik_request *both[] = {first->request, a->request};
    while (kvik_request_state(a->request) == KVIK_RUNNING)
        assert_true(kvik_request_step(both, 2) > 0);
    assert_int_equal(kvik_request_end(a->request, &r), 0);
    assert_true(r->new_tokens > 0);
    assert_int_equal(r->logit_steps, r->new_tokens);
    kvik_result_free(r);
    kvik_request_free(a->request);
    kvik_request_free(first->request);
    stage_close(&s);
}

/* Looks at its own sequence and at an idle one from inside the step that checks drafts. */
struct onlooker {
    kvik_cache *c;
    kvik_seq own, idle;
    char file[64];
    uint32_t busy;
};

static void must_wait(struct onlooker *t, int e)
{
    if (e == 0) return;
    assert_int_equal(e, KVIK_BUSY);
    assert_non_null(strstr(kvik_last_error(), "draft tokens"));
    t->busy++;
}

static bool look_on(void *ctx, uint32_t row, int32_t id, const char *text)
{
    struct onlooker *t = ctx;
    (void)row, (void)id, (void)text;
    for (int i = 0; i < 2; i++) {
        kvik_seq fork, s = i ? t->idle : t->own;
        kvik_export *rows;
        int e = kvik_cache_fork(t->c, s, &fork);
        if (i) assert_int_equal(e, 0);
        must_wait(t, e);
        if (!e) assert_int_equal(kvik_cache_drop(t->c, fork), 0);
        e = kvik_cache_export(t->c, s, &rows);
        must_wait(t, e);
        if (!e) kvik_export_free(rows);
        e = kvik_cache_save(t->c, t->file, &s, 1, NULL);
        if (i) assert_int_equal(e, 0);
        must_wait(t, e);
    }
    return true;
}

/* Says the same four tokens again and again, so that lookups come true. */
static bool repeats(void *ctx, uint32_t row, const int32_t *ids, size_t n, float *scores,
                    uint32_t vocab)
{
    (void)ctx, (void)row, (void)ids;
    for (uint32_t i = 0; i < vocab; i++)
        scores[i] = i == 5 + n % 4;
    return true;
}

/* What cannot be read while drafts are checked says so. */
static void looked_at(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, (kvik_cache_config){.max_sequences = 8});
    struct onlooker t = {.c = s.c};
    snprintf(t.file, sizeof t.file, "/tmp/kvik-request-%d.session", (int)getpid());
    kvik_generation g = options(s.m, "{\"prompt_lookup_num_tokens\": 4, \"max_new_tokens\": 16}");
    int32_t text[20];
    kvik_result *r;
    for (int i = 0; i < 20; i++)
        text[i] = 5 + i % 4;
    assert_int_equal(kvik_cache_new(s.c, &t.own), 0);
    assert_int_equal(kvik_cache_new(s.c, &t.idle), 0);
    kvik_span span = {.size = sizeof span, .seq = t.idle, .n = 20, .ids = text};
    assert_int_equal(kvik_forward(s.c, &span, 1, false, NULL), 0);
    kvik_prompt p = {.size = sizeof p, .ids = text, .n = 20, .seq = t.own};
    kvik_hooks h = {.size = sizeof h, .on_token = look_on, .logits_processor = repeats, .ctx = &t};
    assert_int_equal(kvik_generate(s.c, &g, &p, 1, &h, &r), 0);
    assert_true(r->accepted > 0 && t.busy > 0);
    (void)unlink(t.file);
    kvik_result_free(r);
    kvik_generation_done(&g);
    assert_int_equal(kvik_cache_drop(s.c, t.own), 0);
    assert_int_equal(kvik_cache_drop(s.c, t.idle), 0);
    stage_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callbacks),           cmocka_unit_test(freed_by_itself),
        cmocka_unit_test(freed_when_ended),    cmocka_unit_test(ended_early),
        cmocka_unit_test(ended_by_another),    cmocka_unit_test(paused_then_ended),
        cmocka_unit_test(paused_when_decided), cmocka_unit_test(looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

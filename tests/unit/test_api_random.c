/* test_api_random.c - random calls of every public function, by the table of api_calls.h, with arguments that are often
 * wrong (api_hostile.h), and callbacks that make such calls while one of them runs.
 *
 * A seed opens several caches of different strategies and walks a few hundred calls. No call may crash, hang, leak, return
 * a code that does not exist, or fail without an error text. At the end a cache gives the logits that it gave before.
 *
 *     test_api_random              a few seeds; KVIK_TEST_LONG=1: thousands
 *     test_api_random SEED         one seed; each call is printed
 *     test_api_random "kvik_cache_new:7 ..."    a walk of calls (walk.h), such as a part of one that is printed
 */
#include "api_hostile.h"

static bool loud;

/* --- Calls. */

static void keep_seq(kvik_seq s)
{
    seqs[dice(countof(seqs))] = s;
}

static void remove_handle(int kind, const void *p)
{
    struct pool *o = &pool[kind];
    for (uint32_t i = 0; i < o->n; i++)
        if (o->p[i] == p) o->p[i--] = o->p[--o->n];
}

/* Puts a handle into its pool; one of a full pool is closed, unless a call is running. */
static void keep(int kind, void *p)
{
    struct pool *o = &pool[kind];
    if (o->n == KEPT && depth) {
        api_close_handle(kind, p);
        return;
    }
    if (o->n == KEPT) {
        uint32_t i = 1 + dice(KEPT - 1); /* the first of each stays */
        api_close_handle(kind, o->p[i]);
        o->p[i] = o->p[--o->n];
    }
    o->p[o->n++] = p;
}

static void take_outputs(const struct api_call *c, const uintptr_t v[ARGS], int64_t code)
{
    for (int i = 0; i < api_args(c); i++) {
        int kind = c->arg[i] & ~A_OPTIONAL;
        uint64_t *out = place[depth][i];
        if (kind == A_SYNC && v[i]) kvik_sync_done((kvik_sync *)v[i]);
        if (v[i] != (uintptr_t)out || !*out) continue;
        if (kind == A_OUT_BORROWED) continue; /* an error may have a text */
        if (code < 0) fail_msg("%s failed with %lld and gave something", c->name, (long long)code);
        if (kind == A_OUT_MEMORY) kvik_free((void *)(uintptr_t)*out);
        if (kind == A_OUT_SEQ)
            for (int k = 0; k < 4; k++)
                if (((kvik_seq *)out)[k]) keep_seq(((kvik_seq *)out)[k]);
        int handle = api_handle_of(kind);
        if (handle == A_TRANSCRIPT)
            api_close_handle(handle, (void *)(uintptr_t)*out); /* no call takes one */
        else if (handle)
            keep(handle, (void *)(uintptr_t)*out);
    }
}

/* Closes a handle by a row of the table.  The first of each kind stays, and a result or an array that a call may be
 * reading, too. */
static void call_close(const struct api_call *c)
{
    int kind = c->arg[0];
    struct pool *o = &pool[kind];
    uintptr_t v[ARGS] = {0};
    if (chance(20) || o->n < 2 || (depth && kind >= A_RESULT)) {
        (void)api_invoke(c, v);
        return;
    }
    void *p = o->p[1 + dice(o->n - 1)];
    v[0] = (uintptr_t)p;
    if (loud) fprintf(stderr, "%*s%s(%p)\n", 2 * depth, "", c->name, p);
    if (api_code(c, api_invoke(c, v)) >= 0) remove_handle(kind, p);
}

static void call(const struct api_call *c)
{
    uintptr_t v[ARGS];
    int64_t least = KVIK_STALE;
    if (c->does == D_CLOSES) {
        call_close(c);
        return;
    }
    if (!arguments(c, v)) return;
    const kvik_batch *b = (const kvik_batch *)v[0];
    if (!strcmp(c->name, "kvik_batch_mask") && b &&
        (uint64_t)kvik_batch_rows(b) * kvik_batch_length(b) > ROOM)
        return; /* the caller's array is as large as the batch */
    if (loud) {
        fprintf(stderr, "%*s%s(", 2 * depth, "", c->name);
        for (int i = 0; i < api_args(c); i++)
            fprintf(stderr, "%s%#jx", i ? ", " : "", (uintmax_t)v[i]);
    }
    api_mark_error();
    depth++;
    uintptr_t r = api_invoke(c, v);
    depth--;
    int64_t code = api_code(c, r);
    if (loud) fprintf(stderr, ") = %lld %s\n", (long long)code, code < 0 ? kvik_last_error() : "");
    if (code < least) fail_msg("%s: %lld is no code", c->name, (long long)code);
    if (code < 0 && c->returns != R_ID && !api_error_told())
        fail_msg("%s: %lld without an error text", c->name, (long long)code);
    const kvik_usage *u = (const kvik_usage *)v[1];
    if (code >= 0 && c->arg[1] == A_USAGE && u->size == sizeof *u) sums_hold(u);
    take_outputs(c, v, code);
}

/* In a callback: sometimes a call.  False: the callback cancels. */
static bool nested(void)
{
    if (depth < 3 && chance(25)) call(&api_calls[dice(countof(api_calls))]);
    return !chance(3);
}

/* --- Seeds. */

static void logits_of(float out[VOCAB])
{
    kvik_cache *c = w.cache;
    kvik_span span = {.size = sizeof span, .ids = api_ids, .n = IDS};
    api_need(kvik_cache_new(c, &span.seq));
    api_need(kvik_forward(c, &span, 1, false, out));
    api_need(kvik_cache_drop(c, span.seq));
}

static void open_seed(void)
{
    static const int kind[] = {A_MODEL,   A_TOKENIZER, A_CACHE,   A_LAYERS, A_BATCH,
                               A_REQUEST, A_DECODER,   A_SAMPLER, A_RESULT, A_EXPORT,
                               A_LEGACY,  A_SHARED,    A_FETCH,   A_SCHEMA, A_READING};
    const kvik_cache_config config = {
        .size = sizeof config, .max_sequences = 24, .max_cache_len = 64, .threads = 1};
    memset(pool, 0, sizeof pool);
    for (int i = P_SESSION; i <= P_LOGITS; i++) /* an earlier seed may have swapped the files */
        unlink(api_path[i]);
    api_open(&w, &config);
    for (size_t i = 0; i < countof(seqs); i++)
        seqs[i] = w.mine;
    for (size_t i = 0; i < countof(kind); i++)
        keep(kind[i], (void *)api_value(&w, kind[i], 0));
    for (int i = 0; i < 3; i++) {
        kvik_cache *c;
        kvik_cache_config k;
        fill_config(&k);
        if (kvik_cache_open(w.model, &k, &c) >= 0) keep(A_CACHE, c);
    }
}

/* Closes everything but what the world closes, in any order of kinds. */
static void close_seed(void)
{
    uint32_t first = dice(A_KINDS);
    for (uint32_t k = 0; k < A_KINDS; k++) {
        int kind = (int)((first + k) % A_KINDS);
        while (pool[kind].n > 1)
            api_close_handle(kind, pool[kind].p[--pool[kind].n]);
    }
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 2; i++)
            kvik_generation_done(&options[d][i]);
    api_close(&w);
}

static void run_walk(const struct walk *walk)
{
    static float want[VOCAB], got[VOCAB];
    kvik_usage usage = {.size = sizeof usage};
    memset(options, 0, sizeof options);
    open_seed();
    logits_of(want);
    api_need(kvik_cache_usage(w.cache, &usage));
    for (uint32_t i = 0; i < walk->n; i++) {
        walk_seed(walk->step[i].x);
        if (loud)
            fprintf(stderr, "%s:%ju\n", walk->op[walk->step[i].op].name,
                    (uintmax_t)walk->step[i].x);
        call(&api_calls[walk->step[i].op]);
    }
    for (size_t i = 0; i < countof(seqs); i++)
        (void)kvik_cache_drop(w.cache, seqs[i]);
    while (pool[A_REQUEST].n > 1)
        api_close_handle(A_REQUEST, pool[A_REQUEST].p[--pool[A_REQUEST].n]);
    while (pool[A_BATCH].n > 1)
        api_close_handle(A_BATCH, pool[A_BATCH].p[--pool[A_BATCH].n]);
    api_need(kvik_cache_set_memory(w.cache, usage.budget)); /* a call may have lowered it */
    logits_of(got);
    assert_memory_equal(got, want, sizeof got);
    close_seed();
}

static uint64_t only;
static const char *text;

static void test_random(void **state)
{
    (void)state;
    static struct walk_op ops[countof(api_calls)];
    static struct walk walk = {.op = ops, .n_ops = countof(ops)};
    uint64_t n = getenv("KVIK_TEST_LONG") ? 3000 : MAX(40 / test_share(), 3);
    for (size_t i = 0; i < countof(ops); i++)
        ops[i] = (struct walk_op){api_calls[i].name, 1};
    if (text) {
        walk_read(&walk, text);
        walk_seed(1);
        run_walk(&walk);
        return;
    }
    for (uint64_t seed = only ? only : 1; seed <= (only ? only : n); seed++) {
        fprintf(stderr, "\rseed %llu ", (unsigned long long)seed);
        walk_seed(seed);
        walk.n = 0;
        walk_draw(&walk, CALLS);
        run_walk(&walk);
    }
    fprintf(stderr, "\n");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    if (argc > 1 && strchr(argv[1], ':'))
        text = argv[1];
    else if (argc > 1)
        only = strtoull(argv[1], NULL, 0);
    loud = argc > 1;
    floats = calloc(FLOATS, sizeof *floats);
    if (!floats) return 1;
    api_files_make();
    int e = cmocka_run_group_tests(tests, NULL, NULL);
    api_files_remove();
    free(floats);
    return e;
}

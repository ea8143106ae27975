/* test_probe.c - the other inputs of a forward besides ids (embeddings, positions) and the other
 * outputs besides the last token's logits (logits of chosen tokens, hidden states). Results are the
 * same however the forward is split into steps, batched, stored or offloaded. */
#include "test_probe.h"

static const char *const models[] = {
    "llama-mha", "gpt2",  "gemma2",     "gemma3", "gpt-oss", "olmo3", "llama4", "mixtral",
    "phi3",      "qwen3", "llama-bf16", "mamba",  "mamba2",  "jamba", "zamba2", "qwen3-next"};
static const struct way ways[] = {
    {.step = 64},
    {.step = 7},
    {.step = 64, .chunk = 1},
    {.impl = "static", .step = 11, .chunk = 4},
    {.impl = "offloaded", .step = 16},
};

/* Logits of some tokens are rows of all tokens' logits. */
static void test_want(void **state)
{
    (void)state;
    for (size_t k = 0; k < countof(models); k++) {
        struct exec *x = open_way(models[k], &ways[0]);
        size_t v = x->m->vocab;
        float *all = array(N * v), *got = array(3 * N * v);
        feed(x, &(struct exec_feed){.seq = fresh(x), .tok = ids, .n = N, .all = true}, 1, 0, all);
        close_way();
        for (size_t w = 0; w < countof(ways); w++) {
            uint8_t want[2][N] = {{0}};
            for (uint32_t i = 0; i < N; i++) {
                want[0][i] = i % 3 == 1 || i == N - 1;
                want[1][i] = i > 3 && i < 12;
            }
            x = open_way(models[k], &ways[w]);
            const struct exec_feed f[4] = {{.seq = fresh(x), .tok = ids, .n = N, .want = want[0]},
                                           {.seq = fresh(x), .tok = ids, .n = N - 2},
                                           {.seq = fresh(x), .tok = ids, .n = N, .want = want[1]},
                                           {.seq = fresh(x), .tok = ids, .n = 5, .all = true}};
            feed(x, f, 4, ways[w].chunk, got);
            const float *at = got;
            for (uint32_t i = 0; i < 4; i++)
                for (uint32_t t = 0; t < f[i].n; t++) {
                    bool wanted = f[i].want ? f[i].want[t] : f[i].all || t + 1 == f[i].n;
                    if (!wanted) continue;
                    if (memcmp(at, all + t * v, v * sizeof *at))
                        fail_msg("%s, way %zu: row %u of feed %u differs", models[k], w, t, i);
                    at += v;
                }
            close_way();
        }
        free(all);
        free(got);
    }
}

/* Rows of the embedding matrix instead of ids give the bits of ids, and the cached rows have no
 * ids. */
static void test_embeds(void **state)
{
    (void)state;
    for (size_t k = 0; k < countof(models); k++)
        for (size_t w = 0; w < countof(ways); w++) {
            struct exec *x = open_way(models[k], &ways[w]);
            size_t v = x->m->vocab, d = x->m->hidden;
            float *rows = array(N * d), *want = array(2 * v), *got = array(2 * v);
            dev_embed(x->queue, &x->m->embed, ids, N, rows);
            /* Transformers scales the embeddings inside the model. */
            if (strncmp(models[k], "gemma", 5) == 0) {
                struct exec_probe p = {.hidden = array((x->m->n_layers + 1) * N * d)};
                struct exec_feed f = {.seq = fresh(x), .tok = ids, .n = N, .probe = &p};
                feed(x, &f, 1, 0, NULL);
                kv_drop(x->kv, f.seq);
                for (size_t i = 0; i < N * d; i++)
                    assert_true(p.hidden[i] != rows[i] || rows[i] == 0);
                memcpy(rows, p.hidden, N * d * sizeof *rows);
                free(p.hidden);
            }
            kv_seq a = fresh(x), b = fresh(x), c = fresh(x);
            feed(x, &(struct exec_feed){.seq = a, .tok = ids, .n = N}, 1, ways[w].chunk, want);
            feed(x, &(struct exec_feed){.seq = a, .tok = ids, .n = 1}, 1, 0, want + v);
            const struct exec_feed both[] = {{.seq = b, .embeds = rows, .n = N},
                                             {.seq = c, .tok = ids + 3, .n = 20}};
            feed(x, both, 2, ways[w].chunk, got);
            feed(x, &(struct exec_feed){.seq = b, .tok = ids, .n = 1}, 1, 0, got + v);
            if (memcmp(want, got, v * sizeof *got) || memcmp(want + v, got + v, v * sizeof *got))
                fail_msg("%s, way %zu: embeddings differ from ids", models[k], w);
            for (uint32_t t = 0; t <= N; t++)
                assert_int_equal(kv_tokens(x->kv, b)[t], t < N ? -1 : ids[0]);
            free(rows);
            free(want);
            free(got);
            close_way();
        }
}

/* Positions equal to the rows' own change nothing. Rotary positions all shifted by one number mean
 * nearly the same. */
static void test_positions(void **state)
{
    (void)state;
    for (size_t k = 0; k < countof(models); k++) {
        if (strcmp(models[k], "phi3") == 0) continue; /* see test_refused */
        struct exec *x = open_way(models[k], &(struct way){.step = 8, .compute = "exact"});
        size_t v = x->m->vocab;
        float *want = array(3 * v), *got = want + v, *moved = got + v;
        uint32_t own[N], shifted[N];
        for (uint32_t i = 0; i < N; i++) {
            own[i] = i;
            shifted[i] = i + 19;
        }
        kv_seq a = fresh(x), b = fresh(x), c = fresh(x);
        feed(x, &(struct exec_feed){.seq = a, .tok = ids, .n = N}, 1, 0, want);
        feed(x, &(struct exec_feed){.seq = b, .tok = ids, .n = N, .pos = own}, 1, 0, got);
        assert_memory_equal(want, got, v * sizeof *got);
        assert_memory_equal(kv_tokens(x->kv, b), ids, sizeof own);
        feed(x, &(struct exec_feed){.seq = c, .tok = ids, .n = N, .pos = shifted}, 1, 0, moved);
        float d = apart(want, moved, v);
        bool learned = x->m->learned_positions;
        if (learned ? d < 1e-3f : d > 2e-4f)
            fail_msg("%s: shifted positions change logits by %g", models[k], (double)d);
        for (uint32_t t = 0; t < N; t++)
            assert_int_equal(kv_tokens(x->kv, c)[t], -1);
        free(want);
        close_way();
    }
}

static void refuse(struct exec *x, const struct exec_feed *f, int code, const char *word)
{
    kv_seq s = f->seq;
    uint32_t len = kv_len(x->kv, s);
    int e = exec_feed(x, f, 1, 0, NULL, NULL, NULL);
    if (e != code || !strstr(err_last(), word))
        fail_msg("%d \"%s\" is not %d with \"%s\"", e, e < 0 ? err_last() : "", code, word);
    assert_int_equal(kv_len(x->kv, s), len);
}

static void test_refused(void **state)
{
    static const char window[] = "{\"sliding_window\": 9}";
    uint32_t pos[N], have;
    (void)state;
    for (uint32_t i = 0; i < N; i++)
        pos[i] = 100 + i;
    struct exec_feed f = {.tok = ids, .n = N, .pos = pos};
    struct exec *x = open_way("phi3", &ways[0]);
    f.seq = fresh(x);
    refuse(x, &f, ERR_UNSUPPORTED, "longrope");
    close_way();
    x = open_way("llama-dynamic", &ways[0]);
    f.seq = fresh(x);
    refuse(x, &f, ERR_UNSUPPORTED, "dynamic");
    close_way();
    x = open_way("llama-mha", &(struct way){.impl = "sink",
                                            .config = "{\"window_length\": 24, "
                                                      "\"num_sink_tokens\": 2}"});
    f.seq = fresh(x);
    refuse(x, &f, ERR_UNSUPPORTED, "sink");
    close_way();
    x = open_way("gpt2", &ways[0]);
    f.seq = fresh(x);
    pos[N - 1] = x->m->context;
    char number[16];
    snprintf(number, sizeof number, " %u", x->m->context);
    refuse(x, &f, ERR_ARG, number);
    f.tok = NULL;
    refuse(x, &f, ERR_ARG, "neither");
    close_way();
    /* The rows are evicted. */
    x = open_way("llama-mha", &(struct way){.config = window, .step = 16});
    f.seq = fresh(x);
    f.tok = ids;
    feed(x, &f, 1, 0, NULL);
    assert_int_equal(exec_crop(x, f.seq, 12), ERR_LOST);
    assert_int_equal(kv_len(x->kv, f.seq), N);
    assert_int_equal(kv_trim(x->kv, f.seq, 0, &have), 0);
    close_way();
}

/* Hidden states have the same bits however the forward is split, and the last hidden state is the
 * input of the head. */
static void test_hidden(void **state)
{
    (void)state;
    for (size_t k = 0; k < countof(models); k++) {
        float *want = NULL;
        for (size_t w = 0; w < countof(ways); w++) {
            struct exec *x = open_way(models[k], &ways[w]);
            size_t v = x->m->vocab, d = x->m->hidden, n = (x->m->n_layers + 1) * N * d;
            float *logits = array(3 * v), *again = array(v);
            struct exec_probe p[2] = {{.hidden = array(n)}, {.last = array(N * d)}};
            const struct exec_feed f[3] = {{.seq = fresh(x), .tok = ids, .n = N, .probe = &p[0]},
                                           {.seq = fresh(x), .tok = ids + 1, .n = 9},
                                           {.seq = fresh(x), .tok = ids, .n = N, .probe = &p[1]}};
            feed(x, f, 3, ways[w].chunk, logits);
            const float *last = p[0].hidden + x->m->n_layers * N * d;
            assert_memory_equal(last, p[1].last, N * d * sizeof *last);
            struct dev_mm mm = {&x->m->head, NULL, again, v};
            dev_matmul(x->queue, x->compute, last + (N - 1) * d, d, 1, &mm, 1);
            if (x->m->logit_softcap) dev_softcap(x->queue, again, x->m->logit_softcap, 1, v);
            assert_memory_equal(again, logits, v * sizeof *again);
            if (want && memcmp(want, p[0].hidden, n * sizeof *want))
                fail_msg("%s, way %zu: hidden states differ", models[k], w);
            free(want);
            want = p[0].hidden;
            free(p[1].last);
            free(logits);
            free(again);
            close_way();
        }
        free(want);
    }
}

/* NaN and infinities at the input give NaN at the output and change no other sequence. */
static void test_not_finite(void **state)
{
    (void)state;
    for (size_t k = 0; k < countof(models); k++)
        for (uint32_t exact = 0; exact < 2; exact++) {
            struct exec *x = open_way(models[k], &(struct way){.compute = exact ? "exact" : NULL});
            size_t v = x->m->vocab, d = x->m->hidden;
            float *rows = array(N * d), *got = array(2 * v), *want = array(v);
            kv_seq a = fresh(x), b = fresh(x), c = fresh(x);
            for (size_t i = 0; i < N * d; i++)
                rows[i] = i % 7 ? NAN : i % 2 ? INFINITY : -INFINITY;
            const struct exec_feed both[] = {{.seq = a, .embeds = rows, .n = N},
                                             {.seq = b, .tok = ids, .n = N}};
            feed(x, both, 2, 0, got);
            feed(x, &(struct exec_feed){.seq = c, .tok = ids, .n = N}, 1, 0, want);
            assert_memory_equal(got + v, want, v * sizeof *want);
            for (size_t i = 0; i < v; i++)
                assert_true(isnan(got[i]));
            free(rows);
            free(got);
            free(want);
            close_way();
        }
}

/* Probabilities of tokens deep in a text, from a cache whose rows are mostly on disk, or quantized.
 * Asking for them does not change the logits. */
static void test_deep(void **state)
{
    static const struct way way[] = {
        {.step = 48, .threads = 2, .len = 640},
        {.impl = "offloaded", .step = 48, .len = 640, .tight = true},
        {.step = 200, .len = 640, .config = "{\"backend\": \"shuffle\"}"},
        {.step = 5, .chunk = 3, .len = 640},
    };
    static const char sink[] = "{\"window_length\": 300, \"num_sink_tokens\": 4}";
    static const struct way sinks[] = {{.impl = "sink", .config = sink, .len = 640, .step = 48},
                                       {.impl = "sink", .config = sink, .len = 640, .step = 7}};
    enum { DEEP = 600, NEW = 5 };
    float *want = NULL;
    (void)state;
    for (size_t k = 0; k < countof(way) + countof(sinks); k++) {
        bool sunk = k >= countof(way), base = k == 0 || k == countof(way);
        const struct way *w = sunk ? &sinks[k - countof(way)] : &way[k];
        struct exec *x = open_way("llama-mha", w);
        uint32_t heads = x->m->n_layers * x->m->n_heads, columns = DEEP + NEW;
        size_t n = (size_t)heads * NEW * columns, v = x->m->vocab;
        float *got = array(n), *logits = array(2 * v);
        kv_seq s = fresh(x), t = fresh(x);
        struct exec_probe p = {.attention = got, .columns = columns};
        for (uint32_t i = 0; i < DEEP; i += 50) {
            const struct exec_feed f[] = {{.seq = s, .tok = ids, .n = 50},
                                          {.seq = t, .tok = ids, .n = 50}};
            feed(x, f, 2, w->chunk, NULL);
        }
        if (k == 1) {
            struct kv_usage u;
            kv_usage(x->kv, &u);
            assert_true(u.streaming && u.spilled > u.live);
        }
        feed(x, &(struct exec_feed){.seq = s, .tok = ids, .n = NEW, .probe = &p}, 1, w->chunk,
             logits);
        feed(x, &(struct exec_feed){.seq = t, .tok = ids, .n = NEW}, 1, w->chunk, logits + v);
        assert_memory_equal(logits, logits + v, v * sizeof *logits);
        for (uint32_t i = 0; i < heads * NEW; i++) {
            double sum = 0;
            for (uint32_t j = 0; j < columns; j++) {
                uint32_t row = DEEP + i % NEW;
                bool seen = j <= row && (!sunk || j < 4 || j + 296 > row);
                assert_true(seen ? got[i * columns + j] >= 0 : got[i * columns + j] == 0);
                sum += (double)got[i * columns + j];
            }
            assert_true(fabs(sum - 1) < 1e-6);
        }
        if (base) {
            free(want);
            want = got;
        }
        if (memcmp(want, got, n * sizeof *got)) fail_msg("way %zu: other probabilities", k);
        if (!base) free(got);
        free(logits);
        close_way();
    }
    free(want);
}

static bool stop_at(void *ctx, uint64_t done, uint64_t total)
{
    (void)total;
    return done < *(uint64_t *)ctx;
}

/* Rows that cannot be recomputed survive a forward of several steps that is cancelled in the
 * middle, reserved or not. */
static void test_cancelled(void **state)
{
    static const char window[] = "{\"sliding_window\": 9}";
    static const struct way way[] = {{.config = window, .step = 8},
                                     {.impl = "static", .config = window, .step = 8},
                                     {.impl = "quantized", .step = 8},
                                     {.impl = "static", .step = 8}};
    (void)state;
    for (size_t k = 0; k < countof(way); k++)
        for (uint64_t at = 8; at <= 24; at += 8) {
            struct exec *x = open_way("llama-mha", &way[k]);
            size_t v = x->m->vocab, d = x->m->hidden;
            float *rows = array(N * d), *want = array(2 * v), *got = want + v, *out = array(N * v);
            struct exec_probe p = {.last = array(N * d)};
            dev_embed(x->queue, &x->m->embed, ids, N, rows);
            kv_seq a = fresh(x), b = fresh(x);
            const struct exec_feed first[] = {{.seq = a, .embeds = rows, .n = N},
                                              {.seq = b, .embeds = rows, .n = N}};
            feed(x, first, 2, 0, NULL);
            struct exec_feed f = {.seq = a, .embeds = rows, .n = N, .all = true, .probe = &p};
            assert_int_equal(exec_feed(x, &f, 1, 0, out, stop_at, &at), ERR_CANCELLED);
            assert_int_equal(kv_len(x->kv, a), N);
            for (uint32_t i = 0; i < 2; i++)
                feed(x, &(struct exec_feed){.seq = i ? b : a, .tok = ids + 4, .n = 3}, 1, 0,
                     i ? got : want);
            assert_memory_equal(want, got, v * sizeof *want);
            free(rows);
            free(want);
            free(out);
            free(p.last);
            close_way();
        }
}

/* Rows without ids are saved and loaded like others. */
static void test_saved(void **state)
{
    char path[] = "/tmp/kvik-probe-XXXXXX";
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    close(fd);
    for (size_t w = 0; w < countof(ways); w++) {
        struct exec *x = open_way("gemma3", &ways[w]);
        size_t v = x->m->vocab, d = x->m->hidden;
        float *rows = array(N * d), *want = array(2 * v), *got = want + v;
        dev_embed(x->queue, &x->m->embed, ids, N, rows);
        kv_seq a = fresh(x), b;
        feed(x, &(struct exec_feed){.seq = a, .embeds = rows, .n = N}, 1, 0, NULL);
        feed(x, &(struct exec_feed){.seq = a, .tok = ids, .n = 5}, 1, 0, NULL);
        unlink(path); /* another cache does not replace the session of the one before */
        if (kvik_cache_save(kc, path, &a, 1, NULL) < 0 ||
            kvik_cache_load(kc, path, 1, &b, NULL) < 0)
            fail_msg("way %zu: %s", w, kvik_last_error());
        assert_int_equal(kv_len(x->kv, b), N + 5);
        assert_memory_equal(kv_tokens(x->kv, a), kv_tokens(x->kv, b), (N + 5) * sizeof *ids);
        feed(x, &(struct exec_feed){.seq = a, .tok = ids, .n = 9}, 1, 0, want);
        feed(x, &(struct exec_feed){.seq = b, .tok = ids, .n = 9}, 1, 0, got);
        assert_memory_equal(want, got, v * sizeof *want);
        free(rows);
        free(want);
        close_way();
    }
    unlink(path);
}

/* Runs all inputs and outputs together, in two calls of four sequences. Returns logits, hidden
 * states and probabilities in one array. */
static float *everything(const struct way *w, size_t *n_out, bool *streamed)
{
    enum { FIRST = 90, THEN = 70, ROWS = 4 };
    struct exec *x = open_way("llama-mha", w);
    const struct model *m = x->m;
    size_t v = m->vocab, d = m->hidden, columns = FIRST + THEN;
    size_t n_hidden = (m->n_layers + 1) * THEN * d,
           n_attention = (size_t)m->n_layers * m->n_heads * THEN * columns;
    size_t n = 3 * THEN * v + 2 * n_hidden + n_attention, n_logits = 0;
    float *all = array(n), *rows = array(THEN * d), *at = all + 3 * THEN * v;
    struct exec_feed f[ROWS];
    struct exec_probe p[2] = {{.hidden = at},
                              {.hidden = at + n_hidden, .attention = at + 2 * n_hidden}};
    uint8_t want[ROWS][THEN];
    uint32_t pos[THEN];
    struct kv_usage u;
    p[1].columns = (uint32_t)columns;
    dev_embed(x->queue, &m->embed, ids + 5, THEN, rows);
    for (uint32_t i = 0; i < ROWS; i++)
        f[i] = (struct exec_feed){.seq = fresh(x), .tok = ids + i, .n = FIRST};
    feed(x, f, ROWS, w->chunk, NULL);
    for (uint32_t j = 0; j < THEN; j++) {
        pos[j] = FIRST + 2 * j;
        for (uint32_t i = 0; i < ROWS; i++)
            want[i][j] = i != 2 && (j * 7 + i) % (i + 2) == 0;
        n_logits += want[0][j] + want[1][j] + want[2][j];
    }
    for (uint32_t i = 0; i < ROWS; i++) {
        f[i].tok = ids + 2 * i;
        f[i].n = THEN;
        f[i].want = i < 3 ? want[i] : NULL;
    }
    f[0].embeds = rows;
    f[1].pos = pos;
    f[1].probe = &p[1];
    f[2].probe = &p[0];
    feed(x, f, ROWS, w->chunk, all);
    kv_usage(x->kv, &u);
    *streamed = u.streaming;
    assert_true(all[n_logits * v] != 0 && all[(n_logits + 1) * v] == 0);
    free(rows);
    close_way();
    *n_out = n;
    return all;
}

static void test_everything(void **state)
{
    static const struct way way[] = {
        {.step = 400, .len = 200},
        {.step = 31, .len = 200, .threads = 2},
        {.step = 400, .chunk = 9, .len = 200},
        {.impl = "offloaded", .step = 31, .len = 200, .tight = true},
        {.on_full = "offload", .step = 31, .len = 200, .tight = true},
        {.on_full = "offload", .step = 300, .len = 200, .tight = true},
    };
    size_t n, n_want;
    bool streamed;
    (void)state;
    float *want = everything(&way[0], &n_want, &streamed);
    for (size_t k = 1; k < countof(way); k++) {
        float *got = everything(&way[k], &n, &streamed);
        assert_int_equal(n, n_want);
        assert_true(streamed == way[k].tight);
        for (size_t i = 0; i < n; i++)
            if (memcmp(got + i, want + i, sizeof *got))
                fail_msg("way %zu: number %zu of %zu differs", k, i, n);
        free(got);
    }
    free(want);
}

/* A prefix of another sequence is found by its ids, up to the first row computed without an id or
 * at its own position. The other sequence may be live or kept. */
static void test_prefix(void **state)
{
    static const struct {
        uint32_t first, odd,
            /* Rows with ids, then rows of embeddings or moved positions, then rows with ids. */
            embedded;
        uint32_t least, most; /* the least and most tokens found */
    } way[] = {{90, 0, 0, 80, 89},
               {0, 90, 0, 0, 0},
               {0, 90, 1, 0, 0},
               {40, 20, 0, 32, 40},
               {40, 20, 1, 32, 40}};
    static const char *const names[] = {"llama-mha", "gemma3", "gpt-oss"};
    (void)state;
    for (size_t k = 0; k < 2 * countof(way) * countof(names); k++) {
        struct exec *x = open_way(names[k / 2 / countof(way)], &(struct way){.step = 24});
        size_t v = x->m->vocab, d = x->m->hidden, w = k / 2 % countof(way);
        uint32_t pos[MOST], odd = way[w].odd, at = way[w].first, have;
        float *rows = array(MOST * d), *want = array(2 * v), *got = want + v;
        for (uint32_t i = 0; i < MOST; i++)
            pos[i] = at + i + 1;
        dev_embed(x->queue, &x->m->embed, ids, MOST, rows);
        kv_seq a = fresh(x), b = fresh(x), c = fresh(x);
        if (at) feed(x, &(struct exec_feed){.seq = a, .tok = ids, .n = at}, 1, 0, NULL);
        struct exec_feed f = {.seq = a, .tok = ids + at, .n = odd, .pos = pos};
        if (way[w].embedded) f = (struct exec_feed){.seq = a, .embeds = rows + at * d, .n = odd};
        if (odd) feed(x, &f, 1, 0, NULL);
        at += odd;
        if (at < 90)
            feed(x, &(struct exec_feed){.seq = a, .tok = ids + at, .n = 90 - at}, 1, 0, NULL);
        if (k % 2) assert_int_equal(kv_keep(x->kv, a), 0);
        assert_int_equal(exec_match(x, b, ids, 90, 0, &have), 0);
        bool forgets = k / 2 >= countof(way); /* behind a window rows may be evicted */
        if (have > way[w].most || (have < way[w].least && !forgets))
            fail_msg("%s, way %zu: %u rows found", names[k / 2 / countof(way)], w, have);
        feed(x, &(struct exec_feed){.seq = b, .tok = ids + have, .n = 90 - have}, 1, 0, got);
        kv_forget(x->kv);
        feed(x, &(struct exec_feed){.seq = c, .tok = ids, .n = 90}, 1, 0, want);
        assert_memory_equal(want, got, v * sizeof *want);
        free(rows);
        free(want);
        close_way();
    }
}

/* A conversation reuses rows without ids for the tokens it names. Where a tile or a window lost
 * some of them, it recomputes all. */
static void test_synced(void **state)
{
    static const struct {
        const char *model;
        struct way way;
    } cache[] = {{"llama-mha", {.step = 24, .len = 300, .config = "{\"backend\": \"shuffle\"}"}},
                 {"gemma3", {.step = 24, .len = 300}}};
    (void)state;
    for (size_t k = 0; k < countof(cache); k++) {
        struct exec *x = open_way(cache[k].model, &cache[k].way);
        size_t v = x->m->vocab;
        float *want = array(2 * v), *got = want + v;
        int32_t text[150];
        uint32_t pos[270];
        kv_seq a = fresh(x), b = fresh(x);
        for (uint32_t i = 0; i < countof(pos); i++)
            pos[i] = 3 * i;
        for (uint32_t i = 0; i < countof(text); i++)
            text[i] = ids[i % 90];
        for (uint32_t i = 0; i < 270; i += 90)
            feed(x, &(struct exec_feed){.seq = a, .tok = ids, .n = 90, .pos = pos + i}, 1, 0, NULL);
        kvik_sync r = {.size = sizeof r};
        if (kvik_cache_sync(kc, a, text, 150, got, &r) < 0) fail_msg("%s", kvik_last_error());
        assert_int_equal(r.reused, 0);
        assert_int_equal(r.computed, 150);
        kvik_sync_done(&r);
        feed(x, &(struct exec_feed){.seq = b, .tok = text, .n = 150}, 1, 0, want);
        assert_memory_equal(want, got, v * sizeof *want);
        free(want);
        close_way();
    }
}

static void test_columns(void **state)
{
    static float out[1];
    (void)state;
    struct exec *x = open_way("llama-mha", &ways[0]);
    struct exec_probe p = {.attention = out, .columns = N - 1};
    struct exec_feed f = {.seq = fresh(x), .tok = ids, .n = N, .probe = &p};
    refuse(x, &f, ERR_ARG, "28 columns, but the sequence then has 29 rows");
    close_way();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_want),      cmocka_unit_test(test_embeds),
        cmocka_unit_test(test_positions), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_hidden),    cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_deep),      cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_saved),     cmocka_unit_test(test_everything),
        cmocka_unit_test(test_prefix),    cmocka_unit_test(test_synced),
        cmocka_unit_test(test_columns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

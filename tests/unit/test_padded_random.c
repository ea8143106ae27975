/* test_padded_random.c - random histories of padded batches against a plain model of them: per
 * batch row a list of columns, each a token or masked. After every forward the logits of a row are,
 * bit for bit, those of a sequence of its tokens alone. The history has crops, reorders,
 * selections, repeats, copies and trips through the legacy form.
 *
 *     build/test_padded_random [OPERATIONS [SEED]]     each model; default 80 and 1 */
#include "base/base.h"
#include "kvik_compat.h"
#include "testing.h"

#define MODELS "tests/golden/models/"
enum { ROWS = 6, WIDE = 56, STEP = 9 };

struct plain { /* the expected contents of a batch */
    uint32_t rows, length;
    int32_t id[ROWS][WIDE]; /* -1: masked */
};
struct pair {
    kvik_batch *b;
    struct plain p;
};

static uint64_t state = 1;
static uint32_t n_ops = 80;
static uint64_t n_forwards, n_rows;
static bool counts_padding;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static void must(int e)
{
    if (e < 0) fail_msg("%s", kvik_last_error());
}

static uint32_t tokens(const struct plain *p, uint32_t row, int32_t *out)
{
    uint32_t k = 0;
    for (uint32_t j = 0; j < p->length; j++)
        if (p->id[row][j] >= 0) out[k++] = p->id[row][j];
    return k;
}

/* Computes the logits of the last token of a row by itself. */
static void alone(kvik_cache *c, const struct plain *p, uint32_t row, float *out)
{
    int32_t ids[WIDE];
    kvik_span span = {.size = sizeof span, .ids = ids, .n = tokens(p, row, ids)};
    must(kvik_cache_new(c, &span.seq));
    must(kvik_forward(c, &span, 1, false, out));
    must(kvik_cache_drop(c, span.seq));
}

/* The same for a model that counts the padding before a row: computes all columns in one call. */
static void in_one(kvik_cache *c, const struct plain *p, uint32_t row, uint32_t vocab, float *out)
{
    static float all[WIDE * 512];
    int32_t ids[WIDE], pos[WIDE];
    uint8_t mask[WIDE];
    uint32_t k = 0, last = 0;
    kvik_batch *b;
    for (uint32_t j = 0; j < p->length; j++) {
        mask[j] = p->id[row][j] >= 0;
        ids[j] = mask[j] ? p->id[row][j] : 0;
        pos[j] = mask[j] ? (int32_t)k : 0;
        k += mask[j];
        if (mask[j]) last = j;
    }
    kvik_inputs in = {.size = sizeof in,
                      .ids = ids,
                      .n = p->length,
                      .attention_mask = mask,
                      .width = p->length,
                      .position_ids = pos};
    must(kvik_batch_open(c, 1, &b));
    must(kvik_batch_forward(b, &in, &(kvik_outputs){.size = sizeof(kvik_outputs), .logits = all}));
    memcpy(out, all + (size_t)last * vocab, vocab * sizeof *out);
    kvik_batch_close(b);
}

static void check(const struct pair *t, kvik_cache *of)
{
    uint8_t mask[ROWS * WIDE];
    assert_int_equal(kvik_batch_rows(t->b), t->p.rows);
    assert_int_equal(kvik_batch_length(t->b), t->p.length);
    must(kvik_batch_mask(t->b, mask));
    for (uint32_t i = 0; i < t->p.rows; i++) {
        int32_t ids[WIDE];
        assert_int_equal(kvik_cache_length(of, kvik_batch_seq(t->b, i)), tokens(&t->p, i, ids));
        for (uint32_t j = 0; j < t->p.length; j++)
            assert_int_equal(mask[i * t->p.length + j], t->p.id[i][j] >= 0);
    }
}

/* Adds new columns with random masks: padding in front is likely, holes are possible. */
static void grow(struct plain *p, uint32_t n, uint32_t vocab)
{
    uint32_t kind = draw(4);
    for (uint32_t i = 0; i < p->rows; i++) {
        uint32_t lead = kind == 1 ? draw(n + 1) : 0, trail = kind == 2 ? draw(n + 1) : 0;
        for (uint32_t j = 0; j < n; j++) {
            bool hidden = j < lead || j + trail >= n || (kind == 3 && draw(4) == 0);
            p->id[i][p->length + j] = hidden ? -1 : (int32_t)(5 + draw(vocab - 5));
        }
    }
    p->length += n;
}

static void forward(kvik_cache *c, kvik_cache *oracle, struct pair *t, uint32_t vocab)
{
    static float got[ROWS * STEP * 512], want[512];
    int32_t ids[ROWS * STEP], pos[ROWS * STEP];
    uint8_t mask[ROWS * WIDE];
    uint32_t past = t->p.length, n = 1 + draw(draw(2) ? STEP : 1);
    if (past + n > WIDE) return;
    assert_true(vocab <= 512);
    grow(&t->p, n, vocab);
    for (uint32_t i = 0; i < t->p.rows; i++)
        for (uint32_t j = 0, k = 0; j < past + n; j++) {
            int32_t id = t->p.id[i][j];
            mask[i * (past + n) + j] = id >= 0;
            if (j >= past) {
                ids[i * n + j - past] = id < 0 ? 0 : id;
                pos[i * n + j - past] = id < 0 ? 0 : (int32_t)k;
            }
            k += id >= 0;
        }
    kvik_inputs in = {.size = sizeof in,
                      .ids = ids,
                      .n = n,
                      .attention_mask = mask,
                      .width = past + n,
                      .position_ids = pos};
    must(kvik_batch_forward(t->b, &in,
                            &(kvik_outputs){.size = sizeof(kvik_outputs), .logits = got}));
    n_forwards++;
    for (uint32_t i = 0; i < t->p.rows; i++) {
        uint32_t j = n;
        while (j && t->p.id[i][past + j - 1] < 0)
            j--;
        if (!j) continue;
        if (counts_padding)
            in_one(oracle, &t->p, i, vocab, want);
        else
            alone(oracle, &t->p, i, want);
        n_rows++;
        if (memcmp(want, got + ((size_t)i * n + j - 1) * vocab, vocab * sizeof *want) != 0)
            fail_msg("forward %llu row %u: the bits differ from those alone",
                     (unsigned long long)n_forwards, i);
    }
    check(t, c);
}

static void crop(struct pair *t)
{
    uint32_t n = draw(t->p.length + 1);
    if (draw(2) || !n) { /* 0 keeps no column */
        must(kvik_batch_crop(t->b, n));
        t->p.length = n;
    } else {
        must(kvik_batch_crop(t->b, -(int64_t)n));
        t->p.length -= n;
    }
}

static void pick(struct pair *t, uint32_t n)
{
    uint32_t index[ROWS];
    struct plain p = t->p;
    for (uint32_t i = 0; i < n; i++) {
        index[i] = draw(p.rows);
        memcpy(t->p.id[i], p.id[index[i]], sizeof p.id[0]);
    }
    t->p.rows = n;
    must(kvik_batch_select(t->b, index, n));
}

static void repeat(struct pair *t)
{
    struct plain p = t->p;
    uint32_t times = 1 + draw(3);
    if (p.rows * times > ROWS) return;
    must(kvik_batch_repeat(t->b, times));
    for (uint32_t i = 0; i < p.rows * times; i++)
        memcpy(t->p.id[i], p.id[i / times], sizeof p.id[0]);
    t->p.rows *= times;
}

/* Exports the batch and imports it in its place. */
static void legacy(kvik_cache *c, struct pair *t)
{
    kvik_legacy *l;
    if (!t->p.length) return;
    must(kvik_batch_to_legacy(t->b, &l));
    kvik_batch_close(t->b);
    must(kvik_batch_from_legacy(c, l, &t->b));
    kvik_legacy_free(l);
}

static void run(const char *model, const char *implementation, const char *config)
{
    char path[200];
    kvik_model *m;
    kvik_cache *c, *oracle;
    struct pair pair[2] = {{0}, {0}}; /* a batch, and a copy made some time before */
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = implementation,
                           .cache_config = config,
                           .compute = "exact",
                           .max_sequences = 2 * ROWS,
                           .max_cache_len = WIDE,
                           .step_tokens = 16};
    snprintf(path, sizeof path, MODELS "%s", model);
    must(kvik_model_open(path, &m));
    must(kvik_cache_open(m, &k, &c));
    k.cache_implementation = "dynamic"; /* all strategies that keep rows unquantized agree */
    k.max_sequences = 1;
    must(kvik_cache_open(m, &k, &oracle));
    counts_padding = strcmp(model, "llama4") == 0;
    uint32_t vocab = kvik_model_vocab(m);
    pair[0].p.rows = 3;
    must(kvik_batch_open(c, 3, &pair[0].b));
    for (uint32_t op = 0; op < n_ops; op++) {
        struct pair *t = &pair[pair[1].b && draw(4) == 0];
        switch (draw(12)) {
        case 0:
            crop(t);
            break;
        case 1:
            pick(t, t->p.rows);
            break; /* as reorder */
        case 2:
            pick(t, 1 + draw(ROWS));
            break;
        case 3:
            repeat(t);
            break;
        case 4:
            legacy(c, t);
            break;
        case 5:
            kvik_batch_close(pair[1].b);
            pair[1].p = pair[0].p;
            must(kvik_batch_copy(pair[0].b, &pair[1].b));
            break;
        case 6:
            if (t->p.length + STEP <= WIDE && draw(4)) break;
            must(kvik_batch_reset(t->b));
            t->p.length = 0;
            break;
        default:
            forward(c, oracle, t, vocab);
        }
        check(t, c);
    }
    kvik_batch_close(pair[0].b);
    kvik_batch_close(pair[1].b);
    kvik_usage u = {.size = sizeof u};
    kvik_cache_usage(c, &u);
    assert_int_equal(u.live, 0);
    assert_int_equal(u.tokens, 0);
    kvik_cache_close(c);
    kvik_cache_close(oracle);
    kvik_model_close(m);
}

static void test_histories(void **unused)
{
    (void)unused;
    run("llama-gqa-l3", "dynamic", NULL);
    run("mistral", "dynamic", NULL);
    run("gemma2", "hybrid", NULL);
    run("gpt2", "dynamic", NULL);
    run("llama-gqa-l3", "offloaded", NULL);
    run("llama4", "dynamic", NULL);
    run("phi3", "dynamic", NULL);
    run("gpt-oss", "static", NULL);
    run("llama-gqa-l3", "dynamic", "{\"sliding_window\": 10}");
    printf("%llu forwards, %llu rows compared with rows alone\n", (unsigned long long)n_forwards,
           (unsigned long long)n_rows);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_histories)};
    if (argc > 1) n_ops = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2) state = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

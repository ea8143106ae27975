/* test_texts.c - prompts that are texts, and text that streams out of a one-call generation.
 *
 * The model is a golden one beside a toy tokenizer. A text gives what its ids give, bit for bit; a stream gives the text of
 * the result, in whole characters. */
#include "base/base.h"
#include "base/utf8.h"
#include "kvik_loop.h"
#include "toy_tokenizer.h"

enum { VOCAB = 384 };
static const char golden[] = "tests/golden/models/llama-mha";
static const char *const files[] = {"config.json", "generation_config.json", "model.safetensors"};
static char dir[] = "/tmp/kvik-texts-XXXXXX";
static kvik_model *m;
static kvik_cache *c;

static int need(int64_t e)
{
    if (e < 0) fail_msg("%s", kvik_last_error());
    return (int)e;
}

/* Makes a directory with a golden model beside the toy tokenizer. */
static void make_model(char *to, const char *of)
{
    char here[2048], there[256];
    assert_non_null(mkdtemp(to));
    toy_tokenizer(to, VOCAB);
    for (size_t i = 0; i < countof(files); i++) {
        char *top = realpath(of, NULL);
        assert_non_null(top);
        snprintf(here, sizeof here, "%s/%s", top, files[i]);
        snprintf(there, sizeof there, "%s/%s", to, files[i]);
        free(top);
        assert_int_equal(symlink(here, there), 0);
    }
}

static int remove_model(const char *at)
{
    toy_remove(at);
    for (size_t i = 0; i < countof(files); i++)
        toy_unlink(at, files[i]);
    return rmdir(at);
}

static int setup(void **state)
{
    (void)state;
    make_model(dir, golden);
    kvik_cache_config config = {.size = sizeof config, .max_sequences = 8, .max_cache_len = 96};
    need(kvik_model_open(dir, &m));
    need(kvik_cache_open(m, &config, &c));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kvik_cache_close(c);
    kvik_model_close(m);
    return remove_model(dir);
}

static void options(kvik_generation *g, const char *set)
{
    need(kvik_generation_init(g, m));
    need(kvik_generation_set(g, "{\"max_new_tokens\": 20, \"eos_token_id\": []}"));
    need(kvik_generation_set(g, set));
}

static void refused(int e, int code, const char *word)
{
    if (e != code || !strstr(kvik_last_error(), word))
        fail_msg("%d, %s, not %d and \"%s\"", e, kvik_last_error(), code, word);
}

static void same_rows(const kvik_result *a, const kvik_result *b)
{
    assert_int_equal(a->n_rows, b->n_rows);
    for (uint32_t i = 0; i < a->n_rows; i++) {
        assert_int_equal(a->row[i]->n, b->row[i]->n);
        assert_int_equal(a->row[i]->n_prompt, b->row[i]->n_prompt);
        assert_memory_equal(a->row[i]->ids, b->row[i]->ids, a->row[i]->n * sizeof(int32_t));
        assert_string_equal(a->row[i]->text, b->row[i]->text);
    }
}

static kvik_result *by_request(const kvik_generation *g, const kvik_prompt *p, uint32_t n)
{
    kvik_request *q;
    kvik_result *r;
    need(kvik_request_start(c, g, p, n, NULL, &q));
    while (need(kvik_request_step(&q, 1)) > 0) {
    }
    need(kvik_request_end(q, &r));
    kvik_request_free(q);
    return r;
}

static void test_texts(void **state)
{
    (void)state;
    static const char *const texts[] = {"The sea is", "", "h\xC3\xA9 <bot> x"};
    kvik_generation g;
    kvik_prompt text[3], ids[3], mixed[3];
    kvik_result *r[4];
    const kvik_tokenizer *t = kvik_model_tokenizer(m);
    options(&g, "{\"do_sample\": true, \"seed\": 5}");
    for (size_t i = 0; i < 3; i++) {
        int32_t *own;
        text[i] = (kvik_prompt){.size = sizeof *text, .text = texts[i]};
        ids[i] = (kvik_prompt){.size = sizeof *ids};
        need(kvik_tokenizer_encode(t, texts[i], strlen(texts[i]), true, &own, &ids[i].n));
        assert_int_equal(own[0], 0); /* the tokenizer's <s> */
        ids[i].ids = own;
        mixed[i] = i == 1 ? ids[i] : text[i];
    }
    need(kvik_generate(c, &g, ids, 3, NULL, &r[0]));
    need(kvik_generate(c, &g, text, 3, NULL, &r[1]));
    need(kvik_generate(c, &g, mixed, 3, NULL, &r[2]));
    r[3] = by_request(&g, mixed, 3);
    for (int i = 1; i < 4; i++)
        same_rows(r[0], r[i]);
    for (int i = 0; i < 4; i++)
        kvik_result_free(r[i]);
    for (size_t i = 0; i < 3; i++) {
        need(kvik_generate_text(c, &g, texts[i], &r[0]));
        need(kvik_generate(c, &g, &ids[i], 1, NULL, &r[1]));
        same_rows(r[0], r[1]);
        kvik_result_free(r[0]);
        kvik_result_free(r[1]);
        kvik_free((void *)(uintptr_t)ids[i].ids);
    }
    kvik_generation_done(&g);
}

/* A text that is appended to a sequence begins without <s>. */
static void test_append(void **state)
{
    (void)state;
    kvik_generation g;
    kvik_result *r, *whole;
    kvik_prompt p = {.size = sizeof p, .text = "The sea"};
    options(&g, "{\"max_new_tokens\": 4}");
    need(kvik_cache_new(c, &p.seq));
    need(kvik_generate(c, &g, &p, 1, NULL, &r));
    size_t n = r->row[0]->n;
    int32_t all[32];
    memcpy(all, r->row[0]->ids, n * sizeof *all);
    kvik_result_free(r);
    /* The last token was not computed yet: it goes in front of the text. */
    kvik_span last = {.size = sizeof last, .seq = p.seq, .n = 1, .ids = &all[n - 1]};
    need(kvik_forward(c, &last, 1, false, NULL));
    p.append = true;
    p.text = " ab";
    need(kvik_generate(c, &g, &p, 1, NULL, &r));
    assert_int_equal(r->row[0]->n_prompt, 3);
    const int32_t want[] = {' ' + 4, 'a' + 4, 'b' + 4};
    assert_memory_equal(r->row[0]->ids, want, sizeof want);
    memcpy(all + n, want, sizeof want);
    kvik_prompt ids = {.size = sizeof ids, .ids = all, .n = n + 3};
    need(kvik_generate(c, &g, &ids, 1, NULL, &whole));
    assert_int_equal(whole->row[0]->n, n + r->row[0]->n);
    assert_memory_equal(whole->row[0]->ids + n, r->row[0]->ids, r->row[0]->n * sizeof *all);
    kvik_result_free(whole);
    kvik_result_free(r);
    need(kvik_cache_drop(c, p.seq));
    kvik_generation_done(&g);
}

static void test_refused(void **state)
{
    (void)state;
    static const int32_t one = 7;
    static const uint8_t mask = 1;
    kvik_model *bare;
    kvik_cache *of_bare;
    kvik_generation g;
    kvik_result *r = NULL;
    kvik_request *q = NULL;
    options(&g, "{}");
    const kvik_prompt p[] = {
        {.size = sizeof *p, .text = "a", .ids = &one, .n = 1},
        {.size = sizeof *p, .text = "a", .n = 1},
        {.size = sizeof *p, .text = "a", .attention_mask = &mask},
        {.size = sizeof *p, .text = "a\xFF"},
    };
    static const char *const word[] = {"as well as ids", "as well as ids", "attention_mask",
                                       "UTF-8"};
    for (size_t i = 0; i < countof(p); i++) {
        int code = i == 3 ? KVIK_FORMAT : KVIK_ARG;
        refused(kvik_generate(c, &g, &p[i], 1, NULL, &r), code, word[i]);
        refused(kvik_request_start(c, &g, &p[i], 1, NULL, &q), code, word[i]);
    }
    need(kvik_model_open(golden, &bare));
    need(kvik_cache_open(bare, NULL, &of_bare));
    refused(kvik_generate_text(of_bare, &g, "a", &r), KVIK_ARG, "no tokenizer");
    kvik_cache_close(of_bare);
    kvik_model_close(bare);
    refused(kvik_generate_text(NULL, &g, "a", &r), KVIK_ARG, "cache");
    refused(kvik_generate_text(c, NULL, "a", &r), KVIK_ARG, "options");
    refused(kvik_generate_text(c, &g, NULL, &r), KVIK_ARG, "NULL");
    refused(kvik_generate_text(c, &g, "a", NULL), KVIK_ARG, "options");
    assert_null(r);
    assert_null(q);
    kvik_generation_done(&g);
}

/* The text of a call is the input of an encoder, with the special tokens of the tokenizer; that of a prompt begins the
 * decoder's text, without them. */
static void test_source(void **state)
{
    (void)state;
    char path[] = "/tmp/kvik-texts-XXXXXX";
    kvik_model *hears;
    kvik_cache *of;
    kvik_generation g;
    kvik_result *r[3];
    size_t n;
    make_model(path, "tests/golden/models/t5");
    need(kvik_model_open(path, &hears));
    need(kvik_cache_open(hears, NULL, &of));
    need(kvik_generation_init(&g, hears));
    g.max_new_tokens = 6;
    g.n_eos = 0;
    int32_t *ids;
    need(kvik_tokenizer_encode(kvik_model_tokenizer(hears), "The sea", 7, true, &ids, &n));
    const kvik_source by_ids = {.size = sizeof by_ids, .ids = ids, .n = n},
                      by_text = {.size = sizeof by_text, .text = "The sea"};
    const kvik_prompt p[] = {{.size = sizeof *p, .source = &by_ids},
                             {.size = sizeof *p, .source = &by_text}};
    for (int i = 0; i < 2; i++)
        need(kvik_generate(of, &g, &p[i], 1, NULL, &r[i]));
    need(kvik_generate_text(of, &g, "The sea", &r[2]));
    same_rows(r[0], r[1]);
    same_rows(r[0], r[2]);
    assert_int_equal(r[0]->row[0]->n_prompt, 1);
    const kvik_prompt begun = {.size = sizeof begun, .text = "ab", .source = &by_text};
    kvik_request *q;
    kvik_result *asked, *made;
    need(kvik_generate(of, &g, &begun, 1, NULL, &made));
    const int32_t want[] = {r[0]->row[0]->ids[0], 'a' + 4, 'b' + 4};
    assert_int_equal(made->row[0]->n_prompt, 3);
    assert_memory_equal(made->row[0]->ids, want, sizeof want);
    need(kvik_request_start(of, &g, &begun, 1, NULL, &q));
    while (need(kvik_request_step(&q, 1)) > 0)
        ;
    need(kvik_request_end(q, &asked));
    same_rows(made, asked);
    kvik_request_free(q);
    kvik_result_free(asked);
    kvik_result_free(made);
    for (int i = 0; i < 3; i++)
        kvik_result_free(r[i]);
    kvik_free(ids);
    kvik_generation_done(&g);
    kvik_cache_close(of);
    kvik_model_close(hears);
    assert_int_equal(remove_model(path), 0);
}

/* What a stream has given so far. */
struct heard {
    struct buf text;
    uint32_t calls, most;
};
static bool hear(void *ctx, const char *text)
{
    struct heard *h = ctx;
    size_t n = strlen(text);
    assert_true(n > 0 && utf8_valid(text, n));
    need(buf_append(&h->text, text, n));
    return ++h->calls < h->most;
}

static void listen(const char *set, uint32_t most, uint32_t least_calls, enum kvik_finish finish)
{
    struct heard h = {.most = most};
    kvik_generation g;
    kvik_result *r;
    options(&g, set);
    buf_init(&h.text, 1 << 16);
    need(kvik_generate_stream(c, &g, "The sea is", hear, &h, &r));
    assert_int_equal(r->row[0]->finish, finish);
    if (h.text.data) assert_string_equal(h.text.data, r->row[0]->text);
    assert_true(h.calls >= least_calls);
    kvik_result_free(r);
    buf_clear(&h.text);
    h.calls = 0;
    need(kvik_generate_stream(c, &g, "The sea is", hear, &h, NULL));
    assert_true(h.calls >= least_calls);
    buf_done(&h.text);
    kvik_generation_done(&g);
}

static void test_stream(void **state)
{
    (void)state;
    char set[80];
    for (int seed = 0; seed < 30; seed++) {
        snprintf(set, sizeof set,
                 "{\"do_sample\": true, \"temperature\": 2.0, \"top_k\": 0, \"seed\": %d}", seed);
        listen(set, 1000, 2, KVIK_FINISH_LENGTH);
        listen(set, 2, 2, KVIK_FINISH_CANCELLED);
    }
    listen("{}", 1000, 1, KVIK_FINISH_LENGTH);
    listen("{\"num_beams\": 3}", 1000, 1, KVIK_FINISH_LENGTH);
    listen("{\"num_beams\": 3}", 1, 1, KVIK_FINISH_CANCELLED);
    listen("{\"prompt_lookup_num_tokens\": 3}", 1000, 1, KVIK_FINISH_LENGTH);
}

static void test_stream_refused(void **state)
{
    (void)state;
    kvik_generation g;
    kvik_result *r = NULL;
    struct heard h = {.most = 1000};
    options(&g, "{\"do_sample\": true, \"num_return_sequences\": 2}");
    refused(kvik_generate_stream(c, &g, "a", hear, &h, &r), KVIK_ARG, "num_return_sequences is 2");
    g.num_return_sequences = 1;
    refused(kvik_generate_stream(NULL, &g, "a", hear, &h, &r), KVIK_ARG, "cache");
    refused(kvik_generate_stream(c, NULL, "a", hear, &h, &r), KVIK_ARG, "options");
    refused(kvik_generate_stream(c, &g, NULL, hear, &h, &r), KVIK_ARG, "text");
    refused(kvik_generate_stream(c, &g, "a", NULL, &h, &r), KVIK_ARG, "function");
    refused(kvik_generate_stream(c, &g, "\xC0", hear, &h, &r), KVIK_FORMAT, "UTF-8");
    g.size = 0;
    refused(kvik_generate_stream(c, &g, "a", hear, &h, &r), KVIK_ARG, "kvik_generation.size");
    g.size = sizeof g;
    assert_int_equal(h.calls, 0);
    assert_null(r);
    kvik_generation_done(&g);
}

/* The model's own tokenizer lives as long as a decoder or a cache of the model, in every order of closing. */
static void test_closing(void **state)
{
    (void)state;
    for (int k = 0; k < 24; k++) {
        kvik_model *model;
        kvik_cache *cache;
        kvik_decoder *decoder[2];
        const char *text;
        const int32_t id = 'x' + 4;
        kvik_cache_config config = {.size = sizeof config, .max_sequences = 1, .max_cache_len = 64};
        need(kvik_model_open(dir, &model));
        need(kvik_cache_open(model, &config, &cache));
        for (int i = 0; i < 2; i++)
            need(kvik_decoder_open(kvik_model_tokenizer(model), true, &decoder[i]));
        int left[] = {0, 1, 2, 3}, at = k;
        for (int n = 4; n > 0; at /= n, n--) {
            int which = left[at % n];
            left[at % n] = left[n - 1];
            if (which == 0) kvik_model_close(model);
            if (which == 1) {
                kvik_generation g;
                kvik_result *r;
                options(&g, "{\"max_new_tokens\": 2}");
                need(kvik_generate_text(cache, &g, "ab", &r));
                assert_int_equal(r->row[0]->n, 5);
                kvik_result_free(r);
                kvik_generation_done(&g);
                kvik_cache_close(cache);
            }
            if (which >= 2) {
                assert_int_equal(kvik_decoder_put(decoder[which - 2], &id, 1, &text), 1);
                assert_string_equal(text, "x");
                kvik_decoder_close(decoder[which - 2]);
            }
        }
    }
}

/* Every allocation of a call with two texts and ids fails once. */
static void test_allocations(void **state)
{
    (void)state;
    static const int32_t ids[] = {0, 80, 81};
    const kvik_prompt p[] = {{.size = sizeof *p, .text = "abc"},
                             {.size = sizeof *p, .ids = ids, .n = 3},
                             {.size = sizeof *p, .text = "de"}};
    kvik_generation g;
    options(&g, "{\"max_new_tokens\": 2}");
    for (int pass = 0; pass < 2; pass++)
        for (int64_t k = 0;; k++) {
            kvik_result *r = NULL;
            kvik_request *q = NULL;
            mem_fail_at(k, false);
            int e = pass ? kvik_request_start(c, &g, p, 3, NULL, &q)
                         : kvik_generate(c, &g, p, 3, NULL, &r);
            mem_fail_at(-1, false);
            if (e >= 0) {
                kvik_result_free(r);
                kvik_request_free(q);
                break;
            }
            assert_true(k < 10000 && !r && !q);
        }
    kvik_generation_done(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),   cmocka_unit_test(test_append),
        cmocka_unit_test(test_source),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_stream),  cmocka_unit_test(test_stream_refused),
        cmocka_unit_test(test_closing), cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

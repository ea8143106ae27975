/* test_abi_sizes.c - structs that callers allocate, as programs use them that were compiled with an
 * older or a newer kvik.h.
 *
 * Other values of `size` play such a program: a struct that ends earlier, or one that continues
 * after the last field this library knows. The bytes behind an older struct are filled with a
 * pattern that the library may neither read nor write. */
#include "base/base.h"
#include "kvik_compat.h"
#include "kvik_loop.h"
#include "testing.h"

enum { VOCAB = 1024, BEHIND = 64, JUNK = 0xa5 };
static const char path[] = "tests/golden/models/llama-mha";
static const int32_t ids[] = {42, 43, 44, 45, 46, 47, 48, 85, 14, 62};
static kvik_model *m;
static kvik_cache *c;

static int setup(void **state)
{
    (void)state;
    kvik_cache_config config = {
        .size = sizeof config, .max_sequences = 4, .max_cache_len = 64, .compute = "exact"};
    if (kvik_model_open(path, &m) < 0 || kvik_cache_open(m, &config, &c) < 0)
        fail_msg("%s", kvik_last_error());
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kvik_cache_close(c);
    kvik_model_close(m);
    return 0;
}

static void refused(int e, int code, const char *name, const char *why)
{
    assert_int_equal(e, code);
    if (!strstr(kvik_last_error(), name) || !strstr(kvik_last_error(), why))
        fail_msg("%s, %s: %s", name, why, kvik_last_error());
}

/* Sizes that no struct has: forgotten, not even room for the size itself, half a pointer, a whole number of fields and
 * a half, bytes of an uninitialised struct. */
static const size_t wrong[] = {0,  sizeof(size_t),  12,      20, 60, sizeof(kvik_usage) - 4,
                               81, (size_t)1 << 40, SIZE_MAX};

static void test_config(void **state)
{
    (void)state;
    kvik_cache *k;
    kvik_layers *l;
    struct {
        kvik_cache_config config;
        unsigned char behind[BEHIND];
    } newer = {{.size = sizeof newer, .max_sequences = 3, .max_cache_len = 32}, {0}};
    if (kvik_cache_open(m, &newer.config, &k) < 0) fail_msg("%s", kvik_last_error());
    kvik_cache_close(k);
    newer.behind[BEHIND - 1] = 1;
    refused(kvik_cache_open(m, &newer.config, &k), KVIK_UNSUPPORTED, "kvik_cache_config",
            "newer kvik.h");
    refused(kvik_layers_open(&newer.config, 1, NULL, &l), KVIK_UNSUPPORTED, "kvik_cache_config",
            "newer kvik.h");
    for (size_t i = 0; i < countof(wrong); i++) {
        newer.config.size = wrong[i];
        refused(kvik_cache_open(m, &newer.config, &k), KVIK_ARG, "kvik_cache_config.size",
                "sizeof(kvik_cache_config)");
    }
    /* An older struct without `compute` and the fields after it. If the library read them, opening
     * would fail. */
    kvik_cache_config older = {.size = offsetof(kvik_cache_config, compute),
                               .max_sequences = 3,
                               .max_cache_len = 32,
                               .compute = "no such thing",
                               .isa = "no such thing",
                               .max_encoder_len = 7};
    if (kvik_cache_open(m, &older, &k) < 0) fail_msg("%s", kvik_last_error());
    kvik_cache_close(k);
    older.size = sizeof older;
    assert_int_equal(kvik_cache_open(m, &older, &k), KVIK_ARG);
}

static void test_usage(void **state)
{
    (void)state;
    struct {
        kvik_usage u;
        unsigned char behind[BEHIND];
    } it, junk;
    memset(&junk, JUNK, sizeof junk);
    it = junk;
    it.u.size = offsetof(kvik_usage, reserved);
    assert_int_equal(kvik_cache_usage(c, &it.u), 0);
    assert_int_equal(it.u.size, offsetof(kvik_usage, reserved));
    assert_true(it.u.states != junk.u.states);
    assert_memory_equal(&it.u.reserved, &junk.u.reserved,
                        sizeof it - offsetof(kvik_usage, reserved));
    it.u.size = sizeof it;
    assert_int_equal(kvik_cache_usage(c, &it.u), 0);
    assert_true(it.u.budget > 0 && it.u.budget != junk.u.budget);
    for (size_t i = 0; i < BEHIND; i++)
        /* The fields that this library does not have are untouched. */
        assert_int_equal(it.behind[i], 0);
    for (size_t i = 0; i < countof(wrong); i++) {
        it = junk;
        it.u.size = wrong[i];
        refused(kvik_cache_usage(c, &it.u), KVIK_ARG, "kvik_usage.size", "sizeof(kvik_usage)");
        assert_memory_equal(&it.u.budget, &junk.u.budget, sizeof it - sizeof it.u.size);
    }
}

/* Elements of an array are as far apart as the program's struct is long. */
static void test_spans(void **state)
{
    (void)state;
    struct newer {
        kvik_span span;
        uint64_t behind[3];
    } two[2] = {{{.size = sizeof *two, .ids = ids, .n = 5}, {0}},
                {{.size = sizeof *two, .ids = ids + 3, .n = 6}, {0}}};
    float got[2][VOCAB], want[VOCAB];
    for (int i = 0; i < 2; i++)
        assert_int_equal(kvik_cache_new(c, &two[i].span.seq), 0);
    if (kvik_forward(c, &two[0].span, 2, false, got[0]) < 0) fail_msg("%s", kvik_last_error());
    for (int i = 0; i < 2; i++) {
        kvik_span alone = {.size = sizeof alone, .ids = two[i].span.ids, .n = two[i].span.n};
        size_t row = kvik_model_vocab(m) * sizeof(float);
        assert_int_equal(kvik_cache_length(c, two[i].span.seq), two[i].span.n);
        assert_int_equal(kvik_cache_new(c, &alone.seq), 0);
        assert_int_equal(kvik_forward(c, &alone, 1, false, want), 0);
        assert_memory_equal((char *)got + (size_t)i * row, want, row);
        assert_int_equal(kvik_cache_drop(c, alone.seq), 0);
    }
    two[1].span.size = sizeof(kvik_span);
    refused(kvik_forward(c, &two[0].span, 2, false, NULL), KVIK_ARG, "kvik_span 1",
            "every element");
    two[1].span.size = sizeof *two;
    two[1].behind[2] = 1;
    refused(kvik_forward(c, &two[0].span, 2, false, NULL), KVIK_UNSUPPORTED, "kvik_span", "newer");
    two[0].span.size = 0;
    refused(kvik_forward(c, &two[0].span, 2, false, NULL), KVIK_ARG, "kvik_span.size", "sizeof");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kvik_cache_length(c, two[i].span.seq), two[i].span.n);
        assert_int_equal(kvik_cache_drop(c, two[i].span.seq), 0);
    }
}

/* A program whose kvik_prompt ends before the mask; nothing is masked. */
static void test_prompts(void **state)
{
    (void)state;
    enum { OLD = offsetof(kvik_prompt, attention_mask) };
    unsigned char old[2 * OLD];
    kvik_generation g;
    kvik_result *a, *b;
    kvik_prompt p[2];
    for (size_t i = 0; i < 2; i++) {
        p[i] = (kvik_prompt){.size = OLD, .ids = ids + i, .n = 7};
        memcpy(old + i * OLD, &p[i], OLD);
        p[i].size = sizeof *p;
    }
    assert_int_equal(kvik_generation_init(&g, m), 0);
    assert_int_equal(g.size, sizeof g);
    g.max_new_tokens = 6;
    if (kvik_generate(c, &g, p, 2, NULL, &a) < 0) fail_msg("%s", kvik_last_error());
    if (kvik_generate(c, &g, (const kvik_prompt *)(const void *)old, 2, NULL, &b) < 0)
        fail_msg("%s", kvik_last_error());
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(a->row[i]->n, b->row[i]->n);
        assert_memory_equal(a->row[i]->ids, b->row[i]->ids, a->row[i]->n * sizeof *ids);
    }
    kvik_result_free(b);
    kvik_request *q;
    if (kvik_request_start(c, &g, (const kvik_prompt *)(const void *)old, 2, NULL, &q) < 0)
        fail_msg("%s", kvik_last_error());
    while (kvik_request_step(&q, 1) > 0) {
    }
    if (kvik_request_end(q, &b) < 0) fail_msg("%s", kvik_last_error());
    for (size_t i = 0; i < 2; i++)
        assert_memory_equal(a->row[i]->ids, b->row[i]->ids, a->row[i]->n * sizeof *ids);
    kvik_request_free(q);
    kvik_result_free(a);
    kvik_result_free(b);
    p[1].size = 0;
    refused(kvik_request_start(c, &g, p, 2, NULL, &q), KVIK_ARG, "kvik_prompt 1", "first one");
    refused(kvik_generate(c, &g, p, 2, NULL, &a), KVIK_ARG, "kvik_prompt 1", "first one");
    kvik_hooks hooks = {.size = 0};
    p[1].size = sizeof *p;
    refused(kvik_generate(c, &g, p, 2, &hooks, &a), KVIK_ARG, "kvik_hooks.size", "sizeof");
    kvik_generation_done(&g);
    refused(kvik_generate(c, &(kvik_generation){0}, p, 2, NULL, &a), KVIK_ARG,
            "kvik_generation.size", "sizeof");
}

/* An older kvik_generation. Options that lie behind its end are refused by name; in the model's own
 * file they are ignored. */
static void test_generation(void **state)
{
    (void)state;
    enum { OLD = offsetof(kvik_generation, num_return_sequences) };
    kvik_generation g, junk;
    memset(&junk, JUNK, sizeof junk);
    g = junk;
    assert_int_equal(kvik_generation_init_sized(&g, OLD, m), 0);
    assert_int_equal(g.size, OLD);
    assert_int_equal(g.num_beams, 1);
    assert_memory_equal((char *)&g + OLD, (char *)&junk + OLD, sizeof g - OLD);
    assert_int_equal(kvik_generation_set(&g, "{\"max_new_tokens\": 3, \"top_k\": 7}"), 0);
    assert_true(g.top_k == 7 && g.max_new_tokens == 3);
    refused(kvik_generation_set(&g, "{\"output_scores\": true}"), KVIK_UNSUPPORTED, "output_scores",
            "compiled with");
    refused(kvik_generation_set(&g, "{\"max_new_tokens\": 4, \"num_return_sequences\": 2}"),
            KVIK_UNSUPPORTED, "num_return_sequences", "compiled with");
    assert_int_equal(g.max_new_tokens, 3);
    kvik_result *r;
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 5};
    if (kvik_generate(c, &g, &p, 1, NULL, &r) < 0) fail_msg("%s", kvik_last_error());
    /* The bytes behind the struct would ask for both. */
    assert_null(r->scores);
    assert_null(r->past_key_values);
    kvik_result_free(r);
    kvik_generation_done(&g);
    assert_int_equal(g.size, OLD);
    assert_memory_equal((char *)&g + OLD, (char *)&junk + OLD, sizeof g - OLD);
    for (size_t i = 0; i < countof(wrong); i++)
        refused(kvik_generation_init_sized(&g, wrong[i], m), KVIK_ARG, "kvik_generation", "size");
    refused(kvik_generation_init_sized(&g, 80, m), KVIK_ARG, "kvik_generation", "size is 80");
    kvik_generation_done(&(kvik_generation){0}); /* a struct that was never initialised */
}

static void test_sync(void **state)
{
    (void)state;
    kvik_seq s;
    kvik_sync report, junk;
    memset(&junk, JUNK, sizeof junk);
    report = junk;
    assert_int_equal(kvik_cache_new(c, &s), 0);
    report.size = 0;
    refused(kvik_cache_sync(c, s, ids, 8, NULL, &report), KVIK_ARG, "kvik_sync.size", "sizeof");
    assert_int_equal(kvik_cache_length(c, s), 0);
    report.size = offsetof(kvik_sync, cached);
    if (kvik_cache_sync(c, s, ids, 8, NULL, &report) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(report.computed, 8);
    assert_ptr_equal(report.cached, junk.cached);
    /* The library frees the texts of a changed conversation that this caller's struct has no fields
     * for. */
    if (kvik_cache_sync(c, s, ids + 1, 8, NULL, &report) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(report.divergence, 0);
    assert_ptr_equal(report.given, junk.given);
    kvik_sync_done(&report);
    assert_ptr_equal(report.reason, junk.reason);
    assert_int_equal(kvik_cache_drop(c, s), 0);
}

/* Every other struct of the interface: a forgotten size is refused before anything happens. */
static void test_forgotten(void **state)
{
    (void)state;
    float one[4] = {0};
    kvik_seq s;
    kvik_batch *b;
    kvik_legacy legacy = {0};
    kvik_export export = {0};
    kvik_inputs in = {.ids = ids, .n = 2};
    kvik_result *r;
    kvik_generation g;
    refused(kvik_cache_import(c, &export, &s), KVIK_ARG, "kvik_export.size", "sizeof");
    refused(kvik_batch_from_legacy(c, &legacy, &b), KVIK_ARG, "kvik_legacy.size", "sizeof");
    refused(kvik_legacy_save(&legacy, m, "/nowhere"), KVIK_ARG, "kvik_legacy.size", "sizeof");
    assert_int_equal(kvik_batch_open(c, 1, &b), 0);
    assert_int_equal(kvik_generation_init(&g, m), 0);
    refused(kvik_batch_forward(b, &in, NULL), KVIK_ARG, "kvik_inputs.size", "sizeof");
    refused(kvik_batch_generate(b, &g, &in, NULL, &r), KVIK_ARG, "kvik_inputs.size", "sizeof");
    in.size = sizeof in;
    refused(kvik_batch_forward(b, &in, &(kvik_outputs){0}), KVIK_ARG, "kvik_outputs.size",
            "sizeof");
    assert_int_equal(kvik_batch_length(b), 0);
    kvik_generation_done(&g);
    kvik_batch_close(b);

    kvik_layers *free_rows;
    kvik_shape shape = {.batch = 1, .heads = 1, .n = 1, .dim_k = 4, .dim_v = 4};
    kvik_rows rows = {0};
    assert_int_equal(kvik_layers_open(NULL, 1, NULL, &free_rows), 0);
    refused(kvik_layers_update(free_rows, 0, one, one, &shape, &rows), KVIK_ARG, "kvik_shape.size",
            "sizeof");
    shape.size = sizeof shape;
    refused(kvik_layers_update(free_rows, 0, one, one, &shape, &rows), KVIK_ARG, "kvik_rows.size",
            "sizeof");
    assert_int_equal(kvik_layers_length(free_rows, 0), 0);
    rows.size = sizeof rows;
    assert_int_equal(kvik_layers_update(free_rows, 0, one, one, &shape, &rows), 0);
    assert_int_equal(rows.rows, 1);
    kvik_layers_close(free_rows);
}

/* Writes the first `size` bytes of a struct, which is then that long, and a pattern behind them. */
static void *older(unsigned char out[512], const void *full, size_t size)
{
    memset(out, JUNK, 512);
    memcpy(out, full, size);
    memcpy(out, &size, sizeof size);
    return out;
}

#define UP_TO(type, field)                                                                         \
    ((offsetof(type, field) + sizeof(((type *)0)->field) + sizeof(size_t) - 1) / sizeof(size_t) *  \
     sizeof(size_t))

/* The first versions of the structs that have grown, or can be shorter: what lies behind them is neither read nor
 * written. */
static void test_older(void **state)
{
    (void)state;
    unsigned char a[512], b[512];
    float one[4] = {1, 2, 3, 4}, logits[2 * VOCAB], want[2 * VOCAB];
    kvik_batch *rows[2];
    kvik_message message = {.role = "user", .content = "hello"};
    char *text;
    older(a, &message, UP_TO(kvik_message, content));
    const kvik_chat chat = {.size = sizeof chat,
                            .message = (const kvik_message *)(const void *)a,
                            .n = 1,
                            .template_text = "{{ messages }}"};
    assert_int_equal(kvik_chat_render(NULL, &chat, &text), 0);
    assert_string_equal(text, "[{'role': 'user', 'content': 'hello'}]");
    kvik_free(text);

    kvik_inputs in = {.size = sizeof in, .ids = ids, .n = 2};
    kvik_outputs out = {.size = sizeof out, .logits = want};
    for (int i = 0; i < 2; i++)
        assert_int_equal(kvik_batch_open(c, 1, &rows[i]), 0);
    assert_int_equal(kvik_batch_forward(rows[0], &in, &out), 0);
    out.logits = logits;
    older(a, &in, UP_TO(kvik_inputs, n));
    older(b, &out, UP_TO(kvik_outputs, logits));
    if (kvik_batch_forward(rows[1], (const kvik_inputs *)(const void *)a,
                           (const kvik_outputs *)(const void *)b) < 0)
        fail_msg("%s", kvik_last_error());
    assert_memory_equal(logits, want, 2 * kvik_model_vocab(m) * sizeof *want);
    for (int i = 0; i < 2; i++)
        kvik_batch_close(rows[i]);

    kvik_hooks hooks = {0};
    kvik_generation g;
    kvik_result *r;
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = 5};
    assert_int_equal(kvik_generation_init(&g, m), 0);
    g.max_new_tokens = 2;
    older(a, &hooks, UP_TO(kvik_hooks, ctx));
    if (kvik_generate(c, &g, &p, 1, (const kvik_hooks *)(const void *)a, &r) < 0)
        fail_msg("%s", kvik_last_error());
    assert_int_equal(r->row[0]->n, 7);
    kvik_result_free(r);
    kvik_generation_done(&g);

    kvik_layers *free_rows;
    kvik_shape shape = {.batch = 1, .heads = 1, .n = 1, .dim_k = 4, .dim_v = 4};
    struct {
        kvik_rows rows;
        uint64_t behind[2];
    } newer = {{.size = sizeof newer}, {1, 1}};
    older(a, &shape, UP_TO(kvik_shape, dim_v));
    assert_int_equal(kvik_layers_open(NULL, 1, NULL, &free_rows), 0);
    if (kvik_layers_update(free_rows, 0, one, one, (const kvik_shape *)(const void *)a,
                           &newer.rows) < 0)
        fail_msg("%s", kvik_last_error());
    assert_memory_equal(newer.rows.keys, one, sizeof one);
    assert_true(newer.behind[0] == 0 && newer.behind[1] == 0); /* fields that are not known */
    kvik_layers_close(free_rows);
}

/* Programs of a later kvik.h: fields that this library does not know may be 0, and are refused otherwise. */
static void test_newer(void **state)
{
    (void)state;
    struct {
        kvik_choice choice;
        uint64_t behind;
    } choice = {{.size = sizeof choice, .ids = ids, .n = 2, .n_prompt = 2}, 0};
    struct {
        kvik_export export;
        uint64_t behind;
    } export;
    struct {
        kvik_legacy legacy;
        uint64_t behind;
    } legacy;
    float logits[VOCAB] = {0};
    int32_t id = -1;
    kvik_generation g;
    kvik_sampler *sampler;
    assert_int_equal(kvik_generation_init(&g, NULL), 0);
    assert_int_equal(kvik_sampler_open(&g, VOCAB, NULL, &sampler), 0);
    logits[77] = 5;
    choice.choice.logits = logits;
    assert_int_equal(kvik_sample(sampler, &choice.choice, &id), 0);
    assert_int_equal(id, 77);
    choice.behind = 1;
    refused(kvik_sample(sampler, &choice.choice, &id), KVIK_UNSUPPORTED, "kvik_choice", "newer");
    kvik_sampler_close(sampler);
    kvik_generation_done(&g);

    kvik_seq s, copy;
    kvik_export *got;
    kvik_legacy *old;
    kvik_batch *batch, *again;
    kvik_span span = {.size = sizeof span, .ids = ids, .n = 6};
    assert_int_equal(kvik_cache_new(c, &s), 0);
    span.seq = s;
    assert_int_equal(kvik_forward(c, &span, 1, false, NULL), 0);
    assert_int_equal(kvik_cache_export(c, s, &got), 0);
    export.export = *got;
    export.export.size = sizeof export;
    export.behind = 0;
    assert_int_equal(kvik_cache_import(c, &export.export, &copy), 0);
    assert_int_equal(kvik_cache_drop(c, copy), 0);
    export.behind = 1;
    refused(kvik_cache_import(c, &export.export, &copy), KVIK_UNSUPPORTED, "kvik_export", "newer");
    kvik_export_free(got);
    assert_int_equal(kvik_cache_drop(c, s), 0);

    kvik_inputs in = {.size = sizeof in, .ids = ids, .n = 2};
    assert_int_equal(kvik_batch_open(c, 1, &batch), 0);
    assert_int_equal(kvik_batch_forward(batch, &in, NULL), 0);
    assert_int_equal(kvik_batch_to_legacy(batch, &old), 0);
    legacy.legacy = *old;
    legacy.legacy.size = sizeof legacy;
    legacy.behind = 0;
    assert_int_equal(kvik_batch_from_legacy(c, &legacy.legacy, &again), 0);
    kvik_batch_close(again);
    legacy.behind = 1;
    refused(kvik_batch_from_legacy(c, &legacy.legacy, &again), KVIK_UNSUPPORTED, "kvik_legacy",
            "newer");
    kvik_legacy_free(old);
    kvik_batch_close(batch);
}

/* A struct that the library filled in can be passed back as it is. */
static void test_handed_out(void **state)
{
    (void)state;
    kvik_seq s, copy;
    kvik_export *export;
    kvik_span span = {.size = sizeof span, .ids = ids, .n = 6};
    assert_int_equal(kvik_cache_new(c, &s), 0);
    span.seq = s;
    assert_int_equal(kvik_forward(c, &span, 1, false, NULL), 0);
    assert_int_equal(kvik_cache_export(c, s, &export), 0);
    assert_int_equal(export->size, sizeof *export);
    assert_int_equal(kvik_cache_import(c, export, &copy), 0);
    kvik_export_free(export);
    assert_int_equal(kvik_cache_length(c, copy), 6);
    assert_int_equal(kvik_cache_drop(c, copy), 0);
    assert_int_equal(kvik_cache_drop(c, s), 0);
}

/* A struct that ends inside a pointer: the half of the pointer is not read. */
static void test_cut(void **state)
{
    (void)state;
    static const size_t cut[] = {12, 16, 20, 28, offsetof(kvik_prompt, seq) + 4};
    kvik_generation g;
    kvik_result *r;
    kvik_span span = {.ids = ids, .n = 4};
    assert_int_equal(kvik_generation_init(&g, m), 0);
    assert_int_equal(kvik_cache_new(c, &span.seq), 0);
    for (size_t i = 0; i < countof(cut); i++) {
        unsigned char half[64];
        memset(half, JUNK, sizeof half);
        memcpy(half, &cut[i], sizeof cut[i]);
        refused(kvik_generate(c, &g, (const kvik_prompt *)(const void *)half, 1, NULL, &r),
                KVIK_ARG, "kvik_prompt.size", "sizeof(kvik_prompt)");
        refused(kvik_forward(c, (const kvik_span *)(const void *)half, 1, false, NULL), KVIK_ARG,
                "kvik_span.size", "sizeof(kvik_span)");
    }
    assert_int_equal(kvik_cache_length(c, span.seq), 0);
    assert_int_equal(kvik_cache_drop(c, span.seq), 0);
    kvik_generation_done(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config),     cmocka_unit_test(test_usage),
        cmocka_unit_test(test_spans),      cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_generation), cmocka_unit_test(test_sync),
        cmocka_unit_test(test_forgotten),  cmocka_unit_test(test_handed_out),
        cmocka_unit_test(test_cut),        cmocka_unit_test(test_older),
        cmocka_unit_test(test_newer),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

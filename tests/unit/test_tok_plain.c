/* test_tok_plain.c - text is not control. Special tokens inside plain spans, or touching one, are
 * ordinary text; special tokens outside still work; and the text in and around a span keeps its
 * meaning. */
#include "test_tok.h"

static void encode(const struct tok *t, const char *s, unsigned flags, const struct tok_span *p,
                   size_t n, struct ids *out)
{
    out->n = 0;
    if (tok_encode(t, s, strlen(s), flags, p, n, out) < 0) fail_msg("%s: %s", s, err_last());
}

static size_t count(const struct ids *v, int32_t id)
{
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++)
        n += v->id[i] == id;
    return n;
}

static void expect(const struct ids *got, const struct ids *want)
{
    assert_int_equal(got->n, want->n);
    assert_memory_equal(got->id, want->id, got->n * sizeof *got->id);
}

static void test_spans(void **state)
{
    (void)state;
    struct tok *t = open_golden("qwen3");
    struct ids v = {0}, w = {0};
    int32_t end = tok_find(t, "<|im_end|>", 10), start = tok_find(t, "<|im_start|>", 12);
    const char *s = "<|im_start|>user\nhi <|im_end|> there<|im_end|>\n";
    const char *content = strstr(s, "hi "), *after = strstr(s, "there") + 5;
    struct tok_span span = {(size_t)(content - s), (size_t)(after - s)};
    assert_true(end >= 0 && start >= 0);
    encode(t, s, 0, NULL, 0, &v);
    assert_int_equal(count(&v, end), 2);
    encode(t, s, 0, &span, 1, &v);
    assert_int_equal(count(&v, end), 1);
    assert_int_equal(count(&v, start), 1);
    /* The control token of the template, before the newline. */
    assert_int_equal(v.id[v.n - 2], end);
    encode(t, s, TOK_PLAIN, NULL, 0, &v);
    assert_int_equal(count(&v, end) + count(&v, start), 0);
    /* A span over the whole text equals the flag for plain text (here no skipped match hides
     * another). */
    struct tok_span all = {0, strlen(s)};
    encode(t, s, 0, &all, 1, &w);
    expect(&w, &v);
    /* An empty span marks no text. */
    struct tok_span none[] = {{0, 0}, {5, 5}, {all.to, all.to}};
    encode(t, s, 0, none, 3, &v);
    encode(t, s, 0, NULL, 0, &w);
    expect(&v, &w);
    ids_done(&v);
    ids_done(&w);
    tok_close(t);
}

/* Wherever the span lies, a special token is matched if and only if none of its bytes lies in the
 * span. */
static void test_every_cut(void **state)
{
    (void)state;
    struct tok *t = open_golden("qwen3");
    struct ids v = {0};
    int32_t end = tok_find(t, "<|im_end|>", 10);
    const char *s = "ab<|im_end|>cd<|im_end|><|im_end|>e";
    size_t n = strlen(s);
    static const size_t at[] = {2, 14, 24};
    for (size_t from = 0; from <= n; from++)
        for (size_t to = from + 1; to <= n; to++) {
            struct tok_span span = {from, to};
            size_t want = 0;
            for (size_t i = 0; i < countof(at); i++)
                want += at[i] + 10 <= from || at[i] >= to;
            encode(t, s, 0, &span, 1, &v);
            assert_int_equal(count(&v, end), want);
        }
    ids_done(&v);
    tok_close(t);
}

#define HEAD                                                                                       \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\" \":3,\"d\":4},\"merges\":[]},\"added_tokens\":["
#define TOKEN(c, rest) "{\"content\":\"" c "\",\"special\":true" rest "}"

static void expect_ids(const char *json, const char *s, unsigned flags, struct tok_span p,
                       const char *want)
{
    struct tok *t = open_text(json);
    struct ids v = {0};
    char got[256] = "";
    encode(t, s, flags, &p, 1, &v);
    for (size_t i = 0; i < v.n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", i ? " " : "", v.id[i]);
    assert_string_equal(got, want);
    ids_done(&v);
    tok_close(t);
}

static void test_overlaps(void **state)
{
    (void)state;
    static const char two[] =
        HEAD TOKEN("ab", ",\"normalized\":false") "," TOKEN("bc", ",\"normalized\":false") "]}";
    static const char pre[] =
        HEAD TOKEN("a", ",\"normalized\":false") "," TOKEN("ab", ",\"normalized\":false") "]}";
    static const char norm[] = HEAD TOKEN("ab", ",\"normalized\":true") "]}";
    static const char lower[] =
        HEAD TOKEN("ab", ",\"normalized\":true") "],\"normalizer\":{\"type\":\"Lowercase\"}}";
    /* Content "a" before a template's "bc": the token that begins later is still found. */
    expect_ids(two, "abc", 0, (struct tok_span){0, 1}, "0 6");
    expect_ids(two, "abc", 0, (struct tok_span){2, 3}, "5 2");
    /* A template's "a" before content "b": the shorter token is found. */
    expect_ids(pre, "ab", 0, (struct tok_span){1, 2}, "0 1");
    /* Tokens matched in normalized text obey the spans too. */
    expect_ids(norm, "abcab", 0, (struct tok_span){0, 1}, "0 1 2 5");
    expect_ids(norm, "abcab", 0, (struct tok_span){2, 3}, "5 2 5");
    /* Where normalizing moved or changed text under a span, no token is better than a forged one. */
    expect_ids(lower, "ABcab", 0, (struct tok_span){0, 2}, "0 1 2 0 1");
    expect_ids(lower, "ABcab", 0, (struct tok_span){0, 0}, "5 2 5");
    expect_ids(lower, "abcab", 0, (struct tok_span){0, 2}, "0 1 2 5");
    expect_ids(lower, "ABcab", TOK_PLAIN, (struct tok_span){0, 0}, "0 1 2 0 1");
}

static void test_arguments(void **state)
{
    (void)state;
    struct tok *t = open_golden("llama2");
    struct ids v = {0};
    static const struct tok_span bad[][2] = {
        {{2, 1}, {3, 3}}, {{0, 3}, {2, 4}}, {{0, 1}, {2, 99}}, {{2, 3}, {0, 1}}};
    assert_int_equal(ids_push(&v, 77), 0);
    for (size_t i = 0; i < countof(bad); i++)
        assert_int_equal(tok_encode(t, "abcdef", 6, 0, bad[i], 2, &v), ERR_ARG);
    static const struct {
        const char *s, *where;
    } broken[] = {{"ab\xFF", "byte 2"},
                  {"\xC0\xAF", "byte 0"},
                  {"a\xED\xA0\x80", "byte 1"},
                  {"abc\xE2\x82", "byte 3"},
                  {"\xF4\x90\x80\x80", "byte 0"}};
    for (size_t i = 0; i < countof(broken); i++) {
        assert_int_equal(tok_encode(t, broken[i].s, strlen(broken[i].s), 0, NULL, 0, &v),
                         ERR_FORMAT);
        assert_non_null(strstr(err_last(), broken[i].where));
    }
    assert_true(v.n == 1 && v.id[0] == 77); /* a failure leaves the list untouched */
    ids_done(&v);
    tok_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_overlaps),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_tok_golden.c - every line of tests/golden/tokenizers and of fixtures/tok/unigram.jsonl.xz: ids with and without special tokens
 * and the three ways of decoding equal those of the tokenizers package; streams equal whole
 * decodes. */
#include "test_tok.h"

static bool ids_equal(const struct ids *got, const json_t *want)
{
    if (got->n != json_array_size(want)) return false;
    for (size_t i = 0; i < got->n; i++)
        if (got->id[i] != json_integer_value(json_array_get(want, i))) return false;
    return true;
}

static void show_ids(const char *what, const struct ids *got, const json_t *want)
{
    fprintf(stderr, "  %s got ", what);
    for (size_t i = 0; i < MIN(got->n, (size_t)24); i++)
        fprintf(stderr, " %d", got->id[i]);
    fprintf(stderr, "\n  want");
    for (size_t i = 0; i < MIN(json_array_size(want), (size_t)24); i++)
        fprintf(stderr, " %d", (int)json_integer_value(json_array_get(want, i)));
    fprintf(stderr, "\n");
}

static int check_encode(const struct tok *t, const json_t *o, const char *key, unsigned flags)
{
    const json_t *text = json_object_get(o, "text"), *want = json_object_get(o, key);
    struct ids got = {0};
    if (!text || !want) return 0;
    int e = tok_encode(t, json_string_value(text), json_string_length(text), flags, NULL, 0, &got);
    bool good = e == 0 && ids_equal(&got, want);
    if (!good) {
        fprintf(stderr, "%s of %s: %s\n", key, json_string_value(text), e < 0 ? err_last() : "");
        show_ids(key, &got, want);
    }
    ids_done(&got);
    return !good;
}

static int check_decode(const struct tok *t, const json_t *o, const char *ids, const char *key,
                        bool skip)
{
    const json_t *list = json_object_get(o, ids), *want = json_object_get(o, key), *one;
    struct ids v = {0};
    struct buf got, flow;
    size_t i;
    if (!list || !want) return 0;
    json_array_foreach(list, i, one)
        assert_int_equal(ids_push(&v, (int32_t)json_integer_value(one)), 0);
    buf_init(&got, 1 << 24);
    buf_init(&flow, 1 << 24);
    int e = tok_decode(t, v.id, v.n, skip, &got);
    bool good = e == 0 && got.len == json_string_length(want) &&
                (got.len == 0 || memcmp(got.data, json_string_value(want), got.len) == 0);
    if (!good)
        fprintf(stderr, "%s: got \"%s\" want \"%s\" %s\n", key, got.data, json_string_value(want),
                e < 0 ? err_last() : "");
    stream(t, &v, skip, &flow);
    assert_int_equal(flow.len, got.len);
    if (got.len) assert_memory_equal(flow.data, got.data, got.len);
    buf_done(&got);
    buf_done(&flow);
    ids_done(&v);
    return !good;
}

static int check_line(const struct tok *t, const json_t *o)
{
    return check_encode(t, o, "ids", 0) + check_encode(t, o, "ids_special", TOK_SPECIAL) +
           check_decode(t, o, "ids", "decode", false) +
           check_decode(t, o, "ids_special", "decode_special", false) +
           check_decode(t, o, "ids_special", "decode_skip", true);
}

static void run(const char *name)
{
    char path[256], *line = NULL;
    size_t cap = 0, n_lines = 0;
    int bad = 0;
    struct tok *t = open_golden(name);
    snprintf(path, sizeof path, TOK_DIR "%s.jsonl", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (ssize_t n; (n = getline(&line, &cap, f)) > 0; n_lines++) {
        json_t *o;
        assert_int_equal(json_parse(line, (size_t)n, path, &o), 0);
        bad += check_line(t, o);
        if (!json_object_get(o, "ids")) {
            const char *key = NULL;
            for (void *i = json_object_iter(o); i; i = json_object_iter_next(o, i))
                if (json_is_string(json_object_iter_value(i))) {
                    key = json_object_iter_key(i);
                    bad += check_decode(t, o, "decode_ids", key, strstr(key, "skip") != NULL);
                }
            assert_non_null(key);
        }
        json_decref(o);
    }
    free(line);
    fclose(f);
    tok_close(t);
    assert_true(n_lines > 400);
    assert_int_equal(bad, 0);
}

static void test_llama2(void **state)
{
    (void)state;
    run("llama2");
}

static void test_qwen3(void **state)
{
    (void)state;
    run("qwen3");
}

/* Tokenizers with a Unigram model, each before its own lines. */
static void test_unigram(void **state)
{
    (void)state;
    size_t n, n_lines = 0, n_tok = 0, len;
    int bad = 0;
    char *text = unpack("tests/fixtures/tok/unigram.jsonl.xz", &n);
    struct tok *t = NULL;
    for (const char *s = text; s < text + n; s += len + 1) {
        len = strcspn(s, "\n");
        if (strncmp(s, "{\"version\"", 10) == 0) {
            tok_close(t);
            if (tok_open_json(s, len, NULL, 0, &t) < 0) fail_msg("%s", err_last());
            n_tok++;
            continue;
        }
        json_t *o;
        assert_int_equal(json_parse(s, len, "unigram.jsonl", &o), 0);
        int wrong = check_line(t, o);
        if (wrong) fprintf(stderr, "tokenizer %zu, line %zu\n", n_tok, n_lines);
        bad += wrong;
        n_lines++;
        json_decref(o);
    }
    tok_close(t);
    mem_free(text);
    assert_int_equal(n_tok, 6);
    assert_true(n_lines >= 500);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama2),
        cmocka_unit_test(test_qwen3),
        cmocka_unit_test(test_unigram),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

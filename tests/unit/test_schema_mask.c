/* test_schema_mask.c - masks over a real vocabulary: each token's bit says what stepping through its bytes says, and what is
 * allowed can be completed.  KVIK_TEST_LONG=1: more states. */
#include "fmt/fmt.h"
#include "generate/chain.h"
#include "schema/schema.h"
#include "testing.h"
#include "tok/tok.h"

static const char *const schemas[] = {
    "true",
    "json_object",
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":9},\"age\":{\"type\":\"integer\",\"minimum\":0,"
    "\"maximum\":120},\"kind\":{\"enum\":[\"person\",\"place\",\"thing\"]},\"at\":{\"type\":\"array\",\"items\":{\"type\":"
    "\"number\"},\"maxItems\":2}},\"required\":[\"name\",\"kind\"],\"additionalProperties\":false}",
    "{\"type\":\"array\",\"items\":{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},"
    "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":2},\"b\":{\"type\":\"string\",\"pattern\":\"^[a-z ]+$\"}},"
    "\"required\":[\"a\",\"b\"]}]},\"minItems\":1}",
    "{\"type\":\"string\",\"minLength\":3,\"maxLength\":70}",
};

static uint32_t draw(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(*seed >> 4) * n >> 28);
}

/* Returns a random token of a mask. */
static int32_t pick(const uint64_t *bits, uint32_t n, uint32_t *seed)
{
    uint32_t at = draw(seed, n);
    for (uint32_t i = 0; i < n; i++, at = at + 1 < n ? at + 1 : 0)
        if (bits[at / 64] >> (at % 64) & 1) return (int32_t)at;
    return -1;
}

static void compare(struct matcher *m, uint32_t state, const uint64_t *bits, uint32_t n)
{
    uint32_t next;
    uint64_t *copy = calloc(n / 64 + 1, sizeof *copy);
    memcpy(copy, bits, (n / 64 + 1) * sizeof *copy);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(matcher_token(m, state, (int32_t)i, &next), 0);
        if ((copy[i / 64] >> (i % 64) & 1) != (next != 0))
            fail_msg("token %u: the mask is wrong", i);
    }
    free(copy);
}

static void walk(struct matcher *m, const struct tok *tok, uint32_t *seed, bool whole)
{
    uint32_t n = tok_size(tok), state = matcher_start(m), age = matcher_age(m);
    const uint64_t *bits;
    for (int step = 0; step < 40; step++) {
        assert_int_equal(matcher_mask(m, state, &bits), 0);
        int32_t id = pick(bits, n, seed);
        if (id < 0) {
            assert_true(matcher_accepts(m, state));
            return;
        }
        if (whole && step % 5 == 0) compare(m, state, bits, n);
        if (matcher_age(m) != age) return; /* the numbers of states are void */
        assert_int_equal(matcher_token(m, state, id, &state), 0);
        age = matcher_age(m);
        assert_int_not_equal(state, 0);
    }
}

static void masks(void **state)
{
    const struct tok *tok = *state;
    const struct lexicon *l;

    uint32_t seed = 5, walks = getenv("KVIK_TEST_LONG") ? 200 : 20;
    if (!tok) skip();
    assert_int_equal(gen_lexicon(tok, &l), 0);
    for (size_t i = 0; i < countof(schemas); i++) {
        struct schema *s;
        struct matcher *m;
        assert_int_equal(schema_compile_text(schemas[i], "json_schema", &s), 0);
        assert_int_equal(matcher_new(s, l, &m), 0);
        for (uint32_t k = 0; k < walks; k++)
            walk(m, tok, &seed, k % 10 == 0);
        matcher_drop(m);
        schema_drop(s);
    }
}

/* A state found from the tokens of a text is the one that stepping leads to, also after the text changed. */
static void found(void **state)
{
    const struct tok *tok = *state;
    const struct lexicon *l;

    struct schema *s;
    struct matcher *m;
    struct ids ids = {0};
    uint32_t at, same;
    static const char text[] = "{\"a\": [1, 2, {\"b\": \"some words\"}], \"c\": null}";
    if (!tok) skip();
    assert_int_equal(gen_lexicon(tok, &l), 0);
    assert_int_equal(schema_compile_text("json_object", "json_schema", &s), 0);
    assert_int_equal(matcher_new(s, l, &m), 0);
    assert_int_equal(tok_encode(tok, text, strlen(text), 0, NULL, 0, &ids), 0);
    at = matcher_start(m);
    for (size_t i = 0; i < ids.n; i++) {
        assert_int_equal(matcher_find(m, ids.id, i, &same), 0);
        assert_int_equal(same, at);
        assert_int_equal(matcher_token(m, at, ids.id[i], &at), 0);
    }
    assert_true(matcher_accepts(m, at));
    int32_t last = ids.id[ids.n - 1];
    ids.id[ids.n - 1] = ids.id[0];
    assert_int_equal(matcher_find(m, ids.id, ids.n, &same), 0);
    assert_int_not_equal(same, at);
    ids.id[ids.n - 1] = last;
    assert_int_equal(matcher_find(m, ids.id, ids.n, &same), 0);
    assert_int_equal(same, at);
    ids_done(&ids);
    matcher_drop(m);
    schema_drop(s);
}

static int open_tok(void **state)
{
    struct gguf *g;
    struct tok *tok = NULL;
    if (test_model()) {
        assert_int_equal(gguf_open(test_model(), &g), 0);
        assert_int_equal(tok_open_gguf(g, &tok), 0);
        gguf_close(g);
    }
    *state = tok;
    return 0;
}

static int close_tok(void **state)
{
    tok_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(masks), cmocka_unit_test(found)};
    return cmocka_run_group_tests(tests, open_tok, close_tok);
}

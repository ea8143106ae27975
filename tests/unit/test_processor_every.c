/* test_processor_every.c - the requirements on every registered logits processor, found by the registry: the table of options
 * reaches it, it has a place of its own, a step allocates nothing and leaves nothing behind, and filters of sampling leave
 * tokens to draw from. */
#include "generate/chain.h"
#include "testing.h"
#include "tok/tok.h"

#include <math.h>

extern const struct gen_processor *const __start_kvik_processor[];
extern const struct gen_processor *const __stop_kvik_processor[];

enum { MOST = 300, TEXT = 12 };
static bool reached[GEN_MAX_PROCESSORS * 2];

static uint32_t registered(void)
{
    return (uint32_t)(__stop_kvik_processor - __start_kvik_processor);
}

/* Writes the k-th value of an option as JSON; false: there are fewer. */
static bool value_of(const kvik_option *o, uint32_t k, char *out, size_t n)
{
    const double at[] = {o->min, o->max, (o->min + o->max) / 2, 1, 2, 0.5, o->min + 0.0625, 0.9};
    static const char *const lists[][2] = {{"bool", "true"},
                                           {"choice", "true"},
                                           {"ids", "5"},
                                           {"lists", "[[5], [6, 0]]"},
                                           {"biases", "[[[3], 0.5], [[1, 3], -7]]"},
                                           {"schema", "\"json_object\""},
                                           {"pair", "[2, 1.5]"}};
    for (size_t i = 0; i < countof(lists); i++)
        if (strcmp(o->type, lists[i][0]) == 0) return snprintf(out, n, "%s", lists[i][1]), k == 0;
    bool whole = strcmp(o->type, "uint") == 0 || strcmp(o->type, "int") == 0;
    if (k >= countof(at) || (!whole && strcmp(o->type, "float") != 0)) return false;
    snprintf(out, n, whole ? "%.0f" : "%.9g", whole ? floor(at[k]) : at[k]);
    return true;
}

/* shape 0: smooth, 1: ties, 2: one likely token, 3: all equal, 4: few that can be drawn, 5: none, 6: with NaN, 7: with +inf */
static void fill(float *x, uint32_t n, int shape)
{
    uint32_t seed = 7;
    for (uint32_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / (float)(1 << 20) - 8;
        if (shape == 1) x[i] = floorf(x[i]);
        if (shape == 2 && i == n / 2) x[i] = 90;
        if (shape == 3) x[i] = 1;
        if (shape == 5 || (shape == 4 && i % 31)) x[i] = -INFINITY;
        if (shape == 6 && i % 3 == 0) x[i] = NAN;
        if (shape == 7 && i % 50 == 9) x[i] = INFINITY;
    }
}

static uint32_t drawable(const float *x, uint32_t n)
{
    uint32_t can = 0;
    for (uint32_t i = 0; i < n; i++)
        can += x[i] > -INFINITY;
    return can;
}

/* Notes which processors a chain has.  Returns true if all of them are filters of sampling. */
static bool note(const struct gen_chain *c)
{
    bool filters = true;
    for (uint32_t i = 0; i < c->n; i++) {
        filters &= c->processor[i]->sampling;
        for (uint32_t k = 0; k < registered(); k++)
            reached[k] |= __start_kvik_processor[k] == c->processor[i];
    }
    return filters;
}

/* Tokens of one character each; some are braces. */
static struct tok *tok;
static int open_tok(void **state)
{
    static const char json[] =
        "{\"added_tokens\": [], \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", "
        "\"merges\": [], \"vocab\": {\"{\": 0, \"}\": 1, \"\\\"\": 3, \"a\": 4, \":\": 5, \"1\": 6}}}";
    (void)state;
    return tok_open_json(json, strlen(json), NULL, 0, &tok);
}

static int close_tok(void **state)
{
    (void)state;
    tok_close(tok);
    return 0;
}

/* True if a processor can end a generation for want of tokens. */
static bool strict(const struct gen_chain *c)
{
    return c->g.json_schema != NULL;
}

static void apply(struct gen_chain *c, const char *what, int shape, bool filters)
{
    static const int32_t ids[TEXT] = {1, 5, 3, 1, 5, 3, 290, 4000, -1, 1, 5, 3}, chosen[2] = {3, 0};
    const struct gen_row row = {.ids = ids,
                                .n = TEXT,
                                .n_prompt = 4,
                                .chosen = chosen,
                                .n_chosen = 2,
                                .max_length = TEXT + 9};
    float from[MOST], a[MOST], b[MOST];
    fill(from, c->vocab, shape);
    memcpy(a, from, sizeof a);
    memcpy(b, from, sizeof b);
    uint64_t before = mem_calls();
    int e = gen_chain_apply(c, &row, a);
    if (!strict(c)) assert_int_equal(e, 0);
    assert_int_equal(gen_chain_apply(c, &row, b), e);
    if (mem_calls() != before) fail_msg("%s: a step allocates", what);
    if (memcmp(a, b, c->vocab * sizeof *a) != 0) fail_msg("%s: a step changes the next one", what);
    for (uint32_t i = 0; i <= c->vocab / 64; i++)
        if (c->seen[i]) fail_msg("%s: tokens are still marked as seen", what);
    if (!filters) return;
    uint32_t can = drawable(from, c->vocab), left = drawable(a, c->vocab);
    /* that of Transformers leaves one token to beams, too */
    uint32_t keep = strstr(what, "top_h") ? 1 : c->keep;
    if (left < MIN(can, keep))
        fail_msg("%s, row %d: %u of %u tokens are left", what, shape, left, can);
    for (uint32_t i = 0; i < c->vocab; i++)
        if (a[i] > -INFINITY && !(from[i] > -INFINITY)) fail_msg("%s: token %u has come", what, i);
}

static void try(const char *base, const kvik_option *o, const char *value)
{
    static const uint32_t vocab[] = {1, 7, MOST};
    char what[256];
    kvik_generation g;
    gen_defaults(&g);
    snprintf(what, sizeof what, "{\"%s\": %s}", o->name, value);
    assert_int_equal(kvik_generation_set(&g, base), 0);
    if (kvik_generation_set(&g, what) >= 0 && gen_validate(&g) >= 0)
        for (size_t v = 0; v < countof(vocab); v++) {
            struct gen_chain *c;
            if (gen_chain_new(&g, vocab[v], tok, &c) < 0) continue; /* ids outside the vocabulary */
            bool filters = note(c);
            for (int shape = 0; shape < 8; shape++)
                apply(c, what, shape, filters);
            gen_chain_drop(c);
        }
    kvik_generation_done(&g);
}

/* Each numeric option in turn has several values of its range, every other kind one. */
static void options(void **state)
{
    (void)state;
    static const char *const base[] = {
        "{\"do_sample\": true, \"top_k\": 0}", "{\"eos_token_id\": 2}",
        "{\"do_sample\": true, \"top_k\": 0, \"num_beams\": 3, \"eos_token_id\": 2}",
        "{\"num_beams\": 4, \"num_beam_groups\": 2}"};
    const kvik_option *o;
    char value[64];
    for (uint32_t i = 0; (o = kvik_option_at(i)); i++)
        for (uint32_t k = 0; value_of(o, k, value, sizeof value); k++)
            for (size_t b = 0; b < countof(base); b++)
                try(base[b], o, value);
    for (uint32_t k = 0; k < registered(); k++)
        if (!reached[k]) fail_msg("no option reaches %s", __start_kvik_processor[k]->name);
}

static void places(void **state)
{
    (void)state;
    assert_in_range(registered(), 1, GEN_MAX_PROCESSORS);
    for (uint32_t i = 0; i < registered(); i++)
        for (uint32_t k = 0; k < i; k++) {
            const struct gen_processor *a = __start_kvik_processor[i],
                                       *b = __start_kvik_processor[k];
            if (a->order == b->order) fail_msg("%s and %s have one place", a->name, b->name);
            if (!strcmp(a->name, b->name)) fail_msg("two processors are called %s", a->name);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(options), cmocka_unit_test(places)};
    return cmocka_run_group_tests(tests, open_tok, close_tok);
}

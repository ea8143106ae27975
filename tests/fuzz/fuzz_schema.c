/* fuzz_schema.c - any text as a JSON schema, or behind an R as a regular expression.  What compiles must lead every random text
 * to a whole value: a mask is never empty before one, and agrees with the steps. */
#include "fuzz.h"

#include "schema/dfa.h"
#include "schema/schema.h"

#include <stdlib.h>
#include <string.h>

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) abort();                                                                         \
    } while (0)

enum { STEPS = 200 };

static const char all[] = "{}[]:,\"\\ \n\t0123456789-+.eEabcdxyztrufalsn\xc3\xa9\xf0\x9f\x98\x80";

static int one_byte(void *ctx, int32_t id, const char **s, size_t *n)
{
    (void)ctx;
    *s = all + id;
    *n = 1;
    return 0;
}

static void walk(const struct schema *s, const struct lexicon *l, uint32_t seed)
{
    struct matcher *m;
    const uint64_t *bits;
    MUST(matcher_new(s, l, &m) == 0);
    uint32_t state = matcher_start(m);
    for (int i = 0; i < STEPS; i++) {
        int e = matcher_mask(m, state, &bits);
        if (e == ERR_LIMIT) break;
        MUST(e == 0);
        uint64_t may = bits[0];
        bool whole = matcher_accepts(m, state);
        MUST(may || whole || i > 0); /* a value may need a character that the vocabulary lacks */
        if (!may) break;
        seed = seed * 1664525u + 1013904223u;
        int32_t id = (int32_t)(seed >> 26);
        while (!(may >> id & 1))
            id = (id + 1) % 64;
        if ((e = matcher_token(m, state, id, &state)) == ERR_LIMIT) break;
        MUST(e == 0 && state);
    }
    matcher_drop(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct lexicon *l;
    struct schema *s;
    char *text = malloc(size + 1);
    if (!l) MUST(lexicon_new(sizeof all - 1, one_byte, NULL, &l) == 0);
    memcpy(text, data, size);
    text[size] = 0;
    if (size && *text == 'R') {
        struct nfa a = {0};
        struct dfa *d = NULL;
        dfa_budget();
        int e = nfa_regex(&a, text + 1, strlen(text + 1), 0, "fuzz");
        if (e >= 0) e = nfa_determine(&a, NULL, &d);
        MUST(e >= 0 || *err_last());
        nfa_done(&a);
        dfa_drop(d);
    } else if (schema_compile_text(text, "fuzz", &s) >= 0) {
        walk(s, l, (uint32_t)size);
        schema_drop(s);
    } else {
        MUST(*err_last());
    }
    free(text);
    return 0;
}

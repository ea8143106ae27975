/* fuzz_options.c - any text as generation options: a request's (strict) and a model file's.  Whatever is accepted must
 * be a config that a run can use or that gen_validate refuses; whatever is not must change nothing. */
#include "fuzz.h"

#include "base/json.h"
#include "generate/chain.h"
#include "generate/options.h"

#include <stdlib.h>
#include <string.h>

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) abort();                                                                         \
    } while (0)

/* One step of generation under an accepted config. */
static void use(const kvik_generation *g)
{
    enum { VOCAB = 40 };
    float scores[VOCAB];
    int32_t ids[6] = {0, 3, 39, 40, -1, 7};
    struct gen_chain *c;
    struct gen_stop *stop = NULL;
    size_t keep = 0;
    if (gen_validate(g) < 0) return;
    for (int i = 0; i < VOCAB; i++)
        scores[i] = (float)(i * 37 % VOCAB) * 0.3f - 4;
    MUST(gen_chain_new(g, VOCAB, &c) == 0);
    struct gen_row row = {.ids = ids, .n = countof(ids), .n_prompt = 3, .max_length = 7};
    MUST(gen_chain_apply(c, &row, scores) <= 0);
    int32_t id = g->do_sample ? gen_sample(c, scores, g->seed, 1, 2) : gen_argmax(scores, VOCAB);
    MUST(id >= 0 && id < VOCAB);
    gen_chain_drop(c);
    MUST(gen_stop_new(g->stop_strings, g->n_stop_strings, &stop) == 0);
    if (gen_stop_put(stop, "one\ntwo, three", 14, &keep)) MUST(keep >= 1 && keep <= 14);
    gen_stop_drop(stop);
}

static void apply(const char *text, size_t n, bool strict)
{
    kvik_generation g, before;
    json_t *o;
    gen_defaults(&g);
    MUST(kvik_generation_set(
             &g, "{\"stop_strings\": [\"x\"], \"cache_implementation\": \"static\"}") == 0);
    memcpy(&before, &g, sizeof g);
    if (json_parse(text, n, "fuzz", &o) == 0) {
        if (gen_apply(&g, o, "fuzz", strict) < 0)
            MUST(memcmp(&before, &g, sizeof g) == 0 && err_last()[0]);
        else
            use(&g);
        json_decref(o);
    }
    gen_done(&g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char word[48];
    size_t n = size < sizeof word - 1 ? size : sizeof word - 1;
    apply((const char *)data, size, true);
    apply((const char *)data, size, false);
    memcpy(word, data, n);
    word[n] = 0;
    (void)kvik_option_nearest(word);
    return 0;
}

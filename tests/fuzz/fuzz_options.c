/* fuzz_options.c - any text as generation options: those of a request (strict) and those of a model
 * file. Accepted options must give a configuration that a run can use or that gen_validate refuses.
 * Refused options must change nothing. */
#include "fuzz.h"

#include "base/json.h"
#include "generate/chain.h"
#include "generate/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) abort();                                                                         \
    } while (0)

enum { VOCAB = 40 };

/* Runs some steps of one batch row under an accepted configuration. Scores of every kind go in; a
 * token of the vocabulary must come out, and the chain's scratch must be as clean as before. */
static void choose(struct gen_chain *c, const kvik_generation *g)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 0, -0.0f, 1e30f, -1e30f};
    int32_t ids[9] = {0, 3, 39, 40, -1, 7, 3, 39, 3}, chosen[] = {3, 3, 50};
    float scores[VOCAB];
    for (size_t n = 1; n <= countof(ids); n++) {
        struct gen_row row = {.ids = ids,
                              .n = n,
                              .n_prompt = n < 4 ? n : 4,
                              .pad = n % 3,
                              .max_length = 8,
                              .chosen = chosen,
                              .n_chosen = (uint32_t)(n % 4)};
        for (int i = 0; i < VOCAB; i++)
            scores[i] = n == 3   ? odd[i % 7]
                        : n == 4 ? -INFINITY
                                 : (float)(i * 37 % VOCAB) * 0.3f - 4;
        MUST(gen_chain_apply(c, &row, scores) == 0);
        int32_t id = g->do_sample ? gen_sample(c, scores, g->seed, 1, (uint32_t)n)
                                  : gen_argmax(scores, VOCAB);
        MUST(id >= 0 && id < VOCAB);
        for (size_t i = 0; i <= VOCAB / 64; i++)
            MUST(c->seen[i] == 0);
    }
}

static void use(const kvik_generation *g)
{
    struct gen_chain *c = NULL;
    struct gen_stop *stop = NULL;
    size_t keep = 0;
    if (gen_validate(g) < 0) {
        MUST(err_last()[0]);
        return;
    }
    enum gen_mode mode = gen_mode(g);
    MUST((mode == GEN_BEAM || mode == GEN_BEAM_SAMPLE || mode == GEN_GROUP_BEAM) ==
         (g->num_beams > 1));
    MUST(!gen_assisted(g, true) || mode == GEN_GREEDY || mode == GEN_SAMPLE);
    int e = gen_chain_new(g, VOCAB, NULL, &c);
    MUST(e == 0 || (e == ERR_ARG && !c)); /* an id outside the vocabulary */
    if (!e) choose(c, g);
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
    MUST(kvik_generation_set(&g,
                             "{\"stop_strings\": [\"x\"], \"cache_implementation\": \"static\", "
                             "\"bad_words_ids\": [[1, 2]], \"sequence_bias\": [[[3], 1]], "
                             "\"suppress_tokens\": [4], \"negative_prompt_ids\": [5]}") == 0);
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

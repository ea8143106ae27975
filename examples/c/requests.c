/* requests.c - three requests with different settings join and leave one batch: greedy decoding, sampling with a seed, and a
 * beam search.  Each gives the tokens it gives alone; the program checks that.
 *     requests MODEL */
#include <kvik_loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REQUESTS = 3 };

static const struct {
    const char *name, *options, *text;
    int joins; /* the step in which the request joins */
} plan[REQUESTS] = {
    {"greedy", "{\"max_new_tokens\": 24}", "The sea is", 0},
    {"sampled", "{\"max_new_tokens\": 16, \"do_sample\": true, \"top_p\": 0.9, \"seed\": 7}",
     "Once upon a time", 4},
    {"beams", "{\"max_new_tokens\": 12, \"num_beams\": 4}", "A list of three fruits:", 8},
};

static void die(const char *what)
{
    fprintf(stderr, "requests: %s: %s\n", what, kvik_last_error());
    exit(1);
}

static bool same(const kvik_result *a, const kvik_result *b)
{
    size_t n = a->row[0]->n;
    return n == b->row[0]->n && memcmp(a->row[0]->ids, b->row[0]->ids, n * sizeof(int32_t)) == 0;
}

int main(int argc, char **argv)
{
    kvik_model *model;
    kvik_cache *cache;
    kvik_generation g[REQUESTS];
    kvik_prompt prompt[REQUESTS];
    kvik_request *request[REQUESTS] = {NULL};
    int32_t *ids[REQUESTS];
    int left = REQUESTS, different = 0;

    if (argc < 2) return fprintf(stderr, "usage: requests MODEL\n"), 2;
    if (kvik_model_open(argv[1], &model) < 0) die(argv[1]);
    if (kvik_cache_open(model, NULL, &cache) < 0) die("cache");
    const kvik_tokenizer *tok = kvik_model_tokenizer(model);
    for (int i = 0; i < REQUESTS; i++) {
        prompt[i] = (kvik_prompt){.size = sizeof(kvik_prompt)};
        if (kvik_generation_init(&g[i], model) < 0) die("options");
        if (kvik_generation_set(&g[i], plan[i].options) < 0) die("options");
        if (kvik_tokenizer_encode(tok, plan[i].text, strlen(plan[i].text), true, &ids[i],
                                  &prompt[i].n) < 0)
            die("prompt");
        prompt[i].ids = ids[i];
    }

    for (int step = 0; left; step++) {
        kvik_request *batch[REQUESTS];
        uint32_t n = 0;
        for (int i = 0; i < REQUESTS; i++) {
            if (plan[i].joins == step) {
                if (kvik_request_start(cache, &g[i], &prompt[i], 1, NULL, &request[i]) < 0)
                    die(plan[i].name);
                printf("step %d: %s joins\n", step, plan[i].name);
            }
            if (request[i]) batch[n++] = request[i];
        }
        if (kvik_request_step(batch, n) < 0) die("step");
        for (int i = 0; i < REQUESTS; i++) {
            kvik_result *r, *alone;
            if (!request[i] || kvik_request_state(request[i]) == KVIK_RUNNING) continue;
            /* The request has ended or failed. */
            if (kvik_request_end(request[i], &r) < 0) die(plan[i].name);
            kvik_request_free(request[i]);
            request[i] = NULL;
            left--;
            if (kvik_generate(cache, &g[i], &prompt[i], 1, NULL, &alone) < 0) die(plan[i].name);
            different += !same(r, alone);
            printf("step %d: %s leaves, %s: %s%s\n", step, plan[i].name,
                   same(r, alone) ? "as alone" : "NOT AS ALONE", plan[i].text,
                   r->row[0]->text ? r->row[0]->text : "");
            kvik_result_free(alone);
            kvik_result_free(r);
        }
    }
    for (int i = 0; i < REQUESTS; i++) {
        kvik_generation_done(&g[i]);
        kvik_free(ids[i]);
    }
    kvik_cache_close(cache);
    kvik_model_close(model);
    return different != 0;
}

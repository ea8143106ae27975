/* test_told.c - what a program is told while a text is generated: text without its stop string, log-probabilities, and how
 * far a request is. */
#include "requests.h"
#include "toy_tokenizer.h"

#include "generate/driver.h"

#include <math.h>

/* --- Stop strings that are left out. */

struct heard { /* of one run: what on_token was told, and the row's text by then */
    char text[512];
    uint32_t pieces, longest;
    const char *whole; /* the text with its stop string */
    size_t tokens;
};

/* A piece may lag behind the text by less than the longest stop string. */
static bool on_token(void *ctx, uint32_t row, int32_t id, const char *text)
{
    struct heard *h = ctx;
    assert_int_equal(row, 0);
    strncat(h->text, text, sizeof h->text - strlen(h->text) - 1);
    h->pieces++;
    h->tokens += id >= 0;
    size_t told = strlen(h->text), have = 2 * h->tokens; /* letters */
    if (id >= 0 && have < strlen(h->whole)) assert_true(told + h->longest > have);
    return true;
}

static const int32_t prompt[] = {42, 43, 44, 45, 46};

/* Returns the length of the text before the stop string that ends first; of those that end at one place the longest. It may
 * begin in the prompt. */
static size_t before_stop(const char *text, char *const *stop, uint32_t n)
{
    char all[512];
    size_t at = 0;
    for (size_t i = 0; i < countof(prompt); i++) {
        all[at++] = (char)('a' + prompt[i] % 20);
        all[at++] = (char)('a' + prompt[i] / 20);
    }
    snprintf(all + at, sizeof all - at, "%s", text);
    for (size_t end = at + 1; end <= strlen(all); end++) {
        size_t longest = 0;
        for (uint32_t i = 0; i < n; i++) {
            size_t len = strlen(stop[i]);
            if (len <= end && len > longest && memcmp(all + end - len, stop[i], len) == 0)
                longest = len;
        }
        if (longest) return end - at - MIN(longest, end - at);
    }
    return strlen(text);
}

/* Draws 1 to 3 stop strings: pieces of the text, pieces with another last letter, pieces that overlap. */
static void draw_stops(const char *text, uint32_t *seed, char (*room)[16], char **stop, uint32_t *n)
{
    *n = 1 + random_below(seed, 3);
    for (uint32_t i = 0; i < *n; i++) {
        size_t len = 1 + random_below(seed, 7),
               at = random_below(seed, (uint32_t)(strlen(text) - len));
        memcpy(room[i], text + at, len);
        room[i][len] = 0;
        if (random_below(seed, 3) == 0) room[i][len - 1] = '!';
        stop[i] = room[i];
    }
}

static kvik_result *run_with(struct stage *s, struct tok *t, const kvik_generation *g,
                             const kvik_hooks *h)
{
    kvik_prompt p = {.size = sizeof p, .ids = prompt, .n = countof(prompt)};
    kvik_result *r;
    struct gen_call call = {.tok = t, .g = g, .prompt = &p, .n = 1, .hooks = h};
    if (gen_run(s->c->driver, &call, &r) < 0) fail_msg("%s", err_last());
    return r;
}

static void stop_strings(void **state)
{
    (void)state;
    static const char *const json[] = {
        "{\"do_sample\": true, \"top_k\": 8}",
        "{\"prompt_lookup_num_tokens\": 3, \"do_sample\": true, \"top_k\": 3}",
        "{\"penalty_alpha\": 0.4, \"top_k\": 3}", "{\"num_beams\": 3}",
        "{\"num_beams\": 3, \"do_sample\": true, \"top_k\": 8}"};
    struct stage s;
    struct tok *t = toy_pairs('a', 'a');
    uint32_t seed = 9, stopped = 0, held = 0, cut_inside = 0;
    stage_open(&s, (kvik_cache_config){.max_sequences = 16});
    for (uint32_t round = 0; round < 400 / test_share(); round++) {
        const char *options_of = json[round % countof(json)];
        kvik_generation g = options(s.m, options_of);
        char room[3][16], *stop[3];
        bool beams = g.num_beams > 1;
        g.max_new_tokens = 20;
        g.seed = round;
        kvik_result *free_text = run_with(&s, t, &g, NULL);
        uint32_t n;
        draw_stops(free_text->row[0]->text, &seed, room, stop, &n);
        g.stop_strings = stop;
        g.n_stop_strings = n;
        kvik_result *whole = run_with(&s, t, &g, NULL);
        struct heard h = {.whole = whole->row[0]->text};
        for (uint32_t i = 0; i < n; i++)
            h.longest = MAX(h.longest, (uint32_t)strlen(stop[i]));
        kvik_hooks hooks = {.size = sizeof hooks, .on_token = on_token, .ctx = &h};
        g.include_stop_str_in_output = false;
        kvik_result *cut = run_with(&s, t, &g, beams ? NULL : &hooks);
        const kvik_row *a = whole->row[0], *b = cut->row[0];
        assert_int_equal(a->n, b->n);
        assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
        assert_int_equal(a->finish, b->finish);
        size_t len =
            a->finish == KVIK_FINISH_STOP ? before_stop(a->text, stop, n) : strlen(a->text);
        if (strlen(b->text) != len || memcmp(a->text, b->text, len) != 0)
            fail_msg("%s: \"%s\" became \"%s\"", options_of, a->text, b->text);
        if (!beams) assert_string_equal(h.text, b->text);
        stopped += a->finish == KVIK_FINISH_STOP;
        held += a->finish != KVIK_FINISH_STOP;
        cut_inside += len % 2; /* inside a token */
        kvik_result_free(free_text);
        kvik_result_free(whole);
        kvik_result_free(cut);
        g.stop_strings = NULL;
        g.n_stop_strings = 0;
        kvik_generation_done(&g);
    }
    assert_true(stopped > 40 / test_share() && held > 20 / test_share() &&
                cut_inside > 10 / test_share());
    tok_close(t);
    stage_close(&s);
}

/* --- Special tokens that are shown. */

static const int32_t script[] = {3, 4 + 'a', 2, 4 + 'b', 1}; /* <bot>a<user>b</s> */

/* Lets each row say the script. */
static bool dictate(void *ctx, uint32_t row, const int32_t *ids, size_t n, float *scores,
                    uint32_t vocab)
{
    (void)ctx, (void)row, (void)ids;
    size_t at = n - countof(prompt);
    for (uint32_t i = 0; i < vocab; i++)
        scores[i] = at < countof(script) && (int32_t)i == script[at] ? 0 : -INFINITY;
    return true;
}

static bool join(void *ctx, uint32_t row, int32_t id, const char *text)
{
    char *all = ctx;
    (void)row, (void)id;
    strcat(all, text);
    return true;
}

static void shown(void **state)
{
    (void)state;
    static const int32_t bot[] = {3}, both[] = {2, 3};
    static const struct {
        const int32_t *shown;
        uint64_t n;
        const char *text, *stop, *until; /* until: the text with a stop string */
    } cases[] = {{NULL, 0, "ab", "<bot>", "ab"},
                 {bot, 1, "<bot>ab", "t>a", "<bo"},
                 {both, 2, "<bot>a<user>b", "<user>", "<bot>a"}};
    char dir[] = "/tmp/kvik-told-XXXXXX";
    struct stage s;
    struct tok *t;
    assert_non_null(mkdtemp(dir));
    toy_tokenizer(dir, 384);
    if (tok_open_dir(dir, &t) < 0) fail_msg("%s", err_last());
    stage_open(&s, (kvik_cache_config){.max_sequences = 16});
    for (uint32_t i = 0; i < 4 * countof(cases); i++) {
        bool stops = i & 1, beams = i & 2;
        const char *want = stops ? cases[i / 4].until : cases[i / 4].text;
        kvik_generation g = options(s.m, beams ? "{\"num_beams\": 2}" : "{}");
        char all[256] = "", *stop = (char *)(uintptr_t)cases[i / 4].stop;
        kvik_hooks h = {.size = sizeof h,
                        .ctx = all,
                        .on_token = beams ? NULL : join,
                        .logits_processor = dictate,
                        .shown_tokens = cases[i / 4].shown,
                        .n_shown_tokens = cases[i / 4].n};
        g.max_new_tokens = countof(script) - 1;
        g.stop_strings = stops ? &stop : NULL;
        g.n_stop_strings = stops;
        g.include_stop_str_in_output = false;
        kvik_result *r = run_with(&s, t, &g, &h);
        assert_string_equal(r->row[0]->text, want);
        if (!beams) assert_string_equal(all, want);
        kvik_result_free(r);
        g.stop_strings = NULL;
        g.n_stop_strings = 0;
        kvik_generation_done(&g);
    }
    kvik_generation g = options(s.m, "{}");
    kvik_hooks none = {.size = sizeof none, .n_shown_tokens = 1};
    kvik_prompt p = {.size = sizeof p, .ids = prompt, .n = countof(prompt)};
    kvik_result *r;
    assert_int_equal(kvik_generate(s.c, &g, &p, 1, &none, &r), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "shown_tokens is NULL"));
    kvik_generation_done(&g);
    tok_close(t);
    toy_remove(dir);
    stage_close(&s);
}

/* --- Log-probabilities. */

enum { TOP = 5 };
struct told {
    uint32_t n[2], vocab, most;
    kvik_logprob token[2][32][1 + TOP];
};

static bool on_logprobs(void *ctx, uint32_t row, const kvik_logprob *token, uint32_t n)
{
    struct told *t = ctx;
    assert_int_equal(n, 1 + TOP);
    assert_true(row < 2 && t->n[row] < 32);
    memcpy(t->token[row][t->n[row]++], token, n * sizeof *token);
    return t->n[0] + t->n[1] < t->most;
}

/* Compares what was told of a token with its logits. */
static void check_token(const kvik_logprob *told, const float *logits, uint32_t vocab, int32_t id)
{
    double most = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < vocab; i++)
        most = fmax(most, logits[i]);
    for (uint32_t i = 0; i < vocab; i++)
        sum += exp(logits[i] - most);
    assert_int_equal(told[0].id, id);
    for (uint32_t k = 0; k <= TOP; k++)
        assert_true(fabs(told[k].logprob - (logits[told[k].id] - most - log(sum))) < 1e-5);
    for (uint32_t k = 1; k <= TOP; k++) {
        uint32_t before = 0; /* tokens that are more likely, or as likely with a lower id */
        for (uint32_t i = 0; i < vocab; i++)
            before += logits[i] > logits[told[k].id] ||
                      (logits[i] == logits[told[k].id] && (int32_t)i < told[k].id);
        assert_int_equal(before, k - 1);
    }
}

static void logprobs(void **state)
{
    (void)state;
    struct stage s;
    uint32_t told_of = 0;
    stage_open(&s, (kvik_cache_config){.max_sequences = 16});
    for (uint32_t i = 0; i < countof(ways); i++) {
        struct asked *a = ask(&s, i, 10);
        struct told t = {.vocab = s.a[i].want->vocab, .most = UINT32_MAX};
        kvik_result *r;
        bool can = a->g.num_beams == 1 && a->g.penalty_alpha == 0;
        a->hooks.on_logprobs = on_logprobs;
        a->hooks.top_logprobs = TOP;
        a->hooks.ctx = &t;
        if (a->want->n_rows > 2) continue; /* several samples of two prompts */
        int e = kvik_generate(s.c, &a->g, a->prompt, a->n, &a->hooks, &r);
        assert_int_equal(e, can ? 0 : KVIK_UNSUPPORTED);
        if (!can) {
            assert_non_null(strstr(kvik_last_error(), "on_logprobs is for"));
            continue;
        }
        same(a, r);
        for (uint32_t row = 0; row < r->n_rows; row++) {
            const kvik_row *w = r->row[row];
            assert_int_equal(t.n[row], w->n - w->n_prompt);
            for (uint32_t k = 0; k < t.n[row]; k++)
                check_token(t.token[row][k],
                            r->logits + ((size_t)k * r->logit_rows + row) * t.vocab, t.vocab,
                            w->ids[w->n_prompt + k]);
            told_of++;
        }
        kvik_result_free(r);
        t = (struct told){.vocab = t.vocab, .most = 3}; /* it cancels */
        assert_int_equal(kvik_generate(s.c, &a->g, a->prompt, 1, &a->hooks, &r), 0);
        assert_int_equal(r->row[0]->finish, KVIK_FINISH_CANCELLED);
        kvik_result_free(r);
    }
    assert_true(told_of >= 8);
    struct asked *a = ask(&s, 0, 3);
    kvik_result *r;
    a->hooks.on_logprobs = on_logprobs;
    a->hooks.top_logprobs = 1000000;
    assert_int_equal(kvik_generate(s.c, &a->g, a->prompt, 1, &a->hooks, &r), KVIK_ARG);
    stage_close(&s);
}

/* --- How far a request is. */

static kvik_progress far(const kvik_request *r)
{
    kvik_progress p = {.size = sizeof p};
    assert_int_equal(kvik_request_progress(r, &p), 0);
    return p;
}

static void progress(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < countof(ways); way++) {
        struct stage s;
        kvik_result *r;
        stage_open(&s, (kvik_cache_config){.max_sequences = 32, .no_prefix_cache = true});
        struct asked *a = ask(&s, way, 9);
        bool beams = a->g.num_beams > 1;
        uint64_t given = 0, before = 0, computed = 0;
        for (uint32_t i = 0; i < a->n; i++)
            given += a->prompt[i].n;
        start(a, s.c);
        kvik_progress p = far(a->request);
        assert_true(p.prefills == 1 && p.prompt_tokens == given && !p.new_tokens &&
                    !p.computed_tokens);
        while (kvik_request_step(&a->request, 1) > 0) {
            p = far(a->request);
            if (p.prefills ||
                a->g.penalty_alpha == 0) /* contrastive search computes candidates first */
                assert_int_equal(p.prefills, p.new_tokens == 0);
            assert_true(p.new_tokens >= before && p.computed_tokens > computed);
            if (p.prefills && a->g.use_cache && a->g.guidance_scale == 1)
                assert_in_range(p.computed_tokens, computed + 1, given);
            before = p.new_tokens;
            computed = p.computed_tokens;
        }
        p = far(a->request);
        assert_int_equal(p.prompt_tokens, given);
        if (kvik_request_end(a->request, &r) < 0) fail_msg("%s", kvik_last_error());
        uint64_t longest = 0;
        for (uint32_t i = 0; i < r->n_rows; i++)
            longest = MAX(longest, r->row[i]->n - r->row[i]->n_prompt);
        p = far(a->request); /* after the end as well */
        assert_int_equal(p.new_tokens, beams ? longest : r->new_tokens);
        assert_int_equal(p.prefills, 0);
        kvik_result_free(r);
        kvik_request_free(a->request);
        stage_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stop_strings), cmocka_unit_test(shown),
                                       cmocka_unit_test(logprobs), cmocka_unit_test(progress)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_modes_faults.c - every way of generating when something fails in the middle: memory of the
 * store, allocations, the caller's callbacks. Also at the last row a sequence can hold. After a
 * failure the caller's sequences and the store are unchanged, including the bits of the next
 * logits. */
#include "budgets.h"
#include "generate/sync.h"

#define TINY "tests/golden/models/llama-mha"

static kvik_model *tiny;
static const int32_t ids[] = {295, 130, 218, 306, 124, 275, 247, 161};
enum { NEW = 6, BITE = 32 };

struct way {
    const char *name, *json;
};
static const struct way ways[] = {
    {"greedy", "{}"},
    {"lookup", "{\"prompt_lookup_num_tokens\": 3}"},
    {"samples", "{\"do_sample\": true, \"num_return_sequences\": 2}"},
    {"beam", "{\"num_beams\": 3, \"num_return_sequences\": 3}"},
    {"beam sample", "{\"num_beams\": 3, \"do_sample\": true}"},
    {"groups", "{\"num_beams\": 4, \"num_beam_groups\": 2, \"diversity_penalty\": 0.7}"},
    {"contrastive", "{\"penalty_alpha\": 0.6, \"top_k\": 4}"},
    {"guided", "{\"guidance_scale\": 1.5, \"negative_prompt_ids\": [7, 300, 12]}"},
    {"guided beam", "{\"num_beams\": 3, \"guidance_scale\": 1.5}"},
    {"guided groups", "{\"num_beams\": 4, \"num_beam_groups\": 2, \"diversity_penalty\": 0.7, "
                      "\"guidance_scale\": 1.5, \"negative_prompt_ids\": [7, 300, 12]}"},
    {"lookup samples", "{\"do_sample\": true, \"num_return_sequences\": 2, "
                       "\"prompt_lookup_num_tokens\": 4, \"repetition_penalty\": 1.2}"},
    {"guided lookup", "{\"guidance_scale\": 1.5, \"prompt_lookup_num_tokens\": 4}"},
    {"guided contrast", "{\"penalty_alpha\": 0.6, \"top_k\": 3, \"guidance_scale\": 1.5}"},
};

static kvik_cache *open_cache(kvik_cache_config cc)
{
    kvik_cache *c;
    cc.size = sizeof cc;
    cc.compute = "exact";
    cc.threads = 1;
    if (!cc.max_cache_len) cc.max_cache_len = 64;
    if (!cc.max_sequences) cc.max_sequences = 12;
    if (kvik_cache_open(tiny, &cc, &c) < 0) fail_msg("%s", kvik_last_error());
    return c;
}

static kvik_generation options(const struct way *w)
{
    kvik_generation g;
    if (kvik_generation_init(&g, tiny) < 0 || kvik_generation_set(&g, w->json) < 0)
        fail_msg("%s", kvik_last_error());
    g.max_new_tokens = NEW;
    g.n_eos = 0;
    return g;
}

/* Makes a sequence that holds the first tokens and then some of another text. */
static kvik_seq held(kvik_cache *c)
{
    static const int32_t other[] = {295, 130, 218, 306, 124, 94, 38};
    kvik_span s = {.size = sizeof s, .ids = other, .n = countof(other)};
    if (kvik_cache_new(c, &s.seq) < 0 || kvik_forward(c, &s, 1, false, NULL) < 0) return 0;
    return s.seq;
}

struct state { /* the state of a store, as far as a caller can see it */
    uint64_t tokens, bytes, reserved;
    uint32_t seqs;
    int64_t len;
};

static struct state state_of(const kvik_cache *c, kvik_seq s)
{
    struct kv_usage u;
    kvik_usage k = {.size = sizeof k};
    kv_usage(c->x->kv, &u);
    kvik_cache_usage(c, &k);
    return (struct state){.tokens = u.rows,
                          .bytes = k.bytes,
                          .reserved = k.reserved,
                          .seqs = u.seqs,
                          .len = kvik_cache_length(c, s)};
}

static void unchanged(const char *what, const char *way, long long k, struct state a,
                      struct state b)
{
    if (a.tokens == b.tokens && a.bytes == b.bytes && a.reserved == b.reserved &&
        a.seqs == b.seqs && a.len == b.len)
        return;
    fail_msg("%s, %s, %lld: tokens %llu %llu, bytes %llu %llu, reserved %llu %llu, sequences %u "
             "%u, length %lld %lld",
             what, way, k, (unsigned long long)a.tokens, (unsigned long long)b.tokens,
             (unsigned long long)a.bytes, (unsigned long long)b.bytes,
             (unsigned long long)a.reserved, (unsigned long long)b.reserved, a.seqs, b.seqs,
             (long long)a.len, (long long)b.len);
}

static void same_ids(const char *way, const kvik_result *a, const kvik_result *b)
{
    assert_int_equal(a->n_rows, b->n_rows);
    for (uint32_t i = 0; i < a->n_rows; i++)
        if (a->row[i]->n != b->row[i]->n ||
            memcmp(a->row[i]->ids, b->row[i]->ids, a->row[i]->n * sizeof *ids))
            fail_msg("%s: row %u differs", way, i);
}

static void drop_rows(kvik_cache *c, const kvik_result *r, kvik_seq but)
{
    for (uint32_t i = 0; i < r->n_rows; i++)
        if (r->row[i]->seq && r->row[i]->seq != but)
            assert_int_equal(kvik_cache_drop(c, r->row[i]->seq), 0);
}

static const struct {
    const char *name;
    kvik_cache_config cc;
} kinds[] = {{"dynamic", {0}},
             {"static", {.cache_implementation = "static"}},
             {"quantized",
              {.cache_implementation = "quantized",
               .cache_config = "{\"nbits\": 4, \"residual_length\": 4, \"q_group_size\": 16}"}},
             {"window", {.cache_config = "{\"sliding_window\": 6}"}}};

/* Each allocation of a call fails, including those for the result. */
static void allocations(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(kinds) * countof(ways); i++) {
        const struct way *w = &ways[i % countof(ways)];
        bool legacy = i / countof(ways) < 2;
        kvik_cache *c = open_cache(kinds[i / countof(ways)].cc);
        kvik_generation g = options(w);
        kvik_prompt p = {.size = sizeof p, .ids = ids, .n = countof(ids), .seq = held(c)};
        kvik_result *r;
        int e;
        g.return_dict_in_generate = g.output_logits = g.output_scores = true;
        g.return_legacy_cache = legacy;
        struct state before = state_of(c, p.seq);
        for (int k = 0;; k++) {
            mem_fail_at(k, false);
            e = kvik_generate(c, &g, &p, 1, NULL, &r);
            mem_fail_at(-1, false);
            if (e >= 0) break;
            assert_int_equal(e, KVIK_NOMEM);
            unchanged(kinds[i / countof(ways)].name, w->name, k, before, state_of(c, p.seq));
        }
        drop_rows(c, r, p.seq);
        assert_int_equal(state_of(c, p.seq).seqs, before.seqs);
        kvik_result_free(r);
        assert_true(kv_check(c->x->kv));
        kvik_generation_done(&g);
        kvik_cache_close(c);
    }
}

/* Makes another sequence that fills the rest of the store. Returns the number of its tokens. */
static uint32_t eat(kvik_cache *c, kvik_seq *out)
{
    int32_t text[BITE];
    kvik_span s = {.size = sizeof s, .ids = text, .n = BITE};
    for (int32_t i = 0; i < BITE; i++)
        text[i] = 3 + i;
    assert_int_equal(kvik_cache_new(c, &s.seq), 0);
    uint32_t n = 0;
    while (kvik_forward(c, &s, 1, false, NULL) >= 0)
        n += s.n;
    *out = s.seq;
    return n;
}

/* The store runs full at every possible place: another sequence leaves more and more room until a
 * call succeeds. */
static void budgets(void **state)
{
    (void)state;
    uint32_t full = 0;
    for (size_t i = 0; i < countof(ways); i++) {
        const struct way *w = &ways[i];
        kvik_cache_config cc = {.size = sizeof cc,
                                .compute = "exact",
                                .max_sequences = 12,
                                .step_tokens = BITE,
                                .max_cache_len = 2000};
        cc.cache_memory = budget_for(tiny, cc, 640 << 10, 12, 64);
        kvik_cache *c = open_cache(cc);
        kvik_generation g = options(w);
        kvik_prompt p = {.size = sizeof p, .ids = ids, .n = countof(ids), .seq = held(c)};
        kvik_result *want, *r;
        g.max_new_tokens = 40;
        assert_int_equal(kvik_generate(c, &g, &p, 1, NULL, &want), 0);
        assert_int_equal(kvik_cache_drop(c, p.seq), 0);
        kvik_seq eater;
        p.seq = held(c);
        for (uint32_t left = eat(c, &eater);; left -= BITE) {
            assert_int_equal(kvik_cache_crop(c, eater, left), 0);
            g.return_dict_in_generate = left / BITE % 2;
            struct state before = state_of(c, p.seq);
            int e = kvik_generate(c, &g, &p, 1, NULL, &r);
            assert_true(kv_check(c->x->kv));
            if (e >= 0) break;
            assert_int_equal(e, KVIK_FULL);
            unchanged("full", w->name, left, before, state_of(c, p.seq));
            full++;
        }
        same_ids(w->name, want, r);
        kvik_result_free(r);
        kvik_cache_close(c);
        kvik_result_free(want);
        kvik_generation_done(&g);
    }
    assert_true(full > countof(ways));
}

struct refusing {
    int left;
};

static bool process(void *ctx, uint32_t row, const int32_t *text, size_t n, float *s,
                    uint32_t vocab)
{
    (void)row, (void)text, (void)n, (void)s, (void)vocab;
    return ((struct refusing *)ctx)->left-- > 0;
}

static bool progress(void *ctx, uint64_t done, uint64_t total)
{
    assert_true(done <= total);
    return ((struct refusing *)ctx)->left-- > 0;
}

/* A callback refuses at its k-th call. */
static void callbacks(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * countof(kinds) * countof(ways); i++) {
        const struct way *w = &ways[i / 2 % countof(ways)];
        kvik_cache_config cc = kinds[i / 2 / countof(ways)].cc;
        cc.step_tokens = 2;
        kvik_cache *c = open_cache(cc);
        kvik_generation g = options(w);
        kvik_prompt p = {.size = sizeof p, .ids = ids, .n = countof(ids), .seq = held(c)};
        kvik_result *r;
        struct refusing no;
        kvik_hooks hooks = {.size = sizeof hooks, .ctx = &no};
        if (i % 2)
            hooks.on_progress = progress;
        else
            hooks.logits_processor = process;
        struct state before = state_of(c, p.seq);
        int k = 0;
        for (;; k++) {
            no.left = k;
            int e = kvik_generate(c, &g, &p, 1, &hooks, &r);
            if (e >= 0) break;
            assert_int_equal(e, KVIK_CANCELLED);
            unchanged(kinds[i / 2 / countof(ways)].name, w->name, k, before, state_of(c, p.seq));
        }
        assert_true(k > 0);
        kvik_result_free(r);
        assert_true(kv_check(c->x->kv));
        kvik_generation_done(&g);
        kvik_cache_close(c);
    }
}

/* Impossible numbers in a struct filled by hand are refused with a message, or act like the largest
 * number that has an effect. */
static void huge(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        size_t field; /* the field is set to UINT32_MAX */
        int code;
    } most[] = {
#define FIELD(f) offsetof(kvik_generation, f)
        {"{}", FIELD(num_beams), KVIK_LIMIT},
        {"{\"guidance_scale\": 2}", FIELD(num_beams), KVIK_LIMIT},
        {"{\"num_beams\": 4, \"diversity_penalty\": 1}", FIELD(num_beam_groups), KVIK_ARG},
        {"{\"do_sample\": true}", FIELD(num_return_sequences), KVIK_LIMIT},
        {"{\"penalty_alpha\": 0.5}", FIELD(top_k), KVIK_LIMIT},
        {"{\"max_matching_ngram_size\": 65536}", FIELD(prompt_lookup_num_tokens), 0},
        {"{\"prompt_lookup_num_tokens\": 9}", FIELD(max_matching_ngram_size), 0},
        {"{}", FIELD(prefill_chunk_size), 0},
        {"{}", FIELD(no_repeat_ngram_size), 0},
        {"{}", FIELD(encoder_no_repeat_ngram_size), 0},
        {"{\"suppress_tokens\": [5]}", FIELD(min_length), 0},
        {"{\"suppress_tokens\": [5]}", FIELD(min_new_tokens), 0},
        {"{\"do_sample\": true}", FIELD(top_k), 0},
        {"{\"temperature\": 1}", FIELD(decay_start), 0},
#undef FIELD
    };
    for (size_t i = 0; i < countof(most); i++) {
        kvik_cache *c = open_cache((kvik_cache_config){.size = sizeof(kvik_cache_config)});
        kvik_generation g = options(&(struct way){"huge", most[i].json});
        const kvik_prompt p[2] = {{.size = sizeof(kvik_prompt), .ids = ids, .n = countof(ids)},
                                  {.size = sizeof(kvik_prompt), .ids = ids, .n = 1}};
        kvik_result *r;
        kvik_usage u = {.size = sizeof u};
        *(uint32_t *)((char *)&g + most[i].field) = g.max_new_tokens = UINT32_MAX;
        int e = kvik_generate(c, &g, p, 2, NULL, &r);
        if (e != most[i].code) fail_msg("%zu: %d, %s", i, e, kvik_last_error());
        if (e == KVIK_LIMIT && !strstr(kvik_last_error(), "max_sequences"))
            fail_msg("%zu: %s", i, kvik_last_error());
        if (e >= 0) {
            assert_int_equal(r->row[0]->n, 65); /* the last token has no KV row */
            assert_int_equal(r->row[1]->n, 65);
            kvik_result_free(r);
        }
        kvik_cache_usage(c, &u);
        assert_int_equal(u.tokens, 0);
        kvik_generation_done(&g);
        kvik_cache_close(c);
    }
}

/* Impossible input as the second of two prompts gives an error, and the sequence of the first
 * prompt is unchanged. */
static void misuse(void **state)
{
    (void)state;
    static const uint8_t hidden[] = {0, 0, 0};
    static const int32_t outside[] = {295, 1 << 20, 3}, below[] = {295, -1, 3};
    for (size_t i = 0; i < countof(ways); i++) {
        kvik_cache *c =
            open_cache((kvik_cache_config){.size = sizeof(kvik_cache_config), .max_sequences = 16});
        kvik_generation g = options(&ways[i]);
        kvik_seq first = held(c), gone = held(c);
        assert_int_equal(kvik_cache_drop(c, gone), 0);
        const struct {
            kvik_prompt second;
            int code;
        } bad[] = {
            {{.size = sizeof(kvik_prompt), .ids = NULL, .n = 3}, KVIK_ARG},
            {{.size = sizeof(kvik_prompt), .ids = ids, .n = 0}, KVIK_ARG},
            {{.size = sizeof(kvik_prompt), .ids = ids, .n = 3, .attention_mask = hidden}, KVIK_ARG},
            {{.size = sizeof(kvik_prompt), .ids = outside, .n = 3}, KVIK_ARG},
            {{.size = sizeof(kvik_prompt), .ids = below, .n = 3}, KVIK_ARG},
            {{.size = sizeof(kvik_prompt), .ids = ids, .n = 3, .seq = gone}, KVIK_STALE},
            {{.size = sizeof(kvik_prompt), .ids = ids, .n = 3, .seq = UINT32_MAX}, KVIK_STALE},
            {{.size = sizeof(kvik_prompt), .ids = ids, .n = 3, .seq = first}, KVIK_ARG},
            {{.size = sizeof(kvik_prompt),
              .ids = ids,
              .n = (size_t)1 << 40,
              .attention_mask = NULL},
             KVIK_LIMIT},
        };
        kvik_result *r = NULL;
        struct state before = state_of(c, first);
        for (size_t k = 0; k < countof(bad); k++) {
            const kvik_prompt p[] = {
                {.size = sizeof(kvik_prompt), .ids = ids, .n = countof(ids), .seq = first},
                bad[k].second};
            int e = kvik_generate(c, &g, p, 2, NULL, &r);
            if (e != bad[k].code) fail_msg("%zu: %d, %s", k, e, kvik_last_error());
            unchanged("misuse", ways[i].name, (long long)k, before, state_of(c, first));
        }
        const kvik_prompt p = {.size = sizeof p, .ids = ids, .n = countof(ids)};
        assert_int_equal(kvik_generate(c, &g, &p, 0, NULL, &r), KVIK_ARG);
        assert_int_equal(kvik_generate(NULL, &g, &p, 1, NULL, &r), KVIK_ARG);
        assert_int_equal(kvik_generate(c, NULL, &p, 1, NULL, &r), KVIK_ARG);
        assert_int_equal(kvik_generate(c, &g, NULL, 1, NULL, &r), KVIK_ARG);
        assert_int_equal(kvik_generate(c, &g, &p, 1, NULL, NULL), KVIK_ARG);
        assert_null(r);
        assert_true(kv_check(c->x->kv));
        kvik_generation_done(&g);
        kvik_cache_close(c);
    }
}

/* The results do not depend on the prefill chunk size, the cached prefix of a prompt or other rows
 * in the batch. Also prompts of one token. */
static void equal_ways(void **state)
{
    (void)state;
    static const struct {
        uint32_t chunk, step;
        bool given, beside;
    } how[] = {{1, 0, false, false},
               {3, 0, true, false},
               {0, 2, true, false},
               {0, 3, false, true},
               {0, 0, true, true}};
    for (size_t i = 0; i < countof(kinds) * countof(ways) * 2; i++) {
        const struct way *w = &ways[i / 2 % countof(ways)];
        kvik_cache_config cc = kinds[i / 2 / countof(ways)].cc;
        bool turns = strcmp(kinds[i / 2 / countof(ways)].name, "quantized") == 0;
        kvik_prompt p[2] = {
            {.size = sizeof(kvik_prompt), .ids = ids, .n = i % 2 ? 1 : countof(ids)},
            {.size = sizeof(kvik_prompt), .ids = ids + 2, .n = 5}};
        kvik_cache *c = open_cache(cc);
        kvik_generation g = options(w);
        kvik_result *want, *r;
        g.max_new_tokens = 12;
        assert_int_equal(kvik_generate(c, &g, p, 1, NULL, &want), 0);
        kvik_cache_close(c);
        for (size_t k = 0; k < countof(how); k++) {
            if (turns && how[k].given) continue; /* the cached prefix was a turn of its own */
            cc.step_tokens = how[k].step;
            cc.max_sequences = 16;
            c = open_cache(cc);
            g.prefill_chunk_size = how[k].chunk;
            p[0].seq = how[k].given ? held(c) : 0;
            if (kvik_generate(c, &g, p, 1 + how[k].beside, NULL, &r) < 0)
                fail_msg("%s: %s", w->name, kvik_last_error());
            for (uint32_t n = 0; n < want->n_rows; n++)
                if (r->row[n]->n != want->row[n]->n || r->row[n]->score != want->row[n]->score ||
                    memcmp(r->row[n]->ids, want->row[n]->ids, want->row[n]->n * sizeof *ids))
                    fail_msg("%s, %s, %zu: row %u differs", kinds[i / 2 / countof(ways)].name,
                             w->name, k, n);
            kvik_result_free(r);
            kvik_cache_close(c);
        }
        kvik_result_free(want);
        kvik_generation_done(&g);
    }
}

struct nosy {
    kvik_cache *c;
    kvik_seq s;
    uint32_t asked, refused;
};

static bool feed_inside(void *ctx, uint64_t done, uint64_t total)
{
    struct nosy *n = ctx;
    kvik_generation g;
    kvik_result *r;
    kvik_span span = {.size = sizeof span, .seq = n->s, .ids = ids, .n = countof(ids)};
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = countof(ids)};
    (void)done, (void)total;
    n->asked += 3;
    n->refused += kvik_forward(n->c, &span, 1, false, NULL) == KVIK_BUSY;
    n->refused += kvik_cache_sync(n->c, n->s, ids, countof(ids), NULL, NULL) == KVIK_BUSY;
    assert_int_equal(kvik_generation_init(&g, tiny), 0);
    int e = kvik_generate(n->c, &g, &p, 1, NULL, &r);
    n->refused += e == KVIK_BUSY;
    if (e >= 0) kvik_result_free(r);
    kvik_generation_done(&g);
    return true;
}

/* A callback in the middle of a forward cannot append to the cache, and its attempt changes
 * nothing. */
static void nested(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(ways); i++) {
        kvik_cache *c =
            open_cache((kvik_cache_config){.size = sizeof(kvik_cache_config), .step_tokens = 3});
        kvik_generation g = options(&ways[i]);
        kvik_prompt p = {.size = sizeof p, .ids = ids, .n = countof(ids)};
        kvik_result *want, *r;
        struct nosy n = {.c = c};
        kvik_hooks hooks = {.size = sizeof hooks, .ctx = &n, .on_progress = feed_inside};
        bool beams = g.num_beams > 1; /* beam search also reports steps while no forward runs */
        assert_int_equal(kvik_generate(c, &g, &p, 1, NULL, &want), 0);
        p.seq = held(c);
        n.s = held(c);
        assert_int_equal(kvik_generate(c, &g, &p, 1, &hooks, &r), 0);
        same_ids(ways[i].name, want, r);
        assert_true(n.refused > 0 && (beams || n.refused == n.asked));
        assert_true(kv_check(c->x->kv));
        kvik_result_free(want);
        kvik_result_free(r);
        kvik_generation_done(&g);
        kvik_cache_close(c);
    }
}

/* The next tokens of a sequence's text are known, also where beam search caches less than its best
 * text. */
static void said(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(ways); i++) {
        kvik_cache *c = open_cache((kvik_cache_config){.size = sizeof(kvik_cache_config)});
        kvik_generation g = options(&ways[i]);
        kvik_prompt p = {.size = sizeof p, .ids = ids, .n = countof(ids), .seq = held(c)};
        kvik_result *r;
        assert_int_equal(kvik_generate(c, &g, &p, 1, NULL, &r), 0);
        const struct exec_said *s = &c->x->said[kv_slot(c->x->kv, p.seq)];
        assert_int_equal(s->seq, p.seq);
        assert_int_equal(s->len, kvik_cache_length(c, p.seq));
        assert_int_equal(s->token, r->row[0]->ids[s->len]);
        kvik_result_free(r);
        kvik_generation_done(&g);
        kvik_cache_close(c);
    }
}

/* Sequences that live together do not overwrite what is known of each other. */
static void said_apart(void **state)
{
    (void)state;
    kvik_cache *c =
        open_cache((kvik_cache_config){.size = sizeof(kvik_cache_config), .max_sequences = 2});
    kvik_seq s[6];
    for (int32_t i = 0; i < 6; i++) {
        assert_int_equal(kvik_cache_new(c, &s[i]), 0);
        sync_said(c->x, s[i], 10 + i);
    }
    for (int32_t i = 0; i < 6; i++) {
        const struct exec_said *at = &c->x->said[kv_slot(c->x->kv, s[i])];
        assert_int_equal(at->seq, s[i]);
        assert_int_equal(at->token, 10 + i);
    }
    kvik_cache_close(c);
}

/* Prompts of runs that returned only arrays are found by the next run, like those of other runs. */
static void found_again(void **state)
{
    (void)state;
    int32_t text[40];
    size_t reused[2];
    for (int32_t i = 0; i < 40; i++)
        text[i] = 3 + i;
    for (int legacy = 0; legacy < 2; legacy++) {
        kvik_cache *c = open_cache((kvik_cache_config){.size = sizeof(kvik_cache_config)});
        kvik_generation g = options(&ways[0]);
        const kvik_prompt p = {.size = sizeof p, .ids = text, .n = countof(text)};
        kvik_result *r;
        g.return_legacy_cache = legacy;
        for (int k = 0; k < 2; k++) {
            assert_int_equal(kvik_generate(c, &g, &p, 1, NULL, &r), 0);
            reused[legacy] = r->row[0]->reused;
            kvik_result_free(r);
        }
        kvik_generation_done(&g);
        kvik_cache_close(c);
    }
    assert_true(reused[0] > 0);
    assert_int_equal(reused[0], reused[1]);
}

/* A sequence up to its last row gives as many tokens as a larger cache would, and then ends or
 * reports an error. */
static void last_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * countof(ways); i++) {
        const struct way *w = &ways[i / 2];
        kvik_cache *c = open_cache((kvik_cache_config){.size = sizeof(kvik_cache_config)});
        kvik_generation g = options(w);
        kvik_prompt p = {.size = sizeof p, .ids = ids, .n = countof(ids)};
        kvik_result *want, *r;
        assert_int_equal(kvik_generate(c, &g, &p, 1, NULL, &want), 0);
        kvik_cache_close(c);
        /* Contrastive search also computes its last candidate. */
        bool contrasts = g.penalty_alpha > 0;
        for (uint32_t len = countof(ids) + NEW - 1; len <= countof(ids) + NEW; len++) {
            c = open_cache((kvik_cache_config){.size = sizeof(kvik_cache_config),
                                               .cache_implementation = i % 2 ? "static" : NULL,
                                               .max_cache_len = len});
            int e = kvik_generate(c, &g, &p, 1, NULL, &r);
            bool short_of_one = contrasts && len < countof(ids) + NEW;
            if (short_of_one && i % 2) {
                assert_int_equal(e, KVIK_FULL);
                assert_non_null(strstr(kvik_last_error(), "max_cache_len"));
            } else {
                if (e < 0) fail_msg("%s: %s", w->name, kvik_last_error());
                assert_int_equal(r->row[0]->n, want->row[0]->n - short_of_one);
                assert_memory_equal(r->row[0]->ids, want->row[0]->ids, r->row[0]->n * sizeof *ids);
                kvik_result_free(r);
            }
            kvik_cache_close(c);
        }
        kvik_result_free(want);
        kvik_generation_done(&g);
    }
}

static int setup(void **state)
{
    (void)state;
    return kvik_model_open(TINY, &tiny);
}

static int teardown(void **state)
{
    (void)state;
    kvik_model_close(tiny);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations), cmocka_unit_test(budgets),   cmocka_unit_test(callbacks),
        cmocka_unit_test(nested),      cmocka_unit_test(huge),      cmocka_unit_test(misuse),
        cmocka_unit_test(equal_ways),  cmocka_unit_test(said),      cmocka_unit_test(said_apart),
        cmocka_unit_test(found_again), cmocka_unit_test(last_rows),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

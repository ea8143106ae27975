/* test_cache_config.c - strategies as data: names and keys against the expected error message or
 * groups, without a model, and on two tiny models for settings that a model decides. */
#include "base/base.h"
#include "generate/cache_config.h"
#include "kvik_compat.h"
#include "model/preset.h"
#include "testing.h"

#define TINY "tests/golden/models/llama-gqa-l3"

#define SITE(window_, chunk_, dim, dim_v)                                                          \
    {                                                                                              \
        .window = window_, .chunk = chunk_, .n_planes = 2, .plane = {                              \
            {"k", 2, dim},                                                                         \
            {"v", 2, dim_v}                                                                        \
        }                                                                                          \
    }
static const struct kv_site full[] = {SITE(0, 0, 16, 16), SITE(0, 0, 16, 16)};
static const struct kv_site alternating[] = {SITE(32, 0, 16, 16), SITE(0, 0, 16, 16),
                                             SITE(32, 0, 16, 16)};
static const struct kv_site chunked[] = {SITE(0, 64, 16, 16), SITE(0, 0, 16, 16)};

static const struct kv_site hybrid[] = {
    {.kind = KV_STATE, .n_planes = 2, .plane = {{"conv", 4, 32}, {"ssm", 8, 32}}},
    {.layer = 1, .n_planes = 2, .plane = {{"k", 2, 16}, {"v", 2, 16}}}};

enum layers { FULL, ALTERNATING, CHUNKED, STATES };

static int settle(const char *impl, const char *config, enum layers which, struct preset_options *o,
                  struct kv_group *g, uint32_t *n_groups)
{
    static const struct {
        const struct kv_site *site;
        uint32_t n;
    } of[] = {{full, 2}, {alternating, 3}, {chunked, 2}, {hybrid, 2}};
    struct kv_keys k;
    uint32_t site[4];
    json_t *j;
    *o = (struct preset_options){.dtype = DT_F32};
    TRY(json_parse(config, strlen(config), "cache_config", &j));
    int e = kv_keys_read(j, "cache_config", &k);
    json_decref(j);
    if (e < 0) return e;
    const struct preset *p = preset_for(preset_find(impl), &k, of[which].site, of[which].n);
    TRY(preset_settle(p, &k, of[which].site, of[which].n, o));
    struct preset_options plain = *o;
    plain.quant = (struct kv_codec_pair){0}; /* codecs have tests of their own */
    int n = preset_groups(of[which].site, of[which].n, &plain, g, site);
    if (n < 0) return n;
    *n_groups = (uint32_t)n;
    return 0;
}

static const struct {
    const char *impl, *config;
    enum layers layers;
    const char *has[2]; /* words of the error message; NULL: the configuration works */
} sentences[] = {
    {"dynamic", "{}", FULL, {NULL}},
    {"dynamic", "{\"device\": \"cuda\", \"max_batch_size\": 4, \"nbits\": null}", FULL, {NULL}},
    {"dynamic", "{\"sliding-window\": 32, \"max-cache-len\": 64}", FULL, {NULL}},
    {"dynamic", "{\"offloading\": true, \"offload_only_non_sliding\": true}", FULL, {NULL}},
    {"dynamic", "{\"offload_only_non_sliding\": false}", FULL, {NULL}},
    {"dynamic", "{\"window_length\": 20, \"num_sink_tokens\": 4}", FULL, {NULL}},
    {"dynamic", "{\"window_length\": 20, \"num_sink_tokens\": 0}", FULL, {NULL}},
    {"hybrid", "{}", ALTERNATING, {NULL}},
    {"hybrid_chunked", "{}", CHUNKED, {NULL}},
    {"hybrid", "{}", STATES, {NULL}},
    {"mamba", "{}", STATES, {NULL}},
    {"jamba", "{\"backend\": \"hqq\"}", STATES, {NULL}},
    {"zamba", "{\"max_cache_len\": 64}", STATES, {NULL}},
    {"mamba", "{}", FULL, {"\"mamba\" is for models with recurrent states", "leave it out"}},
    {"jamba", "{}", ALTERNATING, {"\"jamba\" is for models with recurrent states"}},
    {"hybrid_chunked", "{}", STATES, {"\"hybrid_chunked\" needs a window"}},
    {"sliding_window", "{\"sliding_window\": 8}", FULL, {NULL}},
    {"offloaded_hybrid", "{\"window_length\": 20, \"num_sink_tokens\": 4}", FULL, {NULL}},
    {"sink", "{\"window_length\": 256, \"num_sink_tokens\": 4}", FULL, {NULL}},
    {"offloaded", "{\"offloading\": true}", FULL, {NULL}},
    {"dynamic", "{\"sliding_windw\": 32}", FULL, {"sliding_windw", "sliding_window"}},
    {"dynamic", "{\"zzzzzzzzzz\": 32}", FULL, {"zzzzzzzzzz"}},
    {"dynamic", "{\"nbits\": 4, \"n-bits\": 4}", FULL, {"n-bits", "nbits"}},
    {"dynamic", "{\"q_group_size\": 64, \"q-group-size\": 64}", FULL, {"q_group_size", "twice"}},
    {"dynamic", "[]", FULL, {"object"}},
    {"dynamic", "{\"max_cache_len\": \"64\"}", FULL, {"max_cache_len", "integer"}},
    {"dynamic", "{\"max_cache_len\": 6.5}", FULL, {"max_cache_len", "integer"}},
    {"dynamic", "{\"axis_key\": -2}", FULL, {"axis_key", "-1 to 1"}},
    {"dynamic", "{\"backend\": 3}", FULL, {"backend", "name"}},
    {"quantized", "{\"residual_length\": -1}", FULL, {"residual_length", "from 0 to"}},
    {"dynamic", "{\"compute_dtype\": \"float16\"}", FULL, {"compute_dtype"}},
    {"dynamic", "{\"nbits\": 4}", FULL, {"nbits", "backend"}},
    {"dynamic", "{\"backend\": \"kvik\", \"k_bits\": 8, \"v-bits\": 3}", FULL, {NULL}},
    {"quantized", "{\"backend\": \"kvik\", \"nbits\": 4, \"k_bits\": 8}", FULL, {NULL}},
    {"dynamic",
     "{\"backend_key\": \"kvik\", \"backend_value\": \"hqq\", \"k_bits\": 2}",
     FULL,
     {NULL}},
    {"dynamic",
     "{\"backend_key\": \"kvik\", \"backend_value\": \"hqq\", \"v_bits\": 2}",
     FULL,
     {"v_bits: keys have backend \"kvik\", values \"hqq\", without this option"}},
    {"quantized",
     "{\"k_bits\": 4}",
     FULL,
     {"k_bits: keys have backend \"quanto\"", "without this"}},
    {"dynamic", "{\"v_bits\": 4}", FULL, {"v_bits", "needs a backend"}},
    {"dynamic", "{\"backend\": \"kvik\", \"v_bits\": 5}", FULL, {"v_bits 5", "2, 3, 4 and 8"}},
    {"dynamic", "{\"backend\": \"kvik\", \"k_bits\": 9}", FULL, {"k_bits", "from 2 to 8"}},
    {"dynamic",
     "{\"backend\": \"kvik\", \"k_bits\": 4, \"nbits_key\": 4}",
     FULL,
     {"nbits_key", "twice"}},
    {"dynamic",
     "{\"backend\": \"kvik\", \"k_bit\": 4}",
     FULL,
     {"k_bit", "did you mean \"k_bits\""}},
    {"static", "{\"residual_length\": 4}", FULL, {"residual_length", "quantized"}},
    {"dynamic", "{\"window_length\": 20}", FULL, {"window_length", "num_sink_tokens"}},
    {"dynamic", "{\"num_sink_tokens\": 4}", FULL, {"num_sink_tokens", "window_length"}},
    {"sink", "{}", FULL, {"window_length", "num_sink_tokens"}},
    {"sink", "{\"num_sink_tokens\": 4}", FULL, {"window_length is"}},
    {"sink", "{\"window_length\": 4}", FULL, {"num_sink_tokens is"}},
    {"sink",
     "{\"window_length\": 4, \"num_sink_tokens\": 4}",
     FULL,
     {"window_length 4", "tokens 4"}},
    {"sink",
     "{\"window_length\": 3, \"num_sink_tokens\": 9}",
     FULL,
     {"window_length 3", "tokens 9"}},
    {"sink",
     "{\"window_length\": 8, \"num_sink_tokens\": 2, \"sliding_window\": 5}",
     FULL,
     {"window_length 8", "sliding_window 5"}},
    {"dynamic",
     "{\"window_length\": 8, \"sliding_window\": 5}",
     FULL,
     {"window_length", "sliding_"}},
    {"offloaded", "{\"offloading\": false}", FULL, {"\"offloaded\"", "offloading=false"}},
    {"dynamic",
     "{\"offload_only_non_sliding\": true}",
     FULL,
     {"offload_only_non_sliding", "offloading"}},
    {"sliding_window", "{}", FULL, {"sliding_window\" needs a window", "{\"sliding_window\": N}"}},
    {"hybrid", "{}", FULL, {"\"hybrid\"", "{\"sliding_window\": N}"}},
    {"offloaded_hybrid_chunked",
     "{}",
     FULL,
     {"offloaded_hybrid_chunked", "{\"sliding_window\": N}"}},
    {"dynamic", "{\"backend\": \"nonsensical\"}", FULL, {"\"nonsensical\"", "hqq, kvik, none"}},
    {"quantized", "{\"backend\": \"fp8\", \"nbits\": null}", FULL, {NULL}},
    {"dynamic", "{\"backend\": \"kvik\", \"layers\": {\"1\": {\"nbits\": 8}}}", STATES, {NULL}},
    {"dynamic",
     "{\"backend\": \"kvik\", \"layers\": {\"0\": {\"nbits\": 8}}}",
     STATES,
     {"layers \"0\"", "keeps no keys and values"}},
    {"quantized",
     "{\"backend\": \"fp8\", \"nbits\": 8}",
     FULL,
     {"nbits: keys have backend \"fp8\", values \"fp8\", without this option"}},
    {"quantized", "{\"backend\": \"fp8\", \"axis_value\": 0}", FULL, {"axis_value", "\"fp8\""}},
    {"dynamic", "{\"backend\": \"fp8\", \"q_group_size\": 64}", FULL, {"q_group_size", "\"fp8\""}},
    {"dynamic",
     "{\"backend\": \"fp8\", \"residual_length\": 128}",
     FULL,
     {"residual_length: backend \"fp8\"", "leave it out"}},
    {"dynamic",
     "{\"backend_key\": \"quanto\", \"backend_value\": \"fp8\", \"residual_length\": 128}",
     FULL,
     {NULL}},
    {"dynamic", "{\"backend_value\": \"hqq\", \"nbits\": 3}", FULL, {NULL}},
    {"quantized", "{\"backend_key\": \"none\", \"axis_value\": -1}", FULL, {NULL}},
    {"quantized", "{\"nbits\": 4, \"nbits_value\": 2, \"q_group_size_key\": 32}", FULL, {NULL}},
    {"dynamic", "{\"backend\": \"none\"}", FULL, {NULL}},
    {"quantized", "{\"backend\": \"none\"}", FULL, {"\"quantized\"", "contradict"}},
    {"dynamic", "{\"nbits_key\": 2}", FULL, {"nbits_key", "backend"}},
    {"dynamic", "{\"backend\": \"shuffle\", \"nbits\": 2}", FULL, {"nbits", "\"shuffle\""}},
    {"dynamic",
     "{\"backend_key\": \"hqq\", \"axis_value\": 1}",
     FULL,
     {"axis_value", "values \"none\""}},
    {"quantized", "{\"nbits_key\": 2, \"nbits-key\": 2}", FULL, {"nbits_key", "twice"}},
    {"quantized", "{\"nbits_value\": 3}", FULL, {"nbits 3", "quanto"}},
    {"quantized", "{\"backend_vale\": \"hqq\"}", FULL, {"backend_vale", "backend_value"}},
    {"quantized", "{\"nbits_vlue\": 2}", FULL, {"nbits_vlue", "nbits_value"}},
};

static void test_sentences(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(sentences); i++) {
        struct preset_options o;
        struct kv_group g[4];
        uint32_t n;
        int e = settle(sentences[i].impl, sentences[i].config, sentences[i].layers, &o, g, &n);
        const char *const *has = sentences[i].has;
        if (!has[0] && e < 0)
            fail_msg("%s %s: %s", sentences[i].impl, sentences[i].config, err_last());
        if (has[0] && e >= 0) fail_msg("%s %s works", sentences[i].impl, sentences[i].config);
        for (int k = 0; k < 2; k++)
            if (has[k] && !strstr(err_last(), has[k]))
                fail_msg("%s %s: no \"%s\" in: %s", sentences[i].impl, sentences[i].config, has[k],
                         err_last());
    }
}

static const struct {
    const char *impl, *config;
    enum layers layers;
    uint32_t n_groups;
    struct {
        uint32_t window, chunk, sinks, lead;
        bool stream;
    } g[2];
} rows[] = {
    {"dynamic", "{}", FULL, 1, {{0}}},
    {"dynamic", "{}", ALTERNATING, 2, {{.window = 32}, {0}}},
    {"dynamic", "{\"sliding_window\": 8}", ALTERNATING, 2, {{.window = 32}, {.window = 8}}},
    {"dynamic", "{\"sliding_window\": 8}", CHUNKED, 2, {{.chunk = 64}, {.window = 8}}},
    {"sink",
     "{\"window_length\": 20, \"num_sink_tokens\": 4}",
     ALTERNATING,
     1,
     {{.window = 16, .sinks = 4, .lead = 4}}},
    {"sink",
     "{\"window_length\": 104, \"num_sink_tokens\": 4}",
     ALTERNATING,
     2,
     {{.window = 32, .sinks = 4, .lead = 4}, {.window = 100, .sinks = 4, .lead = 4}}},
    {"offloaded", "{}", ALTERNATING, 2, {{.window = 32, .stream = true}, {.stream = true}}},
    {"offloaded",
     "{\"offload_only_non_sliding\": true}",
     ALTERNATING,
     2,
     {{.window = 32}, {.stream = true}}},
    {"offloaded_static", "{}", ALTERNATING, 2, {{.window = 32}, {.stream = true}}},
    {"offloaded_static",
     "{\"offload-only-non-sliding\": false}",
     ALTERNATING,
     2,
     {{.window = 32, .stream = true}, {.stream = true}}},
    {"offloaded_hybrid", "{}", CHUNKED, 2, {{.chunk = 64}, {.stream = true}}},
    {"static", "{\"offloading\": true}", ALTERNATING, 2, {{.window = 32}, {.stream = true}}},
};

static void test_groups(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct preset_options o;
        struct kv_group g[4];
        uint32_t n;
        if (settle(rows[i].impl, rows[i].config, rows[i].layers, &o, g, &n) < 0)
            fail_msg("%s %s: %s", rows[i].impl, rows[i].config, err_last());
        assert_int_equal(n, rows[i].n_groups);
        for (uint32_t k = 0; k < n; k++) {
            if (g[k].policy.window != rows[i].g[k].window ||
                g[k].policy.chunk != rows[i].g[k].chunk ||
                g[k].policy.sinks != rows[i].g[k].sinks || g[k].seal.lead != rows[i].g[k].lead ||
                g[k].stream != rows[i].g[k].stream)
                fail_msg("%s %s, group %u: window %u chunk %u sinks %u lead %u stream %d",
                         rows[i].impl, rows[i].config, k, g[k].policy.window, g[k].policy.chunk,
                         g[k].policy.sinks, g[k].seal.lead, g[k].stream);
        }
    }
}

static void test_names(void **state)
{
    static const char *const reserved[] = {
        "static",         "offloaded_static", "sliding_window",          "hybrid",
        "hybrid_chunked", "offloaded_hybrid", "offloaded_hybrid_chunked"};
    (void)state;
    uint32_t n = 0, r = 0, i = 0;
    char choices[512] = "";
    for (; preset_at(n); n++) {
        r += preset_at(n)->reserve;
        assert_true(strlen(preset_at(n)->brief) > 10);
        size_t at = strlen(choices);
        snprintf(choices + at, sizeof choices - at, "%s%s", n ? "|" : "", preset_at(n)->name);
    }
    while (strcmp(kvik_option_at(i)->name, "cache_implementation") != 0)
        i++;
    assert_string_equal(kvik_option_at(i)->choices, choices); /* the option has the same names */
    assert_int_equal(n, 11);
    assert_int_equal(r, countof(reserved));
    for (size_t k = 0; k < countof(reserved); k++)
        assert_true(preset_find(reserved[k])->reserve);
}

/* On a model: the window applies, and the nearest name is suggested. */
static void test_bound(void **state)
{
    (void)state;
    kvik_model *m;
    kvik_cache *c;
    kvik_layers *layers;
    kvik_usage u = {.size = sizeof u};
    kvik_seq s;
    int32_t ids[100];
    for (int i = 0; i < 100; i++)
        ids[i] = 5 + i;
    assert_int_equal(kvik_model_open(TINY, &m), 0);
    kvik_cache_config bad = {.size = sizeof bad, .cache_implementation = "quantised"};
    assert_int_equal(kvik_cache_open(m, &bad, &c), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "\"quantized\""));
    bad = (kvik_cache_config){.size = sizeof(kvik_cache_config), .cache_implementation = "hybrid"};
    assert_int_equal(kvik_cache_open(m, &bad, &c), KVIK_ARG);
    bad = (kvik_cache_config){.size = sizeof(kvik_cache_config), .on_full = "explode"};
    assert_int_equal(kvik_cache_open(m, &bad, &c), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "offload"));
    bad = (kvik_cache_config){.size = sizeof(kvik_cache_config), .max_cache_len = UINT32_MAX};
    assert_int_equal(kvik_cache_open(m, &bad, &c), KVIK_LIMIT);
    assert_non_null(strstr(kvik_last_error(), "max_cache_len is 4294967295"));
    assert_int_equal(kvik_layers_open(&bad, 1, NULL, &layers), KVIK_LIMIT);
    static const struct {
        const char *impl, *config;
        uint32_t rows;
    } held[] = {{"sliding_window", "{\"sliding_window\": 24, \"max_cache_len\": 200}", 48},
                {"hybrid", "{\"sliding_window\": 24}", 48},
                {"dynamic", "{\"sliding_window\": 24}", 48},
                {"dynamic", "{}", 112}};
    uint64_t block = 0;
    for (size_t i = countof(held); i-- > 0;) {
        kvik_cache_config k = {.size = sizeof k,
                               .cache_implementation = held[i].impl,
                               .cache_config = held[i].config,
                               .max_sequences = 1};
        if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s", kvik_last_error());
        assert_int_equal(kvik_cache_new(c, &s), 0);
        assert_int_equal(
            kvik_forward(c, &(kvik_span){.size = sizeof(kvik_span), .seq = s, .ids = ids, .n = 100},
                         1, false, NULL),
            0);
        kvik_cache_usage(c, &u);
        if (!block) block = u.live / (held[i].rows / 16);
        assert_true(u.live <= held[i].rows / 16 * block);
        kvik_cache_close(c);
    }
    kvik_model_close(m);
}

/* Each group has its own codecs; sink rows stay raw. */
static void test_codecs(void **state)
{
    (void)state;
    static const struct kv_site of[] = {SITE(32, 0, 64, 64), SITE(0, 0, 64, 64),
                                        SITE(0, 0, 64, 128)};
    static const struct {
        const char *config, *backend;
        uint32_t groups, lead, resid;
    } c[] = {{"{}", "quanto", 3, 0, 128},
             {"{\"residual_length\": 16, \"offloading\": true}", "quanto", 3, 0, 16},
             {"{\"residual_length\": 0}", "quanto", 3, 0, 1},
             {"{\"backend\": \"HQQ\", \"window_length\": 40, \"num_sink_tokens\": 8}", "hqq", 2, 8,
              128}};
    for (size_t i = 0; i < countof(c); i++) {
        struct preset_options o = {.dtype = DT_F16};
        struct kv_group g[3];
        struct kv_keys k;
        uint32_t site[3];
        json_t *j;
        assert_int_equal(json_parse(c[i].config, strlen(c[i].config), "cache_config", &j), 0);
        assert_int_equal(kv_keys_read(j, "cache_config", &k), 0);
        json_decref(j);
        if (preset_settle(preset_find("quantized"), &k, of, 3, &o) < 0) fail_msg("%s", err_last());
        assert_string_equal(o.quant.plane[0].kind->name, c[i].backend);
        int n = preset_groups(of, 3, &o, g, site);
        if (n < 0) fail_msg("%s", err_last());
        assert_int_equal(n, c[i].groups);
        for (int q = 0; q < n; q++) {
            assert_int_equal(g[q].seal.lead, c[i].lead);
            assert_int_equal(g[q].seal.resid, c[i].resid);
            assert_true(g[q].seal.tile && g[q].plane[0].codec->tile == g[q].seal.tile &&
                        g[q].plane[1].codec->tile == g[q].seal.tile);
            assert_int_equal(g[q].stream, k.offloading);
        }
        preset_close(g, (uint32_t)n);
        assert_null(g[0].plane[0].codec);
    }
}

/* Keys and values are quantized separately, each with its own codec or with none. */
static void test_planes(void **state)
{
    (void)state;
    static const struct kv_site of[] = {SITE(0, 0, 64, 64)};
    static const struct {
        const char *config, *text[2];
        uint32_t resid;
    } c[] = {
        {"{\"backend_key\": \"quanto\"}", {"quanto 4-bit groups of 64, unit 1", "none"}, 128},
        {"{\"backend_value\": \"shuffle\"}", {"none", "shuffle"}, 0},
        {"{\"backend_key\": \"hqq\", \"backend_value\": \"shuffle\", \"residual_length\": 16}",
         {"hqq 4-bit channels of 64, zero first", "shuffle"},
         16},
        {"{\"backend\": \"hqq\", \"nbits\": 8, \"nbits_value\": 2, \"axis\": 1, \"axis_key\": 0}",
         {"hqq 8-bit channels of 64, zero first", "hqq 2-bit groups of 64, unit 1, zero first"},
         128},
        {"{\"backend\": \"hqq\", \"backend_key\": \"quanto\", \"q_group_size_value\": 32}",
         {"quanto 4-bit groups of 64, unit 1", "hqq 4-bit channels of 32, zero first"},
         128}};
    for (size_t i = 0; i < countof(c); i++) {
        struct preset_options o = {.dtype = DT_F16};
        struct kv_group g;
        struct kv_keys k;
        uint32_t site;
        json_t *j;
        assert_int_equal(json_parse(c[i].config, strlen(c[i].config), "cache_config", &j), 0);
        if (kv_keys_read(j, "cache_config", &k) < 0) fail_msg("%s", err_last());
        json_decref(j);
        if (preset_settle(preset_find("dynamic"), &k, of, 1, &o) < 0 ||
            preset_groups(of, 1, &o, &g, &site) < 0)
            fail_msg("%s", err_last());
        assert_int_equal(g.seal.resid, c[i].resid);
        for (int p = 0; p < 2; p++) {
            char said[KV_CODEC_TEXT], text[KV_CODEC_TEXT + 32];
            assert_true(kv_codec_describe(g.plane[p].codec, said) >= 0);
            snprintf(text, sizeof text, "%s%s%s", g.plane[p].codec->name, *said ? " " : "", said);
            assert_string_equal(text, c[i].text[p]);
            assert_int_equal(g.plane[p].codec->tile, g.seal.tile);
        }
        preset_close(&g, 1);
    }
}

static void count_notice(void *ctx, const char *text)
{
    assert_non_null(strstr(text, "axis_key"));
    ++*(int *)ctx;
}

static void test_hint(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        int told;
    } c[] = {
        {"{\"backend\": \"hqq\", \"q_group_size\": 16}", 1},
        {"{\"backend\": \"hqq\", \"q_group_size\": 16, \"axis_key\": 1}", 1},
        {"{\"backend\": \"hqq\", \"q_group_size\": 16, \"axis-key\": 1, \"axis_value\": 1}", 0},
        {"{\"backend\": \"quanto\", \"q_group_size\": 16}", 0}};
    kvik_model *m;
    kvik_cache *cache;
    assert_int_equal(kvik_model_open(TINY, &m), 0);
    for (size_t i = 0; i < countof(c); i++) {
        int told = 0;
        kvik_cache_config k = {.size = sizeof k,
                               .cache_config = c[i].config,
                               .max_sequences = 1,
                               .on_notice = count_notice,
                               .notice_ctx = &told};
        if (kvik_cache_open(m, &k, &cache) < 0) fail_msg("%s", kvik_last_error());
        assert_int_equal(told, c[i].told);
        kvik_cache_close(cache);
    }
    kvik_model_close(m);
}

/* Opens a cache with the default budget and begins as many sequences as it is for. */
static void begin_all(kvik_model *m, const char *what, const kvik_cache_config *k)
{
    kvik_cache *c;
    kvik_seq s;
    if (kvik_cache_open(m, k, &c) < 0)
        fail_msg("%s %s: %s", what, k->cache_implementation, kvik_last_error());
    for (uint32_t i = 0; i < k->max_sequences; i++)
        if (kvik_cache_new(c, &s) < 0)
            fail_msg("%s %s %s, %u rows: sequence %u of %u: %s", what, k->cache_implementation,
                     k->cache_config, k->max_cache_len, i, k->max_sequences, kvik_last_error());
    kvik_cache_close(c);
}

/* The default budget of every preset with reserves holds the reserves of all sequences. */
static void test_default_budget(void **state)
{
    (void)state;
    static const char *const models[] = {TINY, "tests/golden/models/gemma3",
                                         "tests/golden/models/gemma2"};
    static const char *const config[] = {"{\"sliding_window\": 24}",
                                         "{\"sliding_window\": 200, \"offloading\": true}", "{}"};
    static const uint32_t seqs[] = {1, 2, 64}, len[] = {300, 2048};
    for (size_t i = 0; i < countof(models); i++) {
        kvik_model *m;
        if (kvik_model_open(models[i], &m) < 0) fail_msg("%s", kvik_last_error());
        for (uint32_t n = 0; n < countof(config) * countof(seqs) * countof(len); n++)
            for (uint32_t p = 0; preset_at(p); p++) {
                kvik_cache_config k = {.size = sizeof k,
                                       .cache_implementation = preset_at(p)->name,
                                       .cache_config = config[n % countof(config)],
                                       .max_sequences = seqs[n / countof(config) % countof(seqs)],
                                       .max_cache_len = len[n / countof(config) / countof(seqs)],
                                       .on_full = n % 2 ? "offload" : NULL};
                bool windows = i || n % countof(config) != 2;
                if (!preset_at(p)->reserve || (preset_at(p)->windowed && !windows)) continue;
                begin_all(m, models[i], &k);
            }
        kvik_model_close(m);
    }
}

/* Every configuration in the list of codecs opens, and each is another one.  A kind that seals by position is listed
 * with fewer bits for values, too. */
static void test_listed(void **state)
{
    (void)state;
    kvik_model *m;
    kvik_cache *c;
    char *text;
    json_t *o, *one, *seen = json_object();
    size_t i;
    bool mixed = false;
    assert_int_equal(kvik_model_open("tests/golden/models/llama-d64", &m), 0);
    assert_int_equal(kvik_model_describe_caches(m, &text), 0);
    assert_int_equal(json_parse(text, strlen(text), "caches", &o), 0);
    kvik_free(text);
    json_array_foreach(json_object_get(o, "codecs"), i, one)
    {
        const char *config = json_string_value(json_object_get(one, "cache_config"));
        const char *name = json_string_value(json_object_get(one, "name"));
        kvik_cache_config k = {.size = sizeof k, .cache_config = config, .max_cache_len = 64};
        if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s: %s", config, kvik_last_error());
        kvik_cache_close(c);
        assert_null(json_object_get(seen, name));
        json_object_set_new(seen, name, json_true());
        mixed |= strstr(name, "/3 bits") != NULL;
    }
    assert_true(json_object_get(seen, "quanto 4 bits") && json_object_get(seen, "hqq 1 bit"));
    assert_true(mixed && !json_object_get(seen, "quanto 4/2 bits"));
    json_decref(seen);
    json_decref(o);
    kvik_model_close(m);
}

/* A reserve follows the policy: layers with a window never set aside more than two windows, a step
 * and a copy. */
static void test_reserve(void **state)
{
    (void)state;
    static const char *const config[] = {"{}", "{\"sliding_window\": 24}",
                                         "{\"window_length\": 24, \"num_sink_tokens\": 4}"};
    uint64_t reserved[countof(config)];
    kvik_model *m;
    kvik_cache *c;
    kvik_usage u = {.size = sizeof u};
    kvik_seq s;
    assert_int_equal(kvik_model_open(TINY, &m), 0);
    for (size_t i = 0; i < countof(config); i++) {
        kvik_cache_config k = {.size = sizeof k,
                               .cache_implementation = "static",
                               .cache_config = config[i],
                               .max_cache_len = 1600,
                               .step_tokens = 16,
                               .max_sequences = 1};
        if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s", kvik_last_error());
        assert_int_equal(kvik_cache_new(c, &s), 0);
        kvik_cache_usage(c, &u);
        reserved[i] = u.reserved;
        assert_int_equal(kvik_cache_reserve(c, s, 1600), 0);
        assert_int_equal(kvik_cache_reserve(c, s, 1601), KVIK_LIMIT);
        assert_non_null(strstr(kvik_last_error(), "max_cache_len is 1600"));
        kvik_cache_close(c);
    }
    kvik_model_close(m);
    assert_true(reserved[0] > 0 && reserved[1] > 0);
    assert_true(reserved[1] * 12 < reserved[0]);
    assert_true(reserved[2] * 11 < reserved[0]);
}

/* On a model without attention a strategy that cuts, quantizes or moves rows says that there are none. */
static char heard[512];
static void hear(void *ctx, const char *line)
{
    (void)ctx;
    snprintf(heard, sizeof heard, "%s", line);
}

static void test_states(void **state)
{
    static const struct {
        const char *model, *impl, *config, *says; /* "": nothing */
    } cases[] = {
        {"mamba", "dynamic", NULL, ""},
        {"mamba", "mamba", NULL, ""},
        {"mamba", "hybrid", NULL, ""},
        {"mamba", "static", NULL, ""},
        {"mamba", "quantized", NULL,
         "nothing is quantized: the model has no attention, only states, which take 11.2 KiB"},
        {"mamba2", "dynamic", "{\"backend_key\": \"hqq\"}", "nothing is quantized"},
        {"mamba", "offloaded", NULL, "nothing is moved to disk"},
        {"falcon-mamba", "dynamic", "{\"offloading\": true}", "nothing is moved to disk"},
        {"mamba", "sliding_window", "{\"sliding_window\": 20}", "nothing is forgotten"},
        {"jamba", "quantized", "{\"q_group_size\": 10}", ""},
        {"jamba", "jamba", NULL, ""},
        {"zamba2", "offloaded", NULL, ""},
        {"qwen3-next", "hybrid", NULL, ""},
    };
    (void)state;
    for (size_t i = 0; i < countof(cases); i++) {
        char path[80];
        kvik_model *m;
        kvik_cache *c;
        const kvik_cache_config k = {.size = sizeof k,
                                     .cache_implementation = cases[i].impl,
                                     .cache_config = cases[i].config,
                                     .max_cache_len = 64,
                                     .max_sequences = 1,
                                     .on_notice = hear};
        snprintf(path, sizeof path, "tests/golden/models/%s", cases[i].model);
        assert_int_equal(kvik_model_open(path, &m), 0);
        heard[0] = 0;
        if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s: %s", path, kvik_last_error());
        if (*cases[i].says ? !strstr(heard, cases[i].says) : *heard)
            fail_msg("%s %s: \"%s\" is not in \"%s\"", path, cases[i].impl, cases[i].says, heard);
        kvik_cache_close(c);
        kvik_model_close(m);
    }
}

#define POLICY(...) (&(const kvik_policy){.size = sizeof(kvik_policy), __VA_ARGS__})
#define CODEC(...)  (&(const kvik_codec){.size = sizeof(kvik_codec), __VA_ARGS__})
#define CONFIG(...)                                                                                \
    {                                                                                              \
        .size = sizeof(kvik_cache_config), __VA_ARGS__                                             \
    }

/* What is said by fields is what JSON says, key by key. */
static void test_fields(void **state)
{
    (void)state;
    const struct {
        kvik_cache_config by, json;
    } lines[] = {
        {CONFIG(.policy = POLICY(.sliding_window = 24)),
         CONFIG(.cache_config = "{\"sliding_window\": 24}")},
        {CONFIG(.policy = POLICY(.window_length = 20)),
         CONFIG(.cache_config = "{\"window_length\": 20, \"num_sink_tokens\": 0}")},
        {CONFIG(.cache_implementation = "sink",
                .policy = POLICY(.window_length = 20, .num_sink_tokens = 4)),
         CONFIG(.cache_implementation = "sink",
                .cache_config = "{\"window_length\": 20, \"num_sink_tokens\": 4}")},
        {CONFIG(.codec = CODEC(.backend = "kvik", .nbits = KVIK_AUTO, .max_kld = 0.25)),
         CONFIG(.cache_config = "{\"backend\": \"kvik\", \"nbits\": \"auto\", \"max_kld\": 0.25}")},
        {CONFIG(.codec = CODEC(.backend = "kvik", .k_bits = 8, .v_bits = 3)),
         CONFIG(.cache_config = "{\"backend\": \"kvik\", \"k_bits\": 8, \"v_bits\": 3}")},
        {CONFIG(.codec = CODEC(.backend = "hqq", .nbits = 2, .axis_key = 1, .axis_value = 1,
                               .q_group_size = 16, .residual_length = 32)),
         CONFIG(.cache_config =
                    "{\"backend\": \"hqq\", \"nbits\": 2, \"axis_key\": 1, \"axis_value\": 1, "
                    "\"q_group_size\": 16, \"residual_length\": 32}")},
        {CONFIG(.codec = CODEC(.backend_key = "quanto", .backend_value = "none")),
         CONFIG(.cache_config = "{\"backend_key\": \"quanto\", \"backend_value\": \"none\"}")},
        {CONFIG(.cache_implementation = "quantized", .codec = CODEC(.nbits = 2)),
         CONFIG(.cache_implementation = "quantized", .cache_config = "{\"nbits\": 2}")},
        {CONFIG(.tier = KVIK_TIER_DISK), CONFIG(.cache_config = "{\"offloading\": true}")},
        {CONFIG(.tier = KVIK_TIER_MEMORY), CONFIG(.cache_config = "{\"offloading\": false}")},
        {CONFIG(.tier = KVIK_TIER_DISK_FULL),
         CONFIG(.cache_config = "{\"offloading\": true, \"offload_only_non_sliding\": true}")},
        {CONFIG(.cross_codec = CODEC(.backend = "quanto", .nbits = 2)),
         CONFIG(.cross_cache_config = "{\"backend\": \"quanto\", \"nbits\": 2}")},
        /* the same twice, and the rest of each */
        {CONFIG(.codec = CODEC(.backend = "quanto", .nbits = 4),
                .cache_config = "{\"nbits\": 4, \"sliding_window\": 8}"),
         CONFIG(.cache_config = "{\"nbits\": 4, \"sliding_window\": 8, \"backend\": \"quanto\"}")},
    };
    for (size_t i = 0; i < countof(lines); i++) {
        struct preset_choice a = {0}, b = {0};
        if (settings_read(&lines[i].by, &a) < 0) fail_msg("row %zu: %s", i, kvik_last_error());
        if (settings_read(&lines[i].json, &b) < 0) fail_msg("row %zu: %s", i, kvik_last_error());
        const struct kv_keys *k[2] = {&a.keys, &a.cross_keys}, *w[2] = {&b.keys, &b.cross_keys};
        assert_ptr_equal(a.preset, b.preset);
        assert_int_equal(a.streaming, b.streaming);
        for (int j = 0; j < 2; j++) {
            struct kv_codec_pair x, y;
            assert_int_equal(k[j]->given, w[j]->given);
            assert_int_equal(k[j]->n_options, w[j]->n_options);
            assert_true(k[j]->choose == w[j]->choose && k[j]->max_kld == w[j]->max_kld);
            assert_int_equal(kv_keys_codecs(k[j], a.preset, &x), 0);
            assert_int_equal(kv_keys_codecs(w[j], a.preset, &y), 0);
            assert_memory_equal(&x, &y, sizeof x);
            assert_memory_equal(k[j], w[j], offsetof(struct kv_keys, option));
        }
    }
}

/* A value that is given twice is the same, or an error; no field is ignored. */
static void test_fields_refused(void **state)
{
    (void)state;
    const struct {
        kvik_cache_config config;
        const char *says;
    } lines[] = {
        {CONFIG(.max_cache_len = 50, .cache_config = "{\"max_cache_len\": 60}"),
         "60 in cache_config and 50"},
        {CONFIG(.policy = POLICY(.sliding_window = 24), .cache_config = "{\"sliding_window\": 25}"),
         "different values of sliding_window"},
        {CONFIG(.codec = CODEC(.nbits = 4), .cache_config = "{\"backend\": \"hqq\", \"nbits\": 2}"),
         "different values of nbits"},
        {CONFIG(.codec = CODEC(.backend = "hqq"), .cache_config = "{\"backend\": \"quanto\"}"),
         "different values of backend"},
        {CONFIG(.tier = KVIK_TIER_MEMORY, .cache_config = "{\"offloading\": true}"),
         "different values of offloading"},
        {CONFIG(.tier = KVIK_TIER_MEMORY, .cache_implementation = "offloaded"), "offloading=false"},
        {CONFIG(.tier = (enum kvik_tier)9), "tier is 9"},
        {CONFIG(.policy = POLICY(.sliding_window = 4, .window_length = 9, .num_sink_tokens = 1)),
         "contradict"},
        {CONFIG(.policy = POLICY(.num_sink_tokens = 4)), "num_sink_tokens"},
        {CONFIG(.policy = POLICY(.sliding_window = (uint64_t)1 << 63)), "sliding_window must be"},
        {CONFIG(.codec = CODEC(.nbits = 4)), "needs a backend"},
        {CONFIG(.codec = CODEC(.backend = "kvik", .max_kld = 0.1)), "max_kld is for"},
        {CONFIG(.codec = CODEC(.backend = "kvik", .nbits = KVIK_AUTO, .max_kld = -1)),
         "max_kld must be"},
        {CONFIG(.codec = CODEC(.backend = "qvanto")), "did you mean \"quanto\""},
        {CONFIG(.codec = CODEC(.backend = "\xFF")), "is not available"},
        {CONFIG(.codec = CODEC(.backend = "hqq", .axis_key = 7)), "axis_key must be"},
        {CONFIG(.codec = &(const kvik_codec){.size = 3}), "kvik_codec.size"},
        {CONFIG(.policy = &(const kvik_policy){.size = 0}), "kvik_policy.size"},
        {CONFIG(.cross_codec = CODEC(.nbits = 2), .cross_cache_config = "{\"nbits\": 4}"),
         "different values of nbits"},
    };
    for (size_t i = 0; i < countof(lines); i++) {
        struct preset_choice s = {0};
        int e = settings_read(&lines[i].config, &s);
        if (e >= 0 || !strstr(kvik_last_error(), lines[i].says))
            fail_msg("row %zu: %d %s", i, e, kvik_last_error());
    }
    kvik_cache_config config = CONFIG(.policy = POLICY(.window_length = 20, .num_sink_tokens = 4),
                                      .codec = CODEC(.backend = "hqq"), .tier = KVIK_TIER_DISK);
    for (int k = 0;; k++) {
        struct preset_choice s = {0};
        mem_fail_at(k, false);
        int e = settings_read(&config, &s);
        mem_fail_at(-1, false);
        if (e >= 0) break;
        assert_int_equal(e, KVIK_NOMEM);
        assert_true(k < 1000);
    }
}

/* What the options of a generation say of its cache is as if the configuration said it, which comes first. */
static void test_options(void **state)
{
    (void)state;
    kvik_generation g;
    assert_int_equal(kvik_generation_init(&g, NULL), 0);
    assert_int_equal(
        kvik_generation_set(
            &g, "{\"cache_implementation\": \"quantized\", \"cache_config\": {\"nbits\": 2}, "
                "\"max_cache_len\": 60, \"cross_cache_implementation\": \"static\", "
                "\"cross_cache_config\": {\"offloading\": true}, \"max_encoder_len\": 9}"),
        0);
    const kvik_cache_config none = CONFIG(.options = &g),
                            some = CONFIG(.options = &g, .cache_implementation = "static",
                                          .cache_config = "{}", .max_cache_len = 50,
                                          .cross_cache_implementation = "dynamic",
                                          .cross_cache_config = "{}", .max_encoder_len = 8),
                            twice =
                                CONFIG(.options = &g, .cache_config = "{\"max_cache_len\": 50}");
    kvik_cache_config merged;
    struct preset_choice s = {0};
    assert_int_equal(settings_take(&none, &merged), 0);
    assert_int_equal(merged.max_encoder_len, 9);
    assert_int_equal(settings_read(&merged, &s), 0);
    assert_string_equal(s.preset->name, "quantized");
    assert_string_equal(s.cross->name, "static");
    assert_int_equal(s.max_cache_len, 60);
    assert_true(s.keys.n_options && s.cross_keys.offloading);
    assert_int_equal(settings_take(&some, &merged), 0);
    assert_int_equal(merged.max_encoder_len, 8);
    assert_int_equal(settings_read(&merged, &s), 0);
    assert_string_equal(s.preset->name, "static");
    assert_string_equal(s.cross->name, "dynamic");
    assert_int_equal(s.max_cache_len, 50);
    assert_false(s.keys.n_options || s.cross_keys.offloading);
    assert_int_equal(settings_take(&twice, &merged), 0);
    assert_int_equal(settings_read(&merged, &s), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "50 in cache_config and 60"));
    g.size = 3;
    assert_int_equal(settings_take(&none, &merged), KVIK_ARG);
    g.size = sizeof g;
    kvik_generation_done(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sentences), cmocka_unit_test(test_states),
        cmocka_unit_test(test_options),   cmocka_unit_test(test_groups),
        cmocka_unit_test(test_names),     cmocka_unit_test(test_bound),
        cmocka_unit_test(test_reserve),   cmocka_unit_test(test_default_budget),
        cmocka_unit_test(test_codecs),    cmocka_unit_test(test_listed),
        cmocka_unit_test(test_planes),    cmocka_unit_test(test_hint),
        cmocka_unit_test(test_fields),    cmocka_unit_test(test_fields_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

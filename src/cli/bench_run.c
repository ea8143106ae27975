/* bench_run.c - measures one strategy: prefills to each depth, then decodes a few tokens there.
 *
 * Runs of all strategies alternate, so a machine that slows down slows all of them.  The report takes medians.  The tokens
 * are arbitrary, since speed does not depend on them. */
#include "cli/bench.h"

#include <string.h>

/* Least tokens of one call, hence between two samples of the memory curve. */
enum { PIECE = 256 };

double bench_median(const double *v, uint32_t n)
{
    double copy[256];
    n = MIN(n, (uint32_t)countof(copy));
    memcpy(copy, v, n * sizeof *v);
    return median_of(copy, n);
}

double bench_floor(const struct bench *b, const struct bench_depth *d)
{
    return b->bandwidth > 0 ? ((double)b->weight_bytes + (double)d->bytes) / b->bandwidth : 0;
}

json_t *bench_describe(const kvik_model *m)
{
    char *s;
    json_t *o = NULL;
    if (kvik_model_describe(m, &s) < 0) return NULL;
    (void)json_parse(s, strlen(s), "model description", &o);
    kvik_free(s);
    return o;
}

static bool has_window(const kvik_model *m)
{
    json_t *o = bench_describe(m), *l;
    size_t i;
    bool found = false;
    json_array_foreach(json_object_get(o, "layers"), i, l) found |=
        json_integer_value(json_object_get(l, "window")) > 0;
    json_decref(o);
    return found;
}

uint32_t bench_strategies(const kvik_model *m, uint32_t longest, struct bench_strategy *s,
                          uint32_t room)
{
    static char window[64], sink[80];
    bool own = has_window(m);
    uint32_t w = MAX(longest / 4, 32u);
    snprintf(window, sizeof window, "{\"sliding_window\":%u}", w);
    snprintf(sink, sizeof sink, "{\"window_length\":%u,\"num_sink_tokens\":4}", w);
    const struct bench_strategy all[] = {
        {"dynamic", "dynamic", NULL},
        {"static", "static", NULL},
        {"offloaded", "offloaded", NULL},
        {"offloaded static", "offloaded_static", NULL},
        {"quantized quanto 4 bits", "quantized", "{\"backend\":\"quanto\",\"nbits\":4}"},
        {"quantized quanto 2 bits", "quantized", "{\"backend\":\"quanto\",\"nbits\":2}"},
        {"quantized hqq 4 bits", "quantized",
         "{\"backend\":\"hqq\",\"nbits\":4,\"axis_key\":1,\"axis_value\":1}"},
        {"quantized offloaded", "offloaded", "{\"backend\":\"quanto\",\"nbits\":4}"},
        {"sliding window", "sliding_window", own ? NULL : window},
        {"sink", "sink", sink},
    };
    uint32_t n = MIN((uint32_t)countof(all), room);
    memcpy(s, all, n * sizeof *s);
    return n;
}

struct bench_job {
    kvik_cache *cache;
    kvik_seq seq;
    int32_t *ids;
    float *logits;
    uint32_t len;
};

static int feed(struct bench_job *j, uint32_t n, bool logits)
{
    kvik_span span = {.size = sizeof span, .seq = j->seq, .ids = j->ids + j->len, .n = n};
    int e = kvik_forward(j->cache, &span, 1, false, logits ? j->logits : NULL);
    if (e >= 0) j->len += n;
    return e;
}

static void sample(struct bench_job *j, struct bench_row *r)
{
    kvik_usage u = {.size = sizeof u};
    if (r->n_samples == BENCH_SAMPLES) return;
    kvik_cache_usage(j->cache, &u);
    r->sample_tokens[r->n_samples] = j->len;
    r->sample_bytes[r->n_samples++] = u.bytes;
}

/* Prefills to one depth and decodes there. */
static int measure(struct bench *b, struct bench_row *r, struct bench_job *j, uint32_t d,
                   uint32_t run)
{
    struct bench_depth *at = &r->at[d];
    uint32_t longest = b->depth[b->n_depths - 1], piece = MAX(PIECE, longest / 40 + 1);
    uint32_t before = j->len;
    double begun = now_seconds(), step[256];
    kvik_usage u = {.size = sizeof u};
    at->depth = b->depth[d];
    while (j->len < b->depth[d]) {
        int e = feed(j, MIN(piece, b->depth[d] - j->len), false);
        if (e < 0) return e;
        if (run == 0) sample(j, r);
        if (interrupt_seen()) return ERR_CANCELLED;
    }
    double took = now_seconds() - begun;
    at->prefill[run] = j->len > before && took > 0 ? (j->len - before) / took : 0;
    for (uint32_t i = 0; i < b->steps; i++) {
        begun = now_seconds();
        int e = feed(j, 1, true);
        if (e < 0) return e;
        step[i] = now_seconds() - begun;
    }
    took = bench_median(step, b->steps);
    at->decode[run] = took > 0 ? 1 / took : 0;
    kvik_cache_usage(j->cache, &u);
    at->bytes = u.live + u.states + u.spilled;
    if (run == 0) sample(j, r);
    r->peak = MAX(r->peak, u.peak_bytes);
    return 0;
}

static int begin(struct bench *b, const struct bench_strategy *s, struct bench_job *j)
{
    const struct common *o = &b->session->common;
    uint32_t longest = b->depth[b->n_depths - 1] + b->n_depths * b->steps + 1;
    uint32_t vocab = kvik_model_vocab(b->session->model);
    kvik_cache_config c = {
        .size = sizeof c,
        .cache_implementation = s->implementation,
        .cache_config = s->config,
        .cache_memory = o->cache_memory,
        .max_sequences = 1,
        .max_cache_len = longest,
        .threads = o->threads,
        .compute = o->compute,
        .isa = o->isa,
        .on_full = o->on_full,
        .spill_dir = o->spill_dir,
    };
    TRY(kvik_cache_open(b->session->model, &c, &j->cache));
    TRY(kvik_cache_new(j->cache, &j->seq));
    j->ids = mem_array(longest, sizeof *j->ids);
    j->logits = mem_array(vocab, sizeof *j->logits);
    if (!j->ids || !j->logits) return ERR_NOMEM;
    for (uint32_t i = 0, x = 1; i < longest; i++) {
        x = x * 1664525u + 1013904223u;
        j->ids[i] = (int32_t)((x >> 8) % vocab);
    }
    return 0;
}

int bench_run(struct bench *b, struct bench_row *r, uint32_t run, struct progress *p)
{
    struct bench_job j = {0};
    if (r->refused) return 0;
    int e = begin(b, &r->s, &j);
    for (uint32_t d = 0; e >= 0 && d < b->n_depths; d++) {
        e = measure(b, r, &j, d, run);
        if (p) progress_show(p, run * b->n_depths + d + 1, (uint64_t)b->runs * b->n_depths);
    }
    kvik_cache_close(j.cache);
    mem_free(j.ids);
    mem_free(j.logits);
    if (e == ERR_CANCELLED) return EXIT_INTERRUPTED;
    if (e < 0) {
        const char *why = kvik_last_error();
        r->refused = mem_array(strlen(why) + 1, 1);
        if (r->refused) memcpy(r->refused, why, strlen(why) + 1);
    }
    return 0;
}

json_t *bench_json(const struct bench *b)
{
    json_t *rows = json_array();
    const struct bench_row *base = &b->row[0];
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const struct bench_row *r = &b->row[i];
        json_t *o = json_pack("{s:s, s:s, s:s?}", "strategy", r->s.name, "cache_implementation",
                              r->s.implementation, "cache_config", r->s.config);
        json_t *at = json_array(), *memory = json_array();
        if (r->refused) json_object_set_new(o, "refused", json_string(r->refused));
        for (uint32_t d = 0; !r->refused && d < b->n_depths; d++) {
            const struct bench_depth *x = &r->at[d];
            double decode = bench_median(x->decode, b->runs);
            double dynamic = bench_median(base->at[d].decode, b->runs);
            json_array_append_new(at, json_pack("{s:i, s:f, s:f, s:I, s:f, s:f}", "depth",
                                                (int)x->depth, "prefill_tokens_per_second",
                                                bench_median(x->prefill, b->runs),
                                                "decode_tokens_per_second", decode, "cache_bytes",
                                                (json_int_t)x->bytes, "ratio_to_dynamic",
                                                dynamic > 0 ? decode / dynamic : 0.0,
                                                "ratio_to_floor", decode * bench_floor(b, x)));
        }
        for (uint32_t k = 0; k < r->n_samples; k++)
            json_array_append_new(memory, json_pack("[i, I]", (int)r->sample_tokens[k],
                                                    (json_int_t)r->sample_bytes[k]));
        json_object_set_new(o, "peak_bytes", json_integer((json_int_t)r->peak));
        json_object_set_new(o, "depths", at);
        json_object_set_new(o, "memory", memory);
        json_array_append_new(rows, o);
    }
    return json_pack("{s:s, s:i, s:i, s:f, s:I, s:o}", "model", b->model, "runs", (int)b->runs,
                     "steps", (int)b->steps, "read_bandwidth", b->bandwidth, "weight_bytes",
                     (json_int_t)b->weight_bytes, "strategies", rows);
}

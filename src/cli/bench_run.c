/* bench_run.c - measures one strategy as a conversation uses it: the sequence grows in pieces, and at each depth a few tokens
 * are decoded, a few steps at a time in turn with a dynamic cache (bench_pace.c).
 *
 * Runs of all strategies alternate, so a machine that slows down slows all of them.  The report takes medians. */
#include "cli/bench.h"

#include <string.h>

/* several steps in a row, because the first step wakes the threads of the cache */
enum { TURN = 4 };

/* True if some layer has a window.  *some_full: another layer has none. */
static bool has_window(const kvik_model *m, bool *some_full)
{
    json_t *o = bench_describe(m), *l;
    size_t i;
    bool found = false;
    *some_full = false;
    json_array_foreach(json_object_get(o, "layers"), i, l)
    {
        bool window = json_integer_value(json_object_get(l, "window")) > 0;
        found |= window;
        *some_full |= !window;
    }
    json_decref(o);
    return found;
}

static void add_strategy(struct bench_strategy *s, uint32_t *n, uint32_t room,
                         struct bench_strategy one)
{
    if (*n < room) s[(*n)++] = one;
}

uint32_t bench_strategies(struct bench *b, struct bench_strategy *s, uint32_t room)
{
    bool some_full, own = has_window(b->engine->model, &some_full);
    uint32_t w = MAX(bench_longest(b) / 4, 32u), n = 0;
    struct bench_strategy window = {.implementation = "sliding_window", .forgets = true};
    struct bench_strategy sink = {.implementation = "sink", .forgets = true};
    b->window = w;
    snprintf(window.name, sizeof window.name, own ? "the model's windows" : "window of %u", w);
    if (!own) snprintf(window.config, sizeof window.config, "{\"sliding_window\":%u}", w);
    snprintf(sink.name, sizeof sink.name, "4 sinks, window of %u", w - 4);
    snprintf(sink.config, sizeof sink.config, "{\"window_length\":%u,\"num_sink_tokens\":4}", w);
    const struct bench_strategy fixed[] = {
        {"dynamic", "dynamic", "", false},
        {"static", "static", "", false},
        {"offloaded", "offloaded", "", false},
        {"offloaded static", "offloaded_static", "", false},
        {"quanto 4 bits", "quantized", "{\"backend\":\"quanto\",\"nbits\":4}", false},
        {"quanto 2 bits", "quantized", "{\"backend\":\"quanto\",\"nbits\":2}", false},
        {"hqq 4 bits", "quantized",
         "{\"backend\":\"hqq\",\"nbits\":4,\"axis_key\":1,\"axis_value\":1}", false},
        {"quanto 4 bits, offloaded", "offloaded", "{\"backend\":\"quanto\",\"nbits\":4}", false},
    };
    for (size_t i = 0; i < countof(fixed); i++)
        add_strategy(s, &n, room, fixed[i]);
    add_strategy(s, &n, room, window);
    add_strategy(s, &n, room, sink);
    return n;
}

int bench_open(const struct bench *b, const struct bench_strategy *s, kvik_cache **cache,
               kvik_seq *seq)
{
    const struct common *o = &b->engine->common;
    kvik_cache_config c =
        cache_config(o, &(struct cache_options){s->implementation, *s->config ? s->config : NULL, 1,
                                                b->n_ids, o->cache_memory});
    TRY(kvik_cache_open(b->engine->model, &c, cache));
    return kvik_cache_new(*cache, seq);
}

int bench_refuse(struct bench_row *r, int error)
{
    if (error == ERR_CANCELLED) return EXIT_INTERRUPTED;
    if (error >= 0 || r->refused) return 0;
    const char *why = kvik_last_error();
    r->refused = mem_array(strlen(why) + 1, 1);
    if (r->refused) memcpy(r->refused, why, strlen(why) + 1);
    return 0;
}

void bench_sample(kvik_cache *c, uint32_t tokens, struct bench_curve *curve)
{
    kvik_usage u = {.size = sizeof u};
    kvik_cache_usage(c, &u);
    uint64_t bytes = u.bytes + u.reserved;
    curve->peak = MAX(curve->peak, MAX(u.peak_bytes, bytes));
    if (curve->n == BENCH_SAMPLES) return;
    curve->tokens[curve->n] = tokens;
    curve->bytes[curve->n++] = bytes;
}

struct bench_job {
    kvik_cache *cache;
    kvik_seq seq;
    float *logits;
    uint32_t len;
};

static int feed_piece(const struct bench *b, struct bench_job *j, uint32_t n, bool logits)
{
    kvik_span span = {.size = sizeof span, .seq = j->seq, .ids = b->ids + j->len, .n = n};
    int e = kvik_forward(j->cache, &span, 1, false, logits ? j->logits : NULL);
    if (e >= 0) j->len += n;
    return e;
}

/* Prefills to one depth and decodes there. */
static int measure_depth(struct bench *b, struct bench_row *r, struct bench_job *j, uint32_t d,
                         uint32_t run)
{
    struct bench_depth *at = &r->at[d];
    uint32_t piece = bench_turn(b), before = j->len;
    double begun = now_seconds(), step[256], pace[256];
    kvik_usage u = {.size = sizeof u};
    at->depth = b->depth[d];
    while (j->len < b->depth[d]) {
        TRY(feed_piece(b, j, MIN(piece, b->depth[d] - j->len), false));
        if (run == 0) bench_sample(j->cache, j->len, &r->pieces);
        if (interrupt_seen()) return ERR_CANCELLED;
    }
    double took = now_seconds() - begun;
    at->prefill[run] = j->len > before && took > 0 ? (j->len - before) / took : 0;
    TRY(bench_pace_begin(b, d));
    for (uint32_t i = 0, end = 0; i < b->steps; i = end) {
        end = MIN(i + TURN, b->steps);
        for (uint32_t k = i; k < end; k++)
            TRY(bench_pace_step(b, &pace[k]));
        for (uint32_t k = i; k < end; k++) {
            begun = now_seconds();
            TRY(feed_piece(b, j, 1, true));
            step[k] = now_seconds() - begun;
        }
    }
    TRY(bench_pace_end(b));
    took = bench_median(step, b->steps);
    at->decode[run] = took > 0 ? 1 / took : 0;
    at->ratio[run] = bench_median(pace, b->steps) * at->decode[run];
    kvik_cache_usage(j->cache, &u);
    at->bytes = u.live + u.states + u.spilled;
    if (run == 0) bench_sample(j->cache, j->len, &r->pieces);
    return 0;
}

int bench_run(struct bench *b, struct bench_row *r)
{
    struct bench_job j = {.logits = mem_array(kvik_model_vocab(b->engine->model), sizeof(float))};
    if (r->refused) {
        mem_free(j.logits);
        return 0;
    }
    int e = j.logits ? bench_open(b, &r->s, &j.cache, &j.seq) : ERR_NOMEM;
    for (uint32_t d = 0; e >= 0 && d < b->n_depths; d++)
        e = measure_depth(b, r, &j, d, r->runs);
    r->runs += e >= 0;
    kvik_cache_close(j.cache);
    mem_free(j.logits);
    return bench_refuse(r, e);
}

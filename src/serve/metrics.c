/* metrics.c - GET /metrics: what Prometheus reads, under the names of vLLM, so that its dashboards and routers work. */
#include "serve/protocol.h"

static void number(struct buf *b, const char *name, const char *type, const char *help, double v)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n%s %.17g\n", name, help, name, type, name, v);
}

static void gauge(struct buf *b, const char *name, const char *type, const char *help, double v)
{
    char full[80];
    snprintf(full, sizeof full, "vllm:%s", name);
    number(b, full, type, help, v);
}

/* Adds each cache's part of the one budget, where requests can choose a cache. */
static void add_caches(struct buf *b, const struct server *s, const struct scheduler_state *t)
{
    static const struct {
        const char *name, *help;
        size_t at;
    } row[] = {
        {"limit", "Part of the budget that the cache may use now.",
         offsetof(struct cache_bytes, budget)},
        {"used", "Bytes of its rows and tables.", offsetof(struct cache_bytes, used)},
        {"kept", "Bytes of rows that are kept for reuse.", offsetof(struct cache_bytes, index)}};
    for (size_t k = 0; k < countof(row); k++) {
        buf_printf(b, "# HELP kvik:cache_%s_bytes %s\n# TYPE kvik:cache_%s_bytes gauge\n",
                   row[k].name, row[k].help, row[k].name);
        for (uint32_t i = 0; i < s->caches.n; i++)
            buf_printf(b, "kvik:cache_%s_bytes{cache=\"%u\",cache_implementation=\"%s\"} %llu\n",
                       row[k].name, i, s->caches.use[i].name,
                       (unsigned long long)*(
                           const uint64_t *)(const void *)((const char *)&t->cache[i] + row[k].at));
    }
}

/* Adds what the shared store did (--prefix-store). */
static void add_store(struct buf *b, const kvik_shared_state *t)
{
    const struct {
        const char *name, *type, *help;
        uint64_t v;
    } all[] = {
        {"reads_total", "counter", "Values that were read.", t->reads},
        {"misses_total", "counter", "Values that the store lacked.", t->misses},
        {"read_bytes_total", "counter", "Bytes of rows that were read.", t->bytes_read},
        {"writes_total", "counter", "Values that were written.", t->writes},
        {"written_bytes_total", "counter", "Bytes of values that were written.", t->bytes_written},
        {"damaged_total", "counter", "Values that were damaged or foreign.", t->damaged},
        {"failures_total", "counter", "Calls that failed or came too late.", t->failures},
        {"waiting_bytes", "gauge", "Bytes that wait to be written.", t->waiting},
        {"failing", "gauge", "1 while the last read or the last write has failed.",
         t->reads_fail || t->writes_fail},
    };
    for (size_t i = 0; i < countof(all); i++) {
        char full[80];
        snprintf(full, sizeof full, "kvik:store_%s", all[i].name);
        number(b, full, all[i].type, all[i].help, (double)all[i].v);
    }
}

/* Adds the same numbers under the names of llama-server. */
static void llama_numbers(const struct scheduler_state *t, struct buf *b)
{
    double read = (double)(t->prompt_tokens - MIN(t->reused_tokens, t->prompt_tokens)),
           written = (double)t->new_tokens;
    const struct {
        const char *name, *type, *help;
        double v;
    } all[] = {
        {"prompt_tokens_total", "counter", "Tokens of prompts that were computed.", read},
        {"prompt_tokens_cached_total", "counter", "Tokens of prompts whose rows were reused.",
         (double)t->reused_tokens},
        {"prompt_seconds_total", "counter", "Seconds from the first step to the first token.",
         t->prompt_seconds},
        {"tokens_predicted_total", "counter", "Tokens that were generated.", written},
        {"tokens_predicted_seconds_total", "counter", "Seconds from the first token to the last.",
         t->writing_seconds},
        {"n_decode_total", "counter", "Steps of the model.", (double)t->steps},
        {"n_tokens_max", "counter", "Tokens of the longest text with its prompt.",
         (double)t->longest},
        {"spec_decode_num_draft_tokens_total", "counter", "Tokens that were drafted.", 0},
        {"spec_decode_num_accepted_tokens_total", "counter", "Drafted tokens that were right.", 0},
        {"spec_decode_num_drafts_total", "counter", "Drafts.", 0},
        {"prompt_tokens_seconds", "gauge", "Tokens of prompts per second, since the start.",
         t->prompt_seconds > 0 ? read / t->prompt_seconds : 0},
        {"predicted_tokens_seconds", "gauge", "New tokens per second, since the start.",
         t->writing_seconds > 0 ? written / t->writing_seconds : 0},
        {"requests_processing", "gauge", "Generations that are computed.", t->running},
        {"requests_deferred", "gauge", "Generations that wait.", t->waiting},
        {"n_busy_slots_per_decode", "gauge", "New tokens that a step of the model gives.",
         t->steps ? written / (double)t->steps : 0},
    };
    for (size_t i = 0; i < countof(all); i++) {
        char full[80];
        snprintf(full, sizeof full, "llamacpp:%s", all[i].name);
        number(b, full, all[i].type, all[i].help, all[i].v);
    }
}

static void vllm_numbers(const struct server *s, const struct scheduler_state *t, struct buf *b)
{
    gauge(b, "num_requests_running", "gauge", "Generations that are computed.", t->running);
    gauge(b, "num_requests_waiting", "gauge", "Generations that wait.", t->waiting);
    gauge(b, "kv_cache_usage_perc", "gauge",
          "Share of the cache's budget that generations use, from 0 to 1.",
          t->usage.budget ? (double)(t->usage.budget - t->usage.free) / (double)t->usage.budget
                          : 0);
    gauge(b, "prefix_cache_queries_total", "counter", "Tokens of prompts.",
          (double)t->prompt_tokens);
    gauge(b, "prefix_cache_hits_total", "counter", "Tokens of prompts whose rows were reused.",
          (double)t->reused_tokens);
    gauge(b, "prompt_tokens_total", "counter", "Tokens of prompts.", (double)t->prompt_tokens);
    gauge(b, "generation_tokens_total", "counter", "Tokens that were generated.",
          (double)t->new_tokens);
    gauge(b, "num_preemptions_total", "counter",
          "Generations that gave their rows up and began again.", (double)t->parkings);
    number(b, "kvik:steps_total", "counter", "Steps of the model.", (double)t->steps);
    number(b, "kvik:step_seconds_total", "counter", "Seconds in steps of the model.",
           t->busy_seconds);
    number(b, "kvik:between_steps_seconds_total", "counter",
           "Seconds of the scheduler between steps.", t->own_seconds);
    buf_printf(
        b,
        "# HELP vllm:cache_config_info How the cache is configured.\n# TYPE vllm:cache_config_info gauge\n"
        "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"%llu\"} 1\n",
        (unsigned long long)s->caches.use[0].tokens / 16);
    if (s->caches.n > 1) add_caches(b, s, t);
    if (t->shares) add_store(b, &t->store);
}

static int metrics(struct server *s, struct exchange *x)
{
    struct scheduler_state t;
    struct buf b;
    if (s->o.metrics == SERVE_METRICS_OFF) {
        route_refuse(exchange_hold(x), 501,
                     "this server shows no metrics; --metrics-compat gives them names");
        return 0;
    }
    scheduler_look(s->scheduler, &t);
    buf_init(&b, 1 << 20);
    if (s->o.metrics == SERVE_METRICS_LLAMACPP)
        llama_numbers(&t, &b);
    else
        vllm_numbers(s, &t, &b);
    size_t n = b.len;
    char *text = buf_take(&b);
    if (!text) return ERR_NOMEM;
    exchange_answer(x, 200, "text/plain; version=0.0.4; charset=utf-8", text, n);
    return 0;
}

static const struct route routes[] = {
    {"/metrics", EXCHANGE_GET, .light = true, .protocol = &protocol_openai, .answer = metrics},
};
ROUTES(routes);

/* cmd_plan.c - kvik plan: predicts, before anything is run, how much memory each kind of cache takes and how fast it
 * decodes; and with --memory, which strategies fit. */
#include "base/bandwidth.h"
#include "cli/plan.h"

#include <string.h>

enum { DECODED = 256, MOST_BEAMS = 4096 };

struct options {
    struct common common;
    bool bytes_only;
    uint64_t memory;
    const char *implementation;
    uint32_t context, decoded, beams;
    struct arg_list configs;
};

static const struct arg_option table[] = {
    {"context", ARG_UINT, offsetof(struct options, context), "N", NULL,
     "tokens of a sequence, prompt and answer together (default: the model's context)"},
    {"decoded", ARG_UINT, offsetof(struct options, decoded), "N", NULL,
     "how many of them are decoded; the others are one prompt (default: 256, at most a quarter)"},
    {"beams", ARG_UINT, offsetof(struct options, beams), "N", NULL,
     "sequences that share the prompt and part behind it: beams, or several answers (default: 1)"},
    {"memory", ARG_BYTES, offsetof(struct options, memory), "BYTES", NULL,
     "memory that the cache may take, such as 512M: the strategies that fit come first, the best first"},
    {"cache-implementation", ARG_TEXT, offsetof(struct options, implementation), "NAME", NULL,
     "plan this strategy (default: dynamic, each codec of this build, and offloaded)"},
    {"cache-config", ARG_LIST, offsetof(struct options, configs), "JSON", NULL,
     "plan a cache with these settings; repeat the option for several"},
    {"bytes-only", ARG_FLAG, offsetof(struct options, bytes_only), NULL, NULL,
     "predict no speed, which takes a few seconds of measuring for each strategy"},
    {"json", ARG_FLAG, offsetof(struct options, common.json), NULL, NULL, "print the plan as JSON"},
};

/* Settles the numbers of tokens: of the context, and decoded. */
static int settle_lengths(struct plan *v, const struct options *o)
{
    uint32_t context = kvik_model_context(v->is.engine->model);
    v->context = o->context ? o->context : context;
    v->beams = o->beams;
    v->memory = o->memory;
    v->decoded = o->decoded != UINT32_MAX ? o->decoded : MIN(DECODED, v->context / 4);
    if (v->context > context)
        return say_usage("--context %u exceeds the model's context of %u", v->context, context);
    if (v->decoded >= v->context)
        return say_usage("--decoded %u leaves no prompt in --context %u", v->decoded, v->context);
    return 0;
}

static int predict(struct plan *v)
{
    struct progress p;
    struct bench_load before, after;
    int status = 0;
    for (struct plan_row *r = v->row; !status && r < v->row + v->n_rows; r++)
        status = plan_bytes(v, r);
    plan_sort(v);
    if (!v->measures || status) return status;
    bench_load_read(&before);
    v->bandwidth = bandwidth_read(v->is.engine->common.threads);
    progress_begin(&p, "measuring");
    for (uint32_t i = 0; !status && i < v->n_rows; i++) {
        progress_show(&p, i, v->n_rows);
        if (!v->row[i].refused && v->row[i].fits_in_calls) status = plan_speed(v, &v->row[i]);
    }
    progress_end(&p);
    plan_speed_settle(v);
    bench_load_read(&after);
    v->others = bench_load_others(&before, &after);
    if (!status) say_busy(v->others);
    return status;
}

static bool none_opened(const struct plan *v)
{
    for (uint32_t i = 0; i < v->n_rows; i++)
        if (!v->row[i].refused) return false;
    return true;
}

static int plan(void *ctx, const void *options)
{
    struct plan *v = ctx;
    const struct options *o = options;
    v->measures = !o->bytes_only;
    v->weight_bytes = bench_weight_bytes(v->is.engine->model);
    int status = settle_lengths(v, o);
    if (!status) status = plan_rows(v, o->implementation, &o->configs);
    if (!status) status = predict(v);
    if (status) return status;
    if (o->common.json)
        status = say_json_line(plan_json(v));
    else
        plan_print(v);
    return status || !none_opened(v) ? status
                                     : say_failed("no cache that was asked for is possible");
}

static int check_options(const void *options)
{
    const struct options *o = options;
    if (o->beams < 1 || o->beams > MOST_BEAMS)
        return say_usage("--beams is %u and must be from 1 to %d", o->beams, MOST_BEAMS);
    return 0;
}

static int run_plan(const struct command *self, int argc, char **argv)
{
    static const struct measuring m = {sizeof(struct plan), check_options, plan, plan_close};
    struct options o = {.beams = 1, .decoded = UINT32_MAX};
    int status = measuring_run(self, &m, argc, argv, &o);
    args_list_done(&o.configs);
    return status;
}

const struct command command_plan = {
    .name = "plan",
    .usage = "MODEL [--context N] [--memory BYTES]",
    .summary = "what a cache will take and how fast it will be",
    .about =
        "Predicts the bytes of a cache by kind, exactly and without a run, and tokens per second from steps that it measures\n"
        "in a few seconds. With --memory it says which strategies fit, the best first: rows as they are, then quantized with\n"
        "more bits before fewer, then on disk, then what forgets; and up to how many tokens the others would fit.",
    .run = run_plan,
    .option = table,
    .n_options = countof(table),
    .runs_model = true,
};

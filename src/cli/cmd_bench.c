/* cmd_bench.c - kvik bench: measures memory and speed of each cache strategy.  Speeds are compared with the dynamic cache
 * and with the limit of memory bandwidth, measured in the same run.  All numbers are medians. */
#include "base/bandwidth.h"
#include "cli/bench.h"

#include <stdlib.h>
#include <string.h>

struct options {
    struct common common;
    bool caches;
    const char *depths, *report;
    uint32_t runs, steps;
};

static const struct arg_option table[] = {
    {"caches", ARG_FLAG, offsetof(struct options, caches), NULL, NULL,
     "compare all cache strategies (default: only the dynamic cache)"},
    {"depths", ARG_TEXT, offsetof(struct options, depths), "N,N,...", NULL,
     "numbers of cached tokens at which decoding is measured, ascending (default: 0,512,2048)"},
    {"runs", ARG_UINT, offsetof(struct options, runs), "N", NULL,
     "repetitions; the median is printed (default: 3)"},
    {"steps", ARG_UINT, offsetof(struct options, steps), "N", NULL,
     "decoded tokens per depth and repetition (default: 16)"},
    {"report", ARG_TEXT, offsetof(struct options, report), "FILE", NULL,
     "also write a self-contained HTML page with plots"},
    {"json", ARG_FLAG, offsetof(struct options, common.json), NULL, NULL,
     "print the numbers as JSON"},
};

static int read_depths(const char *text, uint32_t context, struct bench *b)
{
    char *end;
    const char *p = text ? text : "0,512,2048";
    for (;;) {
        unsigned long v = strtoul(p, &end, 10);
        if (end == p || *p == '-' || (*end && *end != ','))
            return say_usage("--depths: \"%.60s\" is not a list of numbers such as 0,512,2048", p);
        uint32_t spare = (b->n_depths + 1) * b->steps + 1; /* tokens decoded up to here */
        if (v + spare > context) {
            if (text)
                return say_usage("--depths: %lu and %u more exceed the model's context of %u", v,
                                 spare, context);
            break; /* a default depth beyond the context of this model */
        }
        if (b->n_depths == BENCH_DEPTHS) return say_usage("--depths: at most %u", BENCH_DEPTHS);
        if (b->n_depths && v <= b->depth[b->n_depths - 1])
            return say_usage("--depths: %lu does not ascend", v);
        b->depth[b->n_depths++] = (uint32_t)v;
        if (!*end) break;
        p = end + 1;
    }
    return b->n_depths ? 0 : say_usage("the model's context of %u is too small", context);
}

/* Adds up all tensors, except an embedding that is only looked up. */
static uint64_t weight_bytes(const kvik_model *m)
{
    json_t *o = bench_describe(m), *t;
    size_t i;
    uint64_t sum = 0;
    bool tied = json_is_true(json_object_get(o, "tied_head"));
    json_array_foreach(json_object_get(o, "tensors"), i, t)
    {
        const char *name = json_string_value(json_object_get(t, "name"));
        bool embed = name && (strstr(name, "embed_tokens") || strstr(name, "token_embd"));
        if (tied || !embed) sum += (uint64_t)json_integer_value(json_object_get(t, "bytes"));
    }
    json_decref(o);
    return sum;
}

static void print(const struct bench *b)
{
    char a[16], c[16];
    printf("model %s: weights %s per step, memory read at %.1f GB/s, medians of %u runs\n\n",
           b->model, bytes_text(b->weight_bytes, a), b->bandwidth / 1e9, b->runs);
    printf("%-24s %10s %7s %10s %10s %10s %9s %9s\n", "strategy", "peak", "depth", "cache",
           "prefill/s", "decode/s", "x dynamic", "x floor");
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const struct bench_row *r = &b->row[i];
        if (r->refused) {
            printf("%-24s %s\n", r->s.name, r->refused);
            continue;
        }
        for (uint32_t d = 0; d < b->n_depths; d++) {
            const struct bench_depth *x = &r->at[d];
            double prefill = bench_median(x->prefill, b->runs);
            double decode = bench_median(x->decode, b->runs);
            double dynamic = bench_median(b->row[0].at[d].decode, b->runs);
            printf("%-24s %10s %7u %10s ", d ? "" : r->s.name, d ? "" : bytes_text(r->peak, a),
                   x->depth, bytes_text(x->bytes, c));
            if (prefill > 0)
                printf("%10.1f ", prefill);
            else
                printf("%10s ", "-");
            printf("%10.1f %9.2f %9.2f\n", decode, dynamic > 0 ? decode / dynamic : 0,
                   decode * bench_floor(b, x));
        }
    }
}

static int measure(struct bench *b, const struct options *o)
{
    struct bench_strategy s[16];
    uint32_t longest = b->depth[b->n_depths - 1];
    b->n_rows = o->caches ? bench_strategies(b->session->model, longest, s, countof(s)) : 1;
    if (!o->caches) s[0] = (struct bench_strategy){"dynamic", "dynamic", NULL};
    b->row = mem_array(b->n_rows, sizeof *b->row);
    if (!b->row) return say_error(ERR_NOMEM);
    for (uint32_t i = 0; i < b->n_rows; i++)
        b->row[i].s = s[i];
    b->bandwidth = bandwidth_read(o->common.threads);
    int status = 0;
    for (uint32_t run = 0; !status && run < b->runs; run++)
        for (uint32_t i = 0; !status && i < b->n_rows; i++) {
            struct progress p;
            progress_begin(&p, b->row[i].s.name);
            status = bench_run(b, &b->row[i], run, &p);
            progress_end(&p);
        }
    return status;
}

static int show(const struct bench *b, const struct options *o)
{
    if (o->report) {
        int e = bench_report(b, o->report);
        if (e < 0) return say_error(e);
    }
    if (!o->common.json) {
        print(b);
        return 0;
    }
    return say_json_line(bench_json(b));
}

static int run_bench(const struct command *self, int argc, char **argv)
{
    struct options o = {.runs = 3, .steps = 16};
    struct args a;
    struct session session = {0};
    struct bench b = {.session = &session};
    json_t *none = json_object();
    int status = args_parse(self, argc, argv, &o, &a);
    if (status == 0 && a.n != 1)
        status = say_usage(a.n ? "kvik bench takes one MODEL" : "kvik bench needs a MODEL");
    if (status == 0 && (o.runs < 1 || o.runs > BENCH_RUNS || o.steps < 1 || o.steps > 256))
        status = say_usage("--runs is 1 to %u, --steps 1 to 256", BENCH_RUNS);
    interrupt_catch();
    if (status == 0) status = session_open(&session, a.word[0], &o.common, NULL, none);
    if (status == 0) {
        b.model = a.word[0];
        b.runs = o.runs;
        b.steps = o.steps;
        b.weight_bytes = weight_bytes(session.model);
        status = read_depths(o.depths, kvik_model_context(session.model), &b);
        if (status == 0) status = measure(&b, &o);
        if (status == 0) status = show(&b, &o);
        for (uint32_t i = 0; i < b.n_rows && b.row; i++)
            mem_free(b.row[i].refused);
        mem_free(b.row);
        session_close(&session);
    }
    json_decref(none);
    args_done(&a);
    return MAX(status, 0);
}

const struct command command_bench = {
    .name = "bench",
    .usage = "MODEL",
    .summary = "memory and speed of each cache strategy",
    .about =
        "Prefills to each depth and decodes there. Prints the peak of cache memory, tokens per second, and two\n"
        "ratios: to the dynamic cache, and to the floor of reading weights and cache once from memory.",
    .run = run_bench,
    .option = table,
    .n_options = countof(table),
    .runs_model = true,
};

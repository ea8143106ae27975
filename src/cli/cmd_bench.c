/* cmd_bench.c - kvik bench: measures memory and speed of each cache strategy.  Speeds are compared with the
 * dynamic cache in turns, and with the limit that memory bandwidth sets, measured in the same run.  All numbers
 * are medians.  Speeds that scatter are measured again as long as the announced time lasts (bench_judge.c). */
#include "base/bandwidth.h"
#include "base/file.h"
#include "cli/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_MOST = 256 };

struct options {
    struct common common;
    bool caches, markdown;
    const char *depths, *report, *text;
    uint32_t runs, steps, seconds;
};

static const struct arg_option table[] = {
    {"caches", ARG_FLAG, offsetof(struct options, caches), NULL, NULL,
     "compare all cache strategies (default: only the dynamic cache)"},
    {"depths", ARG_TEXT, offsetof(struct options, depths), "N,N,...", NULL,
     "measure decoding with this many cached tokens, in ascending order (default: 0,512,2048)"},
    {"runs", ARG_UINT, offsetof(struct options, runs), "N", NULL,
     "repetitions, the median is printed; what scatters is repeated up to three times as often (default: 3)"},
    {"steps", ARG_UINT, offsetof(struct options, steps), "N", NULL,
     "decoded tokens per depth and repetition (default: 16)"},
    {"seconds", ARG_UINT, offsetof(struct options, seconds), "N", NULL,
     "limit of the time; what does not fit is left out (default: 1.5 times what is announced, and 60 at least)"},
    {"text", ARG_TEXT, offsetof(struct options, text), "FILE", NULL,
     "text that is measured (default: what the model writes)"},
    {"report", ARG_OUT, offsetof(struct options, report), "FILE", NULL,
     "also write one page of HTML with charts and tables, which needs nothing from elsewhere"},
    {"markdown", ARG_FLAG, offsetof(struct options, markdown), NULL, NULL,
     "print one table in Markdown"},
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
        /* tokens that are decoded at the depths so far */
        uint32_t spare = (b->n_depths + 1) * b->steps + 1;
        if (v + spare > context) {
            if (text)
                return say_usage("--depths: %lu and %u more exceed the model's context of %u", v,
                                 spare, context);
            break; /* a default depth that is beyond the model's context is left out */
        }
        if (b->n_depths == BENCH_DEPTHS)
            return say_usage("--depths: more than %u numbers; measure the others in another run",
                             BENCH_DEPTHS);
        if (b->n_depths && v <= b->depth[b->n_depths - 1])
            return say_usage("--depths must ascend: %lu comes after %u", v,
                             b->depth[b->n_depths - 1]);
        b->depth[b->n_depths++] = (uint32_t)v;
        if (!*end) break;
        p = end + 1;
    }
    return b->n_depths
               ? 0
               : say_usage(
                     "the model's context of %u has no room for the %u tokens of a measurement; give a smaller --steps",
                     context, b->steps + 1);
}

/* Sets the time limit, and prints before the start how long the benchmark will take. */
static void announce(struct bench *b, uint32_t seconds)
{
    double t = bench_estimate(b);
    b->limit = bench_limit(t, seconds);
    fprintf(stderr, "kvik: measuring %u %s, %u run%s", b->n_rows,
            b->n_rows == 1 ? "strategy" : "strategies", b->runs, b->runs == 1 ? "" : "s");
    if (t > 90)
        fprintf(stderr, ", about %.0f minutes", t / 60);
    else if (t > 1)
        fprintf(stderr, ", about %.0f seconds", t);
    if (b->limit > 90 && !seconds)
        fprintf(stderr, ", at most %.0f minutes", ceil(b->limit / 60));
    else if (b->limit > 0 && (t > 1 || seconds))
        fprintf(stderr, ", at most %.0f second%s", b->limit, b->limit == 1 ? "" : "s");
    fputc('\n', stderr);
}

/* How much of the time limit was used. */
struct time_used {
    struct progress progress;
    double begun;   /* when the limit began to count */
    double longest; /* seconds of the longest row so far: what the next row is expected to take */
    uint32_t done;  /* runs and prompts that were measured */
};

/* Measures one row: its next run, and before the first run its prompt.  If the time limit does not allow it, a row
 * without a run is refused, and another row keeps the runs that it has.  The first run of the dynamic cache is
 * always made. */
static int measure_row(struct bench *b, struct bench_row *r, struct time_used *p)
{
    double begun = now_seconds();
    bool first = r->runs == 0 && !r->refused;
    int status = 0;
    if (r->refused) return 0;
    if (!bench_fits(b, begun - p->begun, first ? p->longest : r->seconds) &&
        !(first && r == b->row)) {
        if (!first) return 0;
        char why[80];
        snprintf(why, sizeof why, "not measured: no time was left of %.0f s", b->limit);
        r->late = true;
        r->refused = mem_strdup(why);
        return r->refused ? 0 : say_error(ERR_NOMEM);
    }
    progress_show(&p->progress, p->done, (uint64_t)b->n_rows * (b->runs + 1));
    if (first) status = bench_prompt(b, r);
    double after_prompt = now_seconds();
    if (!status) status = bench_run(b, r);
    r->seconds = now_seconds() - after_prompt;
    p->longest = fmax(p->longest, now_seconds() - begun);
    p->done += first ? 2 : 1;
    return status;
}

/* Repeats, in passes, the measurements that are not reliable after the runs that the user asked for. */
static int repeat(struct bench *b, struct time_used *p)
{
    int status = 0;
    for (bool more = true; more && !status;) {
        more = false;
        for (struct bench_row *r = b->row; !status && r < b->row + b->n_rows; r++) {
            uint32_t before = r->runs;
            if (!bench_again(b, r)) continue;
            status = measure_row(b, r, p);
            more |= r->runs > before;
        }
        bench_pace_settle(b);
    }
    return status;
}

/* Measures the rate of memory again if it is below the rate at which weights were read: memory may have been busy
 * before.  Weights that fit into a processor's cache are always read faster. */
static void check_bandwidth(struct bench *b)
{
    enum { CACHED = 8 << 20 };
    if ((bench_marks_all(b) & BENCH_ABOVE) && b->weight_bytes > CACHED)
        b->bandwidth = fmax(b->bandwidth, bandwidth_read(b->engine->common.threads));
}

/* Prints warnings about numbers that are not reliable. */
static void warn(const struct bench *b)
{
    unsigned marks = bench_marks_all(b);
    struct buf left;
    buf_init(&left, 4096);
    bench_left_out(b, &left);
    if (left.len) say_line("%s --seconds N allows more.", left.data);
    buf_done(&left);
    if (!say_busy(b->others) && marks & (BENCH_SCATTERS | BENCH_PREFILL))
        say_line("Some speeds differ by more than 30 %% from run to run and are marked; measure "
                 "again with more --runs or --steps.");
}

static int measure_rows(struct bench *b, uint32_t seconds)
{
    struct time_used pass = {0};
    struct bench_load before, after;
    int status = 0;
    announce(b, seconds);
    pass.begun = now_seconds();
    bench_load_read(&before);
    b->bandwidth = bandwidth_read(b->engine->common.threads);
    progress_begin(&pass.progress, "writing the text");
    status = bench_text(b, &pass.progress);
    progress_end(&pass.progress);
    if (!status && b->n_rows > 1) status = bench_pace_open(b);
    progress_begin(&pass.progress, "measuring");
    for (uint32_t run = 0; !status && run < b->runs; run++)
        for (uint32_t i = 0; !status && i < b->n_rows; i++)
            status = measure_row(b, &b->row[i], &pass);
    bench_pace_settle(b);
    check_bandwidth(b);
    if (!status) status = repeat(b, &pass);
    check_bandwidth(b);
    progress_end(&pass.progress);
    bench_pace_close(b);
    bench_load_read(&after);
    b->others = bench_load_others(&before, &after);
    b->seconds = now_seconds() - pass.begun;
    if (!status) warn(b);
    return status;
}

/* Makes the rows and arrays of all strategies.  Returns the exit status. */
static int prepare_rows(struct bench *b, bool caches)
{
    struct bench_strategy s[16];
    uint32_t context = kvik_model_context(b->engine->model);
    uint32_t spare = b->n_depths * b->steps + BENCH_QUALITY + 1;
    b->n_rows = bench_strategies(b, s, caches ? countof(s) : 1);
    b->n_ids = bench_longest(b) + MIN(spare, context - bench_longest(b));
    b->row = mem_array(b->n_rows, sizeof *b->row);
    b->logits = mem_array(BENCH_QUALITY, kvik_model_vocab(b->engine->model) * sizeof *b->logits);
    if (!b->row || !b->logits) return say_error(ERR_NOMEM);
    for (uint32_t i = 0; i < b->n_rows; i++)
        b->row[i].s = s[i];
    return 0;
}

static int show_results(const struct bench *b, const struct options *o)
{
    int e = o->report ? bench_report(b, o->report) : 0;
    if (e < 0) return say_error(e);
    if (o->common.json) return say_json_line(bench_json(b));
    if (!o->markdown) {
        bench_print(b);
        return 0;
    }
    struct buf out;
    buf_init(&out, 1u << 20);
    bench_markdown(b, &out);
    fputs(out.data ? out.data : "", stdout);
    buf_done(&out);
    return 0;
}

/* Checks before measuring for minutes that the results can be written. */
static int check_outputs(const struct options *o)
{
    int e = o->report ? file_writable(o->report) : 0;
    if (e < 0) return err_prefix(e, "--report"), say_error(e);
    return 0;
}

static int run_bench(const struct command *self, int argc, char **argv)
{
    struct options o = {.runs = 3, .steps = 16};
    struct args a;
    struct engine engine = {0};
    struct bench b = {.engine = &engine};
    json_t *none = json_object();
    int status = args_parse(self, argc, argv, &o, &a);
    if (status == 0 && a.n != 1)
        status = say_usage(a.n ? "kvik bench takes one MODEL" : "kvik bench needs a MODEL");
    if (status == 0 && (o.runs < 1 || o.runs > BENCH_RUNS))
        status = say_usage("--runs is %u and must be from 1 to %u", o.runs, BENCH_RUNS);
    if (status == 0 && (o.steps < 1 || o.steps > STEPS_MOST))
        status = say_usage("--steps is %u and must be from 1 to %d", o.steps, STEPS_MOST);
    if (status == 0) status = check_outputs(&o);
    interrupt_catch();
    if (status == 0) status = engine_open(&engine, a.word[0], &o.common, none, none);
    if (status == 0) {
        bench_machine_name(b.engine, a.word[0], &b.machine);
        b.text = o.text;
        b.runs = o.runs;
        b.steps = o.steps;
        b.weight_bytes = bench_weight_bytes(engine.model);
        kvik_encoder encoder = {.size = sizeof encoder};
        if (kvik_model_encoder(engine.model, &encoder) > 0)
            status =
                say_failed("%s: kvik bench does not measure models with an encoder", a.word[0]);
        else
            status = read_depths(o.depths, kvik_model_context(engine.model), &b);
        if (status == 0) status = prepare_rows(&b, o.caches);
        if (status == 0) status = measure_rows(&b, o.seconds);
        if (status == 0) status = show_results(&b, &o);
        for (uint32_t i = 0; i < b.n_rows && b.row; i++)
            mem_free(b.row[i].refused);
        mem_free(b.row);
        mem_free(b.ids);
        mem_free(b.logits);
        status = engine_close(&engine, status);
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
        "Prefills a prompt in one call, then a conversation in pieces up to each depth, and decodes there. Prints the\n"
        "peaks of cache memory, tokens per second, two ratios (to the dynamic cache, and to the floor of reading weights and\n"
        "cache once from memory), and by how much the logits after the prompt differ from those of the dynamic\n"
        "cache. Each strategy decodes in turn with a dynamic cache, a few steps at a time, because the speed of a machine\n"
        "changes from second to second: its speed is the dynamic cache's, times the ratio of their steps.",
    .run = run_bench,
    .option = table,
    .n_options = countof(table),
    .runs_model = true,
};

/* cmd_eval.c - kvik eval: measures how far each way of quantizing the cache changes what a model predicts for a
 * text: perplexity, divergence from rows that are not quantized, and how often the most likely token differs. */
#include "base/file.h"
#include "cli/eval.h"

#include <string.h>

enum { WINDOW = 1024, SCORED = 4096, LEAST = 16 };

struct options {
    struct common common;
    bool markdown;
    const char *report, *text;
    uint32_t context, tokens;
    struct arg_list configs;
};

static const struct arg_option table[] = {
    {"text", ARG_TEXT, offsetof(struct options, text), "FILE", NULL,
     "text that is scored; a real one, as the model is to be used for"},
    {"cache-config", ARG_LIST, offsetof(struct options, configs), "JSON", NULL,
     "measure this cache, such as {\"backend\": \"hqq\", \"nbits\": 3}; repeat the option for several "
     "(default: each codec of this build with each number of bits)"},
    {"context", ARG_UINT, offsetof(struct options, context), "N", NULL,
     "tokens of a window: the first half is a prompt, the second half is scored (default: 1024, or the "
     "model's context)"},
    {"tokens", ARG_UINT, offsetof(struct options, tokens), "N", NULL,
     "tokens to score, in whole windows, if the text has so many (default: 4096)"},
    {"report", ARG_OUT, offsetof(struct options, report), "FILE", NULL,
     "also write one page of HTML with a plot of quality against bytes, which needs nothing from elsewhere"},
    {"markdown", ARG_FLAG, offsetof(struct options, markdown), NULL, NULL,
     "print the table in Markdown"},
    {"json", ARG_FLAG, offsetof(struct options, common.json), NULL, NULL,
     "print the numbers as JSON"},
};

static int check_options(const void *options)
{
    const struct options *o = options;
    int e = 0;
    if (!o->text) return say_usage("kvik eval needs --text FILE, a text that is scored");
    if (o->context && o->context < LEAST)
        return say_usage("--context is %u and must be at least %d", o->context, LEAST);
    if (!o->tokens) return say_usage("--tokens is 0 and must be at least 1");
    if (o->report) e = file_writable(o->report);
    if (e < 0) return err_prefix(e, "--report"), say_error(e);
    return 0;
}

/* Sets the length of a window. */
static int choose_window(struct eval *v, uint32_t asked)
{
    uint32_t context = kvik_model_context(v->is.engine->model);
    if (asked > context)
        return say_usage("--context %u exceeds the model's context of %u", asked, context);
    v->window = asked ? asked : MIN(WINDOW, context);
    return v->window < LEAST ? say_failed("the model's context of %u is too short", context) : 0;
}

static int print_results(const struct eval *v, const struct options *o)
{
    int e = o->report ? eval_report(v, o->report) : 0;
    struct buf out;
    if (e < 0) return say_error(e);
    if (o->common.json) return say_json_line(eval_json(v));
    if (!o->markdown) {
        eval_print(v);
        return 0;
    }
    buf_init(&out, 1u << 20);
    eval_markdown(v, &out);
    fputs(out.data ? out.data : "", stdout);
    buf_done(&out);
    return 0;
}

static int measure(void *ctx, const void *options)
{
    struct eval *v = ctx;
    const struct options *o = options;
    v->text = o->text;
    v->wanted = o->tokens;
    int status = choose_window(v, o->context);
    if (!status) status = eval_text(v);
    if (!status) status = eval_rows(v, &o->configs);
    if (!status) status = eval_open(v);
    if (status) return status;
    fprintf(stderr, "kvik: %u window%s of %u tokens, %u cache%s beside the reference\n", v->windows,
            v->windows == 1 ? "" : "s", v->window, v->n_rows - 1, v->n_rows == 2 ? "" : "s");
    if (v->windows * eval_scored(v) < v->wanted)
        say_line("the text has %u tokens to score; --tokens asked for %u",
                 v->windows * eval_scored(v), v->wanted);
    status = eval_run(v);
    return status ? status : print_results(v, o);
}

static int run_eval(const struct command *self, int argc, char **argv)
{
    static const struct measuring m = {sizeof(struct eval), check_options, measure, eval_close};
    struct options o = {.tokens = SCORED};
    int status = measuring_run(self, &m, argc, argv, &o);
    args_list_done(&o.configs);
    return status;
}

const struct command command_eval = {
    .name = "eval",
    .usage = "MODEL --text FILE",
    .summary = "what quantizing the cache costs in quality",
    .about =
        "Scores a text with each codec of this build, or with each --cache-config, and compares with rows that are not\n"
        "quantized: bits of a value with scales, bytes, perplexity, mean and 99.9 % of the Kullback-Leibler divergence (KLD,\n"
        "in nats, over the whole vocabulary), and the share of tokens with the same most likely successor. Quantized rows are\n"
        "read as decoding token by token reads them.",
    .run = run_eval,
    .option = table,
    .n_options = countof(table),
    .runs_model = true,
};

/* eval_table.c - prints what was measured: a table, Markdown, JSON. */
#include "cli/eval.h"

#include <math.h>
#include <string.h>

#define say(b, ...) ((void)buf_printf(b, __VA_ARGS__))

void eval_method(const struct eval *v, struct buf *out)
{
    const struct bench_machine *m = &v->is.machine;
    const char *file = strrchr(v->text, '/');
    say(out,
        "%s, %u tokens of %s scored in %u window%s of %u: the first %u tokens of a window are one "
        "prompt, the others are scored as if decoded one by one; against rows of %s; %u thread%s "
        "of %s, %s, kvik %s",
        m->model, v->row[0].at.n, file ? file + 1 : v->text, v->windows, v->windows == 1 ? "" : "s",
        v->window, eval_prompt(v), v->rows, m->threads, m->threads == 1 ? "" : "s", m->cpu, m->date,
        kvik_version());
}

/* Writes a divergence with two or three digits: "0.0027", "1.2e-07", "0". */
static const char *small(double v, char out[24])
{
    if (v == 0)
        snprintf(out, 24, "0");
    else if (v < 1e-4)
        snprintf(out, 24, "%.1e", v);
    else
        snprintf(out, 24, v < 0.1 ? "%.*f" : "%.*g", v < 0.1 ? v < 0.01 ? 5 : 4 : 3, v);
    return out;
}

static double same_share(const struct eval_row *r)
{
    return r->at.n ? 100.0 * r->at.same / r->at.n : 0;
}

static size_t name_width(const struct eval *v)
{
    size_t width = 16;
    for (uint32_t i = 0; i < v->n_rows; i++)
        width = MAX(width, strlen(v->row[i].name));
    return MIN(width, 60);
}

static void print_row(const struct eval *v, const struct eval_row *r, int width)
{
    char bytes[16], a[24], b[24], c[24];
    printf("%-*s ", width, r->name);
    if (r->refused) {
        printf("%s\n", r->refused);
        return;
    }
    printf("%10.2f %10s %10.4f", r->bits, bytes_text(r->bytes, bytes), r->sum.perplexity);
    if (r == v->row)
        printf(" %10s %9s %10s %10s\n", "-", "-", "-", "-");
    else
        printf(" %10s %9s %10s %9.2f%%\n", small(r->sum.mean, a), small(r->sum.error, b),
               small(r->sum.p999, c), same_share(r));
}

void eval_print(const struct eval *v)
{
    int width = (int)name_width(v);
    struct buf method;
    buf_init(&method, 4096);
    eval_method(v, &method);
    printf("%s\n\n", method.data ? method.data : "");
    buf_done(&method);
    printf("%-*s %10s %10s %10s %10s %9s %10s %10s\n", width, "", "bits of", "cache of", "", "mean",
           "standard", "99.9 %", "same top");
    printf("%-*s %10s %4u token %10s %10s %9s %10s %10s\n", width, "rows", "a value", v->window,
           "perplexity", "KLD", "error", "of KLD", "token");
    for (uint32_t i = 0; i < v->n_rows; i++)
        print_row(v, &v->row[i], width);
}

void eval_markdown(const struct eval *v, struct buf *out)
{
    char bytes[16], a[24], b[24];
    say(out,
        "| rows | bits of a value | cache of %u tokens | perplexity | mean KLD | 99.9 %% of KLD | "
        "same top token |\n|---|---|---|---|---|---|---|\n",
        v->window);
    for (const struct eval_row *r = v->row; r < v->row + v->n_rows; r++) {
        if (r->refused) continue;
        say(out, "| %s | %.2f | %s | %.4f |", r->name, r->bits, bytes_text(r->bytes, bytes),
            r->sum.perplexity);
        if (r == v->row)
            say(out, " - | - | - |\n");
        else
            say(out, " %s | %s | %.2f %% |\n", small(r->sum.mean, a), small(r->sum.p999, b),
                same_share(r));
    }
    say(out, "\n");
    eval_method(v, out);
    say(out, ".\n");
}

static json_t *row_json(const struct eval *v, const struct eval_row *r)
{
    json_t *o = json_object();
    json_object_set_new(o, "rows", say_json(r->name, strlen(r->name)));
    if (r->config) json_object_set_new(o, "cache_config", say_json(r->config, strlen(r->config)));
    if (r->refused) {
        json_object_set_new(o, "refused", say_json(r->refused, strlen(r->refused)));
        return o;
    }
    json_object_set_new(o, "reference", json_boolean(r == v->row));
    json_object_set_new(o, "bits_per_value", json_real(r->bits));
    json_object_set_new(o, "cache_bytes", json_integer((json_int_t)r->bytes));
    json_object_set_new(o, "perplexity", json_real(r->sum.perplexity));
    json_object_set_new(o, "nll", json_real(r->at.n ? r->at.nll / r->at.n : 0));
    json_object_set_new(o, "kld", json_real(r->sum.mean));
    json_object_set_new(o, "kld_standard_error", json_real(r->sum.error));
    json_object_set_new(o, "kld_99", json_real(r->sum.p99));
    json_object_set_new(o, "kld_99_9", json_real(r->sum.p999));
    json_object_set_new(o, "kld_most", json_real(r->sum.most));
    json_object_set_new(o, "same_top_token", json_integer(r->at.same));
    json_object_set_new(o, "identical", json_boolean(r->at.identical));
    return o;
}

json_t *eval_json(const struct eval *v)
{
    const struct bench_machine *m = &v->is.machine;
    const char *file = strrchr(v->text, '/');
    json_t *rows = json_array();
    file = file ? file + 1 : v->text;
    for (uint32_t i = 0; i < v->n_rows; i++)
        json_array_append_new(rows, row_json(v, &v->row[i]));
    return json_pack("{s:o, s:o, s:s, s:s, s:i, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:f, s:o}",
                     "model", say_json(m->model, strlen(m->model)), "text",
                     say_json(file, strlen(file)), "text_sha256", v->sha256, "cpu", m->cpu,
                     "threads", (int)m->threads, "date", m->date, "version", kvik_version(),
                     "row_type", v->rows, "window", (int)v->window, "prompt", (int)eval_prompt(v),
                     "windows", (int)v->windows, "scored", (int)v->row[0].at.n, "seconds",
                     v->seconds, "caches", rows);
}

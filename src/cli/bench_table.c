/* bench_table.c - the measurements as a table for a terminal, as Markdown, and as JSON. */
#include "cli/bench.h"

#include <string.h>

static void print_row(const struct bench *b, const struct bench_row *r)
{
    char peak[16], held[16], at[16], marks[48];
    for (uint32_t d = 0; d < b->n_depths; d++) {
        const struct bench_depth *x = &r->at[d];
        double prefill = bench_median(x->prefill, r->runs);
        double decode = bench_median(x->decode, r->runs);
        double dynamic = bench_median(b->row[0].at[d].decode, b->row[0].runs);
        bool known = d == 0 && r->prompt.held;
        printf("%-25s %10s %10s %6u %10s ", d ? "" : r->s.name,
               known ? bytes_text(r->prompt.memory.peak, peak) : "",
               d || !r->pieces.peak ? "" : bytes_text(r->pieces.peak, held), x->depth,
               bytes_text(x->bytes, at));
        if (prefill > 0)
            printf("%9.1f ", prefill);
        else
            printf("%9s ", "-");
        printf("%8.1f ", decode);
        if (b->runs > 1) printf("%5.0f%% ", 100 * bench_spread(x->decode, r->runs));
        printf("%9.2f %7.2f%s%s\n", dynamic > 0 ? decode / dynamic : 0, decode * bench_floor(b, x),
               bench_marks(b, r, d) ? "  " : "", bench_marks_text(bench_marks(b, r, d), marks));
    }
}

static void print_marks(const struct bench *b)
{
    struct buf said;
    buf_init(&said, 4096);
    bench_marks_say(b, &said);
    if (said.len) printf("\n%s\n", said.data);
    buf_done(&said);
}

static void print_quality(const struct bench *b)
{
    char same[24], held[16], disk[16];
    printf(
        "\nAfter a prompt of %u tokens in one call, %u more tokens of %s, compared with the dynamic "
        "cache:\n\n%-25s %10s %10s %12s %10s\n",
        bench_longest(b), b->row[0].prompt.n, b->text ? b->text : "text that the model wrote",
        "strategy", "in memory", "on disk", "same token", "KLD");
    for (const struct bench_row *r = b->row; r < b->row + b->n_rows; r++) {
        const struct bench_prompt *p = &r->prompt;
        if (r->refused || !p->held) continue;
        printf("%-25s %10s %10s %12s %10.2g\n", r->s.name, bytes_text(p->held, held),
               p->disk ? bytes_text(p->disk, disk) : "-", bench_quality(p, same), p->kld);
    }
    printf(
        "KLD: mean divergence of the probabilities of the next token from those of the dynamic cache; 0: none\n");
}

void bench_print(const struct bench *b)
{
    char weights[16];
    struct buf method;
    buf_init(&method, 4096);
    bench_method(b, &method);
    printf("%s\nA decode step reads %s of weights; memory was read at %.1f GB/s.\n\n",
           method.data ? method.data : "", bytes_text(b->weight_bytes, weights),
           b->bandwidth / 1e9);
    buf_done(&method);
    printf("%-25s %21s\n%-25s %10s %10s %6s %10s %9s %8s ", "", "peak: prompt in", "strategy",
           "one call", "turns", "depth", "cache", "prefill/s", "decode/s");
    printf("%s%9s %7s\n", b->runs > 1 ? "spread " : "", "x dynamic", "x floor");
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const struct bench_row *r = &b->row[i];
        if (r->refused)
            printf("%-25s %s\n", r->s.name, r->refused);
        else
            print_row(b, r);
    }
    print_marks(b);
    if (!b->row[0].refused && b->row[0].prompt.n) print_quality(b);
}

static void cell(struct buf *out, const char *s)
{
    (void)buf_printf(out, " %s |", s);
}

static void markdown_row(const struct bench *b, const struct bench_row *r, struct buf *out)
{
    const struct bench_prompt *p = &r->prompt;
    char t[24], size[16], marks[48];
    double speed = bench_speed(b, r), dynamic = bench_speed(b, &b->row[0]);
    (void)buf_printf(out, "|");
    cell(out, r->s.name);
    (void)buf_printf(out, " %s", bytes_text(p->held, size));
    if (p->disk) (void)buf_printf(out, ", %s on disk", bytes_text(p->disk, size));
    (void)buf_printf(out, " |");
    cell(out, bytes_text(p->memory.peak, size));
    (void)buf_printf(out, " %.0f | %.2f", speed, dynamic > 0 ? speed / dynamic : 0);
    bench_marks_text(bench_marks(b, r, b->n_depths - 1) & ~BENCH_PREFILL, marks);
    (void)buf_printf(out, *marks ? " (%s) |" : " |", marks);
    cell(out, r == b->row ? "-" : bench_quality(p, t));
    (void)buf_printf(out, "\n");
}

void bench_markdown(const struct bench *b, struct buf *out)
{
    (void)buf_printf(out,
                     "| %u tokens | in memory | peak | tokens/s | of dynamic | same next token |\n",
                     bench_longest(b));
    (void)buf_printf(out, "|---|---|---|---|---|---|\n");
    for (const struct bench_row *r = b->row; r < b->row + b->n_rows; r++)
        if (!r->refused && r->prompt.held) markdown_row(b, r, out);
    (void)buf_printf(out, "\n");
    bench_method(b, out);
    (void)buf_printf(out, ".\n");
    size_t before = out->len;
    bench_marks_say(b, out);
    if (out->len > before) (void)buf_printf(out, "\n");
}

static json_t *marks(unsigned all)
{
    json_t *a = json_array();
    char word[48];
    for (unsigned one = 1; one <= BENCH_PREFILL; one <<= 1)
        if (all & one) json_array_append_new(a, json_string(bench_marks_text(one, word)));
    return a;
}

static json_t *depths(const struct bench *b, const struct bench_row *r)
{
    json_t *a = json_array();
    for (uint32_t d = 0; !r->refused && d < b->n_depths; d++) {
        const struct bench_depth *x = &r->at[d];
        double decode = bench_median(x->decode, r->runs);
        double dynamic = bench_median(b->row[0].at[d].decode, b->row[0].runs);
        json_array_append_new(
            a, json_pack("{s:i, s:f, s:f, s:f, s:I, s:f, s:f, s:o}", "depth", (int)x->depth,
                         "prefill_tokens_per_second", bench_median(x->prefill, r->runs),
                         "decode_tokens_per_second", decode, "decode_spread",
                         bench_spread(x->decode, r->runs), "cache_bytes", (json_int_t)x->bytes,
                         "ratio_to_dynamic", dynamic > 0 ? decode / dynamic : 0.0, "ratio_to_floor",
                         decode * bench_floor(b, x), "marks", marks(bench_marks(b, r, d))));
    }
    return a;
}

static json_t *curve(const struct bench_curve *c)
{
    json_t *a = json_array();
    for (uint32_t k = 0; k < c->n; k++)
        json_array_append_new(a, json_pack("[i, I]", (int)c->tokens[k], (json_int_t)c->bytes[k]));
    return a;
}

static json_t *prompt(const struct bench *b, const struct bench_row *r)
{
    const struct bench_prompt *p = &r->prompt;
    json_t *o = json_pack("{s:i, s:I, s:I, s:I, s:f, s:o}", "tokens", (int)bench_longest(b),
                          "peak_bytes", (json_int_t)p->memory.peak, "memory_bytes",
                          (json_int_t)p->held, "disk_bytes", (json_int_t)p->disk,
                          "prefill_tokens_per_second", p->prefill, "memory", curve(&p->memory));
    if (p->n)
        json_object_set_new(o, "quality",
                            json_pack("{s:i, s:i, s:f, s:b}", "positions", (int)p->n, "same_token",
                                      (int)p->same, "kld", p->kld, "identical", p->identical));
    return o;
}

json_t *bench_json(const struct bench *b)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const struct bench_row *r = &b->row[i];
        json_t *o =
            json_pack("{s:s, s:s, s:s?}", "strategy", r->s.name, "cache_implementation",
                      r->s.implementation, "cache_config", *r->s.config ? r->s.config : NULL);
        if (r->refused) json_object_set_new(o, "refused", json_string(r->refused));
        if (!r->refused && r->prompt.held)
            json_object_set_new(o, "prompt_in_one_call", prompt(b, r));
        json_object_set_new(o, "peak_bytes", json_integer((json_int_t)r->pieces.peak));
        json_object_set_new(o, "runs", json_integer((json_int_t)r->runs));
        json_object_set_new(o, "depths", depths(b, r));
        json_object_set_new(o, "memory", curve(&r->pieces));
        json_array_append_new(rows, o);
    }
    return json_pack(
        "{s:o, s:o, s:i, s:s, s:s, s:o, s:i, s:i, s:i, s:b, s:f, s:I, s:f, s:f, s:o, s:o}", "model",
        say_json(b->machine.model, strlen(b->machine.model)), "cpu",
        say_json(b->machine.cpu, strlen(b->machine.cpu)), "threads", (int)b->machine.threads,
        "date", b->machine.date, "kvik", kvik_version(), "text",
        b->text ? say_json(b->text, strlen(b->text)) : json_null(), "window", (int)b->window,
        "runs", (int)b->runs, "steps", (int)b->steps, "in_turn", (int)b->in_turn, "read_bandwidth",
        b->bandwidth, "weight_bytes", (json_int_t)b->weight_bytes, "seconds", b->seconds,
        "limit_seconds", b->limit, "other_programs",
        b->others < 0 ? json_null() : json_real(b->others), "strategies", rows);
}

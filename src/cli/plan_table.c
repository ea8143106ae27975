/* plan_table.c - prints a plan as a table or as JSON. */
#include "cli/plan.h"

#include <string.h>

static void head(const struct plan *v)
{
    char size[16];
    printf("%s, %u tokens: a prompt of %u in one call, and %u decoded", v->is.machine.model,
           v->context, plan_prompt(v), v->decoded);
    if (v->beams > 1) printf(" by each of %u sequences that share the prompt", v->beams);
    if (v->memory) printf("; memory of the cache: %s", bytes_text(v->memory, size));
    printf("\n");
    if (v->measures)
        printf("a step reads %s of weights; memory is read at %.1f GB/s by %u thread%s\n",
               bytes_text(v->weight_bytes, size), v->bandwidth / 1e9, v->is.machine.threads,
               v->is.machine.threads == 1 ? "" : "s");
    if (v->measures && v->others > BENCH_BUSY)
        printf(
            "other programs took %.0f %% of the processors meanwhile: tokens/s are those of a busy machine\n",
            100 * v->others);
    printf("\n%-20s %10s %10s %10s %10s %10s %10s %10s %8s%s\n", "cache", "rows", "quantized",
           "states", v->beams > 1 ? "a further" : "", "tables", "needs", "on disk", "tokens/s",
           v->memory ? "  fits" : "");
}

static const char *size(uint64_t n, char out[16])
{
    return n ? bytes_text(n, out) : "-";
}

static void print_row(const struct plan *v, const struct plan_row *r)
{
    char a[16], b[16], c[16], d[16], e[16], f[16], g[16], speed[16] = "-";
    printf("%-20s ", r->name);
    if (r->refused) {
        printf("%s\n", r->refused);
        return;
    }
    if (r->tokens > 0)
        snprintf(speed, sizeof speed, "%s%.*f", r->extrapolated ? "~" : "", r->tokens < 10 ? 1 : 0,
                 r->tokens);
    printf("%10s %10s %10s %10s %10s %10s %10s %8s", size(r->rows, a), size(r->quantized, b),
           size(r->states, c), v->beams > 1 ? size(r->further, d) : "", size(r->tables, e),
           size(r->need, f), size(r->disk, g), speed);
    if (v->memory && r->fits)
        printf("  yes");
    else if (v->memory)
        printf("  up to %u tokens%s", r->longest,
               r->fits_in_calls ? "; all of them if the prompt comes in calls of 256" : "");
    printf("\n");
}

void plan_print(const struct plan *v)
{
    head(v);
    for (uint32_t i = 0; i < v->n_rows; i++)
        print_row(v, &v->row[i]);
    printf(
        "\nBytes are those of one sequence; \"needs\" is for all, with tables, at the peak of the "
        "prompt.\n");
    bool extrapolated = false;
    for (uint32_t i = 0; i < v->n_rows; i++)
        extrapolated |= v->row[i].extrapolated;
    if (extrapolated) printf("~: extrapolated from steps behind fewer tokens\n");
}

static json_t *row_json(const struct plan *v, const struct plan_row *r)
{
    json_t *o = json_pack("{s:o, s:s}", "cache", say_json(r->name, strlen(r->name)),
                          "cache_implementation", r->implementation);
    if (r->config) json_object_set_new(o, "cache_config", say_json(r->config, strlen(r->config)));
    if (r->refused) {
        json_object_set_new(o, "refused", say_json(r->refused, strlen(r->refused)));
        return o;
    }
    const struct {
        const char *key;
        uint64_t n;
    } bytes[] = {{"rows_bytes", r->rows},     {"quantized_bytes", r->quantized},
                 {"states_bytes", r->states}, {"further_sequence_bytes", r->further},
                 {"tables_bytes", r->tables}, {"peak_bytes", r->peak},
                 {"disk_bytes", r->disk},     {"needed_bytes", r->need}};
    for (size_t i = 0; i < countof(bytes); i++)
        json_object_set_new(o, bytes[i].key, json_integer((json_int_t)bytes[i].n));
    json_object_set_new(o, "tokens_per_second", r->tokens > 0 ? json_real(r->tokens) : json_null());
    json_object_set_new(o, "measured_tokens",
                        r->tokens > 0 ? json_integer(r->measured) : json_null());
    if (v->memory) {
        json_object_set_new(o, "fits", json_boolean(r->fits));
        json_object_set_new(o, "fits_in_calls", json_boolean(r->fits_in_calls));
        json_object_set_new(o, "longest", json_integer(r->longest));
    }
    return o;
}

json_t *plan_json(const struct plan *v)
{
    const struct bench_machine *m = &v->is.machine;
    json_t *rows = json_array();
    for (uint32_t i = 0; i < v->n_rows; i++)
        json_array_append_new(rows, row_json(v, &v->row[i]));
    return json_pack("{s:o, s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:f, s:o, s:o}", "model",
                     say_json(m->model, strlen(m->model)), "cpu", m->cpu, "threads",
                     (int)m->threads, "tokens", (int)v->context, "decoded", (int)v->decoded,
                     "sequences", (int)v->beams, "memory", (json_int_t)v->memory, "weight_bytes",
                     (json_int_t)v->weight_bytes, "read_bandwidth", v->bandwidth, "other_programs",
                     v->measures && v->others >= 0 ? json_real(v->others) : json_null(), "caches",
                     rows);
}

/* report.c - prints what a run cost: a few lines on standard error, or with --json one object on standard output. */
#include "cli/cli.h"

#include <string.h>

static double rate(uint64_t tokens, double seconds)
{
    return seconds > 0 ? (double)tokens / seconds : 0;
}

static uint64_t reused_of(const kvik_result *r)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < r->n_rows; i++)
        n += r->row[i]->reused;
    return n;
}

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static void report_drafts(const kvik_result *r)
{
    if (r->drafted)
        fprintf(stderr, "drafts %llu of %llu token%s accepted; %u steps for %u tokens per text\n",
                (unsigned long long)r->accepted, (unsigned long long)r->drafted, plural(r->drafted),
                r->steps, r->logit_steps);
}

/* Prints what on_full "encode" has done. */
static void report_encoded(const kvik_usage *u)
{
    if (!u->encoded8 && !u->encoded4) return;
    fprintf(
        stderr,
        "       encoded for want of memory: %llu row%s with 8 bits, %llu with 4; expect a mean KLD of %g "
        "(SmolLM2's; kvik eval measures yours)\n",
        (unsigned long long)u->encoded8, plural(u->encoded8), (unsigned long long)u->encoded4,
        u->expected_kld);
}

void report_cache(const struct engine *s, const kvik_usage *u, const kvik_result *r)
{
    char a[16], b[16], c[16], d[16];
    uint64_t prompt = r->prompt_tokens, reused = reused_of(r);
    uint64_t fed = prompt > reused ? prompt - reused : 0,
             decoded = r->new_tokens - MIN(r->new_tokens, r->n_rows);
    const char *kind = s->g.use_cache ? s->g.cache_implementation : "none";
    fprintf(stderr, "cache  %s: %llu token%s of %u text%s in %llu bytes (%s), peak %s of %s",
            kind ? kind : "dynamic", (unsigned long long)u->tokens, plural(u->tokens), r->n_rows,
            plural(r->n_rows), (unsigned long long)u->bytes, bytes_text(u->bytes, a),
            bytes_text(u->peak_bytes, b), bytes_text(u->budget, c));
    if (u->tokens && u->live)
        fprintf(stderr, ", %s per token", bytes_text(u->bytes / u->tokens, d));
    fprintf(stderr, "\n       rows %s, shared %s, staging %s, states %s", bytes_text(u->live, a),
            bytes_text(u->shared, b), bytes_text(u->staging, c), bytes_text(u->states, d));
    if (u->reserved) fprintf(stderr, ", reserved %s more", bytes_text(u->reserved, a));
    if (u->streaming)
        fprintf(stderr, ", on disk %s (read %s, written %s)", bytes_text(u->spilled, a),
                bytes_text(u->tier_read, b), bytes_text(u->tier_written, c));
    fputc('\n', stderr);
    report_encoded(u);
    fprintf(
        stderr,
        "       %llu prompt token%s reused, %llu fork%s, %llu row%s copied, %llu group%s of rows quantized, %llu eviction%s\n",
        (unsigned long long)reused, plural(reused), (unsigned long long)u->forks, plural(u->forks),
        (unsigned long long)u->rows_copied, plural(u->rows_copied), (unsigned long long)u->seals,
        plural(u->seals), (unsigned long long)u->evictions, plural(u->evictions));
    fprintf(
        stderr,
        "time   load %.2f s; prefill %llu token%s in %.2f s (%.1f/s); decode %llu token%s in %.2f s (%.1f/s)\n",
        s->load_seconds, (unsigned long long)fed, plural(fed), r->prefill_seconds,
        rate(fed, r->prefill_seconds), (unsigned long long)r->new_tokens, plural(r->new_tokens),
        r->decode_seconds, rate(decoded, r->decode_seconds));
    report_drafts(r);
}

/* Makes a row as Transformers returns it: the prompt as given, the generated tokens, and padding up to the longest
 * row. */
static json_t *sequence(const kvik_row *row, size_t longest, int32_t pad)
{
    json_t *a = json_array();
    for (size_t i = 0; i < row->n; i++)
        json_array_append_new(a, json_integer(row->ids[i]));
    for (size_t n = row->n - row->n_prompt; n < longest && pad >= 0; n++)
        json_array_append_new(a, json_integer(pad));
    return a;
}

/* With beams: adds the score of each row, and for each token the row of logits from which it was chosen; -1 after
 * the end. */
static void add_beams(json_t *o, const kvik_result *r, size_t longest)
{
    json_t *scores = json_array(), *indices = json_array();
    for (uint32_t i = 0; i < r->n_rows; i++) {
        const kvik_row *row = r->row[i];
        json_t *a = json_array();
        for (size_t k = 0; k < longest; k++)
            json_array_append_new(
                a, json_integer(k < row->n - row->n_prompt ? row->beam_indices[k] : -1));
        json_array_append_new(scores, json_real(row->score));
        json_array_append_new(indices, a);
    }
    json_object_set_new(o, "sequences_scores", scores);
    json_object_set_new(o, "beam_indices", indices);
}

static json_t *cache_json(const kvik_usage *u, uint64_t reused)
{
    const struct {
        const char *name;
        uint64_t value;
    } field[] = {
        {"bytes", u->bytes},         {"peak_bytes", u->peak_bytes},
        {"live", u->live},           {"shared", u->shared},
        {"staging", u->staging},     {"states", u->states},
        {"reserved", u->reserved},   {"spilled", u->spilled},
        {"tier_read", u->tier_read}, {"tier_written", u->tier_written},
        {"tokens", u->tokens},       {"reused", reused},
        {"budget", u->budget},       {"free", u->free},
        {"forks", u->forks},         {"rows_copied", u->rows_copied},
        {"seals", u->seals},         {"evictions", u->evictions},
        {"metadata", u->metadata},   {"encoded8", u->encoded8},
        {"encoded4", u->encoded4},
    };
    json_t *o = json_object();
    for (size_t i = 0; i < countof(field); i++)
        json_object_set_new(o, field[i].name, json_integer((json_int_t)field[i].value));
    json_object_set_new(o, "expected_kld", json_real(u->expected_kld));
    json_object_set_new(o, "streaming", json_boolean(u->streaming));
    return o;
}

int report_json(const struct engine *s, const kvik_usage *u, const kvik_result *r)
{
    json_t *sequences = json_array(), *text = json_array(), *finish = json_array(),
           *o = json_object();
    size_t longest = 0;
    int32_t pad = s->g.pad_token_id >= 0 ? s->g.pad_token_id
                  : s->g.n_eos           ? s->g.eos_token_id[0]
                                         : -1;
    for (uint32_t i = 0; i < r->n_rows; i++)
        longest = MAX(longest, r->row[i]->n - r->row[i]->n_prompt);
    for (uint32_t i = 0; i < r->n_rows; i++) {
        const kvik_row *row = r->row[i];
        json_array_append_new(sequences, sequence(row, longest, pad));
        json_array_append_new(text,
                              row->text ? say_json(row->text, strlen(row->text)) : json_null());
        json_array_append_new(finish, json_string(kvik_finish_name(row->finish)));
    }
    json_object_set_new(o, "sequences", sequences);
    json_object_set_new(o, "text", text);
    json_object_set_new(o, "finish_reason", finish);
    if (s->g.num_beams > 1) add_beams(o, r, longest);
    json_object_set_new(o, "cache", cache_json(u, reused_of(r)));
    json_object_set_new(
        o, "usage",
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "prompt_tokens", (json_int_t)r->prompt_tokens,
                  "new_tokens", (json_int_t)r->new_tokens, "computed_tokens",
                  (json_int_t)r->computed_tokens, "steps", (json_int_t)r->steps, "drafted",
                  (json_int_t)r->drafted, "accepted", (json_int_t)r->accepted));
    json_object_set_new(o, "timings",
                        json_pack("{s:f, s:f, s:f}", "load_seconds", s->load_seconds,
                                  "prefill_seconds", r->prefill_seconds, "decode_seconds",
                                  r->decode_seconds));
    return say_json_line(o);
}

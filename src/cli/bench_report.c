/* bench_report.c - writes the measurements as one HTML page.  The page has the numbers as JSON, with the sentences
 * of bench_found.c, and draws them with its own script (src/cli/page). */
#include "cli/bench.h"
#include "cli/page.h"

#include <string.h>

#define say(b, ...) ((void)buf_printf(b, __VA_ARGS__))

/* Names the row of the headline, its quality, and its peak if that is not below the dynamic cache's. */
static void lead(const struct bench *b, struct buf *out)
{
    const struct bench_row *best = bench_best(b), *dynamic = &b->row[0];
    char same[24], peak[16];
    if (!best) return;
    say(out, "The cache is kept as %s.", best->s.name);
    if (best->prompt.identical && best->prompt.n)
        say(out, " Its logits are identical to those of the dynamic cache.");
    else if (best->prompt.n)
        say(out, " The most likely next token is that of the dynamic cache in %s.",
            bench_quality(&best->prompt, same));
    if (best->prompt.memory.peak > dynamic->prompt.memory.peak) {
        say(out, " While the prompt is read, memory peaks at %s,",
            bytes_text(best->prompt.memory.peak, peak));
        say(out, " above the %s of dynamic.", bytes_text(dynamic->prompt.memory.peak, peak));
    }
}

/* Sets a key to the sentences that a function writes. */
static void set_said(json_t *o, const char *key, const struct bench *b,
                     void (*sentences)(const struct bench *, struct buf *))
{
    struct buf line;
    buf_init(&line, 4096);
    sentences(b, &line);
    json_object_set_new(o, key, say_json(line.data ? line.data : "", line.len));
    buf_done(&line);
}

/* Returns the JSON of the command, with what only the page needs: sentences, and findings on each strategy. */
static json_t *figures(const struct bench *b)
{
    json_t *o = bench_json(b), *said = json_object(), *rows = json_object_get(o, "strategies");
    for (uint32_t i = 0; i < b->n_rows; i++) {
        json_t *row = json_array_get(rows, i);
        json_object_set_new(row, "lost", json_boolean(bench_lost(&b->row[i].prompt)));
        json_object_set_new(row, "comparable", json_boolean(bench_comparable(b, &b->row[i])));
    }
    set_said(said, "headline", b, bench_headline);
    set_said(said, "lead", b, lead);
    set_said(said, "method", b, bench_method);
    set_said(said, "warning", b, bench_marks_say);
    json_object_set_new(o, "said", said);
    json_object_set_new(o, "tokens", json_integer(bench_longest(b)));
    json_object_set_new(o, "turn_tokens", json_integer(bench_turn(b)));
    return o;
}

int bench_report(const struct bench *b, const char *path)
{
    return page_report(path, "kvik bench", figures(b), page_part(PAGE_REPORT_JS));
}

/* bench_report.c - writes the measurements as one self-contained HTML page: a headline, a chart of all strategies, plots, tables
 * and the method.  The page is light or dark as the browser prefers, and fits a phone. */
#include "base/file.h"
#include "cli/bench.h"

#include <math.h>
#include <string.h>

/* The longest bar under a number, in percent of its cell. */
enum { BAR_WIDTH = 85 };

/* A text that does not fit leaves the page without its end; bench_report checks for the end. */
#define put(b, ...) ((void)buf_printf(b, __VA_ARGS__))

static void style(struct buf *out)
{
    put(out,
        "<style>\n"
        ":root{color-scheme:light dark;--ink:#1f2328;--soft:#59636e;--line:#d1d9e0;--paper:#fff;--mem:#0b6fb8;"
        "--speed:#b3590a;--lost:#a40e26}\n"
        "@media(prefers-color-scheme:dark){:root{--ink:#f0f6fc;--soft:#9198a1;--line:#3d444d;--paper:#0d1117;"
        "--mem:#4aa3e8;--speed:#f0883e;--lost:#ff7b72}}\n"
        "body{font:17px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;color:var(--ink);"
        "background:var(--paper);max-width:70rem;margin:2rem auto;padding:0 1rem}\n"
        "h1{font-size:clamp(1.5rem,4.5vw,2.5rem);line-height:1.15;margin:.5rem 0;text-wrap:balance}\n"
        "p.warning{border-left:4px solid var(--lost);padding-left:.8rem}h2{font-size:1.3rem;margin:2.5rem 0 .5rem}.method,figcaption,.note{color:var(--soft)}\n"
        "figcaption strong{color:var(--ink)}figure{margin:2rem 0}svg{display:block;width:100%%;height:auto}\n");
    put(out,
        ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%%,28rem),1fr));gap:0 2rem}"
        ".plots figure{margin:1rem 0}.plot text{fill:var(--soft);font-size:14px}.plot text.name{fill:var(--c)}"
        ".grid{stroke:var(--line)}\n"
        ".k-paper{fill:none;stroke:none}.k-ink{fill:var(--ink)}.k-soft{fill:var(--soft)}.k-mem{fill:var(--mem)}"
        ".k-disk{fill:none;stroke:var(--mem);stroke-dasharray:3 2}.k-peak{stroke:var(--mem)}"
        ".k-speed{fill:var(--speed)}.k-rule{stroke:var(--line)}.k-lost,.lost{fill:var(--lost);color:var(--lost)}\n"
        "table{border-collapse:collapse;width:100%%;font-variant-numeric:tabular-nums;line-height:1.3}\n"
        "th,td{text-align:right;padding:.4rem .35rem;border-bottom:1px solid var(--line);vertical-align:top}\n"
        "th:first-child{text-align:left}td.why{text-align:left;color:var(--soft)}thead th{color:var(--soft);"
        "font-weight:500}\n"
        "td.mem,td.speed{background:linear-gradient(var(--mem) 0 0) no-repeat right bottom/var(--w) 3px}"
        "td.speed{background-image:linear-gradient(var(--speed) 0 0)}td{white-space:nowrap}td.why,td .note{white-space:normal}"
        ".every th{padding-top:1rem;border-bottom:none}.every thead th,.every td:first-child{text-align:left}"
        ".every thead th+th{text-align:right}\n"
        "svg.narrow{display:none}@media(max-width:46rem){svg.wide,.kld{display:none}svg.narrow{display:block}}\n"
        "@media(max-width:40rem){table{font-size:12px}th,td{padding:.35rem .15rem}body{margin:1rem auto;padding:0 .8rem}}\n");
    bench_plot_style(out);
    put(out, "</style>\n");
}

/* The largest values of the overview, for the bars under its numbers. */
struct most {
    double memory, speed;
};

/* Writes why a speed is doubtful, on a line of its own. */
static void put_marks(unsigned marks, struct buf *out)
{
    char why[48];
    if (marks) put(out, "<br><span class=\"lost\">%s</span>", bench_marks_text(marks, why));
}

static void overview_numbers(const struct bench *b, const struct bench_row *r, const struct most *m,
                             struct buf *out)
{
    const struct bench_prompt *p = &r->prompt;
    char a[16], same[24];
    double speed = bench_speed(b, r);
    bool lost = bench_lost(p);
    put(out, "<td class=\"mem\" style=\"--w:%.0f%%\">%s", BAR_WIDTH * (double)p->held / m->memory,
        bytes_text(p->held, a));
    if (p->disk) put(out, "<br><span class=\"note\">+ %s disk</span>", bytes_text(p->disk, a));
    put(out, "</td><td class=\"mem\" style=\"--w:%.0f%%\">%s</td>",
        BAR_WIDTH * (double)p->memory.peak / m->memory, bytes_text(p->memory.peak, a));
    put(out, "<td class=\"speed\" style=\"--w:%.0f%%\">%.0f", BAR_WIDTH * speed / m->speed, speed);
    if (r->runs > 1)
        put(out, "<br><span class=\"note\">&plusmn;%.0f %%</span>",
            100 * bench_spread(r->at[b->n_depths - 1].decode, r->runs));
    put_marks(bench_marks(b, r, b->n_depths - 1) & ~BENCH_PREFILL, out);
    put(out, "</td><td%s>%s</td><td class=\"kld\">", lost ? " class=\"lost\"" : "",
        r == b->row ? "reference" : bench_quality(p, same));
    put(out, p->n ? "%.1g" : "-", p->kld);
}

/* One row for each strategy, at the greatest depth. */
static void overview(const struct bench *b, struct buf *out)
{
    struct most most = {1, 1e-9};
    for (const struct bench_row *r = b->row; r < b->row + b->n_rows; r++) {
        if (r->refused) continue;
        most.memory = fmax(most.memory, (double)MAX(r->prompt.memory.peak, r->prompt.held));
        most.speed = fmax(most.speed, bench_speed(b, r));
    }
    put(out,
        "<h2>After a prompt of %u tokens in one call</h2>\n<table>\n<thead><tr><th scope=\"col\">strategy</th>"
        "<th scope=\"col\">in memory</th><th scope=\"col\">peak</th><th scope=\"col\">tokens/s</th>"
        "<th scope=\"col\">same token</th><th scope=\"col\" class=\"kld\">KLD</th></tr></thead>\n<tbody>\n",
        bench_longest(b));
    for (const struct bench_row *r = b->row; r < b->row + b->n_rows; r++) {
        put(out, "<tr><th scope=\"row\">");
        bench_put_text(out, r->s.name);
        put(out, "</th>");
        if (r->refused) {
            put(out, "<td colspan=\"5\" class=\"why\">");
            bench_put_text(out, r->refused);
        } else {
            overview_numbers(b, r, &most, out);
        }
        put(out, "</td></tr>\n");
    }
    put(out, "</tbody>\n</table>\n");
}

static void depth_row(const struct bench *b, const struct bench_row *r, uint32_t d, struct buf *out)
{
    const struct bench_depth *x = &r->at[d];
    char size[16];
    double decode = bench_median(x->decode, r->runs), prefill = bench_median(x->prefill, r->runs);
    double dynamic = bench_median(b->row[0].at[d].decode, b->row[0].runs);
    put(out, "<tr><td>%u</td><td>%s</td>", x->depth, bytes_text(x->bytes, size));
    put(out, prefill > 0 ? "<td>%.0f</td>" : "<td>&ndash;</td>", prefill);
    put(out, "<td>%.0f", decode);
    put_marks(bench_marks(b, r, d), out);
    put(out, "</td><td>%.2f</td><td>%.2f</td></tr>\n", dynamic > 0 ? decode / dynamic : 0,
        decode * bench_floor(b, x));
}

static void every_depth(const struct bench *b, struct buf *out)
{
    put(out,
        "<h2>At every depth, in turns of %u tokens</h2>\n<table class=\"every\">\n<thead><tr>"
        "<th scope=\"col\">cached tokens</th><th scope=\"col\">rows</th><th scope=\"col\">prefill/s</th>"
        "<th scope=\"col\">decode/s</th><th scope=\"col\">&times; dynamic</th><th scope=\"col\">&times; floor</th>"
        "</tr></thead>\n",
        MAX(BENCH_PIECE, bench_longest(b) / 40 + 1));
    for (const struct bench_row *r = b->row; r < b->row + b->n_rows; r++) {
        put(out, "<tbody>\n<tr><th colspan=\"6\" scope=\"rowgroup\">");
        bench_put_text(out, r->s.name);
        put(out, "</th></tr>\n");
        for (uint32_t d = 0; !r->refused && d < b->n_depths; d++)
            depth_row(b, r, d, out);
        if (r->refused) {
            put(out, "<tr><td colspan=\"6\" class=\"why\">");
            bench_put_text(out, r->refused);
            put(out, "</td></tr>\n");
        }
        put(out, "</tbody>\n");
    }
    put(out, "</table>\n");
}

static void put_method(const struct bench *b, struct buf *out)
{
    struct buf line;
    buf_init(&line, 4096);
    bench_method(b, &line);
    bench_put_text(out, line.data ? line.data : "");
    buf_done(&line);
}

/* Writes what the marks mean, where there are any. */
static void put_warning(const struct bench *b, struct buf *out)
{
    struct buf said;
    buf_init(&said, 4096);
    bench_marks_say(b, &said);
    if (said.len) {
        put(out, "<p class=\"warning\">");
        bench_put_text(out, said.data);
        put(out, "</p>\n");
    }
    buf_done(&said);
}

static void method(const struct bench *b, struct buf *out)
{
    char size[16];
    put(out, "<h2>Method</h2>\n<p>");
    put_method(b, out);
    put(out,
        ". A decode step reads %s of weights; memory was read at %.1f GB/s in the same run. "
        "&ldquo;&times; floor&rdquo; compares decoding with reading the weights and the rows once at that rate: "
        "1.00 would be as fast as memory allows.</p>\n",
        bytes_text(b->weight_bytes, size), b->bandwidth / 1e9);
    put(out, "<p>Memory is what a cache has in use or set aside. The text is ");
    if (b->text)
        bench_put_text(out, b->text);
    else
        put(out, "what the model writes by sampling at temperature 1");
    put(out,
        ". Quality: after the prompt, %u more tokens of the text are fed one by one. &ldquo;Same token&rdquo; counts "
        "where the most likely next token is that of the dynamic cache; KLD is the mean divergence of the two "
        "distributions, in nats; &ldquo;identical&rdquo; means that all logits have the same bits.",
        b->row[0].prompt.n);
    if (b->n_rows > 1 && b->window)
        put(out,
            " Windows keep %u tokens, sinks included; quality shows what the forgotten text was worth.",
            b->window);
    put(out, "</p>\n");
}

/* Names the row of the headline, its quality, and its peak if that is not below the dynamic cache's. */
static void lead(const struct bench *b, struct buf *out)
{
    const struct bench_row *best = bench_best(b), *dynamic = &b->row[0];
    char same[24], peak[16];
    if (!best) return;
    put(out, "<p>The cache is kept as <em>");
    bench_put_text(out, best->s.name);
    put(out, "</em>.");
    if (best->prompt.identical && best->prompt.n)
        put(out, " Its logits are identical to those of the dynamic cache.");
    else if (best->prompt.n)
        put(out, " The most likely next token is that of the dynamic cache in %s.",
            bench_quality(&best->prompt, same));
    if (best->prompt.memory.peak > dynamic->prompt.memory.peak) {
        put(out, " While the prompt is read, memory peaks at %s,",
            bytes_text(best->prompt.memory.peak, peak));
        put(out, " above the %s of dynamic.", bytes_text(dynamic->prompt.memory.peak, peak));
    }
    put(out, "</p>\n");
}

static void page(const struct bench *b, struct buf *out)
{
    struct buf head;
    buf_init(&head, 4096);
    bench_headline(b, &head);
    const char *found = head.data ? head.data : "";
    put(out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
        "content=\"width=device-width,initial-scale=1\">\n<title>kvik: ");
    bench_put_text(out, found);
    put(out, "</title>\n");
    style(out);
    put(out, "</head>\n<body>\n<main>\n<h1>");
    bench_put_text(out, found);
    put(out, "</h1>\n");
    buf_done(&head);
    lead(b, out);
    put(out, "<p class=\"method\">");
    put_method(b, out);
    put(out, ".</p>\n");
    put_warning(b, out);
    if (bench_longest(b)) {
        put(out, "<figure class=\"chart\">\n");
        bench_chart(b, out, BENCH_PAGE);
        bench_chart(b, out, BENCH_PHONE);
        put(out, "</figure>\n");
        overview(b, out);
    }
    put(out, "<div class=\"plots\">\n");
    bench_plot_memory(b, out, true);
    bench_plot_memory(b, out, false);
    bench_plot_speed(b, out);
    put(out, "</div>\n");
    every_depth(b, out);
    method(b, out);
    put(out, "</main>\n</body>\n</html>\n");
}

static int write_whole(struct buf *out, const char *end, const char *path)
{
    size_t n = strlen(end);
    bool whole = out->len >= n && !memcmp(out->data + out->len - n, end, n);
    int e = whole ? file_write(path, out->data, out->len) : ERR_NOMEM;
    buf_done(out);
    return e;
}

int bench_report(const struct bench *b, const char *path)
{
    struct buf out;
    buf_init(&out, 16u << 20);
    page(b, &out);
    return write_whole(&out, "</html>\n", path);
}

int bench_svg(const struct bench *b, const char *path)
{
    struct buf out;
    buf_init(&out, 16u << 20);
    bench_chart(b, &out, BENCH_FILE);
    return write_whole(&out, "</svg>\n", path);
}

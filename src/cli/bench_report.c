/* bench_report.c - writes the measurements as one self-contained HTML page: two plots in SVG (memory against tokens,
 * decoding speed against depth) and a table.  The page is light or dark as the browser prefers. */
#include "base/map.h"
#include "cli/bench.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 720, HEIGHT = 360, LEFT = 70, RIGHT = 20, TOP = 20, BOTTOM = 46 };

/* People with colour blindness can tell these colours apart.  When the colours run out, dashes distinguish lines. */
static const char *const colour[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                     "#e69f00", "#56b4e9", "#8c6d1f", "#7f7f7f"};
static const char *const dash[] = {"none", "7 4", "2 3"};

struct plot {
    struct buf *out;
    double x_most, y_most, x_step, y_step;
    const char *x_title, *y_title;
};

/* A text that does not fit leaves the page without its end; bench_report checks for the end. */
#define put(b, ...) ((void)buf_printf(b, __VA_ARGS__))

static void put_text(struct buf *b, const char *s)
{
    for (; *s; s++)
        if (*s == '<')
            put(b, "&lt;");
        else if (*s == '>')
            put(b, "&gt;");
        else if (*s == '&')
            put(b, "&amp;");
        else if (*s == '"')
            put(b, "&quot;");
        else
            (void)buf_append(b, s, 1);
}

/* Returns the length of an axis: at most six steps of 1, 2 or 5 times a power of ten. */
static double axis(double v, double *step)
{
    double p = v > 0 ? pow(10, floor(log10(v)) - 1) : 0.1;
    static const double most[] = {1, 2, 5, 10, 20};
    *step = 20 * p;
    for (size_t i = countof(most); i-- > 0;)
        if (most[i] * p * 6 >= v) *step = most[i] * p;
    return *step * fmax(1, ceil(v / *step - 1e-9));
}

static double x_of(const struct plot *p, double x)
{
    return LEFT + x / p->x_most * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct plot *p, double y)
{
    return HEIGHT - BOTTOM - y / p->y_most * (HEIGHT - TOP - BOTTOM);
}

static void plot_begin(const struct plot *p, const char *title)
{
    put(p->out,
        "<figure><figcaption>%s</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n",
        title, WIDTH, HEIGHT, title);
    for (double y = 0; y <= p->y_most * 1.001; y += p->y_step) {
        put(p->out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
            WIDTH - RIGHT, y_of(p, y), y_of(p, y));
        put(p->out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n", LEFT - 8,
            y_of(p, y) + 4, y);
    }
    for (double x = 0; x <= p->x_most * 1.001; x += p->x_step)
        put(p->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g</text>\n", x_of(p, x),
            HEIGHT - BOTTOM + 18, x);
    put(p->out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>", (WIDTH + LEFT) / 2,
        HEIGHT - 8, p->x_title);
    put(p->out,
        "<text transform=\"translate(16 %d) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
        (HEIGHT - BOTTOM + TOP) / 2, p->y_title);
}

static void line_begin(const struct plot *p, uint32_t i)
{
    put(p->out,
        "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2.2\" stroke-dasharray=\"%s\" points=\"",
        colour[i % countof(colour)], dash[i / countof(colour) % countof(dash)]);
}

static void legend(const struct bench *b, struct buf *out)
{
    put(out, "<ul class=\"legend\">");
    for (uint32_t i = 0; i < b->n_rows; i++) {
        if (b->row[i].refused) continue;
        put(out,
            "<li><svg viewBox=\"0 0 28 8\"><line x1=\"0\" x2=\"28\" y1=\"4\" y2=\"4\" stroke=\"%s\" "
            "stroke-width=\"3\" stroke-dasharray=\"%s\"/></svg>",
            colour[i % countof(colour)], dash[i / countof(colour) % countof(dash)]);
        put_text(out, b->row[i].s.name);
        put(out, "</li>");
    }
    put(out, "</ul>\n");
}

static void plot_memory(const struct bench *b, struct buf *out)
{
    struct plot p = {out, 0, 0, 0, 0, "tokens in the cache", "MiB in memory"};
    for (uint32_t i = 0; i < b->n_rows; i++)
        for (uint32_t k = 0; k < b->row[i].n_samples; k++) {
            p.x_most = fmax(p.x_most, b->row[i].sample_tokens[k]);
            p.y_most = fmax(p.y_most, (double)b->row[i].sample_bytes[k] / 1048576);
        }
    p.x_most = axis(p.x_most, &p.x_step);
    p.y_most = axis(p.y_most, &p.y_step);
    plot_begin(&p, "Cache memory against tokens");
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const struct bench_row *r = &b->row[i];
        if (r->refused || !r->n_samples) continue;
        line_begin(&p, i);
        for (uint32_t k = 0; k < r->n_samples; k++)
            put(out, "%.1f,%.1f ", x_of(&p, r->sample_tokens[k]),
                y_of(&p, (double)r->sample_bytes[k] / 1048576));
        put(out, "\"/>\n");
    }
    put(out, "</svg></figure>\n");
}

static void plot_speed(const struct bench *b, struct buf *out)
{
    struct plot p = {out, 0, 0, 0, 0, "tokens in the cache", "decoded tokens per second"};
    for (uint32_t i = 0; i < b->n_rows; i++)
        for (uint32_t d = 0; !b->row[i].refused && d < b->n_depths; d++) {
            p.x_most = fmax(p.x_most, b->depth[d]);
            p.y_most = fmax(p.y_most, bench_median(b->row[i].at[d].decode, b->runs));
        }
    p.x_most = axis(p.x_most, &p.x_step);
    p.y_most = axis(p.y_most, &p.y_step);
    plot_begin(&p, "Decoding speed against depth");
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const struct bench_row *r = &b->row[i];
        if (r->refused) continue;
        line_begin(&p, i);
        for (uint32_t d = 0; d < b->n_depths; d++)
            put(out, "%.1f,%.1f ", x_of(&p, b->depth[d]),
                y_of(&p, bench_median(r->at[d].decode, b->runs)));
        put(out, "\"/>\n");
        for (uint32_t d = 0; d < b->n_depths; d++)
            put(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>", x_of(&p, b->depth[d]),
                y_of(&p, bench_median(r->at[d].decode, b->runs)), colour[i % countof(colour)]);
    }
    put(out, "</svg></figure>\n");
}

static void table(const struct bench *b, struct buf *out)
{
    char size[16];
    put(out,
        "<table><thead><tr><th>strategy<th>peak cache<th>depth<th>cache<th>prefill tok/s<th>decode "
        "tok/s<th>to dynamic<th>to the floor</tr></thead><tbody>\n");
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const struct bench_row *r = &b->row[i];
        if (r->refused) {
            put(out, "<tr><th scope=\"row\">");
            put_text(out, r->s.name);
            put(out, "<td colspan=\"7\" class=\"why\">");
            put_text(out, r->refused);
            put(out, "</tr>\n");
            continue;
        }
        for (uint32_t d = 0; d < b->n_depths; d++) {
            const struct bench_depth *x = &r->at[d];
            double decode = bench_median(x->decode, b->runs);
            double prefill = bench_median(x->prefill, b->runs);
            double dynamic = bench_median(b->row[0].at[d].decode, b->runs);
            put(out, "<tr>");
            if (d == 0) {
                put(out, "<th scope=\"rowgroup\" rowspan=\"%u\">", b->n_depths);
                put_text(out, r->s.name);
                put(out, "<td rowspan=\"%u\">%s", b->n_depths, bytes_text(r->peak, size));
            }
            put(out, "<td>%u<td>%s", x->depth, bytes_text(x->bytes, size));
            put(out, prefill > 0 ? "<td>%.1f" : "<td>&ndash;", prefill);
            put(out, "<td>%.1f<td>%.2f<td>%.2f</tr>\n", decode, dynamic > 0 ? decode / dynamic : 0,
                decode * bench_floor(b, x));
        }
    }
    put(out, "</tbody></table>\n");
}

static void page(const struct bench *b, struct buf *out)
{
    char size[16];
    put(out,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
        "content=\"width=device-width\"><title>kvik: cache strategies</title>\n<style>\n"
        ":root{color-scheme:light dark;--ink:#1b1b1b;--soft:#666;--line:#ddd;--paper:#fff}\n"
        "@media(prefers-color-scheme:dark){:root{--ink:#eee;--soft:#aaa;--line:#3a3a3a;--paper:#161616}}\n"
        "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;margin:2rem "
        "auto;padding:0 1rem}\n");
    put(out,
        "figure{margin:1.5rem 0}figcaption{font-weight:600}svg text{fill:var(--soft);font-size:12px}\n"
        ".grid{stroke:var(--line)}.legend{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.3rem 1.2rem}\n"
        ".legend svg{width:28px;height:8px;margin-right:.4rem;vertical-align:middle}\n"
        "table{border-collapse:collapse;width:100%%;font-variant-numeric:tabular-nums}\n"
        "th,td{text-align:right;padding:.25rem .5rem;border-bottom:1px solid "
        "var(--line)}th:first-child{text-align:left;vertical-align:top}.why{text-align:left;color:var(--soft)}\n"
        "</style>\n<h1>Cache strategies</h1>\n<p>Model <code>");
    put_text(out, b->model);
    put(out,
        "</code>: a decode step reads %s of weights; memory was read at %.1f GB/s in the same run. Medians of %u runs. "
        "The floor is the time to read the weights and the rows once at that rate; 1.00 would be as fast as memory "
        "allows.</p>\n",
        bytes_text(b->weight_bytes, size), b->bandwidth / 1e9, b->runs);
    legend(b, out);
    plot_memory(b, out);
    plot_speed(b, out);
    table(b, out);
    put(out, "<p>kvik %s</p></html>\n", kvik_version());
}

int bench_report(const struct bench *b, const char *path)
{
    static const char end[] = "</html>\n";
    struct buf out;
    buf_init(&out, 16u << 20);
    page(b, &out);
    bool whole = out.len >= sizeof end && !strcmp(out.data + out.len - (sizeof end - 1), end);
    int e = whole ? file_write(path, out.data, out.len) : ERR_NOMEM;
    buf_done(&out);
    return e;
}

/* bench_chart.c - one picture of all strategies as SVG: bars of memory and of speed, and the quality as text.  As a file of its
 * own the picture brings its colours, light or dark as the viewer prefers, and its own paper, so it is legible on any page. */
#include "cli/bench.h"

#include <math.h>
#include <string.h>

/* The picture in columns: names, bars of memory, bars of speed, quality. */
enum {
    WIDTH = 800,
    NAME = 16,
    MEMORY = 200,
    MEMORY_MOST = 150,
    SPEED = 486,
    SPEED_MOST = 90,
    QUALITY = 784,
    TOP = 118,
    STEP = 31,
    BAR = 17
};

#define put(b, ...) ((void)buf_printf(b, __VA_ARGS__))

void bench_put_text(struct buf *b, const char *s)
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

static void style(struct buf *out)
{
    put(out,
        "<style>\n"
        ".k-paper{fill:#fff;stroke:#d1d9e0}.k-ink{fill:#1f2328}.k-soft{fill:#59636e}\n"
        ".k-mem{fill:#0b6fb8}.k-disk{fill:none;stroke:#0b6fb8;stroke-dasharray:3 2}.k-peak{stroke:#0b6fb8}\n"
        ".k-speed{fill:#b3590a}.k-rule{stroke:#d1d9e0}.k-lost{fill:#a40e26}\n"
        "@media (prefers-color-scheme:dark){\n"
        ".k-paper{fill:#0d1117;stroke:#3d444d}.k-ink{fill:#f0f6fc}.k-soft{fill:#9198a1}\n"
        ".k-mem{fill:#4aa3e8}.k-disk{stroke:#4aa3e8}.k-peak{stroke:#4aa3e8}\n"
        ".k-speed{fill:#f0883e}.k-rule{stroke:#3d444d}.k-lost{fill:#ff7b72}}\n"
        "</style>\n");
}

static void text(struct buf *out, double x, double y, const char *class, const char *more,
                 const char *s)
{
    put(out, "<text x=\"%.0f\" y=\"%.0f\" class=\"%s\"%s>", x, y, class, more);
    bench_put_text(out, s);
    put(out, "</text>\n");
}

/* The scales of the picture. */
struct scale {
    double unit;                     /* bytes: a MiB, or a KiB for tiny models */
    double per_byte, per_token_rate; /* pixels */
};

static int amount(char *out, size_t room, const char *before, uint64_t bytes, double unit)
{
    double v = (double)bytes / unit;
    return snprintf(out, room, v < 10 ? "%s%.1f" : "%s%.0f", before, v);
}

/* Draws what lies in memory, then what lies on disk, and a mark at the highest use of memory. */
static void memory(struct buf *out, const struct bench_prompt *p, double y, const struct scale *s)
{
    double held = (double)p->held * s->per_byte, disk = (double)p->disk * s->per_byte;
    double peak = (double)p->memory.peak * s->per_byte, end = fmax(held + disk, peak);
    bool above = (double)p->memory.peak > 1.05 * (double)p->held;
    char label[64];
    size_t room = sizeof label;
    put(out, "<rect x=\"%d\" y=\"%.0f\" width=\"%.1f\" height=\"%d\" class=\"k-mem\"/>\n", MEMORY,
        y, fmax(held, 1), BAR);
    if (p->disk)
        put(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" class=\"k-disk\"/>\n",
            MEMORY + held, y + 0.5, disk, BAR - 1);
    if (above)
        put(out, "<path d=\"M%.1f %.1fH%.1fM%.1f %.0fv%d\" class=\"k-peak\" stroke-width=\"2\"/>\n",
            MEMORY + held, y + BAR / 2.0, MEMORY + peak, MEMORY + peak, y, BAR);
    size_t n = (size_t)amount(label, room, "", p->held, s->unit);
    if (p->disk) {
        n += (size_t)amount(label + n, room - n, " + ", p->disk, s->unit);
        snprintf(label + n, room - n, " disk");
    } else if (above) {
        amount(label + n, room - n, ", peak ", p->memory.peak, s->unit);
    }
    text(out, MEMORY + end + 6, y + BAR - 4, "k-ink", "", label);
}

static void row(const struct bench *b, const struct bench_row *r, struct buf *out, double y,
                const struct scale *s)
{
    char label[32];
    double speed = bench_speed(b, r), dynamic = bench_speed(b, &b->row[0]);
    double width = speed * s->per_token_rate;
    text(out, NAME, y + BAR - 4, "k-ink", r == b->row ? " font-weight=\"600\"" : "", r->s.name);
    memory(out, &r->prompt, y, s);
    put(out, "<rect x=\"%d\" y=\"%.0f\" width=\"%.1f\" height=\"%d\" class=\"k-speed\"/>\n", SPEED,
        y, fmax(width, 1), BAR);
    if (r == b->row)
        snprintf(label, sizeof label, "%.0f", speed);
    else
        snprintf(label, sizeof label, "%.0f (%.0f %%)", speed, 100 * speed / fmax(dynamic, 1e-9));
    text(out, SPEED + width + 6, y + BAR - 4, "k-ink", "", label);
    bool lost = bench_lost(&r->prompt);
    text(out, QUALITY, y + BAR - 4, lost ? "k-lost" : "k-ink", " text-anchor=\"end\"",
         r == b->row ? "reference" : bench_quality(&r->prompt, label));
}

static void heading(const struct bench *b, struct buf *out, uint32_t n, bool file,
                    const struct scale *s)
{
    struct buf line;
    buf_init(&line, 4096);
    bench_headline(b, &line);
    put(out, "<title>");
    bench_put_text(out, line.data ? line.data : "");
    put(out,
        "</title>\n<rect x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%d\" rx=\"6\" class=\"k-paper\"/>\n",
        WIDTH - 1, TOP + (int)n * STEP + 39);
    if (file)
        text(out, NAME, 36, "k-ink", " font-size=\"19\" font-weight=\"600\"",
             line.data ? line.data : "");
    buf_done(&line);
    text(out, MEMORY, 74, "k-ink", " font-weight=\"600\"",
         s->unit > 1024 ? "Memory of the cache, MiB" : "Memory of the cache, KiB");
    text(out, MEMORY, 92, "k-soft", " font-size=\"12.5\"", "bar: after the prompt; mark: peak");
    text(out, SPEED, 74, "k-ink", " font-weight=\"600\"", "Decoding, tokens/s");
    text(out, SPEED, 92, "k-soft", " font-size=\"12.5\"", "share of dynamic");
    text(out, QUALITY, 74, "k-ink", " font-weight=\"600\" text-anchor=\"end\"", "Same next token");
    text(out, QUALITY, 92, "k-soft", " font-size=\"12.5\" text-anchor=\"end\"", "as dynamic");
    put(out, "<line x1=\"%d\" x2=\"%d\" y1=\"104\" y2=\"104\" class=\"k-rule\"/>\n", NAME, QUALITY);
}

static bool drawn(const struct bench_row *r)
{
    return !r->refused && r->prompt.held;
}

void bench_chart(const struct bench *b, struct buf *out, bool file)
{
    uint32_t n = 0, at = 0;
    double most = 1, fastest = 1e-9;
    struct buf method;
    for (const struct bench_row *r = b->row; r < b->row + b->n_rows; r++) {
        const struct bench_prompt *p = &r->prompt;
        if (!drawn(r)) continue;
        n++;
        most = fmax(most, (double)MAX(p->memory.peak, p->held + p->disk));
        fastest = fmax(fastest, bench_speed(b, r));
    }
    struct scale s = {most < 1048576 ? 1024 : 1048576, MEMORY_MOST / most, SPEED_MOST / fastest};
    put(out,
        "<svg %sviewBox=\"0 %d %d %d\" role=\"img\" "
        "style=\"font:14px system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif\">\n",
        file ? "xmlns=\"http://www.w3.org/2000/svg\" " : "", file ? 0 : 52, WIDTH,
        TOP + (int)n * STEP + (file ? 40 : -50));
    if (file) style(out);
    heading(b, out, n, file, &s);
    for (const struct bench_row *r = b->row; r < b->row + b->n_rows; r++)
        if (drawn(r)) row(b, r, out, TOP + at++ * STEP, &s);
    if (file) {
        buf_init(&method, 4096);
        bench_method(b, &method);
        text(out, NAME, TOP + n * STEP + 20, "k-soft", " font-size=\"12.5\"",
             method.data ? method.data : "");
        buf_done(&method);
    }
    put(out, "</svg>\n");
}

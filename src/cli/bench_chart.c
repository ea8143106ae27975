/* bench_chart.c - one picture of all strategies as SVG: bars of memory and of speed, and the quality as text.  As a file of its
 * own the picture brings its colours, light or dark as the viewer prefers, and its own paper, so it is legible on any page. */
#include "cli/bench.h"

#include <math.h>
#include <string.h>

/* Where the columns of the picture begin, and how long their longest bars are.  On a phone, a strategy has three lines in place of
 * four columns: its name and quality, its memory, its speed. */
struct form {
    int width, memory, memory_most, speed, speed_most, quality;
    int top, step; /* y of the first strategy, and from one strategy to the next */
    int bars_down,
        speed_down; /* from the name to the bar of memory, and from there to the speed's */
};
static const struct form wide = {.width = 800,
                                 .memory = 200,
                                 .memory_most = 150,
                                 .speed = 486,
                                 .speed_most = 90,
                                 .quality = 784,
                                 .top = 118,
                                 .step = 31};
static const struct form narrow = {.width = 380,
                                   .memory = 16,
                                   .memory_most = 170,
                                   .speed = 16,
                                   .speed_most = 170,
                                   .quality = 364,
                                   .top = 90,
                                   .step = 80,
                                   .bars_down = 22,
                                   .speed_down = 22};
enum { NAME = 16, BAR = 17 };

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
static void memory(struct buf *out, const struct bench_prompt *p, const struct form *f, double y,
                   const struct scale *s)
{
    double held = (double)p->held * s->per_byte, disk = (double)p->disk * s->per_byte;
    double peak = (double)p->memory.peak * s->per_byte, end = fmax(held + disk, peak);
    bool above = (double)p->memory.peak > 1.05 * (double)p->held;
    char label[64];
    size_t room = sizeof label;
    put(out, "<rect x=\"%d\" y=\"%.0f\" width=\"%.1f\" height=\"%d\" class=\"k-mem\"/>\n",
        f->memory, y, fmax(held, 1), BAR);
    if (p->disk)
        put(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" class=\"k-disk\"/>\n",
            f->memory + held, y + 0.5, disk, BAR - 1);
    if (above)
        put(out, "<path d=\"M%.1f %.1fH%.1fM%.1f %.0fv%d\" class=\"k-peak\" stroke-width=\"2\"/>\n",
            f->memory + held, y + BAR / 2.0, f->memory + peak, f->memory + peak, y, BAR);
    size_t n = (size_t)amount(label, room, "", p->held, s->unit);
    if (p->disk) {
        n += (size_t)amount(label + n, room - n, " + ", p->disk, s->unit);
        snprintf(label + n, room - n, " disk");
    } else if (above) {
        amount(label + n, room - n, ", peak ", p->memory.peak, s->unit);
    }
    text(out, f->memory + end + 6, y + BAR - 4, "k-ink", "", label);
}

/* Returns why a speed does not compare. */
static const char *speed_mark(unsigned marks)
{
    return marks & BENCH_SCATTERS ? "scatters" : marks & BENCH_ABOVE ? "above floor" : "unsteady";
}

static void row(const struct bench *b, const struct bench_row *r, struct buf *out,
                const struct form *f, double y, const struct scale *s)
{
    char label[64];
    double speed = bench_speed(b, r), dynamic = bench_speed(b, &b->row[0]);
    double width = speed * s->per_token_rate;
    char quality[24];
    text(out, NAME, y + BAR - 4, "k-ink", r == b->row ? " font-weight=\"600\"" : "", r->s.name);
    text(out, f->quality, y + BAR - 4, bench_lost(&r->prompt) ? "k-lost" : "k-ink",
         " text-anchor=\"end\"", r == b->row ? "reference" : bench_quality(&r->prompt, quality));
    y += f->bars_down;
    memory(out, &r->prompt, f, y, s);
    y += f->speed_down;
    put(out, "<rect x=\"%d\" y=\"%.0f\" width=\"%.1f\" height=\"%d\" class=\"k-speed\"/>\n",
        f->speed, y, fmax(width, 1), BAR);
    bool holds = bench_comparable(b, r);
    unsigned marks = bench_marks(b, r, b->n_depths - 1);
    if (!holds)
        snprintf(label, sizeof label, "%.0f (%s)", speed, speed_mark(marks));
    else if (r == b->row)
        snprintf(label, sizeof label, "%.0f", speed);
    else
        snprintf(label, sizeof label, "%.0f (%.0f %%)", speed, 100 * speed / fmax(dynamic, 1e-9));
    text(out, f->speed + width + 6, y + BAR - 4, holds ? "k-ink" : "k-lost", "", label);
}

/* The headings of the columns. */
static void wide_heading(struct buf *out, const struct form *f, const struct scale *s)
{
    text(out, f->memory, 74, "k-ink", " font-weight=\"600\"",
         s->unit > 1024 ? "Memory of the cache, MiB" : "Memory of the cache, KiB");
    text(out, f->memory, 92, "k-soft", " font-size=\"12.5\"", "bar: after the prompt; mark: peak");
    text(out, f->speed, 74, "k-ink", " font-weight=\"600\"", "Decoding, tokens/s");
    text(out, f->speed, 92, "k-soft", " font-size=\"12.5\"", "share of dynamic");
    text(out, f->quality, 74, "k-ink", " font-weight=\"600\" text-anchor=\"end\"",
         "Same next token");
    text(out, f->quality, 92, "k-soft", " font-size=\"12.5\" text-anchor=\"end\"", "as dynamic");
    put(out, "<line x1=\"%d\" x2=\"%d\" y1=\"104\" y2=\"104\" class=\"k-rule\"/>\n", NAME,
        f->quality);
}

/* What the lines of a strategy are. */
static void narrow_heading(struct buf *out, const struct form *f, const struct scale *s)
{
    text(out, NAME, 20, "k-ink", " font-weight=\"600\"", "Strategy");
    text(out, f->quality, 20, "k-ink", " font-weight=\"600\" text-anchor=\"end\"",
         "Same next token");
    put(out, "<rect x=\"%d\" y=\"32\" width=\"12\" height=\"12\" class=\"k-mem\"/>\n", NAME);
    text(out, NAME + 18, 43, "k-soft", "",
         s->unit > 1024 ? "MiB of memory after the prompt; mark: peak"
                        : "KiB of memory after the prompt; mark: peak");
    put(out, "<rect x=\"%d\" y=\"54\" width=\"12\" height=\"12\" class=\"k-speed\"/>\n", NAME);
    text(out, NAME + 18, 65, "k-soft", "", "tokens/s of decoding (share of dynamic)");
    put(out, "<line x1=\"%d\" x2=\"%d\" y1=\"78\" y2=\"78\" class=\"k-rule\"/>\n", NAME,
        f->quality);
}

/* The title, which screen readers read, and in a file its paper and headline. */
static void title(const struct bench *b, struct buf *out, const struct form *f, int height,
                  bool file)
{
    struct buf line;
    buf_init(&line, 4096);
    bench_headline(b, &line);
    put(out, "<title>");
    bench_put_text(out, line.data ? line.data : "");
    put(out, "</title>\n");
    if (file) {
        put(out,
            "<rect x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%d\" rx=\"6\" class=\"k-paper\"/>\n",
            f->width - 1, height - 1);
        text(out, NAME, 36, "k-ink", " font-size=\"19\" font-weight=\"600\"",
             line.data ? line.data : "");
    }
    buf_done(&line);
}

static bool drawn(const struct bench_row *r)
{
    return !r->refused && r->prompt.held;
}

void bench_chart(const struct bench *b, struct buf *out, enum bench_form form)
{
    const struct form *f = form == BENCH_PHONE ? &narrow : &wide;
    bool file = form == BENCH_FILE;
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
    struct scale s = {most < 1048576 ? 1024 : 1048576, f->memory_most / most,
                      f->speed_most / fastest};
    int from = form == BENCH_PAGE ? 52 : 0, to = f->top + (int)n * f->step + (file ? 40 : 2);
    put(out,
        "<svg %s viewBox=\"0 %d %d %d\" role=\"img\" "
        "style=\"font:14px system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif\">\n",
        file                  ? "xmlns=\"http://www.w3.org/2000/svg\""
        : form == BENCH_PHONE ? "class=\"narrow\""
                              : "class=\"wide\"",
        from, f->width, to - from);
    if (file) style(out);
    title(b, out, f, to, file);
    if (form == BENCH_PHONE)
        narrow_heading(out, f, &s);
    else
        wide_heading(out, f, &s);
    for (const struct bench_row *r = b->row; r < b->row + b->n_rows; r++)
        if (drawn(r)) row(b, r, out, f, f->top + at++ * (uint32_t)f->step, &s);
    if (file) {
        buf_init(&method, 4096);
        bench_method(b, &method);
        text(out, NAME, f->top + (int)n * f->step + 20, "k-soft", " font-size=\"12.5\"",
             method.data ? method.data : "");
        buf_done(&method);
    }
    put(out, "</svg>\n");
}

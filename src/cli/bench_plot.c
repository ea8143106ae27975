/* bench_plot.c - plots of lines as SVG: memory against tokens, and decoding speed against depth.  Each line has its name at its
 * end.  A line that coincides with earlier ones is drawn a few pixels beside them. */
#include "cli/bench.h"

#include <math.h>
#include <string.h>

enum {
    WIDTH = 524,
    HEIGHT = 360,
    LEFT = 58,
    RIGHT = 206,
    TOP = 16,
    BOTTOM = 50,
    APART = 3,  /* pixels between lines that coincide */
    LABEL = 17, /* pixels between names */
    LINES = 16,
    COLOURS = 8
};

#define put(b, ...) ((void)buf_printf(b, __VA_ARGS__))

struct line {
    const char *name;
    uint32_t n, rank; /* rank: how many earlier lines this one is drawn beside */
    double x[BENCH_SAMPLES], y[BENCH_SAMPLES], label;
};
struct plot {
    struct buf *out;
    double x_most, y_most, x_step, y_step;
    const char *y_title;
    uint32_t n;
    struct line line[LINES];
};

/* People with colour blindness can tell these colours apart.  When the colours run out, dashes distinguish lines. */
void bench_plot_style(struct buf *out)
{
    static const char *const light[COLOURS] = {"#0b6fb8", "#b3590a", "#0a7d5a", "#a83f80",
                                               "#8a6500", "#3b3bb3", "#6b5314", "#666"};
    static const char *const dark[COLOURS] = {"#5ab0f0", "#f0883e", "#3fcf9f", "#e69ac5",
                                              "#e3b341", "#a5a5ff", "#cbb27a", "#aaa"};
    for (int i = 0; i < COLOURS; i++)
        put(out, ".c%d{--c:%s}", i, light[i]);
    put(out, "\n@media(prefers-color-scheme:dark){");
    for (int i = 0; i < COLOURS; i++)
        put(out, ".c%d{--c:%s}", i, dark[i]);
    put(out, "}\n.line{fill:none;stroke:var(--c);stroke-width:2.4}.dot,.name{fill:var(--c)}"
             ".lead{stroke:var(--c);stroke-width:1;opacity:.6}\n");
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

static double y_of(const struct plot *p, const struct line *l, double y)
{
    return HEIGHT - BOTTOM - y / p->y_most * (HEIGHT - TOP - BOTTOM) - APART * (double)l->rank;
}

/* True if two lines are nearer than a line's width over at least one piece. */
static bool coincide(const struct plot *p, const struct line *a, const struct line *b)
{
    double pixels = (HEIGHT - TOP - BOTTOM) / p->y_most;
    uint32_t n = MIN(a->n, b->n), run = 0;
    for (uint32_t k = 0; k < n; k++) {
        run = fabs(a->y[k] - b->y[k]) * pixels < APART ? run + 1 : 0;
        if (run > 1 || (run && n == 1)) return true;
    }
    return false;
}

static void rank(struct plot *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        bool taken[LINES + 1] = {false};
        for (uint32_t j = 0; j < i; j++)
            if (coincide(p, &p->line[i], &p->line[j])) taken[p->line[j].rank] = true;
        while (taken[p->line[i].rank])
            p->line[i].rank++;
    }
}

/* Sets the heights of the names: near the ends of the lines, and LABEL apart. */
static void place_names(struct plot *p)
{
    struct line *order[LINES];
    for (uint32_t i = 0; i < p->n; i++) {
        struct line *l = &p->line[i];
        uint32_t at = i;
        l->label = y_of(p, l, l->y[l->n - 1]);
        for (; at && order[at - 1]->label > l->label; at--)
            order[at] = order[at - 1];
        order[at] = l;
    }
    double least = TOP, most = HEIGHT - BOTTOM;
    for (uint32_t i = 0; i < p->n; i++) {
        order[i]->label = fmax(order[i]->label, least);
        least = order[i]->label + LABEL;
    }
    for (uint32_t i = p->n; i-- > 0;) {
        order[i]->label = fmin(order[i]->label, most);
        most = order[i]->label - LABEL;
    }
}

static void grid(const struct plot *p)
{
    static const struct line flat = {0};
    for (double y = 0; y <= p->y_most * 1.001; y += p->y_step) {
        put(p->out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
            WIDTH - RIGHT, y_of(p, &flat, y), y_of(p, &flat, y));
        put(p->out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n", LEFT - 8,
            y_of(p, &flat, y) + 5, y);
    }
    for (double x = 0; x <= p->x_most * 1.001; x += p->x_step)
        put(p->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g</text>\n", x_of(p, x),
            HEIGHT - BOTTOM + 20, x);
    put(p->out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">cached tokens</text>",
        (WIDTH - RIGHT + LEFT) / 2, HEIGHT - 8);
    put(p->out,
        "<text transform=\"translate(13 %d) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
        (HEIGHT - BOTTOM + TOP) / 2, p->y_title);
}

static void draw_line(const struct plot *p, const struct line *l, uint32_t colour)
{
    static const char *const dash[] = {"none", "7 4", "2 3"};
    double x = x_of(p, l->x[l->n - 1]), y = y_of(p, l, l->y[l->n - 1]);
    put(p->out, "<g class=\"c%u\"><polyline class=\"line\" stroke-dasharray=\"%s\" points=\"",
        colour % COLOURS, dash[colour / COLOURS % countof(dash)]);
    for (uint32_t k = 0; k < l->n; k++)
        put(p->out, "%.1f,%.1f ", x_of(p, l->x[k]), y_of(p, l, l->y[k]));
    put(p->out, "\"/><circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\"/>", x, y);
    put(p->out, "<line class=\"lead\" x1=\"%.1f\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", x + 4,
        WIDTH - RIGHT + 22, y, l->label);
    put(p->out, "<text class=\"name\" x=\"%d\" y=\"%.1f\">", WIDTH - RIGHT + 26, l->label + 5);
    bench_put_text(p->out, l->name);
    put(p->out, "</text></g>\n");
}

static void draw(struct plot *p, const char *title, const char *more)
{
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = 0; k < p->line[i].n; k++) {
            p->x_most = fmax(p->x_most, p->line[i].x[k]);
            p->y_most = fmax(p->y_most, p->line[i].y[k]);
        }
    p->x_most = axis(p->x_most, &p->x_step);
    p->y_most = axis(p->y_most, &p->y_step);
    rank(p);
    place_names(p);
    put(p->out,
        "<figure>\n<figcaption><strong>%s.</strong> %s</figcaption>\n"
        "<svg class=\"plot\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n",
        title, more, WIDTH, HEIGHT, title);
    grid(p);
    for (uint32_t i = 0; i < p->n; i++)
        draw_line(p, &p->line[i], i);
    put(p->out, "</svg>\n</figure>\n");
}

static void add_curve(struct plot *p, const char *name, const struct bench_curve *c)
{
    struct line *l = &p->line[p->n];
    if (!c->n || p->n == LINES) return;
    *l = (struct line){.name = name, .n = c->n};
    for (uint32_t k = 0; k < c->n; k++) {
        l->x[k] = c->tokens[k];
        l->y[k] = (double)c->bytes[k] / 1048576;
    }
    p->n++;
}

void bench_plot_memory(const struct bench *b, struct buf *out, bool one_call)
{
    struct plot p = {.out = out, .y_title = "MiB of memory"};
    for (const struct bench_row *r = b->row; r < b->row + b->n_rows; r++)
        if (!r->refused) add_curve(&p, r->s.name, one_call ? &r->prompt.memory : &r->pieces);
    if (!p.n) return;
    if (one_call)
        draw(
            &p, "Memory while one prompt is read",
            "Quantized strategies first hold the prompt twice: its tokens read each other unquantized, as in "
            "Transformers, so the unquantized rows leave only when the prompt ends.");
    else
        draw(&p, "Memory of a conversation that grows in turns",
             "Each turn is quantized when it ends. Lines that coincide are drawn side by side.");
}

void bench_plot_speed(const struct bench *b, struct buf *out)
{
    struct plot p = {.out = out, .y_title = "decoded tokens per second"};
    for (const struct bench_row *r = b->row; r < b->row + b->n_rows; r++) {
        struct line *l = &p.line[p.n];
        if (r->refused || p.n == LINES) continue;
        *l = (struct line){.name = r->s.name, .n = b->n_depths};
        for (uint32_t d = 0; d < b->n_depths; d++) {
            l->x[d] = b->depth[d];
            l->y[d] = bench_median(r->at[d].decode, r->runs);
        }
        p.n++;
    }
    if (!p.n) return;
    draw(&p, "Decoding speed", "More cached tokens take longer to read.");
}

/* test_dev_scan.c - the causal convolution and the selective scan against double precision; every
 * instruction set against the reference device, bit for bit; and one step of many tokens against
 * steps of few, with states that pass through pages. */
#include "share.h"
#include "state_pages.h"

#include <math.h>

/* One mixer's shapes: channels, heads, groups, states, taps; one decay per head or one per state. */
struct shape {
    uint32_t channels, heads, groups, n, taps;
    bool one_decay;
};
static const struct shape shapes[] = {
    {80, 80, 1, 8, 4, false},   {1, 1, 1, 1, 1, false},     {33, 33, 1, 5, 2, false},
    {64, 8, 2, 16, 4, true},    {48, 3, 1, 7, 3, true},     {40, 4, 2, 4, 4, true},
    {120, 5, 5, 33, 4, true},   {16, 16, 1, 256, 5, false}, {640, 640, 1, 16, 4, false},
    {1024, 16, 4, 64, 4, true},
};

struct mixer {
    const struct shape *s;
    size_t tokens; /* of all lanes */
    float *x, *dt, *b, *c, *a, *d, *w, *bias;
};

static struct mixer mixer_new(const struct shape *s)
{
    struct mixer m = {.s = s, .tokens = (size_t)LANES * TOKENS};
    m.x = draw(m.tokens * s->channels, -2, 2);
    m.dt = draw(m.tokens * s->heads, 0, 0.5f);
    m.b = draw(m.tokens * s->groups * s->n, -1, 1);
    m.c = draw(m.tokens * s->groups * s->n, -1, 1);
    m.a = draw((size_t)s->channels * s->n, -4, -0.01f);
    m.d = draw(s->channels, -1, 1);
    m.w = draw((size_t)s->taps * s->channels, -1, 1);
    m.bias = draw(s->channels, -1, 1);
    if (s->one_decay) /* the channels of a head share a decay */
        for (uint32_t i = 0; i < s->channels; i++)
            m.a[i] = m.a[i / (s->channels / s->heads)];
    return m;
}

static void mixer_free(struct mixer *m)
{
    float *all[] = {m->x, m->dt, m->b, m->c, m->a, m->d, m->w, m->bias};
    for (size_t i = 0; i < countof(all); i++)
        free(all[i]);
}

/* Runs both operations in steps of `chunk` tokens: y [2][lane][TOKENS][channels], of the convolution
 * and the scan, and the last page of every lane. */
static void run(struct dev_queue *d, const struct mixer *m, uint32_t chunk, float *y,
                unsigned char *last)
{
    const struct shape *s = m->s;
    size_t c = s->channels, gn = (size_t)s->groups * s->n;
    struct step t;
    step_new(&t, s->taps * c * 4, s->n * c * 4);
    float *x = malloc(m->tokens * c * 4), *out = malloc(m->tokens * c * 4),
          *dt = malloc(m->tokens * s->heads * 4), *b = malloc(2 * m->tokens * gn * 4);
    for (uint32_t at = 0, n; at < TOKENS; at += n) {
        n = MIN(chunk, TOKENS - at);
        step_set(&t, at, n, false);
        rows(m->x, c, x, c, at, n, false);
        rows(m->dt, s->heads, dt, s->heads, at, n, false);
        rows(m->b, gn, b, gn, at, n, false);
        rows(m->c, gn, b + m->tokens * gn, gn, at, n, false);
        dev_conv(d, &t.v, 0, &(struct dev_conv){x, m->w, m->bias, out, s->taps, s->channels});
        rows(y, c, out, c, at, n, true);
        dev_scan(d, &t.v, 1,
                 &(struct dev_scan){.x = x,
                                    .ldx = c,
                                    .dt = dt,
                                    .b = b,
                                    .c = b + m->tokens * gn,
                                    .ldb = gn,
                                    .a = m->a,
                                    .one_decay = s->one_decay,
                                    .d = m->d,
                                    .out = out,
                                    .channels = s->channels,
                                    .heads = s->heads,
                                    .groups = s->groups,
                                    .n = s->n});
        rows(y + m->tokens * c, c, out, c, at, n, true);
    }
    size_t used = ((size_t)s->taps + s->n) * c * 4;
    for (uint32_t l = 0; l < LANES; l++)
        memcpy(last + l * used, t.pages + page_of(l, TOKENS) * t.v.raw.grain, used);
    free(x);
    free(out);
    free(dt);
    free(b);
    free(t.pages);
}

/* The definition, token by token in double precision. */
static void check_exact(const struct mixer *m, const float *y)
{
    const struct shape *s = m->s;
    uint32_t c = s->channels, per = c / s->heads, of_group = c / s->groups;
    double *h = malloc(s->n * sizeof *h);
    for (uint32_t l = 0; l < LANES; l++)
        for (uint32_t i = 0; i < c; i++) {
            memset(h, 0, s->n * sizeof *h);
            for (uint32_t t = 0; t < TOKENS; t++) {
                size_t row = (size_t)l * TOKENS + t;
                double conv = m->bias[i], sum = 0, most = 1;
                for (uint32_t k = 0; k < s->taps; k++)
                    if (t + k + 1 >= s->taps)
                        conv += (double)m->w[k * c + i] * m->x[(row + k + 1 - s->taps) * c + i];
                conv = conv / (1 + exp(-conv));
                double x = m->x[row * c + i], dt = m->dt[row * s->heads + i / per];
                for (uint32_t n = 0; n < s->n; n++) {
                    size_t at = (row * s->groups + i / of_group) * s->n + n;
                    double a = m->a[s->one_decay ? i : n * c + i];
                    h[n] = h[n] * exp(dt * a) + dt * x * m->b[at];
                    sum += h[n] * m->c[at];
                    most += fabs(h[n] * m->c[at]);
                }
                sum += m->d[i] * x;
                double got[2] = {y[row * c + i], y[(m->tokens + row) * c + i]};
                if (!(fabs(got[0] - conv) <= 4e-6 * (1 + fabs(conv))))
                    fail_msg("conv: channel %u token %u is %g, not %g", i, t, got[0], conv);
                if (!(fabs(got[1] - sum) <= 3e-6 * most))
                    fail_msg("scan: channel %u token %u is %g, not %g", i, t, got[1], sum);
            }
        }
    free(h);
}

static void check_shape(struct dev_queue *ref, const struct shape *s)
{
    static const uint32_t chunks[] = {TOKENS, 1, 2, 7};
    struct mixer m = mixer_new(s);
    size_t n = 2 * m.tokens * s->channels,
           state = LANES * ((size_t)s->taps + s->n) * s->channels * 4;
    float *want = malloc(n * 4), *got = malloc(n * 4);
    unsigned char *held = malloc(state), *mine = malloc(state);
    run(ref, &m, TOKENS, want, held);
    check_exact(&m, want);
    for (int isa = 0; isa < DEV_ISAS; isa++)
        for (uint32_t threads = 1; threads < 4; threads += 2) {
            struct dev_queue *d;
            if (!dev_isa_supported((enum dev_isa)isa)) continue;
            bool slow = isa == DEV_REF && test_share() > 1; /* one way, with several threads */
            if (slow && (threads == 1 || state > 100000)) continue; /* `want` has the large ones */
            if (test_share() > 1 && threads != (isa % 2 ? 1 : 3)) continue;
            assert_int_equal(
                dev_queue_open(&dev_host, &(struct dev_config){threads, dev_isa_names()[isa]}, &d),
                0);
            for (size_t k = slow ? countof(chunks) - 1 : 0; k < countof(chunks); k++) {
                run(d, &m, chunks[k], got, mine);
                if (memcmp(want, got, n * 4) != 0 || memcmp(held, mine, state) != 0)
                    fail_msg("%s, %u threads, steps of %u: %u channels, %u states differ",
                             dev_isa_names()[isa], threads, chunks[k], s->channels, s->n);
            }
            dev_queue_close(d);
        }
    free(want);
    free(got);
    free(held);
    free(mine);
    mixer_free(&m);
}

static void test_one_answer(void **state)
{
    (void)state;
    struct dev_queue *ref;
    assert_int_equal(dev_queue_open(&dev_host, &(struct dev_config){1, "ref"}, &ref), 0);
    for (size_t i = 0; i < countof(shapes); i++)
        check_shape(ref, &shapes[i]);
    dev_queue_close(ref);
}

struct both {
    struct dev_queue *d;
    struct step *t;
    struct dev_conv conv;
    struct dev_scan scan;
};

static void run_both(void *arg)
{
    const struct both *o = arg;
    dev_conv(o->d, &o->t->v, 0, &o->conv);
    dev_scan(o->d, &o->t->v, 1, &o->scan);
}

static void test_pages(void **state)
{
    (void)state;
    const struct shape s = {.channels = 20, .heads = 20, .groups = 1, .n = 3, .taps = 4};
    struct mixer m = mixer_new(&s);
    struct step t;
    size_t conv = (size_t)s.taps * s.channels * 4, scan = (size_t)s.n * s.channels * 4;
    float *out = malloc(m.tokens * s.channels * 4);
    struct both o = {.t = &t,
                     .conv = {m.x, m.w, m.bias, out, s.taps, s.channels},
                     .scan = {m.x, s.channels, m.dt, m.b, m.c, s.n, m.a, false, m.d, out,
                              s.channels, s.heads, 1, s.n}};
    assert_int_equal(dev_queue_open(&dev_host, NULL, &o.d), 0);
    step_new(&t, conv, scan);
    check_pages(&t, conv + scan, run_both, &o);
    free(out);
    free(t.pages);
    mixer_free(&m);
    dev_queue_close(o.d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_answer),
                                       cmocka_unit_test(test_pages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_dev_probe.c - attention probabilities against softmax in double over the flat rows of the
 * toy store, and against themselves: instruction sets, threads, pieces. */
#include "test_dev_attn_toy.h"

#include "testing.h"

enum { COLUMNS = 720, HEADS = 4, LANES = 4, FED = 40 };
#define OUT_FLOATS ((size_t)LANES * HEADS * FED * COLUMNS)

static const struct {
    const char *name;
    const struct kv_codec *codec;
    uint32_t sinks, lead, window, chunk;
} policies[] = {
    {"full", NULL, 0, 0, 0, 0},
    {"window 300", NULL, 0, 0, 300, 0},
    {"chunk 100", NULL, 0, 0, 0, 100},
    {"sinks 4, window 60", NULL, 4, 0, 60, 0},
    {"lossless, lead 20, sinks 4, window 200", &toy_lossless, 4, 20, 200, 0},
    {"lossy, lead 4", &toy_lossy, 0, 4, 0, 0},
    {"lossy, lead 150, sinks 4, window 290", &toy_lossy, 4, 150, 290, 0},
    {"lossy, tile 1, lead 4, sinks 3, window 90", &toy_lossy1, 3, 4, 90, 0},
    {"lossy, tile 48", &toy_lossy48, 0, 4, 0, 0},
    {"lossy, tile 512", &toy_lossy512, 0, 33, 0, 0},
};
static const uint32_t at_once[][4] = {{0, UINT32_MAX, 0, UINT32_MAX}, {0}};
static const uint32_t whole[][4] = {
    {0, 256, 0, 256}, {256, 512, 256, 512}, {512, 768, 512, 768}, {0}};
static const uint32_t forms[][4] = {{0, 512, 0, 0},   {512, UINT32_MAX, 0, 0}, {0, 0, 0, 256},
                                    {0, 0, 256, 512}, {0, 0, 512, UINT32_MAX}, {0}};

static void run(enum dev_isa isa, uint32_t threads, struct toy *t, const struct dev_attn *a,
                const uint32_t (*piece)[4], float *out)
{
    struct dev_queue *d;
    struct dev_config c = {threads, dev_isa_names()[isa]};
    struct dev_limits lim = {FED + 8, 64, 64, HEADS, 64, TOY_ROWS, 512};
    struct dev_probe lane[LANES] = {{0}};
    assert_int_equal(dev_queue_open(&dev_host, &c, &d), 0);
    assert_int_equal(dev_reserve(d, &lim), 0);
    for (size_t i = 0; i < LANES; i++)
        if (i != 2) /* lane 2 asks for no probabilities */
            lane[i] = (struct dev_probe){out + i * HEADS * FED * COLUMNS, FED * COLUMNS, COLUMNS};
    for (size_t i = 0; i < OUT_FLOATS; i++)
        out[i] = 7;
    for (uint32_t k = 0; piece[k][1] | piece[k][3]; k++) {
        t->view.row0 = piece[k][0];
        t->view.row1 = piece[k][1];
        t->view.raw0 = piece[k][2];
        t->view.raw1 = piece[k][3];
        t->view.first = k == 0;
        t->view.last = !(piece[k + 1][1] | piece[k + 1][3]);
        dev_attention_probe(d, &t->view, a, lane);
    }
    dev_queue_close(d);
}

/* Computes row j of one token and head in double. */
static void oracle(const struct toy *t, const struct dev_attn *a, uint32_t token, uint32_t head,
                   double *p)
{
    uint32_t kvh = head / (t->c.n_heads / t->c.n_kv);
    double m = (double)t->logit[head], sum;
    for (uint32_t j = 0; j < COLUMNS; j++) {
        enum toy_kind kind = toy_kind(t, token, j);
        p[j] = -INFINITY;
        if (kind == TOY_UNSEEN) continue;
        const float *k = t->flat[0][kind == TOY_SEALED] + toy_row(t, t->lane[token], j, kvh);
        const float *q = toy_query(t, token, head, kind);
        p[j] = 0;
        for (uint32_t d = 0; d < t->c.dim; d++)
            p[j] += (double)q[d] * (double)k[d];
        p[j] *= (double)a->scale;
        if (a->softcap != 0) p[j] = (double)a->softcap * tanh(p[j] / (double)a->softcap);
        m = fmax(m, p[j]);
    }
    sum = exp((double)t->logit[head] - m);
    for (uint32_t j = 0; j < COLUMNS; j++)
        sum += p[j] = exp(p[j] - m);
    for (uint32_t j = 0; j < COLUMNS; j++)
        p[j] /= sum;
}

static void compare(const struct toy *t, const struct dev_attn *a, const float *got,
                    const char *what)
{
    double p[COLUMNS];
    for (uint32_t i = 0, nth = 0; i < t->counts[1]; i++) {
        uint32_t lane = t->lane[i];
        nth = i && t->lane[i - 1] == lane ? nth + 1 : 0;
        for (uint32_t h = 0; h < HEADS && lane != 2; h++) {
            const float *row = got + ((size_t)(lane * HEADS + h) * FED + nth) * COLUMNS;
            oracle(t, a, i, h, p);
            for (uint32_t j = 0; j < COLUMNS; j++)
                if (!(fabs(p[j] - (double)row[j]) < 2e-6) || (p[j] == 0 && row[j] != 0))
                    fail_msg("%s: token %u head %u row %u: %g, should be %g", what, i, h, j,
                             (double)row[j], p[j]);
        }
    }
}

static void test_policies(void **state)
{
    float *want = malloc(OUT_FLOATS * sizeof *want), *got = malloc(OUT_FLOATS * sizeof *got);
    (void)state;
    for (size_t i = 0; i < countof(policies); i++) {
        struct toy_config c = {.n_lanes = LANES,
                               .n_heads = HEADS,
                               .n_kv = 2,
                               .dim = 16,
                               .dtype = (enum dtype)(i % 3),
                               .rows = 16,
                               .codec = policies[i].codec,
                               .sinks = policies[i].sinks,
                               .lead = policies[i].lead,
                               .window = policies[i].window,
                               .chunk = policies[i].chunk,
                               .max_len = COLUMNS,
                               .turned = true,
                               .logits = true};
        bool lossy = c.codec && !c.codec->lossless;
        struct toy t;
        toy_open(&t, &c);
        toy_begin(&t);
        toy_feed(&t, 1, 600, 1);
        toy_idle(&t, 3);
        toy_feed(&t, 2, 17, 3);
        toy_feed(&t, 0, 240, FED);
        size_t ld = (size_t)c.n_heads * c.dim;
        struct dev_attn a = {t.q,      ld,      t.out, ld,  c.n_heads, 0.25f, i % 2 ? 3.0f : 0,
                             t.q_sink, t.logit, NULL,  NULL};
        run(DEV_REF, 1, &t, &a, at_once, want);
        compare(&t, &a, want, policies[i].name);
        for (int isa = 0; isa < DEV_AVX512BF16; isa++) {
            if (!dev_isa_supported((enum dev_isa)isa)) continue;
            run((enum dev_isa)isa, 3, &t, &a, lossy ? forms : whole, got);
            if (memcmp(want, got, OUT_FLOATS * sizeof *got))
                fail_msg("%s: %s in pieces differs", policies[i].name, dev_isa_names()[isa]);
        }
        toy_close(&t);
    }
    free(want);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_policies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

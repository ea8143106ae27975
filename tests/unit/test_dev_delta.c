/* test_dev_delta.c - the gated delta rule against double precision; every instruction set against the reference device,
 * bit for bit; one step of many tokens against steps of few, with states that pass through pages; and a page for every
 * token, as drafts have. */
#include "share.h"
#include "state_pages.h"

#include <math.h>

struct shape {
    uint32_t heads, key_heads, keys, values;
};
static const struct shape shapes[] = {{4, 2, 8, 8},    {1, 1, 1, 1},   {6, 3, 33, 17},
                                      {3, 1, 7, 40},   {2, 2, 256, 5}, {8, 4, 64, 64},
                                      {2, 1, 128, 128}};

struct mixer {
    struct shape s;
    size_t rows; /* tokens of all lanes */
    float *q, *k, *v, *dt, *beta, *a;
};

static struct mixer mixer_new(const struct shape *s)
{
    struct mixer m = {.s = *s, .rows = (size_t)LANES * TOKENS};
    float most = 1 / sqrtf((float)s->keys); /* keys of length below 1, as in a model */
    m.q = draw(m.rows * s->key_heads * s->keys, -1, 1);
    m.k = draw(m.rows * s->key_heads * s->keys, -most, most);
    m.v = draw(m.rows * s->heads * s->values, -2, 2);
    m.dt = draw(m.rows * s->heads, 0, 0.5f);
    m.beta = draw(m.rows * s->heads, 0, 1);
    m.a = draw(s->heads, -3, -0.01f);
    return m;
}

static void mixer_free(struct mixer *m)
{
    float *all[] = {m->q, m->k, m->v, m->dt, m->beta, m->a};
    for (size_t i = 0; i < countof(all); i++)
        free(all[i]);
}

/* Runs the rule in steps of `chunk` tokens: y [lane][TOKENS][heads][values], and the last page of every lane. */
static void run(struct dev_queue *d, const struct mixer *m, uint32_t chunk, bool all, float *y,
                float *last)
{
    const struct shape *s = &m->s;
    size_t kw = (size_t)s->key_heads * s->keys, vw = (size_t)s->heads * s->values;
    size_t ld = 2 * kw + vw + 3, state = (size_t)s->heads * s->keys * s->values;
    struct step t;
    step_new(&t, state * 4, 0);
    float *x = malloc(m->rows * ld * 4), *out = malloc(m->rows * vw * 4),
          *dt = malloc(2 * m->rows * s->heads * 4);
    for (uint32_t at = 0, n; at < TOKENS; at += n) {
        n = MIN(chunk, TOKENS - at);
        step_set(&t, at, n, all);
        rows(m->q, kw, x, ld, at, n, false);
        rows(m->k, kw, x + kw, ld, at, n, false);
        rows(m->v, vw, x + 2 * kw, ld, at, n, false);
        rows(m->dt, s->heads, dt, s->heads, at, n, false);
        rows(m->beta, s->heads, dt + m->rows * s->heads, s->heads, at, n, false);
        dev_delta(d, &t.v, 0,
                  &(struct dev_delta){.q = x,
                                      .k = x + kw,
                                      .ldq = ld,
                                      .v = x + 2 * kw,
                                      .ldv = ld,
                                      .dt = dt,
                                      .beta = dt + m->rows * s->heads,
                                      .a = m->a,
                                      .scale = 0.25f,
                                      .out = out,
                                      .heads = s->heads,
                                      .key_heads = s->key_heads,
                                      .keys = s->keys,
                                      .values = s->values});
        rows(y, vw, out, vw, at, n, true);
    }
    for (uint32_t l = 0; l < LANES; l++)
        memcpy(last + l * state, t.pages + page_of(l, TOKENS) * t.v.raw.grain, state * 4);
    free(x);
    free(out);
    free(dt);
    free(t.pages);
}

/* One head of one lane by the definition, in double precision. */
static void check_head(const struct mixer *m, uint32_t lane, uint32_t head, const float *y,
                       const float *last)
{
    const struct shape *s = &m->s;
    uint32_t K = s->keys, V = s->values, key = head / (s->heads / s->key_heads);
    double *h = calloc((size_t)K * V, sizeof *h);
    for (uint32_t t = 0; t < TOKENS; t++) {
        size_t row = (size_t)lane * TOKENS + t;
        const float *q = m->q + (row * s->key_heads + key) * K,
                    *k = m->k + (row * s->key_heads + key) * K,
                    *v = m->v + (row * s->heads + head) * V, *out = y + (row * s->heads + head) * V;
        double a = exp((double)m->dt[row * s->heads + head] * m->a[head]);
        for (uint32_t c = 0; c < V; c++) {
            double known = 0, sum = 0, most = 1;
            for (uint32_t i = 0; i < K; i++)
                known += a * h[(size_t)i * V + c] * k[i];
            double u = (v[c] - known) * m->beta[row * s->heads + head];
            for (uint32_t i = 0; i < K; i++) {
                double *at = &h[(size_t)i * V + c];
                *at = *at * a + k[i] * u;
                sum += *at * q[i];
                most += fabs(*at * q[i]);
            }
            if (!(fabs(out[c] - sum / 4) <= 3e-6 * most))
                fail_msg("head %u token %u value %u is %g, not %g", head, t, c, out[c], sum / 4);
        }
    }
    for (size_t i = 0; i < (size_t)K * V; i++) {
        float got = last[((size_t)lane * s->heads + head) * K * V + i];
        if (!(fabs(got - h[i]) <= 1e-5 * (1 + fabs(h[i]))))
            fail_msg("state %zu of head %u is %g, not %g", i, head, got, h[i]);
    }
    free(h);
}

static void check_shape(struct dev_queue *ref, const struct shape *s)
{
    static const uint32_t chunks[] = {TOKENS, 1, 2, 7};
    struct mixer m = mixer_new(s);
    size_t n = m.rows * s->heads * s->values * 4,
           state = (size_t)LANES * s->heads * s->keys * s->values * 4;
    float *want = malloc(n), *got = malloc(n), *held = malloc(state), *mine = malloc(state);
    run(ref, &m, TOKENS, false, want, held);
    for (uint32_t i = 0; i < LANES * s->heads; i++)
        check_head(&m, i % LANES, i / LANES, want, held);
    for (int isa = 0; isa < DEV_ISAS; isa++)
        for (uint32_t threads = 1; threads < 4; threads += 2) {
            struct dev_queue *d;
            if (!dev_isa_supported((enum dev_isa)isa)) continue;
            bool slow = isa == DEV_REF && test_share() > 1; /* two ways, with several threads */
            if (slow && (threads == 1 || state > 100000)) continue; /* `want` has the large ones */
            assert_int_equal(
                dev_queue_open(&dev_host, &(struct dev_config){threads, dev_isa_names()[isa]}, &d),
                0);
            for (size_t k = slow ? countof(chunks) - 1 : 0; k <= countof(chunks); k++) {
                bool all = k == countof(chunks); /* a page for every token */
                run(d, &m, all ? TOKENS : chunks[k], all, got, mine);
                if (memcmp(want, got, n) != 0 || memcmp(held, mine, state) != 0)
                    fail_msg("%s, %u threads, steps %zu: %u heads of %u keys and %u values differ",
                             dev_isa_names()[isa], threads, k, s->heads, s->keys, s->values);
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

struct rule {
    struct dev_queue *d;
    struct step *t;
    struct dev_delta delta;
};

static void run_rule(void *arg)
{
    const struct rule *o = arg;
    dev_delta(o->d, &o->t->v, 0, &o->delta);
}

static void test_pages(void **state)
{
    (void)state;
    const struct shape s = {.heads = 4, .key_heads = 2, .keys = 5, .values = 3};
    struct mixer m = mixer_new(&s);
    size_t vw = (size_t)s.heads * s.values, used = vw * s.keys * 4;
    struct step t;
    float *out = malloc(m.rows * vw * 4);
    struct rule o = {.t = &t,
                     .delta = {m.q, m.k, (size_t)s.key_heads * s.keys, m.v, vw, m.dt, m.beta, m.a,
                               1, out, s.heads, s.key_heads, s.keys, s.values}};
    assert_int_equal(dev_queue_open(&dev_host, NULL, &o.d), 0);
    step_new(&t, used, 0);
    check_pages(&t, used, run_rule, &o);
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

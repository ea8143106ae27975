/* test_moe.c - the mixture of experts as a word: equal to a plain loop in double; ties and NaN in
 * the router; a token's bits are the same in every step; experts that no token chose are never read
 * (their weights are unreadable pages). */
#include "model/graph.h"
#include "model/moe.h"
#include "testing.h"

#include <math.h>
#include <sys/mman.h>

enum { HIDDEN = 48, FFN = 32, N = 6, TOP = 2, TOKENS = 40 };

static float router[N][HIDDEN], bias[N], x[TOKENS][HIDDEN];
static float *weights[N]; /* a page range each: gate, up [FFN][HIDDEN], down [HIDDEN][FFN] */
static const size_t bytes = 32768;
static struct moe_expert expert[N];

static float noise(void)
{
    static uint32_t seed = 77;
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / (1 << 23) - 1;
}

static int start(void **state)
{
    (void)state;
    for (int e = 0; e < N; e++) {
        weights[e] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (weights[e] == MAP_FAILED) return -1;
        for (size_t i = 0; i < 3 * FFN * HIDDEN; i++)
            weights[e][i] = noise() / 4;
        float *w = weights[e];
        expert[e].gate = (struct dev_weight){w, FFN, HIDDEN, DT_F32};
        expert[e].up = (struct dev_weight){w + FFN * HIDDEN, FFN, HIDDEN, DT_F32};
        expert[e].down = (struct dev_weight){w + 2 * FFN * HIDDEN, HIDDEN, FFN, DT_F32};
        bias[e] = noise();
        for (int i = 0; i < HIDDEN; i++)
            router[e][i] = noise();
    }
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < HIDDEN; i++)
            x[t][i] = noise();
    return 0;
}

static int stop(void **state)
{
    (void)state;
    for (int e = 0; e < N; e++)
        munmap(weights[e], bytes);
    return 0;
}

static struct moe layer(enum moe_route route)
{
    return (struct moe){.route = route,
                        .n = N,
                        .top = TOP,
                        .ffn = FFN,
                        .router = {router, N, HIDDEN, DT_F32},
                        .router_bias = bias,
                        .expert = expert};
}

/* Computes the mixture of n rows in one step of its own. */
static void run(const struct moe *moe, const float *in, uint32_t n, float *out)
{
    struct model m = {.hidden = HIDDEN, .dev = &dev_host};
    struct exec e = {.m = &m, .step_tokens = TOKENS, .compute = DEV_EXACT};
    struct dev_config d = {.n_threads = 2};
    struct graph *g;
    assert_int_equal(dev_queue_open(&dev_host, &d, &e.queue), 0);
    assert_int_equal(graph_open(&e, TOKENS, &g), 0);
    mod_moe(g, moe, moe_buffers_new(g, HIDDEN, N, TOP, FFN), in, out);
    assert_int_equal(g->error, 0);
    struct dev_limits lim = {
        .tokens = TOKENS, .k = g->max_k, .n = g->max_n, .heads = 1, .head_dim = 16, .max_len = 16};
    assert_int_equal(dev_reserve(e.queue, &lim), 0);
    struct pass p = {.x = &e, .queue = e.queue, .n = n};
    assert_int_equal(graph_replay(g, &p), 0);
    graph_close(g);
    dev_queue_close(e.queue);
}

static void plain(const struct moe *moe, const float *in, double *out)
{
    double score[N], sum = 0, w[N] = {0};
    bool on[N] = {false};
    for (int e = 0; e < N; e++) {
        score[e] = bias[e];
        for (int i = 0; i < HIDDEN; i++)
            score[e] += (double)router[e][i] * in[i];
    }
    for (int k = 0; k < TOP; k++) {
        int best = -1;
        for (int e = 0; e < N; e++)
            if (!on[e] && (best < 0 || score[e] > score[best])) best = e;
        on[best] = true;
    }
    for (int e = 0; e < N; e++)
        sum += on[e] || moe->route == MOE_SOFTMAX_ALL ? exp(score[e]) : 0;
    for (int e = 0; e < N; e++)
        if (on[e])
            w[e] = moe->route == MOE_SIGMOID_IN ? 1 / (1 + exp(-score[e])) : exp(score[e]) / sum;
    memset(out, 0, HIDDEN * sizeof *out);
    for (int e = 0; e < N; e++) {
        if (!on[e]) continue;
        double h[FFN], by = moe->route == MOE_SIGMOID_IN ? w[e] : 1;
        for (int f = 0; f < FFN; f++) {
            double gate = 0, up = 0;
            for (int i = 0; i < HIDDEN; i++) {
                gate += (double)weights[e][f * HIDDEN + i] * in[i] * by;
                up += (double)weights[e][(FFN + f) * HIDDEN + i] * in[i] * by;
            }
            h[f] = gate / (1 + exp(-gate)) * up;
            if (moe->clamped) {
                double g = fmin(gate, moe->limit), u = fmin(fmax(up, -moe->limit), moe->limit);
                h[f] = (u + 1) * g / (1 + exp(-moe->alpha * g));
            }
        }
        for (int i = 0; i < HIDDEN; i++) {
            double y = 0;
            for (int f = 0; f < FFN; f++)
                y += (double)weights[e][2 * FFN * HIDDEN + i * FFN + f] * h[f];
            out[i] += moe->route == MOE_SIGMOID_IN ? y : y * w[e];
        }
    }
}

static void against_plain(void **state)
{
    (void)state;
    static float got[TOKENS][HIDDEN];
    for (int k = 0; k < 5; k++) {
        struct moe moe = layer(k == 4 ? MOE_TOP_SOFTMAX : (enum moe_route)k);
        moe.clamped = k == 4;
        moe.alpha = 1.702f;
        moe.limit = 0.5f;
        run(&moe, x[0], TOKENS, got[0]);
        for (int t = 0; t < TOKENS; t++) {
            double want[HIDDEN];
            plain(&moe, x[t], want);
            for (int i = 0; i < HIDDEN; i++)
                if (!(fabs(got[t][i] - want[i]) <= 1e-5 * (1 + fabs(want[i]))))
                    fail_msg("route %d token %d: %g, should be %g", k, t, (double)got[t][i],
                             want[i]);
        }
    }
}

static void alone(void **state)
{
    (void)state;
    static float all[TOKENS][HIDDEN], part[TOKENS][HIDDEN];
    for (int k = 0; k < 4; k++) {
        struct moe moe = layer((enum moe_route)k);
        run(&moe, x[0], TOKENS, all[0]);
        for (uint32_t n = 1; n <= 7; n += 3)
            for (uint32_t t = 0; t + n <= TOKENS; t += n) {
                run(&moe, x[t], n, part[0]);
                assert_memory_equal(part, all[t], n * sizeof all[0]);
            }
    }
}

/* Of equal logits the lowest experts are chosen; the weights of the others are not even readable. */
static void ties(void **state)
{
    (void)state;
    float kept[N][HIDDEN], held[N], out[2][HIDDEN];
    memcpy(kept, router, sizeof kept);
    memcpy(held, bias, sizeof held);
    memset(router, 0, sizeof router);
    memset(bias, 0, sizeof bias);
    for (int e = TOP; e < N; e++)
        assert_int_equal(mprotect(weights[e], bytes, PROT_NONE), 0);
    for (int k = 0; k < 4; k++) {
        struct moe moe = layer((enum moe_route)k);
        run(&moe, x[0], 2, out[0]);
    }
    float nan[HIDDEN]; /* every logit is NaN: two experts are still chosen, and the output is NaN */
    for (int i = 0; i < HIDDEN; i++)
        nan[i] = NAN;
    struct moe moe = layer(MOE_TOP_SOFTMAX);
    run(&moe, nan, 1, out[0]);
    assert_true(isnan(out[0][0]));
    for (int e = TOP; e < N; e++)
        mprotect(weights[e], bytes, PROT_READ | PROT_WRITE);
    memcpy(router, kept, sizeof kept);
    memcpy(bias, held, sizeof held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_plain),
        cmocka_unit_test(alone),
        cmocka_unit_test(ties),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

/* test_matrix.c - policy x codec x tier x operation. Every cell is run and compared, bit for bit,
 * with the same tokens in a fresh sequence of a resident cache with that policy and codec.
 *
 *     build/release/test_matrix [all] [-v]     all: every form of every model with every codec and operation, tiers
 *                                              in turn; else two forms of each model (all of one with an
 *                                              encoder), and every pair of values of two axes at least once
 *
 * The models are those of tests/golden/models (test_gguf_models.c covers a .gguf next to its
 * original), the codecs are the variants of codecs.h. A new file of either is covered without being
 * listed. Prompts are long for an eighth of the policies (a quarter with `all`), elsewhere short.
 * KVIK_TEST_SHORT takes a part of the cells, the codecs in turn.
 *
 * Sequences of a model with an encoder hear an input before their tokens. Every second pair of such a model
 * has its codec for the encoder's rows as well; these rows move to disk when the tier does.
 *
 * A cell passes, or its cache is refused with a reason that is listed for the combination; anything
 * else fails. Streamed cells get the smallest memory (found by doubling) in which they finish, so
 * that pages really leave memory; the last line counts them. */
#include "codecs.h"
#include "matrix_cell.h"
#include "models.h"
#include "share.h"

/* The forms that every golden model is run in. config: members of cache_config, or "". The error
 * message of a refusal must contain `refusal`, and the model's description one of the words
 * `if_says` (or none of `unless_says`). */
struct form {
    const char *implementation, *config, *refusal;
    const char *if_says[4], *unless_says[2];
};
static const struct form forms[] = {
    {"dynamic", "", NULL, {NULL}, {NULL}},
    {"static", "", NULL, {NULL}, {NULL}},
    {"sink",
     "\"window_length\":20,\"num_sink_tokens\":3",
     "sink",
     {"\"rope\":null", "\"longrope\"", "\"type\":\"dynamic\"", "chunked_attention"},
     {NULL}},
    {"dynamic", "\"sliding_window\":17", NULL, {NULL}, {NULL}},
    {"hybrid", "", "needs a window", {""}, {"sliding_attention", "chunked_attention"}},
    {"sliding_window", "\"sliding_window\":24", NULL, {NULL}, {NULL}},
};
struct policy { /* one form of one model */
    const char *model, *implementation, *config;
    const struct form *form;
    uint32_t head_dim;
    int n_cells; /* those that ran */
};
enum { POLICIES_MOST = 512, CODECS_MOST = 1 + 5 * CODEC_KINDS };
static struct policy policies[POLICIES_MOST]; /* those of models with an encoder are the last */
/* fit[c][p]: 0: codec c does not store the heads of policy p; else the number of such policies up to p. place[c][p]: the
 * number of such codecs up to c. The totals are n_fit and n_places. */
static uint32_t fit[CODECS_MOST][POLICIES_MOST], n_fit[CODECS_MOST];
static uint32_t place[CODECS_MOST][POLICIES_MOST], n_places[POLICIES_MOST];
static const char *const tiers[] = {"resident", "offloaded", "on_full"};
enum { TIERS = sizeof tiers / sizeof *tiers };
static uint32_t n_policies, n_codecs;

enum {
    A = 1,
    B = 2,
    BEAMS = 4,
    GREEDY = 8
}; /* parts of the reference that an operation compares with */
static const struct {
    const char *name;
    operation run;
    const char *walk;
    uint32_t needs;
} operations[] = {{"forward", NULL, walk_forward, A},
                  {"generate", op_generate, NULL, GREEDY},
                  {"beam", op_beam, NULL, BEAMS},
                  {"fork", NULL, walk_fork, A | B},
                  {"crop", NULL, walk_crop, A | B},
                  {"reorder", NULL, walk_reorder, A | B},
                  {"walk", NULL, "", A | B},
                  {"batch", op_batch, NULL, A},
                  {"sync", op_sync, NULL, A | B},
                  {"save", op_save, NULL, A | B},
                  {"speculative", op_speculative, NULL, GREEDY},
                  {"prefix", op_prefix, NULL, GREEDY},
                  {"export", op_export, NULL, A}};
enum { OPS = sizeof operations / sizeof *operations };

static int n_cells, n_pass, n_refused, n_failed, n_streamed, verbose;

/* Adds a member to the text of an object. */
static void offloading(char *out, size_t n, const char *config)
{
    snprintf(out, n, "%.*s%s\"offloading\":true}", (int)strlen(config) - 1, config,
             config[1] == '}' ? "" : ",");
}

static int open_cache(struct cell *c, const struct policy *p, const char *config, const char *tier,
                      uint64_t memory)
{
    char merged[400], cross[400];
    bool offload = strcmp(tier, "offloaded") == 0, on_full = strcmp(tier, "on_full") == 0;
    offloading(merged, sizeof merged, config);
    offloading(cross, sizeof cross, c->cross ? c->cross : "{}");
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = p->implementation,
                           .cache_config = offload ? merged : config,
                           .max_cache_len = c->most,
                           .cross_cache_config = !c->input->hears ? NULL
                                                 : offload        ? cross
                                                                  : c->cross,
                           .max_encoder_len =
                               c->input->hears && !c->input->encoder.bins ? HEARD_IDS : 0,
                           .cache_memory = memory,
                           .max_sequences = 6,
                           .step_tokens = 64,
                           .threads = 1,
                           .compute = "exact",
                           .spill_dir = offload || on_full ? "." : NULL,
                           .on_full = on_full ? "offload" : NULL};
    return kvik_cache_open(c->model, &k, &c->cache);
}

static int operate(struct cell *c, int op)
{
    if (operations[op].run) return operations[op].run(c);
    return cell_walk(operations[op].walk, c->seed, c, step_cell);
}

static bool full(int e)
{
    return e == KVIK_FULL || e == KVIK_LIMIT;
}

/* Runs one operation on a streamed cache with the smallest memory in which it finishes. */
static int squeeze(struct cell *c, const struct policy *p, const char *config, const char *tier,
                   int op, bool *streamed)
{
    int e = KVIK_FULL;
    for (uint64_t memory = c->peak / 3; full(e) && memory <= 1u << 26; memory += memory / 2) {
        e = open_cache(c, p, config, tier, memory);
        if (e < 0) continue;
        e = operate(c, op);
        kvik_usage u = {.size = sizeof u};
        kvik_cache_usage(c->cache, &u);
        *streamed = u.tier_written > 0;
        if (u.peak_bytes > memory) {
            printf("     peak %llu of %llu\n", (unsigned long long)u.peak_bytes,
                   (unsigned long long)memory);
            e = 1;
        }
        kvik_cache_close(c->cache);
    }
    return e;
}

static void cell_line(const char *what, const struct policy *p, const struct codec_variant *k,
                      const char *tier, const char *op, const char *why)
{
    printf("%s %s %s {%s} / %s / %s / %s: %s\n", what, p->model, p->implementation, p->config,
           k->name, tier, op, why);
}

/* Computes the reference of a (policy, codec): each part in a fresh sequence of a resident cache. */
static int reference(struct cell *c, const struct policy *p, const char *config, uint32_t needs,
                     float *a, float *b, int32_t *beams, int32_t *greedy)
{
    kvik_seq s;
    int e = open_cache(c, p, config, "resident", 0);
    if (e < 0) return e;
    if ((needs & A) && (e = begin(c, &s)) >= 0) {
        e = go_on(c, s, part_a(c), c->n.a, NULL, a);
        if (e >= 0) e = kvik_cache_drop(c->cache, s);
    }
    if (e >= 0 && (needs & B) && (e = begin(c, &s)) >= 0) {
        e = go_on(c, s, part_b(c), c->n.b, NULL, b);
        if (e >= 0) e = kvik_cache_drop(c->cache, s);
    }
    if (e >= 0 && (needs & BEAMS)) e = generate(c, beam_options, NULL, beams);
    if (e >= 0 && (needs & GREEDY)) e = generate(c, greedy_options, NULL, greedy);
    kvik_usage u = {.size = sizeof u};
    kvik_cache_usage(c->cache, &u);
    c->peak = u.peak_bytes;
    kvik_cache_close(c->cache);
    return e;
}

static void run_cell(struct cell *c, const struct policy *p, const struct codec_variant *k,
                     const char *config, const char *tier, int op)
{
    bool streamed = false;
    int e;
    n_cells++;
    if (strcmp(tier, "resident") == 0) {
        e = open_cache(c, p, config, tier, 0);
        if (e >= 0) {
            e = operate(c, op);
            kvik_cache_close(c->cache);
        }
    } else {
        e = squeeze(c, p, config, tier, op, &streamed);
    }
    n_streamed += streamed;
    if (e == 0) {
        n_pass++;
        if (verbose)
            cell_line("pass", p, k, tier, operations[op].name, streamed ? "streamed" : "-");
    } else {
        n_failed++;
        cell_line("FAIL", p, k, tier, operations[op].name,
                  e < 0 ? kvik_last_error() : "other logits or tokens");
    }
}

/* Chooses the cells of the quick run: each policy once with each operation and each codec that fits, codecs
 * and tiers in turn, so that every pair of values of two axes occurs; check_axes looks. A codec that fits some
 * models only also meets each operation on one of these. */
static bool paired(uint32_t policy, uint32_t codec, uint32_t tier, uint32_t op)
{
    uint32_t rank = fit[codec][policy], codecs = n_places[policy];
    if (!rank) return false;
    for (uint32_t i = op; i < (codecs > OPS ? codecs : OPS); i += OPS)
        if (place[codec][policy] - 1 == (policy + i) % codecs && tier == (policy / 4 + i) % TIERS)
            return true;
    return n_fit[codec] < n_policies && op % n_fit[codec] == rank - 1 && tier == op % TIERS;
}

static bool chosen(bool all, uint32_t policy, uint32_t codec, uint32_t tier, uint32_t op)
{
    if ((policy + codec) % test_share() || !fit[codec][policy]) return false;
    return all ? tier == (policy + codec + op) % TIERS : paired(policy, codec, tier, op);
}

static bool refusal_expected(const struct cell *c, const struct policy *p, int e)
{
    const struct form *f = p->form;
    if ((e != KVIK_UNSUPPORTED && e != KVIK_ARG) || !f->refusal) return false;
    if (!strstr(kvik_last_error(), f->refusal)) return false;
    bool may = false;
    for (int i = 0; i < 4 && f->if_says[i]; i++)
        may |= strstr(c->says, f->if_says[i]) != NULL;
    for (int i = 0; i < 2 && f->unless_says[i]; i++)
        may &= strstr(c->says, f->unless_says[i]) == NULL;
    return may;
}

static void run_pair(struct cell *c, uint32_t policy, uint32_t codec, bool all)
{
    struct policy *p = &policies[policy];
    struct codec_variant v;
    const struct codec_variant *k = &v;
    char config[900], cross[900];
    size_t n = (size_t)(1 + DECODE) * c->vocab;
    float *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b);
    int32_t beams[64], greedy[64];
    uint32_t cells = 0, needs = 0;
    for (uint32_t t = 0; t < TIERS; t++)
        for (uint32_t op = 0; op < OPS; op++)
            if (chosen(all, policy, codec, t, op)) cells++, needs |= operations[op].needs;
    c->got = malloc(n * sizeof *a);
    if (!codec_variant(codec, p->head_dim, &v)) abort(); /* fit says that it can be made */
    p->n_cells += (int)cells;
    snprintf(config, sizeof config, "{%s%s%s}", p->config, *p->config && *v.config ? "," : "",
             v.config);
    c->rows = 0;
    c->seed = 1 + policy + POLICIES_MOST * codec;
    c->native = v.native;
    snprintf(cross, sizeof cross, "{%s}", v.config);
    c->cross = (policy + codec) % 2 ? cross : NULL;
    int e = reference(c, p, config, needs, a, b, beams, greedy);
    c->want_a = a;
    c->want_b = b;
    c->beams = beams;
    c->greedy = greedy;
    if (e < 0) {
        const char *why = kvik_last_error();
        bool expected = refusal_expected(c, p, e);
        cell_line(expected ? "refused" : "FAIL", p, k, "all", "all", why);
        n_cells += (int)cells;
        *(expected ? &n_refused : &n_failed) += (int)cells;
    } else {
        for (uint32_t t = 0; t < TIERS; t++)
            for (uint32_t op = 0; op < OPS; op++)
                if (chosen(all, policy, codec, t, op)) run_cell(c, p, k, config, tiers[t], op);
    }
    free(a);
    free(b);
    free(c->got);
}

static uint32_t head_dim_of(const char *says)
{
    const char *at = strstr(says, "\"head_dim\":");
    uint32_t dim = at ? (uint32_t)strtoul(at + 11, NULL, 10) : 0;
    return dim ? dim : 16; /* a model without attention has none, and nothing to quantize */
}

/* Reads the size of a model's heads. */
static uint32_t head_dim_in(const char *model)
{
    char path[300], *says = NULL;
    kvik_model *m = NULL;
    snprintf(path, sizeof path, GOLDEN_MODELS "/%s", model);
    if (kvik_model_open(path, &m) < 0 || kvik_model_describe(m, &says) < 0)
        test_stop("%s: %s", path, kvik_last_error());
    uint32_t dim = head_dim_of(says);
    kvik_free(says);
    kvik_model_close(m);
    return dim;
}

/* Lists which codec stores the heads of which policy. */
static void list_fits(void)
{
    struct codec_variant v;
    n_codecs = codec_variants();
    for (uint32_t c = 0; c < n_codecs; c++) {
        for (uint32_t p = 0; p < n_policies; p++)
            if (codec_variant(c, policies[p].head_dim, &v)) {
                fit[c][p] = ++n_fit[c];
                place[c][p] = ++n_places[p];
            }
        if (n_fit[c]) continue;
        printf("FAIL no golden model has heads that %s can store\n", v.name);
        n_failed++;
    }
}

/* Lists all forms of every golden model, or of those without an encoder two: the model's own form, and one of the
 * others in turn. */
static void list_policies(bool all)
{
    static const char *name[GOLDEN_MOST];
    uint32_t n = golden_models(name), count = sizeof forms / sizeof *forms, m = 0;
    uint32_t deaf = n;
    n += golden_list(name + n, true);
    for (uint32_t i = 0; i < n; i++) {
        size_t len = strlen(name[i]);
        if (len > 5 && strcmp(name[i] + len - 5, ".gguf") == 0) continue;
        uint32_t dim = head_dim_in(name[i]);
        for (uint32_t f = 0; f < count; f++) {
            if (!all && i < deaf && f != 0 && f != 1 + m % (count - 1)) continue;
            if (n_policies == POLICIES_MOST) test_stop("more than %d policies", POLICIES_MOST);
            policies[n_policies++] = (struct policy){.model = name[i],
                                                     .implementation = forms[f].implementation,
                                                     .config = forms[f].config,
                                                     .form = &forms[f],
                                                     .head_dim = dim};
        }
        m++;
    }
}

/* Counts the cells that the axes demand, in one loop over all products, and checks that they ran, that every policy
 * and every architecture did, and that every pair of values of two axes that fit has a cell of the quick run. */
static void check_axes(bool all)
{
    const uint32_t size[4] = {n_policies, n_codecs, TIERS, OPS};
    static bool met[4][4][POLICIES_MOST][POLICIES_MOST];
    int missed = 0, demanded = 0;
    for (uint32_t i = 0; i < n_policies * n_codecs * TIERS * OPS; i++) {
        uint32_t v[4] = {i % n_policies, i / n_policies % n_codecs,
                         i / n_policies / n_codecs % TIERS, i / n_policies / n_codecs / TIERS};
        demanded += chosen(all, v[0], v[1], v[2], v[3]);
        for (uint32_t a = 0; a < 4 && paired(v[0], v[1], v[2], v[3]); a++)
            for (uint32_t b = 0; b < a; b++)
                met[a][b][v[a]][v[b]] = true;
    }
    for (uint32_t a = 0; a < 4; a++)
        for (uint32_t b = 0; b < a; b++)
            for (uint32_t i = 0; i < size[a] * size[b]; i++)
                missed += !met[a][b][i / size[b]][i % size[b]] &&
                          !(a == 1 && b == 0 && !fit[i / size[b]][i % size[b]]);
    if (missed) printf("FAIL %d pairs of two axes have no cell\n", missed);
    if (n_cells != demanded) printf("FAIL %d cells ran, of %d\n", n_cells, demanded);
    n_failed += missed + (n_cells != demanded);
    for (uint32_t p = 0; p < n_policies && test_share() == 1; p++)
        if (!policies[p].n_cells) n_failed++, printf("FAIL no cell of %s\n", policies[p].model);
    const char *arch = golden_missed();
    if (arch) n_failed++, printf("FAIL no golden model of architecture %s ran\n", arch);
}

/* Prints the numbers of the axes and of the products that do not fit. */
static void print_axes(void)
{
    uint32_t misfits = 0;
    for (uint32_t c = 0; c < n_codecs; c++)
        misfits += n_policies - n_fit[c];
    printf("%u policies, %u codecs, %u pairs of them do not fit, %d tiers, %d operations\n",
           n_policies, n_codecs, misfits, (int)TIERS, (int)OPS);
}

int main(int argc, char **argv)
{
    static struct hearing input[2];
    bool all = getenv("KVIK_TEST_LONG") != NULL;
    for (int i = 1; i < argc; i++) {
        all |= strcmp(argv[i], "all") == 0;
        verbose |= strcmp(argv[i], "-v") == 0;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    list_policies(all);
    list_fits();
    for (uint32_t i = 0; i < n_policies; i++) {
        const struct policy *p = &policies[i];
        struct cell c = {0};
        char path[300];
        snprintf(path, sizeof path, "tests/golden/models/%s", p->model);
        if (kvik_model_open(path, &c.model) < 0) {
            printf("FAIL %s: %s\n", p->model, kvik_last_error());
            n_failed++;
            continue;
        }
        c.vocab = kvik_model_vocab(c.model);
        /* Prompts of full length everywhere would take minutes in the gate, and an hour with all cells. */
        bool brief = kvik_model_context(c.model) < 256 || getenv("KVIK_TEST_SHORT") ||
                     (all ? p->form != forms && i % 4 : i % 8);
        c.n = kvik_model_context(c.model) < 128 ? shortest : brief ? shorter : longer;
        c.most = c.n.prompt + c.n.a + c.n.b + DECODE + 16;
        for (uint32_t j = 0, x = 7; j < MOST; j++) {
            x = x * 1664525u + 1013904223u;
            c.ids[j] = (int32_t)(4 + (x >> 8) % (c.vocab - 4));
        }
        c.input = input;
        hearing_open(&input[0], c.model);
        hearing_open(&input[1], c.model);
        for (uint32_t j = 0; j < HEARD_FEATURES; j++) /* the second input is another */
            input[1].features[j] = -input[0].features[j];
        for (uint32_t j = 0; j < HEARD_IDS; j++)
            input[1].ids[j] = input[0].ids[HEARD_IDS - 1 - j];
        char *says = NULL;
        if (kvik_model_describe(c.model, &says) < 0) return 1;
        c.says = says;
        c.turns = strstr(says, "\"type\":\"dynamic\"") != NULL;
        for (uint32_t k = 0; k < n_codecs; k++)
            if ((i + k) % test_share() == 0 && fit[k][i]) run_pair(&c, i, k, all);
        golden_ran(c.model);
        kvik_free(says);
        kvik_model_close(c.model);
    }
    check_axes(all);
    print_axes();
    printf("%d of them streamed, %d found a prefix\n", n_streamed, n_found);
    printf("cells %d pass %d refused %d skip 0\n", n_cells, n_pass, n_refused);
    printf("%d passed, %d failed, 0 skipped\n", n_pass + n_refused, n_failed);
    return n_failed || !n_pass || (test_share() == 1 && (!n_found || !n_streamed));
}

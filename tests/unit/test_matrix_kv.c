/* test_matrix_kv.c - policy x codec x tier x operation over the store alone, with groups that no
 * architecture has yet: recurrent states and the frozen rows of a cross-attention, alone and beside
 * every kind of rows.
 *
 *     build/release/test_matrix_kv [all] [-v]     all: every cell; else every cell without a codec, and of every
 *                                                 codec with one policy in three one cell in five, in turn
 *
 * A toy stands for the model (kv_toy.h). A cell passes if the answers of a sequence that was forked, cropped, reordered,
 * drafted on, ... or that took a walk drawn for the cell, equal those of a fresh sequence in a resident store. */
#include "kv_toy.h"
#include "share.h"

static const struct policy policies[] = {
    {"full", {{KV_ROWS, 0, 0, 0, 0, 0}}, 1},
    {"window", {{KV_ROWS, 24, 0, 0, 0, 0}}, 1},
    {"chunk", {{KV_ROWS, 0, 32, 0, 0, 0}}, 1},
    {"sink", {{KV_ROWS, 20, 0, 3, 0, 0}}, 1},
    {"state", {{KV_STATE, 0, 0, 0, 0, 32}}, 1},
    {"state without snapshots", {{KV_STATE, 0, 0, 0, 0, 0}}, 1},
    {"full + state", {{KV_ROWS, 0, 0, 0, 0, 0}, {KV_STATE, 0, 0, 0, 0, 64}}, 2},
    {"window + state", {{KV_ROWS, 48, 0, 0, 0, 64}, {KV_STATE, 0, 0, 0, 0, 64}}, 2},
    {"full + window", {{KV_ROWS, 0, 0, 0, 0, 0}, {KV_ROWS, 24, 0, 0, 0, 32}}, 2},
    {"full + frozen", {{KV_ROWS, 0, 0, 0, 0, 0}, {KV_FROZEN, 0, 0, 0, 0, 0}}, 2},
    {"sink + frozen", {{KV_ROWS, 20, 0, 3, 0, 0}, {KV_FROZEN, 0, 0, 0, 0, 0}}, 2},
    {"state + frozen", {{KV_STATE, 0, 0, 0, 0, 32}, {KV_FROZEN, 0, 0, 0, 0, 0}}, 2},
};
static const struct {
    const char *name;
    enum kv_streaming streaming;
    /* Rows are encoded once the prompt is there; then all is as if they had been from the first on. */
    bool later;
} tiers[] = {{"resident", KV_RESIDENT, false},
             {"encoded", KV_RESIDENT, true},
             {"streamed", KV_STREAM, false},
             {"on_full", KV_STREAM_ON_FULL, false}};

static int n_found; /* the number of prefix hits */
/* Draft tokens: of six tokens some are rejected, twice, and the right ones follow one by one. */
static int op_draft(struct toy *t)
{
    kv_seq s;
    uint64_t answer;
    int32_t draft[6];
    const int32_t *part = t->ids + PROMPT;
    DO(begin(t, &s));
    DO(feed(t, s, part, PART - DECODE, &answer));
    if (answer != t->want_a[0]) return 1;
    for (uint32_t i = 0; i < DECODE;) {
        uint32_t right = MIN(i % 4, DECODE - i - 1) + 1; /* the number of accepted tokens */
        for (uint32_t k = 0; k < 6; k++)
            draft[k] = k < right ? part[PART - DECODE + i + k] : 999 + (int32_t)k;
        DO(step(t, s, draft, 6, (struct kv_span){.undo = 5}, right, NULL));
        i += right;
        DO(step(t, s, draft, 2, (struct kv_span){.undo = 2}, 0, NULL)); /* all are rejected */
    }
    if (kv_len(t->kv, s) != PROMPT + PART) return 1;
    DO(crop(t, s, PROMPT));
    DO(go_a(t, s));
    return kv_drop(t->kv, s);
}

/* --- A saved sequence outside of the store. */
static struct saved {
    struct kv_image image;
    int32_t tok[MOST];
    struct kv_turn turn[MOST];
    uint32_t unseen[2 * 2], n_keeps[2], keep[2 * KV_KEEPS], n, n_groups;
    struct kv_chunk chunk[512];
    size_t at[512 + 1];
    unsigned char data[1 << 23];
} saved;

static int take_image(struct kv_sink *k, const struct kv_image *im)
{
    struct saved *s = &saved;
    (void)k;
    s->image = *im;
    s->image.tok = memcpy(s->tok, im->tok, im->len * sizeof *im->tok);
    s->image.turn = memcpy(s->turn, im->turn, im->n_turns * sizeof *im->turn);
    s->image.unseen = memcpy(s->unseen, im->unseen, 2 * s->n_groups * sizeof *im->unseen);
    s->image.n_keeps = memcpy(s->n_keeps, im->n_keeps, s->n_groups * sizeof *im->n_keeps);
    uint32_t n = im->n_keeps[0] + (s->n_groups > 1 ? im->n_keeps[1] : 0);
    s->image.keep = memcpy(s->keep, im->keep, n * sizeof *im->keep);
    return 0;
}

static int take_chunk(struct kv_sink *k, const struct kv_chunk *c, const void *data, size_t bytes)
{
    struct saved *s = &saved;
    (void)k;
    if (s->n == countof(s->chunk) || bytes > sizeof s->data - s->at[s->n])
        return ERR(LIMIT, "more chunks than the test has room for");
    s->chunk[s->n] = *c;
    memcpy(s->data + s->at[s->n], data, bytes);
    s->n++;
    s->at[s->n] = s->at[s->n - 1] + bytes;
    return 0;
}

static int give_chunk(struct kv_source *k, const struct kv_chunk *c, void *data, size_t bytes)
{
    const struct saved *s = &saved;
    (void)k;
    for (uint32_t i = 0; i < s->n; i++)
        if (!memcmp(&s->chunk[i], c, sizeof *c) && s->at[i + 1] - s->at[i] == bytes) {
            memcpy(data, s->data + s->at[i], bytes);
            return 0;
        }
    return ERR(NOTFOUND, "chunk %u/%u rows %u+%u was not saved", c->group, c->form, c->row, c->n);
}

/* Saves a sequence, drops it and loads it twice: both continue like the saved one. */
static int op_save(struct toy *t)
{
    kv_seq s, a, b;
    struct kv_sink sink = {.image = take_image, .chunk = take_chunk};
    struct kv_source source = {give_chunk, NULL};
    saved.n = 0;
    saved.n_groups = t->n_groups;
    DO(begin(t, &s));
    DO(kv_save(t->kv, s, &sink));
    DO(go_b(t, s));
    DO(kv_drop(t->kv, s));
    DO(kv_load(t->kv, &saved.image, &source, &a));
    DO(go_a(t, a));
    DO(kv_load(t->kv, &saved.image, &source, &b));
    DO(kv_drop(t->kv, a));
    DO(go_b(t, b));
    return kv_drop(t->kv, b);
}

/* Keeps a sequence when it is dropped: a query with the same beginning finds it, whole and in part;
 * another beginning finds nothing. */
static int op_match(struct toy *t)
{
    kv_seq s, m;
    uint32_t have;
    struct kv_prefix all = {.tok = t->ids, .n = PROMPT}, none = {.tok = t->ids + 1, .n = 99};
    DO(begin(t, &s));
    DO(go_b(t, s));
    DO(kv_keep(t->kv, s));
    for (int i = 0; i < 2; i++) {
        DO(kv_new(t->kv, NULL, &m));
        DO(kv_match(t->kv, m, &all, &have));
        n_found += have > 0;
        if (have > PROMPT || kv_len(t->kv, m) != have) return 1;
        if (t->frozen && have) return 1; /* the ids do not tell what an encoder wrote */
        if (t->frozen) DO(step(t, m, NULL, CROSS, (struct kv_span){.cross = true}, 0, NULL));
        if (have < PROMPT) DO(feed(t, m, t->ids + have, PROMPT - have, NULL));
        DO(i ? go_b(t, m) : go_a(t, m));
        DO(i ? kv_drop(t->kv, m) : kv_keep(t->kv, m));
    }
    DO(kv_new(t->kv, NULL, &m));
    DO(kv_match(t->kv, m, &none, &have));
    if (have || kv_match_reason(t->kv) == KV_HIT) return 1;
    kv_forget(t->kv);
    return kv_drop(t->kv, m);
}

/* A step of the walks that the models' caches take, too. */
static int step_cell(void *ctx, enum cell_step op, uint32_t x, uint32_t n)
{
    struct toy *t = ctx;
    kv_seq *s = &t->seq[op == FORK ? x / 10 : op == REORDER ? 0 : x];
    uint32_t from[CELL_SEQS];
    switch (op) {
    case BEGIN:
        return begin(t, s);
    case FORK:
        return kv_fork(t->kv, t->seq[x % 10], s);
    case GO_A:
        return go_a(t, *s);
    case GO_B:
        return go_b(t, *s);
    case FEED:
        return feed(t, *s, t->ids, 9, NULL);
    case CROP:
        return crop(t, *s, PROMPT);
    case CUT:
        DO(crop(t, *s, PROMPT - 100));
        return feed(t, *s, t->ids + PROMPT - 100, 100, NULL);
    case RESET:
        DO(crop(t, *s, 0));
        return feed(t, *s, t->ids, PROMPT, NULL);
    case REORDER:
        cell_order(x, n, from);
        return kv_reorder(t->kv, s, from, n);
    default:
        return kv_drop(t->kv, *s);
    }
}

static const struct {
    const char *name;
    int (*run)(struct toy *t);
    const char *walk;
} operations[] = {
    {"forward", NULL, walk_forward}, {"fork", NULL, walk_fork}, {"crop", NULL, walk_crop},
    {"reorder", NULL, walk_reorder}, {"walk", NULL, ""},        {"draft", op_draft, NULL},
    {"save", op_save, NULL},         {"match", op_match, NULL}};

static int n_cells, n_pass, n_failed, n_streamed, verbose;
static bool brief, all;

/* Runs the operation in the smallest pool, found by doubling, in which it finishes. */
static int run_cell(struct toy *t, const struct policy *p, const struct codec_variant *codec,
                    uint32_t tier, uint32_t op, uint32_t seed, bool *streamed)
{
    int e = ERR_FULL;
    size_t pool = tiers[tier].streaming == KV_RESIDENT ? (size_t)1 << 28 : 1u << 14;
    for (; (e == ERR_FULL || e == ERR_LIMIT) && pool <= (size_t)1 << 28; pool += pool / 2) {
        struct kv_usage u = {0};
        t->later = tiers[tier].later;
        e = store_open(t, p, codec, tiers[tier].streaming, pool);
        if (e < 0) continue;
        e = operations[op].run ? operations[op].run(t)
                               : cell_walk(operations[op].walk, seed, t, step_cell);
        kv_usage(t->kv, &u);
        *streamed = u.tier_written > 0;
        store_close(t, e);
    }
    return e;
}

static int reference(struct toy *t, const struct policy *p, const struct codec_variant *codec)
{
    kv_seq s;
    t->later = false;
    int e = store_open(t, p, codec, KV_RESIDENT, (size_t)1 << 28);
    if (e < 0) return e;
    if ((e = begin(t, &s)) >= 0) e = go_on(t, s, t->ids + PROMPT, NULL, t->want_a);
    if (e >= 0) e = kv_drop(t->kv, s);
    if (e >= 0 && (e = begin(t, &s)) >= 0) e = go_on(t, s, t->ids + PROMPT - 31, NULL, t->want_b);
    store_close(t, e);
    return e;
}

static bool has_rows(const struct policy *p)
{
    return p->group[0].kind != KV_STATE || p->n > 1;
}

/* True if a policy meets a codec: one in three in turn. A brief run only looks for memory errors. */
static bool paired(uint32_t p, uint32_t c)
{
    if (c && !has_rows(&policies[p])) return false; /* a state has no codec */
    return all || !c || (p + c) % (brief ? 2 * test_share() : 3) == 0;
}

/* True if a codec can come later: all rows are kept, sealed by position, in tiles of whole strips. */
static bool comes_later(uint32_t p, uint32_t c)
{
    struct codec_variant v;
    struct kv_codec *k, *w;
    struct kv_seal seal = {0};
    if (!c ||
        (strcmp(policies[p].name, "full") != 0 && strcmp(policies[p].name, "full + state") != 0))
        return false;
    uint32_t dim = codec_dim(c, 0, &v);
    const struct kv_shape s[] = {{HEADS, dim, DT_F32, KV_STRIPS},
                                 {HEADS, dim, DT_F32, KV_ROWMAJOR}};
    if (kv_codec_pair_open(&v.pair, &s[0], &s[1], &k, &w, &seal) < 0) return false;
    kv_codec_close(k);
    kv_codec_close(w);
    return !seal.resid && seal.tile % KV_STRIP == 0;
}

/* True if a cell runs: each if `all`; else each without a codec, and of every other pair one in five in turn. */
static bool chosen(uint32_t p, uint32_t c, uint32_t k, uint32_t op)
{
    if (!paired(p, c) || k >= countof(tiers) - brief) return false;
    if (tiers[k].later && !comes_later(p, c)) return false;
    if (all || (c == 0 && !brief)) return true;
    return (p + 2 * c + 3 * k + op) % 5 == 0;
}

/* Counts the cells that the axes demand, in one loop over all products, and checks that they ran. */
static void count_demanded(void)
{
    static int of_codec[1 + 5 * CODEC_KINDS], of_policy[countof(policies)];
    uint32_t variants = codec_variants();
    const uint32_t P = countof(policies), T = countof(tiers), O = countof(operations);
    int demanded = 0;
    for (uint32_t i = 0; i < P * variants * T * O; i++) {
        uint32_t p = i % P, c = i / P % variants;
        if (!chosen(p, c, i / P / variants % T, i / P / variants / T)) continue;
        demanded++;
        of_policy[p]++;
        of_codec[c]++;
    }
    if (n_cells != demanded) {
        printf("FAIL %d cells ran, of %d\n", n_cells, demanded);
        n_failed++;
    }
    for (uint32_t p = 0; p < P && !brief; p++)
        if (!of_policy[p]) n_failed++, printf("FAIL no cell of %s\n", policies[p].name);
    for (uint32_t c = 0; c < variants && !brief; c++)
        if (!of_codec[c]) n_failed++, printf("FAIL no cell of variant %u of the codecs\n", c);
}

/* Runs the cells of one policy with one codec. */
static void run_pair(struct toy *t, uint32_t p, uint32_t c)
{
    struct codec_variant codec;
    t->dim = codec_dim(c, 0, &codec);
    if (!paired(p, c)) return;
    if (reference(t, &policies[p], &codec) < 0) {
        printf("FAIL %s / %s: %s\n", policies[p].name, codec.name, err_last());
        n_failed++;
        return;
    }
    for (uint32_t k = 0; k < countof(tiers); k++)
        for (uint32_t op = 0; op < countof(operations); op++) {
            bool streamed = false;
            if (!chosen(p, c, k, op)) continue;
            int e = run_cell(t, &policies[p], &codec, k, op,
                             1 + p + countof(policies) * (c + 1000 * k), &streamed);
            n_cells++;
            n_streamed += streamed;
            *(e ? &n_failed : &n_pass) += 1;
            if (e || verbose)
                printf("%s %s / %s / %s / %s%s%s\n", e ? "FAIL" : "pass", policies[p].name,
                       codec.name, tiers[k].name, operations[op].name, streamed ? " streamed" : "",
                       e < 0   ? err_last()
                       : e > 0 ? ": other answers"
                               : "");
        }
}

int main(int argc, char **argv)
{
    struct toy t = {0};
    brief = getenv("KVIK_TEST_SHORT");
    all = getenv("KVIK_TEST_LONG") != NULL;
    for (int i = 1; i < argc; i++) {
        all |= !strcmp(argv[i], "all");
        verbose |= !strcmp(argv[i], "-v");
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    t.rows = calloc((size_t)CHUNK * HEADS * CODEC_DIM_MOST, sizeof *t.rows);
    t.scratch = calloc(1, 1 << 20);
    if (!t.rows || !t.scratch ||
        dev_queue_open(&dev_host, &(struct dev_config){1, NULL}, &t.dev) < 0)
        return 1;
    for (uint32_t i = 0, x = 3; i < MOST; i++)
        t.ids[i] = (int32_t)((x = x * 1664525u + 1013904223u) >> 12 & 0x3ff);
    uint32_t variants = codec_variants();
    for (uint32_t p = 0; p < countof(policies); p++)
        for (uint32_t c = 0; c < variants; c++)
            run_pair(&t, p, c);
    count_demanded();
    dev_queue_close(t.dev);
    free(t.rows);
    free(t.scratch);
    printf("%d of them streamed, %d found a prefix\n", n_streamed, n_found);
    printf("synthetic groups: cells %d pass %d refused 0 skip 0\n", n_cells, n_pass);
    printf("%d passed, %d failed, 0 skipped\n", n_pass, n_failed);
    bool small =
        test_share() > 4; /* the sample for TSan need not hold a cell that finds a prefix */
    return n_failed || !n_pass || !n_streamed || (!n_found && !small);
}

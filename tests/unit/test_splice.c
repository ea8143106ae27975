/* test_splice.c - chunks that are read at another position (kvik_cache_splice), against an oracle that knows nothing of it:
 * the rows of the chunk are exported where they were computed, their keys are rotated here, in double, and imported behind
 * the new text, as rows of its own.  Then: with all tokens computed again the bits are those of computing; the same text
 * has the same bits over threads, blocks, steps, forks and crops; and after any operations the store's invariants hold. */
#include "generate/handle.h"
#include "kvik_compat.h"
#include "planes.h"
#include "testing.h"

#include <math.h>

#define LLAMA "tests/golden/models/llama-gqa-l3"
#define WIDE  "tests/golden/models/llama-d64"
#define YARN  "tests/golden/models/llama-yarn"
enum { PREFIX = 40, BEFORE = 61, CHUNK = 170, AFTER = 20, AGAIN = 8, TAIL = 21, STEPS = 3 };
enum { VOCAB = 384, TEXT = PREFIX + CHUNK + TAIL };

/* so that no tile fills up behind the chunk, whose rows the oracle has raw */
enum { SHORT = 12 };

static int32_t before[BEFORE], chunk[CHUNK], after[AFTER], text[TEXT + STEPS];

static void draw(void)
{
    draw_ids(before, BEFORE, VOCAB, 1);
    draw_ids(chunk, CHUNK, VOCAB, 2);
    draw_ids(after, AFTER, VOCAB, 3);
    draw_ids(text, TEXT + STEPS, VOCAB, 4);
    memcpy(text + PREFIX, chunk, sizeof chunk);
}

struct way {
    const char *codec; /* members of cache_config after moved_chunks */
    const char *isa;
    uint32_t threads, step, memory;
};

static kvik_cache *open_way(kvik_model *m, const struct way *w)
{
    char config[300];
    kvik_cache *c;
    snprintf(config, sizeof config, "{\"moved_chunks\": 16%s%s}", w->codec ? ", " : "",
             w->codec ? w->codec : "");
    kvik_cache_config k = {.size = sizeof k,
                           .cache_config = config,
                           .max_sequences = 8,
                           .max_cache_len = 400,
                           .isa = w->isa,
                           .threads = w->threads ? w->threads : 1,
                           .step_tokens = w->step,
                           .cache_memory = w->memory};
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s: %s", config, kvik_last_error());
    return c;
}

static kvik_seq new_seq(kvik_cache *c)
{
    kvik_seq s;
    assert_int_equal(kvik_cache_new(c, &s), 0);
    return s;
}

static void feed(kvik_cache *c, kvik_seq s, const int32_t *ids, uint32_t n, float *logits)
{
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = n};
    if (kvik_forward(c, &span, 1, false, logits) < 0) fail_msg("%s", kvik_last_error());
}

static void steps(kvik_cache *c, kvik_seq s, float *logits)
{
    for (uint32_t i = 0; i < STEPS; i++)
        feed(c, s, text + TEXT + i, 1, logits + (size_t)i * VOCAB);
}

static void whole(kvik_cache *c)
{
    if (!kv_check(c->x->kv)) fail_msg("%s", kvik_last_error());
}

/* Another text that has the chunk. */
static kvik_seq donor(kvik_cache *c)
{
    int32_t all[BEFORE + CHUNK + AFTER];
    kvik_seq s = new_seq(c);
    memcpy(all, before, sizeof before);
    memcpy(all + BEFORE, chunk, sizeof chunk);
    memcpy(all + BEFORE + CHUNK, after, sizeof after);
    feed(c, s, all, BEFORE + CHUNK + AFTER, NULL);
    return s;
}

static kvik_splice splice_to(kvik_cache *c, kvik_seq s, uint64_t again, double fraction,
                             uint32_t tail)
{
    const kvik_chunk list[] = {{sizeof *list, text, PREFIX, 0},
                               {sizeof *list, chunk, CHUNK, 0},
                               {sizeof *list, text + PREFIX + CHUNK, tail, 0}};
    const uint32_t n = PREFIX + CHUNK + tail;
    kvik_splice how = {.size = sizeof how, .recompute = again, .fraction = fraction};
    if (kvik_cache_splice(c, s, list, countof(list), &how) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(how.reused + how.moved + how.computed, n);
    assert_int_equal(kvik_cache_length(c, s), n);
    assert_memory_equal(kv_tokens(c->x->kv, s), text, n * sizeof *text);
    whole(c);
    return how;
}

static kvik_splice splice(kvik_cache *c, kvik_seq s, uint64_t again, double fraction)
{
    return splice_to(c, s, again, fraction, TAIL);
}

/* --- The oracle ------------------------------------------------------------------------------- */

static void rotate(const struct rope *r, float *k, int by)
{
    for (uint32_t i = 0; i < r->rot / 2; i++) {
        float *a = k + (r->interleaved ? 2 * i : i), *b = r->interleaved ? a + 1 : a + r->rot / 2;
        double t = by * (double)r->inv_freq[i], x = *a, y = *b;
        *a = (float)(x * cos(t) - y * sin(t));
        *b = (float)(y * cos(t) + x * sin(t));
    }
}

/* Makes rows of `own` followed by rows [row, row + n) of `from`, whose keys move by `by` positions. */
static void join(const struct rope *r, kvik_export *own, const kvik_export *from, uint32_t row,
                 uint32_t n, int by)
{
    uint32_t have = own->length;
    for (uint32_t l = 0; l < own->n_layers; l++) {
        kvik_layer_rows *to = &own->layer[l];
        for (uint32_t k = 0; k < to->n_planes; k++) {
            kvik_plane *p = &to->plane[k];
            const kvik_plane *q = kvik_layer_plane(&from->layer[l], p->name);
            uint32_t heads = p->dim[0], dim = p->dim[2];
            float *x = malloc(sizeof *x * heads * (have + n) * dim);
            for (uint32_t h = 0; h < heads; h++) {
                float *at = x + (size_t)h * (have + n) * dim;
                memcpy(at, (float *)p->data + (size_t)h * have * dim, sizeof *x * have * dim);
                memcpy(at + (size_t)have * dim,
                       (float *)q->data + ((size_t)h * q->dim[1] + row) * dim, sizeof *x * n * dim);
                for (uint32_t i = 0; !strcmp(p->name, "keys") && i < n; i++)
                    rotate(r, at + (size_t)(have + i) * dim, by);
            }
            mem_free(p->data);
            p->data = mem_array((size_t)heads * (have + n) * dim, sizeof *x);
            memcpy(p->data, x, sizeof *x * heads * (have + n) * dim);
            free(x);
            p->dim[1] = have + n;
        }
        mem_free(to->position);
        to->position = mem_array(have + n, sizeof *to->position);
        for (uint32_t i = 0; i < have + n; i++)
            to->position[i] = (int32_t)i;
        to->rows = have + n;
    }
    mem_free(own->ids);
    own->ids = NULL;
    own->length = have + n;
}

static double apart(const float *a, const float *b)
{
    double most = 0;
    for (uint32_t i = 0; i < STEPS * VOCAB; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]) / (1 + fabs((double)b[i])));
    return most;
}

static float got[STEPS * VOCAB], want[STEPS * VOCAB], other[STEPS * VOCAB];

/* How far the logits of steps that read the rows of a codec are from those that read what it exports. */
static double coded_error(kvik_cache *c, kvik_cache *plain, kvik_seq s, kvik_export *rows)
{
    kvik_seq f, t;
    assert_int_equal(kvik_cache_fork(c, s, &f), 0);
    if (kvik_cache_import(plain, rows, &t) < 0) fail_msg("%s", kvik_last_error());
    steps(c, f, got);
    steps(plain, t, want);
    kvik_cache_drop(c, f);
    kvik_cache_drop(plain, t);
    return apart(got, want);
}

static void against_oracle(const char *path, const char *codec)
{
    kvik_model *m;
    kvik_export *own, *from;
    kvik_seq t;
    if (kvik_model_open(path, &m) < 0) fail_msg("%s: %s", path, kvik_last_error());
    kvik_cache *c = open_way(m, &(struct way){.codec = codec}),
               *plain = open_way(m, &(struct way){0});
    kvik_seq d = donor(c), s = new_seq(c), p = new_seq(c);
    feed(c, p, text, PREFIX + AGAIN, NULL);
    assert_int_equal(kvik_cache_export(c, d, &from), 0);
    assert_int_equal(kvik_cache_export(c, p, &own), 0);
    double least = coded_error(c, plain, d, from);
    join(&m->m->rope[0], own, from, BEFORE + AGAIN, CHUNK - AGAIN, PREFIX - BEFORE);
    if (kvik_cache_import(plain, own, &t) < 0) fail_msg("%s", kvik_last_error());
    feed(plain, t, text + PREFIX + CHUNK, SHORT, NULL);
    steps(plain, t, want);
    kvik_cache_drop(c, p);
    kv_forget(c->x->kv);
    kvik_splice how = splice_to(c, s, AGAIN, 0, SHORT);
    assert_int_equal(how.moved, CHUNK - AGAIN);
    assert_int_equal(how.chunks, 1);
    assert_int_equal(how.computed, PREFIX + AGAIN + SHORT);
    steps(c, s, got);
    double e = apart(got, want), bound = 1e-4 + 3 * least;
    printf("  %s %s: off by %.2e, rows where they are by %.2e\n", strrchr(path, '/') + 1,
           codec ? codec : "native", e, least);
    if (!(e <= bound)) fail_msg("off by %g, the bound is %g", e, bound);
    /* the chunk is not what computing gives, or the test would show nothing */
    kvik_seq u = new_seq(plain);
    feed(plain, u, text, PREFIX + CHUNK + SHORT, NULL);
    steps(plain, u, other);
    assert_true(apart(other, want) > 10 * bound || codec);
    whole(c);
    kvik_export_free(own);
    kvik_export_free(from);
    kvik_cache_close(c);
    kvik_cache_close(plain);
    kvik_model_close(m);
}

static void test_oracle(void **state)
{
    (void)state;
    against_oracle(LLAMA, NULL);
    against_oracle(YARN, NULL);
    against_oracle("tests/golden/models/qwen3", NULL);
    against_oracle("tests/golden/models/qwen2", NULL);
    static const char *const codec[] = {
        NULL,
        "\"backend\": \"hqq\", \"nbits\": 8, \"axis_key\": 1, \"axis_value\": 1, \"q_group_size\": 32",
        "\"backend\": \"quanto\", \"nbits\": 4, \"q_group_size\": 32",
        "\"backend\": \"quanto\", \"nbits\": 4, \"axis_key\": -1, \"axis_value\": -1, \"q_group_size\": 32",
        "\"backend\": \"kvik\", \"nbits\": 8",
        "\"backend\": \"kvik\", \"nbits\": 4",
        "\"backend\": \"fp8\"",
        "\"backend\": \"shuffle\"",
        "\"backend_value\": \"quanto\", \"q_group_size\": 32",
    };
    for (size_t i = 0; i < countof(codec); i++)
        against_oracle(WIDE, codec[i]);
}

/* --- Bits ------------------------------------------------------------------------------------- */

static void run(kvik_model *m, const struct way *w, float *logits)
{
    kvik_cache *c = open_way(m, w);
    kvik_seq d = donor(c), s = new_seq(c), f;
    assert_true(splice(c, s, AGAIN, 0).moved);
    kvik_cache_drop(c, d); /* what is borrowed stays */
    kv_forget(c->x->kv);
    assert_int_equal(kvik_cache_fork(c, s, &f), 0);
    steps(c, s, logits);
    steps(c, f, other); /* a fork, and after a crop */
    assert_memory_equal(other, logits, sizeof other);
    assert_int_equal(kvik_cache_crop(c, f, TEXT), 0);
    steps(c, f, other);
    assert_memory_equal(other, logits, sizeof other);
    /* all at once, with the bits of the last */
    assert_int_equal(kvik_cache_crop(c, f, TEXT), 0);
    feed(c, f, text + TEXT, STEPS, other);
    if (!w->codec || !strstr(w->codec, "quanto"))
        assert_memory_equal(other, logits + (STEPS - 1) * VOCAB, sizeof *other * VOCAB);
    whole(c);
    kvik_cache_close(c);
}

static void test_bits(void **state)
{
    (void)state;
    kvik_model *m;
    static const char *const codec[] = {NULL, "\"backend\": \"kvik\", \"nbits\": 4",
                                        "\"backend\": \"shuffle\"",
                                        "\"backend\": \"quanto\", \"q_group_size\": 32"};
    assert_int_equal(kvik_model_open(WIDE, &m), 0);
    for (size_t i = 0; i < countof(codec); i++) {
        char rows[200];
        snprintf(rows, sizeof rows, "%s%s\"test_block_rows\": 64", codec[i] ? codec[i] : "",
                 codec[i] ? ", " : "");
        const struct way ways[] = {
            {.threads = 3}, {.step = 16}, {.isa = "ref", .threads = 2}, {.codec = rows}};
        run(m, &(struct way){.codec = codec[i]}, want);
        for (size_t k = 0; k < countof(ways); k++) {
            struct way w = ways[k];
            if (!w.codec) w.codec = codec[i];
            run(m, &w, got);
            assert_memory_equal(got, want, sizeof got);
        }
    }
    kvik_model_close(m);
}

/* Everything computed again is computing; so is what is a prefix. */
static void test_computed(void **state)
{
    (void)state;
    kvik_model *m;
    assert_int_equal(kvik_model_open(LLAMA, &m), 0);
    kvik_cache *c = open_way(m, &(struct way){0}), *plain = open_way(m, &(struct way){0});
    kvik_seq s = new_seq(plain), d = donor(c), t = new_seq(c), u;
    feed(plain, s, text, TEXT, NULL);
    steps(plain, s, want);
    kvik_splice how = splice(c, t, 0, 1);
    assert_int_equal(how.computed, TEXT);
    steps(c, t, got);
    assert_memory_equal(got, want, sizeof got);
    u = new_seq(c);
    how = splice(c, u, 0, 0);
    assert_int_equal(how.reused, TEXT - 1); /* a prompt's last token is computed */
    steps(c, u, got);
    assert_memory_equal(got, want, sizeof got);
    kvik_cache_reset(c, t);
    kvik_cache_reset(c, u);
    kv_forget(c->x->kv);
    how = splice(c, u, 3, 0.25); /* the larger of both: a quarter of 170 is 42.5 */
    assert_int_equal(how.moved, CHUNK - 43);
    how = splice(c, (kvik_cache_reset(c, t), t), 100, 0.25);
    assert_int_equal(how.moved, CHUNK - 100);
    (void)d;
    kvik_cache_close(c);
    kvik_cache_close(plain);
    kvik_model_close(m);
}

/* A splice in pieces is that in one call, also where a piece ends in what is computed again. */
static void test_pieces(void **state)
{
    (void)state;
    kvik_model *m;
    assert_int_equal(kvik_model_open(LLAMA, &m), 0);
    kvik_cache *c = open_way(m, &(struct way){0});
    kvik_seq s = new_seq(c), t = new_seq(c);
    (void)donor(c);
    const kvik_splice once = splice(c, s, 9, 0);
    assert_int_equal(once.moved, CHUNK - 9);
    assert_int_equal(once.taken, TEXT);
    steps(c, s, want);
    const kvik_chunk list[] = {{sizeof *list, text, PREFIX, 0},
                               {sizeof *list, chunk, CHUNK, 0},
                               {sizeof *list, text + PREFIX + CHUNK, TAIL, 0}};
    for (uint64_t most = 1; most < 48; most += most < 3 ? 1 : 11) {
        kvik_splice how = {.size = sizeof how, .recompute = 9, .most = most}, sum = {0};
        kvik_cache_drop(c, s); /* not a prefix, since its chunk has moved */
        kvik_cache_reset(c, t);
        kv_forget(c->x->kv);
        for (uint32_t calls = 0; how.taken < TEXT; calls++) {
            assert_int_equal(kvik_cache_splice(c, t, list, countof(list), &how), 0);
            assert_true(how.computed <= most && calls < TEXT);
            assert_int_equal(kvik_cache_length(c, t), how.taken);
            sum.moved += how.moved, sum.computed += how.computed, sum.reused += how.reused;
            whole(c);
        }
        assert_int_equal(sum.moved, once.moved);
        assert_int_equal(sum.computed, once.computed);
        steps(c, t, got);
        assert_memory_equal(got, want, sizeof got);
    }
    kvik_splice how = {.size = sizeof how, .taken = TEXT};
    assert_int_equal(kvik_cache_splice(c, t, list, countof(list), &how), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "does not end with"));
    how.taken = TEXT + 1;
    assert_int_equal(kvik_cache_splice(c, t, list, countof(list), &how), KVIK_ARG);
    kvik_cache_close(c);
    kvik_model_close(m);
}

/* A text that begins as a chunk does is no reason to compute the chunk; one that has half of it is, since then all is exact. */
static void test_alike(void **state)
{
    (void)state;
    kvik_model *m;
    assert_int_equal(kvik_model_open(LLAMA, &m), 0);
    for (uint32_t same = 5; same < CHUNK; same += CHUNK - 40) {
        kvik_cache *c = open_way(m, &(struct way){0});
        kvik_seq s = new_seq(c), t = new_seq(c);
        (void)donor(c);
        feed(c, s, text, PREFIX + same, NULL);
        const kvik_splice how = splice(c, t, 0, 0);
        assert_int_equal(how.reused, PREFIX + same);
        assert_int_equal(how.moved, same < CHUNK / 2 ? CHUNK - same : 0);
        kvik_cache_close(c);
    }
    kvik_model_close(m);
}

/* Chunks of another salt are not found, and a sequence with rows keeps its salt. */
static void test_salts(void **state)
{
    (void)state;
    kvik_model *m;
    assert_int_equal(kvik_model_open(LLAMA, &m), 0);
    kvik_cache *c = open_way(m, &(struct way){0});
    kvik_seq s = new_seq(c);
    const kvik_chunk all[] = {{sizeof *all, before, BEFORE, 0}, {sizeof *all, chunk, CHUNK, 0}},
                     list[] = {{sizeof *list, text, PREFIX, 0}, {sizeof *list, chunk, CHUNK, 0}};
    kvik_splice how = {.size = sizeof how, .cache_salt = "ann"};
    assert_int_equal(kvik_cache_splice(c, s, all, countof(all), &how), 0);
    for (int i = 0; i < 3; i++) {
        static const char *const salt[] = {NULL, "bob", "ann"};
        how = (kvik_splice){.size = sizeof how, .cache_salt = salt[i]};
        assert_int_equal(kvik_cache_splice(c, new_seq(c), list, countof(list), &how), 0);
        assert_int_equal(how.moved, i == 2 ? CHUNK : 0);
    }
    how.cache_salt = "bob";
    assert_int_equal(kvik_cache_splice(c, s, list, countof(list), &how), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "another cache_salt"));
    kvik_cache_close(c);
    kvik_model_close(m);
}

/* A crop inside of a chunk is a shorter chunk; a generation goes on from a splice. */
/* Counts the numbers that are handles of sequences. */
static uint32_t handles(kvik_cache *c)
{
    uint32_t n = 0;
    for (kvik_seq s = 1; s < 1 << 14; s++)
        n += kvik_cache_length(c, s) >= 0;
    return n;
}

static void test_goes_on(void **state)
{
    (void)state;
    kvik_model *m;
    kvik_generation g;
    kvik_result *r;
    assert_int_equal(kvik_model_open(LLAMA, &m), 0);
    kvik_cache *c = open_way(m, &(struct way){0});
    donor(c);
    kvik_seq s = new_seq(c), t = new_seq(c);
    enum { CUT = 77 };
    uint32_t known = handles(c);
    splice(c, s, AGAIN, 0);
    assert_int_equal(handles(c),
                     known); /* what it reads of has no handle, not one of another cache either */
    assert_int_equal(kvik_cache_crop(c, s, PREFIX + CUT), 0);
    whole(c);
    const kvik_chunk list[] = {{sizeof *list, text, PREFIX, 0}, {sizeof *list, chunk, CUT, 0}};
    kvik_splice how = {.size = sizeof how, .recompute = AGAIN};
    kv_forget(c->x->kv);
    assert_int_equal(kvik_cache_splice(c, t, list, 2, &how), 0);
    assert_int_equal(how.moved, CUT - AGAIN);
    steps(c, s, want);
    steps(c, t, got);
    assert_memory_equal(got, want, sizeof got);
    assert_int_equal(kvik_cache_reset(c, s), 0);
    splice(c, s, AGAIN, 0);
    assert_int_equal(kvik_generation_init(&g, NULL), 0);
    g.max_new_tokens = 4;
    g.n_eos = 0;
    kvik_prompt p = {.size = sizeof p, .ids = text, .n = TEXT, .seq = s};
    kvik_seq f;
    assert_int_equal(kvik_cache_fork(c, s, &f), 0);
    if (kvik_generate(c, &g, &p, 1, NULL, &r) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(kvik_cache_crop(c, f, TEXT - 1), 0);
    int32_t next = text[TEXT - 1];
    for (uint32_t i = 0; i < 4; i++) {
        feed(c, f, &next, 1, got);
        next = 0;
        for (int32_t k = 1; k < VOCAB; k++)
            if (got[k] > got[next]) next = k;
        assert_int_equal(r->row[0]->ids[TEXT + i], next);
    }
    kvik_result_free(r);
    kvik_generation_done(&g);
    whole(c);
    kvik_cache_close(c);
    kvik_model_close(m);
}

/* --- What is found ---------------------------------------------------------------------------- */

enum { LONG = 30, TEXTS = 12 };

static uint64_t tokens(kvik_cache *c)
{
    kvik_usage u = {.size = sizeof u};
    assert_int_equal(kvik_cache_usage(c, &u), 0);
    return u.tokens;
}

/* Texts that are read elsewhere take no handle of a program, and no token of them counts twice. */
static void test_handles(void **state)
{
    (void)state;
    static int32_t doc[3 * TEXTS][LONG];
    kvik_model *m;
    kvik_cache *c;
    kvik_cache_config k = {.size = sizeof k,
                           .cache_config = "{\"moved_chunks\": 16}",
                           .max_sequences = 1,
                           .max_cache_len = 400,
                           .cache_memory = 8 << 20};
    assert_int_equal(kvik_model_open(LLAMA, &m), 0);
    assert_int_equal(kvik_cache_open(m, &k, &c), 0);
    kvik_seq s[3] = {new_seq(c)};
    for (uint32_t i = 0; i < 3 * TEXTS; i++) {
        draw_ids(doc[i], LONG, VOCAB, 200 + i);
        feed(c, s[0], doc[i], LONG, NULL);
        assert_int_equal(kvik_cache_reset(c, s[0]), 0);
    }
    for (uint32_t i = 0; i < 3; i++) {
        kvik_chunk list[1 + TEXTS] = {{sizeof *list, text, 4, 0}};
        kvik_splice how = {.size = sizeof how};
        for (uint32_t d = 0; d < TEXTS; d++)
            list[1 + d] = (kvik_chunk){sizeof *list, doc[i * TEXTS + d], LONG, 0};
        if (i) s[i] = new_seq(c);
        assert_int_equal(kvik_cache_splice(c, s[i], list, 1 + TEXTS, &how), 0);
        if (!i) assert_int_equal(how.chunks, TEXTS);
        assert_int_equal(tokens(c), (i + 1) * (4 + TEXTS * LONG));
        whole(c);
    }
    for (uint32_t i = 0; i < 3; i++)
        kvik_cache_drop(c, s[i]);
    whole(c);
    kvik_cache_close(c);
    kvik_model_close(m);
}

/* A chunk is found if and only if its tokens are there one after another, however much they repeat each other. */
static void test_search(void **state)
{
    (void)state;
    kvik_model *m;
    uint32_t found = 0, missed = 0;
    assert_int_equal(kvik_model_open(LLAMA, &m), 0);
    for (uint32_t seed = 0; seed < 24; seed++) {
        int32_t all[90], part[12];
        uint32_t n = 5 + seed % 7, at = seed * 5 % 70;
        bool there = false;
        kvik_cache *c = open_way(m, &(struct way){0});
        kvik_seq d = new_seq(c), s = new_seq(c);
        draw_ids(all, 90, VOCAB, seed);
        draw_ids(part, 12, VOCAB, 1000 + seed);
        for (uint32_t i = 0; i < 90 + 12; i++)
            *(i < 90 ? &all[i] : &part[i - 90]) %= 2;
        if (seed % 3 == 0) memcpy(part, all + at, n * sizeof *part);
        for (uint32_t i = 0; i + n <= 90; i++)
            there |= !memcmp(all + i, part, n * sizeof *part);
        feed(c, d, all, 90, NULL);
        const kvik_chunk list[] = {{sizeof *list, text, 3, 0}, {sizeof *list, part, n, 0}};
        kvik_splice how = {.size = sizeof how};
        assert_int_equal(kvik_cache_splice(c, s, list, 2, &how), 0);
        assert_int_equal(how.moved, there ? n : 0);
        found += there;
        missed += !there;
        /* at the place of one that is there: the rows are those of the tokens */
        if (there) assert_memory_equal(kv_tokens(c->x->kv, s) + 3, part, n * sizeof *part);
        whole(c);
        kvik_cache_close(c);
    }
    assert_true(found > 7 && missed > 3);
    kvik_model_close(m);
}

/* What a dropped sequence computed before its first moved chunk is a prefix for others. */
static void test_found_again(void **state)
{
    (void)state;
    kvik_model *m;
    assert_int_equal(kvik_model_open(LLAMA, &m), 0);
    kvik_cache *c = open_way(m, &(struct way){0});
    kvik_seq d = donor(c), s = new_seq(c);
    splice(c, s, AGAIN, 0);
    kvik_cache_reset(c, s);
    whole(c);
    kvik_splice how = splice(c, s, AGAIN, 0);
    assert_int_equal(how.reused, PREFIX + AGAIN);
    assert_int_equal(how.moved, CHUNK - AGAIN);
    assert_int_equal(how.computed, TAIL);
    steps(c, s, got);
    kvik_cache_reset(c, s);
    kv_forget(c->x->kv);
    splice(c, s, AGAIN, 0);
    steps(c, s, want);
    assert_memory_equal(got, want, sizeof got);
    /* the text of a donor that was dropped while its chunk was read is kept, too */
    kvik_cache_drop(c, d);
    kvik_cache_reset(c, s);
    how = splice(c, s, AGAIN, 0);
    assert_int_equal(how.moved, CHUNK - AGAIN);
    kvik_cache_close(c);
    kvik_model_close(m);
}

/* --- Refusals --------------------------------------------------------------------------------- */

static void says(int e, int code, const char *word)
{
    if (e != code || !strstr(kvik_last_error(), word))
        fail_msg("%d, %s: should be %d, ...%s...", e, kvik_last_error(), code, word);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *model, *config, *why;
    } not [] = {{"gpt2", "", "learned"},
                {"llama-dynamic", "", "depend on the length"},
                {"llama4", "", "true positions"},
                {"mamba", "", "no attention"},
                {"qwen3-next", "", "recurrent"},
                {"mistral", "", "window"},
                {"t5", "", "encoder"},
                {"llama-gqa-l3", ", \"sliding_window\": 64", "window"},
                {"llama-gqa-l3", ", \"offloading\": true", "disk"},
                {"llama-gqa-l3", ", \"window_length\": 64, \"num_sink_tokens\": 4", "sink"}};
    kvik_model *m;
    kvik_cache *c;
    for (size_t i = 0; i < countof(not ); i++) {
        char path[200], config[200];
        snprintf(path, sizeof path, "tests/golden/models/%s", not [i].model);
        snprintf(config, sizeof config, "{\"moved_chunks\": 4%s}", not [i].config);
        kvik_cache_config k = {.size = sizeof k, .cache_config = config, .max_cache_len = 200};
        if (kvik_model_open(path, &m) < 0) fail_msg("%s: %s", path, kvik_last_error());
        says(kvik_cache_open(m, &k, &c), KVIK_UNSUPPORTED, not [i].why);
        assert_non_null(strstr(kvik_last_error(), "moved_chunks"));
        kvik_model_close(m);
    }
    assert_int_equal(kvik_model_open(LLAMA, &m), 0);
    kvik_cache_config k = {.size = sizeof k, .max_cache_len = 400};
    kvik_chunk one = {sizeof one, text, PREFIX, 0}, bad = {sizeof bad, (int32_t[]){VOCAB}, 1, 0};
    kvik_splice how = {.size = sizeof how, .fraction = NAN};
    kvik_export *rows;
    assert_int_equal(kvik_cache_open(m, &k, &c), 0);
    kvik_seq s = new_seq(c);
    says(kvik_cache_splice(c, s, &one, 1, NULL), KVIK_UNSUPPORTED, "moved_chunks");
    kvik_cache_close(c);
    c = open_way(m, &(struct way){0});
    s = new_seq(c);
    says(kvik_cache_splice(c, s, &one, 1, &how), KVIK_ARG, "fraction");
    says(kvik_cache_splice(c, s, NULL, 1, NULL), KVIK_ARG, "chunk");
    says(kvik_cache_splice(c, s, &bad, 1, NULL), KVIK_ARG, "384");
    says(kvik_cache_splice(c, s + 12345, &one, 1, NULL), KVIK_STALE, "dropped");
    bad = (kvik_chunk){sizeof bad, text, 0, 0};
    says(kvik_cache_splice(c, s, &bad, 1, NULL), KVIK_ARG, "no tokens");
    assert_int_equal(kvik_cache_length(c, s), 0);
    donor(c);
    splice(c, s, AGAIN, 0);
    one.n = TEXT;
    says(kvik_cache_splice(c, s, &one, 1, NULL), KVIK_LIMIT, "max_cache_len");
    char path[] = "/tmp/kvik-splice-XXXXXX";
    assert_non_null(mkdtemp(path));
    char file[64];
    snprintf(file, sizeof file, "%s/s", path);
    says(kvik_cache_save(c, file, &s, 1, NULL), KVIK_UNSUPPORTED, "other positions");
    says(kvik_cache_export(c, s, &rows), KVIK_UNSUPPORTED, "other positions");
    remove(file);
    rmdir(path);
    assert_int_equal(kvik_cache_length(c, s), TEXT);
    steps(c, s, got);
    whole(c);
    kvik_cache_close(c);
    kvik_model_close(m);
}

/* --- Any operations --------------------------------------------------------------------------- */

static uint64_t dice_state = 20261128;
static uint32_t dice(uint32_t n)
{
    dice_state = dice_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(dice_state >> 33) % n;
}

static void any(kvik_model *m, const char *codec, uint32_t memory, uint32_t times)
{
    enum { SEQS = 5, DOCS = 6 };
    kvik_cache *c = open_way(m, &(struct way){.codec = codec, .step = 32, .memory = memory});
    kvik_seq s[SEQS];
    static int32_t doc[DOCS][60];
    uint32_t moved = 0, full = 0;
    for (uint32_t i = 0; i < DOCS; i++)
        draw_ids(doc[i], 60, VOCAB, 100 + i);
    for (uint32_t i = 0; i < SEQS; i++)
        s[i] = new_seq(c);
    for (uint32_t k = 0; k < times; k++) {
        kvik_seq *at = &s[dice(SEQS)];
        int64_t len = kvik_cache_length(c, *at);
        kvik_chunk list[3];
        kvik_splice how = {.size = sizeof how, .recompute = dice(12)};
        uint32_t i = dice(DOCS), n = 20 + dice(41), from[2] = {dice(2), dice(2)};
        kvik_seq pair[2] = {s[0], s[1]};
        int e = 0;
        switch (dice(8)) {
        case 0:
        case 1:
        case 2:
            for (uint32_t j = 0; j < 3; j++)
                list[j] = (kvik_chunk){sizeof *list, doc[dice(DOCS)], 30 + dice(2) * 30, 0};
            e = kvik_cache_splice(c, *at, list, 1 + dice(3), &how);
            if (e >= 0) moved += how.chunks > 0;
            break;
        case 3:
            e = kvik_forward(
                c, &(kvik_span){.size = sizeof(kvik_span), .seq = *at, .ids = doc[i], .n = n}, 1,
                false, NULL);
            break;
        case 4:
            e = kvik_cache_crop(c, *at, dice((uint32_t)len + 1));
            break;
        case 5:
            kvik_cache_drop(c, *at);
            e = dice(2) ? kvik_cache_fork(c, s[(at - s + 1) % SEQS], at) : kvik_cache_new(c, at);
            if (e < 0) *at = new_seq(c);
            break;
        case 6:
            e = kvik_cache_reorder(c, pair, from, 2);
            break;
        default:
            e = kvik_cache_reset(c, *at);
        }
        full += e == KVIK_FULL;
        if (e < 0 && e != KVIK_FULL && e != KVIK_LIMIT) fail_msg("%s", kvik_last_error());
        if (e < 0 && e != KVIK_FULL && kvik_cache_length(c, *at) != len) fail_msg("changed");
        whole(c);
    }
    assert_true(moved > times / 20);
    if (memory) assert_true(full > 0);
    for (uint32_t i = 0; i < SEQS; i++)
        kvik_cache_drop(c, s[i]);
    kv_forget(c->x->kv);
    whole(c);
    struct kv_usage u;
    kv_usage(c->x->kv, &u);
    assert_int_equal(u.live, 0);
    assert_int_equal(u.seqs, 0);
    kvik_cache_close(c);
}

static void test_any(void **state)
{
    (void)state;
    kvik_model *m;
    uint32_t times = getenv("KVIK_TEST_LONG") ? 20000 : 300;
    assert_int_equal(kvik_model_open(LLAMA, &m), 0);
    any(m, NULL, 0, times);
    any(m, NULL, 800 << 10, times);
    any(m, "\"backend\": \"shuffle\", \"test_block_rows\": 32", 0, times);
    any(m, "\"backend\": \"quanto\", \"q_group_size\": 16, \"residual_length\": 16", 0, times);
    kvik_model_close(m);
}

int main(void)
{
    draw();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracle),      cmocka_unit_test(test_bits),
        cmocka_unit_test(test_computed),    cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_handles),     cmocka_unit_test(test_search),
        cmocka_unit_test(test_found_again), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_any),         cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_salts),       cmocka_unit_test(test_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

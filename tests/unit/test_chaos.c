/* test_chaos.c - random configurations and random operations through the public interface, against a model of truth without
 * a cache (chaos_truth.h).  The model of truth knows the updates of every sequence.  A sequence must answer, bit for bit, what a
 * fresh sequence of a plain resident cache answers after the same updates.  Calls that fail must change nothing.
 *
 *     build/release/test_chaos [SEED [COUNT]] [-v]     walks of these seeds
 *     build/release/test_chaos "open:17 new:4 ..."     the walk that a failure has printed (walk.h)
 *
 * The models are those of tests/golden/models, the codecs all that are registered.
 *
 * Three documented exceptions are not compared. A sequence imported under a codec is quantized again
 * as one turn, and so are the rows of an encoder. A sequence of a longrope model under a codec is not compared if a crop left it in
 * its long regime. A sequence under dynamic NTK is not compared after an import or a crop inside an
 * update, whose remaining rows keep the frequencies of the whole update. */
#include "chaos_truth.h"

#include <time.h>
#include <unistd.h>

/* ---- Operations ---- */

static void op_new(struct world *w)
{
    if (w->n == w->lanes) return;
    struct truth *t = &w->seq[w->n];
    int e = kvik_cache_new(w->cache, &t->s);
    bool made = e >= 0;
    if (made) e = hearing_begin(&models[w->model].hearing, w->cache, t->s);
    if (made && e < 0 && kvik_cache_drop(w->cache, t->s) < 0)
        wrong(w, "a sequence that heard nothing cannot be dropped");
    if (e < 0) {
        refused(w, e, 0);
        return;
    }
    t->n = 0;
    t->lost = t->longer = false;
    w->n++;
}

static uint32_t draw_length(void)
{
    return dice(3) == 0 ? 1 : dice(3) ? between(1, 20) : between(1, 90);
}

static void op_feed(struct world *w)
{
    static int32_t ids[SEQS][96];
    kvik_span span[SEQS];
    uint32_t n = between(1, w->n), first = dice(w->n), total = 0, at = 0;
    bool all = dice(4) == 0;
    int due = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct truth *t = &w->seq[(first + i) % w->n];
        uint32_t len = draw_length();
        if (t->n + len > w->most && dice(4)) len = w->most - t->n ? between(1, w->most - t->n) : 1;
        if (len > 90) len = 90;
        draw_ids(w, t->n, ids[i], len);
        span[i] = (kvik_span){.size = sizeof(kvik_span), .seq = t->s, .ids = ids[i], .n = len};
        if (t->n + len > w->most) due = KVIK_LIMIT;
        total += len;
    }
    int bad = dice(12); /* some calls are given a bad argument */
    if (!due && bad == 0) ids[n - 1][dice(span[n - 1].n)] = (int32_t)w->vocab, due = KVIK_ARG;
    if (!due && bad == 1 && n > 1) span[n - 1].seq = span[0].seq, due = KVIK_ARG;
    if (!due && bad == 2) span[n - 1].seq += 1u << 20, due = KVIK_STALE;
    int e = kvik_forward(w->cache, span, n, all, w->got);
    if (due && e >= 0) wrong(w, "a forward succeeded instead of %s", kvik_error_name(due));
    if (e < 0) {
        refused(w, e, e == KVIK_FULL ? 0 : due);
        return;
    }
    n_fed += total;
    uint32_t check = dice(2 * n);
    for (uint32_t i = 0; i < n; i++) {
        struct truth *t = &w->seq[(first + i) % w->n];
        uint32_t before = t->n;
        truth_feed(w, t, span[i].ids, span[i].n);
        at += all ? span[i].n : 1;
        if (i != check || t->lost) continue;
        compare(w, t, w->got + (size_t)(at - 1) * w->vocab, "feed");
        if (!all || w->failed || !t->begin[before]) continue;
        if (truth_logits(w, t, true, w->want) < 0 ||
            memcmp(w->got + (size_t)(at - span[i].n) * w->vocab, w->want,
                   (size_t)span[i].n * w->vocab * sizeof *w->got) != 0)
            wrong(w, "feed: other logits inside %u tokens", span[i].n);
    }
}

static void op_fork(struct world *w)
{
    if (w->n == w->lanes) return;
    uint32_t from = dice(w->n);
    kvik_seq s;
    int e = kvik_cache_fork(w->cache, w->seq[from].s, &s);
    if (e < 0) {
        refused(w, e, 0);
        return;
    }
    w->seq[w->n] = w->seq[from];
    w->seq[w->n++].s = s;
}

static void op_drop(struct world *w)
{
    uint32_t i = dice(w->n);
    kvik_seq s = w->seq[i].s;
    if (kvik_cache_drop(w->cache, s) < 0) wrong(w, "%s", kvik_last_error());
    w->seq[i] = w->seq[--w->n];
    if (kvik_cache_drop(w->cache, s) != KVIK_STALE || kvik_cache_length(w->cache, s) != KVIK_STALE)
        wrong(w, "a dropped sequence is not stale");
}

static void op_crop(struct world *w)
{
    struct truth *t = &w->seq[dice(w->n)];
    uint32_t to = dice(3) ? t->n - dice(t->n < 12 ? t->n + 1 : 12) : dice(t->n + 1);
    bool negative = dice(2) && to < t->n;
    if (dice(12) == 0) {
        if (kvik_cache_crop(w->cache, t->s, -(int64_t)t->n - 1) != KVIK_ARG)
            wrong(w, "a crop by more than there is succeeded");
        return;
    }
    int64_t beyond = to == t->n ? dice(3) : 0;
    int e = kvik_cache_crop(w->cache, t->s, negative ? (int64_t)to - t->n : to + beyond);
    if (e < 0 && t->lost && e == KVIK_LOST) return;
    if (e < 0)
        refused(w, e, 0);
    else
        truth_crop(w, t, to);
}

static void op_reset(struct world *w)
{
    struct truth *t = &w->seq[dice(w->n)];
    int e = kvik_cache_reset(w->cache, t->s);
    if (e >= 0) {
        truth_crop(w, t, 0);
        e = hearing_begin(&models[w->model].hearing, w->cache, t->s);
        if (e < 0 && kvik_cache_drop(w->cache, t->s) < 0)
            wrong(w, "a sequence that heard nothing cannot be dropped");
        if (e < 0) *t = w->seq[--w->n];
    }
    if (e < 0) refused(w, e, 0);
}

static void op_reorder(struct world *w)
{
    static struct truth old[SEQS];
    kvik_seq s[SEQS];
    uint32_t from[SEQS];
    memcpy(old, w->seq, sizeof old);
    for (uint32_t i = 0; i < w->n; i++) {
        s[i] = w->seq[i].s;
        from[i] = dice(w->n);
    }
    int e = kvik_cache_reorder(w->cache, s, from, w->n);
    if (e < 0) {
        refused(w, e, 0);
        return;
    }
    for (uint32_t i = 0; i < w->n; i++) {
        w->seq[i] = old[from[i]];
        w->seq[i].s = s[i];
    }
}

static void op_exchange(struct world *w)
{
    struct truth *from = &w->seq[dice(w->n)], *t = &w->seq[w->n];
    kvik_export *p = NULL;
    if (w->n == w->lanes || !from->n || from->n >= w->most) return;
    bool pending =
        models[w->model].original && from->longer && from->n <= models[w->model].original;
    int e = kvik_cache_export(w->cache, from->s, &p);
    if (e < 0) {
        refused(w, e, pending ? KVIK_UNSUPPORTED : 0);
        return;
    }
    kvik_seq s;
    e = kvik_cache_import(w->cache, p, &s);
    kvik_export_free(p);
    if (e < 0) {
        refused(w, e, 0);
        return;
    }
    if (w->cross_codec) { /* the encoder's rows are others now */
        if (kvik_cache_length(w->cache, s) != from->n || kvik_cache_drop(w->cache, s) < 0)
            wrong(w, "imported: %s", kvik_last_error());
        return;
    }
    *t = *from;
    t->s = s;
    t->lost |= by_turns(w);
    memset(t->begin + 1, 0, t->n - 1);
    w->n++;
}

struct stopper {
    uint32_t after, seen;
    bool stopped;
};
static bool on_token(void *ctx, uint32_t row, int32_t id, const char *text)
{
    struct stopper *s = ctx;
    (void)row, (void)id, (void)text;
    s->stopped |= ++s->seen > s->after;
    return !s->stopped;
}
static bool on_progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return on_token(ctx, 0, 0, NULL);
}

/* Runs the same generation on the plain cache, without a prefix; the tokens must be equal. */
static void compare_rows(struct world *w, const kvik_generation *g, kvik_prompt p,
                         const kvik_result *r)
{
    kvik_result *other;
    p.seq = 0;
    if (kvik_generate(w->plain, g, &p, 1, NULL, &other) < 0) {
        wrong(w, "the plain cache: %s", kvik_last_error());
        return;
    }
    for (uint32_t i = 0; i < r->n_rows; i++)
        if (r->row[i]->n != other->row[i]->n || r->row[i]->score != other->row[i]->score ||
            memcmp(r->row[i]->ids, other->row[i]->ids, r->row[i]->n * sizeof *r->row[i]->ids) != 0)
            wrong(w, "row %u: other tokens", i);
    kvik_result_free(other);
    n_probes++;
}

/* Updates what a sequence holds: the reused tokens of its own, the rest of the prompt, then tokens
 * one by one. Where rows depend on updates everything that agrees stays, since recomputed rows are appended in
 * their turns. */
static void follow(struct world *w, struct truth *t, const kvik_generation *g, const kvik_result *r)
{
    const kvik_row *row = r->row[0];
    int64_t len = kvik_cache_length(w->cache, t->s);
    if (row->reused > t->n || len < 0 || len >= (int64_t)row->n ||
        (g->num_beams == 1 && len != (int64_t)row->n - 1)) {
        wrong(w, "%lld tokens kept of %zu, %zu reused", (long long)len, row->n, row->reused);
        return;
    }
    /* Recomputes everything. */
    bool contrasts = g->penalty_alpha > 0 && g->num_beams == 1 && !g->do_sample;
    uint64_t again = by_turns(w) && !contrasts && row->sync ? row->sync->recomputed : 0;
    truth_crop(w, t, (uint32_t)(row->reused + again));
    if (row->n_prompt > t->n) truth_feed(w, t, row->ids + t->n, (uint32_t)row->n_prompt - t->n);
    while (t->n < len)
        truth_feed(w, t, row->ids + t->n, 1);
    truth_crop(w, t, (uint32_t)len);
    if (g->num_beams > 1 && w->codec && models[w->model].original) t->lost = true;
}

/* Draws the way of decoding.  hears: guidance is refused for models with an encoder. */
static void draw_way(kvik_generation *g, bool hears)
{
    g->num_beams = dice(3) ? 1 : between(2, BEAMS);
    if (g->num_beams == 2 && dice(2)) {
        g->num_beam_groups = 2;
        g->diversity_penalty = 0.7;
    } else {
        g->do_sample = dice(4) == 0;
    }
    if (g->num_beams == 1 && !g->do_sample && !dice(3)) {
        g->penalty_alpha = 0.6;
        g->top_k = between(2, BEAMS);
    }
    if (!dice(4) && !hears) g->guidance_scale = 1.5;
    g->return_dict_in_generate = !dice(4);
    g->num_return_sequences = dice(4) || (g->num_beams == 1 && !g->do_sample) ? 1 : 2;
}

/* Sequences handed over with a result can be continued and freed. */
static void take_rows(struct world *w, const kvik_prompt *p, const kvik_result *r)
{
    for (uint32_t i = 0; i < r->n_rows; i++) {
        const kvik_row *row = r->row[i];
        if (!row->seq) continue;
        if (kvik_cache_length(w->cache, row->seq) != (int64_t)row->n - 1)
            wrong(w, "row %u: its sequence has another length", i);
        if (row->seq != p->seq && kvik_cache_drop(w->cache, row->seq) < 0)
            wrong(w, "row %u: %s", i, kvik_last_error());
    }
}

static void op_generate(struct world *w)
{
    static int32_t ids[MOST];
    struct truth *t = w->n && dice(3) ? &w->seq[dice(w->n)] : NULL;
    kvik_generation g;
    kvik_result *r = NULL;
    uint32_t same = !t ? 0 : dice(3) ? t->n : dice(t->n + 1), extra = between(1, 30);
    if (same + extra > w->most) return;
    if (t) memcpy(ids, t->ids, same * sizeof *ids);
    draw_ids(w, same, ids + same, extra);
    kvik_generation_init(&g, NULL);
    g.max_new_tokens = between(1, 10);
    /* The text would end early. */
    if (same + extra + g.max_new_tokens > w->most) g.max_new_tokens = 1;
    draw_way(&g, models[w->model].hearing.hears);
    g.prefill_chunk_size = dice(3) ? 0 : between(1, 30);
    struct stopper stop = {.after = dice(4) ? UINT32_MAX : dice(6)};
    kvik_hooks hooks = {.size = sizeof hooks,
                        .on_token = g.num_beams == 1 ? on_token : NULL,
                        .on_progress = on_progress,
                        .ctx = &stop};
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = same + extra, .seq = t ? t->s : 0};
    hearing_prompt(&models[w->model].hearing, &p);
    int e = kvik_generate(w->cache, &g, &p, 1, dice(2) ? &hooks : NULL, &r);
    if (e < 0) {
        /* A sequence with a reserve cannot be forked, so only the common prefix is kept. */
        if (t && w->reserves) {
            int64_t len = kvik_cache_length(w->cache, t->s);
            if (len >= 0 && len < t->n) truth_crop(w, t, (uint32_t)len);
        }
        if (e != KVIK_LIMIT) refused(w, e, e == KVIK_CANCELLED && stop.stopped ? e : 0);
    } else {
        take_rows(w, &p, r);
        if (t) follow(w, t, &g, r);
        if (!stop.stopped && !w->failed && (!t || (!by_turns(w) && !t->lost)))
            compare_rows(w, &g, p, r);
    }
    kvik_result_free(r);
    kvik_generation_done(&g);
}

static void op_reserve(struct world *w)
{
    if (w->reserves) return;
    int e = kvik_cache_reserve(w->cache, w->seq[dice(w->n)].s, between(1, w->most));
    if (e < 0) refused(w, e, 0);
}

/* A sequence is saved and loaded beside itself. */
static void op_save(struct world *w)
{
    struct truth *from = &w->seq[dice(w->n)], *t = &w->seq[w->n];
    char path[64];
    kvik_seq s;
    if (w->n == w->lanes) return;
    snprintf(path, sizeof path, "build/chaos-%d.session", (int)getpid());
    remove(path);
    int e = kvik_cache_save(w->cache, path, &from->s, 1, NULL);
    if (e >= 0) e = kvik_cache_load(w->cache, path, 1, &s, NULL);
    remove(path);
    if (e < 0) {
        refused(w, e, 0);
        return;
    }
    *t = *from;
    t->s = s;
    w->n++;
}

/* The first opens the cache; it begins every walk and is drawn nowhere else. */
static const struct walk_op operations[] = {
    {"open", 0},  {"new", 3},     {"feed", 12},    {"fork", 4},     {"drop", 2},    {"crop", 6},
    {"reset", 1}, {"reorder", 2}, {"exchange", 2}, {"generate", 5}, {"reserve", 1}, {"save", 2}};
enum { OPS = sizeof operations / sizeof *operations };
static void (*const runs[OPS])(struct world *w) = {NULL,        op_new,      op_feed,    op_fork,
                                                   op_drop,     op_crop,     op_reset,   op_reorder,
                                                   op_exchange, op_generate, op_reserve, op_save};

static void operate(struct world *w, const struct walk_step *step)
{
    uint32_t i = w->n ? step->op : 1; /* without a sequence there is only one operation */
    walk_seed(step->x);
    w->what = operations[i].name;
    if (verbose > 1 && !quiet) {
        printf("%3u %s:", w->at, w->what);
        for (uint32_t k = 0; k < w->n; k++)
            printf(" %u", w->seq[k].n);
        printf("\n");
    }
    n_done[i]++;
    runs[i](w);
    check_all(w);
}

/* Drops all sequences and closes the caches: nothing is left. */
static void world_close(struct world *w)
{
    kvik_usage u = {.size = sizeof u};
    while (w->n)
        kvik_cache_drop(w->cache, w->seq[--w->n].s);
    kvik_cache_usage(w->cache, &u);
    n_streamed += u.tier_written > 0;
    w->what = "end";
    if (u.live || u.shared || u.states || u.tokens || u.reserved)
        wrong(w, "live %llu shared %llu reserved %llu after all were dropped",
              (unsigned long long)u.live, (unsigned long long)u.shared,
              (unsigned long long)u.reserved);
    kvik_cache_close(w->cache);
    kvik_cache_close(w->plain);
}

/* True if the walk finds something wrong. */
static bool fails(const struct walk *walk)
{
    static struct world w;
    memset(&w, 0, sizeof w);
    walk_seed(walk->step[0].x);
    w.model = dice(6) ? dice(n_models) : n_deaf + dice(n_models - n_deaf);
    w.vocab = kvik_model_vocab(models[w.model].opened);
    w.what = "open";
    if (world_open(&w) < 0) {
        wrong(&w, "no configuration: %s", kvik_last_error());
        return true;
    }
    if (verbose && !quiet) printf("%s\n", w.text);
    w.got = malloc((size_t)SEQS * 96 * w.vocab * sizeof *w.got);
    w.want = malloc((size_t)(MOST + 1) * w.vocab * sizeof *w.want);
    for (w.at = 1; w.at < walk->n && !w.failed; w.at++)
        operate(&w, &walk->step[w.at]);
    for (uint32_t i = 0; i < w.n && !w.failed; i++)
        probe(&w, &w.seq[i]);
    world_close(&w);
    free(w.got);
    free(w.want);
    return w.failed;
}

/* Runs a walk; returns 1 if it fails, and prints it with as few steps as still fail. */
static uint32_t chaos(struct walk *walk)
{
    if (!fails(walk)) return 0;
    quiet = true;
    walk_shorten(walk, fails);
    quiet = false;
    printf("     again: build/release/test_chaos \"");
    walk_print(walk);
    return 1;
}

/* Runs the walk of a seed, or of a text. */
static uint32_t chaos_of(uint32_t seed, const char *text)
{
    static struct walk walk = {.op = operations, .n_ops = OPS};
    walk.n = 0;
    if (text) {
        walk_read(&walk, text);
        if (!walk.n || walk.step[0].op) test_stop("a walk begins with open");
    } else {
        walk_seed(seed);
        walk.step[walk.n++] = (struct walk_step){0, dice(1u << 30)};
        walk_draw(&walk, between(30, 80));
        if (verbose) printf("seed %u: ", seed);
    }
    return chaos(&walk);
}

/* Walks that have failed. */
static const char *const once_failed[] = {
    /* a crop that made its room by dropping the snapshot that it was to resume from */
    "open:1560 exchange:3824304831805648347 fork:4466252764385669011 "
    "feed:439284870055729646 feed:9191064580275480458 reorder:12786698574114151439 "
    "generate:4208538431809746208 drop:8284329734212840962 crop:16485761999749188536 "
    "feed:7288194963036143836 feed:4034277060340282894 feed:11981200394237668587 "
    "feed:16880768013046119524 new:11519753200148135033 reserve:9677898648897318887 "
    "crop:15026233908707624345 generate:3753383861766775892",
};

int main(int argc, char **argv)
{
    uint32_t first = 0, count = 0, failed = 0, done = 0;
    double limit = getenv("KVIK_TEST_LONG") || argc > 1 ? 1e9 : getenv("KVIK_TEST_SHORT") ? 3 : 6;
    const char *text = NULL;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-')
            verbose += (int)strlen(argv[i]) - 1;
        else if (strchr(argv[i], ':'))
            text = argv[i];
        else if (!first)
            first = (uint32_t)atoi(argv[i]), count = 1;
        else
            count = (uint32_t)atoi(argv[i]);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!open_models()) return 1;
    if (!first && !text) {
        first = 1;
        count = getenv("KVIK_TEST_LONG") ? 2000 : 200;
        for (size_t i = 0; i < countof(once_failed); i++, done++)
            failed += chaos_of(0, once_failed[i]);
    }
    if (text) failed += chaos_of(0, text), done++;
    for (; count-- && (!done || (double)clock() / CLOCKS_PER_SEC < limit); done++)
        failed += chaos_of(first++, NULL);
    for (uint32_t i = 0; i < n_models; i++)
        kvik_model_close(models[i].opened);
    for (uint32_t i = 1; i < OPS; i++)
        printf("%s %u ", operations[i].name, n_done[i]);
    printf("\n%u tokens, %u comparisons, %u refusals, %u of %u streamed\n", n_fed, n_probes,
           n_refused, n_streamed, done);
    printf("%u passed, %u failed, 0 skipped\n", done - failed, failed);
    return failed || !done;
}

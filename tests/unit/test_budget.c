/* test_budget.c - the default memory of a cache is enough for what was asked: every strategy runs every
 * golden model to max_cache_len.
 *
 *     build/release/test_budget [SEED [CASE]] [-v]
 *
 * A case opens a cache without cache_memory and fills max_sequences sequences to exactly max_cache_len
 * tokens.  The prompt is appended in one call, the rest in pieces or token by token.  Then a
 * generation (greedy, beams, contrastive, guided, with drafts) ends at the same length.  A call that
 * runs out of memory fails the test.
 *
 * Strategies are those that kvik_model_describe_caches lists, models those of tests/golden/models.
 * Models with windows or chunks occur a second time with wider ones and a longer context.
 * KVIK_TEST_LONG=1 runs each strategy with each variant of cache_config, up to 2 048 tokens; else a
 * third of the strategies with one variant each, up to 650 tokens, and with KVIK_TEST_SHORT a part
 * of these. */
#include "base/base.h"
#include "codecs.h"
#include "fmt/fmt.h"
#include "hearing.h"
#include "share.h"

#include <sys/stat.h>
#include <unistd.h>

enum { CONTEXT = 2048, BEAMS = 4, FIXED = 512 }; /* FIXED: window of the models of run_fixed */

/* Members of cache_config that strategies are combined with; %u is a window. */
static const char *const variants[] = {
    "",
    "\"sliding_window\":%u",
    "\"window_length\":%u,\"num_sink_tokens\":4",
    "\"offloading\":true",
    "\"offloading\":true,\"sliding_window\":%u",
    "\"offload_only_non_sliding\":true",
    "\"offload_only_non_sliding\":true,\"sliding_window\":%u",
    "\"offload_only_non_sliding\":false",
    "\"offloading\":true,\"offload_only_non_sliding\":true,\"sliding_window\":%u",
    "\"offloading\":true,\"window_length\":%u,\"num_sink_tokens\":3",
};

/* Members of the generation; %u is max_sequences. */
static const char *const modes[] = {
    "\"num_beams\":1",
    "\"num_beams\":%u",
    "\"num_beams\":%u,\"num_return_sequences\":%u",
    "\"penalty_alpha\":0.6,\"top_k\":%u",
    "\"guidance_scale\":1.5",
    "\"prompt_lookup_num_tokens\":%u",
    "\"do_sample\":true,\"num_return_sequences\":%u",
};

struct subject { /* a model, and what its caches may be called */
    char path[300];
    kvik_model *model;
    uint32_t context, vocab, window; /* window: the widest of the model; 0: none */
    uint32_t head_dim;
    const char *name[32];
    uint32_t n_names;
    json_t *caches;
    struct hearing hearing;
};
struct test_case {
    struct subject *s;
    uint32_t number, max_len, seqs, step, piece, prompt, snapshots;
    const char *implementation, *on_full;
    char config[720], cross[720]; /* cross: of the encoder's rows */
};

static uint64_t seed = 1, state;
static int n_run, n_refused, n_generated, n_failed;
static bool verbose;
static uint32_t longest = CONTEXT; /* largest max_cache_len */
static int32_t ids[CONTEXT + 8];

static uint32_t draw(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static void print_case(const struct test_case *t, const char *word, const char *why)
{
    printf(
        "%s case %u: %s %s %s cross %s on_full %s: %u sequences of %u tokens, prompt %u, pieces of %u, "
        "step_tokens %u, snapshots %u%s%s\n",
        word, t->number, t->s->path, t->implementation, t->config, t->cross,
        t->on_full ? t->on_full : "error", t->seqs, t->max_len, t->prompt, t->piece, t->step,
        t->snapshots, why ? ": " : "", why ? why : "");
}

static void fail(const struct test_case *t, const char *what)
{
    char why[1200];
    snprintf(why, sizeof why, "%s: %s", what, kvik_last_error());
    print_case(t, "FAIL", why);
    n_failed++;
}

/* True if the library refuses a combination as such. */
static bool refused(int e)
{
    return e == KVIK_ARG || e == KVIK_UNSUPPORTED;
}

/* Fills all sequences at once; returns false after a failure. */
static bool fill(const struct test_case *t, kvik_cache *c)
{
    kvik_seq seq[8];
    kvik_span span[8];
    for (uint32_t i = 0; i < t->seqs; i++)
        if (hearing_new(&t->s->hearing, c, &seq[i]) < 0) return fail(t, "a new sequence"), false;
    for (uint32_t at = 0, n = t->prompt; at < t->max_len; at += n, n = t->piece) {
        n = MIN(n, t->max_len - at);
        for (uint32_t i = 0; i < t->seqs; i++)
            span[i] =
                (kvik_span){.size = sizeof *span, .seq = seq[i], .ids = ids + (at + i) % 7, .n = n};
        if (kvik_forward(c, span, t->seqs, false, NULL) < 0) {
            char what[64];
            snprintf(what, sizeof what, "%u tokens after %u", n, at);
            return fail(t, what), false;
        }
    }
    for (uint32_t i = 0; i < t->seqs; i++) {
        if (kvik_cache_length(c, seq[i]) != t->max_len) return fail(t, "the length"), false;
        span[i] = (kvik_span){.size = sizeof *span, .seq = seq[i], .ids = ids, .n = 1};
        if (kvik_forward(c, &span[i], 1, false, NULL) >= 0)
            return fail(t, "a row beyond max_cache_len"), false;
        if (kvik_cache_drop(c, seq[i]) < 0) return fail(t, "a drop"), false;
    }
    return true;
}

/* Generates with mode m up to max_cache_len; a beam, a candidate or a result is a sequence. */
static void generate(const struct test_case *t, kvik_cache *c, uint32_t m)
{
    /* Contrastive search also appends the last token that it chooses. */
    uint32_t rows = m == 0 || m == 5 ? t->seqs : 1, last = m == 3, any = 1 + draw(12);
    uint32_t ends = MIN(any, t->max_len - last), prompt = t->max_len - ends + 1 - last;
    char options[300], mode[160];
    kvik_generation g;
    kvik_result *r = NULL;
    kvik_prompt p[8];
    if ((m >= 1 && m <= 4 && t->seqs < 2) || !ends) return;
    snprintf(mode, sizeof mode, modes[m], t->seqs, t->seqs);
    snprintf(options, sizeof options, "{%s,\"max_new_tokens\":%u,\"min_new_tokens\":%u}", mode,
             ends, ends);
    if (kvik_generation_init(&g, t->s->model) < 0 || kvik_generation_set(&g, options) < 0)
        return fail(t, options);
    for (uint32_t i = 0; i < rows; i++) {
        p[i] = (kvik_prompt){.size = sizeof *p, .ids = ids + i, .n = prompt};
        hearing_prompt(&t->s->hearing, &p[i]);
    }
    /* A decoder's text begins with its start token, which would be added otherwise. */
    if (t->s->hearing.hears) g.decoder_start_token_id = *ids;
    for (uint32_t i = 1; i < rows && t->s->hearing.hears; i++)
        p[i].ids = ids;
    int e = kvik_generate(c, &g, p, rows, NULL, &r);
    kvik_generation_done(&g);
    if (refused(e)) {
        n_refused++;
        if (verbose) printf("     %s: %s\n", options, kvik_last_error());
        return;
    }
    n_generated++;
    if (e < 0) return fail(t, options);
    for (size_t i = 0; i < r->n_rows; i++)
        if (r->row[i]->n != prompt + ends) {
            char what[400];
            snprintf(what, sizeof what, "%s: row %zu has %zu tokens after %u, finish %d", options,
                     i, r->row[i]->n, prompt, (int)r->row[i]->finish);
            fail(t, what);
        }
    kvik_result_free(r);
}

static void run_case(const struct test_case *t, bool all_modes)
{
    kvik_cache *c = NULL;
    const kvik_cache_config k = {.size = sizeof k,
                                 .cache_implementation = t->implementation,
                                 .cache_config = t->config,
                                 .cross_cache_config = *t->cross ? t->cross : NULL,
                                 .max_cache_len = t->max_len,
                                 .max_sequences = t->seqs,
                                 .step_tokens = t->step,
                                 .snapshots = t->snapshots,
                                 .on_full = t->on_full,
                                 .threads = 1};
    int e = kvik_cache_open(t->s->model, &k, &c);
    if (refused(e)) {
        n_refused++;
        if (verbose) print_case(t, "refused", kvik_last_error());
        return;
    }
    n_run++;
    if (e < 0) return fail(t, "open");
    if (verbose) print_case(t, "run", NULL);
    uint32_t n = countof(modes), m = draw(n);
    if (fill(t, c))
        for (uint32_t i = 0; i < n; i++)
            if (all_modes || i == m) generate(t, c, i);
    kvik_cache_close(c);
}

static uint32_t length_of(const struct subject *s, uint32_t window)
{
    uint32_t most = s->context, edge = s->window && draw(2) ? s->window : window;
    const uint32_t at[] = {
        1 + draw(40),       edge - 1, edge,          edge + 1, edge + KV_STRIP + draw(20),
        2 * edge + draw(9), most,     1 + draw(most)};
    uint32_t n = at[draw(countof(at))];
    return MAX(1, MIN(n, most));
}

/* Draws a way to quantize that the model's heads allow, or none. */
static void draw_codec(const struct subject *s, struct codec_variant *v)
{
    while (!codec_variant(draw(codec_variants()), s->head_dim, v))
        ;
}

static void draw_case(struct test_case *t, const char *variant)
{
    static const uint32_t windows[] = {5, 17, 64, 130, 512}, steps[] = {0, 0, 1, 24, 100, 300};
    static const uint32_t seqs[] = {1, 1, 2, 3, BEAMS, 7}, every[] = {0, 0, 0, 50, KVIK_TURN_ENDS};
    uint32_t window = windows[draw(countof(windows))];
    struct codec_variant v = {.config = ""};
    char keys[100];
    snprintf(keys, sizeof keys, variant, window);
    if (draw(3) == 0) draw_codec(t->s, &v);
    snprintf(t->config, sizeof t->config, "{%s%s%s}", keys, *keys && *v.config ? "," : "",
             v.config);
    t->max_len = length_of(t->s, window);
    t->seqs = seqs[draw(countof(seqs))];
    t->step = steps[draw(countof(steps))];
    t->prompt = draw(3) ? t->max_len - draw(t->max_len) : 1;
    t->piece = draw(2) || t->max_len < 40 ? 1 : 1 + draw(60);
    t->snapshots = every[draw(countof(every))];
    t->on_full = draw(4) ? NULL : "offload";
    if (!t->s->hearing.hears) return;
    v.config[0] = 0;
    if (draw(2)) draw_codec(t->s, &v);
    snprintf(t->cross, sizeof t->cross, "{\"offloading\":%s%s%s}", draw(2) ? "true" : "false",
             *v.config ? "," : "", v.config);
}

/* Changes the widths of windows and chunks and the context; false if the model has none. */
static bool widen(json_t *o, uint32_t window)
{
    static const char *const width[] = {"sliding_window", "attention_chunk_size"},
                             *const context[] = {"max_position_embeddings", "n_positions"};
    bool any = false;
    json_t *text = json_object_get(o, "text_config");
    if (text) o = text;
    for (size_t i = 0; i < countof(width); i++) {
        if (!json_is_integer(json_object_get(o, width[i]))) continue;
        json_object_set_new(o, width[i], json_integer(window));
        any = true;
    }
    for (size_t i = 0; any && i < countof(context); i++)
        if (json_object_get(o, context[i]))
            json_object_set_new(o, context[i], json_integer(CONTEXT));
    return any;
}

/* Makes a copy of the model with wider windows: a directory of links and a config.json. False: the model has no
 * windows, or it is a .gguf file. */
static bool wide_copy(const char *from, uint32_t window, char to[300])
{
    char cwd[512], at[1200], link[700];
    struct checkpoint *ck = NULL;
    if (strstr(from, ".gguf")) return false;
    if (checkpoint_open(from, &ck) < 0) test_stop("%s", err_last());
    json_t *o = json_deep_copy(checkpoint_config(ck));
    checkpoint_close(ck);
    snprintf(to, 300, "/tmp/kvik-budget-XXXXXX");
    if (!widen(o, window)) {
        json_decref(o);
        return false;
    }
    bool ok = mkdtemp(to) && getcwd(cwd, sizeof cwd);
    struct dirent **file = NULL;
    int n = ok ? scandir(from, &file, NULL, alphasort) : -1;
    ok = n >= 0;
    for (int i = 0; i < n; i++) {
        snprintf(at, sizeof at, "%s/%s/%s", cwd, from, file[i]->d_name);
        snprintf(link, sizeof link, "%s/%s", to, file[i]->d_name);
        if (file[i]->d_name[0] != '.' && strcmp(file[i]->d_name, "config.json") != 0)
            ok &= symlink(at, link) == 0;
        free(file[i]);
    }
    free(file);
    snprintf(link, sizeof link, "%s/config.json", to);
    if (!ok || json_dump_file(o, link, 0) != 0) test_stop("no copy of %s at %s", from, to);
    json_decref(o);
    return true;
}

static void remove_copy(const char *path)
{
    struct dirent **file = NULL;
    char at[700];
    int n = scandir(path, &file, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        snprintf(at, sizeof at, "%s/%s", path, file[i]->d_name);
        if (file[i]->d_name[0] != '.') unlink(at);
        free(file[i]);
    }
    free(file);
    rmdir(path);
}

static uint32_t number_in(const char *says, const char *key, uint32_t otherwise)
{
    const char *at = strstr(says, key);
    return at ? (uint32_t)strtoul(at + strlen(key), NULL, 10) : otherwise;
}

static bool subject_open(struct subject *s)
{
    char *says = NULL, *caches = NULL;
    if (kvik_model_open(s->path, &s->model) < 0 || kvik_model_describe(s->model, &says) < 0 ||
        kvik_model_describe_caches(s->model, &caches) < 0) {
        printf("FAIL %s: %s\n", s->path, kvik_last_error());
        n_failed++;
        return false;
    }
    s->context = MIN(kvik_model_context(s->model), longest);
    s->vocab = kvik_model_vocab(s->model);
    s->head_dim = number_in(says, "\"head_dim\":", 16);
    s->window = number_in(says, "\"window\":", 0);
    hearing_open(&s->hearing, s->model);
    golden_ran(s->model);
    s->caches = json_loads(caches, 0, NULL);
    json_t *list = json_object_get(s->caches, "caches");
    if (json_array_size(list) > countof(s->name))
        test_stop("%s: more strategies than expected", s->path);
    for (size_t i = 0; i < json_array_size(list); i++)
        s->name[s->n_names++] =
            json_string_value(json_object_get(json_array_get(list, i), "cache_implementation"));
    kvik_free(says);
    kvik_free(caches);
    return s->n_names > 0;
}

/* Texts longer than the windows of layers that stay in memory, in a context far longer than both. */
static void run_fixed(struct subject *s)
{
    static const struct {
        const char *implementation, *config;
    } fixed[] = {{"offloaded", "{\"offload_only_non_sliding\":true}"},
                 {"offloaded_static", "{}"},
                 {"offloaded_hybrid", "{}"},
                 {"offloaded_hybrid_chunked", "{}"}};
    for (uint32_t i = 0; i < countof(fixed) * 2; i++) {
        struct test_case t = {.s = s,
                              .implementation = fixed[i / 2].implementation,
                              .max_len = CONTEXT,
                              .seqs = 1,
                              .piece = 700,
                              .prompt = i % 2 ? 1300 : 600};
        snprintf(t.config, sizeof t.config, "%s", fixed[i / 2].config);
        run_case(&t, false);
    }
}

/* Runs all cases of one model; `only`: the number of the one case to run, 0: all. */
static void run_model(struct subject *s, bool all, uint32_t *number, uint32_t only)
{
    if (!subject_open(s)) return;
    state = seed;
    for (uint32_t i = 0; i < countof(ids); i++)
        ids[i] = (int32_t)(4 + (i * 7919u + i / 13) % (s->vocab - 4));
    for (uint32_t i = 0; i < s->n_names; i++) {
        state = seed * 7919u + *number;
        draw(2);
        uint32_t one = draw(countof(variants)), skip = draw(3 * test_share());
        for (uint32_t v = 0; v < countof(variants); v++) {
            struct test_case t = {.s = s, .implementation = s->name[i], .number = ++*number};
            if (!all && !only && (v != one || skip)) continue;
            state = seed * 1000003u + *number;
            draw(2);
            draw_case(&t, variants[v]);
            if (!only || only == *number) run_case(&t, all || only);
        }
    }
    if (!only && s->window == FIXED) run_fixed(s);
    json_decref(s->caches);
    kvik_model_close(s->model);
}

int main(int argc, char **argv)
{
    static const char *name[GOLDEN_MOST];
    static const uint32_t wide[] = {64, 300, 512};
    bool all = getenv("KVIK_TEST_LONG") != NULL;
    uint32_t n = golden_all(name), number = 0, only = 0, given = 0, n_wide = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-v") == 0)
            verbose = true;
        else if (given++)
            only = (uint32_t)strtoul(argv[i], NULL, 10);
        else
            seed = strtoull(argv[i], NULL, 10);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!all) longest = 650;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t w = 0; w < 2; w++) {
            static struct subject s;
            memset(&s, 0, sizeof s);
            state = seed + i * 2 + w;
            snprintf(s.path, sizeof s.path, GOLDEN_MODELS "/%s", name[i]);
            char copy[300] = "";
            uint32_t width = strcmp(name[i], "gemma3") == 0 ? FIXED : wide[draw(countof(wide))];
            if (w && !wide_copy(s.path, width, copy)) continue;
            if (w) snprintf(s.path, sizeof s.path, "%s", copy);
            n_wide += w;
            run_model(&s, all, &number, only);
            if (w) remove_copy(copy);
        }
    const char *arch = golden_missed();
    if (arch) n_failed++, printf("FAIL no golden model of architecture %s ran\n", arch);
    printf("models %u, with wider windows %u; cases %d, generations %d, refused %d, failed %d\n", n,
           n_wide, n_run, n_generated, n_refused, n_failed);
    return n_failed || !n_run || !n_generated || !n_wide;
}

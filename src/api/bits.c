/* bits.c - "nbits": "auto": finds the fewest bits whose predictions stay within a divergence, on the user's own
 * model.
 *
 * One window of a text that comes with the library is read as `kvik eval` reads it.  The first half is a prompt.
 * The logits after each token of the second half are compared with the logits over rows that are not quantized.  All
 * candidates read the text side by side, so the reference is computed once.  A candidate whose divergence is too
 * large drops out at once.
 *
 * The first candidates have the same bits in all layers.  The second candidates mix the cheapest of these that stays
 * within the limit with the next cheaper one: some layers keep the bits, the others have fewer.  The choice is kept
 * in the user's cache directory, by the model's files (bits_kept.c).  It is the same on every machine, since every
 * machine computes the same bits. */
#include "api/bits.h"
#include "api/bits_kept.h"
#include "base/divergence.h"
#include "generate/cache_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WINDOW = 1024, LEAST = 64, BLOCK = 64, MOST = 16, ENDS = 2, SHOWN = 512 };

/* A choice of bits of keys and values: `at` in the layers [from, to), `others` elsewhere.  Layers are counted among those that keep
 * rows. */
struct bits_pair {
    uint8_t k, v;
};
struct candidate {
    struct bits_pair at, others;
    uint32_t from, to;
    char *text; /* owned: keys of cache_config */
    double bits, sum, kld;
    bool over; /* above the limit, or refused by the cache */
    kvik_cache *cache;
    kvik_seq seq;
};
static const struct bits_pair ladder[] = {{8, 8}, {8, 4}, {4, 4}, {4, 3}, {3, 3}, {3, 2}, {2, 2}};

struct choosing {
    kvik_model *m;
    const kvik_cache_config *config;
    const char *implementation;
    double limit;
    int32_t *ids;    /* [window + 1] */
    uint32_t window; /* tokens of the window; the first half is a prompt */
    uint32_t *layer; /* [n_layers] the layers that keep rows */
    /* [n_layers] a layer's share of all values; its keys and values have equal shares */
    double *share;
    uint32_t n_layers; /* number of layers that keep rows */
    struct candidate c[MOST];
    uint32_t n;
    struct divergence at[BLOCK];
    float *logits, *other; /* [BLOCK][vocab] */
    double *p;
};

static struct bits_pair rung_of(const struct candidate *c, uint32_t i)
{
    return i >= c->from && i < c->to ? c->at : c->others;
}

/* Writes the keys of a candidate, and counts its bits. */
static int spell_candidate(const struct choosing *w, struct candidate *c)
{
    JSON_SCOPE(scope);
    json_t *o = json_pack("{s:s, s:i, s:i}", "backend", "kvik", "k_bits", (int)c->others.k,
                          "v_bits", (int)c->others.v);
    json_t *layers = json_object();
    for (uint32_t i = 0; i < w->n_layers; i++) {
        struct bits_pair r = rung_of(c, i);
        char name[16];
        c->bits += w->share[i] * (r.k + r.v) / 2;
        if (r.k == c->others.k && r.v == c->others.v) continue;
        snprintf(name, sizeof name, "%u", w->layer[i]);
        json_object_set_new(layers, name,
                            json_pack("{s:i, s:i}", "k_bits", (int)r.k, "v_bits", (int)r.v));
    }
    if (json_object_size(layers)) json_object_set(o, "layers", layers);
    json_decref(layers);
    int e = json_whole(&scope);
    if (e >= 0) e = json_text(o, &c->text);
    json_decref(o);
    return e;
}

static int add_candidate(struct choosing *w, struct bits_pair at, struct bits_pair others,
                         uint32_t from, uint32_t to)
{
    struct candidate *c = &w->c[w->n];
    if (w->n == MOST) return ERR(LIMIT, "more than %d candidates", MOST);
    *c = (struct candidate){.at = at, .others = others, .from = from, .to = to};
    TRY(spell_candidate(w, c));
    w->n++;
    return 0;
}

static void drop_candidates(struct choosing *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        kvik_cache_close(w->c[i].cache);
        mem_free(w->c[i].text);
    }
    w->n = 0;
}

/* Returns an instruction set with the usual order of sums.  All sets but one have that order, so every machine makes
 * the same choice. */
static const char *measuring_isa(const char *given)
{
    const char *const *name = dev_isa_names();
    int isa = DEV_AVX512BF16;
    if (given && strcmp(given, name[isa]) != 0) return given;
    do
        isa--;
    while (isa > DEV_REF && !dev_isa_supported((enum dev_isa)isa));
    return name[isa];
}

static int open_cache(const struct choosing *w, const char *text, kvik_cache **c, kvik_seq *s)
{
    const kvik_cache_config k = {.size = sizeof k,
                                 .cache_config = text,
                                 .max_sequences = 1,
                                 .max_cache_len = w->window,
                                 .step_tokens = 256,
                                 .threads = w->config->threads,
                                 .compute = w->config->compute,
                                 .isa = measuring_isa(w->config->isa),
                                 .no_prefix_cache = true,
                                 .snapshots = KVIK_TURN_ENDS};
    TRY(kvik_cache_open(w->m, &k, c));
    return kvik_cache_new(*c, s);
}

static int feed(const struct choosing *w, kvik_cache *c, kvik_seq s, uint32_t at, uint32_t n,
                float *logits)
{
    const kvik_span span = {.size = sizeof span, .seq = s, .ids = w->ids + at, .n = n};
    return kvik_forward(c, &span, 1, logits != NULL, logits);
}

/* Compares n positions of a candidate from token `at` on.  Later positions only add to its sum.  So it is over the
 * limit as soon as its sum, divided by all positions of the text, is above the limit. */
static int compare_positions(struct choosing *w, struct candidate *c, uint32_t at, uint32_t n)
{
    uint32_t vocab = kvik_model_vocab(w->m);
    TRY(feed(w, c->cache, c->seq, at, n, w->other));
    for (uint32_t i = 0; i < n; i++) {
        double kld, nll;
        bool same;
        if (!divergence_compare(&w->at[i], w->other + (size_t)i * vocab, vocab, &kld, &nll, &same))
            return ERR(FORMAT, "nbits \"auto\": logits of the model are not finite");
        c->sum += kld;
    }
    uint32_t scored = w->window - w->window / 2;
    c->kld = c->sum / scored;
    c->over = c->kld > w->limit;
    return 0;
}

static int score_candidates(struct choosing *w, kvik_cache *reference, kvik_seq s)
{
    uint32_t vocab = kvik_model_vocab(w->m), half = w->window / 2;
    TRY(feed(w, reference, s, 0, half, NULL));
    for (uint32_t k = 0; k < w->n; k++) {
        struct candidate *c = &w->c[k];
        TRY(open_cache(w, c->text, &c->cache, &c->seq));
        TRY(feed(w, c->cache, c->seq, 0, half, NULL));
    }
    for (uint32_t at = half, n; at < w->window; at += n) {
        n = MIN(BLOCK, w->window - at);
        TRY(feed(w, reference, s, at, n, w->logits));
        for (uint32_t i = 0; i < n; i++) {
            w->at[i] = (struct divergence){.logits = w->logits + (size_t)i * vocab,
                                           .p = w->p + (size_t)i * vocab,
                                           .next = w->ids[at + i + 1]};
            divergence_reference(&w->at[i], vocab);
        }
        for (uint32_t k = 0; k < w->n; k++)
            if (!w->c[k].over) TRY(compare_positions(w, &w->c[k], at, n));
    }
    return 0;
}

static int measure_candidates(struct choosing *w)
{
    kvik_cache *reference = NULL;
    kvik_seq s = 0;
    int e = open_cache(w, NULL, &reference, &s);
    if (e >= 0) e = score_candidates(w, reference, s);
    kvik_cache_close(reference);
    return e;
}

/* Returns the candidate within the limit that has the fewest bits, the first of equals; NULL: there is none. */
static struct candidate *cheapest(struct choosing *w)
{
    struct candidate *best = NULL;
    for (uint32_t i = 0; i < w->n; i++)
        if (!w->c[i].over && (!best || w->c[i].bits < best->bits)) best = &w->c[i];
    return best;
}

/* Adds mixes of `up` and the next cheaper `down`: the layers at both ends, a half of the layers, or a quarter keep
 * the bits of `up`. */
static int add_mixes(struct choosing *w, struct bits_pair up, struct bits_pair down)
{
    uint32_t n = w->n_layers;
    if (n > 2 * ENDS) TRY(add_candidate(w, down, up, ENDS, n - ENDS));
    if (n < 2) return 0;
    TRY(add_candidate(w, up, down, 0, n / 2));
    TRY(add_candidate(w, up, down, n - n / 2, n));
    if (n < 4) return 0;
    TRY(add_candidate(w, up, down, 0, n / 4));
    return add_candidate(w, up, down, n - n / 4, n);
}

static void take_best(struct bits_kept *out, struct candidate *c)
{
    mem_free(out->config);
    *out = (struct bits_kept){.config = c->text, .kld = c->kld, .bits = c->bits};
    c->text = NULL;
}

static int search(struct choosing *w, struct bits_kept *out)
{
    for (uint32_t i = 0; i < countof(ladder); i++)
        TRY(add_candidate(w, ladder[i], ladder[i], 0, 0));
    TRY(measure_candidates(w));
    struct candidate *best = cheapest(w);
    if (!best)
        return ERR(
            ARG,
            "nbits \"auto\": with 8 bits the mean KLD is above max_kld %g already; raise it, or "
            "leave the backend out",
            w->limit);
    uint32_t at = (uint32_t)(best - w->c);
    take_best(out, best);
    drop_candidates(w);
    if (at + 1 == countof(ladder)) return 0;
    TRY(add_mixes(w, ladder[at], ladder[at + 1]));
    if (!w->n) return 0;
    TRY(measure_candidates(w));
    best = cheapest(w);
    if (best && best->bits < out->bits) take_best(out, best);
    return 0;
}

/* Finds the layers that keep rows, and which share of all values each has. */
static int read_layers(struct choosing *w)
{
    const struct model *m = w->m->m;
    double all = 0;
    w->layer = mem_array(m->n_sites, sizeof *w->layer);
    w->share = mem_array(m->n_sites, sizeof *w->share);
    if (!w->layer || !w->share) return ERR_NOMEM;
    for (uint32_t i = 0; i < m->n_sites; i++) {
        if (m->site[i].kind != KV_ROWS) continue;
        w->layer[w->n_layers] = m->site[i].layer;
        all += w->share[w->n_layers++] = (double)kv_site_bytes(&m->site[i], DT_F16);
    }
    for (uint32_t i = 0; i < w->n_layers; i++)
        w->share[i] /= all;
    return w->n_layers ? 0 : ERR(ARG, "nbits \"auto\": the model keeps no keys and values");
}

static int read_ids(struct choosing *w)
{
    const kvik_tokenizer *t = kvik_model_tokenizer(w->m);
    size_t n, bytes;
    int32_t *ids;
    const char *text = bits_text(&bytes);
    if (w->m->m->encoder.n_layers)
        return ERR(UNSUPPORTED,
                   "nbits \"auto\": models with an encoder are not measured; give nbits");
    if (!t)
        return ERR(
            ARG, "nbits \"auto\": the model has no tokenizer, so no text is measured; give nbits");
    TRY(kvik_tokenizer_encode(t, text, bytes, true, &ids, &n));
    w->window = (uint32_t)MIN(MIN(WINDOW, n - (n > 0)), w->m->m->context);
    w->ids = w->window < LEAST ? NULL : mem_array(w->window + 1, sizeof *w->ids);
    if (w->ids) memcpy(w->ids, ids, ((size_t)w->window + 1) * sizeof *ids);
    kvik_free(ids);
    if (w->window < LEAST)
        return ERR(ARG, "nbits \"auto\": a window of %u tokens is too short; give nbits",
                   w->window);
    return w->ids ? 0 : ERR_NOMEM;
}

static int prepare(struct choosing *w)
{
    TRY(read_ids(w));
    TRY(read_layers(w));
    size_t n = (size_t)BLOCK * kvik_model_vocab(w->m);
    w->logits = mem_array(n, sizeof *w->logits);
    w->other = mem_array(n, sizeof *w->other);
    w->p = mem_array(n, sizeof *w->p);
    return w->logits && w->other && w->p ? 0 : ERR_NOMEM;
}

/* Says why opening the cache takes long. */
static void tell_begin(const kvik_cache_config *config, const struct choosing *w)
{
    char line[SHOWN];
    if (!config->on_notice) return;
    snprintf(line, sizeof line,
             "nbits \"auto\" measures this model once, with about %u windows of %u tokens",
             (unsigned)countof(ladder) * 2, w->window);
    config->on_notice(config->notice_ctx, line);
}

static void tell_choice(const kvik_cache_config *config, const struct bits_kept *b, double limit)
{
    char line[SHOWN];
    if (!config->on_notice) return;
    snprintf(
        line, sizeof line,
        "nbits \"auto\" chose %.300s: %.2f bits a value without scales, mean KLD %.3g, max_kld %g",
        b->config, b->bits, b->kld, limit);
    config->on_notice(config->notice_ctx, line);
}

/* Puts the chosen bits in the place of "auto". */
static int replace_auto(struct preset_choice *s, const struct bits_kept *b)
{
    struct kv_keys more;
    json_t *o;
    TRY(json_parse(b->config, strlen(b->config), "nbits \"auto\"", &o));
    int e = kv_keys_read(o, "nbits \"auto\"", &more);
    json_decref(o);
    if (e < 0) return e;
    s->keys.choose = false;
    s->keys.max_kld = 0;
    TRY(kv_keys_add(&s->keys, &more, "cache_config", "nbits \"auto\""));
    return kv_keys_check(&s->keys, s->preset);
}

int bits_choose(kvik_model *m, const kvik_cache_config *config, struct preset_choice *s)
{
    struct choosing w = {.m = m, .config = config};
    struct bits_kept b = {0};
    struct bits_source source;
    struct exec_config x = {0};
    w.limit = s->keys.max_kld > 0 ? s->keys.max_kld : BITS_MAX_KLD;
    TRY(settings_exec(
        s, m->m, config,
        /* a configuration that is refused for another reason fails before anything is measured */
        &x));
    bits_source(m->m, x.compute, w.limit, &source);
    const struct preset_choice was = *s;
    if (bits_recall(&source, &b) && replace_auto(s, &b) >= 0 &&
        settings_exec(s, m->m, config, &x) >= 0) {
        tell_choice(config, &b, w.limit);
        bits_kept_done(&b);
        return 0;
    }
    *s = was;
    bits_kept_done(&b);
    int e = prepare(&w);
    if (e >= 0) tell_begin(config, &w);
    if (e >= 0) e = search(&w, &b);
    drop_candidates(&w);
    if (e >= 0) e = replace_auto(s, &b);
    if (e >= 0) {
        bits_remember(&source, &b);
        tell_choice(config, &b, w.limit);
    }
    bits_kept_done(&b);
    mem_free(w.ids);
    mem_free(w.layer);
    mem_free(w.share);
    mem_free(w.logits);
    mem_free(w.other);
    mem_free(w.p);
    return e;
}

/* window.c - one window of a recording: the encoder, the language, and the text, which is decoded at rising
 * temperatures until it is good enough.  The encoder's rows are computed once for a window.  Every try, and the
 * detection of the language, forks the sequence that has them. */
#include "speech/speech.h"

#include <math.h>
#include <string.h>

static bool follow_rules(void *ctx, uint32_t row, const int32_t *ids, size_t n, float *scores,
                         uint32_t vocab)
{
    struct listener *l = ctx;
    (void)row;
    size_t prompt = l->n_prompt;
    timestamp_rules(&l->marks, ids + prompt, n - prompt, scores, vocab);
    return true;
}

/* --- opening */

/* Makes the options for draws at one temperature, from those of the model. */
static int options_at(const struct listener *l, double temperature, kvik_generation *g)
{
    const json_t *own = checkpoint_generation_config(l->cache->model->m->ck);
    gen_defaults(g);
    int e = gen_apply(g, own, "generation_config.json", false);
    if (e < 0) return e;
    JSON_SCOPE(scope);
    json_t *o = json_pack("{s:b, s:f, s:i}", "do_sample", temperature > 0, "temperature",
                          temperature > 0 ? temperature : 1.0, "num_beams", 1);
    e = o ? json_whole(&scope) : ERR(NOMEM, "out of memory");
    if (e >= 0) e = gen_apply(g, o, "the temperature", true);
    json_decref(o);
    if (temperature > 0) return e;
    g->num_beams = MAX(l->want.num_beams, 1);
    g->length_penalty = l->want.length_penalty;
    g->early_stopping = l->want.early_stopping;
    return e;
}

static int open_chains(struct listener *l)
{
    uint32_t n = l->want.n_temperatures;
    l->g = mem_array(n, sizeof *l->g);
    l->chain = mem_array(n, sizeof *l->chain);
    if (!l->g || !l->chain) return ERR_NOMEM;
    l->hooks = (kvik_hooks){.size = sizeof l->hooks, .ctx = l, .logits_processor = follow_rules};
    for (uint32_t i = 0; i < n; i++) {
        double t = l->want.temperatures[i];
        if (!(t >= 0 && t <= 100)) return ERR(ARG, "a temperature of %g; 0 to 100 are allowed", t);
        TRY(options_at(l, t, &l->g[i]));
        TRY(gen_chain_new(&l->g[i], l->vocab, NULL, &l->chain[i]));
        if (l->timestamps) gen_chain_hooks(l->chain[i], &l->hooks);
    }
    return 0;
}

static int open_memory(struct listener *l)
{
    const struct speech_marks *k = &l->marks;
    l->logits = mem_array((size_t)2 * l->vocab, sizeof *l->logits);
    l->scores = mem_array(l->vocab, sizeof *l->scores);
    l->features = mem_array((size_t)k->bands * k->frames, sizeof *l->features);
    l->ids = mem_array(k->max_length, sizeof *l->ids);
    l->time = mem_array(k->max_length, sizeof *l->time);
    return l->logits && l->scores && l->features && l->ids && l->time ? 0 : ERR_NOMEM;
}

static int check_beams(const struct listener *l)
{
    const kvik_speech *w = &l->want;
    if (w->num_beams > l->x->max_seqs)
        return ERR(
            LIMIT,
            "num_beams is %u, and the cache was opened for %u sequences; raise max_sequences",
            w->num_beams, l->x->max_seqs);
    if (!(fabs(w->length_penalty) <= 1000))
        return ERR(ARG, "a length_penalty of %g; -1000 to 1000 are allowed", w->length_penalty);
    if (w->early_stopping > KVIK_EARLY_NEVER)
        return ERR(ARG, "early_stopping is %u, which is none of enum kvik_early",
                   (unsigned)w->early_stopping);
    return 0;
}

int listener_open(kvik_cache *c, const kvik_speech *o, struct listener *l)
{
    *l = (struct listener){.cache = c, .x = c->x, .want = *o, .vocab = c->model->m->vocab};
    int e = marks_read(c->model, &l->marks);
    if (e < 0) return e;
    if (l->x->max_len < l->marks.max_length)
        return ERR(LIMIT, "a transcript needs a cache for %u tokens; max_cache_len is %u",
                   l->marks.max_length, l->x->max_len);
    l->timestamps = o->return_timestamps;
    if (l->timestamps && l->marks.no_timestamps < 0)
        e = ERR(UNSUPPORTED, "the model has no timestamps; set return_timestamps to false");
    else if (o->word_timestamps && !l->marks.n_align)
        e = ERR(UNSUPPORTED,
                "generation_config.json names no alignment_heads, so words have no times");
    else if (o->no_speech_threshold > 0 && o->logprob_threshold == 0)
        e = ERR(ARG, "no_speech_threshold is only used together with logprob_threshold");
    if (e >= 0) e = check_beams(l);
    if (e >= 0) e = open_memory(l);
    return e < 0 ? e : open_chains(l);
}

void listener_done(struct listener *l)
{
    if (l->heard) (void)kv_drop(l->x->kv, l->heard);
    for (uint32_t i = 0; i < l->want.n_temperatures; i++) {
        if (l->chain) gen_chain_drop(l->chain[i]);
        if (l->g) gen_done(&l->g[i]);
    }
    mem_free(l->chain);
    mem_free(l->g);
    mem_free(l->logits);
    mem_free(l->scores);
    mem_free(l->features);
    mem_free(l->ids);
    mem_free(l->time);
    marks_done(&l->marks);
}

/* --- the encoder */
int listener_hear(struct listener *l)
{
    struct exec_source source = {.features = l->features, .frames = l->marks.frames};
    if (l->heard) TRY(kv_drop(l->x->kv, l->heard));
    l->heard = 0;
    l->windows++;
    TRY(exec_new(l->x, NULL, &l->heard));
    return exec_encode(l->x, l->heard, &source);
}

int listener_language(struct listener *l, int32_t *id)
{
    struct exec_feed feed = {.tok = &l->marks.start, .n = 1};
    float most = -INFINITY;
    const char *token;
    json_t *v;
    TRY(kv_fork(l->x->kv, l->heard, &feed.seq));
    int e = exec_feed(l->x, &feed, 1, 0, l->logits, NULL, NULL);
    (void)kv_drop(l->x->kv, feed.seq);
    if (e < 0) return e;
    *id = -1;
    json_object_foreach((json_t *)(uintptr_t)l->marks.languages, token, v)
    {
        int32_t i = (int32_t)json_integer_value(v);
        if (l->logits[i] < most || (l->logits[i] == most && i > *id && *id >= 0)) continue;
        most = l->logits[i];
        *id = i;
    }
    return *id < 0 ? ERR(FORMAT, "no language has a score; the weights may be damaged") : 0;
}

/* --- one try */

/* Feeds the prompt to `seq`.  The last row of l->logits is then that after the prompt.  Returns the probability
 * that nobody speaks, which the logits after token `start` give. */
static int feed_prompt(struct listener *l, kv_seq seq, size_t n, size_t start, double *no_speech)
{
    uint8_t want[4096] = {0};
    if (n > sizeof want)
        return ERR(LIMIT, "the prompt has %zu tokens, the limit is %zu; give a shorter prompt", n,
                   sizeof want);
    want[start] = want[n - 1] = 1;
    struct exec_feed feed = {.seq = seq, .tok = l->ids, .n = (uint32_t)n, .want = want};
    TRY(exec_feed(l->x, &feed, 1, 0, l->logits, NULL, NULL));
    *no_speech =
        l->marks.no_speech < 0 ? 0 : exp(judge_logprob(l->logits, l->vocab, l->marks.no_speech, 1));
    if (start != n - 1) memcpy(l->logits, l->logits + l->vocab, l->vocab * sizeof *l->logits);
    return 0;
}

static int decode_step(struct listener *l, kv_seq seq, const int32_t *id)
{
    struct exec_feed feed = {.seq = seq, .tok = id, .n = 1};
    return exec_feed(l->x, &feed, 1, 0, l->scores, NULL, NULL);
}

/* Decodes token by token at temperature i, after the prompt.  The logits after the prompt are in l->logits and
 * stay there. */
static int decode_window(struct listener *l, kv_seq seq, uint32_t i, struct speech_said *out,
                         double *sum)
{
    const kvik_generation *g = &l->g[i];
    double by = g->do_sample ? g->temperature : 1;
    size_t n = l->n_prompt, most = l->most;
    *sum = 0;
    memcpy(l->scores, l->logits, l->vocab * sizeof *l->scores);
    while (n < most) {
        struct gen_row row = {.ids = l->ids, .n = n, .n_prompt = out->n_prompt, .max_length = most};
        if (!gen_finite(l->scores, l->vocab))
            return ERR(FORMAT, "the logits of the model are not finite");
        TRY(gen_chain_apply(l->chain[i], &row, l->scores));
        uint32_t draw = l->windows * 64 + i, at = (uint32_t)(n - out->n_prompt);
        int32_t id = g->do_sample ? gen_sample(l->chain[i], l->scores, l->want.seed, draw, at)
                                  : gen_argmax(l->scores, l->vocab);
        *sum += judge_logprob(l->scores, l->vocab, id, by);
        l->ids[n++] = id;
        if (id == l->marks.eos || n == most) break;
        TRY(decode_step(l, seq, &l->ids[n - 1]));
    }
    out->n = n;
    return 0;
}

/* --- times of tokens */

enum { AT_ONCE = 16 }; /* tokens whose attention one call computes */

/* Collects weight[n_align][n][rows]: the cross attention of the new tokens.  The last one has none, since it was
 * not fed. */
static int attention_of(struct listener *l, kv_seq seq, const int32_t *ids, uint32_t n,
                        float *weight)
{
    const struct model *m = l->x->m;
    uint32_t rows = m->encoder.rows;
    size_t one = (size_t)AT_ONCE * rows;
    float *all = mem_array((size_t)m->n_layers * m->n_heads * one, sizeof *all);
    if (!all) return ERR_NOMEM;
    int e = 0;
    for (uint32_t at = 0; at < n && e >= 0; at += AT_ONCE) {
        uint32_t k = MIN(n - at, AT_ONCE);
        struct exec_probe probe = {.cross = all, .heard = rows};
        struct exec_feed feed = {.seq = seq, .tok = ids + at, .n = k, .probe = &probe};
        e = exec_feed(l->x, &feed, 1, 0, NULL, NULL, NULL);
        for (uint32_t i = 0; i < l->marks.n_align && e >= 0; i++) {
            const struct speech_pick *p = &l->marks.align[i];
            const float *from = all + ((size_t)p->layer * m->n_heads + p->head) * k * rows;
            memcpy(weight + ((size_t)i * n + at) * rows, from, (size_t)k * rows * sizeof *weight);
        }
    }
    mem_free(all);
    return e;
}

static int find_times(struct listener *l, kv_seq seq, uint32_t frames, struct speech_said *out)
{
    uint32_t rows = l->x->m->encoder.rows, n = (uint32_t)(out->n - out->n_prompt);
    out->time = l->time;
    if (n < 2) {
        l->time[0] = 0;
        return 0;
    }
    float *weight = mem_array((size_t)l->marks.n_align * (n - 1) * rows, sizeof *weight);
    if (!weight) return ERR_NOMEM;
    int e = attention_of(l, seq, l->ids + out->n_prompt, n - 1, weight);
    if (e >= 0)
        e = alignment_times(weight, l->marks.n_align, n - 1, rows, frames / l->x->m->encoder.stride,
                            l->marks.median, l->time);
    /* The last token was not fed, so it has no attention. */
    l->time[n - 1] = l->time[n - 2];
    mem_free(weight);
    return e;
}

/* --- the window */

struct attempt {
    struct listener *l;
    kv_seq base; /* has the prompt */
};

static int attempt(void *ctx, uint32_t i, struct speech_said *out)
{
    const struct attempt *a = ctx;
    struct listener *l = a->l;
    double sum;
    kv_seq seq;
    TRY(kv_fork(l->x->kv, a->base, &seq));
    int e = (l->g[i].num_beams > 1 ? beams_decode : decode_window)(l, seq, i, out, &sum);
    (void)kv_drop(l->x->kv, seq);
    if (e < 0) return e;
    size_t n = out->n - l->n_prompt;
    out->avg_logprob = sum / (double)MAX(n, 1);
    return judge_compression(l->ids + l->n_prompt, n, l->vocab, &out->compression_ratio);
}

int listener_decode(struct listener *l, size_t n, size_t start, uint32_t frames,
                    struct speech_said *out)
{
    kv_seq base;
    *out = (struct speech_said){.ids = l->ids, .n_prompt = n, .n = n};
    l->n_prompt = n;
    l->most = l->marks.max_length;
    if (l->want.max_new_tokens) l->most = MIN(l->most, n + l->want.max_new_tokens);
    TRY(kv_fork(l->x->kv, l->heard, &base));
    int e = feed_prompt(l, base, n, start, &out->no_speech_prob);
    struct attempt tries = {.l = l, .base = base};
    if (e >= 0) e = judge_tries(&l->want, attempt, &tries, out);
    if (e >= 0 && l->want.word_timestamps && !out->skip) e = find_times(l, base, frames, out);
    (void)kv_drop(l->x->kv, base);
    if (e >= 0 && out->n > n && out->ids[out->n - 1] == l->marks.eos) out->n--;
    return e;
}

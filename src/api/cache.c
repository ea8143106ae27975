/* cache.c - caches: sequences, forward, and the recording of what caches do. */
#include "api/bits.h"
#include "base/trace.h"
#include "generate/cache_config.h"
#include "generate/cache_usage.h"
#include "generate/heard.h"
#include "generate/prompts.h"

KVIK_API int kvik_cache_open(kvik_model *m, const kvik_cache_config *config, kvik_cache **out)
{
    kvik_cache_config full;
    struct preset_choice s = {0};
    struct exec_config x = {0};
    TRY(model_check(m));
    if (!out) return ERR(ARG, "a pointer for the cache is needed, and NULL was given");
    TRY(settings_take(config, &full));
    config = &full;
    TRY(settings_read(config, &s));
    if (s.keys.choose) TRY(bits_choose(m, config, &s));
    TRY(settings_exec(&s, m->m, config, &x));
    kvik_cache *c = mem_alloc(sizeof *c);
    if (!c) return ERR_NOMEM;
    int e = exec_open(m->m, &x, &c->x);
    if (e >= 0) e = driver_open(c->x, &c->driver);
    if (e < 0) {
        exec_close(c->x);
        mem_free(c);
        return e;
    }
    c->model = model_hold(m);
    c->on_notice = config->on_notice;
    c->notice_ctx = config->notice_ctx;
    refs_init(&c->refs);
    guard_init(&c->guard);
    c->preset = s.preset;
    settings_hints(&s, m->m, config);
    *out = c;
    return 0;
}

void cache_drop(kvik_cache *c)
{
    /* threads and spill file belong to the process that opened the cache */
    if (!c || guard_foreign(&c->guard) || !refs_drop(&c->refs)) return;
    driver_close(c->driver);
    exec_close(c->x);
    model_drop(c->model);
    mem_free(c->seen);
    mem_free(c);
}

KVIK_API void kvik_cache_close(kvik_cache *c)
{
    if (c && !guard_foreign(&c->guard) && refs_close(&c->refs)) cache_drop(c);
}

KVIK_API int kvik_cache_usage(const kvik_cache *c, kvik_usage *out)
{
    struct kv_usage u;
    kvik_usage full;
    USE_CACHE(c);
    if (!out) return ERR(ARG, "a kvik_usage to fill is needed");
    kv_usage(c->x->kv, &u);
    usage_of(&u, &full);
    full.reused = c->reused;
    return SIZED_OUT(out, &full, kvik_usage);
}

KVIK_API int kvik_cache_set_memory(kvik_cache *c, uint64_t bytes)
{
    USE_CACHE(c);
    return cache_full(c, kv_limit(c->x->kv, MIN(bytes, SIZE_MAX)));
}

KVIK_API int kvik_cache_new(kvik_cache *c, kvik_seq *out)
{
    USE_CACHE(c);
    if (!out) return ERR(ARG, "a pointer for the sequence is needed, and NULL was given");
    return cache_full(c, exec_new(c->x, NULL, out));
}

KVIK_API int kvik_cache_encode(kvik_cache *c, kvik_seq s, const kvik_source *in)
{
    kvik_source full = {0};
    struct gen_source *source = NULL;
    USE_CACHE(c);
    TRY(cache_free(c, &s, 1));
    if (!in) return ERR(ARG, "an input of the encoder is needed");
    if (!kv_tokens(c->x->kv, s)) return ERR(STALE, "the sequence was dropped");
    int e = source_read(c, 0, in, false, &full);
    if (e >= 0) e = source_alone(c->x, &full, &source);
    if (e >= 0) e = exec_encode(c->x, s, &source->in);
    sources_end(source, 1);
    source_done(&full, false);
    return cache_full(c, e);
}

KVIK_API int64_t kvik_cache_encoder_length(const kvik_cache *c, kvik_seq s)
{
    USE_CACHE(c);
    if (!kv_tokens(c->x->kv, s)) return ERR(STALE, "the sequence was dropped");
    return kv_cross(c->x->kv, s);
}

KVIK_API int kvik_cache_fork(kvik_cache *c, kvik_seq src, kvik_seq *out)
{
    USE_CACHE(c);
    if (!out) return ERR(ARG, "a pointer for the sequence is needed, and NULL was given");
    return cache_full(c, cache_step(kv_fork(c->x->kv, src, out)));
}

KVIK_API int kvik_cache_drop(kvik_cache *c, kvik_seq s)
{
    USE_CACHE(c);
    TRY(cache_free(c, &s, 1));
    return kv_keep(c->x->kv, s);
}

KVIK_API int kvik_cache_crop(kvik_cache *c, kvik_seq s, int64_t len)
{
    USE_CACHE(c);
    TRY(cache_free(c, &s, 1));
    struct kv *kv = c->x->kv;
    const int32_t *known = kv_tokens(kv, s);
    if (!known) return ERR(STALE, "the sequence was dropped");
    int64_t keep = crop_kept(len, kv_len(kv, s));
    if (keep < 0)
        return ERR(ARG, "crop by %llu tokens, the sequence has %u",
                   (unsigned long long)-(uint64_t)len, kv_len(kv, s));
    return cache_full(c, exec_crop(c->x, s, (uint32_t)keep));
}

KVIK_API int kvik_cache_reorder(kvik_cache *c, const kvik_seq *s, const uint32_t *from, uint32_t n)
{
    USE_CACHE(c);
    if (n && (!from || !s))
        return ERR(ARG, "a reorder needs sequences and the indices of their new contents");
    TRY(cache_free(c, s, n));
    return cache_full(c, kv_reorder(c->x->kv, s, from, n));
}

KVIK_API int kvik_cache_reset(kvik_cache *c, kvik_seq s)
{
    USE_CACHE(c);
    TRY(cache_free(c, &s, 1));
    return cache_full(c, cache_clear(c, s));
}

KVIK_API int kvik_cache_reserve(kvik_cache *c, kvik_seq s, uint32_t len)
{
    USE_CACHE(c);
    TRY(cache_free(c, &s, 1));
    if (len > c->x->max_len)
        return ERR(LIMIT, "cannot reserve %u tokens: max_cache_len is %u; open the cache with more",
                   len, c->x->max_len);
    return cache_full(c, kv_reserve(c->x->kv, s, len));
}

KVIK_API int64_t kvik_cache_length(const kvik_cache *c, kvik_seq s)
{
    USE_CACHE(c);
    if (!kv_tokens(c->x->kv, s)) return ERR(STALE, "the sequence was dropped");
    return kv_len(c->x->kv, s);
}

KVIK_API int kvik_forward(kvik_cache *c, const kvik_span *span, uint32_t n, bool all, float *logits)
{
    USE_CACHE(c);
    struct exec *x = c->x;
    if (n == 0 || !span) return ERR(ARG, "no tokens to append: n_spans is 0 or span is NULL");
    if (n > x->max_seqs)
        return ERR(LIMIT, "%u sequences in one call; the cache was opened for %u (max_sequences)",
                   n, x->max_seqs);
    for (uint32_t i = 0; i < n; i++) {
        kvik_span s = {0};
        TRY(SIZED_NTH(&s, span, i, kvik_span));
        if (!kv_tokens(x->kv, s.seq))
            return ERR(STALE, "span %u: the sequence was dropped, or is of another cache", i);
        TRY(cache_free(c, &s.seq, 1));
        if (s.n && !s.ids) return ERR(ARG, "span %u: %u tokens, but ids is NULL", i, s.n);
        x->call[i] = (struct exec_feed){.seq = s.seq, .tok = s.ids, .n = s.n, .all = all};
    }
    return cache_full(c, exec_feed(x, x->call, n, 0, logits, NULL, NULL));
}

KVIK_API int kvik_trace_begin(void)
{
    return trace_begin();
}

KVIK_API int kvik_trace_end(const char *path)
{
    return trace_end(path);
}

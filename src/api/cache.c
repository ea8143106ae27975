/* cache.c - caches: configuration, sequences, forward. */
#include "api/api.h"
#include "base/json.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct settings {
    struct exec_config exec;
    const struct kv_preset *preset;
    uint32_t max_cache_len;
};

static int unknown_preset(const char *name)
{
    char list[160] = "";
    for (uint32_t i = 0; kv_preset_at(i); i++) {
        size_t k = strlen(list);
        snprintf(list + k, sizeof list - k, "%s%s", i ? ", " : "", kv_preset_at(i)->name);
    }
    return ERR(UNSUPPORTED,
               "cache_implementation \"%s\" is not available in this version; these are: %s", name,
               list);
}

/* cache_config: {"max_cache_len", "sliding_window"}; "test_codec" and "test_block_rows" are for tests. */
static int read_config(struct settings *s, const json_t *o)
{
    static const char what[] = "cache_config";
    static const char *const keys[] = {"max_cache_len", "sliding_window", "test_codec",
                                       "test_block_rows"};
    const char *key, *codec = NULL;
    json_t *v;
    if (!json_is_object(o)) return ERR(FORMAT, "cache_config must be a JSON object");
    json_object_foreach((json_t *)(uintptr_t)o, key, v)
    {
        size_t i = 0;
        while (i < countof(keys) && strcmp(keys[i], key) != 0)
            i++;
        if (i == countof(keys))
            return ERR(
                ARG,
                "cache_config has no key \"%s\"; this version knows max_cache_len and sliding_window",
                key);
    }
    TRY(json_get_u32(o, what, "max_cache_len", 1, 1u << 28, &s->max_cache_len));
    TRY(json_get_u32(o, what, "sliding_window", 1, 1u << 28, &s->exec.preset.window));
    TRY(json_get_u32(o, what, "test_block_rows", 16, KV_ATOM, &s->exec.preset.block_rows));
    TRY(json_get_str(o, what, "test_codec", &codec));
    if (codec && strcmp(codec, kv_codec_shuffle.name) == 0)
        s->exec.preset.codec = &kv_codec_shuffle;
    else if (codec)
        return ERR(ARG, "test_codec \"%s\": only \"%s\" exists", codec, kv_codec_shuffle.name);
    return 0;
}

static int compute_of(const struct model *m, const char *name, struct exec_config *e)
{
    enum dtype w = m->weight_dtype;
    if (!name)
        e->compute = w == DT_F32 ? DEV_EXACT : DEV_FAST;
    else if (strcmp(name, "exact") == 0)
        e->compute = DEV_EXACT;
    else if (strcmp(name, "fast") == 0)
        e->compute = DEV_FAST;
    else
        return ERR(ARG, "compute \"%s\": exact or fast", name);
    e->preset.dtype = e->compute == DEV_EXACT || w == DT_F32 ? DT_F32
                      : w == DT_BF16                         ? DT_BF16
                                                             : DT_F16;
    return 0;
}

static int settle(const struct model *m, const kvik_cache_config *c, struct settings *s)
{
    const char *impl = c->cache_implementation ? c->cache_implementation : "dynamic";
    s->preset = kv_preset_find(impl);
    if (!s->preset) return unknown_preset(impl);
    s->max_cache_len = c->max_cache_len;
    if (c->cache_config) {
        json_t *o;
        TRY(json_parse(c->cache_config, strlen(c->cache_config), "cache_config", &o));
        int e = read_config(s, o);
        json_decref(o);
        if (e < 0) return e;
    }
    TRY(compute_of(m, c->compute, &s->exec));
    struct exec_config *e = &s->exec;
    e->threads = c->threads;
    e->isa = c->isa;
    e->max_seqs = c->max_sequences ? c->max_sequences : 64;
    if (e->max_seqs > 65536) return ERR(LIMIT, "max_sequences %u: at most 65536", e->max_seqs);
    e->max_len = s->max_cache_len ? s->max_cache_len : m->context;
    e->step_tokens = MIN(c->step_tokens ? c->step_tokens : 512, e->max_len * (uint64_t)e->max_seqs);
    if (e->step_tokens > 65536) return ERR(LIMIT, "step_tokens %u: at most 65536", e->step_tokens);
    e->reserve = s->preset->reserve;
    e->pool_bytes = c->cache_memory;
    if (!e->pool_bytes) {
        /* Room for everything asked for, and a spare block for each fork a transaction holds. */
        size_t rows = ((size_t)e->max_len + 3 * (size_t)KV_ATOM) * (e->max_seqs + 1);
        size_t want, half = (size_t)sysconf(_SC_PHYS_PAGES) / 2 * (size_t)sysconf(_SC_PAGESIZE);
        /* A codec keeps the raw form beside the sealed one while a tile fills. */
        size_t row = exec_row_bytes(m, &e->preset) * (e->preset.codec ? 2 : 1);
        if (!ck_mul(rows, row, &want) || want > half) want = half;
        e->pool_bytes = want;
    }
    return 0;
}

KVIK_API int kvik_cache_open(kvik_model *m, const kvik_cache_config *config, kvik_cache **out)
{
    static const kvik_cache_config none;
    struct settings s = {0};
    if (!m || !out) return ERR(ARG, "a model is needed");
    TRY(settle(m->m, config ? config : &none, &s));
    kvik_cache *c = mem_alloc(sizeof *c);
    if (!c) return ERR_NOMEM;
    int e = exec_open(m->m, &s.exec, &c->x);
    if (e < 0) {
        mem_free(c);
        return e;
    }
    c->model = m;
    c->preset = s.preset;
    *out = c;
    return 0;
}

KVIK_API void kvik_cache_close(kvik_cache *c)
{
    if (!c) return;
    exec_close(c->x);
    mem_free(c);
}

KVIK_API void kvik_cache_usage(const kvik_cache *c, kvik_usage *out)
{
    struct kv_usage u;
    kv_usage(c->x->kv, &u);
    *out = (kvik_usage){
        .bytes = u.live + u.states,
        .peak_bytes = u.peak,
        .live = u.live,
        .shared = u.shared,
        .states = u.states,
        .budget = u.pool,
        .need = u.need,
        .tokens = u.rows,
        .reused = c->reused,
        .forks = u.forks,
        .rows_copied = u.rows_copied,
        .seals = u.seals,
        .evictions = u.evictions,
    };
}

KVIK_API int kvik_cache_new(kvik_cache *c, kvik_seq *out)
{
    return exec_new(c->x, out);
}

KVIK_API int kvik_cache_fork(kvik_cache *c, kvik_seq src, kvik_seq *out)
{
    return kv_fork(c->x->kv, src, out);
}

KVIK_API int kvik_cache_drop(kvik_cache *c, kvik_seq s)
{
    return kv_drop(c->x->kv, s);
}

/* Rows that trim cannot give back (a window that moved on, a tile) are computed again at once. */
static int crop_and_refill(struct exec *x, kv_seq s, uint32_t len, uint32_t have)
{
    int32_t *tok = mem_array(len - have, sizeof *tok);
    if (!tok) return ERR_NOMEM;
    memcpy(tok, kv_tokens(x->kv, s) + have, (len - have) * sizeof *tok);
    kv_seq backup;
    int e = kv_fork(x->kv, s, &backup);
    if (e >= 0) {
        e = kv_trim(x->kv, s, len, &have);
        struct exec_feed f = {.seq = s, .tok = tok, .n = len - have};
        if (e >= 0 && f.n) e = exec_feed(x, &f, 1, 0, NULL, NULL, NULL);
        exec_settle(x, s, backup, e < 0);
    }
    mem_free(tok);
    return e;
}

KVIK_API int kvik_cache_crop(kvik_cache *c, kvik_seq s, int64_t len)
{
    struct kv *kv = c->x->kv;
    const int32_t *known = kv_tokens(kv, s);
    if (!known) return ERR(STALE, "the sequence was dropped");
    uint32_t old = kv_len(kv, s), have;
    if (len < -(int64_t)old || len > (int64_t)old)
        return ERR(ARG, "crop to %lld: the sequence has %u tokens", (long long)len, old);
    uint32_t want = (uint32_t)(len < 0 ? (int64_t)old + len : len);
    TRY(kv_resume(kv, s, want, &have));
    if (have == want) return kv_trim(kv, s, want, &have);
    return crop_and_refill(c->x, s, want, have);
}

KVIK_API int kvik_cache_reorder(kvik_cache *c, const kvik_seq *s, const uint32_t *from, uint32_t n)
{
    return kv_reorder(c->x->kv, s, from, n);
}

KVIK_API int kvik_cache_reserve(kvik_cache *c, kvik_seq s, uint32_t len)
{
    return kv_reserve(c->x->kv, s, len);
}

KVIK_API int64_t kvik_cache_length(const kvik_cache *c, kvik_seq s)
{
    if (!kv_tokens(c->x->kv, s)) return ERR(STALE, "the sequence was dropped");
    return kv_len(c->x->kv, s);
}

KVIK_API int kvik_forward(kvik_cache *c, const kvik_span *span, uint32_t n, bool all, float *logits)
{
    struct exec *x = c->x;
    if (n == 0 || !span) return ERR(ARG, "nothing to feed");
    if (n > x->max_seqs)
        return ERR(LIMIT, "%u sequences, the cache was opened for %u", n, x->max_seqs);
    for (uint32_t i = 0; i < n; i++) {
        if (!kv_tokens(x->kv, span[i].seq)) return ERR(STALE, "span %u: no such sequence", i);
        x->call[i] =
            (struct exec_feed){.seq = span[i].seq, .tok = span[i].ids, .n = span[i].n, .all = all};
    }
    return exec_feed(x, x->call, n, 0, logits, NULL, NULL);
}

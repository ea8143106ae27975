/* layers_open.c - opens and closes a cache without a model, and has the beginning and end of every public call
 * with one. */
#include "compat/layers.h"
#include "generate/cache_config.h"
#include "generate/cache_usage.h"

#include <string.h>

enum { MAX_BATCH = 16, MOST_LAYERS = 4096 };

void layer_close(struct layer *l)
{
    if (l->kv) kv_close(l->kv);
    preset_close(&l->group, l->group.n_planes ? 1 : 0);
    mem_free(l->seq);
    *l = (struct layer){.slides = l->slides};
}

static int kinds_read(kvik_layers *all, const char *const *kinds)
{
    const struct kv_keys *k = &all->set.keys;
    bool window = k->sliding_window || k->window_length, any = false;
    for (uint32_t i = 0; i < all->n_layers; i++) {
        const char *kind = kinds ? kinds[i] : NULL;
        bool slides =
            kind && (!strcmp(kind, "sliding_attention") || !strcmp(kind, "chunked_attention"));
        if (kind && !slides && strcmp(kind, "full_attention") != 0)
            return ERR(ARG,
                       "layer %u: kind \"%s\"; full_attention, sliding_attention or "
                       "chunked_attention",
                       i, kind);
        any |= slides;
        all->layer[i].slides = kinds ? slides || k->window_length : window;
    }
    if ((any || all->set.preset->windowed) && !window)
        return ERR(ARG, "a layer with a window needs its length; give cache_config "
                        "{\"sliding_window\": N}");
    return 0;
}

static int check_config(const kvik_layers *all)
{
    if (all->set.encode)
        return ERR(UNSUPPORTED,
                   "on_full \"encode\" is for caches of a model; use on_full \"offload\"");
    if (all->max_batch > 16384)
        return ERR(LIMIT, "max_sequences is %u, the limit is 16384", all->max_batch);
    if (layers_static(all) && !all->set.max_cache_len)
        return ERR(ARG, "cache_implementation \"%s\" without a model needs max_cache_len",
                   all->set.preset->name);
    return 0;
}

static void layers_drop(kvik_layers *all)
{
    /* The spill file belongs to the process that opened the cache. */
    if (guard_foreign(&all->guard) || !refs_drop(&all->refs)) return;
    for (uint32_t i = 0; all->layer && i < all->n_layers; i++)
        layer_close(&all->layer[i]);
    if (all->queue) dev_queue_close(all->queue);
    if (all->dev) dev_close(all->dev);
    mem_free(all->layer);
    mem_free(all->spill_dir);
    mem_free(all->keys);
    mem_free(all->values);
    mem_free(all->packed);
    mem_free(all->position);
    mem_free(all->scratch);
    mem_free(all);
}

static int layers_fill(kvik_layers *all, const kvik_cache_config *c, const char *const *kinds)
{
    struct dev_config d = {c->threads ? c->threads : 1, c->isa};
    all->max_batch = c->max_sequences ? c->max_sequences : MAX_BATCH;
    all->memory = c->cache_memory ? MAX(c->cache_memory / all->n_layers, (size_t)1) : 0;
    if (!(all->layer = mem_array(all->n_layers, sizeof *all->layer))) return ERR_NOMEM;
    if (c->spill_dir && !(all->spill_dir = mem_strdup(c->spill_dir))) return ERR_NOMEM;
    TRY(check_config(all));
    TRY(kinds_read(all, kinds));
    TRY(dev_open(NULL, &all->dev));
    return dev_queue_open(all->dev, &d, &all->queue);
}

KVIK_API int kvik_layers_open(const kvik_cache_config *config, uint32_t n_layers,
                              const char *const *kinds, kvik_layers **out)
{
    kvik_cache_config full;
    struct preset_choice set = {0};
    if (!n_layers || n_layers > MOST_LAYERS)
        return ERR(ARG, "%u layers: 1 to %d", n_layers, MOST_LAYERS);
    if (!out) return ERR(ARG, "a pointer for the cache is needed, and NULL was given");
    TRY(settings_take(config, &full));
    TRY(settings_read(&full, &set));
    if (set.keys.choose)
        return ERR(
            ARG,
            "nbits \"auto\" measures a model that kvik runs; give nbits for layers of another");
    kvik_layers *all = mem_alloc(sizeof *all);
    if (!all) return ERR_NOMEM;
    all->set = set;
    all->n_layers = n_layers;
    refs_init(&all->refs);
    guard_init(&all->guard);
    int e = layers_fill(all, &full, kinds);
    if (e < 0) {
        layers_drop(all);
        return e;
    }
    settings_hints(&set, NULL, &full);
    *out = all;
    return 0;
}

KVIK_API void kvik_layers_close(kvik_layers *l)
{
    if (l && !guard_foreign(&l->guard) && refs_close(&l->refs)) layers_drop(l);
}

int layers_enter(const kvik_layers *l, kvik_layers **used)
{
    kvik_layers *all = (kvik_layers *)(uintptr_t)l;
    if (!l) return ERR(ARG, "the cache of layers is NULL");
    TRY(refs_check(&l->refs, "cache of layers"));
    TRY(guard_enter(&all->guard, "cache of layers"));
    refs_take(&all->refs);
    *used = all;
    return 0;
}

void layers_leave(kvik_layers **used)
{
    if (!*used) return;
    guard_leave(&(*used)->guard);
    layers_drop(*used);
}

KVIK_API int kvik_layers_usage(const kvik_layers *l, kvik_usage *out)
{
    struct kv_usage sum = {0}, one;
    kvik_usage full;
    USE_LAYERS(l);
    if (!out) return ERR(ARG, "a kvik_usage to fill is needed");
    for (uint32_t i = 0; i < all->n_layers; i++) {
        if (!all->layer[i].open) continue;
        kv_usage(all->layer[i].kv, &one);
        kv_usage_add(&sum, &one);
    }
    usage_of(&sum, &full);
    return SIZED_OUT(out, &full, kvik_usage);
}

/* preset.c - the reference's cache names as data.  A preset never is a class: it only chooses fields of
 * kv_group (policy from the model's layers, codec, reserve).  A new name is a new row. */
#include "kv/preset.h"

#include <string.h>

static const struct kv_preset table[] = {
    {"dynamic", false,
     "grows by blocks of 16 rows; layers with a window keep only what they can see"},
    {"static", true, "max_cache_len rows set aside when a sequence begins; past it an error"},
};

const struct kv_preset *kv_preset_find(const char *name)
{
    for (uint32_t i = 0; i < countof(table); i++)
        if (strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}

const struct kv_preset *kv_preset_at(uint32_t i)
{
    return i < countof(table) ? &table[i] : NULL;
}

static struct kv_group group_of(const struct kv_layer *l, const struct kv_preset_options *o)
{
    struct kv_group g = {
        .policy = {.kind = KV_ROWS, .window = l->window ? l->window : o->window, .chunk = l->chunk},
        .rows = o->block_rows ? o->block_rows : KV_STRIP,
        .n_planes = 2,
        .plane = {{"k", {l->heads, l->dim, o->dtype, KV_STRIPS}, o->codec},
                  {"v", {l->heads, l->dim, o->dtype, KV_ROWMAJOR}, o->codec}},
    };
    if (o->codec) g.seal.tile = o->codec->tile;
    return g;
}

static bool same(const struct kv_group *a, const struct kv_group *b)
{
    return a->policy.window == b->policy.window && a->policy.chunk == b->policy.chunk &&
           a->plane[0].shape.heads == b->plane[0].shape.heads &&
           a->plane[0].shape.dim == b->plane[0].shape.dim;
}

int kv_preset_groups(const struct kv_layer *layer, uint32_t n_layers,
                     const struct kv_preset_options *o, struct kv_group *group, uint32_t *site)
{
    uint32_t n = 0, next = 0;
    if (o->block_rows % KV_STRIP || o->block_rows > KV_ATOM || o->block_rows & (o->block_rows - 1))
        return ERR(ARG, "block_rows %u: 16, 32, 64, 128 or 256", o->block_rows);
    for (uint32_t i = 0; i < n_layers; i++) {
        struct kv_group g = group_of(&layer[i], o);
        uint32_t j = 0;
        while (j < n && !same(&group[j], &g))
            j++;
        if (j == n) group[n++] = g;
        group[j].n_sites++;
    }
    for (uint32_t j = 0; j < n; j++) {
        group[j].site0 = next;
        for (uint32_t i = 0; i < n_layers; i++) {
            struct kv_group g = group_of(&layer[i], o);
            if (same(&group[j], &g)) site[i] = next++;
        }
    }
    return (int)n;
}

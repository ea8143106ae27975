/* config_check.c - checks the configuration of a store: numbers, groups, planes and their codecs.  store.c relies on what stands
 * here; rung.c checks the rungs of a group. */
#include "dev/dev.h"
#include "kv/codec.h"
#include "kv/kv_int.h"

#define MAX_GROUPS 64u
#define MAX_SITES  65536u

static int plane_check(const struct kv_config *c, uint32_t gi, const struct kv_group *g,
                       const struct kv_plane *p)
{
    struct dev *dev = c->dev ? c->dev : &dev_host;
    const struct kv_shape *s = &p->shape;
    const char *name = p->name ? p->name : "?";
    if (!s->heads || !s->dim || s->heads > 1u << 20 || s->dim > 1u << 24)
        return ERR(ARG,
                   "cache: group %u plane %s: a shape of %u heads of %u values is not possible", gi,
                   name, s->heads, s->dim);
    if (s->dtype != DT_F32 && s->dtype != DT_F16 && s->dtype != DT_BF16)
        return ERR(ARG, "cache: group %u plane %s: rows are f32, f16 or bf16", gi, name);
    if ((s->layout == KV_FLAT) != (g->policy.kind == KV_STATE))
        return ERR(ARG, "cache: group %u plane %s: states are flat planes, rows are not", gi, name);
    if (!g->seal.tile != !p->codec)
        return ERR(ARG, "cache: group %u plane %s: all planes of a group have a codec, or none", gi,
                   name);
    if (!p->codec) return 0;
    char text[KV_CODEC_TEXT];
    TRY(kv_codec_describe(p->codec, text));
    if (p->codec->tile != g->seal.tile || !p->codec->bytes || !p->codec->encode)
        return ERR(ARG, "cache: group %u plane %s: codec %s has tiles of %u rows, the group of %u",
                   gi, name, p->codec->name, p->codec->tile, g->seal.tile);
    if (!dev_reads(dev, p->codec))
        return ERR(
            UNSUPPORTED,
            "cache: the device %s has no kernels for rows that codec %s has quantized; choose "
            "another backend, or none",
            dev->kind->name, p->codec->name);
    return 0;
}

static int group_check(const struct kv_config *c, uint32_t gi, uint32_t site)
{
    const struct kv_group *g = &c->group[gi];
    const struct kv_policy *p = &g->policy;
    const struct kv_seal *s = &g->seal;
    if (p->kind != KV_ROWS && p->kind != KV_STATE && p->kind != KV_FROZEN)
        return ERR(ARG, "cache: group %u: no kind %d", gi, (int)p->kind);
    if (g->site0 != site || !g->n_sites || g->n_sites > MAX_SITES - site)
        return ERR(ARG, "cache: group %u: layers [%u, +%u) do not follow %u", gi, g->site0,
                   g->n_sites, site);
    if (!g->n_planes || g->n_planes > KV_MAX_PLANES)
        return ERR(ARG, "cache: group %u: %u planes; use 1 to %u", gi, g->n_planes, KV_MAX_PLANES);
    if (p->kind != KV_STATE && (g->rows < KV_STRIP || g->rows > KV_ATOM || g->rows & (g->rows - 1)))
        return ERR(ARG, "cache: group %u: blocks of %u rows; use 16, 32, 64, 128 or 256", gi,
                   g->rows);
    if (p->kind != KV_ROWS && (p->window || p->chunk || p->sinks || p->slack))
        return ERR(ARG, "cache: group %u: only rows have windows, chunks, sinks and slack", gi);
    if (p->kind == KV_STATE && g->stream)
        return ERR(ARG, "cache: group %u: states cannot leave memory", gi);
    if (p->kind == KV_STATE && s->tile)
        return ERR(ARG, "cache: group %u: states cannot have a codec", gi);
    bool small = s->tile < KV_STRIP && KV_STRIP % MAX(s->tile, 1) == 0;
    if (s->tile && ((s->tile % KV_STRIP && !small) || (s->tile % g->rows && g->rows % s->tile)))
        return ERR(ARG, "cache: group %u: tiles of %u rows over blocks of %u", gi, s->tile,
                   g->rows);
    if (s->tile && s->lead < p->sinks)
        return ERR(ARG, "cache: group %u: %u sinks, but only %u leading rows stay raw", gi,
                   p->sinks, s->lead);
    for (uint32_t i = 0; i < g->n_planes; i++)
        TRY(plane_check(c, gi, g, &g->plane[i]));
    return g->n_rungs ? rung_check(c, gi) : 0;
}

int config_check(const struct kv_config *c)
{
    if (!c->n_groups || c->n_groups > MAX_GROUPS)
        return ERR(ARG, "cache: %u groups; use 1 to %u", c->n_groups, MAX_GROUPS);
    if (!c->max_seqs || c->max_seqs > UINT16_MAX)
        return ERR(ARG, "cache: max_seqs is %u; use 1 to %u", c->max_seqs, (unsigned)UINT16_MAX);
    if (c->marks > 2 * UINT16_MAX)
        return ERR(ARG, "cache: %u marks; use at most %d", c->marks, 2 * UINT16_MAX);
    if (!c->max_tokens || c->max_tokens > 1u << 24)
        return ERR(ARG, "cache: max_tokens is %u; use 1 to %u", c->max_tokens, 1u << 24);
    if (!c->max_len || c->max_len > 1u << 30)
        return ERR(ARG, "cache: max_len is %u; use 1 to %u", c->max_len, 1u << 30);
    if (!c->tier != (c->streaming == KV_RESIDENT))
        return ERR(ARG, "cache: a tier is needed to stream, and only then");
    if (c->borrows > KV_BORROWS_MOST || (c->borrows && c->streaming != KV_RESIDENT))
        return ERR(ARG,
                   "cache: borrows is %u; use at most %u, and none where pages can leave memory",
                   c->borrows, KV_BORROWS_MOST);
    uint32_t site = 0;
    for (uint32_t i = 0; i < c->n_groups; i++) {
        TRY(group_check(c, i, site));
        site += c->group[i].n_sites;
    }
    return 0;
}

/* preset.c - the cache names of Transformers as data.  A preset is never a class.  It chooses fields of kv_group
 * (policy from the model's sites and cache_config, codec, tier) and whether rows are reserved.  A new name is a
 * new row of the table, and a new choice of the option cache_implementation (generate/options.c). */
#include "model/preset.h"

#include <stdio.h>
#include <string.h>

static const struct preset table[] = {
    {.name = "dynamic",
     .brief = "grows by blocks of 16 rows; layers with a window keep only what they can see"},
    {.name = "static",
     .reserve = true,
     .brief = "reserves max_cache_len rows when a sequence begins; a longer text is an error"},
    {.name = "offloaded",
     .offload = true,
     .brief = "as dynamic; full pages live on disk and stream through memory layer by layer"},
    {.name = "offloaded_static",
     .reserve = true,
     .offload = true,
     .brief = "as static, offloaded; layers with a window stay in memory"},
    {.name = "quantized",
     .quantized = true,
     .brief = "as dynamic; old rows are quantized to few bits (quanto, hqq, fp8)"},
    {.name = "sliding_window",
     .reserve = true,
     .windowed = true,
     .brief = "static; every layer sees its window and keeps no more"},
    {.name = "hybrid",
     .reserve = true,
     .windowed = true,
     .brief = "static; layers with a window keep it, the others max_cache_len rows"},
    {.name = "hybrid_chunked",
     .reserve = true,
     .windowed = true,
     .brief = "static; layers with a chunk keep it, the others max_cache_len rows"},
    {.name = "offloaded_hybrid",
     .reserve = true,
     .offload = true,
     .windowed = true,
     .brief = "as hybrid, offloaded; layers with a window stay in memory"},
    {.name = "offloaded_hybrid_chunked",
     .reserve = true,
     .offload = true,
     .windowed = true,
     .brief = "as hybrid_chunked, offloaded; layers with a chunk stay in memory"},
    {.name = "sink",
     .sink = true,
     .brief = "the first num_sink_tokens rows and the last ones, window_length together"},
};

/* Names that older releases of Transformers used for the caches of single architectures. */
static const struct preset own[] = {
    {.name = "mamba", .states = true, .brief = "as dynamic; the model has recurrent states"},
    {.name = "jamba", .states = true, .brief = "as dynamic; the model has recurrent states"},
    {.name = "zamba", .states = true, .brief = "as dynamic; the model has recurrent states"},
};

const struct preset *preset_find(const char *name)
{
    for (uint32_t i = 0; i < countof(own); i++)
        if (strcmp(own[i].name, name) == 0) return &own[i];
    for (uint32_t i = 0; i < countof(table); i++)
        if (strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}

const struct preset *preset_at(uint32_t i)
{
    return i < countof(table) ? &table[i] : NULL;
}

bool preset_offloads(const struct preset *p, const struct kv_keys *k)
{
    return p->offload || k->offloading;
}

struct kv_site kv_site_rows(uint32_t heads, uint32_t dim, uint32_t dim_v)
{
    return (struct kv_site){.kind = KV_ROWS,
                            .n_planes = 2,
                            .plane = {{.name = "k", .heads = heads, .dim = dim},
                                      {.name = "v", .heads = heads, .dim = dim_v}}};
}

/* Returns the type of a plane.  A state is a sum over the whole text, so it is never rounded to 16 bits. */
static enum dtype plane_dtype(const struct kv_site *s, enum dtype rows)
{
    return s->kind == KV_STATE ? DT_F32 : rows;
}

size_t kv_site_bytes(const struct kv_site *s, enum dtype rows)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < s->n_planes; i++)
        sum += (size_t)s->plane[i].heads * s->plane[i].dim * dtype_size(plane_dtype(s, rows));
    return sum;
}

static bool windows(const struct kv_keys *k, const struct kv_site *site, uint32_t n)
{
    bool any = k->sliding_window || k->window_length;
    for (uint32_t i = 0; i < n; i++)
        any |= site[i].window || site[i].chunk;
    return any;
}

static bool states(const struct kv_site *site, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (site[i].kind == KV_STATE) return true;
    return false;
}

const struct preset *preset_for(const struct preset *p, const struct kv_keys *k,
                                const struct kv_site *site, uint32_t n_sites)
{
    bool own_cache = strcmp(p->name, "hybrid") == 0 && states(site, n_sites);
    return own_cache && !windows(k, site, n_sites) ? &table[0] : p;
}

/* Finds the layers that have bits of their own. */
static int settle_layers(const struct kv_layers *l, const struct kv_site *site, uint32_t n_sites,
                         struct kv_layers *out)
{
    uint32_t n_layers = 0;
    for (uint32_t i = 0; i < n_sites; i++)
        n_layers = MAX(n_layers, site[i].layer + 1);
    TRY(kv_layers_settle(l, n_layers, out));
    for (uint32_t k = 0; k < out->n; k++) {
        bool rows = false;
        for (uint32_t i = 0; i < n_sites; i++)
            rows |= site[i].kind == KV_ROWS && site[i].layer == (uint32_t)out->at[k].layer;
        if (!rows)
            return ERR(ARG, "cache_config: layers \"%d\": this layer keeps no keys and values",
                       (int)l->at[k].layer);
    }
    return 0;
}

int preset_settle(const struct preset *p, const struct kv_keys *k, const struct kv_site *site,
                  uint32_t n_sites, struct preset_options *o)
{
    TRY(kv_keys_check(k, p));
    if (p->states && !states(site, n_sites))
        return ERR(
            ARG,
            "cache_implementation \"%s\" is for models with recurrent states, and this one has "
            "none; leave it out",
            p->name);
    if (p->windowed && n_sites && !windows(k, site, n_sites))
        return ERR(ARG,
                   "cache_implementation \"%s\" needs a window and the model has none; give "
                   "cache_config {\"sliding_window\": N}",
                   p->name);
    o->window = k->window_length ? k->window_length - k->num_sink_tokens : k->sliding_window;
    o->sinks = k->num_sink_tokens;
    o->block_rows = k->block_rows;
    o->stream = preset_offloads(p, k);
    o->stream_only_full = k->given & 1u << KV_KEY_OFFLOAD_ONLY_NON_SLIDING
                              ? k->offload_only_non_sliding
                              : p->reserve; /* as in Transformers */
    TRY(kv_keys_codecs(k, p, &o->quant));
    return n_sites ? settle_layers(&k->layers, site, n_sites, &o->layers) : 0;
}

int preset_settle_cross(const struct preset *cross, const struct kv_keys *k,
                        struct preset_options *o)
{
    static const struct preset plain = {.name = "dynamic"};
    const uint32_t window = 1u << KV_KEY_SLIDING_WINDOW | 1u << KV_KEY_WINDOW_LENGTH |
                            1u << KV_KEY_NUM_SINK_TOKENS | 1u << KV_KEY_OFFLOAD_ONLY_NON_SLIDING |
                            1u << KV_KEY_MOVED_CHUNKS | 1u << KV_KEY_TEST_BLOCK_ROWS;
    o->cross_stream = (cross && cross->offload) || k->offloading;
    if (cross && (cross->windowed || cross->sink))
        return ERR(
            ARG,
            "cross_cache_implementation \"%s\" forgets rows, and a decoder reads all rows of "
            "its encoder; give dynamic, static, offloaded or quantized",
            cross->name);
    if (k->given & window)
        return ERR(ARG, "cross_cache_config: windows, sinks and blocks are not for an encoder's "
                        "rows, which are all read; give keys of precision or offloading");
    if (k->choose)
        return ERR(ARG, "cross_cache_config: nbits \"auto\" is not for an encoder's rows");
    if (k->layers.n) return ERR(ARG, "cross_cache_config: layers is not for an encoder's rows");
    TRY(kv_keys_check(k, cross ? cross : &plain));
    return kv_keys_codecs(k, cross ? cross : &plain, &o->cross_quant);
}

/* Snapshots are on by default: a snapshot of a state, or of the rows of a window, has the same size whatever the
 * length.  Without one, a crop behind the rows that are kept would recompute the whole text. */
enum { STATE_EVERY = 256 };

static struct kv_policy policy_of(const struct kv_site *s, const struct preset_options *o)
{
    struct kv_policy p = {.kind = s->kind, .window = s->window, .chunk = s->chunk};
    uint32_t every = o->every == PRESET_NEVER ? 0 : o->every ? o->every : STATE_EVERY;
    if (s->kind == KV_STATE) p.every = every;
    if (s->kind != KV_ROWS) return p;
    if (o->sinks) {
        p.sinks = o->sinks;
        if (!p.window || p.window > o->window) p.window = o->window;
    } else if (!p.window && !p.chunk) {
        p.window = o->window;
    }
    if (p.window || p.chunk) p.every = every;
    return p;
}

static struct kv_group group_of(const struct kv_site *s, const struct preset_options *o)
{
    bool state = s->kind == KV_STATE;
    struct kv_group g = {
        .policy = policy_of(s, o),
        .rows = o->block_rows ? o->block_rows : KV_STRIP,
        .n_planes = s->n_planes,
    };
    for (uint32_t i = 0; i < s->n_planes; i++)
        g.plane[i] = (struct kv_plane){
            .name = s->plane[i].name,
            .shape = {.heads = s->plane[i].heads,
                      .dim = s->plane[i].dim,
                      .dtype = plane_dtype(s, o->dtype),
                      .layout = state ? KV_FLAT
                                : i   ? KV_ROWMAJOR
                                      : KV_STRIPS},
        };
    g.stream = s->kind == KV_FROZEN
                   ? o->cross_stream
                   : o->stream && s->kind == KV_ROWS &&
                         !(o->stream_only_full && (g.policy.window || g.policy.chunk));
    g.seal.lead = g.policy.sinks;
    return g;
}

static bool same_group(const struct kv_group *a, const struct kv_group *b)
{
    bool eq = a->policy.kind == b->policy.kind && a->policy.window == b->policy.window &&
              a->policy.chunk == b->policy.chunk && a->n_planes == b->n_planes;
    for (uint32_t i = 0; eq && i < a->n_planes; i++)
        eq = a->plane[i].shape.heads == b->plane[i].shape.heads &&
             a->plane[i].shape.dim == b->plane[i].shape.dim;
    return eq;
}

bool preset_encodes(const struct preset_options *o)
{
    return o->quant.plane[0].kind || o->quant.plane[1].kind || o->cross_quant.plane[0].kind ||
           o->cross_quant.plane[1].kind;
}

/* Returns the codecs of a site's rows. */
static struct kv_codec_pair codecs_of(const struct kv_site *s, const struct preset_options *o)
{
    if (s->kind == KV_FROZEN) return o->cross_quant;
    return s->kind == KV_ROWS ? kv_layers_pair(&o->layers, &o->quant, s->layer) : o->quant;
}

static bool same_codecs(const struct kv_codec_pair *a, const struct kv_codec_pair *b)
{
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < KV_CODEC_OPTIONS; i++)
            if (a->plane[p].value[i] != b->plane[p].value[i]) return false;
    return true;
}

static int codecs_open(struct kv_group *g, const struct kv_codec_pair *o)
{
    struct kv_codec *k, *v;
    struct kv_seal seal;
    if (g->policy.kind == KV_STATE || (!o->plane[0].kind && !o->plane[1].kind)) return 0;
    TRY(kv_codec_pair_open(o, &g->plane[0].shape, &g->plane[1].shape, &k, &v, &seal));
    seal.lead = MAX(seal.lead, g->policy.sinks);
    g->plane[0].codec = k;
    g->plane[1].codec = v;
    g->seal = seal;
    return 0;
}

const int32_t preset_rung_bits[KV_RUNGS] = {8, 4};

static void rungs_close(struct kv_group *g)
{
    for (uint32_t r = 0; r < g->n_rungs; r++)
        for (uint32_t p = 0; p < g->n_planes; p++)
            kv_codec_close(g->rung[r].codec[p]);
    g->n_rungs = 0;
}

/* Gives a group that keeps all rows in native form the codecs for a short budget.  The group gets none if these do
 * not fit its heads. */
static int rungs_open(struct kv_group *g)
{
    const struct kv_policy *p = &g->policy;
    if (p->kind != KV_ROWS || p->window || p->chunk || p->sinks || g->seal.tile) return 0;
    for (uint32_t r = 0; r < KV_RUNGS; r++) {
        struct kv_codec_pair pair = {0};
        struct kv_codec *k, *v;
        for (int i = 0; i < 2; i++) {
            TRY(kv_codec_usual("kvik", &pair.plane[i]));
            TRY(kv_codec_set(&pair.plane[i], "nbits", preset_rung_bits[r]));
        }
        int e = kv_codec_pair_open(&pair, &g->plane[0].shape, &g->plane[1].shape, &k, &v,
                                   &g->rung[r].seal);
        if (e < 0) {
            rungs_close(g);
            return e == ERR_ARG ? 0 : e;
        }
        g->rung[r].codec[0] = k;
        g->rung[r].codec[1] = v;
        g->n_rungs = r + 1;
    }
    return 0;
}

void preset_close(struct kv_group *group, uint32_t n_groups)
{
    for (uint32_t i = 0; i < n_groups; i++)
        rungs_close(&group[i]);
    for (uint32_t i = 0; i < n_groups; i++)
        for (uint32_t p = 0; p < group[i].n_planes; p++) {
            kv_codec_close(group[i].plane[p].codec);
            group[i].plane[p].codec = NULL;
        }
}

/* Returns the group of site i, and counts the site in it.  The group is new unless an earlier site has the same
 * policy, shapes and codecs. */
static uint32_t group_for(const struct kv_site *site, uint32_t i, const struct preset_options *o,
                          struct kv_group *group, uint32_t *n, const uint32_t *number)
{
    struct kv_group g = group_of(&site[i], o);
    struct kv_codec_pair codecs = codecs_of(&site[i], o);
    for (uint32_t k = 0; k < i; k++) {
        struct kv_codec_pair other = codecs_of(&site[k], o);
        if (!same_group(&group[number[k]], &g) || !same_codecs(&codecs, &other)) continue;
        group[number[k]].n_sites++;
        return number[k];
    }
    group[*n] = g;
    group[*n].n_sites = 1;
    return (*n)++;
}

/* Names the layers of group j by ranges.  If the text has no room for all ranges, it ends with a digest of all
 * layers. */
static void name_layers(const struct kv_site *site, uint32_t n_sites, const uint32_t *number,
                        uint32_t j, char out[sizeof((struct kv_group *)0)->layers])
{
    enum { ROOM = sizeof((struct kv_group *)0)->layers, TAIL = 18 };
    uint64_t all = 0xcbf29ce484222325u; /* FNV-1a */
    size_t at = 0;
    for (uint32_t i = 0, end; i < n_sites; i = end + 1) {
        char range[32];
        end = i;
        if (number[i] != j) continue;
        all = (all ^ site[i].layer) * 0x100000001b3u;
        for (; end + 1 < n_sites && number[end + 1] == j; end++)
            all = (all ^ site[end + 1].layer) * 0x100000001b3u;
        int n = snprintf(range, sizeof range, end > i ? "%s%u-%u" : "%s%u", at ? " " : "",
                         site[i].layer, site[end].layer);
        if (at + (size_t)n + TAIL < ROOM) {
            memcpy(out + at, range, (size_t)n + 1);
            at += (size_t)n;
        } else {
            at = ROOM; /* the rest is in the digest */
        }
    }
    if (at == ROOM) snprintf(out + strlen(out), TAIL, " %016llx", (unsigned long long)all);
}

int preset_groups(const struct kv_site *site, uint32_t n_sites, const struct preset_options *o,
                  struct kv_group *group, uint32_t *number)
{
    uint32_t n = 0, next = 0; /* until all groups are known, number[i] is the number of a group */
    if (o->block_rows % KV_STRIP || o->block_rows > KV_ATOM || o->block_rows & (o->block_rows - 1))
        return ERR(ARG, "block_rows %u: 16, 32, 64, 128 or 256", o->block_rows);
    for (uint32_t i = 0; i < n_sites; i++)
        number[i] = group_for(site, i, o, group, &n, number);
    for (uint32_t j = 0; preset_encodes(o) && j < n; j++) {
        uint32_t i = 0;
        while (number[i] != j)
            i++;
        struct kv_codec_pair pair = codecs_of(&site[i], o);
        int e = codecs_open(&group[j], &pair);
        if (e < 0) {
            preset_close(group, j);
            return e;
        }
    }
    for (uint32_t j = 0; o->rungs && j < n; j++) {
        int e = rungs_open(&group[j]);
        if (e < 0) {
            preset_close(group, n);
            return e;
        }
    }
    for (uint32_t j = 0; j < n; j++) {
        group[j].site0 = next;
        next += group[j].n_sites;
        group[j].n_sites = 0;
    }
    for (uint32_t j = 0; o->layers.n && j < n; j++)
        name_layers(site, n_sites, number, j, group[j].layers);
    for (uint32_t i = 0; i < n_sites; i++)
        number[i] = group[number[i]].site0 + group[number[i]].n_sites++;
    return (int)n;
}

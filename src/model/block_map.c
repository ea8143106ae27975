/* block_map.c - describes as JSON where the blocks of one sequence, or of all sequences, are, and predicts what a
 * sequence will hold. */
#include "base/buf.h"
#include "model/model.h"

enum { MOST_GATHERED = 4096 }; /* rows before the end at which a plan looks for the peak */

static json_t *form(const struct kv_survey_form *f)
{
    return json_pack("{s:i, s:i, s:i, s:I, s:I, s:I}", "count", (int)f->pages, "shared",
                     (int)f->shared, "spilled", (int)f->spilled, "bytes", (json_int_t)f->bytes,
                     "shared_bytes", (json_int_t)f->shared_bytes, "spilled_bytes",
                     (json_int_t)f->spilled_bytes);
}

static char letter(enum kv_place p)
{
    if (p == KV_BLOCK_GONE) return '.';
    char c = p & KV_BLOCK_OPEN ? 'o' : 'r';
    if (p & KV_BLOCK_SPILLED) c = 'd';
    if (p & KV_BLOCK_ENCODED) c = p & KV_BLOCK_SPILLED ? 'z' : 'e';
    if (p & KV_BLOCK_KEPT) return p & KV_BLOCK_SPILLED ? 'K' : 'k';
    return p & KV_BLOCK_SHARED ? (char)(c - 'a' + 'A') : c;
}

static json_t *letters(const struct kv *kv, kv_seq s, uint32_t group, uint32_t blocks)
{
    struct buf b;
    int e = 0;
    buf_init(&b, (size_t)1 << 30);
    for (uint32_t i = 0; e >= 0 && i < blocks; i++)
        e = buf_putc(&b, letter(kv_survey_block(kv, s, group, i)));
    json_t *j = e < 0 ? NULL : json_stringn(b.data ? b.data : "", b.len);
    buf_done(&b);
    return j;
}

static json_t *layers(const struct exec *x, const struct kv_group *g)
{
    json_t *a = json_array();
    for (uint32_t i = 0; i < x->m->n_sites; i++)
        if (x->site[i] >= g->site0 && x->site[i] < g->site0 + g->n_sites)
            json_array_append_new(a, json_integer(x->m->site[i].layer));
    return a;
}

/* Returns the bytes that the codecs write for one tile, at all sites; the page of a tile is padded. */
static size_t coded(const struct kv_group *g)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < g->n_planes; i++)
        if (g->plane[i].codec)
            sum += g->plane[i].codec->bytes(g->plane[i].codec, &g->plane[i].shape) * g->n_sites;
    return sum;
}

static json_t *group(const struct exec *x, kv_seq s, uint32_t gi)
{
    static const char *const kinds[] = {"rows", "state", "frozen"};
    const struct kv_group *g = kv_group_now(x->kv, gi);
    const struct kv_policy *p = &g->policy;
    const struct kv_codec *codec = g->n_planes ? g->plane[0].codec : NULL;
    struct kv_survey v;
    if (kv_survey(x->kv, s, gi, &v) < 0) return NULL;
    json_t *o =
        json_pack("{s:o, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "layers", layers(x, g), "kind",
                  kinds[p->kind], "window", (int)p->window, "chunk", (int)p->chunk, "sinks",
                  (int)p->sinks, "rows", (int)v.rows, "block_rows", (int)v.block_rows, "tile_rows",
                  (int)v.tile_rows, "snapshots", (int)v.keeps);
    if (!o) return NULL;
    json_object_set_new(o, "lead", json_integer(g->seal.lead));
    json_object_set_new(o, "residual_length", json_integer(g->seal.resid));
    json_object_set_new(o, "block_bytes", json_integer((json_int_t)v.page[0]));
    json_object_set_new(o, "tile_bytes", json_integer((json_int_t)v.page[1]));
    json_object_set_new(o, "tile_coded", json_integer((json_int_t)coded(g)));
    json_object_set_new(o, "codec", codec ? json_string(codec->name) : json_null());
    json_object_set_new(o, "blocks", form(&v.form[0]));
    json_object_set_new(o, "tiles", form(&v.form[1]));
    if (json_object_set_new(o, "map", letters(x->kv, s, gi, v.blocks)) == 0) return o;
    json_decref(o);
    return NULL;
}

int exec_map(const struct exec *x, kv_seq s, json_t **out)
{
    json_t *groups = json_array();
    for (uint32_t i = 0; i < x->n_groups; i++)
        json_array_append_new(groups, group(x, s, i));
    bool whole = json_array_size(groups) == x->n_groups;
    json_t *o = json_pack("{s:I, s:o}", "tokens", (json_int_t)kv_len(x->kv, s), "groups", groups);
    if (!o || !whole) {
        json_decref(o);
        return ERR(NOMEM, "out of memory");
    }
    *out = o;
    return 0;
}

/* Returns the letters of all blocks or tiles of a group; NULL if memory is short. */
static json_t *store_letters(const struct kv *kv, uint32_t gi, uint32_t form)
{
    uint32_t n = kv_store_blocks(kv, gi, form);
    uint8_t *place = mem_alloc(n ? n : 1);
    if (!place) return NULL;
    kv_store_map(kv, gi, form, place);
    for (uint32_t i = 0; i < n; i++)
        place[i] = (uint8_t)letter(place[i]);
    json_t *j = json_stringn((const char *)place, n);
    mem_free(place);
    return j;
}

static json_t *store_group(const struct exec *x, uint32_t gi)
{
    static const char *const kinds[] = {"rows", "state", "frozen"};
    const struct kv_group *g = kv_group_now(x->kv, gi);
    const struct kv_codec *codec = g->n_planes ? g->plane[0].codec : NULL;
    return json_pack("{s:o, s:s, s:s?, s:o, s:o}", "layers", layers(x, g), "kind",
                     kinds[g->policy.kind], "codec", codec ? codec->name : NULL, "blocks",
                     store_letters(x->kv, gi, 0), "tiles", store_letters(x->kv, gi, 1));
}

int exec_store_map(const struct exec *x, json_t **out)
{
    json_t *groups = json_array();
    for (uint32_t i = 0; i < x->n_groups; i++)
        json_array_append_new(groups, store_group(x, i));
    bool whole = json_array_size(groups) == x->n_groups;
    json_t *o = json_pack("{s:o}", "groups", groups);
    if (!o || !whole) {
        json_decref(o);
        return ERR(NOMEM, "out of memory");
    }
    *out = o;
    return 0;
}

int exec_plan(const struct exec *x, uint32_t prompt, uint32_t n, json_t **out)
{
    struct kv_held h, at;
    kv_held(x->kv, &(struct kv_growth){prompt, n}, &h);
    size_t bytes = h.raw + h.sealed + h.states, peak = MAX(kv_turn_peak(x->kv, prompt), bytes);
    /* before rows are quantized, they gather; a sequence holds most just before that */
    for (uint32_t i = n, rows = 0; i > prompt && rows < MOST_GATHERED; i--, rows++) {
        kv_held(x->kv, &(struct kv_growth){prompt, i}, &at);
        peak = MAX(peak, at.raw + at.sealed + at.states);
    }
    *out = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "bytes", (json_int_t)bytes, "rows",
        (json_int_t)h.raw, "quantized", (json_int_t)h.sealed, "states", (json_int_t)h.states, "own",
        (json_int_t)h.own, "streamed", (json_int_t)h.streamed, "peak", (json_int_t)peak, "metadata",
        (json_int_t)h.metadata, "fixed", (json_int_t)h.fixed, "seen", (json_int_t)h.seen);
    return *out ? 0 : ERR(NOMEM, "out of memory");
}

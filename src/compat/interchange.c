/* interchange.c - exports the contents of a sequence as arrays of f32 in memory, and imports them into a new
 * sequence.
 *
 * A layer of the model can have a site of rows, a site with a state, or one of each.  Every plane of a site is a
 * named array.  Export reads rows through kv/rows.h like every other reader, so quantized rows and pages on disk
 * need no code here.  Import appends the given rows where a forward would have computed them, as one turn.  f32
 * holds every row exactly, so rows that were exported raw come back with the same bits.
 *
 * The store has planes of states in the layout that kernels read.  Their shapes here are those of Transformers;
 * struct kv_site_plane says which planes are turned. */
#include "compat/padded.h"
#include "kv/rows.h"

#include <stdio.h>
#include <string.h>

KVIK_API void kvik_export_free(kvik_export *s)
{
    if (!s) return;
    for (uint32_t i = 0; s->layer && i < s->n_layers; i++) {
        for (uint32_t k = 0; s->layer[i].plane && k < s->layer[i].n_planes; k++)
            mem_free(s->layer[i].plane[k].data);
        mem_free(s->layer[i].plane);
        mem_free(s->layer[i].position);
    }
    mem_free(s->layer);
    mem_free(s->ids);
    mem_free(s);
}

KVIK_API const kvik_plane *kvik_layer_plane(const kvik_layer_rows *l, const char *name)
{
    if (!l || !name) {
        (void)ERR(ARG, "a layer and the name of a plane are needed, and NULL was given");
        return NULL;
    }
    for (uint32_t i = 0; l->plane && i < l->n_planes; i++)
        if (l->plane[i].name && strcmp(l->plane[i].name, name) == 0) return &l->plane[i];
    return NULL;
}

static bool holds_rows(const struct exec *x, uint32_t site)
{
    return x->m->site[site].kind == KV_ROWS;
}

static const char *plane_name(const struct kv_site *site, uint32_t plane)
{
    static const char *const of_rows[] = {"keys", "values"}, *const frozen[] = {"cross_keys",
                                                                                "cross_values"};
    return site->kind == KV_ROWS     ? of_rows[plane]
           : site->kind == KV_FROZEN ? frozen[plane]
                                     : site->plane[plane].name;
}

/* Returns the name and the shape of a plane; if it holds rows, with `rows` of them. */
static kvik_plane plane_form(const struct kv_site *site, uint32_t plane, uint32_t rows)
{
    const struct kv_site_plane *p = &site->plane[plane];
    uint32_t outer = p->turned ? p->dim : p->heads, inner = p->turned ? p->heads : p->dim;
    kvik_plane f = {.name = plane_name(site, plane), .dtype = KVIK_F32};
    if (site->kind != KV_STATE) {
        f.n_dims = 3;
        f.dim[0] = p->heads, f.dim[1] = rows, f.dim[2] = p->dim;
    } else if (p->parts) {
        f.n_dims = 3;
        f.dim[0] = p->parts, f.dim[1] = outer / p->parts, f.dim[2] = inner;
    } else {
        f.n_dims = 2;
        f.dim[0] = outer, f.dim[1] = inner;
    }
    return f;
}

static size_t plane_values(const kvik_plane *p)
{
    size_t n = 1;
    for (uint32_t i = 0; i < p->n_dims; i++)
        n *= p->dim[i];
    return n;
}

/* Refuses sites that an export cannot hold. */
static int site_check(const struct exec *x, uint32_t site)
{
    const struct kv_site *of = x->m->site;
    for (uint32_t i = 0; i < site; i++)
        if (of[i].layer == of[site].layer && of[i].kind == of[site].kind)
            return ERR(UNSUPPORTED,
                       "layer %u has two sites of one kind; an export has room for one",
                       of[site].layer);
    return 0;
}

/* Adds the planes of a site to its layer. */
static int site_new(const struct exec *x, uint32_t site, kv_seq s, kvik_export *p)
{
    uint32_t len = kv_len(x->kv, s);
    const struct kv_site *of = &x->m->site[site];
    kvik_layer_rows *l = &p->layer[of->layer];
    TRY(site_check(x, site));
    if (!l->plane) l->plane = mem_array(2 * KV_MAX_PLANES, sizeof *l->plane);
    if (!l->plane) return ERR_NOMEM;
    if (holds_rows(x, site)) {
        uint32_t sinks, lo;
        l->rows = rows_seen(exec_group(x, site), len, &sinks, &lo);
        l->position = mem_array(MAX(l->rows, 1), sizeof *l->position);
        if (!l->position) return ERR_NOMEM;
        for (uint32_t i = 0; i < l->rows; i++)
            l->position[i] = (int32_t)(i < sinks ? i : lo + i - sinks);
    }
    for (uint32_t i = 0; i < of->n_planes; i++) {
        kvik_plane *to = &l->plane[l->n_planes++];
        *to = plane_form(of, i, of->kind == KV_FROZEN ? kv_cross(x->kv, s) : l->rows);
        to->data = mem_array(MAX(plane_values(to), 1), sizeof(float));
        if (!to->data) return ERR_NOMEM;
    }
    return 0;
}

static int export_new(const struct exec *x, kv_seq s, kvik_export **out)
{
    uint32_t len = kv_len(x->kv, s);
    kvik_export *p = mem_alloc(sizeof *p);
    if (!p) return ERR_NOMEM;
    p->size = sizeof *p;
    p->n_layers = x->m->n_layers;
    p->length = len;
    p->regime = kv_salt(x->kv, s).regime;
    p->pad = kv_salt(x->kv, s).pad;
    p->ids = mem_array(MAX(len, 1), sizeof *p->ids);
    p->layer = mem_array(p->n_layers, sizeof *p->layer);
    struct kv_salt salt = kv_salt(x->kv, s);
    memcpy(p->source, salt.source, sizeof p->source);
    int e = p->ids && p->layer ? 0 : ERR_NOMEM;
    if (e >= 0) memcpy(p->ids, kv_tokens(x->kv, s), len * sizeof *p->ids);
    for (uint32_t i = 0; e >= 0 && i < x->m->n_sites; i++)
        e = site_new(x, i, s, p);
    if (e < 0) {
        kvik_export_free(p);
        return e;
    }
    *out = p;
    return 0;
}

/* Copies a plane of a page to an array in Transformers' shape, or back.  from NULL: writes zeros. */
static void plane_copy(const struct kv_site_plane *p, const float *from, bool out, float *to)
{
    size_t rows = p->heads, cols = p->dim;
    if (!from)
        memset(to, 0, rows * cols * sizeof *to);
    else if (!p->turned)
        memcpy(to, from, rows * cols * sizeof *to);
    else
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < cols; c++) {
                size_t page = r * cols + c, array = c * rows + r;
                to[out ? array : page] = from[out ? page : array];
            }
}

/* Finds the arrays of a site's planes in its layer. */
static void site_data(const struct kv_site *site, const kvik_layer_rows *l,
                      float *data[KV_MAX_PLANES])
{
    for (uint32_t i = 0; i < site->n_planes; i++)
        data[i] = kvik_layer_plane(l, plane_name(site, i))->data;
}

/* Allocates room for any plane of a site. */
static float *plane_room(const struct kv_site *site)
{
    size_t most = 1;
    for (uint32_t i = 0; i < site->n_planes; i++)
        most = MAX(most, (size_t)site->plane[i].heads * site->plane[i].dim);
    return mem_array(most, sizeof(float));
}

static int state_out(const struct exec *x, struct rows_reader *r, uint32_t site,
                     float *const data[KV_MAX_PLANES])
{
    const struct kv_site *of = &x->m->site[site];
    struct kv_view v;
    float *room = plane_room(of);
    int e = room ? 0 : ERR_NOMEM;
    while (e >= 0 && (e = kv_next(r->step, x->site[site], &v)) > 0)
        for (uint32_t i = 0; i < of->n_planes; i++)
            plane_copy(&of->plane[i], rows_state(&v, v.from[0], i, room), true, data[i]);
    mem_free(room);
    return e;
}

static int site_out(const struct exec *x, struct rows_reader *r, uint32_t site, kvik_export *p)
{
    const struct kv_site *of = &x->m->site[site];
    float *data[KV_MAX_PLANES];
    site_data(of, &p->layer[of->layer], data);
    if (of->kind != KV_STATE)
        return rows_site(r, exec_group(x, site), x->site[site], data[0], data[1]);
    return state_out(x, r, site, data);
}

int export_of(kvik_cache *c, kv_seq s, kvik_export **out)
{
    struct exec *x = c->x;
    struct rows_reader r;
    kvik_export *p;
    if (!kv_tokens(x->kv, s)) return ERR(STALE, "the sequence was dropped");
    if (kv_borrowed(x->kv, s))
        return ERR(
            UNSUPPORTED,
            "%u rows of the sequence are chunks at other positions, which are kept as they were "
            "computed there; compute the text to export it",
            kv_borrowed(x->kv, s));
    if (regime_changes(x, s, 0))
        return ERR(
            UNSUPPORTED,
            "the sequence was cropped from a longer text, and its rows still have the rotary "
            "frequencies of that text; the next forward recomputes them, export after it");
    TRY(export_new(x, s, &p));
    int e = cache_full(c, cache_step(rows_open(x->kv, s, &r)));
    if (e >= 0) {
        for (uint32_t i = 0; e >= 0 && i < x->m->n_sites; i++)
            e = site_out(x, &r, i, p);
        int failed = rows_close(&r);
        if (e >= 0) e = failed;
    }
    if (e < 0) {
        kvik_export_free(p);
        return e;
    }
    *out = p;
    return 0;
}

KVIK_API int kvik_cache_export(kvik_cache *c, kvik_seq s, kvik_export **out)
{
    USE_CACHE(c);
    if (!out) return ERR(ARG, "a pointer for the export is needed, and NULL was given");
    return export_of(c, s, out);
}

static const char *shape_text(const kvik_plane *p, char text[64])
{
    int at = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < p->n_dims && at < 64; i++)
        at += snprintf(text + at, 64 - (size_t)at, "%s%u", i ? " x " : "", p->dim[i]);
    return text;
}

/* Checks that the layer has the planes of a site, in their shapes. */
static int check_planes(const kvik_layer_rows *l, const struct kv_site *site, uint32_t heard)
{
    for (uint32_t i = 0; i < site->n_planes; i++) {
        const kvik_plane want = plane_form(site, i, site->kind == KV_FROZEN ? heard : l->rows);
        const kvik_plane *p = kvik_layer_plane(l, want.name);
        char given[64], needed[64];
        if (!p || !p->data)
            return ERR(ARG, "layer %u: the plane \"%s\" is missing", site->layer, want.name);
        if (p->dtype != KVIK_F32)
            return ERR(UNSUPPORTED,
                       "layer %u: the plane \"%s\" has values of type %u; only KVIK_F32 is known",
                       site->layer, want.name, p->dtype);
        if (p->n_dims != want.n_dims ||
            memcmp(p->dim, want.dim, want.n_dims * sizeof *p->dim) != 0) {
            kvik_plane shown = *p;
            shown.n_dims = MIN(shown.n_dims, 4);
            return ERR(ARG, "layer %u: the plane \"%s\" has %s values, the model has %s",
                       site->layer, want.name, shape_text(&shown, given),
                       shape_text(&want, needed));
        }
    }
    return 0;
}

static int check_positions(const struct exec *x, const kvik_export *in, uint32_t site)
{
    uint32_t i = x->m->site[site].layer, held = 0;
    const kvik_layer_rows *l = &in->layer[i];
    struct kv_reach r = kv_reach(&exec_group(x, site)->policy, in->length, 0);
    if (l->rows && !l->position) return ERR(ARG, "layer %u: the positions are missing", i);
    for (uint32_t j = 0; j < l->rows; j++) {
        int32_t at = l->position[j];
        if (at < 0 || (uint32_t)at >= in->length || (j && at <= l->position[j - 1]))
            return ERR(ARG,
                       "layer %u: position %d; the %u rows must ascend within a sequence of %u", i,
                       at, l->rows, in->length);
        held += (uint32_t)at < r.sinks || (uint32_t)at >= r.lo;
    }
    if (held != r.sinks + in->length - r.lo)
        return ERR(ARG,
                   "layer %u: the export has %u of the %u rows that the next token sees; positions "
                   "%u to %u and the first %u are needed",
                   i, held, r.sinks + in->length - r.lo, r.lo, in->length, r.sinks);
    return 0;
}

/* Returns how many rows of an encoder the export has, by the first layer that has any. */
static uint32_t heard_of(const struct exec *x, const kvik_export *in)
{
    for (uint32_t i = 0; x->encode && i < in->n_layers; i++) {
        const kvik_layer_rows *l = &in->layer[i];
        for (uint32_t k = 0; l->plane && k < l->n_planes; k++)
            if (l->plane[k].name && strcmp(l->plane[k].name, "cross_keys") == 0 &&
                l->plane[k].n_dims == 3)
                return l->plane[k].dim[1];
    }
    return 0;
}

static int check_site(const struct exec *x, const kvik_export *in, uint32_t site)
{
    const struct kv_site *of = &x->m->site[site];
    TRY(site_check(x, site));
    TRY(check_planes(&in->layer[of->layer], of, heard_of(x, in)));
    return holds_rows(x, site) ? check_positions(x, in, site) : 0;
}

/* Checks that the layer has only planes that the model knows, and none twice. */
static int check_names(const struct exec *x, const kvik_layer_rows *l, uint32_t layer)
{
    if (l->n_planes && !l->plane) return ERR(ARG, "layer %u: the planes are missing", layer);
    for (uint32_t k = 0; k < l->n_planes; k++) {
        const char *name = l->plane[k].name;
        bool known = false;
        if (!name) return ERR(ARG, "layer %u: plane %u has no name", layer, k);
        if (kvik_layer_plane(l, name) != &l->plane[k])
            return ERR(ARG, "layer %u: two planes are named \"%s\"", layer, name);
        for (uint32_t i = 0; i < x->m->n_sites; i++)
            for (uint32_t p = 0; p < x->m->site[i].n_planes; p++)
                known |= x->m->site[i].layer == layer &&
                         strcmp(plane_name(&x->m->site[i], p), name) == 0;
        if (!known) return ERR(ARG, "layer %u: the model has no plane \"%s\"", layer, name);
    }
    return 0;
}

static int import_check(const struct exec *x, const kvik_export *in)
{
    if (in->n_layers != x->m->n_layers || !in->layer)
        return ERR(ARG, "the export has %u layers, the model has %u", in->n_layers, x->m->n_layers);
    if (!in->length) return ERR(ARG, "the export has no rows");
    if (in->length > x->max_len)
        return ERR(LIMIT, "%u rows do not fit in max_cache_len %u; open the cache with more",
                   in->length, x->max_len);
    for (uint32_t i = 0; in->ids && i < in->length; i++)
        if (in->ids[i] < -1 || (in->ids[i] >= 0 && (uint32_t)in->ids[i] >= x->m->vocab))
            return ERR(ARG, "token id %d is outside the vocabulary of %u", in->ids[i], x->m->vocab);
    if (in->regime && regime_of(x->m, in->regime) != in->regime)
        return ERR(ARG, "the model's rotary frequencies do not change at %u tokens", in->regime);
    for (uint32_t i = 0; i < in->n_layers; i++)
        TRY(check_names(x, &in->layer[i], i));
    if (x->encode && (!heard_of(x, in) || heard_of(x, in) > x->encoder_rows))
        return ERR(LIMIT, "the export has %u rows of an encoder, and 1 to %u are needed",
                   heard_of(x, in), x->encoder_rows);
    for (uint32_t i = 0; i < x->m->n_sites; i++)
        TRY(check_site(x, in, i));
    return 0;
}

/* Packs rows [done, done + n) of a plane for dev_kv_write.  Rows that no later token sees are zeros. */
static void pack_rows(const kvik_layer_rows *l, const kvik_plane *p, uint32_t done, uint32_t n,
                      float *out)
{
    uint32_t heads = p->dim[0], dim = p->dim[2];
    size_t width = (size_t)heads * dim;
    memset(out, 0, n * width * sizeof *out);
    for (uint32_t j = 0; j < l->rows; j++) {
        uint32_t at = (uint32_t)l->position[j];
        if (at >= done && at - done < n)
            rows_pack(p->data, l->rows, j, 1, heads, dim, out + (at - done) * width);
    }
}

/* Writes n packed rows of a plane. */
static int write_rows(struct exec *x, const struct kv_view *v, uint32_t plane, uint32_t n,
                      const float *packed)
{
    size_t width = (size_t)v->shape[plane].heads * v->shape[plane].dim;
    float *at = dev_lend(x->queue, packed, n * width * sizeof *at);
    if (!at) return ERR_NOMEM;
    dev_put(x->queue, at, packed, n * width * sizeof *at);
    dev_kv_write(x->queue, v, plane, at, width);
    return 0;
}

/* Writes those of rows [done, done + n) that one view takes. */
static int rows_in(struct exec *x, const struct kv_view *v, const struct kv_site *site,
                   const kvik_layer_rows *l, uint32_t done, uint32_t n, float *buffer)
{
    for (uint32_t i = 0; i < site->n_planes; i++) {
        pack_rows(l, kvik_layer_plane(l, plane_name(site, i)), done, n, buffer);
        TRY(write_rows(x, v, i, n, buffer));
    }
    dev_kv_seal(x->queue, v);
    return 0;
}

/* Writes the pages of states in this step.  An export has only the state after its last token.  Earlier states are
 * zeros, which nobody reads (kv_unseen). */
static int state_in(const struct kv_view *v, const struct kv_site *site, const kvik_layer_rows *l,
                    uint32_t n, bool last)
{
    float *data[KV_MAX_PLANES], *room = plane_room(site);
    if (!room) return ERR_NOMEM;
    site_data(site, l, data);
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t i = 0; v->dst[t] && i < site->n_planes; i++) {
            plane_copy(&site->plane[i], last && t + 1 == n ? data[i] : NULL, false, room);
            rows_state_put(v, v->dst[t], i, room);
        }
    mem_free(room);
    return 0;
}

static int import_step(struct exec *x, const kvik_export *in, kv_seq s, uint32_t done, uint32_t n,
                       float *buffer)
{
    struct kv_step *st;
    struct kv_view v;
    bool last = done + n == in->length;
    struct kv_span span = {.seq = s,
                           .n = n,
                           .tok = in->ids ? in->ids + done : NULL,
                           .turn = in->length > 1,
                           .last = last};
    TRY(kv_begin(x->kv, &span, 1, &st));
    int e = 0;
    for (uint32_t i = 0; e >= 0 && i < x->m->n_sites; i++) {
        const struct kv_site *site = &x->m->site[i];
        const kvik_layer_rows *l = &in->layer[site->layer];
        if (site->kind == KV_FROZEN) continue;
        while (e >= 0 && (e = kv_next(st, x->site[i], &v)) > 0)
            if (site->kind == KV_STATE)
                e = state_in(&v, site, l, n, last);
            else if (v.first)
                e = rows_in(x, &v, site, l, done, n, buffer);
    }
    if (e < 0) {
        kv_abort(st);
        return e;
    }
    return kv_commit(st, NULL);
}

/* Writes all rows of the encoder. */
static int import_cross(struct exec *x, const kvik_export *in, kv_seq s, uint32_t n, float *buffer)
{
    struct kv_step *st;
    struct kv_view v;
    struct kv_span span = {.seq = s, .n = n, .cross = true};
    TRY(kv_begin(x->kv, &span, 1, &st));
    int e = 0;
    for (uint32_t i = 0; e >= 0 && i < x->m->n_sites; i++) {
        const struct kv_site *site = &x->m->site[i];
        while (e >= 0 && site->kind == KV_FROZEN && (e = kv_next(st, x->site[i], &v)) > 0) {
            for (uint32_t k = 0; e >= 0 && v.first && k < site->n_planes; k++) {
                const kvik_plane *p =
                    kvik_layer_plane(&in->layer[site->layer], plane_name(site, k));
                rows_pack(p->data, n, 0, n, p->dim[0], p->dim[2], buffer);
                e = write_rows(x, &v, k, n, buffer);
            }
            if (v.first) dev_kv_seal(x->queue, &v);
        }
    }
    if (e < 0) {
        kv_abort(st);
        return e;
    }
    return kv_commit(st, NULL);
}

KVIK_API int kvik_cache_import(kvik_cache *c, const kvik_export *given, kvik_seq *out)
{
    kvik_export full = {0}, *in = &full;
    USE_CACHE(c);
    struct exec *x = c->x;
    size_t widest = 0;
    kv_seq s;
    TRY(exec_idle(x));
    if (!given || !out) return ERR(ARG, "an import needs an export");
    TRY(SIZED_IN(&full, given, kvik_export));
    TRY(import_check(x, in));
    for (uint32_t i = 0; i < x->m->n_sites; i++)
        for (uint32_t p = 0; p < x->m->site[i].n_planes && x->m->site[i].kind != KV_STATE; p++)
            widest = MAX(widest, (size_t)x->m->site[i].plane[p].heads * x->m->site[i].plane[p].dim);
    uint32_t most = MIN(x->step_tokens, in->length), heard = heard_of(x, in);
    float *buffer = mem_array(MAX(most, heard), MAX(widest, 1) * sizeof *buffer);
    if (!buffer) return ERR_NOMEM;
    int e = exec_new(x, NULL, &s);
    struct kv_salt salt = {.regime = MAX(in->regime, regime_of(x->m, in->length)),
                           .pad = x->m->counts_padding ? in->pad : 0};
    if (x->encode) memcpy(salt.source, in->source, sizeof salt.source);
    if (e >= 0) e = kv_resalt(x->kv, s, &salt);
    if (e >= 0) {
        if (heard) e = import_cross(x, in, s, heard, buffer);
        for (uint32_t done = 0, n; e >= 0 && done < in->length; done += n) {
            n = MIN(most, in->length - done);
            if ((e = import_step(x, in, s, done, n, buffer)) < 0) break;
        }
        if (e >= 0) e = kv_unseen(x->kv, s);
        if (e < 0) (void)kv_drop(x->kv, s);
    }
    mem_free(buffer);
    if (e < 0) return cache_full(c, e);
    *out = s;
    return 0;
}

/* codec.c - finds codecs by name, and makes the pair of codecs for the two planes of a group, whose tiles must have the
 * same number of rows. */
#include "kv/codec.h"
#include "dev/reader.h"

#include <stdio.h>
#include <string.h>

#define TILE_MOST 4096u

extern const struct kv_codec_kind *const __start_kvik_codec[] __attribute__((visibility("hidden")));
extern const struct kv_codec_kind *const __stop_kvik_codec[] __attribute__((visibility("hidden")));

const struct kv_codec_kind *kv_codec_at(uint32_t i)
{
    size_t n = (size_t)(__stop_kvik_codec - __start_kvik_codec);
    return i < n ? __start_kvik_codec[i] : NULL;
}

const struct kv_codec_kind *kv_codec_find(const char *backend)
{
    const struct kv_codec_kind *k;
    for (uint32_t i = 0; (k = kv_codec_at(i)); i++)
        if (strcmp(k->name, backend) == 0) return k;
    return NULL;
}

void kv_codec_names(char out[KV_CODEC_LIST])
{
    const struct kv_codec_kind *k;
    size_t at = 0;
    out[0] = 0;
    for (uint32_t i = 0; (k = kv_codec_at(i)) && at < KV_CODEC_LIST; i++)
        at += (size_t)snprintf(out + at, KV_CODEC_LIST - at, "%s%s", at ? ", " : "", k->name);
}

static int unknown(const char *backend)
{
    char list[KV_CODEC_LIST];
    kv_codec_names(list);
    return ERR(ARG, "backend \"%s\" is not known; there are: %s", backend, list);
}

int kv_codec_usual(const char *backend, struct kv_codec_options *out)
{
    const struct kv_codec_kind *kind = kv_codec_find(backend);
    if (!kind) return unknown(backend);
    *out = (struct kv_codec_options){.kind = kind};
    for (uint32_t i = 0; i < kind->n_options && i < KV_CODEC_OPTIONS; i++)
        out->value[i] = kind->option[i].usual;
    return 0;
}

int kv_codec_option_at(const struct kv_codec_kind *kind, const char *name)
{
    for (uint32_t i = 0; kind && i < kind->n_options; i++)
        if (strcmp(kind->option[i].name, name) == 0) return (int)i;
    return -1;
}

int kv_codec_set(struct kv_codec_options *o, const char *name, int64_t value)
{
    int i = kv_codec_option_at(o->kind, name);
    if (i < 0)
        return ERR(ARG, "backend \"%s\" has no option %s", o->kind ? o->kind->name : KV_CODEC_NONE,
                   name);
    const struct kv_codec_option *p = &o->kind->option[i];
    if (value < p->min || value > p->max)
        return ERR(ARG, "%s must be an integer from %d to %d", name, p->min, p->max);
    o->value[i] = (int32_t)value;
    return 0;
}

static uint32_t common_tile(uint32_t a, uint32_t b)
{
    uint32_t x = a, y = b;
    while (y) {
        uint32_t r = x % y;
        x = y;
        y = r;
    }
    return a / x * b; /* both are at most TILE_MOST */
}

/* Checks the functions and numbers that every kind must have. */
static int sound(const struct kv_codec_kind *kind)
{
    if (!kind->name || !kind->open || kind->n_options > KV_CODEC_OPTIONS ||
        (kind->n_options && !kind->option))
        return ERR(ARG, "codec %s: a kind has a name, the function open, and at most %d options",
                   kind->name ? kind->name : "?", KV_CODEC_OPTIONS);
    return 0;
}

int kv_codec_pair_check(const struct kv_codec_pair *o)
{
    for (int p = 0; p < 2; p++) {
        const struct kv_codec_kind *kind = o->plane[p].kind;
        if (!kind) continue;
        TRY(sound(kind));
        if (kind->check) TRY(kind->check(&o->plane[p], p == 0));
    }
    return 0;
}

/* Checks the functions of a reader for one plane. */
static int functions_sound(const struct kv_codec *c, const struct kv_reader *r, bool key,
                           const char *isa)
{
    bool sums = r->score || r->add;
    if (c->lossless && (sums || r->query || r->end))
        return ERR(ARG,
                   "codec %s: lossless rows are summed as raw rows, by a reader without query, "
                   "score, add and end",
                   c->name);
    if (sums && r->strips)
        return ERR(ARG, "codec %s: its reader for %s makes strips or sums, not both", c->name, isa);
    if (sums && !(key ? r->score != NULL : r->add != NULL))
        return ERR(ARG, "codec %s: its reader for %s lacks %s", c->name, isa,
                   key ? "score, which keys need" : "add, which values need");
    if (!sums && !r->strips && c->tile % KV_STRIP)
        return ERR(ARG, "codec %s: rows are read in place in tiles of whole strips, not of %u rows",
                   c->name, c->tile);
    return 0;
}

/* True if two readers are of the same kind (reader.h): strips, sums or neither. */
static bool same_kind(const struct kv_reader *a, const struct kv_reader *b)
{
    return !a->strips == !b->strips && !a->score == !b->score && !a->add == !b->add;
}

static int reader_sound(const struct kv_codec *c, bool key)
{
    if (!c->reader) return 0;
    if (!c->reader[DEV_REF])
        return ERR(ARG, "codec %s: its reader lacks a scalar reference", c->name);
    for (int isa = 0; isa < DEV_ISAS; isa++)
        if (c->reader[isa]) {
            TRY(functions_sound(c, c->reader[isa], key, dev_isa_names()[isa]));
            /* All instruction sets add in one order.  And a rotation asks the scalar reader which functions exist. */
            if (!same_kind(c->reader[isa], c->reader[DEV_REF]))
                return ERR(
                    ARG,
                    "codec %s: its reader for %s gives rows in another way than the scalar one",
                    c->name, dev_isa_names()[isa]);
        }
    return 0;
}

int kv_codec_open(const struct kv_codec_options *o, const struct kv_shape *s, bool key,
                  uint32_t tile, struct kv_codec **out)
{
    struct kv_codec *made = NULL;
    TRY(o->kind->open(o, s, key, tile, &made));
    made->kind = o->kind;
    int e = reader_sound(made, key);
    if (e < 0)
        kv_codec_close(made);
    else
        *out = made;
    return e;
}

void kv_codec_close(const struct kv_codec *c)
{
    if (c && c->kind && c->kind->close) c->kind->close((struct kv_codec *)(uintptr_t)c);
    mem_free((void *)(uintptr_t)c);
}

/* Replaces *c by an instance for plane p with the given tile; tile 0: the kind chooses. */
static int plane_open(const struct kv_codec_options *o, const struct kv_shape *s, int p,
                      uint32_t tile, struct kv_codec **c)
{
    char text[KV_CODEC_TEXT];
    struct kv_codec *made = NULL;
    if (tile && *c && (*c)->tile == tile) return 0;
    TRY(kv_codec_open(o, s, p == 0, tile, &made));
    kv_codec_close(*c);
    *c = made;
    if (!made->tile || made->tile > TILE_MOST)
        return ERR(ARG, "codec \"%s\": a tile of %u rows; 1 to %u are possible", o->kind->name,
                   made->tile, TILE_MOST);
    return kv_codec_describe(made, text);
}

static int pair_open(const struct kv_codec_options o[2], const struct kv_shape *const s[2],
                     struct kv_codec *c[2])
{
    for (int p = 0; p < 2; p++)
        TRY(plane_open(&o[p], s[p], p, 0, &c[p]));
    uint32_t a = c[0]->tile, b = c[1]->tile, tile = common_tile(a, b);
    if (tile > TILE_MOST)
        return ERR(
            ARG,
            "keys need tiles of %u rows and values tiles of %u; their common multiple %u exceeds %u; use "
            "powers of two",
            a, b, tile, TILE_MOST);
    for (int p = 0; p < 2; p++)
        TRY(plane_open(&o[p], s[p], p, tile, &c[p]));
    return 0;
}

int kv_codec_pair_open(const struct kv_codec_pair *o, const struct kv_shape *k,
                       const struct kv_shape *v, struct kv_codec **kc, struct kv_codec **vc,
                       struct kv_seal *seal)
{
    struct kv_codec_options plane[2] = {o->plane[0], o->plane[1]};
    struct kv_codec *c[2] = {NULL, NULL};
    bool turns = false, gathers = false;
    if (!plane[0].kind && !plane[1].kind) {
        *kc = *vc = NULL;
        *seal = (struct kv_seal){0};
        return 0;
    }
    TRY(kv_codec_pair_check(o));
    for (int p = 0; p < 2; p++) {
        if (!plane[p].kind) TRY(kv_codec_usual(KV_CODEC_NONE, &plane[p]));
        turns |= plane[p].kind->turns;
        gathers |= plane[p].kind->turns && !plane[p].kind->at_once;
    }
    int e = pair_open(plane, (const struct kv_shape *const[]){k, v}, c);
    if (e < 0) {
        kv_codec_close(c[0]);
        kv_codec_close(c[1]);
        return e;
    }
    *kc = c[0];
    *vc = c[1];
    *seal = (struct kv_seal){.tile = c[0]->tile,
                             .lead = MAX(c[0]->lead, c[1]->lead),
                             /* 0 and 1 both mean that every update is flushed */
                             .resid = gathers ? MAX(o->residual_length, 1)
                                      : turns ? 1
                                              : 0};
    return 0;
}

int kv_codec_no_parameters(const struct kv_codec *c, char *out, size_t n)
{
    (void)c;
    if (n) out[0] = '\0';
    return 0;
}

int kv_codec_describe(const struct kv_codec *c, char out[KV_CODEC_TEXT])
{
    out[0] = '\0';
    if (!c->name || !c->describe)
        return ERR(ARG,
                   "codec %s does not describe its parameters, so tiles saved with others could be "
                   "taken for its own; give struct kv_codec a describe function",
                   c->name ? c->name : "?");
    int n = c->describe(c, out, KV_CODEC_TEXT);
    if (n < 0 || n >= (int)KV_CODEC_TEXT || strlen(out) != (size_t)n)
        return ERR(ARG, "codec %s: its description is %d bytes long, at most %u", c->name, n,
                   KV_CODEC_TEXT - 1);
    return n;
}

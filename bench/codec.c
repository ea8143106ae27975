/* codec.c - attention over sealed tiles, per codec next to native rows, and the cost of quantizing a row of all sites. The
 * shape is SmolLM2's (9 query heads, 3 kv heads, dim 64, f16, 30 sites). Attention is that of one token that decodes, of a
 * block of prefill and of eight forks, in milliseconds for a token.
 * Time is the processor time of one thread, so that other load on the machine disturbs it less.
 *
 *     build/release/bench_codec [DEPTH [ISA [NAME]]]
 *
 * NAME: only subjects that begin so. */
#include "kv/codec.h"
#include "dev/dev.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HEADS = 9, KV_HEADS = 3, DIM = 64, SITES = 30, RUNS = 5, BLOCK = 64, FORKS = 8 };

struct subject {
    const char *name;
    const char *backend;    /* NULL: native */
    int nbits, axis, group; /* group 0: the codec has no groups */
};
static const struct subject subjects[] = {
    {"native f16", NULL, 0, 0, 0},
    {"quanto 4 axis 0 g64", "quanto", 4, 0, 64},
    {"quanto 2 axis 0 g64", "quanto", 2, 0, 64},
    {"quanto 4 axis -1 g64", "quanto", 4, -1, 64},
    {"hqq 4 axis 1 g64", "hqq", 4, 1, 64},
    {"hqq 2 axis 1 g64", "hqq", 2, 1, 64},
    {"hqq 8 axis 1 g64", "hqq", 8, 1, 64},
    {"hqq 4 axis 0 g64", "hqq", 4, 0, 64},
    {"kvik 8", "kvik", 8, 0, 0},
    {"kvik 4", "kvik", 4, 0, 0},
    {"kvik 3", "kvik", 3, 0, 0},
    {"kvik 2", "kvik", 2, 0, 0},
};

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const char *what)
{
    fprintf(stderr, "bench_codec: %s: %s\n", what, err_last());
    exit(1);
}

struct setup {
    unsigned char *raw, *sealed; /* [site][page] */
    uint32_t *raw_table, *table, depth;
    uint32_t pos[BLOCK], hi[BLOCK], edge[BLOCK], lane[BLOCK], zero[BLOCK];
    uint32_t counts[3];
    float q[BLOCK * HEADS * DIM], out[BLOCK * HEADS * DIM];
    struct kv_view v;
    struct kv_codec *c[2];
};

static void open_codecs(struct setup *s, const struct subject *sub)
{
    struct kv_codec_pair o = {.residual_length = 128};
    struct kv_seal seal;
    for (int p = 0; p < 2; p++)
        if (kv_codec_usual(sub->backend, &o.plane[p]) < 0 ||
            kv_codec_set(&o.plane[p], "nbits", sub->nbits) < 0 ||
            (sub->group && (kv_codec_set(&o.plane[p], "axis", sub->axis) < 0 ||
                            kv_codec_set(&o.plane[p], "q_group_size", sub->group) < 0)))
            die(sub->name);
    if (kv_codec_pair_open(&o, &s->v.shape[0], &s->v.shape[1], &s->c[0], &s->c[1], &seal) < 0)
        die(sub->name);
}

static void set_up(struct setup *s, const struct subject *sub, uint32_t depth)
{
    size_t plane = (size_t)16 * KV_HEADS * DIM * 2, page = 2 * plane;
    uint32_t pages = depth / 16, r = 1;
    memset(s, 0, sizeof *s);
    s->depth = depth;
    s->v = (struct kv_view){
        .n_planes = 2,
        .shape = {{KV_HEADS, DIM, DT_F16, KV_STRIPS}, {KV_HEADS, DIM, DT_F16, KV_ROWMAJOR}},
        .row1 = UINT32_MAX,
        .raw1 = UINT32_MAX,
        .first = true,
        .last = true,
        .counts = s->counts,
        .slot = s->zero,
        .len = s->zero,
        .lane = s->lane,
        .pos = s->pos,
        .lo = s->zero,
        .hi = s->hi,
        .edge = s->edge,
        .dst = s->zero,
    };
    s->raw = mem_aligned((size_t)SITES * (pages + 1) * page);
    s->raw_table = mem_array(pages + 1, sizeof(uint32_t));
    if (!s->raw || !s->raw_table) die("memory");
    for (size_t i = 0; i < (size_t)SITES * (pages + 1) * page / 2; i++) {
        r = r * 1664525u + 1013904223u;
        ((uint16_t *)s->raw)[i] = (uint16_t)((r >> 16 & 0x83ffu) | 0x3800u);
    }
    for (uint32_t i = 0; i < BLOCK * HEADS * DIM; i++)
        s->q[i] = (float)(int)(r = r * 1664525u + 1013904223u) * 0x1p-31f;
    for (uint32_t i = 0; i < pages; i++)
        s->raw_table[i] = i + 1;
    s->v.raw = (struct kv_form){s->raw, page, 16, pages, s->raw_table, {0, plane}};
    if (!sub->backend) return;
    open_codecs(s, sub);
    size_t kb = (s->c[0]->bytes(s->c[0], &s->v.shape[0]) + 63) & ~(size_t)63;
    size_t vb = (s->c[1]->bytes(s->c[1], &s->v.shape[1]) + 63) & ~(size_t)63;
    uint32_t tile = s->c[0]->tile, tiles = depth / tile;
    s->v.sealed = (struct kv_form){NULL, kb + vb, tile, tiles, NULL, {0, kb}};
    s->sealed = mem_aligned((size_t)SITES * (tiles + 1) * (kb + vb));
    s->table = mem_array(tiles + 1, sizeof(uint32_t));
    if (!s->sealed || !s->table) die("memory");
    for (uint32_t i = 0; i < tiles; i++)
        s->table[i] = i + 1;
    s->v.sealed.table = s->table;
    s->v.codec[0] = s->c[0];
    s->v.codec[1] = s->c[1];
    for (uint32_t i = 0; i < BLOCK; i++)
        s->edge[i] = tiles * tile;
}

static void at_site(struct setup *s, uint32_t site)
{
    s->v.raw.base = s->raw + (size_t)site * (s->v.raw.stride + 1) * s->v.raw.grain;
    if (s->c[0])
        s->v.sealed.base = s->sealed + (size_t)site * (s->v.sealed.stride + 1) * s->v.sealed.grain;
}

/* Returns the seconds that quantizing all rows of all sites takes. */
static double seal(struct dev_queue *d, struct setup *s)
{
    double t0 = cpu_seconds();
    uint32_t enc[2] = {0, 0};
    s->v.enc = enc;
    s->counts[0] = s->counts[2] = 1;
    for (uint32_t site = 0; site < SITES; site++) {
        at_site(s, site);
        for (enc[1] = 0; enc[1] < s->v.sealed.stride; enc[1]++)
            dev_kv_seal(d, &s->v);
    }
    s->counts[2] = 0;
    return cpu_seconds() - t0;
}

/* Returns the seconds for a token of n: the last ones of a sequence, or forks that all see all rows. */
static double attend(struct dev_queue *d, struct setup *s, uint32_t n, bool forks)
{
    struct dev_attn a = {.q = s->q,
                         .ldq = HEADS * DIM,
                         .out = s->out,
                         .ldo = HEADS * DIM,
                         .n_heads = HEADS,
                         .scale = 0.125f};
    double best = 1e9;
    s->counts[0] = forks ? n : 1;
    s->counts[1] = n;
    for (uint32_t i = 0; i < n; i++) {
        s->lane[i] = forks ? i : 0;
        s->pos[i] = s->depth - 1 - (forks ? 0 : n - 1 - i);
        s->hi[i] = s->pos[i] + 1;
    }
    for (int run = 0; run < RUNS; run++) {
        double t0 = cpu_seconds();
        for (uint32_t site = 0; site < SITES; site++) {
            at_site(s, site);
            dev_attention(d, &s->v, &a);
        }
        double t = cpu_seconds() - t0;
        if (t < best) best = t;
    }
    return best / n;
}

int main(int argc, char **argv)
{
    static struct setup s;
    uint32_t depth = argc > 1 ? (uint32_t)atoi(argv[1]) / 128 * 128 : 4096;
    struct dev_config c = {1, argc > 2 ? argv[2] : NULL};
    struct dev_limits lim = {BLOCK, DIM, DIM, HEADS, DIM, depth + 128, 128};
    struct dev_queue *d;
    if (dev_queue_open(&dev_host, &c, &d) < 0 || dev_reserve(d, &lim) < 0) die("device");
    printf("%u rows, %u sites, %s, 1 thread\n", depth, SITES, dev_isa_name(d));
    for (size_t i = 0; i < countof(subjects); i++) {
        if (argc > 3 && strncmp(subjects[i].name, argv[3], strlen(argv[3])) != 0) continue;
        set_up(&s, &subjects[i], depth);
        double row = s.c[0] ? seal(d, &s) / depth : 0, one = attend(d, &s, 1, false),
               block = attend(d, &s, BLOCK, false), forks = attend(d, &s, FORKS, true);
        double bytes = s.c[0] ? (double)s.v.sealed.grain / s.v.sealed.rows
                              : (double)s.v.raw.grain / s.v.raw.rows;
        printf(
            "%-22s %6.1f bytes per row and site  one token %7.3f ms  of %d %7.3f  of %d forks %7.3f  encoding %7.1f us per row\n",
            subjects[i].name, bytes, one * 1e3, BLOCK, block * 1e3, FORKS, forks * 1e3, row * 1e6);
        fflush(stdout);
        kv_codec_close(s.c[0]);
        kv_codec_close(s.c[1]);
        mem_free(s.raw);
        mem_free(s.sealed);
        mem_free(s.raw_table);
        mem_free(s.table);
    }
    dev_queue_close(d);
    return 0;
}

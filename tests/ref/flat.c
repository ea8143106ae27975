/* flat.c - the definitions of kv.h computed the slow way: row by row, from the words of the
 * contract. */
#include "flat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t flat_value(uint64_t name, uint32_t site, uint32_t plane, uint32_t i)
{
    uint64_t x = name + site * 0x9E3779B1u + plane * 0x85EBCA77u + i * 0xC2B2AE3D27D4EB4Fu;
    return (uint32_t)(x * 0xD6E8FEB86659FD93u >> 29);
}

static size_t flip_bytes(const struct kv_codec *c, const struct kv_shape *s)
{
    return (size_t)c->tile * s->heads * s->dim * dtype_size(s->dtype);
}

size_t flat_offset(const struct kv_shape *s, uint32_t rows, uint32_t head, uint32_t r, uint32_t d)
{
    size_t i = (size_t)head * rows * s->dim;
    i += s->layout == KV_STRIPS ? ((size_t)(r / 16) * s->dim + d) * 16 + r % 16
                                : (size_t)r * s->dim + d;
    return i * dtype_size(s->dtype);
}

static void flip_encode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                        void *dst, const void *const *raw, uint32_t block_rows, uint32_t first,
                        uint32_t lead)
{
    uint32_t size = dtype_size(s->dtype);
    unsigned char *out = (unsigned char *)dst + (size_t)head * c->tile * s->dim * size;
    for (uint32_t r = c->tile; r-- > 0;)
        for (uint32_t d = 0; d < s->dim; d++) {
            uint32_t row = first + r;
            const unsigned char *in = raw[row / block_rows];
            size_t at = flat_offset(s, block_rows, 0, row % block_rows, d);
            for (uint32_t b = 0; b < size; b++)
                *out++ = r < lead ? 0xEE : (unsigned char)~in[at + b];
        }
}

static void flip_decode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                        void *dst, uint32_t first, const void *src)
{
    uint32_t size = dtype_size(s->dtype);
    const unsigned char *in = (const unsigned char *)src + (size_t)head * c->tile * s->dim * size;
    for (uint32_t r = c->tile; r-- > 0;)
        for (uint32_t d = 0; d < s->dim; d++)
            for (uint32_t b = 0; b < size; b++)
                ((unsigned char *)dst)[flat_offset(s, c->tile, 0, first + r, d) + b] =
                    (unsigned char)~*in++;
}

static int flip_describe(const struct kv_codec *c, char *out, size_t n)
{
    return snprintf(out, n, "%u rows", c->tile);
}

#define FLIP(n)                                                                                    \
    {                                                                                              \
        .name = "flip" #n, .tile = n, .lossless = n == 32, .describe = flip_describe,              \
        .bytes = flip_bytes, .encode = flip_encode, .decode = flip_decode                          \
    }
const struct kv_codec flat_codec[8] = {FLIP(16), FLIP(32), FLIP(64), FLIP(1),
                                       FLIP(2),  FLIP(4),  FLIP(8),  FLIP(128)};

/* --- Rows in a ledger: a tile has the number of the page where a head is written. */
static unsigned char **ledger;
static size_t n_ledger;

static size_t ledger_pad(const struct kv_codec *c, const struct kv_shape *s)
{
    return *(const int *)c->param ? 0 : (size_t)c->tile * s->dim * dtype_size(s->dtype) / 2;
}

static size_t ledger_bytes(const struct kv_codec *c, const struct kv_shape *s)
{
    return s->heads * (sizeof(uint64_t) + ledger_pad(c, s));
}

static void ledger_encode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                          void *dst, const void *const *raw, uint32_t block_rows, uint32_t first,
                          uint32_t lead)
{
    struct kv_shape one = {1, s->dim, s->dtype, s->layout};
    unsigned char *page = malloc(flip_bytes(c, &one));
    uint64_t at = n_ledger;
    ledger = realloc(ledger, ++n_ledger * sizeof *ledger);
    if (!page || !ledger) abort();
    ledger[at] = page;
    flip_encode(c, &one, 0, page, raw, block_rows, first, lead);
    memcpy((unsigned char *)dst + head * (sizeof at + ledger_pad(c, s)), &at, sizeof at);
}

static void ledger_decode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                          void *dst, uint32_t first, const void *src)
{
    struct kv_shape one = {1, s->dim, s->dtype, s->layout};
    uint64_t at;
    memcpy(&at, (const unsigned char *)src + head * (sizeof at + ledger_pad(c, s)), sizeof at);
    if (at >= n_ledger) abort(); /* bytes of another tile, or of none */
    flip_decode(c, &one, 0, dst, first, ledger[at]);
}

static int ledger_describe(const struct kv_codec *c, char *out, size_t n)
{
    return snprintf(out, n, "%u rows %d", c->tile, *(const int *)c->param);
}

static const int thick = 0, thin = 1;
#define LEDGER(n, how)                                                                             \
    {                                                                                              \
        .name = "ledger", .tile = n, .param = &how, .describe = ledger_describe,                   \
        .bytes = ledger_bytes, .encode = ledger_encode, .decode = ledger_decode                    \
    }
const struct kv_codec flat_ledger[2][3] = {
    {LEDGER(16, thick), LEDGER(64, thick), LEDGER(128, thick)},
    {LEDGER(16, thin), LEDGER(64, thin), LEDGER(128, thin)}};

void flat_ledger_close(void)
{
    while (n_ledger)
        free(ledger[--n_ledger]);
    free(ledger);
    ledger = NULL;
}

bool flat_sees(const struct kv_policy *p, uint32_t pos, uint32_t j)
{
    if (j > pos) return false;
    if (j < p->sinks) return true;
    if (p->window && pos - j >= p->window) return false;
    return !p->chunk || j / p->chunk == pos / p->chunk;
}

/* Returns the number of rows sealed for a query at pos whose update starts at row `start`, row by
 * row. */
uint32_t flat_edge(const struct kv_group *g, const uint32_t *first, uint32_t start, uint32_t pos)
{
    uint32_t tile = g->seal.tile, resid = g->seal.resid, edge = 0, held = 0;
    if (!tile) return 0;
    if (!resid) return pos / tile * tile;
    for (uint32_t at = 0; at < start;) {
        uint32_t end = at + 1;
        while (end < start && first[end] == at)
            end++;
        if (at == 0 || held + end - at >= resid) {
            edge = end;
            held = 0;
        } else {
            held += end - at;
        }
        at = end;
    }
    return edge / tile * tile;
}

void flat_put_row(const struct kv_view *v, uint32_t site, uint32_t dst, uint64_t name)
{
    uint32_t rows = v->raw.rows;
    for (uint32_t p = 0; p < v->n_planes; p++) {
        const struct kv_shape *s = &v->shape[p];
        unsigned char *page = v->raw.base + dst / rows * v->raw.grain + v->raw.offset[p];
        for (uint32_t h = 0; h < s->heads; h++)
            for (uint32_t d = 0; d < s->dim; d++) {
                uint32_t x = flat_value(name, site, p, h * s->dim + d);
                size_t at = s->layout == KV_FLAT ? (h * s->dim + d) * dtype_size(s->dtype)
                                                 : flat_offset(s, rows, h, dst % rows, d);
                memcpy(page + at, &x, dtype_size(s->dtype));
            }
    }
}

/* shared_block.c - values of a shared store; see shared_block.h. */
#include "session/shared_block.h"

#include <string.h>

bool block_trust;

void block_key(const uint8_t before[DIGEST_BYTES], const int32_t *tok, uint32_t n,
               uint8_t out[DIGEST_BYTES])
{
    struct digest d;
    digest_begin(&d);
    digest_add(&d, before, DIGEST_BYTES);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t t = (uint32_t)tok[i];
        const uint8_t b[4] = {(uint8_t)t, (uint8_t)(t >> 8), (uint8_t)(t >> 16),
                              (uint8_t)(t >> 24)};
        digest_add(&d, b, sizeof b);
    }
    digest_end(&d, out);
}

void block_end_key(const uint8_t block[DIGEST_BYTES], uint8_t out[DIGEST_BYTES])
{
    struct digest d;
    digest_begin(&d);
    digest_add(&d, block, DIGEST_BYTES);
    digest_text(&d, "end");
    digest_end(&d, out);
}

static void put32(unsigned char *out, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        out[i] = (unsigned char)(v >> 8 * i);
}

static uint32_t get32(const unsigned char *in)
{
    return in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

static uint64_t get64(const unsigned char *in)
{
    return get32(in) | (uint64_t)get32(in + 4) << 32;
}

static struct kv_chunk chunk_at(const struct block *b, uint32_t i, uint64_t *bytes)
{
    const unsigned char *p = b->part + (size_t)i * BLOCK_PART;
    *bytes = get64(p + 16);
    return (struct kv_chunk){get32(p), get32(p + 4), get32(p + 8), get32(p + 12)};
}

/* True if a comes before b. */
static bool ascends(const struct kv_chunk *a, const struct kv_chunk *b)
{
    if (a->group != b->group) return a->group < b->group;
    if (a->form != b->form) return a->form < b->form;
    return a->row < b->row && b->row - a->row >= a->n;
}

/* Checks the list of parts, whose bytes are all of `bytes`. */
static int check_parts(const struct block *b, uint64_t bytes)
{
    struct kv_chunk before = {0};
    uint32_t end = b->first + b->rows;
    for (uint32_t i = 0; i < b->n_parts; i++) {
        uint64_t n;
        struct kv_chunk c = chunk_at(b, i, &n);
        uint32_t first = b->kind == BLOCK_ROWS ? b->first : 0;
        bool state = b->kind == BLOCK_END && c.row == end && c.n == 1;
        bool inside = c.row >= first && c.row < end && c.n && c.n <= end - c.row;
        if (c.form > KV_CHUNK_SEALED || (!inside && !state) || (i && !ascends(&before, &c)) ||
            n > bytes)
            return ERR(FORMAT, "a value of the store has wrong parts");
        bytes -= n;
        before = c;
    }
    return bytes ? ERR(FORMAT, "a value of the store has bytes that belong to no part") : 0;
}

int block_read(const void *data, size_t n, const uint8_t key[DIGEST_BYTES], uint32_t kind,
               struct block *out)
{
    const unsigned char *p = data;
    uint8_t sum[DIGEST_BYTES];
    if (n < BLOCK_HEAD + DIGEST_BYTES || memcmp(p, BLOCK_MAGIC, 8) != 0)
        return ERR(FORMAT, "a value of the store is none of kvik");
    if (get32(p + 8) != BLOCK_VERSION)
        return ERR(FORMAT, "a value of the store has version %u", get32(p + 8));
    struct block b = {get32(p + 12), get32(p + 16),  get32(p + 20),
                      get32(p + 24), p + BLOCK_HEAD, NULL};
    uint64_t parts = (uint64_t)b.n_parts * BLOCK_PART, rest = n - BLOCK_HEAD - DIGEST_BYTES;
    if (b.kind != kind || get32(p + 28) || !b.rows || b.first > INT32_MAX || b.rows > INT32_MAX ||
        parts > rest || memcmp(p + 32, key, DIGEST_BYTES) != 0)
        return ERR(FORMAT, "a value of the store is that of other rows");
    digest_of(data, n - DIGEST_BYTES, sum);
    if (!block_trust && memcmp(sum, p + n - DIGEST_BYTES, DIGEST_BYTES) != 0)
        return ERR(FORMAT, "a value of the store is damaged");
    b.part = b.data + (rest - parts);
    TRY(check_parts(&b, rest - parts));
    *out = b;
    return 0;
}

const void *block_find(const struct block *b, const struct kv_chunk *c, size_t bytes)
{
    const unsigned char *at = b->data;
    uint64_t n;
    for (uint32_t i = 0; i < b->n_parts; i++, at += n) {
        struct kv_chunk k = chunk_at(b, i, &n);
        if (k.group == c->group && k.form == c->form && k.row == c->row && k.n == c->n)
            return n == bytes ? at : NULL;
    }
    return NULL;
}

void block_begin(struct block_build *b, uint32_t kind, uint32_t first, uint32_t rows,
                 const uint8_t key[DIGEST_BYTES])
{
    *b = (struct block_build){.kind = kind, .first = first, .rows = rows};
    buf_init(&b->data, BLOCK_MOST);
    buf_init(&b->part, BLOCK_MOST);
    memcpy(b->key, key, DIGEST_BYTES);
}

static int begin_data(struct block_build *b)
{
    static const unsigned char empty[BLOCK_HEAD];
    return b->data.len ? 0 : buf_append(&b->data, empty, sizeof empty);
}

int block_add(struct block_build *b, const struct kv_chunk *c, const void *data, size_t n)
{
    unsigned char part[BLOCK_PART];
    put32(part, c->group);
    put32(part + 4, c->form);
    put32(part + 8, c->row);
    put32(part + 12, c->n);
    put32(part + 16, (uint32_t)n);
    put32(part + 20, (uint32_t)((uint64_t)n >> 32));
    TRY(begin_data(b));
    TRY(buf_append(&b->data, data, n));
    TRY(buf_append(&b->part, part, sizeof part));
    b->n_parts++;
    return 0;
}

int block_finish(struct block_build *b)
{
    uint8_t sum[DIGEST_BYTES];
    TRY(begin_data(b));
    unsigned char *head = (unsigned char *)b->data.data;
    memcpy(head, BLOCK_MAGIC, 8);
    put32(head + 8, BLOCK_VERSION);
    put32(head + 12, b->kind);
    put32(head + 16, b->first);
    put32(head + 20, b->rows);
    put32(head + 24, b->n_parts);
    memcpy(head + 32, b->key, DIGEST_BYTES);
    TRY(buf_append(&b->data, b->part.data, b->part.len));
    digest_of(b->data.data, b->data.len, sum);
    return buf_append(&b->data, sum, sizeof sum);
}

void block_done(struct block_build *b)
{
    buf_done(&b->data);
    buf_done(&b->part);
}

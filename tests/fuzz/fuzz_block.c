/* fuzz_block.c - any bytes as a value of a shared store, first as they are and then with the checksum bypassed.  Of an accepted
 * value every part is within the bytes and the rows, written anew it is the same, and a store that loads its rows stays whole. */
#include "fuzz.h"
#include "session/shared_block.h"
#include "session_store.h"

#include <stdlib.h>

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) abort();                                                                         \
    } while (0)

struct giver {
    struct kv_source source; /* first */
    const struct block *b;
    const uint8_t *data;
    size_t size;
};

/* Gives the bytes of the value, or others where it lacks the chunk, so that loading goes on. */
static int give(struct kv_source *source, const struct kv_chunk *c, void *out, size_t bytes)
{
    const struct giver *g = (const struct giver *)source;
    const uint8_t *found = block_find(g->b, c, bytes);
    if (found) {
        MUST(found >= g->data && bytes <= (size_t)(g->data + g->size - found));
        memcpy(out, found, bytes);
    } else {
        memset(out, 0x5a, bytes);
    }
    return 0;
}

static void load(struct kv *kv, const struct block *b, const uint8_t *data, size_t size)
{
    static int32_t tok[STORE_LEN];
    uint32_t end = b->first + b->rows, zeros[15] = {0};
    const struct kv_turn turn = {0, end};
    kv_seq seq;
    if (end < 2 || end > STORE_LEN) return;
    const struct kv_image im = {.len = end,
                                .n_turns = 1,
                                .tok = tok,
                                .turn = &turn,
                                .unseen = zeros,
                                .n_keeps = zeros + 10,
                                .keep = zeros};
    struct giver g = {{.chunk = give}, b, data, size};
    if (kv_load(kv, &im, &g.source, &seq) >= 0) {
        MUST(kv_check(kv));
        (void)store_step(kv, seq, 1, false, false);
        MUST(kv_drop(kv, seq) == 0);
    }
    MUST(kv_check(kv));
}

/* Writes a value anew from what was read. */
static void again(const struct block *b, const uint8_t *data, size_t size)
{
    struct block_build w;
    const uint8_t *at = b->data;
    block_begin(&w, b->kind, b->first, b->rows, data + 32);
    for (uint32_t i = 0; i < b->n_parts; i++) {
        uint32_t c[6];
        memcpy(c, b->part + (size_t)i * BLOCK_PART, sizeof c);
        const struct kv_chunk k = {c[0], c[1], c[2], c[3]};
        MUST(!c[5] && at + c[4] <= b->part);
        MUST(block_find(b, &k, c[4]) == at && !block_find(b, &k, (size_t)c[4] + 1));
        MUST(block_add(&w, &k, at, c[4]) == 0);
        at += c[4];
    }
    MUST(at == b->part && block_finish(&w) == 0);
    MUST(w.data.len == size && memcmp(w.data.data, data, size - DIGEST_BYTES) == 0);
    block_done(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct kv *kv;
    const uint8_t none[DIGEST_BYTES] = {0}, *key = size >= BLOCK_HEAD ? data + 32 : none;
    if (!kv) MUST((kv = store_open(16)) != NULL);
    for (int trust = 0; trust < 2; trust++)
        for (uint32_t kind = BLOCK_ROWS; kind <= BLOCK_END; kind++) {
            struct block b;
            block_trust = trust;
            if (block_read(data, size, key, kind, &b) < 0) {
                MUST(err_last()[0]);
                continue;
            }
            again(&b, data, size);
            load(kv, &b, data, size);
        }
    block_trust = false;
    return 0;
}

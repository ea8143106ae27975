/* image_int.h - shared by save.c and load.c. */
#pragma once
#include "dev/affine.h"
#include "kv/image.h"
#include "kv/kv_int.h"

/* The chunks of one group in one form. */
struct image_walk {
    const struct group *g;
    uint32_t gi, form;
    uint32_t at, end;
    uint32_t keep, from; /* raw: rows [0, keep) and [from, end) */
};
void image_first(struct image_walk *w, const struct group *g, const struct seq *s, uint32_t gi,
                 uint32_t form);
bool image_next(struct image_walk *w, struct kv_chunk *c);
size_t image_bytes(const struct group *g, const struct kv_chunk *c);
size_t image_most(const struct group *g, uint32_t form); /* of a chunk */
/* One page of a chunk (a block's rows, a tile, a state), whose i-th site is at page + i * span; the bytes of the chunk
 * moved.  in: into the page. */
size_t image_move(const struct group *g, const struct kv_chunk *c, unsigned char *page, size_t span,
                  unsigned char *chunk, bool in);

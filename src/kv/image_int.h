/* image_int.h - shared by save.c and load.c. */
#pragma once
#include "dev/affine.h"
#include "kv/image.h"
#include "kv/kv_int.h"

/* Walks the chunks of one group in one form: rows [0, lead), rows [from, end), and the rows of snapshots, in
 * ascending order. */
struct image_walk {
    const struct group *g;
    const struct seq_group *sg;
    uint32_t gi, form;
    uint32_t at, end;
    uint32_t lead, from;
};
void image_first(struct image_walk *w, const struct group *g, const struct seq *s, uint32_t gi,
                 uint32_t form);
bool image_next(struct image_walk *w, struct kv_chunk *c);
size_t image_bytes(const struct group *g, const struct kv_chunk *c);
size_t image_most(const struct group *g, uint32_t form); /* Returns the most bytes of a chunk. */
/* Moves the bytes of a chunk between `data` and one page (a block's rows, a tile or a state); returns the bytes
 * moved.  The part of the page at its i-th site is at page + i * span, in memory of the device of `work`.  in: true
 * into the page. */
size_t image_move(struct dev_queue *work, const struct group *g, const struct kv_chunk *c,
                  unsigned char *page, size_t span, unsigned char *chunk, bool in);

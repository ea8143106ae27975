/* padded.h - inside a padded batch: sequences of one cache, and which columns of the rectangle they are. */
#pragma once
#include "generate/handle.h"

struct kvik_batch {
    kvik_cache *c;
    uint32_t rows, length;          /* columns, padding included */
    uint32_t cap;                   /* columns `mask` has room for */
    kv_seq *seq;                    /* [rows] owned */
    uint8_t *mask;                  /* [rows][cap] 1: a row of the sequence, in order */
    struct padded_scratch *scratch; /* of forward; NULL: none yet */
};
/* padded.c */
int padded_room(struct kvik_batch *b, uint32_t columns); /* changes nothing one can see */
uint32_t padded_ones(const uint8_t *mask, uint32_t n);
/* A batch of sequences that exist, which it owns from then on; mask [n][length]. */
int padded_of(kvik_cache *c, const kv_seq *seq, uint32_t n, const uint8_t *mask, uint32_t length,
              kvik_batch **out);
/* padded_forward.c */
void padded_scratch_free(struct padded_scratch *s);

/* legacy.c: the rows of n sequences as arrays; mask [n][length] has a one for every row.  NULL: every sequence ends in
 * the last of as many columns as the longest has rows. */
int legacy_of(kvik_cache *c, const kv_seq *seq, uint32_t n, const uint8_t *mask, uint32_t length,
              kvik_legacy **out);
/* legacy_rows.c: generates, and where return_legacy_cache asks for them adds the rows' arrays to the result. */
int legacy_generate(kvik_cache *c, const kvik_generation *g, const kvik_prompt *prompt, uint32_t n,
                    const kvik_hooks *hooks, kvik_result **out);
/* Room for one layer's zeros. */
int legacy_layer_new(const kvik_legacy *l, kvik_legacy_layer *layer);

struct safetensors;
/* legacy_file.c: an open file, `what` in errors; m NULL: of any model. */
int legacy_read(const struct safetensors *s, const char *what, const kvik_model *m,
                kvik_legacy **out);

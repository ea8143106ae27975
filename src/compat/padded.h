/* padded.h - the inside of a padded batch, and of the legacy form: sequences of one cache, and a mask that says which
 * columns of a rectangle are their tokens. */
#pragma once
#include "compat/compat_sizes.h"
#include "generate/handle.h"

struct kvik_batch {
    kvik_cache *c; /* held */
    struct refs refs;
    uint32_t rows, length;          /* columns, padding included */
    uint32_t cap;                   /* columns that `mask` has room for */
    kv_seq *seq;                    /* [rows] owned */
    uint8_t *mask;                  /* [rows][cap] 1: the next token of the sequence */
    struct padded_scratch *scratch; /* of kvik_batch_forward; NULL: none yet */
    struct late_close close;
};
/* Begins a public call with a batch, as cache_enter does. */
static inline int batch_enter(const struct kvik_batch *b, kvik_cache **used)
{
    if (!b) return ERR(ARG, "the batch is NULL");
    TRY(refs_check(&b->refs, "batch"));
    return cache_use(b->c, used);
}
/* Use the cache of a batch until the end of the block, as USE_CACHE does. */
#define USE_BATCH_OR(b, refused)                                                                   \
    kvik_cache *in_use __attribute__((cleanup(cache_leave))) = NULL;                               \
    if (batch_enter(b, &in_use) < 0) return refused
#define USE_BATCH(b)                                                                               \
    kvik_cache *in_use __attribute__((cleanup(cache_leave))) = NULL;                               \
    TRY(batch_enter(b, &in_use))
void batch_drop(struct kvik_batch *b);
/* padded.c: makes room for so many columns in the mask; the batch stays as it is. */
int padded_room(struct kvik_batch *b, uint32_t columns);
uint32_t padded_ones(const uint8_t *mask, uint32_t n); /* counts the columns that are not masked */
/* Makes a batch of existing sequences, which the batch owns from then on; mask [n][length]. */
int padded_of(kvik_cache *c, const kv_seq *seq, uint32_t n, const uint8_t *mask, uint32_t length,
              kvik_batch **out);
/* Sets the mask to what each sequence has now: the columns of mask [rows][columns], then one for each later token.  A
 * sequence with fewer tokens than its mask has ones loses the last of these. */
int padded_settle(struct kvik_batch *b, const uint8_t *mask, uint32_t columns);
/* padded_forward.c */
void padded_scratch_free(struct padded_scratch *s);

/* interchange.c: exports a sequence of a cache that the caller uses. */
int export_of(kvik_cache *c, kv_seq s, kvik_export **out);
/* legacy.c: the KV rows of n sequences as arrays; mask [n][length] has a one for every token.  mask NULL: as many columns
 * as the longest sequence has tokens, and every sequence ends in the last column. */
int legacy_of(kvik_cache *c, const kv_seq *seq, uint32_t n, const uint8_t *mask, uint32_t length,
              kvik_legacy **out);
/* legacy_cross.c: the rows of an encoder in the legacy form. */
/* Returns the layers of the legacy form: those of the text, whose sites come first. */
uint32_t legacy_layers(const struct exec *x);
/* Allocates the cross layers of l; their columns are as many as the sequence with the most has rows. */
int legacy_cross_new(const struct exec *x, const kv_seq *seq, kvik_legacy *l);
/* Copies the rows of batch row b to the columns of a layer, or back. */
void legacy_cross_pass(const kvik_legacy *l, uint32_t b, const kvik_legacy_layer *y,
                       const kvik_layer_rows *r, bool out);
int legacy_cross_check(const struct exec *x, const kvik_legacy *in);
/* Adds the planes of batch row b to a layer of an export. */
int legacy_cross_in(const kvik_legacy *l, uint32_t b, const kvik_legacy_layer *y,
                    kvik_layer_rows *r);
/* legacy_rows.c: generates, and adds the KV rows as arrays to the result if return_legacy_cache is set. */
int legacy_generate(kvik_cache *c, const kvik_generation *g, const kvik_prompt *prompt, uint32_t n,
                    const kvik_hooks *hooks, kvik_result **out);
/* Allocates the arrays of one layer, zeroed. */
int legacy_layer_new(const kvik_legacy *l, kvik_legacy_layer *layer);

struct safetensors;
/* legacy_file.c: reads an open file, `what` in errors; m NULL: a file of any model. */
int legacy_read(const struct safetensors *s, const char *what, const kvik_model *m,
                kvik_legacy **out);

/* padded.h - the inside of a padded batch, and of the legacy form: sequences of one cache, and a mask over a
 * rectangle.  Each batch row is one sequence.  The mask says which columns of the row are tokens of the sequence. */
#pragma once
#include "compat/compat_sizes.h"
#include "generate/handle.h"

struct kvik_batch {
    kvik_cache *c; /* held */
    struct refs refs;
    uint32_t rows, length; /* number of sequences; number of columns, padding included */
    uint32_t cap;          /* columns that `mask` has room for */
    kv_seq *seq;           /* [rows] owned */
    uint8_t *mask; /* [rows][cap] 1: the column is the next token of the sequence; 0: padding */
    struct padded_scratch *scratch; /* scratch of kvik_batch_forward; NULL: not made yet */
    struct late_close close;
};
/* Begins a public call with a batch, as cache_enter does with a cache. */
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
/* padded.c: makes room for `columns` columns in the mask.  The batch does not change. */
int padded_room(struct kvik_batch *b, uint32_t columns);
uint32_t padded_ones(const uint8_t *mask, uint32_t n); /* counts the ones of a mask */
/* Makes a batch of existing sequences and takes them over.  mask: [n][length]. */
int padded_of(kvik_cache *c, const kv_seq *seq, uint32_t n, const uint8_t *mask, uint32_t length,
              kvik_batch **out);
/* Sets the mask to the present state of each sequence: first the columns of mask [rows][columns], then one column
 * for each later token.  If a sequence has fewer tokens than its mask has ones, the last of these ones are
 * cleared. */
int padded_settle(struct kvik_batch *b, const uint8_t *mask, uint32_t columns);
/* padded_forward.c */
void padded_scratch_free(struct padded_scratch *s);

/* interchange.c: exports a sequence of a cache that is in use by the calling function. */
int export_of(kvik_cache *c, kv_seq s, kvik_export **out);
/* legacy.c: returns the KV rows of n sequences as arrays.  mask [n][length] has a one for every token.  mask NULL:
 * there are as many columns as the longest sequence has tokens, and every sequence ends in the last column. */
int legacy_of(kvik_cache *c, const kv_seq *seq, uint32_t n, const uint8_t *mask, uint32_t length,
              kvik_legacy **out);
/* legacy_cross.c: the rows of an encoder in the legacy form. */
/* Returns the number of layers of the legacy form.  The sites of the decoder's rows come first. */
uint32_t legacy_layers(const struct exec *x);
/* Allocates the cross layers of l, with as many columns as the longest of the encoder's inputs has rows. */
int legacy_cross_new(const struct exec *x, const kv_seq *seq, kvik_legacy *l);
/* Copies the encoder's rows of batch row b to the columns of a layer, or back. */
void legacy_cross_pass(const kvik_legacy *l, uint32_t b, const kvik_legacy_layer *y,
                       const kvik_layer_rows *r, bool out);
int legacy_cross_check(const struct exec *x, const kvik_legacy *in);
/* Adds the planes of batch row b to a layer of an export. */
int legacy_cross_in(const kvik_legacy *l, uint32_t b, const kvik_legacy_layer *y,
                    kvik_layer_rows *r);
/* legacy_rows.c: generates.  If return_legacy_cache is set, adds the KV rows to the result as arrays. */
int legacy_generate(kvik_cache *c, const kvik_generation *g, const kvik_prompt *prompt, uint32_t n,
                    const kvik_hooks *hooks, kvik_result **out);
/* Allocates the arrays of one layer, zeroed. */
int legacy_layer_new(const kvik_legacy *l, kvik_legacy_layer *layer);

struct safetensors;
/* legacy_file.c: reads an open file, which errors call `what`.  m NULL: the file may belong to any model. */
int legacy_read(const struct safetensors *s, const char *what, const kvik_model *m,
                kvik_legacy **out);

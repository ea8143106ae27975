/* bits_kept.h - the text that bits are chosen on, and what was chosen for a model, in the user's cache directory. */
#pragma once
#include "base/user_cache.h"
#include "dev/dev.h"
#include "model/model.h"

#define BITS_MAX_KLD 0.005 /* where max_kld is not given */

struct bits_kept {
    char *config; /* owned: keys of cache_config */
    double kld, bits;
};
void bits_kept_done(struct bits_kept *b);

/* The text; *n: its bytes. */
const char *bits_text(size_t *n);

/* What a choice depends on. */
struct bits_source {
    struct cache_key key;
    struct cache_sources files;
    int64_t begun; /* before the model was measured, in nanoseconds since 1970 */
};
void bits_source(const struct model *m, enum dev_compute compute, double limit,
                 struct bits_source *out);
/* True if an earlier run has chosen. */
bool bits_recall(const struct bits_source *s, struct bits_kept *out);
/* Keeps a choice; a directory that cannot be written is no error. */
void bits_remember(const struct bits_source *s, const struct bits_kept *b);

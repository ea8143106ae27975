/* bits_kept.h - the text with which bits are measured, and the choices that are kept in the user's cache directory. */
#pragma once
#include "base/user_cache.h"
#include "dev/dev.h"
#include "model/model.h"

#define BITS_MAX_KLD 0.005 /* if max_kld is not given */

struct bits_kept {
    char *config; /* owned: keys of cache_config */
    double kld, bits;
};
void bits_kept_done(struct bits_kept *b);

/* Returns the text; *n: its bytes. */
const char *bits_text(size_t *n);

/* What a choice depends on. */
struct bits_source {
    struct cache_key key;
    struct cache_sources files;
    int64_t begun; /* before the model was measured, in nanoseconds since 1970 */
};
void bits_source(const struct model *m, enum dev_compute compute, double limit,
                 struct bits_source *out);
/* True if an earlier run has made the choice. */
bool bits_recall(const struct bits_source *s, struct bits_kept *out);
/* Keeps a choice.  If the directory cannot be written, this does nothing. */
void bits_remember(const struct bits_source *s, const struct bits_kept *b);

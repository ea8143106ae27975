/* fingerprint.c - two digests that identify the model that KV rows belong to.
 *
 * The fingerprint is cheap, and every session has it.  It covers the configuration, without keys that cannot
 * change a result.  Of each tensor it covers the name, type, shape and four windows of 1 KiB: the first, the last,
 * and two between.  A small tensor is covered whole.  Training changes every value of the tensors that it trains,
 * so fine-tunes have another fingerprint.
 *
 * The digest of the weights covers every byte, so that no local change is missed.  Reading gigabytes takes
 * seconds.  So the digest is made when a session first needs it, and an entry in the user's cache directory keeps
 * it for later runs (weights_entry.c).  Rows belong to the weights that are mapped: if a mapped file is written
 * to, the digest is made again, and a different digest is an error. */
#include "base/digest.h"
#include "model/model.h"
#include "model/weights_digest.h"

#include <string.h>
#include <time.h>

#define WINDOW 1024u

static void add_tensor(struct digest *d, const struct tensor *t)
{
    const unsigned char *p = t->data;
    digest_text(d, t->name);
    digest_u64(d, t->dtype);
    digest_u64(d, t->n_dims);
    for (uint32_t i = 0; i < t->n_dims; i++)
        digest_u64(d, t->dim[i]);
    digest_u64(d, t->bytes);
    if (t->bytes <= 4 * WINDOW) {
        digest_add(d, p, t->bytes);
        return;
    }
    for (size_t i = 0; i < 4; i++)
        digest_add(d, p + (t->bytes - WINDOW) / 3 * i, WINDOW);
}

static int add_config(struct digest *d, const json_t *config)
{
    static const char *const idle[] = {"_name_or_path", "transformers_version"};
    JSON_SCOPE(scope);
    json_t *copy = json_copy((json_t *)(uintptr_t)config);
    if (!copy) return ERR(NOMEM, "out of memory");
    for (size_t i = 0; i < countof(idle); i++)
        json_object_del(copy, idle[i]);
    char *text;
    int e = json_text(copy, &text);
    json_decref(copy);
    if (e < 0) return e;
    digest_text(d, text);
    mem_free(text);
    return 0;
}

int model_fingerprint(const struct model *m, uint8_t out[DIGEST_BYTES])
{
    struct digest d;
    const json_t *config = checkpoint_config(m->ck);
    TRY(checkpoint_recheck(m->ck));
    digest_begin(&d);
    digest_text(&d, m->arch_name);
    if (config) TRY(add_config(&d, config));
    digest_u64(&d, checkpoint_n_tensors(m->ck));
    for (uint32_t i = 0; i < checkpoint_n_tensors(m->ck); i++)
        add_tensor(&d, checkpoint_tensor_at(m->ck, i));
    digest_end(&d, out);
    return 0;
}

/* --- All weights ------------------------------------------------------------------------------ */

static int written(const struct model *m)
{
    return ERR(
        IO,
        "%s: the weights were written to while the model was open, so its KV rows belong to no "
        "model; open the model again",
        m->what);
}

/* Accepts a digest as that of the mapped weights.  f: the state of their files. */
static void accept(struct weights_digest *w, const struct weights_files *f,
                   const uint8_t digest[DIGEST_BYTES])
{
    w->known = true;
    memcpy(w->all, digest, sizeof w->all);
    memcpy(w->files, f->now, sizeof w->files);
}

/* Returns the digest that this process or an earlier run has made of the same files; NULL if there is none.
 * space: room for the digest of an earlier run. */
static const uint8_t *earlier(const struct weights_digest *w, const struct weights_files *f,
                              uint8_t space[DIGEST_BYTES])
{
    if (w->known) return w->all;
    return weights_recall(f, space) ? space : NULL;
}

/* Hashes the weights and compares the digest with an earlier one, which may be NULL. */
static int hash_again(struct model *m, uint32_t threads, const struct weights_files *f,
                      const uint8_t *old)
{
    struct weights_digest *w = &m->weights;
    uint8_t fresh[DIGEST_BYTES];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (!old && f->change == FILES_WRITTEN) return written(m);
    TRY(weights_hash(m->ck, threads, fresh));
    if (old && memcmp(old, fresh, sizeof fresh) != 0) {
        weights_forget(f);
        if (w->known || f->change != FILES_SAME) return written(m);
        return ERR(
            IO,
            "%s: the weights are not those that an earlier run has hashed, although size and "
            "times of the files are the same; check the disk, or fetch the model again",
            m->what);
    }
    accept(w, f, fresh);
    if (!old) weights_remember(m->ck, f, nanoseconds(&now), fresh);
    return old != NULL;
}

static int verify(struct model *m, uint32_t threads)
{
    struct weights_files f;
    uint8_t space[DIGEST_BYTES];
    TRY(checkpoint_recheck(m->ck));
    weights_files(m->ck, &f);
    return hash_again(m, threads, &f, earlier(&m->weights, &f, space));
}

/* Makes sure that the digest is known.  Hashes the weights only if there is no digest, or if the files have
 * changed since. */
static int settle_digest(struct model *m, uint32_t threads)
{
    struct weights_digest *w = &m->weights;
    struct weights_files f;
    uint8_t space[DIGEST_BYTES];
    TRY(checkpoint_recheck(m->ck));
    weights_files(m->ck, &f);
    if (w->known && memcmp(f.now, w->files, sizeof w->files) == 0) return 1;
    const uint8_t *old = earlier(w, &f, space);
    if (!old || w->known || f.change != FILES_SAME) return hash_again(m, threads, &f, old);
    accept(w, &f, old);
    return 1;
}

int model_weights_again(struct model *m, uint32_t threads)
{
    pthread_mutex_lock(&m->weights.lock);
    int e = verify(m, threads);
    pthread_mutex_unlock(&m->weights.lock);
    return e;
}

int model_weights(struct model *m, uint32_t threads, uint8_t out[DIGEST_BYTES])
{
    pthread_mutex_lock(&m->weights.lock);
    int e = settle_digest(m, threads);
    if (e >= 0) memcpy(out, m->weights.all, DIGEST_BYTES);
    pthread_mutex_unlock(&m->weights.lock);
    return e;
}

int model_digests(struct model *m, uint32_t threads, struct model_digests *out)
{
    uint8_t d[DIGEST_BYTES];
    struct weights_digest *w = &m->weights;
    pthread_mutex_lock(&w->lock);
    int e = w->fingerprint[0] ? 0 : model_fingerprint(m, d);
    if (e >= 0 && !w->fingerprint[0]) digest_hex(d, w->fingerprint);
    memcpy(out->fingerprint, w->fingerprint, sizeof w->fingerprint);
    pthread_mutex_unlock(&w->lock);
    if (e < 0) return e;
    TRY(model_weights(m, threads, d));
    digest_hex(d, out->weights);
    return 0;
}

/* fingerprint.c - a digest that says which model KV rows belong to.  It tells two fine-tunes of one architecture apart.
 *
 * Hashing all weights would read gigabytes from a mapped file that is mostly not in memory.  Training moves every value
 * of the tensors that it trains.  So the digest takes each tensor's name, type, shape and four windows of 1 KiB: the
 * first, the last, and two between; a small tensor is taken whole.  The configuration counts as well, without the
 * keys that cannot change a result. */
#include "base/digest.h"
#include "model/model.h"

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
